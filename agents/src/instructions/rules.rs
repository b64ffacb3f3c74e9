//! Rules of Claude Code: instruction files below `.claude/rules`, some of which apply only to certain paths.

use std::path::{Path, PathBuf};

use serde_json::Value;
use subtend_session::escape::harmless;
use subtend_session::ids::Text;

use crate::catalog::{AgentProblem, Catalog, ProblemKind, first_symlink, has_ending};
use crate::foreign::{fields::Fields, lenient};
use crate::form::shown;

pub const FOLDER: &str = ".claude/rules";

pub const MAX_RULES: usize = 256;

/// The maximum size of all rule files, even those that the prompt only lists, because every file is parsed.
pub(super) const MAX_RULE_BYTES: usize = 1 << 20;

/// The maximum size of all patterns of a rule.
const MAX_PATTERNS: usize = 2_000;

/// The rule files that were found in a directory. They are not read yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFiles {
    /// The paths below the directory, in the order of prompts.
    pub paths: Vec<String>,
    /// Files and folders that are not used.
    pub problems: Vec<AgentProblem>,
}

impl RuleFiles {
    /// Finds the rules below `folder` of a directory. Links are not followed.
    pub fn find(directory: &Path, folder: &str) -> Self {
        let root = directory.join(folder);
        let mut found = Self::default();
        if !root.is_dir() {
            return found;
        }
        if let Some(link) = first_symlink(directory, Path::new(folder)) {
            found.refuse(link, "is a symbolic link, which is not followed: use a folder".to_owned());
            return found;
        }
        let (mut entries, mut files) = (Catalog::default(), Vec::new());
        entries.find(directory, &root, 0, &|path| has_ending(path, "md"), &mut files);
        found.problems.extend(entries.problems().iter().cloned());
        files.sort_unstable();
        if let Some(first) = files.get(MAX_RULES) {
            let why = format!("this file and all after it are not read: there are more than {MAX_RULES} rules");
            found.refuse(first.clone(), why);
        }
        for path in files.into_iter().take(MAX_RULES) {
            match path.strip_prefix(directory).ok().and_then(Path::to_str) {
                Some(below) => found.paths.push(below.to_owned()),
                None => found.refuse(path, "is not used: its name is not UTF-8".to_owned()),
            }
        }
        found
    }

    fn refuse(&mut self, path: PathBuf, message: String) {
        self.problems.push(AgentProblem { path, kind: ProblemKind::Refused, product: None, message });
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct RuleText {
    pub(super) text: String,
    /// The patterns of the paths that the rule applies to; `None` means all paths.
    pub(super) paths: Option<Text>,
    pub(super) notes: Vec<String>,
}

/// If the patterns cannot be parsed, the rule applies to all paths, so that it is not silently ignored.
pub(super) fn parse(text: &str) -> RuleText {
    let read = match lenient::read(text) {
        Ok(read) => read,
        Err(error) => {
            return RuleText {
                text: text.to_owned(),
                paths: None,
                notes: vec![format!("the rule applies to all files: {error}")],
            };
        }
    };
    let body = read.body.to_owned();
    let mut fields = Fields::of(read.map);
    let paths = match fields.take("paths") {
        None => None,
        Some(Value::String(patterns)) => Some(patterns),
        Some(Value::Array(patterns)) if patterns.iter().all(Value::is_string) => {
            Some(patterns.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
        }
        Some(other) => {
            fields.note(format!(
                "`paths` must be patterns of paths, not {}, so the rule applies to all files",
                shown(&other)
            ));
            None
        }
    };
    let paths = paths.map(|patterns| harmless(&patterns.split_whitespace().collect::<Vec<_>>().join(" ")));
    let mut paths = paths.filter(|patterns| !patterns.is_empty());
    if paths.take_if(|patterns| patterns.len() > MAX_PATTERNS).is_some() {
        fields.note(format!("`paths` has more than {MAX_PATTERNS} bytes, so the rule applies to all files"));
    }
    fields.keep(&["description"]);
    fields.rest("a rule of Claude Code");
    RuleText { text: body, paths: paths.map(Text::from), notes: fields.notes }
}
