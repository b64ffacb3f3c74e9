//! Connections over TCP and Unix sockets, with clients that are slow, stalled or too many.

use crate::support::*;
use subtend_host::listen;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Sends `request` and reads until the server closes the connection.
pub(crate) async fn raw(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &str) -> String {
    // A server that refuses early may have closed the connection before the whole request is written.
    drop(stream.write_all(request.as_bytes()).await);
    let mut reply = Vec::new();
    drop(stream.read_to_end(&mut reply).await);
    String::from_utf8_lossy(&reply).into_owned()
}

pub(crate) const ALIVE: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

/// The sockets of one call share the bound.
#[tokio::test]
async fn connections_beyond_the_bound_wait() {
    let host = host(&Memory::new()).await;
    let bounds = Bounds { connections: 1, ..Bounds::default() };
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        addresses.push(listener.local_addr().expect("an address"));
        listeners.push(listener);
    }
    let server = tokio::spawn(listen::tcp(listeners, host.router(), bounds, host.ends().clone()));
    let first = TcpStream::connect(addresses[0]).await.expect("connected");
    let mut second = TcpStream::connect(addresses[1]).await.expect("connected");
    let mut early = [0];
    second.write_all(ALIVE.as_bytes()).await.expect("written");
    let none = tokio::time::timeout(Duration::from_millis(50), second.read(&mut early)).await;
    assert!(none.is_err(), "a second connection was served");
    drop(first);
    let mut reply = String::new();
    second.read_to_string(&mut reply).await.expect("read");
    assert!(reply.starts_with("HTTP/1.1 204"), "{reply}");
    host.ends().cancel();
    server.await.expect("served").expect("no error");
    end(host).await;
}

#[cfg(unix)]
#[tokio::test]
async fn unix_socket_is_private_and_replaces_a_leftover() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("host.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a leftover of an earlier process"));
    let host = host(&Memory::new()).await;
    let listener = listen::bind_unix(&path).expect("a socket");
    let mode = std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let server = tokio::spawn(listen::unix(listener, host.router(), Bounds::default(), host.ends().clone()));
    let mut stream = tokio::net::UnixStream::connect(&path).await.expect("connected");
    let reply = raw(&mut stream, ALIVE).await;
    assert!(reply.starts_with("HTTP/1.1 204"), "{reply}");
    std::fs::write(dir.path().join("file"), "mine").expect("written");
    let error = listen::bind_unix(&dir.path().join("file")).expect_err("a file is in the way");
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read_to_string(dir.path().join("file")).expect("kept"), "mine");
    host.ends().cancel();
    server.await.expect("served").expect("no error");
    end(host).await;
}

/// The control: a connection within the bound, before and after.
#[cfg(unix)]
#[tokio::test]
async fn unix_socket_refuses_connections_beyond_the_bound() {
    const KEPT: &str = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("host.sock");
    let host = host(&Memory::new()).await;
    let listener = listen::bind_unix(&path).expect("a socket");
    let bounds = Bounds { connections: 1, ..Bounds::default() };
    let server = tokio::spawn(listen::unix(listener, host.router(), bounds, host.ends().clone()));
    let mut first = tokio::net::UnixStream::connect(&path).await.expect("connected");
    first.write_all(KEPT.as_bytes()).await.expect("written");
    let mut status = [0; 12];
    first.read_exact(&mut status).await.expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 204");
    let asked = async || raw(&mut tokio::net::UnixStream::connect(&path).await.expect("connected"), KEPT).await;
    for _ in 0..20 {
        let refused = asked().await;
        assert!(refused.starts_with("HTTP/1.1 503") && refused.contains(r#""code":"busy""#), "{refused}");
    }
    drop(first);
    let served = async {
        loop {
            let mut next = tokio::net::UnixStream::connect(&path).await.expect("connected");
            let reply = raw(&mut next, ALIVE).await;
            if reply.starts_with("HTTP/1.1 204") {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), served).await.expect("the connection was not freed");
    host.ends().cancel();
    server.await.expect("served").expect("no error");
    end(host).await;
}

/// Follows all events, and returns the text once `runs` runs have ended.
async fn follow(address: SocketAddr, runs: usize) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
    let (mut text, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    let mut ended = 0;
    while ended < runs {
        let count = stream.read(&mut piece).await.expect("read");
        assert!(count > 0, "the stream ended early");
        let from = text.len().saturating_sub(b"\"run_ended\"".len() - 1);
        text.extend_from_slice(&piece[..count]);
        ended += String::from_utf8_lossy(&text[from..]).matches("\"run_ended\"").count();
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn connection_of_a_stalled_client_is_closed() {
    let host = host(&Memory::new()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("an address");
    let bounds = Bounds { connections: 1, stall_time: Duration::from_millis(300), ..Bounds::default() };
    let server = tokio::spawn(listen::tcp(vec![listener], host.router(), bounds, host.ends().clone()));
    let mut stalled = TcpStream::connect(address).await.expect("connected");
    stalled.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
    let app = host.router();
    for _ in 0..20 {
        let opened = post(&app, "/v1/sessions", &json!({"input": {"text": "x".repeat(256 << 10)}})).await.json();
        let id = opened["session"]["id"].as_str().expect("an id").to_owned();
        crate::support::get(&app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=20000")).await.json();
    }
    let mut next = TcpStream::connect(address).await.expect("connected");
    next.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.expect("written");
    let mut text = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), next.read_to_end(&mut text)).await;
    read.expect("the connection was not freed in time").expect("an answer");
    assert!(text.starts_with(b"HTTP/1.1 204"), "{}", String::from_utf8_lossy(&text));
    drop(app);
    host.ends().cancel();
    server.await.expect("served").expect("no error");
    end(host).await;
}

#[tokio::test]
async fn stalled_reader_does_not_slow_sessions_or_other_readers() {
    const RUNS: usize = 20;
    let host = host(&Memory::new()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("an address");
    let bounds = Bounds { end_time: Duration::from_millis(50), ..Bounds::default() };
    let server = tokio::spawn(listen::tcp(vec![listener], host.router(), bounds, host.ends().clone()));
    let mut stalled = TcpStream::connect(address).await.expect("connected");
    stalled.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
    let reader = tokio::spawn(follow(address, RUNS));
    let app = host.router();
    // More events than all buffers in between can hold; the first reader reads none of them.
    for _ in 0..RUNS {
        let text = "x".repeat(256 << 10);
        let opened = post(&app, "/v1/sessions", &json!({"input": {"text": text}})).await.json();
        let id = opened["session"]["id"].as_str().expect("an id").to_owned();
        let run = crate::support::get(&app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=20000")).await.json();
        assert_eq!(run["outcome"], "completed");
    }
    let read = tokio::time::timeout(Duration::from_secs(20), reader).await.expect("in time").expect("read");
    assert_eq!(read.matches("\"run_ended\"").count(), RUNS);
    drop(app);
    host.ends().cancel();
    // The stalled connection is closed, and does not delay the shutdown.
    server.await.expect("served").expect("no error");
    end(host).await;
    let mut rest = Vec::new();
    stalled.read_to_end(&mut rest).await.expect("closed");
    let rest = String::from_utf8_lossy(&rest);
    assert!(rest.matches("\"run_ended\"").count() < RUNS, "the reader did not stall: all events fitted into buffers");
}
