//! Fault points: places where a test makes a part fail. Without the feature they are nothing.

use subtend_session::ids::{CallId, InputId, RunKey, SessionId};
use subtend_session::record::AskBy;
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

/// What an observer sees inside of the hub, at the instant at which it happens. No journal holds it.
#[derive(Clone, Copy, Debug)]
pub enum Sight<'a> {
    /// The token of a run fired, and with it those of all runs below it.
    Fired(RunKey),
    /// An input was put to the inbox of a session.
    Put {
        /// The session.
        session: SessionId,
        /// The input.
        input: InputId,
        /// Inputs that the inbox held before.
        len: usize,
        /// How many it may hold.
        bound: usize,
        /// Whether it took this one.
        taken: bool,
    },
    /// A control was put to the lane of a session.
    Control {
        /// The session.
        session: SessionId,
        /// The name of the command.
        command: &'static str,
    },
    /// An actor begins to handle what it took from its lanes.
    Round(SessionId),
    /// It begins to decide a control.
    Handles {
        /// The session.
        session: SessionId,
        /// The name of the command.
        command: &'static str,
    },
    /// An actor died.
    Died(SessionId),
    /// An activation is to give up the run in flight.
    GivesUp(RunKey),
    /// A session was activated.
    Activated(SessionId),
    /// A person is to be asked about a call.
    Asked {
        /// The session.
        session: SessionId,
        /// The call.
        call: CallId,
    },
    /// The question about a call was answered.
    Answered {
        /// The session.
        session: SessionId,
        /// The call.
        call: CallId,
        /// By whom.
        by: AskBy,
    },
    /// A batch was appended: the state of its session.
    Committed(&'a State),
}

#[cfg(feature = "fault-points")]
type Observe = dyn Fn(Sight<'_>) + Send + Sync;

#[cfg(feature = "fault-points")]
type Strike = dyn Fn(Point, &str) + Send + Sync;

/// Faults of a runtime.
#[derive(Clone, Default)]
pub struct Faults {
    #[cfg(feature = "fault-points")]
    strike: Option<std::sync::Arc<Strike>>,
    #[cfg(feature = "fault-points")]
    observe: Option<std::sync::Arc<Observe>>,
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
        Self { sabotage, hasty: has("no-intent"), ..Self::default() }
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

    /// Calls `observe` with each [`Sight`], in the task in which it happens.
    #[cfg(feature = "fault-points")]
    #[must_use]
    pub fn observed(mut self, observe: impl Fn(Sight<'_>) + Send + Sync + 'static) -> Self {
        self.observe = Some(std::sync::Arc::new(observe));
        self
    }

    #[cfg(feature = "fault-points")]
    pub(crate) fn see(&self, sight: Sight<'_>) {
        if let Some(observe) = &self.observe {
            observe(sight);
        }
    }

    #[cfg(not(feature = "fault-points"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(crate) fn see(&self, _: Sight<'_>) {}

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
