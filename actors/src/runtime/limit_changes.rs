//! Changes of a session's limits.

use serde_json::{Map, Value};
use subtend_session::limits::Limits;

use crate::runtime::OpenSessionError;

/// Returns `base` with `changes`; `slots` bounds how many runs may be live.
pub(super) fn changed(base: &Limits, changes: Map<String, Value>, slots: usize) -> Result<Limits, OpenSessionError> {
    let refused = |why: String| Err(OpenSessionError::LimitChange(why));
    let Value::Object(mut fields) = serde_json::to_value(base)? else {
        return refused("limits have no names".to_owned());
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
        let refused_value = format!("the limit `{name}` cannot be {value}: give a whole number, or null for none");
        *field = value;
        if serde_json::from_value::<Limits>(Value::Object(fields.clone())).is_err() {
            return refused(refused_value);
        }
    }
    Ok(serde_json::from_value(Value::Object(fields))?)
}
