//! Sessions of a tree that was being cancelled when the host died. Their queued inputs remain.

use std::collections::HashSet;

use subtend_journal::ReadError;
use subtend_session::ids::{RunKey, SessionId};
use subtend_session::index::Inflight;
use subtend_session::record::Hold;
use subtend_session::state::{Phase, State};

use super::StartRecovery;
use crate::values::owned_runs::runs_below;

impl StartRecovery {
    /// Returns the sessions with a run in flight below a run that closes with its whole tree.
    /// That run had handled the cancel, but the runs it owns may not have received it. The journal of the closing run
    /// shows the cancel, and the sweep ends the owned runs first.
    pub(super) fn runs_in_cancelled_trees(
        &self,
        inflight: &[(SessionId, Inflight)],
    ) -> Result<HashSet<SessionId>, ReadError> {
        let owners: HashSet<RunKey> = inflight.iter().filter_map(|(_, row)| row.owner.run()).collect();
        let mut closing = HashSet::new();
        for (session, row) in inflight {
            let key = RunKey { session: *session, run: row.run };
            if row.state == Phase::Closing && owners.contains(&key) && self.closes_the_tree(key)? {
                closing.insert(key);
            }
        }
        let owned = inflight
            .iter()
            .filter_map(|(session, row)| Some((RunKey { session: *session, run: row.run }, row.owner.run()?)));
        Ok(runs_below(owned, |owner| closing.contains(owner)).into_iter().map(|run| run.session).collect())
    }

    /// Returns whether the run in flight closes with its whole tree. An unreadable session is reported by the sweep.
    fn closes_the_tree(&self, key: RunKey) -> Result<bool, ReadError> {
        let stored = match self.log.journal.records(key.session) {
            Ok(stored) => stored,
            Err(ReadError::Damaged { .. } | ReadError::Newer { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let state = State::fold(key.session, stored.iter().map(|stored| &stored.record));
        let run = state.ok().and_then(|state| state.run).filter(|run| run.no == key.run);
        Ok(run.is_some_and(|run| matches!(run.hold, Some(Hold::Closing { keeps_queue: true, .. }))))
    }
}
