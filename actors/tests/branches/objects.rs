use super::*;

/// B1, G4, K8: the branch object has the parent's messages and call, and the states of the `subagent` tool.
#[tokio::test(start_paused = true)]
async fn b1_branch_objects_carry_task_state_and_iterations() {
    let journal = journal();
    let answering = model(|request| async move {
        match (&*prompt(&request), answers(&request)) {
            ("go", 0) => Ok(calls([task("survey", true)])),
            ("survey", 0) => {
                seconds(60).await;
                Ok(text("seen"))
            }
            _ => Ok(text("done")),
        }
    });
    let runtime = builder(&journal).model(answering).start().await.expect("the runtime starts");
    let (session, receipt) = sent(&runtime, "go").await;
    seconds(1).await;
    let fresh = BranchOptions { kind: BranchKind::Subagent, ..BranchOptions::default() };
    let fresh = session.branch(fresh).await.expect("a branch");
    let human = session.branch(BranchOptions::default()).await.expect("a branch");
    let listed = session.branches().await.expect("a list");
    let facts =
        |at: &BranchInfo| (at.task.as_deref().map(str::to_owned), at.inherits_context, at.state(), at.iterations);
    let seen: Vec<_> = listed.iter().map(facts).collect();
    let running = (Some("survey".to_owned()), false, Some("running"), 0);
    assert_eq!(seen, [running, (None, false, None, 0), (None, true, None, 0)]);

    let spawned = &listed[0];
    let message = |seq| MsgRef { session: session.id(), seq };
    let (user, answers) = (points(&journal, &session).await[0], answered(&journal, &session).await);
    let answer = answers[0];
    let places = (spawned.parent, spawned.parent_message, spawned.assistant_message, spawned.call);
    let call = CallId { turn: TurnNo(1), ix: 0 };
    assert_eq!(places, (session.id(), message(user), Some(message(answer)), Some(call)));
    assert_eq!((fresh.as_branch().await.expect("read"), listed[1].id), (Some(listed[1].clone()), fresh.id()));
    assert_eq!(session.as_branch().await.expect("read"), None, "a root is not a branch");

    session.run_ended(receipt.run).await.expect("the run ends");
    let child = runtime.session(spawned.id).expect("readable").expect("it exists");
    child.send("more").await.expect("accepted").answer().await.expect("an answer");
    child.run_ended(RunNo(2)).await.expect("the run ends");
    let later = child.as_branch().await.expect("read").expect("a branch");
    assert_eq!(facts(&later), (Some("survey".to_owned()), false, Some("complete"), 2));
    assert!(later.updated_ms > spawned.updated_ms, "{later:?}");
    assert_eq!(human.as_branch().await.expect("read").expect("a branch").at, Some(answers[1]));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b3_metadata_is_merged_key_by_key_and_durable() {
    use serde_json::json;
    let memory = Memory::new();
    let journal = reopen(&memory);
    let runtime = builder(&journal).model(echo(&RequestTexts::default())).start().await.expect("the runtime starts");
    let session = open(&runtime);
    let attached = BranchOptions { metadata: Some(r#"{"view":"left"}"#.into()), ..BranchOptions::default() };
    say(&session, "one").await;
    let branch = session.branch(attached).await.expect("a branch");
    let before = branch.as_branch().await.expect("read").expect("a branch");
    assert_eq!(session.metadata().await, Ok(serde_json::Map::new()));
    let merged = session.merge_metadata(json!({"ticket": 7, "owner": {"name": "kim"}})).await.expect("merged");
    assert_eq!(json!(merged), json!({"ticket": 7, "owner": {"name": "kim"}}));
    seconds(1).await;
    let merged = branch.merge_metadata(json!({"view": null, "pane": [1]})).await.expect("merged");
    assert_eq!(json!(merged), json!({"pane": [1]}));
    let count = kinds(&journal, branch.id()).await.len();
    assert_eq!(branch.merge_metadata(json!({"view": null})).await.expect("merged"), merged);
    assert_eq!(kinds(&journal, branch.id()).await.len(), count, "a merge without a change wrote a record");
    let refused = branch.merge_metadata(json!(["view"])).await;
    let why = "metadata not merged: the changes are not a JSON object".to_owned();
    assert_eq!(refused, Err(ControlError::Refused(why)));
    let large = branch.merge_metadata(json!({"view": "x".repeat(64 << 10)})).await;
    assert!(matches!(&large, Err(ControlError::Refused(why)) if why.contains("the limit is 65536")), "{large:?}");
    let after = branch.as_branch().await.expect("read").expect("a branch");
    assert_eq!(after.metadata.as_deref(), Some(r#"{"pane":[1]}"#));
    assert!(after.updated_ms > before.updated_ms, "{after:?}");
    let id = session.id();
    shut(runtime).await;

    let runtime = started(builder(&reopen(&memory)).model(echo(&RequestTexts::default()))).await;
    let session = runtime.session(id).expect("readable").expect("it exists");
    assert_eq!(json!(session.metadata().await.expect("read")), json!({"ticket": 7, "owner": {"name": "kim"}}));
    session.delete(false).await.expect("deleted");
    assert_eq!(session.merge_metadata(json!({"ticket": 8})).await, Err(ControlError::Deleted));
    shut(runtime).await;
}

/// Lists contain the metadata of many sessions, also that of an embedder. The control: the largest metadata.
#[tokio::test(start_paused = true)]
async fn metadata_of_an_embedder_beyond_the_limit_is_refused() {
    let runtime = builder(&journal()).model(echo(&RequestTexts::default())).start().await.expect("the runtime starts");
    let session = open(&runtime);
    say(&session, "one").await;
    let send = async |count: usize| {
        let metadata = json!({"a": vec![0; count]});
        let text: Option<Text> = Some(metadata.to_string().into());
        let opening = OpenOptions { metadata: text.clone(), ..OpenOptions::agent("worker") };
        let branch = BranchOptions { metadata: text, ..BranchOptions::default() };
        [
            runtime.open(opening.clone()).map(drop).map_err(|error| error.to_string()),
            runtime.spawn_task(opening, "two").await.map(drop).map_err(|error| error.to_string()),
            session.branch(branch.clone()).await.map(drop).map_err(|error| error.to_string()),
            session.spawn_task(branch, "two").await.map(drop).map_err(|error| error.to_string()),
            session.input("two").metadata(&metadata).send().await.map(drop).map_err(|error| error.to_string()),
            session.merge_metadata(metadata).await.map(drop).map_err(|error| error.to_string()),
        ]
    };
    let refused = |what: &str| Err(format!("{what} has 10001 JSON values and keys, the limit is 10000"));
    let [of_input, of_merge] = ["the metadata of the input", "metadata not merged: the result"].map(refused);
    let of_session = || refused("the metadata");
    let all = [of_session(), of_session(), of_session(), of_session(), of_input, of_merge];
    assert_eq!(send(9_998).await, all);
    assert_eq!(send(9_997).await, [const { Ok(()) }; 6]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b3_unknown_message_is_not_found() {
    let runtime = builder(&journal()).model(echo(&RequestTexts::default())).start().await.expect("the runtime starts");
    let session = open(&runtime);
    say(&session, "one").await;
    let unknown = [
        session.branch(BranchOptions::at(Seq(999))).await.map(drop),
        session.regenerate(Some(Seq(999))).await.map(drop),
        session.switch(Some(Seq(999)), SwitchTo::Next).await.map(drop),
        session.roll_back(Some(RunNo(999))).await.map(drop),
    ];
    for refused in unknown {
        assert!(matches!(&refused, Err(ControlError::NotFound(what)) if what.contains("999")), "{refused:?}");
    }
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b1_task_of_a_branch_is_whole() {
    let long = format!("count the files\nin {}", "every folder, ".repeat(40));
    let long_prompt = long.clone();
    let answering = model(move |request| {
        let first = calls([
            (
                "task",
                json!({"subagent_type": "explore", "description": "Count", "prompt": &long_prompt, "background": true}),
            ),
            ("spawn", json!({"task": &long_prompt, "context": "more"})),
            ("minion", json!({"message": &long_prompt, "enableWeb": false, "enabledTools": []})),
            ("subagent", json!({"task": &long_prompt})),
            ("spawn_task", json!({"type": "explore", "prompt": &long_prompt, "description": "Count"})),
        ]);
        let answer = if &*prompt(&request) == "go" && answers(&request) == 0 { first } else { text("done") };
        async move { Ok(answer) }
    });
    let dialects = Dialects { offered: Dialect::ALL.to_vec(), ..Dialects::default() };
    let runtime = builder(&journal()).dialects(dialects).model(answering).start().await.expect("the runtime starts");
    let (session, _) = ask(&runtime, "go").await;
    let tasks: Vec<_> = session.branches().await.expect("a list").into_iter().map(|branch| branch.task).collect();
    assert_eq!(tasks, vec![Some(long.into()); 5]);
    shut(runtime).await;
}
