//! A host is killed between a command and its answer. A relay forwards the command and withholds the answer.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};

use super::call::*;
use super::second_terminal::ALWAYS;
use super::serve::{ServedHost, serve};

/// Forwards requests to the host at `real`. Withholds the first answer to a request that begins with `prefix`, and
/// sends the connection of the waiting client to `withheld`.
fn relay(client: UnixStream, real: &Path, prefix: &'static str, withheld: mpsc::Sender<UnixStream>) {
    let host = UnixStream::connect(real).expect("the host listens");
    let (mut from_host, mut to_client) = (host.try_clone().expect("a copy"), client.try_clone().expect("a copy"));
    let (seen, prefix_seen) = mpsc::channel();
    thread::spawn(move || {
        let (mut client, mut host, mut piece) = (client, host, [0; 65_536]);
        while let Ok(read @ 1..) = client.read(&mut piece) {
            if piece[..read].starts_with(prefix.as_bytes()) {
                seen.send(()).expect("send");
            }
            host.write_all(&piece[..read]).expect("the host reads");
        }
    });
    let mut piece = [0; 65_536];
    while let Ok(read @ 1..) = from_host.read(&mut piece) {
        if prefix_seen.try_recv().is_ok() {
            return withheld.send(to_client).expect("send");
        }
        if to_client.write_all(&piece[..read]).is_err() {
            return;
        }
    }
    drop(to_client.shutdown(Shutdown::Both));
}

/// Puts a relay in front of the host at `socket`; returns a receiver for the connection of a request with `prefix`.
fn start_relay(socket: &Path, prefix: &'static str) -> mpsc::Receiver<UnixStream> {
    let real = socket.with_file_name("real.sock");
    std::fs::rename(socket, &real).expect("moved");
    let listener = UnixListener::bind(socket).expect("bound");
    let (sender, waiting) = mpsc::channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, real, sender) = (client.expect("a client"), real.clone(), sender.clone());
            thread::spawn(move || relay(client, &real, prefix, sender));
        }
    });
    waiting
}

#[test]
fn x12_doctor_reads_the_store_itself_when_its_host_ends() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    assert_eq!(user.call(&["run", "--quiet", "--model", &model, "Go."]).code, Some(0));
    let serving = serve(&user, &model);
    let socket = Path::new(&serving.socket).to_owned();
    let waiting = start_relay(&socket, "POST /v1/store/reads ");
    let doctor = user.start(&["doctor", "--json"]);
    let client = waiting.recv().expect("the store is read through the host");
    serving.host.signal("KILL");
    drop(serving.host.done());
    std::fs::remove_file(&socket).expect("the socket file");
    client.shutdown(Shutdown::Both).expect("closed");
    let done = doctor.done();
    let report: serde_json::Value = serde_json::from_str(&done.out).expect("a report");
    let findings = report["findings"].as_array().expect("findings");
    let of_store: Vec<_> = findings.iter().filter(|finding| finding["area"] == "store").collect();
    assert!(of_store.iter().all(|finding| finding["grade"] != "bad" && finding["check"] != "host"), "{of_store:?}");
    assert!(of_store.iter().any(|finding| finding["check"] == "opens"), "{of_store:?}");
}

#[test]
fn h3_prompt_is_run_once_when_its_host_dies_before_it_answers() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    let serving = serve(&user, &model);
    let socket = Path::new(&serving.socket).to_owned();
    let waiting = start_relay(&socket, "POST /v1/sessions ");
    let run = user.start(&["run", "--json", "--model", &model, "Pay the invoice."]);
    let client = waiting.recv().expect("the command was accepted");
    serving.host.signal("KILL");
    drop(serving.host.done());
    std::fs::remove_file(&socket).expect("the socket file");
    client.shutdown(Shutdown::Both).expect("closed");
    let done = run.done();
    let sessions = user.json(&["sessions", "--json"]);
    assert_eq!(sessions.as_array().map(Vec::len), Some(1), "{sessions} {done:?}");
    assert!(!done.err.contains("idempotency"), "{done:?}");
    let id = sessions[0]["id"].as_str().expect("an id");
    let shown = user.json(&["show", "--json", id]);
    let inputs = shown["entries"].as_array().expect("entries").iter().filter(|entry| entry["type"] == "input");
    assert_eq!(inputs.count(), 1, "{shown}");
    assert!(done.out.lines().any(|line| line.contains(id)), "the outcome is not reported: {done:?}");
}

/// Starts a command whose host is killed after it accepted the command and before it answers. No other host exists, so
/// the command continues as the host.
fn answered_after_a_kill(user: &User, serving: ServedHost, args: &[&str]) -> CommandOutput {
    let socket = Path::new(&serving.socket).to_owned();
    let waiting = start_relay(&socket, "POST /v1/sessions/");
    let command = user.start(args);
    let client = waiting.recv().expect("the command was accepted");
    serving.host.signal("KILL");
    drop(serving.host.done());
    std::fs::remove_file(&socket).expect("the socket file");
    client.shutdown(Shutdown::Both).expect("closed");
    command.done()
}

/// The client repeats the rollback with the last record that it had, so the rollback is not applied twice.
#[test]
fn h1_rollback_acts_once_when_its_host_dies_before_it_answers() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    let serving = serve(&user, &model);
    user.succeeds(&["run", "--quiet", "--model", &model, "One."]);
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    // The script has no second answer: the run fails and can be rolled back.
    assert_eq!(user.call(&["send", "--quiet", &id, "Two."]).code, Some(1));
    let done = answered_after_a_kill(&user, serving, &["rollback", "--json", &id]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let reply: serde_json::Value = serde_json::from_str(&done.out).expect("a reply");
    assert_eq!(reply["run"], 2, "{done:?}");
    let export = user.call(&["export", &id]).out;
    assert_eq!(export.matches("rolled_back\":{").count(), 1, "{export}");
}

/// If it were applied twice, the switch would go back by two alternatives.
#[test]
fn h1_switch_acts_once_when_its_host_dies_before_it_answers() {
    let user = User::new();
    let model = user.script(ALWAYS);
    let serving = serve(&user, &model);
    user.succeeds(&["run", "--quiet", "--model", &model, "One."]);
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    for _ in 0..3 {
        assert_eq!(user.call(&["regenerate", &id]).code, Some(0));
    }
    let done = answered_after_a_kill(&user, serving, &["switch", &id, "previous"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.ends_with(" shows alternative 2\n"), "{done:?}");
}

#[test]
fn h1_host_with_another_api_is_refused() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    let serving = serve(&user, &model);
    let socket = Path::new(&serving.socket).to_owned();
    std::fs::rename(&socket, socket.with_file_name("real.sock")).expect("moved");
    let listener = UnixListener::bind(&socket).expect("bound");
    thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let _ = client.read(&mut [0; 65_536]);
        let body =
            format!("{{\"pid\":4711,\"version\":\"{}\",\"api\":\"other\",\"home\":null}}", env!("CARGO_PKG_VERSION"));
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        client.write_all((head + &body).as_bytes()).expect("answered");
    });
    let refused = user.call(&["sessions"]);
    assert!(refused.err.contains("hosted by process 4711 of another build"), "{refused:?}");
}
