//! Changes of a session's limits.

use std::sync::Arc;

use serde_json::{Map, Value};
use subtend_session::limits::Limits;

use crate::runtime::OpenSessionError;
use crate::spawn::agents::Agents;

/// The error of a limit that was set above the slots of its host, so that it could not take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit `{name}` of {value} is above the host's `slots`, {slots}. Lower it, or raise `Options::slots`")]
pub struct AboveSlots {
    pub name: &'static str,
    pub value: u32,
    pub slots: usize,
}

/// Returns an error for a limit above `slots`. A default value is accepted, because the host did not choose it.
pub(super) fn within(limits: &Limits, slots: usize) -> Result<(), AboveSlots> {
    let default = Limits::default();
    let bounded = [
        ("live_runs", limits.live_runs, default.live_runs),
        ("live_person_runs", limits.live_person_runs, default.live_person_runs),
    ];
    let above = |(_, value, default): &(_, u32, u32)| {
        usize::try_from(*value).is_ok_and(|value| value > slots) && value != default
    };
    let found = bounded.into_iter().find(above);
    found.map_or(Ok(()), |(name, value, _)| Err(AboveSlots { name, value, slots }))
}

/// Returns the limits of a new session, if they differ from those of its environment.
pub(super) fn session_limits(
    agents: &Agents,
    all: Option<Limits>,
    changes: Map<String, Value>,
    only_lower: bool,
) -> Result<Option<Limits>, OpenSessionError> {
    let slots = agents.options.slots;
    let limits = match changes.is_empty() {
        true => all,
        false => Some(changed(&all.map_or_else(|| agents.limits_body(), Arc::new), changes, slots, only_lower)?),
    };
    if let Some(limits) = &limits {
        limits.check()?;
        within(limits, slots)?;
    }
    Ok(limits)
}

/// Returns whether a change of the limit `name` lets a session do more; null means no limit.
fn raises(name: &str, from: &Value, to: &Value) -> bool {
    match (from, to) {
        // This limit does not restrict the session.
        _ if name == "compact_at" => false,
        (Value::Number(from), Value::Number(to)) => from.as_u64() < to.as_u64(),
        (Value::Null, _) => false,
        (_, Value::Null) => true,
        (from, to) => name == "park" && from != to && *to != "off",
    }
}

/// Returns `base` with `changes`; `slots` bounds the number of live runs.
fn changed(
    base: &Limits,
    changes: Map<String, Value>,
    slots: usize,
    only_lower: bool,
) -> Result<Limits, OpenSessionError> {
    let refused = |why: String| Err(OpenSessionError::LimitChange(why));
    let Value::Object(mut fields) = serde_json::to_value(base)? else {
        return refused("the limits cannot be written as an object".to_owned());
    };
    for (name, value) in changes {
        let Some(field) = fields.get_mut(&name) else {
            let names: Vec<_> = fields.keys().map(String::as_str).collect();
            return refused(format!("unknown limit `{name}`; the limits are: {}", names.join(", ")));
        };
        let is_bounded = matches!(&*name, "live_runs" | "live_person_runs");
        if is_bounded && value.as_u64().is_some_and(|value| value > slots as u64) {
            return refused(format!("the limit `{name}` of {value} is above the host's `slots`, {slots}"));
        }
        if only_lower && raises(&name, field, &value) {
            return refused(format!(
                "the limit `{name}` of {field} may only be lowered here, not changed to {value}: leave it out, or open the session \
                 with more rights"
            ));
        }
        let refused_value = format!("the limit `{name}` cannot be {value}. Give a whole number, or null for none");
        *field = value;
        if serde_json::from_value::<Limits>(Value::Object(fields.clone())).is_err() {
            return refused(refused_value);
        }
    }
    Ok(serde_json::from_value(Value::Object(fields))?)
}
