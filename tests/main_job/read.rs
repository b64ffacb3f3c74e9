//! Small parsers that consume the front of an answer's text.

use super::truth::{Area, ReportedCount};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest<'a>(pub(crate) &'a str);

impl<'a> Rest<'a> {
    pub(crate) fn word(&mut self, text: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    pub(crate) fn one(&mut self, texts: &[&str]) -> Option<()> {
        texts.iter().find_map(|text| self.word(text))
    }

    pub(crate) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }

    /// Reads a number: `7`, `at least 7`.
    pub(crate) fn number(&mut self) -> Option<ReportedCount> {
        let exact = self.one(&["at least ", "At least "]).is_none();
        let digits = self.0.len() - self.0.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, rest) = self.0.split_at(digits);
        self.0 = rest;
        Some(ReportedCount { n: number.parse().ok()?, exact })
    }

    /// Reads a count such as `1 file` or `2 files`; rejects `1 files`.
    pub(crate) fn count(&mut self, one: &str, many: &str) -> Option<ReportedCount> {
        let reported = self.number()?;
        self.word(" ")?;
        self.word(if reported.n == 1 { one } else { many })?;
        Some(reported)
    }

    /// Reads code in Markdown, within as many backticks as it needs.
    pub(crate) fn code(&mut self) -> Option<String> {
        let ticks = self.0.len() - self.0.trim_start_matches('`').len();
        let (fence, rest) = self.0.split_at(ticks);
        if ticks == 0 {
            return None;
        }
        let mut from = 0;
        loop {
            let at = from + rest.get(from..)?.find(fence)?;
            let run = rest[at..].len() - rest[at..].trim_start_matches('`').len();
            if run == ticks {
                self.0 = &rest[at + ticks..];
                let inside = &rest[..at];
                let padded = inside.strip_prefix(' ').and_then(|inside| inside.strip_suffix(' '));
                let padded = padded.filter(|inside| inside.starts_with('`') || inside.ends_with('`'));
                return Some(padded.unwrap_or(inside).to_owned());
            }
            from = at + run;
        }
    }

    /// Reads an area: `` `src` `` or `` `.` (its own files) ``.
    pub(crate) fn area(&mut self) -> Option<Area> {
        let path = self.code()?;
        let shallow = self.word(" (its own files)").is_some();
        Some(Area { path, shallow })
    }

    /// Reads a place with its line: `` `src/a.rs:7` `text` ``.
    pub(crate) fn place(&mut self) -> Option<(String, usize, String)> {
        let place = self.code()?;
        let (path, line) = place.rsplit_once(':')?;
        self.word(" ")?;
        let line = line.parse().ok()?;
        Some((path.to_owned(), line, self.code()?))
    }

    /// Reads a comma-separated list up to the end of the text.
    pub(crate) fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut all = vec![item(self)?];
        while self.word(", ").is_some() {
            all.push(item(self)?);
        }
        Some(all)
    }
}

/// Returns the cells of a table row, with their escaped bars unescaped.
pub(crate) fn cells(line: &str) -> Option<Vec<String>> {
    let inside = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let mut cells = vec![String::new()];
    let mut rest = inside;
    while let Some(c) = rest.chars().next() {
        let cell = cells.last_mut()?;
        if let Some(after) = rest.strip_prefix("\\|") {
            cell.push('|');
            rest = after;
        } else if let Some(after) = rest.strip_prefix(" | ") {
            cells.push(String::new());
            rest = after;
        } else {
            cell.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    Some(cells)
}
