//! A host that is killed between a command and its answer, behind a relay that lets the command pass and not the answer.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread;

use super::call::User;
use super::serve::serve;

/// Forwards requests to the host at `real`. Withholds the first answer to a request that begins with `cut`, and returns the waiting
/// client.
fn relay(client: UnixStream, real: &Path, cut: &'static str, waits: mpsc::Sender<UnixStream>) {
    let host = UnixStream::connect(real).expect("the host listens");
    let (mut from_host, mut to_client) = (host.try_clone().expect("a copy"), client.try_clone().expect("a copy"));
    let (seen, is_cut) = mpsc::channel();
    thread::spawn(move || {
        let (mut client, mut host, mut piece) = (client, host, [0; 65_536]);
        while let Ok(read @ 1..) = client.read(&mut piece) {
            if piece[..read].starts_with(cut.as_bytes()) {
                seen.send(()).expect("it is read");
            }
            host.write_all(&piece[..read]).expect("the host reads");
        }
    });
    let mut piece = [0; 65_536];
    while let Ok(read @ 1..) = from_host.read(&mut piece) {
        if is_cut.try_recv().is_ok() {
            return waits.send(to_client).expect("it is taken");
        }
        if to_client.write_all(&piece[..read]).is_err() {
            return;
        }
    }
    drop(to_client.shutdown(Shutdown::Both));
}

/// Puts a relay in front of the host at `socket`, and returns a receiver of the client whose request began with `cut`.
fn relayed(socket: &Path, cut: &'static str) -> mpsc::Receiver<UnixStream> {
    let real = socket.with_file_name("real.sock");
    std::fs::rename(socket, &real).expect("moved");
    let listener = UnixListener::bind(socket).expect("bound");
    let (hand, waiting) = mpsc::channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, real, hand) = (client.expect("a client"), real.clone(), hand.clone());
            thread::spawn(move || relay(client, &real, cut, hand));
        }
    });
    waiting
}

#[test]
fn x12_doctor_reads_the_store_itself_where_its_host_ends() {
    let user = User::new();
    let model = user.script_named("hello", "Hello.");
    assert_eq!(user.call(&["run", "--quiet", "--model", &model, "Go."]).code, Some(0));
    let serving = serve(&user, &model);
    let socket = Path::new(&serving.socket).to_owned();
    let waiting = relayed(&socket, "POST /v1/store/reads ");
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
    let waiting = relayed(&socket, "POST /v1/sessions ");
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
    assert!(done.out.lines().any(|line| line.contains(id)), "it tells what became of it: {done:?}");
}
