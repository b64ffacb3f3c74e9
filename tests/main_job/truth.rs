//! The facts about a directory, determined with only the standard library.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A word of the question: its label in answers, its pattern, and functions that find it in a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) label: &'static str,
    pub(crate) pattern: &'static str,
    pub(crate) means: fn(&str) -> bool,
    /// True if a whole word matches when it begins with the pattern's word, also after `_` in a name.
    pub(crate) begins: fn(&str) -> bool,
}

impl Word {
    /// Returns whether the text contains the word: at the beginning of a word if `whole`, else anywhere.
    pub(crate) fn found(&self, text: &str, whole: bool) -> bool {
        if whole { (self.begins)(text) } else { (self.means)(text) }
    }
}

/// Returns whether `text` contains `name` at the beginning of a word.
fn begins(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| !text[..at].ends_with(|c: char| c.is_ascii_alphanumeric()))
}

const WORDS: [Word; 3] = [ERROR, LANTERN, BEACON];

/// Words about errors, as a person would search for them.
pub(crate) const ERROR: Word = Word {
    label: "error",
    pattern: r"(?i)error|\berr\b|fail",
    means: |line| {
        let line = line.to_lowercase();
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        line.contains("error") || line.contains("fail") || words.any(|word| word == "err")
    },
    begins: |text| {
        let text = text.to_lowercase();
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        begins(&text, "error") || begins(&text, "fail") || words.any(|word| word == "err")
    },
};

/// A planted name, in its spellings.
pub(crate) const LANTERN: Word = Word {
    label: "RunLantern",
    pattern: r"RunLantern|run_lantern|run\-lantern",
    means: |line| ["RunLantern", "run_lantern", "run-lantern"].iter().any(|name| line.contains(name)),
    begins: |text| ["RunLantern", "run_lantern", "run-lantern"].iter().any(|name| begins(text, name)),
};

/// A planted plain word.
pub(crate) const BEACON: Word = Word {
    label: "beacon",
    pattern: "(?i)beacon",
    means: |line| line.to_lowercase().contains("beacon"),
    begins: |text| begins(&text.to_lowercase(), "beacon"),
};

#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    /// Lines of the file; `None` if it is not text or cannot be read.
    pub(crate) lines: Option<Vec<String>>,
    matching: BTreeMap<&'static str, usize>,
    pub(crate) closed: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    pub(crate) files: BTreeMap<String, File>,
    pub(crate) dirs: BTreeSet<String>,
    pub(crate) closed: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReportedCount {
    pub(crate) n: usize,
    pub(crate) exact: bool,
}

impl Truth {
    /// Reads `root`; `hidden` are the paths that its ignore files exclude.
    pub(crate) fn of(root: &Path, hidden: &[&str]) -> Self {
        let mut truth = Self::default();
        truth.read(root, "", hidden);
        truth
    }

