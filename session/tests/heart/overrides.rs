//! Agent overrides: another agent answers from the input on that selects it.

use std::sync::Arc;

use subtend_session::command::Command;
use subtend_session::context::context;
use subtend_session::ids::Hash;
use subtend_session::outcome::ModelFail;
use subtend_session::record::{AgentOverride, InputAccepted, Lane};

use crate::given::*;

#[test]
fn override_applies_from_its_input_on() {
    let plan = Arc::new(AgentOverride {
        agent: "plan".into(),
        agent_hash: Hash::of(b"plan"),
        model: "thinker".into(),
        system: "You plan.".into(),
    });
    let named = |n, agent: Option<&Arc<AgentOverride>>| {
        Command::Submit(Box::new(InputAccepted { agent_override: agent.cloned(), ..input(n, "go", Lane::Send) }))
    };
    let given = |heart: &Heart| {
        let context = context(&heart.state);
        (context.system.to_string(), context.model.to_string())
    };
    let own = || ("You work.".to_owned(), "scripted".to_owned());
    let other = || ("You plan.".to_owned(), "thinker".to_owned());
    let heart = Heart::root().then(send(1, "go"));
    assert_eq!(given(&heart), own());
    let heart = heart.then(named(2, Some(&plan)));
    assert_eq!(given(&heart), own(), "the input waits for the rest point");
    let heart = heart.then(answers(1, "done"));
    assert_eq!(given(&heart), other());
    let heart = heart.then(answers(2, "planned")).then(send(3, "go")).refolded();
    assert_eq!(given(&heart), other(), "the override stays in effect");
    assert_eq!((heart.state.created.agent.as_ref(), heart.state.ceiling.clone()), ("general", authority()));
    let work = AgentOverride {
        agent: "general".into(),
        model: "scripted".into(),
        system: "You work.".into(),
        ..(*plan).clone()
    };
    let heart = heart.then(answers(3, "done")).then(named(4, Some(&Arc::new(work))));
    assert_eq!(given(&heart), own());
    let failed = heart.then(named(5, Some(&plan))).then(attempt_failed(4, 1, ModelFail::Rate));
    assert_eq!(given(&failed), own(), "a turn keeps its model and its agent");
}
