//! Limits on the output of a model, as sent to its server.

use std::io::{BufRead as _, Read as _, Write as _};

use super::call::*;

/// Serves one request of the chat protocol; returns its address and a receiver of the request.
fn server() -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a call");
        let mut reader = BufReader::new(stream.try_clone().expect("a reader"));
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a line");
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        sender.send(serde_json::from_slice(&body).expect("JSON")).expect("the test waits");
        let frame =
            json!({"model": "m", "choices": [{"index": 0, "delta": {"content": "done"}, "finish_reason": "stop"}]});
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        write!(stream, "{head}data: {frame}\n\ndata: [DONE]\n\n").expect("an answer");
    });
    (url, receiver)
}

/// Returns the cap in a run's request, with `yaml` in the user's configuration.
fn requested_cap(yaml: &str) -> Value {
    let user = User::new();
    std::fs::create_dir_all(user.config().join("subtend")).expect("a folder");
    std::fs::write(user.config().join("subtend/subtend.yaml"), yaml).expect("a file");
    let (url, sent) = server();
    let mut command = user.command(&["run", "--model", "openai/m", "--base-url", &url, "hello"]);
    command.env("OPENAI_API_KEY", "key").env("SUBTEND_SESSIONS_TITLES", "false");
    let done = RunningCommand::start(command, "").done();
    assert_eq!((done.code, &*done.out), (Some(0), "done\n"), "{done:?}");
    let sent = sent.recv().expect("a request");
    if sent["max_tokens"].is_null() { sent["max_completion_tokens"].clone() } else { sent["max_tokens"].clone() }
}

#[test]
fn b18_configured_cap_is_on_the_wire() {
    assert_eq!(requested_cap("{}"), Value::Null);
    assert_eq!(requested_cap("llm: {output_tokens: {\"openai/*\": 77, \"openai/other\": 5}}"), json!(77));
    assert_eq!(requested_cap("llm: {output_tokens: {openai/m: 77}}\nlimits: {output_tokens: 40}"), json!(40));
    assert_eq!(requested_cap("llm: {output_tokens: {openai/m: 77}}\nlimits: {output_tokens: 400}"), json!(77));
}
