//! Branches that a person or the host makes.

use std::sync::Arc;

use proptest::prelude::*;
use subtend_invariants::bugs::Rules;
use subtend_session::authority::{Access, Authority, Rule, RuleSet, Verdict};
use subtend_session::call::CallEnd;
use subtend_session::command::{BranchPlan, Command, SwitchTo};
use subtend_session::context::context;
use subtend_session::effect::{Birth, Decision, Effect, Rejection, Reply};
use subtend_session::ids::{CallId, Interned, MsgRef, Seq};
use subtend_session::limits::Limits;
use subtend_session::message::Message;
use subtend_session::outcome::By;
use subtend_session::place::{BranchKind, Mode, Place, Worktree};
use subtend_session::record::{BranchCreated, Record, SessionCreated};
use subtend_session::state::State;

use crate::alternatives::{regenerate, step, switch};
use crate::folding::small;
use crate::given::*;

pub(crate) const CHILD: u128 = 0xC1;

pub(crate) fn reader() -> Arc<Authority> {
    let write = Rule { action: "fs.write".into(), resource: "*".into(), verdict: Verdict::Deny };
    Arc::new(Authority::of(RuleSet { default: Verdict::Allow, rules: vec![write] }))
}

fn branch_plan(child: u128, kind: BranchKind, at: Option<u64>) -> BranchPlan {
    BranchPlan {
        child: session(child),
        kind,
        at: at.map(Seq),
        created: created(Place::Root, Limits::default()),
        manifest: reader(),
        by: By::Person,
    }
}

fn branch(child: u128, kind: BranchKind, at: Option<u64>) -> Command {
    Command::Branch(Box::new(branch_plan(child, kind, at)))
}

pub(crate) fn human(child: u128, at: Option<u64>) -> Command {
    branch(child, BranchKind::Human, at)
}

/// The visible transcript, with one word for each message.
pub(crate) fn seen(messages: &[Message]) -> String {
    let word = |message: &Message| match message {
        Message::User { text, .. } => format!("U:{text}"),
        Message::Assistant { text, calls, .. } if calls.is_empty() => format!("A:{}", text.as_deref().unwrap_or("-")),
        Message::Assistant { calls, .. } => format!("A+{}", calls.len()),
        Message::Result { content, .. } if content.starts_with("Pending elsewhere: ") => "R?".into(),
        Message::Result { content, .. } => format!("R:{content}"),
        Message::Notice { .. } => "N".into(),
        Message::Prompt { .. } => "P".into(),
    };
    messages.iter().map(word).collect::<Vec<_>>().join(" ")
}

pub(crate) fn birth(decision: &Decision) -> (&Birth, &SessionCreated) {
    let [birth] = decision.births.as_slice() else { panic!("{:?}", decision.births) };
    let Record::SessionCreated(created) = &birth.records[0] else { panic!("no birth") };
    (birth, created)
}

/// The messages that a branch inherits.
pub(crate) fn inherits(heart: &mut Heart, command: Command) -> String {
    let decision = heart.tell(command).unwrap();
    seen(&birth(&decision).1.inherited)
}

