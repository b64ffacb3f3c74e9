use subtend_session::outcome::ModelFail;
use subtend_session::record::{AttemptDiscarded, Prompt, Stop, TurnAnswered};
use subtend_session::usage::Usage;
use uuid::Uuid;

use super::*;

const SESSION: SessionId = SessionId(Uuid::from_u128(7));
const ROOT: SessionId = SessionId(Uuid::from_u128(1));

fn at(turn: u32, attempt: u32) -> Address {
    Address { session: SESSION, root: ROOT, run: RunNo(1), turn: TurnNo(turn), attempt: AttemptNo(attempt) }
}

fn text(text: &str) -> Delta {
    Delta::Text(text.into())
}

pub(crate) fn discarded(turn: u32, attempt: u32) -> Record {
    Record::AttemptDiscarded(Box::new(AttemptDiscarded {
        turn: TurnNo(turn),
        attempt: AttemptNo(attempt),
        error: ModelFail::Unavailable,
        message: "gone".into(),
        model: None,
        retry_delay_ms: None,
        awaits: None,
        usage: None,
        queued_ms: 0,
    }))
}

pub(crate) fn started(turn: u32, attempt: u32) -> Record {
    let (turn, attempt) = (TurnNo(turn), AttemptNo(attempt));
    Record::TurnStarted {
        run: RunNo(1),
        turn,
        attempt,
        prompt: Prompt::Plain,
        reserved: None,
        model: "m".into(),
        compacts: None,
    }
}

pub(crate) fn answered(turn: u32, attempt: u32) -> Record {
    Record::TurnAnswered(Box::new(TurnAnswered {
        run: RunNo(1),
        turn: TurnNo(turn),
        attempt: AttemptNo(attempt),
        text: Some("done".into()),
        reasoning: None,
        calls: Vec::new(),
        stop: Stop::End,
        model: None,
        usage: Usage::default(),
        answers: Vec::new(),
        worked_ms: 0,
        queued_ms: 0,
    }))
}

fn seen(what: Option<EventKind>) -> Option<(u64, Delta)> {
    let Some(EventKind::Delta { offset, delta, .. }) = what else { return None };
    Some((offset, delta))
}

fn all(events: Vec<Event>) -> Vec<(u64, Delta)> {
    events.into_iter().filter_map(|event| seen(Some(event.what))).collect()
}

#[test]
fn offsets_count_per_kind_and_late_readers_get_the_text() {
    let mut streams = Streams::default();
    let call = |ix| Delta::Call { call: CallId { turn: TurnNo(1), ix }, tool: "read".into() };
    let mut push = |delta| seen(streams.push(&at(1, 1), &delta)).map(|(offset, _)| offset);
    assert_eq!(push(text("Grü")), Some(0));
    assert_eq!(push(Delta::Reasoning("hm".into())), Some(0));
    assert_eq!(push(text("ße")), Some(4), "bytes, not characters");
    assert_eq!(push(call(0)), Some(0));
    assert_eq!(push(call(1)), Some(1));
    let late = all(streams.open_text(|root, session| (root, session) == (ROOT, SESSION)));
    assert_eq!(late, vec![(0, Delta::Reasoning("hm".into())), (0, text("Grüße")), (0, call(0)), (1, call(1))]);
    assert_eq!(all(streams.open_text(|_, _| false)), vec![]);
}

#[test]
fn long_text_is_kept_up_to_its_limit_and_continues_by_offset() {
    let mut streams = Streams::default();
    let piece = "x".repeat(400 << 10);
    for _ in 0..3 {
        streams.push(&at(1, 1), &text(&piece));
    }
    assert_eq!(seen(streams.push(&at(1, 1), &text("end"))), Some((3 * (400 << 10), text("end"))));
    let late = all(streams.open_text(|_, _| true));
    assert_eq!(late, vec![(0, text(&piece)), (400 << 10, text(&piece))], "the kept text has a gap");
}

