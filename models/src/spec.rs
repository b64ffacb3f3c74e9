//! Which model to use, as a word on a command line or in a configuration.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::model::Model;
use crate::offline::Offline;
use crate::scripted::{ScriptError, Scripted};

/// A choice of model.
///
/// ```
/// use subtend_models::spec::ModelSpec;
///
/// assert_eq!(ModelSpec::parse("offline"), Ok(ModelSpec::Offline));
/// assert_eq!(ModelSpec::parse("scripted:drill.json"), Ok(ModelSpec::Scripted("drill.json".into())));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSpec {
    /// The rule-based stand-in.
    Offline,
    /// A script, by its file.
    Scripted(PathBuf),
}

/// A word that names no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadModel {
    /// There is no such model.
    #[error(
        "there is no model `{0}` yet: use `offline` (rules, no network) or `scripted:FILE` (answers from a file); \
         providers of language models come later"
    )]
    Unknown(String),
    /// A script without its file.
    #[error("`scripted:` needs a file: write `scripted:FILE`")]
    NoFile,
}

impl ModelSpec {
    /// Reads `offline` or `scripted:FILE`.
    ///
    /// # Errors
    /// For any other word; the text lists what there is.
    pub fn parse(word: &str) -> Result<Self, BadModel> {
        match (word.trim(), word.trim().strip_prefix("scripted:")) {
            ("offline", _) => Ok(Self::Offline),
            ("scripted", _) | (_, Some("")) => Err(BadModel::NoFile),
            (_, Some(file)) => Ok(Self::Scripted(file.into())),
            (other, None) => Err(BadModel::Unknown(other.chars().take(80).collect())),
        }
    }

    /// Makes the model; a script is read and checked here.
    ///
    /// # Errors
    /// When a script's file cannot be read or is not well formed.
    pub fn build(&self) -> Result<Arc<dyn Model>, ScriptError> {
        match self {
            Self::Offline => Ok(Arc::new(Offline::new())),
            Self::Scripted(file) => Ok(Arc::new(Scripted::from_file(file)?)),
        }
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offline => f.write_str("offline"),
            Self::Scripted(file) => write!(f, "scripted:{}", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_name_no_model_are_told_what_there_is() {
        let shown = |word| ModelSpec::parse(word).map(|spec| spec.to_string()).map_err(|error| error.to_string());
        assert_eq!(shown(" offline "), Ok("offline".into()));
        assert_eq!(shown("scripted:a b.json"), Ok("scripted:a b.json".into()));
        assert_eq!(
            shown("sonnet"),
            Err(
                "there is no model `sonnet` yet: use `offline` (rules, no network) or `scripted:FILE` (answers from a \
                 file); providers of language models come later"
                    .into()
            )
        );
        for word in ["scripted", "scripted:"] {
            assert_eq!(shown(word), Err("`scripted:` needs a file: write `scripted:FILE`".into()));
        }
    }

    #[test]
    fn building_says_what_is_wrong_with_a_script() {
        assert!(ModelSpec::Offline.build().is_ok_and(|model| model.name() == "offline"));
        let missing = ModelSpec::Scripted("no/such/script.json".into()).build().map(|_| ()).map_err(|e| e.to_string());
        assert!(missing.is_err_and(|says| says.starts_with("the script no/such/script.json cannot be read: ")));
    }
}
