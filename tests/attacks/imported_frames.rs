//! Foreign exports with large frames that many rows or records of other sessions name.

use super::imported_views::{ExportedFrame, answered, ended, id, imported, notice};
use super::scene::*;
use subtend_actors::Runtime;
use subtend_actors::transcript::{Transcript, TranscriptReading};
use subtend_models::closure::fn_model;
use subtend_models::model::Answer;

/// Number of rows or owners that name a large frame.
const NAMED: u32 = 40;

/// Returns the creation of child `n` of the root, which call `ix` started.
fn child_created(n: u32, ix: u32) -> Value {
    let mut created = answered(1, &[]).swap_remove(0);
    let fields = &mut created["session_created"];
    fields["short"] = json!(id(n)[30..]);
    fields["place"]["child"]["call"]["ix"] = json!(ix);
    created
}

fn spawned(n: u32, ix: u32, detached: bool) -> Value {
    json!({"child_spawned": {"call": {"turn": 1, "ix": ix}, "child": id(n), "short": id(n)[30..], "agent": "explore",
        "mode": "background", "detached": detached, "depth": 1, "grant": {"spawns_left": 9}}})
}

fn large(bytes: usize) -> Value {
    json!({"metadata_set": {"metadata": json!({"a": "x".repeat(bytes)}).to_string(), "by": "person"}})
}

/// The root continues each of its children, all in one frame or, after a large frame, in a frame for each.
fn continued(bytes: usize, in_one_frame: bool) -> Vec<ExportedFrame> {
    let mut first = answered(0, &vec!["task"; NAMED as usize + 1]);
    first.push(json!({"call_started": {"call": {"turn": 1, "ix": 0}, "kind": {"child": "background"}}}));
    first.extend((1..=NAMED).map(|n| spawned(n, 0, true)));
    let requests = (1..=NAMED).map(|n| {
        let call = json!({"turn": 1, "ix": n});
        let request = json!({"call": call, "child": id(n), "input": "more", "mode": "background"});
        vec![
            json!({"call_started": {"call": call, "kind": {"continue": "background"}}}),
            json!({"continue_asked": request}),
        ]
    });
    let mut frames = vec![first, vec![large(bytes)]];
    frames.extend(requests);
    frames.push(vec![ended()]);
    if in_one_frame {
        frames = vec![frames.concat()];
    }
    let children = (1..=NAMED).map(|n| (id(n), vec![child_created(n, 0)]));
    frames.into_iter().map(|records| (id(0), records)).chain(children).collect()
}

/// A person ran the child of the root many times, and the root has no notice of any end.
fn unnoticed(bytes: usize) -> Vec<ExportedFrame> {
    let mut parent = answered(0, &["task"]);
    parent.extend([
        json!({"call_started": {"call": {"turn": 1, "ix": 0}, "kind": {"child": "background"}}}),
        spawned(1, 0, true),
        json!({"call_finished": {"call": {"turn": 1, "ix": 0}, "end": "ok", "content": "started", "worked_ms": 1}}),
        ended(),
    ]);
    let runs = (1..=NAMED).map(|run| {
        let mut records = answered(0, &[]).split_off(1);
        records.push(ended());
        let input = json!(id(1_000 + run));
        for (at, pointer, value) in [
            (0, "/input_accepted/id", &input),
            (1, "/run_opened/run", &json!(run)),
            (1, "/run_opened/inputs/0", &input),
            (1, "/run_opened/base_turns", &json!(run - 1)),
            (2, "/run_started/run", &json!(run)),
            (3, "/inputs_taken/ids/0", &input),
            (3, "/inputs_taken/run", &json!(run)),
            (3, "/inputs_taken/turn", &json!(run)),
            (4, "/turn_started/run", &json!(run)),
            (4, "/turn_started/turn", &json!(run)),
            (5, "/turn_answered/run", &json!(run)),
            (5, "/turn_answered/turn", &json!(run)),
            (6, "/run_ended/run", &json!(run)),
        ] {
            *records[at].pointer_mut(pointer).expect("a field") = value.clone();
        }
        (id(1), records)
    });
    let first = [(id(0), parent), (id(1), vec![child_created(1, 0), large(bytes)])];
    first.into_iter().chain(runs).collect()
}

/// Starts a runtime on an import. Returns the bytes of frames that the start reads, and the number of rows whose receiver
/// has new records.
fn start(frames: &[ExportedFrame]) -> (u64, usize) {
    let (journal, faults) = imported(frames).expect("imported");
    let last = |of: SessionId| journal.head(of).expect("a row").map(|head| head.last_seq);
    let rows = journal.outbox().expect("rows");
    let rows: Vec<_> = rows.into_iter().map(|(row, _)| (row.to, last(row.to))).collect();
    let before = faults.read_bytes();
    let model = fn_model("scripted", |_, _| async { Ok(Answer::of_text("Hello.")) });
    let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let builder = Runtime::builder().journal(journal.clone()).model(Arc::new(model));
    let runtime = threads.block_on(builder.start()).expect("a start");
    let read = faults.read_bytes() - before;
    let delivered = rows.iter().filter(|(to, then)| last(*to) > *then).count();
    threads.block_on(runtime.shutdown(Duration::ZERO));
    (read, delivered)
}

