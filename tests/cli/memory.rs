//! Hostile inputs under `ulimit -v`: no process may need more than 512 MiB above its idle size.

use std::fs::File;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::Shutdown;
use std::sync::OnceLock;

use super::call::*;
use hyper::Request;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::serve::serve;

/// KiB above the idle size.
const ALLOWED_ABOVE_IDLE: u64 = 512 * 1024;

/// Time limit for an end that is due after two seconds, because the machine may be slow.
const END_LIMIT: Duration = Duration::from_secs(15);

/// Returns the address space of a process that waits for its model, in KiB.
fn idle_size() -> u64 {
    static IDLE: OnceLock<u64> = OnceLock::new();
    *IDLE.get_or_init(|| {
        let user = User::new();
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", silent.local_addr().expect("its address"));
        let forking = no_forks();
        let mut child =
            user.command(&["run", "hello", "--model", "openai/m", "--base-url", &url]).spawn().expect("runs");
        drop(forking);
        let (connection, _) = silent.accept().expect("an ask");
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("a live process");
        drop(connection);
        child.kill().expect("kill the process");
        child.wait().expect("wait for the process");
        let size = status.lines().find_map(|line| line.strip_prefix("VmPeak:")?.trim().strip_suffix(" kB"));
        size.and_then(|size| size.trim().parse().ok()).expect("the size in /proc")
    })
}

fn call_with_address_space(user: &User, args: &[&str], kib: u64) -> CommandOutput {
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
    RunningCommand::start(shell, "").done()
}

/// Calls the command with the memory limit for hostile inputs. It must exit by itself, without a failed allocation.
fn assert_bounded(user: &User, args: &[&str]) -> CommandOutput {
    let done = call_with_address_space(user, args, idle_size() + ALLOWED_ABOVE_IDLE);
    let starved = ["memory allocation", "out of memory", "Cannot allocate", "overflowed its stack", "panicked"];
    assert!(done.code.is_some_and(|code| code < 100), "{args:?}: {done:?}");
    assert!(!starved.iter().any(|symptom| done.err.contains(symptom)), "{args:?}: {done:?}");
    done
}

