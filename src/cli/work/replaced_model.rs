//! Lets a model that the command names answer in an existing session while the command runs.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use subtend_actors::prices::Prices;
use subtend_actors::{Hooks, ModelChoice};
use subtend_session::ids::{SessionId, Text};

use super::super::fail::Fail;
use super::choice::ModelSetup;
use super::found_session::FoundSession;

/// Hook that replaces a session's own model, in the session and in its descendants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplacedModel {
    pub(super) session: SessionId,
    pub(super) root: SessionId,
    /// The model that the session was opened with, which its children inherit.
    pub(super) own: Text,
    pub(super) model: Text,
}

impl ReplacedModel {
    fn replacement_model(&self, choice: &ModelChoice) -> Option<Text> {
        let inherits = choice.root == self.root && choice.model == self.own;
        (choice.session == self.session || inherits).then(|| self.model.clone())
    }
}

impl Hooks for ReplacedModel {
    fn resolve_model(&self, choice: ModelChoice) -> BoxFuture<'_, Option<Text>> {
        Box::pin(std::future::ready(self.replacement_model(&choice)))
    }
}

/// Returns the hook that lets the named model answer in an existing session.
pub(super) fn replacing_hook(
    found: &FoundSession,
    model: &Text,
    models: &ModelSetup,
    prices: &Prices,
) -> Result<Arc<dyn Hooks>, Fail> {
    check_price(found, models, prices)?;
    let FoundSession { session, root, creation, .. } = found;
    let own = creation.model.clone();
    Ok(Arc::new(ReplacedModel { session: *session, root: *root, own, model: model.clone() }))
}

/// Refuses a named model without a price for a session with a cost limit.
pub(super) fn check_price(found: &FoundSession, models: &ModelSetup, prices: &Prices) -> Result<(), Fail> {
    if found.limits()?.cost_micro.is_some()
        && let Some(model) = models.first_without_price(prices)
    {
        return Err(Fail::Usage(format!(
            "the session has a cost limit, and the model `{model}` has no price: set one with --price"
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
    fn a6_named_model_replaces_the_recorded_one() {
        let named = ReplacedModel { session: id(2), root: id(1), own: "openai/a".into(), model: "openai/b".into() };
        let answers = |session, root, model: &str| {
            let (agent, model) = ("general".into(), model.into());
            let (run, turn, attempt) = (RunNo(1), TurnNo(1), AttemptNo(1));
            named.replacement_model(&ModelChoice { session, root, agent, run, turn, attempt, model }).as_deref()
                == Some("openai/b")
        };
        assert!(answers(id(2), id(1), "openai/a") && answers(id(2), id(1), "offline"), "the session itself");
        assert!(answers(id(3), id(1), "openai/a"), "a child that inherited the session's model");
        assert!(!answers(id(3), id(1), "ollama/c"), "a child with its own model");
        assert!(!answers(id(4), id(4), "openai/a"), "another tree");
    }
}
