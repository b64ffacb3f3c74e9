//! Unusual worlds that are legal.

use super::scene::*;
use subtend_session::call::{CallEnd, ToolEffect};
use subtend_session::index::RowKey;
use subtend_session::record::*;

fn access() -> Box<Access> {
    Box::new(Access { action: "fs.write".into(), resource: "a".into() })
}

#[test]
fn legal_worlds_violate_nothing() {
    let mut always = Scene::allowed();
    always.root[13] = Record::AskAnswered { call: LATER_CALL, verdict: AskVerdict::Always, by: AnsweredBy::Person };
    let kind = CallKind::Local(ToolEffect::SideEffect);
    always.root[14] =
        Record::CallStarted { call: LATER_CALL, kind: Box::new(kind), timeout_ms: None, access: Some(access()) };
    let refused = {
        let mut scene = Scene::continued();
        scene.child.truncate(8);
        scene.child.push(Record::SessionClosed { by: Initiator::Person });
        scene.child.push(Record::ContinueRefused { owner: ROOT, key: LATER_CALL, why: ContinueRefusal::Closed });
        let why = ContinueRefusal::Closed;
        let outcome = Outcome::Failed { kind: FailKind::NotContinued { why } };
        let report = Notice { run: None, key: Some(LATER_CALL), refused: Some(why), turns: 0, ..notice(1, outcome) };
        scene.root[14] = taken(Carrier::Result, vec![report]);
        scene
    };
    let background = {
        let mut scene = Scene::good();
        scene.root.truncate(TAKEN);
        let content = "in the background".into();
        let end = CallEnd::Backgrounded;
        let backgrounded = CallFinished { call: CALL, end, content, truncated_from: None, worked_ms: 0 };
        scene.root.extend([Record::CallFinished(Box::new(backgrounded)), turn(2, 1), answered(2, 1, 0)]);
        scene.root.push(taken(Carrier::Message, vec![notice(1, Outcome::Completed)]));
        scene.root.extend([turn(3, 1), answered(3, 1, 0), ended_after(1, Outcome::Completed, 3)]);
        scene
    };
    for scene in [always, refused, background] {
        let scene = Scene::of(scene.root, scene.child);
        assert_eq!(scene.with(crate::always), Ok(()));
        assert_eq!(scene.with(crate::quiescent), Ok(()));
    }
}

#[test]
fn queue_opens_the_next_run_unless_it_is_kept() {
    let mut kept = Scene::good();
    let Some(Record::RunEnded(ended)) = kept.root.last_mut() else { panic!("the root ends") };
    ended.keeps_queue = true;
    kept.root.insert(END, accepted(9));
    let mut opens = Scene::good();
    opens.root.insert(END, accepted(9));
    opens.root.push(opened_with(2, Owner::Person, vec![id(9)]));
    for scene in [kept, opens] {
        let scene = Scene::of(scene.root, scene.child);
        assert_eq!(scene.with(crate::always), Ok(()));
    }
}

#[test]
fn restart_starts_the_next_attempt_without_partial_text() {
    let mut scene = Scene::good();
    scene.root.insert(END - 1, turn(2, 2));
    let Some(Record::TurnAnswered(answer)) = scene.root.get_mut(END) else { panic!("it answers") };
    answer.attempt = AttemptNo(2);
    let scene = Scene::of(scene.root, scene.child);
    assert_eq!((scene.with(crate::always), scene.root_state.last_turn), (Ok(()), TurnNo(2)));
}

#[test]
fn rows_of_asks_are_distinguished_by_call() {
    let row = Row { to: ROOT, from: ROOT, kind: RowKind::Ask, key: RowKey::Call(LATER_CALL) };
    assert_eq!(Scene::asking().rows.into_iter().collect::<Vec<_>>(), vec![row]);
}