pub(crate) fn refusal(heart: &mut Heart, command: Command) -> String {
    match heart.tell(command) {
        Err(Rejection::BadInput(why) | Rejection::NotFound(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// Records of the user messages and answers.
pub(crate) fn points(heart: &Heart) -> Vec<u64> {
    let point = |message: &Message| match message {
        Message::User { seq, .. } | Message::Assistant { seq, .. } => Some(seq.0),
        _ => None,
    };
    let own = heart.state.transcript.iter().skip(heart.state.created.inherited.len());
    own.filter_map(point).collect()
}

/// Two questions with their answers.
pub(crate) fn talked() -> Heart {
    Heart::root().then(send(1, "one")).then(answers(1, "first")).then(send(2, "two")).then(answers(2, "second"))
}

/// Only a new task may have a worktree of its own.
#[test]
fn x14_branch_works_where_its_session_worked() {
    let parents = Worktree::own(session(ME), None);
    for (kind, worktree) in [
        (BranchKind::Human, parents),
        (BranchKind::Service, parents),
        (BranchKind::Subagent, Worktree::own(session(CHILD), Some(parents))),
    ] {
        let mut heart = talked().in_worktree(Some(parents));
        let mut plan = branch_plan(CHILD, kind, None);
        plan.created.worktree = Some(Worktree::own(session(0xEE), None));
        let decision = heart.tell(Command::Branch(Box::new(plan))).unwrap();
        assert_eq!(birth(&decision).1.worktree, Some(worktree), "{kind:?}");
    }
}

#[test]
fn human_branch_is_born_with_messages_up_to_branch_point() {
    let mut heart = talked();
    let [user, answer, ..] = points(&heart)[..] else { panic!() };
    let decision = heart.tell(human(CHILD, Some(answer))).unwrap();
    let plan = branch_plan(CHILD, BranchKind::Human, None);
    let born = SessionCreated {
        place: Place::Child {
            parent: session(ME),
            root: session(ME),
            kind: BranchKind::Human,
            user_msg: MsgRef { session: session(ME), seq: Seq(user) },
            assistant_msg: Some(MsgRef { session: session(ME), seq: Seq(answer) }),
            call: None,
            depth: 0,
        },
        short: session(CHILD).short(),
        ceiling: Interned::new(Arc::new(heart.state.ceiling.meet(&reader()))).unwrap(),
        inherited: Arc::new(heart.state.transcript[..2].to_vec()),
        ..plan.created
    };
    let made = BranchCreated {
        child: session(CHILD),
        short: session(CHILD).short(),
        agent: "general".into(),
        kind: BranchKind::Human,
        at: Seq(answer),
        by: By::Person,
    };
    let expected = Decision {
        records: vec![Record::BranchCreated(Box::new(made))],
        births: vec![Birth { session: session(CHILD), records: vec![Record::SessionCreated(Box::new(born))] }],
        effects: vec![Effect::Unload],
        reply: Reply::Branched { child: session(CHILD), short: session(CHILD).short() },
    };
    assert_eq!(decision, expected);
    let child = Heart::born(session(CHILD), decision.births[0].records.clone()).then(send(5, "and?"));
    assert_eq!(seen(&context(&child.state).messages), "U:one A:first", "queued");
    let child = child.then(admitted());
    assert_eq!(seen(&context(&child.state).messages), "U:one A:first U:and?");
    assert_eq!(child.state.ceiling.verdict(&access()), Verdict::Deny, "not above its manifest");
}

fn access() -> Access {
    Access { action: "fs.write".into(), resource: "a".into() }
}

#[test]
fn a_branch_hangs_on_the_last_message_unless_one_is_named() {
    let mut heart = talked();
    let [one, _, two, _] = points(&heart)[..] else { panic!() };
    assert_eq!(inherits(&mut heart, human(1, None)), "U:one A:first U:two A:second");
    assert_eq!(inherits(&mut heart, human(2, Some(two))), "U:one A:first U:two");
    assert_eq!(inherits(&mut heart, human(3, Some(one))), "U:one");
}

#[test]
fn what_no_branch_can_hang_on_is_refused_with_what_there_is() {
    let mut heart = talked();
    let [one, first, two, second] = points(&heart)[..] else { panic!() };
    let there_are = format!("there are {one}, {first}, {two}, {second}");
    let says = refusal(&mut heart, human(1, Some(1)));
    assert_eq!(
        says,
        format!("message 1 not found: the session has no user message or answer with that number; {there_are}")
    );
    let says = refusal(&mut heart, human(1, Some(second + 9)));
    assert!(says.ends_with(&there_are), "{says}");
    let says = refusal(&mut Heart::root(), human(1, None));
    assert_eq!(says, "the session has no message yet to branch off from: send one");
    let says = refusal(&mut heart, branch(1, BranchKind::Alternative, None));
    assert_eq!(says, "an alternative is made by regenerating an answer: regenerate that message");
    let mut many = (3..9).fold(talked(), |heart, n| heart.then(send(n, "more")).then(answers(n as u32, "said")));
    let says = refusal(&mut many, human(1, Some(1)));
    assert!(says.ends_with(", and 8 before them"), "{says}");
}

#[test]
fn branch_of_a_working_session_shows_open_calls_as_pending() {
    let mut heart = Heart::root().then(send(1, "one")).then(calls(1, vec![reads(), blocking(), writes()]));
    assert_eq!(inherits(&mut heart, human(1, None)), "U:one A+3 R? R? R?");
    let mut heart = heart.then(tool(1, 0, "found"));
    assert_eq!(inherits(&mut heart, human(2, None)), "U:one A+3 R:found R? R?");
    let mut heart = heart.then(tool(1, 2, "written")).then(spawn(1, Mode::Blocking, &[(1, 0xB1)]));
    assert_eq!(inherits(&mut heart, human(3, None)), "U:one A+3 R:found R? R:written");
    let mut heart = heart.then(ended(0xB1, call(1, 1)));
    let [_, answer] = points(&heart)[..] else { panic!() };
    assert_eq!(inherits(&mut heart, human(4, Some(answer))), "U:one A+3 R:found R:done R:written");
    assert_eq!(
        heart.says(answers(2, "done")),
        "answered ended(completed) > E",
        "the parent continues as if nothing was"
    );
}

#[test]
fn every_column_takes_a_branch() {
    let streams = || Heart::child().then(admitted()).then(calls(1, vec![background()]));
    let works = || streams().then(spawn(1, Mode::Background, &[(0, 0xB1)]));
    let columns = [
        ("Q", Heart::child()),
        ("W", works()),
        ("Wr", works().then(answers(2, "so far"))),
        ("Hi", works().then(interrupt())),
        ("Hc", works().then(cancel())),
        ("E", Heart::child().then(cancel())),
    ];
    for (column, mut heart) in columns {
        let kind = if heart.state.transcript.is_empty() { BranchKind::Subagent } else { BranchKind::Human };
        assert_eq!(heart.says(branch(1, kind, None)), format!("branch_created Branched > {column}"));
    }
}

#[test]
fn persons_subagent_is_one_level_deeper_with_empty_context() {
    let mut heart = talked();
    let decision = heart.tell(branch(CHILD, BranchKind::Subagent, None)).unwrap();
    let (_, born) = birth(&decision);
    assert_eq!((born.place.depth(), born.inherited.len()), (1, 0));
    let decision = heart.tell(branch(0xC2, BranchKind::Service, None)).unwrap();
    let (_, born) = birth(&decision);
    assert_eq!((born.place.depth(), born.inherited.len()), (0, 0));
    let mut deep = Heart::child_with(Limits { max_depth: 1, ..Limits::default() }, 5);
    let says = refusal(&mut deep, branch(1, BranchKind::Subagent, None));
    assert_eq!(says, "the session is at level 1, and the limit is 1 levels of tasks: branch off further up");
    assert_eq!(deep.says(branch(1, BranchKind::Service, None)), "branch_created Branched > Q");
}

#[test]
fn branch_of_a_branch_inherits_all_but_starts_at_own_message() {
    let decision = talked().tell(human(CHILD, None)).unwrap();
    let child = Heart::born(session(CHILD), decision.births[0].records.clone());
    assert!(refusal(&mut child.clone(), human(1, None)).starts_with("the session has no message yet"));
    let mut child = child.then(send(5, "three")).then(admitted()).then(answers(1, "third"));
    let [three, third] = points(&child)[..] else { panic!() };
    let says = refusal(&mut child, human(1, Some(third + 20)));
    assert!(says.ends_with(&format!("there are {three}, {third}")), "{says}");
    let decision = child.tell(human(0xC2, Some(three))).unwrap();
    let (birth, born) = birth(&decision);
    assert_eq!(seen(&born.inherited), "U:one A:first U:two A:second U:three");
    let Place::Child { parent, root, user_msg, .. } = &born.place else { panic!() };
    assert_eq!((*parent, *root), (session(CHILD), session(ME)));
    assert_eq!(*user_msg, MsgRef { session: session(CHILD), seq: Seq(three) });
    assert_eq!(State::fold(birth.session, &birth.records).unwrap().transcript, born.inherited);
}

#[test]
fn a_branch_is_bounded_by_what_it_may_inherit() {
    let limits = Limits { inherited_bytes: 5, ..Limits::default() };
    let mut heart = Heart::root_with(limits).then(send(1, "one")).then(answers(1, "first"));
    let says = refusal(&mut heart, human(1, None));
    assert_eq!(says, "the branch would inherit 8 bytes, the limit is 5: branch off at an earlier message");
    let limits = Limits { inherited_bytes: 8, ..Limits::default() };
    let mut heart = Heart::root_with(limits).then(send(1, "one")).then(answers(1, "first"));
    assert!(heart.tell(human(1, None)).is_ok(), "as many as there may be are not too many");
}

#[test]
fn a_branch_that_is_made_again_after_a_restart_is_the_same_one() {
    let mut heart = talked().then(human(CHILD, None)).refolded();
    let decision = heart.tell(human(CHILD, None)).unwrap();
    let reply = Reply::Branched { child: session(CHILD), short: session(CHILD).short() };
    assert_eq!(decision, Decision { reply, ..Decision::default() });
}

#[test]
fn a_deleted_session_has_no_new_branches() {
    let heart = talked().recorded(Record::SessionDeleted { by: By::Person });
    for command in [human(1, None), regenerate(1, None), switch(SwitchTo::Next)] {
        assert_eq!(heart.clone().tell(command), Err(Rejection::Deleted));
    }
}

/// The messages that a branch at the first answer inherits after the conversation continued.
fn a_branch_sees_what_was_before(rules: Rules) -> String {
    let mut heart = talked().under(rules);
    let at = points(&heart)[1];
    inherits(&mut heart, human(CHILD, Some(at)))
}

#[test]
fn a_branch_sees_nothing_that_was_said_later() {
    assert_eq!(a_branch_sees_what_was_before(Rules::ALL), "U:one A:first");
}

#[test]
fn the_seeded_bug_of_branches_shows() {
    use subtend_invariants::bugs::Bug;
    let rules = Rules::without(Bug::BranchSeesLater);
    assert_eq!(a_branch_sees_what_was_before(rules), "U:one A:first U:two A:second");
}

/// The messages up to record `at`, computed from the journal: its fold until then, and the results of its calls.
fn said_until(heart: &Heart, at: Seq) -> Vec<Message> {
    let is_at = |message: &Message| match message {
        Message::User { seq, .. } | Message::Assistant { seq, .. } => *seq == at,
        _ => false,
    };
    let then = State::fold(session(ME), &heart.log[..at.0 as usize]).unwrap();
    let last = then.transcript.iter().rposition(is_at).unwrap();
    let mut messages = then.transcript[..=last].to_vec();
    let Message::Assistant { calls, .. } = &then.transcript[last] else { return messages };
    let calls = calls.len() as u32;
    let turn = heart.log[..at.0 as usize].iter().rev().find_map(|record| match record {
        Record::TurnAnswered(answered) => Some(answered.turn),
        _ => None,
    });
    for ix in 0..calls {
        let id = CallId { turn: turn.unwrap(), ix };
        let result = heart.log.iter().find_map(|record| match record {
            Record::CallFinished(finished) if finished.call == id => Some(finished),
            _ => None,
        });
        messages.push(match result {
            Some(finished) => Message::Result {
                call: id,
                error: finished.end != CallEnd::Ok,
                content: finished.content.clone(),
            },
            None => {
                let content = "Pending elsewhere: this call was open when this conversation branched off. Its result comes \
                               in the conversation that it branched off from, not here.";
                Message::Result { call: id, error: false, content: content.into() }
            }
        });
    }
    messages
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// B2: a branch's context is its parent's up to its message, whatever was said later, at every message and at any time.
    #[test]
    fn a_branch_has_exactly_the_context_of_its_message_in_any_life(
        steps in proptest::collection::vec(any::<(u8, u8, u8)>(), 0..40),
    ) {
        let mut heart = Heart::root_with(Limits { turns: 9, ..small() });
        for one in steps {
            // Originals only: if an alternative is selected, the branch inherits that one.
            if matches!(one.0 % 12, 7..=9) {
                continue;
            }
            step(&mut heart, one);
        }
        for at in points(&heart) {
            let decision = heart.clone().tell(human(CHILD, Some(at))).unwrap();
            let (birth, born) = birth(&decision);
            prop_assert_eq!(&*born.inherited, &said_until(&heart, Seq(at)));
            let child = State::fold(birth.session, &birth.records).unwrap();
            prop_assert_eq!(&child.transcript, &born.inherited);
        }
    }
}
