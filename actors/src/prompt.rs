//! One call from a prompt to its answer.

use subtend_session::ids::{SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::render;

use crate::runtime::{OpenOptions, OpenSessionError, Runtime};
use crate::values::error::{ControlError, SendError, WaitError};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    #[error(transparent)]
    Open(#[from] OpenSessionError),
    /// A task cannot be started, or not as a child of the given session.
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Wait(#[from] WaitError),
    #[error("the run of session {session} did not complete: it {}", render::cause(outcome))]
    Ended { session: SessionId, outcome: Outcome, partial: Option<Text> },
}

impl Runtime {
    /// Opens a session, sends it `text`, waits until the run and all runs it owns have ended, and returns the last answer.
    ///
    /// The first argument is an agent's name, or [`OpenOptions`]. To continue the conversation, use [`Runtime::open`].
    ///
    /// ```
    /// # async fn example(runtime: &subtend_actors::Runtime) -> Result<(), subtend_actors::PromptError> {
    /// let answer = runtime.prompt("general", "Where are errors handled?").await?;
    /// println!("{answer}");
    /// # Ok(())
    /// # }
    /// ```
    /// # Errors
    /// [`PromptError`], also if the run does not complete.
    /// # Cancel safety
    /// Dropping the future cancels nothing: the run continues, and its session remains in the journal.
    /// # Durability
    /// The answer is durable when it is returned.
    pub async fn prompt(&self, agent: impl Into<OpenOptions>, text: impl Into<Text>) -> Result<Text, PromptError> {
        let session = self.open(agent)?;
        let receipt = session.send(text).await?;
        let ended = session.run_ended(receipt.run).await?;
        if ended.outcome != Outcome::Completed {
            return Err(PromptError::Ended { session: session.id(), outcome: ended.outcome, partial: ended.text });
        }
        Ok(ended.text.unwrap_or_default())
    }
}
