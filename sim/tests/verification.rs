//! VERIFICATION.md against the code: every invariant has its row, and what a row names is there.
#![expect(clippy::expect_used, reason = "a test says what it expects and fails where it is not so")]

use std::collections::BTreeSet;
use std::path::Path;

use subtend_session::invariant::{ALWAYS, InvariantId, QUIESCENT};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// One row of the table: id, line, predicate, where it is checked.
type Row = [String; 4];

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(Path::new(ROOT).join("VERIFICATION.md")).expect("VERIFICATION.md");
    let cells = |line: &str| {
        let cells: Vec<String> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").map(str::to_owned).collect();
        Row::try_from(cells).ok()
    };
    let known = |row: &Row| row[0].split_once('-').is_some_and(|(_, number)| number.parse::<u8>().is_ok());
    text.lines().filter_map(cells).filter(known).collect()
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Names of all functions of the workspace.
fn functions() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![Path::new(ROOT).to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                let names = text.split("fn ").skip(1).map(|rest| {
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>()
                });
                found.extend(names);
            }
        }
    }
    found
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
fn a_predicate_is_named_where_there_is_one() {
    let functions = functions();
    for [id, _, predicate, _] in rows() {
        let judged = ALWAYS.iter().chain(QUIESCENT).filter(|of| of.id.id() == id).count();
        let named: Vec<&str> = quoted(&predicate).collect();
        assert_eq!(named.len(), judged, "{id}: {predicate}");
        assert_eq!(predicate == "not judged yet", judged == 0, "{id}: {predicate}");
        for name in named {
            let function = name.rsplit("::").next().unwrap_or(name);
            assert!(functions.contains(function), "{id}: there is no {name}");
        }
    }
}

/// What a whole does is judged by predicates, and by something that shows them worlds: no id of these goes without either.
#[test]
fn every_invariant_of_the_whole_has_a_predicate_and_a_user() {
    let functions = functions();
    let of_the_whole = |id: &str| "STNVBP".contains(id.split('-').next().unwrap_or_default());
    for [id, _, predicate, checked] in rows().into_iter().filter(|row| of_the_whole(&row[0])) {
        assert_ne!(predicate, "not judged yet", "{id}");
        let users = quoted(&checked).filter(|name| functions.contains(*name)).count();
        assert!(users > 0, "{id}: no test that uses it is named: {checked}");
    }
}

#[test]
fn every_test_that_a_row_names_is_there() {
    let functions = functions();
    for [id, _, _, checked] in rows() {
        let names =
            quoted(&checked).filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || "_0123456789".contains(c)));
        let gone: Vec<&str> = names.filter(|name| !functions.contains(*name)).collect();
        assert_eq!(gone, Vec::<&str>::new(), "{id}");
    }
}

/// Rows that the dialects keep, and rules where the systems that they come from disagree.
const DIALECTS: [&str; 41] = [
    "B7", "B8", "B9", "B10", "G9", "G10", "G11", "G13", "S1", "S2", "S3", "S4", "S5", "S7", "S8", "R3", "R7", "R8",
    "R10", "R11", "R12", "M3", "M4", "M5", "M6", "M7", "M8", "M10", "M13", "K6", "K9", "K11", "K12", "K13", "K14",
    "K15", "K16", "K18", "K20", "K21", "K25",
];

#[test]
fn every_row_of_the_dialects_names_a_test_of_its_id() {
    let text = std::fs::read_to_string(Path::new(ROOT).join("VERIFICATION.md")).expect("VERIFICATION.md");
    let (_, section) = text.split_once("## The rows of the dialects\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("what follows it");
    let cells = |line: &str| {
        let cells: Vec<String> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").map(str::to_owned).collect();
        <[String; 3]>::try_from(cells).ok().filter(|cells| cells[0] != "id")
    };
    let rows: Vec<_> = section.lines().filter_map(cells).collect();
    let ids: Vec<&str> = rows.iter().map(|[id, ..]| id.as_str()).collect();
    assert_eq!(ids, DIALECTS, "missing, twice, or out of order");
    for [id, what, shown] in &rows {
        assert!(!what.is_empty(), "{id}");
        let named: Vec<(&str, &str)> = quoted(shown).map(|name| name.split_once("::").unwrap_or((name, ""))).collect();
        let missing: Vec<_> = named.iter().filter(|(path, name)| !has(path, name)).collect();
        assert_eq!(missing, Vec::<&(&str, &str)>::new(), "{id}");
        let own = |(path, name): &(&str, &str)| {
            path.starts_with("examples/") || name.split('_').any(|word| word == id.to_lowercase())
        };
        assert!(named.iter().any(own), "{id}: nothing that it names has its id");
    }
}

/// Whether there is that file, with that test in it where one is named.
fn has(path: &str, name: &str) -> bool {
    let text = std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_default();
    let is_test = || {
        text.split_once(&format!("fn {name}(")).is_some_and(|(before, _)| {
            before.rsplit("\n\n").next().is_some_and(|head| head.contains("#[test]") || head.contains("#[tokio::test"))
        })
    };
    if name.is_empty() { !text.is_empty() } else { is_test() }
}

/// README.md: each fault and each clause of the promise names something that shows it, and that is there.
#[test]
fn every_clause_of_the_promise_names_its_check() {
    let text = std::fs::read_to_string(Path::new(ROOT).join("README.md")).expect("README.md");
    let (_, promise) = text.split_once("## What it promises").expect("the promise");
    let (promise, _) = promise.split_once("\n## ").expect("what follows it");
    let functions = functions();
    let rows = promise.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let heads = ["shown by", "---"];
    let clauses: Vec<_> = cells.filter(|cells| !heads.contains(&cells[2]) && cells[0] != "*Not covered*").collect();
    assert!(clauses.len() > 20, "{clauses:#?}");
    for cells in clauses {
        assert_eq!(cells.len(), 3, "{cells:?}");
        let names: Vec<&str> = quoted(cells[2]).filter(|name| !name.contains(' ')).collect();
        assert!(!names.is_empty(), "nothing shows this: {}", cells[..2].join(" "));
        let gone: Vec<&str> = names.into_iter().filter(|name| !functions.contains(*name)).collect();
        assert_eq!(gone, Vec::<&str>::new(), "{}", cells[..2].join(" "));
    }
}
