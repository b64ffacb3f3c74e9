//! Sessions that use background processes that they did not start, by their handles or by the model that runs them.

use std::time::Duration;

use serde_json::{Value, json};
use subtend_actors::OpenOptions;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::outcome::Outcome;
use subtend_session::record::Record;
use subtend_tools::background;
use subtend_tools::message;

use super::processes::{guard, until};
use super::scene::{AttackScene, RunningHost, call, in_one_turn, say, script, spawn};

/// The command of the owner's process: it copies a line to a file, and waits for another.
const COMMAND: &str = "read line; echo \"$line\" > top.txt; read line";

/// Returns the calls by which a session uses a process.
fn uses(id: &str) -> Vec<Value> {
    let process = |more: Value| {
        let mut args = json!({"session_id": id});
        args.as_object_mut().expect("arguments").extend(more.as_object().cloned().unwrap_or_default());
        call("process", args)
    };
    vec![
        process(json!({"action": "input", "text": "spoiled"})),
        process(json!({"action": "input", "close": true})),
        process(json!({"action": "output"})),
        process(json!({"action": "output", "from": 0, "wait_ms": 100})),
        process(json!({"action": "status"})),
        process(json!({"action": "stop"})),
        call("process", json!({"action": "output"})),
        call("task", json!({"session_id": id, "prompt": COMMAND})),
        call("task", json!({"subagent_type": background::AGENT, "prompt": COMMAND})),
        call("check_task", json!({"taskId": id, "wait": false})),
        call("cancel_task", json!({"taskId": id})),
        call("message", json!({"to": id, "text": "spoiled"})),
    ]
}

/// Waits until the model of a session has received the results of `count` calls, and asserts that each of them failed.
async fn assert_refused(host: &RunningHost, who: &str, session: SessionId, count: usize) {
    assert!(until(|| host.has_request(session) && host.results(session).len() >= count).await, "{who}: no results");
    let results = host.results(session);
    let failed = results.iter().take(count).all(|(failed, text)| *failed && !text.contains("[running"));
    assert!(failed, "{who}: {results:#?}");
}

fn names_of(process: SessionId) -> [String; 3] {
    [process.short().0.to_string(), process.to_string(), format!("task_{process}")]
}

/// Returns whether the process is running, and the numbers of its runs and of its ended runs.
async fn state_of(host: &RunningHost, process: SessionId) -> (bool, usize, usize) {
    let records = host.records(process).await;
    let count = |kind: &str| records.iter().filter(|record| record.kind() == kind).count();
    (count("call_finished") > 0, count("run_opened"), count("run_ended"))
}

