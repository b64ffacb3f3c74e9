use crate::given::*;
use subtend_session::command::{SummarisedHistory, Summary, Unsummarised};
use subtend_session::compaction::{self, HistoryCut};
use subtend_session::limits::Parking;
use subtend_session::record::{CompactionCause, CompactionFailure};

/// The context window in tokens. A compaction is due at 800.
const WINDOW: u64 = 1_000;

fn with_service(heart: Heart, n: u128) -> Heart {
    heart.then(Command::Branch(Box::new(BranchPlan {
        child: session(n),
        kind: BranchKind::Service,
        at: None,
        created: created(Place::Root, Limits::default()),
        manifest: authority(),
        by: Initiator::Host,
        is_task: false,
    })))
}

fn windowed(mut heart: Heart) -> Heart {
    heart.state.window = Some(WINDOW);
    heart
}

fn text_of_tokens(tokens: usize) -> String {
    "text ".repeat(tokens * 4 / 5)
}

/// Returns an answer with `tokens` tokens of usage, including the request.
fn counted(turn: u32, attempt: u32, kinds: Vec<subtend_session::call::CallKind>, tokens: u64) -> Command {
    let Command::ModelAnswered(mut answer) =
        answer(turn, attempt, Some("said"), kinds.clone(), if kinds.is_empty() { Stop::End } else { Stop::Calls })
    else {
        unreachable!()
    };
    answer.usage = Usage { input: tokens - 10, output: 10, ..Usage::default() };
    Command::ModelAnswered(answer)
}

/// Returns a root after two exchanges of 300 tokens each. The last request had `tokens` tokens.
fn talked(tokens: u64) -> Heart {
    let first = windowed(Heart::root()).then(send(1, &text_of_tokens(300))).then(counted(1, 1, vec![], 310));
    first.then(send(2, &text_of_tokens(300))).then(counted(2, 1, vec![], tokens))
}

fn summarised(turn: Option<(u32, u32)>, plan: HistoryCut, text: &str, of: u128) -> Command {
    let turn = turn.map(|(turn, attempt)| (TurnNo(turn), AttemptNo(attempt)));
    let result = Ok(Summary { text: text.into(), of: session(of) });
    Command::Compact(Box::new(SummarisedHistory { turn, by: Initiator::Host, plan, result }))
}

fn unsummarised(turn: (u32, u32), plan: HistoryCut) -> Command {
    unsummarised_until(turn, plan, None)
}

fn unsummarised_until(turn: (u32, u32), plan: HistoryCut, reset: Option<(&str, u64)>) -> Command {
    let turn = Some((TurnNo(turn.0), AttemptNo(turn.1)));
    let reset = reset.map(|(model, after_ms)| (model.into(), after_ms));
    let result = Err(Unsummarised { why: CompactionFailure::Agent, message: "it failed".into(), of: None, reset });
    Command::Compact(Box::new(SummarisedHistory { turn, by: Initiator::Host, plan, result }))
}

fn plan_of(heart: &Heart) -> HistoryCut {
    compaction::plan(&heart.state).expect("the history can be compacted")
}

fn visible_short(state: &State) -> Vec<String> {
    let short = |text: &str| text.chars().take(12).collect::<String>();
    let of = |message: &Message| match message {
        Message::User { text, .. } => format!("user {}", short(text)),
        Message::Assistant { text, calls, .. } => {
            format!("answer {}{}", short(text.as_deref().unwrap_or_default()), "+".repeat(calls.len()))
        }
        Message::Result { content, .. } => format!("result {}", short(content)),
        Message::Notice { text, .. } => format!("notice {}", short(text)),
        Message::Prompt { text } => format!("prompt {}", short(text)),
    };
    visible(state).iter().map(of).collect()
}

