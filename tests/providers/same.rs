//! Normalized journals of one conversation: everything that may differ between two runs is replaced.

use serde_json::Value;

use super::stored_session::StoredSession;

/// Returns the records of each session, the parent first: ids are replaced by their order; times, waits, usage, reasoning,
/// server addresses, and the provider's names for calls and its model are removed.
pub(crate) fn normalize(stored: &[StoredSession], workspace: &str) -> Vec<Vec<Value>> {
    let text = serde_json::to_string(&stored.iter().map(|stored| &stored.records).collect::<Vec<_>>()).expect("json");
    let mut text = text.replace(workspace, "[workspace]");
    for (at, stored) in stored.iter().enumerate() {
        text = text.replace(&stored.id, &format!("[session {at}]"));
        text = text.replace(&stored.short, &format!("[short {at}]"));
    }
    let mut all: Vec<Vec<Value>> = serde_json::from_str(&ids(&text)).expect("json");
    all.iter_mut().flatten().for_each(strip);
    all
}

/// Replaces each id by a number, the same id by the same number.
fn ids(text: &str) -> String {
    let (mut known, mut out, mut rest) = (Vec::<&str>::new(), String::new(), text);
    while let Some(next) = rest.chars().next() {
        let id = rest.get(..36).filter(|id| is_id(id));
        let taken = id.map_or(next.len_utf8(), str::len);
        match id {
            Some(id) => {
                let at = known.iter().position(|known| *known == id).unwrap_or(known.len());
                if at == known.len() {
                    known.push(id);
                }
                out.push_str(&format!("[id {at}]"));
            }
            None => out.push(next),
        }
        rest = &rest[taken..];
    }
    out
}

fn is_id(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn strip(record: &mut Value) {
    match record {
        Value::Object(fields) => {
            fields.retain(|name, _| {
                let differs = [
                    "usage",
                    "usage_self",
                    "usage_owned",
                    "reasoning",
                    "provider_id",
                    "model",
                    "worked_ms",
                    "queued_ms",
                ];
                !differs.contains(&&**name)
            });
            // Each server listens on its own port.
            if let Some(Value::Array(servers)) = fields.get_mut("servers") {
                servers.iter_mut().for_each(|server| *server = "[server]".into());
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(all) => all.iter_mut().for_each(strip),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
