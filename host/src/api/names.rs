//! Names and objects in bodies. Names have a maximum length, because refusals, logs and comparisons repeat them.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use subtend_session::values::{JsonText, check_metadata};

/// Maximum bytes of the name of a session, an agent or a status, and of a position or digest.
pub const MAX_NAME_BYTES: usize = 512;
/// Maximum bytes of the path of a workspace.
const MAX_PATH_BYTES: usize = 4_096;
/// Maximum bytes of limits as JSON.
const MAX_LIMITS_BYTES: usize = 4_096;

fn bounded<E: Error>(name: String, most: usize) -> Result<String, E> {
    match name.len() {
        bytes if bytes > most => Err(E::custom(format!("it has {bytes} bytes, the limit is {most}"))),
        _ => Ok(name),
    }
}

pub(super) fn required<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    bounded(String::deserialize(from)?, MAX_NAME_BYTES)
}

pub(super) fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(from)?.map(|name| bounded(name, MAX_NAME_BYTES)).transpose()
}

pub(super) fn optional_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(from)?.map(|path| bounded(path, MAX_PATH_BYTES)).transpose()
}

/// Reads metadata. It becomes text at once, because many requests wait with it and its values take more memory.
pub(super) fn metadata<'de, D: Deserializer<'de>>(from: D) -> Result<Option<JsonText>, D::Error> {
    let Some(object) = Option::<Map<String, Value>>::deserialize(from)? else { return Ok(None) };
    let text = Value::from(object).to_string();
    check_metadata("it", &text).map_err(D::Error::custom)?;
    Ok(Some(JsonText(text.into())))
}

pub(super) fn limits<'de, D: Deserializer<'de>>(from: D) -> Result<Map<String, Value>, D::Error> {
    let limits = Map::deserialize(from)?;
    bounded(Value::from(limits.clone()).to_string(), MAX_LIMITS_BYTES)?;
    Ok(limits)
}
