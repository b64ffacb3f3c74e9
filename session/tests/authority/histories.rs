//! P-4, over random trees of sessions with spawns, continues, agent overrides, and restarts of the host with other rules.
//!
//! The runtime computes a session's authority with [`Authority::effective`] from its journal and the host's current policy.

use proptest::prelude::{Strategy, any, prop, prop_assert, prop_oneof};
use proptest::sample::Index;
use proptest::test_runner::TestCaseError;
use subtend_session::authority::{Access, Authority, RuleSet, Verdict};

use crate::given::{DEPTH, accesses, assert_property, rule_sets};

const AGENTS: usize = 4;

/// One event in a tree of sessions.
#[derive(Clone, Debug)]
enum TreeStep {
    /// A session, by default the newest, starts a child of an agent.
    Spawn(Option<Index>, usize),
    Continue,
    /// The host restarts, possibly with another policy, and with another manifest of one agent.
    Restart(Option<RuleSet>, usize, RuleSet),
    /// A person selects another agent for a session.
    Override(Index, usize),
}

fn steps() -> impl Strategy<Value = TreeStep> {
    let agent = || 0..AGENTS;
    prop_oneof![
        6 => (prop::option::weighted(0.3, any::<Index>()), agent()).prop_map(|(of, agent)| TreeStep::Spawn(of, agent)),
        1 => prop::strategy::Just(TreeStep::Continue),
        2 => (prop::option::of(rule_sets()), agent(), rule_sets())
            .prop_map(|(policy, agent, rules)| TreeStep::Restart(policy, agent, rules)),
        2 => (any::<Index>(), agent()).prop_map(|(of, agent)| TreeStep::Override(of, agent)),
    ]
}

type TreeHistory = (RuleSet, [RuleSet; AGENTS], Vec<TreeStep>, [Access; 2]);

fn histories() -> impl Strategy<Value = TreeHistory> {
    let manifests = [rule_sets(), rule_sets(), rule_sets(), rule_sets()];
    (rule_sets(), manifests, prop::collection::vec(steps(), 1..24), [accesses(), accesses()])
}

struct TreeSession {
    parent: Option<usize>,
    depth: usize,
    /// The agent of its creation.
    agent: usize,
    /// The agent that a person selected.
    override_agent: Option<usize>,
    ceiling: Authority,
}

/// A host with its sessions, of which the first is a root.
struct Host {
    policy: Authority,
    manifests: Vec<Authority>,
    sessions: Vec<TreeSession>,
}

/// Computes the authority of a session.
type AtUse = fn(&Host, usize) -> Authority;

impl Host {
    fn own(&self, of: usize) -> &Authority {
        let session = &self.sessions[of];
        &self.manifests[session.override_agent.unwrap_or(session.agent)]
    }

    /// Returns the ancestors, the parent first.
    fn ancestors(&self, of: usize) -> Vec<usize> {
        std::iter::successors(self.sessions[of].parent, |up| self.sessions[*up].parent).collect()
    }

    fn step(&mut self, at_use: AtUse, step: TreeStep) {
        match step {
            TreeStep::Spawn(of, agent) => {
                let parent = of.map_or(self.sessions.len() - 1, |of| of.index(self.sessions.len()));
                let depth = self.sessions[parent].depth + 1;
                if depth > DEPTH {
                    return;
                }
                let ceiling = at_use(self, parent).meet(&self.manifests[agent]);
                self.sessions.push(TreeSession { parent: Some(parent), depth, agent, override_agent: None, ceiling });
            }
            TreeStep::Continue => {}
            TreeStep::Restart(policy, agent, rules) => {
                if let Some(policy) = policy {
                    self.policy = Authority::of(policy);
                }
                self.manifests[agent] = Authority::of(rules);
            }
            TreeStep::Override(of, agent) => {
                let of = of.index(self.sessions.len());
                self.sessions[of].override_agent = Some(agent);
            }
        }
    }
}

/// Computes the authority as the runtime does.
fn real(host: &Host, of: usize) -> Authority {
    let above = host.ancestors(of).into_iter().map(|up| &host.manifests[host.sessions[up].agent]);
    host.sessions[of].ceiling.effective(&host.policy, host.own(of), above)
}

