//! Front matter as other products read it: a value that contains `: ` is a string, although YAML treats it as an error.

use serde_json::{Map, Value};

use crate::front::{self, BadManifest};

pub(crate) struct Read<'a> {
    pub(crate) map: Map<String, Value>,
    pub(crate) body: &'a str,
    /// True if values were quoted because the front matter was not valid YAML.
    pub(crate) quoted: bool,
}

/// Splits and parses front matter. A file without front matter gives an empty map.
pub(crate) fn read(text: &str) -> Result<Read<'_>, BadManifest> {
    let (yaml, body) = match front::split(text) {
        Ok(parts) => parts,
        Err(BadManifest::NoFrontMatter) => return Ok(Read { map: Map::new(), body: text, quoted: false }),
        Err(error) => return Err(error),
    };
    match front::yaml_map(yaml) {
        Ok(map) => Ok(Read { map, body, quoted: false }),
        Err(error) => {
            let map = front::yaml_map(&quote_values(yaml)).map_err(|_| error)?;
            Ok(Read { map, body, quoted: true })
        }
    }
}

/// Quotes the plain values of top-level keys. Lists, maps, blocks and quoted values stay as they are.
fn quote_values(yaml: &str) -> String {
    let mut out = String::with_capacity(yaml.len());
    for line in yaml.split_inclusive('\n') {
        let bare = line.trim_end_matches(['\r', '\n']);
        match bare.split_once(':').filter(|(key, value)| is_key(key) && is_plain(value.trim())) {
            Some((key, value)) => {
                let value = Value::from(value.trim());
                out.push_str(&format!("{key}: {value}\n"));
            }
            None => out.push_str(line),
        }
    }
    out
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

fn is_plain(value: &str) -> bool {
    let number = value.parse::<f64>().is_ok();
    let word = matches!(value, "" | "true" | "false" | "null" | "~");
    !number && !word && !value.starts_with(['"', '\'', '[', '{', '|', '>', '&', '#'])
}
