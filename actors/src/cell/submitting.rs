//! Submits inputs to sessions. A submission returns when the acceptance of its input is durable.

use std::sync::Arc;

use subtend_session::command::Command;
use subtend_session::effect::{Rejection, Reply};
use subtend_session::ids::{InputId, RunNo, SessionId};
use subtend_session::record::InputAccepted;
use tokio::sync::oneshot;

use crate::cell::cells::Cells;
use crate::delivery::inbox::InboxItem;
use crate::values::error::SendError;

/// An input that its session accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptedInput {
    pub(crate) input: InputId,
    /// The run in flight at the acceptance, or the last one.
    pub(crate) run: RunNo,
    pub(crate) duplicate: bool,
}

impl Cells {
    pub(crate) async fn submit(
        self: &Arc<Self>,
        session: SessionId,
        input: InputAccepted,
    ) -> Result<AcceptedInput, SendError> {
        let mut resent = false;
        let answer = loop {
            let (reply, answer) = oneshot::channel();
            let item = InboxItem::Command(Command::Submit(Box::new(input.clone())), Some(reply));
            self.deliver_input(session, item)
                .map_err(|full| SendError::Busy { what: "the inbox", limit: full.0 as u64 })?;
            match answer.await {
                Ok(answer) => break answer,
                // A panic of the actor lost the input or its reply. Sending it again is safe: its id is accepted once.
                Err(_) if !resent && !self.life.is_stopping() => resent = true,
                Err(_) => return Err(SendError::Stopped(self.life.stopped_at(session))),
            }
        };
        match answer {
            Ok((Reply::Accepted { input, duplicate }, run)) => Ok(AcceptedInput { input, run, duplicate }),
            Ok((
                Reply::None
                | Reply::Done(_)
                | Reply::AlreadyEnded(..)
                | Reply::NotFound
                | Reply::Branched { .. }
                | Reply::Switched { .. },
                _,
            )) => Err(SendError::Refused("the session did not accept the input".to_owned())),
            Err(Rejection::Busy { what, limit }) => Err(SendError::Busy { what, limit }),
            Err(Rejection::BadInput(why)) => Err(SendError::BadInput(why)),
            Err(
                other @ (Rejection::Stale(_)
                | Rejection::Working { .. }
                | Rejection::Waiting { .. }
                | Rejection::Deleted
                | Rejection::NotFound(_)
                | Rejection::NotYet(_)
                | Rejection::Misplaced { .. }),
            ) => Err(SendError::Refused(other.to_string())),
        }
    }
}
