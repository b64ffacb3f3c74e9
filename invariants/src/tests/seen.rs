//! Violations in observed worlds: a good world with one change.

use std::collections::BTreeSet;

use super::Case;
use super::scene::*;
use crate::observed::{
    Acknowledgement, Activated, ActivationCause, Approver, Boot, Causes, ClientLog, ControlAnswer, DamageReplies,
    Death, Delivered, Effect, Failure, GivenContext, KeyedCommand, Listing, Observed, ObservedAnswer, ObservedAsk,
    ObservedControl, ObservedQueue, Offer, Probe, QueryContext, QueueAnswer, Recovery, ReplySubject, Restart,
    RestartBudget, Shutdown, Stop, SubscriberLog, When, Work,
};
use crate::world::Frame;
use crate::{InvariantId, tree};
use subtend_session::authority::{Rule, Verdict as Answered};
use subtend_session::ids::{Epoch, RunKey};
use subtend_session::record::{AnsweredBy, AskVerdict, BranchCreated, Hold};

mod good;

const OF_ROOT: RunKey = RunKey { session: ROOT, run: RunNo(1) };
const OF_CHILD: RunKey = RunKey { session: CHILD, run: RunNo(1) };

fn when(order: u64) -> When {
    When { order, ms: order * 10 }
}

fn effect(run: RunKey, work: Work, started: u64, gone: Option<u64>) -> Effect {
    Effect { run, epoch: Epoch(1), work, started: when(started), durable: None, gone: gone.map(when) }
}

fn model(turn: u32) -> Work {
    Work::Model(TurnNo(turn), AttemptNo(1))
}

fn tool(repeatable: bool) -> Work {
    Work::Tool { call: CALL, repeatable }
}

fn answer(given: ReplySubject, answer: ControlAnswer) -> ObservedAnswer {
    ObservedAnswer { run: OF_ROOT, given, at: when(9), answer }
}

fn put(len: u64, answer: QueueAnswer) -> ObservedQueue {
    ObservedQueue { session: ROOT, queue: "queue".into(), at: when(9), len, bound: 2, answer }
}

fn write(resource: &str) -> Access {
    Access { action: "fs.write".into(), resource: resource.into() }
}

fn probe(session: SessionId, resource: &str, verdict: Answered, under: QueryContext) -> Probe {
    Probe { session, access: write(resource), verdict, under }
}

fn rule(verdict: Answered) -> Rule {
    Rule { action: "fs.write".into(), resource: "*".into(), verdict }
}

fn offer(offered: bool, best: Answered) -> Offer {
    Offer { tool: "task".into(), offered, best, can_ask: false }
}

fn context(turn: u32, tools: Vec<Offer>, messages: Option<Vec<Message>>) -> GivenContext {
    let messages = messages.map(Arc::new);
    GivenContext { run: OF_ROOT, turn: TurnNo(turn), attempt: AttemptNo(1), messages, tools }
}

fn restart(order: u64, admitted: bool) -> Restart {
    let run = (!admitted).then_some(RunNo(1));
    Restart { session: CHILD, at: when(order), supervisor: 0, admitted, run }
}

fn death(order: u64, took: &[SessionId]) -> Death {
    let command = Some((7, "submit".into()));
    Death { session: CHILD, at: when(order), command, took: took.iter().copied().collect() }
}

fn activated(epoch: u32, why: ActivationCause, last: u64) -> Activated {
    Activated { session: CHILD, epoch: Epoch(epoch), at: when(u64::from(epoch)), why, last: Seq(last) }
}

fn stop(session: SessionId, order: u64, killed: bool) -> Stop {
    Stop { session, at: when(order), killed, run: Some(RunNo(1)) }
}

fn shutdown(returned: Option<u64>) -> Option<Shutdown> {
    Some(Shutdown { asked: when(20), returned: returned.map(when), grace_ms: 100 })
}

fn log(received: Vec<Delivered>) -> SubscriberLog {
    SubscriberLog { name: "reader".into(), follows: Some((ROOT, Seq(1))), received, caught_up: false }
}

fn ask(opened: u64, answered: Option<(u64, AnsweredBy)>) -> ObservedAsk {
    let answered = answered.map(|(order, by)| (when(order), by));
    ObservedAsk { session: ROOT, call: LATER_CALL, opened: when(opened), answered }
}

