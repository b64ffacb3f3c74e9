use crate::given::*;
use subtend_session::command::Continue;
use subtend_session::index::continue_from;
use subtend_session::record::{From, Hold};

fn record_names(decision: &Decision) -> Vec<String> {
    decision.records.iter().map(word).collect()
}

fn last_text(heart: &Heart) -> String {
    match heart.state.transcript.last() {
        Some(Message::Result { content, .. }) => content.to_string(),
        Some(Message::Notice { text, .. } | Message::User { text, .. } | Message::Prompt { text }) => text.to_string(),
        other => panic!("{other:?} has no text"),
    }
}

fn user_messages(heart: &Heart) -> Vec<String> {
    let text_of = |message: &Message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        _ => None,
    };
    heart.state.transcript.iter().filter_map(text_of).collect()
}

/// Returns a root whose child 0xB1 has ended, and whose turn 2 streams.
fn with_completion() -> Heart {
    Heart::root()
        .then(send(1, "go"))
        .then(calls(1, vec![blocking()]))
        .then(spawn(1, Mode::Blocking, &[(0, 0xB1)]))
        .then(ended(0xB1, call(1, 0)))
}

/// Returns the same root after call 2.0 continued 0xB1.
fn continuing(mode: Mode) -> Heart {
    with_completion().then(calls(2, vec![CallKind::Continue(mode)])).then(continue_children(2, mode, &[(0, 0xB1)]))
}

fn ended_again(run: u32, key: CallId, text: &str) -> Command {
    Command::OwnedEnded(vec![Notice { run: Some(RunNo(run)), ..notice(0xB1, key, Outcome::Completed, text) }])
}

fn continue_requests(decision: &Decision) -> Vec<&Continue> {
    let mut requests = Vec::new();
    for effect in &decision.effects {
        if let Effect::AskToContinue { ask, .. } = effect {
            requests.push(&**ask);
        }
    }
    requests
}

/// Returns a quiet child after its first run.
fn quiet() -> Heart {
    Heart::child().then(admitted()).then(answers(1, "done"))
}

#[test]
fn blocking_continue_of_an_ended_child_waits_for_it() {
    let mut heart = with_completion().then(calls(2, vec![CallKind::Continue(Mode::Blocking)]));
    let before = Before::of(&heart.state);
    let decision = heart.decide(continue_children(2, Mode::Blocking, &[(0, 0xB1)])).unwrap();
    assert_eq!(record_names(&decision), ["+0", "continue_asked"]);
    let Record::ContinueAsked(record) = &decision.records[1] else { panic!("not asked") };
    let opened = heart.state.run.as_ref().unwrap().opened.clone();
    assert_eq!(
        continue_requests(&decision),
        [&continue_from(session(ME), &opened, record)],
        "the live delivery equals the row"
    );
    let row = Row { to: session(0xB1), from: session(ME), kind: RowKind::Continue, key: RowKey::Call(call(2, 0)) };
    assert_eq!(changes(&before, &heart.state, &decision.records, Stamp::default()).put, [row]);
    assert_eq!(heart.summary(ended_again(2, call(2, 0), "done again")), "result turn > W");
    assert_eq!(last_text(&heart), "done again");
    assert_eq!(heart.summary(ended_again(2, call(2, 0), "done again")), "S");
    assert_eq!(heart.summary(answers(3, "all done")), "answered ended(completed) > E");
}