/// A server that answers each request with `head` and then `piece` repeatedly, until the client disconnects.
fn flood(head: &'static str, piece: Vec<u8>) -> String {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", server.local_addr().expect("its address"));
    let pour = move |mut to: TcpStream| {
        // Read the request first, because an earlier response would be a protocol error.
        to.read_exact(&mut [0; 16]).expect("a request");
        let mut open = to.write_all(format!("HTTP/1.1 {head}\r\n\r\n").as_bytes());
        // 4 GiB: more than any client may read.
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

fn answering(body: String) -> String {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", server.local_addr().expect("its address"));
    let answer = move |to: TcpStream, body: &str| -> std::io::Result<()> {
        let mut from = BufReader::new(&to);
        let (mut line, mut bytes) = (String::new(), 0);
        while from.read_line(&mut line)? > 2 {
            let length = line.to_lowercase().strip_prefix("content-length:").and_then(|text| text.trim().parse().ok());
            bytes = length.unwrap_or(bytes);
            line.clear();
        }
        std::io::copy(&mut from.take(bytes), &mut std::io::sink())?;
        (&to).write_all(format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{body}").as_bytes())?;
        to.shutdown(Shutdown::Write)
    };
    thread::spawn(move || {
        for connection in server.incoming().flatten() {
            let body = body.clone();
            // The client may have closed the connection.
            thread::spawn(move || drop(answer(connection, &body)));
        }
    });
    url
}

/// Returns the peak memory of a process, in KiB.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a live process");
    let size = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    size.and_then(|size| size.trim().parse().ok()).expect("the size in /proc")
}

/// Returns the memory in KiB that an answer takes: the difference of the peaks at the request and the next attempt.
fn memory_taken_by(model: &str, body: &[u8]) -> u64 {
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", server.local_addr().expect("its address"));
    let limits = ["--limit", "attempts=2", "--limit", "turn_ms=60000", "--limit", "backoff_ms=1"];
    let args = ["run", "hello", "--model", model, "--base-url", &url];
    let user = User::new();
    let call = user.start(&[&args[..], &limits[..]].concat());
    let (mut first, _) = server.accept().expect("a connection");
    first.read_exact(&mut [0; 16]).expect("a request");
    let before = peak_memory(call.pid());
    first.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").expect("a head");
    // The client may disconnect early. Closing first could drop bytes that the client has not read yet.
    let _ = first.write_all(body).and_then(|()| first.shutdown(Shutdown::Write));
    let _ = first.read_to_end(&mut Vec::new());
    let (second, _) = server.accept().expect("a second attempt");
    let after = peak_memory(call.pid());
    drop((second, server));
    let done = call.done();
    assert!(done.code.is_some_and(|code| code != 0), "{done:?}");
    after.saturating_sub(before)
}

#[test]
fn frames_of_tiny_values_stay_within_bounds() {
    let values = |piece: &str| format!("[{}0]", piece.repeat((7 << 20) / piece.len()));
    let (empty, single) = (values("{},"), values("{\"\":0},"));
    let event = |data: &str| format!("data: {data}\n\n");
    let attacks: [(&str, String); 8] = [
        ("openai/m", event(&format!("{{\"choices\":[],\"x\":{single}}}"))),
        ("openai/m", event(&empty)),
        (
            "openai-responses/m",
            event(&format!("{{\"type\":\"response.completed\",\"response\":{{\"output\":{single}}}}}")),
        ),
        (
            "anthropic/m",
            event(&format!("{{\"type\":\"content_block_start\",\"content_block\":{{\"input\":{single}}}}}")),
        ),
        ("anthropic/m", event(&format!("{{\"content_block\":{{\"type\":\"redacted_thinking\",\"data\":{single}}}}}"))),
        ("gemini/m", event(&format!("{{\"candidates\":[{{\"content\":{{\"parts\":{single}}}}}]}}"))),
        ("ollama/m", format!("{{\"message\":{{\"tool_calls\":{single}}}}}\n")),
        ("ollama/m", format!("{{\"error\":{single}}}\n")),
    ];
    for (model, frame) in attacks {
        let taken = memory_taken_by(model, frame.as_bytes());
        assert!(taken < ALLOWED_ABOVE_IDLE / 4, "{model}: {taken} KiB");
    }
    // The control: the same number of bytes in one text is within the bounds and is read.
    let text = event(&format!("{{\"choices\":[],\"x\":\"{}\"}}", "x".repeat(7 << 20)));
    let taken = memory_taken_by("openai/m", text.as_bytes());
    assert!((14 << 10..ALLOWED_ABOVE_IDLE / 4).contains(&taken), "text: {taken} KiB");
}

#[test]
fn bodies_of_tiny_values_stay_within_bounds() {
    let user = User::new();
    let serving = serve(&user, &user.script_named("hello", "Hello."));
    let before = peak_memory(serving.host.pid());
    let body = format!("{{\"metadata\":{{\"a\":[{}0]}}}}", "{\"\":0},".repeat((4 << 20) / 8));
    let refused = serving.request_to_act(&user, "PATCH /v1/sessions/{id}", &body);
    let taken = peak_memory(serving.host.pid()).saturating_sub(before);
    assert_eq!(refused, (413, "too_large".into()));
    assert!(taken < ALLOWED_ABOVE_IDLE / 8, "{taken} KiB");
    serving.host.stops();
}

/// The control: the lists have all rows with their metadata.
#[test]
fn lists_of_large_metadata_stay_within_bounds() {
    const ROWS: usize = 100;
    let user = User::new();
    let serving = serve(&user, &user.script_named("hello", "Hello."));
    let id = serving.completed_session("Good morning.");
    let branches = format!("/v1/sessions/{id}/branches");
    let metadata = format!("{{\"a\":[{}0]}}", "{\"\":0},".repeat(3_300));
    let expected: Value = serde_json::from_str(&metadata).expect("JSON");
    for _ in 0..ROWS {
        let made = serving.unix(&format!("POST {branches}"), &format!("{{\"fresh\":true,\"metadata\":{metadata}}}"));
        assert_eq!(made.status, 201, "{made:?}");
    }
    let lists = [(format!("GET {branches}"), ""), ("POST /v1/tasks/list".to_owned(), "{}")];
    for (list, body) in lists {
        let before = peak_memory(serving.host.pid());
        let listed = serving.unix(&list, body).json();
        let taken = peak_memory(serving.host.pid()).saturating_sub(before);
        assert!(taken < ALLOWED_ABOVE_IDLE / 8, "{list}: {taken} KiB");
        let rows = listed.as_array().expect("rows");
        let whole = rows.iter().filter(|row| row["metadata"] == expected).count();
        assert_eq!((rows.len(), whole), (ROWS, ROWS), "{list}");
    }
    serving.host.stops();
}

/// A server that sends `pieces` of interim responses to each connection, and a message for each connection.
fn interim_server(pieces: usize) -> (String, mpsc::Receiver<()>) {
    let hints = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(4096);
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = server.local_addr().expect("its address").to_string();
    let (sender, receiver) = mpsc::channel();
    let pour = move |mut to: TcpStream, sender: mpsc::Sender<()>| {
        to.read_exact(&mut [0; 16]).expect("a request");
        if sender.send(()).is_ok() && (0..pieces).all(|_| to.write_all(&hints).is_ok()) {
            // Wait until the client leaves or the connection fails.
            let _ = to.read_to_end(&mut Vec::new());
        }
    };
    thread::spawn(move || {
        for connection in server.incoming().flatten() {
            let (pour, sender) = (pour.clone(), sender.clone());
            thread::spawn(move || pour(connection, sender));
        }
    });
    (address, receiver)
}

/// The HTTP library reads interim responses without a pause: two connections would block both threads.
#[test]
fn endless_interim_responses_do_not_delay_the_end_of_a_run() {
    let (address, receiver) = interim_server(usize::MAX);
    let url = format!("http://{address}");
    let limits = ["--limit", "attempts=1000", "--limit", "first_byte_ms=200", "--limit", "backoff_ms=1"];
    let args = [&["run", "hello", "--model", "openai/m", "--base-url", &url], &limits[..]].concat();
    let user = User::new();
    let begun = Instant::now();
    let done = user.call(&[&args[..], &["--limit", "turn_ms=2000"]].concat());
    let took = begun.elapsed();
    assert!(done.code != Some(0) && done.err.contains("one turn took too long"), "{done:?}");
    assert!(took < END_LIMIT, "the limit of the turn came after {took:?}");
    receiver.try_iter().for_each(drop);
    let run = user.start(&args);
    // An abandoned call may still be read while the next one starts.
    receiver.iter().take(2).for_each(drop);
    run.signal("INT");
    let begun = Instant::now();
    let done = run.done();
    let took = begun.elapsed();
    assert!(done.code != Some(0), "{done:?}");
    assert!(took < END_LIMIT, "the process handled the signal after {took:?}");
}

/// The control: another task on the thread that reads 7 MB of interim responses does not run meanwhile.
#[tokio::test]
async fn endless_interim_responses_block_their_reader_thread() {
    let (address, _asked) = interim_server(64);
    let stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
    let (mut sender, connection) = handshake(TokioIo::new(stream)).await.expect("a client");
    tokio::spawn(connection);
    let request = Request::get("/").body(String::new()).expect("a request");
    let answer = tokio::spawn(async move { sender.send_request(request).await.is_ok() });
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    while longest < Duration::from_millis(150) && begun.elapsed() < END_LIMIT {
        let turn = Instant::now();
        tokio::task::yield_now().await;
        longest = longest.max(turn.elapsed());
    }
    assert!(longest >= Duration::from_millis(150) && !answer.is_finished(), "{longest:?}");
}

/// The control: a process that needs more than its limit fails.
#[test]
fn memory_limit_can_be_hit() {
    let user = User::new();
    let done = call_with_address_space(&user, &["run", "hello", "--model", "offline"], 64 * 1024);
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
        ("200 OK", calls.into_bytes(), "the answer has more than 1024 calls"),
        // Only interim responses: each announces a final response that never follows.
        ("103 Early Hints", b"HTTP/1.1 103 Early Hints\r\n\r\n".into(), "did not begin to answer within 5000 ms"),
    ];
    for (head, piece, expected) in attacks {
        let url = flood(head, piece);
        let limits = ["--limit", "attempts=1", "--limit", "turn_ms=60000", "--limit", "first_byte_ms=5000"];
        let args = ["run", "hello", "--model", "openai/m", "--base-url", &url];
        let done = assert_bounded(&user, &[&args[..], &limits[..]].concat());
        assert!(done.code != Some(0) && done.err.contains(expected), "{head}: {done:?}");
    }
}

/// Each answer is within its limits, but each request contains all earlier answers.
#[test]
fn conversation_of_large_answers_stays_within_bounds() {
    let user = User::new();
    let text = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "word ".repeat(800_000)}});
    let call = json!({"type": "tool_use", "id": "a", "name": "list", "input": {"path": "."}});
    let frames = [
        text,
        json!({"type": "content_block_start", "index": 1, "content_block": call}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
        json!({"type": "message_stop"}),
    ];
    let url = answering(frames.iter().map(|frame| format!("data: {frame}\n\n")).collect());
    let done = assert_bounded(&user, &["run", "hello", "--model", "anthropic/m", "--base-url", &url]);
    assert!(done.code != Some(0) && done.err.contains("the conversation has more than 16777216 bytes"), "{done:?}");
}