/// A start would decode the large frame again for each row, or for each page of records before it. The control: with
/// small frames, the same rows are delivered.
#[test]
fn start_reads_a_large_frame_once_for_all_its_rows() {
    const LARGE: usize = 200_000;
    type Export = fn(usize) -> Vec<ExportedFrame>;
    let exports: [(&str, Export); 3] = [
        ("one frame", |bytes| continued(bytes, true)),
        ("frames of one run", |bytes| continued(bytes, false)),
        ("ends", unnoticed),
    ];
    for (what, export) in exports {
        let (small, large) = (start(&export(10)), start(&export(LARGE)));
        assert_eq!([small.1, large.1], [NAMED as usize; 2], "{what}");
        let times = (large.0 - small.0) / LARGE as u64;
        assert!(times < 10, "{what}: the large frame was read {times} times");
    }
}

/// Branches with a run in flight, whose root has its creation and a large record in one frame.
fn running_branches(bytes: usize) -> Vec<ExportedFrame> {
    let branch = |n: u32| {
        json!({"branch_created": {"child": id(n), "short": id(n)[30..], "agent": "explore", "kind": "human", "at": 1,
            "by": "person"}})
    };
    let branches = (1..=NAMED).map(|n| {
        let mut records = answered(0, &[]);
        records.truncate(4);
        records[0]["session_created"]["short"] = json!(id(n)[30..]);
        records[0]["session_created"]["place"] = json!({"child": {"parent": id(0), "root": id(0), "kind": "human",
            "user_msg": {"session": id(0), "seq": 1}, "depth": 0}});
        (id(n), records)
    });
    let root = answered(0, &[]).swap_remove(0);
    let first = [(id(0), vec![root, large(bytes)]), (id(0), (1..=NAMED).map(branch).collect())];
    first.into_iter().chain(branches).collect()
}

/// An environment that cannot be loaded is not kept, so each session would read the creation of its root again, with the
/// whole frame. The control: the runs of all branches end.
#[test]
fn sessions_of_an_imported_tree_read_its_creation_once() {
    const LARGE: usize = 200_000;
    let read = |bytes: usize| {
        let (journal, faults) = imported(&running_branches(bytes)).expect("imported");
        assert_eq!(journal.inflight().expect("rows").len(), NAMED as usize);
        let before = faults.read_bytes();
        let model = fn_model("scripted", |_, _| async { Ok(Answer::of_text("Hello.")) });
        let threads = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let builder = Runtime::builder().journal(journal.clone()).model(Arc::new(model));
        let builder = builder.environments(|key| Err(format!("imported: {}", key.imported)));
        let runtime = threads.block_on(builder.start()).expect("a start");
        let read = faults.read_bytes() - before;
        assert_eq!(journal.inflight().expect("rows"), []);
        threads.block_on(runtime.shutdown(Duration::ZERO));
        read
    };
    let times = (read(LARGE) - read(10)) / LARGE as u64;
    assert!(times < 4, "the large frame was read {times} times");
}

/// Children that were notified of runs which another child never had.
fn forged_owners(bytes: usize) -> Vec<ExportedFrame> {
    let other = NAMED + 1;
    let mut root = answered(0, &vec!["task"; other as usize]);
    for n in 1..=other {
        let call = json!({"turn": 1, "ix": n - 1});
        root.extend([
            json!({"call_started": {"call": call, "kind": {"child": "background"}}}),
            spawned(n, n - 1, false),
            json!({"call_finished": {"call": call, "end": "ok", "content": "started", "worked_ms": 1}}),
        ]);
    }
    root.push(ended());
    let forged = json!({"notice_taken": {"items": [notice(other, 99, &Value::Null)], "carrier": "message"}});
    let owners = (1..=NAMED).map(|n| (id(n), vec![child_created(n, n - 1), forged.clone()]));
    let first = [(id(0), root), (id(other), vec![child_created(other, NAMED)]), (id(other), vec![large(bytes); 64])];
    first.into_iter().chain(owners).collect()
}

/// The limit of records of children also counts their bytes. The control: with small records, all owners are searched for.
#[test]
fn search_for_ends_reads_a_bounded_number_of_bytes() {
    let read = |bytes: usize| {
        let (journal, faults) = imported(&forged_owners(bytes)).expect("imported");
        let before = (faults.ranges(), faults.read_bytes());
        let how = TranscriptReading { nests: Some(1), ..TranscriptReading::default() };
        Transcript::read(&journal, id(0).parse().expect("an id"), how).expect("a transcript");
        (faults.ranges() - before.0, faults.read_bytes() - before.1)
    };
    let (small, large) = (read(10), read(100_000));
    assert!(large.0 < small.0 && large.1 < 120_000_000, "{small:?} {large:?}");
    assert!(small.0 > u64::from(NAMED) * 2, "{small:?}");
}
