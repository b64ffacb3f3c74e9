//! Invalid prompts, and workspaces that are missing or unreadable.

use std::fs;

use super::checker;
use super::planted::{self, HIDDEN};
use super::record::sound_outcomes;
use super::truth::{BEACON, ERROR, LANTERN, Truth};
use crate::cli::call::{RunningCommand, User, no_forks};

const QUESTION: &str = "Where does it handle errors?";

fn assert_refused(user: &User, args: &[&str], stdin: &str, expected: &[&str]) {
    let done = user.call_with(args, stdin);
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{done:?}");
    for word in expected {
        assert!(done.err.contains(word), "{word} is not in {}", done.err);
    }
    assert!(!user.data().exists(), "a refused command created a store");
}

#[test]
fn blank_prompt_is_refused() {
    for prompt in ["", " ", "\n\t \n"] {
        assert_refused(&User::new(), &["run", prompt], "", &["error: the prompt is empty"]);
        assert_refused(&User::new(), &["run", "-"], prompt, &["error: the prompt is empty"]);
    }
}

#[test]
fn prompt_above_one_mebibyte_is_refused() {
    let most = "a".repeat(1 << 20);
    assert_refused(
        &User::new(),
        &["run", "-"],
        &format!("{most}a"),
        &["error: the prompt is larger than 1048576 bytes"],
    );
    let user = User::new();
    let model = user.script(r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "taken" } ] } ] }"#);
    let done = user.call_with(&["run", "--model", &model, "-"], &most);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "taken\n"), "{}", done.err);
    assert_eq!(sound_outcomes(&user).len(), 1);
}

#[test]
fn offline_model_answers_a_huge_prompt() {
    let user = User::new();
    planted::plant_lights(&user.workspace());
    let words: Vec<_> = (0..100_000).map(|n| format!("w{n}.rs")).collect();
    let prompt = format!("Who uses RunLantern, and where is the beacon? {}", words.join(" "));
    let done = user.call_with(&["run", "-"], &prompt);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.out.contains("- only the first 4096 bytes of the question were read"), "{}", done.out);
    let checked = checker::answer(&done.out, &Truth::of(&user.workspace(), &[]), &[LANTERN, BEACON]);
    assert_eq!(checked.wrong, [""; 0], "{}", done.out);
    sound_outcomes(&user);
}

#[test]
fn workspace_that_is_not_a_directory_is_refused() {
    let user = User::new();
    user.file("plain.txt", "a file\n");
    assert_refused(&user, &["run", "--workspace", "nowhere", QUESTION], "", &["nowhere", "--workspace DIR"]);
    assert_refused(&user, &["run", "--workspace", "plain.txt", QUESTION], "", &["plain.txt", "--workspace DIR"]);
}

#[test]
fn empty_workspace_is_named_in_the_answer() {
    let user = User::new();
    let done = user.succeeds(&["run", QUESTION]);
    assert!(done.out.contains("shows no files"), "{}", done.out);
    assert_eq!(sound_outcomes(&user).len(), 1);
}

#[test]
fn binary_files_are_counted_and_not_quoted() {
    let user = User::new();
    for area in ["a", "b", "c"] {
        user.file(&format!("{area}/data.bin"), "error\n\0error\n");
    }
    let done = user.succeeds(&["run", QUESTION]);
    let checked = checker::answer(&done.out, &Truth::of(&user.workspace(), &[]), &[ERROR]);
    assert_eq!(checked.wrong, [""; 0], "{}", done.out);
    sound_outcomes(&user);
}

/// Changes the owner of `path` and of other users' files below it to `own`.
#[cfg(unix)]
fn take_ownership(path: &std::path::Path, own: u32) {
    use std::os::unix::fs::MetadataExt as _;

    let found = fs::symlink_metadata(path).expect("a file");
    if found.uid() != own {
        std::os::unix::fs::lchown(path, Some(own), None).expect("an owner");
    }
    if found.is_dir() && !path.ends_with("vault") {
        let entries = fs::read_dir(path).expect("a directory");
        entries.for_each(|entry| take_ownership(&entry.expect("an entry").path(), own));
    }
}

/// Files that the user may not read are reported, and the rest of the answer is correct.
#[cfg(unix)]
#[test]
fn unreadable_files_make_counts_lower_bounds() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::os::unix::process::CommandExt as _;

    let user = User::new();
    planted::plant(&user.workspace(), 10);
    user.file("parser/secret.rs", "// an error\n");
    user.file("server/vault/inner.rs", "// an error\n");
    let truth = Truth::of(&user.workspace(), HIDDEN).without(&["parser/secret.rs", "server/vault"]);
    let close = |path: &str| fs::set_permissions(user.workspace().join(path), fs::Permissions::from_mode(0o000));
    close("parser/secret.rs").expect("permissions");
    let mut command = user.command(&["run", "Where do the parser and the server handle errors?"]);
    if fs::read(user.workspace().join("parser/secret.rs")).is_ok() {
        // A superuser can read everything, so another user runs a copy of the command.
        let home = user.workspace().parent().expect("a home").to_owned();
        let program = home.join("subtend");
        // A process forked meanwhile would keep the copy open for writing.
        let alone = no_forks();
        fs::copy(command.get_program(), &program).expect("a copy");
        drop(alone);
        // A store in a directory that others can write is refused.
        std::os::unix::fs::chown(&home, Some(65_534), Some(65_534)).expect("an owner");
        fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).expect("permissions");
        let mut other = std::process::Command::new(program);
        other.args(command.get_args()).current_dir(user.workspace()).env("SUBTEND_DATA", user.data());
        other.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        other.stderr(std::process::Stdio::piped()).uid(65_534).gid(65_534);
        command = other;
    }
    close("server/vault").expect("permissions");
    let done = RunningCommand::start(command, "").done();
    // A store of another user is refused, so a superuser takes its ownership back.
    let own = fs::metadata(user.workspace()).expect("a workspace").uid();
    let home = user.workspace().parent().expect("a home").to_owned();
    take_ownership(&home, own);
    fs::set_permissions(user.workspace().join("server/vault"), fs::Permissions::from_mode(0o755)).expect("permissions");
    assert_eq!(done.code, Some(0), "{done:?}");
    let checked = checker::answer(&done.out, &truth, &[ERROR]);
    assert_eq!((checked.wrong, checked.doubt), (vec![], true), "{}", done.out);
    sound_outcomes(&user);
}
