//! Details of commands that the table does not cover.

use crate::given::*;
use subtend_session::ids::Short;
use subtend_session::record::Prompt;

fn started() -> Heart {
    Heart::root().then(send(1, "go"))
}

fn last(heart: &Heart) -> (Outcome, Option<String>) {
    let last = heart.state.last.as_ref().unwrap();
    (last.outcome.clone(), last.text.as_ref().map(ToString::to_string))
}

fn model_calls(decision: &Decision) -> Vec<(u32, u32, u64)> {
    let call = |effect: &Effect| match effect {
        Effect::CallModel { turn, attempt, after_ms } => Some((turn.0, attempt.0, *after_ms)),
        _ => None,
    };
    decision.effects.iter().filter_map(call).collect()
}

#[test]
fn first_input_of_a_root_opens_a_run_and_calls_the_model() {
    let mut heart = Heart::root();
    let decision = heart.decide(send(1, "go")).unwrap();
    let names: Vec<String> = decision.records.iter().map(word).collect();
    assert_eq!(names, ["accepted", "opened", "started", "taken", "turn"]);
    assert_eq!(decision.reply, Reply::Accepted { input: input_id(1), duplicate: false });
    assert_eq!(model_calls(&decision), [(1, 1, 0)]);
    assert_eq!(slots(&decision), [""; 0], "roots do not have slots");
}

#[test]
fn plain_answer_completes_the_run_and_is_its_result() {
    let mut heart = started();
    let decision = heart.decide(answers(1, "done")).unwrap();
    let Some(Record::RunEnded(end)) = decision.records.last() else { panic!("no end") };
    assert_eq!((end.result, end.text.as_deref(), end.len, end.turns), (Some(Seq(7)), Some("done"), 4, 1));
    let Record::TurnAnswered(answered) = &decision.records[0] else { panic!("no answer") };
    assert_eq!(answered.answers, [input_id(1)], "an answer names the inputs that it answers");
    assert!(decision.effects.contains(&Effect::Ended { run: RunNo(1), outcome: Outcome::Completed }));
}

#[test]
fn input_is_accepted_once_by_key_and_by_id() {
    let mut heart = started();
    let keyed = |id: u128| {
        Command::Submit(Box::new(subtend_session::record::InputAccepted {
            key: Some("mine".into()),
            ..input(id, "again?", Lane::Send)
        }))
    };
    assert_eq!(heart.summary(keyed(2)), "accepted > W");
    assert_eq!(heart.summary(keyed(3)), "again > W");
    assert_eq!(heart.decide(keyed(3)).unwrap().reply, Reply::Accepted { input: input_id(2), duplicate: true });
    assert_eq!(heart.summary(send(1, "go")), "again > W");
}

#[test]
fn invalid_input_is_refused_with_the_reason() {
    let mut heart = Heart::root_with(Limits { queue: 1, input_bytes: 8, ..Limits::default() });
    assert!(matches!(heart.decide(send(1, " \t")), Err(Rejection::BadInput(_))));
    assert!(matches!(heart.decide(send(1, "123456789")), Err(Rejection::BadInput(_))));
    heart.decide(send(1, "12345678")).unwrap();
    heart.decide(send(2, "two")).unwrap();
    assert_eq!(heart.decide(send(3, "three")), Err(Rejection::Busy { what: "the session's queue", limit: 1 }));
    assert_eq!(heart.decide(steer(3, "three")), Err(Rejection::Busy { what: "the session's queue", limit: 1 }));
}

#[test]
fn queued_send_is_taken_at_rest_and_steer_at_boundary() {
    let mut heart = started().then(send(2, "later")).then(steer(3, "left"));
    assert_eq!(heart.summary(calls(1, vec![reads()])), "answered +0 > W");
    assert_eq!(heart.summary(tool(1, 0, "read")), "-0:ok taken turn > W");
    assert_eq!(heart.summary(answers(2, "went left")), "answered taken turn > W");
    assert_eq!(heart.summary(answers(3, "done")), "answered ended(completed) > E");
    let texts: Vec<&str> = heart
        .state
        .transcript
        .iter()
        .filter_map(|message| match message {
            Message::User { text, .. } => Some(&**text),
            _ => None,
        })
        .collect();
    assert_eq!(texts, ["go", "left", "later"]);
}

