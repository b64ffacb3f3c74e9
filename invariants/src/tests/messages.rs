use super::scene::*;
use uuid::Uuid;

use super::Case;
use crate::InvariantId;
use subtend_session::record::{From, Lane};

const STRANGER: SessionId = SessionId(Uuid::from_u128(77));

pub(super) const CASES: &[Case] = &[
    (
        "a message of an unrelated session",
        Scene::good,
        |s| s.root.insert(END, message_of(STRANGER, 9)),
        &[InvariantId::P6],
    ),
    (
        "a run that a message opened",
        Scene::good,
        |s| s.child.extend([message_of(ROOT, 9), opened_with(2, Owner::Person, vec![id(9)])]),
        &[InvariantId::P6],
    ),
    (
        "a message that renews turns",
        Scene::good,
        |s| {
            for record in &mut s.root {
                if let Record::RunOpened(opened) = record {
                    opened.max_turns = 2;
                }
            }
            let late = [message_of(CHILD, 9), inputs(9, 1, 3), turn(3, 1), answered(3, 1, 0)];
            drop(s.root.splice(END..END, late));
        },
        &[InvariantId::P6],
    ),
];

pub(super) fn message_of(session: SessionId, n: u128) -> Record {
    let (run, call) = (RunNo(1), LATER_CALL);
    Record::InputAccepted(Box::new(InputAccepted {
        from: From::Model { session, run, call },
        lane: Lane::Steer,
        as_owner: Owner::Run { session, run, call },
        ..input(n)
    }))
}

#[test]
fn x16_message_within_the_turns_is_legal() {
    let Scene { mut root, child, .. } = Scene::good();
    drop(root.splice(END..END, [message_of(CHILD, 9), inputs(9, 1, 3), turn(3, 1), answered(3, 1, 0)]));
    let scene = Scene::of(root, child);
    assert_eq!(scene.with(|world| InvariantId::P6.check(world, true)), Ok(()));
}
