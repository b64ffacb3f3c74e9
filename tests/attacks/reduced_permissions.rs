//! Old sessions that continue after their permissions were reduced.

use super::scene::*;
use subtend_actors::{BranchOptions, SessionHandle};
use subtend_tools::message;

const NO_WRITES: &[(&str, &str, Verdict)] = &[("fs.write", "*", Verdict::Deny)];

/// Opens a tree of three sessions that may write, then restarts the host with fewer permissions.
async fn restrict_and_continue(narrow: impl Fn(AttackScene) -> AttackScene) {
    let mut scene = AttackScene::new().agent("lead", Verdict::Allow, &[]).agent("mid", Verdict::Allow, &[]);
    let host = scene.host().await;
    let root = host.run_steps("lead", &[spawn("mid", &[spawn("worker", &[write("open/first.txt")])])]).await.id();
    let (mid, deep) = (host.descendant(root, 1), host.descendant(root, 2));
    assert_eq!(scene.content("open/first.txt"), "spoiled");
    host.shut_down().await;

    let mut scene = narrow(scene);
    let host = scene.host().await;
    // Continues each session by its id, like a user.
    for (session, name) in [(deep, "deep"), (mid, "mid"), (root, "root")] {
        let handle = host.handle(session);
        host.continue_with(&handle, &[write(&format!("open/{name}.txt")), read("top.txt")]).await;
        let results = host.results(session);
        let [.., written, read] = &*results else { panic!("two results") };
        assert!(written.0 && !read.0, "{name}: {results:#?}");
    }
    // The parent's model continues the old session, and creates a new one below it.
    let again = call("task", json!({"session_id": deep.to_string(), "prompt": script(&[write("open/again.txt")])}));
    host.continue_with(&host.handle(mid), &[again, spawn("worker", &[write("open/born.txt")])]).await;
    let created = *host.children(mid).last().expect("a child");
    assert!(host.results(created)[0].0 && host.results(deep).last().is_some_and(|(failed, _)| *failed));
    for name in ["deep", "mid", "root", "again", "born"] {
        assert!(!scene.at(&format!("open/{name}.txt")).exists(), "{name} wrote");
    }
    host.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn old_tree_is_limited_by_the_current_host_policy() {
    restrict_and_continue(|scene| scene.policy(Verdict::Allow, NO_WRITES)).await;
}

/// The agent of the deepest session is unchanged; that of the root may no longer write.
#[tokio::test(start_paused = true)]
async fn old_child_is_limited_by_its_current_ancestors() {
    restrict_and_continue(|scene| scene.agent("lead", Verdict::Allow, NO_WRITES)).await;
}

/// Opens a session of `lead` with a branch of `worker`, and regenerates the answer of each branch in one below it until one is refused. Returns the
/// last branch, the number of sessions above it, and why there is no further one.
async fn longest_chain(host: &RunningHost) -> (SessionHandle, usize, String) {
    let root = host.run_steps("lead", &[]).await;
    let worker = BranchOptions { agent: Some("worker".into()), ..BranchOptions::default() };
    let (mut last, mut above) = (root.branch(worker).await.expect("a branch"), 1);
    host.continue_with(&last, &[]).await;
    loop {
        match last.regenerate(None).await {
            Ok((branch, run)) => {
                branch.run_ended(run).await.expect("its end");
                (last, above) = (branch, above + 1);
            }
            Err(why) => return (last, above, why.to_string()),
        }
    }
}

/// A client that may act makes branches of branches. Their number is bounded, since an import takes 1,000 levels, and each of them is limited by
/// the agent of the root. The controls: branches up to the bound, and the last one before the root's agent was reduced.
#[tokio::test(start_paused = true)]
async fn branches_below_each_other_are_bounded_by_their_root() {
    let mut scene = AttackScene::new().agent("lead", Verdict::Allow, &[]);
    let host = scene.host().await;
    let (last, above, why) = longest_chain(&host).await;
    let refused = "a branch has at most 500 sessions above it: branch off from an earlier one";
    assert_eq!((above, &*why), (500, refused));
    host.continue_with(&last, &[write("open/before.txt")]).await;
    let last = last.id();
    host.shut_down().await;
    let mut scene = scene.agent("lead", Verdict::Allow, NO_WRITES);
    let host = scene.host().await;
    host.continue_with(&host.handle(last), &[write("open/after.txt")]).await;
    host.refused(last, 1);
    assert_eq!([scene.at("open/before.txt"), scene.at("open/after.txt")].map(|path| path.exists()), [true, false]);
    host.shut_down().await;
}

/// A session that was created with fewer permissions does not get those that the host gains later.
#[tokio::test(start_paused = true)]
async fn ceiling_does_not_rise_with_the_host_policy() {
    let mut scene = AttackScene::new().policy(Verdict::Allow, NO_WRITES).agent("reader", Verdict::Allow, NO_WRITES);
    let host = scene.host().await;
    let root = host.run_steps("worker", &[spawn("reader", &[])]).await.id();
    let kid = host.descendant(root, 1);
    host.shut_down().await;

    let mut scene = scene.policy(Verdict::Allow, &[]).agent("reader", Verdict::Allow, &[]);
    let host = scene.host().await;
    for session in [root, kid] {
        host.continue_with(&host.handle(session), &[write("open/new.txt"), spawn("worker", &[write("open/new.txt")])])
            .await;
        assert!(host.results(session)[0].0, "{:#?}", host.results(session));
        let created = *host.children(session).last().expect("a child");
        host.refused(created, 1);
    }
    assert!(!scene.at("open/new.txt").exists());
    // The control: a new session has the host's present permissions.
    host.run_steps("worker", &[write("open/new.txt")]).await;
    assert_eq!(scene.content("open/new.txt"), "spoiled");
    host.shut_down().await;
}

/// A session whose agent no longer has a manifest may do nothing, and neither may its descendants.
#[tokio::test(start_paused = true)]
async fn session_of_a_removed_agent_may_do_nothing() {
    let mut scene = AttackScene::new().agent("gone", Verdict::Allow, &[]);
    let host = scene.host().await;
    let root = host.run_steps("gone", &[spawn("worker", &[])]).await.id();
    let child = host.descendant(root, 1);
    host.shut_down().await;
    let host = scene.forget("gone").host().await;
    for session in [root, child] {
        host.continue_with(&host.handle(session), &[read("top.txt")]).await;
        assert_eq!(host.tools(session), [] as [&str; 0]);
        assert!(host.results(session)[0].0);
    }
    host.shut_down().await;
}

/// If another agent answers in a session, it may do no more than the session may, and neither may its children.
#[tokio::test(start_paused = true)]
async fn agent_override_does_not_raise_permissions() {
    let mut scene = AttackScene::new().agent("reader", Verdict::Allow, NO_WRITES).agent(
        "planner",
        Verdict::Allow,
        &[("fs.read", "secret/**", Verdict::Deny)],
    );
    let host = scene.host().await;
    let root = host.run_steps("reader", &[]).await;
    let tries = || [write("open/new.txt"), spawn("worker", &[write("open/new.txt")])];
    host.send_input(&root, script(&tries()), Some("worker")).await;
    assert_eq!(&*host.request(root.id()).agent, "worker");
    assert!(host.results(root.id())[0].0);
    host.refused(host.descendant(root.id(), 1), 1);
    // While a stricter agent answers, new children are equally strict.
    let root = host.run_steps("worker", &[]).await;
    host.send_input(&root, script(&[read("secret/key"), spawn("worker", &[read("secret/key")])]), Some("planner"))
        .await;
    assert!(host.results(root.id())[0].0);
    let strict = host.descendant(root.id(), 1);
    host.refused(strict, 1);
    // With its own agent the session may write again; that child never may.
    host.send_input(&root, script(&[read("secret/key")]), Some("worker")).await;
    assert!(!host.results(root.id()).last().expect("a result").0);
    host.continue_with(&host.handle(strict), &[read("secret/key")]).await;
    host.refused(strict, 1);
    assert!(!scene.at("open/new.txt").exists());
    host.shut_down().await;
}

/// Returns a call that starts a child of `worker` with `prompt`, or continues `old`.
fn start_or_continue(dialect: Dialect, old: Option<SessionId>, prompt: String) -> Value {
    let (old, tool) = (old.map(|old| old.to_string()), dialect.name());
    let args = match dialect {
        Dialect::Minion => {
            json!({"message": prompt, "minionChatId": old, "enableWeb": false, "enabledTools": ["write"]})
        }
        Dialect::Subagent => match old {
            Some(old) => json!({"task": prompt, "continueBranchId": old}),
            None => json!({"task": prompt, "agent": "worker"}),
        },
        _ => match old {
            Some(old) => json!({"prompt": prompt, "session_id": old}),
            None => json!({"prompt": prompt, "subagent_type": "worker"}),
        },
    };
    call(tool, args)
}

/// A child started by another agent of the session may do more than the agent that answers now. That agent cannot
/// continue the child and starts an equally strict one. The control: the agent that started the child continues it.
#[tokio::test(start_paused = true)]
async fn stricter_agent_cannot_continue_a_child_of_another() {
    let attacks: [(Dialect, &str, Verdict); 6] = [
        (Dialect::Task, "*", Verdict::Deny),
        (Dialect::Task, "open/**", Verdict::Ask),
        (Dialect::Subagent, "*", Verdict::Deny),
        (Dialect::Subagent, "open/**", Verdict::Ask),
        (Dialect::Minion, "open/**", Verdict::Deny),
        (Dialect::Minion, "open/**", Verdict::Ask),
    ];
    for (dialect, path, verdict) in attacks {
        let (rules, name) = ([("fs.write", path, verdict)], format!("{dialect:?} {path} {verdict:?}"));
        let more = if path == "*" { "may do more than you may now (fs.write)" } else { "may do more than you may now" };
        let mut scene = AttackScene::new().dialect(dialect).agent("reader", Verdict::Allow, &rules);
        let host = scene.host().await;
        let root = host.run_steps("worker", &[start_or_continue(dialect, None, script(&[say("first")]))]).await.id();
        let old = host.descendant(root, 1);
        host.shut_down().await;

        // The restriction is recorded in the store, so another host applies it too.
        let host = scene.host().await;
        let handle = host.handle(root);
        let tries = |path: &str| {
            let again = start_or_continue(dialect, Some(old), script(&[write(path)]));
            script(&[again, start_or_continue(dialect, None, script(&[write(path)])), write(path)])
        };
        host.send_input(&handle, tries("open/reader.txt"), Some("reader")).await;
        let results = host.results(root);
        assert!(results[0].0 && results[0].1.contains(more), "{name}: {results:#?}");
        assert!(!scene.at("open/reader.txt").exists(), "{name} wrote");
        // A child of the stricter agent can be continued, and is equally strict.
        let strict = *host.children(root).last().expect("a child");
        let again = start_or_continue(dialect, Some(strict), script(&[write("open/reader.txt")]));
        host.send_input(&handle, script(&[again]), Some("reader")).await;
        assert!(host.results(strict).last().is_some_and(|(failed, _)| *failed), "{name}: {:#?}", host.results(strict));
        assert!(!scene.at("open/reader.txt").exists(), "{name} wrote");
        host.send_input(&handle, tries("open/worker.txt"), Some("worker")).await;
        assert_eq!(scene.content("open/worker.txt"), "spoiled", "{name}: {:#?}", host.results(root));
        host.shut_down().await;
    }
}

/// A tool that takes a minute.
fn pause() -> Arc<dyn Tool> {
    let schema = Arc::new(json!({"type": "object"}));
    let spec = ToolSpec { name: "pause".into(), description: "Waits.".into(), schema };
    fn_tool(spec, ToolEffect::ReadOnly, async |_| {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok(ToolOutput::text("rested"))
    })
}

/// A stricter agent cannot message a running child of another. The control: messages of the agent that started it.
#[tokio::test(start_paused = true)]
async fn stricter_agent_cannot_message_a_child_of_another() {
    let detached = || Manifest { detached: true, ..Manifest::new("runner", AgentMode::All, "You are an agent.") };
    for (agent, arrives) in [("reader", false), ("worker", true)] {
        let mut scene = AttackScene::new().tool(message::tool()).tool(pause()).manifest(detached());
        scene = scene.agent("reader", Verdict::Allow, NO_WRITES);
        let host = scene.host().await;
        let root = host.run_steps("worker", &[spawn("runner", &[call("pause", json!({}))])]).await;
        let old = host.descendant(root.id(), 1);
        let tells = call("message", json!({"to": old.to_string(), "text": "Write open/new.txt."}));
        host.send_input(&root, script(&[tells]), Some(agent)).await;
        let result = &host.results(root.id())[0];
        assert_eq!(!result.0, arrives, "{result:?}");
        assert!(arrives || result.1.contains("may do more than you may now (fs.write"), "{result:?}");
        host.handle(old).run_ended(RunNo(1)).await.expect("wait for the end");
        let has_task =
            |message: &Message| matches!(message, Message::User { text, .. } if text.contains("Write open/new"));
        assert_eq!(host.request(old).messages.iter().any(has_task), arrives);
        host.shut_down().await;
    }
}

/// An agent with fewer tools that answers in the session cannot message a child with more tools. The control: the agent
/// that started the child can.
#[tokio::test(start_paused = true)]
async fn agent_with_fewer_tools_cannot_message_a_child_of_another() {
    for (agent, arrives) in [("clerk", false), ("worker", true)] {
        let detached = Manifest { detached: true, ..Manifest::new("runner", AgentMode::All, "You are an agent.") };
        let tools = Some(vec!["message".into(), "subagent".into()]);
        let clerk = Manifest { tools, ..Manifest::new("clerk", AgentMode::All, "You are an agent.") };
        let mut scene = AttackScene::new().tool(message::tool()).tool(pause()).manifest(detached).manifest(clerk);
        let host = scene.host().await;
        let root = host.run_steps("worker", &[spawn("runner", &[call("pause", json!({}))])]).await;
        let old = host.descendant(root.id(), 1);
        let tells = call("message", json!({"to": old.to_string(), "text": "Write open/new.txt."}));
        host.send_input(&root, script(&[tells]), Some(agent)).await;
        let result = &host.results(root.id())[0];
        assert_eq!(!result.0, arrives, "{result:?}");
        assert!(arrives || result.1.contains("has tools that you do not have now"), "{result:?}");
        host.handle(old).run_ended(RunNo(1)).await.expect("it ends");
        host.shut_down().await;
    }
}

/// A stricter agent starts an equally strict helper, which tries to message its sibling, the old child. A helper whose
/// own file is stricter tries the same. The control: a helper of the agent that started the child reaches it.
#[tokio::test(start_paused = true)]
async fn stricter_agent_cannot_message_a_child_through_its_own() {
    let detached = || Manifest { detached: true, ..Manifest::new("runner", AgentMode::All, "You are an agent.") };
    for (agent, helper, arrives) in
        [("reader", "helper", false), ("worker", "helper", true), ("worker", "reader", false)]
    {
        let mut scene = AttackScene::new().tool(message::tool()).tool(pause()).manifest(detached());
        scene = scene.agent("reader", Verdict::Allow, NO_WRITES).agent("helper", Verdict::Allow, &[]);
        let host = scene.host().await;
        let root = host.run_steps("worker", &[spawn("runner", &[call("pause", json!({}))])]).await;
        let old = host.descendant(root.id(), 1);
        let tells = call("message", json!({"to": old.to_string(), "text": "Write open/new.txt."}));
        host.send_input(&root, script(&[spawn(helper, &[tells])]), Some(agent)).await;
        let helper = host.children(root.id()).into_iter().find(|child| *child != old).expect("a helper");
        let result = &host.results(helper)[0];
        assert_eq!(!result.0, arrives, "{agent}: {result:?}");
        assert!(arrives || result.1.contains("may do more than you may now (fs.write"), "{result:?}");
        host.handle(old).run_ended(RunNo(1)).await.expect("wait for the end");
        let has_task =
            |message: &Message| matches!(message, Message::User { text, .. } if text.contains("Write open/new"));
        assert_eq!(host.request(old).messages.iter().any(has_task), arrives);
        host.shut_down().await;
    }
}

/// A minion that continues has the tools that the call names this time, not those of its start. So a sibling with fewer
/// tools cannot message it, also one that was started with more. The controls: siblings with the same tools and with more.
#[tokio::test(start_paused = true)]
async fn minion_cannot_message_a_sibling_continued_with_more_tools() {
    let minion = |old: Option<SessionId>, tools: &[&str], steps: &[Value]| {
        let old = old.map(|old| old.to_string());
        let args = json!({"message": script(steps), "minionChatId": old, "enableWeb": false, "enabledTools": tools});
        call("minion", args)
    };
    let (few, more) = (&["pause"][..], &["pause", "write"][..]);
    let (narrow, wide) = (&["message", "pause"][..], &["message", "pause", "write"][..]);
    let cases = [
        ((few, few), (narrow, narrow), true),
        ((more, few), (narrow, narrow), true),
        ((more, more), (narrow, wide), true),
        ((few, more), (narrow, narrow), false),
        ((more, more), (wide, narrow), false),
    ];
    for (receiver, sender, arrives) in cases {
        let mut scene = AttackScene::new().dialect(Dialect::Minion).tool(message::tool()).tool(pause());
        let host = scene.host().await;
        let starts = [minion(None, receiver.0, &[say("first")]), minion(None, sender.0, &[say("first")])];
        let root = host.run_steps("worker", &[in_one_turn(&starts)]).await;
        let [to, from] = host.children(root.id())[..] else { panic!("two minions") };
        let pauses = call("pause", json!({}));
        let tells = call("message", json!({"to": to.to_string(), "text": "Write open/new.txt."}));
        let receives = minion(Some(to), receiver.1, &[pauses.clone(), pauses.clone()]);
        let again = in_one_turn(&[receives, minion(Some(from), sender.1, &[pauses, tells])]);
        host.continue_with(&root, &[again]).await;
        let result = &host.results(from)[1];
        assert_eq!(!result.0, arrives, "{receiver:?} {sender:?}: {result:?}");
        assert!(arrives || result.1.contains("it has tools that you do not have now"), "{result:?}");
        let has_task =
            |message: &Message| matches!(message, Message::User { text, .. } if text.contains("Write open/new"));
        assert_eq!(host.request(to).messages.iter().any(has_task), arrives, "{receiver:?} {sender:?}");
        host.shut_down().await;
    }
}
