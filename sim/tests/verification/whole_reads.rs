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

#[test]
fn whole_sessions_are_read_in_few_places() {
    let is_server = |path: &str| ["actors/src/", "host/src/", "nodes/src/"].iter().any(|of| path.starts_with(of));
    let reads_whole = |code: &str| code.contains(".records(");
    let rule = "read page by page, or list the file with the reason why few such reads run at a time";
    source::check_others(&OTHERS, is_server, reads_whole, rule);
}
