use crate::given::*;
use subtend_session::record::From;

use super::{Doing, Row, STALE, check_rows};

const REFUSED: [&str; 7] = [
    "continue_refused > Q",
    "continue_refused > W",
    "continue_refused > Wm",
    "continue_refused > Wr",
    "continue_refused > Hi",
    "continue_refused > Ho",
    "continue_refused > Hc",
];

/// Appends the cell for a session without a run in flight.
fn with_quiet(in_flight: [&'static str; 7], quiet: &'static str) -> [&'static str; 8] {
    let [q, w, wm, wr, hi, ho, hc] = in_flight;
    [q, w, wm, wr, hi, ho, hc, quiet]
}

fn continue_row() -> Command {
    continued(call(9, 0), None)
}

#[test]
fn continue_rows() {
    let row = |name, doing, command, quiet| Row { name, doing, command, cells: with_quiet(REFUSED, quiet) };
    check_rows(&[
        row("continue", Doing::Stream, continue_row, "accepted opened > Q"),
        row("continue, an input is queued", Doing::QueuedInput, continue_row, "accepted opened > Q"),
        row("continue of a closed session", Doing::Closed, continue_row, "continue_refused > E"),
        row("continue of a deleted session", Doing::Deleted, continue_row, "continue_refused > E"),
        row(
            "continue, its owner ended",
            Doing::Stream,
            || continued(call(9, 0), Some(OutcomeKind::Cancelled)),
            "accepted opened ended(cancelled) > E",
        ),
        // Inputs that a cancel of the tree left queued stay queued.
        row(
            "continue, its owner ended, an input is queued",
            Doing::QueuedInput,
            || continued(call(9, 0), Some(OutcomeKind::Cancelled)),
            "accepted opened ended(cancelled) > E",
        ),
    ]);
}

#[test]
fn admissions_of_continues() {
    let only = |w| ["S", w, "S", "S", "S", "S", "S", "S"];
    let row = |name, doing, command, w| Row { name, doing, command, cells: only(w) };
    check_rows(&[
        row("continue, blocking", Doing::Continue, || continue_children(2, Mode::Blocking, &[(0, 0xB1)]), {
            "+0 continue_asked parked(midturn) > Wm"
        }),
        row("continue, background", Doing::Continue, || continue_children(2, Mode::Background, &[(0, 0xB1)]), {
            "+0 continue_asked -0:ok turn > W"
        }),
        row("continue of an unknown child", Doing::Continue, || continue_children(2, Mode::Blocking, &[(0, 0xEE)]), {
            "+0 -0:error turn > W"
        }),
        row("continue of a child active", Doing::Admission, || continue_children(2, Mode::Blocking, &[(0, 0xB1)]), {
            "+0 -0:error turn > W"
        }),
        row("continue, refused by the ledger", Doing::Continue, refused, "+0 -0:error turn > W"),
        row("spawn, detached", Doing::Admission, detached, "+0 spawned -0:ok turn > W"),
    ]);
}

fn refused() -> Command {
    let refusal = Refusal { kind: ToolErrorKind::Limit, message: "no spawns remain".into() };
    Command::Spawn { turn: TurnNo(2), verdicts: vec![SpawnVerdict { call: call(2, 0), verdict: Err(refusal) }] }
}

fn detached() -> Command {
    let plan = ChildPlan { detached_ms: Some(3_600_000), ..plan(0xB2, Mode::Blocking) };
    let verdict = SpawnVerdict { call: call(2, 0), verdict: Ok(Plan::Child(Box::new(plan))) };
    Command::Spawn { turn: TurnNo(2), verdicts: vec![verdict] }
}

#[test]
fn cancel_rows() {
    check_rows(&[
        Row {
            name: "owner cancels",
            doing: Doing::Stream,
            command: || owner_cancels(call(1, 0)),
            cells: [
                "ended(cancelled) > E",
                "closing(cancelled) > Hc",
                "closing(cancelled) > Hc",
                "closing(cancelled) > Hc",
                "closing(cancelled) > Hc",
                "closing(cancelled) > Hc",
                "> Hc",
                "S",
            ],
        },
        Row {
            name: "owner cancels, an input is queued",
            doing: Doing::QueuedInput,
            command: || owner_cancels(call(1, 0)),
            cells: [
                "ended(cancelled) opened > Q",
                "closing(cancelled) > Hc",
                "closing(cancelled) > Hc",
                "closing(cancelled) > Hc",
                "closing(cancelled) > Hc",
                "closing(cancelled) > Hc",
                "> Hc",
                "S",
            ],
        },
        Row {
            name: "owner cancels another run",
            doing: Doing::Stream,
            command: || owner_cancels(call(9, 0)),
            cells: STALE,
        },
        Row {
            name: "another session cancels",
            doing: Doing::Stream,
            command: || Command::OwnerCancels { owner: session(0xEE), key: call(1, 0), by: Initiator::Person },
            cells: STALE,
        },
    ]);
}

#[test]
fn cancels_of_the_tree() {
    let done = "closing(cancelled) Done > Hc";
    let row = |name, doing, command, cells| Row { name, doing, command, cells };
    check_rows(&[
        row("cancel tree", Doing::Stream, cancel_tree, {
            ["ended(cancelled) Done > E", done, done, done, done, done, done, "AE(completed) > E"]
        }),
        row("cancel tree, an input is queued", Doing::QueuedInput, cancel_tree, {
            ["ended(cancelled) Done > E", done, done, done, done, done, "Done > Hc", "AE(cancelled) > E"]
        }),
        row("cancel, an input is queued", Doing::QueuedInput, cancel, {
            ["ended(cancelled) opened Done > Q", done, done, done, done, done, "Done > Hc", "AE(cancelled) > E"]
        }),
        row("send, an input is queued", Doing::QueuedInput, || send(9, "more"), {
            [
                "accepted > Q",
                "accepted > W",
                "accepted > Wm",
                "accepted > Wr",
                "accepted > Hi",
                "accepted > Ho",
                "accepted > Hc",
                "accepted opened > Q",
            ]
        }),
    ]);
}

#[test]
fn moves_to_the_background() {
    let at = |ix, turn| -> fn() -> Command {
        match (turn, ix) {
            (1, _) => || Command::Background { call: call(1, 0) },
            (_, 0) => || Command::Background { call: call(2, 0) },
            _ => || Command::Background { call: call(2, 1) },
        }
    };
    let row = |name, doing, command, cells| Row { name, doing, command, cells };
    let (hc, e) = ("AE(cancelled) > Hc", "AE(completed) > E");
    let only = "background does not fit: only a call that waits for a task can be moved to the background";
    check_rows(&[
        row("background, the only call", Doing::Stream, at(0, 2), {
            ["NF > Q", "NF > W", "-0:backgrounded parked(slot) Done > Wm", "NF > Wr", "NF > Hi", "NF > Ho", hc, e]
        }),
        row("background, a tool active next to it", Doing::Both, at(0, 2), {
            [
                "NF > Q",
                "-0:backgrounded Done > W",
                "-0:backgrounded parked(slot) Done > Wm",
                "NF > Wr",
                "NF > Hi",
                "NF > Ho",
                hc,
                e,
            ]
        }),
        row("background, already in the background", Doing::Stream, at(0, 1), {
            ["NF > Q", "Done > W", "Done > Wm", "Done > Wr", "Done > Hi", "Done > Ho", hc, e]
        }),
        row("background, a tool", Doing::Both, at(1, 2), {
            ["NF > Q", only, "NF > Wm", "NF > Wr", "NF > Hi", "NF > Ho", hc, e]
        }),
        row("background, a call that has not started", Doing::Admission, at(0, 2), {
            [
                "NF > Q",
                "background does not fit: the call has not started",
                "-0:backgrounded parked(slot) Done > Wm",
                "NF > Wr",
                "NF > Hi",
                "NF > Ho",
                hc,
                e,
            ]
        }),
    ]);
}

fn change(change: QueueChange) -> Command {
    Command::ChangeQueue { change, by: Initiator::Person }
}

#[test]
fn changes_of_the_queue() {
    let each = |word: &str| super::COLUMNS.map(|at| -> &'static str { format!("{word} > {}", column(at)).leak() });
    // A run out of turns takes an input at once, so its queue is empty.
    let changed = {
        let mut cells = each("queue_changed Done");
        cells[5] = "Done > Ho";
        cells
    };
    let removed = {
        let mut cells = changed;
        cells[5] = "NF > Ho";
        cells
    };
    let deleted = |cells: [&'static str; 8]| {
        let mut cells = cells;
        cells[7] = "the session is deleted";
        cells
    };
    let clear = || change(QueueChange::Cleared);
    let row = |name, doing, command, cells| Row { name, doing, command, cells };
    check_rows(&[
        row("clear", Doing::QueuedInput, clear, changed),
        row("clear, empty queue", Doing::Stream, clear, each("Done")),
        row("clear in a deleted session", Doing::Deleted, clear, deleted(each("Done"))),
        row("remove", Doing::QueuedInput, || change(QueueChange::Removed(vec![input_id(70)])), removed),
        row("remove a taken input", Doing::QueuedInput, || change(QueueChange::Removed(vec![input_id(1)])), each("NF")),
        row("remove a queued and an unknown input", Doing::QueuedInput, both, each("NF")),
    ]);
}

fn both() -> Command {
    change(QueueChange::Removed(vec![input_id(70), input_id(71)]))
}

#[test]
fn closing_and_deleting() {
    let working = |command: &str, quiet: &'static str| {
        let cell: &'static str = format!("cannot {command}: a run is in flight: wait for its end, or cancel it").leak();
        with_quiet([cell; 7], quiet)
    };
    let close = || Command::Close { by: Initiator::Person };
    let delete = || Command::Delete { by: Initiator::Person };
    let row = |name, doing, command, cells| Row { name, doing, command, cells };
    let waits = "busy: inputs are queued (1): wait until they are processed, or clear the queue";
    check_rows(&[
        row("close", Doing::Stream, close, working("close", "session_closed Done > E")),
        row("close, an input is queued", Doing::QueuedInput, close, working("close", waits)),
        row("close again", Doing::Closed, close, working("close", "Done > E")),
        row("close of a deleted session", Doing::Deleted, close, working("close", "the session is deleted")),
        row("delete", Doing::Stream, delete, working("delete", "session_deleted Done > E")),
        row("delete, an input is queued", Doing::QueuedInput, delete, {
            working("delete", "queue_changed session_deleted Done > E")
        }),
        row("delete of a closed session", Doing::Closed, delete, working("delete", "session_deleted Done > E")),
        row("delete again", Doing::Deleted, delete, working("delete", "Done > E")),
    ]);
}

#[test]
fn inputs_of_the_host_and_to_closed_or_deleted_sessions() {
    let sends = |quiet| {
        [
            "accepted > Q",
            "accepted > W",
            "accepted > Wm",
            "accepted > Wr",
            "accepted > Hi",
            "accepted > Ho",
            "accepted > Hc",
            quiet,
        ]
    };
    let row = |name, doing, command, cells| Row { name, doing, command, cells };
    let host: fn() -> Command =
        || Command::Submit(Box::new(InputAccepted { from: From::Host, ..input(9, "the build is done", Lane::Send) }));
    check_rows(&[
        row("send of the host", Doing::Stream, host, sends("accepted opened > Q")),
        row("send to a closed session", Doing::Closed, || send(9, "more"), {
            sends("session_reopened accepted opened > Q")
        }),
        row("send to a deleted session", Doing::Deleted, || send(9, "more"), sends("the session is deleted")),
        row("steer to a deleted session", Doing::Deleted, || steer(9, "more"), {
            let mut steers = sends("the session is deleted");
            (steers[3], steers[5]) = ("accepted taken parked(slot) > Wr", "accepted taken parked(slot) > Wm");
            steers
        }),
    ]);
}

#[test]
fn refusals_of_owned_sessions() {
    check_rows(&[Row {
        name: "refused, its call closed",
        doing: Doing::Stream,
        command: || completion_command(call(1, 0)),
        cells: [
            "S",
            "> W",
            "> Wm",
            "message[1] parked(slot) > Wr",
            "message[1] > Hi",
            "message[1] ended(out_of_turns) > E",
            "message[1] > Hc",
            "S",
        ],
    }]);
}

fn completion_command(key: CallId) -> Command {
    Command::OwnedEnded(vec![refusal_from(session(0xB1), key, ContinueRefusal::InFlight)])
}
