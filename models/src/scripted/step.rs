use serde::Deserialize;
use serde_json::Value;
use subtend_session::ids::Text;
use subtend_session::outcome::ModelFail;
use subtend_session::record::Stop;
use subtend_session::usage::Usage;

pub const MAX_FAN_OUT: u32 = 100_000;

/// One answer or fault, with latency and conditions. The methods have the names of the fields in a script file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    pub(crate) when: When,
    pub(crate) latency_ms: u64,
    pub(crate) chunk_ms: u64,
    pub(crate) text: Option<Text>,
    pub(crate) reasoning: Option<Text>,
    pub(crate) calls: Vec<CallStep>,
    pub(crate) fan_out: Option<FanOut>,
    pub(crate) stop: Option<Stop>,
    pub(crate) usage: Usage,
    pub(crate) fault: Option<Fault>,
    pub(crate) repeat: bool,
}

/// Conditions of a step. A condition that is not set always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    pub prompt_contains: Option<Text>,
    pub user_contains: Option<Text>,
    pub result_contains: Option<Text>,
    /// Text that the last message of any kind contains.
    pub last_contains: Option<Text>,
    /// The attempt within the turn, from 1.
    pub attempt: Option<u32>,
    /// Minimum number of children that have ended, counted in notices.
    pub ended: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallStep {
    pub(crate) tool: Text,
    #[serde(default = "no_args")]
    pub(crate) args: ScriptedArgs,
}

fn no_args() -> ScriptedArgs {
    ScriptedArgs::Fixed("{}".into())
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScriptedArgs {
    /// JSON text without templates, serialized once.
    Fixed(Text),
    /// A value with templates in its strings.
    Template(Value),
}

/// Several `task` calls in one answer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FanOut {
    pub(crate) n: u32,
    pub(crate) agent: Text,
    #[serde(default)]
    pub(crate) background: bool,
    pub(crate) prompt: Text,
}

/// A fault instead of an answer, or in addition to it.
#[derive(Clone, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Fault {
    Error { kind: ModelFail, message: Text, retry_after_ms: Option<u64> },
    Hang,
    Panic(Text),
    Garbage(Text),
    Truncated,
    Empty,
    Refuse,
}

impl Fault {
    pub(crate) fn as_str(&self) -> &'static str {
        self.into()
    }

    fn ends_call(&self) -> bool {
        match self {
            Self::Error { .. } | Self::Hang | Self::Panic(_) | Self::Garbage(_) => true,
            Self::Truncated | Self::Empty | Self::Refuse => false,
        }
    }
}

impl ScriptedArgs {
    /// Keeps values without templates as text.
    pub(crate) fn of(value: Value) -> Self {
        let text = value.to_string();
        if super::template::is_template(&text) { Self::Template(value) } else { Self::Fixed(text.into()) }
    }
}

impl Step {
    /// Returns a step with a final answer.
    pub fn text(text: impl Into<Text>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// Returns a step with one tool call; [`Step::and_call`] adds more.
    pub fn call(tool: impl Into<Text>, args: Value) -> Self {
        Self::default().and_call(tool, args)
    }

    /// Returns a step with `n` calls of `task` for `agent`. In `prompt`, `{n}` is the number of the child, from 1.
    pub fn fan_out(n: u32, agent: impl Into<Text>, background: bool, prompt: impl Into<Text>) -> Self {
        let fan_out = FanOut { n, agent: agent.into(), background, prompt: prompt.into() };
        Self { fan_out: Some(fan_out), ..Self::default() }
    }

    pub fn error(kind: ModelFail, message: impl Into<Text>) -> Self {
        Self::fault(Fault::Error { kind, message: message.into(), retry_after_ms: None })
    }

    /// Returns a step whose call never answers.
    pub fn hang() -> Self {
        Self::fault(Fault::Hang)
    }

    pub fn panic(message: impl Into<Text>) -> Self {
        Self::fault(Fault::Panic(message.into()))
    }

    /// Returns a step with an invalid answer.
    pub fn garbage(message: impl Into<Text>) -> Self {
        Self::fault(Fault::Garbage(message.into()))
    }

    pub fn truncated(text: impl Into<Text>) -> Self {
        Self { text: Some(text.into()), ..Self::fault(Fault::Truncated) }
    }

    /// Returns a step with an answer without text and calls.
    pub fn empty() -> Self {
        Self::fault(Fault::Empty)
    }

    pub fn refuse() -> Self {
        Self::fault(Fault::Refuse)
    }

    fn fault(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }
}

impl Step {
    #[must_use]
    pub fn and_call(mut self, tool: impl Into<Text>, args: Value) -> Self {
        self.calls.push(CallStep { tool: tool.into(), args: ScriptedArgs::of(args) });
        self
    }

