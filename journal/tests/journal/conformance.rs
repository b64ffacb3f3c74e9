//! Tests that every engine must pass.

use crate::scene::*;
use subtend_journal::Appended;
use subtend_session::ids::Epoch;
use subtend_session::index::{Changes, RowKey, RowKind};
use subtend_session::state::Phase;
use tempfile::TempDir;

use crate::engines::Kind;

/// Store that can be reopened.
pub(crate) enum Store {
    Memory(Memory),
    Disk(Kind, TempDir),
    Faulty(Kind, TempDir),
}

impl Store {
    pub(crate) fn engine(&self) -> Box<dyn Engine> {
        match self {
            Self::Memory(memory) => Box::new(memory.clone()),
            Self::Disk(kind, dir) => kind.engine(dir.path()),
            Self::Faulty(kind, dir) => Box::new(Faulty::new(kind.with_blobs(dir.path())).0),
        }
    }

    pub(crate) fn open(&self) -> Journal {
        Journal::open(self.engine(), Options::default()).unwrap()
    }
}

fn stored(session_writer: &SessionWriter) -> Vec<Stored> {
    let numbered = (1..).map(Seq).zip(session_writer.records.iter().cloned());
    numbered.map(|(seq, record)| Stored { seq, at_ms: AT_MS, epoch: session_writer.epoch, record }).collect()
}

fn notice(family: &Family) -> Row {
    let key = RowKey::Call(CallId { turn: TurnNo(1), ix: 0 });
    Row { to: family.root.id, from: family.child.id, kind: RowKind::Notice, key }
}

fn append_error(result: Result<Appended, AppendError>) -> String {
    result.unwrap_err().to_string()
}

