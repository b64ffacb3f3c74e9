pub(super) use subtend_session::near::near;

/// Returns ``: did you mean `NAME`?``, or an empty text.
pub(super) fn hint<'a>(requested: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    near(requested, known).map_or_else(String::new, |name| format!(": did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_names_a_similar_key_or_is_empty() {
        let known = ["limits", "llm", "tools", "live_runs"];
        assert_eq!(hint("tool", known), ": did you mean `tools`?");
        assert_eq!(hint("x", known), "");
    }
}
