//! Reads of whole sessions: a session may have hundreds of megabytes, so product code reads it page by page
//! (`values::paging`, `views::history::each`), except where few such reads run at a time.

use super::source;

/// Files that read all records of a session at once, each group with the reason why few do so at a time.
const OTHERS: [(&str, &[&str]); 2] = [
    ("`Log::read_whole` runs it", &["actors/src/handle/branch.rs"]),
    (
        "the start reads one session after another, before it accepts requests",
        &[
            "actors/src/recovery/boot/cancelled_trees.rs",
            "actors/src/recovery/boot/report.rs",
            "actors/src/recovery/boot/resuming.rs",
            "actors/src/recovery/restores.rs",
        ],
    ),
];

/// Returns whether the product code of a file reads all records of a session.
fn reads_whole(text: &str) -> bool {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String = product.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code: String = code.split_whitespace().collect();
    code.contains(".records(")
}

#[test]
fn whole_sessions_are_read_in_few_places() {
    let is_server = |path: &str| ["actors/src/", "host/src/", "nodes/src/"].iter().any(|of| path.starts_with(of));
    let files = source::files();
    let product = files.iter().filter(|(path, text)| is_server(path) && !path.contains("tests") && reads_whole(text));
    let mut found: Vec<&str> = product.map(|(path, _)| &**path).collect();
    found.sort_unstable();
    let mut expected: Vec<&str> = OTHERS.iter().flat_map(|(_, files)| *files).copied().collect();
    expected.sort_unstable();
    assert_eq!(found, expected, "read page by page, or list the file with the reason why few such reads run at a time");
    assert!(reads_whole("let all = self.journal\n    .records(id)?;"));
    assert!(!reads_whole("// journal.records(id)\nwalk(journal)\n#[cfg(test)]\nmod tests {\n    journal.records(id)"));
}
