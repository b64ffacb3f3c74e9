use super::{Doing, Row, STALE, check_rows};
use crate::given::*;

#[test]
fn ends_of_owned_runs() {
    check_rows(&[
        Row {
            name: "owned ended, its call open",
            doing: Doing::Stream,
            command: || ended(0xB2, call(2, 0)),
            cells: ["S", "S", "result parked(slot) > Wm", "S", "S", "S", "S", "S"],
        },
        Row {
            name: "owned ended, its call closed, waking",
            doing: Doing::Stream,
            command: || ended(0xB1, call(1, 0)),
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
        },
        Row {
            name: "owned ended, its call closed, cancelled by a person",
            doing: Doing::Stream,
            command: || {
                Command::OwnedEnded(vec![notice(0xB1, call(1, 0), Outcome::Cancelled { by: Initiator::Person }, "")])
            },
            cells: [
                "S",
                "> W",
                "> Wm",
                "message[1] ended(completed) > E",
                "message[1] > Hi",
                "message[1] ended(out_of_turns) > E",
                "message[1] > Hc",
                "S",
            ],
        },
        Row {
            name: "owned ended, its call open, a tool active next to it",
            doing: Doing::Both,
            command: || ended(0xB2, call(2, 0)),
            cells: ["S", "result > W", "result parked(slot) > Wm", "S", "result > Hi", "S", "result > Hc", "S"],
        },
        Row {
            name: "owned ended, covered by an open check",
            doing: Doing::Await,
            command: || ended(0xB1, call(1, 0)),
            cells: [
                "S",
                "await[1] > W",
                "await[1] parked(slot) > Wm",
                "message[1] parked(slot) > Wr",
                "message[1] > Hi",
                "message[1] ended(out_of_turns) > E",
                "message[1] > Hc",
                "S",
            ],
        },
    ]);
}

#[test]
fn ends_of_other_runs_of_children() {
    check_rows(&[Row {
        name: "a person's run of a child ended",
        doing: Doing::Stream,
        command: || Command::OwnedEnded(vec![persons_end(0xB1, 2)]),
        cells: [
            "message[1] > Q",
            "> W",
            "> Wm",
            "message[1] > Wr",
            "message[1] > Hi",
            "message[1] > Ho",
            "message[1] > Hc",
            "message[1] > E",
        ],
    }]);
}

#[test]
fn cancels() {
    let end = |quiet| {
        [
            "ended(cancelled) > E",
            "closing(cancelled) > Hc",
            "closing(cancelled) > Hc",
            "closing(cancelled) > Hc",
            "closing(cancelled) > Hc",
            "closing(cancelled) > Hc",
            "> Hc",
            quiet,
        ]
    };
    let done = |cell: &'static str| -> &'static str { Box::leak(cell.replace(" >", " Done >").into_boxed_str()) };
    let cancel_cells = end("AE(completed) > E").map(|cell| match cell {
        "> Hc" => "Done > Hc",
        "AE(completed) > E" => cell,
        other => done(other),
    });
    check_rows(&[
        Row { name: "cancel", doing: Doing::Stream, command: cancel, cells: cancel_cells },
        Row {
            name: "cancel of an unknown run",
            doing: Doing::Stream,
            command: || Command::Cancel { run: Some(RunNo(9)), by: Initiator::Host, keeps_queue: false },
            cells: ["NF > Q", "NF > W", "NF > Wm", "NF > Wr", "NF > Hi", "NF > Ho", "NF > Hc", "NF > E"],
        },
        Row {
            name: "owner ended",
            doing: Doing::Stream,
            command: || Command::OwnerEnded { owner: owner_run(), outcome: OutcomeKind::Cancelled, keeps_queue: false },
            cells: end("S"),
        },
        Row {
            name: "owner ended, with its whole tree",
            doing: Doing::Stream,
            command: || Command::OwnerEnded { owner: owner_run(), outcome: OutcomeKind::Cancelled, keeps_queue: true },
            cells: end("S").map(|cell| if cell == "> Hc" { "closing(cancelled) > Hc" } else { cell }),
        },
        Row {
            name: "owner of another run ended",
            doing: Doing::Stream,
            command: || Command::OwnerEnded {
                owner: RunKey { run: RunNo(2), ..owner_run() },
                outcome: OutcomeKind::Cancelled,
                keeps_queue: false,
            },
            cells: STALE,
        },
    ]);
}

#[test]
fn interrupts() {
    let cells = |working, mid_turn| {
        [
            "ended(interrupted) Done > E",
            working,
            mid_turn,
            "held(interrupted) Done > Hi",
            "Done > Hi",
            "Done > Ho",
            "AE(cancelled) > Hc",
            "AE(completed) > E",
        ]
    };
    let held = "held(interrupted) Done > Hi";
    let cancels_child = "held(interrupted) cancel_asked Done > Hi";
    let row = |name, doing, cells| Row { name, doing, command: interrupt, cells };
    check_rows(&[
        row("interrupt", Doing::Stream, cells(held, cancels_child)),
        row("interrupt, a tool active", Doing::Tool, cells(held, cancels_child)),
        row(
            "interrupt, a call not admitted",
            Doing::Admission,
            cells("-0:interrupted held(interrupted) Done > Hi", cancels_child),
        ),
        row("interrupt while a slot is awaited", Doing::Slot, cells(held, held)),
    ]);
}

