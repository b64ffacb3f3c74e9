use super::When;
use subtend_session::ids::{Seq, SessionId, Text};

/// A record that a caller relies on, because it got a receipt, a reply or an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    pub session: SessionId,
    pub seq: Seq,
    pub at: When,
    /// The last durable record of the session at that time, if known.
    pub durable: Option<Seq>,
}

/// The durable events that one subscriber received, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriberLog {
    /// The subscriber's name, for messages of violations.
    pub name: Text,
    /// The session that the subscriber follows and the first requested record; absent for a subscriber of all sessions.
    pub follows: Option<(SessionId, Seq)>,
    pub received: Vec<Delivered>,
    /// True if the subscriber has received everything up to the time of the observation.
    pub caught_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    Record(SessionId, Seq),
    /// A gap, with its first and last record.
    Skipped(SessionId, Seq, Seq),
    /// A gap of this number of events of all sessions, including transient events.
    Missed(u64),
}
