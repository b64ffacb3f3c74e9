//! Old sessions that continue after their permissions were reduced.

use serde_json::json;
use subtend_session::authority::Verdict;

use super::scene::{AttackScene, call, read, script, spawn, write};

const NO_WRITES: &[(&str, &str, Verdict)] = &[("fs.write", "*", Verdict::Deny)];

/// A tree of three sessions that could write; then the host restarts with fewer permissions.
async fn shrunk(narrow: impl Fn(AttackScene) -> AttackScene) {
    let mut scene = AttackScene::new().agent("lead", Verdict::Allow, &[]).agent("mid", Verdict::Allow, &[]);
    let host = scene.host().await;
    let root = host.plays("lead", &[spawn("mid", &[spawn("worker", &[write("open/first.txt")])])]).await.id();
    let (mid, deep) = (host.below(root, 1), host.below(root, 2));
    assert_eq!(scene.content("open/first.txt"), "spoiled");
    host.down().await;

    let mut scene = narrow(scene);
    let host = scene.host().await;
    // Found by its id, as a person would.
    for (session, name) in [(deep, "deep"), (mid, "mid"), (root, "root")] {
        let handle = host.handle(session);
        host.goes_on(&handle, &[write(&format!("open/{name}.txt")), read("top.txt")]).await;
        let results = host.results(session);
        let [.., written, read] = &*results else { panic!("two results") };
        assert!(written.0 && !read.0, "{name}: {results:#?}");
    }
    // Continued by its parent's model, and created below an old session.
    let again = call("task", json!({"session_id": deep.to_string(), "prompt": script(&[write("open/again.txt")])}));
    host.goes_on(&host.handle(mid), &[again, spawn("worker", &[write("open/born.txt")])]).await;
    let born = *host.kids(mid).last().expect("a child");
    assert!(host.results(born)[0].0 && host.results(deep).last().is_some_and(|(failed, _)| *failed));
    for name in ["deep", "mid", "root", "again", "born"] {
        assert!(!scene.at(&format!("open/{name}.txt")).exists(), "{name} wrote");
    }
    host.down().await;
}

#[tokio::test(start_paused = true)]
async fn an_old_tree_may_do_no_more_than_the_hosts_present_policy() {
    shrunk(|scene| scene.policy(Verdict::Allow, NO_WRITES)).await;
}

/// The agent of the deepest session is unchanged; that of the root may no longer write.
#[tokio::test(start_paused = true)]
async fn an_old_child_may_do_no_more_than_those_above_it_now() {
    shrunk(|scene| scene.agent("lead", Verdict::Allow, NO_WRITES)).await;
}

/// Permissions that the host gains later do not reach a session that was born with fewer.
#[tokio::test(start_paused = true)]
async fn a_ceiling_does_not_rise_with_the_host() {
    let mut scene = AttackScene::new().policy(Verdict::Allow, NO_WRITES).agent("reader", Verdict::Allow, NO_WRITES);
    let host = scene.host().await;
    let root = host.plays("worker", &[spawn("reader", &[])]).await.id();
    let kid = host.below(root, 1);
    host.down().await;

    let mut scene = scene.policy(Verdict::Allow, &[]).agent("reader", Verdict::Allow, &[]);
    let host = scene.host().await;
    for session in [root, kid] {
        host.goes_on(&host.handle(session), &[write("open/new.txt"), spawn("worker", &[write("open/new.txt")])]).await;
        assert!(host.results(session)[0].0, "{:#?}", host.results(session));
        let born = *host.kids(session).last().expect("a child");
        host.refused(born, 1);
    }
    assert!(!scene.at("open/new.txt").exists());
    // Control: a new session has the host's present permissions.
    host.plays("worker", &[write("open/new.txt")]).await;
    assert_eq!(scene.content("open/new.txt"), "spoiled");
    host.down().await;
}

/// An agent whose manifest is gone may do nothing, and neither may its descendants.
#[tokio::test(start_paused = true)]
async fn a_session_of_an_agent_that_is_gone_may_do_nothing() {
    let mut scene = AttackScene::new().agent("gone", Verdict::Allow, &[]);
    let host = scene.host().await;
    let root = host.plays("gone", &[spawn("worker", &[])]).await.id();
    let kid = host.below(root, 1);
    host.down().await;
    let host = scene.forget("gone").host().await;
    for session in [root, kid] {
        host.goes_on(&host.handle(session), &[read("top.txt")]).await;
        assert_eq!(host.tools(session), [] as [&str; 0]);
        assert!(host.results(session)[0].0);
    }
    host.down().await;
}

/// Another agent answers in a session: it may do no more than the session may, nor may its children.
#[tokio::test(start_paused = true)]
async fn an_override_raises_nothing() {
    let mut scene = AttackScene::new().agent("reader", Verdict::Allow, NO_WRITES).agent(
        "planner",
        Verdict::Allow,
        &[("fs.read", "secret/**", Verdict::Deny)],
    );
    let host = scene.host().await;
    let root = host.plays("reader", &[]).await;
    let tries = || [write("open/new.txt"), spawn("worker", &[write("open/new.txt")])];
    host.takes(&root, script(&tries()), Some("worker")).await;
    assert_eq!(&*host.request(root.id()).agent, "worker");
    assert!(host.results(root.id())[0].0);
    host.refused(host.below(root.id(), 1), 1);
    // While a stricter agent answers, new children are as strict.
    let root = host.plays("worker", &[]).await;
    host.takes(&root, script(&[read("secret/key"), spawn("worker", &[read("secret/key")])]), Some("planner")).await;
    assert!(host.results(root.id())[0].0);
    let strict = host.below(root.id(), 1);
    host.refused(strict, 1);
    // With its own agent the session may write again; that child never may.
    host.takes(&root, script(&[read("secret/key")]), Some("worker")).await;
    assert!(!host.results(root.id()).last().expect("a result").0);
    host.goes_on(&host.handle(strict), &[read("secret/key")]).await;
    host.refused(strict, 1);
    assert!(!scene.at("open/new.txt").exists());
    host.down().await;
}