#[test]
fn queue_opens_the_next_run_after_an_end() {
    let mut heart = started().then(calls(1, vec![writes()])).then(send(2, "next")).then(cancel());
    assert_eq!(heart.summary(tool(1, 0, "x")), "-0:ok ended(cancelled) opened started taken turn > W");
    assert_eq!(heart.state.run.as_ref().unwrap().no, RunNo(2));
    assert_eq!(
        heart.summary(Command::Cancel {
            run: Some(RunNo(1)),
            by: subtend_session::outcome::Initiator::Host,
            keeps_queue: false
        }),
        "AE(cancelled) > W"
    );
}

#[test]
fn reads_run_concurrently_and_other_tools_in_order() {
    let mut heart = Heart::root_with(Limits { local_calls: 2, ..Limits::default() }).then(send(1, "go"));
    let kinds = vec![writes(), reads(), reads(), writes(), reads()];
    assert_eq!(heart.summary(calls(1, kinds)), "answered +1 +2 +0 > W");
    assert_eq!(heart.summary(tool(1, 2, "c")), "-2:ok +4 > W");
    assert_eq!(heart.summary(tool(1, 0, "a")), "-0:ok +3 > W");
    assert_eq!(heart.summary(tool(1, 4, "e")), "-4:ok > W");
    assert_eq!(heart.summary(tool(1, 1, "b")), "-1:ok > W");
    assert_eq!(heart.summary(tool(1, 3, "d")), "-3:ok turn > W");
    let results: Vec<String> = heart
        .state
        .transcript
        .iter()
        .filter_map(|message| match message {
            Message::Result { call, content, error: false } => Some(format!("{call}={content}")),
            _ => None,
        })
        .collect();
    assert_eq!(results, ["1.0=a", "1.1=b", "1.2=c", "1.3=d", "1.4=e"], "the results are in call order");
}

#[test]
fn invalid_calls_get_correctable_errors() {
    let mut heart = Heart::root_with(Limits { calls_per_answer: 2, ..Limits::default() }).then(send(1, "go"));
    let mut answered = vec![
        resolved(CallKind::Invalid(Invalid::BadArgs)),
        resolved(CallKind::Invalid(Invalid::UnknownTool)),
        resolved(reads()),
    ];
    answered[0].note = Some("`path` is missing".into());
    let command = Command::ModelAnswered(Box::new(subtend_session::command::Answered {
        turn: TurnNo(1),
        attempt: AttemptNo(1),
        text: None,
        reasoning: None,
        calls: answered,
        stop: Stop::Calls,
        model: None,
        usage: Default::default(),
        queued_ms: 0,
    }));
    assert_eq!(heart.summary(command), "answered +0 -0:error +1 -1:error +2 -2:error turn > W");
    let errors: Vec<&str> = heart
        .state
        .transcript
        .iter()
        .filter_map(|message| match message {
            Message::Result { content, error: true, .. } => Some(&**content),
            _ => None,
        })
        .collect();
    assert_eq!(
        errors,
        [
            "`path` is missing",
            "Unknown tool: use one of those that you are offered.",
            "Not started: one answer may contain at most 2 calls. Call again in your next answer.",
        ]
    );
}

#[test]
fn failed_attempts_back_off_and_finally_end_the_run() {
    let mut heart = started();
    let again = heart.decide(attempt_failed(1, 1, ModelFail::Unavailable)).unwrap();
    assert_eq!(model_calls(&again), [(1, 2, 500)]);
    let mut asks_to_wait = heart.clone();
    let Command::AttemptFailed(mut failed) = attempt_failed(1, 2, ModelFail::Rate) else { unreachable!() };
    failed.retry_after_ms = Some(30_000);
    assert_eq!(model_calls(&asks_to_wait.decide(Command::AttemptFailed(failed)).unwrap()), [(1, 3, 30_000)]);
    let again = heart.decide(attempt_failed(1, 2, ModelFail::Unavailable)).unwrap();
    assert_eq!(model_calls(&again), [(1, 3, 1_000)]);
    assert_eq!(heart.summary(attempt_failed(1, 3, ModelFail::Unavailable)), "discarded ended(failed) > E");
    let kind = FailKind::Model { error: ModelFail::Unavailable, message: "no".into() };
    assert_eq!(last(&heart), (Outcome::Failed { kind }, None));
    assert_eq!(heart.state.transcript.len(), 1, "the transcript omits failed attempts");
}

