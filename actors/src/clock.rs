//! Time and ids. Only this module reads clocks and creates random values; other code takes them as arguments.

use std::sync::{Mutex, PoisonError};

use subtend_session::ids::{InputId, SessionId};
use tokio::time::Instant;
use uuid::{Builder, Uuid};

/// The wall clock of one runtime.
/// It is read once at the start and then advances with tokio's clock: a jump of the system clock does not move deadlines, and virtual time works.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    base_ms: i64,
    started: Instant,
}

impl Clock {
    /// Starts now or, with `fixed`, at the same time in every run.
    pub(crate) fn new(fixed: bool) -> Self {
        Self { base_ms: if fixed { 1_700_000_000_000 } else { system_ms() }, started: now() }
    }

    pub(crate) fn wall_ms(&self) -> i64 {
        let elapsed = i64::try_from(now().duration_since(self.started).as_millis()).unwrap_or(i64::MAX);
        self.base_ms.saturating_add(elapsed)
    }
}

/// Creates ids and jitter; with a seed, the same values in every run.
pub(crate) struct IdGenerator {
    random: Mutex<fastrand::Rng>,
    clock: Clock,
}

impl IdGenerator {
    pub(crate) fn new(seed: Option<u64>, clock: Clock) -> Self {
        let random = seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        Self { random: Mutex::new(random), clock }
    }

    fn uuid(&self) -> Uuid {
        let mut tail = [0; 10];
        self.random.lock().unwrap_or_else(PoisonError::into_inner).fill(&mut tail);
        Builder::from_unix_timestamp_millis(self.clock.wall_ms().unsigned_abs(), &tail).into_uuid()
    }

    pub(crate) fn session(&self) -> SessionId {
        SessionId(self.uuid())
    }

    pub(crate) fn input(&self) -> InputId {
        InputId(self.uuid())
    }

    pub(crate) fn jitter(&self) -> f64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }
}

#[expect(clippy::disallowed_methods, reason = "the only code that reads the system clock")]
fn system_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the monotonic time, which is virtual under a paused clock.
pub(crate) fn now() -> Instant {
    Instant::now()
}
