//! File systems that open an entry by other names too: a path must be spelled as on disk, because rules compare characters.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;

use super::beneath;

/// Maximum number of names that are kept of all directories.
const MAX_KEPT: usize = 1 << 20;

/// The names in directories of a workspace, for many checks at the same time: each directory is listed once.
#[derive(Debug)]
pub struct Listings {
    /// Hashes, which take less memory than the names.
    names: RefCell<HashMap<PathBuf, HashSet<u64>>>,
    keys: RandomState,
    /// Maximum number of names.
    max: usize,
}

impl Default for Listings {
    fn default() -> Self {
        Self::with_limit(MAX_KEPT)
    }
}

impl Listings {
    fn with_limit(max: usize) -> Self {
        Self { names: RefCell::default(), keys: RandomState::default(), max }
    }

    /// Returns whether `dir` at `path` has an entry with exactly this name.
    fn has(&self, dir: &Dir, path: &Path, name: &str) -> io::Result<bool> {
        let hash = |name: &OsStr| self.keys.hash_one(name);
        let mut names = self.names.borrow_mut();
        let room = self.max.saturating_sub(names.values().map(HashSet::len).sum());
        let listed = match names.entry(path.to_owned()) {
            Entry::Occupied(listed) => listed.into_mut(),
            Entry::Vacant(new) => {
                let listed: HashSet<u64> = dir
                    .entries()?
                    .flatten()
                    .map(|entry| hash(&entry.file_name()))
                    .take(room.saturating_add(1))
                    .collect();
                if listed.len() > room {
                    let why = format!(
                        "its directories have more than {} names, too many to check how they are spelled",
                        self.max
                    );
                    return Err(io::Error::other(why));
                }
                new.insert(listed)
            }
        };
        Ok(listed.contains(&hash(name.as_ref())))
    }
}

