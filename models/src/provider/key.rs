use std::fmt;
use std::sync::Arc;

/// A provider's key. Neither `Debug` nor `Display` reveals it.
/// ```
/// let key = subtend_models::provider::Key::new("sk-0123456789");
/// assert_eq!(format!("{key} {key:?}"), "[key] Key([key])");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Arc<str>);

impl Key {
    /// Creates a key. Removes surrounding whitespace, which may come from a file or a shell.
    pub fn new(key: impl AsRef<str>) -> Self {
        Self(key.as_ref().trim().into())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    pub(super) fn is_sendable(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|byte| byte.is_ascii_graphic())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key([key])")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}
