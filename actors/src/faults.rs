//! Fault points at which tests inject failures. Without the feature they do nothing.

#[cfg(feature = "sabotage")]
use subtend_invariants::bugs::{Bug, Rules};
use subtend_session::command::{Clock, Command};
use subtend_session::effect::{Decision, Rejection};
use subtend_session::ids::{CallId, InputId, RunKey, RunNo, SessionId};
use subtend_session::index::{Before, Changes, Stamp};
use subtend_session::record::{AnsweredBy, Notice, Record};
use subtend_session::state::State;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// In a session's handler, before it decides the command named by the detail.
    Handler,
    /// In a session's handler, between the append of its batch and the effects; the detail is the kind of the last record.
    AfterAppend,
    /// In the turn task, around the model.
    TurnTask,
    /// In the task that reads files for admission, before it reads; the detail is `files`.
    Reading,
}

/// An internal event that is not in the journal, reported as it happens.
#[derive(Clone, Copy, Debug)]
pub enum InternalEvent<'a> {
    /// The token of a run fired, together with those of all runs below it.
    Fired(RunKey),
    /// An input arrived at the inbox of a session.
    Put {
        session: SessionId,
        input: InputId,
        /// Number of inputs in the inbox before this one.
        len: usize,
        bound: usize,
        taken: bool,
    },
    /// A control command was queued in a session's inbox.
    Control {
        session: SessionId,
        command: &'static str,
    },
    /// An actor starts to handle its inbox.
    Round(SessionId),
    /// An actor starts to decide a control command.
    Handles {
        session: SessionId,
        command: &'static str,
    },
    /// The arguments of a call are parsed.
    Parsed(&'a str),
    Died(SessionId),
    /// An activation ends the run in flight, since a command crashes every activation.
    GivesUp(RunKey),
    Activated(SessionId),
    Asked {
        session: SessionId,
        call: CallId,
    },
    Answered {
        session: SessionId,
        call: CallId,
        by: AnsweredBy,
    },
    /// A batch was appended, with this state of its session.
    Committed(&'a State),
    /// A shutdown stopped an actor.
    Stopped {
        session: SessionId,
        run: Option<RunNo>,
    },
}

/// A bug of the runtime that the simulator must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuntimeBug {
    /// A shutdown stops owners before the runs they own.
    OwnersStopFirst,
    /// A tree cancel ends at the children of its root.
    TreesEndAtChildren,
}

impl RuntimeBug {
    pub const ALL: [Self; 2] = [Self::OwnersStopFirst, Self::TreesEndAtChildren];
}

#[cfg(feature = "fault-points")]
type Observe = dyn Fn(InternalEvent<'_>) + Send + Sync;

#[cfg(feature = "fault-points")]
type InjectFault = dyn Fn(Point, &str) + Send + Sync;

#[derive(Clone, Default)]
pub struct Faults {
    #[cfg(feature = "fault-points")]
    inject: Option<std::sync::Arc<InjectFault>>,
    #[cfg(feature = "fault-points")]
    observe: Option<std::sync::Arc<Observe>>,
    #[cfg(feature = "sabotage")]
    rules: Rules,
    /// True if tools do not wait for their intent records.
    #[cfg(feature = "fault-points")]
    skips_intents: bool,
    /// True if a deletion starts at the deepest sessions.
    #[cfg(feature = "fault-points")]
    deepest_first: bool,
    #[cfg(feature = "fault-points")]
    runtime_bug: Option<RuntimeBug>,
}

impl Faults {
    /// True if this build has the seeded bugs for drills.
    pub const COMPILED: bool = cfg!(feature = "sabotage");

    /// Returns the seeded bugs named in the comma-separated `text`. Other names are ignored.
    ///
    /// - `no-dedup`: a handled row is handled again.
    /// - `no-intent`: tools do not wait for their intent records.
    /// - `no-order`: a deletion starts at the deepest sessions.
    /// - `no-reset`: a run that is parked at a limit is forgotten after a restart.
    /// - `no-debt`: a compaction hides what is owed to the model.
    #[cfg(feature = "sabotage")]
    pub fn named(text: &str) -> Self {
        let has = |name: &str| text.split(',').any(|word| word.trim() == name);
        let bugs =
            [("no-dedup", Bug::RowTakenTwice), ("no-reset", Bug::ResetForgotten), ("no-debt", Bug::OwedCompacted)];
        let rules = bugs.into_iter().find(|(name, _)| has(name)).map_or(Rules::ALL, |(_, bug)| Rules::without(bug));
        Self { rules, skips_intents: has("no-intent"), deepest_first: has("no-order"), ..Self::default() }
    }

    /// Returns no bugs: this build lacks the feature.
    #[cfg(not(feature = "sabotage"))]
    pub fn named(_text: &str) -> Self {
        Self::default()
    }

    /// Calls `inject` at each point with its detail (for a handler, the command's name). It may panic to inject a fault.
    #[cfg(feature = "fault-points")]
    pub fn new(inject: impl Fn(Point, &str) + Send + Sync + 'static) -> Self {
        Self { inject: Some(std::sync::Arc::new(inject)), ..Self::default() }
    }

    /// Calls `observe` with each [`InternalEvent`], in the task in which it happens.
    #[cfg(feature = "fault-points")]
    #[must_use]
    pub fn with_observer(mut self, observe: impl Fn(InternalEvent<'_>) + Send + Sync + 'static) -> Self {
        self.observe = Some(std::sync::Arc::new(observe));
        self
    }

    #[cfg(feature = "fault-points")]
    pub(crate) fn see(&self, event: InternalEvent<'_>) {
        if let Some(observe) = &self.observe {
            observe(event);
        }
    }

    #[cfg(not(feature = "fault-points"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(crate) fn see(&self, _: InternalEvent<'_>) {}

    #[cfg(feature = "fault-points")]
    #[must_use]
    pub fn with_bug(mut self, runtime_bug: RuntimeBug) -> Self {
        self.runtime_bug = Some(runtime_bug);
        self
    }

    #[cfg(feature = "fault-points")]
    pub(crate) fn has(&self, runtime_bug: RuntimeBug) -> bool {
        self.runtime_bug == Some(runtime_bug)
    }

    #[cfg(not(feature = "fault-points"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(crate) fn has(&self, _: RuntimeBug) -> bool {
        false
    }

    /// Makes every session decide by `rules`, which may have bugs.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    #[cfg(feature = "fault-points")]
    pub(crate) fn inject(&self, point: Point, detail: &str) {
        if let Some(inject) = &self.inject {
            inject(point, detail);
        }
    }

    #[cfg(feature = "fault-points")]
    pub(crate) fn skips_intents(&self) -> bool {
        self.skips_intents
    }

    #[cfg(not(feature = "fault-points"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(crate) fn skips_intents(&self) -> bool {
        false
    }

    #[cfg(feature = "fault-points")]
    pub(crate) fn deletes_deepest_first(&self) -> bool {
        self.deepest_first
    }

    #[cfg(not(feature = "fault-points"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(crate) fn deletes_deepest_first(&self) -> bool {
        false
    }

    #[cfg(not(feature = "fault-points"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(crate) fn inject(&self, _: Point, _: &str) {}
}

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
