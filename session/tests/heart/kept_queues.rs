//! Queued inputs stay queued after a cancel of the whole tree, also in owned sessions.

use crate::given::*;
use subtend_session::record::From;

/// Returns the end of the owner, caused by a cancel of the whole tree.
fn cancelled_tree() -> Command {
    let owner = RunKey { session: session(OWNER), run: RunNo(1) };
    Command::OwnerEnded { owner, outcome: OutcomeKind::Cancelled, keeps_queue: true }
}

fn cancelled_owner() -> Command {
    let owner = RunKey { session: session(OWNER), run: RunNo(1) };
    Command::OwnerEnded { owner, outcome: OutcomeKind::Cancelled, keeps_queue: false }
}

#[test]
fn owned_session_keeps_its_queue_when_the_tree_is_cancelled() {
    let (opens, stays) = ("ended(cancelled) opened > Q", "ended(cancelled) > E");
    let queued = || Heart::child().then(send(2, "next"));
    assert_eq!(queued().summary(cancelled_tree()), stays, "the run never started");
    assert_eq!(queued().summary(cancelled_owner()), opens);
    let works = || queued().then(admitted()).then(calls(1, vec![writes()]));
    let end = |mut heart: Heart| heart.summary(tool(1, 0, "x"));
    let (opens, stays) = (format!("-0:ok {opens}"), format!("-0:ok {stays}"));
    assert_eq!(end(works().then(cancelled_tree())), stays);
    assert_eq!(end(works().then(cancelled_owner())), opens);
    assert_eq!(
        end(works().then(cancelled_owner()).then(cancelled_tree())),
        stays,
        "a later cancel of the tree keeps the queue"
    );
    assert_eq!(end(works().then(cancelled_tree()).then(cancelled_owner())), stays);
    let resumed = works().then(cancelled_tree()).then(send(3, "continue"));
    assert_eq!(end(resumed), opens, "a later input is a request to continue");
}

#[test]
fn keeping_the_queue_is_passed_to_owned_runs() {
    let owns = || {
        let heart = Heart::child().then(admitted()).then(calls(1, vec![background(), writes()]));
        heart.then(spawn(1, Mode::Background, &[(0, 0xB1)]))
    };
    let passed_on = |decision: &Decision| {
        decision.effects.iter().find_map(|effect| match effect {
            Effect::CancelOwned { keeps_queue, .. } => Some(*keeps_queue),
            _ => None,
        })
    };
    assert_eq!(passed_on(&owns().decide(cancelled_tree()).unwrap()), Some(true));
    assert_eq!(passed_on(&owns().decide(cancel_tree()).unwrap()), Some(true));
    assert_eq!(passed_on(&owns().decide(cancelled_owner()).unwrap()), Some(false));
    for closes in [cancelled_owner, cancel] {
        for command in [cancelled_tree, cancel_tree] {
            let mut closing = owns().then(closes());
            assert_eq!(
                passed_on(&closing.decide(command()).unwrap()),
                Some(true),
                "closing owned runs are notified too"
            );
            assert_eq!(closing.decide(command()).map(|again| passed_on(&again)), Ok(None));
        }
    }
    let mut closing = owns().then(cancel_tree());
    let again = Command::Reactivated { calls: Vec::new(), owner_ended: None };
    assert_eq!(passed_on(&closing.clone().decide(again).unwrap()), Some(true));
    let late = closing.decide(Command::Deadline(Deadline::Grace(RunNo(1)))).unwrap();
    assert_eq!(passed_on(&late), Some(false), "later inputs of owned sessions are not kept");
}

#[test]
fn only_a_person_or_the_host_chooses_another_agent() {
    let named = |from| {
        let Command::Submit(mut input) = send(1, "go") else { panic!("no input") };
        let other = AgentOverride {
            agent: "other".into(),
            agent_hash: subtend_session::ids::Hash::of(b""),
            model: "m".into(),
            system: "Other.".into(),
            turns: None,
        };
        (input.from, input.agent_override) = (from, Some(Arc::new(other)));
        Heart::root().decide(Command::Submit(input))
    };
    let model = From::Model { session: session(OWNER), run: RunNo(1), call: call(1, 0) };
    for from in [model, From::AgentResult] {
        assert!(matches!(named(from), Err(Rejection::BadInput(_))));
    }
    assert!(named(From::Person).is_ok() && named(From::Host).is_ok());
}
