use crate::given::*;
use subtend_session::index::Changes;

fn started() -> Heart {
    Heart::root().then(send(1, "go"))
}

/// Returns a root with the blocking child 0xB1, the background child 0xB2, a running tool with side effects and an await.
fn busy() -> Heart {
    let awaits = CallKind::Await { all: true, runs: Vec::new() };
    started()
        .then(calls(1, vec![blocking(), background(), writes(), awaits, writes()]))
        .then(spawn(1, Mode::Blocking, &[(0, 0xB1)]))
        .then(spawn(1, Mode::Background, &[(1, 0xB2)]))
}

/// Returns the end of 0xB1, caused by the interrupt of its owner.
fn cancelled() -> Command {
    let outcome = Outcome::Cancelled { by: Initiator::Owner { outcome: OutcomeKind::Interrupted } };
    Command::OwnedEnded(vec![notice(0xB1, call(1, 0), outcome, "half done")])
}

fn dropped(turn: u32) -> Command {
    attempt_failed(turn, 1, ModelFail::Unavailable)
}

/// Returns the effects except timers of turns and calls.
fn effects_without_timers(decision: &Decision) -> Vec<Effect> {
    let timers = |effect: &&Effect| match effect {
        Effect::Arm { deadline, .. } | Effect::Disarm { deadline } => matches!(deadline, Deadline::Grace(_)),
        _ => true,
    };
    decision.effects.iter().filter(timers).cloned().collect()
}

fn grace() -> Effect {
    Effect::Arm { deadline: Deadline::Grace(RunNo(1)), after_ms: Limits::default().grace_ms }
}

fn results(heart: &Heart) -> Vec<(CallId, String)> {
    let result = |message: &Message| match message {
        Message::Result { call, content, .. } => Some((*call, content.to_string())),
        _ => None,
    };
    heart.state.transcript.iter().filter_map(result).collect()
}

fn changed(heart: &mut Heart, command: Command) -> Changes {
    let before = Before::of(&heart.state);
    let decision = heart.decide(command).unwrap();
    changes(&before, &heart.state, &decision.records, Stamp::default())
}

#[test]
fn interrupted_run_ends_after_its_stream_is_dropped() {
    let mut heart = started();
    let decision = heart.decide(interrupt()).unwrap();
    assert_eq!(decision.reply, Reply::Done(RunNo(1)));
    assert_eq!(effects_without_timers(&decision), [Effect::CancelLocal, grace()]);
    assert_eq!(heart.summary(dropped(1)), "discarded ended(interrupted) > E");
    let last = heart.state.last.as_ref().unwrap();
    assert_eq!(last.outcome, Outcome::Interrupted { by: Initiator::Person });
}

#[test]
fn interrupt_keeps_a_ready_answer_without_starting_its_calls() {
    let mut final_answer = started().then(interrupt());
    assert_eq!(final_answer.summary(answers(1, "done")), "answered ended(interrupted) > E");
    assert_eq!(final_answer.state.last.unwrap().text.as_deref(), Some("done"), "partial output is kept");
    let mut with_calls = started().then(interrupt());
    let kinds = vec![reads(), blocking()];
    assert_eq!(with_calls.summary(calls(1, kinds)), "answered -0:interrupted -1:interrupted ended(interrupted) > E");
}

#[test]
fn interrupt_answers_waits_stops_work_and_keeps_background() {
    let mut heart = busy();
    let decision = heart.decide(interrupt()).unwrap();
    let names: Vec<String> = decision.records.iter().map(word).collect();
    assert_eq!(names, ["-3:interrupted", "-4:interrupted", "held(interrupted)", "cancel_asked"]);
    let cancel = Effect::CancelChild {
        run: RunNo(1),
        child: session(0xB1),
        key: call(1, 0),
        by: Initiator::Owner { outcome: OutcomeKind::Interrupted },
    };
    assert_eq!(effects_without_timers(&decision), [Effect::CancelLocal, cancel, grace()]);
    let request = Record::CancelAsked { call: None, child: session(0xB1), key: call(1, 0) };
    assert_eq!(decision.records.last(), Some(&request));
    assert_eq!(heart.summary(tool(1, 2, "written")), "-2:interrupted > Hi");
    assert_eq!(heart.summary(cancelled()), "result > Hi");
    assert_eq!(heart.summary(ended(0xB2, call(1, 1))), "message[1] ended(interrupted) > E");
}

