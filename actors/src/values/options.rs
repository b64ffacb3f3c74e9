//! Options of a runtime.

use std::time::Duration;

use subtend_supervision::Intensity;

/// Bounds and switches of a runtime; limits of sessions are separate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Queued inputs per session.
    pub inbox: usize,
    /// Runs that hold a slot at the same time, over all roots; persons' runs have as many of their own.
    pub slots: usize,
    /// Queued children that keep their state in memory, some 2 KiB each. The others are read from the journal when they start.
    pub queued_states: usize,
    /// How long a waiting or idle session stays in memory.
    pub idle: Duration,
    /// Events that a slow subscriber may lag behind.
    pub events: usize,
    /// Restarts of one session's actor.
    pub restarts: Intensity,
    /// Whether models that may start tasks may also check and cancel them (`check_task`, `cancel_task`).
    pub manage_tasks: bool,
    /// Whether in-process models and read-only tools wait for their intent record too, as drills require.
    pub durable_before_call: bool,
    /// Whether the start continues what an earlier process left: runs that resume (`on_restart: resume`), queued runs, and queues
    /// whose runs were lost. A process in which no agent works says no: they stay dormant until another one starts, or their run gets
    /// an input, a cancel or an interrupt here. A run in flight that does not resume ends as lost in any case.
    pub resumes: bool,
    /// Whether sessions of MCP clients are offered internal tools.
    pub mcp_internal: bool,
    /// Whether the agent `title` names an untitled root session at a person's first message: one more model call per session.
    pub titles: bool,
    /// Whether the agent `summary` summarises a closed root session. A requested summary
    /// ([`SessionHandle::summarise`](crate::SessionHandle::summarise)) is always made.
    pub summaries: bool,
    /// Seed of ids and jitter, for tests.
    pub seed: Option<u64>,
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
            resumes: true,
            mcp_internal: false,
            // Features with a cost are opt-in.
            titles: false,
            summaries: false,
            seed: None,
        }
    }
}
