//! Agent files, names of agents and profiles, and prompts.

use super::super::page::Page;

#[test]
fn errors_of_agent_files_match_their_snapshot() {
    let mut page = Page::new();
    for (name, text) in [
        ("no_front_matter", "You write.\n"),
        ("open_front_matter", "---\nmode: all\n"),
        ("no_mode", "---\ndescription: Writes.\n---\nYou write.\n"),
        ("no_prompt", "---\nmode: all\n---\n"),
        ("bad_mode", "---\nmode: never\n---\nYou write.\n"),
        ("bad_yaml", "---\nmode: all\nmode: all\n---\nYou write.\n"),
        ("unknown_key", "---\nmode: all\ncolour: blue\n---\nYou write.\n"),
        ("bad_tools", "---\nmode: all\ntools: [raed]\n---\nYou write.\n"),
        ("bad_rule", "---\nmode: all\npermissions:\n  - allow fs.wirte\n---\nYou write.\n"),
        ("bad_turns", "---\nmode: all\nturns: 0\n---\nYou write.\n"),
        ("bad_restart", "---\nmode: all\non_restart: again\n---\nYou write.\n"),
        ("bad_model", "---\nmode: all\nmodel: claude-x\n---\nYou write.\n"),
        ("Bad Name", "---\nmode: all\n---\nYou write.\n"),
        ("title", "---\nmode: all\n---\nYou write.\n"),
        ("explore", "---\nmode: subagent\n---\nYou scan.\n"),
    ] {
        page.user.file(&format!(".subtend/agents/{name}.md"), text);
        page.call(&format!("agents check '.subtend/agents/{name}.md'"));
    }
    page.call("agents check gone.md");
    page.call("agents check .subtend");
    page.call("agents");
    page.call("agents reload root");
    page.check("errors_agent_files");
}

#[test]
fn checks_of_files_for_prompts_match_their_snapshot() {
    let mut page = Page::new();
    for (path, text) in [
        (".claude/commands/fix.md", "---\nallowed-tools: Bash\n---\nFix $ARGUMENTS.\n"),
        (".claude/commands/a b.md", "Fix it.\n"),
        (".claude/skills/pdf/SKILL.md", "---\ndescription: Reads PDF files.\nhooks: {}\n---\nRead it.\n"),
        (".claude/skills/none/SKILL.md", "---\nname: none\n---\n"),
        (".cursorrules", "Be brief.\n"),
        ("AGENTS.md", "Use tabs. @docs/style.md and @docs/gone.md\n"),
        ("CLAUDE.md", "Use spaces.\n"),
        ("docs/style.md", "Short lines. @../../out.md\n"),
        ("empty/AGENTS.md", "\n"),
    ] {
        page.user.file(path, text);
    }
    for line in [
        "agents check .claude",
        "agents check .cursorrules",
        "agents check AGENTS.md CLAUDE.md empty/AGENTS.md",
        "agents check --json AGENTS.md .claude/skills/pdf/SKILL.md .claude/commands/fix.md",
    ] {
        page.call(line);
    }
    page.check("checks_of_files");
}

#[test]
fn errors_of_agent_names_match_their_snapshot() {
    let mut page = Page::new();
    page.user.file(".subtend/agents/poet.md", "---\nmode: all\nmode: all\n---\nYou write.\n");
    page.user.file("subtend.yaml", "tools: {spawn: {enabled: true, profiles: {scout: {agent: nosuch}, fine: {}}}}\n");
    for line in [
        "agents nosuch",
        "agents generl",
        "agents poet",
        "agents prompt nosuch",
        "agents prompt poet",
        "agents prompt general --profile scuot",
        "agents prompt general --profile scout",
        "agents schema spawn_tsk",
        "agents commands reviw",
        "run --agent poet hi",
        "prompt nosuch",
    ] {
        page.call(line);
    }
    page.check("errors_agents");
}
