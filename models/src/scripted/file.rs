//! The strict JSON format of a script, documented in `scripted`.

use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use subtend_session::ids::Text;
use subtend_session::outcome::ModelFail;
use subtend_session::record::Stop;
use subtend_session::usage::Usage;

use super::step::{CallStep, FanOut, Fault, ScriptedArgs, Step, When};

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
#[serde(remote = "Self", deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) agent: Text,
    pub(crate) steps: Vec<Position>,
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rule = Self::deserialize(deserializer)?;
        rule.check().map(|()| rule).map_err(serde::de::Error::custom)
    }
}

impl Rule {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.agent.is_empty() {
            return Err("`agent` is empty. Name an agent, or write \"*\" for any".into());
        }
        let Some((_, before)) = self.steps.split_last() else {
            return Err(format!("the rule for `{}` has no steps. Give at least one", self.agent));
        };
        if before.iter().any(|position| position.0.iter().any(|step| step.repeat)) {
            return Err(format!("`repeat` is allowed only in the last step of the rule for `{}`", self.agent));
        }
        Ok(())
    }
}

/// A position in the order of steps: one step, or several alternatives. The first alternative whose `when` holds is used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Position(pub(crate) Vec<Step>);

impl<'de> Deserialize<'de> for Position {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // An untagged enum would lose the line numbers of errors.
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Position;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step, or a list of steps, of which the first whose `when` holds is used")
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

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawStep {
    when: When,
    latency_ms: u64,
    chunk_ms: u64,
    text: Option<Text>,
    reasoning: Option<Text>,
    calls: Vec<CallStep>,
    fan_out: Option<FanOut>,
    stop: Option<Stop>,
    #[serde(with = "ScriptUsage")]
    usage: Usage,
    error: Option<RawError>,
    hang: bool,
    panic: Option<Text>,
    garbage: Option<Text>,
    truncated: bool,
    empty: bool,
    refuse: bool,
    repeat: bool,
}

#[derive(Deserialize)]
#[serde(remote = "Usage", deny_unknown_fields)]
struct ScriptUsage {
    #[serde(default, rename = "in")]
    input: u64,
    #[serde(default, rename = "out")]
    output: u64,
    #[serde(default)]
    reasoning: u64,
    #[serde(default)]
    cache_new: u64,
    #[serde(default)]
    cache_read: u64,
    #[serde(default)]
    cost_micro: Option<u64>,
    #[serde(default)]
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

impl<'de> Deserialize<'de> for ScriptedArgs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectOrText;
        impl<'de> Visitor<'de> for ObjectOrText {
            type Value = ScriptedArgs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object, or a string that is sent unchanged")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ScriptedArgs, A::Error> {
                let map = Map::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ScriptedArgs::of(Value::Object(map)))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ScriptedArgs, E> {
                Ok(ScriptedArgs::Fixed(text.into()))
            }
        }
        deserializer.deserialize_any(ObjectOrText)
    }
}

impl<'de> Deserialize<'de> for Step {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        step(RawStep::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

fn step(raw: RawStep) -> Result<Step, String> {
    let error = raw.error.map(|error| {
        let RawError { kind, message, retry_after_ms } = error;
        Fault::Error { kind, message, retry_after_ms }
    });
    let faults = [
        error,
        raw.hang.then_some(Fault::Hang),
        raw.panic.map(Fault::Panic),
        raw.garbage.map(Fault::Garbage),
        raw.truncated.then_some(Fault::Truncated),
        raw.empty.then_some(Fault::Empty),
        raw.refuse.then_some(Fault::Refuse),
    ];
    let mut faults = faults.into_iter().flatten();
    let fault = faults.next();
    if let (Some(first), Some(second)) = (&fault, faults.next()) {
        let (first, second) = (first.as_str(), second.as_str());
        return Err(format!("a step may have only one fault, but this one has `{first}` and `{second}`"));
    }
    let step = Step {
        when: raw.when,
        latency_ms: raw.latency_ms,
        chunk_ms: raw.chunk_ms,
        text: raw.text,
        reasoning: raw.reasoning,
        calls: raw.calls,
        fan_out: raw.fan_out,
        stop: raw.stop,
        usage: raw.usage,
        fault,
        repeat: raw.repeat,
    };
    step.check().map(|()| step)
}
