//! Agent overrides: an input selects another agent, which answers from then on.

use crate::given::*;

#[test]
fn override_applies_from_its_input_on() {
    let plan = Arc::new(AgentOverride {
        agent: "plan".into(),
        agent_hash: Hash::of(b"plan"),
        model: "thinker".into(),
        system: "You plan.".into(),
        turns: None,
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

#[test]
fn run_of_an_override_has_the_turns_of_its_agent() {
    let agent = |name: &str, turns| {
        Arc::new(AgentOverride {
            agent: name.into(),
            agent_hash: Hash::of(name.as_bytes()),
            model: "scripted".into(),
            system: "You work.".into(),
            turns,
        })
    };
    let named = |n, agent: &Arc<AgentOverride>| {
        let agent_override = Some(Arc::clone(agent));
        Command::Submit(Box::new(InputAccepted { agent_override, ..input(n, "go", Lane::Send) }))
    };
    let allowed = |heart: &Heart| heart.state.run.as_ref().map(|run| (run.opened.max_turns, run.allowance));
    let own = Heart::root().state.limits.turns;
    let short = agent("short", Some(2));
    let heart = Heart::root().then(named(1, &short)).refolded();
    assert_eq!(allowed(&heart), Some((2, 2)));
    // The allowance applies until another agent is selected.
    let heart = heart.then(answers(1, "done")).then(send(2, "go"));
    assert_eq!(allowed(&heart), Some((2, 2)));
    let heart = heart.then(answers(2, "done")).then(named(3, &agent("general", Some(own)))).refolded();
    assert_eq!(allowed(&heart), Some((own, own)));
    // An input that a run takes sets the allowance for the rest of that run.
    let heart = heart.then(named(4, &short)).then(answers(3, "done")).refolded();
    assert_eq!(allowed(&heart), Some((own, 2)));
    // The allowance of an override never exceeds the session's limit.
    let long = Heart::root().then(named(1, &agent("long", Some(own + 1)))).then(answers(1, "done")).then(send(2, "go"));
    assert_eq!(allowed(&long), Some((own, own)));
    // An override recorded by an earlier version has no allowance, so the session's own applies.
    assert_eq!(allowed(&Heart::root().then(named(1, &agent("old", None)))), Some((own, own)));
}
