//! Shells in sessions that allow only commands and files of the workspace.

use super::call::*;

/// Variables that `cargo test` and rustup add to this process.
const OWN: [&str; 5] = ["CARGO", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"];

/// The user's toolchain builds a program in the sandbox, and the program runs there.
#[test]
fn cargo_builds_in_the_sandbox_of_a_run() {
    let user = User::new();
    user.file("Cargo.toml", "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n");
    user.file("build.rs", "fn main() {}\n");
    user.file("src/main.rs", "fn main() { println!(\"built here\"); }\n");
    let command = "cargo build --offline --quiet && target/debug/tiny; touch ../outside || echo confined";
    let step = json!({"calls": [{"tool": "shell", "args": {"command": command}}]});
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": [step, {"text": "{last}"}]}]}).to_string());
    let mut run = user.command(&[
        "run",
        "--quiet",
        "--model",
        &model,
        "--allow",
        "shell.run",
        "--allow",
        "fs.write",
        "Build it.",
    ]);
    for name in OWN {
        run.env_remove(name);
    }
    let done = RunningCommand::start(run, "").done();
    assert_eq!((done.code, &*done.err), (Some(0), ""), "{done:?}");
    assert!(done.out.contains("built here\n") && done.out.contains("confined\n"), "{done:?}");
    assert!(user.workspace().join("target/debug/tiny").exists());
    assert!(!user.workspace().with_file_name("outside").exists());
}
