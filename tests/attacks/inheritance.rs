//! Children that try to exceed their parent by manifest, depth or rule order.

use super::scene::*;

const ALL_BUT_ENV: &[(&str, &str, Verdict)] = &[("fs.*", "**/.env", Verdict::Deny)];

/// The manifests allow the file but the host denies it: neither the root nor a grandchild can read it.
#[tokio::test(start_paused = true)]
async fn grandchild_cannot_read_what_the_host_denies() {
    let mut scene = AttackScene::new().policy(Verdict::Allow, ALL_BUT_ENV).agent(
        "generous",
        Verdict::Allow,
        &[("fs.*", "**/.env", Verdict::Allow)],
    );
    let host = scene.host().await;
    let tries = || [read(".env"), read("open/.env"), write(".env")];
    let mut steps: Vec<_> = tries().into();
    for _ in 0..3 {
        steps = vec![spawn("generous", &steps)];
    }
    let root = host.run_steps("generous", &steps).await;
    let errors = host.refused(host.descendant(root.id(), 3), 3);
    assert!(errors[0].starts_with("denied: read needs fs.read of `.env`"), "{errors:?}");
    assert_eq!(scene.content(".env"), SECRET);
    host.shut_down().await;
}

/// The denials of a manifest apply to the children of its sessions, although their manifests allow the action.
#[tokio::test(start_paused = true)]
async fn child_of_a_reader_cannot_write() {
    let mut scene = AttackScene::new().agent("reader", Verdict::Allow, &[("fs.write", "*", Verdict::Deny)]);
    let host = scene.host().await;
    let root =
        host.run_steps("reader", &[spawn("worker", &[write("top.txt"), spawn("worker", &[write("new.txt")])])]).await;
    for (depth, calls) in [(1, 2), (2, 1)] {
        let session = host.descendant(root.id(), depth);
        assert!(!host.tools(session).iter().any(|tool| tool == "write" || tool == "edit"), "depth {depth}");
        assert!(host.results(session)[0].0, "{:?}", host.results(session));
        assert_eq!(host.results(session).len(), calls);
    }
    assert_eq!((scene.content("top.txt"), scene.at("new.txt").exists()), ("plain".into(), false));
    host.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn allow_of_a_parent_does_not_lift_a_deny_above_it() {
    let mut scene = AttackScene::new()
        .agent("strict", Verdict::Allow, &[("fs.read", "secret/**", Verdict::Deny)])
        .agent("lax", Verdict::Deny, &[("*", "*", Verdict::Allow), ("fs.read", "secret/key", Verdict::Allow)]);
    let host = scene.host().await;
    let root = host.run_steps("strict", &[spawn("lax", &[spawn("worker", &[read("secret/key")])])]).await;
    host.refused(host.descendant(root.id(), 2), 1);
    host.shut_down().await;
}

/// The child's own denials apply too, before or after rules that allow.
#[tokio::test(start_paused = true)]
async fn own_denies_of_a_child_apply_in_any_order() {
    let deny = ("fs.write", "secret/**", Verdict::Deny);
    let allow = ("fs.write", "*", Verdict::Allow);
    let ask = ("fs.*", "**", Verdict::Allow);
    for order in [[deny, allow, ask], [allow, deny, ask], [allow, ask, deny], [ask, allow, deny]] {
        let mut scene = AttackScene::new().agent("limited", Verdict::Allow, &order);
        let host = scene.host().await;
        let root = host.run_steps("worker", &[spawn("limited", &[write("secret/key"), write("secret/new")])]).await;
        host.refused(host.descendant(root.id(), 1), 2);
        assert_eq!((scene.content("secret/key"), scene.at("secret/new").exists()), (SECRET.into(), false));
        host.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn allowed_path_does_not_allow_others() {
    let mut scene = AttackScene::new().policy(
        Verdict::Deny,
        &[("task:*", "*", Verdict::Allow), ("fs.read", "*", Verdict::Allow), ("fs.write", "open/**", Verdict::Allow)],
    );
    let host = scene.host().await;
    let root = host
        .run_steps("worker", &[spawn("worker", &[write("open/new.txt"), write("top.txt"), write("secret/key")])])
        .await;
    let results = host.results(host.descendant(root.id(), 1));
    assert_eq!(results.iter().map(|(failed, _)| *failed).collect::<Vec<_>>(), [false, true, true], "{results:#?}");
    assert_eq!((scene.content("open/new.txt"), scene.content("top.txt")), ("spoiled".into(), "plain".into()));
    assert_eq!(scene.content("secret/key"), SECRET);
    host.shut_down().await;
}

/// The control: without a denying rule, a grandchild writes.
#[tokio::test(start_paused = true)]
async fn child_may_do_what_all_ancestors_allow() {
    let mut scene = AttackScene::new().policy(Verdict::Allow, ALL_BUT_ENV);
    let host = scene.host().await;
    let root = host
        .run_steps("worker", &[spawn("worker", &[spawn("worker", &[read("top.txt"), write("open/new.txt")])])])
        .await;
    let results = host.results(host.descendant(root.id(), 2));
    assert!(results.iter().all(|(failed, _)| !failed), "{results:#?}");
    assert_eq!(scene.content("open/new.txt"), "spoiled");
    host.shut_down().await;
}
