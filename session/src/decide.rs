//! The decisions of a session: the table *state × command → records*.
//!
//! Columns: **Q** queued · **W** working · **Wm** waiting mid-turn · **Wr** waiting at rest · **Hi** held interrupted ·
//! **Ho** held out of turns · **Hc** closing · **E** no run in flight. `S` stale · `AE` already ended · `NF` not found
//! · `=` no record · `–` impossible.
//!
//! | command | Q | W | Wm | Wr | Hi, Ho | Hc | E |
//! |---|---|---|---|---|---|---|---|
//! | submit `send` | accepted | accepted | accepted | accepted, taken, next turn; a run of a model: accepted | accepted, QUIET | accepted | accepted, opened, started, taken, turn; closed: reopened first |
//! | submit `steer` | joins the first turn | next boundary | next boundary | accepted, taken, next turn | accepted, QUIET | accepted | as send |
//! | … of a running relative | as `steer` | next boundary, while turns are left | as W | as W | misplaced | misplaced | misplaced |
//! | admitted | started, taken, turn; owner ended: ended | S | slot awaited: resumed, turn; else S | as Wm | S | S | S |
//! | model answered, calls | S | answered, calls start | S | S | Hi: answered, calls interrupted, QUIET | answered, calls cancelled, END check | S |
//! | … final | S | answered, boundary | S | S | Hi: answered, QUIET | answered, END check | S |
//! | … cut, empty / again, refused | S | answered, one more turn / END(failed) | S | S | as final | as final | S |
//! | … `return` | S | error, or the others finish and END(completed) | S | S | as calls | as calls | S |
//! | attempt failed, turn panicked | S | discarded, then attempt + 1 or END(failed) | S | S | Hi: discarded, QUIET | discarded, END check | S |
//! | … refused until a reset beyond the turn | S | discarded, parked (`Wm`) | S | S | as above | as above | S |
//! | … overflow, something to hide | S | discarded, attempt + 1 waits for a compaction; else as above | S | S | as above | as above | S |
//! | compact, for an attempt | S | compacted, the model is called; failed: the model is called, after an overflow END(failed) | S | S | Hi: discarded, QUIET | discarded, END check | S |
//! | compact, requested | compacted; a compaction awaited: working | as Q | as Q | as Q | as Q | as Q | as Q |
//! | undo compaction | working | working | working | working | working | working | undone |
//! | tool finished, tool panicked | S | finished, boundary | S | S | finished, QUIET | finished, END check | S |
//! | spawn | S | started, spawned, new sessions, or continue asked; refused: error | S | S | S | S | S |
//! | owned ended, call open | – | taken as its result, boundary | as W | – | taken, QUIET | taken, END check | stored |
//! | owned ended, else | stored | waits for the boundary or its await; of a job: for a rest point | as W | taken, turn; not waking: stored, last: END(completed) | stored, QUIET | stored, END check | stored |
//! | person's run ended | stored | waits for the boundary | as W | stored | stored, QUIET | stored, END check | stored |
//! | cancel | ended | END | END | END | END | done or AE | AE or NF |
//! | interrupt | ended | calls answered, rows taken, held interrupted, children of open calls cancelled, QUIET | as W | as W | done | AE | AE or NF |
//! | owner ended | ended | END | END | END | END | = | S |
//! | deadline run | S | END(timed out) | S | S | S | S | S |
//! | deadline queue | ended | S | S | S | S | S | S |
//! | deadline turn | S | END(timed out), while a model call is due | S | S | S | S | S |
//! | deadline call | S | call timed out, boundary | as W | S | S | S | S |
//! | deadline limit | S | S | parked at it: attempt + 1, first a slot if needed; else S | S | S | S | S |
//! | deadline wall cap | ended | END | END | END | END | = | S |
//! | deadline grace | S | S | S | S | Hi: local work closed, QUIET | local work closed, END check | S |
//! | reactivated | re-arm | attempt + 1, or calls start again | re-arm, boundary | re-arm, boundary | calls closed, QUIET | calls closed, END check | rows stored |
//! | restarts exhausted | ended | END | END | END | END | END check | S |
//! | lost | keeps its place or ended | calls closed, ended | as W | as W | ended as held | ended as fixed | S |
//! | budget refused | S | discarded, END(out of budget) | S | S | Hi: discarded, QUIET | discarded, END check | S |
//! | ask answered, deadline ask | S | answered; allowed: the call starts; denied: it gets its result | as W, first a slot if needed | S | S | S | S |
//! | continue (a row) | refused | refused | refused | refused | refused | refused | accepted, opened; owner ended: ended; closed or deleted: refused; answered before: S |
//! | owner cancels (a row) | ended | END | END | END | END | = | S |
//! | background | NF | call finished, boundary; not a task's call: misplaced | as W | done if it is in the background already, else NF | as Wr | AE | AE or NF |
//! | change queue | changed; unknown id: NF | as Q | as Q | as Q | as Q | as Q | as Q |
//! | close | working | working | working | working | working | working | closed; an input is queued: working |
//! | delete | working | working | working | working | working | working | queue cleared, deleted |
//! | branch | branch created, new session | as Q | as Q | as Q | as Q | as Q | as Q; a task, closed: refused |
//! | describe | title set, unless the host would replace an existing one; summary set; metadata merged | as Q | as Q | as Q | as Q | as Q | as Q |
//! | regenerate, switch | working | working | working | working | working | working | branch created, new session; switched |
//! | roll back | working | working | working | working | working | working | rolled back; already rolled back: done |
//!
//! After a cancel of the whole tree, queued inputs of all its runs stay queued. The flag `keeps_queue` of the hold and of
//! the end states this. A later input clears the flag. A deleted session takes only notices that it still awaits. It
//! refuses inputs, branches and changes, and records a refusal of `continue` rows.
//!
//! A *turn* whose call would fill more than a share of the context window first waits for a compaction. In every cell, its
//! attempt counts as a stream without an answer. A rollback undoes the compactions that hide messages of its run.
//!
//! A *run of a model* was opened by a model's call. A message never extends it: the run ends with its answer, and the
//! message opens the next run. Only a steering input enters it. In any other run a rest point takes one person's
//! message alone. If none is queued, it takes all system entries and completions together. Completions wait while a
//! message is queued or is the newest message. *Stored* means that the record becomes a message of the transcript. The
//! end of a run that a person opened is recorded, but only views show it.
//!
//! A *message of a relative* comes from a model's call in the parent, a child or a sibling. It is a steering input that
//! does not open or resume a run and does not renew turns. The end of the run removes it from the queue. At most 16
//! messages of one sender may be queued, and messages of relatives may fill half of the queue: others are rejected.
//!
//! A run that is *parked at a limit* waits mid-turn for its provider: no call of the turn is open, and the attempt is
//! repeated at the recorded reset (`limit`). Inputs and ends wait for the boundary after that attempt.
//!
//! `END(o)` fixes the outcome `o`: the calls are answered and the notices are taken. Then the run ends, or is held closing
//! until its local work and owned runs have ended. `QUIET` is the check of a held run. *Boundary*, `QUIET` and
//! `END check` are one check (`boundary`), which runs whenever local work, a call or an owned run is removed. After an
//! end, a non-empty queue opens the next run in the same decision, unless `keeps_queue` is set.

