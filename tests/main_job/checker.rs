//! Checks each claim of an answer against the files. A line that cannot be parsed counts as wrong.

use std::collections::BTreeSet;

use super::read::{Rest, cells};
use super::truth::{Area, ReportedCount, Truth, Word, kind, shown};
pub(crate) use findings::findings;

mod findings;

const OPENING: &str =
    "Offline answer, put together by rules from what the workspace tools returned; no language model was asked.";

#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) facts: usize,
    pub(crate) wrong: Vec<String>,
    /// True if any number was a lower bound.
    pub(crate) doubt: bool,
}

struct AnswerCheck<'a> {
    truth: &'a Truth,
    words: &'a [Word],
    done: Checked,
    areas: Vec<Area>,
    word: Option<Word>,
    reported: Vec<Area>,
    places: BTreeSet<(String, usize)>,
    left: BTreeSet<String>,
    /// True if the search matched only beginnings of words, false if also parts of words; `None` without a search.
    searched: Option<bool>,
    named: bool,
}

pub(crate) fn answer(text: &str, truth: &Truth, words: &[Word]) -> Checked {
    let mut check = AnswerCheck::new(truth, words);
    check.named |= text.contains("| named in the question |");
    let mut lines = text.lines();
    check.fact(lines.next() == Some(OPENING), || "the opening line is missing".to_owned());
    let mut sections = BTreeSet::new();
    for line in lines.filter(|line| !line.is_empty()) {
        if line.starts_with("## ") {
            check.close_section();
            check.fact(sections.insert(line), || format!("twice: {line}"));
        }
        check.line(line).unwrap_or_else(|| check.done.wrong.push(format!("not understood: {line}")));
    }
    check.close_section();
    let searched = words.is_empty() || text.contains("\nOne search for the words of the question, ");
    check.fact(searched, || "the selection of areas is not explained".to_owned());
    for word in words {
        let reported = sections.contains(&*format!("## `{}`", word.label));
        check.fact(reported, || format!("nothing on `{}`", word.label));
    }
    check.covers_the_top();
    check.done
}

impl<'a> AnswerCheck<'a> {
    fn new(truth: &'a Truth, words: &'a [Word]) -> Self {
        let (areas, reported) = (Vec::new(), Vec::new());
        let (places, left) = (BTreeSet::new(), BTreeSet::new());
        let done = Checked::default();
        Self { truth, words, done, areas, word: None, reported, places, left, searched: None, named: words.is_empty() }
    }

    fn fact(&mut self, holds: bool, wrong: impl FnOnce() -> String) {
        if holds {
            self.done.facts += 1;
        } else {
            self.done.wrong.push(wrong());
        }
    }

    /// Checks that a reported number is correct, and exact if it can be determined exactly.
    fn number(&mut self, reported: ReportedCount, real: ReportedCount, of: &str) {
        self.done.doubt |= !reported.exact;
        let holds = if reported.exact { reported == real } else { reported.n <= real.n && !real.exact };
        self.fact(holds, || format!("{of}: {reported:?} is reported, {real:?} is true"));
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let all = Rest(line);
        match line {
            "## How it is put together" | "## What this does not cover" => return Some(()),
            "| area | chosen by | files | kinds | first lines of its files |" | "|---|---|---|---|---|" => {
                return Some(());
            }
            _ => {}
        }
        if line.starts_with("## ") {
            return self.section(all);
        }
        if line.starts_with("| ") {
            return self.row(&cells(line)?);
        }
        if line.starts_with("  - ") {
            return self.place_of_section(all);
        }
        if line.starts_with("- ") {
            return self.bullet(all);
        }
        self.sentence(all)
    }

