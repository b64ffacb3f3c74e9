//! Fault points: places where a test makes a part fail. Without the feature they are nothing.

#[cfg(feature = "fault-points")]
use subtend_session::sabotage::Sabotage;
use subtend_session::state::State;

/// Where a fault may strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// In a session's own handler, before it decides the command of the detail.
    Handler,
    /// In a session's own handler, after its batch is appended and before its effects are done; the detail is the kind of
    /// the batch's last record.
    AfterAppend,
    /// In the turn task, around the model.
    TurnTask,
    /// In the task that reads the files of calls that are to be admitted, before it reads; the detail is `files`.
    Reading,
}

#[cfg(feature = "fault-points")]
type Strike = dyn Fn(Point, &str) + Send + Sync;

/// Faults of a runtime.
#[derive(Clone, Default)]
pub struct Faults {
    #[cfg(feature = "fault-points")]
    strike: Option<std::sync::Arc<Strike>>,
    /// Rules of sessions that are switched off.
    #[cfg(feature = "fault-points")]
    sabotage: Sabotage,
    /// Tools do not wait for their intents.
    #[cfg(feature = "fault-points")]
    hasty: bool,
}

impl Faults {
    /// Whether this build has the fault points that drills sabotage.
    pub const COMPILED: bool = cfg!(all(feature = "fault-points", feature = "sabotage"));

    /// The sabotage that `words` names, separated by commas, for drills that must notice it: `no-dedup` (a row that was taken is
    /// taken again), `no-intent` (tools do not wait for their intents). Other words mean nothing here.
    #[cfg(all(feature = "fault-points", feature = "sabotage"))]
    pub fn named(words: &str) -> Self {
        let has = |name| words.split(',').any(|word| word.trim() == name);
        let dedup = Sabotage::none().with(subtend_session::sabotage::Bug::RowTakenTwice);
        let sabotage = if has("no-dedup") { dedup } else { Sabotage::none() };
        Self { strike: None, sabotage, hasty: has("no-intent") }
    }

    /// Without the features nothing can be sabotaged.
    #[cfg(not(all(feature = "fault-points", feature = "sabotage")))]
    pub fn named(_words: &str) -> Self {
        Self::default()
    }

    /// Calls `strike` at each point with a detail (the command's name, for a handler). It may panic: that is the fault.
    #[cfg(feature = "fault-points")]
    pub fn new(strike: impl Fn(Point, &str) + Send + Sync + 'static) -> Self {
        Self { strike: Some(std::sync::Arc::new(strike)), ..Self::default() }
    }

    /// Switches rules of every session off: a bug that is to be noticed.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn sabotage(mut self, sabotage: Sabotage) -> Self {
        self.sabotage = sabotage;
        self
    }

    #[cfg(feature = "fault-points")]
    pub(crate) fn strike(&self, point: Point, detail: &str) {
        if let Some(strike) = &self.strike {
            strike(point, detail);
        }
    }

    /// Switches off what is to be switched off in the session of `state`.
    #[cfg(feature = "fault-points")]
    pub(crate) fn spoil(&self, state: &mut State) {
        state.sabotage = self.sabotage;
    }

    /// Whether tools do not wait for their intents.
    #[cfg(feature = "fault-points")]
    pub(crate) fn hasty(&self) -> bool {
        self.hasty
    }

    #[cfg(not(feature = "fault-points"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(crate) fn hasty(&self) -> bool {
        false
    }

    #[cfg(not(feature = "fault-points"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(crate) fn spoil(&self, _: &mut State) {}

    #[cfg(not(feature = "fault-points"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(crate) fn strike(&self, _: Point, _: &str) {}
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faults")
    }
}
