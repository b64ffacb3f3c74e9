//! Strict JSON of a script, documented in `scripted`.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use subtend_session::ids::Text;
use subtend_session::outcome::ModelFail;
use subtend_session::record::Stop;
use subtend_session::usage::Usage;

use super::step::{Args, CallStep, FanOut, Fault, Step, When};

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    #[serde(default = "name")]
    pub(crate) name: Text,
    #[serde(default)]
    pub(crate) leaves_process: bool,
    #[serde(default)]
    pub(crate) context_window: Option<u64>,
    pub(crate) rules: Vec<Rule>,
}

fn name() -> Text {
    "scripted".into()
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawRule")]
pub(crate) struct Rule {
    pub(crate) agent: Text,
    pub(crate) steps: Vec<Position>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    agent: Text,
    steps: Vec<Position>,
}

impl TryFrom<RawRule> for Rule {
    type Error = String;

    fn try_from(raw: RawRule) -> Result<Self, String> {
        let rule = Self { agent: raw.agent, steps: raw.steps };
        rule.check().map(|()| rule)
    }
}

impl Rule {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.agent.is_empty() {
            return Err("`agent` is empty: name an agent, or write \"*\" for any".into());
        }
        let Some((_, before)) = self.steps.split_last() else {
            return Err(format!("the rule for `{}` has no steps: give at least one", self.agent));
        };
        if before.iter().any(|position| position.0.iter().any(|step| step.repeat)) {
            return Err(format!(
                "`repeat` is allowed in the last step alone, and not elsewhere in the rule for `{}`",
                self.agent
            ));
        }
        Ok(())
    }
}

/// Position in the order of steps: one step, or several of which the first that fits is taken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Position(pub(crate) Vec<Step>);

impl<'de> Deserialize<'de> for Position {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not an untagged enum, which would lose the lines of errors.
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Position;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step, or a list of steps of which the first whose `when` holds is taken")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Position, A::Error> {
                Step::deserialize(MapAccessDeserializer::new(map)).map(|step| Position(vec![step]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Position, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Position)
            }
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawStep::deserialize(deserializer)?.step().map_err(serde::de::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct RawStep {
    when: RawWhen,
    latency_ms: u64,
    chunk_ms: u64,
    text: Option<Text>,
    reasoning: Option<Text>,
    calls: Vec<RawCall>,
    fan_out: Option<RawFanOut>,
    stop: Option<Stop>,
    usage: RawUsage,
    error: Option<RawError>,
    hang: bool,
    panic: Option<Text>,
    garbage: Option<Text>,
    truncated: bool,
    empty: bool,
    refuse: bool,
    repeat: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawWhen {
    prompt_contains: Option<Text>,
    user_contains: Option<Text>,
    result_contains: Option<Text>,
    last_contains: Option<Text>,
    attempt: Option<u32>,
    ended: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCall {
    tool: Text,
    #[serde(default = "no_args")]
    args: Args,
}

fn no_args() -> Args {
    Args::Fixed("{}".into())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFanOut {
    n: u32,
    agent: Text,
    #[serde(default)]
    background: bool,
    prompt: Text,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawUsage {
    #[serde(rename = "in")]
    input: u64,
    #[serde(rename = "out")]
    output: u64,
    reasoning: u64,
    cache_new: u64,
    cache_read: u64,
    cost_micro: Option<u64>,
    unreliable: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawError {
    kind: ModelFail,
    #[serde(default = "scripted_error")]
    message: Text,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

fn scripted_error() -> Text {
    "an error from the script".into()
}

impl<'de> Deserialize<'de> for Args {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectOrText;
        impl<'de> Visitor<'de> for ObjectOrText {
            type Value = Args;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object, or a text that is sent unchanged")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Args, A::Error> {
                let map = Map::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Args::of(Value::Object(map)))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Args, E> {
                Ok(Args::Fixed(text.into()))
            }
        }
        deserializer.deserialize_any(ObjectOrText)
    }
}

impl RawStep {
    fn step(self) -> Result<Step, String> {
        let error = self.error.map(|error| {
            let RawError { kind, message, retry_after_ms } = error;
            Fault::Error { kind, message, retry_after_ms }
        });
        let faults = [
            error,
            self.hang.then_some(Fault::Hang),
            self.panic.map(Fault::Panic),
            self.garbage.map(Fault::Garbage),
            self.truncated.then_some(Fault::Truncated),
            self.empty.then_some(Fault::Empty),
            self.refuse.then_some(Fault::Refuse),
        ];
        let mut faults = faults.into_iter().flatten();
        let fault = faults.next();
        if let (Some(first), Some(second)) = (&fault, faults.next()) {
            let (first, second) = (first.word(), second.word());
            return Err(format!("a step has one fault at most, and this one has `{first}` and `{second}`"));
        }
        let step = Step {
            when: self.when.into(),
            latency_ms: self.latency_ms,
            chunk_ms: self.chunk_ms,
            text: self.text,
            reasoning: self.reasoning,
            calls: self.calls.into_iter().map(|call| CallStep { tool: call.tool, args: call.args }).collect(),
            fan_out: self.fan_out.map(RawFanOut::into),
            stop: self.stop,
            usage: self.usage.into(),
            fault,
            repeat: self.repeat,
        };
        step.check().map(|()| step)
    }
}

impl From<RawWhen> for When {
    fn from(raw: RawWhen) -> Self {
        let RawWhen { prompt_contains, user_contains, result_contains, last_contains, attempt, ended } = raw;
        Self { prompt_contains, user_contains, result_contains, last_contains, attempt, ended }
    }
}

impl From<RawFanOut> for FanOut {
    fn from(raw: RawFanOut) -> Self {
        let RawFanOut { n, agent, background, prompt } = raw;
        Self { n, agent, background, prompt }
    }
}

impl From<RawUsage> for Usage {
    fn from(raw: RawUsage) -> Self {
        let RawUsage { input, output, reasoning, cache_new, cache_read, cost_micro, unreliable } = raw;
        Self { input, output, reasoning, cache_new, cache_read, cost_micro, unreliable }
    }
}
