//! Tools of the workspace: their schemas, results and errors, and the texts of refused calls.

use std::path::Path;

use serde_json::{Value, json};
use subtend::session::{Rule, RuleSet, Verdict};
use subtend::tools::{Guard, Registry};

use super::super::page::check;
use super::conversation::{Calls, Conversation, workspace};

/// The scene with files that cannot be edited.
const ODD: &str = "files that are not edited";

fn write_odd_files(dir: &Path) {
    std::fs::write(dir.join("latin.txt"), [b'a', 233, b'\n']).expect("a file");
    std::fs::write(dir.join("words.txt"), "a".repeat(20_000)).expect("a file");
    std::fs::File::create(dir.join("large.txt")).and_then(|file| file.set_len((16 << 20) + 1)).expect("a file");
    let pipe = std::process::Command::new("mkfifo").arg(dir.join("pipe")).status();
    assert!(pipe.expect("mkfifo").success());
}

fn each(tool: &'static str, args: impl IntoIterator<Item = Value>) -> Calls {
    args.into_iter().map(|args| (tool, args)).collect()
}

#[test]
fn texts_of_workspace_tools_match_their_snapshot() {
    let mut out = String::new();
    for tool in Registry::workspace_tools(None) {
        let spec = tool.spec();
        let schema = serde_json::to_string_pretty(&*spec.schema).expect("JSON");
        out.push_str(&format!("\n# {}\n\n{}\n\n{schema}\n", spec.name, spec.description));
    }
    let scenes: [(&str, Calls); 6] = [
        (
            "list",
            each("list", [json!({}), json!({"path": "gone"}), json!({"path": "README.md"}), json!({"path": ".."})]),
        ),
        (
            "read",
            each(
                "read",
                [
                    json!({"path": "README.md"}),
                    json!({"path": "gone.md"}),
                    json!({"path": "src"}),
                    json!({"path": "/etc/passwd"}),
                    json!({"path": "../x"}),
                    json!({"path": "bytes.bin"}),
                    json!({"path": "src/lib.rs", "offset": 9}),
                    json!({"path": "src/lib.rs", "from_line": 9}),
                    json!({"path": ""}),
                    json!({"path": "a\u{0}b"}),
                    json!({"path": "a/".repeat(3_000)}),
                    json!({"path": "a/".repeat(257)}),
                    json!({}),
                ],
            ),
        ),
        (
            "search",
            each(
                "search",
                [
                    json!({"pattern": "fn"}),
                    json!({"pattern": "absent"}),
                    json!({"pattern": "("}),
                    json!({"pattern": ""}),
                    json!({"pattern": "fn", "path": "gone"}),
                    json!({"pattern": "fn", "glob": "["}),
                    json!({"pattern": "fn", "glob": ""}),
                    json!({"pattern": "(", "regex": true}),
                    json!({"pattern": "one\ntwo"}),
                    json!({"pattern": "a".repeat(70_000)}),
                ],
            ),
        ),
        (
            "write and edit",
            vec![
                ("write", json!({"path": "new.md", "content": "text\n"})),
                ("write", json!({"path": "src", "content": "text"})),
                ("write", json!({"path": "../x", "content": "text"})),
                ("edit", json!({"path": "new.md", "old": "text", "new": "words"})),
                ("edit", json!({"path": "new.md", "old": "absent", "new": "words"})),
                ("edit", json!({"path": "src/lib.rs", "old": "fn", "new": "pub fn"})),
                ("edit", json!({"path": "gone.md", "old": "a", "new": "b"})),
                ("edit", json!({"path": "new.md", "old": "", "new": "b"})),
                ("edit", json!({"path": "new.md", "old": "words", "new": "words"})),
                ("write", json!({"path": "notes/", "content": "text"})),
                ("write", json!({"path": ".", "content": "text"})),
            ],
        ),
        (
            ODD,
            vec![
                ("read", json!({"path": "pipe"})),
                ("write", json!({"path": "pipe", "content": "text"})),
                ("write", json!({"path": "Subtend.yaml", "content": "text"})),
                ("edit", json!({"path": "bytes.bin", "old": "a", "new": "b"})),
                ("edit", json!({"path": "latin.txt", "old": "a", "new": "b"})),
                ("edit", json!({"path": "large.txt", "old": "a", "new": "b"})),
                ("edit", json!({"path": "words.txt", "old": "a", "new": "b".repeat(1_000), "replace_all": true})),
            ],
        ),
        (
            "shell",
            each(
                "shell",
                [
                    json!({"command": "echo hi"}),
                    json!({"command": "exit 3"}),
                    json!({"command": ""}),
                    json!({"command": "echo a\u{0}b"}),
                ],
            ),
        ),
    ];
    for (what, calls) in scenes {
        let (dir, workspace) = workspace();
        if what == ODD {
            write_odd_files(dir.path());
        }
        let tools = Registry::builder().tools(Registry::workspace_tools(None)).expect("names differ").build();
        let conversation = Conversation::new(None).with(|builder| builder.workspace(workspace).tools(tools));
        let conversation = if what == "shell" { conversation.in_real_time() } else { conversation };
        conversation.write(what, vec![calls], &mut out);
    }
    check("models_workspace_tools", &out);
}

#[test]
fn texts_of_refused_and_failed_calls_match_their_snapshot() {
    let mut out = String::new();
    let broken =
        each("broken", [json!({"how": "fail"}), json!({"how": "panic"}), json!({"how": "hang"}), json!({"how": 7})]);
    Conversation::new(None).write("a tool that fails", vec![broken], &mut out);
    let unknown = vec![("lokup", json!({})), ("task", json!({"prompt": "find"})), ("spawn", json!({"task": "find"}))];
    Conversation::new(None).write("unknown tools", vec![unknown], &mut out);
    let (dir, workspace) = workspace();
    std::os::unix::fs::symlink("src/lib.rs", dir.path().join("link.rs")).expect("a link");
    let tools = Registry::builder().tools(Registry::workspace_tools(None)).expect("names differ").build();
    let rule =
        |action: &str, resource: &str, verdict| Rule { action: action.into(), resource: resource.into(), verdict };
    let rules = vec![
        rule("fs.read", "src/**", Verdict::Deny),
        rule("fs.write", "**", Verdict::Ask),
        rule("shell.run", "rm *", Verdict::Deny),
    ];
    let calls = vec![
        ("read", json!({"path": "src/lib.rs"})),
        ("read", json!({"path": "link.rs"})),
        ("list", json!({"path": "src"})),
        ("write", json!({"path": "a.md", "content": "text"})),
        ("shell", json!({"command": "rm a"})),
    ];
    Conversation::new(None)
        .with(|builder| builder.workspace(workspace).tools(tools).policy(RuleSet { default: Verdict::Allow, rules }))
        .write("permissions", vec![calls], &mut out);
    let (_dir, workspace) = super::conversation::workspace();
    let guard = Guard { program: "/no/guard".into(), args: Vec::new() };
    let tools = Registry::builder().tools(Registry::workspace_tools(Some(guard))).expect("names differ").build();
    Conversation::new(None).with(|builder| builder.workspace(workspace).tools(tools)).in_real_time().write(
        "a guard that is missing",
        vec![each("shell", [json!({"command": "true"})])],
        &mut out,
    );
    check("models_refused_calls", &out);
}
