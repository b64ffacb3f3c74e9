//! Suggestions for an unknown model name.

use std::time::Duration;

use serde::Deserialize;
use subtend_session::values::parse_foreign;

use super::body;
use super::client::Client;

/// Time limit for the list of models, which only improves an error message.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum bytes of the list.
const MAX_BYTES: usize = 1 << 20;
const MAX_SUGGESTIONS: usize = 3;

/// Returns `; did you mean …?`, or an empty text without similar names.
pub(super) async fn hint(client: &Client) -> String {
    let Ok(Some(names)) = tokio::time::timeout(TIMEOUT, list_models(client)).await else { return String::new() };
    let near: Vec<_> =
        nearest(&client.model, &names).iter().map(|name| format!("`{}/{name}`", client.protocol)).collect();
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

/// Requests the names of the provider's models. Returns `None` for any other response.
async fn list_models(client: &Client) -> Option<Vec<String>> {
    let response = client.send(client.list_request()).await.ok()?.error_for_status().ok()?;
    names(&body::head(response, MAX_BYTES).await)
}

/// A list of models. Deserialization drops all other fields, which may be large.
#[derive(Deserialize)]
struct Listing {
    data: Option<Vec<ModelEntry>>,
    models: Option<Vec<ModelEntry>>,
}

#[derive(Deserialize)]
struct ModelEntry {
    id: Option<String>,
    name: Option<String>,
}

fn names(list: &[u8]) -> Option<Vec<String>> {
    let Listing { data, models } = parse_foreign(list).ok()?;
    let names = data.or(models)?.into_iter().filter_map(|listed| listed.id.or(listed.name));
    Some(names.map(|name| name.strip_prefix("models/").map_or(name.clone(), str::to_owned)).collect())
}

/// Returns the names that resemble `requested`, nearest first.
fn nearest(requested: &str, names: &[String]) -> Vec<String> {
    let requested = requested.to_lowercase();
    let mut ranked: Vec<(f64, &String)> = names
        .iter()
        .filter(|name| name.len() <= 200 && !name.chars().any(char::is_control))
        .map(|name| (strsim::jaro_winkler(&requested, &name.to_lowercase()), name))
        .filter(|(likeness, _)| *likeness >= 0.7)
        .collect();
    ranked.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.cmp(y)));
    ranked.dedup_by(|a, b| a.1 == b.1);
    ranked.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use subtend_session::values::MAX_VALUES;

    use super::*;

    #[test]
    fn model_lists_of_all_protocols_are_parsed() {
        let all = |list: &str| names(list.as_bytes()).map(|names| names.join(" "));
        let openai = r#"{"object":"list","data":[{"id":"a","name":"A","top":{"x":[1]}},{"id":"b"}],"more":[{}]}"#;
        let gemini = r#"{"models":[{"name":"models/a","version":"1"},{"name":"b"},{"other":null}]}"#;
        for list in [openai, gemini] {
            assert_eq!(all(list).as_deref(), Some("a b"), "{list}");
        }
        assert_eq!(["{}", "[]", "x", r#"{"data":{}}"#].map(all), [None, None, None, None]);
    }

    /// Each empty entry takes 48 bytes of memory. The control: half of the entries.
    #[test]
    fn model_list_with_too_many_values_is_not_parsed() {
        let count = |entries: usize| {
            let list = format!(r#"{{"data":[{}{{}}]}}"#, r#"{"id":"a"},"#.repeat(entries));
            names(list.as_bytes()).map(|names| names.len())
        };
        assert_eq!([count(MAX_VALUES / 3), count(MAX_VALUES / 6)], [None, Some(MAX_VALUES / 6)]);
    }

    #[test]
    fn nearest_three_names_are_suggested() {
        let names = ["claude-opus-5", "claude-sonnet-5", "claude-sonnet-4-6", "whisper-1", "claude-haiku-5"];
        let names = names.map(str::to_owned);
        assert_eq!(nearest("claude-sonet-5", &names), ["claude-sonnet-5", "claude-sonnet-4-6", "claude-opus-5"]);
        assert_eq!(nearest("zzz", &names), [""; 0]);
    }
}
