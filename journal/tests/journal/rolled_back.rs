//! A run that failed and was rolled back. Its fixture never changes; see [`crate::kinds`].

use crate::kinds::{answer, append_records, run_ended, write_fixture};
use crate::scene::*;

async fn build_journal() -> Journal {
    let journal = Journal::open(Box::new(Memory::new()), Options::default()).unwrap();
    let mut root = SessionWriter::new(id(50));
    let creation = created_session(&mut root, None, true);
    journal.append(one(creation)).unwrap();
    journal.append(one(root.frame_of(start(root.id)))).unwrap();
    let refused = json!({"failed": {"kind": "refused"}});
    let mut items = answer(1, 1, 1, &[]);
    items["turn_answered"]["stop"] = json!("refused");
    append_records(&journal, &mut root, &[items, run_ended(1, 1, refused)]);
    append_records(&journal, &mut root, &[json!({"rolled_back": {"run": 1, "by": "person"}})]);
    journal.settled().await.unwrap();
    journal
}

#[tokio::test]
async fn records_of_a_rollback_are_unchanged() {
    let journal = build_journal().await;
    assert_eq!(journal.verify(&mut |_| {}).unwrap().problems, Vec::new());
    subtend_journal::audit(&journal, true).unwrap();
    write_fixture("rolled_back", &journal);
}
