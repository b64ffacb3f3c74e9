//! Texts for models: tools with their schemas, prompts, results, errors and notices.

mod conversation;
mod dialects;
mod direct;
mod ends;
mod withheld;
mod workspace;

use super::page::Page;

/// Profiles and templates that the dialects name.
const CONFIGURATION: &str = "\
tools:
  spawn:
    enabled: true
    profiles:
      scout: {description: Finds places in the code., agent: explore, tools: [read, search]}
      poet: {system_prompt: You write in verse., bootstrap_files: [GUIDE.md]}
  minion:
    enabled: true
    options: {model: offline}
    templates:
      review: {description: Reviews one file., message: 'Review {path}.', systemPrompt: You review., enabledTools: [read]}
";

#[test]
fn tools_of_dialects_match_their_snapshot() {
    let mut page = Page::new();
    page.user.file("subtend.yaml", CONFIGURATION);
    for dialect in ["task", "spawn", "spawn_task", "minion", "subagent"] {
        page.prints(&format!("agents schema {dialect}"));
    }
    page.check("models_tools_of_dialects");
}

/// The system prompt of each agent and profile; the prompt of `poet` includes the workspace's guide file.
#[test]
fn prompts_of_agents_match_their_snapshot() {
    let mut page = Page::new();
    page.user.file("subtend.yaml", CONFIGURATION);
    page.user.file("GUIDE.md", "Names are short.\n");
    for agent in ["general", "plan", "build", "explore", "research", "title", "summary", "compaction"] {
        page.prints(&format!("agents prompt {agent}"));
    }
    for profile in ["scout", "poet"] {
        page.prints(&format!("agents prompt general --profile {profile}"));
    }
    page.check("models_prompts");
}
