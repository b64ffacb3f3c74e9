//! What a control did.

use subtend_session::effect::Reply;
use subtend_session::ids::RunNo;
use subtend_session::outcome::Outcome;

/// What a control did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Done, or under way, for this run.
    Done(RunNo),
    /// The run had ended, or its outcome was fixed before.
    AlreadyEnded(Outcome),
    /// There never was such a run.
    NotFound,
}

impl Control {
    pub(crate) fn of(reply: Reply) -> Self {
        match reply {
            Reply::Done(run) => Self::Done(run),
            Reply::AlreadyEnded(_, outcome) => Self::AlreadyEnded(outcome),
            Reply::NotFound
            | Reply::None
            | Reply::Accepted { .. }
            | Reply::Branched { .. }
            | Reply::Switched { .. } => Self::NotFound,
        }
    }
}
