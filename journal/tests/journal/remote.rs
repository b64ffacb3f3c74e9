//! Reads of a store through the journal of another process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::scene::*;
use subtend_journal::remote::{Read, Remote};

use crate::exporting::{stores, write, write_trees};

/// Returns a journal that reads through `host`.
fn remote(host: &Journal) -> Result<Journal, OpenError> {
    remote_with_changed_answers(host, |_, answer| answer)
}

/// Like [`remote`], but `change` alters the answers of the host.
fn remote_with_changed_answers(
    host: &Journal,
    change: impl Fn(&Read, Value) -> Value + Send + Sync + 'static,
) -> Result<Journal, OpenError> {
    let host = host.clone();
    let ask = move |read: &Read| {
        // Both are encoded, as on a socket.
        let text = serde_json::to_string(read).map_err(|error| error.to_string())?;
        let read: Read = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let answer = host.read(&read).map_err(|error| error.to_string())?;
        serde_json::from_str::<Value>(&change(&read, answer).to_string()).map_err(|error| error.to_string())
    };
    Journal::open(Box::new(Remote::new(ask)), Options::default())
}

#[tokio::test]
async fn h1_remote_reads_equal_those_of_the_engine() {
    let dir = tempfile::tempdir().unwrap();
    for (engine, spec) in stores(dir.path()) {
        let host = open_store(&spec).unwrap();
        write_trees(&host, 3).await;
        let other = remote(&host).unwrap();
        assert_eq!(write(&other, Scope::Store), write(&host, Scope::Store), "{engine}");
        assert_eq!(other.heads().unwrap(), host.heads().unwrap(), "{engine}");
        assert_eq!(other.inflight().unwrap(), host.inflight().unwrap(), "{engine}");
        assert_eq!(other.outbox().unwrap(), host.outbox().unwrap(), "{engine}");
        let sessions: Vec<_> = host.heads().unwrap().into_iter().map(|(id, _)| id).collect();
        for id in sessions {
            assert_eq!(other.records(id).unwrap(), host.records(id).unwrap(), "{engine}: {id}");
            assert_eq!(other.children(id).unwrap(), host.children(id).unwrap(), "{engine}: {id}");
            // The memory engine keeps no bytes: these are encoded for the transfer only.
            if engine != "memory" {
                assert_eq!(other.bytes_of(id).unwrap(), host.bytes_of(id).unwrap(), "{engine}: {id}");
                // The host adds up lengths, and the other journal reads the frames.
                for (from, most) in [(1, u64::MAX), (2, u64::MAX), (1, 1), (4, 900), (1_000, 1)] {
                    let bytes = |journal: &Journal| journal.bytes_from(id, Seq(from), most).unwrap();
                    assert_eq!(bytes(&other), bytes(&host), "{engine}: {id}, {from}, {most}");
                }
            }
        }
        let report = other.verify(&mut |_| {}).unwrap();
        assert!(report.problems.is_empty(), "{engine}: {:?}", report.problems);
        // The remote journal also reads records that the host appends later.
        let before = other.heads().unwrap().len();
        let mut family = family(&host, 900, true);
        host.append(one(family.taken())).unwrap();
        host.settled().await.unwrap();
        assert!(other.heads().unwrap().len() > before, "{engine}");
    }
}

#[tokio::test]
async fn activation_and_all_records_take_one_read() {
    let dir = tempfile::tempdir().unwrap();
    // In memory the bodies of a creation are not in its frame: they take three more reads.
    for (engine, spec) in stores(dir.path()).into_iter().filter(|(engine, _)| *engine != "memory") {
        let host = open_store(&spec).unwrap();
        let mut root = family(&host, 10, true).root;
        // More frames than one answer of a host holds.
        let long = 700;
        for _ in 0..long {
            host.append(one(root.input_frame())).unwrap();
        }
        host.settled().await.unwrap();
        let reads = Arc::new(std::sync::Mutex::new(Vec::new()));
        let count = Arc::clone(&reads);
        let other = remote_with_changed_answers(&host, move |read, answer| {
            count.lock().unwrap().push(*read);
            answer
        })
        .unwrap();
        reads.lock().unwrap().clear();
        let (activation, records) = other.activate_with_records(root.id).unwrap();
        let range_reads = std::mem::take(&mut *reads.lock().unwrap());
        assert_eq!(range_reads.len(), 3, "{engine}: {range_reads:?}");
        assert!(range_reads.iter().all(|read| matches!(read, Read::Range { .. })), "{engine}: {range_reads:?}");
        assert_eq!(records, host.records(root.id).unwrap(), "{engine}");
        let alone = host.activate(root.id).unwrap();
        assert_eq!((activation.next_seq, activation.head), (alone.next_seq, alone.head), "{engine}");
    }
}