fn recovery(interrupted: u32, outcome: Outcome) -> Recovery {
    Recovery { crash: "after write 7".into(), interrupted, ends: [(OF_CHILD, outcome)].into() }
}

fn damage_replies(scene: &mut Scene) -> &mut DamageReplies {
    scene.observed.damage.as_mut().expect("damage was seen")
}

fn all_heard() -> Vec<Delivered> {
    (1..=13).map(|seq| Delivered::Record(ROOT, Seq(seq))).collect()
}

fn seen() -> Observed {
    let budget = RestartBudget { max: 1, within_ms: 1000, storm: Some((2, 100)) };
    let causes = Causes { boots: 0, ..Causes::default() };
    Observed {
        now: when(30),
        grace_ms: Some(50),
        healed: true,
        ended: [(OF_CHILD, when(8)), (OF_ROOT, when(12))].into(),
        fired: [(OF_CHILD, when(8))].into(),
        armed: Some(BTreeSet::new()),
        causes: Some(causes),
        effects: vec![
            Effect { durable: Some(Seq(6)), ..effect(OF_ROOT, model(1), 1, Some(2)) },
            effect(OF_ROOT, tool(false), 2, Some(3)),
            effect(OF_CHILD, model(1), 3, Some(4)),
            effect(OF_CHILD, Work::Held("process".into()), 3, Some(9)),
        ],
        contexts: vec![context(1, vec![offer(true, Answered::Allow)], Some(Vec::new()))],
        answers: vec![
            answer(ReplySubject::Cancel(Initiator::Person), ControlAnswer::Ended(Outcome::Completed)),
            answer(ReplySubject::Late, ControlAnswer::Stale(0)),
            ObservedAnswer {
                run: RunKey { session: ROOT, run: RunNo(2) },
                ..answer(ReplySubject::End, ControlAnswer::NotFound)
            },
        ],
        controls: vec![ObservedControl { session: ROOT, given: when(1), handled: when(2), waited_for: 1 }],
        queues: vec![put(1, QueueAnswer::Taken(Some(id(1)))), put(2, QueueAnswer::Busy)],
        acked: vec![Acknowledgement { session: ROOT, seq: Seq(13), at: when(12), durable: Some(Seq(13)) }],
        subscribers: vec![
            SubscriberLog { caught_up: true, ..log(all_heard()) },
            log(vec![Delivered::Record(ROOT, Seq(1)), Delivered::Missed(2), Delivered::Record(ROOT, Seq(4))]),
            log(vec![Delivered::Skipped(ROOT, Seq(1), Seq(9)), Delivered::Record(ROOT, Seq(10))]),
        ],
        listings: vec![Listing { root: ROOT, listed: BTreeSet::new(), reached: Some(BTreeSet::new()) }],
        activations: vec![
            activated(1, ActivationCause::Creation, 3),
            activated(2, ActivationCause::Restart, 4),
            activated(3, ActivationCause::Restart, 4),
        ],
        budget: Some(budget),
        deaths: vec![death(1, &[]), death(2, &[])],
        restarts: vec![restart(1, true)],
        stops: vec![stop(CHILD, 21, false), stop(ROOT, 22, false)],
        shutdown: shutdown(Some(23)),
        probes: vec![
            probe(ROOT, "b", Answered::Allow, QueryContext::Present),
            probe(CHILD, "b", Answered::Ask, QueryContext::Present),
            probe(CHILD, "b", Answered::Deny, QueryContext::Added { at: ROOT, rule: rule(Answered::Deny) }),
            probe(CHILD, "b", Answered::Ask, QueryContext::Reordered),
            probe(CHILD, "b", Answered::Ask, QueryContext::After("a restart".into())),
        ],
        approvers: Some(vec![Approver { from: when(5), until: Some(when(9)) }]),
        asks: vec![
            ask(1, Some((1, AnsweredBy::NoApprover))),
            ask(6, Some((7, AnsweredBy::Person))),
            ask(6, Some((16, AnsweredBy::Deadline))),
        ],
        ask_ms: Some(100),
        boots: vec![Boot { at: when(1), at_rest: false, wrote: 3 }, Boot { at: when(2), at_rest: true, wrote: 0 }],
        recoveries: vec![recovery(0, Outcome::Lost), recovery(2, Outcome::Lost)],
        damage: Some(DamageReplies {
            damaged: [id(77)].map(|input| SessionId(input.0)).into(),
            refused: [id(77)].map(|input| SessionId(input.0)).into(),
            served: [ROOT, CHILD].into(),
        }),
        failures: vec![Failure { at: when(11), reopened: Some(when(13)), durable: [(ROOT, Seq(13))].into() }],
        ..Observed::default()
    }
}

