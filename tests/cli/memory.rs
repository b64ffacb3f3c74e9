//! Hostile inputs under `ulimit -v`: none makes the process need more than 512 MiB above what it needs when idle.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use super::call::{CommandOutput, Under, User, no_forks};

/// KiB above the idle size.
const ABOVE: u64 = 512 * 1024;

/// The address space of a process that waits for its model, in KiB.
fn idle() -> u64 {
    static IDLE: OnceLock<u64> = OnceLock::new();
    *IDLE.get_or_init(|| {
        let user = User::new();
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", silent.local_addr().expect("its address"));
        let forking = no_forks();
        let mut child =
            user.command(&["run", "hello", "--model", "openai/m", "--base-url", &url]).spawn().expect("runs");
        drop(forking);
        let (connection, _) = silent.accept().expect("it asks");
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it lives");
        drop(connection);
        child.kill().expect("it can be killed");
        child.wait().expect("it is gone");
        let size = status.lines().find_map(|line| line.strip_prefix("VmPeak:")?.trim().strip_suffix(" kB"));
        size.and_then(|size| size.trim().parse().ok()).expect("the system says how large it is")
    })
}

/// Calls the command with so much address space, in KiB.
fn limited(user: &User, args: &[&str], kib: u64) -> CommandOutput {
    let call = user.command(args);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("ulimit -v {kib} && exec \"$0\" \"$@\"")).arg(call.get_program()).args(call.get_args());
    shell.current_dir(user.workspace()).stdin(std::process::Stdio::piped());
    shell.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    for (name, value) in call.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    Under::start(shell, "").done()
}

/// Calls it with what hostile inputs may take. It ends by itself, with an exit code and without an allocation that failed.
fn bounded(user: &User, args: &[&str]) -> CommandOutput {
    let done = limited(user, args, idle() + ABOVE);
    let starved = ["memory allocation", "out of memory", "Cannot allocate", "overflowed its stack", "panicked"];
    assert!(done.code.is_some_and(|code| code < 100), "{args:?}: {done:?}");
    assert!(!starved.iter().any(|says| done.err.contains(says)), "{args:?}: {done:?}");
    done
}

/// A server that answers each request with `head` and then `piece` without end, to clients that stay.
fn flood(head: &'static str, piece: Vec<u8>) -> String {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", server.local_addr().expect("its address"));
    let pour = move |mut to: TcpStream| {
        // An answer before its question would be an error of the protocol.
        to.read_exact(&mut [0; 16]).expect("a request");
        let mut open = to.write_all(format!("HTTP/1.1 {head}\r\n\r\n").as_bytes());
        // 4 GiB: more than any client may take.
        for _ in 0..(4_usize << 30) / piece.len() {
            open = open.and_then(|()| to.write_all(&piece));
        }
    };
    thread::spawn(move || {
        for connection in server.incoming().flatten() {
            let pour = pour.clone();
            thread::spawn(move || pour(connection));
        }
    });
    url
}

/// The control: a process that needs more than its limit fails.
#[test]
fn the_limit_is_one_that_can_be_hit() {
    let user = User::new();
    let done = limited(&user, &["run", "hello", "--model", "offline"], 64 * 1024);
    assert_ne!(done.code, Some(0), "{done:?}");
}