    fn sentence(&mut self, all: Rest<'_>) -> Option<()> {
        let top = Area { path: ".".into(), shallow: true };
        let real = self.truth.count_files(&top);
        let mut rest = all;
        if rest.word("At its top the workspace has ").is_some() {
            let files = rest.count("file", "files")?;
            self.number(files, real, "files at the top");
            rest.word(" and the directories ")?;
            let dirs = rest.list(Rest::code)?;
            rest.word(". What ignore files leave out is not counted.")?;
            let real: Vec<_> = self.truth.tops().into_iter().map(|dir| format!("{dir}/")).collect();
            self.fact(dirs == real, || format!("directories at the top: {dirs:?} are reported, {real:?} exist"));
            return rest.end();
        }
        if rest.word("The workspace has no directories and ").is_some() {
            let files = rest.count("file", "files")?;
            self.number(files, real, "files at the top");
            self.fact(self.truth.tops().is_empty(), || "there are directories".to_owned());
            rest.word(" at its top.")?;
            return rest.end();
        }
        if rest.word("One search for the words of the question, ").is_some() {
            let pattern = |begins: &str| {
                let all = self.words.iter().map(|word| format!("{begins}(?:{})", word.pattern));
                all.collect::<Vec<_>>().join("|")
            };
            let (whole, parts, real) = (pattern(r"(?:(?-u:\b)|_)"), pattern(""), rest.code()?);
            // Words of a path are searched for too, but do not get sections.
            self.searched = (real == whole || real == parts).then_some(real == whole);
            let holds = self.searched.is_some() || self.named;
            self.fact(holds, || "another pattern was searched for".to_owned());
            rest.word(", found ")?;
            let lines = rest.count("matching line", "matching lines")?;
            rest.word(" in ")?;
            let files = rest.count("file", "files")?;
            if let Some(whole) = self.searched {
                let all = Area { path: ".".into(), shallow: false };
                let real = self.truth.count_any(&all, |line| self.words.iter().any(|word| word.found(line, whole)));
                self.number(lines, real.0, "lines that the search found");
                self.number(files, real.1, "files that the search found");
                if !whole {
                    rest.word(". No whole word matches, so parts of words count")?;
                }
            }
            rest.word(". Areas that match come first: by names of paths, then by matching lines.")?;
            rest.word(" Where too few match, the largest follow.")?;
            return rest.end();
        }
        if rest.word("No line of ").is_some() {
            self.areas_searched(&mut rest)?;
            rest.word(" matches ")?;
            self.pattern(&rest.code()?);
            self.total(ReportedCount { n: 0, exact: true }, ReportedCount { n: 0, exact: true });
            self.reported = self.areas.clone();
            rest.word(".")?;
            return rest.end();
        }
        let lines = rest.count("line matches ", "lines match ")?;
        self.pattern(&rest.code()?);
        rest.word(" in ")?;
        let files = rest.count("file", "files")?;
        rest.word(" of ")?;
        self.areas_searched(&mut rest)?;
        rest.word(":")?;
        self.total(lines, files);
        rest.end()
    }

    fn areas_searched(&mut self, rest: &mut Rest<'_>) -> Option<()> {
        let n = if rest.word("the one area searched").is_some() {
            1
        } else {
            rest.word("the ")?;
            let n = rest.number()?.n;
            rest.word(" areas searched")?;
            n
        };
        let real = self.areas.len();
        self.fact(n == real, || format!("{n} areas are reported, and {real} are in the table"));
        Some(())
    }

    fn pattern(&mut self, pattern: &str) {
        let holds = self.word.is_some_and(|word| word.pattern == pattern);
        self.fact(holds, || format!("`{pattern}` is not the pattern of this section"));
    }

    fn total(&mut self, lines: ReportedCount, files: ReportedCount) {
        let Some(word) = self.word else { return };
        let each: Vec<_> = self.areas.iter().map(|area| self.truth.count_matches(area, &word)).collect();
        let sum = |of: fn(&(ReportedCount, ReportedCount)) -> ReportedCount| ReportedCount {
            n: each.iter().map(|each| of(each).n).sum(),
            exact: each.iter().all(|each| of(each).exact),
        };
        self.number(lines, sum(|each| each.0), "matching lines in all");
        self.number(files, sum(|each| each.1), "matching files in all");
    }

