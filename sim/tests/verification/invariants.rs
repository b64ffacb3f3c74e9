//! Checks VERIFICATION.md and README.md against the code: each claim has its entry, and what an entry names exists.

use std::collections::BTreeSet;

use subtend_invariants::{ALWAYS, InvariantId, Predicate, QUIESCENT};
use subtend_sim::coverage::{ELSEWHERE, WorldSource, feeds};

use super::source::{Entry, entries, quoted, read, test_names};

/// Returns the section of VERIFICATION.md below a heading.
fn section(name: &str) -> String {
    let text = read("VERIFICATION.md");
    let (_, section) = text.split_once(&format!("\n## {name}\n")).unwrap_or_else(|| panic!("no section {name}"));
    section.split("\n## ").next().unwrap_or_default().to_owned()
}

/// The entry of one invariant: its id, text, predicates, and checks.
type InvariantRow = [String; 4];

fn rows() -> Vec<InvariantRow> {
    let row = |Entry { text, points }: Entry| {
        let (id, line) = text.strip_prefix("**").and_then(|rest| rest.split_once("** ")).expect("an id");
        let (predicates, checked) = points.split_first().expect("predicates");
        let predicates = predicates.strip_prefix("Predicates: ").unwrap_or_else(|| panic!("{id}: no predicates first"));
        [id.to_owned(), line.to_owned(), predicates.to_owned(), checked.join("; ")]
    };
    entries(&section("Invariants")).into_iter().map(row).collect()
}

#[test]
fn every_invariant_has_one_row_with_its_line() {
    let rows = rows();
    let stated =
        |id: InvariantId| rows.iter().filter(move |row| row[0] == id.id()).map(|row| &*row[1]).collect::<Vec<_>>();
    let wrong: Vec<InvariantId> = InvariantId::ALL.iter().copied().filter(|id| stated(*id) != [id.text()]).collect();
    assert_eq!(
        (wrong, rows.len()),
        (Vec::new(), InvariantId::ALL.len()),
        "an entry is missing, repeated, or has another text"
    );
}

#[test]
fn each_row_names_the_predicates_of_its_invariant() {
    for [id, _, predicate, _] in rows() {
        let of = |of: &&Predicate| of.id.id() == id;
        let judged: Vec<&str> = ALWAYS.iter().chain(QUIESCENT).filter(of).map(|of| of.name).collect();
        assert_eq!(quoted(&predicate).collect::<Vec<_>>(), judged, "{id}");
        assert!(!judged.is_empty(), "{id} has no predicate");
    }
}

#[test]
fn each_row_names_tests_that_exist() {
    let tests = test_names();
    for [id, _, _, checked] in rows() {
        let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || "_0123456789".contains(c));
        let (named, gone): (Vec<&str>, Vec<&str>) =
            quoted(&checked).filter(is_name).partition(|name| tests.contains(*name));
        assert_eq!(gone, Vec::<&str>::new(), "{id} names tests that do not exist");
        assert!(!named.is_empty(), "{id} names no test: {checked}");
    }
}

/// A predicate that neither the model nor the simulator feeds has a test, and the entry of its invariant names that test.
#[test]
fn predicates_fed_elsewhere_name_their_test() {
    let (rows, tests) = (rows(), test_names());
    for (predicate, test) in ELSEWHERE {
        assert!(tests.contains(*test), "{predicate}: the test {test} does not exist");
        let row = rows.iter().find(|[_, _, named, _]| quoted(named).any(|name| name == *predicate));
        assert!(
            row.is_some_and(|row| quoted(&row[3]).any(|name| name == *test)),
            "{predicate}: its row does not name {test}"
        );
    }
}

/// An entry may name the model or the simulator only if that source feeds one of its predicates.
#[test]
fn rows_claim_only_sources_that_feed_their_predicates() {
    let mut wrong = Vec::new();
    for [id, _, predicates, checked] in rows() {
        let points: Vec<String> = checked.split("; ").map(str::to_lowercase).collect();
        for source in [WorldSource::Model, WorldSource::Simulator] {
            let source_name = source.to_string();
            let claims = |point: &String| point.starts_with(&source_name) || point.starts_with("model and simulator");
            if points.iter().any(claims) && !quoted(&predicates).any(|name| feeds(source, name)) {
                wrong.push(format!("{id}: the {source} feeds none of {predicates}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_clause_of_the_promise_names_its_check() {
    let tests = test_names();
    let clauses = entries(&section("The promise"));
    assert!(clauses.len() > 20, "{clauses:#?}");
    for Entry { text, points } in clauses {
        let shown = points.iter().filter_map(|point| point.strip_prefix("Shown by: ")).collect::<Vec<_>>().join(" ");
        let names: Vec<&str> = quoted(&shown).filter(|name| !name.contains(' ')).collect();
        assert!(!names.is_empty(), "no test shows this: {text}");
        let gone: Vec<&str> = names.into_iter().filter(|name| !tests.contains(*name)).collect();
        assert_eq!(gone, Vec::<&str>::new(), "{text}");
    }
}

#[test]
fn promise_is_the_same_in_readme_and_verification() {
    let text = read("README.md");
    let (_, promised) = text.split_once("\n## What it promises\n").expect("the promise");
    let rows = promised.split("\n## ").next().unwrap_or_default().lines().filter_map(|line| line.strip_prefix("| "));
    let promised: Vec<String> = rows
        .filter_map(|row| row.split(" | ").next())
        .filter(|clause| clause.ends_with('.'))
        .map(str::to_owned)
        .collect();
    let clause = |entry: &Entry| Some(entry.text.strip_prefix("**")?.split_once("**")?.0.to_owned());
    let shown: Vec<String> = entries(&section("The promise")).iter().filter_map(clause).collect();
    assert_eq!(promised, shown);
    assert!(!shown.is_empty(), "a promise");
}

/// Steps of `.ci/run` that check the form of sources or prepare other steps, and are not methods.
const OTHER_STEPS: [&str; 7] = ["fmt", "sizes", "clippy", "test", "docs", "tools", "sbom"];

/// Each step that verifies something is a command of a method, and methods name no other steps.
#[test]
fn each_step_of_ci_is_a_command_of_a_method() {
    let run = read(".ci/run");
    let steps: BTreeSet<&str> = run.lines().filter_map(|line| line.strip_prefix("step ")?.split(' ').next()).collect();
    let methods = section("Methods");
    let commands = quoted(&methods).filter_map(|command| command.split_once(".ci/run ").map(|(_, steps)| steps));
    let named: BTreeSet<&str> = commands.flat_map(|steps| steps.split(' ')).collect();
    let expected: BTreeSet<&str> = steps.iter().copied().filter(|step| !OTHER_STEPS.contains(step)).collect();
    assert_eq!(named, expected);
    let exempt: BTreeSet<&str> = OTHER_STEPS.into();
    assert!(exempt.is_subset(&steps), "{:?} are not steps", exempt.difference(&steps));
}

#[test]
fn methods_state_the_number_of_sabotages() {
    const NUMBERS: [&str; 10] = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
    let run = read(".ci/run");
    let drilled = run.split_once("\nSABOTAGES=\"").and_then(|(_, rest)| rest.split_once('"')).expect("a list").0;
    let count = NUMBERS[drilled.split(' ').count()];
    let methods = section("Methods").replace("\n  ", " ");
    assert!(methods.contains(&format!("It must notice {count} sabotages.")), "{drilled}");
}
