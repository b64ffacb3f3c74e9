//! Measures the host's heap memory for one idle client of an event stream. This binary has only one test, because it
//! counts the allocations of the whole process.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::alloc::System;
use std::sync::Arc;
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use subtend_actors::{OpenOptions, Options, Runtime};
use subtend_host::listen::{Bounds, connection};
use subtend_host::{Host, HostOptions};
use subtend_journal::Journal;
use subtend_journal::memory::Memory;
use subtend_models::closure::fn_model;
use subtend_models::model::Answer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const CLIENTS: usize = 1_000;
/// Maximum heap bytes of one client; 16 KiB of them are the two buffers of its connection.
const BOUND: usize = 20 << 10;

fn heap() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// Opens an event stream, and reads to the end of the event with `word`.
async fn attach(host: &Host, router: &axum::Router, word: &str) -> DuplexStream {
    // Small, because the client's buffers count although they are not the host's.
    let (mut client, server) = tokio::io::duplex(64);
    tokio::spawn(connection(server, router.clone(), Bounds::default(), host.ends().clone()));
    client.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("written");
    let (mut read, mut piece) = (Vec::new(), [0; 512]);
    while !(String::from_utf8_lossy(&read).contains(word) && read.ends_with(b"\n\n\r\n")) {
        let count = client.read(&mut piece).await.expect("read");
        assert!(count > 0, "the stream ended");
        read.extend(piece.iter().take(count));
    }
    client
}

#[tokio::test]
async fn idle_client_uses_less_memory_than_the_bound() {
    let model = fn_model("greets", |_, _| async { Ok(Answer::of_text("Hello.")) });
    let journal = Journal::open(Box::new(Memory::new()), subtend_journal::Options::default()).expect("a journal");
    let options = Options { titles: false, summaries: false, ..Options::default() };
    let runtime = Runtime::builder().journal(journal).options(options).model(Arc::new(model)).start().await;
    let host = Host::new(runtime.expect("a runtime"), HostOptions::default());
    let session = host.runtime().open(OpenOptions::agent("general")).expect("a session");
    let receipt = session.send("Good morning.").await.expect("accepted");
    session.run(receipt.run).ended().await.expect("an end");
    let router = host.router();
    // The first client initialises shared state, which must not be counted.
    let mut clients = vec![attach(&host, &router, "run_ended").await];
    let before = heap();
    clients.reserve_exact(CLIENTS);
    for _ in 0..CLIENTS {
        clients.push(attach(&host, &router, "run_ended").await);
    }
    let each = heap().saturating_sub(before) / CLIENTS;
    println!("{each} bytes on the heap for each of {CLIENTS} idle clients");
    assert!(each < BOUND, "{each} bytes for each client");
    drop((clients, session, router));
    host.shutdown(Duration::from_secs(5)).await.expect("nothing holds the host");
}