/// The host reads no more frames than the reader asked for. A page has frames of two parts.
#[tokio::test]
async fn byte_limit_of_a_range_reaches_the_host() {
    let without = json!({"read": "range", "session": id(1), "from": 1, "until": 2});
    let limited = Read::Range { session: id(1), from: Seq(1), until: Seq(2), max_bytes: u64::MAX };
    assert_eq!(serde_json::from_value::<Read>(without).unwrap(), limited);
    let dir = tempfile::tempdir().unwrap();
    // In memory the host counts the bytes of records, and a reader those of frames.
    for (engine, spec) in stores(dir.path()).into_iter().filter(|(engine, _)| *engine != "memory") {
        let host = open_store(&spec).unwrap();
        let mut root = family(&host, 10, true).root;
        for _ in 0..400 {
            host.append(one(root.input_frame())).unwrap();
        }
        host.settled().await.unwrap();
        let counts = Arc::new(std::sync::Mutex::new(Vec::new()));
        let count = Arc::clone(&counts);
        let other = remote_with_changed_answers(&host, move |read, answer| {
            if matches!(read, Read::Range { .. }) {
                count.lock().unwrap().push(answer["frames"].as_array().map(Vec::len));
            }
            answer
        })
        .unwrap();
        counts.lock().unwrap().clear();
        let (page, more) = other.page_from(root.id, Seq(20), 100, 1).unwrap();
        assert_eq!((page.len(), more), (1, true), "{engine}");
        let read = std::mem::take(&mut *counts.lock().unwrap());
        assert_eq!(read, [Some(1)], "{engine}");
        let all = host.records_from(root.id, Seq(20), usize::MAX).unwrap();
        let whole = host.bytes_of(root.id).unwrap();
        for most in [whole / 2, whole * 3 / 4, whole * 7 / 8] {
            let page = other.page_from(root.id, Seq(20), 1_000, most).unwrap();
            assert_eq!(page, host.page_from(root.id, Seq(20), 1_000, most).unwrap(), "{engine}: {most}");
            assert!(page.1 && page.0[..] == all[..page.0.len()], "{engine}: {most}");
        }
        assert_eq!(other.page_from(root.id, Seq(20), 1_000, u64::MAX).unwrap(), (all, false), "{engine}");
    }
}

#[tokio::test]
async fn remote_journal_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for (engine, spec) in stores(dir.path()) {
        let host = open_store(&spec).unwrap();
        write_trees(&host, 1).await;
        let (other, before) = (remote(&host).unwrap(), host.last_appended());
        let mut family = family(&crate::exporting::memory(), 500, true);
        assert!(other.append(one(family.taken())).is_err(), "{engine}");
        assert_eq!(host.last_appended(), before, "{engine}");
    }
}

/// Returns a journal whose host creates a session during each of the first `most` log reads, before the rows.
fn with_busy_host(host: &Journal, most: usize) -> Journal {
    let (writer, reads) = (host.clone(), AtomicUsize::new(0));
    let other = remote_with_changed_answers(host, move |read, answer| {
        let is_log = matches!(read, Read::Frames { .. });
        let nth = if is_log { reads.fetch_add(1, Relaxed) } else { most };
        if nth < most {
            let new = SessionWriter::new(id(10_000 + u128::from(writer.last_appended().0)));
            let last = writer.append(one(created_session(&mut { new }, None, true))).unwrap().last;
            while writer.durable() < last {
                std::thread::yield_now();
            }
        }
        answer
    });
    other.unwrap()
}

#[tokio::test]
async fn h1_writes_of_the_host_are_not_reported_as_damage() {
    let dir = tempfile::tempdir().unwrap();
    for (engine, spec) in stores(dir.path()) {
        let host = open_store(&spec).unwrap();
        write_trees(&host, 1).await;
        // The host stops writing, so a later pass finds no difference.
        let report = with_busy_host(&host, 2).verify(&mut |_| {}).unwrap();
        assert_eq!((report.problems, report.unsettled), (vec![], vec![]), "{engine}");
        // The host always writes: differences that only one pass finds are reported as unsettled, not as damage.
        let report = with_busy_host(&host, usize::MAX).verify(&mut |_| {}).unwrap();
        assert_eq!((report.problems, report.unsettled.is_empty()), (vec![], false), "{engine}");
    }
}

