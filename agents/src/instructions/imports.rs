//! Imports in instruction files: `@path` outside of code.

use std::path::{Component, Path};

use super::InstructionArea;

/// The maximum length of an imported path in bytes. A longer word is not treated as an import.
const MAX_PATH: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Import<'a>(&'a str);

impl Import<'_> {
    pub(super) fn display_text(&self) -> String {
        self.0.chars().take(200).collect()
    }

    /// Returns whether the last part of the path looks like a file name.
    pub(super) fn is_file_name(&self) -> bool {
        Path::new(self.0).extension().is_some()
    }

    /// Returns the path, relative to the area, for an import in `from`. The error follows the import in a sentence.
    pub(super) fn path_in_area(&self, area: InstructionArea<'_>, from: &str) -> Result<String, String> {
        let out = || "is not used: it leads out of the directory whose files it may import".to_owned();
        let absolute = match (self.0.strip_prefix("~/"), area.home) {
            (Some(rest), Some(home)) => home.join(rest),
            (Some(_), None) => return Err(out()),
            (None, _) => area.path.join(from).parent().unwrap_or(area.path).join(self.0),
        };
        let mut parts: Vec<String> = Vec::new();
        let below = absolute.strip_prefix(area.path).map_err(|_| out())?;
        for part in below.components() {
            match part {
                Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
                Component::CurDir => {}
                Component::ParentDir if parts.pop().is_some() => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(out()),
            }
        }
        if parts.is_empty() { Err(out()) } else { Ok(parts.join("/")) }
    }
}

/// Returns the imports of a text, in order. Code blocks and code spans contain no imports.
pub(super) fn imports(text: &str) -> Vec<Import<'_>> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => add_imports_of(line, &mut found),
        }
    }
    found
}

fn add_imports_of<'a>(line: &'a str, found: &mut Vec<Import<'a>>) {
    // Text between backticks is code. After an unclosed backtick, the rest is ordinary text.
    let parts: Vec<&str> = line.split('`').collect();
    let closed = parts.len().saturating_sub(1) / 2 * 2;
    for (number, part) in parts.iter().enumerate() {
        if number % 2 == 1 && number < closed {
            continue;
        }
        for word in part.split_whitespace() {
            let Some(path) = word.strip_prefix('@') else { continue };
            let path = path.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '"', '\'', '*']);
            if !path.is_empty() && path.len() <= MAX_PATH && !path.contains('\0') {
                found.push(Import(path));
            }
        }
    }
}