#[test]
fn deadlines() {
    let timed_out = |queued: &'static str, closing: &'static str| {
        let end = "closing(timed_out) > Hc";
        [queued, end, end, end, end, end, closing, "S"]
    };
    check_rows(&[
        Row {
            name: "deadline run",
            doing: Doing::Stream,
            command: || Command::Deadline(Deadline::Run(RunNo(1))),
            cells: ["S", "closing(timed_out) > Hc", "S", "S", "S", "S", "S", "S"],
        },
        Row {
            name: "deadline queue",
            doing: Doing::Stream,
            command: || Command::Deadline(Deadline::Queue(RunNo(1))),
            cells: ["ended(timed_out) > E", "S", "S", "S", "S", "S", "S", "S"],
        },
        Row {
            name: "deadline turn",
            doing: Doing::Stream,
            command: || Command::Deadline(Deadline::Turn(TurnNo(2))),
            cells: ["S", "closing(timed_out) > Hc", "S", "S", "S", "S", "S", "S"],
        },
        Row {
            name: "deadline turn, its model has answered",
            doing: Doing::Tool,
            command: || Command::Deadline(Deadline::Turn(TurnNo(2))),
            cells: STALE,
        },
        Row {
            name: "deadline wall cap",
            doing: Doing::Stream,
            command: || Command::Deadline(Deadline::WallCap(RunNo(1))),
            cells: timed_out("ended(timed_out) > E", "> Hc"),
        },
        Row {
            name: "deadline grace, a stream",
            doing: Doing::Stream,
            command: || Command::Deadline(Deadline::Grace(RunNo(1))),
            cells: ["S", "S", "S", "S", "discarded > Hi", "S", "discarded > Hc", "S"],
        },
        Row {
            name: "deadline grace, a tool",
            doing: Doing::Tool,
            command: || Command::Deadline(Deadline::Grace(RunNo(1))),
            cells: ["S", "S", "S", "S", "-0:unknown > Hi", "S", "-0:unknown > Hc", "S"],
        },
        Row {
            name: "deadline of another run",
            doing: Doing::Stream,
            command: || Command::Deadline(Deadline::WallCap(RunNo(4))),
            cells: STALE,
        },
    ]);
}

#[test]
fn deadlines_of_calls() {
    check_rows(&[
        Row {
            name: "deadline call",
            doing: Doing::Tool,
            command: || Command::Deadline(Deadline::Call(call(2, 0))),
            cells: ["S", "-0:timed_out turn > W", "S", "S", "S", "S", "S", "S"],
        },
        Row {
            name: "deadline call, a check",
            doing: Doing::Await,
            command: || Command::Deadline(Deadline::Call(call(2, 0))),
            cells: ["S", "-0:timed_out > W", "-0:timed_out parked(slot) > Wm", "S", "S", "S", "S", "S"],
        },
        Row {
            name: "deadline call, a child's",
            doing: Doing::Both,
            command: || Command::Deadline(Deadline::Call(call(2, 0))),
            cells: STALE,
        },
    ]);
}

fn reactivated() -> Command {
    Command::Reactivated { calls: vec![FoundCall::plain(call(2, 0), blocking())], owner_ended: None }
}

#[test]
fn activations() {
    check_rows(&[
        Row {
            name: "reactivated, a stream",
            doing: Doing::Stream,
            command: reactivated,
            cells: ["> Q", "turn#2 > W", "> Wm", "> Wr", "discarded > Hi", "> Ho", "discarded > Hc", "> E"],
        },
        Row {
            name: "reactivated, a tool with side effects",
            doing: Doing::Tool,
            command: reactivated,
            cells: ["> Q", "-0:unknown turn > W", "> Wm", "> Wr", "-0:unknown > Hi", "> Ho", "-0:unknown > Hc", "> E"],
        },
        Row {
            name: "reactivated, a call not admitted",
            doing: Doing::Admission,
            command: reactivated,
            cells: ["> Q", "> W", "> Wm", "> Wr", "discarded > Hi", "> Ho", "discarded > Hc", "> E"],
        },
        Row {
            name: "reactivated, owner ended",
            doing: Doing::Stream,
            command: || Command::Reactivated { calls: Vec::new(), owner_ended: Some(OutcomeKind::Failed) },
            cells: [
                "ended(cancelled) > E",
                "discarded closing(cancelled) > Hc",
                "closing(cancelled) > Hc",
                "closing(cancelled) > Hc",
                "discarded closing(cancelled) > Hc",
                "closing(cancelled) > Hc",
                "discarded > Hc",
                "> E",
            ],
        },
    ]);
}

#[test]
fn activations_ending_runs() {
    check_rows(&[
        Row {
            name: "restarts exhausted",
            doing: Doing::Stream,
            command: || Command::RestartsExhausted { command: Some("tool_finished".into()) },
            cells: [
                "ended(restarts_exhausted) > E",
                "discarded closing(restarts_exhausted) > Hc",
                "closing(restarts_exhausted) > Hc",
                "closing(restarts_exhausted) > Hc",
                "discarded closing(restarts_exhausted) > Hc",
                "closing(restarts_exhausted) > Hc",
                "discarded > Hc",
                "S",
            ],
        },
        Row {
            name: "lost, a stream",
            doing: Doing::Stream,
            command: || Command::Lost { owner_survives: true, keeps_queue: false },
            cells: [
                "> Q",
                "discarded ended(lost) > E",
                "-0:interrupted ended(lost) > E",
                "ended(lost) > E",
                "discarded ended(interrupted) > E",
                "ended(out_of_turns) > E",
                "discarded ended(cancelled) > E",
                "S",
            ],
        },
        Row {
            name: "lost, a tool, no owner",
            doing: Doing::Tool,
            command: || Command::Lost { owner_survives: false, keeps_queue: false },
            cells: [
                "ended(cancelled) > E",
                "-0:unknown ended(lost) > E",
                "-0:interrupted ended(lost) > E",
                "ended(lost) > E",
                "-0:unknown ended(interrupted) > E",
                "ended(out_of_turns) > E",
                "-0:unknown ended(cancelled) > E",
                "S",
            ],
        },
    ]);
}