fn compacts(decision: &Decision) -> Vec<CompactionCause> {
    let causes = decision.records.iter().filter_map(|record| match record {
        Record::TurnStarted { compacts, .. } => *compacts,
        _ => None,
    });
    let causes: Vec<_> = causes.collect();
    let waits = decision.effects.iter().filter(|effect| matches!(effect, Effect::Compact { .. })).count();
    assert_eq!(waits, causes.len(), "a waiting attempt has the compact effect");
    causes
}

fn calls_model(decision: &Decision) -> Vec<(u32, u32)> {
    let calls = decision.effects.iter().filter_map(|effect| match effect {
        Effect::CallModel { turn, attempt, .. } => Some((turn.0, attempt.0)),
        _ => None,
    });
    calls.collect()
}

#[test]
fn g14_turn_waits_for_a_compaction_from_the_share_on() {
    for (last, waits) in [(799, false), (800, true)] {
        let decision = talked(last - 1).decide(send(3, "next")).unwrap();
        assert_eq!(
            (compacts(&decision).len(), calls_model(&decision).len()),
            (usize::from(waits), usize::from(!waits))
        );
    }
    // No compaction is due if the window is unknown or compaction is switched off.
    let mut unknown = talked(900);
    unknown.state.window = None;
    assert_eq!(compacts(&unknown.decide(send(3, "next")).unwrap()), []);
    let off = Limits { compact_at: Some(0), ..Limits::default() };
    let first = windowed(Heart::root_with(off)).then(send(1, &text_of_tokens(300))).then(counted(1, 1, vec![], 310));
    assert_eq!(compacts(&first.then(counted_noop()).decide(send(3, "next")).unwrap()), []);
    let lower = Limits { compact_at: Some(30), ..Limits::default() };
    let mut low =
        windowed(Heart::root_with(lower)).then(send(1, &text_of_tokens(300))).then(counted(1, 1, vec![], 310));
    assert_eq!(compacts(&low.decide(send(3, "next")).unwrap()), [CompactionCause::Share]);
}

/// Returns an input that fills the context.
fn counted_noop() -> Command {
    send(2, &text_of_tokens(300))
}

#[test]
fn g14_summary_replaces_old_messages_and_the_model_is_called() {
    let mut heart = with_service(talked(850), 0xA1).then(send(3, "next"));
    assert_eq!(heart.state.phase(), Phase::Working);
    let before = heart.state.transcript.clone();
    let plan = plan_of(&heart);
    let decision = heart.decide(summarised(Some((3, 1)), plan, "both were answered", 0xA1)).unwrap();
    assert_eq!(decision.records.iter().map(word).collect::<Vec<_>>(), ["compacted"]);
    assert_eq!(calls_model(&decision), [(3, 1)]);
    assert_eq!(heart.state.transcript, before, "nothing is deleted");
    assert_eq!(visible_short(&heart.state), ["prompt The earlier ", "answer said", "user next"]);
    let Message::Prompt { text } = &visible(&heart.state)[0] else { unreachable!() };
    assert!(text.contains("both were answered"), "{text}");
    // The next turns extend the same prefix.
    let prefix = visible(&heart.state);
    let heart = heart.then(counted(3, 1, vec![reads()], 300)).then(tool(3, 0, "read"));
    assert_eq!(visible(&heart.state)[..prefix.len()], prefix[..]);
    assert_eq!(heart.refolded().state.compactions, heart.state.compactions);
}

#[test]
fn g14_unanswered_and_pending_messages_stay_visible() {
    // A long run with an unanswered input, a running background child and an ended one.
    let mut heart = windowed(Heart::root()).then(send(1, &text_of_tokens(60)));
    heart = heart.then(counted(1, 1, vec![background(), background()], 100));
    heart = heart.then(spawn(1, Mode::Background, &[(0, 0xB1), (1, 0xB2)])).then(ended(0xB1, call(1, 0)));
    heart = heart.then(counted(2, 1, vec![reads()], 200)).then(tool(2, 0, &text_of_tokens(300)));
    heart = with_service(heart.then(counted(3, 1, vec![reads()], 600)), 0xA1);
    let decision = heart.decide(tool(3, 0, &text_of_tokens(250))).unwrap();
    assert_eq!(compacts(&decision), [CompactionCause::Share]);
    let plan = plan_of(&heart);
    heart.decide(summarised(Some((4, 1)), plan, "summary", 0xA1)).unwrap();
    let expected =
        ["prompt The earlier ", "user text text te", "notice Background t", "answer said+", "result text text te"];
    assert_eq!(visible_short(&heart.state), expected);
    let Message::Prompt { text } = &visible(&heart.state)[0] else { unreachable!() };
    let live = &heart.state.children[&session(0xB2)];
    assert!(text.contains(&format!("{} ({})", live.short, live.agent)), "{text}");
    assert!(!text.contains(&*heart.state.children[&session(0xB1)].short.0), "the ended child is not listed: {text}");
}

