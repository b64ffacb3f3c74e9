//! Single parts of the product, judged by the predicates of the model and the simulator.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use subtend_invariants::observed::{Probe, QueryContext, Restart, RestartBudget};
use subtend_invariants::{InvariantId, Observed, View, When, World};
use subtend_session::authority::{Access, Authority, Rule, RuleSet, Verdict};
use subtend_session::ids::{CallId, Hash, Interned, MsgRef, Seq, SessionId, Short, TurnNo};
use subtend_session::limits::Limits;
use subtend_session::place::{BranchKind, OnRestart, Place};
use subtend_session::record::{Record, SessionCreated};
use subtend_supervision::{Intensity, RestartBudget as Budget, RestartDecision as Admission};
use tokio::time::Instant;
use uuid::Uuid;

fn session(depth: usize) -> SessionId {
    SessionId(Uuid::from_u128(depth as u128 + 1))
}

/// Returns the first record of the session at `depth` of a chain, under `ceiling`.
fn session_created(depth: usize, ceiling: &Authority) -> Record {
    let place = match depth.checked_sub(1) {
        None => Place::Root,
        Some(above) => Place::Child {
            parent: session(above),
            root: session(0),
            kind: BranchKind::Subagent,
            user_msg: MsgRef { session: session(above), seq: Seq(1) },
            assistant_msg: None,
            call: Some(CallId { turn: TurnNo(1), ix: 0 }),
            depth: depth as u32,
        },
    };
    Record::SessionCreated(Box::new(SessionCreated {
        returns: false,
        joins: false,
        rolls_back: false,
        in_full: None,
        source: Default::default(),
        place,
        short: Short("aaaaaa".into()),
        agent: "general".into(),
        agent_hash: Hash::of(b"general"),
        model: "model".into(),
        system: Interned::new("work".into()).expect("text is JSON"),
        ceiling: Interned::new(Arc::new(ceiling.clone())).expect("plain data"),
        limits: Interned::new(Arc::new(Limits::default())).expect("plain data"),
        workspace: "/w".into(),
        turns: None,
        worktree: None,
        inspectable: true,
        on_restart: OnRestart::Fail,
        caller_line: false,
        dialects: Vec::new(),
        tools: None,
        task: false,
        title: None,
        inherited: Default::default(),
        metadata: None,
        servers: Vec::new(),
        imported: None,
    }))
}

/// Judges the observations of a chain of sessions under these ceilings.
fn judge(ids: &[InvariantId], ceilings: &[Authority], observed: &Observed) -> Result<(), InvariantId> {
    let records: Vec<Vec<Record>> =
        ceilings.iter().enumerate().map(|(depth, ceiling)| vec![session_created(depth, ceiling)]).collect();
    let views =
        records.iter().enumerate().map(|(depth, records)| (session(depth), View { records, ..View::default() }));
    let rows = BTreeSet::new();
    let world = World::new(views, &rows, None, true).with_observations(observed);
    ids.iter().try_for_each(|id| id.check(&world, false)).map_err(|violation| violation.id)
}

const AUTHORITY: [InvariantId; 4] = [InvariantId::P1, InvariantId::P2, InvariantId::P3, InvariantId::P4];

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![Just(Verdict::Deny), Just(Verdict::Ask), Just(Verdict::Allow)]
}

fn rule() -> impl Strategy<Value = Rule> {
    let actions = prop_oneof![Just("*"), Just("fs.*"), Just("fs.read"), Just("shell.run"), Just("task:*")];
    let resources = prop_oneof![Just("*"), Just("src/**"), Just("src/a"), Just("b")];
    (actions, resources, verdict()).prop_map(|(action, resource, verdict)| Rule {
        action: action.into(),
        resource: resource.into(),
        verdict,
    })
}

fn rules() -> impl Strategy<Value = RuleSet> {
    (verdict(), prop::collection::vec(rule(), 0..4)).prop_map(|(default, rules)| RuleSet { default, rules })
}

fn access() -> impl Strategy<Value = Access> {
    let actions = prop_oneof![Just("fs.read"), Just("shell.run"), Just("task:explore")];
    let resources = prop_oneof![Just("src/a"), Just("src/c"), Just("b"), Just(".")];
    (actions, resources).prop_map(|(action, resource)| Access { action: action.into(), resource: resource.into() })
}

/// Returns the ceilings of a chain: each is the meet of its own rules and the ceiling above it.
fn chain(sets: &[RuleSet]) -> Vec<Authority> {
    let mut above = Authority::allow_all();
    let met = sets.iter().map(|set| {
        above = above.meet(&Authority::of(set.clone()));
        above.clone()
    });
    met.collect()
}

fn with_rule(sets: &[RuleSet], at: usize, rule: &Rule) -> Vec<RuleSet> {
    let mut sets = sets.to_vec();
    sets[at].rules.push(rule.clone());
    sets
}

