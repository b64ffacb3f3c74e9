//! Options of a runtime.

use std::time::Duration;

use subtend_session::ids::SessionId;
use subtend_supervision::Intensity;

/// Bounds and switches of a runtime, beside the limits of its sessions.
#[derive(Clone, Debug)]
pub struct Options {
    /// Inputs that wait for one session before it accepts them.
    pub inbox: usize,
    /// Runs that hold a slot at the same time, over all roots; runs that persons opened have as many for themselves.
    pub slots: usize,
    /// Queued children that keep their state in memory, some 2 KiB each. The others are read from the journal when they start.
    pub queued_states: usize,
    /// How long a waiting or quiet session stays in memory.
    pub idle: Duration,
    /// Events that a slow subscriber may lag behind.
    pub events: usize,
    /// Restarts of one session's actor.
    pub restarts: Intensity,
    /// Whether models that may start tasks may also check and cancel them (`check_task`, `cancel_task`).
    pub manage_tasks: bool,
    /// Whether in-process models and read-only tools wait for their intent record too, as drills want.
    pub durable_before_call: bool,
    /// What the start takes up of what an earlier process left.
    pub recovery_scope: RecoveryScope,
    /// Whether sessions of MCP clients are offered tools that are internal only (K24).
    pub mcp_internal: bool,
    /// Whether a root session without a title is named by the agent `title` at the first message of a person: one more model call
    /// for each session, beside its run.
    pub titles: bool,
    /// Whether a root session that is closed is summed up by the agent `summary`. One that is asked for
    /// ([`SessionHandle::summarise`](crate::SessionHandle::summarise)) is made in any case.
    pub summaries: bool,
    /// Seed of ids and jitter, for tests: the same in every run.
    pub seed: Option<u64>,
}

/// What a start takes up: queues whose runs were lost, runs that were queued, and runs that go on (`on_restart: resume`).
///
/// What is not taken up stays as it is until another host takes it up, or its run is addressed here: by an input, a cancel, an
/// interrupt. What was in flight and does not go on ends as lost in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryScope {
    /// All of it: for a host that stays.
    #[default]
    All,
    /// What is in this session, what it owns, and what it is owned by: for a process that works for one session and ends then. What
    /// it had taken up of others would be in flight at its end, and be lost.
    Session(SessionId),
    /// Nothing: for a process that only looks at sessions or changes them, or that opens its own.
    Nothing,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            inbox: 64,
            slots: 256,
            queued_states: 1_024,
            idle: Duration::from_secs(30),
            events: 8192,
            restarts: Intensity::default(),
            manage_tasks: true,
            durable_before_call: false,
            recovery_scope: RecoveryScope::All,
            mcp_internal: false,
            // What costs money is asked for.
            titles: false,
            summaries: false,
            seed: None,
        }
    }
}
