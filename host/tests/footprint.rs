//! Measures the host's heap memory. The tests run one after the other, because they count the allocations of the whole
//! process.

#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use subtend_actors::{BranchOptions, OpenOptions, Options, Runtime, SessionHandle};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_host::listen::{Bounds, connection};
use subtend_host::{Host, HostOptions};
use subtend_journal::Journal;
use subtend_journal::memory::Memory;
use subtend_journal::redb::Redb;
use subtend_models::closure::fn_model;
use subtend_models::model::Answer;
use subtend_session::authority::{Access, Rule, RuleSet, Verdict};
use subtend_session::call::ToolEffect;
use subtend_session::ids::Text;
use subtend_session::limits::Limits;
use subtend_session::message::{Message, ToolSpec};
use subtend_session::record::ToolCall;
use subtend_tools::closure::FnTool;
use subtend_tools::registry::Registry;
use subtend_tools::tool::ToolOutput;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::Mutex;
use tower::ServiceExt as _;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Held by the running test.
static ALONE: Mutex<()> = Mutex::const_new(());

const CLIENTS: usize = 1_000;
/// Maximum heap bytes of one client; 16 KiB of them are the two buffers of its connection.
const BOUND: usize = 20 << 10;

fn heap() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// Opens an event stream that is not read.
async fn open(host: &Host, router: &axum::Router, path: &str) -> DuplexStream {
    // Small, because the client's buffers count although they are not the host's.
    let (mut client, server) = tokio::io::duplex(64);
    tokio::spawn(connection(server, router.clone(), Bounds::default(), host.ends().clone()));
    client.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.expect("written");
    client
}

/// Opens an event stream, and reads to the end of the event with `word`.
async fn attach(host: &Host, router: &axum::Router, word: &str) -> DuplexStream {
    let mut client = open(host, router, "/v1/events").await;
    let (mut read, mut piece) = (Vec::new(), [0; 512]);
    while !(String::from_utf8_lossy(&read).contains(word) && read.ends_with(b"\n\n\r\n")) {
        let count = client.read(&mut piece).await.expect("read");
        assert!(count > 0, "the stream ended");
        read.extend(piece.iter().take(count));
    }
    client
}

/// Returns a host whose model always gives this text.
async fn hosted(journal: Journal, text: String) -> Host {
    let model = fn_model("speaks", move |_, _| {
        let text = text.clone();
        async move { Ok(Answer::of_text(text)) }
    });
    let options = Options { titles: false, summaries: false, ..Options::default() };
    let runtime = Runtime::builder().journal(journal).options(options).model(Arc::new(model)).start().await;
    Host::new(runtime.expect("a runtime"), HostOptions::default())
}

/// Returns a host with a session, after `answers` answers with this text.
async fn host_with_answers(text: String, answers: usize) -> (Host, SessionHandle) {
    let journal = Journal::open(Box::new(Memory::new()), subtend_journal::Options::default()).expect("a journal");
    let host = hosted(journal, text).await;
    let session = host.runtime().open(OpenOptions::agent("general")).expect("a session");
    for _ in 0..answers {
        let receipt = session.send("Good morning.").await.expect("accepted");
        session.run(receipt.run).ended().await.expect("an end");
    }
    (host, session)
}

