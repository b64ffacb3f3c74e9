//! JSON texts from outside, and of records, which may come from an import: product code parses them by
//! `values::parse_foreign` and `values::parse_recorded`, which bound their values.

use super::source;

/// Files that parse other JSON by serde_json, each group with the reason why its memory is bounded.
const OTHERS: [(&str, &[&str]); 4] = [
    ("the function itself", &["session/src/values.rs"]),
    (
        "the values of the text are counted before, or it has few bytes",
        &["host/src/json.rs", "models/src/provider/gather.rs", "src/cli/worker/host.rs"],
    ),
    (
        "the text is read into fields of known types, or not kept",
        &[
            "actors/src/typed.rs",
            "actors/src/typed/extract.rs",
            "actors/src/views/transcript/reader.rs",
            "host/src/auth/tokens.rs",
            "journal/src/bodies.rs",
            "journal/src/codec.rs",
            "journal/src/import/lines.rs",
            "journal/src/rows.rs",
            "nodes/src/gateway/target.rs",
            "nodes/src/merge.rs",
            "nodes/src/merge/json_parts.rs",
            "nodes/src/merge/list.rs",
            "src/cli/client.rs",
            "src/cli/trust/record.rs",
            "src/cli/work/found_session.rs",
            "src/cli/work/source.rs",
            "tools/src/checkpoint.rs",
            "tools/src/checkpoint/restore.rs",
            "tools/src/guard.rs",
            "tools/src/guard/limits.rs",
            "tools/src/typed.rs",
            "tools/src/worktree.rs",
            "tools/src/worktree/merge.rs",
        ],
    ),
    (
        "the person wrote the text, or a file of bounded size holds it",
        &[
            "models/src/scripted.rs",
            "src/cli/logins.rs",
            "src/cli/metadata.rs",
            "src/cli/servers.rs",
            "tools/src/mcp/config.rs",
            "tools/src/mcp/known_tools.rs",
        ],
    ),
];

/// Returns whether code parses JSON by serde_json.
fn parses_directly(code: &str) -> bool {
    ["Deserializer", "from_str", "from_slice", "from_reader"]
        .iter()
        .any(|of| code.contains(&format!("serde_json::{of}")))
}

#[test]
fn recorded_json_is_parsed_within_bounds() {
    let is_product = |path: &str| {
        let tools = ["sim/", "drill/", "fuzz/", "invariants/", "benches/", "examples/"];
        path.contains("src/") && !tools.iter().any(|folder| path.starts_with(folder))
    };
    let rule = "use `values::parse_foreign`, or list the file with what bounds its texts";
    source::check_others(&OTHERS, is_product, parses_directly, rule);
}
