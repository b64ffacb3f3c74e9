//! The order of messages and completions in a model's context, and the ends that only views show.

use crate::given::*;
use subtend_session::dialect::jobs;
use subtend_session::record::From;

/// Returns the transcript in short form: messages as text, answers in brackets, completions as `!` and the number of ends.
fn transcript_short(heart: &Heart) -> Vec<String> {
    let word = |message: &Message| match message {
        Message::User { text, .. } => text.to_string(),
        Message::Assistant { text, .. } => format!("[{}]", text.as_deref().unwrap_or_default()),
        Message::Result { .. } => "result".into(),
        Message::Notice { text, .. } => format!("!{}", text.matches("done").count() + text.matches("aside").count()),
        Message::Prompt { .. } => "prompt".into(),
    };
    heart.state.transcript.iter().map(word).collect()
}

fn from(from: From, n: u128, text: &str, lane: Lane) -> Command {
    Command::Submit(Box::new(InputAccepted { from, ..input(n, text, lane) }))
}

/// Returns a root with background children from 0xB1 on, whose second turn streams.
fn parent(children: usize) -> Heart {
    let ixs: Vec<(u32, u128)> = (0..).zip(0xB1_u128..).take(children).collect();
    let given_calls = vec![background(); children];
    Heart::root().then(send(1, "go")).then(calls(1, given_calls)).then(spawn(1, Mode::Background, &ixs))
}

/// Returns a root that started 0xB1 by `dialect`, and whose second turn streams.
fn started_by(dialect: Dialect) -> Heart {
    let plan = Plan::Child(Box::new(ChildPlan { dialect, ..plan(0xB1, Mode::Background) }));
    let verdicts = vec![SpawnVerdict { call: call(1, 0), verdict: Ok(plan) }];
    let root = Heart::root().then(send(1, "go")).then(calls(1, vec![background()]));
    root.then(Command::Spawn { turn: TurnNo(1), verdicts })
}

fn job() -> RunKey {
    RunKey { session: session(0xB1), run: RunNo(1) }
}

fn owner_of_last_run(heart: &Heart) -> Owner {
    let opened = heart.log.iter().rev().find_map(|record| match record {
        Record::RunOpened(opened) => Some(opened.owner.clone()),
        _ => None,
    });
    opened.unwrap()
}

#[test]
fn k26_persons_run_in_a_child_stays_out_of_the_context() {
    let heart = parent(2).then(Command::OwnedEnded(vec![persons_end(0xB2, 2)]));
    let before = transcript_short(&heart);
    let mut heart = heart.then(calls(2, vec![reads()]));
    assert_eq!(heart.summary(tool(2, 0, "x")), "-0:ok message[1] turn > W", "the end is stored, but only for views");
    assert_eq!(transcript_short(&heart)[before.len()..], ["[]", "result"]);
    // If an owned run ends in the same batch, the end of the person's run still adds no text.
    let both = vec![notice(0xB1, call(1, 0), Outcome::Completed, "done"), persons_end(0xB2, 3)];
    let heart = heart.then(Command::OwnedEnded(both)).then(answers(3, "so far"));
    assert_eq!(transcript_short(&heart)[before.len() + 2..], ["[so far]", "!1"]);
}

fn stored(heart: &Heart) -> Vec<(SessionId, String, Outcome)> {
    let taken = heart.log.iter().filter_map(|record| match record {
        Record::NoticeTaken(taken) => Some(&taken.items),
        _ => None,
    });
    taken.flatten().map(|item| (item.child, item.prefix.to_string(), item.outcome.clone())).collect()
}

fn failed(message: &str) -> Outcome {
    Outcome::Failed { kind: FailKind::Model { error: ModelFail::Rate, message: message.into() } }
}

#[test]
fn a8_end_hidden_from_models_is_stored_without_text() {
    let refused = Notice { outcome: failed("aside is refused"), ..persons_end(0xB1, 3) };
    let no_workspace = |message: &str| Outcome::Failed { kind: FailKind::Workspace { message: message.into() } };
    let unprepared = Notice { outcome: no_workspace("no /home/me/w"), ..persons_end(0xB1, 4) };
    let owned = notice(0xB2, call(1, 1), failed("rate"), "done");
    let ends = vec![persons_end(0xB1, 2), refused, unprepared, owned];
    let heart = parent(2).then(Command::OwnedEnded(ends)).then(answers(2, "so far"));
    let expected = [
        (session(0xB1), String::new(), Outcome::Completed),
        (session(0xB1), String::new(), failed("")),
        (session(0xB1), String::new(), no_workspace("")),
        (session(0xB2), "done".into(), failed("rate")),
    ];
    assert_eq!(stored(&heart), expected);
    {
        use subtend_invariants::bugs::{Bug, Rules};
        let kept = parent(1).with_rules(Rules::without(Bug::UnreadTextKept));
        let kept = kept.then(Command::OwnedEnded(vec![persons_end(0xB1, 2)])).then(answers(2, "so far"));
        assert_eq!(stored(&kept), [(session(0xB1), "aside".into(), Outcome::Completed)]);
    }
}

