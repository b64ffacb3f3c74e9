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
            "host/src/page/shards.rs",
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

/// Returns whether the product code of a file parses JSON by serde_json.
fn parses_directly(text: &str) -> bool {
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let of_crate = ["from_str", "from_slice", "from_reader"].map(|name| format!("serde_json::{name}"));
    product.contains("serde_json::Deserializer") || of_crate.iter().any(|call| product.contains(call))
}

#[test]
fn recorded_json_is_parsed_within_bounds() {
    let others: Vec<&str> = OTHERS.iter().flat_map(|(_, files)| *files).copied().collect();
    let is_product = |path: &str| {
        let tools = ["sim/", "drill/", "fuzz/", "invariants/", "benches/", "examples/"];
        path.contains("src/") && !path.contains("tests") && !tools.iter().any(|folder| path.starts_with(folder))
    };
    let files = source::files();
    let mut found: Vec<&str> = files
        .iter()
        .filter(|(path, text)| is_product(path) && parses_directly(text))
        .map(|(path, _)| &**path)
        .collect();
    found.sort_unstable();
    let unknown: Vec<&&str> = found.iter().filter(|path| !others.contains(path)).collect();
    assert_eq!(
        unknown,
        Vec::<&&str>::new(),
        "use `values::parse_foreign`, or list the file with what bounds its texts"
    );
    let gone: Vec<&&str> = others.iter().filter(|path| !found.contains(path)).collect();
    assert_eq!(gone, Vec::<&&str>::new(), "remove files from the list that parse no JSON");
    assert!(parses_directly("serde_json::from_str::<Value>(args)"));
    assert!(!parses_directly("parse_recorded(args)\n#[cfg(test)]\nmod tests {\n    serde_json::from_str(args)"));
}