/// Control characters take six bytes each in a journal, and the limit of recorded bytes must count all six.
#[test]
fn text_of_control_characters_stays_within_bounds() {
    let user = User::new();
    let call = json!({"tool": "list", "args": {"path": "."}});
    let step = json!({"text": "\u{1}".repeat(2_500_000), "calls": [call], "repeat": true});
    let model = user.script(&json!({"rules": [{"agent": "*", "steps": [step]}]}).to_string());
    let done = assert_bounded(&user, &["run", "--quiet", "--model", &model, "go"]);
    assert!(done.code == Some(4) && done.err.contains("recorded more bytes than the limit"), "{done:?}");
    let id = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let shown = assert_bounded(&user, &["show", "--json", &id]);
    let branched = assert_bounded(&user, &["branch", &id]);
    assert!(shown.code == Some(0) && branched.err.contains("the branch would inherit"), "{branched:?}");
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
        let done = assert_bounded(&user, &["agents", "check", "hostile.md"]);
        assert_ne!(done.code, Some(0), "{what} in an agent: {done:?}");
        let own = user.config().join("subtend");
        std::fs::create_dir_all(&own).expect("a directory");
        std::fs::write(own.join("subtend.yaml"), &text).expect("a file");
        let done = assert_bounded(&user, &["config", "show"]);
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
        let done = assert_bounded(&user, &["import", "export.jsonl"]);
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
    // A sparse file of 2 GiB.
    File::create(user.workspace().join("sparse")).and_then(|file| file.set_len(2 << 30)).expect("a sparse file");
    let read = "{\"tool\":\"read\",\"args\":{\"path\":\"sparse\"}}".to_owned();
    let deep = search(&"(".repeat(20_000));
    let wide = search(&"(a{1,1000}){1,1000}".repeat(10));
    let attacks: [String; 4] = [read, deep, vec![wide; 32].join(","), search("x")];
    for calls in attacks {
        let model = user.script(&steps(&calls));
        assert_bounded(&user, &["run", "look", "--model", &model]);
    }
}

