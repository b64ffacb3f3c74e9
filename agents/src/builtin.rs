use subtend_session::authority::{Rule, RuleSet, Verdict};
use subtend_session::settings::{Effort, Settings};

use crate::manifest::{AgentMode, Manifest, Source};

const CHEAP: &str = "cheap";

pub(crate) fn all() -> Vec<Manifest> {
    vec![general(), plan(), build(), explore(), research(), title(), summary(), compaction()]
}

fn general() -> Manifest {
    let about = "General agent: answers questions and carries out tasks of several steps, with all tools that its caller may \
                 use. Use it when no narrower agent fits.";
    Manifest { description: about.into(), ..builtin("general", AgentMode::All, include_str!("builtin/general.md")) }
}

fn plan() -> Manifest {
    let about = "Plans a change without making it: reads the affected code and returns ordered steps with concrete file \
                 paths, risks and checks. Give it the goal and what is already decided.";
    Manifest {
        description: about.into(),
        rules: Some(allow_only(&["fs.read", "net.*", "task:explore", "task:research"])),
        turns: Some(50),
        plan_exit: true,
        ..builtin("plan", AgentMode::All, include_str!("builtin/plan.md"))
    }
}

fn build() -> Manifest {
    let about = "Makes changes: edits files, runs checks, and reports what was done. It may do only what you allow.";
    Manifest { description: about.into(), ..builtin("build", AgentMode::Primary, include_str!("builtin/build.md")) }
}

fn explore() -> Manifest {
    let about = "Reads the workspace and reports: where something is, how parts fit together, what a word means here. Lists, \
                 searches and reads, and changes nothing. Give it one area or one question.";
    // The cap also covers the reasoning tokens of the model.
    let settings = Settings { output_tokens: Some(8_000), temperature: Some(0.2), ..Settings::default() };
    Manifest {
        description: about.into(),
        pool: Some(CHEAP.into()),
        settings,
        rules: Some(allow_only(&["fs.read"])),
        turns: Some(30),
        ..builtin("explore", AgentMode::Subagent, include_str!("builtin/explore.md"))
    }
}

fn research() -> Manifest {
    let about = "Researches on the web and in the workspace: documentation, interfaces, known problems, practice. Reports \
                 with sources, and changes nothing. Give it the question and the versions that matter.";
    Manifest {
        description: about.into(),
        rules: Some(allow_only(&["fs.read", "net.*"])),
        turns: Some(40),
        ..builtin("research", AgentMode::Subagent, include_str!("builtin/research.md"))
    }
}

fn title() -> Manifest {
    let settings =
        Settings { output_tokens: Some(80), temperature: Some(0.3), top_p: None, effort: Some(Effort::None) };
    service("title", "Names a session by its first message.", settings, include_str!("builtin/title.md"))
}

fn summary() -> Manifest {
    let settings =
        Settings { output_tokens: Some(1_200), temperature: Some(0.2), top_p: None, effort: Some(Effort::Low) };
    let about = "Sums up what was done in a session.";
    // Uses the session's own model: the summary reads the whole conversation, which must not go to another provider.
    Manifest { pool: None, ..service("summary", about, settings, include_str!("builtin/summary.md")) }
}

fn compaction() -> Manifest {
    let settings =
        Settings { output_tokens: Some(4_000), temperature: Some(0.1), top_p: None, effort: Some(Effort::Low) };
    let about = "Condenses the old part of a long session, so that it can continue.";
    service("compaction", about, settings, include_str!("builtin/compaction.md"))
}

/// Returns an agent that only the host starts. Its second turn completes a truncated answer.
fn service(name: &str, about: &str, settings: Settings, body: &str) -> Manifest {
    Manifest {
        description: about.into(),
        pool: Some(CHEAP.into()),
        settings,
        tools: Some(Vec::new()),
        rules: Some(allow_only(&[])),
        turns: Some(2),
        hidden: true,
        instructions: false,
        ..builtin(name, AgentMode::Subagent, body)
    }
}

fn builtin(name: &str, mode: AgentMode, body: &str) -> Manifest {
    Manifest { source: Source::Builtin, ..Manifest::new(name, mode, body) }
}

fn allow_only(actions: &[&str]) -> RuleSet {
    let allow = |action: &&str| Rule { action: (*action).into(), resource: "*".into(), verdict: Verdict::Allow };
    RuleSet { default: Verdict::Deny, rules: actions.iter().map(allow).collect() }
}
