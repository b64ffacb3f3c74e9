//! Servers over HTTP, and how they answer the POST of a call.

use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;

use super::*;

/// How the server answers the POST of a call.
#[derive(Clone, Copy)]
pub(super) enum PostAnswer {
    /// Not at all: the POST stays open.
    Missing,
    /// By a status and a body, made of the id of the call.
    Json(u16, fn(&Value) -> Value),
    /// By a stream with progress and the result.
    Events,
    /// By a stream with this message, made of the id of the call. The stream stays open.
    Event(fn(&Value) -> Value),
    /// By the result, or a request for a login if the call has no token.
    Authorized,
    /// Without a body. The result comes on the stream that answers no POST.
    Accepted,
}

/// A server over HTTP with the tool `call`.
pub(super) struct HttpServer {
    pub(super) config: ServerConfig,
    /// The ids of calls whose POST arrived.
    posted: UnboundedReceiver<Value>,
    /// The ids of calls whose POST was closed by the client.
    closed: UnboundedReceiver<Value>,
    /// Messages for the stream that answers no POST.
    stream: UnboundedSender<Value>,
}

#[derive(Clone)]
struct ServerChannels {
    posted: UnboundedSender<Value>,
    closed: UnboundedSender<Value>,
    messages: UnboundedSender<Value>,
    stream: Arc<tokio::sync::Mutex<UnboundedReceiver<Value>>>,
}

/// Returns the first line of a request, and its message if it is a POST.
async fn read_request(connection: &mut TcpStream) -> Option<(String, Value)> {
    let (mut request, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let read = connection.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        if !head.starts_with("POST") {
            return Some((head.to_owned(), Value::Null));
        }
        if let Ok(message) = serde_json::from_str(body) {
            return Some((head.to_owned(), message));
        }
    }
}

pub(super) async fn write_json(connection: &mut TcpStream, status: u16, body: &str) {
    let head = format!("Content-Type: application/json\r\nContent-Length: {}", body.len());
    let answer = format!("HTTP/1.1 {status} X\r\n{head}\r\nMcp-Session-Id: s\r\nConnection: close\r\n\r\n{body}");
    connection.write_all(answer.as_bytes()).await.unwrap();
}

const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";

pub(super) fn result(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "done"}]}})
}

async fn serve(mut connection: TcpStream, channels: ServerChannels, answer: PostAnswer) {
    let Some((head, message)) = read_request(&mut connection).await else { return };
    if head.starts_with("GET") {
        connection.write_all(EVENTS.as_bytes()).await.unwrap();
        while let Some(message) = channels.stream.lock().await.recv().await {
            connection.write_all(format!("data: {message}\n\n").as_bytes()).await.unwrap();
        }
        return;
    }
    let id = &message["id"];
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "http", "version": "1"}
        }),
        "tools/list" => json!({"tools": [{"name": "call", "inputSchema": {"type": "object"}}]}),
        "tools/call" => {
            channels.posted.send(id.clone()).unwrap();
            match answer {
                PostAnswer::Missing => {
                    _ = connection.read(&mut [0]).await;
                    _ = channels.closed.send(id.clone());
                }
                PostAnswer::Json(status, body) => {
                    write_json(&mut connection, status, &body(id).to_string()).await;
                }
                PostAnswer::Events => {
                    let token = &message["params"]["_meta"]["progressToken"];
                    let params = json!({"progressToken": token, "progress": 1, "message": "half"});
                    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
                    let events = format!("{EVENTS}data: {progress}\n\ndata: {}\n\n", result(id));
                    connection.write_all(events.as_bytes()).await.unwrap();
                }
                PostAnswer::Event(body) => {
                    connection.write_all(format!("{EVENTS}data: {}\n\n", body(id)).as_bytes()).await.unwrap();
                    _ = connection.read(&mut [0]).await;
                }
                PostAnswer::Authorized if head.to_lowercase().contains("\nauthorization: bearer ") => {
                    write_json(&mut connection, 200, &result(id).to_string()).await;
                }
                PostAnswer::Authorized => {
                    let refused =
                        "HTTP/1.1 401 X\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                    connection.write_all(refused.as_bytes()).await.unwrap();
                }
                PostAnswer::Accepted => {
                    write_json(&mut connection, 202, "").await;
                    channels.messages.send(result(id)).unwrap();
                }
            }
            return;
        }
        _ if id.is_null() => return write_json(&mut connection, 202, "").await,
        _ => {
            let refused = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32_601, "message": "no"}});
            return write_json(&mut connection, 200, &refused.to_string()).await;
        }
    };
    let answered = json!({"jsonrpc": "2.0", "id": id, "result": result});
    write_json(&mut connection, 200, &answered.to_string()).await;
}

