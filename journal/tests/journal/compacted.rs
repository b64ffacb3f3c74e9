//! A session whose old messages are compacted. Its fixture never changes; see [`crate::kinds`].

use crate::described::append_service_session;
use crate::kinds::{answer, append_records, input, run_ended, write_fixture};
use crate::scene::*;

/// Writes a turn whose model call waits for a compaction.
fn compacts(run: u32, no: u32) -> Value {
    json!({"turn_started": {
        "run": run, "turn": no, "attempt": 1, "prompt": "plain", "model": "scripted", "compacts": "share",
    }})
}

/// Opens a run with the next input. The run requests a compaction.
fn next(journal: &Journal, root: &mut SessionWriter, run: u32, n: u128) {
    let opened = json!({"run_opened": {
        "run": run, "owner": "person", "inputs": [id(n).0], "mode": "blocking", "max_turns": 9, "slot": false,
    }});
    append_records(journal, root, &[input(n, "and then?"), opened]);
    let taken = json!({"inputs_taken": {"ids": [id(n).0], "run": run, "turn": run}});
    append_records(journal, root, &[json!({"run_started": {"run": run, "slot": false}}), taken, compacts(run, run)]);
}

async fn build_journal() -> Journal {
    let journal = Journal::open(Box::new(Memory::new()), Options::default()).unwrap();
    let mut root = SessionWriter::new(id(60));
    let creation = created_session(&mut root, None, true);
    journal.append(one(creation)).unwrap();
    journal.append(one(root.frame_of(start(root.id)))).unwrap();
    append_records(&journal, &mut root, &[answer(1, 1, 1, &[]), run_ended(1, 1, json!("completed"))]);
    next(&journal, &mut root, 2, 61);
    let failed = json!({"compaction_failed": {
        "turn": 2, "attempt": 1, "cause": "share", "why": "agent", "message": "it did not start",
    }});
    append_records(&journal, &mut root, &[failed, answer(2, 2, 1, &[]), run_ended(2, 1, json!("completed"))]);
    next(&journal, &mut root, 3, 62);
    let summary = append_service_session(&journal, &mut root, 63, "compaction");
    let compacted = json!({"compacted": {
        "turn": [3, 1], "cause": "share", "by": "host", "upto": 2, "text": "A summary: the files were read.", "of": summary,
        "before": 90, "after": 40,
    }});
    append_records(&journal, &mut root, &[compacted, answer(3, 3, 1, &[]), run_ended(3, 1, json!("completed"))]);
    append_records(&journal, &mut root, &[json!({"compaction_undone": {"by": "person"}})]);
    journal.settled().await.unwrap();
    journal
}

#[tokio::test]
async fn records_of_a_compaction_are_unchanged() {
    let journal = build_journal().await;
    assert_eq!(journal.verify(&mut |_| {}).unwrap().problems, Vec::new());
    subtend_journal::audit(&journal, true).unwrap();
    write_fixture("compacted", &journal);
}
