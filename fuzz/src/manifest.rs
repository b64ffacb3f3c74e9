//! Fuzzes agent files.

use std::path::Path;

use subtend_agents::catalog::ProblemKind;
use subtend_agents::lint;
use subtend_session::authority::{Access, Authority, Verdict};

use super::InputResult;

/// Checks that an agent file gives a valid agent or an error, and the same result each time.
pub fn any_bytes(bytes: &[u8]) -> InputResult {
    let text = String::from_utf8_lossy(bytes);
    let path = Path::new("fuzzed.md");
    let checked = lint::check_text(path, &text, &[]);
    assert_eq!(checked, lint::check_text(path, &text, &[]), "two reads of one file differ");
    let refusals = checked.problems.iter().filter(|problem| problem.kind == ProblemKind::Refused);
    let refusals: Vec<&str> = refusals.map(|problem| problem.message.as_str()).collect();
    let Some(agent) = checked.agent() else {
        assert!(
            matches!(refusals[..], [why] if !why.trim().is_empty()),
            "a refused file must have one error: {refusals:?}"
        );
        return InputResult::Refused;
    };
    assert!(refusals.is_empty(), "an accepted agent has errors: {refusals:?}");
    let name = &*agent.name;
    let is_first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    assert!((1..=64).contains(&name.len()) && name.starts_with(is_first), "invalid name {name:?}");
    assert!(name.chars().all(|c| is_first(c) || matches!(c, '_' | '-')), "invalid name {name:?}");
    assert!(!agent.body.trim().is_empty(), "an agent without a prompt");
    assert!(agent.model.is_none() || agent.pool.is_none(), "a model and a pool");
    assert!(agent.turns != Some(0) && agent.settings.output_tokens != Some(0), "a limit of zero");
    assert!(agent.settings.temperature.is_none_or(|t| t.is_finite() && t >= 0.0), "{:?}", agent.settings);
    assert!(agent.settings.top_p.is_none_or(|p| (0.0..=1.0).contains(&p)), "{:?}", agent.settings);
    let tools = agent.tools.iter().flatten();
    assert!(tools.clone().all(|tool| (1..=64).contains(&tool.len())), "{:?}", agent.tools);
    // If the parent has no permissions, the agent must not have any.
    let ceiling = Authority::deny_all().meet(&agent.authority());
    for action in ["fs.read", "fs.write", "shell.run", "task:explore"] {
        let access = Access { action: action.into(), resource: "a".into() };
        assert_eq!(ceiling.verdict(&access), Verdict::Deny, "{action} is permitted by an agent file alone");
    }
    InputResult::Accepted
}