#[test]
fn ended_session_continues_as_the_next_run_of_its_owner() {
    let mut heart = Heart::child_with(Limits::default(), 7).then(admitted()).then(answers(1, "done"));
    let before = Before::of(&heart.state);
    let decision = heart.decide(continued(call(5, 0), None)).unwrap();
    assert_eq!(record_names(&decision), ["accepted", "opened"]);
    let owner = Owner::Run { session: session(OWNER), run: RunNo(1), call: call(5, 0) };
    let opened = &heart.state.run.as_ref().unwrap().opened;
    assert_eq!((opened.run, &opened.owner, opened.mode), (RunNo(2), &owner, Mode::Blocking));
    assert_eq!((opened.max_turns, opened.base_turns), (7, 1), "the allowance of its agent, added to earlier turns");
    assert_eq!((opened.wall_cap_at, opened.deadline_ms), (Some(8_000_000), Some(480_000)), "its owner's cap applies");
    assert_eq!(slots(&decision), ["request"]);
    let cap = Effect::Arm { deadline: Deadline::WallCap(RunNo(2)), after_ms: 7_000_000 };
    assert!(decision.effects.contains(&cap));
    let row = Row { to: session(ME), from: session(OWNER), kind: RowKind::Continue, key: RowKey::Call(call(5, 0)) };
    assert_eq!(changes(&before, &heart.state, &decision.records, Stamp::default()).take, [row]);
    let mut heart = heart.then(Command::Admitted { run: RunNo(2), owner_ended: None });
    assert_eq!(user_messages(&heart), ["task", "continue"]);
    let decided = heart.decide(answers(2, "more")).unwrap();
    let notice = decided.effects.iter().find_map(|effect| match effect {
        Effect::DeliverCompletion { to, notice } => Some((*to, notice.key, notice.run, &*notice.prefix)),
        _ => None,
    });
    assert_eq!(notice, Some((session(OWNER), Some(call(5, 0)), Some(RunNo(2)), "more")));
}

#[test]
fn session_can_be_continued_after_any_end() {
    let ends: [fn() -> Command; 3] = [cancel, interrupt, || attempt_failed(1, 1, ModelFail::Auth)];
    for end in ends {
        let mut heart = Heart::child().then(admitted()).then(end());
        if heart.state.run.is_some() {
            heart.decide(attempt_failed(1, 1, ModelFail::Dropped)).unwrap();
        }
        assert_eq!(heart.summary(continued(call(5, 0), None)), "accepted opened > Q");
    }
}

/// The task of a run that ends before it gets a slot is kept for a later continue. A person's message is dropped.
#[test]
fn b6_continue_keeps_a_task_whose_run_never_started() {
    let mut heart = Heart::child().then(cancel());
    heart.decide(continued(call(5, 0), None)).unwrap();
    let heart = heart.then(Command::Admitted { run: RunNo(2), owner_ended: None });
    assert_eq!(user_messages(&heart), ["task", "continue"]);
    let heart = Heart::child().then(admitted()).then(cancel()).then(attempt_failed(1, 1, ModelFail::Dropped));
    let mut heart = heart.then(send(2, "dropped")).then(cancel()).then(send(3, "said"));
    heart.decide(Command::Admitted { run: RunNo(3), owner_ended: None }).unwrap();
    assert_eq!(user_messages(&heart), ["task", "said"]);
}

#[test]
fn continue_of_an_ended_owner_starts_no_work() {
    let mut heart = quiet();
    let decision = heart.decide(continued(call(5, 0), Some(OutcomeKind::TimedOut))).unwrap();
    let last = heart.state.last.as_ref().unwrap();
    assert_eq!(last.outcome, Outcome::Cancelled { by: Initiator::Owner { outcome: OutcomeKind::TimedOut } });
    let is_work = |effect: &Effect| {
        matches!(
            effect,
            Effect::CallModel { .. } | Effect::RequestSlot { .. } | Effect::Arm { .. } | Effect::RunTool { .. }
        )
    };
    assert!(!decision.effects.iter().any(is_work), "{:?}", decision.effects);
    assert!(
        decision.effects.iter().any(|effect| matches!(effect, Effect::DeliverCompletion { .. })),
        "its owner is notified"
    );
}

#[test]
fn refusal_is_result_of_blocking_call_and_message_otherwise() {
    let refused = |why| Command::OwnedEnded(vec![refusal_from(session(0xB1), call(2, 0), why)]);
    let mut waits = continuing(Mode::Blocking);
    assert_eq!(waits.summary(refused(ContinueRefusal::InFlight)), "result turn > W");
    let text = "Task 0000b1 (general) did not continue: it is already running for another owner: try again later.";
    assert_eq!(last_text(&waits), text);
    let mut aside = continuing(Mode::Background).then(answers(3, "so far"));
    assert_eq!(aside.summary(refused(ContinueRefusal::Closed)), "message[1] turn > W");
    assert!(last_text(&aside).contains("it did not continue: it is closed: start a new one"), "{}", last_text(&aside));
    assert_eq!(aside.summary(ended_again(2, call(2, 0), "late")), "S", "one notice by key");
}