async fn started_process(host: &RunningHost, owner: SessionId) -> SessionId {
    assert!(until(|| !host.children(owner).is_empty()).await, "the process did not start");
    let process = host.descendant(owner, 1);
    for _ in 0..600 {
        if state_of(host, process).await.0 {
            return process;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the process does not run");
}

fn starts() -> Value {
    call("shell", json!({"command": COMMAND, "background": true}))
}

/// A child of the owner and an unrelated session use the handle of a process. The control: the owner uses it.
#[tokio::test]
async fn handle_of_a_process_works_in_no_other_session() {
    let mut scene = AttackScene::new().guard(guard()).tool(message::tool());
    let host = scene.host().await;
    let owner = host.runtime.open("worker").expect("a session");
    owner.send(script(&[starts(), say("started")])).await.expect("accepted");
    let process = started_process(&host, owner.id()).await;
    let ids = names_of(process);
    let attacks: [Vec<Value>; 3] = ids.each_ref().map(|id| uses(id));
    let tries = attacks.concat();
    let all = in_one_turn(&tries);
    owner.send(script(&[spawn("worker", std::slice::from_ref(&all)), say("done")])).await.expect("accepted");
    assert!(until(|| host.children(owner.id()).len() == 2).await, "no child");
    assert_refused(&host, "child", host.children(owner.id())[1], tries.len()).await;
    let stranger = host.run_steps("worker", &[all]).await;
    assert_refused(&host, "stranger", stranger.id(), tries.len()).await;
    assert_eq!((state_of(&host, process).await, scene.content("top.txt")), ((true, 1, 0), "plain".into()));
    // The control.
    let act = |action: &str| call("process", json!({"action": action, "session_id": ids[0]}));
    let types = call("process", json!({"action": "input", "session_id": ids[0], "text": "typed"}));
    owner.send(script(&[types, act("status"), act("output"), say("typed")])).await.expect("accepted");
    assert!(until(|| scene.content("top.txt") == "typed\n").await, "the owner cannot type into it");
    assert!(until(|| host.results(owner.id()).len() == 3).await, "no results");
    let results = host.results(owner.id());
    assert!(results.iter().all(|(failed, _)| !failed), "{results:#?}");
    owner.send(script(&[act("stop"), say("stopped")])).await.expect("accepted");
    let ended = tokio::time::timeout(Duration::from_secs(60), owner.run_ended(RunNo(1))).await;
    ended.expect("the run ends").expect("the host lives");
    assert_eq!(state_of(&host, process).await, (true, 1, 1));
    host.shut_down().await;
}

/// Parent and sibling of the owner use the handle of a process. The control: the parent cancels the owner, ending it.
#[tokio::test]
async fn process_handle_is_refused_to_parent_and_sibling() {
    let mut scene = AttackScene::new().guard(guard()).tool(message::tool());
    let host = scene.host().await;
    let parent = host.runtime.open("worker").expect("a session");
    let prompt = script(&[starts(), say("started")]);
    let owner = json!({"subagent_type": "worker", "prompt": prompt, "background": true});
    parent.send(script(&[call("task", owner), say("started")])).await.expect("accepted");
    assert!(until(|| !host.children(parent.id()).is_empty()).await, "no owner");
    let owner = host.descendant(parent.id(), 1);
    let process = started_process(&host, owner).await;
    let attacks: [Vec<Value>; 3] = names_of(process).each_ref().map(|id| uses(id));
    let tries = attacks.concat();
    let all = in_one_turn(&tries);
    parent.send(script(&[all.clone(), spawn("worker", &[all]), say("done")])).await.expect("accepted");
    assert_refused(&host, "parent", parent.id(), tries.len()).await;
    assert!(until(|| host.children(parent.id()).len() == 2).await, "no sibling");
    assert_refused(&host, "sibling", host.children(parent.id())[1], tries.len()).await;
    assert_eq!((state_of(&host, process).await, scene.content("top.txt")), ((true, 1, 0), "plain".into()));
    let ends = call("cancel_task", json!({"taskId": owner.to_string()}));
    parent.send(script(&[ends, say("done")])).await.expect("accepted");
    let ended = tokio::time::timeout(Duration::from_secs(60), parent.run_ended(RunNo(1))).await;
    ended.expect("the run ends").expect("the host lives");
    assert_eq!(state_of(&host, process).await, (true, 1, 1));
    host.shut_down().await;
}

/// A session that names the model of processes would run its input as a command. The control: a background process.
#[tokio::test]
async fn model_of_processes_answers_in_no_other_session() {
    const COPY: &str = "echo spoiled > top.txt";
    let runner = Manifest {
        model: Some(background::AGENT.into()),
        ..Manifest::new("runner", AgentMode::All, "You are an agent.")
    };
    let mut scene = AttackScene::new().guard(guard()).manifest(runner);
    let host = scene.host().await;
    let model = Some(background::AGENT.into());
    let options = OpenOptions { model, ..OpenOptions::agent("worker") };
    let ended = async |options: OpenOptions| {
        let session = host.runtime.open(options).expect("a session");
        let receipt = session.send(COPY).await.expect("accepted");
        (session.id(), session.run_ended(receipt.run).await.expect("the run ends").outcome)
    };
    let attacks: [OpenOptions; 2] = [options, OpenOptions::agent("runner")];
    for attack in attacks {
        let (session, outcome) = ended(attack).await;
        assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
        assert!(!host.records(session).await.iter().any(|record| matches!(record, Record::ChildSpawned(_))));
    }
    let child = call("task", json!({"subagent_type": "runner", "prompt": COPY}));
    let caller = host.run_steps("worker", &[child]).await;
    let results = host.results(caller.id());
    assert!(results[0].1.contains("answers in no other session"), "{results:#?}");
    assert!(host.runtime.open(background::AGENT).is_err(), "its agent is for processes alone");
    assert_eq!(scene.content("top.txt"), "plain");
    // The control.
    let start = call("shell", json!({"command": COPY, "background": true}));
    host.run_steps("worker", &[start]).await;
    assert_eq!(scene.content("top.txt"), "spoiled\n");
    host.shut_down().await;
}
