//! Checks that no type name is defined more than twice, so that a search for a name finds the intended type.

use std::collections::BTreeMap;

use super::source::files;

/// Maximum number of definitions of one name in the workspace.
const LIMIT: usize = 2;

/// Names that may be defined more than twice, with the reason.
const EXCEPTIONS: [(&str, &str); 1] = [("Args", "the clap arguments of a command, named by the command's module")];

const KEYWORDS: [&str; 5] = ["struct ", "enum ", "trait ", "union ", "type "];

/// Returns the type name that a line defines. Associated types, which are indented, do not count.
fn type_name(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let code = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
        None => code,
    };
    let code = code.strip_prefix("unsafe ").unwrap_or(code);
    let keyword = KEYWORDS.iter().find(|keyword| code.starts_with(**keyword))?;
    if *keyword == "type " && line.starts_with(' ') {
        return None;
    }
    let name = code.strip_prefix(keyword)?;
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
    name.get(..end).filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// Returns each name that is defined more than [`LIMIT`] times, with the files that define it.
fn repeated(files: &[(String, String)]) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in files {
        for name in text.lines().filter_map(type_name) {
            found.entry(name).or_default().push(path);
        }
    }
    found.retain(|name, at| at.len() > LIMIT && EXCEPTIONS.iter().all(|(excepted, _)| name != excepted));
    found.iter().map(|(name, at)| format!("{name} is defined {} times: {}", at.len(), at.join(", "))).collect()
}

#[test]
fn no_type_name_is_defined_more_than_twice() {
    let wrong = repeated(&files());
    assert!(wrong.is_empty(), "give each type a distinct name:\n{}", wrong.join("\n"));
}

#[test]
fn repeated_type_name_is_found_in_a_fixture() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let twice =
        [file("a.rs", "struct Row;\npub(crate) enum Row<'a> {"), file("b.rs", "pub struct Args {\n// struct Row\n")];
    assert_eq!(repeated(&twice), Vec::<String>::new());
    let more = [
        file("c.rs", "    pub trait Row: Sized {\n    type Row = u8;\n"),
        file("d.rs", "enum Args {}\nstruct Args;\n"),
    ];
    assert_eq!(repeated(&[twice, more].concat()), ["Row is defined 3 times: a.rs, a.rs, c.rs"]);
}
