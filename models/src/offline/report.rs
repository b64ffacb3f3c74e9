//! Reports: the findings of an explorer, as text for users and as a block that the calling model parses.

use super::brief::Area;
use super::markdown::code;
use super::results::{FoundCount, Location};

/// Maximum bytes of a report. The caller of a child receives longer texts than this without truncation.
pub(super) const MAX_BYTES: usize = 7 << 10;

const MAX_PLACES: usize = 8;

const MAX_LINE_CHARS: usize = 100;

const FENCE_START: &str = "```findings";
const FENCE_END: &str = "end";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChildReport {
    pub(super) area: Area,
    /// The number of files; `None` if the area could not be listed.
    pub(super) files: Option<FoundCount>,
    pub(super) kinds: Vec<(String, FoundCount)>,
    pub(super) words: Vec<Matches>,
    pub(super) opens: Vec<Location>,
    pub(super) notes: Vec<String>,
    pub(super) whole: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Matches {
    pub(super) label: String,
    pub(super) pattern: String,
    pub(super) lines: FoundCount,
    pub(super) files: FoundCount,
    pub(super) places: Vec<Location>,
}

impl ChildReport {
    pub(super) fn of(area: Area) -> Self {
        let (kinds, words, opens, notes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { area, files: None, kinds, words, opens, notes, whole: true }
    }

    /// Returns the text: a summary, then the findings.
    pub(super) fn text(&self) -> String {
        let mut out = self.summary();
        out.push_str(&format!("\n\n{FENCE_START}\n"));
        let lines = self.lines();
        let reported_bytes =
            lines.iter().filter(|(reported, _)| *reported).map(|(_, line)| line.len().saturating_add(1)).sum();
        let mut room = MAX_BYTES.saturating_sub(out.len()).saturating_sub(reported_bytes);
        for (reported, line) in lines {
            let rest = room.checked_sub(line.len().saturating_add(1)).filter(|_| !reported);
            // Drop places first, and keep the counts of matching lines.
            if reported || rest.is_some() {
                room = rest.unwrap_or(room);
                out.push_str(&line);
                out.push('\n');
            }
        }
        out.push_str(&format!("{FENCE_END}\n```"));
        out
    }

    fn summary(&self) -> String {
        let mut texts = Vec::new();
        texts.push(match self.files {
            Some(files) => {
                let kinds = Some(self.kinds_text()).filter(|kinds| !kinds.is_empty());
                let kinds = kinds.map_or_else(String::new, |kinds| format!(" ({kinds})"));
                format!("{} holds {}{kinds}.", self.area.to_text(), files.of("file", "files"))
            }
            None => format!("{} could not be listed.", self.area.to_text()),
        });
        for Matches { label, lines, files, .. } in &self.words {
            texts.push(if *lines == FoundCount::exactly(0) {
                format!("Nothing matches {}.", code(label))
            } else {
                let lines = lines.of("line matches", "lines match");
                format!("{lines} {} in {}.", code(label), files.of("file", "files"))
            });
        }
        if let Some(place) = self.opens.first() {
            texts.push(format!("{} begins: {}", code(&place.name()), code(&place.text)));
        }
        texts.extend(self.notes.iter().map(|note| format!("Note: {note}.")));
        texts.join(" ")
    }

    pub(super) fn kinds_text(&self) -> String {
        let kinds: Vec<String> = self.kinds.iter().take(4).map(|(kind, count)| format!("{kind} {count}")).collect();
        kinds.join(", ")
    }

    /// Returns the lines of the block. The flag says whether a line is required.
    fn lines(&self) -> Vec<(bool, String)> {
        let mut out = vec![format!("area: {}", self.area.path)];
        out.push(format!("depth: {}", if self.area.shallow { "own files" } else { "all" }));
        out.extend(self.files.map(|files| format!("files: {files}")));
        out.extend(self.kinds.iter().take(8).map(|(kind, count)| format!("kind: {kind}: {count}")));
        out.extend(self.opens.iter().map(|place| format!("begins: {}", place_line(place))));
        out.extend(self.notes.iter().map(|note| format!("note: {}", display_line(note))));
        let mut out: Vec<(bool, String)> = out.into_iter().map(|line| (true, line)).collect();
        for word in &self.words {
            let about = [
                format!("word: {}", word.label),
                format!("pattern: {}", word.pattern),
                format!("matching lines: {}", word.lines),
                format!("matching files: {}", word.files),
            ];
            out.extend(about.map(|line| (true, line)));
            out.extend(word.places.iter().take(MAX_PLACES).map(|place| (false, place_line(place))));
        }
        out
    }

    /// Parses a report from a text. A truncated report is parsed as far as possible.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (_, block) = text.split_once(&format!("{FENCE_START}\n"))?;
        let mut lines = block.lines();
        let area = lines.next()?.strip_prefix("area: ")?.to_owned();
        let shallow = lines.next()?.strip_prefix("depth: ")? == "own files";
        let mut report = Self { whole: false, ..Self::of(Area { path: area, shallow }) };
        for line in lines {
            if line == FENCE_END {
                report.whole = true;
                break;
            }
            report.take(line);
        }
        Some(report)
    }

    fn take(&mut self, line: &str) {
        let (key, value) = line.split_once(": ").unwrap_or((line, ""));
        let counted = |value: &str| {
            let (name, count) = value.rsplit_once(": ")?;
            Some((name.to_owned(), FoundCount::parse(count)?))
        };
        match key {
            "files" => self.files = FoundCount::parse(value),
            "kind" => self.kinds.extend(counted(value)),
            "begins" => self.opens.extend(Location::parse(value)),
            "note" => self.notes.push(value.to_owned()),
            "word" => self.words.push(Matches {
                label: value.to_owned(),
                pattern: String::new(),
                lines: FoundCount::at_least(0),
                files: FoundCount::at_least(0),
                places: Vec::new(),
            }),
            _ => {
                let Some(word) = self.words.last_mut() else { return };
                match (key, FoundCount::parse(value)) {
                    ("pattern", _) => value.clone_into(&mut word.pattern),
                    ("matching lines", Some(count)) => word.lines = count,
                    ("matching files", Some(count)) => word.files = count,
                    _ => word.places.extend(Location::parse(line)),
                }
            }
        }
    }
}

fn place_line(place: &Location) -> String {
    format!("{}:{}: {}", place.path, place.line, display_line(&place.text))
}

/// Returns a line for display: trimmed, truncated, and without control characters.
pub(super) fn display_line(line: &str) -> String {
    let line = line.trim();
    let mut out: String =
        line.chars().take(MAX_LINE_CHARS).map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect();
    if line.chars().nth(MAX_LINE_CHARS).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str, line: u64, text: &str) -> Location {
        Location { path: path.into(), line, text: text.into() }
    }

    fn report() -> ChildReport {
        ChildReport {
            files: Some(FoundCount::exactly(12)),
            kinds: vec![("Rust".into(), FoundCount::exactly(10)), ("Markdown".into(), FoundCount::exactly(2))],
            words: vec![
                Matches {
                    label: "error".into(),
                    pattern: "(?i)error: x|err".into(),
                    lines: FoundCount::exactly(31),
                    files: FoundCount::at_least(7),
                    places: vec![place("src/a.rs", 3, "word: odd ``` text"), place("src/b.rs", 9, "")],
                },
                Matches {
                    label: "lock".into(),
                    pattern: "lock".into(),
                    lines: FoundCount::exactly(0),
                    files: FoundCount::exactly(0),
                    places: vec![],
                },
            ],
            opens: vec![place("src/lib.rs", 1, "The heart.")],
            notes: vec!["`src/b.bin` could not be read: binary".into()],
            ..ChildReport::of(Area::deep("src"))
        }
    }

    #[test]
    fn report_starts_with_its_summary_and_round_trips() {
        let text = report().text();
        let summary = "`src` holds 12 files (Rust 10, Markdown 2). 31 lines match `error` in at least 7 files. \
                       Nothing matches `lock`. `src/lib.rs:1` begins: `The heart.` Note: `src/b.bin` could not be read: binary.";
        assert_eq!(text.lines().next(), Some(summary));
        assert_eq!(ChildReport::parse(&text), Some(report()));
    }

    #[test]
    fn truncated_report_is_parsed_as_far_as_possible() {
        let text = report().text();
        let cut = text.split_once("src/b.rs:9").unwrap().0;
        let read = ChildReport::parse(cut).unwrap();
        assert!(!read.whole);
        assert_eq!(read.words.len(), 1);
        assert_eq!(read.files, Some(FoundCount::exactly(12)));
        for at in 0..text.len() {
            let _ = ChildReport::parse(text.get(..at).unwrap_or_default());
        }
        assert_eq!(ChildReport::parse("no findings here"), None);
    }

    #[test]
    fn report_stays_below_its_limit() {
        let many =
            (0..50).map(|n| place(&format!("src/{}.rs", "x".repeat(200)), n, &"ü".repeat(300))).collect::<Vec<_>>();
        let mut report = report();
        report.words = (0..4).map(|_| Matches { places: many.clone(), ..report.words[0].clone() }).collect();
        let text = report.text();
        assert!(text.len() < 8 << 10, "{}", text.len());
        assert!(ChildReport::parse(&text).unwrap().whole);
    }

    #[test]
    fn shown_lines_are_short_and_without_control_characters() {
        assert_eq!(display_line("  a\u{1b}[31m\tb  "), "a\u{fffd}[31m\tb");
        assert_eq!(display_line(&"é".repeat(101)), format!("{}…", "é".repeat(100)));
        assert_eq!((code("a"), code("`a`"), code("a``b")), ("`a`".into(), "`` `a` ``".into(), "```a``b```".into()));
    }
}