fn read_in_pages(journal: &Journal, session: SessionId, most: usize) -> Vec<Stored> {
    let mut all: Vec<Stored> = Vec::new();
    loop {
        let from = all.last().map_or(Seq(1), |stored| stored.seq.next());
        let page = journal.records_from(session, from, most).unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// Returns the number of records of each page, and all records.
fn read_by_bytes(journal: &Journal, session: SessionId, max_bytes: u64) -> (Vec<usize>, Vec<Stored>) {
    let (mut sizes, mut all, mut more) = (Vec::new(), Vec::<Stored>::new(), true);
    while more {
        let from = all.last().map_or(Seq(1), |stored| stored.seq.next());
        let page;
        (page, more) = journal.page_from(session, from, 100, max_bytes).unwrap();
        sizes.extend((!page.is_empty()).then_some(page.len()));
        all.extend(page);
    }
    (sizes, all)
}

async fn appended_records_are_read_back_before_and_after_reopening(store: Store) {
    let journal = store.open();
    let mut family = family(&journal, 10, true);
    journal.settled().await.unwrap();
    assert_eq!(journal.durable(), Lsn(7));
    assert_eq!(journal.outbox().unwrap(), vec![(notice(&family), Lsn(7))]);
    assert_eq!(journal.outbox_to(family.root.id).unwrap(), vec![(notice(&family), Lsn(7))]);
    assert_eq!(journal.outbox_to(family.child.id).unwrap(), vec![]);
    assert_eq!(problems(&journal), Vec::<String>::new());

    let taken = family.taken();
    let last = journal.append(one(taken)).unwrap().last;
    journal.wait(last).await.unwrap();
    for round in ["open", "reopened"] {
        let journal = if round == "open" { journal.clone() } else { store.open() };
        let (root, child) = (&family.root, &family.child);
        assert_eq!(journal.records(root.id).unwrap(), stored(root), "{round}");
        assert_eq!(journal.records(child.id).unwrap(), stored(child), "{round}");
        for most in 1..12 {
            assert_eq!(read_in_pages(&journal, root.id, most), stored(root), "{round}: pages of {most}");
        }
        assert_eq!(read_by_bytes(&journal, root.id, u64::MAX), (vec![10], stored(root)), "{round}");
        assert_eq!(read_by_bytes(&journal, root.id, 1), (vec![3, 3, 1, 2, 1], stored(root)), "{round}: a frame a page");
        assert_eq!(journal.page_from(root.id, Seq(11), 100, 1).unwrap(), (vec![], false));
        assert_eq!(journal.records_from(root.id, Seq(4), 100).unwrap(), stored(root).split_off(3));
        assert_eq!(journal.records_from(root.id, Seq(11), 100).unwrap(), vec![]);
        assert_eq!(journal.frame_at(Lsn(5)).unwrap(), Some((child.id, stored(child).split_off(0)[..3].to_vec())));
        assert_eq!(journal.frame_at(Lsn(99)).unwrap(), None);
        assert_eq!(journal.children(root.id).unwrap(), vec![child.id]);
        assert_eq!(journal.children(child.id).unwrap(), vec![]);
        let heads: Vec<_> =
            journal.heads().unwrap().into_iter().map(|(id, head)| (id, head.state, head.last_seq)).collect();
        assert_eq!(heads, vec![(root.id, Phase::Working, Seq(10)), (child.id, Phase::Quiet, Seq(8))]);
        let inflight = journal.inflight().unwrap();
        let rows: Vec<_> = inflight.iter().map(|(id, row)| (*id, row.opened_lsn, row.epoch)).collect();
        assert_eq!(rows, vec![(root.id, Lsn(1), Epoch(1))]);
        assert_eq!(journal.outbox().unwrap(), vec![]);
        let body = journal.def(Hash::of(b"\"be brief\"")).unwrap();
        assert_eq!(body.as_deref(), Some("\"be brief\""));
        assert_eq!(problems(&journal), Vec::<String>::new(), "{round}");
        journal.close().await.unwrap();
    }
}

async fn creation_without_bodies_gets_them_from_an_earlier_one(store: Store) {
    let journal = store.open();
    let Family { child, .. } = family(&journal, 10, true);
    journal.settled().await.unwrap();
    let Some(Stored { record: Record::SessionCreated(created), .. }) =
        journal.records(child.id).unwrap().into_iter().next()
    else {
        panic!("no creation")
    };
    assert_eq!(created.system.body.as_deref(), Some("be brief"));
    assert!(created.ceiling.body.is_some() && created.limits.body.is_some());
}

async fn batch_over_several_sessions_is_all_or_nothing(store: Store) {
    let journal = store.open();
    let (mut one_, mut two) = (SessionWriter::new(id(1)), SessionWriter::new(id(2)));
    let creation = created_session(&mut one_, None, true);
    let stray = { two.clone().frame_of(crate::scene::creation(two.id, None)) };
    let bad = Batch { frames: vec![creation.clone(), created_session(&mut two, None, false), stray] };
    assert!(append_error(journal.append(bad)).contains("starts at record 1, but record 4 comes next"));
    assert_eq!(journal.last_appended(), Lsn(0));
    assert_eq!(journal.append(one(creation)).unwrap(), Appended { first: Lsn(1), last: Lsn(1) });
    journal.settled().await.unwrap();
    let heads: Vec<SessionId> = journal.heads().unwrap().into_iter().map(|(id, _)| id).collect();
    assert_eq!(heads, vec![id(1)]);
}

async fn frame_must_follow_the_last_record(store: Store) {
    let journal = store.open();
    let mut session_writer = SessionWriter::new(id(1));
    journal.append(one(created_session(&mut session_writer, None, true))).unwrap();
    let next = session_writer.frame_of(start(session_writer.id));
    for wrong in [1, 3, 5] {
        let mut frame = next.clone();
        frame.first_seq = Seq(wrong);
        let text = format!("session {}: a frame starts at record {wrong}, but record 4 comes next", id(1));
        assert_eq!(append_error(journal.append(one(frame))), text);
    }
    journal.append(one(next)).unwrap();
    journal.settled().await.unwrap();
    assert_eq!(journal.records(id(1)).unwrap(), stored(&session_writer));
}

async fn later_activation_fences_all_earlier_ones(store: Store) {
    let journal = store.open();
    let mut old = SessionWriter::new(id(1));
    old.opened_lsn = journal.append(one(created_session(&mut old, None, true))).unwrap().last;
    journal.settled().await.unwrap();
    let activation = journal.activate(id(1)).unwrap();
    assert_eq!((activation.epoch, activation.next_seq), (Epoch(2), Seq(4)));
    assert_eq!(activation.head.map(|head| head.last_seq), Some(Seq(3)));
    assert_eq!(activation.inflight.map(|row| row.opened_lsn), Some(Lsn(1)));

    let mut new = SessionWriter { epoch: Epoch(2), ..old.clone() };
    let text = append_error(journal.append(one(old.frame_of(start(id(1))))));
    assert!(text.ends_with("the batch belongs to activation 1, the current one is 2"), "{text}");
    // The epoch is durable with a row, before the first record.
    journal.append(one(new.rows())).unwrap();
    journal.settled().await.unwrap();
    journal.close().await.unwrap();

    let journal = store.open();
    assert_eq!(journal.durable(), Lsn(2));
    let activation = journal.activate(id(1)).unwrap();
    assert_eq!((activation.epoch, activation.next_seq), (Epoch(3), Seq(4)));
    assert!(append_error(journal.append(one(new.frame_of(start(id(1)))))).ends_with("the current one is 3"));
    assert_eq!(journal.activate(id(9)).unwrap_err().to_string(), format!("no session {} in this store", id(9)));
}

/// The bodies of a session count until they are in memory. A refused activation leaves no trace.
async fn large_session_is_not_activated_as_a_small_one(store: Store) {
    let journal = store.open();
    // Another session has brought the bodies.
    journal.append(one(created_session(&mut SessionWriter::new(id(9)), None, true))).unwrap();
    let mut writer = SessionWriter::new(id(1));
    journal.append(one(created_session(&mut writer, None, false))).unwrap();
    for _ in 0..3 {
        journal.append(one(writer.input_frame())).unwrap();
    }
    journal.settled().await.unwrap();
    let is_small = |journal: &Journal, bytes| journal.activate_small(id(1), bytes).unwrap().is_some();
    let frames = journal.bytes_from(id(1), Seq(1), u64::MAX).unwrap();
    assert_eq!([1, frames].map(|bytes| is_small(&journal, bytes)), [false, false]);
    assert!(append_error(journal.append(one(writer.input_frame()))).ends_with("and the session is not active"));
    journal.close().await.unwrap();

    let journal = store.open();
    let bodies = journal.body_bytes(id(1)).unwrap();
    // Sessions in memory keep their bodies.
    let unread = if matches!(store, Store::Memory(_)) { 0 } else { bodies };
    assert_eq!([1, frames, frames + unread].map(|bytes| is_small(&journal, bytes)), [false; 3]);
    let (activation, records) = journal.activate_small(id(1), frames + unread + 1).unwrap().unwrap();
    assert_eq!((activation.next_seq, activation.head.map(|head| head.last_seq)), (Seq(7), Some(Seq(6))));
    assert_eq!(records, journal.records(id(1)).unwrap());
    assert!(is_small(&journal, frames + 1), "the bodies are in memory");
}

async fn deactivated_session_continues_after_its_last_record(store: Store) {
    let journal = store.open();
    let mut session_writer = SessionWriter::new(id(1));
    session_writer.opened_lsn = journal.append(one(created_session(&mut session_writer, None, true))).unwrap().last;
    journal.deactivate(id(1), Epoch(7));
    let frame = session_writer.frame_of(start(id(1)));
    journal.deactivate(id(1), Epoch(1));
    assert!(append_error(journal.append(one(frame.clone()))).ends_with("and the session is not active"));
    journal.settled().await.unwrap();
    let activation = journal.activate(id(1)).unwrap();
    assert_eq!((activation.epoch, activation.next_seq), (Epoch(2), Seq(4)));
    let mut frame = frame;
    frame.epoch = Epoch(2);
    journal.append(one(frame)).unwrap();
    journal.settled().await.unwrap();
    let epochs: Vec<_> = journal.records(id(1)).unwrap().into_iter().map(|stored| stored.epoch.0).collect();
    assert_eq!(epochs, vec![1, 1, 1, 2, 2, 2]);
}

async fn obligations_are_made_and_taken(store: Store) {
    let journal = store.open();
    let mut session_writer = SessionWriter::new(id(1));
    journal.append(one(created_session(&mut session_writer, None, true))).unwrap();
    let row = |from| Row {
        to: id(1),
        from: id(from),
        kind: RowKind::Notice,
        key: RowKey::Call(CallId { turn: TurnNo(1), ix: 0 }),
    };
    let change = |put: Vec<Row>, take: Vec<Row>| {
        let mut frame = session_writer.rows();
        frame.changes = Changes { put, take, ..Changes::default() };
        journal.append(one(frame)).unwrap()
    };
    change(vec![row(3), row(2)], vec![]);
    journal.settled().await.unwrap();
    // Appended without waiting, so that the writer may group these frames in any way.
    change(vec![row(4)], vec![row(3)]);
    change(vec![row(5)], vec![row(4)]);
    change(vec![row(3)], vec![row(2), row(77)]);
    change(vec![], vec![row(3)]);
    change(vec![row(3)], vec![]);
    journal.settled().await.unwrap();
    assert_eq!(journal.outbox_to(id(1)).unwrap(), vec![(row(5), Lsn(4)), (row(3), Lsn(7))]);
}

async fn creation_of_an_existing_session_poisons_and_leaves_nothing(store: Store) {
    let journal = store.open();
    let mut session_writer = SessionWriter::new(id(1));
    journal.append(one(created_session(&mut session_writer, None, true))).unwrap();
    journal.settled().await.unwrap();
    journal.deactivate(id(1), Epoch(1));
    let mut other = SessionWriter::new(id(2));
    let mut again = SessionWriter::new(id(1));
    let frames = vec![created_session(&mut other, None, true), created_session(&mut again, None, true)];
    // An engine without a writer thread already fails here.
    let _ = journal.append(Batch { frames });
    let poisoned = journal.on_poison().await.to_string();
    assert!(poisoned.contains(&format!("session {} already has a record 1", id(1))), "{poisoned}");
    drop(journal);
    let journal = store.open();
    assert_eq!(journal.records(id(1)).unwrap(), stored(&session_writer));
    assert!(journal.records(id(2)).is_err());
    assert_eq!(problems(&journal), Vec::<String>::new());
}

async fn closed_journal_refuses_appends_and_keeps_the_rest(store: Store) {
    let journal = store.open();
    let other = journal.clone();
    let mut session_writer = SessionWriter::new(id(1));
    journal.append(one(created_session(&mut session_writer, None, true))).unwrap();
    journal.close().await.unwrap();
    assert!(matches!(other.append(one(session_writer.clone().frame_of(start(id(1))))), Err(AppendError::Closed)));
    assert_eq!(other.records(id(1)).unwrap_err().to_string(), "the journal is closed");
    assert_eq!(store.open().records(id(1)).unwrap(), stored(&session_writer));
}

async fn concurrent_writers_do_not_interfere(store: Store) {
    let journal = store.open();
    let first = id(1);
    let mut session_writer = SessionWriter::new(first);
    journal.append(one(created_session(&mut session_writer, None, true))).unwrap();
    let families_by_writer: Vec<Vec<Family>> = std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=4)
            .map(|writer| {
                let journal = &journal;
                scope.spawn(move || {
                    let write = |n: u128| {
                        let mut family = family(journal, writer * 1000 + n * 10, false);
                        let taken = family.taken();
                        journal.append(one(taken)).unwrap();
                        family
                    };
                    (0..15).map(write).collect()
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    journal.settled().await.unwrap();
    assert_eq!(journal.durable(), Lsn(1 + 4 * 15 * 8));
    for family in families_by_writer.iter().flatten() {
        assert_eq!(journal.records(family.root.id).unwrap(), stored(&family.root));
        assert_eq!(journal.records(family.child.id).unwrap(), stored(&family.child));
    }
    assert_eq!(problems(&journal), Vec::<String>::new());
    assert_eq!(journal.outbox().unwrap(), vec![]);
}

async fn readers_see_no_part_of_a_batch(store: Store) {
    const BATCHES: u128 = 20;
    const NEW_SESSIONS: u128 = 100;
    let journal = store.open();
    let writer = std::thread::spawn({
        let journal = journal.clone();
        move || {
            for batch in 0..BATCHES {
                let creation =
                    |n| created_session(&mut SessionWriter::new(id(batch * NEW_SESSIONS + n)), None, batch == 0);
                journal.append(Batch { frames: (1..=NEW_SESSIONS).map(creation).collect() }).unwrap();
            }
        }
    });
    for batch in 0..BATCHES {
        let (first, last) = (id(batch * NEW_SESSIONS + 1), id((batch + 1) * NEW_SESSIONS));
        while journal.head(first).unwrap().is_none() {
            std::hint::spin_loop();
        }
        // All sessions must be visible now, whatever the order of the engine's writes.
        for session in [last, first] {
            assert!(journal.head(session).unwrap().is_some(), "batch {batch}");
            assert!(journal.activate(session).unwrap().inflight.is_some(), "batch {batch}");
            assert_eq!(journal.records(session).map(|records| records.len()).map_err(|e| e.to_string()), Ok(3));
        }
    }
    writer.join().unwrap();
}

macro_rules! conformance {
    ($($engine:ident => $store:expr;)*) => { $(mod $engine {
        use super::*;
        conformance!(@ $store; appended_records_are_read_back_before_and_after_reopening,
            creation_without_bodies_gets_them_from_an_earlier_one, batch_over_several_sessions_is_all_or_nothing,
            frame_must_follow_the_last_record, later_activation_fences_all_earlier_ones,
            large_session_is_not_activated_as_a_small_one, deactivated_session_continues_after_its_last_record, obligations_are_made_and_taken,
            creation_of_an_existing_session_poisons_and_leaves_nothing, closed_journal_refuses_appends_and_keeps_the_rest,
            concurrent_writers_do_not_interfere, readers_see_no_part_of_a_batch);
    })* };
    (@ $store:expr; $($test:ident),*) => { $(#[tokio::test]
        async fn $test() {
            super::$test($store).await;
        })* };
}

conformance! {
    memory => Store::Memory(Memory::new());
    redb => Store::Disk(Kind::Redb, tempfile::tempdir().unwrap());
    sled => Store::Disk(Kind::Sled, tempfile::tempdir().unwrap());
    faulty => Store::Faulty(Kind::Redb, tempfile::tempdir().unwrap());
}
with_server! {
    conformance! {
        postgres => Store::Disk(Kind::Postgres, tempfile::tempdir().unwrap());
    }
}
