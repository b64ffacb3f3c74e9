//! Workers of remote tools: attacks with a stolen worker token, and with workspace files.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
#[cfg(target_os = "linux")]
use std::path::Path;
#[cfg(target_os = "linux")]
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cli::call::{RunningCommand, User};
use crate::cli::serve::{HttpResponse, ServedHost, serve};
use crate::cli::worker::{calling_model, token, user_with_tools};

fn send_request(host: &ServedHost, secret: &str, request: &str, body: &Value) -> HttpResponse {
    let headers = format!("authorization: Bearer {secret}\r\ncontent-type: application/json\r\n");
    host.tcp(request, &headers, &body.to_string())
}

/// A worker's token, which is stored on another machine, cannot read, approve or change anything. The control: the same
/// requests with a token of the scope `admin` are not refused for their scope.
#[test]
fn token_of_a_worker_is_refused_elsewhere() {
    let user = user_with_tools(30_000);
    let host = serve(&user, &user.script_named("hello", "Hello."));
    let id = host.completed_session("Good morning.");
    let (work, admin) = (token(&user, "work"), token(&user, "admin"));
    let attacks: [&str; 30] = [
        "GET /",
        "GET /approvals",
        "GET /options",
        "GET /s/{id}",
        "GET /metrics",
        "GET /live/approvals",
        "GET /v1/openapi.json",
        "GET /v1/agents",
        "GET /v1/approvals",
        "GET /v1/sessions",
        "GET /v1/sessions/{id}",
        "GET /v1/sessions/{id}/records",
        "GET /v1/sessions/{id}/transcript",
        "GET /v1/sessions/{id}/export",
        "GET /v1/trees/{id}",
        "GET /v1/usage",
        "GET /v1/workers",
        "POST /v1/sessions",
        "POST /v1/sessions/{id}/inputs",
        "POST /v1/sessions/{id}/cancel",
        "POST /v1/sessions/{id}/close",
        "POST /v1/approvals/{id}/1.0",
        "POST /v1/store/reads",
        "POST /v1/tasks/list",
        "POST /v1/tasks/spawn",
        "POST /v1/workers/take/",
        "PUT /v1/workers/take",
        "PUT /v1/agents/planted",
        "PATCH /v1/sessions/{id}",
        "DELETE /v1/sessions/{id}",
    ];
    for attack in attacks {
        let refused = send_request(&host, &work, &attack.replace("{id}", &id), &json!({}));
        assert_eq!(
            (refused.status, &refused.json()["code"]),
            (403, &json!("scope_too_small")),
            "{attack}: {refused:?}"
        );
    }
    assert_eq!(host.unix(&format!("GET /v1/sessions/{id}"), "").status, 200, "the session was deleted");
    for request in ["GET /v1/sessions/{id}", "GET /v1/workers", "POST /v1/tasks/list"] {
        let reply = send_request(&host, &admin, &request.replace("{id}", &id), &json!({}));
        assert_ne!(reply.status, 403, "{request}: {reply:?}");
    }
    let taken = send_request(&host, &work, "POST /v1/workers/take", &json!({"worker": "one", "tools": ["pay"]}));
    assert_eq!(taken.status, 204, "{taken:?}");
    // The token of a worker for another tool is refused as well.
    let made = user.call(&["token", "create", "seeker", "--scope", "work", "--tool", "seek"]);
    let seek = made.out.trim();
    for (tools, status) in [(json!(["pay"]), 403), (json!(["seek", "pay"]), 403), (json!(["seek"]), 204)] {
        let taken = send_request(&host, seek, "POST /v1/workers/take", &json!({"worker": "one", "tools": tools}));
        assert_eq!(taken.status, status, "{tools}: {taken:?}");
    }
    host.host.stops();
}

