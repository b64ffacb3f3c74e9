//! The fields of one agent file. Those that a translator does not take are kept without effect, or reported.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use subtend_session::ids::Text;

use crate::form::shown;
use crate::front::{BadManifest, MAX_UNKNOWN, unknown};
use crate::name::{self, slug};
use crate::product::Product;

pub(crate) struct Fields {
    map: Map<String, Value>,
    pub(crate) notes: Vec<String>,
    pub(crate) kept: BTreeMap<String, Value>,
}

pub(crate) fn field(key: &str, why: impl Into<String>) -> BadManifest {
    BadManifest::Field { key: key.to_owned(), why: why.into() }
}

pub(crate) fn expected(key: &str, wanted: &str, value: &Value) -> BadManifest {
    field(key, format!("must be {wanted}, not {}", shown(value)))
}

impl Fields {
    pub(crate) fn of(mut map: Map<String, Value>) -> Self {
        map.retain(|_, value| !value.is_null());
        Self { map, notes: Vec::new(), kept: BTreeMap::new() }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.map.contains_key(key)
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Removes a value and returns it. Keeps the order of the other fields.
    pub(crate) fn take(&mut self, key: &str) -> Option<Value> {
        self.map.shift_remove(key)
    }

    pub(crate) fn text(&mut self, key: &str) -> Result<Option<Text>, BadManifest> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.trim().into())),
            Some(other) => Err(expected(key, "a string", &other)),
        }
    }

    /// Takes an argument hint. YAML reads a hint such as `[file]` as a list.
    pub(crate) fn hint(&mut self, key: &str) -> Result<Option<Text>, BadManifest> {
        let list = self.map.get(key).and_then(Value::as_array).map(|items| {
            let words: Vec<String> = items.iter().map(|item| shown(item).trim_matches('"').to_owned()).collect();
            format!("[{}]", words.join(", "))
        });
        match list {
            Some(list) => Ok(self.take(key).map(|_| list.into())),
            None => self.text(key),
        }
    }

    pub(crate) fn flag(&mut self, key: &str) -> Result<bool, BadManifest> {
        match self.take(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(Value::String(word)) if matches!(word.trim(), "true" | "false") => Ok(word.trim() == "true"),
            Some(other) => Err(expected(key, "true or false", &other)),
        }
    }

    /// Takes a count of at least one.
    pub(crate) fn count(&mut self, key: &str) -> Result<Option<u32>, BadManifest> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let written = value.as_str().and_then(|text| text.trim().parse::<u64>().ok());
        let count = value.as_u64().or(written).and_then(|count| u32::try_from(count).ok()).filter(|count| *count > 0);
        count.map(Some).ok_or_else(|| expected(key, "a whole number of at least 1", &value))
    }

    /// Takes a number that does not restrict the agent. An invalid number is reported, and the file is still used.
    pub(crate) fn number(&mut self, key: &str, most: f64) -> Option<f64> {
        let value = self.take(key)?;
        let number = value.as_f64().filter(|number| (0.0..=most).contains(number));
        if number.is_none() {
            self.note(format!("`{key}` must be a number from 0 to {most}, not {}: it has no effect", shown(&value)));
        }
        number
    }

    /// Takes names from a list, or from a string that is split at commas outside of parentheses.
    pub(crate) fn names(&mut self, key: &str) -> Result<Option<Vec<String>>, BadManifest> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let names = match &value {
            Value::String(text) => listed(text),
            Value::Array(items) => {
                let names: Option<Vec<Vec<String>>> = items.iter().map(|item| Some(listed(item.as_str()?))).collect();
                names.ok_or_else(|| expected(key, "a list of names", &value))?.concat()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                return Err(expected(key, "a list of names", &value));
            }
        };
        Ok(Some(names))
    }

    /// Keeps keys that have no meaning here and need no report.
    pub(crate) fn keep(&mut self, keys: &[&str]) {
        for key in keys {
            if let Some(value) = self.take(key) {
                self.kept.insert((*key).to_owned(), value);
            }
        }
    }

    /// Keeps keys that have no effect, and reports each with the reason.
    pub(crate) fn report(&mut self, keys: &[(&str, &str)]) {
        for (key, why) in keys {
            if let Some(value) = self.take(key) {
                self.kept.insert((*key).to_owned(), value);
                self.note(format!("`{key}` has no effect: {why}"));
            }
        }
    }

    /// Returns the name as a valid agent name, and reports if that changes the name.
    pub(crate) fn name(&mut self, written: &str) -> Result<Text, BadManifest> {
        let name = slug(written);
        name::check(&name)?;
        if name != written {
            self.note(format!("`{}` is called `{name}` here", shown(&Value::from(written)).trim_matches('"')));
        }
        Ok(name.into())
    }

    /// Reports the remaining keys, which have no effect in `what`.
    pub(crate) fn rest(&mut self, what: &str) {
        let unknown = std::mem::take(&mut self.map);
        for key in unknown.keys().take(MAX_UNKNOWN) {
            self.note(format!("unknown key `{}` has no effect in {what}", shorten(key)));
        }
        self.report_unknown(unknown.len());
    }

    fn report_unknown(&mut self, unknown: usize) {
        let more = unknown.saturating_sub(MAX_UNKNOWN);
        if more > 0 {
            self.note(format!("{more} more unknown keys are not listed"));
        }
    }

    /// Keeps the remaining keys. Returns whether an unknown key seems to restrict the agent.
    pub(crate) fn finish(&mut self, product: Product) -> bool {
        let mut restricts = false;
        let unknown = std::mem::take(&mut self.map);
        let count = unknown.len();
        for (ix, (key, value)) in unknown.into_iter().enumerate() {
            let restriction = unknown::restricts(&key, &value);
            // The first unknown key that restricts the agent is named even above the limit.
            if ix < MAX_UNKNOWN || restriction && !restricts {
                let effect =
                    if restriction { "seems to restrict, so every action requires approval" } else { "has no effect" };
                self.note(format!("unknown key `{}` of {} is kept and {effect}", shorten(&key), product.name()));
            }
            restricts |= restriction;
            self.kept.insert(key, value);
        }
        self.report_unknown(count);
        restricts
    }
}

/// Returns the start of a text of a file, for notes.
pub(super) fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}

fn listed(text: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut depth = 0_u32;
    for c in text.chars() {
        match c {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match (c, depth, names.last_mut()) {
            (',', 0, _) => names.push(String::new()),
            (_, _, Some(last)) => last.push(c),
            (_, _, None) => {}
        }
    }
    names.iter().map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
}