#[test]
fn child_is_not_continued_before_its_end_is_taken() {
    let mut heart = with_completion()
        .then(calls(2, vec![background(), reads()]))
        .then(spawn(2, Mode::Background, &[(0, 0xB2)]))
        .then(tool(2, 1, "read"))
        .then(ended(0xB2, call(2, 0)))
        .then(calls(3, vec![CallKind::Continue(Mode::Blocking)]));
    assert_eq!(heart.summary(continue_children(3, Mode::Blocking, &[(0, 0xB2)])), "+0 -0:error message[1] turn > W");
    let mut lost = continuing(Mode::Background)
        .then(Command::Lost { owner_survives: true, keeps_queue: false })
        .then(send(2, "and now?"))
        .then(calls(4, vec![CallKind::Continue(Mode::Blocking)]));
    assert_eq!(lost.summary(continue_children(4, Mode::Blocking, &[(0, 0xB1)])), "+0 -0:error turn > W");
    assert_eq!(
        lost.summary(ended_again(2, call(2, 0), "late")),
        "> W",
        "a notice of an earlier run waits for the boundary"
    );
}

#[test]
fn k26_kept_messages_open_the_run_after_a_continue() {
    let mut heart = Heart::child().then(admitted()).then(send(2, "and this")).then(cancel_tree()).then(attempt_failed(
        1,
        1,
        ModelFail::Dropped,
    ));
    assert_eq!(heart.summary(continued(call(5, 0), None)), "accepted opened > Q");
    assert_eq!(heart.summary(Command::Admitted { run: RunNo(2), owner_ended: None }), "started taken turn > W");
    assert_eq!(heart.summary(answers(2, "continued")), "answered ended(completed) opened > Q");
    let heart = heart.then(Command::Admitted { run: RunNo(3), owner_ended: None });
    assert_eq!(user_messages(&heart), ["task", "continue", "and this"]);
}

fn cancels(child: u128) -> CallKind {
    CallKind::Cancel { child: session(child) }
}

#[test]
fn model_cancels_an_owned_run_once_and_continues() {
    let mut heart = continuing(Mode::Background);
    let decision = heart.decide(calls(3, vec![cancels(0xB1), cancels(0xB1)])).unwrap();
    assert_eq!(record_names(&decision), ["answered", "+0", "cancel_asked", "-0:ok", "+1", "-1:ok", "turn"]);
    let given = Record::CancelAsked { call: Some(call(3, 0)), child: session(0xB1), key: call(2, 0) };
    assert!(decision.records.contains(&given), "the record has the key of the run in flight");
    let by = Initiator::Model { call: call(3, 0) };
    let cancel = Effect::CancelChild { run: RunNo(1), child: session(0xB1), key: call(2, 0), by: by.clone() };
    assert_eq!(decision.effects.iter().filter(|effect| **effect == cancel).count(), 1);
    let mut heart = heart.then(answers(4, "so far"));
    let cancelled = Notice { run: Some(RunNo(2)), ..notice(0xB1, call(2, 0), Outcome::Cancelled { by }, "half") };
    assert_eq!(
        heart.summary(Command::OwnedEnded(vec![cancelled])),
        "message[1] turn > W",
        "an end that the owner's own call caused wakes the owner"
    );
    assert!(last_text(&heart).contains("was cancelled by your own call"), "{}", last_text(&heart));
}

#[test]
fn refused_cancel_names_the_reason() {
    let error = |mut heart: Heart, turn, child| {
        heart.decide(calls(turn, vec![cancels(child)])).unwrap();
        last_text(&heart)
    };
    assert_eq!(error(with_completion(), 2, 0xB1), "Not cancelled: task 0000b1 has no active run that you started.");
    let unknown = error(with_completion(), 2, 0xEE);
    assert!(unknown.starts_with("Unknown task "), "{unknown}");
    let mut after = continuing(Mode::Background).then(ended_again(2, call(2, 0), "done"));
    assert_eq!(after.summary(calls(3, vec![cancels(0xB1)])), "answered +0 -0:error message[1] turn > W");
}