/// A second worker, or a thief of its token, cannot complete a call of another. The control: the worker with the lease.
#[test]
fn worker_cannot_answer_a_call_it_has_not_leased() {
    let user = user_with_tools(30_000);
    let host = serve(&user, &calling_model(&user, "pay"));
    let (work, act) = (token(&user, "work"), token(&user, "act"));
    let run = user.start(&["run", "--quiet", "--allow", "tool:pay", "go"]);
    let take = json!({"worker": "one", "tools": ["pay"]});
    let call = send_request(&host, &work, "POST /v1/workers/take?wait=true", &take).json();
    let lease = call["token"].as_str().expect("a token");
    assert_eq!(send_request(&host, &work, "POST /v1/workers/renew", &json!({"token": lease})).status, 200);
    let done = |token: &str, text: &str| json!({"token": token, "result": {"ok": {"content": text}}});
    let attacks: [(&str, Value, u16); 10] = [
        ("complete", done("", "forged"), 409),
        ("complete", done(call["call"].as_str().expect("an identity"), "forged"), 409),
        ("complete", done(&lease[..63], "forged"), 409),
        ("complete", done(&lease.to_uppercase(), "forged"), 409),
        ("complete", done(&"0".repeat(64), "forged"), 409),
        ("complete", json!({"token": lease, "result": {"ok": {"content": "forged", "effect": "none"}}}), 422),
        ("complete", json!({"token": lease, "call": "other", "result": "stopped"}), 422),
        ("renew", json!({"token": "0"}), 409),
        ("take", json!({"worker": "two", "tools": ["shell"]}), 422),
        ("take", json!({"worker": "two", "tools": ["pay"], "schema": {}}), 422),
    ];
    for (what, body, status) in &attacks {
        let refused = send_request(&host, &work, &format!("POST /v1/workers/{what}"), body);
        assert_eq!(refused.status, *status, "{what} {body}: {refused:?}");
    }
    // A token of the scope `act` cannot take calls.
    let refused = send_request(&host, &act, "POST /v1/workers/complete", &done(lease, "forged"));
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(send_request(&host, &work, "POST /v1/workers/take", &take).status, 204, "the call was leased twice");
    assert_eq!(send_request(&host, &work, "POST /v1/workers/complete", &done(lease, "paid")).status, 204);
    let run = run.done();
    assert_eq!((run.code, &*run.out), (Some(0), "It said: paid\n"), "{run:?}");
    host.host.stops();
}

/// A worker's program does not inherit secrets of its environment. The control: the variable that `--env` names.
#[test]
fn worker_program_inherits_no_secrets() {
    let user = user_with_tools(30_000);
    let host = serve(&user, &calling_model(&user, "pay"));
    let secret = token(&user, "work");
    let attacks: [&str; 5] =
        ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "SUBTEND_STORE", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN"];
    let address = format!("http://{}", host.address);
    let worker = ["worker", "--host", &address, "--tool", "pay=env", "--env", "DEPLOY_TARGET"];
    let mut command = user.command(&worker);
    command.env("SUBTEND_WORKER_TOKEN", &secret).env("DEPLOY_TARGET", "staging");
    // With `--host` the worker does not open a store.
    command.envs(attacks.map(|name| (name, "postgres://me:s3cret@db/store")));
    let worker = RunningCommand::start(command, "");
    let run = user.start(&["run", "--quiet", "--allow", "tool:pay", "go"]).done();
    assert_eq!(run.code, Some(0), "{run:?}");
    for name in attacks.into_iter().chain(["SUBTEND_WORKER_TOKEN", "s3cret", &secret]) {
        assert!(!run.out.contains(name), "{name}: {run:?}");
    }
    for given in ["DEPLOY_TARGET=staging", "PATH=", "SUBTEND_WORKER_TOOL=pay"] {
        assert!(run.out.contains(given), "{given}: {run:?}");
    }
    worker.stops();
    host.host.stops();
}

/// A program `sh` that a session puts into a directory on `PATH` of a worker, as in a virtual environment, does not run
/// the worker's command. The control: a command that names it.
#[cfg(unix)]
#[test]
fn shell_of_a_worker_is_not_taken_from_path() {
    use std::os::unix::fs::PermissionsExt as _;

    let user = user_with_tools(30_000);
    let host = serve(&user, &calling_model(&user, "pay"));
    let (bin, mark) = (user.workspace().join(".venv/bin"), user.workspace().join("mark"));
    user.file(".venv/bin/sh", &format!("#!/bin/sh\ntouch {}\n", mark.display()));
    std::fs::set_permissions(bin.join("sh"), std::fs::Permissions::from_mode(0o755)).expect("a program");
    let secret = token(&user, "work");
    let address = format!("http://{}", host.address);
    let is_run = |program: &str| {
        let mut command = user.command(&["worker", "--host", &address, "--tool", program]);
        let system = std::env::var_os("PATH").unwrap_or_default();
        let path = [bin.clone()].into_iter().chain(std::env::split_paths(&system));
        command.env("SUBTEND_WORKER_TOKEN", &secret).env("PATH", std::env::join_paths(path).expect("a PATH"));
        let worker = RunningCommand::start(command, "");
        let run = user.start(&["run", "--quiet", "--allow", "tool:pay", "go"]).done();
        assert_eq!(run.code, Some(0), "{run:?}");
        worker.stops();
        mark.exists()
    };
    assert_eq!(["pay=true", "pay=sh"].map(is_run), [false, true]);
    host.host.stops();
}

