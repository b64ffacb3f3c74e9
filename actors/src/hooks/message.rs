use std::time::Duration;

use subtend_session::ids::{SessionId, Text};
use subtend_session::record::InputAccepted;

use super::{Hooks, Refused, UserMessage, catch_hook_panic};
use crate::values::error::SendError;

/// Lets the host change `input` and its agent before it is sent.
pub(crate) async fn apply_message_hook(
    hooks: &dyn Hooks,
    limit: Duration,
    (session, root): (SessionId, SessionId),
    input: &mut InputAccepted,
    agent: &mut Option<Text>,
) -> Result<(), SendError> {
    let message = UserMessage {
        session,
        root,
        lane: input.lane,
        text: input.text.clone(),
        metadata: input.metadata.clone(),
        agent: agent.clone(),
    };
    let received = tokio::time::timeout(limit, catch_hook_panic(|| hooks.user_message(message))).await;
    let refused = |why: String| Err(SendError::Refused(why));
    match received {
        Ok(Ok(Ok(message))) => {
            (input.text, input.metadata, *agent) = (message.text, message.metadata, message.agent);
            Ok(())
        }
        Ok(Ok(Err(Refused(why)))) => refused(format!("the host refuses the message: {why}")),
        Ok(Err(panic)) => {
            tracing::error!(%session, %panic, "a hook panicked; the message is refused");
            refused("the message was not sent: a hook of the host failed".to_owned())
        }
        Err(_) => {
            refused(format!("the message was not sent: a hook of the host took more than {} ms", limit.as_millis()))
        }
    }
}