#[test]
fn next_input_resumes_with_full_context_and_new_allowance() {
    let mut heart = busy().then(interrupt()).then(send(2, "continue"));
    assert_eq!(heart.summary(tool(1, 2, "written")), "-2:interrupted > Hi", "the input waits for the open call");
    let decision = heart.decide(cancelled()).unwrap();
    let names: Vec<String> = decision.records.iter().map(word).collect();
    assert_eq!(names, ["result", "taken", "turn"]);
    assert!(decision.effects.contains(&Effect::Disarm { deadline: Deadline::Grace(RunNo(1)) }));
    let run = heart.state.run.as_ref().unwrap();
    assert_eq!((run.spent, run.owned.len(), run.hold.is_none()), (0, 1, true));
    let call_results = results(&heart);
    assert_eq!(call_results.iter().map(|(call, _)| call.ix).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert!(call_results[0].1.contains("cancelled by an interrupt of its owner"), "{}", call_results[0].1);
    assert!(call_results[2].1.contains("but this call finished:\nwritten"), "{}", call_results[2].1);
    let last = heart.state.transcript.last();
    assert!(matches!(last, Some(Message::User { text, .. }) if &**text == "continue"), "{last:?}");
    assert_eq!(heart.summary(answers(2, "continued")), "answered > Wr");
    assert_eq!(heart.summary(ended(0xB2, call(1, 1))), "message[1] turn > W", "a notice wakes the resumed run");
}

#[test]
fn notice_to_a_held_run_is_stored_without_a_turn() {
    let mut heart = started()
        .then(calls(1, vec![background(), background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1), (1, 0xB2)]))
        .then(answers(2, "so far"))
        .then(interrupt());
    let decision = heart.decide(ended(0xB1, call(1, 0))).unwrap();
    assert_eq!(decision.records.iter().map(word).collect::<Vec<_>>(), ["message[1]"]);
    assert_eq!(decision.effects, [Effect::Unload], "no run is woken");
    assert_eq!(heart.summary(send(2, "and?")), "accepted taken turn > W");
    let kinds: Vec<&str> = heart.state.transcript.iter().rev().take(2).map(message_kind).collect();
    assert_eq!(kinds, ["user", "notice"], "the notice precedes the input");
}

fn message_kind(message: &Message) -> &'static str {
    match message {
        Message::User { .. } => "user",
        Message::Assistant { .. } => "assistant",
        Message::Result { .. } => "result",
        Message::Notice { .. } => "notice",
        Message::Prompt { .. } => "prompt",
    }
}

#[test]
fn queued_input_resumes_an_interrupted_run_at_once() {
    let awaits = CallKind::Await { all: true, runs: Vec::new() };
    let mut heart = started()
        .then(calls(1, vec![background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1)]))
        .then(calls(2, vec![awaits]))
        .then(send(2, "stop waiting"));
    assert_eq!(heart.summary(interrupt()), "-0:interrupted held(interrupted) taken turn Done > W");
}

#[test]
fn work_still_running_after_grace_is_killed() {
    let mut heart = busy().then(interrupt());
    let decision = heart.decide(Command::Deadline(Deadline::Grace(RunNo(1)))).unwrap();
    assert_eq!(decision.records.iter().map(word).collect::<Vec<_>>(), ["-2:unknown"]);
    let cancel = Effect::CancelChild {
        run: RunNo(1),
        child: session(0xB1),
        key: call(1, 0),
        by: Initiator::Owner { outcome: OutcomeKind::Interrupted },
    };
    assert_eq!(effects_without_timers(&decision), [Effect::CancelLocal, cancel, Effect::Unload]);
    assert_eq!(heart.summary(tool(1, 2, "late")), "S");
    let stopped = busy().then(interrupt()).then(tool(1, 2, "x")).then(cancelled());
    assert_eq!(stopped.clone().summary(Command::Deadline(Deadline::Grace(RunNo(1)))), "> Hi");
    assert_eq!(stopped.then(send(2, "on")).summary(Command::Deadline(Deadline::Grace(RunNo(1)))), "S");
}

