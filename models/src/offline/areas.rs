//! Where to look: areas of a workspace, by what a question names and by what is large.

use super::brief::{Area, Brief};
use super::results::{Dir, Listing};
use super::words::{self, Word};

/// Areas at most: one explorer each.
const MOST: usize = 6;

/// Areas that are worth dividing the work for.
const FEWEST: usize = 3;

/// What is looked at, and what is not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// No two of them share a file.
    pub(super) briefs: Vec<Brief>,
    /// Directories that no brief covers.
    pub(super) left: Vec<String>,
    /// Whether more was asked than was looked at.
    pub(super) cut: bool,
}

/// Divides the work on `question` over the areas of a workspace that lists as `listing`, two levels deep.
pub(super) fn plan(listing: &Listing, question: &str) -> Plan {
    let mut areas = named(listing, question);
    let wanted = if areas.is_empty() { 5 } else { areas.len().saturating_add(1).clamp(FEWEST, MOST) };
    let own = Area::shallow(".");
    if listing.files.iter().any(|file| parent(&file.path) == ".") && areas.len() < wanted && free(&own, &areas) {
        areas.push(own);
    }
    let mut tops: Vec<&Dir> = listing.dirs.iter().filter(|dir| parent(&dir.path) == "." && dir.entries > 0).collect();
    tops.sort_by_key(|dir| (dir.path.starts_with('.'), std::cmp::Reverse(size(listing, &dir.path)), dir.path.clone()));
    for top in tops {
        let area = Area::deep(&top.path);
        let hidden = top.path.starts_with('.') && areas.len() >= FEWEST;
        if areas.len() < wanted && !hidden && free(&area, &areas) {
            areas.push(area);
        }
    }
    while areas.len() < FEWEST && split(listing, &mut areas) {}
    let words = wanted_words(question, &areas);
    let left = listing.dirs.iter().filter(|dir| dir.entries > 0 && !covered(&dir.path, &areas));
    let mut left: Vec<String> = left.map(|dir| dir.path.clone()).collect();
    left.retain(|path| !areas.iter().any(|area| within(&area.path, path)));
    let tops: Vec<String> = left.iter().filter(|path| parent(path) == ".").cloned().collect();
    left.retain(|path| tops.contains(path) || !tops.iter().any(|top| within(path, top)));
    Plan { briefs: areas.into_iter().map(|area| Brief { area, words: words.clone() }).collect(), left, cut: false }
}

/// The words of the question, without those that only name a chosen area.
fn wanted_words(question: &str, areas: &[Area]) -> Vec<Word> {
    let words = words::words(question);
    let names_area =
        |word: &Word| areas.iter().any(|area| area.path.split('/').any(|part| part.eq_ignore_ascii_case(&word.label)));
    let rest: Vec<Word> = words.iter().filter(|word| !names_area(word)).cloned().collect();
    if rest.is_empty() { words } else { rest }
}

/// The areas that the question names, by path or by a word that is a directory's name.
fn named(listing: &Listing, question: &str) -> Vec<Area> {
    let mut areas: Vec<Area> = Vec::new();
    for place in words::places(question) {
        let paths = || listing.dirs.iter().map(|dir| &*dir.path).chain(listing.files.iter().map(|file| &*file.path));
        let exact: Vec<&str> = paths().filter(|path| path.to_lowercase() == place).collect();
        let dirs = |top: bool| {
            let fits =
                |dir: &&Dir| (parent(&dir.path) == ".") == top && dir.entries > 0 && related(name(&dir.path), &place);
            listing.dirs.iter().filter(fits).map(|dir| &*dir.path).take(FEWEST).collect::<Vec<_>>()
        };
        let fitting = [exact, dirs(true), dirs(false)].into_iter().find(|paths| !paths.is_empty());
        for path in fitting.unwrap_or_default() {
            let area = Area::deep(path);
            if areas.len() < MOST && free(&area, &areas) {
                areas.push(area);
            }
        }
    }
    areas
}

/// Puts the parts of the largest divisible area into its place.
fn split(listing: &Listing, areas: &mut Vec<Area>) -> bool {
    let parts = |area: &Area| listing.dirs.iter().any(|dir| parent(&dir.path) == area.path && dir.entries > 0);
    let divisible = areas.iter().enumerate().filter(|(_, area)| !area.shallow && parts(area));
    let Some((at, _)) = divisible.max_by_key(|(_, area)| size(listing, &area.path)) else { return false };
    let area = areas.remove(at);
    let mut subs: Vec<&Dir> =
        listing.dirs.iter().filter(|dir| parent(&dir.path) == area.path && dir.entries > 0).collect();
    subs.sort_by_key(|dir| (std::cmp::Reverse(dir.entries), dir.path.clone()));
    if listing.files.iter().any(|file| parent(&file.path) == area.path) {
        areas.push(Area::shallow(&area.path));
    }
    let room = MOST.saturating_sub(areas.len());
    areas.extend(subs.into_iter().take(room).map(|dir| Area::deep(&dir.path)));
    true
}

/// About how much a directory holds, from what two levels show.
fn size(listing: &Listing, path: &str) -> u64 {
    listing.dirs.iter().filter(|dir| dir.path == path || parent(&dir.path) == path).map(|dir| dir.entries).sum()
}

