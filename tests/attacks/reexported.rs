//! Foreign exports and repositories that make a host record what no import takes: its own exports would be refused as a whole.

use super::scene::*;
use subtend_actors::{BranchOptions, UsageView};
use subtend_journal::memory::Memory;
use subtend_journal::{Options, Scope};
use subtend_session::limits::MAX_DEPTH;
use subtend_session::usage::Usage;

use crate::attacks::imported_views::{ExportedFrame, answered, ended, export_of, id, imported};
use crate::attacks::imports::forged;

/// Imports the frames into a running host, whose model answers in their sessions.
async fn host_with(scene: &mut AttackScene, mut frames: Vec<ExportedFrame>) -> RunningHost {
    let host = scene.host().await;
    for (_, records) in &mut frames {
        let created = &mut records[0]["session_created"];
        (created["agent"], created["model"], created["dialects"]) = (json!("worker"), json!("puppet"), json!(["task"]));
        created["workspace"] = json!(scene.at(""));
    }
    let mut file = Cursor::new(forged(export_of(&frames)));
    host.runtime.import(&mut file, &ImportBounds::none(), &mut |_| {}).await.expect("imported");
    host
}

/// Imports an export of the host's store into an empty one.
async fn move_store(host: RunningHost) -> Journal {
    let journal = host.runtime.journal();
    journal.settled().await.expect("the journal lives");
    let mut file = Vec::new();
    journal.export(Scope::Store, &mut file, &mut |_| {}).expect("exported");
    host.runtime.shutdown(Duration::from_secs(1)).await;
    let other = Journal::open(Box::new(Memory::new()), Options::default()).expect("a journal");
    other.import(&mut Cursor::new(file), &ImportBounds::none(), &mut |_| {}).await.expect("imported again");
    other
}

/// Returns session `n` of a chain of a person's branches.
fn branch(n: u32) -> ExportedFrame {
    let records = [answered(0, &[]), vec![ended()]].concat();
    let mut records: Vec<Value> =
        serde_json::from_str(&json!(records).to_string().replace(&id(0), &id(n))).expect("records");
    let created = &mut records[0]["session_created"];
    created["short"] = json!(id(n)[30..]);
    if let Some(parent) = n.checked_sub(1).map(id) {
        created["place"] = json!({"child": {"parent": parent, "root": id(0), "kind": "human", "depth": 0,
            "user_msg": {"session": parent, "seq": 5}}});
    }
    (id(n), records)
}

/// A summary or a child of the deepest session that an import takes would be below that. The control: the session above it
/// gets both.
#[tokio::test(start_paused = true)]
async fn deepest_imported_session_gets_none_below_it() {
    let mut scene = AttackScene::new();
    let host = host_with(&mut scene, (0..=MAX_DEPTH).map(branch).collect()).await;
    let [last, above] = [MAX_DEPTH, MAX_DEPTH - 1].map(|n| host.handle(id(n).parse().expect("an id")));
    let refused = last.summarise().await.expect_err("a summary").to_string();
    assert!(refused.contains("a branch has at most 1000 sessions above it"), "{refused}");
    host.continue_with(&last, &[spawn("worker", &[])]).await;
    let refused = host.refused(last.id(), 1).remove(0);
    assert!(refused.contains("1000 sessions are above this one, which is the limit"), "{refused}");
    above.summarise().await.expect("the control");
    host.continue_with(&above, &[spawn("worker", &[])]).await;
    assert_eq!(host.children(above.id()).len(), 1);
    move_store(host).await;
}

