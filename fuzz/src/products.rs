//! Fuzzes agent files of other products.

use std::path::Path;

use subtend_agents::catalog::ProblemKind;
use subtend_agents::lint;
use subtend_agents::product::Product;
use subtend_session::authority::{Access, Authority, Verdict};

use super::InputResult;

/// Reads an agent file of each product: a valid agent without permissions or one error, the same each time.
pub fn any_bytes(bytes: &[u8]) -> InputResult {
    let text = String::from_utf8_lossy(bytes);
    Product::ALL.into_iter().map(|product| check_product(product, &text)).max().unwrap_or(InputResult::Refused)
}

fn check_product(product: Product, text: &str) -> InputResult {
    let path = Path::new("fuzzed");
    let checked = lint::check_foreign_text(path, product, "team/fuzzed", text, &[]);
    assert_eq!(
        checked,
        lint::check_foreign_text(path, product, "team/fuzzed", text, &[]),
        "two reads of one file differ"
    );
    let refusals = checked.problems.iter().filter(|problem| problem.kind == ProblemKind::Refused).count();
    let Some(agent) = checked.agent() else {
        assert_eq!(refusals, 1, "a refused file must have one error");
        return InputResult::Refused;
    };
    assert_eq!(refusals, 0, "an accepted agent has errors");
    assert!(subtend_agents::name::check(&agent.name).is_ok(), "invalid name {:?}", agent.name);
    assert!(!agent.body.trim().is_empty(), "an agent without a prompt");
    assert!(agent.model.is_none() || agent.pool.is_none(), "a model and a pool");
    assert!(agent.turns != Some(0) && agent.settings.output_tokens != Some(0), "a limit of zero");
    assert!(agent.tools.iter().flatten().all(|tool| (1..=64).contains(&tool.len())), "{:?}", agent.tools);
    // If the caller has no permissions, the agent must not have any. An empty list of tools denies every action.
    let (own, none) = (agent.authority(), Authority::deny_all().meet(&agent.authority()));
    for action in ["fs.read", "fs.write", "shell.run", "net.fetch", "task:explore"] {
        let access = Access { action: action.into(), resource: "a".into() };
        assert_eq!(none.verdict(&access), Verdict::Deny, "{action} is permitted by an agent file alone");
        let listed = agent.tools.as_ref().is_some_and(Vec::is_empty) && product == Product::Claude;
        assert!(!listed || own.verdict(&access) == Verdict::Deny, "{action} is permitted without a tool");
    }
    InputResult::Accepted
}
