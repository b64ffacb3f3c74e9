//! Checks that docs/features.md names only tests, examples and commands that exist, and that it names each test with an id.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{quoted, read, tests};

const LETTERS: &str = "BGSRMCXKHUD";

#[derive(Default)]
struct Features {
    listed: Vec<String>,
    entries: Vec<FeatureEntry>,
    strange: Vec<String>,
}

#[derive(Default)]
struct FeatureEntry {
    id: String,
    line: String,
    evidence: Vec<String>,
    open: bool,
}

impl Features {
    fn parse(text: &str) -> Self {
        let mut features = Self::default();
        let section = text.split_once("\n## ").map_or("", |(_, rest)| rest);
        for line in format!("## {section}").lines().filter(|line| !line.is_empty()) {
            if let Some(heading) = line.strip_prefix("## ") {
                features.listed.extend(ids_of(heading));
            } else if let Some((id, line)) = line.strip_prefix("- **").and_then(|rest| rest.split_once("** ")) {
                features.entries.push(FeatureEntry {
                    id: id.to_owned(),
                    line: line.to_owned(),
                    ..FeatureEntry::default()
                });
            } else if let Some((below, entry)) = line.strip_prefix("  - ").zip(features.entries.last_mut()) {
                let named: Vec<&str> = quoted(below).collect();
                if below == "open" || below.starts_with("open: ") {
                    entry.open = true;
                } else if let [one] = named[..] {
                    entry.evidence.push(one.to_owned());
                } else {
                    features.strange.push(line.to_owned());
                }
            } else {
                features.strange.push(line.to_owned());
            }
        }
        features
    }

    fn problems(&self, exists: impl Fn(&str) -> bool, tests: &BTreeSet<(String, String)>) -> Vec<String> {
        let mut wrong: Vec<String> = self.strange.iter().map(|line| format!("cannot read this line: {line}")).collect();
        let ids: Vec<&String> = self.entries.iter().map(|entry| &entry.id).collect();
        if ids != self.listed.iter().collect::<Vec<_>>() {
            let missing: Vec<_> = self.listed.iter().filter(|id| !ids.contains(id)).collect();
            wrong.push(format!("entries are missing, repeated or out of order; without an entry: {missing:?}"));
        }
        let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for FeatureEntry { id, line, evidence, open } in &self.entries {
            if line.is_empty() {
                wrong.push(format!("{id}: no definition"));
            }
            if evidence.is_empty() && !open {
                wrong.push(format!("{id}: neither evidence nor open"));
            }
            let gone = evidence.iter().filter(|name| !exists(name));
            wrong.extend(gone.map(|name| format!("{id}: `{name}` does not exist")));
            for name in evidence {
                named.entry(name).or_default().insert(id);
            }
        }
        for (path, name) in tests {
            let ids = leading_ids(name);
            let by = named.get(&*format!("{path}::{name}"));
            if !ids.is_empty() && !by.is_some_and(|by| ids.iter().any(|id| by.contains(&**id))) {
                wrong.push(format!("{}: no entry names `{path}::{name}`", ids.join(", ")));
            }
        }
        wrong
    }
}

/// Returns the ids of a heading such as `K 1–2, 4: Rules`.
fn ids_of(heading: &str) -> Vec<String> {
    let Some((letter, numbers)) = heading.split(": ").next().and_then(|ids| ids.split_once(' ')) else {
        return vec![heading.to_owned()];
    };
    let mut ids = Vec::new();
    for range in numbers.split(", ") {
        let (first, last) = range.split_once('–').unwrap_or((range, range));
        let bounds = first.parse::<u32>().ok().zip(last.parse::<u32>().ok());
        ids.extend(bounds.into_iter().flat_map(|(first, last)| first..=last).map(|no| format!("{letter}{no}")));
    }
    ids
}

/// Returns the ids at the start of a test's name: `b7_b8_few_tools` has B7 and B8.
fn leading_ids(name: &str) -> Vec<String> {
    let is_known = |word: &&str| is_id(word) && LETTERS.to_lowercase().contains(&word[..1]);
    name.split('_').take_while(is_known).map(str::to_uppercase).collect()
}

/// Returns whether a word is a letter and a number.
fn is_id(word: &str) -> bool {
    let number = word.strip_prefix(|c: char| c.is_ascii_lowercase()).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit())
}

/// Returns the tests that no document names, although their names start with an id of an invariant or an attack.
fn unnamed(tests: &BTreeSet<(String, String)>, documents: &str) -> Vec<String> {
    let named: BTreeSet<&str> = quoted(documents).map(|name| name.rsplit("::").next().unwrap_or(name)).collect();
    let of_another_list =
        |name: &str| is_id(name.split('_').next().unwrap_or_default()) && leading_ids(name).is_empty();
    let left = tests.iter().filter(|(_, name)| of_another_list(name) && !named.contains(&**name));
    left.map(|(path, name)| format!("no document names `{path}::{name}`")).collect()
}

