//! Inputs to a session.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use subtend_session::ids::Text;
use subtend_session::place::Owner;
use subtend_session::record::{From, InputAccepted, Lane};
use subtend_session::values::check_metadata;

use super::{SendError, SessionHandle, Stopped};
use crate::answer::Receipt;
use crate::hooks::message::apply_message_hook;

/// Maximum length of a sender's key, in bytes.
const MAX_KEY: usize = 256;

/// An input being built; [`Input::send`] or [`Input::steer`] sends it.
#[derive(Clone, Debug)]
#[must_use = "an input does nothing until it is sent"]
pub struct Input {
    session: SessionHandle,
    input: InputAccepted,
    agent: Option<Text>,
}

impl SessionHandle {
    /// Creates an input with options.
    ///
    /// ```
    /// # async fn example(session: subtend_actors::SessionHandle) -> Result<(), subtend_actors::SendError> {
    /// let receipt = session.input("Pay the invoice.").key("invoice-17").send().await?;
    /// // After a network failure the sender retries: the key identifies the input.
    /// let duplicate = session.input("Pay the invoice.").key("invoice-17").send().await?;
    /// assert_eq!((duplicate.input, duplicate.duplicate), (receipt.input, true));
    /// # Ok(())
    /// # }
    /// ```
    pub fn input(&self, text: impl Into<Text>) -> Input {
        let input = InputAccepted::new(self.sessions.host.ids.input(), From::Person, Lane::Send, text, Owner::Person);
        Input { session: self.clone(), input, agent: None }
    }

    /// Sends an input for the next rest point. An idle session opens a run for it at once.
    /// # Errors
    /// [`SendError`]; then the input is not kept.
    /// # Cancel safety
    /// If the future is dropped, the input may or may not have been accepted. With a [key](Input::key) it can be resent safely.
    pub async fn send(&self, text: impl Into<Text>) -> Result<Receipt, SendError> {
        self.input(text).send().await
    }

    /// Sends an input for the next turn boundary.
    /// # Errors, cancel safety
    /// As [`SessionHandle::send`].
    pub async fn steer(&self, text: impl Into<Text>) -> Result<Receipt, SendError> {
        self.input(text).steer().await
    }
}

impl Input {
    /// Sets the sender's key, at most 256 bytes. Within a session, a second input with the same key is always the same input and returns the first
    /// receipt.
    pub fn key(mut self, key: impl Into<Text>) -> Self {
        self.input.key = Some(key.into());
        self
    }

    /// Puts a hash of the sender's request into the input's id. After a second input with the same key, the id in the first receipt tells whether
    /// the request was the same ([`InputId::is_of_request`](subtend_session::ids::InputId::is_of_request)).
    pub fn request_hash(mut self, hash: u64) -> Self {
        self.input.id = self.input.id.of_request(hash);
        self
    }

    /// Sets the turn limit of the run that this input opens or resumes; the default is the session's.
    pub fn turns(mut self, turns: u32) -> Self {
        self.input.turns = Some(turns);
        self
    }

    /// Sets the sender, and the owner of a run that the input opens; the default is a person.
    pub(crate) fn with_sender(mut self, from: From, owner: Owner) -> Self {
        self.input.from = from;
        self.input.as_owner = owner;
        self
    }

    /// Sets the agent that answers from this input on, by name: its prompt, model, settings, and its tools within the session's authority. A person
    /// must be allowed to pick it. It is resolved when the input is sent.
    pub fn agent(mut self, name: impl Into<Text>) -> Self {
        self.agent = Some(name.into());
        self
    }

    /// Attaches JSON of at most 64 KiB and 10,000 values, which is recorded but not shown to the model.
    pub fn metadata(mut self, metadata: &Value) -> Self {
        self.input.metadata = Some(metadata.to_string().into());
        self
    }

    /// Requests an answer in this JSON schema, at most 64 KiB, from models with structured output. [`SessionHandle::ask`] also validates the answer.
    pub fn format(mut self, schema: &Value) -> Self {
        self.input.format = Some(schema.to_string().into());
        self
    }

    /// Sends the input as [`SessionHandle::send`] does.
    /// # Errors, cancel safety
    /// As [`SessionHandle::send`].
    pub async fn send(self) -> Result<Receipt, SendError> {
        self.submit(Lane::Send).await
    }

    /// Sends the input as [`SessionHandle::steer`] does.
    /// # Errors, cancel safety
    /// As [`SessionHandle::send`].
    pub async fn steer(self) -> Result<Receipt, SendError> {
        self.submit(Lane::Steer).await
    }

    async fn submit(mut self, lane: Lane) -> Result<Receipt, SendError> {
        self.input.lane = lane;
        let (id, root, sessions) = (self.session.id, self.session.root, Arc::clone(&self.session.sessions));
        self.check()?;
        // Services read prompts of the runtime, so the hook does not apply to them.
        if let Some(hooks) = sessions.host.hooks.as_deref().filter(|_| !matches!(self.input.as_owner, Owner::Host(_))) {
            let limit = Duration::from_millis(sessions.environments.home().limits_body().tool_ms);
            apply_message_hook(hooks, limit, (id, root), &mut self.input, &mut self.agent).await?;
        }
        self.check()?;
        if let Some(name) = &self.agent {
            self.input.agent_override = Some(Arc::new(self.session.resolve_override(name).await?));
        }
        let (session, input) = (self.session, self.input);
        let pass = sessions.life.gate.enter().ok_or(SendError::Stopped(Stopped::Shutdown))?;
        let own = input.id;
        let accepted = sessions.cells.submit(session.id, input).await?;
        drop(pass);
        // A resend within this call is not a repetition for the caller.
        let duplicate = accepted.duplicate && own != accepted.input;
        Ok(Receipt { input: accepted.input, run: accepted.run, duplicate, session })
    }

    fn check(&self) -> Result<(), SendError> {
        let key = self.input.key.as_deref();
        if key.is_some_and(str::is_empty) {
            return Err(SendError::BadInput(
                "the key of the input is empty. Omit the key, or give each input its own".to_owned(),
            ));
        }
        if self.input.turns == Some(0) {
            return Err(SendError::BadInput(
                "the input allows 0 turns. Allow 1 or more, or omit the number".to_owned(),
            ));
        }
        if let Some(bytes) = key.map(str::len).filter(|bytes| *bytes > MAX_KEY) {
            let why = format!("the key of the input has {bytes} bytes, the limit is {MAX_KEY}");
            return Err(SendError::BadInput(why));
        }
        let metadata = self.input.metadata.as_deref().unwrap_or_default();
        check_metadata("the metadata of the input", metadata).map_err(SendError::BadInput)
    }
}
