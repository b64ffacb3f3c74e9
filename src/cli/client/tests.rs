//! Hosts that stop responding, and hosts that are only slow.

use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::{Instant, sleep};

use super::host_socket::open_http;
use super::{API, Connection, Fail, Transport};

const HOUR: Duration = Duration::from_secs(3_600);

/// A host that answers `left` requests and then stops responding. The body of `/slow` comes an hour after the head.
#[derive(Clone)]
struct FakeHost {
    left: Arc<AtomicUsize>,
}

impl FakeHost {
    fn new(requests: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(requests)) }
    }

    /// Counts a request; waits forever if the host has stopped responding.
    async fn take(&self) {
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            pending::<()>().await;
        }
    }

    async fn serve(self, mut stream: DuplexStream) {
        let mut head = Vec::new();
        while let Ok(byte) = stream.read_u8().await {
            head.push(byte);
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            self.take().await;
            let version = env!("CARGO_PKG_VERSION");
            let body = json!({"pid": 7, "version": version, "api": API, "stays": true}).to_string();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(answer.as_bytes()).await.expect("written");
            if head.starts_with(b"GET /slow ") {
                sleep(HOUR).await;
            }
            stream.write_all(body.as_bytes()).await.expect("written");
            head.clear();
        }
    }

    /// Connects as a client does. The checks that the host responds count as requests.
    async fn connection(&self) -> Connection {
        let (client, server) = tokio::io::duplex(1 << 10);
        tokio::spawn(self.clone().serve(server));
        let host = self.clone();
        let answer = move || {
            let host = host.clone();
            async move { host.take().await }
        };
        Connection(Transport::Socket(open_http(client, answer).await.expect("a connection")))
    }
}

fn text<T>(done: Result<T, Fail>) -> String {
    match done {
        Ok(_) => "done".to_owned(),
        Err(fail) => fail.to_string(),
    }
}

#[tokio::test(start_paused = true)]
async fn host_that_never_answers_is_given_up_after_30_s() {
    let (start, connection) = (Instant::now(), FakeHost::new(0).connection().await);
    let given_up = "the host at host.sock cannot be reached: it did not answer within 30 s. Wait until it is less busy, or stop it";
    assert_eq!(text(connection.check_version(Path::new("host.sock")).await), given_up);
    assert_eq!(start.elapsed().as_secs(), 30);
}

/// The host has no free connection, and responds with that reason.
#[tokio::test(start_paused = true)]
async fn busy_host_is_not_taken_for_one_that_ended() {
    let (client, mut server) = tokio::io::duplex(1 << 10);
    tokio::spawn(async move {
        let body = json!({"code": "busy", "detail": "all connections are in use"}).to_string();
        let answer = format!("HTTP/1.1 503 Service Unavailable\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        server.read_u8().await.expect("a request");
        server.write_all(answer.as_bytes()).await.expect("written");
        pending::<()>().await;
    });
    let connection = Connection(Transport::Socket(open_http(client, pending::<()>).await.expect("a connection")));
    assert_eq!(text(connection.check_version(Path::new("host.sock")).await), "all connections are in use");
}

/// The host stops responding after the first request of a command. The next must end too, begun or not.
#[tokio::test(start_paused = true)]
async fn request_ends_when_its_host_falls_silent() {
    for (path, answered) in [("/later", 1), ("/slow", 2)] {
        let start = Instant::now();
        let connection = FakeHost::new(answered).connection().await;
        let checked = connection.check_version(Path::new("host.sock")).await;
        let (mut connection, serving) = checked.expect("an answer").expect("a host");
        assert_eq!(serving.pid, 7);
        let done = connection.get::<Value>(path).await;
        assert!(matches!(done, Err(Fail::Unavailable(_))), "{path}: {}", text(done));
        assert_eq!(start.elapsed().as_secs(), 40, "{path}");
    }
}

/// The control: if the host answers other requests, a slow response is awaited without a time limit.
#[tokio::test(start_paused = true)]
async fn slow_answer_of_a_host_that_answers_others_arrives() {
    let start = Instant::now();
    let mut connection = FakeHost::new(usize::MAX).connection().await;
    let answer = connection.get::<Value>("/slow").await;
    assert_eq!((answer.ok().map(|answer| answer["pid"].clone()), start.elapsed().as_secs()), (Some(json!(7)), 3_600));
}
