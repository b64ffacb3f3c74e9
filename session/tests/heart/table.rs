//! Every cell of the table state × command, with hand-written expectations. A cell is `RECORDS REPLY > PHASE`;
//! `given/shown.rs` explains the names.

use crate::given::*;

mod approvals;
mod branches;
mod ends;
mod life;
mod work;

const COLUMNS: [Phase; 8] = [
    Phase::Queued,
    Phase::Working,
    Phase::WaitingMidTurn,
    Phase::WaitingAtRest,
    Phase::HeldInterrupted,
    Phase::HeldOutOfTurns,
    Phase::Closing,
    Phase::Quiet,
];

/// The activity of a session, for columns that allow several.
#[derive(Clone, Copy, PartialEq)]
enum Doing {
    /// Turn 2 streams.
    Stream,
    /// Turn 2 streams, and is the last allowed one.
    LastStream,
    /// Turn 2 runs a tool with side effects.
    Tool,
    /// Turn 2 called a child that is not admitted yet.
    Admission,
    /// Turn 2 waits for a slot after its blocking child has ended.
    Slot,
    /// Turn 2 streams, after a truncated answer.
    Prompted,
    /// Turn 2 streams, without owned runs.
    Alone,
    /// Turn 2 streams, and the notice of the owned run has arrived.
    NoticeArrived,
    /// Turn 2 called a child and a tool. The child is active, and the tool too if the column allows it.
    Both,
    /// Turn 2 awaits the background child.
    Await,
    /// Turn 2 continues the ended child 0xB1; the call is not admitted yet.
    Continue,
    /// A person's input is queued, in every column that allows it. In Quiet and Closing, the whole tree was cancelled.
    QueuedInput,
    /// Turn 2 called a tool that awaits approval and a reading tool, which is active if the column allows it.
    Asks,
    /// Like `Stream`, but a quiet session is closed.
    Closed,
    /// Like `Stream`, but a quiet session is deleted.
    Deleted,
}

/// Returns a child session in the column. In W, Wm, Wr and the holds it owns the background child 0xB1 by call 1.0.
fn given(column: Phase, doing: Doing) -> Heart {
    // Turn 2 is the last turn in Ho and for `LastStream`. In all other cases more turns are allowed.
    let last = column == Phase::HeldOutOfTurns || doing == Doing::LastStream;
    let queued = Heart::child_with(Limits::default(), if last { 2 } else { 50 });
    if column == Phase::Queued {
        return if doing == Doing::QueuedInput { queued.then(send(70, "later")) } else { queued };
    }
    let first = queued.then(admitted());
    if column == Phase::Quiet {
        return quiet(first, doing);
    }
    if column == Phase::Working && matches!(doing, Doing::Prompted | Doing::Alone | Doing::Continue) {
        return alone(first, doing);
    }
    let streams = first.then(calls(1, vec![background()])).then(spawn(1, Mode::Background, &[(0, 0xB1)]));
    let tool_runs = || streams.clone().then(calls(2, vec![writes()]));
    let asks = || streams.clone().then(calls(2, vec![blocking()]));
    let both = || {
        let streams_and_asks = streams.clone().then(calls(2, vec![blocking(), writes()]));
        streams_and_asks.then(spawn(2, Mode::Blocking, &[(0, 0xB2)]))
    };
    let waits = |heart: Heart| if doing == Doing::QueuedInput { heart.then(send(70, "later")) } else { heart };
    let awaits = CallKind::Check { run: RunKey { session: session(0xB1), run: RunNo(1) }, wait: true };
    let works = match doing {
        Doing::Tool => tool_runs(),
        Doing::Admission => asks(),
        Doing::Both => both(),
        Doing::NoticeArrived => streams.clone().then(ended(0xB1, call(1, 0))),
        Doing::Await => streams.clone().then(calls(2, vec![awaits.clone(), writes()])),
        Doing::QueuedInput => waits(streams.clone()),
        Doing::Asks => approvals::asks(streams.clone()),
        Doing::Stream
        | Doing::LastStream
        | Doing::Slot
        | Doing::Prompted
        | Doing::Alone
        | Doing::Continue
        | Doing::Closed
        | Doing::Deleted => streams.clone(),
    };
    let heart = match column {
        Phase::Working => works,
        Phase::WaitingMidTurn if doing == Doing::Slot => {
            asks().then(spawn(2, Mode::Blocking, &[(0, 0xB2)])).then(ended(0xB2, call(2, 0)))
        }
        Phase::WaitingMidTurn if doing == Doing::Asks => approvals::asks(streams).then(tool(2, 1, "read")),
        Phase::WaitingMidTurn if doing == Doing::Await => streams.then(calls(2, vec![awaits])),
        Phase::WaitingMidTurn => waits(asks().then(spawn(2, Mode::Blocking, &[(0, 0xB2)]))),
        // A run at rest takes steering inputs at once. A message waits for the end of an owned run.
        Phase::WaitingAtRest if matches!(doing, Doing::Slot | Doing::QueuedInput) => {
            waits(streams.then(answers(2, "so far")).then(steer(77, "and?")))
        }
        Phase::WaitingAtRest => streams.then(answers(2, "so far")),
        Phase::HeldInterrupted if doing == Doing::Tool => tool_runs().then(interrupt()),
        Phase::HeldInterrupted if doing == Doing::Both => both().then(interrupt()),
        Phase::HeldInterrupted => waits(streams.then(interrupt())),
        Phase::HeldOutOfTurns => tool_runs().then(tool(2, 0, "written")),
        Phase::Closing if doing == Doing::Tool => tool_runs().then(cancel()),
        Phase::Closing if doing == Doing::Both => both().then(cancel()),
        Phase::Closing if doing == Doing::QueuedInput => waits(streams).then(cancel_tree()),
        Phase::Closing => streams.then(cancel()),
        Phase::Queued | Phase::Quiet => unreachable!("built above"),
    };
    assert_eq!(heart.state.phase(), column, "the session is in its column");
    heart
}

