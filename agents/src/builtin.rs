//! The agents that are there without any file.

use subtend_session::authority::{Rule, RuleSet, Verdict};

use crate::manifest::{AgentMode, Manifest, Source};

/// All built-in agents.
pub(crate) fn all() -> Vec<Manifest> {
    vec![general(), explore()]
}

/// The agent for everything: narrows nothing, and may be picked and spawned alike.
fn general() -> Manifest {
    Manifest {
        description: "General agent: answers questions and carries out tasks of several steps, \
                      with all tools that its caller may use. Use it when no narrower agent fits."
            .into(),
        source: Source::Builtin,
        ..Manifest::new("general", AgentMode::All, include_str!("builtin/general.md"))
    }
}

/// The reader: finds things in the workspace and changes nothing.
fn explore() -> Manifest {
    let read = Rule { action: "fs.read".into(), resource: "*".into(), verdict: Verdict::Allow };
    Manifest {
        description: "Reads the workspace and reports: where something is, how parts fit together, what a word means \
                      here. Lists, searches and reads, and changes nothing. Give it one area or one question."
            .into(),
        rules: Some(RuleSet { default: Verdict::Deny, rules: vec![read] }),
        turns: Some(30),
        source: Source::Builtin,
        ..Manifest::new("explore", AgentMode::Subagent, include_str!("builtin/explore.md"))
    }
}
