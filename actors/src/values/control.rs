use subtend_session::effect::Reply;
use subtend_session::ids::RunNo;
use subtend_session::outcome::Outcome;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// The control was applied to this run, or is being applied.
    Done(RunNo),
    /// This run had ended, or its outcome was already decided.
    AlreadyEnded(RunNo, Outcome),
    NotFound,
}

impl Control {
    pub(crate) fn of(reply: Reply) -> Self {
        match reply {
            Reply::Done(run) => Self::Done(run),
            Reply::AlreadyEnded(key, outcome) => Self::AlreadyEnded(key.run, outcome),
            Reply::NotFound
            | Reply::None
            | Reply::Accepted { .. }
            | Reply::Branched { .. }
            | Reply::Switched { .. } => Self::NotFound,
        }
    }
}
