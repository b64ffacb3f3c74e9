//! Services of the host: N-3 for their answers, which arrive without a notice.

use crate::world::World;
use crate::{InvariantId, Verdict, ensure};
use subtend_session::outcome::Outcome;
use subtend_session::place::Owner;
use subtend_session::record::Record;

/// Checks that a title or a summary is the answer of a completed run.
pub(super) fn answers_of_completed_runs(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        for record in seen.view.records {
            let of = if let Record::TitleSet(set) = record {
                set.of
            } else if let Record::SummarySet(set) = record {
                Some(set.of)
            } else {
                None
            };
            let Some(service) = of.and_then(|of| world.sessions.get(&of)) else { continue };
            let completed = service.runs.values().any(|run| {
                let hosts = run.opened.is_some_and(|(_, opened)| matches!(opened.owner, Owner::Host(_)));
                hosts && run.ended.is_some_and(|(_, ended)| ended.outcome == Outcome::Completed)
            });
            ensure(completed, InvariantId::N3, *session, || {
                format!("{record:?} of a service session that did not complete")
            })?;
        }
    }
    Ok(())
}
