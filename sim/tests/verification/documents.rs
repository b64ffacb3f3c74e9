//! Checks of the documents: links lead to files, named source paths exist, and README and ARCHITECTURE stay short.

use std::collections::BTreeSet;
use std::path::Path;

use super::source::{ROOT, quoted, read};

const AT_ROOT: [&str; 6] =
    ["README.md", "ARCHITECTURE.md", "VERIFICATION.md", "THREATS.md", "SECURITY.md", "CHANGELOG.md"];

const FOLDERS: [&str; 2] = ["docs", "src/guide"];

/// Folders of the workspace. A path that starts with one of these must exist.
const MEMBERS: [&str; 17] = [
    "actors",
    "agents",
    "benches",
    "docs",
    "drill",
    "examples",
    "fuzz",
    "host",
    "invariants",
    "journal",
    "models",
    "nodes",
    "session",
    "sim",
    "src",
    "supervision",
    "tools",
];

const WORD_LIMITS: [(&str, usize); 2] = [("README.md", 1200), ("ARCHITECTURE.md", 2500)];

/// The chapter of ARCHITECTURE.md that lists the files involved in one prompt, and their maximum number.
const ONE_PROMPT: (&str, usize) = ("## The path of one prompt, file by file", 45);

/// Returns the path of every document, relative to the root of the workspace.
fn documents() -> Vec<String> {
    let mut found: Vec<String> = AT_ROOT.map(str::to_owned).into();
    let mut folders: Vec<String> = FOLDERS.map(str::to_owned).into();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(Path::new(ROOT).join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns a text without its code blocks.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// Returns the files that a text links to, relative to the folder of the text.
fn linked(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let targets = targets.map(|target| target.split('#').next().unwrap_or_default());
    let is_file = |target: &&str| !target.is_empty() && !target.contains("://") && !target.contains("::");
    targets.filter(is_file).filter(|target| target.contains('.') || target.contains('/'))
}

/// Returns the workspace paths that a text names, with braces expanded.
fn named(text: &str) -> Vec<String> {
    let is_path = |name: &&str| {
        // Skips a socket, which is a file of a store.
        !name.ends_with(".sock")
            && name.split_once('/').is_some_and(|(first, _)| MEMBERS.contains(&first))
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./{},".contains(c))
    };
    let names = quoted(text).filter_map(|name| name.split("::").next()).filter(is_path);
    names.flat_map(expanded).collect()
}

fn expanded(path: &str) -> Vec<String> {
    match path.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?))) {
        Some((head, (names, tail))) => names.split(',').map(|name| format!("{head}{name}{tail}")).collect(),
        None => vec![path.to_owned()],
    }
}

#[test]
fn documents_link_to_files_and_name_paths_that_exist() {
    let mut wrong = Vec::new();
    for document in documents() {
        let text = prose(&read(&document));
        let folder = Path::new(ROOT).join(&document).parent().expect("a folder").to_path_buf();
        let gone = linked(&text).filter(|target| !folder.join(target).exists());
        wrong.extend(gone.map(|target| format!("{document}: the link `{target}` is broken")));
        let gone = named(&text).into_iter().filter(|path| !Path::new(ROOT).join(path).exists());
        wrong.extend(gone.map(|path| format!("{document}: `{path}` does not exist")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn readme_and_architecture_stay_short() {
    for (document, most) in WORD_LIMITS {
        let words = read(document).split_whitespace().count();
        assert!(words <= most, "{document} has {words} words; the limit is {most}");
    }
}

fn named_in_chapter(text: &str, title: &str) -> Vec<String> {
    let chapter = text.split_once(&format!("{title}\n")).map_or("", |(_, rest)| rest);
    named(chapter.split("\n## ").next().unwrap_or_default())
}

/// Another test checks that each of the files exists.
#[test]
fn one_prompt_lists_few_files_and_each_once() {
    let (title, most) = ONE_PROMPT;
    let met = named_in_chapter(&read("ARCHITECTURE.md"), title);
    let once: BTreeSet<_> = met.iter().collect();
    assert_eq!(once.len(), met.len(), "a file is listed twice: {met:#?}");
    assert!(met.iter().all(|path| path.ends_with(".rs")), "not a file: {met:#?}");
    // The lower bound fails if the chapter is renamed or moved, so that no files are found.
    assert!((30..=most).contains(&met.len()), "one prompt involves {} files; the limit is {most}", met.len());
}

/// The control of the test above, with a fixture.
#[test]
fn only_files_of_the_chapter_are_counted() {
    let text = "`src/z.rs`\n## One\n\n1. a: `src/a.rs`,\n   `src/{b,c}.rs`\n\n## Two\n`src/d.rs`\n";
    assert_eq!(named_in_chapter(text, "## One"), ["src/a.rs", "src/b.rs", "src/c.rs"]);
    assert_eq!(named_in_chapter(text, "## Three"), [""; 0]);
}

/// The control: exactly the links and paths of a fixture are found.
#[test]
fn links_and_paths_of_a_fixture_are_found() {
    let text = "[a](x/y.md#z) [b](https://e.org/a.md) [c](super::d) `session/src/{a,b}.rs::T` `x y` `sim/src` `a/b`\n\
                ```\n[d](gone.md) `src/gone.rs`\n```\n";
    let text = prose(text);
    assert_eq!(linked(&text).collect::<Vec<_>>(), ["x/y.md"]);
    assert_eq!(named(&text), ["session/src/a.rs", "session/src/b.rs", "sim/src"]);
}
