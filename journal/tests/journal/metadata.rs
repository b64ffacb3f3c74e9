//! A host task without a parent, with merged metadata. Its fixture never changes; see [`crate::kinds`].

use crate::scene::*;
use subtend_session::place::BranchKind;

use crate::kinds::{answer, append_records, run_ended, write_fixture};

async fn build_journal() -> Journal {
    let journal = Journal::open(Box::new(Memory::new()), Options::default()).unwrap();
    let mut root = SessionWriter::new(id(60));
    let mut records = creation(root.id, None);
    for record in &mut records {
        if let Record::SessionCreated(created) = record {
            (created.task, created.metadata) = (true, Some(r#"{"ticket":7}"#.into()));
        }
    }
    journal.append(one(root.frame_of(records))).unwrap();
    journal.append(one(root.frame_of(start(root.id)))).unwrap();
    append_records(&journal, &mut root, &[answer(1, 1, 1, &[]), run_ended(1, 1, json!("completed"))]);
    let merged = json!({"metadata_set": {"metadata": r#"{"owner":"kim","ticket":8}"#, "by": "person"}});
    append_records(&journal, &mut root, &[merged]);
    journal.settled().await.unwrap();
    journal
}

#[tokio::test]
async fn host_task_with_merged_metadata_is_unchanged() {
    let journal = build_journal().await;
    assert_eq!(journal.verify(&mut |_| {}).unwrap().problems, Vec::new());
    subtend_journal::audit(&journal, true).unwrap();
    let head = journal.head(id(60)).unwrap().unwrap();
    assert_eq!((head.parent, head.kind), (None, Some(BranchKind::Subagent)));
    write_fixture("metadata", &journal);
}