    /// Adds a tool call with raw arguments, which need not be JSON.
    #[must_use]
    pub fn and_raw_call(mut self, tool: impl Into<Text>, args: impl Into<Text>) -> Self {
        self.calls.push(CallStep { tool: tool.into(), args: ScriptedArgs::Fixed(args.into()) });
        self
    }

    /// Adds `text` before the calls or the fault.
    #[must_use]
    pub fn with_text(self, text: impl Into<Text>) -> Self {
        Self { text: Some(text.into()), ..self }
    }

    #[must_use]
    pub fn reasoning(self, reasoning: impl Into<Text>) -> Self {
        Self { reasoning: Some(reasoning.into()), ..self }
    }

    #[must_use]
    pub fn latency_ms(self, latency_ms: u64) -> Self {
        Self { latency_ms, ..self }
    }

    /// Sets a wait before each piece of the text.
    #[must_use]
    pub fn chunk_ms(self, chunk_ms: u64) -> Self {
        Self { chunk_ms, ..self }
    }

    #[must_use]
    pub fn usage(self, usage: Usage) -> Self {
        Self { usage, ..self }
    }

    #[must_use]
    pub fn stop(self, stop: Stop) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Sets the retry-after of a failed call; has no effect otherwise.
    #[must_use]
    pub fn retry_after_ms(mut self, after: u64) -> Self {
        if let Some(Fault::Error { retry_after_ms, .. }) = &mut self.fault {
            *retry_after_ms = Some(after);
        }
        self
    }

    #[must_use]
    pub fn when(self, when: When) -> Self {
        Self { when, ..self }
    }

    /// Repeats the step for all further answers. Allowed only in the last position of a rule.
    #[must_use]
    pub fn repeat(self) -> Self {
        Self { repeat: true, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let has_calls = !self.calls.is_empty() || self.fan_out.is_some();
        if let Some(FanOut { n, agent, .. }) = &self.fan_out {
            if !(1..=MAX_FAN_OUT).contains(n) {
                return Err(format!("`fan_out.n` is {n}; it must be 1 to {MAX_FAN_OUT}"));
            }
            if agent.is_empty() {
                return Err("`fan_out.agent` is empty. Name an agent".into());
            }
        }
        let Some(fault) = &self.fault else {
            let has_content = has_calls || self.text.is_some() || self.reasoning.is_some();
            return if has_content { Ok(()) } else { Err(EMPTY_STEP.into()) };
        };
        let word = fault.as_str();
        if self.stop.is_some() {
            return Err(format!("`stop` has no effect with `{word}`. Remove one of them"));
        }
        let no_calls = fault.ends_call() || matches!(fault, Fault::Empty | Fault::Refuse);
        if has_calls && no_calls {
            return Err(format!("`calls` and `fan_out` have no effect with `{word}`. Remove one of them"));
        }
        if self.text.is_some() && matches!(fault, Fault::Empty | Fault::Garbage(_)) {
            return Err(format!("`text` has no effect with `{word}`. Remove one of them"));
        }
        Ok(())
    }
}

const EMPTY_STEP: &str = "the step is empty. Give it `text`, `reasoning`, `calls`, `fan_out` or a fault (`error`, `hang`, \
                          `panic`, `garbage`, `truncated`, `empty`, `refuse`)";