/// A file of a clone cannot declare tools, even if trusted, and no declaration replaces a built-in tool. The control:
/// the user's own file declares one.
#[test]
fn workspace_cannot_declare_remote_tools() {
    let attacks: [(&str, &str); 3] = [
        ("exfiltrate", "a workspace cannot set it"),
        ("read", "a workspace cannot set it"),
        ("shell", "a workspace cannot set it"),
    ];
    for (name, expected) in attacks {
        let user = User::new();
        user.file("subtend.yaml", &format!("remote_tools: {{{name}: {{description: Useful.}}}}\n"));
        let refused = user.call(&["run", "--model", "offline", "hi"]);
        assert_eq!((refused.code, refused.err.contains(expected)), (Some(2), true), "{name}: {refused:?}");
    }
    let declares = |name: &str, more: &str| {
        let user = User::new();
        let file = user.config().join("subtend/subtend.yaml");
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, format!("remote_tools: {{{name}: {{description: Useful.{more}}}}}\n")).expect("written");
        user.call(&["tools", "list"])
    };
    for (name, more) in
        [("read", ""), ("task", ""), ("useful", ", action: fs.read"), ("useful", ", action: \"tool:*\"")]
    {
        let refused = declares(name, more);
        assert_ne!(refused.code, Some(0), "{name}{more}: {refused:?}");
    }
    let listed = declares("useful", "");
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(listed.out.contains("useful: answered by workers (tool:useful)"), "{listed:?}");
}

/// An impostor in place of a host sends an endless response. The worker disconnects before its memory is full. The
/// control: a response within the bound is read to its end.
#[test]
fn worker_disconnects_from_an_endless_response() {
    const BLOCK: usize = 64 << 10;
    for (bytes, expected) in [(1 << 20, "cannot be read"), (512 << 20, "is longer than 16 MiB")] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let impostor = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n");
            (0..bytes / BLOCK).take_while(|_| stream.write_all(&[b' '; BLOCK]).is_ok()).count() * BLOCK
        });
        let user = User::new();
        let mut command = user.command(&["worker", "--host", &address, "--tool", "pay=env"]);
        command.env("SUBTEND_WORKER_TOKEN", "0");
        let refused = RunningCommand::start(command, "").done();
        assert_eq!((refused.code, refused.err.contains(expected)), (Some(1), true), "{refused:?}");
        let sent = impostor.join().expect("its end");
        assert!(sent == bytes || (bytes > 64 << 20 && sent < 64 << 20), "{sent} of {bytes}");
    }
}

/// Starts an impostor of a host, which answers with `answer` of the path, or with endless interim responses.
fn impostor(answer: impl Fn(&str) -> Option<String> + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut request = vec![0; 64 << 10];
                let read = stream.read(&mut request).unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..read]).into_owned();
                let Some(body) = answer(request.lines().next().unwrap_or_default()) else {
                    let blob = "HTTP/1.1 102 Processing\r\n\r\n".repeat(1_000);
                    while stream.write_all(blob.as_bytes()).is_ok() {}
                    return;
                };
                let head = format!("content-type: application/json\r\ncontent-length: {}", body.len());
                drop(
                    stream
                        .write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\nconnection: close\r\n\r\n{body}").as_bytes()),
                );
            });
        }
    });
    address
}

