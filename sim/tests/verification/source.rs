//! The sources of the workspace: files, functions and tests.

use std::collections::BTreeSet;
use std::path::Path;

pub(crate) const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../");

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

pub(crate) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// One entry of a list: its text and its points.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) text: String,
    pub(crate) points: Vec<String>,
}

/// Returns the entries of the lists in a text, with continuation lines joined.
pub(crate) fn entries(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        let point = line.strip_prefix("  - ");
        if let Some(text) = line.strip_prefix("- ") {
            entries.push(Entry { text: text.to_owned(), points: Vec::new() });
        } else if let Some(entry) = entries.last_mut().filter(|_| is_open && line.starts_with("  ")) {
            match (point, entry.points.last_mut()) {
                (Some(point), _) => entry.points.push(point.to_owned()),
                (None, Some(last)) => *last = format!("{last} {}", line.trim_start()),
                (None, None) => entry.text = format!("{} {}", entry.text, line.trim_start()),
            }
        }
        is_open = line.starts_with("- ") || (is_open && line.starts_with("  "));
    }
    entries
}

/// Returns the path and the text of every Rust source file.
pub(crate) fn files() -> Vec<(String, String)> {
    let (mut found, mut folders) = (Vec::new(), vec![Path::new(ROOT).to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                found.push((path.strip_prefix(ROOT).expect("a path below").to_string_lossy().into_owned(), text));
            }
        }
    }
    found
}

/// Returns the code of a file without its tests, comments and spaces.
pub(crate) fn product_code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(str::split_whitespace).collect()
}

/// Checks that of the product code, which `is_product` tells by its path, only the files of `others` do something, and all of them.
/// `others` has them in groups with a reason. `rule` says what to do.
pub(crate) fn check_others(
    others: &[(&str, &[&str])],
    is_product: impl Fn(&str) -> bool,
    does: impl Fn(&str) -> bool,
    rule: &str,
) {
    let product = files().into_iter().filter(|(path, _)| is_product(path) && !path.contains("tests"));
    let found: BTreeSet<String> = product.filter(|(_, text)| does(&product_code(text))).map(|(path, _)| path).collect();
    let expected = others.iter().flat_map(|(_, files)| *files).map(|&path| path.to_owned()).collect();
    assert_eq!(found, expected, "{rule}");
}

pub(crate) fn tests() -> BTreeSet<(String, String)> {
    let of = |(path, text): (String, String)| tests_in(&text).into_iter().map(move |name| (path.clone(), name));
    files().into_iter().flat_map(of).collect()
}

pub(crate) fn test_names() -> BTreeSet<String> {
    tests().into_iter().map(|(_, name)| name).collect()
}

/// Macros that generate tests from the functions that they list.
const MACROS: [&str; 2] = ["for_each_engine!(", "conformance!("];

/// Returns the names of the functions in `text` that the test runner calls.
pub(crate) fn tests_in(text: &str) -> BTreeSet<String> {
    let (mut found, mut marked) = (BTreeSet::new(), false);
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        } else if line.starts_with("#[ignore") {
            marked = false;
        } else if let Some(name) = defined(line).next().filter(|_| !line.starts_with("//")) {
            if marked {
                found.insert(name);
            }
            marked = false;
        }
    }
    let functions: BTreeSet<String> = defined(text).collect();
    for list in MACROS.iter().flat_map(|name| text.split(name).skip(1)) {
        let list = list.split(')').next().unwrap_or_default();
        let names = list.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        found.extend(names.filter(|name| functions.contains(*name)).map(str::to_owned));
    }
    found
}

fn defined(text: &str) -> impl Iterator<Item = String> {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect::<String>();
    let starts = text.match_indices("fn ").filter(|(at, _)| {
        text.as_bytes().get(at.wrapping_sub(1)).is_none_or(|before| !before.is_ascii_alphanumeric() && *before != b'_')
    });
    starts.filter_map(move |(at, found)| text.get(at + found.len()..)).map(name).filter(|name| !name.is_empty())
}

#[test]
fn function_without_a_test_attribute_is_not_a_test() {
    let lines = [
        "#[test]",
        "#[expect(clippy::panic)]",
        "fn runs() {}",
        "fn helper() {}",
        "// #[test]",
        "#[tokio::test(start_paused = true)]",
        "    async fn waits() { fn inner() {} }",
        "#[test]",
        "#[ignore]",
        "fn ignored() {}",
        "async fn on_an_engine() {}",
        "for_each_engine!(",
        "    on_an_engine,",
        ");",
    ];
    let expected: BTreeSet<String> = ["runs", "waits", "on_an_engine"].map(str::to_owned).into();
    assert_eq!(tests_in(&lines.join("\n")), expected);
}

#[test]
fn product_code_has_no_tests_comments_and_spaces() {
    let text =
        "let all = self.journal\n    .records(id)?;\n// journal.records(id)\n#[cfg(test)]\nmod tests {\n    all()";
    assert_eq!(product_code(text), "letall=self.journal.records(id)?;");
}

#[test]
fn list_entries_join_their_continuation_lines() {
    let text = "Before\n  - no entry\n\n- one\n  and more\n  - point\n    goes\n    further\n  - next\n\nafter\n- two\nx\n  y\n";
    let entry = |text: &str, points: &[&str]| Entry {
        text: text.to_owned(),
        points: points.iter().map(|&point| point.to_owned()).collect(),
    };
    assert_eq!(entries(text), [entry("one and more", &["point goes further", "next"]), entry("two", &[])]);
}
