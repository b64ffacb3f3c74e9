use super::Case;
use super::scene::*;
use crate::InvariantId;
use subtend_session::record::{Carrier, From, Notice};

pub(super) const CASES: &[Case] = &[
    (
        "two messages in one turn",
        Scene::good,
        |s| drop(s.root.splice(END..END, [accepted(8), accepted(9), both(), turn(3, 1), answered(3, 1, 0)])),
        &[InvariantId::S13],
    ),
    (
        "a system entry before a message",
        Scene::good,
        |s| drop(s.root.splice(END..END, [of_host(8), accepted(9), inputs(8, 1, 3), turn(3, 1), answered(3, 1, 0)])),
        &[InvariantId::S13],
    ),
    (
        "a completion behind the message",
        Scene::good,
        |s| {
            let completion = taken(Carrier::Message, vec![notice(1, Outcome::Completed)]);
            let late = [accepted(9), inputs(9, 1, 3), completion, turn(3, 1), answered(3, 1, 0)];
            drop(s.root.splice(END..END, late));
        },
        &[InvariantId::S13],
    ),
    (
        "a completion before a queued message",
        Scene::good,
        |s| {
            let completion = taken(Carrier::Message, vec![notice(1, Outcome::Completed)]);
            drop(s.root.splice(END..END, [accepted(9), completion, turn(3, 1), answered(3, 1, 0)]));
        },
        &[InvariantId::S13],
    ),
    (
        "a message that extends an owned run",
        Scene::good,
        |s| drop(s.child.splice(7..7, [accepted(9), inputs(9, 1, 2), turn(2, 1), answered(2, 1, 0)])),
        &[InvariantId::S13],
    ),
    (
        "the end of a person's run in the transcript",
        persons_run,
        |s| {
            let message = Message::Notice { seq: Seq(14), text: "Background tasks have ended.".into() };
            Arc::make_mut(&mut s.root_state.transcript).push(message);
        },
        &[InvariantId::N7],
    ),
    (
        "the end of a person's run as the result of a call",
        persons_run,
        |s| drop(s.root.splice(TAKEN..TAKEN, [taken(Carrier::Await { call: CALL }, vec![aside()])])),
        &[InvariantId::N7],
    ),
];

fn both() -> Record {
    Record::InputsTaken { ids: vec![id(8), id(9)], run: RunNo(1), turn: TurnNo(3) }
}

fn of_host(n: u128) -> Record {
    Record::InputAccepted(Box::new(InputAccepted { from: From::Host, ..input(n) }))
}

fn aside() -> Notice {
    Notice { key: None, waking: false, ..notice(2, Outcome::Completed) }
}

/// Returns a scene in which a person opened a run in the child after the owned one.
fn persons_run() -> Scene {
    let Scene { mut root, mut child, .. } = Scene::good();
    child.extend([
        accepted(9),
        opened_with(2, Owner::Person, vec![id(9)]),
        Record::RunStarted { run: RunNo(2), slot: true },
        inputs(9, 2, 2),
        turn_in(2, 2, 1),
        answered_in(2, 2, 1, 0),
        ended_after(2, Outcome::Completed, 1),
    ]);
    root.push(taken(Carrier::Message, vec![aside()]));
    Scene::of(root, child)
}

#[test]
fn n7_persons_run_shown_only_by_views_is_legal() {
    let scene = persons_run();
    assert_eq!((scene.with(crate::always), scene.with(crate::quiescent)), (Ok(()), Ok(())));
    assert!(!scene.root_state.transcript.iter().any(|message| matches!(message, Message::Notice { .. })));
}