/// Whether `area` shares no file with any of `areas`.
fn free(area: &Area, areas: &[Area]) -> bool {
    !areas.iter().any(|other| match (area.shallow, other.shallow) {
        (false, false) => within(&area.path, &other.path) || within(&other.path, &area.path),
        (true, false) => within(&area.path, &other.path) || is_file_in(other, area),
        (false, true) => within(&other.path, &area.path) || is_file_in(area, other),
        (true, true) => area.path == other.path,
    })
}

fn is_file_in(deep: &Area, shallow: &Area) -> bool {
    parent(&deep.path) == shallow.path && name(&deep.path).contains('.')
}

fn covered(path: &str, areas: &[Area]) -> bool {
    areas.iter().any(|area| !area.shallow && within(path, &area.path))
}

/// Whether `path` is `above` or lies in it.
fn within(path: &str, above: &str) -> bool {
    path == above || path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(parent, _)| parent)
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a directory's name and a word of the question are the same but for an ending.
fn related(name: &str, word: &str) -> bool {
    let name = name.to_lowercase();
    let (short, long) = if name.len() <= word.len() { (&*name, word) } else { (word, &*name) };
    name == word || (short.len() >= 4 && long.len().saturating_sub(short.len()) <= 3 && long.starts_with(short))
}

#[cfg(test)]
mod tests {
    use super::super::results::{Count, File};
    use super::*;

    fn listing(entries: &[(&str, u64)]) -> Listing {
        let (dirs, files): (Vec<_>, Vec<_>) = entries.iter().partition(|(path, _)| path.ends_with('/'));
        Listing {
            dirs: dirs.iter().map(|(path, n)| Dir { path: path.trim_end_matches('/').into(), entries: *n }).collect(),
            files: files.iter().map(|(path, n)| File { path: (*path).into(), lines: Some(*n) }).collect(),
            count: Count::exactly(files.len() as u64),
        }
    }

    fn project() -> Listing {
        listing(&[
            (".github/", 1),
            ("docs/", 3),
            ("journal/", 2),
            ("session/", 3),
            ("sim/", 0),
            ("tools/", 2),
            ("web/", 1),
            ("Cargo.toml", 9),
            ("README.md", 4),
            ("journal/src/", 9),
            ("session/src/", 30),
            ("session/tests/", 4),
            ("tools/src/", 20),
            ("web/src/", 2),
            ("session/Cargo.toml", 7),
        ])
    }

    fn areas(listing: &Listing, question: &str) -> Vec<Area> {
        plan(listing, question).briefs.into_iter().map(|brief| brief.area).collect()
    }

    #[test]
    fn a_general_question_takes_the_top_and_the_largest_areas() {
        let plan = plan(&project(), "How is this project put together?");
        let expected =
            [Area::shallow("."), Area::deep("session"), Area::deep("tools"), Area::deep("journal"), Area::deep("docs")];
        assert_eq!(plan.briefs.iter().map(|brief| brief.area.clone()).collect::<Vec<_>>(), expected);
        assert_eq!(plan.left, [".github", "web"]);
        assert!(plan.briefs.iter().all(|brief| brief.words.is_empty()));
    }

    #[test]
    fn a_question_that_names_places_goes_there_first() {
        assert_eq!(
            areas(&project(), "Where does the web part log errors?"),
            [Area::deep("web"), Area::shallow("."), Area::deep("session")]
        );
        assert_eq!(
            areas(&project(), "Compare session/src with the journals"),
            [Area::deep("session/src"), Area::deep("journal"), Area::shallow(".")]
        );
        assert_eq!(
            areas(&project(), "what does cargo.toml say"),
            [Area::deep("Cargo.toml"), Area::deep("session"), Area::deep("tools")]
        );
    }

    #[test]
    fn few_areas_are_divided() {
        let one = listing(&[("src/", 4), ("src/a/", 2), ("src/b/", 5), ("src/main.rs", 3)]);
        assert_eq!(areas(&one, "what?"), [Area::shallow("src"), Area::deep("src/b"), Area::deep("src/a")]);
        assert_eq!(areas(&listing(&[("main.rs", 3)]), "what?"), [Area::shallow(".")]);
        assert_eq!(areas(&listing(&[]), "what?"), []);
    }

    #[test]
    fn words_that_name_an_area_are_not_searched_for_beside_others() {
        let words = |question| {
            plan(&project(), question)
                .briefs
                .iter()
                .flat_map(|brief| brief.words.iter().map(|word| word.label.clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(words("locks in the journal"), ["locks", "locks", "locks"]);
        assert_eq!(words("the journal"), ["journal", "journal", "journal"]);
    }

    #[test]
    fn no_two_areas_share_a_file() {
        for question in
            ["session session/src journal Cargo.toml", "session/src session", "README.md tools src docs web"]
        {
            let areas = areas(&project(), question);
            for (at, area) in areas.iter().enumerate() {
                let others: Vec<Area> =
                    areas.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, area)| area.clone()).collect();
                assert!(free(area, &others), "{question}: {areas:?}");
            }
        }
    }
}
