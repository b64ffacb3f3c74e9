//! Options of a runtime.

use std::time::Duration;

use subtend_supervision::Intensity;

/// Bounds and switches of a runtime, beside the limits of its sessions.
#[derive(Clone, Debug)]
pub struct Options {
    /// Inputs that wait for one session before it accepts them.
    pub inbox: usize,
    /// Runs that hold a slot at the same time, over all roots; runs that persons opened have as many for themselves.
    pub slots: usize,
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
    /// Whether the start leaves alone what waits: queues stay as they are, and a run that was queued stays queued, until a host
    /// that works starts. For a process that only looks at sessions or changes them.
    pub leaves_waiting: bool,
    /// Whether the start leaves alone what waits in sessions that were opened in another workspace, and their runs that would go on:
    /// this host's tools work in this one. A session that is addressed goes on here all the same.
    pub leaves_elsewhere: bool,
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

impl Default for Options {
    fn default() -> Self {
        Self {
            inbox: 64,
            slots: 256,
            idle: Duration::from_secs(30),
            events: 8192,
            restarts: Intensity::default(),
            manage_tasks: true,
            durable_before_call: false,
            leaves_waiting: false,
            leaves_elsewhere: false,
            mcp_internal: false,
            // What costs money is asked for.
            titles: false,
            summaries: false,
            seed: None,
        }
    }
}
