//! Parses results of tools from the text that a model receives.
//!
//! Every count is marked as exact or as a lower bound. Truncated or unreadable output makes it a lower bound.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FoundCount {
    pub(super) n: u64,
    pub(super) exact: bool,
}

impl FoundCount {
    pub(super) fn exactly(n: u64) -> Self {
        Self { n, exact: true }
    }

    pub(super) fn at_least(n: u64) -> Self {
        Self { n, exact: false }
    }

    pub(super) fn add(self, other: Self) -> Self {
        Self { n: self.n.saturating_add(other.n), exact: self.exact && other.exact }
    }

    /// Returns the count with a noun: `1 file`, `at least 2 files`.
    pub(super) fn of(self, one: &str, many: &str) -> String {
        format!("{self} {}", if self.n == 1 { one } else { many })
    }

    /// Parses the output of `Display`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (number, exact) = text.strip_prefix("at least ").map_or((text, true), |number| (number, false));
        number.parse().ok().map(|n| Self { n, exact })
    }
}

impl fmt::Display for FoundCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.exact { "" } else { "at least " })?;
        write!(f, "{}", self.n)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolListing {
    pub(super) dirs: Vec<Dir>,
    pub(super) files: Vec<ListedFile>,
    /// Number of all files, including those that are not shown.
    pub(super) count: FoundCount,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dir {
    pub(super) path: String,
    pub(super) entries: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListedFile {
    pub(super) path: String,
    pub(super) lines: Option<u64>,
}

impl ToolListing {
    /// Parses lines `path/  2 entries` and `path  120 bytes, 4 lines`, and a last line `[1 directory; 2 files; …]`. With `shallow`, missing
    /// content of subdirectories does not make the counts inexact.
    pub(super) fn parse(text: &str, shallow: bool) -> Self {
        let (lines, footer) = body_and_footer(text);
        let mut listing = Self { dirs: Vec::new(), files: Vec::new(), count: FoundCount::at_least(0) };
        for (path, about) in lines.filter_map(|line| line.rsplit_once("  ")) {
            if let Some(path) = path.strip_suffix('/') {
                let entries = leading_number(about).unwrap_or(0);
                listing.dirs.push(Dir { path: path.to_owned(), entries });
            } else if about.contains(" byte") || about.starts_with("unreadable") {
                let lines = about.split(", ").find(|part| part.ends_with(" line") || part.ends_with(" lines"));
                listing.files.push(ListedFile { path: path.to_owned(), lines: lines.and_then(leading_number) });
            }
        }
        let deep = ["more below depth", "unreadable"].into_iter().filter(|_| !shallow);
        let doubtful: Vec<&str> = ["stopped after", "not permitted"].into_iter().chain(deep).collect();
        let reported = footer.and_then(|footer| {
            let n = footer
                .split("; ")
                .find(|part| part.ends_with(" file") || part.ends_with(" files"))
                .and_then(leading_number);
            n.map(|n| FoundCount { n, exact: !doubtful.iter().any(|word| footer.contains(word)) })
        });
        listing.count = reported.unwrap_or(FoundCount::at_least(number(listing.files.len())));
        listing
    }

    pub(super) fn whole(&self) -> bool {
        self.count.exact && number(self.files.len()) == self.count.n
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SearchMatches {
    pub(super) places: Vec<Location>,
    /// Number of all matching lines, including those that are not shown.
    pub(super) lines: FoundCount,
    pub(super) files: FoundCount,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) path: String,
    pub(super) line: u64,
    pub(super) text: String,
}

impl SearchMatches {
    /// Parses lines `path:line: text` and a last line `[3 matching lines in 2 files of 9 files; …]` or `[no matches in 9 files]`. With `shallow`,
    /// unreadable directories do not make the counts inexact.
    pub(super) fn parse(text: &str, shallow: bool) -> Self {
        let (lines, footer) = body_and_footer(text);
        let places: Vec<Location> = lines.filter_map(Location::parse).collect();
        let mut paths: Vec<&str> = places.iter().map(|place| &*place.path).collect();
        paths.dedup();
        let shown = (FoundCount::at_least(number(places.len())), FoundCount::at_least(number(paths.len())));
        let (lines, files) = footer.and_then(|footer| counts(footer, shallow)).unwrap_or(shown);
        Self { places, lines, files }
    }
}

fn counts(footer: &str, shallow: bool) -> Option<(FoundCount, FoundCount)> {
    let harmless = |note: &&str| shallow && note.contains("director") && note.ends_with(" unreadable");
    let doubtful = |note: &str| ["unreadable", "not permitted"].iter().any(|word| note.contains(word));
    let exact = !footer.split("; ").filter(|note| !harmless(note)).any(doubtful);
    if footer.starts_with("no matches in ") {
        return Some((FoundCount { n: 0, exact }, FoundCount { n: 0, exact }));
    }
    let (lines, rest) = footer.split_once(" matching line")?;
    let (_, files) = rest.split_once(" in ")?;
    Some((FoundCount { n: lines.parse().ok()?, exact }, FoundCount { n: leading_number(files)?, exact }))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Matched {
    /// The shown files with their numbers of matching lines. Files whose path matches come first.
    pub(super) files: Vec<(String, u64)>,
    pub(super) lines: FoundCount,
    pub(super) matching: FoundCount,
    pub(super) whole: bool,
}

impl Matched {
    /// Parses lines `path  4 matching lines` and a last line like that of [`SearchMatches`].
    pub(super) fn parse(text: &str) -> Self {
        let (lines, footer) = body_and_footer(text);
        let files = lines.filter_map(|line| line.rsplit_once("  "));
        let files = files.filter_map(|(path, about)| Some((path.to_owned(), leading_number(about)?))).collect();
        let unknown = (FoundCount::at_least(0), FoundCount::at_least(0));
        let (lines, matching) = footer.and_then(|footer| counts(footer, false)).unwrap_or(unknown);
        let whole = lines.exact && footer.is_some_and(|footer| !footer.contains(" shown"));
        Self { files, lines, matching, whole }
    }
}

impl Location {
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.path, self.line)
    }

    pub(super) fn parse(line: &str) -> Option<Self> {
        line.match_indices(':').filter(|(at, _)| *at > 0).find_map(|(at, _)| {
            let (path, rest) = (line.get(..at)?, line.get(at.saturating_add(1)..)?);
            let (number, text) = rest.split_once(": ").or_else(|| Some((rest.strip_suffix(':')?, "")))?;
            Some(Self { path: path.to_owned(), line: number.parse().ok()?, text: text.to_owned() })
        })
    }
}

/// Parses lines `number<tab>text` of the output of `read`.
pub(super) fn page(text: &str) -> Vec<(u64, String)> {
    let (lines, _) = body_and_footer(text);
    let numbered = lines.filter_map(|line| {
        let (number, text) = line.split_once('\t')?;
        number.trim().parse().ok().map(|number| (number, text.to_owned()))
    });
    numbered.collect()
}

/// Splits off a last line in brackets.
fn body_and_footer(text: &str) -> (impl Iterator<Item = &str>, Option<&str>) {
    let (before, last) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
    match last.strip_prefix('[').and_then(|last| last.strip_suffix(']')) {
        Some(footer) => (before.lines(), Some(footer)),
        None => (text.lines(), None),
    }
}

fn leading_number(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.get(..digits)?.parse().ok()
}

fn number(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listing_is_parsed_with_its_counts() {
        let text = "src/  2 entries\nlib/  unreadable\nREADME.md  120 bytes, 4 lines\na  b.bin  9 bytes\nlink  link to src\nsrc/x.rs  1 byte, 1 line\n\
                    [2 directories; 3 files; 1 other; 4 ignored entries left out]";
        let file = |path: &str, lines| ListedFile { path: path.into(), lines };
        let dir = |path: &str, entries| Dir { path: path.into(), entries };
        let listing = ToolListing::parse(text, false);
        let files = vec![file("README.md", Some(4)), file("a  b.bin", None), file("src/x.rs", Some(1))];
        let expected = ToolListing { dirs: vec![dir("src", 2), dir("lib", 0)], files, count: FoundCount::exactly(3) };
        assert_eq!((listing.whole(), listing), (true, expected));
    }

    #[test]
    fn incomplete_listing_gives_lower_bounds() {
        let count = |text: &str| {
            let listing = ToolListing::parse(text, false);
            (listing.count, listing.whole())
        };
        assert_eq!(
            count("a  1 byte\n[7 more not shown: list a part, or fewer levels; 0 directories; 8 files]"),
            (FoundCount::exactly(8), false)
        );
        assert_eq!(
            count("a  1 byte\n[0 directories; 1 file; 2 directories have more below depth 2]"),
            (FoundCount::at_least(1), false)
        );
        let shallow = "a  1 byte\n[1 directory; 1 file; 1 directory unreadable; 2 directories have more below depth 1]";
        assert_eq!(ToolListing::parse(shallow, true).count, FoundCount::exactly(1));
        assert_eq!(count("a  1 byte\nb  2 bytes"), (FoundCount::at_least(2), false));
        assert_eq!(count(""), (FoundCount::at_least(0), false));
        assert_eq!(count("[0 directories; 0 files]"), (FoundCount::exactly(0), true));
    }

    #[test]
    fn findings_are_parsed_with_their_counts() {
        let place = |path: &str, line, text: &str| Location { path: path.into(), line, text: text.into() };
        let found = SearchMatches::parse(
            "src/a.rs:12: fn a() -> B::C\nC:/odd:3:\n[240 matching lines in 9 files of 57 files; 2 shown: narrow the pattern, path or glob]",
            false,
        );
        let places = vec![place("src/a.rs", 12, "fn a() -> B::C"), place("C:/odd", 3, "")];
        assert_eq!(found, SearchMatches { places, lines: FoundCount::exactly(240), files: FoundCount::exactly(9) });
        let none = SearchMatches::parse("[no matches in 57 files; 1 binary file skipped]", false);
        assert_eq!(
            none,
            SearchMatches { places: vec![], lines: FoundCount::exactly(0), files: FoundCount::exactly(0) }
        );
        for (note, shallow, exact) in [
            ("1 file unreadable", false, false),
            ("1 file unreadable", true, false),
            ("1 directory unreadable", false, false),
            ("2 directories unreadable", true, true),
            ("1 file unreadable; 2 directories unreadable", true, false),
        ] {
            let found =
                SearchMatches::parse(&format!("a:1: x\n[1 matching line in 1 file of 1 file; {note}]"), shallow);
            assert_eq!((found.lines, found.files), (FoundCount { n: 1, exact }, FoundCount { n: 1, exact }), "{note}");
        }
        let cut = SearchMatches::parse("a:1: x\na:2: x\nb:1: x", false);
        assert_eq!((cut.lines, cut.files), (FoundCount::at_least(3), FoundCount::at_least(2)));
    }

    #[test]
    fn numbered_lines_of_a_page_are_read() {
        let lines = page("     1\t//! A.\n     2\t\n[lines 1-2 of 204, 9000 bytes; continue with from_line=3]");
        assert_eq!(lines, [(1, "//! A.".into()), (2, String::new())]);
        assert_eq!(page("[`a` is empty]"), []);
    }

    #[test]
    fn matching_files_are_read_with_their_counts() {
        let matched = Matched::parse(
            "src/actor.rs  0 matching lines\na  b.rs  1 matching line\n[9 matching lines in 4 files of 9 files; 1 path matches; 2 shown: narrow]",
        );
        let files = vec![("src/actor.rs".to_owned(), 0), ("a  b.rs".to_owned(), 1)];
        let (lines, matching) = (FoundCount::exactly(9), FoundCount::exactly(4));
        assert_eq!(matched, Matched { files, lines, matching, whole: false });
        let none = FoundCount::exactly(0);
        let nothing = Matched { files: vec![], lines: none, matching: none, whole: true };
        assert_eq!(Matched::parse("[no matches in 9 files]"), nothing);
    }

    #[test]
    fn counts_show_whether_they_are_exact() {
        for (count, text) in [(FoundCount::exactly(1), "1 line"), (FoundCount::at_least(2), "at least 2 lines")] {
            assert_eq!(count.of("line", "lines"), text);
            assert_eq!(FoundCount::parse(&count.to_string()), Some(count));
        }
        assert_eq!(FoundCount::exactly(1).add(FoundCount::at_least(2)), FoundCount::at_least(3));
    }
}
