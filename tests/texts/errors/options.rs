//! Invalid command lines, with a data directory that has no store.

use super::super::page::{Page, only_these_variables};
use crate::cli::call::no_forks;

#[test]
fn errors_of_arguments_match_their_snapshot() {
    let mut page = Page::new();
    page.heading("Arguments");
    for line in [
        "",
        "juggle",
        "run",
        "run --modle offline hi",
        "run ''",
        "run --detach --store memory hi",
        "attach",
        "chat --here",
        "chat nosuch",
        "metadata nosuch ticket",
        "sessions --limit 0",
        "tasks --status odd",
        "completions tcsh",
        "agents schema spwan",
        "config schema all",
        "switch nosuch:1 next",
        "branch nosuch:0",
        "branch nosuch --title ''",
        "serve --node n1",
        "serve --node .n",
        "serve --shards 4",
        "serve --node n1 --advertise 10.0.0.1",
    ] {
        page.call(line);
    }
    page.heading("Prompts");
    page.call_with("run -", "\n");
    page.call_with("run -", &"a".repeat((1 << 20) + 1));
    let mut command = page.user.command(&["run", "-"]);
    only_these_variables(&mut command);
    let forking = no_forks();
    let done = command.stdin(std::fs::File::open("/").expect("a directory")).output().expect("the command runs");
    drop(forking);
    page.note(
        "run - < /",
        &format!("exit {}", done.status.code().unwrap_or(-1)),
        &String::from_utf8_lossy(&done.stderr),
    );
    page.heading("Workspaces");
    page.user.file("file.txt", "text");
    page.call("run --workspace gone hi");
    page.call("run --workspace file.txt hi");
    page.call("sessions --workspace gone");
    page.heading("Agents");
    page.call("run --agent generl hi");
    page.call("run --agent explore hi");
    page.heading("Output");
    page.call("serve --raw");
    page.call("serve --store memory");
    page.call("serve --listen nowhere");
    page.call("token create key --store memory");
    page.check("errors_arguments");
}

#[test]
fn errors_of_permissions_match_their_snapshot() {
    let mut page = Page::new();
    std::fs::create_dir(page.user.workspace().join("docs")).expect("a folder");
    for rule in [
        "fs.write=",
        "fs.wirte=a.txt",
        "task:",
        "task:explor",
        "fs.write=docs",
        "fs.write=./docs/**",
        "fs.write=../a",
        "fs.write=/etc/passwd",
        "fs.write=a[",
        "fs.read",
        "net.fetch=https://example.org",
        "net.fetch=example.org",
        "net.fetch=https://*.example.org/*",
        "net.serch=x",
        "mcp:server",
        "tool:digest",
        "shell.run=ls",
        "plan.exit",
        "*",
        "",
    ] {
        page.call(&format!("run --allow '{rule}' --model offline --store memory --quiet hi"));
    }
    page.call("run --ask task: --model offline hi");
    page.call("import --allow fs.wirte subtend.jsonl");
    page.user.file("export.jsonl", "text");
    page.call("import --allow fs.wirte export.jsonl");
    page.check("errors_permissions");
}

#[test]
fn errors_of_limits_and_prices_match_their_snapshot() {
    let mut page = Page::new();
    for option in [
        "--limit turns",
        "--limit truns=5",
        "--limit turns=many",
        "--limit turns=none",
        "--limit turns=0",
        "--limit turns=99999999999",
        "--limit park=maybe",
        "--limit live_runs=0",
        "--limit live_runs=1000",
        "--limit result_bytes=1",
        "--limit first_byte_ms=0",
        "--host slots=0",
        "--host slts=1",
        "--price gpt",
        "--price gpt=1",
        "--price gpt=-1,2",
        "--price =1,2",
        "--calls 0",
        "--calls-per-minute 0",
        "--limit cost_micro=5 --model openai/gpt --base-url http://127.0.0.1:9",
    ] {
        page.call(&format!("run {option} --store memory hi"));
    }
    page.check("errors_limits");
}

#[test]
fn errors_of_models_match_their_snapshot() {
    let mut page = Page::new();
    for name in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "SUBTEND_MODEL"] {
        page.variable(name, "");
    }
    // A port without a listener; titles are off.
    page.variable("OLLAMA_HOST", "http://127.0.0.1:9");
    page.quiet("config set --user sessions.titles false", "");
    page.user.file("bad.json", "{ \"rules\": [ { \"agent\": \"*\" } ] }");
    page.user.file("text.json", "no script");
    page.user.file("empty.json", "{ \"rules\": [ { \"agent\": \"*\", \"steps\": [] } ] }");
    for model in [
        "sonnet",
        "claude-x",
        "anthropc/claude",
        "openai/",
        "'openai/a b'",
        "''",
        "offline,",
        "offline,offline",
        "pool:smart",
        "scripted:",
        "scripted:gone.json",
        "scripted:bad.json",
        "scripted:text.json",
        "scripted:empty.json",
        "anthropic/claude",
        "openai/gpt",
        "gemini/pro",
        "ollama/small",
    ] {
        page.call(&format!("run --model {model} --store memory --quiet hi"));
    }
    for url in [
        "nowhere",
        "ftp://host",
        "opnai=http://127.0.0.1:9",
        "http://a:b@127.0.0.1",
        "openai=http://127.0.0.1:9 --base-url openai=http://127.0.0.1:10",
        "http://127.0.0.1:9 --base-url http://127.0.0.1:10",
    ] {
        page.call(&format!("run --model openai/gpt --base-url {url} --store memory --quiet hi"));
    }
    page.call("run --model offline --base-url http://127.0.0.1:9 --store memory --quiet hi");
    page.heading("Variables");
    page.variable("OPENAI_API_KEY", "a\nb");
    page.call("run --model openai/gpt --store memory --quiet hi");
    page.variable("SUBTEND_MODEL", "scripted:bad.json");
    page.call("run --store memory --quiet hi");
    page.variable("SUBTEND_MODEL", "sonnet");
    page.call("run --store memory --quiet hi");
    page.variable("OLLAMA_HOST", "not a host");
    page.call("run --model ollama/small --store memory --quiet hi");
    page.check("errors_models");
}
