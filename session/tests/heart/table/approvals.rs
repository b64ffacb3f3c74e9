use crate::given::*;
use subtend_session::command::CallObstacle;

use super::{Doing, Row, STALE, check_rows};
use crate::asks::asking;

/// Returns the session after turn 2 called a writing tool, which awaits approval, and a reading tool.
pub(super) fn asks(streams: Heart) -> Heart {
    streams.then(asking(2, vec![(writes(), Some("a")), (reads(), None)]))
}

fn answer_ask(verdict: AskVerdict) -> Command {
    Command::AskAnswered { call: call(2, 0), verdict, by: AnsweredBy::Person }
}

#[test]
fn approvals() {
    let row =
        |name, command, w, wm| Row { name, doing: Doing::Asks, command, cells: ["S", w, wm, "S", "S", "S", "S", "S"] };
    check_rows(&[
        row(
            "ask allowed",
            || answer_ask(AskVerdict::Allow),
            "ask_answered +0 Done > W",
            "ask_answered parked(slot) Done > Wm",
        ),
        row(
            "ask always",
            || answer_ask(AskVerdict::Always),
            "ask_answered +0 Done > W",
            "ask_answered parked(slot) Done > Wm",
        ),
        row(
            "ask denied",
            || answer_ask(AskVerdict::Deny),
            "ask_answered -0:denied Done > W",
            "ask_answered -0:denied parked(slot) Done > Wm",
        ),
        row(
            "deadline ask",
            || Command::Deadline(Deadline::Ask(call(2, 0))),
            "ask_answered -0:denied > W",
            "ask_answered -0:denied parked(slot) > Wm",
        ),
        row("deadline ask, another call", || Command::Deadline(Deadline::Ask(call(2, 1))), "S", "S"),
        Row {
            name: "approval without an ask",
            doing: Doing::Stream,
            command: || answer_ask(AskVerdict::Allow),
            cells: STALE,
        },
    ]);
}

/// A command that closes a call with an open ask closes the ask first.
#[test]
fn ends_and_holds_of_an_asking_run() {
    check_rows(&[
        Row {
            name: "cancel",
            doing: Doing::Asks,
            command: cancel,
            cells: [
                "ended(cancelled) Done > E",
                "ask_answered -0:cancelled closing(cancelled) Done > Hc",
                "ask_answered -0:cancelled closing(cancelled) Done > Hc",
                "closing(cancelled) Done > Hc",
                "closing(cancelled) Done > Hc",
                "closing(cancelled) Done > Hc",
                "Done > Hc",
                "AE(completed) > E",
            ],
        },
        Row {
            name: "interrupt",
            doing: Doing::Asks,
            command: interrupt,
            cells: [
                "ended(interrupted) Done > E",
                "ask_answered -0:interrupted held(interrupted) Done > Hi",
                "ask_answered -0:interrupted held(interrupted) Done > Hi",
                "held(interrupted) Done > Hi",
                "Done > Hi",
                "Done > Ho",
                "AE(cancelled) > Hc",
                "AE(completed) > E",
            ],
        },
        Row {
            name: "lost",
            doing: Doing::Asks,
            command: || Command::Lost { owner_survives: true, keeps_queue: false },
            cells: [
                "> Q",
                "ask_answered -0:interrupted -1:interrupted ended(lost) > E",
                "ask_answered -0:interrupted ended(lost) > E",
                "ended(lost) > E",
                "discarded ended(interrupted) > E",
                "ended(out_of_turns) > E",
                "discarded ended(cancelled) > E",
                "S",
            ],
        },
        Row {
            name: "restarts exhausted",
            doing: Doing::Asks,
            command: || Command::RestartsExhausted { command: None },
            cells: [
                "ended(restarts_exhausted) > E",
                "ask_answered -0:interrupted -1:interrupted closing(restarts_exhausted) > Hc",
                "ask_answered -0:interrupted closing(restarts_exhausted) > Hc",
                "closing(restarts_exhausted) > Hc",
                "discarded closing(restarts_exhausted) > Hc",
                "closing(restarts_exhausted) > Hc",
                "discarded > Hc",
                "S",
            ],
        },
    ]);
}

fn not_called(turn: u32, attempt: u32, why: CallObstacle) -> Command {
    Command::NotCalled { turn: TurnNo(turn), attempt: AttemptNo(attempt), why }
}

fn refused(turn: u32, attempt: u32) -> Command {
    not_called(turn, attempt, CallObstacle::Budget(Budget::Tokens))
}

fn no_workspace() -> Command {
    not_called(2, 1, CallObstacle::Workspace("no such directory".into()))
}

#[test]
fn obstacles() {
    check_rows(&[
        Row {
            name: "budget refused",
            doing: Doing::Stream,
            command: || refused(2, 1),
            cells: [
                "S",
                "discarded closing(out_of_budget) > Hc",
                "S",
                "S",
                // The stream that the hold dropped reports with this command.
                "discarded > Hi",
                "S",
                "discarded > Hc",
                "S",
            ],
        },
        Row {
            name: "budget refused, nothing owned",
            doing: Doing::Alone,
            command: || refused(2, 1),
            cells: ["S", "discarded ended(out_of_budget) > E", "S", "S", "discarded > Hi", "S", "discarded > Hc", "S"],
        },
        Row {
            name: "no working directory",
            doing: Doing::Stream,
            command: no_workspace,
            cells: ["S", "discarded closing(failed) > Hc", "S", "S", "discarded > Hi", "S", "discarded > Hc", "S"],
        },
        Row {
            name: "no working directory, nothing owned",
            doing: Doing::Alone,
            command: no_workspace,
            cells: ["S", "discarded ended(failed) > E", "S", "S", "discarded > Hi", "S", "discarded > Hc", "S"],
        },
        Row { name: "budget refused, another attempt", doing: Doing::Stream, command: || refused(2, 2), cells: STALE },
        Row { name: "budget refused, another turn", doing: Doing::Stream, command: || refused(3, 1), cells: STALE },
    ]);
}