#[test]
fn g14_overflow_is_followed_by_one_compaction_and_another_call() {
    let mut heart = with_service(talked(500), 0xA1).then(send(3, "next"));
    let overflow = |attempt| attempt_failed(3, attempt, ModelFail::ContextOverflow);
    let decision = heart.decide(overflow(1)).unwrap();
    assert_eq!(compacts(&decision), [CompactionCause::Overflow]);
    let plan = plan_of(&heart);
    let decision = heart.decide(summarised(Some((3, 2)), plan, "short", 0xA1)).unwrap();
    assert_eq!(calls_model(&decision), [(3, 2)]);
    assert_eq!(heart.summary(overflow(2)), "discarded ended(failed) > E", "a turn compacts the history only once");
    // Without history to hide, the error ends the run at once.
    let mut fresh = Heart::root().then(send(1, "hello"));
    assert_eq!(fresh.summary(attempt_failed(1, 1, ModelFail::ContextOverflow)), "discarded ended(failed) > E");
    // The same applies if compaction is switched off.
    let mut off = windowed(Heart::root_with(Limits { compact_at: Some(0), ..Limits::default() }));
    off = off.then(send(1, &text_of_tokens(300))).then(counted(1, 1, vec![], 310)).then(send(2, "next"));
    assert_eq!(off.summary(attempt_failed(2, 1, ModelFail::ContextOverflow)), "discarded ended(failed) > E");
}

#[test]
fn g14_failed_compaction_is_recorded_and_does_not_loop() {
    let mut heart = talked(850).then(send(3, "next"));
    let plan = plan_of(&heart);
    let decision = heart.decide(unsummarised((3, 1), plan)).unwrap();
    assert_eq!(decision.records.iter().map(word).collect::<Vec<_>>(), ["compaction_failed"]);
    assert_eq!(calls_model(&decision), [(3, 1)], "the provider decides whether the request fits");
    heart.decide(counted(3, 1, vec![reads()], 900)).unwrap();
    let decision = heart.decide(tool(3, 0, "read")).unwrap();
    let expected = (vec![], vec![(4, 1)]);
    assert_eq!((compacts(&decision), calls_model(&decision)), expected, "this run does not try again");
    heart.decide(counted(4, 1, vec![], 900)).unwrap();
    assert_eq!(compacts(&heart.decide(send(4, "more")).unwrap()), [CompactionCause::Share], "the next run tries again");
    // After an overflow the model is not called without a compaction.
    let mut heart = talked(500).then(send(3, "next")).then(attempt_failed(3, 1, ModelFail::ContextOverflow));
    let plan = plan_of(&heart);
    assert_eq!(heart.summary(unsummarised((3, 2), plan)), "compaction_failed discarded ended(failed) > E");
    let last = heart.state.last.as_ref().map(|last| last.outcome.clone());
    let why = "not compacted: it failed";
    let kind = FailKind::Model { error: ModelFail::ContextOverflow, message: why.into() };
    assert_eq!(last, Some(Outcome::Failed { kind }));
}

