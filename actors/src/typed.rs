//! Typed answers.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use subtend_session::ids::Text;
use subtend_session::outcome::Outcome;

use crate::answer::{AnswerError, Answered};
use crate::handle::SessionHandle;
use crate::values::error::{SendError, WaitError};
use crate::values::panic::truncate_message;

mod extract;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskOptions {
    /// Maximum number of times an invalid answer is returned with its errors; the default is 2.
    pub corrections: u32,
}

impl Default for AskOptions {
    fn default() -> Self {
        Self { corrections: 2 }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The question or a correction was not accepted.
    #[error(transparent)]
    Send(#[from] SendError),
    /// No answer: the run ended otherwise ([`AnswerError::Ended`], with its outcome and partial text), or the runtime stopped.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The last answer is invalid too.
    #[error("the answer does not fit after {corrections} corrections: {error}")]
    Mismatch {
        /// Number of times an answer was returned.
        corrections: u32,
        /// The error in the last answer, with its path.
        error: String,
        text: Text,
    },
}

impl SessionHandle {
    /// Asks for an answer of type `T` with its JSON schema. An invalid answer is returned to the model at most twice, with its errors.
    ///
    /// An agent that starts children may answer before they end. The last answer before the run's next input counts.
    ///
    /// The question and each correction are ordinary durable inputs. The question contains the schema; models with structured output also get it as a format.
    /// A type that is not a JSON object (a list, a text, an enum) is requested as `{"value": …}`, because providers require objects.
    ///
    /// ```
    /// # async fn example(session: subtend_actors::SessionHandle) -> Result<(), subtend_actors::AskError> {
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Capital {
    ///     city: String,
    ///     /// In millions.
    ///     inhabitants: f64,
    /// }
    /// let capital: Capital = session.ask("What is the capital of France?").await?;
    /// # drop((capital.city, capital.inhabitants));
    /// # Ok(())
    /// # }
    /// ```
    /// # Errors
    /// [`AskError`]. A schema of more than 64 KiB is refused as [`SendError::BadInput`].
    /// # Cancel safety
    /// Dropping the future cancels nothing: the input will be answered, but the answer is not validated.
    pub async fn ask<T: DeserializeOwned + JsonSchema>(&self, text: impl Into<Text>) -> Result<T, AskError> {
        self.ask_with(text, AskOptions::default()).await
    }

    /// Asks as [`SessionHandle::ask`] does, with options.
    /// # Errors, cancel safety
    /// As [`SessionHandle::ask`].
    pub async fn ask_with<T: DeserializeOwned + JsonSchema>(
        &self,
        text: impl Into<Text>,
        options: AskOptions,
    ) -> Result<T, AskError> {
        let form = Form::of::<T>();
        let mut text = question(&text.into(), &form.schema);
        let mut corrections = 0;
        loop {
            let receipt = self.input(text).format(&form.schema).send().await?;
            let answer = receipt.answer().await?;
            let (read, last) = match form.read::<T>(&answer.text) {
                Ok(value) => return Ok(value),
                Err(_) => self.final_answer(&form, &answer).await?,
            };
            match read {
                Ok(value) => return Ok(value),
                Err(error) if corrections < options.corrections => text = correction(&error),
                Err(error) => return Err(AskError::Mismatch { corrections, error, text: last }),
            }
            corrections = corrections.saturating_add(1);
        }
    }
}

impl SessionHandle {
    /// Returns the run's last answer before its end or its next input, not one given while children are running.
    async fn final_answer<T: DeserializeOwned>(
        &self,
        form: &Form,
        answer: &Answered,
    ) -> Result<(Result<T, String>, Text), AnswerError> {
        let ended = self.run(answer.run).ended().await.map_err(|error| match error {
            WaitError::Stopped(stopped) => AnswerError::Stopped(stopped),
            WaitError::NoSuchRun { .. } | WaitError::Refused(_) => AnswerError::Stopped(self.sessions.life.stopped()),
        })?;
        let last = match self.answer_before_next_input(answer).await? {
            Some(last) => last,
            None if ended.outcome != Outcome::Completed => return Err(AnswerError::Ended(Box::new(ended))),
            None => ended.text.unwrap_or_else(|| answer.text.clone()),
        };
        Ok((form.read(&last), last))
    }
}

fn question(text: &str, schema: &Value) -> String {
    format!(
        "{text}\n\nAnswer with a single JSON object and nothing else: no words around it and no code fence. It must be valid \
         against this JSON schema:\n{schema}"
    )
}

fn correction(error: &str) -> String {
    format!(
        "Your answer does not fit: {error}\nAnswer again: the whole JSON object, valid against the schema given above, and \
         nothing else."
    )
}

/// Wraps a value that is not an object.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wrapped<T> {
    value: T,
}

struct Form {
    schema: Value,
    wrapped: bool,
}

impl Form {
    fn of<T: JsonSchema>() -> Self {
        let plain = schema::<T>();
        let wrapped = plain.get("type").and_then(Value::as_str) != Some("object");
        Self { schema: if wrapped { schema::<Wrapped<T>>() } else { plain }, wrapped }
    }

    /// The error may quote keys and values of the answer, and is truncated.
    fn read<T: DeserializeOwned>(&self, text: &str) -> Result<T, String> {
        let json = extract::json(text)?;
        if !json.starts_with('{') {
            // A list must not be read as the fields of a struct in order.
            return Err("it is not a JSON object".to_owned());
        }
        let read = if self.wrapped { parsed::<Wrapped<T>>(json).map(|wrapped| wrapped.value) } else { parsed(json) };
        read.map_err(|error| truncate_message(&error).to_owned())
    }
}

fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None);
    settings.into_generator().into_root_schema_for::<T>().into()
}

fn parsed<T: DeserializeOwned>(json: &str) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => error.inner().to_string(),
            path => format!("at `{path}`: {}", error.inner()),
        }
    })?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(value)
}

#[cfg(test)]
mod tests;
