//! The result of a control.

use subtend_session::effect::Reply;
use subtend_session::ids::RunNo;
use subtend_session::outcome::Outcome;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Done or in progress, for this run.
    Done(RunNo),
    /// The run had ended, or its outcome was decided before.
    AlreadyEnded(Outcome),
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