    fn section(&mut self, mut rest: Rest<'_>) -> Option<()> {
        rest.word("## ")?;
        let label = rest.code()?;
        self.word = self.words.iter().find(|word| word.label == label).copied();
        self.fact(self.word.is_some(), || format!("the question does not contain `{label}`"));
        rest.end()
    }

    fn close_section(&mut self) {
        if let Some(word) = self.word.take() {
            let missing: Vec<_> = self.areas.iter().filter(|area| !self.reported.contains(area)).cloned().collect();
            self.fact(missing.is_empty(), || format!("the section of `{}` does not report {missing:?}", word.label));
        }
        self.reported.clear();
        self.places.clear();
    }

    fn row(&mut self, cells: &[String]) -> Option<()> {
        let [area, why, files, kinds, begins] = cells else { return None };
        let mut rest = Rest(area);
        let area = rest.area()?;
        rest.end()?;
        self.chosen(&area, Rest(why))?;
        let reported =
            self.truth.dirs.contains(&area.path) || self.truth.files.contains_key(&area.path) || area.path == ".";
        self.fact(reported, || format!("there is no {area:?}"));
        let mut rest = Rest(files);
        let files = rest.number()?;
        rest.end()?;
        self.number(files, self.truth.count_files(&area), &format!("files of {area:?}"));
        for reported in kinds.split(", ").filter(|kinds| !kinds.is_empty()) {
            self.kind(&area, reported)?;
        }
        let mut rest = Rest(begins);
        while rest.end().is_none() {
            let (path, line, text) = rest.place()?;
            self.place(&path, line, &text, &area);
            rest.word("<br>").or(rest.end())?;
        }
        self.areas.push(area);
        Some(())
    }

    fn chosen(&mut self, area: &Area, mut why: Rest<'_>) -> Option<()> {
        if why.one(&["named in the question", "the whole workspace"]).is_some() {
            return why.end();
        }
        let Some(whole) = self.searched else { return self.named.then_some(()) };
        let real = self.truth.count_any(area, |line| self.words.iter().any(|word| word.found(line, whole))).0;
        if why.one(&["size", "its own files"]).is_some() {
            self.fact(real.n == 0, || format!("{area:?} has {real:?} matching lines"));
            return why.end();
        }
        if why.word("paths name ").is_some() {
            for label in why.list(Rest::code)? {
                let word = self.words.iter().find(|word| word.label == label)?;
                let own = Some(&*area.path).filter(|_| !area.shallow);
                let named = own.into_iter().chain(self.truth.area(area).map(|(path, _)| path)).any(word.begins);
                self.fact(named, || format!("no path of {area:?} names `{label}`"));
            }
            if why.end().is_some() {
                self.fact(real.n == 0, || format!("{area:?} has {real:?} matching lines"));
                return Some(());
            }
            why.word("; ")?;
        }
        let lines = why.count("matching line", "matching lines")?;
        // One unreadable directory makes all numbers of the search lower bounds.
        let real = ReportedCount { exact: real.exact && lines.exact, ..real };
        self.number(lines, real, &format!("lines by which {area:?} was chosen"));
        why.end()
    }

    fn kind(&mut self, area: &Area, reported: &str) -> Option<()> {
        let at = reported.find(" at least ").or_else(|| reported.rfind(' '))?;
        let (name, mut rest) = (&reported[..at], Rest(&reported[at + 1..]));
        let count = rest.number()?;
        rest.end()?;
        let real = self.truth.area(area).filter(|(path, _)| kind(path) == name).count();
        let real = ReportedCount { n: real, ..self.truth.count_files(area) };
        self.number(count, real, &format!("{name} of {area:?}"));
        Some(())
    }

