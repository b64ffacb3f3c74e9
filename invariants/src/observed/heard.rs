//! What somebody outside was shown.

use super::When;
use subtend_session::ids::{Seq, SessionId, Text};

/// A record that somebody relies on: a receipt, an answer to a control, an event that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    pub session: SessionId,
    /// The last record that the word rests on.
    pub seq: Seq,
    /// When it was given.
    pub at: When,
    /// The last durable record of the session then; absent where that is not known (J-5).
    pub durable: Option<Seq>,
}

/// What one subscriber heard of durable events, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubscriberLog {
    /// Its name, for the verdict.
    pub name: Text,
    /// The one session that it follows, with the first record that it asked for; absent for one that hears all that
    /// happens.
    pub follows: Option<(SessionId, Seq)>,
    pub heard: Vec<Heard>,
    /// Whether it has heard all that there is: it was read dry at the instant of the world.
    pub dry: bool,
}

/// One thing that a subscriber heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// An event, by its record.
    Record(SessionId, Seq),
    /// That it missed these records, first to last.
    Skipped(SessionId, Seq, Seq),
    /// That it missed so many events of all sessions, passing ones included.
    Missed(u64),
}
