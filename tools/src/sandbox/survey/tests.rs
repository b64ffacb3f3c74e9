use std::os::fd::AsRawFd as _;
use std::path::Path;

use subtend_session::authority::{Rule, RuleSet};

use super::*;

const READ_ALL: &str = "rl--";
const WRITE_ALL: &str = "--w-";
const CHANGE_ALL: &str = "rl-c";
const ALL: &str = "rlwc";

fn authority(default: Verdict, rules: &[(&str, &str, Verdict)]) -> Authority {
    let rule = |(action, resource, verdict): &(&str, &str, Verdict)| Rule {
        action: (*action).into(),
        resource: (*resource).into(),
        verdict: *verdict,
    };
    Authority::of(RuleSet { default, rules: rules.iter().map(rule).collect() })
}

fn workspace(files: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    dir
}

fn letters(grant: Grant) -> String {
    let Grant { read, list, write, change } = grant;
    [('r', read), ('l', list), ('w', write), ('c', change)].map(|(c, is)| if is { c } else { '-' }).iter().collect()
}

fn granted_paths(dir: &Path, authority: &Authority) -> Result<Vec<(String, String)>, String> {
    let root = OwnedFd::from(std::fs::File::open(dir).unwrap());
    let mut all = Vec::new();
    WorkspaceSurvey::new(authority).grant(root, &mut |fd, grant| {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
        let path = path.strip_prefix(dir.canonicalize().unwrap()).unwrap().display().to_string();
        all.push((if path.is_empty() { ".".into() } else { path }, letters(grant)));
        Ok(())
    })?;
    all.sort();
    Ok(all)
}

fn expect(dir: &tempfile::TempDir, authority: &Authority, expected: &[(&str, &str)]) {
    let expected: Vec<(String, String)> =
        expected.iter().map(|(path, grant)| ((*path).into(), (*grant).into())).collect();
    assert_eq!(granted_paths(dir.path(), authority), Ok(expected));
}

const FILES: [&str; 5] = ["a.txt", "src/a.rs", "src/deep/b.rs", "secret/key", "secret/open/c"];

#[test]
fn fully_allowed_workspace_needs_one_rule() {
    let dir = workspace(&FILES);
    expect(&dir, &authority(Verdict::Allow, &[]), &[(".", ALL)]);
    expect(&dir, &authority(Verdict::Deny, &[("fs.read", "*", Verdict::Allow)]), &[(".", READ_ALL)]);
    expect(&dir, &authority(Verdict::Ask, &[("fs.write", "*", Verdict::Allow)]), &[(".", WRITE_ALL)]);
    expect(&dir, &Authority::deny_all(), &[]);
}

#[test]
fn partly_allowed_directory_grants_its_allowed_entries() {
    let dir = workspace(&FILES);
    let rules = [("fs.*", "secret/**", Verdict::Deny), ("fs.read", "secret/open/**", Verdict::Allow)];
    let but_secrets = authority(Verdict::Allow, &rules);
    expect(&dir, &but_secrets, &[("a.txt", "r-w-"), ("secret/open", READ_ALL), ("src", ALL)]);
}

#[test]
fn names_are_listed_unless_a_subdirectory_is_denied() {
    let dir = workspace(&["a", ".env", "src/.env", "src/b"]);
    let no_env = authority(Verdict::Ask, &[("fs.read", "*", Verdict::Allow), ("fs.read", "**/.env", Verdict::Deny)]);
    expect(&dir, &no_env, &[(".", "-l--"), ("a", "r---"), ("src", "-l--"), ("src/b", "r---")]);
}

#[test]
fn write_is_granted_whole_when_read_is_partial() {
    let dir = workspace(&FILES);
    let half = authority(Verdict::Allow, &[("fs.read", "secret/**", Verdict::Ask)]);
    expect(&dir, &half, &[(".", WRITE_ALL), ("a.txt", "r---"), ("src", CHANGE_ALL)]);
}

#[test]
fn change_is_granted_only_where_everything_is_readable() {
    let dir = workspace(&["src/.env", "src/a", "lib/a", "lib/deep/b"]);
    for verdict in [Verdict::Deny, Verdict::Ask] {
        let rules = authority(Verdict::Allow, &[("fs.read", "src/.env", verdict)]);
        let expected = [(".", WRITE_ALL), ("lib", CHANGE_ALL), (".", "-l--"), ("src", "-l--"), ("src/a", "r---")];
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        expect(&dir, &rules, &expected);
    }
    // No path may be read, but the verdicts differ (ask, and deny below `src`), so that the directories are visited.
    let rules = [("fs.write", "*", Verdict::Allow), ("fs.read", "src/**", Verdict::Deny)];
    expect(&dir, &authority(Verdict::Ask, &rules), &[(".", WRITE_ALL)]);
}

#[test]
fn hard_link_with_a_denied_name_is_not_granted() {
    let dir = workspace(&FILES);
    std::fs::hard_link(dir.path().join("secret/key"), dir.path().join("src/deep/alias")).unwrap();
    std::fs::hard_link(dir.path().join("src/a.rs"), dir.path().join("src/b.rs")).unwrap();
    let but_secrets = authority(Verdict::Allow, &[("fs.read", "secret/**", Verdict::Deny)]);
    let names =
        [(".", WRITE_ALL), ("a.txt", "r---"), ("src/a.rs", "r---"), ("src/b.rs", "r---"), ("src/deep/b.rs", "r---")];
    // The ancestors of the granted files may only be listed, and are left out.
    let seen: Vec<(String, String)> = granted_paths(dir.path(), &but_secrets).unwrap();
    let files: Vec<(&str, &str)> =
        seen.iter().map(|(path, grant)| (&**path, &**grant)).filter(|(_, grant)| *grant != "-l--").collect();
    assert_eq!(files, names);
}

