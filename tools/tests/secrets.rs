//! Keys in the runtime's environment do not reach commands, and their values do not reach results.
//!
//! Runtime and guard are this test program, which the tests start again in a role.

use serde::{Deserialize, Serialize};
use subtend_tools::commands::{Commands, hide_this_process};
use subtend_tools::sandbox::{self, SandboxStrength};
use subtend_tools::secrets::Secrets;

use super::scene::{self, is_root};

const VARIABLE: &str = "OPENAI_API_KEY";
const KEY: &str = "sk-test-0123456789";
/// Script that searches all locations that a command can read for the key.
const HUNT: &str = "env; echo '= others'; for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done 2>/dev/null | grep sk-test; true";

#[derive(Clone, Copy, Serialize, Deserialize)]
struct SecretsCase {
    held: bool,
    all_variables: bool,
    redacted: bool,
    hidden: bool,
}

const SAFE: SecretsCase = SecretsCase { held: false, all_variables: false, redacted: false, hidden: true };

/// Not a test: the entry point of this program in a role.
#[test]
fn role() {
    scene::run_case(find_leak);
}

async fn find_leak(case: SecretsCase) -> String {
    if case.hidden {
        hide_this_process().unwrap();
    }
    let environment = if case.all_variables { vec!["*".into()] } else { Vec::new() };
    let secrets = if case.redacted { Secrets::of([(VARIABLE, KEY)]) } else { Secrets::default() };
    scene::shell(HUNT, case.held, Commands { environment, ..Commands::default() }, secrets).await
}

/// Returns the output of the search under a runtime whose environment has the key. With `ordinary`, it runs as an ordinary user.
fn output(case: SecretsCase, ordinary: bool) -> String {
    scene::runtime("secrets::role", &case, ordinary, &[(VARIABLE, KEY)])
}

#[test]
fn command_has_no_key_in_its_environment() {
    let text = output(SecretsCase { redacted: true, ..SAFE }, false);
    let (own, others) = text.split_once("= others").unwrap();
    assert!(own.contains("PATH=") && !own.contains(&format!("{VARIABLE}=")), "{text}");
    // The superuser's commands can read it from other processes, but the result is redacted.
    assert!(!others.contains(KEY), "{text}");
}

#[test]
fn command_of_an_ordinary_user_cannot_find_the_key() {
    let text = output(SAFE, is_root());
    assert!(text.contains("PATH=") && !text.contains(KEY), "{text}");
}

#[test]
fn sandboxed_command_cannot_read_keys_of_processes() {
    if sandbox::probe() != Ok(SandboxStrength::FilesAndNetwork) {
        println!("not tried: this system has no sandbox");
        return;
    }
    for ordinary in [false, is_root()] {
        let text = output(SecretsCase { held: true, hidden: false, ..SAFE }, ordinary);
        assert!(text.contains("PATH=") && !text.contains(KEY), "{text}");
    }
}

#[test]
fn key_passed_on_by_the_user_is_redacted_in_results() {
    let text = output(SecretsCase { all_variables: true, redacted: true, ..SAFE }, false);
    assert!(text.contains(&format!("{VARIABLE}=[{VARIABLE} redacted]")) && !text.contains(KEY), "{text}");
}

#[test]
fn control_without_each_protection_finds_the_key() {
    let passed_on = output(SecretsCase { all_variables: true, ..SAFE }, false);
    assert!(passed_on.contains(&format!("{VARIABLE}={KEY}")), "{passed_on}");
    let shown = output(SecretsCase { hidden: false, ..SAFE }, is_root());
    assert!(shown.contains(KEY), "{shown}");
}
