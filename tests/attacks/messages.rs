//! Attacks with messages: a child that fills the queue of its parent, or evades rules for receivers.

use super::scene::*;
use subtend_tools::message;
use tokio::sync::Notify;

/// The number of inputs that fill the queue.
const QUEUE: u32 = 40;

fn to_parent(times: u32) -> Value {
    json!([{"tool": "message", "args": {"to": "parent", "text": "noise"}, "times": times}])
}

/// Returns a tool that reports its start and waits to be released.
fn held(started: &Arc<Notify>, released: &Arc<Notify>) -> Arc<dyn Tool> {
    let (started, released) = (Arc::clone(started), Arc::clone(released));
    let schema = Arc::new(json!({"type": "object", "properties": {}, "additionalProperties": false}));
    let spec = ToolSpec { name: "hold".into(), description: "Waits.".into(), schema };
    fn_tool(spec, ToolEffect::ReadOnly, move |_| {
        let (started, released) = (Arc::clone(&started), Arc::clone(&released));
        async move {
            started.notify_one();
            released.notified().await;
            Ok(ToolOutput::text("released"))
        }
    })
}

/// A parent that waits for its child reads no messages. The control: the same number of user inputs fills the queue.
#[tokio::test(start_paused = true)]
async fn child_cannot_fill_the_queue_of_its_parent() {
    for (messages, inputs, accepted) in [(QUEUE, 0, true), (0, QUEUE, false)] {
        let (started, released) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let scene = AttackScene::new().limits(Limits { queue: QUEUE, ..Limits::default() });
        let mut scene = scene.tool(message::tool()).tool(held(&started, &released));
        let host = scene.host().await;
        let root = host.runtime.open("worker").expect("a session");
        let child = spawn("worker", &[to_parent(messages), call("hold", json!({}))]);
        root.send(script(&[child])).await.expect("accepted");
        tokio::time::timeout(Duration::from_secs(7_200), started.notified()).await.expect("the child waits");
        for _ in 0..inputs {
            root.send("more").await.expect("there is room");
        }
        let stop = root.send("stop").await;
        assert_eq!(stop.is_ok(), accepted, "{stop:?}");
        if messages > 0 {
            let results = host.results(host.descendant(root.id(), 1));
            let refused: Vec<_> = results.iter().filter(|(failed, _)| *failed).map(|(_, text)| text).collect();
            assert_eq!((results.len(), refused.len()), (40, 24), "{results:#?}");
            let expected = "did not get the message: the queue for unread messages of one agent holds 16, its limit; try \
                            again when it has read some";
            assert!(refused.iter().all(|text| text.contains(expected)), "{refused:#?}");
        }
        released.notify_one();
        let ended = tokio::time::timeout(Duration::from_secs(7_200), root.run_ended(RunNo(1))).await;
        ended.expect("the run ends").expect("the host lives");
        host.shut_down().await;
    }
}

/// The rule denies full ids; the message names its receiver `parent`. The control: without the rule, it arrives.
#[tokio::test(start_paused = true)]
async fn rule_for_a_receiver_applies_to_each_of_its_names() {
    for (rules, delivered) in [(&[("tool:message", "*-*", Verdict::Deny)][..], false), (&[], true)] {
        let mut scene = AttackScene::new().policy(Verdict::Allow, rules).tool(message::tool());
        let host = scene.host().await;
        let root = host.run_steps("worker", &[spawn("worker", &[to_parent(1)])]).await;
        let results = host.results(host.descendant(root.id(), 1));
        let [(failed, text)] = &*results else { panic!("{results:#?}") };
        assert_eq!(*failed, !delivered, "{text}");
        assert_eq!(text.contains("your rules deny it by another of its names"), !delivered, "{text}");
        host.shut_down().await;
    }
}