#[test]
fn cancelled_run_records_the_cancelling_call() {
    let mut heart =
        quiet().then(continued(call(5, 0), None)).then(Command::Admitted { run: RunNo(2), owner_ended: None });
    assert_eq!(heart.summary(owner_cancels(call(5, 0))), "closing(cancelled) > Hc");
    assert_eq!(heart.summary(owner_cancels(call(5, 0))), "> Hc", "a repeated row changes nothing");
    assert_eq!(heart.summary(attempt_failed(2, 1, ModelFail::Dropped)), "discarded ended(cancelled) > E");
    assert_eq!(
        heart.state.last.as_ref().unwrap().outcome,
        Outcome::Cancelled { by: Initiator::Model { call: call(4, 0) } }
    );
    assert_eq!(heart.summary(owner_cancels(call(5, 0))), "S");
}

#[test]
fn interrupt_reaches_an_unopened_continued_run() {
    let mut heart = continuing(Mode::Blocking);
    let before = Before::of(&heart.state);
    let decision = heart.decide(interrupt()).unwrap();
    let by = Initiator::Owner { outcome: OutcomeKind::Interrupted };
    let cancel = Effect::CancelChild { run: RunNo(1), child: session(0xB1), key: call(2, 0), by };
    assert!(decision.effects.contains(&cancel));
    let row = Row { to: session(0xB1), from: session(ME), kind: RowKind::Cancel, key: RowKey::Call(call(2, 0)) };
    assert_eq!(changes(&before, &heart.state, &decision.records, Stamp::default()).put, [row]);
    let mut aside = continuing(Mode::Background);
    assert_eq!(aside.summary(interrupt()), "held(interrupted) Done > Hi", "a background run continues");
}

#[test]
fn child_name_refers_to_the_next_owned_end() {
    let run = |no| RunKey { session: session(0xB1), run: RunNo(no) };
    let check = |no| calls(3, vec![CallKind::Check { run: run(no), wait: true }]);
    let heart = continuing(Mode::Background);
    assert_eq!(heart.state.owned_run(session(0xB1)), run(2));
    let mut first = heart.clone();
    assert_eq!(first.summary(check(1)), "answered +0 -0:ok turn > W", "the end of run 1 was given before");
    assert_eq!(last_text(&first), "[0000b1] ended; its result was given before\n");
    let mut second = heart.clone().then(check(2));
    assert_eq!(second.state.phase(), Phase::WaitingMidTurn);
    let mut late = second.clone();
    assert_eq!(late.summary(Command::Deadline(Deadline::Call(call(3, 0)))), "-0:timed_out turn > W");
    assert!(last_text(&late).ends_with("[0000b1] still running\n"), "{}", last_text(&late));
    // A person opened run 2 of the child in between, so the owned run is run 3.
    assert_eq!(second.summary(ended_again(3, call(2, 0), "done again")), "await[1] turn > W");
    assert_eq!(second.state.owned_run(session(0xB1)), run(4));
    let mut ahead = heart.then(ended_again(2, call(2, 0), "done again"));
    let shown = "answered +0 -0:ok message[1] turn > W";
    assert_eq!(ahead.summary(check(1)), shown, "the end of run 2 is not the result of the check");
}

#[test]
fn await_timeout_lists_children_in_flight() {
    let all = CallKind::Await { all: true, runs: Vec::new() };
    let mut heart = continuing(Mode::Background).then(calls(3, vec![all]));
    assert_eq!(heart.summary(Command::Deadline(Deadline::Call(call(3, 0)))), "-0:timed_out turn > W");
    assert!(last_text(&heart).ends_with("[0000b1] still running\n"), "{}", last_text(&heart));
}

fn with_turns(n: u128, turns: u32, lane: Lane) -> Command {
    Command::Submit(Box::new(InputAccepted { turns: Some(turns), ..input(n, "continue", lane) }))
}

