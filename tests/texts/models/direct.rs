//! Errors that no scripted conversation can cause. Their functions are called directly.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use subtend::agents::Dialect;
use subtend::session::{Authority, Rule, RuleSet, Verdict};
use subtend::tools::Registry;
use subtend_tools::commands::Commands;
use subtend_tools::dialect::{Offered, discovery, minion};
use subtend_tools::option;
use subtend_tools::plan_exit;
use subtend_tools::policy::HostPolicy;

use super::super::page::check;

fn protected(path: &str) -> String {
    let denied = HostPolicy::denied_host_paths(Path::new("/no/data/work"), &[PathBuf::from(path)]);
    denied.expect_err("refused").to_string()
}

#[test]
fn texts_of_direct_errors_match_their_snapshot() {
    let used = |args: &str| discovery::parse_use(args).expect_err("refused").message;
    let alone = Offered { dialects: vec![Dialect::Task], ..Offered::default() };
    let unknown = alone.read("task", r#"{"subagent_type": "worker", "prompt": "find"}"#);
    let map = |given: Value| given.as_object().cloned().expect("an object");
    let required = option::check(&minion::options(), &map(json!({"systemPrompt": ""})));
    let unknown_option = option::check_given(&minion::options(), &map(json!({"modle": "m"})));
    let registry = Registry::builder().tools(Registry::workspace_tools(None)).expect("names differ").build();
    let shell = registry.get("shell").expect("a tool");
    let offline = Authority::of(RuleSet {
        default: Verdict::Allow,
        rules: vec![Rule { action: "net.fetch".into(), resource: "*".into(), verdict: Verdict::Deny }],
    });
    let unconfined = registry.check(shell.as_ref(), &json!({"command": "ls"}), &offline, &|_| false);
    let variables = Commands { environment: vec!["A=b".into()], ..Commands::default() };
    let mut out = String::new();
    for (what, error) in [
        ("use_tool without a tool", used(r#"{"tool": "", "args": {}}"#)),
        ("use_tool of a tool that starts runs", used(r#"{"tool": "task", "args": {}}"#)),
        ("plan_exit without a plan", plan_exit::parse(r#"{"plan": " "}"#).expect_err("refused").message),
        ("task without agents", unknown.expect("offered").expect_err("refused").message),
        ("a required option", required.expect_err("refused").to_string()),
        ("an unknown option", unknown_option.expect_err("refused").to_string()),
        ("a limited command without a sandbox", unconfined.expect_err("refused").message),
        ("a variable of commands", variables.check().expect_err("refused").to_string()),
        ("a workspace in a denied path", protected("/no/data")),
        ("a denied path that no rule can name", protected("/no/data/work/a*b")),
    ] {
        writeln!(out, "\n# {what}\n\n{error}").expect("text");
    }
    check("models_direct_errors", &out);
}