#[tokio::test]
async fn idle_client_uses_less_memory_than_the_bound() {
    let _alone = ALONE.lock().await;
    let (host, session) = host_with_answers("Hello.".to_owned(), 1).await;
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

/// Clients open hundreds of streams with large answers, and read nothing. The control: one that reads gets both
/// answers.
#[tokio::test]
async fn hundreds_of_unread_streams_use_bounded_memory() {
    const UNREAD: usize = 200;
    /// The limit of unsent responses, and for each stream the records that were read and its buffers.
    const BOUND: usize = (128 << 20) + UNREAD * (160 << 10);
    let _alone = ALONE.lock().await;
    let (host, session) = host_with_answers("x".repeat(1 << 20), 2).await;
    let router = host.router();
    let before = heap();
    let mut clients = Vec::new();
    for path in ["/v1/events".to_owned(), format!("/v1/sessions/{}/events", session.id())] {
        for _ in 0..UNREAD / 2 {
            clients.push(open(&host, &router, &path).await);
        }
    }
    // Each task of this thread runs until it waits for its client.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let all = heap().saturating_sub(before);
    println!("{all} bytes on the heap for {UNREAD} clients that read nothing");
    assert!((BOUND / 2..BOUND).contains(&all), "{all} bytes");
    let (mut reader, mut read, mut piece) = (open(&host, &router, "/v1/events").await, 0, [0; 64]);
    while read < 2 << 20 {
        let count = reader.read(&mut piece).await.expect("read");
        assert!(count > 0, "the stream ended");
        read += count;
    }
    drop((reader, clients, session, router));
    host.shutdown(Duration::from_secs(5)).await.expect("nothing holds the host");
}

/// The attack: clients follow sessions with large prompts at the same time. The control: each gets the start of its text.
#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn large_events_are_written_few_at_a_time() {
    const SESSIONS: usize = 8;
    /// All of them are within the limit of unsent responses.
    const PROMPT: usize = 7 << 20;
    let _alone = ALONE.lock().await;
    let mut catalog = Catalog::builtin();
    for n in 0..SESSIONS {
        catalog.insert(Manifest::new(format!("a{n}"), AgentMode::All, n.to_string().repeat(PROMPT)));
    }
    // Readers share the prompts with the memory engine, so that only the texts of the events are counted.
    let journal = Journal::open(Box::new(Memory::new()), subtend_journal::Options::default()).expect("a journal");
    let model = fn_model("speaks", |_, _| async { Ok(Answer::of_text("Hello.")) });
    let builder = Runtime::builder().journal(journal).model(Arc::new(model)).catalog(catalog);
    let host = Host::new(builder.start().await.expect("a runtime"), HostOptions::default());
    let mut sessions = Vec::new();
    for n in 0..SESSIONS {
        let session = host.runtime().open(OpenOptions::agent(format!("a{n}"))).expect("a session");
        session.merge_metadata(serde_json::json!({ "a": 1 })).await.expect("durable");
        sessions.push(session);
    }
    let router = host.router();
    let started = async |session: &SessionHandle| {
        let mut client = open(&host, &router, &format!("/v1/sessions/{}/events", session.id())).await;
        let (mut read, mut piece) = (Vec::new(), [0; 64]);
        while !String::from_utf8_lossy(&read).contains("session_created") {
            let count = client.read(&mut piece).await.expect("read");
            assert!(count > 0, "the stream ended");
            read.extend(piece.iter().take(count));
        }
        client
    };
    let all = futures_util::future::join_all(sessions.iter().map(started));
    let (most, clients) = peak_of(all).await;
    println!("at most {most} bytes on the heap for {SESSIONS} prompts of {PROMPT} bytes");
    assert!(((SESSIONS - 1) * PROMPT..(SESSIONS + 2) * PROMPT).contains(&most), "{most} bytes");
    drop((clients, sessions, router));
    host.shutdown(Duration::from_secs(5)).await.expect("nothing holds the host");
}

/// Returns the bytes on the heap at the most while `work` runs, measured by another thread.
async fn peak_of<T>(work: impl Future<Output = T>) -> (usize, T) {
    let (before, ended) = (heap(), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&ended);
    let measuring = std::thread::spawn(move || {
        let mut most = 0;
        while !seen.load(Ordering::Relaxed) {
            most = most.max(heap());
        }
        most
    });
    let result = work.await;
    ended.store(true, Ordering::Relaxed);
    (measuring.join().expect("measured").saturating_sub(before), result)
}

/// Returns the bytes on the heap at the most while a view is read.
async fn peak(router: &axum::Router, path: &str) -> usize {
    let request = axum::http::Request::get(path).body(axum::body::Body::empty()).expect("a request");
    let (most, response) = peak_of(router.clone().oneshot(request)).await;
    assert_eq!(response.expect("a response").status(), 200, "{path}");
    most
}

/// The attack: views of a tree whose sessions have long texts. The control: the view of one session of it reads its text.
#[tokio::test]
async fn views_of_a_tree_hold_the_texts_of_one_session() {
    const CHILDREN: usize = 24;
    const TEXT: usize = 900_000;
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().expect("a folder");
    // The memory engine shares its texts with readers.
    let redb = Redb::open(&folder.path().join("journal"), 1 << 20).expect("a store");
    let journal = Journal::open(Box::new(redb), subtend_journal::Options::default()).expect("a journal");
    let host = hosted(journal, "Hello.".to_owned()).await;
    let top = host.runtime().open(OpenOptions::agent("general")).expect("a session");
    let receipt = top.send("Good morning.").await.expect("accepted");
    top.run(receipt.run).ended().await.expect("an end");
    for _ in 0..CHILDREN {
        let child = top.branch(BranchOptions::default()).await.expect("a branch");
        let receipt = child.send("y".repeat(TEXT)).await.expect("accepted");
        child.run(receipt.run).ended().await.expect("an end");
    }
    let router = host.router();
    let peaks = [
        peak(&router, &format!("/s/{}/timeline", top.id())).await,
        peak(&router, &format!("/s/{}/replay", top.id())).await,
    ];
    println!("at most {peaks:?} bytes on the heap");
    assert_eq!(peaks.map(|peak| peak > TEXT && peak < CHILDREN * TEXT / 2), [true; 2], "{peaks:?}");
    drop((router, top));
    host.shutdown(Duration::from_secs(5)).await.expect("nothing holds the host");
}