#[test]
fn endless_answers_stay_within_bounds() {
    let user = User::new();
    let delta = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(60_000));
    let nested = format!("data: {{\"choices\":[{}\n\n", "[".repeat(60_000));
    let call = |n| {
        let call = format!("{{\"id\":\"{n}\",\"function\":{{\"name\":\"read\"}}}}");
        format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\n")
    };
    let calls: String = (0..3_000).map(call).collect();
    let attacks: [(&str, Vec<u8>, &str); 8] = [
        ("500 Oops", vec![b'x'; 65536], "answered 500"),
        ("404 Not Found", vec![b'x'; 65536], "answered 404"),
        ("200 OK", vec![b'x'; 65536], "a line of the answer is longer than"),
        ("200 OK", b"data: x\n".repeat(8192), "a line of the answer is longer than"),
        ("200 OK", delta.into_bytes(), "bytes of content"),
        ("200 OK", nested.into_bytes(), "the answer is not a stream of this protocol"),
        ("200 OK", calls.into_bytes(), "calls, the most that one may hold"),
        // No answer at all: each of these says that one will follow.
        ("103 Early Hints", b"HTTP/1.1 103 Early Hints\r\n\r\n".into(), "did not begin to answer within 5000 ms"),
    ];
    for (head, piece, says) in attacks {
        let url = flood(head, piece);
        let limits = ["--limit", "attempts=1", "--limit", "turn_ms=60000", "--limit", "first_byte_ms=5000"];
        let args = ["run", "hello", "--model", "openai/m", "--base-url", &url];
        let done = bounded(&user, &[&args[..], &limits[..]].concat());
        assert!(done.code != Some(0) && done.err.contains(says), "{head}: {done:?}");
    }
}

#[test]
fn hostile_files_stay_within_bounds() {
    let anchors: String = (1..40).map(|n| format!("a{n}: &a{n} [{0}, {0}]\n", format!("*a{}", n - 1))).collect();
    let attacks: [(&str, String); 4] = [
        ("aliases", format!("a0: &a0 x\n{anchors}")),
        ("nested", format!("agents: {}", "[".repeat(200_000))),
        ("mappings", "{a: ".repeat(200_000)),
        ("long", format!("llm: {{model: \"{}\"}}", "x".repeat(64 * 1024 * 1024))),
    ];
    for (what, text) in attacks {
        let user = User::new();
        user.file("hostile.md", &format!("---\n{text}\n---\nDo it.\n"));
        let done = bounded(&user, &["agents", "check", "hostile.md"]);
        assert_ne!(done.code, Some(0), "{what} in an agent: {done:?}");
        let own = user.config().join("subtend");
        std::fs::create_dir_all(&own).expect("a directory");
        std::fs::write(own.join("subtend.yaml"), &text).expect("a file");
        let done = bounded(&user, &["config", "show"]);
        assert_ne!(done.code, Some(0), "{what} in a configuration: {done:?}");
    }
}

#[test]
fn hostile_imports_stay_within_bounds() {
    let attacks: [(&str, String); 3] = [
        ("nested", "[".repeat(1_000_000)),
        ("long", format!("{{\"subtend\":\"{}\"}}", "x".repeat(128 * 1024 * 1024))),
        ("lines", "{}\n".repeat(5_000_000)),
    ];
    for (what, text) in attacks {
        let user = User::new();
        user.file("export.jsonl", &text);
        let done = bounded(&user, &["import", "export.jsonl"]);
        assert_ne!(done.code, Some(0), "{what}: {done:?}");
    }
}

#[test]
fn hostile_workspaces_stay_within_bounds() {
    let user = User::new();
    let steps = |calls: &str| {
        format!("{{\"rules\":[{{\"agent\":\"*\",\"steps\":[{{\"calls\":[{calls}]}},{{\"text\":\"done\"}}]}}]}}")
    };
    let search = |pattern: &str| format!("{{\"tool\":\"search\",\"args\":{{\"pattern\":{pattern:?}}}}}");
    user.file(".gitignore", &"{a,{b,{c,".repeat(100_000));
    user.file("AGENTS.md", &"Be kind. ".repeat(10_000_000));
    // A file of 2 GiB that takes no room.
    File::create(user.workspace().join("sparse")).and_then(|file| file.set_len(2 << 30)).expect("a sparse file");
    let read = "{\"tool\":\"read\",\"args\":{\"path\":\"sparse\"}}".to_owned();
    let deep = search(&"(".repeat(20_000));
    let wide = search(&"(a{1,1000}){1,1000}".repeat(10));
    let attacks: [String; 4] = [read, deep, vec![wide; 32].join(","), search("x")];
    for calls in attacks {
        let model = user.script(&steps(&calls));
        bounded(&user, &["run", "look", "--model", &model]);
    }
}