/// Returns the verdicts for every session of a chain, now and after each change.
fn probes(sets: &[RuleSet], accesses: &[Access], at: usize, rule: &Rule) -> Vec<Probe> {
    let reversed: Vec<RuleSet> = sets
        .iter()
        .map(|set| RuleSet { default: set.default, rules: set.rules.iter().rev().cloned().collect() })
        .collect();
    let deny = Rule { verdict: Verdict::Deny, ..rule.clone() };
    let allow = Rule { verdict: Verdict::Allow, ..rule.clone() };
    let under = [
        (QueryContext::Present, chain(sets)),
        (QueryContext::Added { at: session(at), rule: deny.clone() }, chain(&with_rule(sets, at, &deny))),
        (QueryContext::Added { at: session(at), rule: allow.clone() }, chain(&with_rule(sets, at, &allow))),
        (QueryContext::Reordered, chain(&reversed)),
        (QueryContext::After("a restart".into()), restarted(&chain(sets))),
    ];
    let mut probes = Vec::new();
    for (under, ceilings) in under {
        for (depth, ceiling) in ceilings.iter().enumerate() {
            // A rule that is added further down the chain does not apply to this session.
            let above = matches!(under, QueryContext::Added { .. }) && depth < at;
            let expected_asks = accesses.iter().filter(|_| !above);
            probes.extend(expected_asks.map(|access| Probe {
                session: session(depth),
                access: access.clone(),
                verdict: ceiling.verdict(access),
                under: under.clone(),
            }));
        }
    }
    probes
}

/// Returns the ceilings after a round trip through JSON.
fn restarted(ceilings: &[Authority]) -> Vec<Authority> {
    let again = |ceiling| serde_json::from_str(&serde_json::to_string(ceiling).expect("plain data"));
    ceilings.iter().map(|ceiling| again(ceiling).expect("a written ceiling can be read")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn authorities_of_any_chain_satisfy_the_predicates(
        sets in prop::collection::vec(rules(), 1..=12),
        accesses in prop::collection::vec(access(), 1..4),
        at in 0_usize..12,
        rule in rule(),
    ) {
        let at = at % sets.len();
        let observed = Observed { probes: probes(&sets, &accesses, at, &rule), ..Observed::default() };
        prop_assert_eq!(judge(&AUTHORITY, &chain(&sets), &observed), Ok(()));
    }

    /// Each of two sessions under one supervisor has its own budget.
    #[test]
    fn restarts_after_any_deaths_are_within_their_budgets(
        deaths in prop::collection::vec((0_usize..2, 0_u64..30_000), 1..40),
    ) {
        let ceilings = [Authority::allow_all(), Authority::allow_all()];
        prop_assert_eq!(judge(&[InvariantId::V1], &ceilings, &restarts(&deaths, false)), Ok(()));
    }
}

/// Returns the supervisor's decisions on deaths of these sessions, with the time between them.
fn restarts(deaths: &[(usize, u64)], shared: bool) -> Observed {
    let intensity = Intensity::default();
    let start = Instant::now();
    let mut budgets: BTreeMap<usize, Budget> = BTreeMap::new();
    let (mut ms, mut restarts) = (0, Vec::new());
    for (order, (child, after)) in (1..).zip(deaths) {
        ms += after;
        let budget = budgets.entry(if shared { 0 } else { *child }).or_insert_with(|| Budget::new(intensity));
        let admitted = budget.admit(start + Duration::from_millis(ms), 1.0) != Admission::Exhausted;
        let at = When { order, ms };
        restarts.push(Restart { session: session(*child), at, supervisor: 0, admitted, run: None });
    }
    let within_ms = u64::try_from(intensity.within.as_millis()).expect("a minute");
    let budget = Some(RestartBudget { max: intensity.max, within_ms, storm: None });
    Observed { budget, restarts, ..Observed::default() }
}

#[test]
fn siblings_sharing_a_budget_are_noticed() {
    let deaths = [(0, 1), (0, 1), (0, 1), (1, 1)];
    let ceilings = [Authority::allow_all(), Authority::allow_all()];
    assert_eq!(judge(&[InvariantId::V1], &ceilings, &restarts(&deaths, true)), Err(InvariantId::V1));
}

#[test]
fn rule_list_where_the_last_match_decides_is_noticed() {
    // As in other products, the last match of one list decides. The deny of an ancestor is lost.
    let sets = [RuleSet { default: Verdict::Allow, rules: vec![] }, RuleSet { default: Verdict::Allow, rules: vec![] }];
    let rule = Rule { action: "*".into(), resource: "*".into(), verdict: Verdict::Deny };
    let access = Access { action: "fs.read".into(), resource: "b".into() };
    let mut probes = probes(&sets, std::slice::from_ref(&access), 0, &rule);
    for probe in &mut probes {
        let denied = matches!(&probe.under, QueryContext::Added { rule, .. } if rule.verdict == Verdict::Deny);
        if denied && probe.session == session(1) {
            probe.verdict = Verdict::Allow;
        } else if probe.under == QueryContext::Present {
            probe.verdict = Verdict::Ask;
        }
    }
    let observed = Observed { probes, ..Observed::default() };
    assert_eq!(judge(&[InvariantId::P2], &chain(&sets), &observed), Err(InvariantId::P2));
}
