//! Activity: a watcher sees a session's whole subtree, each event under the call that started it (M6, M13).

use crate::support::*;
use subtend_actors::activity::{Activity, ActivityItem, NestedEvent};
use subtend_tools::display::Display;

fn word(event: &Event) -> Option<String> {
    match &event.what {
        EventKind::Delta { delta: Delta::Text(text), .. } => Some(format!("said {text}")),
        EventKind::Delta { .. } | EventKind::Queue { .. } => None,
        EventKind::Progress { line, .. } => Some(format!("did {line}")),
        EventKind::Record { record, .. } => match &**record {
            Record::SessionCreated(_) => Some("created".into()),
            Record::RunEnded(ended) if ended.outcome == Outcome::Completed => Some("ended".into()),
            _ => None,
        },
    }
}

/// Returns the events so far: session, call, depth, and kind.
fn seen(activity: &mut Activity) -> Vec<(SessionId, Option<CallId>, u32, String)> {
    let mut all = Vec::new();
    while let Some(next) = activity.try_next() {
        let ActivityItem::Event(nested) = next else { panic!("{next:?}") };
        let NestedEvent { event, under, depth } = *nested;
        all.extend(word(&event).map(|word| (event.session, under, depth, word)));
    }
    all
}

fn slow() -> FnTool {
    tool("slow", ToolEffect::ReadOnly, |call| async move {
        call.progress.send("half of it");
        seconds(1).await;
        Ok(ToolOutput::text("done"))
    })
}

/// `go` starts `mid` and then `other`; `mid` starts the minion `low`, which uses a tool.
async fn host(journal: &Journal) -> Runtime {
    let answering = fn_model("test", |request, deltas| async move {
        let (prompt_text, at) = (prompt(&request), answers(&request));
        deltas.send(Delta::Text(format!("{prompt_text} {at}").into()));
        seconds(1).await;
        let task = |prompt: &str| ("task", json!({"subagent_type": "worker", "prompt": prompt}));
        Ok(match (&*prompt_text, at) {
            ("go", 0) => calls([task("mid"), task("other")]),
            ("mid", 0) => calls([("minion", json!({"message": "low", "enableWeb": false, "enabledTools": ["slow"]}))]),
            ("low", 0) => calls([("slow", json!({}))]),
            _ => text("found"),
        })
    });
    let dialects = Dialects { offered: vec![Dialect::Task, Dialect::Minion], ..Dialects::default() };
    let builder = builder(journal).dialects(dialects).tools(tools([slow()]));
    builder.model(Arc::new(answering)).start().await.expect("the runtime starts")
}

async fn nth_child(session: &SessionHandle, at: usize) -> SessionId {
    session.tree().await.expect("a tree").children[at].id
}

#[tokio::test(start_paused = true)]
async fn m6_watcher_of_a_parent_sees_children_under_their_calls() {
    let runtime = host(&journal()).await;
    let session = open(&runtime);
    let mut whole = session.activity();
    let receipt = session.send("go").await.expect("accepted");
    // `mid` is running, and its own child does not exist yet.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let mid = runtime.session(nth_child(&session, 0).await).expect("readable").expect("the session exists");
    let mut below = mid.activity();
    session.run_ended(receipt.run).await.expect("the run ends");
    let tree = session.tree().await.expect("a tree");
    let (other, low) = (tree.children[1].id, tree.children[0].children[0].id);
    let of = |id: SessionId, activities: &[(&str, Option<CallId>, u32)]| {
        activities.iter().map(|(word, under, depth)| (id, *under, *depth, (*word).to_owned())).collect::<Vec<_>>()
    };
    let sorted = |mut all: Vec<(SessionId, Option<CallId>, u32, String)>| {
        // Events are ordered only within a session.
        all.sort_by_key(|(id, ..)| *id);
        all
    };
    let call = |ix| Some(CallId { turn: subtend_session::ids::TurnNo(1), ix });
    let under = |call: Option<CallId>, depth: u32, activities: &[&'static str]| {
        activities.iter().map(|word| (*word, call, depth)).collect::<Vec<_>>()
    };
    let low_did = ["created", "said low 0", "did half of it", "said low 1", "ended"];
    let seen_below = seen(&mut below);
    let expected =
        [of(mid.id(), &under(None, 0, &["said mid 0", "said mid 1", "ended"])), of(low, &under(call(0), 1, &low_did))];
    assert_eq!(sorted(seen_below), sorted(expected.concat()), "events of its parent or its sibling are shown");
    let expected = [
        of(session.id(), &under(None, 0, &["said go 0", "said go 1", "ended"])),
        of(mid.id(), &under(call(0), 1, &["created", "said mid 0", "said mid 1", "ended"])),
        of(low, &under(call(0), 2, &low_did)),
        of(other, &under(call(1), 1, &["created", "said other 0", "ended"])),
    ];
    assert_eq!(sorted(seen(&mut whole)), sorted(expected.concat()));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn m6_late_watcher_sees_only_the_rest_of_its_own_tree() {
    let runtime = host(&journal()).await;
    let session = open(&runtime);
    let stranger = runtime.open(OpenOptions::agent("worker")).expect("a session");
    let receipt = session.send("go").await.expect("accepted");
    // `low` is running by now.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let mid = runtime.session(nth_child(&session, 0).await).expect("readable").expect("the session exists");
    let low = nth_child(&mid, 0).await;
    let mut late = mid.activity();
    let other = stranger.send("other").await.expect("accepted");
    stranger.run_ended(other.run).await.expect("the run ends");
    session.run_ended(receipt.run).await.expect("the run ends");
    let all = seen(&mut late);
    assert!(all.iter().all(|(id, ..)| [mid.id(), low].contains(id)), "{all:?}");
    let of_low: Vec<_> = all
        .iter()
        .filter(|(id, ..)| *id == low)
        .map(|(_, under, depth, word)| (under.is_some(), *depth, word.as_str()))
        .collect();
    let expected = ["said low 0", "did half of it", "said low 1", "ended"].map(|word| (true, 1, word));
    assert_eq!(of_low, expected, "a stream is not reported from its start");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn m13_host_receives_the_display_of_a_call() {
    let display = Display::named("Slow work").subtitle("Takes its time").icons("🐢", "🏁");
    let tool = slow().display(display.clone()).render_output(|text| Some(text.to_uppercase().into()));
    let answering = crate::support::model(|_| async { Ok(text("done")) });
    let runtime = builder(&journal()).tools(tools([tool])).model(answering).start().await.expect("the runtime starts");
    let shown = runtime.render_call("slow", "{}", Some("done"));
    assert_eq!((shown.display, shown.input, shown.output.as_deref()), (display, None, Some("DONE")));
    assert_eq!(runtime.render_call("nonesuch", "{}", None).display, Display::default());
    shut(runtime).await;
}
