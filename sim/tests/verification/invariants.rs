//! VERIFICATION.md and README.md against the code: each claim has its row, and what a row names exists.

use subtend_invariants::{ALWAYS, InvariantId, Predicate, QUIESCENT};
use subtend_sim::coverage::ELSEWHERE;

use super::source::{quoted, read, test_names};

/// One row of the table: id, line, predicate, where it is checked.
type Row = [String; 4];

fn rows() -> Vec<Row> {
    let text = read("VERIFICATION.md");
    let cells = |line: &str| {
        let cells: Vec<String> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").map(str::to_owned).collect();
        Row::try_from(cells).ok()
    };
    let known = |row: &Row| row[0].split_once('-').is_some_and(|(_, number)| number.parse::<u8>().is_ok());
    text.lines().filter_map(cells).filter(known).collect()
}

#[test]
fn every_invariant_has_one_row_with_its_line() {
    let rows = rows();
    let told =
        |id: InvariantId| rows.iter().filter(move |row| row[0] == id.id()).map(|row| &*row[1]).collect::<Vec<_>>();
    let wrong: Vec<InvariantId> = InvariantId::ALL.iter().copied().filter(|id| told(*id) != [id.text()]).collect();
    assert_eq!((wrong, rows.len()), (Vec::new(), InvariantId::ALL.len()), "missing, twice, or with another line");
}

#[test]
fn each_row_names_the_predicates_of_its_invariant() {
    for [id, _, predicate, _] in rows() {
        let of = |of: &&Predicate| of.id.id() == id;
        let judged: Vec<&str> = ALWAYS.iter().chain(QUIESCENT).filter(of).map(|of| of.name).collect();
        assert_eq!(quoted(&predicate).collect::<Vec<_>>(), judged, "{id}");
        assert!(!judged.is_empty(), "{id}: nothing judges it");
    }
}

#[test]
fn each_row_names_tests_that_exist() {
    let tests = test_names();
    for [id, _, _, checked] in rows() {
        let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || "_0123456789".contains(c));
        let (named, gone): (Vec<&str>, Vec<&str>) =
            quoted(&checked).filter(is_name).partition(|name| tests.contains(*name));
        assert_eq!(gone, Vec::<&str>::new(), "{id}: no test is named so");
        assert!(!named.is_empty(), "{id}: no test is named: {checked}");
    }
}

/// What neither the model nor the simulator feeds has a test that does, and its row names that.
#[test]
fn predicates_that_are_fed_elsewhere_name_their_test() {
    let (rows, tests) = (rows(), test_names());
    for (predicate, test) in ELSEWHERE {
        assert!(tests.contains(*test), "{predicate}: there is no test {test}");
        let row = rows.iter().find(|[_, _, named, _]| quoted(named).any(|name| name == *predicate));
        assert!(
            row.is_some_and(|row| quoted(&row[3]).any(|name| name == *test)),
            "{predicate}: its row names no {test}"
        );
    }
}

/// README.md: each fault and each clause of the promise names tests that show it, and they exist.
#[test]
fn every_clause_of_the_promise_names_its_check() {
    let text = read("README.md");
    let (_, promise) = text.split_once("## What it promises").expect("the promise");
    let (promise, _) = promise.split_once("\n## ").expect("what follows it");
    let tests = test_names();
    let rows = promise.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let heads = ["shown by", "---"];
    let clauses: Vec<_> = cells.filter(|cells| !heads.contains(&cells[2]) && cells[0] != "*Not covered*").collect();
    assert!(clauses.len() > 20, "{clauses:#?}");
    for cells in clauses {
        assert_eq!(cells.len(), 3, "{cells:?}");
        let names: Vec<&str> = quoted(cells[2]).filter(|name| !name.contains(' ')).collect();
        assert!(!names.is_empty(), "no test shows this: {}", cells[..2].join(" "));
        let gone: Vec<&str> = names.into_iter().filter(|name| !tests.contains(*name)).collect();
        assert_eq!(gone, Vec::<&str>::new(), "{}", cells[..2].join(" "));
    }
}
