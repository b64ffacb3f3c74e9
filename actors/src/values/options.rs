use std::time::Duration;

use subtend_supervision::Intensity;

/// Options of a runtime. The limits of sessions are separate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum number of queued inputs per session.
    pub inbox: usize,
    /// Maximum number of runs that hold a slot at the same time, over all roots. Runs that people open have a separate
    /// pool of the same size.
    pub slots: usize,
    /// Maximum number of queued children that keep their state in memory, about 2 KiB each. The others are read from the journal when they start.
    pub queued_states: usize,
    /// Time that a waiting or idle session stays in memory.
    pub idle: Duration,
    /// Maximum number of bytes of text in all sessions that are in memory. Above it, waiting sessions leave memory at
    /// once rather than after [`Options::idle`]. A session stays one millisecond longer for each 64 KiB of its text,
    /// which must be read again when it returns. Working sessions stay, so the sum can exceed the limit.
    pub resident_text: u64,
    /// Maximum number of bytes of text in all sessions that work for inputs of people and of the embedder, or wait for an
    /// approval or a child meanwhile, without 16 KiB of each. A sender may use half of what other senders leave free. Above it, an input is refused
    /// ([`SendError::Busy`](crate::SendError::Busy)), except to a session with less text. What runs record and recover
    /// is not refused, so the sum can exceed the limit.
    pub working_text: u64,
    /// Maximum number of bytes of the environments that are in use, besides the runtime's own: agents, instructions and
    /// skills, each counted once where environments have equal ones, and 64 KiB for each environment. Unused environments
    /// are forgotten first. Above it, a session of a further environment is refused.
    pub environments: usize,
    /// Maximum number of events that a slow subscriber may lag behind.
    pub events: usize,
    /// Restart limit of one session's actor.
    pub restarts: Intensity,
    /// Lets models that may start tasks also check and cancel them (`check_task`, `cancel_task`).
    pub manage_tasks: bool,
    /// Makes in-process models and read-only tools wait for their intent record too, as drills require.
    pub durable_before_call: bool,
    /// Lets the start continue the work of an earlier process: runs that resume (`on_restart: resume`), queued runs,
    /// and the queues of lost runs. A process without agents sets it to false. Such runs then stay dormant until
    /// another process starts, or until they get an input, a cancel or an interrupt here. A run in flight that does not
    /// resume ends as lost in any case.
    pub resumes: bool,
    /// Offers internal tools to sessions of MCP clients.
    pub mcp_internal: bool,
    /// Lets the agent `title` name an untitled root session at a person's first message, by one more model call per session.
    pub titles: bool,
    /// Lets the agent `summary` summarise a closed root session. A requested summary
    /// ([`SessionHandle::summarise`](crate::SessionHandle::summarise)) is always written.
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
            resident_text: 64 << 20,
            working_text: 256 << 20,
            environments: 96 << 20,
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
