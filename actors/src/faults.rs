//! Fault points: places where a test makes a part fail. Without the feature they are nothing.

#[cfg(feature = "sabotage")]
use subtend_invariants::bugs::{Bug, Rules};
use subtend_session::command::{Clock, Command};
use subtend_session::effect::{Decision, Rejection};
use subtend_session::ids::{CallId, InputId, RunKey, RunNo, SessionId};
use subtend_session::index::{Before, Changes, Stamp};
use subtend_session::record::{AskBy, Notice, Record};
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

/// What an observer sees inside of a runtime, at the instant at which it happens. No journal holds it.
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
    /// The arguments of a call are parsed.
    Parsed(&'a str),
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
    /// An actor was stopped in order, by a shutdown.
    Stopped {
        /// The session.
        session: SessionId,
        /// The run in flight.
        run: Option<RunNo>,
    },
}

/// A bug of the runtime, which a simulation must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// A shutdown stops owners before what they own.
    OwnersStopFirst,
    /// A tree ends at the children of its top.
    TreesEndAtChildren,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::OwnersStopFirst, Self::TreesEndAtChildren];
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
    /// The rules that sessions decide by.
    #[cfg(feature = "sabotage")]
    rules: Rules,
    /// Tools do not wait for their intents.
    #[cfg(feature = "fault-points")]
    hasty: bool,
    #[cfg(feature = "fault-points")]
    flaw: Option<Flaw>,
}

impl Faults {
    /// Whether this build has the fault points that drills sabotage.
    pub const COMPILED: bool = cfg!(feature = "sabotage");

    /// The sabotage that `words` names, separated by commas, for drills that must notice it: `no-dedup` (a row that was taken is
    /// taken again), `no-intent` (tools do not wait for their intents). Other words mean nothing here.
    #[cfg(feature = "sabotage")]
    pub fn named(words: &str) -> Self {
        let has = |name| words.split(',').any(|word| word.trim() == name);
        let rules = if has("no-dedup") { Rules::without(Bug::RowTakenTwice) } else { Rules::ALL };
        Self { rules, hasty: has("no-intent"), ..Self::default() }
    }

    /// Without the features nothing can be sabotaged.
    #[cfg(not(feature = "sabotage"))]
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

    /// Puts a bug into the runtime.
    #[cfg(feature = "fault-points")]
    #[must_use]
    pub fn flawed(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    #[cfg(feature = "fault-points")]
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    #[cfg(not(feature = "fault-points"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(crate) fn has(&self, _: Flaw) -> bool {
        false
    }

    /// Has every session decide by `rules`: one that is broken is to be noticed.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    #[cfg(feature = "fault-points")]
    pub(crate) fn strike(&self, point: Point, detail: &str) {
        if let Some(strike) = &self.strike {
            strike(point, detail);
        }
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
    pub(crate) fn strike(&self, _: Point, _: &str) {}
}

/// What a session decides by: the rules of sessions, as [`Faults::rules`] has them.
#[cfg(feature = "sabotage")]
impl Faults {
    pub(crate) fn decide(&self, state: &mut State, command: Command, clock: Clock) -> Result<Decision, Rejection> {
        self.rules.decide(state, command, clock)
    }

    pub(crate) fn arrive(&self, state: &mut State, notices: Vec<Notice>, clock: Clock) -> Decision {
        self.rules.arrive(state, notices, clock)
    }

    pub(crate) fn changes(&self, before: &Before, after: &State, records: &[Record], stamp: Stamp) -> Changes {
        self.rules.changes(before, after, records, stamp)
    }
}

#[cfg(not(feature = "sabotage"))]
#[expect(clippy::unused_self, reason = "the same signatures as with the feature")]
impl Faults {
    pub(crate) fn decide(&self, state: &mut State, command: Command, clock: Clock) -> Result<Decision, Rejection> {
        subtend_session::decide::decide(state, command, clock)
    }

    pub(crate) fn arrive(&self, state: &mut State, notices: Vec<Notice>, clock: Clock) -> Decision {
        subtend_session::decide::arrive(state, notices, clock)
    }

    pub(crate) fn changes(&self, before: &Before, after: &State, records: &[Record], stamp: Stamp) -> Changes {
        subtend_session::index::changes(before, after, records, stamp)
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faults")
    }
}
