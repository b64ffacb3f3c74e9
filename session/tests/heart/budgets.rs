use crate::given::*;
use proptest::prelude::*;
use subtend_session::command::{CallObstacle, ChildPlan, Plan, SpawnVerdict};
use subtend_session::place::Mode;
use subtend_session::record::{AttemptDiscarded, Reserved};

use crate::folding::small;

fn bounded() -> Limits {
    Limits { tokens: Some(10_000), ..Limits::default() }
}

fn reservations(log: &[Record]) -> Vec<Option<Reserved>> {
    let reserved = |record: &Record| match record {
        Record::TurnStarted { reserved, .. } => Some(reserved.as_deref().copied()),
        _ => None,
    };
    log.iter().filter_map(reserved).collect()
}

#[test]
fn tree_without_a_budget_makes_no_reservation() {
    let heart = Heart::root().then(send(1, "go")).then(attempt_failed(1, 1, ModelFail::Rate));
    assert_eq!(reservations(&heart.log), [None, None]);
}

#[test]
fn each_attempt_reserves_its_request_and_output_cap() {
    // Bytes: 9 of the system prompt, 2 of the input, 4 of the text, 4 and 18 of the call, 3 of the result.
    let life = |limits| {
        let calls = answer(1, 2, Some("look"), vec![reads()], Stop::Calls);
        Heart::root_with(limits)
            .then(send(1, "go"))
            .then(attempt_failed(1, 1, ModelFail::Rate))
            .then(calls)
            .then(tool(1, 0, "out"))
    };
    let first = Reserved { input: 3, output: 4_096 };
    let second = Reserved { input: (9 + 2 + 4 + 4 + 18_u64 + 3).div_ceil(4), output: 4_096 };
    assert_eq!(reservations(&life(bounded()).log), [Some(first), Some(first), Some(second)]);
    let money = Limits { cost_micro: Some(5), output_tokens: Some(100), ..Limits::default() };
    let capped = |reserved| Some(Reserved { output: 100, ..reserved });
    assert_eq!(reservations(&life(money).log), [capped(first), capped(first), capped(second)]);
}

fn refused(turn: u32, attempt: u32, which: Budget) -> Command {
    Command::NotCalled { turn: TurnNo(turn), attempt: AttemptNo(attempt), why: CallObstacle::Budget(which) }
}

#[test]
fn refused_reservation_discards_attempt_and_ends_run() {
    let mut heart = Heart::root_with(bounded()).then(send(1, "go"));
    let decision = heart.decide(refused(1, 1, Budget::Money)).unwrap();
    let discarded = AttemptDiscarded {
        turn: TurnNo(1),
        attempt: AttemptNo(1),
        error: ModelFail::Dropped,
        message: "not called: the remaining money budget of the tree is too small for the request".into(),
        model: None,
        retry_delay_ms: None,
        awaits: None,
        usage: Some(Usage::default()),
        queued_ms: 0,
    };
    assert_eq!(decision.records[0], Record::AttemptDiscarded(Box::new(discarded)));
    let Record::RunEnded(ended) = &decision.records[1] else { panic!("{:?}", decision.records) };
    assert_eq!(ended.outcome, Outcome::OutOfBudget { which: Budget::Money });
    assert_eq!(ended.usage_self, Usage::default(), "no model was called");
    assert_eq!(
        decision.effects,
        [
            Effect::Disarm { deadline: Deadline::Turn(TurnNo(1)) },
            Effect::Ended { run: RunNo(1), outcome: ended.outcome.clone() },
            Effect::Unload,
        ]
    );
    assert_eq!(heart.decide(refused(1, 1, Budget::Money)), Err(Rejection::Stale("an obstacle to a model call")));
}

#[test]
fn run_over_recorded_bytes_ends_before_its_next_call() {
    let within = |bytes: u64| {
        let limits = Limits { recorded_bytes: Some(bytes), ..Limits::default() };
        let mut heart = Heart::root_with(limits).then(send(1, "go")).then(calls(1, vec![reads()]));
        let decision = heart.summary(tool(1, 0, "out"));
        let recorded: u64 = heart.log.iter().map(Record::recorded_bytes).sum();
        (decision, recorded, heart.state.outcomes)
    };
    let (text, recorded, outcomes) = within(1_000);
    assert_eq!((outcomes, text.contains("turn")), (Vec::new(), true), "{text}");
    assert_eq!(within(recorded).2, Vec::new(), "a run exactly at the limit does not end");
    assert_eq!(within(recorded - 1).2, [Outcome::OutOfBudget { which: Budget::Recorded }]);
}

/// JSON writes a control character as six bytes, which must all count. The control: other text counts byte by byte.
#[test]
fn recorded_bytes_are_those_of_the_journal() {
    for text in ["out", "\u{1}\u{1f}\u{7f}\n\r\t\u{8}\u{c}\"\\é\u{2028}"] {
        let heart = Heart::root().then(send(1, "go")).then(calls(1, vec![reads()])).then(tool(1, 0, text));
        let finished = heart.log.iter().find(|record| record.kind() == "call_finished").expect("a result");
        assert_eq!(finished.text_bytes(), serde_json::to_string(text).unwrap().len() as u64 - 2);
    }
}