/// Two answers have the most tokens that an import takes, and the host adds them up when it ends their run as lost.
#[tokio::test(start_paused = true)]
async fn sum_of_exaggerated_usage_is_importable() {
    let most = json!(Usage::MAX_FIGURE);
    let mut records = answered(0, &["nono"]);
    records[6]["turn_answered"]["usage"] = json!({"in": most, "out": most, "reasoning": most, "cache_new": most,
        "cache_read": most, "cost_micro": most});
    let (mut started, mut second) = (records[5].clone(), records[6].clone());
    (started["turn_started"]["turn"], second["turn_answered"]["turn"]) = (json!(2), json!(2));
    let ends = |turn: u32| {
        let call = json!({"turn": turn, "ix": 0});
        let end = json!({"tool_error": {"kind": "unknown_tool", "retryable": false}});
        [
            json!({"call_started": {"call": call, "kind": {"invalid": "unknown_tool"}}}),
            json!({"call_finished": {"call": call, "end": end, "content": "no"}}),
        ]
    };
    records.extend(ends(1).into_iter().chain([started, second]).chain(ends(2)));
    let host = host_with(&mut AttackScene::new(), vec![(id(0), records)]).await;
    let root: SessionId = id(0).parse().expect("an id");
    let recorded = host.records(root).await;
    let ended =
        recorded.iter().find_map(|record| if let Record::RunEnded(ended) = record { Some(ended) } else { None });
    assert_eq!(ended.map(|ended| ended.usage_self.cost_micro), Some(Some(Usage::MAX_FIGURE)));
    move_store(host).await;
}

/// A repository has two agents, each with almost the most rules. The controls: an agent with few rules, and the same agent.
#[tokio::test(start_paused = true)]
async fn branch_of_too_many_rules_is_refused() {
    let many = |from: u32| {
        let rule = |n: u32| json!({"action": "fs.read", "resource": format!("x{n}"), "verdict": "deny"});
        let rules: Vec<Value> = (from..from + 3_000).map(rule).collect();
        let mut agent = Manifest::new(format!("rules-{from}"), AgentMode::All, "You are an agent.");
        agent.rules = Some(serde_json::from_value(json!({"default": "allow", "rules": rules})).expect("rules"));
        agent
    };
    let mut scene = AttackScene::new().manifest(many(0)).manifest(many(3_000));
    let host = scene.host().await;
    let root = host.run_steps("rules-0", &[]).await;
    let of = |agent: &str| BranchOptions { agent: Some(agent.into()), ..BranchOptions::default() };
    let refused = root.branch(of("rules-3000")).await.map(drop).expect_err("too many rules").to_string();
    assert!(refused.contains("the branch is not created: the permissions have 6000 rules in "), "{refused}");
    for agent in ["worker", "rules-0"] {
        root.branch(of(agent)).await.expect("the control");
    }
    host.shut_down().await;
    // The agent has other rules at the next start.
    let mut changed = many(3_000);
    changed.name = "rules-0".into();
    scene.forget("rules-0");
    let mut scene = scene.manifest(changed);
    let host = scene.host().await;
    let refused = host.handle(root.id()).regenerate(None).await.map(drop).expect_err("too many rules").to_string();
    assert!(refused.contains("the branch is not created: the permissions have 6000 rules in "), "{refused}");
    move_store(host).await;
}

/// The runs of children own each other in a cycle. Each run is visited once: the square of them would take minutes. The
/// control: the tokens of the tree.
#[test]
fn cycle_of_owners_is_read_in_one_pass() {
    const RUNS: u32 = 4_000;
    let family = (0..=RUNS).map(|n| {
        let (session, mut records) = branch(n);
        if n > 0 {
            records[0]["session_created"]["place"]["child"]["parent"] = json!(id(0));
            let owner = json!({"run": {"session": id(n % RUNS + 1), "run": 1, "call": {"turn": 1, "ix": 0}}});
            records[2]["run_opened"]["owner"] = owner;
        }
        records[6]["turn_answered"]["usage"] = json!({"in": 1, "out": 0});
        (session, records)
    });
    let (journal, _) = imported(&family.collect::<Vec<_>>()).expect("imported");
    let view = UsageView::read(&journal, id(0).parse().expect("an id"), |_| None).expect("the usage");
    assert_eq!((view.own.input, view.owned.input, view.tree.input), (1, 0, u64::from(RUNS) + 1));
}
