//! Requests and events of a host's clients, across all their connections and all kills of the host.

use subtend_session::ids::{InputId, Seq, SessionId, Text};

/// A position in the order of the store: a frame, and the position of a record in the frame.
pub type EventPlace = (u64, u32);

/// The durable events that one client received, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientLog {
    /// The client's name, for messages of violations.
    pub name: Text,
    pub received: Vec<(EventPlace, SessionId, Seq)>,
    /// True if the client has received everything up to the instant of the world.
    pub complete: bool,
}

/// A command with an idempotency key, which its client may have sent several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyedCommand {
    /// The text of the input that the command creates. No other command has it.
    pub text: Text,
    /// The session and the input in each reply.
    pub replies: Vec<(SessionId, InputId)>,
}