#[test]
fn links_sockets_and_non_utf8_names_are_not_granted() {
    use std::os::unix::ffi::OsStrExt as _;
    let dir = workspace(&["a", "secret/key"]);
    std::os::unix::fs::symlink("secret/key", dir.path().join("link")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    std::fs::write(dir.path().join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
    let but_secrets = authority(Verdict::Allow, &[("fs.*", "secret/**", Verdict::Deny)]);
    expect(&dir, &but_secrets, &[("a", "r-w-")]);
}

/// A file tool creates no deeper directory than one with 255 parts, for a file with 256 parts. The control: a path of 257 parts is
/// refused by file tools.
#[test]
fn only_workspaces_deeper_than_paths_of_tools_are_refused() {
    let no_env = authority(Verdict::Allow, &[("fs.read", "**/.env", Verdict::Deny)]);
    let granted = |parts: usize| {
        let dir = workspace(&[]);
        std::fs::create_dir_all(dir.path().join("d/".repeat(parts))).unwrap();
        granted_paths(dir.path(), &no_env).map(|all| all.len())
    };
    let most = Authority::MAX_PATH_PARTS;
    assert!(
        crate::path::resource(&"d/".repeat(most)).is_ok() && crate::path::resource(&"d/".repeat(most + 1)).is_err()
    );
    // The workspace itself grants two rules.
    assert_eq!(granted(most - 1), Ok(most + 1));
    assert_eq!(granted(most), Err("the workspace has more than 256 levels of directories".into()));
}

/// Set in the child process with few handles.
const FEW_HANDLES: &str = "SUBTEND_TEST_SURVEY";

/// The host searches for other names of a file in a process that other calls share. The control is the grant of the whole workspace,
/// which holds handles for each level, in the process of a guard: it does not reach all directories.
#[test]
fn deep_workspace_is_searched_with_few_handles() {
    let Some(dir) = std::env::var_os(FEW_HANDLES) else {
        let dir = workspace(&[]);
        let deep = |top: &str| dir.path().join(top).join("d/".repeat(180));
        for top in ["a", "b", "c"] {
            std::fs::create_dir_all(deep(top)).unwrap();
            std::fs::write(deep(top).join(".env"), "").unwrap();
            std::fs::hard_link(deep(top).join(".env"), deep(top).parent().unwrap().join("other")).unwrap();
        }
        let mut command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -n 40; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        command.args(["--exact", "sandbox::survey::tests::deep_workspace_is_searched_with_few_handles"]);
        let out = command.env(FEW_HANDLES, dir.path()).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        return;
    };
    let no_env = authority(Verdict::Allow, &[("fs.read", "**/.env", Verdict::Deny)]);
    let root = || OwnedFd::from(std::fs::File::open(&dir).unwrap());
    assert!(granted_paths(Path::new(&dir), &no_env).is_ok_and(|all| all.len() < 3 * 180));
    assert_eq!(unread(root(), &no_env, &CancellationToken::new()).map(|files| files.len()), Ok(3));
}

#[test]
fn cancelled_search_of_a_workspace_ends() {
    let dir = workspace(&["a"]);
    let root = OwnedFd::from(std::fs::File::open(dir.path()).unwrap());
    let cancel = CancellationToken::new();
    cancel.cancel();
    let no_env = authority(Verdict::Allow, &[("fs.read", "**/.env", Verdict::Deny)]);
    assert_eq!(unread(root, &no_env, &cancel), Err("the call was cancelled".into()));
}

/// A build moves directories while the workspace is inspected: commands still run, and no other name of a denied file is granted. The
/// control: when nothing moves, all allowed files with several names are granted.
#[test]
fn moved_directories_do_not_end_the_search() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let dir = workspace(&["secret/.env", "a", "from/x"]);
    let at = |path: &str| dir.path().join(path);
    std::fs::hard_link(at("secret/.env"), at("alias")).unwrap();
    std::fs::hard_link(at("a"), at("b")).unwrap();
    let names: Vec<String> = (0..12).map(|n| format!("d{n}")).collect();
    for name in &names {
        (0..20).for_each(|n| std::fs::create_dir_all(at(&format!("from/{name}/s{n}/t"))).unwrap());
    }
    std::fs::create_dir(at("to")).unwrap();
    let no_env = authority(Verdict::Allow, &[("fs.read", "**/.env", Verdict::Deny)]);
    let granted = || {
        let granted = granted_paths(dir.path(), &no_env).unwrap();
        ["alias", "a", "b"].map(|name| granted.iter().any(|(path, grant)| path == name && grant.starts_with('r')))
    };
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for [from, to] in [["from", "to"], ["to", "from"]] {
                    names.iter().for_each(|name| {
                        std::fs::rename(at(from).join(name), at(to).join(name)).unwrap();
                    });
                }
            }
        });
        let found: Vec<_> = (0..30).map(|_| std::panic::catch_unwind(std::panic::AssertUnwindSafe(granted))).collect();
        ended.store(true, Ordering::Relaxed);
        assert!(found.iter().all(|found| found.as_ref().is_ok_and(|[alias, ..]| !alias)), "{found:?}");
    });
    assert_eq!(granted(), [false, true, true]);
}