#[test]
fn k26_persons_run_does_not_wake_or_enter_at_rest() {
    let mut heart = parent(1).then(answers(2, "so far"));
    let before = transcript_short(&heart);
    assert_eq!(heart.summary(Command::OwnedEnded(vec![persons_end(0xB1, 2)])), "message[1] > Wr");
    let ended = heart.then(ended(0xB1, call(1, 0))).then(answers(3, "all"));
    let mut quiet = ended.clone();
    assert_eq!(quiet.summary(Command::OwnedEnded(vec![persons_end(0xB1, 3)])), "message[1] > E");
    assert_eq!((transcript_short(&ended).len(), transcript_short(&quiet).len()), (before.len() + 2, before.len() + 2));
    assert_eq!(quiet.refolded().state.transcript, quiet.state.transcript);
}

#[test]
fn k26_await_gives_the_owned_result_after_a_persons_run() {
    let idle = started_by(Dialect::Spawn).then(answers(2, "so far")).then(ended(0xB1, call(1, 0)));
    let heart = idle.then(Command::OwnedEnded(vec![persons_end(0xB1, 2)]));
    let given = heart.state.children[&session(0xB1)].given.clone().unwrap();
    assert_eq!((given.run, &*given.prefix), (Some(RunNo(1)), "done"));
}

#[test]
fn k26_end_of_a_persons_run_does_not_refuse_a_return() {
    let heart = Heart::root().then(send(1, "go")).then(Command::OwnedEnded(vec![persons_end(0xB2, 2)]));
    let mut heart = heart;
    assert_eq!(heart.summary(calls(1, vec![CallKind::Return])), "answered +0 -0:ok message[1] ended(completed) > E");
}

#[test]
fn k26_detached_end_still_reaches_the_model() {
    let plan = ChildPlan { detached_ms: Some(60_000), ..plan(0xB1, Mode::Background) };
    let verdicts = vec![SpawnVerdict { call: call(1, 0), verdict: Ok(Plan::Child(Box::new(plan))) }];
    let root = Heart::root().then(send(1, "go")).then(calls(1, vec![background()]));
    let heart = root.then(Command::Spawn { turn: TurnNo(1), verdicts });
    let heart = heart.then(Command::OwnedEnded(vec![persons_end(0xB1, 1)])).then(calls(2, vec![reads()]));
    let heart =
        heart.then(tool(2, 0, "x")).then(Command::OwnedEnded(vec![persons_end(0xB1, 2)])).then(answers(3, "all"));
    assert_eq!(
        transcript_short(&heart),
        ["go", "[]", "result", "[]", "result", "!1", "[all]"],
        "the owner receives only the end of the child's first run"
    );
}

#[test]
fn k26_message_to_an_owned_run_opens_the_next_run() {
    let mut heart = Heart::child().then(admitted()).then(send(7, "and this?"));
    assert_eq!(heart.summary(answers(1, "the result")), "answered ended(completed) opened > Q");
    let ended = heart.state.last.as_ref().unwrap();
    assert_eq!(ended.text.as_deref(), Some("the result"), "the owner receives the answer to its task");
    assert_eq!((owner_of_last_run(&heart), ended.owner.run()), (Owner::Person, Some(owner_run())));
    let mut next = heart.then(Command::Admitted { run: RunNo(2), owner_ended: None });
    assert_eq!(transcript_short(&next), ["task", "[the result]", "and this?"]);
    assert_eq!(next.summary(answers(2, "this too")), "answered ended(completed) > E");
}

#[test]
fn k26_steer_enters_an_owned_run_at_the_boundary() {
    let heart = Heart::child().then(admitted()).then(calls(1, vec![reads()])).then(steer(7, "left"));
    let heart = heart.then(tool(1, 0, "x"));
    assert_eq!(transcript_short(&heart), ["task", "[]", "result", "left"]);
    let heart = heart.then(steer(8, "right")).then(answers(2, "a"));
    assert_eq!(transcript_short(&heart)[4..], ["[a]", "right"], "a rest point is a boundary too");
    assert_eq!(heart.state.run.as_ref().unwrap().no, RunNo(1));
}