fn quiet(first: Heart, doing: Doing) -> Heart {
    let by = Initiator::Person;
    match doing {
        Doing::QueuedInput => {
            first.then(send(70, "later")).then(cancel_tree()).then(attempt_failed(1, 1, ModelFail::Dropped))
        }
        Doing::Closed => first.then(answers(1, "all done")).then(Command::Close { by }),
        Doing::Deleted => first.then(answers(1, "all done")).then(Command::Delete { by }),
        Doing::Stream
        | Doing::LastStream
        | Doing::Tool
        | Doing::Admission
        | Doing::Slot
        | Doing::Prompted
        | Doing::Alone
        | Doing::NoticeArrived
        | Doing::Both
        | Doing::Await
        | Doing::Asks
        | Doing::Continue => first.then(answers(1, "all done")),
    }
}

/// Returns a session in turn 2 without owned runs in flight.
fn alone(first: Heart, doing: Doing) -> Heart {
    if doing == Doing::Prompted {
        return first.then(answer(1, 1, Some("half"), Vec::new(), Stop::Length));
    }
    let child = first.then(calls(1, vec![blocking()])).then(spawn(1, Mode::Blocking, &[(0, 0xB1)]));
    let streams = child.then(ended(0xB1, call(1, 0))).then(admitted());
    if doing == Doing::Continue { streams.then(calls(2, vec![CallKind::Continue(Mode::Blocking)])) } else { streams }
}

