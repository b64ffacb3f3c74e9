//! Typed answers: a question whose answer is a value.

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

mod extract;

/// How a typed question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskOptions {
    /// How often an answer that does not fit is sent back with what is wrong with it: 2 if not said otherwise.
    pub corrections: u32,
}

impl Default for AskOptions {
    fn default() -> Self {
        Self { corrections: 2 }
    }
}

/// Why a typed question has no answer of its type.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The question, or a correction, was not accepted.
    #[error(transparent)]
    Send(#[from] SendError),
    /// It was not answered: the run ended otherwise ([`AnswerError::Ended`], with its outcome and partial text), or the
    /// runtime stopped.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// The last answer does not fit either.
    #[error("the answer does not fit after {corrections} corrections: {error}")]
    Mismatch {
        /// How often it was sent back.
        corrections: u32,
        /// What is wrong with the last one, with the path to it.
        error: String,
        /// The last answer.
        text: Text,
    },
}

impl SessionHandle {
    /// Asks for an answer of type `T`: with its JSON schema, checked when it comes, and sent back at most twice with what is
    /// wrong with it.
    ///
    /// An agent that starts children may answer before they are back: then the last answer counts that the run gives before
    /// it takes another input.
    ///
    /// The question, and each correction, is an ordinary durable input: the schema goes with it for models with structured
    /// output, and is said in words for those without. An answer that is no JSON object by nature (a list, a text, an
    /// enum) is asked for as `{"value": …}`, since providers want objects.
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
    ///
    /// # Errors
    /// [`AskError`]. A schema of more than 64 KiB is refused as [`SendError::BadInput`].
    ///
    /// # Cancel safety
    /// Dropping the future cancels nothing: what was sent is answered, and checked by nobody.
    ///
    /// # Durability
    /// What was sent and answered is durable. That it fits is found anew by whoever reads it.
    pub async fn ask<T: DeserializeOwned + JsonSchema>(&self, text: impl Into<Text>) -> Result<T, AskError> {
        self.ask_with(text, AskOptions::default()).await
    }

    /// As [`SessionHandle::ask`], with options.
    ///
    /// # Errors
    /// As [`SessionHandle::ask`].
    ///
    /// # Cancel safety
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
                Err(_) => self.at_the_end(&form, &answer).await?,
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
    /// What the run says when it is over, or when it took another input: an answer that was given while children were still at
    /// work ("two are not back yet") is not the last, and what came after another input answers that one.
    async fn at_the_end<T: DeserializeOwned>(
        &self,
        form: &Form,
        answer: &Answered,
    ) -> Result<(Result<T, String>, Text), AnswerError> {
        let ended = self.run(answer.run).ended().await.map_err(|error| match error {
            WaitError::Stopped(stopped) => AnswerError::Stopped(stopped),
            WaitError::NoSuchRun { .. } | WaitError::Refused(_) => AnswerError::Stopped(self.sessions.life.stopped()),
        })?;
        let last = match self.before_another(answer).await? {
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

/// A value in an object, for what is none by itself.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wrapped<T> {
    /// The answer.
    value: T,
}

/// The form that an answer is to have.
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

    fn read<T: DeserializeOwned>(&self, text: &str) -> Result<T, String> {
        let json = extract::json(text)?;
        if !json.starts_with('{') {
            // A list would be read as the fields of a struct in their order, which nobody asked for.
            return Err("it is no JSON object".to_owned());
        }
        if self.wrapped { parsed::<Wrapped<T>>(json).map(|wrapped| wrapped.value) } else { parsed(json) }
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
