/// The maximum length of an agent's name in bytes.
pub const MAX_LEN: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{name}` is not an agent's name: use 1 to {MAX_LEN} of a-z, 0-9, `-` and `_`, and begin with a letter or a digit"
)]
pub struct BadName {
    pub name: String,
}

/// Checks that `name` is `[a-z0-9][a-z0-9_-]{0,63}`. The error shows the name and the rule.
pub fn check(name: &str) -> Result<(), BadName> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = name.len() <= MAX_LEN
        && name.bytes().next().is_some_and(plain)
        && name.bytes().all(|byte| plain(byte) || byte == b'-' || byte == b'_');
    if fits { Ok(()) } else { Err(BadName { name: name.chars().take(MAX_LEN + 16).collect() }) }
}

/// Returns `name` in the characters of an agent's name: `Code Reviewer` and `code/reviewer` become `code-reviewer`.
/// The result may be empty or too long.
pub(crate) fn slug(name: &str) -> String {
    let mut slug = String::new();
    for c in name.trim().chars() {
        match c {
            c if c.is_ascii_alphanumeric() => slug.push(c.to_ascii_lowercase()),
            '_' if !slug.is_empty() => slug.push('_'),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_lower_case_words() {
        for good in ["a", "7", "explore", "pr-review_2", &"x".repeat(64)] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["", "-a", "_a", "Explore", "a b", "a/b", "a.b", "größe", "*", &"x".repeat(65)] {
            assert_eq!(check(bad), Err(BadName { name: bad.into() }), "{bad}");
        }
    }

    #[test]
    fn error_shows_name_and_rule() {
        let shown = check("My Agent").map_err(|error| error.to_string());
        assert_eq!(
            shown,
            Err("`My Agent` is not an agent's name: use 1 to 64 of a-z, 0-9, `-` and `_`, and begin with a letter or a digit"
                .into())
        );
    }
}