/// A host keeps the text so far for each reader until its client reads it. The control: the end, which is copied.
#[test]
fn late_readers_share_the_text_so_far() {
    let mut streams = Streams::default();
    for _ in 0..40 {
        streams.push(&at(1, 1), &text(&"x".repeat(1 << 10)));
    }
    let [one, other] = [(); 2].map(|()| all(streams.open_text(|_, _| true)));
    let bytes = |(offset, delta): &(u64, Delta)| match delta {
        Delta::Text(text) => (*offset, text.len(), text.as_ptr()),
        Delta::Reasoning(_) | Delta::Call { .. } => panic!("{delta:?}"),
    };
    let (one, other): (Vec<_>, Vec<_>) = (one.iter().map(bytes).collect(), other.iter().map(bytes).collect());
    let shared: Vec<bool> = one.iter().zip(&other).map(|((.., one), (.., other))| one == other).collect();
    assert_eq!(shared, [true, true, false]);
    let places: Vec<_> = one.iter().map(|(offset, bytes, _)| (*offset, *bytes)).collect();
    assert_eq!(places, [(0, 16 << 10), (16 << 10, 16 << 10), (32 << 10, 8 << 10)]);
}

#[test]
fn retry_pieces_wait_until_its_start_was_published() {
    let mut streams = Streams::default();
    assert!(streams.push(&at(1, 1), &text("one")).is_some());
    // The in-process model is called before the batch of the retry is appended.
    assert!(streams.push(&at(1, 2), &text("tw")).is_none());
    assert!(streams.push(&at(1, 1), &text(" more")).is_none(), "the previous attempt is over");
    assert_eq!(all(streams.open_text(|_, _| true)), vec![], "a late subscriber gets the held piece");
    let ends = Ends::of(&[discarded(1, 1), started(1, 2)]);
    assert!(ends.failed());
    assert_eq!(all(streams.on_shown(SESSION, ends)), vec![(0, text("tw"))]);
    assert_eq!(seen(streams.push(&at(1, 2), &text("o"))), Some((2, text("o"))));
    assert_eq!(all(streams.on_shown(SESSION, Ends::of(&[answered(1, 2)]))), vec![]);
    assert!(streams.push(&at(1, 2), &text("late")).is_none(), "a piece after the answer is published");
    streams.done(SESSION, (TurnNo(1), AttemptNo(2)));
    assert_eq!(streams.len(), 0, "an ended stream is kept");
}

#[test]
fn retry_streams_at_once_after_its_start_was_shown() {
    let mut streams = Streams::default();
    streams.on_shown(SESSION, Ends::of(&[discarded(1, 1), started(1, 2)]));
    assert!(streams.push(&at(1, 2), &text("two")).is_some());
    // An attempt of a crashed activation ends without a record: only the start of the next attempt shows it.
    streams.on_shown(SESSION, Ends::of(&[started(1, 3)]));
    assert!(streams.push(&at(1, 2), &text("late")).is_none());
    assert!(streams.push(&at(1, 3), &text("three")).is_some());
    assert!(streams.push(&at(2, 1), &text("the next turn")).is_some());
}

#[test]
fn held_back_pieces_are_shown_after_their_call_ended() {
    let mut streams = Streams::default();
    streams.push(&at(1, 2), &text("two"));
    streams.done(SESSION, (TurnNo(1), AttemptNo(2)));
    assert_eq!(all(streams.on_shown(SESSION, Ends::of(&[discarded(1, 1), started(1, 2)]))), vec![(0, text("two"))]);
    streams.on_shown(SESSION, Ends::of(&[answered(1, 2)]));
    assert_eq!(streams.len(), 0);
}

#[test]
fn batch_shows_ended_and_started_attempts() {
    let place = |turn, attempt| Some((TurnNo(turn), AttemptNo(attempt)));
    assert_eq!(Ends::of(&[started(1, 1)]), Ends::default());
    let rest = Ends { over: place(2, 1), retry: None, failed: false, rest: true };
    assert_eq!(Ends::of(&[answered(1, 1), started(2, 1), answered(2, 1), started(3, 1)]), rest);
    let again = Ends { over: place(3, 1), retry: place(3, 2), failed: true, rest: false };
    assert_eq!(Ends::of(&[answered(2, 1), started(3, 1), discarded(3, 1), started(3, 2)]), again);
}