    fn place(&mut self, path: &str, line: usize, text: &str, area: &Area) {
        let real = self.truth.line(path, line).map(shown);
        let holds = real.as_deref() == Some(text) && area.holds(path);
        self.fact(holds, || format!("`{path}:{line}` of {area:?} is {real:?}, not {text:?}"));
    }

    fn bullet(&mut self, all: Rest<'_>) -> Option<()> {
        let mut rest = all;
        rest.word("- ")?;
        if rest.word("no line in ").is_some() {
            for area in rest.list(Rest::area)? {
                self.area_of_section(area, ReportedCount { n: 0, exact: true }, ReportedCount { n: 0, exact: true });
            }
            return rest.end();
        }
        if rest.word("not covered: ").is_some() {
            for dir in rest.list(Rest::code)? {
                let dir = dir.strip_suffix('/')?.to_owned();
                let holds =
                    self.truth.dirs.contains(&dir) && !self.areas.iter().any(|area| !area.shallow && area.holds(&dir));
                self.fact(holds, || format!("`{dir}` is not a directory that was left out"));
                self.left.insert(dir);
            }
            return rest.end();
        }
        if rest.word("only the first 4096 bytes of the question were read").is_some() {
            return rest.end();
        }
        if rest.word("the question names nothing to search for, so nothing was searched").is_some() {
            self.fact(self.words.is_empty(), || "there was something to search for".to_owned());
            return rest.end();
        }
        let area = rest.area()?;
        rest.word(": ")?;
        if self.word.is_some() {
            let lines = rest.count("line", "lines")?;
            rest.word(" in ")?;
            let files = rest.count("file", "files")?;
            self.area_of_section(area, lines, files);
            return rest.end();
        }
        // A note about an unreadable file must be true.
        let path = rest.code()?;
        rest.word(" could not be read: ")?;
        let unread = self.truth.files.get(&path).is_some_and(|file| file.lines.is_none());
        self.fact(unread && area.holds(&path), || format!("`{path}` could be read"));
        Some(())
    }

    fn area_of_section(&mut self, area: Area, lines: ReportedCount, files: ReportedCount) {
        let Some(word) = self.word else {
            return self.done.wrong.push(format!("{area:?} is reported outside of a section"));
        };
        let known = self.areas.contains(&area) && !self.reported.contains(&area);
        self.fact(known, || format!("{area:?} is not in the table, or was reported before"));
        let real = self.truth.count_matches(&area, &word);
        self.number(lines, real.0, &format!("lines of {area:?} with `{}`", word.label));
        self.number(files, real.1, &format!("files of {area:?} with `{}`", word.label));
        self.reported.push(area);
    }

    fn place_of_section(&mut self, all: Rest<'_>) -> Option<()> {
        let mut rest = all;
        rest.word("  - ")?;
        let (path, line, text) = rest.place()?;
        let (word, area) = (self.word?, self.reported.last()?.clone());
        self.place(&path, line, &text, &area);
        let matches = self.truth.line(&path, line).is_some_and(word.means);
        self.fact(matches, || format!("`{path}:{line}` does not match `{}`", word.label));
        let new = self.places.insert((path.clone(), line));
        self.fact(new, || format!("`{path}:{line}` is shown twice"));
        rest.end()
    }

    /// Checks that every non-empty directory at the top is covered, or reported as left out.
    fn covers_the_top(&mut self) {
        let within = |path: &str, dir: &str| path == dir || path.starts_with(&format!("{dir}/"));
        for dir in self.truth.tops() {
            let whole = Area { path: dir.to_owned(), shallow: false };
            let empty = self.truth.area(&whole).next().is_none();
            let area = self.areas.iter().any(|area| within(&area.path, dir) || area.path == "." && !area.shallow);
            if !(empty || area || self.left.contains(dir)) {
                self.done.wrong.push(format!("`{dir}/` is neither covered nor left out"));
            }
        }
    }
}