/// The texts that calls put into children count for the caller, before they are recorded. The control: without the limit,
/// both start.
#[test]
fn children_over_the_recorded_bytes_do_not_start() {
    let prompt = "\u{1}".repeat(1_000);
    let verdict = |ix| {
        let plan = ChildPlan { prompt: prompt.as_str().into(), ..plan(0xB0 + u128::from(ix), Mode::Background) };
        SpawnVerdict { call: call(1, ix), verdict: Ok(Plan::Child(Box::new(plan))) }
    };
    let started = |recorded_bytes| {
        let limits = Limits { recorded_bytes, ..Limits::default() };
        let heart = Heart::root_with(limits).then(send(1, "go")).then(calls(1, vec![background(), background()]));
        let heart = heart.then(Command::Spawn { turn: TurnNo(1), verdicts: vec![verdict(0), verdict(1)] });
        let recorded: u64 = heart.log.iter().map(Record::recorded_bytes).sum();
        (heart.state.children.len(), recorded / 6_000)
    };
    assert_eq!([None, Some(10_000), Some(5_000)].map(started), [(2, 2), (1, 1), (0, 0)]);
}

#[test]
fn continuation_over_the_recorded_bytes_is_refused() {
    let continued = |recorded_bytes| {
        let limits = Limits { recorded_bytes, ..Limits::default() };
        let heart = Heart::root_with(limits).then(send(1, "go")).then(calls(1, vec![blocking()]));
        let heart = heart.then(spawn(1, Mode::Blocking, &[(0, 0xB1)]));
        let heart = heart.then(ended(0xB1, call(1, 0))).then(calls(2, vec![CallKind::Continue(Mode::Background)]));
        let mut asked = continue_children(2, Mode::Background, &[(0, 0xB1)]);
        let Command::Spawn { verdicts, .. } = &mut asked else { panic!() };
        let Ok(Plan::Continue(plan)) = &mut verdicts[0].verdict else { panic!() };
        plan.text = "x".repeat(5_000).into();
        heart.then(asked).log.iter().filter(|record| record.kind() == "continue_asked").count()
    };
    // The text is recorded twice.
    assert_eq!([None, Some(20_000), Some(8_000)].map(continued), [1, 1, 0]);
}

/// Without a common limit, a parent that continues one child would fill memory. The control: runs of a person have
/// limits of their own.
#[test]
fn runs_of_one_child_share_the_recorded_bytes() {
    let outcomes = |recorded_bytes| {
        let limits = Limits { recorded_bytes: Some(recorded_bytes), ..Limits::default() };
        let admitted = |run| Command::Admitted { run: RunNo(run), owner_ended: None };
        let work = |heart: Heart, turn| {
            let heart = heart.then(calls(turn, vec![reads()])).then(tool(turn, 0, &"x".repeat(600)));
            if heart.state.run.is_some() { heart.then(answers(turn + 1, "done")) } else { heart }
        };
        let child = work(Heart::child_with(limits.clone(), 50).then(admitted(1)), 1);
        let child = work(child.then(continued(call(5, 0), None)).then(admitted(2)), 3);
        let root = work(work(Heart::root_with(limits).then(send(1, "go")), 1).then(send(2, "more")), 3);
        [child, root].map(|heart| heart.state.outcomes)
    };
    let [done, over] = [Outcome::Completed, Outcome::OutOfBudget { which: Budget::Recorded }];
    assert_eq!(outcomes(1_000), [vec![done.clone(), over], vec![done.clone(), done.clone()]]);
    assert_eq!(outcomes(10_000), [vec![done.clone(), done.clone()], vec![done.clone(), done]]);
}

#[test]
fn arguments_above_their_limit_are_not_recorded() {
    let resolved_call = |args: &str| ResolvedCall {
        asked: ToolCall { provider_id: "p".into(), tool: "task".into(), args: args.into() },
        kind: CallKind::Child(Mode::Background),
        note: None,
        access: None,
        ask: NeededApproval::None,
    };
    // Each call has five bytes of names.
    let limits = Limits { argument_bytes: 20, ..Limits::default() };
    let mut heart = Heart::root_with(limits).then(send(1, "go"));
    let Command::ModelAnswered(mut answer) = calls(1, Vec::new()) else { panic!("an answer") };
    answer.calls = ["{\"a\":10}", "{\"a\":1000000000}", "{}"].map(resolved_call).into();
    let decision = heart.decide(Command::ModelAnswered(answer)).unwrap();
    let Record::TurnAnswered(answered) = &decision.records[0] else { panic!("{:?}", decision.records) };
    let args: Vec<&str> = answered.calls.iter().map(|tool_call| &*tool_call.args).collect();
    let note = "{\"not_recorded\":\"21 bytes, above the argument_bytes limit of 20\"}";
    assert_eq!(args, ["{\"a\":10}", note, "{}"]);
    let results: Vec<(CallId, &str)> = decision
        .records
        .iter()
        .filter_map(|record| match record {
            Record::CallFinished(finished) => Some((finished.call, &*finished.content)),
            _ => None,
        })
        .collect();
    let why = "Not started: the arguments have 21 bytes, and all calls of one answer may have 20 (argument_bytes). They are \
               not recorded. Call again with shorter arguments, in several calls if necessary.";
    assert_eq!(results, [(call(1, 1), why)]);
    assert!(decision.effects.contains(&Effect::Admit { turn: TurnNo(1), calls: vec![0, 2] }));
}