/// An impostor of a host refuses with a text like another line of the worker. The control: it is shown, escaped.
#[test]
fn refusal_of_a_host_stays_on_one_line_of_a_worker() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let impostor = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let _ = stream.read(&mut [0; 4096]);
        let body = json!({"code": "forbidden", "detail": "no\nthe worker has ended\u{1b}[2K"}).to_string();
        let head = "HTTP/1.1 403 Forbidden\r\ncontent-type: application/problem+json\r\nconnection: close";
        let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).expect("sent");
    });
    let refused = start_worker(&User::new(), &address, "pay=env").done();
    impostor.join().expect("its end");
    let shown = format!("the host {address} refuses this worker: no<U+000A>the worker has ended<U+001B>[2K");
    let line = refused.err.lines().find(|line| line.contains("refuses this worker"));
    assert_eq!((refused.code, line.is_some_and(|line| line.ends_with(&shown))), (Some(1), true), "{refused:?}");
    assert!(!refused.err.lines().any(|line| line.starts_with("the worker has ended")), "{refused:?}");
}

fn start_worker(user: &User, address: &str, command: &str) -> RunningCommand {
    let mut worker = user.command(&["worker", "--host", address, "--tool", command]);
    worker.env("SUBTEND_WORKER_TOKEN", "0");
    RunningCommand::start(worker, "")
}

const LEASED: &str = r#"{"call":"c","tool":"pay","token":"k","lease_ms":2000,"attempt":1,"max_bytes":1000,"args":{}}"#;

#[cfg(target_os = "linux")]
fn eventually<T>(what: &str, found: impl Fn() -> Option<T>) -> T {
    for _ in 0..2_000 {
        if let Some(found) = found() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what}");
}

/// Endless interim responses block no thread or signal of a worker. The control: it ends while its host is silent.
#[cfg(target_os = "linux")]
#[test]
fn endless_interim_responses_do_not_block_a_worker() {
    let (asked, asks) = mpsc::channel();
    for floods in [true, false] {
        let asked = asked.clone();
        let address = impostor(move |_| {
            asked.send(()).expect("the test waits");
            if !floods {
                std::thread::sleep(Duration::from_secs(60));
            }
            None
        });
        let worker = start_worker(&User::new(), &address, "pay=env");
        asks.recv().expect("an ask");
        worker.signal("INT");
        assert_eq!(worker.done().code, Some(0));
    }
}

