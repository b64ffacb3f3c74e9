//! Exports and imports.

use super::super::page::Page;

const ECHO: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "heard: {prompt}", "repeat": true } ] } ] }"#;

#[test]
fn errors_of_exports_and_imports_match_their_snapshot() {
    let mut page = Page::new();
    let model = page.user.script(ECHO);
    page.quiet("config set --user sessions.titles false", "");
    page.quiet(&format!("run --quiet --model {model} one"), "");
    let id = page.name_sessions();
    page.quiet("export --out all.jsonl", "");
    let text = std::fs::read_to_string(page.user.workspace().join("all.jsonl")).expect("the export");
    page.heading("Exports");
    page.call("export --out all.jsonl");
    page.call("export --out gone/all.jsonl");
    page.heading("Imports");
    page.call("import all.jsonl");
    page.call("import gone.jsonl");
    page.call("import .");
    let mut lines: Vec<&str> = text.lines().collect();
    let end = lines.pop().expect("a last line");
    let cases = [
        ("flipped", text.replacen("heard: one", "heard: two", 1)),
        ("cut", lines.join("\n") + "\n"),
        ("other", "no export\n".to_owned()),
        ("empty", String::new()),
        ("newer", text.replacen("\"format\":1", "\"format\":99", 1)),
        ("longer", format!("{text}{end}\n")),
    ];
    for (name, text) in cases {
        page.user.file(&format!("{name}.jsonl"), &text);
        page.call(&format!("import --data other {name}.jsonl"));
    }
    page.call("import --data other --max-memory 0 all.jsonl");
    page.heading("After a deletion");
    page.quiet(&format!("delete {id} --yes"), "");
    page.call("import all.jsonl");
    page.heading("An imported session");
    page.call("import --data other all.jsonl");
    page.call(&format!("send {id} hi --data other"));
    page.check("errors_moving");
}
