//! Measures the latency of requests and the throughput of event streams of a host.
//!
//! `cargo bench -p subtend-host --bench clients` measures the time until an input is durable: over HTTP, on an open
//! connection with a token, and through the Rust API. It also measures the events per second to 1, 100 and 1,000
//! subscribers, with and without a further subscriber that does not read. `-- --quick` does a tenth of the work.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a bench measures wall time and fails by panicking"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use subtend_actors::{OpenOptions, Options, Runtime, SessionHandle};
use subtend_host::auth::{Guard, TokenFile, TokenScope};
use subtend_host::listen::{self, Bounds};
use subtend_host::{Host, HostOptions};
use subtend_journal::memory::Memory;
use subtend_journal::{Journal, StoreSpec, open_store};
use subtend_models::closure::fn_model;
use subtend_models::model::Answer;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

async fn host(journal: Journal) -> Host {
    let model = fn_model("greets", |_, _| async { Ok(Answer::of_text("Hello.")) });
    let options = Options { titles: false, summaries: false, ..Options::default() };
    let runtime = Runtime::builder().journal(journal).options(options).model(Arc::new(model)).start().await;
    Host::new(runtime.expect("a runtime"), HostOptions::default())
}

/// Serves over TCP with a token; returns the address and the token.
async fn serve(host: &Host, dir: &std::path::Path) -> (SocketAddr, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
    let address = listener.local_addr().expect("an address");
    let tokens = TokenFile::at(dir.join("tokens.json"));
    let token = tokens.create("bench", TokenScope::Act).expect("a token");
    let router = Guard::new(address, [], tokens).protect(host.router());
    tokio::spawn(listen::tcp(vec![listener], router, Bounds::default(), host.ends().clone()));
    (address, token)
}

/// Sends an input on an open connection, and reads the receipt.
async fn post(stream: &mut BufReader<TcpStream>, at: SocketAddr, token: &str, session: &SessionHandle) {
    let body = r#"{"text":"Good morning."}"#;
    let head = format!(
        "POST /v1/sessions/{}/inputs HTTP/1.1\r\nhost: {at}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        session.id(),
        body.len()
    );
    stream.get_mut().write_all(head.as_bytes()).await.expect("written");
    let (mut line, mut length) = (String::new(), 0);
    stream.read_line(&mut line).await.expect("a status");
    assert!(line.starts_with("HTTP/1.1 202"), "{line}");
    while line != "\r\n" {
        line.clear();
        stream.read_line(&mut line).await.expect("a header");
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.expect("a body");
}

fn percentiles(mut all: Vec<Duration>) -> [f64; 2] {
    all.sort();
    let at = |share: f64| {
        let ix = ((all.len() - 1) as f64 * share).round() as usize;
        (all[ix].as_secs_f64() * 1e6).round() / 1_000.0
    };
    [at(0.5), at(0.99)]
}

async fn latency(inputs: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let spec = StoreSpec::parse(&format!("redb:{}", dir.path().join("store").display())).expect("a store");
    let host = host(open_store(&spec).expect("a journal")).await;
    let (address, token) = serve(&host, dir.path()).await;
    let mut stream = BufReader::new(TcpStream::connect(address).await.expect("connected"));
    stream.get_ref().set_nodelay(true).expect("no delay");
    let (mut over_http, mut direct) = (Vec::new(), Vec::new());
    for n in 0..inputs + 20 {
        for http in [n % 2 == 0, n % 2 == 1] {
            let session = host.runtime().open(OpenOptions::agent("general")).expect("a session");
            let from = Instant::now();
            if http {
                post(&mut stream, address, &token, &session).await;
            } else {
                session.send("Good morning.").await.expect("accepted");
            }
            let took = from.elapsed();
            // The first requests are warm-up.
            if n >= 20 {
                if http { over_http.push(took) } else { direct.push(took) }
            }
            session.run(subtend_session::ids::RunNo(1)).ended().await.expect("an end");
        }
    }
    let ([http50, http99], [direct50, direct99]) = (percentiles(over_http), percentiles(direct));
    println!(
        "an input is accepted, ms    p50 {http50:6.3} over HTTP, {direct50:6.3} direct   p99 {http99:6.3} over HTTP, {direct99:6.3} direct"
    );
    assert!(http50 < direct50 + 1.0, "HTTP costs more than a millisecond");
    host.ends().cancel();
}

/// Reads events until `last` runs have ended, and returns the number of records.
async fn subscribe(address: SocketAddr, token: String, last: usize, ready: Arc<tokio::sync::Barrier>) -> usize {
    let mut stream = BufReader::new(TcpStream::connect(address).await.expect("connected"));
    let head = format!("GET /v1/events HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.get_mut().write_all(head.as_bytes()).await.expect("written");
    let (mut line, mut records, mut ended) = (Vec::new(), 0, 0);
    stream.read_until(b'\n', &mut line).await.expect("a status");
    ready.wait().await;
    while ended < last {
        line.clear();
        stream.read_until(b'\n', &mut line).await.expect("a line");
        assert!(!line.is_empty(), "the stream ended early");
        if line.starts_with(b"data: ") {
            records += 1;
            ended += usize::from(String::from_utf8_lossy(&line).contains("\"run_ended\""));
        }
    }
    records
}

async fn events(subscribers: usize, runs: usize, stalled: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = Journal::open(Box::new(Memory::new()), subtend_journal::Options::default()).expect("a journal");
    let host = host(journal).await;
    let (address, token) = serve(&host, dir.path()).await;
    let mut never = TcpStream::connect(address).await.expect("connected");
    if stalled {
        let head = format!("GET /v1/events HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n");
        never.write_all(head.as_bytes()).await.expect("written");
    }
    let ready = Arc::new(tokio::sync::Barrier::new(subscribers + 1));
    let readers: Vec<_> =
        (0..subscribers).map(|_| tokio::spawn(subscribe(address, token.clone(), runs, Arc::clone(&ready)))).collect();
    ready.wait().await;
    let from = Instant::now();
    for _ in 0..runs {
        let session = host.runtime().open(OpenOptions::agent("general")).expect("a session");
        session.send("Good morning.").await.expect("accepted");
    }
    let mut received = 0;
    for reader in readers {
        received += reader.await.expect("it reads to the end");
    }
    let took = from.elapsed().as_secs_f64();
    let per_second = (received as f64 / took).round();
    let stuck = if stalled { ", and one that reads nothing" } else { "" };
    println!(
        "{subscribers:5} subscribers{stuck}: {} events each, {per_second:8} events a second in all, in {took:.2} s",
        received / subscribers
    );
    drop(never);
    host.ends().cancel();
}

fn main() {
    let share = if std::env::args().any(|arg| arg == "--quick") { 10 } else { 1 };
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    tokio.block_on(async {
        latency(1_000 / share).await;
        for (subscribers, runs) in [(1, 5_000), (100, 500), (1_000, 100)] {
            for stalled in [false, true] {
                events(subscribers, runs / share, stalled).await;
            }
        }
    });
    tokio.shutdown_timeout(Duration::from_secs(1));
}
