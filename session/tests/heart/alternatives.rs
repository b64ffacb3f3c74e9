use crate::given::*;
use proptest::prelude::*;
use subtend_session::command::RegeneratePlan;

use crate::branches::{CHILD, human, inherits, new_branch, points, reader, refusal, shown_messages, talked};
use crate::folding::small;

pub(crate) fn regenerate(child: u128, of: Option<u64>) -> Command {
    Command::Regenerate(Box::new(RegeneratePlan {
        child: session(child),
        input: input_id(child),
        of: of.map(Seq),
        created: created(Place::Root, Limits::default()),
        manifest: reader(),
        by: Initiator::Person,
    }))
}

pub(crate) fn switch(to: SwitchTo) -> Command {
    Command::Switch { of: None, to, by: Initiator::Person }
}

fn branch_ended(child: u128, run: u32, outcome: Outcome, text: &str) -> Command {
    let notice = notice(child, call(1, 0), outcome, text);
    Command::OwnedEnded(vec![Notice { run: Some(RunNo(run)), key: None, waking: false, ..notice }])
}

pub(crate) fn completed(child: u128, text: &str) -> Command {
    branch_ended(child, 1, Outcome::Completed, text)
}

#[test]
fn alternative_starts_with_its_question_and_a_persons_run() {
    let mut heart = talked();
    let [_, _, two, second] = points(&heart)[..] else { panic!() };
    let decision = heart.decide(regenerate(CHILD, None)).unwrap();
    let (branch, created) = new_branch(&decision);
    assert_eq!(shown_messages(&created.inherited), "U:one A:first");
    let Place::Child { kind, user_msg, assistant_msg, depth, .. } = &created.place else { panic!() };
    let here = |seq| MsgRef { session: session(ME), seq: Seq(seq) };
    assert_eq!((*kind, *user_msg, *assistant_msg), (BranchKind::Alternative, here(two), Some(here(second))));
    assert_eq!(*depth, 0);
    let input = InputAccepted { id: InputId(session(CHILD).0), ..input(0, "two", Lane::Send) };
    let opened = plainly_opened(50);
    assert_eq!(branch.records[1..], [Record::InputAccepted(Box::new(input)), Record::RunOpened(Box::new(opened))]);
    assert_eq!(decision.effects, [Effect::StartChild { child: session(CHILD) }, Effect::Unload]);
    assert_eq!(decision.reply, Reply::Branched { child: session(CHILD), short: session(CHILD).short() });
    let child = Heart::from_records(session(CHILD), branch.records.clone()).then(admitted());
    assert_eq!(shown_messages(&context(&child.state).messages), "U:one A:first U:two");
}

fn opened(heart: &mut Heart, limits: Limits) -> RunOpened {
    let Command::Regenerate(mut plan) = regenerate(CHILD, None) else { unreachable!() };
    plan.created.limits = Interned::new(Arc::new(limits)).unwrap();
    let decision = heart.decide(Command::Regenerate(plan)).unwrap();
    let Record::RunOpened(opened) = &new_branch(&decision).0.records[2] else { panic!() };
    RunOpened::clone(opened)
}

/// Returns the first run of alternative [`CHILD`] without a wall-clock cap.
fn plainly_opened(max_turns: u32) -> RunOpened {
    RunOpened {
        run: RunNo(1),
        owner: Owner::Person,
        inputs: vec![InputId(session(CHILD).0)],
        mode: Mode::Background,
        max_turns,
        base_turns: 0,
        deadline_ms: None,
        wall_cap_at: None,
        on_restart: OnRestart::Fail,
        slot: true,
    }
}

#[test]
fn alternative_run_has_the_wall_cap_of_its_limits() {
    let capped = Limits { wall_ms: Some(5), ..Limits::default() };
    let expected = RunOpened { wall_cap_at: Some(1_000_005), ..plainly_opened(50) };
    assert_eq!(opened(&mut talked(), capped), expected);
}

