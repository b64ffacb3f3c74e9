//! Redaction of secret values in tool results.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use subtend_session::authority::{Access, Authority};
use subtend_session::call::ToolEffect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;

use crate::display::Display;
use crate::option::ToolOption;
use crate::tool::{Progress, Tool, ToolError, ToolInvocation, ToolOutput};

/// The shortest redacted value: a shorter one is part of other texts.
pub const SHORTEST: usize = 8;

/// Values that are replaced by their names in tool results.
///
/// A value is found only verbatim, not encoded or split.
///
/// ```
/// use subtend_tools::secrets::Secrets;
///
/// let secrets = Secrets::of([("OPENAI_API_KEY", "sk-0123456789"), ("EMPTY", "")]);
/// assert_eq!(secrets.redact("key: sk-0123456789."), "key: [OPENAI_API_KEY redacted].");
/// assert_eq!(format!("{secrets:?}"), "Secrets([\"OPENAI_API_KEY\"])");
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(Arc<[(Text, String)]>);

impl Secrets {
    /// Returns secrets from names and trimmed values. A value of fewer than [`SHORTEST`] bytes is left out.
    pub fn of<N: Into<Text>, V: AsRef<str>>(values: impl IntoIterator<Item = (N, V)>) -> Self {
        let trimmed = values.into_iter().map(|(name, value)| (name.into(), value.as_ref().trim().to_owned()));
        let mut values: Vec<(Text, String)> = trimmed.filter(|(_, value)| value.len() >= SHORTEST).collect();
        // A value that contains another is replaced first.
        values.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
        Self(values.into())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `text` with each secret value replaced by its name.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for (name, value) in self.0.iter() {
            if text.contains(value.as_str()) {
                text = Cow::Owned(text.replace(value.as_str(), &format!("[{name} redacted]")));
            }
        }
        text
    }

    /// Wraps `tool` so that its results, errors and progress hold no secret.
    pub(crate) fn guard(&self, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        if self.is_empty() { tool } else { Arc::new(Redacted { tool, secrets: self.clone() }) }
    }

    fn output(&self, output: ToolOutput) -> ToolOutput {
        match self.redact(&output.content) {
            Cow::Borrowed(_) => output,
            Cow::Owned(content) => ToolOutput { content: content.into(), ..output },
        }
    }

    fn error(&self, error: ToolError) -> ToolError {
        let message = self.redact(&error.message).into_owned();
        ToolError { message, ..error }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Secrets").field(&self.0.iter().map(|(name, _)| &**name).collect::<Vec<_>>()).finish()
    }
}

struct Redacted {
    tool: Arc<dyn Tool>,
    secrets: Secrets,
}

impl Tool for Redacted {
    fn spec(&self) -> &ToolSpec {
        self.tool.spec()
    }

    fn effect(&self) -> ToolEffect {
        self.tool.effect()
    }

    fn leaves_process(&self) -> bool {
        self.tool.leaves_process()
    }

    fn access(&self, args: Option<&Value>) -> Vec<Access> {
        self.tool.access(args)
    }

    fn ruled_out(&self, authority: &Authority) -> Option<ToolError> {
        self.tool.ruled_out(authority)
    }

    fn options(&self) -> &[ToolOption] {
        self.tool.options()
    }

    fn display(&self) -> Display {
        self.tool.display()
    }

    fn render_input(&self, args: &Value) -> Option<Text> {
        self.tool.render_input(args)
    }

    fn render_output(&self, result: &str) -> Option<Text> {
        self.tool.render_output(result)
    }

    fn run(&self, mut call: ToolInvocation) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        let (secrets, progress) = (self.secrets.clone(), call.progress.clone());
        call.progress = Progress::to(move |line| progress.send(secrets.redact(&line).into_owned()));
        let secrets = self.secrets.clone();
        let running = self.tool.run(call);
        async move { running.await.map(|output| secrets.output(output)).map_err(|error| secrets.error(error)) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_contains_another_is_replaced_whole() {
        let secrets = Secrets::of([("SHORT", "abcdefgh"), ("LONG", " abcdefgh-ijkl\n"), ("TINY", "abc")]);
        assert_eq!(secrets.redact("abcdefgh-ijkl abcdefgh abc"), "[LONG redacted] [SHORT redacted] abc");
        assert_eq!(secrets.redact("nothing"), Cow::Borrowed("nothing"));
    }
}
