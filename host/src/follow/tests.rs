use subtend_actors::{BranchOptions, Options};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::faulty::{Faults, Faulty};
use subtend_journal::memory::Memory;
use subtend_models::closure::fn_model;
use subtend_models::model::Answer;

use super::*;
use crate::{Host, HostOptions};

/// Reads the records of eight answers of `bytes` bytes. Returns how many, in how many reads, and the largest read.
async fn reads(bytes: usize) -> (usize, usize, u64) {
    let model = fn_model("script", move |_, _| async move { Ok(Answer::of_text("x".repeat(bytes))) });
    let options = Options { titles: false, summaries: false, ..Options::default() };
    let runtime = Runtime::builder().model(Arc::new(model)).options(options).start().await.expect("a runtime");
    let session = runtime.open("general").expect("a session");
    for _ in 0..8 {
        session.send("go").await.expect("accepted").answer().await.expect("an answer");
    }
    let host = Host::new(runtime, HostOptions::default());
    let mut events = TreeEvents::new(host.runtime(), None, Cursor::default());
    let (mut records, mut reads, mut most) = (0, 0, 0_u64);
    while events.behind {
        events.start_page(FollowedPage::read(host.runtime().journal(), None, events.at).expect("a read"));
        let text = |ready: Followed| match ready {
            Followed::Event(_, Event { what: EventKind::Record { record, .. }, .. }) => record.text_bytes(),
            Followed::Event(..) | Followed::Missed(_) | Followed::Behind => 0,
        };
        (records, reads) = (records + events.ready.len(), reads + 1);
        most = most.max(events.ready.drain(..).map(text).sum());
    }
    drop(session);
    host.shutdown(Duration::from_secs(5)).await.expect("no request holds the host");
    (records, reads, most)
}

/// Without this limit, a stalled client could hold 256 frames of any size in memory: here one large record. The
/// control: with small answers, one read returns the same records.
#[tokio::test]
async fn records_are_read_up_to_a_number_of_bytes() {
    let (large, small) = (reads(1 << 20).await, reads(10).await);
    assert_eq!(large, (small.0, 17, 1 << 20));
    assert_eq!((small.1, small.2), (1, 80));
}

/// Opens eight sessions of two agents in turns, with prompts of `bytes` bytes. Returns the number of reads of their
/// records, and the most bytes of bodies that one read holds.
async fn reads_of_prompts(bytes: usize) -> (usize, u64) {
    let model = fn_model("script", |_, _| async { Ok(Answer::of_text("done")) });
    let mut catalog = Catalog::builtin();
    for name in ["one", "two"] {
        catalog.insert(Manifest::new(name, AgentMode::All, name.repeat(bytes / 3)));
    }
    let options = Options { titles: false, summaries: false, ..Options::default() };
    let builder = Runtime::builder().model(Arc::new(model)).options(options).catalog(catalog);
    let runtime = builder.start().await.expect("a runtime");
    for name in ["one", "two"].repeat(4) {
        let session = runtime.open(name).expect("a session");
        session.send("go").await.expect("accepted").answer().await.expect("an answer");
    }
    let (mut events, mut reads, mut most) = (TreeEvents::new(&runtime, None, Cursor::default()), 0, 0_u64);
    while events.behind {
        events.start_page(FollowedPage::read(runtime.journal(), None, events.at).expect("a read"));
        let record = |ready| match ready {
            Followed::Event(_, Event { what: EventKind::Record { record, .. }, .. }) => Some(record),
            Followed::Event(..) | Followed::Missed(_) | Followed::Behind => None,
        };
        let records: Vec<_> = events.ready.drain(..).filter_map(record).collect();
        let bodies: HashMap<_, _> = records.iter().flat_map(|record| record.bodies()).collect();
        (reads, most) = (reads + 1, most.max(bodies.into_values().sum()));
    }
    runtime.shutdown(Duration::ZERO).await;
    (reads, most)
}

/// A prompt is stored once for all sessions that name it, and would be held again for each. The control: with small
/// prompts, one read returns all records.
#[tokio::test]
async fn bodies_are_read_up_to_a_number_of_bytes() {
    let (large, small) = (reads_of_prompts(1 << 20).await, reads_of_prompts(30).await);
    assert_eq!((large.0, small.0), (16, 1), "{large:?} {small:?}");
    assert!((1 << 20..2 << 20).contains(&large.1), "{large:?} {small:?}");
}

