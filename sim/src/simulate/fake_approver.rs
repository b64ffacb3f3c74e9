//! An approver that answers asks in time, late, or not at all.

use std::sync::Arc;

use subtend_actors::{Approver, ControlError};
use subtend_session::record::AskVerdict;

use crate::simulate::tally::Verb;
use crate::simulate::world::World;

/// Answers asks until the runtime ends.
pub(crate) fn spawn(world: &Arc<World>, mut approver: Approver) {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        loop {
            let approval = approver.next().await;
            if !world.is_calm() && world.rng.one_in(4) {
                world.oracle.mark("left unanswered");
                continue;
            }
            // The answer may come after the deadline of the ask.
            let max_ms = world.rng.pick(&[3_000, 3_000, 3_000, 12_000]).unwrap_or(3_000);
            tokio::time::sleep(world.rng.ms(0, max_ms)).await;
            let verdicts = [AskVerdict::Allow, AskVerdict::Allow, AskVerdict::Deny, AskVerdict::Always];
            let verdict = world.rng.pick(&verdicts).unwrap_or(AskVerdict::Allow);
            let request = world.oracle.lock().ask(Verb::Answer);
            let reply = approver.answer(&approval, verdict).await;
            let mut oracle = world.oracle.lock();
            oracle.answer(request);
            match reply {
                Ok(_) => oracle.tally.mark(&format!("answered {verdict:?}")),
                Err(ControlError::Stopped(_)) => oracle.tally.mark("answered an ask of a stopped session"),
                Err(
                    error @ (ControlError::Working(_)
                    | ControlError::Waiting(_)
                    | ControlError::NotFound(_)
                    | ControlError::Deleted
                    | ControlError::Refused(_)),
                ) => {
                    if oracle.deletions == 0 {
                        oracle.wrong("P-5", format!("the answer for call {} was refused: {error}", approval.call));
                    }
                }
            }
        }
    });
}