#[test]
fn truncated_answer_is_continued_once_and_joined() {
    let cut = |turn| answer(turn, 1, Some("first "), Vec::new(), Stop::Length);
    let mut heart = started().then(cut(1));
    let given = context(&heart.state);
    assert_eq!(given.prompt, Prompt::Continuation);
    assert!(matches!(given.messages.last(), Some(Message::Prompt { .. })));
    drop(given);
    let mut twice = heart.clone();
    assert_eq!(heart.summary(answers(2, "second")), "answered ended(completed) > E");
    assert_eq!(last(&heart), (Outcome::Completed, Some("first second".into())));
    assert_eq!(twice.summary(cut(2)), "answered ended(failed) > E");
    let (outcome, partial) = last(&twice);
    assert_eq!(outcome, Outcome::Failed { kind: FailKind::Truncated });
    assert_eq!(partial.as_deref(), Some("first first "), "partial output is kept");
}

#[test]
fn empty_answer_is_nudged_once() {
    let empty = |turn| answer(turn, 1, None, Vec::new(), Stop::End);
    let mut heart = started().then(empty(1));
    assert_eq!(heart.summary(empty(2)), "answered ended(failed) > E");
    assert_eq!(last(&heart).0, Outcome::Failed { kind: FailKind::Empty });
}

#[test]
fn empty_answer_to_notices_keeps_the_earlier_answer() {
    let mut heart = started()
        .then(calls(1, vec![background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1)]))
        .then(answers(2, "the answer"))
        .then(ended(0xB1, call(1, 0)));
    assert_eq!(heart.summary(answer(3, 1, None, Vec::new(), Stop::End)), "answered ended(completed) > E");
    assert_eq!(last(&heart), (Outcome::Completed, Some("the answer".into())));
}

#[test]
fn return_waits_for_other_calls_and_ends_run_with_argument() {
    let mut heart = started();
    assert_eq!(heart.summary(calls(1, vec![CallKind::Return, writes()])), "answered +1 +0 > W");
    assert_eq!(heart.summary(tool(1, 1, "written")), "-1:ok -0:ok ended(completed) > E");
    assert_eq!(last(&heart), (Outcome::Completed, Some("given".into())));
    let mut spawning = started();
    assert_eq!(spawning.summary(calls(1, vec![CallKind::Return, blocking()])), "answered +0 -0:error > W");
}

#[test]
fn truncated_answer_in_the_last_turn_takes_pending_ends() {
    let mut owner = Heart::root_with(Limits { turns: 2, ..Limits::default() })
        .then(send(1, "go"))
        .then(calls(1, vec![background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1)]))
        .then(ended(0xB1, call(1, 0)));
    let message = owner.summary(answer(2, 1, Some("cut"), Vec::new(), Stop::Length));
    assert_eq!(message, "answered message[1] ended(out_of_turns) > E");
}

#[test]
fn spent_turns_end_the_run_or_hold_it_with_children() {
    let mut alone = Heart::root_with(Limits { turns: 1, ..Limits::default() }).then(send(1, "go"));
    assert_eq!(alone.summary(calls(1, vec![reads()])), "answered +0 > W");
    assert_eq!(alone.summary(tool(1, 0, "read")), "-0:ok ended(out_of_turns) > E");
    let mut owner = Heart::root_with(Limits { turns: 1, ..Limits::default() })
        .then(send(1, "go"))
        .then(calls(1, vec![background()]));
    assert_eq!(owner.summary(spawn(1, Mode::Background, &[(0, 0xB1)])), "+0 spawned -0:ok held(out_of_turns) > Ho");
    let mut resumed = owner.clone();
    assert_eq!(owner.summary(ended(0xB1, call(1, 0))), "message[1] ended(out_of_turns) > E");
    assert_eq!(resumed.summary(send(2, "continue")), "accepted taken turn > W");
}

#[test]
fn spent_allowance_stores_notices_without_a_turn() {
    let mut waiting = Heart::root_with(Limits { turns: 2, ..Limits::default() })
        .then(send(1, "go"))
        .then(calls(1, vec![background(), background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1), (1, 0xB2)]))
        .then(answers(2, "so far"));
    assert_eq!(waiting.summary(ended(0xB1, call(1, 0))), "message[1] > Wr");
    assert_eq!(waiting.summary(ended(0xB2, call(1, 1))), "message[1] ended(out_of_turns) > E");
}