fn good() -> Scene {
    let mut scene = Scene::good();
    scene.observed = seen();
    scene
}

fn child_at_work() -> Scene {
    let mut scene = Scene::child_at_work();
    scene.observed = Observed { now: when(30), grace_ms: Some(50), ..Observed::default() };
    scene
}

/// Returns a root that ended while its owned child was in flight. Activation `ended_by` wrote the end.
fn closes_over_a_child(ended_by: Epoch) -> Scene {
    let mut scene = child_at_work();
    let outcome = Outcome::Failed { kind: FailKind::Refused };
    let why = Box::new(Hold::Closing { outcome: outcome.clone(), keeps_queue: true });
    scene.root.extend([Record::RunHeld { run: RunNo(1), why }, ended(1, outcome)]);
    scene.child.push(ended(1, Outcome::Lost));
    let at = u64::try_from(scene.root.len()).unwrap();
    scene.frames[1].count += 1;
    scene.frames.push(Frame { first_seq: Seq(at), count: 1, epoch: ended_by });
    scene
}

/// The start of a host cannot wait for the owned runs. A later activation in the same process can.
#[test]
fn only_host_start_may_end_held_run_before_its_owned_runs() {
    let held = |ended_by, boots| {
        let mut scene = closes_over_a_child(ended_by);
        scene.observed.causes = Some(Causes { boots, ..Causes::default() });
        scene.with(tree::ends_after_owned).is_ok()
    };
    assert_eq!([held(Epoch(3), 1), held(Epoch(2), 1), held(Epoch(3), 0)], [true, false, false]);
}

/// Returns a scene with a client that received the first record, and a command that was never answered.
fn served() -> Scene {
    let mut scene = good();
    let received = vec![((1, 1), ROOT, Seq(1))];
    scene.observed.clients = vec![ClientLog { name: "client".into(), received, complete: false }];
    scene.observed.keyed = vec![KeyedCommand { text: "never sent".into(), replies: Vec::new() }];
    scene
}

