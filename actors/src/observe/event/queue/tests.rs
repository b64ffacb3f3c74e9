use subtend_session::ids::{AttemptNo, Hash, RunNo, Text, TurnNo};
use subtend_session::outcome::{Initiator, Outcome};
use subtend_session::place::{Mode, OnRestart, Owner};
use subtend_session::record::{
    CallFinished, From, InputAccepted, Prompt, RunEnded, RunOpened, Stop, ToolCall, TurnAnswered,
};
use subtend_session::usage::Usage;
use uuid::Uuid;

use super::*;

fn id(n: u32) -> InputId {
    InputId(Uuid::from_u128(n.into()))
}

fn input(n: u32, from: From, lane: Lane) -> Record {
    Record::InputAccepted(Box::new(InputAccepted::new(id(n), from, lane, n.to_string(), Owner::Person)))
}

fn send(n: u32) -> Record {
    input(n, From::Person, Lane::Send)
}

fn opened(run: u32, inputs: &[u32]) -> Record {
    Record::RunOpened(Box::new(RunOpened {
        run: RunNo(run),
        owner: Owner::Person,
        inputs: inputs.iter().map(|n| id(*n)).collect(),
        mode: Mode::Background,
        max_turns: 50,
        base_turns: 0,
        deadline_ms: None,
        wall_cap_at: None,
        on_restart: OnRestart::Fail,
        slot: false,
    }))
}

fn started(run: u32) -> Record {
    Record::RunStarted { run: RunNo(run), slot: false }
}

fn took(ids: &[u32]) -> Record {
    Record::InputsTaken { ids: ids.iter().map(|n| id(*n)).collect(), run: RunNo(1), turn: TurnNo(1) }
}

fn turn(no: u32) -> Record {
    let (run, turn, attempt) = (RunNo(1), TurnNo(no), AttemptNo(1));
    Record::TurnStarted { run, turn, attempt, prompt: Prompt::Plain, reserved: None, model: "m".into(), compacts: None }
}

fn answered(no: u32, calls: u32) -> Record {
    let call = |_| ToolCall { provider_id: "c".into(), tool: "t".into(), args: "{}".into() };
    Record::TurnAnswered(Box::new(TurnAnswered {
        run: RunNo(1),
        turn: TurnNo(no),
        attempt: AttemptNo(1),
        text: None,
        reasoning: None,
        calls: (0..calls).map(call).collect(),
        stop: Stop::End,
        model: None,
        usage: Usage::default(),
        answers: Vec::new(),
        worked_ms: 0,
        queued_ms: 0,
    }))
}

fn finished(turn: u32, ix: u32) -> Record {
    Record::CallFinished(Box::new(CallFinished {
        call: CallId { turn: TurnNo(turn), ix },
        end: subtend_session::call::CallEnd::Ok,
        content: "".into(),
        truncated_from: None,
        worked_ms: 0,
    }))
}

fn ended(run: u32, keeps_queue: bool) -> Record {
    Record::RunEnded(Box::new(RunEnded {
        run: RunNo(run),
        outcome: Outcome::Completed,
        result: None,
        returned: None,
        text: None,
        len: 0,
        hash: Hash::of(b""),
        turns: 1,
        usage_self: Usage::default(),
        usage_owned: Usage::default(),
        worked_ms: 0,
        keeps_queue,
        gave_up: None,
    }))
}

/// Encodes each event: `queued 2: b` as `2+b`, `processing b` as `b`, `empty` as `-`.
fn events(records: &[Record]) -> Vec<String> {
    let mut queue = QueueEvents::default();
    let word = |event| match event {
        QueueEvent::Queued { count, message } => format!("{count}+{}", message.text),
        QueueEvent::Processing { message } => Text::to_string(&message.text),
        QueueEvent::Empty => "-".to_owned(),
    };
    (1..).zip(records).flat_map(|(seq, record)| queue.add(Seq(seq), record)).map(word).collect()
}

#[test]
fn input_of_an_idle_session_is_processed_without_queueing() {
    let first = [send(1), opened(1, &[1]), started(1), took(&[1]), turn(1), answered(1, 0), ended(1, false)];
    assert_eq!(events(&first), ["1"]);
}

#[test]
fn input_during_a_model_or_tool_call_is_held_until_taken() {
    let records = [
        send(1),
        opened(1, &[1]),
        started(1),
        took(&[1]),
        turn(1),
        send(2),
        answered(1, 1),
        send(3),
        finished(1, 0),
        turn(2),
        answered(2, 0),
        took(&[2]),
        turn(3),
        answered(3, 0),
        ended(1, false),
        opened(2, &[3]),
        started(2),
        took(&[3]),
    ];
    assert_eq!(events(&records), ["1", "1+2", "2+3", "2", "3", "-"]);
}

#[test]
fn input_is_taken_at_once_at_rest_and_not_while_closing() {
    let at_rest = [send(1), opened(1, &[1]), started(1), took(&[1]), turn(1), answered(1, 0)];
    let continues = [send(2), took(&[2]), turn(2)];
    assert_eq!(events(&[&at_rest[..], &continues].concat()), ["1", "2"]);
    let outcome = Outcome::Cancelled { by: Initiator::Person };
    let closing = Record::RunHeld { run: RunNo(1), why: Box::new(Hold::Closing { outcome, keeps_queue: false }) };
    let closes = [closing, send(2), ended(1, false), opened(2, &[2])];
    assert_eq!(events(&[&at_rest[..], &closes].concat()), ["1", "1+2", "2", "-"]);
}

#[test]
fn run_without_a_slot_queues_inputs() {
    let records = [send(1), opened(1, &[1]), send(2), started(1), took(&[1]), turn(1)];
    assert_eq!(events(&records), ["1", "1+2"]);
}

#[test]
fn removing_and_clearing_empty_the_queue_once() {
    let by = Initiator::Person;
    let removed = |n| Record::QueueChanged { change: QueueChange::Removed(vec![id(n)]), by: by.clone() };
    let cleared = Record::QueueChanged { change: QueueChange::Cleared, by: by.clone() };
    let records = [
        send(1),
        opened(1, &[1]),
        started(1),
        took(&[1]),
        turn(1),
        send(2),
        send(3),
        removed(2),
        removed(3),
        send(4),
        send(5),
        cleared,
    ];
    assert_eq!(events(&records), ["1", "1+2", "2+3", "-", "1+4", "2+5", "-"]);
}

#[test]
fn input_left_by_a_tree_cancel_precedes_a_later_one() {
    let before = [send(1), opened(1, &[1]), started(1), took(&[1]), turn(1), send(2), ended(1, true)];
    let person = [send(3), opened(2, &[2]), started(2), took(&[2])];
    assert_eq!(events(&[&before[..], &person].concat()), ["1", "1+2", "2+3", "2"]);
    // An agent's result never precedes a person's input.
    let result = [input(3, From::AgentResult, Lane::Send), opened(2, &[2])];
    assert_eq!(events(&[&before[..], &result].concat()), ["1", "1+2", "2+3", "2"]);
}
