//! Suggestions for misspelled names.

/// The maximum number of characters of a name that is compared: the time grows with the product of both lengths.
const MAX_LENGTH: usize = 512;

/// Returns the known name nearest to `requested`, if it is near enough to be a typo.
///
/// ```
/// use subtend_session::near::near;
///
/// assert_eq!(near("exlpore", ["build", "explore"]), Some("explore"));
/// assert_eq!(near("cookies", ["build", "explore"]), None);
/// ```
pub fn near<'a>(requested: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = |name: &str| name.to_lowercase().replace('-', "_");
    let requested = folded(requested);
    let length = requested.chars().count();
    let max_distance = length.div_ceil(3).min(3);
    let known = known.into_iter().filter(|_| length <= MAX_LENGTH);
    let similar = known.filter(|name| name.chars().count().abs_diff(length) <= max_distance);
    let ranked = similar.map(|name| (strsim::damerau_levenshtein(&requested, &folded(name)), name));
    ranked.filter(|(distance, _)| *distance <= max_distance).min().map(|(_, name)| name)
}

/// Returns the error text for an unknown agent: the name, and a suggestion or all known names.
pub fn unknown_agent<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match near(name, known.iter().copied()) {
        Some(near) => format!("unknown agent `{name}`; did you mean `{near}`?"),
        None => format!("unknown agent `{name}`; known agents: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_get_a_suggestion_and_other_words_do_not() {
        let known = ["limits", "llm", "tools", "live_runs"];
        assert_eq!(near("limts", known), Some("limits"));
        assert_eq!(near("Live-Runs", known), Some("live_runs"));
        assert_eq!(near("agents", known), None);
    }

    /// The control: names of 500 characters are compared.
    #[test]
    fn very_long_names_are_not_compared() {
        let name = |length: usize, end: &str| format!("{}{end}", "x".repeat(length));
        assert_eq!(near(&name(500, "a"), [&*name(500, "b")]), Some(&*name(500, "b")));
        assert_eq!(near(&format!("a{}", name(300_000, "a")), [&*format!("b{}", name(300_000, "b"))]), None);
    }

    #[test]
    fn unknown_agent_error_suggests_one_or_lists_all() {
        let known = ["build", "explore"];
        assert_eq!(unknown_agent("exlpore", known), "unknown agent `exlpore`; did you mean `explore`?");
        assert_eq!(unknown_agent("x", known), "unknown agent `x`; known agents: build, explore");
    }
}
