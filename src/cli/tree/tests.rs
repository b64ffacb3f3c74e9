use serde_json::json;
use subtend_session::ids::{Epoch, Seq};
use subtend_session::outcome::{FailKind, Initiator, OutcomeKind};

use super::*;

const ROOT: &str = "0192f0c1-2d3e-7abc-8def-0123456789ab";
const ELDER: &str = "0192f0c2-0000-7abc-8def-012345a3f9c1";
const YOUNGER: &str = "0192f0c2-0000-7abc-8def-012345000001";
const GRANDCHILD: &str = "0192f0c3-0000-7abc-8def-012345bbbbbb";

fn id(text: &str) -> SessionId {
    text.parse().expect("an id")
}

fn head(me: &str, parent: Option<&str>, depth: u32, state: Phase) -> (SessionId, Head) {
    let head = Head {
        parent: parent.map(id),
        root: id(ROOT),
        short: id(me).short(),
        agent: if depth == 0 { "general".into() } else { "explore".into() },
        depth,
        inspectable: false,
        last_seq: Seq(7),
        epoch: Epoch(1),
        state,
        kind: None,
        closed: false,
        deleted: false,
        imported: false,
        last_outcome: Some(OutcomeKind::Completed),
        title: "inspect it".into(),
        created_ms: 0,
        updated_ms: 0,
    };
    (id(me), head)
}

fn heads() -> Heads {
    Heads::from([
        head(ROOT, None, 0, Phase::Quiet),
        head(ELDER, Some(ROOT), 1, Phase::Quiet),
        head(YOUNGER, Some(ROOT), 1, Phase::WaitingAtRest),
        head(GRANDCHILD, Some(ELDER), 2, Phase::Quiet),
    ])
}

fn read(session: SessionId) -> Result<(History, Option<String>), Fail> {
    let ended = |outcome, children| History {
        outcome: Some(outcome),
        background: session != id(ROOT),
        turns: 2,
        usage: Usage { input: 1_000, output: 234, ..Usage::default() },
        children,
        worked: Worked { ms: 1_500, at_least: false },
        ..History::default()
    };
    match session.to_string().as_str() {
        // ELDER was created first, although its id sorts last.
        ROOT => Ok((ended(Outcome::Completed, vec![id(ELDER), id(YOUNGER)]), None)),
        ELDER => Ok((ended(Outcome::Failed { kind: FailKind::Refused }, vec![id(GRANDCHILD)]), None)),
        YOUNGER => Ok((History { turns: 1, worktree_of: Some(id(YOUNGER)), ..History::default() }, None)),
        _ => Err(Fail::Store("a frame does not check".into())),
    }
}

fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[test]
fn tree_is_drawn_in_order_of_creation() {
    let tree = build(&heads(), &BTreeSet::new(), id(ROOT), &read).expect("a tree");
    let mut text = String::new();
    draw(&tree, &mut Vec::new(), &mut text);
    let expected = "\
✓ general 6789ab  completed  2 turns · 1.2k tokens · 1.5s  inspect it
├─ ✗ explore a3f9c1  failed: the model refused  2 turns · 1.2k tokens · 1.5s · background  inspect it
│  └─ ! explore bbbbbb  unreadable: a frame does not check  0 turns · 0 tokens  inspect it
└─ ◌ explore 000001  waiting  1 turn · 0 tokens · worktree  inspect it
";
    assert_eq!(plain(&text), expected);
    assert!(has_unreadable(&tree));
}

#[test]
fn footer_reports_runs_of_a_dead_process() {
    let tree = build(&heads(), &BTreeSet::new(), id(ROOT), &read).expect("a tree");
    let first = format!("4 sessions, 2.4k tokens in all; session {ROOT}");
    let (none, it) = (BTreeSet::new(), BTreeSet::from([id(YOUNGER)]));
    let hint = "with the next command that runs agents (`subtend continue 000001`)";
    for (resumes, keeps, fate) in [
        (&none, &none, "it ends as lost with the next command that changes this store".to_owned()),
        (&it, &none, format!("it resumes {hint}")),
        (&none, &it, format!("it starts {hint}")),
    ] {
        let expected = format!("{first}\n1 run was in flight when the last process ended: {fate}");
        assert_eq!(plain(&footer(&tree, Some((resumes, keeps)))), expected);
    }
    let mut heads = heads();
    heads.get_mut(&id(ROOT)).expect("the root").state = Phase::WaitingAtRest;
    heads.get_mut(&id(ELDER)).expect("the elder").state = Phase::Working;
    let tree = build(&heads, &BTreeSet::new(), id(ROOT), &read).expect("a tree");
    let text = plain(&footer(&tree, Some((&it, &none))));
    let fates = format!("2 end as lost with the next command that changes this store; 1 resumes {hint}");
    assert!(text.ends_with(&fates), "{text}");
}

#[test]
fn subtree_is_one_json_object() {
    let mut heads = heads();
    heads.remove(&id(GRANDCHILD));
    let cancelled =
        |_| Ok((History { outcome: Some(Outcome::Cancelled { by: Initiator::Person }), ..History::default() }, None));
    let tree = build(&heads, &BTreeSet::new(), id(ELDER), &cancelled).expect("a tree");
    let expected = json!({
        "id": ELDER, "agent": "explore", "state": "quiet",
        "outcome": {"cancelled": {"by": "person"}}, "depth": 1, "background": false,
        "usage": {"in": 0, "out": 0}, "children": [],
    });
    assert_eq!(serde_json::to_value(&tree).expect("json"), expected);
}

#[test]
fn cycle_of_parents_is_shown_once() {
    let ring = Heads::from([head(ELDER, Some(YOUNGER), 1, Phase::Quiet), head(YOUNGER, Some(ELDER), 1, Phase::Quiet)]);
    let tree = build(&ring, &BTreeSet::new(), id(ELDER), &|_| Ok((History::default(), None))).expect("a tree");
    let mut seen = Vec::new();
    visit_all(&tree, &mut |node| seen.push(node.id));
    assert_eq!(seen, [id(ELDER), id(YOUNGER)]);
}

#[test]
fn u2_session_that_waits_for_approval_has_its_own_mark() {
    let asking = BTreeSet::from([id(YOUNGER)]);
    let tree = build(&heads(), &asking, id(ROOT), &read).expect("a tree");
    let mut text = String::new();
    draw(&tree, &mut Vec::new(), &mut text);
    let line = plain(&text).lines().last().map(str::to_owned);
    assert_eq!(
        line.as_deref(),
        Some("└─ ◆ explore 000001  waits for approval  1 turn · 0 tokens · worktree  inspect it")
    );
    let younger = &serde_json::to_value(&tree).expect("json")["children"][1];
    assert_eq!((&younger["state"], &younger["asks"]), (&json!("waiting_at_rest"), &json!(true)));
}