    fn read(&mut self, root: &Path, below: &str, hidden: &[&str]) {
        for entry in fs::read_dir(root).expect("a directory") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().replace(char::is_control, "\u{fffd}");
            let path = format!("{below}{name}");
            if path == ".git" || hidden.contains(&&*path) {
                continue;
            }
            // Link targets are not part of the workspace.
            let kind = entry.file_type().expect("its kind");
            if kind.is_dir() {
                self.read(&entry.path(), &format!("{path}/"), hidden);
                self.dirs.insert(path);
            } else if kind.is_file() {
                let bytes = fs::read(entry.path()).expect("its bytes");
                self.files.insert(path, File::of(&bytes));
            }
        }
    }

    /// Marks files and directories that the command cannot read.
    pub(crate) fn without(mut self, closed: &[&str]) -> Self {
        for path in closed {
            match self.files.get_mut(*path) {
                Some(file) => *file = File { closed: true, ..File::default() },
                None => {
                    let below = format!("{path}/");
                    self.files.retain(|file, _| !file.starts_with(&below));
                    self.dirs.retain(|dir| !dir.starts_with(&below));
                    self.closed.insert((*path).to_owned());
                }
            }
        }
        self
    }

    pub(crate) fn tops(&self) -> BTreeSet<&str> {
        self.dirs.iter().map(|dir| &**dir).filter(|dir| !dir.contains('/')).collect()
    }

    pub(crate) fn area(&self, area: &Area) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (&**path, file)).filter(|(path, _)| area.holds(path))
    }

    pub(crate) fn count_files(&self, area: &Area) -> ReportedCount {
        ReportedCount { n: self.area(area).count(), exact: self.open_below(area) }
    }

    pub(crate) fn count_matches(&self, area: &Area, word: &Word) -> (ReportedCount, ReportedCount) {
        let of = |file: &File| file.matching.get(word.label).copied();
        let all: Vec<usize> = self.area(area).filter_map(|(_, file)| of(file)).filter(|n| *n > 0).collect();
        let exact = self.open_below(area) && self.area(area).all(|(_, file)| !file.closed);
        (ReportedCount { n: all.iter().sum(), exact }, ReportedCount { n: all.len(), exact })
    }

    pub(crate) fn count_any(&self, area: &Area, any: impl Fn(&str) -> bool) -> (ReportedCount, ReportedCount) {
        let of = |file: &File| file.lines.iter().flatten().filter(|line| any(line)).count();
        let all: Vec<usize> = self.area(area).map(|(_, file)| of(file)).filter(|n| *n > 0).collect();
        let exact = self.open_below(area) && self.area(area).all(|(_, file)| !file.closed);
        (ReportedCount { n: all.iter().sum(), exact }, ReportedCount { n: all.len(), exact })
    }

    fn open_below(&self, area: &Area) -> bool {
        area.shallow || !self.closed.iter().any(|dir| area.holds(dir))
    }

    /// Returns a line, counted from 1.
    pub(crate) fn line(&self, path: &str, line: usize) -> Option<&str> {
        let lines = self.files.get(path)?.lines.as_ref()?;
        lines.get(line.checked_sub(1)?).map(|line| &**line)
    }
}

impl File {
    fn of(bytes: &[u8]) -> Self {
        let lines = text(bytes);
        let count = |word: &Word| lines.iter().flatten().filter(|line| (word.means)(line)).count();
        Self { matching: WORDS.iter().map(|word| (word.label, count(word))).collect(), lines, closed: false }
    }
}

/// Returns the lines of a text, as editors count them; `None` for other bytes.
fn text(bytes: &[u8]) -> Option<Vec<String>> {
    if bytes.contains(&0) {
        return None;
    }
    let mut lines: Vec<_> =
        bytes.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    // There is no line after the last line break.
    lines.pop_if(|last| last.is_empty());
    Some(lines)
}

/// A part of the workspace, as answers name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) path: String,
    pub(crate) shallow: bool,
}

impl Area {
    pub(crate) fn holds(&self, path: &str) -> bool {
        if self.shallow {
            return path.rsplit_once('/').map_or(".", |(dir, _)| dir) == self.path;
        }
        self.path == "."
            || path == self.path
            || path.strip_prefix(&*self.path).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Returns the language of a file, as answers name it.
pub(crate) fn kind(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let word = |text: &str| (1..=12).contains(&text.len()) && text.chars().all(char::is_alphanumeric);
    let ending = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, ending)| ending);
    let ending = ending.filter(|ending| word(ending));
    let kind = match ending {
        None => "without ending",
        Some("rs") => "Rust",
        Some("py") => "Python",
        Some("go") => "Go",
        Some("ts" | "tsx") => "TypeScript",
        Some("js" | "mjs") => "JavaScript",
        Some("c") => "C",
        Some("sh") => "shell",
        Some("md") => "Markdown",
        Some("toml") => "TOML",
        Some("sql") => "SQL",
        Some("json") => "JSON",
        Some("txt") => "text",
        Some("lock") => "lock file",
        Some("yml" | "yaml") => "YAML",
        Some(other) => return format!(".{other}"),
    };
    kind.to_owned()
}

/// Returns a line as answers show it: trimmed, truncated to 100 characters, without control characters.
pub(crate) fn shown(line: &str) -> String {
    let line = line.trim();
    let mut shown: String =
        line.chars().take(100).map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect();
    if line.chars().count() > 100 {
        shown.push('…');
    }
    shown
}