/// The model of the compaction agent resets in an hour: the run parks, and an overflow after the reset is compacted.
#[test]
fn x13_limit_of_the_compaction_agent_parks_the_run() {
    const HOUR: u64 = 3_600_000;
    let waits = || talked(500).then(send(3, "next")).then(attempt_failed(3, 1, ModelFail::ContextOverflow));
    let mut heart = with_service(waits(), 0xA1);
    let plan = plan_of(&heart);
    let decision = heart.decide(unsummarised_until((3, 2), plan, Some(("small", HOUR)))).unwrap();
    assert_eq!(
        decision.records.iter().map(word).collect::<Vec<_>>(),
        ["compaction_failed", "discarded", "parked(limit)"]
    );
    let Record::AttemptDiscarded(discarded) = &decision.records[1] else { panic!("{decision:?}") };
    assert_eq!((discarded.awaits.as_deref(), discarded.retry_delay_ms), (Some("small"), Some(HOUR)));
    let at_reset = Clock { wall_ms: clock().wall_ms.saturating_add_unsigned(HOUR), ..clock() };
    let decision = heart.decide_at(Command::Deadline(Deadline::Limit(TurnNo(3))), at_reset).unwrap();
    assert_eq!((compacts(&decision), calls_model(&decision)), (vec![], vec![(3, 3)]));
    let decision = heart.decide(attempt_failed(3, 3, ModelFail::ContextOverflow)).unwrap();
    assert_eq!(compacts(&decision), [CompactionCause::Overflow]);
    let plan = plan_of(&heart);
    assert_eq!(calls_model(&heart.decide(summarised(Some((3, 4)), plan, "short", 0xA1)).unwrap()), [(3, 4)]);
    // The run fails if the wait would fit into the turn, or if parking is off.
    let fails = "compaction_failed discarded ended(failed) > E";
    assert_eq!(waits().summary(unsummarised_until((3, 2), plan_of(&waits()), Some(("small", 599_999)))), fails);
    let mut off = windowed(Heart::root_with(Limits { park: Parking::Off, ..Limits::default() }));
    off = off.then(send(1, &text_of_tokens(300))).then(counted(1, 1, vec![], 310)).then(send(2, "next"));
    off = off.then(attempt_failed(2, 1, ModelFail::ContextOverflow));
    let plan = plan_of(&off);
    assert_eq!(off.summary(unsummarised_until((2, 2), plan, Some(("small", HOUR)))), fails);
}

#[test]
fn g14_empty_or_too_large_summary_fails() {
    let cases = [
        (" \n".to_owned(), CompactionFailure::Empty),
        (text_of_tokens(900), CompactionFailure::TooLarge),
        ("x".repeat(40_000), CompactionFailure::TooLarge),
    ];
    for (text, expected) in cases {
        let mut heart = with_service(talked(850), 0xA1).then(send(3, "next"));
        let plan = plan_of(&heart);
        let decision = heart.decide(summarised(Some((3, 1)), plan, &text, 0xA1)).unwrap();
        let Record::CompactionFailed(failed) = &decision.records[0] else { panic!("{decision:?}") };
        assert_eq!((failed.why, failed.of), (expected, Some(session(0xA1))));
        assert!(heart.state.compactions.is_empty());
    }
}

#[test]
fn g14_cut_never_separates_a_call_from_its_result() {
    let mut heart = windowed(Heart::root()).then(send(1, &text_of_tokens(10)));
    for turn in 1..12 {
        heart = heart.then(counted(turn, 1, vec![reads(), reads()], 50 * u64::from(turn)));
        heart = heart.then(tool(turn, 0, &text_of_tokens(20))).then(tool(turn, 1, &text_of_tokens(20)));
        let Some(plan) = compaction::plan(&heart.state) else { continue };
        let first = &heart.state.transcript[usize::try_from(plan.upto).unwrap()];
        assert!(matches!(first, Message::Assistant { .. }), "{first:?}");
    }
}