/// Follows `root` up to the last of `events` events. Returns the frame of the first one, and the bytes that were read.
async fn followed(host: &Host, faults: &Faults, root: Option<SessionId>, events: usize) -> (Lsn, u64) {
    let (before, mut first) = (faults.read_bytes(), None);
    let mut tree = TreeEvents::new(host.runtime(), root, Cursor::default());
    for _ in 0..events {
        let next = match tree.next(host.runtime()).await {
            Ok(Some(Followed::Behind)) => tree.read_page(host.runtime().journal()).ok().flatten(),
            next => next.ok().flatten(),
        };
        let Some(Followed::Event(Some(cursor), _)) = next else { panic!("a record") };
        first.get_or_insert(cursor.frame);
    }
    (first.expect("an event"), faults.read_bytes() - before)
}

/// Attack: streams of a small tree in a large store. The control: a stream of all trees reads their records.
#[tokio::test]
async fn stream_of_a_tree_reads_little_of_others() {
    let (engine, faults) = Faulty::new(Box::new(Memory::new()));
    let journal = Journal::open(Box::new(engine), subtend_journal::Options::default()).expect("a journal");
    let model = fn_model("script", |_, _| async { Ok(Answer::of_text("x".repeat(1 << 20))) });
    let options = Options { titles: false, summaries: false, ..Options::default() };
    let builder = Runtime::builder().journal(journal.clone()).model(Arc::new(model)).options(options);
    let runtime = builder.start().await.expect("a runtime");
    let large = async || {
        let session = runtime.open("general").expect("a session");
        for _ in 0..4 {
            session.send("go").await.expect("accepted").answer().await.expect("an answer");
        }
        session.id()
    };
    let (before, small) = (large().await, runtime.open("general").expect("a session").id());
    let after = large().await;
    let [before, of_tree, after] = [before, small, after].map(|id| journal.records(id).expect("records").len());
    let host = Host::new(runtime, HostOptions::default());
    let (first, bytes) = followed(&host, &faults, Some(small), of_tree).await;
    assert!(bytes < 1 << 20, "{bytes} bytes");
    assert_eq!(start_of(&journal, small), Cursor::end_of(Lsn(first.0 - 1)));
    let (first, bytes) = followed(&host, &faults, None, before + of_tree + after).await;
    assert!(first < start_of(&journal, small).frame && bytes > 8 << 20, "{bytes} bytes");
    host.shutdown(Duration::from_secs(5)).await.expect("no request holds the host");
}

/// Attack: streams of an old tree, each of which passes over all later frames of a large store. The control: a branch is found among later
/// frames.
#[tokio::test]
async fn stream_of_an_old_tree_skips_later_frames() {
    let model = fn_model("script", |_, _| async { Ok(Answer::of_text("done")) });
    let options = Options { titles: false, summaries: false, ..Options::default() };
    let runtime = Runtime::builder().model(Arc::new(model)).options(options).start().await.expect("a runtime");
    let (old, other) = (runtime.open("general").expect("a session"), runtime.open("general").expect("a session"));
    old.send("go").await.expect("accepted").answer().await.expect("an answer");
    let later = async |frames: u32| {
        for frame in 0..frames {
            other.merge_metadata(serde_json::json!({ "frame": frame })).await.expect("merged");
        }
    };
    later(600).await;
    let branch = old.branch(BranchOptions::default()).await.expect("a branch").id();
    later(900).await;
    let journal = runtime.journal();
    let pages = |root| {
        let (mut events, mut pages, mut sessions) =
            (TreeEvents::new(&runtime, root, Cursor::default()), 0, HashSet::new());
        while events.behind {
            events.start_page(FollowedPage::read(journal, root, events.at).expect("a read"));
            pages += 1;
            sessions.extend(events.ready.drain(..).filter_map(|ready| match ready {
                Followed::Event(_, event) => Some(event.session),
                Followed::Missed(_) | Followed::Behind => None,
            }));
        }
        assert_eq!(events.at, Cursor::end_of(journal.durable()));
        (pages, sessions)
    };
    let (of_tree, of_all) = (pages(Some(old.id())), pages(None));
    assert_eq!(of_tree.1, HashSet::from([old.id(), branch]));
    assert_eq!(of_all.1, HashSet::from([old.id(), branch, other.id()]));
    assert!(of_tree.0 <= 4 && of_all.0 >= 6, "{} pages of the tree, {} of all", of_tree.0, of_all.0);
    runtime.shutdown(Duration::ZERO).await;
}

#[test]
fn formatted_cursor_parses_back() {
    for text in ["0", "17", "17.2"] {
        assert_eq!(text.parse::<Cursor>().expect("a cursor").to_string(), text);
    }
    assert!(Cursor::end_of(Lsn(16)) < "17.1".parse().expect("a cursor"));
    assert!("17.1".parse::<Cursor>().expect("a cursor") < Cursor::end_of(Lsn(17)));
}

#[test]
fn invalid_cursor_is_refused() {
    for text in ["", "x", "1.", "1.x", "-1", "1.2.3"] {
        assert_eq!(text.parse::<Cursor>(), Err(BadCursor(text.to_owned())));
    }
}
