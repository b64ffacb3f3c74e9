//! Branches are created in every column. Regenerate and switch need a quiet session.

use crate::given::*;
use subtend_session::command::{Description, RegeneratePlan, SummarisedHistory, Unsummarised};
use subtend_session::compaction::HistoryCut;
use subtend_session::record::{CompactionFailure, SummarySet, TitleSet};

use super::{COLUMNS, Doing, Row, STALE, check_rows};

fn branch(kind: BranchKind) -> Command {
    Command::Branch(Box::new(BranchPlan {
        child: session(0xC1),
        kind,
        at: None,
        created: created(Place::Root, Limits::default()),
        manifest: authority(),
        by: Initiator::Person,
        is_task: false,
    }))
}

fn task() -> Command {
    let Command::Branch(plan) = branch(BranchKind::Subagent) else { unreachable!() };
    Command::Branch(Box::new(BranchPlan { is_task: true, ..*plan }))
}

fn regenerate() -> Command {
    Command::Regenerate(Box::new(RegeneratePlan {
        child: session(0xC1),
        input: input_id(60),
        of: None,
        created: created(Place::Root, Limits::default()),
        manifest: authority(),
        by: Initiator::Person,
    }))
}

fn switch() -> Command {
    Command::Switch { of: None, to: SwitchTo::Next, by: Initiator::Person }
}

fn row(name: &'static str, doing: Doing, command: fn() -> Command, cells: [&'static str; 8]) -> Row {
    Row { name, doing, command, cells }
}

#[test]
fn branches() {
    let each = COLUMNS.map(|at| -> &'static str { format!("branch_created Branched > {}", column(at)).leak() });
    // A session has no context to inherit until its first run has taken its input.
    let mut human = each;
    human[0] = NO_MESSAGE;
    let mut deleted = human;
    deleted[7] = "the session is deleted";
    let mut closed = each;
    closed[7] = "session 000100 is closed: name another parent, or none";
    check_rows(&[
        row("task", Doing::Stream, task, each),
        row("task of a closed session", Doing::Closed, task, closed),
        row("branch, human", Doing::Stream, || branch(BranchKind::Human), human),
        row("branch, subagent", Doing::Stream, || branch(BranchKind::Subagent), each),
        row("branch, service", Doing::Stream, || branch(BranchKind::Service), each),
        row("branch of a closed session", Doing::Closed, || branch(BranchKind::Human), human),
        row("branch of a deleted session", Doing::Deleted, || branch(BranchKind::Human), deleted),
    ]);
}

fn titled() -> Command {
    let title = TitleSet { title: "Fix the login test".into(), by: Initiator::Person, of: None };
    Command::Describe(Box::new(Description::Title(title)))
}

fn summed_up() -> Command {
    let summary = SummarySet { text: "It works.".into(), upto: Seq(3), of: session(0xC1) };
    Command::Describe(Box::new(Description::Summary(summary)))
}

fn merged() -> Command {
    let changes = r#"{"ticket":7}"#.into();
    Command::Describe(Box::new(Description::Metadata { changes, by: Initiator::Person }))
}

#[test]
fn descriptions() {
    let each = COLUMNS.map(|at| -> &'static str { format!("title_set Done > {}", column(at)).leak() });
    let mut deleted = each;
    deleted[7] = "the session is deleted";
    let no_service = [NO_SERVICE; 8];
    let set = COLUMNS.map(|at| -> &'static str { format!("metadata_set Done > {}", column(at)).leak() });
    let mut deleted_set = set;
    deleted_set[7] = "the session is deleted";
    check_rows(&[
        row("title", Doing::Stream, titled, each),
        row("title of a closed session", Doing::Closed, titled, each),
        row("title of a deleted session", Doing::Deleted, titled, deleted),
        row("summary of no service", Doing::Stream, summed_up, no_service),
        row("metadata", Doing::Stream, merged, set),
        row("metadata of a closed session", Doing::Closed, merged, set),
        row("metadata of a deleted session", Doing::Deleted, merged, deleted_set),
    ]);
}

const NO_SERVICE: &str = "session 00000000-0000-0000-0000-0000000000c1 is not a service session of this session";
const NO_MESSAGE: &str = "the session has no message to branch off from: send one first";
const NO_ALTERNATIVE: &str = "no answer of this session has alternatives: regenerate one";

fn roll_back() -> Command {
    Command::RollBack { run: None, by: Initiator::Person }
}

#[test]
fn rollbacks() {
    const BUSY: &str = "cannot roll back: a run is in flight: wait for its end, or cancel it";
    const COMPLETED: &str = "run 1 completed: only a run that did not complete can be rolled back; branch off before it, or \
                     regenerate its answer";
    let quiet = |cell| [BUSY, BUSY, BUSY, BUSY, BUSY, BUSY, BUSY, cell];
    check_rows(&[
        row("roll back", Doing::Stream, roll_back, quiet(COMPLETED)),
        row("roll back a cancelled run", Doing::QueuedInput, roll_back, quiet("rolled_back Done > E")),
        row("roll back in a closed session", Doing::Closed, roll_back, quiet(COMPLETED)),
        row("roll back in a deleted session", Doing::Deleted, roll_back, quiet("the session is deleted")),
    ]);
}

fn failed_for(turn: Option<(u32, u32)>) -> Command {
    let (why, message) = (CompactionFailure::Agent, "no summary".into());
    let (by, plan) = (Initiator::Host, HistoryCut { upto: 1, revised: Seq(1) });
    let result = Err(Unsummarised { why, message, of: None, reset: None });
    let turn = turn.map(|(turn, attempt)| (TurnNo(turn), AttemptNo(attempt)));
    Command::Compact(Box::new(SummarisedHistory { turn, by, plan, result }))
}

#[test]
fn g14_compactions() {
    const BUSY: &str = "cannot undo a compaction: a run is in flight: wait for its end, or cancel it";
    const NOTHING: &str = "no compaction to undo: all messages are visible";
    const NO_SUMMARY: &str = "not compacted: no summary";
    let quiet = |cell| [BUSY, BUSY, BUSY, BUSY, BUSY, BUSY, BUSY, cell];
    let undo = || Command::UndoCompaction { by: Initiator::Person };
    check_rows(&[
        row("undo a compaction", Doing::Stream, undo, quiet(NOTHING)),
        row("undo in a deleted session", Doing::Deleted, undo, quiet("the session is deleted")),
        row("a summary that no attempt awaits", Doing::Stream, || failed_for(Some((2, 1))), STALE),
        row("no summary for a request", Doing::Stream, || failed_for(None), [NO_SUMMARY; 8]),
    ]);
}

#[test]
fn alternatives() {
    let working = |command: &str, quiet| {
        let cell: &'static str = format!("cannot {command}: a run is in flight: wait for its end, or cancel it").leak();
        [cell, cell, cell, cell, cell, cell, cell, quiet]
    };
    let deleted = |command: &str| working(command, "the session is deleted");
    check_rows(&[
        row("regenerate", Doing::Stream, regenerate, working("regenerate", "branch_created Branched > E")),
        row("regenerate in a deleted session", Doing::Deleted, regenerate, deleted("regenerate")),
        row("switch, no alternatives", Doing::Stream, switch, working("switch", NO_ALTERNATIVE)),
        row("switch in a deleted session", Doing::Deleted, switch, deleted("switch")),
    ]);
}