#[test]
fn out_of_budget_ends_owned_runs_and_keeps_partial_output() {
    let mut heart = Heart::root_with(bounded())
        .then(send(1, "go"))
        .then(answer(1, 1, Some("so far"), vec![background()], Stop::Calls))
        .then(spawn(1, subtend_session::place::Mode::Background, &[(0, 0xB1)]));
    let decision = heart.decide(refused(2, 1, Budget::Tokens)).unwrap();
    let outcome = subtend_session::outcome::OutcomeKind::OutOfBudget;
    assert!(decision.effects.contains(&Effect::CancelOwned { run: RunNo(1), outcome, keeps_queue: false }));
    assert_eq!(heart.summary(ended(0xB1, call(1, 0))), "message[1] ended(out_of_budget) > E");
    assert_eq!(heart.state.last.unwrap().text.as_deref(), Some("so far"));
}

/// Computes the bytes of a model call's input independently of the crate.
fn bytes(state: &State) -> u64 {
    let of = |message: &Message| match message {
        Message::User { text, .. } | Message::Notice { text, .. } | Message::Prompt { text } => text.len(),
        Message::Result { content, .. } => content.len(),
        Message::Assistant { text, reasoning, calls, .. } => {
            let text = text.as_ref().map_or(0, |text| text.len()) + reasoning.as_ref().map_or(0, |text| text.len());
            text + calls.iter().map(|tool_call| tool_call.tool.len() + tool_call.args.len()).sum::<usize>()
        }
    };
    ("You work.".len() + state.transcript.iter().map(of).sum::<usize>()) as u64
}

/// Performs one random step. Returns whether the activation was lost.
fn step(heart: &mut Heart, (what, a): (u8, u8)) -> bool {
    let (turn, attempt) = heart.state.turn().map_or((1, 1), |turn| (turn.no.0, turn.attempt.0));
    let command = match what % 8 {
        0 => send(1_000 + u128::from(heart.state.next_seq.0), &"x".repeat(usize::from(a))),
        1 => answer(turn, attempt, Some("said"), vec![reads(); usize::from(a % 3)], Stop::Calls),
        2 => tool(turn, u32::from(a % 3), "found"),
        3 => attempt_failed(turn, attempt, ModelFail::Unavailable),
        4 => answer(turn, attempt, None, Vec::new(), Stop::Length),
        5 if a < 40 => refused(turn, attempt, Budget::Tokens),
        5 => Command::Reactivated { calls: Vec::new(), owner_ended: None },
        6 if a < 30 => interrupt(),
        _ => answer(turn, attempt, Some("done"), Vec::new(), Stop::End),
    };
    let lost = matches!(command, Command::Reactivated { .. });
    let _ = heart.decide(command);
    lost
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each attempt reserves the size of its request, computed from the journal, and closes its reservation before the next
    /// one. Attempts that were lost with their activation have unknown usage and count in full.
    #[test]
    fn reservations_match_the_journal_and_close_one_by_one(
        steps in proptest::collection::vec(any::<(u8, u8)>(), 0..60),
    ) {
        let mut heart = Heart::root_with(Limits { tokens: Some(5), turns: 9, ..small() });
        let activations = steps.into_iter().filter(|one| step(&mut heart, *one)).count();
        let mut open: Option<u64> = None;
        let (mut reserved_total, mut settled, mut lost) = (0, 0, Vec::new());
        for (at, record) in heart.log.iter().enumerate() {
            match record {
                Record::TurnStarted { reserved, .. } => {
                    let before = State::fold(session(ME), &heart.log[..at]).unwrap();
                    let expected = Reserved { input: bytes(&before).div_ceil(4), output: 4_096 };
                    prop_assert_eq!(reserved.as_deref(), Some(&expected));
                    lost.extend(open.replace(expected.input));
                    reserved_total += expected.input;
                }
                Record::TurnAnswered(_) | Record::AttemptDiscarded(_) => settled += open.take().unwrap(),
                _ => {}
            }
        }
        prop_assert!(lost.len() <= activations, "{} attempts are not settled", lost.len());
        prop_assert_eq!(reserved_total, settled + lost.iter().sum::<u64>() + open.unwrap_or(0));
    }
}
