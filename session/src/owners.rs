//! Decides which users can replace the files of a directory. The caller reads owners and modes.

use std::fmt::Display;

/// The owner of files of users who are not mapped into a user namespace, such as the superuser of the machine.
const UNMAPPED: u32 = 65_534;
/// The number of users. The highest number is not one of a user.
const ALL_USERS: u64 = 4_294_967_295;

/// The users whom this process trusts: its own user and the superuser.
#[derive(Clone, Copy, Debug)]
pub struct TrustedUsers {
    pub own: u32,
    /// True if this user namespace lacks users: then [`UNMAPPED`] includes the superuser of the machine.
    has_unmapped: bool,
}

impl TrustedUsers {
    /// Creates the users of a process of the user `own` with the text of `/proc/self/uid_map`, if the system has one.
    pub fn new(own: u32, map: Option<&str>) -> Self {
        Self { own, has_unmapped: map.is_some_and(lacks_users) }
    }

    pub fn includes(&self, user: u32) -> bool {
        [self.own, 0].contains(&user) || (user == UNMAPPED && self.has_unmapped)
    }

    /// Returns whether other users can write a path. A group with the number of the user is private, and members of the group 0 are trusted.
    pub fn is_writable_by_others(&self, group: u32, mode: u32) -> bool {
        mode & 0o002 != 0 || (mode & 0o020 != 0 && ![self.own, 0].contains(&group))
    }

    /// Returns why temporary files below the directory `dir` are not safe: another user could replace them.
    pub fn why_replaceable(&self, dir: impl Display, (owner, group, mode): (u32, u32, u32)) -> Option<String> {
        if !self.includes(owner) {
            return Some(format!(
                "{dir} belongs to user {owner}, who can replace files in it: name another directory by TMPDIR"
            ));
        }
        // In a sticky directory users can replace only their own files.
        (self.is_writable_by_others(group, mode) && mode & 0o1000 == 0).then(|| {
            format!(
                "other users can replace files in {dir}: name another directory by TMPDIR, or set its sticky bit (chmod +t)"
            )
        })
    }

    /// Returns why the directory `dir` for temporary files of this user alone is not safe to use.
    pub fn why_not_private(&self, dir: impl Display, is_dir: bool, owner: u32, mode: u32) -> Option<String> {
        (!is_dir || owner != self.own || mode & 0o077 != 0).then(|| {
            format!(
                "{dir} must be a directory of this user alone (mode 700), and not a link: remove it, or name another \
                 directory by TMPDIR"
            )
        })
    }
}

/// Returns the name, in the directory for temporary files, of the directory with those of `user`. Sessions may not use it.
pub fn temporary_dir_name(user: u32) -> String {
    format!("subtend-{user}")
}

/// Returns whether the `map` of a user namespace lacks users. A map that cannot be parsed counts as complete, so that no user is trusted
/// by mistake.
fn lacks_users(map: &str) -> bool {
    let counts = map.lines().map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<Option<u64>>().is_some_and(|mapped| mapped != ALL_USERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a container that keeps the number of its user, 65534 is mapped and the superuser of the machine is not. The control: complete
    /// maps, where 65534 is an ordinary user.
    #[test]
    fn owner_of_unmapped_files_is_trusted_if_users_are_missing() {
        let trusted = |map| TrustedUsers::new(1000, map).includes(UNMAPPED);
        let partial =
            ["0 1 1000\n1000 0 1\n1001 1001 64536\n", "         0       1000          1\n", "0 100000 65536\n", ""];
        assert_eq!(partial.map(|map| trusted(Some(map))), [true; 4]);
        let complete = ["         0          0 4294967295\n", "0 0 1000\n1000 1000 4294966295\n", "0 1\n", "0 1 x\n"];
        assert_eq!(complete.map(|map| trusted(Some(map))), [false; 4]);
        assert!(!trusted(None));
    }

    #[test]
    fn reason_names_the_owner_or_the_mode() {
        let users = TrustedUsers::new(1000, Some("0 0 4294967295"));
        let why = |found| users.why_replaceable("/tmp", found).unwrap_or_default();
        let owned = "/tmp belongs to user 65534, who can replace files in it: name another directory by TMPDIR";
        assert_eq!(why((UNMAPPED, 0, 0o1777)), owned);
        assert!(why((0, 0, 0o777)).ends_with("set its sticky bit (chmod +t)"));
        assert!(why((0, 50, 0o775)).starts_with("other users can replace files in /tmp"));
        for safe in [(0, 0, 0o1777), (1000, 1000, 0o770), (0, 0, 0o775)] {
            assert_eq!(why(safe), "");
        }
    }

    #[test]
    fn private_directory_belongs_to_its_user_alone() {
        let users = TrustedUsers::new(1000, None);
        let private = |is_dir, owner, mode| users.why_not_private("/tmp/subtend-1000", is_dir, owner, mode).is_none();
        assert!(private(true, 1000, 0o40_700));
        assert!(![private(false, 1000, 0o700), private(true, 0, 0o700), private(true, 1000, 0o750)].contains(&true));
    }
}