#[tokio::test]
async fn h1_damage_is_found_while_the_host_writes() {
    let dir = tempfile::tempdir().unwrap();
    for (engine, spec) in stores(dir.path()) {
        let host = open_store(&spec).unwrap();
        write_trees(&host, 1).await;
        let lost = host.heads().unwrap().first().unwrap().0;
        let busy = with_busy_host(&host, usize::MAX);
        // One session has no row.
        let other = remote_with_changed_answers(&busy, move |read, answer| {
            let is_lost = matches!(read, Read::Head { session } if *session == lost);
            if is_lost { serde_json::json!({ "Ok": null }) } else { answer }
        });
        let report = other.unwrap().verify(&mut |_| {}).unwrap();
        let found: Vec<_> = report.problems.iter().map(|problem| (problem.session, &*problem.what)).collect();
        assert_eq!(found, [(Some(lost), "it has no sound row in `head`")], "{engine}");
    }
}

/// Reads everything that a journal can read. Each read must end without a panic.
fn read_all(journal: &Journal) {
    _ = journal.verify(&mut |_| {});
    _ = journal.export(Scope::Store, &mut Vec::new(), &mut |_| {});
    for (id, _) in journal.heads().into_iter().flatten() {
        _ = (journal.records(id), journal.children(id), journal.head(id), journal.bytes_of(id));
        _ = journal.records_from(id, Seq(1), 2);
    }
    _ = (journal.inflight(), journal.outbox());
}

#[tokio::test]
async fn invalid_frames_of_a_host_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (_, spec) = stores(dir.path()).into_iter().next_back().unwrap();
    let host = open_store(&spec).unwrap();
    write_trees(&host, 3).await;
    // The host answers each read of frames with the same full page, so a reader that asks for the next page never ends.
    let (first, reads) = (OnceLock::new(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&reads);
    let same_page = move |read: &Read, answer: Value| {
        if !matches!(read, Read::Frames { .. }) {
            return answer;
        }
        // Control: a reader without the check would end here.
        if count.fetch_add(1, Relaxed) > 1_000 {
            return Value::from(Vec::<Value>::new());
        }
        first.get_or_init(|| Value::from(vec![answer[0].clone(); 256])).clone()
    };
    let other = remote_with_changed_answers(&host, same_page).unwrap();
    let error = other.verify(&mut |_| {}).map(|report| report.frames).expect_err("refused").to_string();
    assert!(error.contains("its rows are not in order"), "{error}");
    assert_eq!(reads.load(Relaxed), 1);
}

#[tokio::test]
async fn invalid_answers_of_a_host_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let (_, spec) = stores(dir.path()).into_iter().next_back().unwrap();
    let host = open_store(&spec).unwrap();
    write_trees(&host, 3).await;
    let changes: [fn(Value) -> Value; 7] = [
        |_| Value::Null,
        |_| Value::from(u64::MAX),
        |_| Value::from("\u{202e}"),
        |answer| Value::from(vec![answer; 3]),
        |answer| edit_values(answer, &|value| if value.is_u64() { Value::from(u64::MAX) } else { value }),
        |answer| edit_values(answer, &|value| if value.is_u64() { Value::from(0) } else { value }),
        // Every text is replaced by the same one: ids, hashes, bytes.
        |answer| edit_values(answer, &|value| if value.is_string() { Value::from("00") } else { value }),
    ];
    for change in changes {
        for place in 0..16 {
            let reads = AtomicUsize::new(0);
            let changed = move |_: &Read, answer: Value| {
                if reads.fetch_add(1, Relaxed) % 16 >= place { change(answer) } else { answer }
            };
            if let Ok(other) = remote_with_changed_answers(&host, changed) {
                read_all(&other);
            }
        }
    }
}

/// Returns `value` with each value in it edited.
fn edit_values(value: Value, edit: &dyn Fn(Value) -> Value) -> Value {
    match value {
        Value::Array(all) => all.into_iter().map(|value| edit_values(value, edit)).collect(),
        Value::Object(all) => {
            Value::Object(all.into_iter().map(|(key, value)| (key, edit_values(value, edit))).collect())
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => edit(other),
    }
}
