//! Chooses areas: the parts of a workspace that one explorer each explores. The choice depends on names in the question, on the
//! matches of one search, and on size.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::brief::{Area, Brief};
use super::markdown::code;
use super::results::{Dir, FoundCount, Matched, ToolListing};
use super::words::{self, QuestionWord};

/// Maximum number of areas, because each of them gets an explorer.
const MAX_AREAS: usize = 6;

const MIN_AREAS: usize = 3;

const DEFAULT_AREAS: usize = 5;

const MAX_FILES: u32 = 2_000;

/// Returns the arguments of the search for all words of a question. With `at_starts`, words match only at the starts of words.
pub(super) fn search(words: &[QuestionWord], at_starts: bool) -> Value {
    json!({ "pattern": pattern(words, at_starts), "path": ".", "regex": true, "files": true, "max_matches": MAX_FILES })
}

fn pattern(words: &[QuestionWord], at_starts: bool) -> String {
    // Use an ASCII word boundary, because a Unicode boundary slows down the search of many files.
    let begins = if at_starts { r"(?:(?-u:\b)|_)" } else { "" };
    let all: Vec<String> = words.iter().map(|word| format!("{begins}(?:{})", word.pattern)).collect();
    all.join("|")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AreaHits {
    pub(super) words: Vec<QuestionWord>,
    pub(super) at_starts: bool,
    pub(super) matched: Matched,
}

impl AreaHits {
    /// Returns the words that occur in the area's paths, and the number of its matching lines.
    fn of(&self, area: &Area) -> (Vec<String>, u64) {
        let files = || self.matched.files.iter().filter(|(path, _)| area.holds(path));
        let own = (!area.shallow).then_some(&area.path);
        let in_paths = |word: &&QuestionWord| {
            own.into_iter().chain(files().map(|(path, _)| path)).any(|path| word.is_in(path, self.at_starts))
        };
        let named = self.words.iter().filter(in_paths).map(|word| code(&word.label));
        (named.collect(), files().map(|(_, lines)| lines).sum())
    }

    fn reason(&self, area: &Area) -> Option<String> {
        let (named, lines) = self.of(area);
        let verb = if self.at_starts { "name" } else { "contain" };
        let named = (!named.is_empty()).then(|| format!("paths {verb} {}", named.join(", ")));
        let lines = FoundCount { n: lines, exact: self.matched.whole };
        let lines = (lines.n > 0).then(|| lines.of("matching line", "matching lines"));
        let why: Vec<String> = named.into_iter().chain(lines).collect();
        (!why.is_empty()).then(|| why.join("; "))
    }

    fn to_text(&self) -> String {
        let Matched { lines, matching, .. } = &self.matched;
        let pattern = code(&pattern(&self.words, self.at_starts));
        let parts = if self.at_starts { "" } else { " No whole word matches, so parts of words count." };
        format!(
            "One search for the words of the question, {pattern}, found {} in {}.{parts} Areas that match come first: by names of \
             paths, then by matching lines. Where too few match, the largest follow.",
            lines.of("matching line", "matching lines"),
            matching.of("file", "files")
        )
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AreaPlan {
    /// The briefs, each with the reason for its area. No two areas share a file.
    pub(super) briefs: Vec<(Brief, String)>,
    pub(super) how: String,
    pub(super) left: Vec<String>,
    pub(super) cut: bool,
}

/// Chooses the areas for `question`. `listing` shows two levels of the workspace.
pub(super) fn plan(listing: &ToolListing, question: &str, hits: Option<Result<AreaHits, String>>) -> AreaPlan {
    let how = match &hits {
        None => String::new(),
        Some(Ok(hits)) => hits.to_text(),
        Some(Err(why)) => {
            format!("The search for the words of the question failed, so areas were chosen by size: {why}")
        }
    };
    let hits = hits.as_ref().and_then(|hits| hits.as_ref().ok());
    let why = |area: &Area| hits.and_then(|hits| hits.reason(area));
    // The order of preference is: names of paths, matching lines, parts of the area's name, size.
    let order = |area: &Area| {
        let (named, lines) = hits.map(|hits| hits.of(area)).unwrap_or_default();
        let part = hits.is_some_and(|hits| hits.words.iter().any(|word| word.is_in(&area.path, false)));
        let hidden = area.path.starts_with('.') && !area.shallow;
        let size = Reverse(size(listing, &area.path));
        (Reverse(named.len()), Reverse(lines), !part, hidden, !area.shallow, size, area.path.clone())
    };
    let parts = |of: &str| {
        let own = listing.files.iter().any(|file| parent(&file.path) == of).then(|| Area::shallow(of));
        let below = listing.dirs.iter().filter(|dir| parent(&dir.path) == of && dir.entries > 0);
        let mut parts: Vec<Area> = own.into_iter().chain(below.map(|dir| Area::deep(&dir.path))).collect();
        parts.sort_by_cached_key(order);
        parts
    };
    let named_areas = named_areas(listing, question);
    let mut areas = named_areas.clone();
    let (matching, rest): (Vec<Area>, Vec<Area>) = parts(".").into_iter().partition(|area| why(area).is_some());
    let (own, rest): (Vec<Area>, Vec<Area>) = rest.into_iter().partition(|area| area.shallow);
    let any = !matching.is_empty();
    let wants = |area: &Area| !any || why(area).is_some();
    add(&mut areas, matching, MAX_AREAS.saturating_sub(own.len()));
    let wanted = match named_areas.len() {
        _ if any => MIN_AREAS,
        0 => DEFAULT_AREAS,
        requested => requested.saturating_add(1).clamp(MIN_AREAS, MAX_AREAS),
    };
    let (hidden, rest) = rest.into_iter().partition(|area| area.path.starts_with('.'));
    for (more, most) in [(own, MAX_AREAS), (rest, wanted), (hidden, MIN_AREAS)] {
        add(&mut areas, more, most);
    }
    while areas.len() < MIN_AREAS && split(&mut areas, &parts, &wants) {}
    let words = wanted_words(question, &areas);
    let left = uncovered_dirs(listing, &areas);
    let briefs = areas.into_iter().map(|area| {
        let why = match why(&area) {
            _ if named_areas.contains(&area) => "named in the question".to_owned(),
            Some(why) => why,
            None => if area.shallow { "its own files" } else { "size" }.to_owned(),
        };
        (Brief { area, words: words.clone() }, why)
    });
    AreaPlan { briefs: briefs.collect(), how, left, cut: false }
}

/// Adds areas that share no file with the existing areas, up to `most` areas.
fn add(areas: &mut Vec<Area>, more: Vec<Area>, most: usize) {
    for area in more {
        if areas.len() < most && is_disjoint(&area, areas) {
            areas.push(area);
        }
    }
}

/// Replaces the first divisible area with its parts: the wanted parts, and others if there are few of them.
fn split(areas: &mut Vec<Area>, parts: &impl Fn(&str) -> Vec<Area>, wants: &impl Fn(&Area) -> bool) -> bool {
    let divisible = areas.iter().enumerate().filter(|(_, area)| !area.shallow);
    let divided =
        divisible.map(|(at, area)| (at, parts(&area.path))).find(|(_, parts)| parts.iter().any(|part| !part.shallow));
    let Some((at, parts)) = divided else { return false };
    let mut after = areas.split_off(at);
    after.remove(0);
    let (wanted, rest) = parts.into_iter().partition(wants);
    add(areas, wanted, MAX_AREAS.saturating_sub(after.len()));
    add(areas, rest, MIN_AREAS.saturating_sub(after.len()));
    areas.extend(after);
    true
}

/// Returns the topmost directories that no area covers.
fn uncovered_dirs(listing: &ToolListing, areas: &[Area]) -> Vec<String> {
    let left = listing.dirs.iter().filter(|dir| dir.entries > 0).map(|dir| dir.path.clone());
    let covers =
        |area: &Area, path: &str| (!area.shallow && is_within(path, &area.path)) || is_within(&area.path, path);
    let left: Vec<String> = left.filter(|path| !areas.iter().any(|area| covers(area, path))).collect();
    let below = |path: &String| left.iter().any(|other| other != path && is_within(path, other));
    left.iter().filter(|path| !below(path)).cloned().collect()
}

/// Returns the words of the question that are not names of chosen areas.
fn wanted_words(question: &str, areas: &[Area]) -> Vec<QuestionWord> {
    let words = words::words(question);
    let names_area = |word: &QuestionWord| {
        areas.iter().any(|area| area.path.split('/').any(|part| part.eq_ignore_ascii_case(&word.label)))
    };
    let rest: Vec<QuestionWord> = words.iter().filter(|word| !names_area(word)).cloned().collect();
    if rest.is_empty() { words } else { rest }
}

/// Returns the areas that the question names, by path or directory name.
fn named_areas(listing: &ToolListing, question: &str) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    for place in words::place_words(question) {
        let paths = || listing.dirs.iter().map(|dir| &*dir.path).chain(listing.files.iter().map(|file| &*file.path));
        let exact: Vec<&str> = paths().filter(|path| path.to_lowercase() == place).collect();
        let dirs = |top: bool| {
            let fits = |dir: &&Dir| {
                (parent(&dir.path) == ".") == top && dir.entries > 0 && is_inflection(name(&dir.path), &place)
            };
            listing.dirs.iter().filter(fits).map(|dir| &*dir.path).take(MIN_AREAS).collect::<Vec<_>>()
        };
        let fitting = [exact, dirs(true), dirs(false)].into_iter().find(|paths| !paths.is_empty());
        for path in fitting.unwrap_or_default() {
            let area = Area::deep(path);
            if areas.len() < MAX_AREAS && is_disjoint(&area, &areas) {
                areas.push(area);
            }
        }
    }
    areas
}

fn size(listing: &ToolListing, path: &str) -> u64 {
    listing.dirs.iter().filter(|dir| dir.path == path || parent(&dir.path) == path).map(|dir| dir.entries).sum()
}

fn is_disjoint(area: &Area, areas: &[Area]) -> bool {
    !areas.iter().any(|other| match (area.shallow, other.shallow) {
        (false, false) => is_within(&area.path, &other.path) || is_within(&other.path, &area.path),
        (true, false) => is_within(&area.path, &other.path) || is_file_in(other, area),
        (false, true) => is_within(&other.path, &area.path) || is_file_in(area, other),
        (true, true) => area.path == other.path,
    })
}

fn is_file_in(deep: &Area, shallow: &Area) -> bool {
    parent(&deep.path) == shallow.path && name(&deep.path).contains('.')
}

fn is_within(path: &str, ancestor: &str) -> bool {
    path == ancestor || path.strip_prefix(ancestor).is_some_and(|rest| rest.starts_with('/'))
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(parent, _)| parent)
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns whether the name of a directory and a word differ only in their ending.
fn is_inflection(name: &str, word: &str) -> bool {
    let name = name.to_lowercase();
    let (short, long) = if name.len() <= word.len() { (&*name, word) } else { (word, &*name) };
    name == word || (short.len() >= 4 && long.len().saturating_sub(short.len()) <= 3 && long.starts_with(short))
}

#[cfg(test)]
mod tests;
