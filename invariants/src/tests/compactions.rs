use super::Case;
use super::messages::message_of;
use super::scene::*;
use crate::InvariantId;
use subtend_session::record::{Carrier, Compacted, CompactionCause};

/// Returns the good scene with a run in flight, and a compaction that hides the first `upto` messages except `verbatim`.
fn compacts(upto: u64, verbatim: &[u64], text: &str) -> Scene {
    let mut scene = Scene::good();
    scene.root.truncate(11);
    let compacted = Compacted {
        turn: Some((TurnNo(2), AttemptNo(1))),
        cause: CompactionCause::Share,
        by: Initiator::Host,
        upto,
        verbatim: verbatim.to_vec(),
        text: text.into(),
        of: CHILD,
        before: 9,
        after: 3,
    };
    scene.root.push(Record::Compacted(Box::new(compacted)));
    scene
}

fn check_n8(scene: &Scene) -> Result<(), InvariantId> {
    scene.with(|world| InvariantId::N8.check(world, false)).map_err(|violation| violation.id)
}

pub(super) const CASES: &[Case] = &[(
    "a compaction that hides the input",
    Scene::good,
    |s| s.root = compacts(1, &[], "summary").root,
    &[InvariantId::N8],
)];

#[test]
fn n8_hidden_input_answer_or_result_is_detected() {
    // The transcript: the input, an answer with a call, and its result.
    assert_eq!(check_n8(&compacts(1, &[0], "summary")), Ok(()));
    assert_eq!(check_n8(&compacts(1, &[], "summary")), Err(InvariantId::N8), "the input");
    assert_eq!(check_n8(&compacts(2, &[0], "summary")), Err(InvariantId::N8), "the answer");
    assert_eq!(check_n8(&compacts(3, &[0, 1], "summary")), Err(InvariantId::N8), "the result");
}

#[test]
fn n8_unnamed_live_child_is_detected() {
    let scene = |text: &str| {
        let mut scene = compacts(1, &[0], text);
        let notice = scene.root.iter().position(|record| matches!(record, Record::NoticeTaken(_))).expect("a notice");
        scene.root.remove(notice);
        scene
    };
    assert_eq!(check_n8(&scene("summary")), Err(InvariantId::N8));
    let short = scene("").root_state.children[&CHILD].short.clone();
    assert_eq!(check_n8(&scene(&format!("- {short} (general)"))), Ok(()));
}

#[test]
fn n8_hidden_unanswered_completion_is_detected() {
    let scene = |answered_after: bool| {
        let mut scene = compacts(4, &[0, 1, 2], "summary");
        let compacted = scene.root.pop().expect("the compaction");
        scene.root.push(taken(Carrier::Message, vec![notice(1, Outcome::Completed)]));
        let seq = Seq(scene.root.len() as u64);
        let transcript = Arc::make_mut(&mut scene.root_state.transcript);
        transcript.truncate(3);
        transcript.push(Message::Notice { seq, text: "ended".into() });
        scene.root.extend(answered_after.then(|| answered(2, 1, 0)));
        scene.root.push(compacted);
        scene
    };
    assert_eq!(check_n8(&scene(true)), Ok(()));
    assert_eq!(check_n8(&scene(false)), Err(InvariantId::N8));
}

/// A relative's message needs no answer, so it may be hidden once the model has read it.
#[test]
fn n8_hidden_unread_message_is_detected() {
    let scene = |is_read: bool| {
        let mut scene = compacts(4, &[0, 1, 2], "summary");
        let compacted = scene.root.pop().expect("the compaction");
        scene.root.extend([message_of(CHILD, 9), inputs(9, 1, 2)]);
        let seq = Seq(scene.root.len() as u64);
        let transcript = Arc::make_mut(&mut scene.root_state.transcript);
        transcript.truncate(3);
        transcript.push(Message::User { seq, text: "read it there".into() });
        scene.root.extend(is_read.then(|| answered(2, 1, 0)));
        scene.root.push(compacted);
        scene
    };
    assert_eq!(check_n8(&scene(true)), Ok(()));
    assert_eq!(check_n8(&scene(false)), Err(InvariantId::N8));
}