/// If the host floods the renewal of a lease, the lease ends and the program is killed. The control: with a renewed
/// lease, the program continues.
#[cfg(target_os = "linux")]
#[test]
fn program_is_killed_when_its_lease_ends_in_a_flood() {
    for floods in [true, false] {
        let (leased, renewed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let renewals = Arc::clone(&renewed);
        let address = impostor(move |line| {
            if line.contains("/take") {
                return (leased.fetch_add(1, Ordering::Relaxed) == 0).then(|| LEASED.to_owned());
            }
            let begins = renewals.fetch_add(1, Ordering::Relaxed) == 0;
            (begins || !floods).then(|| r#"{"lease_ms":2000,"stop":false}"#.to_owned())
        });
        let user = User::new();
        let pid = user.workspace().join("pid");
        let worker =
            start_worker(&user, &address, &format!("pay=echo $$ > {0}.new; mv {0}.new {0}; sleep 300", pid.display()));
        let process = eventually("the program did not start", || std::fs::read_to_string(&pid).ok());
        let process = Path::new("/proc").join(process.trim());
        if floods {
            eventually("the program was not killed", || (!process.exists()).then_some(()));
        } else {
            eventually("the lease was not renewed", || (renewed.load(Ordering::Relaxed) > 4).then_some(()));
            assert!(process.exists());
        }
        // Two signals of one kind could arrive as one.
        worker.signal("INT");
        worker.signal("TERM");
        worker.done();
    }
}

/// A host that renews a lease for a shorter time must not leave the program running for a third of the first lease. The
/// control: the program runs until that renewal.
#[cfg(target_os = "linux")]
#[test]
fn program_is_killed_when_a_renewal_shortens_its_lease() {
    let (renewed, renewals) = mpsc::channel();
    let user = User::new();
    let pid = user.workspace().join("pid");
    let started = pid.clone();
    let (leased, count) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let address = impostor(move |line| {
        if line.contains("/take") {
            let lease = LEASED.replace("\"lease_ms\":2000", "\"lease_ms\":90000");
            return (leased.fetch_add(1, Ordering::Relaxed) == 0).then_some(lease);
        }
        match count.fetch_add(1, Ordering::Relaxed) {
            0 => Some(r#"{"lease_ms":90000,"stop":false}"#.to_owned()),
            1 => {
                let process = eventually("the program did not start", || std::fs::read_to_string(&started).ok());
                renewed.send(process).expect("the test waits");
                Some(r#"{"lease_ms":500,"stop":false}"#.to_owned())
            }
            _ => None,
        }
    });
    let worker =
        start_worker(&user, &address, &format!("pay=echo $$ > {0}.new; mv {0}.new {0}; sleep 300", pid.display()));
    let process = Path::new("/proc").join(renewals.recv().expect("a renewal").trim());
    let shortened = Instant::now();
    eventually("the program was not killed", || (!process.exists()).then_some(()));
    assert!(shortened.elapsed() < Duration::from_secs(15), "{:?}", shortened.elapsed());
    worker.signal("INT");
    worker.signal("TERM");
    worker.done();
}

/// Sixteen megabytes of small JSON values would take a gigabyte as a tree. The control: a call with few values starts.
#[test]
fn worker_limits_json_values_before_parsing() {
    for (values, is_begun) in [(500_000, false), (1_000, true)] {
        let (begun, begins) = mpsc::channel();
        let address = impostor(move |line| {
            if line.contains("/take") {
                return Some(LEASED.replace("{}", &format!("{{\"a\":[{}0]}}", "{\"\":0},".repeat(values))));
            }
            let _ = begun.send(());
            Some(r#"{"lease_ms":2000,"stop":true}"#.to_owned())
        });
        let worker = start_worker(&User::new(), &address, "pay=env");
        if is_begun {
            begins.recv().expect("the call starts");
            worker.stops();
        } else {
            let refused = worker.done();
            assert!(refused.err.contains("has more than 100000 JSON values"), "{refused:?}");
            assert_eq!((refused.code, begins.try_recv().is_err()), (Some(1), true));
        }
    }
}

/// A worker pauses between requests to a host that leases undeclared tools, or leases without a duration. The control:
/// after a valid call the next request follows at once.
#[test]
fn worker_pauses_between_failed_requests() {
    let attacks: [(&str, &str, bool); 3] = [
        ("\"tool\":\"pay\"", "\"tool\":\"other\"", true),
        ("\"lease_ms\":2000", "\"lease_ms\":0", true),
        ("", "", false),
    ];
    for (from, to, pauses) in attacks {
        let (asked, asks) = mpsc::channel();
        let (leased, lease) = (LEASED.replace(from, to), if from.contains("lease") { 0 } else { 2_000 });
        let address = impostor(move |line| {
            if line.contains("/take") {
                let _ = asked.send(Instant::now());
                return Some(leased.clone());
            }
            Some(format!("{{\"lease_ms\":{lease},\"stop\":false}}"))
        });
        let worker = start_worker(&User::new(), &address, "pay=true");
        let times: Vec<Instant> = asks.iter().take(4).collect();
        worker.signal("INT");
        worker.signal("TERM");
        worker.done();
        // The pauses are 0.5, 1 and 2 seconds.
        let paused = times[3].duration_since(times[0]) >= Duration::from_secs(3);
        assert!(paused || !pauses, "{from}: {times:?}");
    }
}

/// A host that grants leases without a duration, and answers renewals at once, must not cause a busy loop. The control:
/// the renewal after the confirmed lease follows, so the program is running.
#[test]
fn worker_pauses_between_renewals_of_a_short_lease() {
    let (asked, asks) = mpsc::channel();
    let leased = LEASED.replace("\"lease_ms\":2000", "\"lease_ms\":0");
    let address = impostor(move |line| {
        if line.contains("/take") {
            return Some(leased.clone());
        }
        let _ = asked.send(Instant::now());
        Some("{\"lease_ms\":600000,\"stop\":false}".to_owned())
    });
    let worker = start_worker(&User::new(), &address, "pay=sleep 60");
    let times: Vec<Instant> = asks.iter().take(5).collect();
    worker.signal("INT");
    worker.signal("TERM");
    worker.done();
    // Three pauses of 250 ms; the first request confirms the lease, and the second follows it at once.
    assert!(times[4].duration_since(times[1]) >= Duration::from_millis(500), "{times:?}");
}
