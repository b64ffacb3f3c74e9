use super::*;

fn place(path: &str, line: u64, text: &str) -> Location {
    Location { path: path.into(), line, text: text.into() }
}

fn page(lines: &[&str]) -> Vec<(u64, String)> {
    (1_u64..).zip(lines).map(|(n, text)| (n, (*text).to_owned())).collect()
}

#[test]
fn opening_line_is_the_files_own_description() {
    let opens = |path: &str, lines: &[&str]| opening(path, &page(lines)).map(|place| (place.line, place.text));
    let at = |line, text: &str| Some((line, text.to_owned()));
    assert_eq!(opens("a.rs", &["#![no_std]", "", "//! The heart.", "use x;"]), at(3, "//! The heart."));
    assert_eq!(
        opens("a.py", &["#!/usr/bin/python", "import os", "\"\"\"Runs it.\"\"\""]),
        at(3, "\"\"\"Runs it.\"\"\"")
    );
    assert_eq!(opens("README.md", &["---", "", "# Title", "Text"]), at(3, "# Title"));
    assert_eq!(opens("Cargo.toml", &["[package]", "description = \"It runs\""]), at(2, "description = \"It runs\""));
    assert_eq!(opens("a.rs", &["fn main() {}"]), at(1, "fn main() {}"));
    assert_eq!(opens("a.rs", &["", "{}"]), None);
}

#[test]
fn definitions_come_before_uses_and_code_before_tests() {
    let places = vec![
        place("LICENSE", 1, "no error here"),
        place("src/a.rs", 1, "use crate::error::Error;"),
        place("src/a.rs", 5, "let error = 1;"),
        place("tests/a.rs", 2, "fn error_is_shown() {"),
        place("src/b.rs", 9, "pub enum ParseError {"),
        place("src/b.rs", 12, "fn parse() -> Result<(), Error> {"),
    ];
    let best = pick_best(places, &["error".to_owned(), "err".to_owned()]);
    let order: Vec<(&str, u64)> = best.iter().map(|place| (&*place.path, place.line)).collect();
    let expected =
        [("src/b.rs", 9), ("src/a.rs", 5), ("src/b.rs", 12), ("tests/a.rs", 2), ("src/a.rs", 1), ("LICENSE", 1)];
    assert_eq!(order, expected);
}

#[test]
fn files_are_counted_by_kind() {
    let listing = ToolListing::parse(
        "a.rs  1 byte\nb.rs  1 byte\nMakefile  1 byte\nx.QQ  1 byte\n.env  1 byte\nv. 2, x  1 byte\n[0 directories; 6 files]",
        false,
    );
    let count = FoundCount::exactly;
    let expected = [("without ending", count(3)), ("Rust", count(2)), (".QQ", count(1))];
    assert_eq!(kinds(&listing), expected.map(|(kind, n)| (kind.to_owned(), n)));
}