#[test]
fn input_may_set_its_own_turn_allowance() {
    let mut heart = Heart::root_with(Limits { turns: 9, ..Limits::default() }).then(with_turns(1, 1, Lane::Send));
    let run = heart.state.run.as_ref().unwrap();
    assert_eq!((run.opened.max_turns, run.allowance, run.opened.base_turns), (1, 1, 0));
    assert_eq!(heart.summary(calls(1, vec![background()])), "answered > W");
    assert_eq!(heart.summary(spawn(1, Mode::Background, &[(0, 0xB1)])), "+0 spawned -0:ok held(out_of_turns) > Ho");
    // The allowance also applies to later inputs that set none.
    assert_eq!(heart.summary(with_turns(2, 3, Lane::Send)), "accepted taken turn > W");
    let run = heart.state.run.as_ref().unwrap();
    assert_eq!((run.allowance, run.spent, run.opened.max_turns), (3, 0, 1));
    let mut heart = heart.then(send(3, "this too")).then(answers(2, "so far"));
    assert_eq!(heart.state.run.as_ref().unwrap().allowance, 3);
    heart = heart.then(ended(0xB1, call(1, 0))).then(answers(3, "all")).then(answers(4, "really all"));
    assert_eq!(heart.state.last.as_ref().unwrap().max_turns, 3);
    let mut next = heart.then(send(4, "more"));
    let opened = next.state.run.as_ref().unwrap().opened.clone();
    assert_eq!((opened.max_turns, opened.base_turns), (9, 4), "the next run has the session's own allowance");
    assert_eq!(next.summary(with_turns(5, 9, Lane::Steer)), "accepted > W");
    let refused = next.decide(with_turns(6, 10, Lane::Steer)).map(drop);
    let why = "the input allows 10 turns, the session's limit `turns` is 9: allow 9 or fewer";
    assert_eq!(refused, Err(Rejection::BadInput(why.into())));
}

fn by_host(n: u128, text: &str) -> Command {
    Command::Submit(Box::new(InputAccepted { from: From::Host, ..input(n, text, Lane::Send) }))
}

fn by_agent(n: u128, text: &str) -> Command {
    Command::Submit(Box::new(InputAccepted { from: From::AgentResult, ..input(n, text, Lane::Send) }))
}

#[test]
fn persons_inputs_precede_the_hosts_each_in_order() {
    let waiting = |heart: Heart| {
        heart.then(by_agent(2, "agent")).then(by_host(3, "host")).then(send(4, "one")).then(send(5, "two"))
    };
    let mut heart = waiting(Heart::root().then(send(1, "go"))).then(steer(6, "left"));
    for turn in 1..=4 {
        heart = heart.then(answers(turn, "said"));
    }
    assert_eq!(user_messages(&heart), ["go", "left", "one", "two", "agent", "host"]);
    // The next run takes its inputs in the same order.
    let kept = waiting(Heart::root().then(send(1, "go"))).then(cancel_tree());
    let kept = kept.then(attempt_failed(1, 1, ModelFail::Dropped)).then(send(7, "last"));
    assert_eq!(user_messages(&kept), ["go", "one"]);
    let mut ended = waiting(Heart::root().then(send(1, "go"))).then(cancel());
    assert_eq!(
        ended.summary(attempt_failed(1, 1, ModelFail::Dropped)),
        "discarded ended(cancelled) opened started taken turn > W"
    );
    assert_eq!(user_messages(&ended), ["go", "one"]);
}

/// Returns a root that was cancelled with its whole tree while inputs 2 and 3 were queued.
fn kept_queue() -> Heart {
    let waiting = Heart::root().then(send(1, "go")).then(send(2, "second")).then(send(3, "third"));
    waiting.then(cancel_tree()).then(attempt_failed(1, 1, ModelFail::Dropped))
}

#[test]
fn kept_queue_is_opened_in_order_by_the_next_input() {
    let mut heart = kept_queue();
    assert_eq!((heart.state.phase(), heart.state.queue.len()), (Phase::Quiet, 2));
    assert_eq!(heart.summary(send(4, "fourth")), "accepted opened started taken turn > W");
    let heart = heart.then(answers(2, "a")).then(answers(3, "b"));
    assert_eq!(user_messages(&heart), ["go", "second", "third", "fourth"]);
}

