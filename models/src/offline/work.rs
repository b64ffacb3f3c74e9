//! The work of one explorer: lists an area, searches it, reads the best files, and reports.

use std::collections::BTreeMap;

use serde_json::Value;

use super::brief::Brief;
use super::markdown;
use super::report::{self, ChildReport, Matches};
use super::results::{self, FoundCount, Location, SearchMatches, ToolListing};
use super::transcript::{Done, OpenQuestion};
use super::words::QuestionWord;

const MAX_READS: usize = 3;

const MAX_PLACES: usize = 12;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offered {
    pub(super) list: bool,
    pub(super) search: bool,
    pub(super) read: bool,
    pub(super) task: Option<String>,
}

impl Offered {
    pub(super) fn can_explore(&self) -> bool {
        self.list || self.search || self.read
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum NextWork {
    Calls(Vec<(&'static str, Value)>),
    Report(Box<ChildReport>),
}

/// Returns the next step for `brief` after the calls so far.
pub(super) fn next(brief: &Brief, open: &OpenQuestion<'_>, offered: &Offered) -> NextWork {
    let mut missing = Vec::new();
    if offered.list && open.find("list", &brief.list()).is_none() {
        missing.push(("list", brief.list()));
    }
    for word in brief.words.iter().filter(|_| offered.search) {
        let search = brief.search(word);
        if open.find("search", &search).is_none() && !missing.iter().any(|(_, args)| *args == search) {
            missing.push(("search", search));
        }
    }
    if !missing.is_empty() {
        return NextWork::Calls(missing);
    }
    let mut report = survey(brief, open, offered);
    let reads = if offered.read { to_read(&listing(brief, open), &report) } else { Vec::new() };
    let unread = reads.iter().map(|path| Brief::read(path)).filter(|args| open.find("read", args).is_none());
    let unread: Vec<(&str, Value)> = unread.map(|args| ("read", args)).collect();
    if !unread.is_empty() {
        return NextWork::Calls(unread);
    }
    for path in &reads {
        let Some(done) = open.find("read", &Brief::read(path)) else { continue };
        if done.error {
            report.notes.push(format!(
                "{} could not be read: {}",
                markdown::code(path),
                report::display_line(done.content)
            ));
        } else {
            report.opens.extend(opening(path, &results::page(done.content)));
        }
    }
    for word in &mut report.words {
        let names = brief.words.iter().find(|other| other.pattern == word.pattern).map(QuestionWord::names);
        word.places = pick_best(std::mem::take(&mut word.places), &names.unwrap_or_default());
    }
    NextWork::Report(Box::new(report))
}

fn listing(brief: &Brief, open: &OpenQuestion<'_>) -> Option<ToolListing> {
    open.find("list", &brief.list())
        .filter(|done| !done.error)
        .map(|done| ToolListing::parse(done.content, brief.area.shallow))
}

fn survey(brief: &Brief, open: &OpenQuestion<'_>, offered: &Offered) -> ChildReport {
    let mut report = ChildReport::of(brief.area.clone());
    match (listing(brief, open), open.find("list", &brief.list())) {
        (Some(listing), _) => {
            report.files = Some(listing.count);
            report.kinds = kinds(&listing);
        }
        (None, Some(failed)) => report.notes.push(failure("list", failed)),
        (None, None) => report.notes.push("the tool `list` is not offered".into()),
    }
    if !offered.search && !brief.words.is_empty() {
        report.notes.push("the tool `search` is not offered, so no word was searched".into());
    }
    for word in &brief.words {
        let Some(done) = open.find("search", &brief.search(word)) else { continue };
        if done.error {
            report.notes.push(format!("{}: {}", markdown::code(&word.label), failure("search", done)));
            continue;
        }
        let SearchMatches { places, lines, files } = SearchMatches::parse(done.content, brief.area.shallow);
        report.words.push(Matches { label: word.label.clone(), pattern: word.pattern.clone(), lines, files, places });
    }
    report
}

fn failure(tool: &str, done: &Done<'_>) -> String {
    format!("{tool} failed: {}", report::display_line(done.content))
}

fn kinds(listing: &ToolListing) -> Vec<(String, FoundCount)> {
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for file in &listing.files {
        let n = kinds.entry(kind(&file.path)).or_default();
        *n = n.saturating_add(1);
    }
    let mut kinds: Vec<(String, FoundCount)> =
        kinds.into_iter().map(|(kind, n)| (kind, FoundCount { n, exact: listing.whole() })).collect();
    kinds.sort_by_key(|(kind, count)| (std::cmp::Reverse(count.n), kind.clone()));
    kinds
}

fn kind(path: &str) -> String {
    const KNOWN: &str = "rs=Rust md=Markdown toml=TOML json=JSON yaml=YAML yml=YAML py=Python js=JavaScript mjs=JavaScript \
        ts=TypeScript tsx=TypeScript go=Go java=Java kt=Kotlin c=C h=C_header cpp=C++ cc=C++ hpp=C++_header cs=C# rb=Ruby \
        php=PHP swift=Swift sh=shell html=HTML css=CSS sql=SQL txt=text lock=lock_file";
    let name = path.rsplit('/').next().unwrap_or(path);
    // A file extension is one short word.
    let is_ending = |text: &str| (1..=12).contains(&text.len()) && text.chars().all(char::is_alphanumeric);
    match name.rsplit_once('.').filter(|(stem, ending)| !stem.is_empty() && is_ending(ending)) {
        Some((_, ending)) => {
            let mut known = KNOWN.split_whitespace().filter_map(|known| known.split_once('='));
            let known = known.find(|(known, _)| ending.eq_ignore_ascii_case(known));
            known.map_or_else(|| format!(".{ending}"), |(_, kind)| kind.replace('_', " "))
        }
        None => "without ending".into(),
    }
}

/// Returns the files with the most matches, and the file that introduces the area best.
fn to_read(listing: &Option<ToolListing>, report: &ChildReport) -> Vec<String> {
    let mut matches: BTreeMap<&str, u64> = BTreeMap::new();
    for place in report.words.iter().flat_map(|word| &word.places) {
        let n = matches.entry(&place.path).or_default();
        *n = n.saturating_add(1);
    }
    let mut matches: Vec<(&str, u64)> =
        matches.into_iter().filter(|(path, _)| !is_test(path) && !is_dull(path)).collect();
    matches.sort_by_key(|(path, n)| (std::cmp::Reverse(*n), *path));
    let files = listing.as_ref().map(|listing| &*listing.files).unwrap_or_default();
    let mut keys: Vec<(u64, usize, &str)> = files
        .iter()
        .filter_map(|file| key(&file.path).map(|rank| (rank, file.path.matches('/').count(), &*file.path)))
        .collect();
    keys.sort_unstable();
    let keys = keys.into_iter().map(|(_, _, path)| path);
    let text = |path: &&str| files.iter().any(|file| file.path == *path && file.lines.is_some_and(|lines| lines > 0));
    let first: Vec<&str> = keys.clone().take(1).chain(matches.iter().map(|(path, _)| *path).take(2)).collect();
    let mut out: Vec<String> = Vec::new();
    let rest = files.iter().map(|file| &*file.path).filter(|path| !path.contains('\u{fffd}'));
    for path in first.into_iter().chain(keys).chain(rest).filter(|path| files.is_empty() || text(path)) {
        if out.len() < MAX_READS && !out.iter().any(|other| other == path) {
            out.push(path.to_owned());
        }
    }
    out
}

/// Returns the rank of a file as an introduction, by its name. Lower is better.
fn key(path: &str) -> Option<u64> {
    const KEYS: &str = "readme lib.rs main.rs mod.rs __init__.py main.py app.py index.ts index.js main.go main.c cargo.toml \
        package.json pyproject.toml go.mod architecture.md design.md makefile";
    let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    let rank = KEYS.split_whitespace().position(|key| name == key || (key == "readme" && name.starts_with(key)))?;
    u64::try_from(rank).ok()
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with("test") || part.contains("_test.") || part.contains(".test."))
}

/// Picks places: definitions before uses, code before tests, and from different files.
fn pick_best(places: Vec<Location>, names: &[String]) -> Vec<Location> {
    let mut of_file: BTreeMap<String, u64> = BTreeMap::new();
    let mut ranked: Vec<(u64, usize, Location)> = Vec::new();
    for (at, place) in places.into_iter().enumerate() {
        let earlier = of_file.entry(place.path.clone()).or_default();
        let repeats = earlier.saturating_sub(1).min(9);
        *earlier = earlier.saturating_add(1);
        let marks = [
            (2, !is_definition(&place.text, names)),
            (3, is_import(&place.text)),
            (4, is_test(&place.path)),
            (9, is_dull(&place.path)),
        ];
        let rank: u64 = marks.iter().filter(|(_, holds)| *holds).map(|(weight, _)| weight).sum();
        ranked.push((rank.saturating_add(repeats), at, place));
    }
    // Sort by rank, because a report shows only the first few. Equal ranks keep the order of the search.
    ranked.sort_by_key(|(rank, at, _)| (*rank, *at));
    ranked.into_iter().take(MAX_PLACES).map(|(_, _, place)| place).collect()
}

fn is_definition(line: &str, names: &[String]) -> bool {
    const WORDS: &str = "pub fn struct enum trait impl mod const static type macro_rules! class def func function interface \
        export module package async # ## ###";
    let head = line.split(['(', '{', '=', '<']).next().unwrap_or_default().to_lowercase();
    head.split_whitespace().next().is_some_and(|first| WORDS.split_whitespace().any(|word| word == first))
        && names.iter().any(|name| head.contains(&**name))
}

fn is_import(line: &str) -> bool {
    ["use ", "pub use ", "import ", "from ", "#include", "require"]
        .iter()
        .any(|start| line.trim_start().starts_with(start))
}

fn is_dull(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
    kind(path) == "lock file"
        || ["license", "licence", "copying", "changelog", "package-lock.json"].iter().any(|dull| name.starts_with(dull))
}

/// Returns the first line of a file's text or comments.
fn opening(path: &str, page: &[(u64, String)]) -> Option<Location> {
    let place = |(line, text): (u64, &str)| Location { path: path.to_owned(), line, text: report::display_line(text) };
    let manifest = path.ends_with(".toml") || path.ends_with(".json");
    let lines = || page.iter().map(|(line, text)| (*line, text.trim()));
    if manifest && let Some(found) = lines().find(|(_, text)| text.trim_start_matches('"').starts_with("description")) {
        return Some(place(found));
    }
    let says = |text: &str| text.chars().filter(|c| c.is_alphabetic()).count() >= 3;
    let comment =
        |text: &str| ["//", "#", "/*", "*", "\"\"\"", "--", ";", "<!--"].iter().any(|mark| text.starts_with(mark));
    let passed = |text: &str| ["#!", "#[", "#include", "<!DOCTYPE", "# -*-"].iter().any(|mark| text.starts_with(mark));
    let wordy = || lines().filter(|(_, text)| says(text) && !passed(text));
    let found =
        wordy().take(30).find(|(_, text)| comment(text)).filter(|_| !path.ends_with(".md")).or_else(|| wordy().next());
    found.map(place)
}

#[cfg(test)]
mod tests;