#[test]
fn k26_owned_run_at_rest_waits_for_its_own_children_first() {
    let heart = Heart::child().then(admitted()).then(calls(1, vec![background()]));
    let mut heart = heart.then(spawn(1, Mode::Background, &[(0, 0xB1)])).then(answers(2, "so far"));
    assert_eq!(heart.summary(send(7, "and this?")), "accepted > Wr");
    assert_eq!(
        heart.summary(ended(0xB1, call(1, 0))),
        "message[1] parked(slot) > Wr",
        "the end of its own child wakes it"
    );
    let mut heart = heart.then(admitted());
    assert_eq!(transcript_short(&heart)[3..], ["[so far]", "!1"]);
    assert_eq!(heart.summary(answers(3, "all")), "answered ended(completed) opened > Q");
    let interrupted = Heart::child().then(admitted()).then(send(7, "and this?"));
    let mut interrupted = interrupted.then(interrupt());
    let dropped = attempt_failed(1, 1, subtend_session::outcome::ModelFail::Dropped);
    assert_eq!(
        interrupted.summary(dropped),
        "discarded ended(interrupted) opened > Q",
        "a message does not extend a held run"
    );
}

#[test]
fn k26_lost_owned_run_leaves_the_message_to_the_next() {
    let heart = Heart::child().then(admitted()).then(send(7, "and this?"));
    let mut heart = heart.refolded();
    let lost = Command::Lost { owner_survives: false, keeps_queue: false };
    assert_eq!(heart.summary(lost), "discarded ended(lost) opened > Q");
    assert_eq!(owner_of_last_run(&heart), Owner::Person);
}

#[test]
fn b11_each_turn_takes_one_message_then_completions() {
    let heart = parent(2).then(send(2, "A")).then(send(3, "B")).then(from(From::Host, 4, "H", Lane::Send));
    let heart = heart.then(from(From::AgentResult, 5, "R", Lane::Send)).then(ended(0xB1, call(1, 0)));
    let mut heart = heart;
    assert_eq!(heart.summary(answers(2, "so far")), "answered taken turn > W");
    assert_eq!(heart.summary(answers(3, "to A")), "answered taken turn > W");
    assert_eq!(heart.summary(answers(4, "to B")), "answered taken message[1] turn > W");
    assert_eq!(transcript_short(&heart)[4..], ["[so far]", "A", "[to A]", "B", "[to B]", "H", "R", "!1"]);
    assert_eq!(heart.refolded().state.transcript, heart.state.transcript);
}

#[test]
fn b11_completions_wait_for_a_queued_message_mid_turn() {
    let held = || parent(2).then(calls(2, vec![reads()])).then(ended(0xB1, call(1, 0)));
    let mut busy = held();
    assert_eq!(busy.summary(tool(2, 0, "x")), "-0:ok message[1] turn > W", "B12: a busy parent at its boundary");
    let mut queued = held().then(send(2, "A"));
    assert_eq!(queued.summary(tool(2, 0, "x")), "-0:ok turn > W");
    let mut steered = held().then(steer(2, "A"));
    assert_eq!(steered.summary(tool(2, 0, "x")), "-0:ok taken turn > W", "the newest input is a message");
    let mut queued = queued.then(answers(3, "a"));
    assert_eq!(queued.summary(answers(4, "to A")), "answered message[1] turn > W");
}

#[test]
fn b11_system_entries_open_a_run_together() {
    let entries = |heart: Heart| {
        heart.then(from(From::Host, 2, "H", Lane::Send)).then(from(From::AgentResult, 3, "R", Lane::Send))
    };
    let heart = entries(Heart::root().then(send(1, "go"))).then(cancel());
    let heart = heart.then(attempt_failed(1, 1, subtend_session::outcome::ModelFail::Dropped));
    assert_eq!(transcript_short(&heart), ["go", "H", "R"]);
    // Steering inputs join the first turn. Inputs of the host come before people's messages.
    let mut waits = Heart::child().then(admitted()).then(send(2, "A")).then(answers(1, "x"));
    waits = waits.then(steer(3, "left")).then(from(From::Host, 4, "H", Lane::Steer));
    let waits = waits.then(Command::Admitted { run: RunNo(2), owner_ended: None });
    assert_eq!(transcript_short(&waits)[2..], ["H", "A", "left"]);
}

#[test]
fn b11_awaited_slot_admits_one_message() {
    // A person's run in a child releases its slot while it waits for its own child.
    let own = Heart::child().then(admitted()).then(answers(1, "x")).then(send(2, "A"));
    let own = own.then(Command::Admitted { run: RunNo(2), owner_ended: None }).then(calls(2, vec![background()]));
    let mut own = own.then(spawn(2, Mode::Background, &[(0, 0xB1)])).then(answers(3, "so far"));
    assert_eq!(own.summary(send(3, "B")), "accepted taken parked(slot) > Wr");
    let own = own.then(send(4, "C")).then(ended(0xB1, call(2, 0)));
    let mut own = own;
    assert_eq!(own.summary(Command::Admitted { run: RunNo(2), owner_ended: None }), "resumed turn > W");
    assert_eq!(own.summary(answers(4, "to B")), "answered taken turn > W");
    assert_eq!(own.summary(answers(5, "to C")), "answered message[1] turn > W");
}

