use subtend_session::call::{CallEnd, ToolErrorKind};
use subtend_session::ids::{AttemptNo, Epoch, Hash, Seq, SessionId, Short};
use subtend_session::outcome::{Initiator, Outcome};
use subtend_session::place::{Mode, OnRestart, Owner};
use subtend_session::record::{
    AnsweredBy, AskVerdict, ChildSpawned, From, Lane, Notice, RunEnded, SpawnGranted, Stop, ToolCall,
};
use subtend_session::usage::Usage;

use super::*;

const CHILD: &str = "0192f0c2-0000-7abc-8def-012345a3f9c1";

fn child() -> SessionId {
    CHILD.parse().expect("an id")
}

fn input(n: u8) -> InputId {
    format!("0192f0c1-0000-7abc-8def-0000000000{n:02}").parse().expect("an id")
}

fn accepted(n: u8, text: &str) -> Record {
    Record::InputAccepted(Box::new(InputAccepted::new(input(n), From::Person, Lane::Send, text, Owner::Person)))
}

fn taken(ids: &[u8]) -> Record {
    Record::InputsTaken { ids: ids.iter().map(|n| input(*n)).collect(), run: RunNo(1), turn: TurnNo(1) }
}

fn answered(turn: u32, text: Option<&str>, tools: &[&str]) -> Record {
    let tool_call = |tool: &&str| ToolCall { provider_id: "p".into(), tool: (*tool).into(), args: "{}".into() };
    Record::TurnAnswered(Box::new(TurnAnswered {
        run: RunNo(1),
        turn: TurnNo(turn),
        attempt: AttemptNo(1),
        text: text.map(Into::into),
        reasoning: None,
        calls: tools.iter().map(tool_call).collect(),
        stop: Stop::End,
        model: None,
        usage: Usage::default(),
        answers: Vec::new(),
        worked_ms: 0,
        queued_ms: 0,
    }))
}

fn call(turn: u32, ix: u32) -> CallId {
    CallId { turn: TurnNo(turn), ix }
}

fn finished(id: CallId, end: CallEnd, content: &str) -> Record {
    Record::CallFinished(Box::new(CallFinished {
        call: id,
        end,
        content: content.into(),
        truncated_from: None,
        worked_ms: 0,
    }))
}

fn spawned(id: CallId) -> Record {
    Record::ChildSpawned(Box::new(ChildSpawned {
        bytes: 0,
        dialect: subtend_session::dialect::Dialect::Task,
        inspectable: false,
        label: None,
        skipped: Vec::new(),
        warnings: Vec::new(),
        call: id,
        child: child(),
        short: Short("a3f9c1".into()),
        agent: "explore".into(),
        mode: Mode::Blocking,
        detached: false,
        depth: 1,
        grant: SpawnGranted::default(),
    }))
}

fn notice(key: CallId, carrier: Carrier) -> Record {
    let item = Notice {
        returned: false,
        child: child(),
        run: Some(RunNo(1)),
        key: Some(key),
        refused: None,
        outcome: Outcome::Completed,
        len: 5,
        hash: Hash::of(b"found"),
        prefix: "found".into(),
        usage: Usage::default(),
        turns: 1,
        base_turns: 0,
        waking: true,
    };
    Record::NoticeTaken(Box::new(NoticeTaken { items: vec![item], carrier }))
}

fn end_of_child() -> OwnedEnd {
    OwnedEnd {
        child: child(),
        run: Some(RunNo(1)),
        outcome: Outcome::Completed,
        text: "found".into(),
        len: 5,
        deleted: false,
    }
}

fn shown(records: Vec<Record>) -> Vec<Entry> {
    let stored = |(record, n): (Record, u64)| Stored { seq: Seq(n), at_ms: 7, epoch: Epoch(1), record };
    let shown = entries(&records.into_iter().zip(1..).map(stored).collect::<Vec<_>>());
    shown.into_iter().map(|shown| shown.entry).collect()
}

fn answer(turn: u32, seq: u64, text: Option<&str>, calls: Vec<CallEntry>) -> Entry {
    Entry::Answer {
        turn: TurnNo(turn),
        seq: Seq(seq),
        text: text.map(Into::into),
        calls,
        agent: None,
        model: None,
        usage: Usage::default(),
        queued_ms: 0,
        at_ms: 7,
    }
}

fn called(id: CallId, tool: &str, opened: bool, result: Option<CallOutcome>) -> CallEntry {
    let (tool, args) = (tool.into(), "{}".into());
    CallEntry {
        call: id,
        tool,
        args,
        child: opened.then(child),
        receiver: None,
        warnings: Vec::new(),
        asks: false,
        result,
        minion: None,
        nested: None,
    }
}

