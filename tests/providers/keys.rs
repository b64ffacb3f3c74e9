use std::path::Path;

use serde_json::json;

use super::broken::{BrokenServer, ServerAction};
use super::call::User;
use super::mock::{Mock, script};
use super::protocol::Protocol;
use super::provider_run::{KEY, ProviderRun, RunOutput};
use super::stored_session::only;
use super::text::agent;

fn holding(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            found.extend(holding(&entry, text));
        } else if std::fs::read(&entry).expect("a file").windows(text.len()).any(|bytes| bytes == text.as_bytes()) {
            found.push(entry.display().to_string());
        }
    }
    found
}

/// Checks that neither output nor files of a run contain the key, or half of it, from which it could be guessed.
fn key_is_absent(protocol: Protocol, user: &User, output: &RunOutput) {
    let half = &KEY[..20];
    let text = format!("{output:?}");
    assert!(!text.contains(half), "{protocol:?}: {text}");
    assert_eq!(holding(&user.data(), half), [""; 0], "{protocol:?}");
    assert_eq!(holding(&user.workspace(), half), [""; 0], "{protocol:?}");
    // The control: the search finds existing text.
    assert_ne!(holding(&user.data(), "You are brief."), [""; 0], "{protocol:?}");
}

fn user() -> User {
    let user = User::new();
    agent(&user, "brief", "");
    user
}

#[test]
fn refused_key_names_its_variable_and_is_not_printed() {
    for protocol in Protocol::ALL.into_iter().filter(|protocol| protocol.variable().is_some()) {
        let mock = Mock::locked(&script("You are brief.", &[json!({ "content": "Hello." })]), "sk-another-key");
        let user = user();
        let output = ProviderRun { agent: "brief", ..ProviderRun::new(protocol, mock.origin()) }.run(&user, "Speak.");
        assert_eq!(output.code, Some(1), "{protocol:?}: {output:#?}");
        assert_eq!(
            output.end["outcome"]["failed"]["kind"]["model"]["error"],
            json!("auth"),
            "{protocol:?}: {output:#?}"
        );
        let variable = protocol.variable().expect("a variable");
        assert!(output.err.contains(variable), "{protocol:?}: {}", output.err);
        // The same key would be refused again.
        assert_eq!(only(&user).of("turn_started").len(), 1, "{protocol:?}");
        key_is_absent(protocol, &user, &output);
    }
}

#[test]
fn right_key_is_accepted_by_the_same_server() {
    for protocol in Protocol::ALL.into_iter().filter(|protocol| protocol.variable().is_some()) {
        let mock = Mock::locked(&script("You are brief.", &[json!({ "content": "Hello." })]), KEY);
        let user = user();
        let output = ProviderRun { agent: "brief", ..ProviderRun::new(protocol, mock.origin()) }.run(&user, "Speak.");
        assert_eq!(output.answer(), "Hello.", "{protocol:?}");
        key_is_absent(protocol, &user, &output);
    }
}

/// Some servers print the key that they refuse, or all headers.
#[test]
fn key_echoed_by_a_server_is_not_printed() {
    for protocol in Protocol::ALL.into_iter().filter(|protocol| protocol.variable().is_some()) {
        for status in ["401 Unauthorized", "400 Bad Request", "500 Internal Server Error"] {
            let server = BrokenServer::making(move |_, request| {
                let message = format!("Incorrect API key provided: {KEY}. Headers: {:?}", request.headers);
                let body = json!({ "type": "error", "error": { "type": "authentication_error", "message": message } });
                ServerAction::answer(
                    status,
                    &format!("Content-Type: application/json\r\nX-Echo: {KEY}\r\n"),
                    &body.to_string(),
                )
            });
            let user = user();
            let output =
                ProviderRun { agent: "brief", ..ProviderRun::new(protocol, server.origin()) }.run(&user, "Speak.");
            assert_eq!(output.code, Some(1), "{protocol:?} {status}: {output:#?}");
            assert!(output.err.contains("Incorrect API key provided"), "{protocol:?} {status}: {}", output.err);
            key_is_absent(protocol, &user, &output);
        }
    }
}

#[test]
fn missing_key_names_its_variable_and_sends_no_request() {
    for protocol in Protocol::ALL.into_iter().filter(|protocol| protocol.variable().is_some()) {
        let user = user();
        let mut command = user.command(&["run", "--json", "--model", &protocol.model("any"), "Speak."]);
        super::protocol::clear_environment(&mut command);
        let done = super::call::RunningCommand::start(command, "").done();
        assert_eq!(done.code, Some(2), "{protocol:?}: {done:?}");
        assert!(done.err.contains(protocol.variable().expect("a variable")), "{protocol:?}: {}", done.err);
        assert!(!user.data().exists(), "{protocol:?}");
    }
}