#[test]
fn full_kept_queue_still_accepts_an_input() {
    let limits = Limits { queue: 2, ..Limits::default() };
    let mut heart = Heart::root_with(limits).then(send(1, "go")).then(send(2, "second")).then(send(3, "third"));
    assert!(matches!(heart.decide(send(4, "fourth")), Err(Rejection::Busy { .. })));
    let mut heart = heart.then(cancel_tree()).then(attempt_failed(1, 1, ModelFail::Dropped));
    assert_eq!(heart.summary(send(4, "fourth")), "accepted opened started taken turn > W");
    assert_eq!(heart.state.queue.len(), 2);
}

#[test]
fn queue_is_kept_by_the_last_command_about_it() {
    let closing = || Heart::root().then(send(1, "go")).then(send(2, "next")).then(calls(1, vec![writes()]));
    let end = |mut heart: Heart| heart.summary(tool(1, 0, "x"));
    let (opens, kept_queue) = ("-0:ok ended(cancelled) opened started taken turn > W", "-0:ok ended(cancelled) > E");
    assert_eq!(
        end(closing().then(cancel()).then(cancel_tree())),
        kept_queue,
        "a later cancel of the tree keeps the queue"
    );
    assert_eq!(end(closing().then(cancel_tree()).then(cancel())), kept_queue, "a later plain cancel changes nothing");
    // An input after the cancel of the tree is a request to continue.
    assert_eq!(end(closing().then(cancel_tree()).then(send(3, "no, continue"))), opens);
    assert_eq!(end(closing().then(cancel_tree()).then(send(3, "continue")).then(cancel_tree())), kept_queue);
    let timed_out = closing().then(Command::Deadline(Deadline::Run(RunNo(1))));
    let mut timed_out = timed_out.then(cancel_tree());
    assert!(matches!(
        timed_out.state.run.as_ref().unwrap().hold,
        Some(Hold::Closing { outcome: Outcome::TimedOut { .. }, keeps_queue: true })
    ));
    assert_eq!(timed_out.summary(cancel_tree()), "AE(timed_out) > Hc");
}

#[test]
fn removed_inputs_never_open_a_run_in_any_phase() {
    let mut heart = kept_queue();
    let removed = Command::ChangeQueue { change: QueueChange::Removed(vec![input_id(2)]), by: Initiator::Person };
    assert_eq!(heart.summary(removed), "queue_changed Done > E");
    assert_eq!(user_messages(&heart.clone().then(send(4, "fourth"))), ["go", "third"]);
    let cleared = Command::ChangeQueue { change: QueueChange::Cleared, by: Initiator::Host };
    assert_eq!(user_messages(&heart.then(cleared).then(send(4, "fourth"))), ["go", "fourth"]);
    let notices = Heart::root()
        .then(send(1, "go"))
        .then(calls(1, vec![background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1)]))
        .then(ended(0xB1, call(1, 0)))
        .then(Command::ChangeQueue { change: QueueChange::Cleared, by: Initiator::Person });
    assert_eq!(notices.state.arrived.len(), 1, "notices are not inputs");
}

#[test]
fn blocking_child_moves_to_the_background() {
    let waits = Heart::child().then(admitted()).then(calls(1, vec![blocking()]));
    let mut heart = waits.then(spawn(1, Mode::Blocking, &[(0, 0xB1)]));
    let decision = heart.decide(Command::Background { call: call(1, 0) }).unwrap();
    assert_eq!(record_names(&decision), ["-0:backgrounded", "parked(slot)"]);
    assert_eq!((slots(&decision), decision.reply), (vec!["request again"], Reply::Done(RunNo(1))));
    assert!(last_text(&heart).contains("\"session_id\":\"0000b1\",\"status\":\"moved_to_background\""));
    assert_eq!(heart.state.run.as_ref().unwrap().owned[&call(1, 0)].mode, Mode::Background);
    let mut heart = heart.then(admitted()).then(answers(2, "meanwhile"));
    assert_eq!(heart.summary(ended(0xB1, call(1, 0))), "message[1] parked(slot) > Wr", "its end arrives as a notice");
    let mut both = continuing(Mode::Blocking);
    assert_eq!(both.summary(Command::Background { call: call(2, 0) }), "-0:backgrounded turn Done > W");
    assert_eq!(both.summary(Command::Background { call: call(2, 0) }), "Done > W");
}