#[test]
fn alternative_run_has_the_turn_allowance_of_its_session() {
    // A child has the allowance of its agent rather than the limit of its tree.
    let child = Heart::child_with(Limits { turns: 9, ..Limits::default() }, 3);
    let child = child.then(admitted()).then(answers(1, "first"));
    let root =
        Heart::root_with(Limits { turns: 9, ..Limits::default() }).then(send(1, "one")).then(answers(1, "first"));
    // An allowance is at most the limit of its session.
    for (mut heart, own) in [(child, 3), (root, 7)] {
        assert_eq!(opened(&mut heart, Limits { turns: 7, ..Limits::default() }), plainly_opened(own));
    }
}

/// Returns the input and the turn allowance of an alternative of the last answer.
fn regenerated_input(heart: &mut Heart) -> (InputAccepted, u32) {
    let decision = heart.decide(regenerate(CHILD, None)).unwrap();
    let [_, Record::InputAccepted(input), Record::RunOpened(opened)] = &new_branch(&decision).0.records[..] else {
        panic!()
    };
    (InputAccepted::clone(input), opened.max_turns)
}

#[test]
fn regenerate_repeats_all_options_of_the_input() {
    let options = InputAccepted {
        turns: Some(4),
        metadata: Some(r#"{"view":1}"#.into()),
        format: Some(r#"{"type":"object"}"#.into()),
        tools: None,
        ..input(3, "three", Lane::Send)
    };
    let heart = talked().then(Command::Submit(Box::new(options.clone()))).then(answers(3, "{}"));
    let expected = InputAccepted { id: InputId(session(CHILD).0), ..options };
    assert_eq!(regenerated_input(&mut heart.refolded()), (expected, 4), "a restart keeps the options");
    // The format was requested for that answer only.
    let mut later = heart.then(send(4, "four")).then(answers(4, "fourth"));
    let plain = InputAccepted { id: InputId(session(CHILD).0), ..input(4, "four", Lane::Send) };
    assert_eq!(regenerated_input(&mut later), (plain, 50));
}

#[test]
fn regenerate_repeats_each_option_of_the_input() {
    let plain = || input(3, "three", Lane::Send);
    let options = [
        (InputAccepted { turns: Some(4), ..plain() }, 4),
        (InputAccepted { metadata: Some(r#"{"view":1}"#.into()), ..plain() }, 50),
        (InputAccepted { format: Some(r#"{"type":"object"}"#.into()), ..plain() }, 50),
    ];
    for (option, turns) in options {
        let mut heart = talked().then(Command::Submit(Box::new(option.clone()))).then(answers(3, "{}"));
        assert_eq!(regenerated_input(&mut heart), (InputAccepted { id: InputId(session(CHILD).0), ..option }, turns));
    }
}

#[test]
fn regenerate_repeats_the_last_of_joint_inputs() {
    let options = InputAccepted { turns: Some(4), ..input(3, "wide", Lane::Steer) };
    let heart = Heart::root().then(send(1, "one")).then(Command::Submit(Box::new(options))).then(steer(4, "narrow"));
    let mut heart = heart.then(answers(1, "first")).then(answers(2, "second"));
    let plain = InputAccepted { id: InputId(session(CHILD).0), ..input(4, "narrow", Lane::Send) };
    assert_eq!(regenerated_input(&mut heart), (plain, 50));
}

#[test]
fn completed_alternative_is_selected_when_answer_is_last() {
    let mut heart = talked().then(regenerate(CHILD, None));
    let before = heart.state.transcript.clone();
    assert_eq!(heart.summary(completed(CHILD, "other")), "message[1] alternative_switched > E");
    assert_eq!(shown_messages(&context(&heart.state).messages), "U:one A:first U:two A:other");
    assert_eq!(heart.state.transcript, before, "the original is unchanged");
    assert_eq!(heart.summary(completed(CHILD, "other")), "S", "repeated notice");
    let heart = heart.refolded().then(send(3, "three"));
    assert_eq!(shown_messages(&context(&heart.state).messages), "U:one A:first U:two A:other U:three");
}

#[test]
fn incomplete_alternative_leaves_the_original_selected() {
    let failed = Outcome::Failed { kind: FailKind::Empty };
    for outcome in [
        failed,
        Outcome::Cancelled { by: Initiator::Person },
        Outcome::Interrupted { by: Initiator::Person },
        Outcome::Lost,
    ] {
        let mut heart = talked().then(regenerate(CHILD, None));
        assert_eq!(heart.summary(branch_ended(CHILD, 1, outcome, "half")), "message[1] > E");
        assert_eq!(shown_messages(&context(&heart.state).messages), "U:one A:first U:two A:second");
        let message = refusal(&mut heart, switch(SwitchTo::Index(1)));
        assert_eq!(message, "alternative 1 has no answer: its run has not completed");
        // Later runs of the branch answer other messages.
        assert_eq!(heart.summary(branch_ended(CHILD, 2, Outcome::Completed, "aside")), "message[1] > E");
        assert_eq!(heart.state.alternatives.values().next().unwrap().branches[0].text, None);
    }
}

#[test]
fn late_alternative_is_visible_only_after_a_switch() {
    let later = talked().then(regenerate(CHILD, None)).then(send(3, "three"));
    let mut works = later.clone();
    assert_eq!(works.summary(completed(CHILD, "other")), "> W", "taken at the boundary");
    assert_eq!(works.summary(answers(3, "third")), "answered message[1] ended(completed) > E");
    let mut quiet = later.then(answers(3, "third"));
    assert_eq!(quiet.summary(completed(CHILD, "other")), "message[1] > E");
    for mut heart in [works, quiet] {
        assert_eq!(shown_messages(&context(&heart.state).messages), "U:one A:first U:two A:second U:three A:third");
        assert_eq!(heart.summary(switch(SwitchTo::Next)), "alternative_switched Switched(1) > E");
        assert_eq!(shown_messages(&context(&heart.state).messages), "U:one A:first U:two A:other U:three A:third");
    }
}

#[test]
fn switch_steps_from_the_original_to_the_last() {
    let mut heart = talked().then(regenerate(1, None)).then(completed(1, "b")).then(regenerate(2, None));
    let last = |heart: &Heart| shown_messages(&context(&heart.state).messages[3..]);
    heart = heart.then(regenerate(3, None)).then(completed(3, "d"));
    assert_eq!(last(&heart), "A:d");
    let mut to = |to, expected: &str, shown: &str| {
        assert_eq!(heart.summary(switch(to)), expected);
        assert_eq!(last(&heart), shown);
    };
    to(SwitchTo::Next, "Switched(3) > E", "A:d");
    to(SwitchTo::Previous, "alternative_switched Switched(1) > E", "A:b");
    to(SwitchTo::Previous, "alternative_switched Switched(0) > E", "A:second");
    to(SwitchTo::Previous, "Switched(0) > E", "A:second");
    to(SwitchTo::Next, "alternative_switched Switched(1) > E", "A:b");
    to(SwitchTo::Index(3), "alternative_switched Switched(3) > E", "A:d");
    to(SwitchTo::Index(3), "Switched(3) > E", "A:d");
    let message = refusal(&mut heart, switch(SwitchTo::Index(4)));
    assert_eq!(message, "unknown alternative 4: use 0, the original, to 3");
}

#[test]
fn invalid_regenerate_or_switch_is_refused_with_valid_choices() {
    let mut heart = talked();
    let [one, first, _, second] = points(&heart)[..] else { panic!() };
    let message = refusal(&mut heart, regenerate(1, Some(one)));
    assert_eq!(
        message,
        format!("answer {one} not found or cannot be regenerated; available answers: {first}, {second}")
    );
    assert_eq!(refusal(&mut Heart::root(), regenerate(1, None)), "the session has no answer to regenerate yet");
    assert_eq!(
        refusal(&mut heart, switch(SwitchTo::Next)),
        "no answer of this session has alternatives: regenerate one"
    );
    let of = || Command::Switch { of: Some(Seq(second)), to: SwitchTo::Next, by: Initiator::Person };
    let none = "has no alternatives, and no other answer has any: regenerate one first";
    assert_eq!(refusal(&mut heart, of()), format!("answer {second} {none}"));
    let mut heart = heart.then(regenerate(1, Some(first)));
    let message = refusal(&mut heart, of());
    assert_eq!(message, format!("answer {second} has no alternatives; answers with alternatives: {first}"));
}

#[test]
fn running_session_rejects_regenerate_and_switch() {
    let mut heart = talked().then(regenerate(1, None)).then(send(3, "three"));
    let busy = |command| Err(Rejection::Working { command, why: "a run is in flight: wait for its end, or cancel it" });
    assert_eq!(heart.decide(regenerate(2, None)), busy("regenerate"));
    assert_eq!(heart.decide(switch(SwitchTo::Next)), busy("switch"));
}

/// Returns a session with calls, results, notices and a continuation between a question and its answer.
fn worked() -> Heart {
    Heart::root()
        .then(send(1, "one"))
        .then(answers(1, "first"))
        .then(send(2, "two"))
        .then(calls(2, vec![reads(), background()]))
        .then(tool(2, 0, "found"))
        .then(spawn(2, Mode::Background, &[(1, 0xB1)]))
        .then(answer(3, 1, Some("so"), Vec::new(), Stop::Length))
        .then(answers(4, " far"))
        .then(ended(0xB1, call(2, 1)))
        .then(answers(5, "second"))
}

#[test]
fn alternative_replaces_the_whole_exchange() {
    let heart = worked();
    let text = r#"{"session_id":"0000b1","status":"started"}"#;
    let whole = format!("U:one A:first U:two A+2 R:found R:{text} A:so P A: far N A:second");
    assert_eq!(shown_messages(&heart.state.transcript), whole);
    let mut heart = heart.then(regenerate(CHILD, None)).then(completed(CHILD, "other")).then(send(3, "three"));
    assert_eq!(shown_messages(&visible(&heart.state)), "U:one A:first U:two A:other U:three");
    heart = heart.then(answers(6, "third"));
    let hidden = points(&heart)[3];
    assert_eq!(
        refusal(&mut heart, human(1, Some(hidden))),
        format!(
            "message {hidden} is hidden, because another alternative of its answer is selected: switch back to the original first"
        )
    );
    assert_eq!(inherits(&mut heart, human(2, Some(points(&worked())[6]))), "U:one A:first U:two A:other");
    assert_eq!(
        inherits(&mut heart, regenerate(3, None)),
        "U:one A:first U:two A:other",
        "it inherits the visible messages"
    );
    let back = Command::Switch { of: Some(Seq(points(&heart)[6])), to: SwitchTo::Index(0), by: Initiator::Person };
    heart = heart.then(back).then(human(4, Some(hidden)));
    assert_eq!(shown_messages(&visible(&heart.state)), format!("{whole} U:three A:third"));
}

#[test]
fn regenerate_of_a_switched_answer_uses_context_of_its_question() {
    let mut heart = worked().then(regenerate(CHILD, None)).then(completed(CHILD, "other"));
    assert_eq!(inherits(&mut heart, regenerate(3, None)), "U:one A:first");
}

#[test]
fn only_the_last_answer_of_an_exchange_is_regenerated() {
    let mut heart = worked();
    let [_, first, _, interim, .., second] = points(&heart)[..] else { panic!() };
    let message = refusal(&mut heart, regenerate(CHILD, Some(interim)));
    assert_eq!(
        message,
        format!("answer {interim} not found or cannot be regenerated; available answers: {first}, {second}")
    );
}

#[test]
fn cancelled_answer_can_be_regenerated() {
    let heart = Heart::root().then(send(1, "one")).then(calls(1, vec![reads()])).then(cancel());
    let heart = heart.then(tool(1, 0, "late"));
    let mut heart = heart.then(regenerate(CHILD, None));
    assert_eq!(heart.summary(completed(CHILD, "other")), "message[1] alternative_switched > E");
    assert_eq!(shown_messages(&visible(&heart.state)), "U:one A:other");
}

#[test]
fn truncated_alternative_text_is_marked() {
    let heart = talked().then(regenerate(CHILD, None));
    let Command::OwnedEnded(mut notices) = completed(CHILD, "oth") else { unreachable!() };
    notices[0].len = 5;
    let heart = heart.then(Command::OwnedEnded(notices));
    assert_eq!(shown_messages(&visible(&heart.state)[3..]), "A:oth\n[cut: 3 of 5 bytes shown]");
}

/// Selects an alternative and then the original, and returns the visible messages.
fn select_original_again(rules: Rules) -> String {
    let mut heart = talked().with_rules(rules).then(regenerate(CHILD, None)).then(completed(CHILD, "other"));
    heart = heart.then(switch(SwitchTo::Index(0)));
    shown_messages(&visible(&heart.state))
}

#[test]
fn original_answer_can_be_selected_again() {
    assert_eq!(select_original_again(Rules::ALL), "U:one A:first U:two A:second");
}

#[test]
fn seeded_bug_of_alternatives_is_detected() {
    use subtend_invariants::bugs::Bug;
    let rules = Rules::without(Bug::AlternativeOverwrites);
    assert_eq!(select_original_again(rules), "U:one A:first U:two A:other");
}

pub(crate) fn step(heart: &mut Heart, (what, a, b): (u8, u8, u8)) {
    let turn = heart.state.turn().map_or(1, |turn| turn.no.0);
    let fresh = 0x9000 + u128::from(heart.state.next_seq.0);
    let kinds = |n: u8| -> Vec<CallKind> { (0..n % 3).map(|n| if n == 1 { writes() } else { reads() }).collect() };
    let branches: Vec<SessionId> = heart
        .state
        .alternatives
        .values()
        .flat_map(|alternatives| alternatives.branches.iter().map(|branch| branch.child))
        .collect();
    let command = match what % 12 {
        0 | 1 => send(fresh, "asked"),
        2 => steer(fresh, "left"),
        3 | 4 => answer(turn, 1, Some("said"), kinds(a), Stop::Calls),
        5 => answers(turn, "done"),
        6 => tool(turn, u32::from(a % 3), "out"),
        7 => regenerate(fresh, None),
        8 if !branches.is_empty() => {
            let child = branches[usize::from(a) % branches.len()].0.as_u128();
            let outcome = if b > 60 { Outcome::Completed } else { Outcome::Lost };
            branch_ended(child, 1, outcome, "other")
        }
        9 => switch([SwitchTo::Next, SwitchTo::Previous, SwitchTo::Index(u32::from(a % 4))][usize::from(b % 3)]),
        10 if a < 40 => cancel(),
        10 => Command::OwnedEnded(vec![persons_end(0xB1, u32::from(b))]),
        _ if a < 80 => interrupt(),
        _ => answer(turn, 1, None, Vec::new(), Stop::Length),
    };
    let before = heart.state.transcript.clone();
    let is_about_alternatives = matches!(command, Command::Regenerate(_) | Command::Switch { .. });
    if heart.decide(command).is_ok() && is_about_alternatives {
        assert_eq!(heart.state.transcript, before, "alternatives do not change the transcript");
    }
    assert!(heart.state.transcript.starts_with(&before), "a transcript only grows");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// B13: the visible transcript omits only the exchanges that alternatives replace. A branch inherits the same messages.
    #[test]
    fn alternatives_replace_only_their_exchange(
        steps in proptest::collection::vec(any::<(u8, u8, u8)>(), 0..60),
    ) {
        let mut heart = Heart::root_with(Limits { turns: 9, ..small() });
        for one in steps {
            step(&mut heart, one);
            let shown = visible(&heart.state);
            let users = |messages: &[Message]| messages.iter().filter(|message| matches!(message, Message::User { .. })).count();
            prop_assert_eq!(users(&shown), users(&heart.state.transcript), "no question is hidden");
            let active = heart.state.alternatives.iter().filter(|(_, alternatives)| alternatives.active > 0);
            for (of, alternatives) in active {
                let text = alternatives.branches[alternatives.active as usize - 1].text.clone();
                prop_assert!(text.is_some(), "a selected alternative has a text");
                let is_answer = |message: &&Message| matches!(message, Message::Assistant { seq, .. } if seq == of);
                let message = Message::Assistant { seq: *of, text, reasoning: None, calls: Arc::new([]) };
                prop_assert_eq!(shown.iter().find(is_answer), Some(&message));
            }
            if heart.state.alternatives.values().all(|alternatives| alternatives.active == 0) {
                prop_assert_eq!(&shown, &heart.state.transcript);
            }
            if let Ok(decision) = heart.clone().decide(human(CHILD, None)) {
                let (_, created) = new_branch(&decision);
                let same = shown.iter().zip(created.inherited.iter()).take_while(|(a, b)| a == b).count();
                prop_assert!(same + 3 >= created.inherited.len(), "a branch inherits the visible messages and pending results");
            }
        }
    }
}