/// Returns the first part of `path`, an existing path without links, that has another spelling on disk. Without `listings`, keeps no names.
pub(super) fn misspelled_part<'a>(
    root: &Dir,
    path: &'a Path,
    listings: Option<&Listings>,
) -> io::Result<Option<&'a str>> {
    let mut ways: Vec<&Path> = path.ancestors().filter(|way| way.file_name().is_some()).collect();
    ways.reverse();
    for way in ways {
        let (dir, name) = beneath::parent(root, way)?;
        let Some(name) = name.to_str() else { continue };
        let is_missing =
            |other: &str| dir.symlink_metadata(other).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let is_listed = || match listings {
            Some(listings) => listings.has(&dir, way.parent().unwrap_or(way), name),
            // Any number of calls may list a directory of any size at the same time.
            None => Ok(dir.entries()?.flatten().any(|entry| entry.file_name() == name)),
        };
        if must_be_listed(name, is_missing) && !is_listed()? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Returns whether the existing `name` may be another name of its entry, so that only a list of the directory tells. File systems can ignore
/// case, the normal form of a letter, and invisible characters, and can have short names (`SECRET~1`) or streams (`secret:`). Those that open
/// other entries by a name of ASCII letters, digits, `.`, `_` and `-` also ignore its case, so it needs no list if its other case is missing.
/// ZFS with `normalization` can differ (see THREATS.md).
pub(super) fn must_be_listed(name: &str, is_missing: impl Fn(&str) -> bool) -> bool {
    let others = [name.to_ascii_uppercase(), name.to_ascii_lowercase()];
    let mut others = others.iter().filter(|other| *other != name).peekable();
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    !is_plain || others.peek().is_none() || !others.all(|other| is_missing(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether `name` opens the entry `on_disk` by another name, where a name opens all entries with the same `key`.
    fn is_misspelled(name: &str, on_disk: &str, key: impl Fn(&str) -> String) -> bool {
        must_be_listed(name, |other| key(other) != key(on_disk)) && name != on_disk
    }

    /// The control: the name itself, and a file system that distinguishes case.
    #[test]
    fn other_spelling_of_a_name_is_found() {
        const ATTACKS: [&str; 3] = ["SECRET", "Secret", "secreT"];
        let ignoring_case = |name: &str| is_misspelled(name, "secret", str::to_lowercase);
        assert_eq!(ATTACKS.map(ignoring_case), [true; 3]);
        assert!(!ignoring_case("secret"));
        assert!(!ATTACKS.into_iter().any(|name| must_be_listed(name, |_| true)));
    }

    /// Attack: the other normal form of a letter, on ZFS with `normalization=formD`. The control: the name itself.
    #[test]
    fn other_normal_form_of_a_name_is_found() {
        let decomposed = |name: &str| name.replace('\u{fc}', "u\u{308}");
        let found = |name: &str| is_misspelled(name, "\u{fc}ber", decomposed);
        assert_eq!(["u\u{308}ber", "\u{fc}ber"].map(found), [true, false]);
        assert!(is_misspelled("\u{fc}ber", "u\u{308}ber", decomposed));
    }

    /// Attack: ignored characters in names without case, in a directory of ext4 with `casefold`. The control: the names themselves.
    #[test]
    fn ignored_characters_of_a_name_are_found() {
        let folded = |name: &str| name.replace('\u{ad}', "").to_lowercase();
        for on_disk in ["\u{6a5f}\u{5bc6}", "\u{304b}", "2024", "secret"] {
            let attack = on_disk.chars().flat_map(|c| [c, '\u{ad}']).collect::<String>();
            let found = |name: &str| is_misspelled(name, on_disk, folded);
            assert_eq!([&*attack, on_disk].map(found), [true, false], "{on_disk}");
            assert!(is_misspelled(on_disk, &attack, folded), "{on_disk}");
        }
    }

    #[test]
    fn names_on_disk_are_not_misspelled() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("Deep")).unwrap();
        for name in ["Deep/a.txt", "Deep/ä", "Deep/1"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        // Two names of one file that differ in case only.
        std::fs::hard_link(dir.path().join("Deep/a.txt"), dir.path().join("Deep/A.TXT")).unwrap();
        let root = Dir::open_ambient_dir(dir.path(), cap_std::ambient_authority()).unwrap();
        for name in ["Deep", "Deep/a.txt", "Deep/A.TXT", "Deep/ä", "Deep/1"] {
            assert_eq!(misspelled_part(&root, Path::new(name), None).unwrap(), None, "{name}");
        }
    }

    /// A file may import thousands of others from a directory with many entries. The control: checks that keep no names.
    #[test]
    fn directory_is_listed_once_for_many_names() {
        let dir = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(dir.path(), cap_std::ambient_authority()).unwrap();
        let found = |name: &'static str, listings: Option<&Listings>| {
            // As on a file system that ignores case, the name opens the same file in capitals.
            std::fs::write(dir.path().join(name), "").unwrap();
            std::fs::hard_link(dir.path().join(name), dir.path().join(name.to_uppercase())).unwrap();
            misspelled_part(&root, Path::new(name), listings).unwrap()
        };
        let listings = Listings::default();
        assert_eq!(["a", "b"].map(|name| found(name, Some(&listings))), [None, Some("b")]);
        assert_eq!(["c", "d"].map(|name| found(name, None)), [None, None]);
    }

    /// The control: ASCII names with a letter, which need no list.
    #[test]
    fn names_without_ascii_letters_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let root = Dir::open_ambient_dir(dir.path(), cap_std::ambient_authority()).unwrap();
        let listings = Listings::default();
        assert_eq!(listings.has(&root, Path::new(""), "first").ok(), Some(false));
        // A file that is newer than the list is not in it, like an entry of another name.
        let found = |name: &'static str| {
            std::fs::write(dir.path().join(name), "").unwrap();
            misspelled_part(&root, Path::new(name), Some(&listings)).unwrap()
        };
        assert_eq!(
            ["\u{fc}", "\u{304b}", "1", "SECRET~1", "a:", "a", "a1.b_c-d"].map(found),
            [Some("\u{fc}"), Some("\u{304b}"), Some("1"), Some("SECRET~1"), Some("a:"), None, None]
        );
    }

    /// Attack: calls that each keep the names of a directory of any size. The control: as many names as are kept.
    #[test]
    fn listing_of_too_many_names_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        std::fs::hard_link(dir.path().join("a"), dir.path().join("A")).unwrap();
        let root = Dir::open_ambient_dir(dir.path(), cap_std::ambient_authority()).unwrap();
        let found = |max: usize| {
            misspelled_part(&root, Path::new("a"), Some(&Listings::with_limit(max))).map_err(|error| error.to_string())
        };
        let why = "its directories have more than 1 names, too many to check how they are spelled".to_owned();
        assert_eq!([found(2), found(1)], [Ok(None), Err(why)]);
    }
}