#[test]
fn g14_stopped_run_discards_its_pending_compaction() {
    for stop in [cancel(), interrupt()] {
        let mut heart = with_service(talked(850), 0xA1).then(send(3, "next"));
        let plan = plan_of(&heart);
        heart.decide(stop).unwrap();
        let text = heart.summary(summarised(Some((3, 1)), plan, "late", 0xA1));
        assert!(text.starts_with("discarded ended("), "{text}");
        assert!(heart.state.compactions.is_empty());
        assert_eq!(heart.summary(summarised(Some((3, 1)), plan, "later", 0xA1)), "S");
    }
    let mut heart = talked(850).then(send(3, "next"));
    let deadline = heart.summary(Command::Deadline(Deadline::Turn(TurnNo(3))));
    assert_eq!(deadline, "closing(timed_out) > Hc");
}

#[test]
fn g14_new_activation_starts_the_compaction_again() {
    let heart = with_service(talked(850), 0xA1).then(send(3, "next"));
    let mut again = heart.refolded();
    let decision = again.decide(Command::Reactivated { calls: Vec::new(), owner_ended: None }).unwrap();
    assert_eq!(compacts(&decision), [CompactionCause::Share]);
    let plan = plan_of(&again);
    assert_eq!(again.summary(summarised(Some((3, 1)), plan, "of the first", 0xA1)), "S");
    assert_eq!(again.summary(summarised(Some((3, 2)), plan, "of the second", 0xA1)), "compacted > W");
}

#[test]
fn g14_request_applies_in_any_phase_and_once() {
    let mut heart = with_service(with_service(talked(500), 0xA1), 0xA2);
    let (plan, text) = (plan_of(&heart), "asked for");
    assert_eq!(heart.summary(summarised(None, plan, text, 0xA1)), "compacted Done > E");
    assert_eq!(heart.summary(summarised(None, plan, text, 0xA1)), "Done > E", "a command repeated after a lost reply");
    let late = heart.summary(summarised(None, plan, text, 0xA2));
    assert_eq!(late, "not compacted: the history changed while it was summarised");
    // An active run uses the summary from its next call on.
    let mut works = with_service(talked(500), 0xA1);
    let plan = plan_of(&works);
    works = works.then(send(3, "next"));
    assert_eq!(works.summary(summarised(None, plan, text, 0xA1)), "compacted Done > W");
    assert_eq!(works.summary(counted(3, 1, vec![], 300)), "answered ended(completed) > E");
    // While a call waits for a compaction, no other compaction starts.
    let mut waits = with_service(talked(850), 0xA1);
    let plan = plan_of(&waits);
    waits = waits.then(send(3, "next"));
    let message = waits.summary(summarised(None, plan, text, 0xA1));
    assert_eq!(message, "cannot compact: a compaction is running: wait for it");
}

/// Covers a second compaction, which also hides the messages of the first.
#[test]
fn g14_summary_names_the_number_of_hidden_messages() {
    let assert_named = |state: &State, hidden: usize| {
        let last = state.compactions.last().expect("a compaction");
        assert!(last.text.contains(&format!("conversation, {hidden} messages, was compacted")), "{}", last.text);
        assert_eq!((last.hidden(), state.transcript.len() + 1 - visible(state).len()), (hidden, hidden));
    };
    let mut heart = with_service(with_service(talked(500), 0xA1), 0xA2);
    let plan = plan_of(&heart);
    heart = heart.then(summarised(None, plan, "first", 0xA1));
    assert_named(&heart.state, 3);
    heart = heart.then(send(3, &text_of_tokens(300))).then(counted(3, 1, vec![], 310));
    heart = heart.then(send(4, &text_of_tokens(300))).then(counted(4, 1, vec![], 320));
    let plan = plan_of(&heart);
    heart = heart.then(summarised(None, plan, "both", 0xA2));
    assert_named(&heart.state, 7);
}