#[test]
fn k2_end_of_a_job_waits_for_a_rest_point_or_its_await() {
    for dialect in [Dialect::Spawn, Dialect::SpawnTask] {
        let mut heart = started_by(dialect).then(calls(2, vec![reads()])).then(ended(0xB1, call(1, 0)));
        assert_eq!(heart.summary(tool(2, 0, "x")), "-0:ok turn > W", "{dialect:?}: held at the boundary");
        let mut idle = heart.clone();
        assert_eq!(idle.summary(answers(3, "so far")), "answered message[1] turn > W", "{dialect:?}");
        let fetch = match dialect {
            Dialect::Spawn => CallKind::Await { all: false, runs: vec![job()] },
            _ => CallKind::Check { run: job(), wait: false },
        };
        let fetched = heart.clone().then(calls(3, vec![fetch]));
        let texts = |heart: &Heart| {
            let given = heart.state.transcript.iter().filter(|message| match message {
                Message::Result { content: text, .. } | Message::Notice { text, .. } => text.contains("done"),
                _ => false,
            });
            given.count()
        };
        assert_eq!(texts(&fetched), 1, "{dialect:?}");
        let mut fetched = fetched;
        assert_eq!(fetched.summary(answers(4, "all")), "answered ended(completed) > E", "{dialect:?}");
        assert_eq!(texts(&fetched), 1, "{dialect:?}: given once");
    }
    // Ends of other dialects are sent at the next boundary.
    let mut task = started_by(Dialect::Task).then(calls(2, vec![reads()])).then(ended(0xB1, call(1, 0)));
    assert_eq!(task.summary(tool(2, 0, "x")), "-0:ok message[1] turn > W");
}

#[test]
fn k2_refused_return_shows_the_unread_end() {
    let heart = started_by(Dialect::Spawn).then(ended(0xB1, call(1, 0)));
    let mut heart = heart;
    let refused = heart.summary(answer(2, 1, None, vec![CallKind::Return], Stop::Calls));
    assert_eq!(refused, "answered +0 -0:error message[1] turn > W");
}

#[test]
fn k2_continue_of_an_unread_job_names_the_tool_to_read_it() {
    let tool_call = ToolCall { provider_id: "p".into(), tool: jobs::AWAIT.into(), args: "{}".into() };
    assert_eq!(&*tool_call.tool, Dialect::Spawn.fetch_tool().unwrap());
    let heart = started_by(Dialect::Spawn).then(ended(0xB1, call(1, 0)));
    let heart = heart.then(calls(2, vec![CallKind::Continue(Mode::Background)])).then(continue_children(
        2,
        Mode::Background,
        &[(0, 0xB1)],
    ));
    let refusal = heart.state.transcript.iter().rev().find_map(|message| match message {
        Message::Result { content, error: true, .. } => Some(content.to_string()),
        _ => None,
    });
    let text = "Task 0000b1 has ended and you have not read its result: call `spawn_await`, then continue it.";
    assert_eq!(refusal.as_deref(), Some(text));
}

/// One scenario each: a person's run in a child, a completion with a message, and a message to an owned run.
#[test]
fn k26_b11_seeded_bugs_show_in_their_rule_alone() {
    use subtend_invariants::bugs::{Bug, Rules};
    let scenarios = |rules: Rules| {
        let aside = parent(1).with_rules(rules).then(answers(2, "so far"));
        let mut joined = parent(1).with_rules(rules).then(send(2, "A")).then(ended(0xB1, call(1, 0)));
        let mut extended = Heart::child().with_rules(rules).then(admitted()).then(send(7, "and this?"));
        let shown = transcript_short(&aside.then(Command::OwnedEnded(vec![persons_end(0xB1, 2)]))).last().cloned();
        (shown, joined.summary(answers(2, "so far")), extended.summary(answers(1, "the result")))
    };
    let (shown, joined, extended) = scenarios(Rules::ALL);
    assert_eq!(shown.as_deref(), Some("[so far]"));
    assert_eq!((&*joined, &*extended), ("answered taken turn > W", "answered ended(completed) opened > Q"));
    let with = |bug| scenarios(Rules::without(bug));
    assert_eq!(with(Bug::PersonsRunShown), (Some("!1".into()), joined.clone(), extended.clone()));
    let late = "answered taken message[1] turn > W";
    assert_eq!(with(Bug::CompletionsJoinMessages), (shown.clone(), late.into(), extended));
    assert_eq!(with(Bug::MessageExtendsOwnedRun), (shown, joined, "answered taken turn > W".into()));
}
