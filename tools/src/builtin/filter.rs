//! Glob filter of listings and searches.

use std::fmt::Display;

use globset::GlobBuilder;

use super::glob::{CompiledGlobs, GlobStates};
use crate::tool::ToolError;

/// Maximum bytes of a compiled glob, which has at most a kilobyte.
const MAX_PROGRAM: usize = 256 << 10;

/// An optional glob. Without a glob, all files match.
#[derive(Debug)]
pub(super) struct GlobFilter {
    glob: Option<CompiledGlobs>,
    states: GlobStates,
    by_name: bool,
    /// The path of the queried directory, with `/` at the end.
    root: String,
}

impl GlobFilter {
    /// Compiles `glob`. A glob without `/` matches names at any depth; otherwise it matches paths relative to the workspace or `root`.
    pub(super) fn new(glob: Option<&str>, root: &str) -> Result<Self, ToolError> {
        let root = if root == "." { String::new() } else { format!("{root}/") };
        let states = GlobStates::default();
        let Some(text) = glob else { return Ok(Self { glob: None, states, by_name: false, root }) };
        let text = text.strip_prefix("./").unwrap_or(text);
        if text.is_empty() {
            return Err(ToolError::bad_args("the glob is empty: omit it to match all files"));
        }
        super::glob::check(text).map_err(|why| ToolError::bad_args(format!("the glob cannot be used: {why}")))?;
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        let unusable = |error: &dyn Display| {
            ToolError::bad_args(format!("the glob cannot be used: {error}; write one such as `*.rs` or `src/**/*.rs`"))
        };
        let glob = glob.map_err(|error| unusable(&error))?;
        let glob = CompiledGlobs::new(&[glob], MAX_PROGRAM).map_err(|error| unusable(&error))?;
        Ok(Self { glob: Some(glob), states, by_name: !text.contains('/'), root })
    }

    pub(super) fn matches(&self, path: &str, name: &str) -> bool {
        let Some(glob) = &self.glob else { return true };
        let is_match = |text: &str| self.states.last_match(glob, text.as_bytes(), |_| true).is_some();
        if self.by_name {
            return is_match(name);
        }
        is_match(path) || path.strip_prefix(&self.root).is_some_and(is_match)
    }

    pub(super) fn is_some(&self) -> bool {
        self.glob.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(glob: &str, root: &str, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap();
        GlobFilter::new(Some(glob), root).unwrap().matches(path, name)
    }

    #[test]
    fn glob_without_slash_matches_names() {
        assert!(passes("*.rs", ".", "src/a/main.rs") && passes("*.rs", "src", "src/a/main.rs"));
        assert!(!passes("*.rs", ".", "src/main.rsx"));
    }

    #[test]
    fn glob_with_slash_matches_from_workspace_or_directory() {
        assert!(passes("src/**/*.rs", ".", "src/a/main.rs") && passes("./src/*.rs", ".", "src/main.rs"));
        assert!(passes("a/*.rs", "src", "src/a/main.rs") && !passes("a/*.rs", ".", "src/a/main.rs"));
        assert!(!passes("src/*.rs", ".", "src/a/main.rs"));
    }

    #[test]
    fn error_of_a_bad_glob_has_a_reason() {
        assert_eq!(
            GlobFilter::new(Some(""), ".").unwrap_err().message,
            "the glob is empty: omit it to match all files"
        );
        assert!(GlobFilter::new(Some("a[b"), ".").unwrap_err().message.contains("unclosed character class"));
    }
}
