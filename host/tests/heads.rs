//! Request heads on a real socket: their limits, and the problems for refused heads.

use crate::support::*;
use axum::http::header;
use axum::routing::get;
use subtend_host::listen;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::sockets::{ALIVE, raw};

const LIMIT: usize = 64 << 10;

struct Served {
    address: SocketAddr,
    ends: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

impl Served {
    async fn new(router: Router, bounds: Bounds) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let (address, ends) = (listener.local_addr().expect("an address"), CancellationToken::new());
        let server = tokio::spawn(listen::tcp(vec![listener], router, bounds, ends.clone()));
        Self { address, ends, server }
    }

    async fn send(&self, request: &str) -> String {
        raw(&mut TcpStream::connect(self.address).await.expect("connected"), request).await
    }

    /// Sends a head, and returns the status and the code of the problem.
    async fn send_refused(&self, request: &str) -> (u16, String) {
        problem(&self.send(request).await)
    }

    async fn end(self) {
        self.ends.cancel();
        self.server.await.expect("served").expect("no error");
    }
}

/// Parses a response with a problem, and checks its length and media type.
fn problem(response: &str) -> (u16, String) {
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("a head in {response:?}"));
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    assert_eq!(field("content-type"), Some("application/problem+json"), "{response}");
    assert_eq!(field("content-length"), Some(body.len().to_string().as_str()), "{response}");
    assert_eq!(field("connection"), Some("close"), "{response}");
    let json: Value = serde_json::from_str(body).expect("JSON");
    let status: u16 = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    assert_eq!(json["status"], status);
    (status, json["code"].as_str().expect("a code").to_owned())
}

/// Returns a head of `size` bytes with a long target or a long header.
fn head_of(size: usize, long_target: bool) -> String {
    let head = |fill: usize| match long_target {
        true => format!("GET /healthz?{} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "y".repeat(fill)),
        false => format!("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx: {}\r\n\r\n", "y".repeat(fill)),
    };
    head(size - head(0).len())
}

#[tokio::test]
async fn head_of_64_kib_is_accepted_and_one_byte_more_is_not() {
    let host = host(&Memory::new()).await;
    let served = Served::new(host.router(), Bounds::default()).await;
    let too_large = (431, "head_too_large".to_owned());
    for long_target in [false, true] {
        let reply = served.send(&head_of(LIMIT, long_target)).await;
        assert!(reply.starts_with("HTTP/1.1 204"), "{long_target}: {reply}");
        assert_eq!(served.send_refused(&head_of(LIMIT + 1, long_target)).await, too_large);
        assert_eq!(served.send_refused(&head_of(10 * LIMIT, long_target)).await, too_large);
    }
    let endless = format!("GET /healthz HTTP/1.1\r\nx: {}", "y".repeat(LIMIT));
    assert_eq!(served.send_refused(&endless).await, too_large, "a head without an end");
    let lines = |count: usize| -> String { (0..count).map(|n| format!("x{n}: y\r\n")).collect() };
    let with = |lines: &str| format!("GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{lines}\r\n");
    assert!(served.send(&with(&lines(98))).await.starts_with("HTTP/1.1 204"), "100 lines");
    assert_eq!(served.send_refused(&with(&lines(99))).await, too_large, "101 lines");
    assert!(served.send(ALIVE).await.starts_with("HTTP/1.1 204"), "others are served");
    served.end().await;
    end(host).await;
}

#[tokio::test]
async fn malformed_head_is_refused_with_a_problem() {
    let host = host(&Memory::new()).await;
    let served = Served::new(host.router(), Bounds::default()).await;
    let malformed = (400, "malformed".to_owned());
    for head in [
        "G@T / HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\nhost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nhost x\r\n\r\n",
        "GET / HTTP/1.1\r\nho st: x\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: x\u{1}\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: x\r\n folded: y\r\n\r\n",
        "GET http://[ HTTP/1.1\r\nhost: x\r\n\r\n",
        "POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}x",
        "POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        "POST /v1/sessions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: odd\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}",
    ] {
        assert_eq!(served.send_refused(head).await, malformed, "{head:?}");
    }
    // The control: the connection answers the request before the malformed one, and no request after it.
    let alive = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut stream = TcpStream::connect(served.address).await.expect("connected");
    stream.write_all(alive.as_bytes()).await.expect("written");
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.expect("read");
    assert_eq!(&first, b"HTTP/1.1 204");
    let rest = raw(&mut stream, &format!("G@T / HTTP/1.1\r\n\r\n{alive}")).await;
    let (_, second) = rest.split_once("\r\n\r\n").expect("the end of the first response");
    assert_eq!(problem(second), malformed);
    // Otherwise the host would wait for the rest of the request.
    drop(stream);
    served.end().await;
    end(host).await;
}

#[tokio::test]
async fn slow_head_and_http2_are_closed_without_a_response() {
    let host = host(&Memory::new()).await;
    let bounds = Bounds { head_time: Duration::from_millis(50), ..Bounds::default() };
    let served = Served::new(host.router(), bounds).await;
    assert_eq!(served.send("GET /healthz HT").await, "");
    assert_eq!(served.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await, "");
    assert!(served.send(ALIVE).await.starts_with("HTTP/1.1 204"));
    served.end().await;
    end(host).await;
}

/// The attack: the body of a response ends like an empty refusal of the HTTP library, which the host would replace.
#[tokio::test]
async fn response_that_looks_like_a_refusal_is_sent_unchanged() {
    const FORGED: &str = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let empty = || async { (StatusCode::BAD_REQUEST, [(header::CONTENT_LENGTH, "0")]) };
    let router = Router::new().route("/", get(|| async { FORGED })).route("/empty", get(empty));
    let served = Served::new(router, Bounds::default()).await;
    let reply = served.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(reply.ends_with(&format!("\r\n\r\n{FORGED}")), "{reply}");
    let reply = served.send("GET /empty HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 400") && reply.ends_with("\r\n\r\n"), "{reply}");
    // Many pipelined requests: the last response may be written together with the refusal of the next head.
    let many = "GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(50);
    let reply = served.send(&format!("{many}G@T / HTTP/1.1\r\n\r\n")).await;
    assert_eq!(reply.matches(FORGED).count(), 50, "{reply}");
    assert_eq!(reply.matches("HTTP/1.1 200").count(), 50);
    served.end().await;
}

/// The client sends its whole body before it reads. The control: a client that has not sent any of its body.
#[tokio::test]
async fn too_large_body_is_refused_with_a_readable_problem() {
    let host = host(&Memory::new()).await;
    let served = Served::new(host.router(), Bounds::default()).await;
    let head =
        "POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 6000000\r\n\r\n";
    for body in ["x".repeat(6_000_000), String::new()] {
        let mut stream = TcpStream::connect(served.address).await.expect("connected");
        stream.write_all(head.as_bytes()).await.expect("written");
        stream.write_all(body.as_bytes()).await.expect("the host reads the rest");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.expect("not reset");
        assert!(reply.starts_with("HTTP/1.1 413") && reply.contains("\"code\":\"too_large\""), "{reply}");
    }
    served.end().await;
    end(host).await;
}