#[test]
fn waiting_child_releases_slot_and_requests_it_to_resume() {
    let mut heart = Heart::child();
    assert_eq!(slots(&heart.decide(admitted()).unwrap()), [""; 0]);
    heart.decide(calls(1, vec![blocking()])).unwrap();
    let waits = heart.decide(spawn(1, Mode::Blocking, &[(0, 0xB1)])).unwrap();
    assert_eq!(slots(&waits), ["release"]);
    let stopped = Effect::Disarm { deadline: Deadline::Run(RunNo(1)) };
    assert!(waits.effects.contains(&stopped), "the clock of the waiting run is stopped");
    let due = heart.decide(ended(0xB1, call(1, 0))).unwrap();
    assert_eq!((slots(&due), model_calls(&due)), (vec!["request again"], vec![]));
    let resumed = heart.decide(admitted()).unwrap();
    let clock = Effect::Arm { deadline: Deadline::Run(RunNo(1)), after_ms: 479_900 };
    assert!(resumed.effects.contains(&clock), "the clock continues with the remaining working time");
    assert_eq!(model_calls(&resumed), [(2, 1, 0)]);
    assert_eq!(slots(&heart.decide(answers(2, "done")).unwrap()), ["release"]);
}

#[test]
fn root_without_slot_or_deadline_writes_nothing_while_waiting() {
    let mut heart = started().then(calls(1, vec![blocking()]));
    assert_eq!(heart.summary(spawn(1, Mode::Blocking, &[(0, 0xB1)])), "+0 spawned > Wm");
    assert_eq!(heart.summary(ended(0xB1, call(1, 0))), "result turn > W");
}

/// A child gets a worktree of its own if the plan names one, else that of its parent.
#[test]
fn x14_creation_records_the_worktree_of_a_session() {
    let worktree_of_child = |parent: Option<Worktree>, planned: Option<Worktree>| {
        let mut heart = started().in_worktree(parent).then(calls(1, vec![blocking()]));
        let mut planned_child = plan(0xB1, Mode::Blocking);
        planned_child.created.worktree = planned;
        let verdict = SpawnVerdict { call: call(1, 0), verdict: Ok(Plan::Child(Box::new(planned_child))) };
        let decision = heart.decide(Command::Spawn { turn: TurnNo(1), verdicts: vec![verdict] }).unwrap();
        let new = &decision.new_sessions[0];
        Heart::from_records(new.session, new.records.clone()).state.created.worktree
    };
    let (me, child, stranger) = (session(ME), session(0xB1), session(0xEE));
    let forged = Some(Worktree { of: stranger, from: Some(stranger) });
    let parents = Worktree::own(me, None);
    assert_eq!(worktree_of_child(None, None), None);
    assert_eq!(worktree_of_child(None, forged), Some(Worktree { of: child, from: None }));
    assert_eq!(worktree_of_child(Some(parents), None), Some(parents));
    assert_eq!(worktree_of_child(Some(parents), forged), Some(Worktree { of: child, from: Some(me) }));
    for (worktree, fits) in
        [(None, false), (Some(parents), true), (Some(Worktree::own(child, Some(parents))), true), (forged, false)]
    {
        assert_eq!(Worktree::fits(worktree, child, Some(parents)), fits, "{worktree:?}");
    }
}

