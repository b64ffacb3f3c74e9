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

fn ended(outcome: Outcome) -> Record {
    Record::RunEnded(Box::new(RunEnded {
        run: RunNo(1),
        outcome,
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
    }))
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

fn stored(records: Vec<Record>) -> Vec<Stored> {
    let stored = |(record, n): (Record, u64)| Stored { seq: Seq(n), at_ms: 7, epoch: Epoch(1), record };
    records.into_iter().zip(1..).map(stored).collect()
}

fn built(stored: &[Stored], how: TranscriptReading) -> (Vec<ShownEntry>, usize, Option<Seq>) {
    let mut builder = EntryBuilder::new(how);
    stored.iter().for_each(|stored| builder.add(stored));
    builder.build()
}

fn shown(records: Vec<Record>) -> Vec<Entry> {
    let (shown, _, _) = built(&stored(records), TranscriptReading::default());
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
        let entries = shown(vec![accepted(1, "look"), Record::RunOpened(Box::new(opened)), ended(Outcome::Lost)]);
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

/// Records whose entries begin with records 4 (two of them), 5, 9, 10, 12, 13 and 14 (two waiting inputs).
fn records_of_entries() -> Vec<Stored> {
    stored(vec![
        accepted(1, "first"),
        accepted(2, "second"),
        Record::RunStarted { run: RunNo(1), slot: true },
        taken(&[1, 2]),
        answered(1, Some("looks"), &["task", "read"]),
        spawned(call(1, 0)),
        accepted(3, "third"),
        accepted(4, "fourth"),
        notice(call(1, 0), Carrier::Message),
        answered(2, None, &["read"]),
        finished(call(1, 1), CallEnd::Ok, "late"),
        ended(Outcome::Completed),
        Record::RolledBack { run: RunNo(1), by: Initiator::Person },
        finished(call(2, 0), CallEnd::Ok, "read"),
    ])
}

/// Each page is the part of all entries that it names, with what later records say about it.
#[test]
fn pages_are_parts_of_all_entries() {
    let stored = records_of_entries();
    let (all, ..) = built(&stored, TranscriptReading::default());
    assert_eq!(all.iter().map(|shown| shown.record.0).collect::<Vec<_>>(), [4, 4, 5, 9, 10, 12, 13, 14, 14]);
    for (after, limit) in (0..=15).flat_map(|after| (1..=10).map(move |limit| (Seq(after), limit))) {
        let rest = all.iter().filter(|shown| shown.record > after);
        let last = rest.clone().take(limit).last().map_or(Seq(0), |shown| shown.record);
        let page = rest.clone().filter(|shown| shown.record <= last).cloned().collect::<Vec<_>>();
        let next = (page.len() < rest.count()).then_some(last);
        let how = TranscriptReading { after, limit: Some(limit), ..TranscriptReading::default() };
        assert_eq!(built(&stored, how), (page, 0, next), "after {after}, limit {limit}");
    }
}

/// The entries of one record are kept or dropped together, and waiting inputs are not counted.
#[test]
fn newest_entries_are_the_last_of_all() {
    let stored = records_of_entries();
    let (all, ..) = built(&stored, TranscriptReading::default());
    for (newest, kept) in [(0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7), (6, 9), (7, 9), (usize::MAX, 9)] {
        let how = TranscriptReading { newest: Some(newest), ..TranscriptReading::default() };
        let (shown, earlier, next) = built(&stored, how);
        assert_eq!((shown.as_slice(), earlier, next), (&all[9 - kept..], 9 - kept, None), "newest {newest}");
    }
}

/// Attack: a session of many large texts. The control: a view of all entries has all of them.
#[test]
fn texts_of_other_pages_are_not_kept() {
    let text = "x".repeat(1 << 20);
    let many = || stored((1..=40).map(|turn| answered(turn, Some(&text), &[])).collect());
    let bytes = |how: TranscriptReading| {
        let (shown, earlier, next) = built(&many(), how);
        (shown.len(), earlier, next)
    };
    let page = |after, limit| TranscriptReading { after: Seq(after), limit, ..TranscriptReading::default() };
    assert_eq!(bytes(page(0, None)), (40, 0, None));
    assert_eq!(bytes(page(10, Some(100))), (8, 0, Some(Seq(18))));
    let newest = TranscriptReading { newest: Some(100), ..TranscriptReading::default() };
    assert_eq!(bytes(newest), (32, 8, None));
    // Neither do entries that are not on the page keep theirs.
    let all = many();
    let is_kept = |stored: &Stored| {
        let Record::TurnAnswered(answered) = &stored.record else { return false };
        std::sync::Arc::strong_count(answered.text.as_ref().expect("a text")) > 1
    };
    let mut builder = EntryBuilder::new(page(10, Some(3)));
    all.iter().for_each(|stored| builder.add(stored));
    let kept = all.iter().filter(|stored| is_kept(stored)).map(|stored| stored.seq.0).collect::<Vec<_>>();
    assert_eq!(kept, [11, 12, 13]);
}
