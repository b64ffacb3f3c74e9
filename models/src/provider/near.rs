//! Names of models that the provider has, near to one that it has not.

use std::time::Duration;

use super::client::Client;

/// How long the list may take: it only makes an error more helpful.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many names are told.
const TOLD: usize = 3;

/// `; did you mean …?`, or nothing.
pub(super) async fn hint(client: &Client) -> String {
    let listed = client.genai.all_model_names(client.protocol.adapter(), client.listing());
    let Ok(Ok(names)) = tokio::time::timeout(PATIENCE, listed).await else { return String::new() };
    let near = nearest(&client.model, &names);
    if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
}

/// The nearest names first; none that has nothing in common with `asked`.
fn nearest(asked: &str, names: &[String]) -> Vec<String> {
    let asked = asked.to_lowercase();
    let mut ranked: Vec<(f64, &String)> = names
        .iter()
        .filter(|name| name.len() <= 200 && !name.chars().any(char::is_control))
        .map(|name| (strsim::jaro_winkler(&asked, &name.to_lowercase()), name))
        .filter(|(likeness, _)| *likeness >= 0.7)
        .collect();
    ranked.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.cmp(y)));
    ranked.dedup_by(|a, b| a.1 == b.1);
    ranked.into_iter().take(TOLD).map(|(_, name)| format!("`{name}`")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_three_are_told_and_strangers_are_not() {
        let names = ["claude-opus-5", "claude-sonnet-5", "claude-sonnet-4-6", "whisper-1", "claude-haiku-5"];
        let names = names.map(str::to_owned);
        assert_eq!(nearest("claude-sonet-5", &names), ["`claude-sonnet-5`", "`claude-sonnet-4-6`", "`claude-opus-5`"]);
        assert_eq!(nearest("zzz", &names), [""; 0]);
    }
}