#[test]
fn creation_sets_place_short_name_and_ceiling() {
    let mut heart = started().then(calls(1, vec![blocking(), blocking(), blocking()]));
    let narrow = Arc::new(Authority::of(RuleSet { default: Verdict::Ask, rules: Vec::new() }));
    // The first two ids have the same last digits. Their short names must differ.
    let children = [(0, 0xA0_00B1, Arc::clone(&narrow)), (1, 0x1A0_00B1, Arc::clone(&narrow)), (2, 3, authority())];
    let verdict = |(ix, n, manifest): &(u32, u128, Arc<Authority>)| SpawnVerdict {
        call: call(1, *ix),
        verdict: Ok(Plan::Child(Box::new(ChildPlan { manifest: Arc::clone(manifest), ..plan(*n, Mode::Blocking) }))),
    };
    let decision =
        heart.decide(Command::Spawn { turn: TurnNo(1), verdicts: children.iter().map(verdict).collect() }).unwrap();
    assert_eq!(decision.new_sessions.len(), 3);
    let mut shorts = Vec::new();
    for (new, (ix, n, manifest)) in decision.new_sessions.iter().zip(&children) {
        let child = Heart::from_records(new.session, new.records.clone());
        let created = &child.state.created;
        assert_eq!((new.session, created.place.depth(), created.place.parent()), (session(*n), 1, Some(session(ME))));
        assert_eq!(*child.state.ceiling, authority().meet(manifest));
        let opened = &child.state.run.as_ref().unwrap().opened;
        assert_eq!(opened.owner, Owner::Run { session: session(ME), run: RunNo(1), call: call(1, *ix) });
        assert_eq!(
            (opened.slot, opened.deadline_ms, child.state.phase()),
            (true, Some(480_000), subtend_session::state::Phase::Queued)
        );
        let wake = subtend_session::decide::wake(&child.state, clock());
        assert!(wake.contains(&Effect::RequestSlot { run: RunNo(1), resumed: false }));
        shorts.push(created.short.clone());
    }
    assert_eq!(shorts, [Short("a000b1".into()), Short("1a000b1".into()), Short("000003".into())]);
    assert_eq!(heart.state.shorts.len(), 3);
}

#[test]
fn depth_limit_error_names_the_limit() {
    let mut heart = Heart::child_with(Limits { max_depth: 1, ..Limits::default() }, 50)
        .then(admitted())
        .then(calls(1, vec![blocking()]));
    let decision = heart.decide(spawn(1, Mode::Blocking, &[(0, 0xB1)])).unwrap();
    assert!(decision.new_sessions.is_empty());
    let Record::CallFinished(finished) = &decision.records[1] else { panic!("not refused") };
    assert!(finished.content.contains("limit of 1 levels"), "{}", finished.content);
}

#[test]
fn turn_waits_for_later_chunks_of_spawns() {
    let mut heart = started().then(calls(1, vec![blocking(), blocking(), background()]));
    assert_eq!(heart.summary(spawn(1, Mode::Blocking, &[(0, 0xB1), (1, 0xB2)])), "+0 spawned +1 spawned > W");
    let both = Command::OwnedEnded(vec![
        notice(0xB1, call(1, 0), Outcome::Completed, "one"),
        notice(0xB2, call(1, 1), Outcome::Completed, "two"),
    ]);
    assert_eq!(heart.summary(both), "result result > W");
    assert_eq!(heart.summary(spawn(1, Mode::Background, &[(2, 0xB3)])), "+2 spawned -2:ok turn > W");
}

fn awaiting(kind: CallKind) -> Heart {
    started()
        .then(calls(1, vec![background(), background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1), (1, 0xB2)]))
        .then(calls(2, vec![kind]))
}

#[test]
fn await_closes_when_all_its_runs_have_ended() {
    let run = |n| RunKey { session: session(n), run: RunNo(1) };
    let mut all = awaiting(CallKind::Await { all: true, runs: Vec::new() });
    assert_eq!(all.summary(ended(0xB1, call(1, 0))), "> Wm");
    assert_eq!(all.summary(ended(0xB2, call(1, 1))), "await[2] turn > W");
    let mut one = awaiting(CallKind::Await { all: false, runs: vec![run(0xB2)] });
    assert_eq!(one.summary(ended(0xB2, call(1, 1))), "await[1] turn > W");
    let mut check = awaiting(CallKind::Check { run: run(0xB1), wait: true });
    assert_eq!(check.summary(ended(0xB2, call(1, 1))), "> Wm");
    let mut timed_out = check.clone();
    assert_eq!(timed_out.summary(Command::Deadline(Deadline::Call(call(2, 0)))), "-0:timed_out message[1] turn > W");
    assert_eq!(check.summary(ended(0xB1, call(1, 0))), "await[1] message[1] turn > W");
}

