use super::{Doing, Row, STALE, check_rows};
use crate::given::*;

#[test]
fn answers_of_the_model() {
    check_rows(&[
        Row {
            name: "answered, calls of all kinds",
            doing: Doing::Stream,
            command: || calls(2, vec![reads(), writes(), blocking(), writes()]),
            cells: [
                "S",
                "answered +0 +1 > W",
                "S",
                "S",
                "answered -0:interrupted -1:interrupted -2:interrupted -3:interrupted > Hi",
                "S",
                "answered -0:cancelled -1:cancelled -2:cancelled -3:cancelled > Hc",
                "S",
            ],
        },
        Row {
            name: "answered, calls of the last allowed turn that end at once",
            doing: Doing::LastStream,
            command: || calls(2, vec![CallKind::Invalid(subtend_session::call::Invalid::UnknownTool)]),
            cells: [
                "S",
                "answered +0 -0:error held(out_of_turns) > Ho",
                "S",
                "S",
                "answered -0:interrupted > Hi",
                "S",
                "answered -0:cancelled > Hc",
                "S",
            ],
        },
        Row {
            name: "answered, final",
            doing: Doing::Stream,
            command: || answers(2, "done"),
            cells: ["S", "answered parked(atrest) > Wr", "S", "S", "answered > Hi", "S", "answered > Hc", "S"],
        },
        Row {
            name: "answered, truncated",
            doing: Doing::Stream,
            command: || answer(2, 1, Some("half"), Vec::new(), Stop::Length),
            cells: ["S", "answered turn(continuation) > W", "S", "S", "answered > Hi", "S", "answered > Hc", "S"],
        },
        Row {
            name: "answered, empty",
            doing: Doing::Stream,
            command: || answer(2, 1, Some(" \n"), Vec::new(), Stop::End),
            cells: ["S", "answered turn(nudge) > W", "S", "S", "answered > Hi", "S", "answered > Hc", "S"],
        },
        Row {
            name: "answered, refused",
            doing: Doing::Stream,
            command: || answer(2, 1, Some("no"), Vec::new(), Stop::Refused),
            cells: ["S", "answered closing(failed) > Hc", "S", "S", "answered > Hi", "S", "answered > Hc", "S"],
        },
    ]);
}

#[test]
fn refused_or_unawaited_answers() {
    check_rows(&[
        Row {
            name: "answered, return while a child is in flight",
            doing: Doing::Stream,
            command: || calls(2, vec![CallKind::Return]),
            cells: [
                "S",
                "answered +0 -0:error turn > W",
                "S",
                "S",
                "answered -0:interrupted > Hi",
                "S",
                "answered -0:cancelled > Hc",
                "S",
            ],
        },
        Row {
            name: "answered, another attempt",
            doing: Doing::Stream,
            command: || answer(2, 2, Some("x"), Vec::new(), Stop::End),
            cells: STALE,
        },
        Row { name: "answered, another turn", doing: Doing::Stream, command: || answers(7, "x"), cells: STALE },
    ]);
}

/// Returns a row for an answer, which only columns with a streaming turn await.
fn streamed(name: &'static str, doing: Doing, command: fn() -> Command, cells: [&'static str; 3]) -> Row {
    let [w, hi, hc] = cells;
    Row { name, doing, command, cells: ["S", w, "S", "S", hi, "S", hc, "S"] }
}

#[test]
fn final_truncated_and_empty_answers() {
    let (held, closing) = ("answered > Hi", "answered > Hc");
    let texts: fn() -> Command = || answers(2, "done");
    let cut: fn() -> Command = || answer(2, 1, Some("half"), Vec::new(), Stop::Length);
    let empty: fn() -> Command = || answer(2, 1, None, Vec::new(), Stop::End);
    check_rows(&[
        streamed(
            "answered, final, nothing owned",
            Doing::Alone,
            texts,
            ["answered ended(completed) > E", held, closing],
        ),
        streamed(
            "answered, final, an input is queued",
            Doing::QueuedInput,
            texts,
            ["answered parked(atrest) > Wr", held, closing],
        ),
        streamed(
            "answered, final, an end has arrived",
            Doing::NoticeArrived,
            texts,
            ["answered message[1] turn > W", held, closing],
        ),
        streamed(
            "answered, final, of the last turn",
            Doing::LastStream,
            texts,
            ["answered parked(atrest) > Wr", held, closing],
        ),
        streamed("answered, truncated again", Doing::Prompted, cut, ["answered ended(failed) > E", held, closing]),
        streamed(
            "answered, truncated in the last turn",
            Doing::LastStream,
            cut,
            ["answered held(out_of_turns) > Ho", held, closing],
        ),
        streamed("answered, empty again", Doing::Prompted, empty, ["answered ended(failed) > E", held, closing]),
        streamed(
            "answered, truncated, with whole calls",
            Doing::Stream,
            || answer(2, 1, Some("half"), vec![reads()], Stop::Length),
            ["answered +0 > W", "answered -0:interrupted > Hi", "answered -0:cancelled > Hc"],
        ),
    ]);
}

