//! Keys: paths from the top of a configuration to a value.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// A key, such as `limits.turns` or `prices."gpt-4.1*".input`. A name with a dot is quoted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(Vec<String>);

impl Key {
    pub(super) fn whole() -> Self {
        Self::default()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the key of `name` under this one.
    #[must_use]
    pub fn with(&self, name: &str) -> Self {
        let mut names = self.0.clone();
        names.push(name.to_owned());
        Self(names)
    }

    /// Returns the names of the path.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    pub(super) fn contains(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }
}

impl<const N: usize> From<[&str; N]> for Key {
    fn from(names: [&str; N]) -> Self {
        Self(names.map(str::to_owned).to_vec())
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['.', '"', '`']) && !name.contains(char::is_whitespace)
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.0.iter().enumerate() {
            let dot = if at == 0 { "" } else { "." };
            match is_plain(name) {
                true => write!(f, "{dot}{name}")?,
                false => write!(f, "{dot}{name:?}")?,
            }
        }
        Ok(())
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Key {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = |hint: &str| BadKey { key: text.to_owned(), hint: format!(": {hint}") };
        let (mut names, mut name, mut quoted) = (Vec::new(), String::new(), false);
        for c in text.chars() {
            match c {
                '"' => quoted = !quoted,
                '.' if !quoted => names.push(std::mem::take(&mut name)),
                c => name.push(c),
            }
        }
        if quoted {
            return Err(bad("a quotation mark is not closed"));
        }
        names.push(name);
        if names.iter().any(|name| name.trim().is_empty()) {
            return Err(bad("a name is missing before or after a dot"));
        }
        Ok(Self(names))
    }
}

/// The error for an unknown key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown key `{key}`{hint}")]
pub struct BadKey {
    /// The requested key.
    pub key: String,
    /// A suggestion that follows the key in the message; may be empty.
    pub hint: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_keys_parse_back() {
        for (shown, names) in [
            ("agent", vec!["agent"]),
            ("limits.turns", vec!["limits", "turns"]),
            ("prices.\"gpt-4.1*\".input", vec!["prices", "gpt-4.1*", "input"]),
        ] {
            let key: Key = shown.parse().unwrap();
            assert_eq!(
                (key.names(), key.to_string().as_str()),
                (&*names.into_iter().map(str::to_owned).collect::<Vec<_>>(), shown)
            );
        }
        let error_of = |text: &str| text.parse::<Key>().unwrap_err().to_string();
        assert_eq!(error_of("a..b"), "unknown key `a..b`: a name is missing before or after a dot");
        assert_eq!(error_of("a.\"b"), "unknown key `a.\"b`: a quotation mark is not closed");
    }
}
