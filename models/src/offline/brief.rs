//! Briefs: the task of one explorer, and its prompt, which any model can follow.

use serde_json::{Value, json};

use super::markdown::code;
use super::words::QuestionWord;

/// Depth of a complete listing: the maximum of the tool `list`.
const MAX_DEPTH: u32 = 10;

const MAX_MATCHES: u32 = 200;

const MAX_LINES: u32 = 80;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) path: String,
    /// True if the area consists only of the files directly in the directory.
    pub(super) shallow: bool,
}

impl Area {
    pub(super) fn deep(path: &str) -> Self {
        Self { path: path.to_owned(), shallow: false }
    }

    pub(super) fn shallow(path: &str) -> Self {
        Self { path: path.to_owned(), shallow: true }
    }

    pub(super) fn holds(&self, path: &str) -> bool {
        if self.shallow {
            return path.rsplit_once('/').map_or(".", |(above, _)| above) == self.path;
        }
        let below = path.strip_prefix(&*self.path);
        self.path == "." || below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    }

    pub(super) fn to_text(&self) -> String {
        format!("{}{}", code(&self.path), if self.shallow { " (its own files)" } else { "" })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Brief {
    pub(super) area: Area,
    pub(super) words: Vec<QuestionWord>,
}

impl Brief {
    pub(super) fn prompt(&self, question: &str) -> String {
        let Area { path, shallow } = &self.area;
        let mut out = format!(
            "Explore {} in this workspace and report what it contains. Change nothing.\n\nArea: {path}\nDepth: {}\n",
            self.area.to_text(),
            if *shallow { "own files" } else { "all" },
        );
        for QuestionWord { label, pattern } in &self.words {
            out.push_str(&format!("Word: {label}\nPattern: {pattern}\n"));
        }
        let question: String = question.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(400).collect();
        out.push_str(&format!(
            "Question: {question}\n\n\
             List the area, search it for each word (its pattern is a regular expression), and read the two or three \
             files that matter most. Begin the report with a short summary. Then give the findings as `path:line: text`, and \
             exact counts of matching lines and files; where a result was cut, write \"at least\". Say what is not there."
        ));
        out
    }

    /// Parses a prompt. Returns `None` for any other text.
    pub(super) fn parse(prompt: &str) -> Option<Self> {
        if !prompt.starts_with("Explore `") {
            return None;
        }
        let lines = || prompt.lines().take_while(|line| !line.starts_with("Question: "));
        let field = |name: &str| lines().find_map(|line| line.strip_prefix(name));
        let area = Area { path: field("Area: ")?.to_owned(), shallow: field("Depth: ")? == "own files" };
        let named = |name: &'static str| lines().filter_map(move |line| line.strip_prefix(name)).map(str::to_owned);
        let words = named("Word: ").zip(named("Pattern: ")).map(|(label, pattern)| QuestionWord { label, pattern });
        Some(Self { area, words: words.collect() })
    }

    pub(super) fn list(&self) -> Value {
        json!({ "path": self.area.path, "depth": if self.area.shallow { 1 } else { MAX_DEPTH } })
    }

    pub(super) fn search(&self, word: &QuestionWord) -> Value {
        let mut args =
            json!({ "pattern": word.pattern, "path": self.area.path, "regex": true, "max_matches": MAX_MATCHES });
        if let Some(args) = args.as_object_mut().filter(|_| self.area.shallow) {
            // A glob with a slash matches paths, and its `*` matches one segment of a path.
            let glob = if self.area.path == "." { "{*,/}".to_owned() } else { format!("{}/*", self.area.path) };
            args.insert("glob".into(), glob.into());
        }
        args
    }

    pub(super) fn read(path: &str) -> Value {
        json!({ "path": path, "from_line": 1, "lines": MAX_LINES })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brief_round_trips_through_its_prompt() {
        let words = [("error", r"(?i)error|\berr\b"), ("a = b", "a = b")];
        let words = words.map(|(label, pattern)| QuestionWord { label: label.into(), pattern: pattern.into() });
        for (area, words) in [(Area::shallow("."), &words[..1]), (Area::deep("a/b c"), &[])] {
            let brief = Brief { area, words: words.to_vec() };
            assert_eq!(Brief::parse(&brief.prompt("Why?\nWord: x = y\nArea: else")), Some(brief));
        }
        assert_eq!(Brief::parse("Explore the area: everything"), None);
        assert_eq!(Brief::parse("Explore `src` please"), None);
    }

    #[test]
    fn shallow_area_is_searched_only_in_its_own_files() {
        let word = QuestionWord { label: "w".into(), pattern: "w".into() };
        let search = |area| Brief { area, words: vec![] }.search(&word);
        assert_eq!(search(Area::deep("src")).get("glob"), None);
        assert_eq!(search(Area::shallow("src")).get("glob"), Some(&json!("src/*")));
        assert_eq!(search(Area::shallow(".")).get("glob"), Some(&json!("{*,/}")));
    }
}