pub(super) const CASES: &[Case] = &[
    (
        "an event received twice",
        served,
        |s| s.observed.clients[0].received.push(((1, 1), ROOT, Seq(1))),
        &[InvariantId::H1],
    ),
    (
        "a receipt of an input that does not exist",
        served,
        |s| s.observed.keyed[0].replies.push((ROOT, id(99))),
        &[InvariantId::H2],
    ),
    ("an acknowledged record is missing", good, |s| s.observed.acked[0].seq = Seq(99), &[InvariantId::J1]),
    ("a call before its intent is durable", good, |s| s.observed.effects[0].durable = Some(Seq(5)), &[InvariantId::J5]),
    ("a reply before its record is durable", good, |s| s.observed.acked[0].durable = Some(Seq(12)), &[InvariantId::J5]),
    ("a start at rest that writes", good, |s| s.observed.boots[1].wrote = 1, &[InvariantId::J7]),
    (
        "another end after an interrupted recovery",
        good,
        |s| s.observed.recoveries[1] = recovery(2, Outcome::Completed),
        &[InvariantId::J7],
    ),
    ("no end after an interrupted recovery", good, |s| s.observed.recoveries[1].ends.clear(), &[InvariantId::J7]),
    ("damaged, but it answers", good, |s| _ = damage_replies(s).damaged.insert(ROOT), &[InvariantId::J8]),
    ("damaged, but not reported", good, |s| damage_replies(s).refused.clear(), &[InvariantId::J8]),
    ("refused, but undamaged", good, |s| _ = damage_replies(s).refused.insert(CHILD), &[InvariantId::J8]),
    (
        "an undamaged session that does not start",
        good,
        |s| _ = damage_replies(s).served.remove(&CHILD),
        &[InvariantId::J8],
    ),
    (
        "a record after a failure is reported as durable",
        good,
        |s| _ = s.observed.failures[0].durable.insert(ROOT, Seq(12)),
        &[InvariantId::J9],
    ),
    (
        "an acknowledgement for a session that did not exist",
        good,
        |s| s.observed.failures[0].durable.clear(),
        &[InvariantId::J9],
    ),
    (
        "a reply with another end",
        good,
        |s| s.observed.answers[0].answer = ControlAnswer::Ended(Outcome::Lost),
        &[InvariantId::S2],
    ),
    (
        "a cancel of an ended run is answered as done",
        good,
        |s| s.observed.answers[0].answer = ControlAnswer::Done,
        &[InvariantId::S2],
    ),
    (
        "a cancel that was done, and the run continues",
        child_at_work,
        |s| s.observed.answers.push(answer(ReplySubject::Cancel(Initiator::Person), ControlAnswer::Done)),
        &[InvariantId::S2],
    ),
    (
        "an interrupt is answered as ended, but the run is not",
        child_at_work,
        |s| {
            s.observed
                .answers
                .push(answer(ReplySubject::Interrupt(Initiator::Person), ControlAnswer::Ended(Outcome::Lost)))
        },
        &[InvariantId::S3],
    ),
    (
        "a late command is recorded",
        good,
        |s| s.observed.answers[1].answer = ControlAnswer::Stale(1),
        &[InvariantId::S3],
    ),
    ("an effect of an ended run", good, |s| s.observed.effects[2].started = when(9), &[InvariantId::S5]),
    ("an effect beyond the grace", good, |s| s.observed.effects[2].gone = Some(when(14)), &[InvariantId::S5]),
    ("a run long after the last fault", child_at_work, |s| s.observed.healed = true, &[InvariantId::S6]),
    (
        "a model call without a deadline",
        child_at_work,
        |s| s.observed.armed = Some(BTreeSet::new()),
        &[InvariantId::S6],
    ),
    (
        "cancelled by a person who did not cancel it",
        child_at_work,
        |s| {
            s.observed.causes = Some(Causes::default());
            s.child.push(ended(1, Outcome::Cancelled { by: Initiator::Person }));
        },
        &[InvariantId::S8],
    ),
    (
        "lost, and the host continued",
        child_at_work,
        |s| {
            s.observed.causes = Some(Causes::default());
            s.child.push(ended(1, Outcome::Lost));
        },
        &[InvariantId::S8],
    ),
    ("an effect after the token fired", good, |s| _ = s.observed.fired.insert(OF_ROOT, when(1)), &[InvariantId::T4]),
    (
        "cancelled, and beyond the grace",
        child_at_work,
        |s| _ = s.observed.cancelled.insert(OF_ROOT, when(2)),
        &[InvariantId::T5],
    ),
    (
        "a detached run that no control named",
        child_at_work,
        |s| {
            let Some(Record::RunOpened(opened)) = s.child.get_mut(2) else { panic!("the child has a run") };
            opened.owner = subtend_session::place::Owner::Detached { by_host: true };
            opened.wall_cap_at = Some(9);
            s.child.push(ended(1, Outcome::Cancelled { by: Initiator::Host }));
            s.observed.causes = Some(Causes::default());
        },
        &[InvariantId::T6],
    ),
    ("a sibling ends with the dead actor", good, |s| s.observed.deaths[0] = death(1, &[ROOT]), &[InvariantId::T8]),
    (
        "alive, and not listed",
        child_at_work,
        |s| {
            let listed = BTreeSet::new();
            s.observed.listings.push(Listing { root: ROOT, listed, reached: None });
        },
        &[InvariantId::T9],
    ),
    (
        "listed, and not reached",
        child_at_work,
        |s| {
            let listed = BTreeSet::from([CHILD]);
            s.observed.listings.push(Listing { root: ROOT, listed, reached: Some(BTreeSet::new()) });
        },
        &[InvariantId::T9],
    ),
    (
        "a notice is missing from the context",
        good,
        |s| {
            let items = vec![super::notice(1, Outcome::Completed)];
            s.root[super::TAKEN] = super::taken(subtend_session::record::Carrier::Message, items);
            s.observed.contexts.push(context(2, Vec::new(), Some(Vec::new())));
        },
        &[InvariantId::N5],
    ),
    (
        "an event received twice by a subscriber",
        good,
        |s| s.observed.subscribers[1].received.push(Delivered::Record(ROOT, Seq(4))),
        &[InvariantId::N6],
    ),
    (
        "more events missed than reported",
        good,
        |s| s.observed.subscribers[1].received.push(Delivered::Record(ROOT, Seq(6))),
        &[InvariantId::N6],
    ),
    ("the last event is not received", good, |s| _ = s.observed.subscribers[0].received.pop(), &[InvariantId::N6]),
    (
        "an effect that starts twice",
        good,
        |s| s.observed.effects.push(effect(OF_ROOT, tool(false), 4, Some(5))),
        &[InvariantId::E1],
    ),
    (
        "an answer that is in no record",
        good,
        |s| {
            let stray = Message::Assistant { seq: Seq(2), text: None, reasoning: None, calls: [].into() };
            s.observed.contexts[0].messages = Some(Arc::new(vec![stray]));
        },
        &[InvariantId::E2],
    ),
    (
        "a model call with rolled-back messages",
        good,
        |s| {
            s.root.push(Record::RolledBack { run: RunNo(1), by: Initiator::Person });
            s.root.extend([opened(2, Owner::Person), turn_in(2, 3, 1)]);
            let message = Message::Assistant { seq: Seq(7), text: None, reasoning: None, calls: [].into() };
            s.observed.contexts.push(context(3, Vec::new(), Some(vec![message])));
        },
        &[InvariantId::E2],
    ),
    (
        "a model call with a result of a rolled-back call",
        good,
        |s| {
            s.root.push(Record::RolledBack { run: RunNo(1), by: Initiator::Person });
            s.root.extend([opened(2, Owner::Person), turn_in(2, 3, 1)]);
            let result = Message::Result { call: CALL, error: false, content: "ok".into() };
            s.observed.contexts.push(context(3, Vec::new(), Some(vec![result])));
        },
        &[InvariantId::E2],
    ),
    (
        "a branch that inherits rolled-back messages",
        good,
        |s| {
            s.root.push(Record::RolledBack { run: RunNo(1), by: Initiator::Person });
            let (short, agent) = (CHILD.short(), "general".into());
            let (child, at, by, kind) = (CHILD, Seq(7), Initiator::Person, BranchKind::Human);
            s.root.push(Record::BranchCreated(Box::new(BranchCreated { child, short, agent, kind, at, by })));
            let message = Message::Assistant { seq: Seq(7), text: None, reasoning: None, calls: [].into() };
            if let Record::SessionCreated(created) = &mut s.child[0] {
                created.inherited = Arc::new(vec![message]);
            }
        },
        &[InvariantId::E2],
    ),
    ("a process outlives its session", good, |s| s.observed.effects[3].gone = None, &[InvariantId::E5]),
    ("a restart beyond the budget", good, |s| s.observed.restarts.push(restart(2, true)), &[InvariantId::V1]),
    ("given up with restarts left", good, |s| s.observed.restarts = vec![restart(2, false)], &[InvariantId::V1]),
    ("given up, but it continued", good, |s| s.observed.restarts.push(restart(2, false)), &[InvariantId::V1]),
    (
        "an attempt that is made twice",
        good,
        |s| s.observed.effects.push(effect(OF_CHILD, model(1), 4, Some(5))),
        &[InvariantId::V2],
    ),
    ("a third death by one command", good, |s| s.observed.deaths.push(death(3, &[])), &[InvariantId::V3]),
    (
        "a named command that crashed the actor once",
        good,
        |s| {
            let command = Some("submit".into());
            s.child[7] = ended(1, Outcome::RestartsExhausted { command });
            s.observed.deaths.truncate(1);
        },
        &[InvariantId::V3],
    ),
    (
        "a fourth start without a new record",
        good,
        |s| {
            s.observed
                .activations
                .extend([activated(4, ActivationCause::Restart, 4), activated(5, ActivationCause::Boot, 4)])
        },
        &[InvariantId::V3],
    ),
    (
        "started by an activation after the end",
        good,
        |s| {
            s.observed.activations.push(activated(4, ActivationCause::Restart, 8));
            s.observed.effects[2].epoch = Epoch(4);
        },
        &[InvariantId::V4],
    ),
    ("stopped after its owner", good, |s| s.observed.stops[0].at = when(23), &[InvariantId::V5]),
    ("killed in its grace", good, |s| s.observed.stops[0].killed = true, &[InvariantId::V5]),
    ("accepted after the shutdown", good, |s| s.observed.queues[0].at = when(21), &[InvariantId::V5]),
    (
        "alive after the shutdown",
        good,
        |s| s.observed.activations.push(activated(25, ActivationCause::Message, 8)),
        &[InvariantId::V5],
    ),
    (
        "accepted into an inbox after the shutdown",
        good,
        |s| s.observed.queues.push(ObservedQueue { at: when(21), ..put(0, QueueAnswer::Taken(None)) }),
        &[InvariantId::V5],
    ),
    ("beyond the bound", good, |s| s.observed.queues[0].len = 2, &[InvariantId::B1]),
    ("refused with room in the queue", good, |s| s.observed.queues[1].len = 1, &[InvariantId::B1]),
    ("the sender fails", good, |s| s.observed.queues[1].answer = QueueAnswer::Failed, &[InvariantId::B1]),
    (
        "a receipt without an input",
        good,
        |s| s.observed.queues[0].answer = QueueAnswer::Taken(Some(id(99))),
        &[InvariantId::B1],
    ),
    ("a control behind data", good, |s| s.observed.controls[0].waited_for = 2, &[InvariantId::B2]),
    ("a verdict above its parent's", good, |s| s.observed.probes[0].verdict = Answered::Deny, &[InvariantId::P1]),
    ("an added deny raises a verdict", good, |s| s.observed.probes[2].verdict = Answered::Allow, &[InvariantId::P2]),
    (
        "an added allow that exceeds an ancestor",
        good,
        |s| {
            s.observed.probes[0].verdict = Answered::Ask;
            let added = QueryContext::Added { at: CHILD, rule: rule(Answered::Allow) };
            s.observed.probes[2] = probe(CHILD, "b", Answered::Allow, added);
        },
        &[InvariantId::P2],
    ),
    (
        "a verdict that depends on the order of rules",
        good,
        |s| s.observed.probes[3].verdict = Answered::Deny,
        &[InvariantId::P3],
    ),
    (
        "more after a restart than at the creation",
        good,
        |s| s.observed.probes.push(probe(CHILD, "secret", Answered::Ask, QueryContext::After("a restart".into()))),
        &[InvariantId::P4],
    ),
    ("denied, but an approver was attached", good, |s| s.observed.asks[0].opened = when(6), &[InvariantId::P5]),
    (
        "an ask that waits without an approver",
        good,
        |s| s.observed.asks[0].answered = Some((when(4), AnsweredBy::NoApprover)),
        &[InvariantId::P5],
    ),
    (
        "an early deadline",
        good,
        |s| s.observed.asks[2].answered = Some((when(8), AnsweredBy::Deadline)),
        &[InvariantId::P5],
    ),
    ("an ask open beyond its deadline", good, |s| s.observed.asks[2].answered = None, &[InvariantId::P5]),
    (
        "answered without an approver",
        good,
        |s| s.observed.asks[1] = ask(10, Some((11, AnsweredBy::Person))),
        &[InvariantId::P5],
    ),
    (
        "a tool offered although it is denied",
        good,
        |s| s.observed.contexts[0].tools = vec![offer(true, Answered::Deny)],
        &[InvariantId::P7],
    ),
    (
        "a call of a tool that was not offered",
        good,
        |s| s.observed.contexts[0].tools = vec![offer(false, Answered::Deny)],
        &[InvariantId::P7],
    ),
    (
        "a call of a tool that was not offered, after an approval of another access",
        Scene::allowed,
        |s| {
            s.root[13] = Record::AskAnswered { call: LATER_CALL, verdict: AskVerdict::Always, by: AnsweredBy::Person };
            s.observed.contexts.push(context(1, vec![offer(false, Answered::Deny)], None));
        },
        &[InvariantId::P7],
    ),
];