#[test]
fn stopped_call_without_effects_may_be_repeated() {
    let result = subtend_session::call::CallResult {
        end: CallEnd::Cancelled,
        content: "the call was cancelled".into(),
        truncated_from: None,
    };
    let mut heart = started()
        .then(calls(1, vec![background(), reads()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1)]))
        .then(interrupt())
        .then(Command::ToolFinished { call: call(1, 1), result: Box::new(result), worked_ms: 3 });
    let text = "Interrupted before it was done. Call it again if it is still needed.";
    assert_eq!(results(&heart)[1], (call(1, 1), text.to_owned()));
    assert_eq!(heart.summary(interrupt()), "Done > Hi");
}

#[test]
fn interrupted_child_releases_slot_and_requests_it_on_resume() {
    let mut heart = Heart::child().then(admitted()).then(calls(1, vec![background()])).then(spawn(
        1,
        Mode::Background,
        &[(0, 0xB1)],
    ));
    assert_eq!(slots(&heart.decide(interrupt()).unwrap()), ["release"]);
    heart.decide(dropped(2)).unwrap();
    let decision = heart.decide(steer(5, "on")).unwrap();
    assert_eq!(decision.records.iter().map(word).collect::<Vec<_>>(), ["accepted", "taken", "parked(slot)"]);
    assert_eq!(slots(&decision), ["request again"]);
    assert_eq!(slots(&heart.decide(interrupt()).unwrap()), ["release"], "a queued slot request is released too");
}

#[test]
fn interrupt_ends_queued_run_and_finds_no_run_in_new_session() {
    let mut queued = Heart::child();
    let decision = queued.decide(interrupt()).unwrap();
    assert_eq!(slots(&decision), ["release"]);
    assert!(
        decision.effects.iter().any(|effect| matches!(effect, Effect::DeliverCompletion { .. })),
        "its owner is notified"
    );
    assert_eq!(Heart::root().summary(interrupt()), "NF > E");
    let mut over = started().then(answers(1, "done"));
    let ended = RunKey { session: session(ME), run: RunNo(1) };
    assert_eq!(over.decide(interrupt()).unwrap().reply, Reply::AlreadyEnded(ended, Outcome::Completed));
}

#[test]
fn new_activation_repeats_cancels_without_second_record() {
    let held = busy().then(interrupt());
    let mut heart = held.refolded();
    let decision = heart.decide(Command::Reactivated { calls: Vec::new(), owner_ended: None }).unwrap();
    assert_eq!(decision.records.iter().map(word).collect::<Vec<_>>(), ["-2:unknown"]);
    let cancel = Effect::CancelChild {
        run: RunNo(1),
        child: session(0xB1),
        key: call(1, 0),
        by: Initiator::Owner { outcome: OutcomeKind::Interrupted },
    };
    assert!(decision.effects.contains(&cancel) && decision.effects.contains(&grace()));
    heart.decide(cancelled()).unwrap();
    let quiet = heart.refolded().decide(Command::Reactivated { calls: Vec::new(), owner_ended: None }).unwrap();
    assert_eq!(quiet, Decision::default(), "a run held only for a background child has no grace");
}

#[test]
fn cancel_row_is_kept_until_the_notice_is_taken() {
    let mut heart = busy();
    let row = |kind, to, from| Row { to, from, kind, key: RowKey::Call(call(1, 0)) };
    let asks = row(RowKind::Cancel, session(0xB1), session(ME));
    assert_eq!(changed(&mut heart, interrupt()).put, [asks]);
    let taken = changed(&mut heart, cancelled()).take;
    assert_eq!(taken, [row(RowKind::Notice, session(ME), session(0xB1)), asks]);
}

#[test]
fn lost_held_run_ends_interrupted() {
    let held = busy().then(interrupt()).refolded();
    let lost = Outcome::Lost;
    let rows = vec![notice(0xB1, call(1, 0), lost.clone(), ""), notice(0xB2, call(1, 1), lost, "")];
    let mut heart = held.then(Command::OwnedEnded(rows));
    assert_eq!(
        heart.summary(Command::Lost { owner_survives: true, keeps_queue: false }),
        "-2:unknown ended(interrupted) > E"
    );
    assert_eq!(heart.state.last.unwrap().outcome, Outcome::Interrupted { by: Initiator::Person });
}
