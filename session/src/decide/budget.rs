//! Budgets of a tree: reservations for model calls, and refused reservations.

use super::draft::Draft;
use crate::command::Deadline;
use crate::context;
use crate::effect::Rejection;
use crate::ids::{AttemptNo, TurnNo};
use crate::outcome::{Budget, ModelFail, Outcome};
use crate::record::{AttemptDiscarded, Record, Reserved};
use crate::state::Phase;
use crate::usage::Usage;

impl Draft<'_> {
    /// Returns the reservation of the next model call, if the tree has a budget.
    pub(super) fn reserved(&self) -> Option<Box<Reserved>> {
        let limits = &self.state.limits;
        let bounded = limits.tokens.is_some() || limits.cost_micro.is_some();
        bounded.then(|| Box::new(context::estimate(self.state)))
    }
}

pub(super) fn refused(draft: &mut Draft<'_>, turn: TurnNo, attempt: AttemptNo, which: Budget) -> Result<(), Rejection> {
    let awaited = |current: &crate::state::Turn| current.streaming && current.no == turn && current.attempt == attempt;
    if !draft.state.turn().is_some_and(awaited) {
        return Err(Rejection::Stale("a refused reservation"));
    }
    let phase = draft.state.phase();
    let spent = match which {
        Budget::Tokens => "tokens",
        Budget::Money => "money",
        Budget::Recorded => "recorded bytes",
    };
    draft.emit(Record::AttemptDiscarded(Box::new(AttemptDiscarded {
        turn,
        attempt,
        error: ModelFail::Dropped,
        message: format!("not called: the remaining {spent} budget of the tree is too small for the request").into(),
        model: None,
        retry_delay_ms: None,
        awaits: None,
        // No call was made: the usage is zero.
        usage: Some(Usage::default()),
        queued_ms: 0,
    })));
    draft.disarm(Deadline::Turn(turn));
    match phase {
        Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest => draft.end(Outcome::OutOfBudget { which }),
        // The outcome is fixed, or the run is held: this was its last local work.
        Phase::Queued | Phase::HeldInterrupted | Phase::HeldOutOfTurns | Phase::Closing | Phase::Quiet => {
            draft.advance()
        }
    }
    Ok(())
}