#[test]
fn await_of_ended_or_unknown_runs_closes_when_it_starts() {
    let run = |n| RunKey { session: session(n), run: RunNo(1) };
    let mut heart = started();
    assert_eq!(
        heart.summary(calls(1, vec![CallKind::Await { all: true, runs: Vec::new() }])),
        "answered +0 -0:ok turn > W"
    );
    let unknown = CallKind::Await { all: false, runs: vec![run(0xEE)] };
    assert_eq!(heart.summary(calls(2, vec![unknown])), "answered +0 -0:ok turn > W");
    let unwaiting = awaiting(CallKind::Check { run: run(0xB1), wait: false });
    assert_eq!(unwaiting.state.last_turn, TurnNo(3), "a check that does not wait closes at once");
}

#[test]
fn closing_run_waits_for_its_stream_and_children() {
    let mut heart = started().then(calls(1, vec![background()])).then(spawn(1, Mode::Background, &[(0, 0xB1)]));
    let decision = heart.decide(cancel()).unwrap();
    assert!(decision.effects.contains(&Effect::CancelLocal));
    let owned = Effect::CancelOwned {
        run: RunNo(1),
        outcome: subtend_session::outcome::OutcomeKind::Cancelled,
        keeps_queue: false,
    };
    assert!(decision.effects.contains(&owned));
    assert_eq!(heart.summary(ended(0xB1, call(1, 0))), "message[1] > Hc");
    assert_eq!(heart.summary(answers(2, "too late")), "answered ended(cancelled) > E");
    assert_eq!(last(&heart).1.as_deref(), Some("too late"), "partial output is kept");
}

#[test]
fn notices_wait_behind_an_input_and_enter_as_one_message() {
    let mut heart = started()
        .then(calls(1, vec![background(), background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1), (1, 0xB2)]))
        .then(ended(0xB1, call(1, 0)))
        .then(ended(0xB2, call(1, 1)))
        .then(send(2, "wait"));
    assert_eq!(heart.summary(answers(2, "so far")), "answered taken turn > W");
    assert_eq!(heart.summary(answers(3, "to that")), "answered message[2] turn > W");
}

#[test]
fn input_reopens_a_closed_session() {
    let closed = Record::SessionClosed { by: subtend_session::outcome::Initiator::Person };
    let mut heart = Heart::root().recorded(closed);
    assert_eq!(heart.summary(send(1, "hello")), "session_reopened accepted opened started taken turn > W");
}

#[test]
fn late_notice_of_a_lost_run_is_stored_without_waking() {
    let mut heart = started()
        .then(calls(1, vec![background()]))
        .then(spawn(1, Mode::Background, &[(0, 0xB1)]))
        .then(Command::Lost { owner_survives: true, keeps_queue: false });
    assert_eq!(heart.summary(ended(0xB1, call(1, 0))), "message[1] > E");
    assert_eq!(heart.summary(ended(0xB1, call(1, 0))), "S");
}

#[test]
fn persons_run_in_a_child_has_a_slot_and_notifies_the_parent() {
    let mut heart = Heart::child().then(admitted()).then(answers(1, "done"));
    let opened = heart.decide(send(9, "a question")).unwrap();
    assert_eq!(slots(&opened), ["request"]);
    heart.decide(Command::Admitted { run: RunNo(2), owner_ended: None }).unwrap();
    let ended = heart.decide(answers(2, "an answer")).unwrap();
    let completion = ended.effects.iter().find_map(|effect| match effect {
        Effect::DeliverCompletion { to, notice } => Some((*to, notice.key, notice.run, notice.waking)),
        _ => None,
    });
    assert_eq!(completion, Some((session(OWNER), None, Some(RunNo(2)), false)));
}

#[test]
fn usage_is_counted_once_and_owned_usage_apart() {
    let heart = started()
        .then(calls(1, vec![blocking()]))
        .then(spawn(1, Mode::Blocking, &[(0, 0xB1)]))
        .then(ended(0xB1, call(1, 0)))
        .then(answers(2, "done"));
    let last = heart.state.last.as_ref().unwrap();
    assert_eq!((last.usage_self.tokens(), last.usage_owned.tokens(), last.turns), (30, 2, 2));
    assert_eq!(heart.state.usage.tokens(), 30);
}

#[test]
fn ids_of_taken_inputs_name_the_user_message() {
    let heart = started();
    let ids: Vec<InputId> = heart.state.run.as_ref().unwrap().unanswered.clone();
    assert_eq!(ids, [input_id(1)]);
    assert_eq!(heart.state.about.unwrap().seq, Seq(5));
}