/// Seeded bug: the ceiling is ignored.
fn ceiling_forgotten(host: &Host, of: usize) -> Authority {
    host.policy.meet(host.own(of))
}

/// Seeded bug: the recorded ceiling applies forever, whatever policy the host starts with.
fn frozen(host: &Host, of: usize) -> Authority {
    host.sessions[of].ceiling.clone()
}

/// Seeded bug: the current manifests of ancestors are ignored.
fn ancestors_forgotten(host: &Host, of: usize) -> Authority {
    host.sessions[of].ceiling.effective(&host.policy, host.own(of), [])
}

/// Seeded bug: a selected agent replaces the ceiling.
fn override_raises(host: &Host, of: usize) -> Authority {
    match host.sessions[of].override_agent {
        Some(agent) => host.policy.meet(&host.manifests[agent]),
        None => real(host, of),
    }
}

/// Seeded bug: the host's policy applies only at the creation of a root.
fn policy_forgotten(host: &Host, of: usize) -> Authority {
    let above = host.ancestors(of).into_iter().map(|up| &host.manifests[host.sessions[up].agent]);
    host.sessions[of].ceiling.effective(&Authority::allow_all(), host.own(of), above)
}

fn verdicts(authority: &Authority, ats: &[Access; 2]) -> [Verdict; 2] {
    ats.each_ref().map(|at| authority.verdict(at))
}

fn never_more(mine: [Verdict; 2], than: [Verdict; 2]) -> bool {
    mine.iter().zip(than).all(|(mine, than)| *mine <= than)
}

/// P-4: the authority never exceeds the recorded ceiling, the current policy, its agent's manifest or the ancestors.
fn never_exceeds_bounds(at_use: AtUse, (policy, manifests, steps, ats): TreeHistory) -> Result<(), TestCaseError> {
    let (policy, manifests) = (Authority::of(policy), manifests.map(Authority::of).to_vec());
    let ceiling = policy.meet(&manifests[0]);
    let root = TreeSession { parent: None, depth: 0, agent: 0, override_agent: None, ceiling };
    let mut host = Host { policy, manifests, sessions: vec![root] };
    for step in steps {
        let spawns = matches!(step, TreeStep::Spawn(..));
        let count = host.sessions.len();
        host.step(at_use, step);
        let may: Vec<[Verdict; 2]> =
            (0..host.sessions.len()).map(|of| at_use(&host, of)).map(|may| verdicts(&may, &ats)).collect();
        if spawns && let Some(child) = host.sessions.get(count) {
            // A new child never exceeds the current authority of its parent.
            let (ceiling, parent) = (verdicts(&child.ceiling, &ats), may[child.parent.unwrap()]);
            prop_assert!(never_more(ceiling, parent), "the new child exceeds its parent");
        }
        let policy = verdicts(&host.policy, &ats);
        let manifests: Vec<_> = host.manifests.iter().map(|manifest| verdicts(manifest, &ats)).collect();
        let ceilings: Vec<_> = host.sessions.iter().map(|session| verdicts(&session.ceiling, &ats)).collect();
        for (of, session) in host.sessions.iter().enumerate() {
            let mine = may[of];
            prop_assert!(never_more(mine, ceilings[of]), "exceeds the recorded ceiling");
            prop_assert!(never_more(mine, policy), "exceeds the host's policy");
            prop_assert!(
                never_more(mine, manifests[session.override_agent.unwrap_or(session.agent)]),
                "exceeds its own manifest"
            );
            for up in host.ancestors(of) {
                let ancestor = &host.sessions[up];
                prop_assert!(never_more(mine, ceilings[up]), "exceeds an ancestor's ceiling");
                prop_assert!(never_more(mine, manifests[ancestor.agent]), "exceeds an ancestor's manifest");
                if ancestor.override_agent.is_none() {
                    prop_assert!(never_more(mine, may[up]), "exceeds an ancestor's authority");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn p4_no_event_raises_the_authority_of_a_session() {
    assert_property(
        histories,
        never_exceeds_bounds,
        real as AtUse,
        &[
            ("ceiling forgotten", ceiling_forgotten),
            ("frozen", frozen),
            ("ancestors forgotten", ancestors_forgotten),
            ("an override raises", override_raises),
            ("policy forgotten", policy_forgotten),
        ],
    );
}