#[test]
fn inputs_are_listed_where_taken_and_queued_ones_last() {
    let entries = shown(vec![
        accepted(1, "first"),
        accepted(2, "second"),
        accepted(3, "never"),
        taken(&[1]),
        answered(1, Some("done"), &[]),
        taken(&[2]),
        Record::QueueChanged { change: QueueChange::Removed(vec![input(9)]), by: Initiator::Person },
    ]);
    let took = |n, seq, text: &str| {
        let (id, seq, text) = (input(n), Seq(seq), text.into());
        Entry::Input { id, seq, from: From::Person, relative: false, run: RunNo(1), text, at_ms: 7 }
    };
    let waiting = Entry::Waiting { id: input(3), text: "never".into() };
    assert_eq!(entries, [took(1, 4, "first"), answer(1, 5, Some("done"), vec![]), took(2, 6, "second"), waiting]);
}

/// The next run gets a task that no run took, but not a message that its sender dropped.
#[test]
fn b6_task_that_never_started_precedes_its_end() {
    let by = |owner| {
        let opened = RunOpened {
            run: RunNo(1),
            owner,
            inputs: vec![input(1)],
            mode: Mode::Background,
            max_turns: 5,
            base_turns: 0,
            deadline_ms: None,
            wall_cap_at: None,
            on_restart: OnRestart::Fail,
            slot: true,
        };
        let ended = RunEnded {
            run: RunNo(1),
            outcome: Outcome::Lost,
            result: None,
            returned: None,
            text: None,
            len: 0,
            hash: Hash::of(b""),
            turns: 0,
            usage_self: Usage::default(),
            usage_owned: Usage::default(),
            worked_ms: 0,
            keeps_queue: false,
            gave_up: None,
        };
        let ended = Record::RunEnded(Box::new(ended));
        let entries = shown(vec![accepted(1, "look"), Record::RunOpened(Box::new(opened)), ended]);
        entries
            .iter()
            .map(|entry| format!("{entry:?}").split(' ').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    let owner = Owner::Run { session: child(), run: RunNo(1), call: call(1, 0) };
    assert_eq!(
        (by(owner), by(Owner::Person)),
        (vec!["Input".into(), "Ended".into()], vec!["Ended".into(), "Waiting".into()])
    );
}

#[test]
fn u2_asking_call_is_marked_until_it_is_answered() {
    let given = Record::AskOpened {
        call: call(1, 0),
        action: "fs.write".into(),
        resource: "a".into(),
        root: child(),
        deadline_at: None,
    };
    let word = Record::AskAnswered { call: call(1, 0), verdict: AskVerdict::Allow, by: AnsweredBy::Person };
    let asks = |records: Vec<Record>| {
        let mut entries = shown(records);
        entries[0].calls_mut()[0].asks
    };
    let open = vec![answered(1, None, &["write"]), given];
    assert!(asks(open.clone()));
    assert!(!asks(open.into_iter().chain([word]).collect()));
}

#[test]
fn late_results_go_to_their_calls() {
    let failed = CallEnd::ToolError { kind: ToolErrorKind::NotFound, retryable: false };
    let entries = shown(vec![
        answered(1, None, &["read", "task", "list"]),
        spawned(call(1, 1)),
        finished(call(1, 0), failed.clone(), "no such file"),
        notice(call(1, 1), Carrier::Result),
        answered(2, Some("so"), &[]),
    ]);
    let result = CallOutcome::Result { end: failed, content: "no such file".into(), truncated_from: None };
    let calls = vec![
        called(call(1, 0), "read", false, Some(result)),
        called(call(1, 1), "task", true, Some(CallOutcome::Ends(vec![end_of_child()]))),
        called(call(1, 2), "list", false, None),
    ];
    assert_eq!(entries, [answer(1, 1, None, calls), answer(2, 5, Some("so"), vec![])]);
}

#[test]
fn ends_of_background_children_are_separate_notices() {
    let entries = shown(vec![answered(1, Some(""), &["await"]), notice(call(9, 0), Carrier::Message)]);
    let waits = called(call(1, 0), "await", false, None);
    assert_eq!(entries, [answer(1, 1, None, vec![waits]), Entry::Notice { ends: vec![end_of_child()] }]);

    let entries = shown(vec![answered(1, None, &["await"]), notice(call(9, 0), Carrier::Await { call: call(1, 0) })]);
    let waits = called(call(1, 0), "await", false, Some(CallOutcome::Ends(vec![end_of_child()])));
    assert_eq!(entries, [answer(1, 1, None, vec![waits])]);
}