/// The attack: an answer whose calls have far more text than an entry shows. The control: the notice in place of the entry.
#[tokio::test]
async fn calls_that_no_entry_shows_are_not_built() {
    const CALLS: usize = 600;
    const TEXT: usize = 60_000;
    let _alone = ALONE.lock().await;
    let journal = Journal::open(Box::new(Memory::new()), subtend_journal::Options::default()).expect("a journal");
    let args = Text::from("<".repeat(TEXT));
    let model = fn_model("calls", move |request, _| {
        let call = ToolCall { provider_id: "c".into(), tool: "read".into(), args: args.clone() };
        let is_first = request.messages.len() == 1;
        async move { Ok(if is_first { Answer::of_calls(None, vec![call; CALLS]) } else { Answer::of_text("Hello.") }) }
    });
    let options = Options { titles: false, summaries: false, ..Options::default() };
    let limits = Limits { argument_bytes: 1 << 30, calls_per_answer: 1_000, ..Limits::default() };
    let runtime = Runtime::builder().journal(journal).options(options).limits(limits).model(Arc::new(model));
    let host = Host::new(runtime.start().await.expect("a runtime"), HostOptions::default());
    let session = host.runtime().open(OpenOptions::agent("general")).expect("a session");
    let receipt = session.send("Good morning.").await.expect("accepted");
    session.run(receipt.run).ended().await.expect("an end");
    let router = host.router();
    let peak = peak(&router, &format!("/s/{}", session.id())).await;
    println!("at most {peak} bytes on the heap");
    assert!(peak < CALLS * TEXT / 2, "{peak} bytes");
    drop((router, session));
    host.shutdown(Duration::from_secs(5)).await.expect("nothing holds the host");
}

/// The attack: views of a session whose calls have long arguments. The control: the conversation reads them, once.
#[tokio::test]
async fn views_of_a_large_session_hold_its_texts_once() {
    const ANSWERS: usize = 16;
    const CALLS: usize = 10;
    const TEXT: usize = 60_000;
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().expect("a folder");
    // The memory engine shares its texts with readers.
    let redb = Redb::open(&folder.path().join("journal"), 1 << 20).expect("a store");
    let journal = Journal::open(Box::new(redb), subtend_journal::Options::default()).expect("a journal");
    let args = Text::from("<".repeat(TEXT));
    let model = fn_model("calls", move |request, _| {
        let call = ToolCall { provider_id: "c".into(), tool: "read".into(), args: args.clone() };
        let is_asked = matches!(request.messages.last(), Some(Message::User { .. }));
        async move { Ok(if is_asked { Answer::of_calls(None, vec![call; CALLS]) } else { Answer::of_text("Hello.") }) }
    });
    let options = Options { titles: false, summaries: false, ..Options::default() };
    let runtime = Runtime::builder().journal(journal).options(options).model(Arc::new(model));
    let host = Host::new(runtime.start().await.expect("a runtime"), HostOptions::default());
    let session = host.runtime().open(OpenOptions::agent("general")).expect("a session");
    for _ in 0..ANSWERS {
        let receipt = session.send("Good morning.").await.expect("accepted");
        session.run(receipt.run).ended().await.expect("an end");
    }
    let (router, id) = (host.router(), session.id());
    let all = ANSWERS * CALLS * TEXT;
    let conversation = peak(&router, &format!("/s/{id}")).await;
    let tree = peak(&router, &format!("/s/{id}/tree")).await;
    let alternatives = peak(&router, &format!("/v1/sessions/{id}/alternatives")).await;
    println!("at most {conversation}, {tree} and {alternatives} bytes on the heap for {all} bytes of arguments");
    assert!((all..all * 3 / 2).contains(&conversation), "{conversation} bytes");
    assert!(tree < all / 2, "{tree} bytes");
    assert!(alternatives < TEXT, "{alternatives} bytes");
    // These read page by page.
    for path in ["/v1/sessions/ID/transcript?limit=2", "/v1/sessions/ID/runs/1", "/s/ID/usage", "/s/ID/timeline"] {
        let bytes = peak(&router, &path.replace("ID", &id.to_string())).await;
        println!("at most {bytes} bytes on the heap for {path}");
        assert!(bytes < all / 2, "{path}: {bytes} bytes");
    }
    drop((router, session));
    host.shutdown(Duration::from_secs(5)).await.expect("nothing holds the host");
}

