//! Model output in files and pipes, which may be read at a terminal later.

use std::process::Command;

/// Clears the screen, reverses the writing direction, and hides characters.
const HOSTILE: &str = "safe\u{1b}[2J\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}\u{e0041}end";

/// Returns the stdout of a run whose model answers with the hostile text.
fn answered(more: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let script = serde_json::json!({"rules": [{"agent": "*", "steps": [{"text": HOSTILE}]}]});
    std::fs::write(dir.path().join("script.json"), script.to_string()).expect("a script");
    std::fs::create_dir(dir.path().join("workspace")).expect("a workspace");
    let model = format!("scripted:{}", dir.path().join("script.json").display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_subtend"));
    command.env_clear().env("HOME", dir.path()).current_dir(dir.path().join("workspace"));
    command.args(["run", "go", "--quiet", "--model", &model, "--data"]).arg(dir.path().join("data")).args(more);
    let output = command.output().expect("run the command");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn u4_answer_in_a_pipe_is_escaped() {
    let escaped = "safe<U+001B>[2J<U+009B>31m<U+202E><U+2066><U+200B><U+FEFF><U+E0041>end\n";
    assert_eq!(answered(&[]), escaped);
    // The control: without the guard the same answer reaches the pipe.
    assert_eq!(answered(&["--raw"]), format!("{HOSTILE}\n"));
}

/// JSON output escapes invisible characters without losing them.
#[test]
fn json_output_escapes_unseen_characters() {
    let out = answered(&["--json"]);
    let unseen = ['\u{9b}', '\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{e0041}'];
    assert!(!out.contains(unseen), "{out:?}");
    let last: serde_json::Value = serde_json::from_str(out.lines().last().expect("an end")).expect("JSON");
    assert_eq!(last["answer"], HOSTILE);
}

/// An export has the recorded bytes, so it is not written to a terminal. The control: a pipe receives them.
#[cfg(target_os = "linux")]
#[test]
fn export_is_not_shown_at_a_terminal() {
    use crate::cli::terminal::TerminalSession;

    let user = crate::cli::call::User::new();
    let model = user.script(&serde_json::json!({"rules": [{"agent": "*", "steps": [{"text": HOSTILE}]}]}).to_string());
    user.succeeds(&["run", "--model", &model, "go"]);
    let mut export = TerminalSession::at_terminal(&user, &["export"]);
    let shown = export.until("use --out FILE");
    let (code, rest) = export.wait_for_exit();
    assert_eq!((code, (shown + &rest).contains("\u{9b}31m")), (Some(2), false));
    assert!(user.succeeds(&["export"]).out.contains("\u{9b}31m"));
}
