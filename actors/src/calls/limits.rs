//! Runs that are parked at provider limits: one run probes after the reset, and the others follow it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subtend_models::model::Model;
use subtend_models::throttle::Throttles;
use subtend_session::ids::{SessionId, Text};
use tokio::time::Instant;

use crate::clock::now;

/// A pause longer than this means that the provider refused the probe and set a new limit.
const NEW_LIMIT_PAUSE: Duration = Duration::from_secs(60);
/// Interval at which a run checks whether the probe was answered.
const PROBE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum wait for an unanswered probe, which may itself wait for a slot or a silent model.
const PROBE_TIMEOUT: Duration = Duration::from_secs(120);

/// The parked runs of one runtime, and the probe of each limit.
#[derive(Default)]
pub(crate) struct ParkedRuns(Mutex<ParkedTable>);

#[derive(Default)]
struct ParkedTable {
    waiting: HashMap<SessionId, ParkedRun>,
    probes: HashMap<Text, RunningProbe>,
}

struct ParkedRun {
    limit: Text,
    until: i64,
}

struct RunningProbe {
    by: SessionId,
    since: Instant,
}

impl ParkedRuns {
    fn lock(&self) -> MutexGuard<'_, ParkedTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of the limit for calls of `model`: its first quota, or else its own name.
    pub(crate) fn limit_of(model: &dyn Model) -> Text {
        model.quotas().first().cloned().unwrap_or_else(|| model.name().into())
    }

    /// Parks the run of `session` at `limit` until the Unix time `until`, in ms; `is_due` if that time has passed.
    /// If a due run is already the probe, nothing changes: it is parked a second time when its session is activated.
    pub(crate) fn park(&self, session: SessionId, limit: Text, until: i64, is_due: bool) {
        let mut parked = self.lock();
        if is_due && parked.probes.values().any(|probe| probe.by == session) {
            return;
        }
        parked.end_probe(session);
        parked.waiting.insert(session, ParkedRun { limit, until });
    }

    /// Returns how long the run still waits, or `None` if it resumes now. The first to resume probes its limit.
    pub(crate) fn remaining(&self, session: SessionId, wall_ms: i64, throttles: &Throttles) -> Option<Duration> {
        let mut parked = self.lock();
        let waiting = parked.waiting.get(&session)?;
        let remaining = u64::try_from(waiting.until.saturating_sub(wall_ms)).unwrap_or(0);
        if remaining > 0 {
            return Some(Duration::from_millis(remaining));
        }
        let limit = Text::clone(&waiting.limit);
        let cooling = Duration::from_millis(throttles.paused_ms(&limit).unwrap_or(0));
        if cooling > NEW_LIMIT_PAUSE {
            // The probe was refused. This run resumes, and its wait for a permit parks it without a call.
            parked.waiting.remove(&session);
            return None;
        }
        if !cooling.is_zero() {
            return Some(cooling);
        }
        let probed = |probe: &&RunningProbe| probe.by != session && now().duration_since(probe.since) < PROBE_TIMEOUT;
        if parked.probes.get(&limit).filter(probed).is_some() {
            return Some(PROBE_CHECK_INTERVAL);
        }
        parked.waiting.remove(&session);
        parked.probes.insert(limit, RunningProbe { by: session, since: now() });
        None
    }

    /// Ends the probe of `session`: its model call was answered, failed, or will not be made.
    pub(crate) fn answered(&self, session: SessionId) {
        self.lock().end_probe(session);
    }

    pub(crate) fn forget(&self, session: SessionId) {
        let mut parked = self.lock();
        parked.waiting.remove(&session);
        parked.end_probe(session);
    }
}

impl ParkedTable {
    fn end_probe(&mut self, session: SessionId) {
        if !self.probes.is_empty() {
            self.probes.retain(|_, probe| probe.by != session);
        }
    }
}

#[cfg(test)]
mod tests {
    use subtend_models::throttle::Rates;

    use super::*;

    /// A session that left memory is activated for its probe, and the activation parks the run again.
    #[tokio::test(start_paused = true)]
    async fn x13_activation_of_the_probe_keeps_the_probe() {
        let [probe, other] = ["01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058"]
            .map(|id| id.parse::<SessionId>().unwrap());
        let (parked, throttles) = (ParkedRuns::default(), Throttles::new(Rates::default(), []));
        let remaining = |session| parked.remaining(session, 1_000, &throttles);
        parked.park(probe, "a".into(), 1_000, false);
        parked.park(other, "a".into(), 1_000, false);
        assert_eq!((remaining(probe), remaining(other)), (None, Some(PROBE_CHECK_INTERVAL)));
        parked.park(probe, "a".into(), 1_000, true);
        assert_eq!((remaining(other), remaining(probe)), (Some(PROBE_CHECK_INTERVAL), None));
        // Control: with a new reset time the run waits again, and another becomes the probe.
        parked.park(probe, "a".into(), 2_000, false);
        assert_eq!((remaining(other), remaining(probe)), (None, Some(Duration::from_secs(1))));
    }
}