#[test]
fn answers_with_task_calls() {
    let stopped = ["answered -0:interrupted > Hi", "answered -0:cancelled > Hc"];
    let row = |name, doing, command, w| streamed(name, doing, command, [w, stopped[0], stopped[1]]);
    check_rows(&[
        row("answered, return", Doing::Alone, || calls(2, vec![CallKind::Return]), {
            "answered +0 -0:ok ended(completed) > E"
        }),
        row("answered, return, an end has arrived", Doing::NoticeArrived, || calls(2, vec![CallKind::Return]), {
            "answered +0 -0:error message[1] turn > W"
        }),
        row("answered, continue", Doing::Alone, || calls(2, vec![CallKind::Continue(Mode::Blocking)]), "answered > W"),
        row("answered, cancel", Doing::Stream, || calls(2, vec![cancels(0xB1)]), {
            "answered +0 cancel_asked -0:ok turn > W"
        }),
        row("answered, cancel of an ended task", Doing::NoticeArrived, || calls(2, vec![cancels(0xB1)]), {
            "answered +0 -0:error message[1] turn > W"
        }),
        row("answered, cancel of an unknown task", Doing::Stream, || calls(2, vec![cancels(0xEE)]), {
            "answered +0 -0:error turn > W"
        }),
        row("answered, check", Doing::Stream, || calls(2, vec![checks(true)]), "answered +0 parked(midturn) > Wm"),
        row("answered, check that does not wait", Doing::Stream, || calls(2, vec![checks(false)]), {
            "answered +0 -0:ok turn > W"
        }),
        row("answered, check of an arrived end", Doing::NoticeArrived, || calls(2, vec![checks(true)]), {
            "answered +0 await[1] turn > W"
        }),
    ]);
}

fn cancels(child: u128) -> CallKind {
    CallKind::Cancel { child: session(child) }
}

fn checks(wait: bool) -> CallKind {
    CallKind::Check { run: RunKey { session: session(0xB1), run: RunNo(1) }, wait }
}

#[test]
fn attempts_and_panics_of_the_turn() {
    let discards = ["S", "discarded turn#2 > W", "S", "S", "discarded > Hi", "S", "discarded > Hc", "S"];
    check_rows(&[
        Row {
            name: "attempt failed, retryable",
            doing: Doing::Stream,
            command: || attempt_failed(2, 1, ModelFail::Unavailable),
            cells: discards,
        },
        Row {
            name: "attempt failed permanently",
            doing: Doing::Stream,
            command: || attempt_failed(2, 1, ModelFail::Auth),
            cells: ["S", "discarded closing(failed) > Hc", "S", "S", "discarded > Hi", "S", "discarded > Hc", "S"],
        },
        streamed(
            "attempt failed permanently, nothing owned",
            Doing::Alone,
            || attempt_failed(2, 1, ModelFail::Auth),
            ["discarded ended(failed) > E", "discarded > Hi", "discarded > Hc"],
        ),
        Row {
            name: "attempt failed, not awaited",
            doing: Doing::Stream,
            command: || attempt_failed(2, 9, ModelFail::Unavailable),
            cells: STALE,
        },
        Row {
            name: "turn panicked",
            doing: Doing::Stream,
            command: || Command::TurnPanicked {
                turn: TurnNo(2),
                attempt: AttemptNo(1),
                part: Part::Model,
                message: "boom".into(),
            },
            cells: discards,
        },
    ]);
}

#[test]
fn tools() {
    check_rows(&[
        Row {
            name: "tool finished",
            doing: Doing::Tool,
            command: || tool(2, 0, "written"),
            cells: ["S", "-0:ok turn > W", "S", "S", "-0:interrupted > Hi", "S", "-0:ok > Hc", "S"],
        },
        Row {
            name: "tool finished, a child active next to it",
            doing: Doing::Both,
            command: || tool(2, 1, "written"),
            cells: ["S", "-1:ok parked(midturn) > Wm", "S", "S", "-1:interrupted > Hi", "S", "-1:ok > Hc", "S"],
        },
        Row {
            name: "tool finished, a check next to it",
            doing: Doing::Await,
            command: || tool(2, 1, "written"),
            cells: ["S", "-1:ok parked(midturn) > Wm", "S", "S", "S", "S", "S", "S"],
        },
        Row {
            name: "tool panicked",
            doing: Doing::Tool,
            command: || Command::ToolPanicked { call: call(2, 0), message: "boom".into() },
            cells: ["S", "-0:unknown turn > W", "S", "S", "-0:unknown > Hi", "S", "-0:unknown > Hc", "S"],
        },
        Row { name: "tool finished, not awaited", doing: Doing::Tool, command: || tool(2, 5, "late"), cells: STALE },
    ]);
}

fn refused() -> Command {
    let refusal = Refusal { kind: ToolErrorKind::Limit, message: "no spawns remain".into() };
    Command::Spawn { turn: TurnNo(2), verdicts: vec![SpawnVerdict { call: call(2, 0), verdict: Err(refusal) }] }
}

#[test]
fn admissions() {
    check_rows(&[
        Row {
            name: "spawn, blocking",
            doing: Doing::Admission,
            command: || spawn(2, Mode::Blocking, &[(0, 0xB2)]),
            cells: ["S", "+0 spawned parked(midturn) > Wm", "S", "S", "S", "S", "S", "S"],
        },
        Row {
            name: "spawn, background",
            doing: Doing::Admission,
            command: || spawn(2, Mode::Background, &[(0, 0xB2)]),
            cells: ["S", "+0 spawned -0:ok turn > W", "S", "S", "S", "S", "S", "S"],
        },
        Row {
            name: "spawn, refused",
            doing: Doing::Admission,
            command: refused,
            cells: ["S", "+0 -0:error turn > W", "S", "S", "S", "S", "S", "S"],
        },
    ]);
}
