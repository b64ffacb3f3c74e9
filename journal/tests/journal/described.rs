//! A session with a title and summary by services of the host. Its fixture never changes; see [`crate::kinds`].

use crate::kinds::{answer, append_records, run_ended, write_fixture};
use crate::scene::*;

pub(crate) fn append_service_session(journal: &Journal, root: &mut SessionWriter, n: u128, agent: &str) -> SessionId {
    let mut service = SessionWriter::new(id(n));
    let Some(Record::SessionCreated(mut created)) = creation(service.id, None).into_iter().next() else {
        panic!("no creation")
    };
    created.agent = agent.into();
    created.inspectable = false;
    let place = json!({"child": {
        "parent": root.id, "root": root.id, "kind": "service", "user_msg": {"session": root.id, "seq": 2}, "depth": 0,
    }});
    created.place = serde_json::from_value(place).unwrap();
    let branch = json!({"branch_created": {
        "child": service.id, "short": created.short, "agent": agent, "kind": "service", "at": 2, "by": "host",
    }});
    let creations = service.frame_of(vec![Record::SessionCreated(created)]);
    journal.append(Batch { frames: vec![root.frame_of(vec![record(branch)]), creations] }).unwrap();
    let (me, owner) = (service.id, json!({"host": agent}));
    append_records(
        journal,
        &mut service,
        &[
            json!({"input_accepted": {
                "id": me.0, "from": "host", "lane": "send", "text": "look at this", "as_owner": owner,
            }}),
            json!({"run_opened": {
                "run": 1, "owner": owner, "inputs": [me.0], "mode": "background", "max_turns": 2, "slot": false,
            }}),
        ],
    );
    journal.append(one(service.frame_of(start(me)))).unwrap();
    append_records(journal, &mut service, &[answer(1, 1, 1, &[]), run_ended(1, 1, json!("completed"))]);
    me
}

async fn build_journal() -> Journal {
    let journal = Journal::open(Box::new(Memory::new()), Options::default()).unwrap();
    let mut root = SessionWriter::new(id(40));
    let creation_of_root = created_session(&mut root, None, true);
    journal.append(one(creation_of_root)).unwrap();
    journal.append(one(root.frame_of(start(root.id)))).unwrap();
    let title = append_service_session(&journal, &mut root, 41, "title");
    let set = |title: &str, by: &str, of: Value| json!({"title_set": {"title": title, "by": by, "of": of}});
    append_records(&journal, &mut root, &[set("Look around", "host", json!(title))]);
    append_records(&journal, &mut root, &[answer(1, 1, 1, &[]), run_ended(1, 1, json!("completed"))]);
    let mine = json!({"title_set": {"title": "A walk", "by": "person"}});
    append_records(&journal, &mut root, &[mine, json!({"session_closed": {"by": "person"}})]);
    let summary = append_service_session(&journal, &mut root, 42, "summary");
    append_records(&journal, &mut root, &[json!({"summary_set": {"text": "It was seen.", "upto": 9, "of": summary}})]);
    journal.settled().await.unwrap();
    journal
}

#[tokio::test]
async fn records_of_titles_and_summaries_are_unchanged() {
    let journal = build_journal().await;
    assert_eq!(journal.verify(&mut |_| {}).unwrap().problems, Vec::new());
    subtend_journal::audit(&journal, true).unwrap();
    assert_eq!(&*journal.head(id(40)).unwrap().unwrap().title, "A walk");
    write_fixture("described", &journal);
}
