//! What a session does next: the table *state × command → records*.
//!
//! Columns: **Q** queued · **W** working · **Wm** waiting mid-turn · **Wr** waiting at rest · **Hi** held interrupted · **Ho** held
//! out of turns · **Hc** closing · **E** no run in flight. `S` stale · `AE` already ended · `NF` not found · `=` no record.
//!
//! | command | Q | W | Wm | Wr | Hi, Ho | Hc | E |
//! |---|---|---|---|---|---|---|---|
//! | submit `send` | accepted | accepted | accepted | accepted, taken, next turn | accepted, QUIET | accepted | accepted, opened, started, taken, turn |
//! | submit `steer` | joins the first turn | next boundary | next boundary | as send | as send | as send | as send |
//! | admitted | started, taken, turn; owner over: ended | S | slot awaited: resumed, turn; else S | as Wm | S | S | S |
//! | model answered, calls | S | answered, calls start | S | S | Hi: answered, calls interrupted, QUIET | answered, calls cancelled, END check | S |
//! | … final | S | answered, boundary | S | S | Hi: answered, QUIET | answered, END check | S |
//! | … cut, empty / again, refused | S | answered, one more turn / END(failed) | S | S | as final | as final | S |
//! | … `return` | S | error, or the others finish and END(completed) | S | S | as calls | as calls | S |
//! | attempt failed, turn panicked | S | discarded, then attempt + 1 or END(failed) | S | S | Hi: discarded, QUIET | discarded, END check | S |
//! | tool finished, tool panicked | S | finished, boundary | S | S | finished, QUIET | finished, END check | S |
//! | spawn | S | started, spawned, births; refused: error | S | S | S | S | S |
//! | owned ended, call open | – | taken as its result, boundary | as W | – | taken, QUIET | taken, END check | stored |
//! | owned ended, else | stored | waits for the boundary or its await | as W | taken, turn; not waking: stored, last: END(completed) | stored, QUIET | stored, END check | stored |
//! | cancel | ended | END | END | END | END | done or AE | AE or NF |
//! | interrupt | ended | calls answered, rows taken, held interrupted, children of open calls cancelled, QUIET | as W | as W | done | AE | AE or NF |
//! | owner over | ended | END | END | END | END | = | S |
//! | deadline run | S | END(timed out) | S | S | S | S | S |
//! | deadline queue | ended | S | S | S | S | S | S |
//! | deadline turn | S | END(timed out), while a model call is due | S | S | S | S | S |
//! | deadline call | S | call timed out, boundary | as W | S | S | S | S |
//! | deadline wall cap | ended | END | END | END | END | = | S |
//! | deadline grace | S | S | S | S | Hi: local work closed, QUIET | local work closed, END check | S |
//! | reactivated | re-arm | attempt + 1, or calls start anew | re-arm, boundary | re-arm, boundary | calls closed, QUIET | calls closed, END check | rows stored |
//! | restarts exhausted | ended | END | END | END | END | END check | S |
//! | lost | keeps its place or ended | calls closed, ended | as W | as W | ended as held | ended as fixed | S |
//! | budget refused, continue, background, ask answered, change queue, close | not yet, in every column | | | | | | |
//!
//! `END(o)`: calls answered, rows taken, then ended, or held closing until local work and owned runs are over. `QUIET`: the check of a
//! held run. *Boundary*, `QUIET` and `END check` are one check (`boundary`), run by whatever removes local work, a call or an owned run.
//! After an end, a queue that is not empty opens the next run in the same decision.

use crate::command::{Clock, Command};
use crate::effect::{Decision, Effect, Rejection};
use crate::record::Notice;
use crate::state::State;
use draft::Draft;

mod admitted;
mod answered;
mod attempt;
mod boundary;
mod calls;
mod cancel;
mod deadline;
mod draft;
mod ending;
mod interrupt;
mod lost;
mod notices;
mod opening;
mod owned_ended;
mod panicked;
mod reactivated;
mod restarts;
mod spawn;
mod submit;
mod tool;

/// Takes rows of the outbox without the check that follows an end: for an activation that decides `Lost` right after, which
/// would drop the turn that such a check starts.
pub fn arrive(state: &mut State, notices: Vec<Notice>, clock: Clock) -> Decision {
    let mut draft = Draft::new(state, clock);
    owned_ended::arrive(&mut draft, notices);
    draft.finish()
}

/// Decides one command.
///
/// Changes `state` by the records of the decision, and by what is volatile in it; nothing else.
///
/// # Errors
/// When nothing is decided: the state is equal to before.
pub fn decide(state: &mut State, command: Command, clock: Clock) -> Result<Decision, Rejection> {
    let mut draft = Draft::new(state, clock);
    match command {
        Command::Submit(input) => submit::submit(&mut draft, input)?,
        Command::Admitted { run, owner_over } => admitted::admitted(&mut draft, run, owner_over)?,
        Command::ModelAnswered(answer) => answered::answered(&mut draft, *answer)?,
        Command::AttemptFailed(failed) => attempt::failed(&mut draft, *failed)?,
        Command::ToolFinished { call, result, worked_ms } => tool::finished(&mut draft, call, *result, worked_ms)?,
        Command::Spawn { turn, verdicts } => spawn::spawn(&mut draft, turn, verdicts)?,
        Command::OwnedEnded(notices) => owned_ended::owned_ended(&mut draft, notices)?,
        Command::Cancel { run, by } => cancel::cancel(&mut draft, run, by),
        Command::OwnerOver { run, outcome } => cancel::owner_over(&mut draft, run, outcome)?,
        Command::Deadline(deadline) => deadline::passed(&mut draft, deadline)?,
        Command::TurnPanicked { turn, attempt, part, message } => {
            panicked::turn(&mut draft, turn, attempt, part, message)?;
        }
        Command::ToolPanicked { call, message } => panicked::tool(&mut draft, call, &message)?,
        Command::Reactivated { kinds, owner_over } => reactivated::reactivated(&mut draft, kinds, owner_over),
        Command::RestartsExhausted { command } => restarts::exhausted(&mut draft, command)?,
        Command::Lost { owner_survives } => lost::lost(&mut draft, owner_survives)?,
        Command::Interrupt { by } => interrupt::interrupt(&mut draft, by),
        Command::BudgetRefused { .. }
        | Command::Continue(_)
        | Command::Background { .. }
        | Command::AskAnswered { .. }
        | Command::ChangeQueue { .. }
        | Command::Close { .. } => return Err(Rejection::NotYet(command.name())),
    }
    Ok(draft.finish())
}

/// What a fresh activation of `state` needs that no record says: the slot that its run waits for, and its deadlines.
///
/// For a run that kept its place in the queue over a restart of the host. One that was folded anew in the same process is told `Reactivated`, whose decision has these effects in it.
pub fn wake(state: &State, clock: Clock) -> Vec<Effect> {
    reactivated::wake(state, clock)
}
