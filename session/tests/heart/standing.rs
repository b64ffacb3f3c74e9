//! Queued inputs stay queued after the cancel of a whole tree, also in sessions that it reaches through their owners.

use std::sync::Arc;
use subtend_session::command::{Command, Deadline};
use subtend_session::effect::{Decision, Effect, Rejection};
use subtend_session::ids::{RunKey, RunNo};
use subtend_session::outcome::OutcomeKind;
use subtend_session::place::Mode;
use subtend_session::record::{AgentOverride, From};

use crate::given::*;

/// The whole tree of its owner is cancelled.
fn owner_over_with_its_tree() -> Command {
    let owner = RunKey { session: session(OWNER), run: RunNo(1) };
    Command::OwnerOver { owner, outcome: OutcomeKind::Cancelled, queue_stands: true }
}

fn owner_over_alone() -> Command {
    let owner = RunKey { session: session(OWNER), run: RunNo(1) };
    Command::OwnerOver { owner, outcome: OutcomeKind::Cancelled, queue_stands: false }
}

#[test]
fn the_queue_of_an_owned_session_stands_with_the_tree() {
    let (opens, stays) = ("ended(cancelled) opened > Q", "ended(cancelled) > E");
    let queued = || Heart::child().then(send(2, "next"));
    assert_eq!(queued().says(owner_over_with_its_tree()), stays, "it never ran");
    assert_eq!(queued().says(owner_over_alone()), opens);
    let works = || queued().then(admitted()).then(calls(1, vec![writes()]));
    let end = |mut heart: Heart| heart.says(tool(1, 0, "x"));
    let (opens, stays) = (format!("-0:ok {opens}"), format!("-0:ok {stays}"));
    assert_eq!(end(works().then(owner_over_with_its_tree())), stays);
    assert_eq!(end(works().then(owner_over_alone())), opens);
    assert_eq!(end(works().then(owner_over_alone()).then(owner_over_with_its_tree())), stays, "it comes second");
    assert_eq!(end(works().then(owner_over_with_its_tree()).then(owner_over_alone())), stays);
    let resumed = works().then(owner_over_with_its_tree()).then(send(3, "continue"));
    assert_eq!(end(resumed), opens, "what is sent behind it is a wish to continue");
}

#[test]
fn whether_queues_stand_is_handed_down() {
    let owns = || {
        let heart = Heart::child().then(admitted()).then(calls(1, vec![background(), writes()]));
        heart.then(spawn(1, Mode::Background, &[(0, 0xB1)]))
    };
    let handed = |decision: &Decision| {
        decision.effects.iter().find_map(|effect| match effect {
            Effect::CancelOwned { queue_stands, .. } => Some(*queue_stands),
            _ => None,
        })
    };
    assert_eq!(handed(&owns().tell(owner_over_with_its_tree()).unwrap()), Some(true));
    assert_eq!(handed(&owns().tell(cancel_tree()).unwrap()), Some(true));
    assert_eq!(handed(&owns().tell(owner_over_alone()).unwrap()), Some(false));
    for closes in [owner_over_alone, cancel] {
        for word in [owner_over_with_its_tree, cancel_tree] {
            let mut closing = owns().then(closes());
            assert_eq!(handed(&closing.tell(word()).unwrap()), Some(true), "what closes below is notified too");
            assert_eq!(closing.tell(word()).map(|again| handed(&again)), Ok(None));
        }
    }
    let mut closing = owns().then(cancel_tree());
    let again = Command::Reactivated { calls: Vec::new(), owner_over: None };
    assert_eq!(handed(&closing.clone().tell(again).unwrap()), Some(true));
    let late = closing.tell(Command::Deadline(Deadline::Grace(RunNo(1)))).unwrap();
    assert_eq!(handed(&late), Some(false), "what was sent below meanwhile is not held back");
}

#[test]
fn only_a_person_or_the_host_names_another_agent() {
    let named = |from| {
        let Command::Submit(mut input) = send(1, "go") else { panic!("no input") };
        let other = AgentOverride {
            agent: "other".into(),
            agent_hash: subtend_session::ids::Hash::of(b""),
            model: "m".into(),
            system: "Other.".into(),
        };
        (input.from, input.agent_override) = (from, Some(Arc::new(other)));
        Heart::root().tell(Command::Submit(input))
    };
    let model = From::Model { session: session(OWNER), run: RunNo(1), call: call(1, 0) };
    for from in [model, From::AgentResult] {
        assert!(matches!(named(from), Err(Rejection::BadInput(_))));
    }
    assert!(named(From::Person).is_ok() && named(From::Host).is_ok());
}