use crate::command::{Clock, Command};
use crate::effect::{Decision, Effect, Rejection};
use crate::record::Notice;
use crate::state::State;
use draft::Draft;

mod admitted;
mod alternative;
mod answered;
mod arguments;
mod ask;
mod attempt;
mod background;
mod boundary;
mod branch;
mod budget;
mod calls;
mod cancel;
mod close;
mod compact;
mod continued;
mod deadline;
mod delete;
mod describe;
mod draft;
mod ending;
mod interrupt;
mod limit;
mod lost;
mod notices;
mod opening;
mod owned_ended;
mod owner_cancels;
mod panicked;
mod queue;
mod reactivated;
mod restarts;
mod rollback;
mod spawn;
mod submit;
mod tool;

/// Takes outbox rows, but omits the check that follows the end of an owned run. The check could start a turn, which the
/// next command, `Lost`, would drop.
pub fn arrive(state: &mut State, notices: Vec<Notice>, clock: Clock) -> Decision {
    let mut draft = Draft::new(state, clock);
    owned_ended::arrive(&mut draft, notices);
    draft.finish()
}

/// Decides one command. Applies the decision's records and volatile changes to `state`.
/// # Errors
/// [`Rejection`] if nothing is decided; the state is unchanged.
pub fn decide(state: &mut State, command: Command, clock: Clock) -> Result<Decision, Rejection> {
    let mut draft = Draft::new(state, clock);
    match command {
        Command::Submit(input) => submit::submit(&mut draft, input)?,
        Command::Admitted { run, owner_ended } => admitted::on_admitted(&mut draft, run, owner_ended)?,
        Command::ModelAnswered(answer) => answered::on_model_answered(&mut draft, *answer)?,
        Command::AttemptFailed(failed) => attempt::on_attempt_failed(&mut draft, *failed)?,
        Command::ToolFinished { call, result, worked_ms } => {
            tool::on_tool_finished(&mut draft, call, *result, worked_ms)?
        }
        Command::Spawn { turn, verdicts } => spawn::spawn(&mut draft, turn, verdicts)?,
        Command::OwnedEnded(notices) => owned_ended::on_owned_ended(&mut draft, notices)?,
        Command::Cancel { run, by, keeps_queue } => cancel::cancel(&mut draft, run, by, keeps_queue),
        Command::OwnerEnded { owner, outcome, keeps_queue } => {
            cancel::on_owner_ended(&mut draft, owner, outcome, keeps_queue)?;
        }
        Command::Deadline(deadline) => deadline::on_deadline(&mut draft, deadline)?,
        Command::TurnPanicked { turn, attempt, part, message } => {
            panicked::on_turn_panicked(&mut draft, turn, attempt, part, message)?;
        }
        Command::ToolPanicked { call, message } => panicked::on_tool_panicked(&mut draft, call, &message)?,
        Command::Reactivated { calls, owner_ended } => reactivated::on_reactivated(&mut draft, calls, owner_ended),
        Command::RestartsExhausted { command } => restarts::on_restarts_exhausted(&mut draft, command)?,
        Command::Lost { owner_survives, keeps_queue } => lost::on_lost(&mut draft, owner_survives, keeps_queue)?,
        Command::Interrupt { by } => interrupt::interrupt(&mut draft, by),
        Command::OwnerCancels { owner, key, by } => owner_cancels::on_owner_cancels(&mut draft, owner, key, by)?,
        Command::NotCalled { turn, attempt, why } => attempt::on_not_called(&mut draft, turn, attempt, why)?,
        Command::Continue(ask) => continued::on_continue(&mut draft, *ask)?,
        Command::Background { call } => background::background(&mut draft, call)?,
        Command::AskAnswered { call, verdict, by } => ask::on_ask_answered(&mut draft, call, verdict, by)?,
        Command::ChangeQueue { change, by } => queue::change(&mut draft, change, by)?,
        Command::Close { by } => close::close(&mut draft, by)?,
        Command::Delete { by } => delete::delete(&mut draft, by)?,
        Command::Branch(plan) => branch::branch(&mut draft, *plan)?,
        Command::Regenerate(plan) => alternative::regenerate(&mut draft, *plan)?,
        Command::Describe(description) => describe::describe(&mut draft, *description)?,
        Command::Switch { of, to, by } => alternative::switch(&mut draft, of, to, by)?,
        Command::Compact(summarised) => compact::compact(&mut draft, *summarised)?,
        Command::UndoCompaction { by } => compact::undo(&mut draft, by)?,
        Command::RollBack { run, by } => rollback::roll_back(&mut draft, run, by)?,
    }
    Ok(draft.finish())
}

/// Returns the effects that a fresh activation must repeat: the slot request and the deadlines.
///
/// Used for a run that stayed queued over a restart of the host. In the same process, `Reactivated` returns them.
pub fn wake(state: &State, clock: Clock) -> Vec<Effect> {
    reactivated::wake(state, clock)
}
