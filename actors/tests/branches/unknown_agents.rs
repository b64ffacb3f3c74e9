use super::*;

/// Returns the creation record of a branch that continues with the agent recorded in `of_session`.
fn continues(of_session: SessionCreated, made: &SessionCreated, branch: &SessionHandle) -> SessionCreated {
    let (place, inherited, title) = (made.place.clone(), Arc::clone(&made.inherited), None);
    let short = branch.id().short();
    SessionCreated { place, inherited, short, title, inspectable: true, ..of_session }
}

fn next_host(journal: &Journal) -> Builder {
    builder(journal).options(Options { seed: Some(8), ..Options::default() })
}

async fn creation(journal: &Journal, session: &SessionHandle) -> SessionCreated {
    match records(journal, session.id()).await.into_iter().next() {
        Some(Record::SessionCreated(created)) => *created,
        other => panic!("no creation: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn session_of_an_unknown_agent_is_branched_without_permissions() {
    let (memory, offered) = (Memory::new(), Arc::new(Mutex::new(Vec::<Vec<Text>>::new())));
    let offers = Arc::clone(&offered);
    let answering = model(move |request| {
        offers.lock().unwrap().push(request.tools.iter().map(|spec| Arc::clone(&spec.name)).collect());
        async { Ok(text("fine")) }
    });
    let made = |name| tool(name, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("seen")) });
    let needs = |_: Option<&Value>| vec![Access { action: "lookup".into(), resource: ".".into() }];
    let lookup = || tools([made("lookup").access(needs), made("free")]);
    let known = started(builder(&reopen(&memory)).tools(lookup()).model(Arc::clone(&answering))).await;
    let (session, _) = ask(&known, "one").await;
    assert_eq!(known.shutdown(Duration::from_secs(1)).await.actors, 0);
    let journal = reopen(&memory);
    let next = next_host(&journal).catalog(Catalog::builtin()).tools(lookup()).model(answering);
    let runtime = next.start().await.expect("the runtime starts");
    let session = runtime.session(session.id()).expect("readable").expect("the session exists");
    let before: Vec<_> = offered.lock().unwrap().drain(..).collect();
    assert!(before.len() == 1 && before[0].iter().any(|name| &**name == "lookup"), "{before:?}");
    let of_session = creation(&journal, &session).await;
    let branch = session.branch(BranchOptions::default()).await.expect("a branch");
    let made = creation(&journal, &branch).await;
    assert_eq!((made.place.root(branch.id()), made.inherited.len()), (session.id(), 2));
    assert_eq!(made, continues(of_session, &made, &branch), "expected the session's prompt, model and ceiling");
    say(&branch, "two").await;
    let (regenerated, run) = session.regenerate(None).await.expect("an alternative");
    regenerated.run_ended(run).await.expect("the run ends");
    let free: [Text; 1] = ["free".into()];
    assert_eq!(*offered.lock().unwrap(), [&free, &free], "an unknown agent was offered tools");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn override_by_a_removed_agent_continues_in_a_branch() {
    let (memory, seen) = (Memory::new(), RequestTexts::default());
    let guest = Manifest { model: Some("other".into()), ..Manifest::new("guest", AgentMode::All, "You visit.") };
    let known = builder(&reopen(&memory)).catalog(workers_and(guest.clone())).model(echo(&seen));
    let known = known.start().await.expect("the runtime starts");
    let session = open(&known);
    let receipt = session.input("one").agent("guest").send().await.expect("accepted");
    session.run_ended(receipt.run).await.expect("the run ends");
    assert_eq!(known.shutdown(Duration::from_secs(1)).await.actors, 0);
    let journal = reopen(&memory);
    let runtime = next_host(&journal).model(echo(&seen)).start().await.expect("the runtime starts");
    let session = runtime.session(session.id()).expect("readable").expect("the session exists");
    let branch = session.branch(BranchOptions::default()).await.expect("a branch");
    let (of_session, made) = (creation(&journal, &session).await, creation(&journal, &branch).await);
    let (agent, agent_hash, model) = ("guest".into(), guest.hash(), "other".into());
    let recorded = records(&journal, session.id()).await.into_iter().find_map(|record| match record {
        Record::InputAccepted(input) => input.agent_override.clone(),
        _ => None,
    });
    let system = Interned::new(Arc::clone(&recorded.expect("it was named").system)).expect("JSON");
    let expected = SessionCreated { agent, agent_hash, model, system, ..continues(of_session, &made, &branch) };
    assert_eq!(made, expected);
    shut(runtime).await;
}