#[test]
fn deleted_session_takes_only_owed_notices() {
    let mut heart = kept_queue();
    assert_eq!(heart.summary(Command::Delete { by: Initiator::Host }), "queue_changed session_deleted Done > E");
    assert_eq!(heart.decide(send(9, "hello")), Err(Rejection::Deleted));
    assert_eq!(
        heart.decide(send(1, "go")),
        Err(Rejection::Deleted),
        "an input that was accepted before is refused too"
    );
    assert_eq!(
        heart.summary(Command::OwnedEnded(vec![persons_end(0xB1, 2)])),
        "message[1] > E",
        "an owed notice is taken"
    );
    assert_eq!(heart.summary(cancel()), "AE(cancelled) > E");
}

fn detached(ms: u64) -> Command {
    let plan = ChildPlan { detached_ms: Some(ms), ..plan(0xB1, Mode::Blocking) };
    let verdict = SpawnVerdict { call: call(1, 0), verdict: Ok(Plan::Child(Box::new(plan))) };
    Command::Spawn { turn: TurnNo(1), verdicts: vec![verdict] }
}

#[test]
fn detached_child_has_no_owner_and_its_own_cap() {
    // The child does not inherit the wall-clock cap of its parent.
    let mut heart = Heart::child().then(admitted()).then(calls(1, vec![blocking()]));
    let decision = heart.decide(detached(3_600_000)).unwrap();
    assert_eq!(
        record_names(&decision),
        ["+0", "spawned", "-0:ok", "turn"],
        "the call returns at once, although it is blocking"
    );
    assert!(matches!(&decision.records[1], Record::ChildSpawned(spawned) if spawned.detached));
    assert!(heart.state.run.as_ref().unwrap().owned.is_empty());
    let child = Heart::from_records(session(0xB1), decision.new_sessions[0].records.clone());
    let opened = &child.state.run.as_ref().unwrap().opened;
    assert_eq!((&opened.owner, opened.slot), (&Owner::Detached { by_host: false }, true));
    assert_eq!(opened.wall_cap_at, Some(4_600_000), "an hour after its creation");
    assert_eq!(heart.summary(calls(2, vec![cancels(0xB1)])), "answered +0 -0:error turn > W");
    assert_eq!(heart.summary(answers(3, "done")), "answered ended(completed) > E", "no call waits for it");
    let mut child = child.then(admitted());
    assert_eq!(
        child.summary(Command::OwnerEnded {
            owner: RunKey { session: session(ME), run: RunNo(1) },
            outcome: OutcomeKind::Cancelled,
            keeps_queue: false
        }),
        "S"
    );
    let ended = child.decide(Command::Deadline(Deadline::WallCap(RunNo(1)))).unwrap();
    assert_eq!(record_names(&ended), ["closing(timed_out)"]);
    let ended = child.decide(attempt_failed(1, 1, ModelFail::Dropped)).unwrap();
    let completion = ended.effects.into_iter().find_map(|effect| match effect {
        Effect::DeliverCompletion { to, notice } => Some((to, notice)),
        _ => None,
    });
    let (to, notice) = completion.expect("its parent is notified");
    assert_eq!((to, notice.key, notice.run, notice.waking), (session(ME), None, Some(RunNo(1)), false));
    assert_eq!(heart.summary(Command::OwnedEnded(vec![*notice])), "message[1] > E", "stored without waking the run");
}

#[test]
fn ended_detached_child_can_be_continued_by_its_parent() {
    let heart = Heart::root().then(send(1, "go")).then(calls(1, vec![blocking()])).then(detached(60_000));
    let mut heart = heart.then(calls(2, vec![CallKind::Continue(Mode::Background)]));
    assert_eq!(heart.summary(continue_children(2, Mode::Background, &[(0, 0xB1)])), "+0 continue_asked -0:ok turn > W");
    assert_eq!(heart.state.run.as_ref().unwrap().owned.len(), 1, "this run is owned");
}