impl HttpServer {
    pub(super) async fn start(answer: PostAnswer) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let ((posted, posts), (closed, ends), (messages, stream)) =
            (unbounded_channel(), unbounded_channel(), unbounded_channel());
        let stream = Arc::new(tokio::sync::Mutex::new(stream));
        let channels = ServerChannels { posted, closed, messages: messages.clone(), stream };
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(serve(connection, channels.clone(), answer));
            }
        });
        let transport = ServerTransport::Http { url, headers: BTreeMap::new() };
        let config = ServerConfig { transport, timeout: Some(Duration::from_mins(10)), ..config("fake", "") };
        Self { config, posted: posts, closed: ends, stream: messages }
    }
}

pub(super) async fn within_seconds<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), work).await.expect("it ends within seconds")
}

/// The library would keep the message of each such POST, and post no others above 16. The control: before its answer, a POST stays open.
#[tokio::test(flavor = "multi_thread")]
async fn post_without_an_answer_ends_with_its_call() {
    let mut server = HttpServer::start(PostAnswer::Missing).await;
    let scene = ServerScene::of(vec![server.config.clone()]).await;
    for _ in 0..17 {
        let (output, id) = within_seconds(async {
            tokio::join!(scene.call("call", json!({})), async {
                let id = server.posted.recv().await.unwrap();
                assert!(server.closed.try_recv().is_err());
                server.stream.send(result(&id)).unwrap();
                id
            })
        })
        .await;
        assert_eq!((text(output), within_seconds(server.closed.recv()).await), ("done".to_owned(), Some(id)));
    }
}

/// Its call would end, and its message stay in memory. The control: an answer to a posted call, after which the queued one is posted.
#[tokio::test(flavor = "multi_thread")]
async fn answer_to_a_queued_call_ends_the_server() {
    let mut server = HttpServer::start(PostAnswer::Missing).await;
    let scene = ServerScene::of(vec![server.config.clone()]).await;
    let calls = async {
        let calls: [_; 18] = std::array::from_fn(|_| scene.call("call", json!({})));
        futures_util::future::join_all(calls).await
    };
    let answers = async {
        let mut posted = Vec::new();
        for _ in 0..16 {
            posted.push(server.posted.recv().await.unwrap());
        }
        server.stream.send(result(&posted[0])).unwrap();
        posted.push(server.posted.recv().await.unwrap());
        let last = posted.iter().filter_map(Value::as_i64).max().unwrap();
        server.stream.send(result(&json!(last + 1))).unwrap();
    };
    let (outputs, ()) = within_seconds(async { tokio::join!(calls, answers) }).await;
    let (done, failed): (Vec<_>, Vec<_>) = outputs.into_iter().partition(Result::is_ok);
    assert_eq!((done.len(), failed.len()), (1, 17));
    for output in failed {
        let why = error(output);
        assert!(why.contains("it answered a request that is not open"), "{why}");
    }
}