#[test]
fn g14_undone_compaction_shows_all_messages_again() {
    let heart = with_service(with_service(talked(500), 0xA1), 0xA2);
    let (plan, whole) = (plan_of(&heart), visible_short(&heart.state));
    let mut heart = heart.then(summarised(None, plan, "asked for", 0xA1));
    assert_ne!(visible_short(&heart.state), whole);
    let undo = || Command::UndoCompaction { by: Initiator::Person };
    assert_eq!(heart.decide(undo()).unwrap().reply, Reply::Done(RunNo(2)));
    assert_eq!(visible_short(&heart.state), whole);
    let why = Rejection::BadInput("no compaction to undo: all messages are visible".into());
    assert_eq!(heart.decide(undo()), Err(why));
    let mut works = heart.then(send(3, "next"));
    assert!(matches!(works.decide(undo()), Err(Rejection::Working { .. })));
}

#[test]
fn g14_rollback_undoes_the_compactions_of_its_run() {
    let heart = with_service(talked(850), 0xA1);
    let whole = visible_short(&heart.state);
    let heart = heart.then(send(3, &text_of_tokens(50)));
    let plan = plan_of(&heart);
    let mut heart = heart.then(summarised(Some((3, 1)), plan, "short", 0xA1));
    // The next compaction hides messages of this run.
    heart = heart.then(counted(3, 1, vec![reads()], 300)).then(tool(3, 0, &text_of_tokens(300)));
    heart = with_service(heart.then(counted(4, 1, vec![reads()], 700)).then(tool(4, 0, &text_of_tokens(120))), 0xA2);
    let plan = plan_of(&heart);
    heart = heart.then(summarised(Some((5, 1)), plan, "shorter", 0xA2)).then(cancel());
    heart = heart.then(attempt_failed(5, 1, ModelFail::Dropped));
    assert_eq!(heart.state.compactions.len(), 2);
    let heart = heart.then(Command::RollBack { run: None, by: Initiator::Person });
    assert_eq!(heart.state.compactions.len(), 1, "the first compaction does not hide messages of the run");
    let undone = heart.then(Command::UndoCompaction { by: Initiator::Person });
    assert_eq!(visible_short(&undone.state), whole);
}

#[test]
fn b2_branch_at_a_compacted_message_has_its_history() {
    let heart = with_service(talked(500), 0xA1);
    let (plan, first) = (plan_of(&heart), heart.state.transcript[0].record().unwrap());
    let heart = heart.then(summarised(None, plan, "asked for", 0xA1));
    let branch = |at: Option<Seq>, n| {
        let mut heart = heart.clone();
        let plan = BranchPlan {
            child: session(n),
            kind: BranchKind::Human,
            at,
            created: created(Place::Root, Limits::default()),
            manifest: authority(),
            by: Initiator::Person,
            is_task: false,
        };
        let decision = heart.decide(Command::Branch(Box::new(plan))).unwrap();
        let Record::SessionCreated(created) = &decision.new_sessions[0].records[0] else { unreachable!() };
        created.inherited.iter().map(|message| message.bytes()).collect::<Vec<_>>()
    };
    let original = heart.state.transcript[0].bytes();
    assert_eq!(branch(Some(first), 0xC1), [original], "an early branch has the original messages");
    let now: Vec<_> = visible(&heart.state).iter().map(Message::bytes).collect();
    assert_eq!(branch(None, 0xC2), now, "a branch at the end has the summary");
}

#[test]
fn g14_answers_in_the_compacted_part_are_not_regenerated() {
    let heart = with_service(talked(500), 0xA1);
    let plan = plan_of(&heart);
    let answer = heart.state.transcript[1].record().unwrap();
    let mut heart = heart.then(summarised(None, plan, "asked for", 0xA1));
    let command = Command::Regenerate(Box::new(subtend_session::command::RegeneratePlan {
        child: session(0xC1),
        input: input_id(9),
        of: Some(answer),
        created: created(Place::Root, Limits::default()),
        manifest: authority(),
        by: Initiator::Person,
    }));
    let why = format!(
        "answer {answer} is hidden, because its part of the history was compacted: undo the compaction first, or \
         branch off there"
    );
    assert_eq!(heart.decide(command), Err(Rejection::BadInput(why)));
}