/// Files of agents, commands and skills are read before the user trusts them. Such repetitive files are small in git,
/// and parsed they could take 40 times their size.
#[test]
fn guidance_of_a_repository_stays_within_bounds() {
    let part = |part: &str| part.repeat(250_000 / part.len());
    let attacks: [(&str, String); 3] = [
        (".claude/agents/a{}.md", format!("---\nname: a{{}}\ndescription: d\nmcpServers: [{}]\n---\nx\n", part("a,"))),
        (".claude/commands/c{}.md", part("$1")),
        (".claude/skills/s{}/SKILL.md", format!("---\ndescription: d\n---\n{}", part("$1"))),
    ];
    let user = User::new();
    for (path, text) in attacks {
        (0..200).for_each(|n| user.file(&path.replace("{}", &n.to_string()), &text.replace("{}", &n.to_string())));
    }
    for prompt in ["hello", "/c0 x"] {
        assert_bounded(&user, &["run", "--store", "memory", "--model", "offline", prompt]);
    }
    assert_bounded(&user, &["trust"]);
    let checked = assert_bounded(&user, &["agents", "check", "."]);
    assert!(
        checked.err.contains("files of this kind may have at most 4194304 bytes together"),
        "{}",
        checked.err.len()
    );
}

/// Small files of agents are read before the user trusts them, too: aliases repeat parts of one, and a name of many parts
/// is a rule for each of them. The control: an agent of that form is listed.
#[test]
fn small_agent_files_stay_within_bounds() {
    let user = User::new();
    let level = |n: usize| format!("a{n}: &a{n} [{}]\n", format!("*a{},", n - 1).repeat(10));
    let nested = |levels: usize| format!("a0: &a0 x\n{}", (1..=levels).map(level).collect::<String>());
    let agent = |name: &str, more: &str| format!("---\nname: {name}\ndescription: d\n{more}\n---\nx\n");
    let names = |count: usize| format!("permissions: [{{action: {}, effect: deny}}]", "_".repeat(count));
    user.file(".claude/agents/alias.md", &agent("alias", &nested(2)));
    user.file(".opencode/agents/names.md", &agent("names", &names(100)));
    (0..200).for_each(|n| user.file(&format!(".claude/agents/a{n}.md"), &agent(&format!("a{n}"), &nested(5))));
    (0..4).for_each(|n| user.file(&format!(".opencode/agents/o{n}.md"), &agent(&format!("o{n}"), &names(200_000))));
    let listed = user.call(&["agents"]);
    assert!(listed.out.contains("alias") && listed.out.contains("names") && !listed.out.contains("a199"), "{listed:?}");
    assert_bounded(&user, &["run", "--store", "memory", "--model", "offline", "hello"]);
}