/// Each such call would wait for its time limit. The control: an answer with the id (`answer_and_progress_of_a_post_are_read`).
#[tokio::test(flavor = "multi_thread")]
async fn call_without_an_answer_in_its_response_fails() {
    fn nameless(_: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32_000, "message": "no session"}})
    }
    /// The official library for Python answers so.
    fn foreign(_: &Value) -> Value {
        json!({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32_600, "message": "not accepted"}})
    }
    fn progress(_: &Value) -> Value {
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}})
    }
    for (answer, expected) in [
        (PostAnswer::Json(400, nameless), "no session"),
        (PostAnswer::Json(200, nameless), "no session"),
        (PostAnswer::Json(406, foreign), "not accepted"),
        (PostAnswer::Json(200, foreign), "not accepted"),
        (PostAnswer::Event(nameless), "no session"),
        (PostAnswer::Event(foreign), "not accepted"),
        (PostAnswer::Json(200, progress), "its JSON is not an answer"),
    ] {
        let server = HttpServer::start(answer).await;
        let scene = ServerScene::of(vec![server.config.clone()]).await;
        let why = error(within_seconds(scene.call("call", json!({}))).await);
        assert!(why.contains(expected), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_and_progress_of_a_post_are_read() {
    for answer in [PostAnswer::Events, PostAnswer::Json(200, result), PostAnswer::Accepted] {
        let server = HttpServer::start(answer).await;
        let scene = ServerScene::of(vec![server.config.clone()]).await;
        for _ in 0..17 {
            let lines: Arc<Mutex<Vec<String>>> = Arc::default();
            let sink = Arc::clone(&lines);
            let progress = Progress::to(move |line| sink.lock().unwrap().push(line.to_string()));
            let call = ToolInvocation { progress, ..scene.invocation(json!({})) };
            assert_eq!(text(within_seconds(scene.run("call", call)).await), "done");
            let expected: &[&str] = if matches!(answer, PostAnswer::Events) { &["1 half"] } else { &[] };
            assert_eq!(*lines.lock().unwrap(), expected);
        }
    }
}

/// Attack: slow calls of several sessions, each with a tree of 48,000 objects, which takes a hundred times the bytes of its text. The
/// controls: a small call does not wait, and a large one only until there is memory.
#[tokio::test(flavor = "multi_thread")]
async fn large_arguments_of_calls_share_a_budget() {
    let mut server = HttpServer::start(PostAnswer::Missing).await;
    let scene = ServerScene::of(vec![server.config.clone()]).await;
    let nested = (0..100).fold(json!({}), |inner, _| json!({"": inner}));
    let large = json!({ "a": vec![nested; 480] });
    let stop = CancellationToken::new();
    let cancelled = || ToolInvocation { cancel: stop.clone(), ..scene.invocation(large.clone()) };
    let first = async { tokio::join!(scene.call("call", large.clone()), scene.call("call", large.clone())) };
    let others = async { tokio::join!(scene.run("call", cancelled()), scene.run("call", cancelled())) };
    let controls = async {
        let open = [server.posted.recv().await.unwrap(), server.posted.recv().await.unwrap()];
        let small = async {
            let id = server.posted.recv().await.unwrap();
            server.stream.send(result(&id)).unwrap();
        };
        assert_eq!(text(tokio::join!(scene.call("call", json!({})), small).0), "done");
        assert!(server.posted.try_recv().is_err(), "a large call did not wait");
        stop.cancel();
        open
    };
    let work = async { tokio::join!(others, controls) };
    tokio::pin!(first);
    let ((others, waiting), open) = tokio::select! {
        biased;
        _ = &mut first => panic!("no answer was sent"),
        done = within_seconds(work) => done,
    };
    assert_eq!([others, waiting], [Err(ToolError::cancelled()), Err(ToolError::cancelled())]);
    let later = async {
        server.stream.send(result(&open[0])).unwrap();
        let next = server.posted.recv().await.unwrap();
        [next, open[1].clone()].iter().for_each(|id| server.stream.send(result(id)).unwrap());
    };
    let ((one, two), third, ()) =
        within_seconds(async { tokio::join!(first, scene.call("call", large.clone()), later) }).await;
    assert_eq!([one, two, third].map(text), ["done"; 3]);
}
