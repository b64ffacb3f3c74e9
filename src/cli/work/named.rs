//! The model that a command names for a session that exists: it answers there while the command runs.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use subtend_actors::prices::Prices;
use subtend_actors::{Hooks, ModelChoice};
use subtend_session::ids::{SessionId, Text};

use super::super::fail::Fail;
use super::choice::ModelSetup;
use super::found_session::FoundSession;

/// Answers in place of a session's own model, there and wherever its tree uses that model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplacedModel {
    pub(super) session: SessionId,
    pub(super) root: SessionId,
    /// The model that the session was opened with: its children that name none have it too.
    pub(super) own: Text,
    pub(super) model: Text,
}

impl ReplacedModel {
    fn of(&self, choice: &ModelChoice) -> Option<Text> {
        let inherits = choice.root == self.root && choice.model == self.own;
        (choice.session == self.session || inherits).then(|| self.model.clone())
    }
}

impl Hooks for ReplacedModel {
    fn resolve_model(&self, choice: ModelChoice) -> BoxFuture<'_, Option<Text>> {
        Box::pin(std::future::ready(self.of(&choice)))
    }
}

/// Returns the hook by which the named model answers for a session that exists.
pub(super) fn answering(
    found: &FoundSession,
    model: &Text,
    models: &ModelSetup,
    prices: &Prices,
) -> Result<Arc<dyn Hooks>, Fail> {
    priced(found, models, prices)?;
    let FoundSession { session, root, birth, .. } = found;
    let own = birth.model.clone();
    Ok(Arc::new(ReplacedModel { session: *session, root: *root, own, model: model.clone() }))
}

/// Refuses a named model without a price for a session whose money is limited.
pub(super) fn priced(found: &FoundSession, models: &ModelSetup, prices: &Prices) -> Result<(), Fail> {
    if found.limits()?.cost_micro.is_some()
        && let Some(model) = models.lacks_price(prices)
    {
        return Err(Fail::Usage(format!(
            "the session's money is limited, and the model `{model}` has no price: give it one with --price"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use subtend_session::ids::{AttemptNo, RunNo, TurnNo};

    use super::*;

    fn id(n: u8) -> SessionId {
        SessionId(format!("0190aaaa-0000-7000-8000-0000000000{n:02}").parse().expect("an id"))
    }

    #[test]
    fn a6_a_named_model_answers_where_the_own_one_would() {
        let named = ReplacedModel { session: id(2), root: id(1), own: "openai/a".into(), model: "openai/b".into() };
        let answers = |session, root, model: &str| {
            let (agent, model) = ("general".into(), model.into());
            let (run, turn, attempt) = (RunNo(1), TurnNo(1), AttemptNo(1));
            named.of(&ModelChoice { session, root, agent, run, turn, attempt, model }).as_deref() == Some("openai/b")
        };
        assert!(answers(id(2), id(1), "openai/a") && answers(id(2), id(1), "offline"), "the session itself");
        assert!(answers(id(3), id(1), "openai/a"), "a child that has the session's model");
        assert!(!answers(id(3), id(1), "ollama/c"), "a child with a model of its own");
        assert!(!answers(id(4), id(4), "openai/a"), "another tree");
    }
}