/// An endless line of an export is not kept in memory. The control: a bounded line is read, and refused as damaged.
#[test]
fn lines_of_an_export_stay_within_bounds() {
    let user = User::new();
    for (bytes, expected) in [(900_u64 << 20, "this store's limit is"), (1 << 20, "nothing was imported")] {
        let path = user.workspace().join("huge.jsonl");
        let file = File::create(&path).expect("a file");
        // A sparse file takes no space on the disk.
        file.set_len(bytes).expect("a length");
        drop(file);
        let refused = assert_bounded(&user, &["import", "huge.jsonl"]);
        assert!(refused.code == Some(1) && refused.err.contains(expected), "{refused:?}");
    }
}

/// A pattern whose search in one line meets new states all the time.
const HEAVY_PATTERN: &str = r"(?-u:[\xf0-\xff])|a[ab]{COUNT}[^ab]";

fn script_of_calls(user: &User, calls: &[Value]) -> String {
    let steps = json!([{"calls": calls}, {"text": "done"}]);
    user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string())
}

/// Writes a file with one line of bytes that are not UTF-8, each of which is shown by three.
fn write_invalid_line(path: &Path) {
    std::fs::write(path, vec![0xff_u8; (16 << 20) - 10]).expect("a file");
}

/// Read-only calls of one answer run at the same time: each holds entries, a line, a pattern and results.
#[test]
fn walks_of_one_answer_stay_within_bounds() {
    let user = User::new();
    let dir = user.workspace().join("d");
    std::fs::create_dir(&dir).expect("a directory");
    (0..43_500).for_each(|n| drop(File::create(dir.join(format!("{n:05}{}", "n".repeat(182)))).expect("a file")));
    (1..=6).for_each(|n| write_invalid_line(&dir.join(format!("zf{n}"))));
    let list = json!({"tool": "list", "args": {"path": "d"}});
    let search = |count: &str| {
        let pattern = HEAVY_PATTERN.replace("COUNT", count);
        json!({"tool": "search", "args": {"path": "d", "glob": "zf*", "regex": true, "pattern": pattern}})
    };
    let searches = ["60000", "60000", "30000", "30000"].map(search);
    let model = script_of_calls(&user, &[&vec![list; 4][..], &searches[..]].concat());
    let done = assert_bounded(&user, &["run", "--quiet", "--model", &model, "go"]);
    assert_eq!((done.code, &*done.out), (Some(0), "done\n"), "{done:?}");
}

/// A client opens sessions in ever more directories, and each loads the files of the user. The control: all
/// sessions work.
#[test]
fn sessions_of_many_directories_stay_within_bounds() {
    let user = User::new();
    let skill = format!("---\ndescription: d\n---\n{}\n", "x".repeat(240_000));
    (0..16).for_each(|n| user.file(&format!("../config/subtend/skills/s{n}/SKILL.md"), &skill));
    let serving = serve(&user, &user.script_named("hello", "Hello."));
    let open = |n: usize| {
        let dir = user.data().with_file_name(format!("other{n}"));
        std::fs::create_dir(&dir).expect("a directory");
        let open = json!({"workspace": dir.canonicalize().expect("its name"), "input": {"text": "hello"}});
        let opened = serving.unix("POST /v1/sessions", &open.to_string());
        assert_eq!(opened.status, 201, "{opened:?}");
        let id = opened.json()["session"]["id"].as_str().expect("an id").to_owned();
        let run = serving.unix(&format!("GET /v1/sessions/{id}/runs/1?wait=true&timeout=60000"), "");
        assert_eq!(run.json()["outcome"], "completed", "{run:?}");
        peak_memory(serving.host.pid())
    };
    let first = (0..3).map(open).max().unwrap_or_default();
    let taken = (3..40).map(open).max().unwrap_or_default().saturating_sub(first);
    assert!(taken < ALLOWED_ABOVE_IDLE / 8, "{taken} KiB");
    serving.host.stops();
}