/// The attack: short names of sessions in a store with long titles. The control: the list reads the titles.
#[tokio::test]
async fn sessions_are_found_without_their_titles() {
    const SESSIONS: usize = 500;
    const TITLE: usize = 800;
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().expect("a folder");
    let redb = Redb::open(&folder.path().join("journal"), 1 << 20).expect("a store");
    let journal = Journal::open(Box::new(redb), subtend_journal::Options::default()).expect("a journal");
    let host = hosted(journal, "Hello.".to_owned()).await;
    let options = || OpenOptions { title: Some("😀".repeat(TITLE / 4).into()), ..OpenOptions::agent("general") };
    let sessions: Vec<_> = (0..SESSIONS).map(|_| host.runtime().open(options()).expect("a session")).collect();
    let first = sessions.first().expect("a session").id();
    // Durable, with those before it.
    sessions.last().expect("a session").merge_metadata(serde_json::json!({ "a": 1 })).await.expect("merged");
    let short = host.runtime().journal().head(first).expect("read").expect("a head").short;
    let router = host.router();
    let found = peak(&router, &format!("/v1/sessions/{short}")).await;
    let listed = peak(&router, "/v1/sessions?limit=500").await;
    println!("at most {found} and {listed} bytes on the heap for {SESSIONS} titles");
    assert!(found < SESSIONS * TITLE && listed > SESSIONS * TITLE, "{found} and {listed} bytes");
    drop((router, sessions));
    host.shutdown(Duration::from_secs(5)).await.expect("nothing holds the host");
}

/// The attack: many calls with long arguments wait for an approval, and a client counts them. The control: one of them is read.
#[tokio::test]
async fn waiting_calls_are_counted_without_their_arguments() {
    const SESSIONS: usize = 12;
    const TEXT: usize = 900_000;
    let _alone = ALONE.lock().await;
    let folder = tempfile::tempdir().expect("a folder");
    let redb = Redb::open(&folder.path().join("journal"), 1 << 20).expect("a store");
    let journal = Journal::open(Box::new(redb), subtend_journal::Options::default()).expect("a journal");
    let args = Text::from(format!("{{\"of\":\"{}\"}}", "x".repeat(TEXT)));
    let model = fn_model("calls", move |_, _| {
        let call = ToolCall { provider_id: "c".into(), tool: "make".into(), args: args.clone() };
        async move { Ok(Answer::of_calls(None, vec![call])) }
    });
    let schema = Arc::new(serde_json::json!({"type": "object"}));
    let spec = ToolSpec { name: "make".into(), description: "Makes it.".into(), schema };
    let make = FnTool::new(spec, ToolEffect::SideEffect, |_| async { Ok(ToolOutput::text("made")) })
        .access(|_| vec![Access { action: "make.thing".into(), resource: "it".into() }]);
    let options = Options { titles: false, summaries: false, ..Options::default() };
    let runtime = Runtime::builder().journal(journal).options(options).model(Arc::new(model));
    let rule = Rule { action: "make.*".into(), resource: "*".into(), verdict: Verdict::Ask };
    let runtime = runtime.policy(RuleSet { default: Verdict::Allow, rules: vec![rule] });
    let runtime = runtime.tools(Registry::builder().tool(Arc::new(make)).expect("one tool").build()).start().await;
    let host = Host::new(runtime.expect("a runtime"), HostOptions::default());
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = host.runtime().open(OpenOptions::agent("general")).expect("a session");
        session.send("Good morning.").await.expect("accepted");
        sessions.push(session);
    }
    while host.runtime().waiting_calls().await.expect("calls").len() < SESSIONS {
        tokio::task::yield_now().await;
    }
    let router = host.router();
    let counted = peak(&router, "/asks").await;
    let read = peak(&router, "/v1/approvals?limit=1").await;
    println!("at most {counted} and {read} bytes on the heap for {SESSIONS} waiting calls");
    assert!(counted < TEXT && read > TEXT, "{counted} and {read} bytes");
    drop((router, sessions));
    host.shutdown(Duration::from_secs(5)).await.expect("nothing holds the host");
}