/// Returns whether `name`, a test, an example or a command, exists.
fn exists(tests: &BTreeSet<(String, String)>, name: &str) -> bool {
    let is_file = |path: String| std::path::Path::new(super::source::ROOT).join(path).is_file();
    let words: Vec<&str> = name.split(' ').collect();
    match words[..] {
        ["subtend", verb, ..] => {
            let verb = verb.split_at_checked(1).map(|(first, rest)| first.to_uppercase() + rest);
            verb.is_some_and(|verb| read("src/cli.rs").contains(&format!("    {verb}(")))
        }
        [".ci/run", step] => read(".ci/run").contains(&format!("\nstep {step} ")),
        ["cargo", "bench", "--bench", bench] => is_file(format!("benches/{bench}.rs")),
        [one] => match one.split_once("::") {
            Some((path, test)) => tests.contains(&(path.to_owned(), test.to_owned())),
            None => one.starts_with("examples/") && is_file(one.to_owned()),
        },
        _ => false,
    }
}

#[test]
fn features_name_evidence_and_tests_with_ids_are_named() {
    let tests = tests();
    let features = Features::parse(&read("docs/features.md"));
    let mut wrong = features.problems(|name| exists(&tests, name), &tests);
    wrong.extend(unnamed(&tests, &["docs/features.md", "VERIFICATION.md", "THREATS.md"].map(read).concat()));
    assert!(wrong.is_empty(), "docs/features.md:\n{}", wrong.join("\n"));
    let letters: BTreeSet<char> = features.listed.iter().filter_map(|id| id.chars().next()).collect();
    assert_eq!(letters, LETTERS.chars().collect(), "a section is missing");
}

/// A valid file that [`invalid_feature_lists_are_refused`] changes.
const SOUND: &str =
    "# Features\n\n## B 1–2: Branches\n\n- **B1** A branch.\n  - `a.rs::b1_works`\n- **B2** A context.\n  - open\n";

/// Returns the problems of a file if the tests of [`SOUND`] and `more` exist.
fn problems_of(text: &str, more: &[&str]) -> Vec<String> {
    let names = ["b1_works", "something_works"].iter().chain(more);
    let tests = names.map(|name| ("a.rs".to_owned(), (*name).to_owned())).collect();
    Features::parse(text).problems(|name| exists(&tests, name), &tests)
}

#[test]
fn invalid_feature_lists_are_refused() {
    assert_eq!(problems_of(SOUND, &[]), Vec::<String>::new());
    let doctored = |from: &str, to: &str| problems_of(&SOUND.replace(from, to), &[]).join("; ");
    assert!(doctored("1–2", "1–3").contains("without an entry: [\"B3\"]"), "an id without an entry is not reported");
    assert!(doctored("- **B2** A context.\n  - open\n", "").contains("without an entry: [\"B2\"]"));
    assert!(
        doctored("1–2", "1").contains("repeated or out of order"),
        "an entry that no heading lists is not reported"
    );
    assert_eq!(doctored("  - open\n", ""), "B2: neither evidence nor open");
    assert!(doctored("b1_works", "b1_gone").contains("B1: `a.rs::b1_gone` does not exist"));
    assert!(doctored("open", "`subtend dance`").contains("B2: `subtend dance` does not exist"));
    assert!(doctored("open", "`.ci/run dance`").contains("B2: `.ci/run dance` does not exist"));
    assert!(doctored("open", "perhaps").contains("cannot read this line"));
    assert_eq!(problems_of(SOUND, &["b2_works"]), ["B2: no entry names `a.rs::b2_works`"]);
    assert_eq!(problems_of(SOUND, &["b3_works"]), ["B3: no entry names `a.rs::b3_works`"]);
    let elsewhere = SOUND
        .replace("  - open", "  - `a.rs::b1_works`")
        .replace("A branch.\n  - `a.rs::b1_works`", "A branch.\n  - open");
    assert_eq!(
        problems_of(&elsewhere, &[]),
        ["B1: no entry names `a.rs::b1_works`"],
        "a test that only another id names"
    );
    let tests = ["j10_erases", "b1_works", "v4l_works"].map(|name| ("a.rs".to_owned(), name.to_owned())).into();
    assert_eq!(unnamed(&tests, SOUND), ["no document names `a.rs::j10_erases`"], "a test of another list's id");
    assert_eq!(unnamed(&tests, "- Store: `j10_erases`"), Vec::<String>::new());
}