struct Row {
    name: &'static str,
    doing: Doing,
    command: fn() -> Command,
    /// The decision in each phase of [`COLUMNS`], in short: Q, W, Wm, Wr, Hi, Ho, Hc, E.
    cells: [&'static str; 8],
}

fn check_rows(rows: &[Row]) {
    let mut wrong = String::new();
    for row in rows {
        for (column, expected) in COLUMNS.into_iter().zip(row.cells) {
            let mut heart = given(column, row.doing);
            let decided = heart.decide((row.command)());
            let found = short(&heart, &decided);
            if found != expected {
                wrong +=
                    &format!("\n{} in {}:\n  expected {expected}\n     found {found}", row.name, self::column(column));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

const STALE: [&str; 8] = ["S"; 8];

#[test]
fn inputs() {
    check_rows(&[
        Row {
            name: "send",
            doing: Doing::Stream,
            command: || send(9, "more"),
            cells: [
                "accepted > Q",
                "accepted > W",
                "accepted > Wm",
                "accepted > Wr",
                "accepted > Hi",
                "accepted > Ho",
                "accepted > Hc",
                "accepted opened > Q",
            ],
        },
        Row {
            name: "steer",
            doing: Doing::Stream,
            command: || steer(9, "left"),
            cells: [
                "accepted > Q",
                "accepted > W",
                "accepted > Wm",
                "accepted taken parked(slot) > Wr",
                // The interrupt dropped the stream, which still counts as local work until it reports.
                "accepted > Hi",
                "accepted taken parked(slot) > Wm",
                "accepted > Hc",
                "accepted opened > Q",
            ],
        },
        Row {
            name: "send while a slot is awaited",
            doing: Doing::Slot,
            command: || send(9, "more"),
            cells: [
                "accepted > Q",
                "accepted > W",
                "accepted > Wm",
                "accepted > Wr",
                "accepted > Hi",
                "accepted > Ho",
                "accepted > Hc",
                "accepted opened > Q",
            ],
        },
    ]);
}

/// Returns a child in the column, in a second run that a person opened. Like [`given`], but the run owns 0xB1 by call 2.0.
fn persons_run(column: Phase) -> Heart {
    let turns = if column == Phase::HeldOutOfTurns { 2 } else { 50 };
    let first = Heart::child_with(Limits::default(), turns).then(admitted()).then(answers(1, "all done"));
    let queued = first.clone().then(send(60, "and this?"));
    let streams = || {
        let started = queued.clone().then(Command::Admitted { run: RunNo(2), owner_ended: None });
        started.then(calls(2, vec![background()])).then(spawn(2, Mode::Background, &[(0, 0xB1)]))
    };
    let heart = match column {
        Phase::Queued => queued,
        Phase::Working => streams(),
        Phase::WaitingMidTurn => {
            streams().then(calls(3, vec![blocking()])).then(spawn(3, Mode::Blocking, &[(0, 0xB2)]))
        }
        Phase::WaitingAtRest => streams().then(answers(3, "so far")),
        Phase::HeldInterrupted => streams().then(interrupt()),
        Phase::HeldOutOfTurns => streams().then(calls(3, vec![writes()])).then(tool(3, 0, "written")),
        Phase::Closing => streams().then(cancel()),
        Phase::Quiet => first,
    };
    assert_eq!(heart.state.phase(), column, "the session is in its column");
    heart
}

#[test]
fn k26_inputs_to_a_persons_run() {
    let message = [
        "accepted > Q",
        "accepted > W",
        "accepted > Wm",
        "accepted taken parked(slot) > Wr",
        "accepted > Hi",
        "accepted taken parked(slot) > Wm",
        "accepted > Hc",
        "accepted opened > Q",
    ];
    for command in [send, steer] {
        for (column, expected) in COLUMNS.into_iter().zip(message) {
            let mut heart = persons_run(column);
            assert_eq!(heart.summary(command(9, "more")), expected, "{}", self::column(column));
        }
    }
}

#[test]
fn slots_granted() {
    check_rows(&[
        Row {
            name: "admitted",
            doing: Doing::Stream,
            command: admitted,
            cells: ["started taken turn > W", "S", "S", "S", "S", "S", "S", "S"],
        },
        Row {
            name: "admitted for a due turn",
            doing: Doing::Slot,
            command: admitted,
            cells: ["started taken turn > W", "S", "resumed turn > W", "resumed turn > W", "S", "S", "S", "S"],
        },
        Row {
            name: "admitted, owner ended",
            doing: Doing::Slot,
            command: || Command::Admitted { run: RunNo(1), owner_ended: Some(OutcomeKind::TimedOut) },
            cells: [
                "ended(cancelled) > E",
                "S",
                "closing(cancelled) > Hc",
                "closing(cancelled) > Hc",
                "S",
                "S",
                "S",
                "S",
            ],
        },
        Row {
            name: "admitted, another run",
            doing: Doing::Slot,
            command: || Command::Admitted { run: RunNo(2), owner_ended: None },
            cells: STALE,
        },
    ]);
}
