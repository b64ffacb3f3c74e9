//! What was probably meant.

/// The name that is nearest to `asked`, if any is near enough to be a slip.
pub(super) fn near<'a>(asked: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = |name: &str| name.to_lowercase().replace('-', "_");
    let asked = folded(asked);
    let most = asked.chars().count().div_ceil(3).min(3);
    let ranked = known.into_iter().map(|name| (strsim::damerau_levenshtein(&asked, &folded(name)), name));
    ranked.filter(|(distance, _)| *distance <= most).min().map(|(_, name)| name)
}

/// ``: did you mean `NAME`?``, or nothing.
pub(super) fn hint<'a>(asked: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    near(asked, known).map_or_else(String::new, |name| format!(": did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_near_and_other_words_are_not() {
        let known = ["limits", "llm", "tools", "live_runs"];
        assert_eq!(near("limts", known), Some("limits"));
        assert_eq!(near("Live-Runs", known), Some("live_runs"));
        assert_eq!(near("agents", known), None);
        assert_eq!(hint("tool", known), ": did you mean `tools`?");
        assert_eq!(hint("x", known), "");
    }
}
