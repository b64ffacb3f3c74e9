//! `subtend.yaml`, variables and `config set`.

use super::super::page::Page;

#[test]
fn errors_of_configuration_keys_match_their_snapshot() {
    let mut page = Page::new();
    page.heading("Keys that are shown");
    for key in ["limits.truns", "limts", "limits.turns.more", "limits..turns", "'\"limits'", "''"] {
        page.call(&format!("config show {key}"));
    }
    page.heading("Keys that are set");
    for pair in [
        "limits.truns 9",
        "limits.turns many",
        "limits.turns -3",
        "limits 5",
        "llm.default_pool smart",
        "llm.model scripted:a.json",
        "llm.pools.Cheap [offline]",
        "llm.pools.cheap []",
        "llm.pools.cheap '[offline, offline]'",
        "tools.options.digest '{images: true}'",
        "tools.options.digest.images true",
        "tools.options.minion.model offline",
        "tools.minion.enabled true",
        "tools.minion.options.model ''",
        "tools.minion.options.modle offline",
        "shell.environment [PATH]",
        "prices.small '{input: 1, output: 2}'",
        "limits.turns '[1'",
    ] {
        page.call(&format!("config set {pair}"));
        drop(std::fs::remove_file(page.user.workspace().join("subtend.yaml")));
    }
    page.heading("Files that are edited");
    for (file, pair) in [
        ("limits: {turns: 5}\n", "limits.spawns 9"),
        ("a: [\n", "limits.spawns 9"),
        ("limits: &a\n  turns: 5\nother: *a\n", "limits.turns 9"),
        ("llm:\n  model: offline\n", "llm.default_pool cheap"),
        ("tools:\n  minion:\n    enabled: true\n    options:\n      model: offline\n", "tools.minion.options.model ''"),
        ("tools:\n  minion:\n    enabled: true\n    options:\n      model: offline\n", "tools.minion.options '{}'"),
    ] {
        page.user.file("subtend.yaml", file);
        page.call(&format!("config set {pair}"));
    }
    page.check("errors_configuration_keys");
}

#[test]
fn errors_of_configuration_files_match_their_snapshot() {
    let mut page = Page::new();
    for text in [
        "limits: {turns: 0}",
        "limits: 5",
        "a: [",
        "agent: plan\nagent: build\n",
        "---\nagent: plan\n---\nagent: build\n",
        "lmits: {}",
        "permissions: {}",
        "llm: {model: offline, default_pool: a, pools: {a: [offline]}}",
        "llm: {default_pool: a}",
        "llm: {model: sonnet}",
        "llm: {pools: {a: [sonnet]}}",
        "agent: nosuch",
        "prices: {small: {input: -1, output: 1}}",
        "shell: {environment: [PATH=x]}",
        "tools: {options: {digest: {images: true}}}",
        "tools: {minion: {enabled: true, options: {model: ''}}}",
        "tools: {minion: {templates: {a: {message: 'Review {path'}}}}",
        "tools: {minion: {templates: {a: {message: 'Review.', enabledTools: [raed]}}}}",
        "tools: {spawn: {enabled: true, profiles: {r: {system_prompt_file: GONE.md}}}}",
        "tools: {spawn: {enabled: true, profiles: {r: {agent: nosuch}}}}",
        "tools: {spawn: {enabled: true, profiles: {r: {tools: [raed]}}}}",
        "tools: {spawn: {enabled: true, profiles: {r: {pool: smart}}}}",
        "host: {slots: 0}",
    ] {
        page.user.file("subtend.yaml", text);
        page.note(&format!("run hi   # subtend.yaml: {}", text.replace('\n', " / ")), "file", "");
        page.call("run --model offline --store memory --quiet hi");
        page.call("agents");
    }
    page.user.file("subtend.yaml", &format!("# {}\n", "x".repeat(1 << 20)));
    page.call("config show agent");
    page.user.file("subtend.yaml", "");
    page.heading("Variables");
    for (name, value) in [("SUBTEND_TIMEOUT_MS", "soon"), ("SUBTEND_MAX_CONCURENT", "3"), ("SUBTEND_ENABLED", "maybe")]
    {
        page.variable(name, value);
        page.note("config show agent", &format!("{name}={value}"), "");
        page.call("config show agent");
        page.variable(name, "");
    }
    page.heading("Links");
    std::fs::remove_file(page.user.workspace().join("subtend.yaml")).expect("removed");
    std::os::unix::fs::symlink("../secret.md", page.user.workspace().join("subtend.yaml")).expect("a link");
    page.call("config show agent");
    page.call("config set agent plan");
    page.check("errors_configuration_files");
}
