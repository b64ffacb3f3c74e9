//! Servers that send endless data. They stop at [`MAX_SENT`], and the client must close the connection long before.

use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::server::*;
use subtend_models::model::Model as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const MAX_SENT: usize = 128 * 1024 * 1024;
/// Maximum bytes that a server can send to a client with limits. They include the buffers of both sockets, which may have more than 32 MiB.
const MAX_READ: usize = 80 * 1024 * 1024;

/// A server that answers with `head` and repeats `piece`, and the number of bytes that it could send. With `lists`, it also answers requests for
/// the list of models.
struct Flood {
    url: String,
    sent: Arc<AtomicUsize>,
    server: JoinHandle<()>,
}

async fn flood(head: &str, piece: &[u8], lists: bool) -> Flood {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let sent = Arc::new(AtomicUsize::new(0));
    let (counted, head, piece) = (Arc::clone(&sent), head.to_owned(), piece.to_vec());
    let server = tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut buffer = vec![0; 65536];
            let read = connection.read(&mut buffer).await.unwrap_or(0);
            if lists && buffer[..read].starts_with(b"POST") {
                let body = r#"{"error":{"message":"model not found"}}"#;
                let head = format!(
                    "HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                // The client may have closed the connection. The assertions below check this.
                let _ = connection.write_all(head.as_bytes()).await;
                continue;
            }
            let mut open = connection.write_all(format!("HTTP/1.1 {head}\r\n\r\n").as_bytes()).await;
            while open.is_ok() && counted.load(Ordering::Relaxed) < MAX_SENT {
                open = connection.write_all(&piece).await;
                counted.fetch_add(piece.len(), Ordering::Relaxed);
            }
        }
    });
    Flood { url, sent, server }
}

/// Returns the error of a call to such a server, and the number of bytes that it could send.
async fn flood_error(spec: &str, head: &str, piece: &[u8], lists: bool) -> (ModelError, usize) {
    let flood = flood(head, piece, lists).await;
    let target = Target::parse(spec).and_then(|target| target.with_base_url(&flood.url)).unwrap();
    let error = Provider::new(target).unwrap().call(request(), Deltas::none()).await.unwrap_err();
    flood.server.abort();
    (error, flood.sent.load(Ordering::Relaxed))
}

/// The control: a client without limits reads everything.
#[tokio::test]
async fn client_without_limits_reads_everything() {
    for head in ["500 Oops", "200 OK"] {
        let flood = flood(head, &[b'x'; 65536], false).await;
        let mut client = TcpStream::connect(flood.url.strip_prefix("http://").unwrap()).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut body = Vec::new();
        client.read_to_end(&mut body).await.unwrap();
        assert!(body.len() > MAX_SENT, "{}", body.len());
        flood.server.abort();
    }
}

#[tokio::test]
async fn endless_retry_after_is_limited() {
    let attacks: [(&str, Option<u64>); 6] = [
        ("retry-after: 99999999999999999999", Some(691_200_000)),
        ("retry-after: 1e308", Some(691_200_000)),
        ("retry-after: inf", None),
        ("retry-after: -1", None),
        ("retry-after-ms: NaN", None),
        ("retry-after: Fri, 31 Dec 9999 23:59:59 GMT\r\ndate: Mon, 01 Jan 2024 00:00:00 GMT", Some(691_200_000)),
    ];
    for (header, most) in attacks.into_iter().chain([("retry-after: 2", Some(2_000))]) {
        let reply = Reply::with_head(&format!("429 Slow\r\n{header}"), "{}");
        let error = answer("openai/m", reply).await.unwrap_err();
        assert_eq!((error.kind, error.retry_after_ms), (ModelFail::Rate, most), "{header}");
    }
}

#[tokio::test]
async fn endless_error_body_is_abandoned() {
    let (error, sent) = flood_error("openai/m", "500 Oops", &[b'x'; 65536], false).await;
    assert_eq!(error.kind, ModelFail::Unavailable);
    assert!(sent < MAX_READ, "{sent}");
}

#[tokio::test]
async fn endless_list_of_models_is_abandoned() {
    let piece = br#"{"data":[{"id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},"#.repeat(1000);
    let (error, sent) = flood_error("openai/m", "200 OK", &piece, true).await;
    assert_eq!(error.kind, ModelFail::InvalidRequest, "{error}");
    assert!((1..MAX_READ).contains(&sent), "{sent}");
}

#[tokio::test]
async fn endless_line_is_refused() {
    for spec in ["openai/m", "anthropic/m", "ollama/m"] {
        let (error, sent) = flood_error(spec, "200 OK\r\ncontent-type: text/event-stream", &[b'x'; 65536], false).await;
        let says = "a line of the answer is longer than 8388608 bytes";
        assert_eq!((error.kind, error.message.as_str()), (ModelFail::BadAnswer, says), "{spec}");
        assert!(sent < MAX_READ, "{spec}: {sent}");
    }
}

#[tokio::test]
async fn endless_event_is_refused() {
    let piece = b"data: x\n".repeat(8192);
    let (error, sent) = flood_error("openai/m", "200 OK", &piece, false).await;
    assert_eq!((error.kind, sent < MAX_SENT), (ModelFail::BadAnswer, true), "{error}: {sent}");
}

#[tokio::test]
async fn endless_text_is_refused() {
    let frame = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(60_000));
    let (error, sent) = flood_error("openai/m", "200 OK", frame.as_bytes(), false).await;
    let says = "the answer has more than 4194304 bytes of content";
    assert_eq!((error.kind, error.message.as_str()), (ModelFail::BadAnswer, says));
    assert!(sent < MAX_READ, "{sent}");
}

/// A server that sends endless interim responses has its own threads, so calls of other servers are answered meanwhile. The control is
/// `endless_interim_responses_block_their_reader_thread` in the tests of the command.
#[tokio::test(flavor = "multi_thread")]
async fn endless_interim_responses_block_no_other_server() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || {
                let read = connection.read(&mut [0; 65_536]);
                let hints = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(4_096);
                // The client may have closed the connection.
                let mut open = read.map(drop).and_then(|()| tell.send(()).map_err(std::io::Error::other));
                while open.is_ok() {
                    open = connection.write_all(&hints);
                }
            });
        }
    });
    let calls = |url: &str| {
        let target = Target::parse("openai/m").and_then(|target| target.with_base_url(url)).unwrap();
        let provider = Provider::new(target).unwrap();
        async move { provider.call(request(), Deltas::none()).await }
    };
    let held = [(); 2].map(|()| tokio::spawn(calls(&url)));
    tokio::task::spawn_blocking(move || receiver.iter().take(2).for_each(drop)).await.unwrap();
    let other = super::server::Server::start([Reply::with_head("401 Unauthorized", "{}")]).await;
    let error = tokio::time::timeout(Duration::from_secs(120), calls(&other.url)).await.unwrap().unwrap_err();
    assert_eq!(error.kind, ModelFail::Auth, "{error}");
    assert!(held.iter().all(|call| !call.is_finished()), "a call of the endless server ended");
    held.iter().for_each(JoinHandle::abort);
}
