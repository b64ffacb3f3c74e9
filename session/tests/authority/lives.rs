//! P-4: chains of sessions through spawns, continues, restarts of the host with other rules, and agents that take over.
//!
//! What a session may do is what the hub makes of it: [`Authority::at_use`], of what its journal holds and of what the host was
//! started with.

use proptest::prelude::{Strategy, any, prop, prop_assert, prop_oneof};
use proptest::sample::Index;
use proptest::test_runner::TestCaseError;
use subtend_session::authority::{Access, Authority, RuleSet, Verdict};

use crate::given::{DEPTH, accesses, held_and_noticed, rule_sets};

const AGENTS: usize = 4;

/// A step in the life of a tree of sessions.
#[derive(Clone, Debug)]
enum TreeStep {
    /// A session, else the last one born, starts a child of an agent.
    Spawn(Option<Index>, usize),
    /// A session is continued, by any of its ids.
    Continue,
    /// The host is started again; with another policy, with another manifest of one agent.
    Restart(Option<RuleSet>, usize, RuleSet),
    /// A person lets another agent take over a session.
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

type TreeLife = (RuleSet, [RuleSet; AGENTS], Vec<TreeStep>, [Access; 2]);

fn lives() -> impl Strategy<Value = TreeLife> {
    let manifests = [rule_sets(), rule_sets(), rule_sets(), rule_sets()];
    (rule_sets(), manifests, prop::collection::vec(steps(), 1..24), [accesses(), accesses()])
}

struct TreeSession {
    parent: Option<usize>,
    depth: usize,
    /// Its agent, for life.
    agent: usize,
    /// The agent that took over.
    taken: Option<usize>,
    ceiling: Authority,
}

/// A host with its sessions; the first is a root.
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
        &self.manifests[session.taken.unwrap_or(session.agent)]
    }

    /// Sessions above, the parent first.
    fn above(&self, of: usize) -> Vec<usize> {
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
                self.sessions.push(TreeSession { parent: Some(parent), depth, agent, taken: None, ceiling });
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
                self.sessions[of].taken = Some(agent);
            }
        }
    }
}

/// As the hub has it.
fn real(host: &Host, of: usize) -> Authority {
    let above = host.above(of).into_iter().map(|up| &host.manifests[host.sessions[up].agent]);
    host.sessions[of].ceiling.at_use(&host.policy, host.own(of), above)
}

/// Seeded: a session that is found again goes by its manifest; the ceiling was for its first run.
fn ceiling_forgotten(host: &Host, of: usize) -> Authority {
    host.policy.meet(host.own(of))
}

/// Seeded bug: the recorded ceiling applies forever, whatever policy the host starts with.
fn frozen(host: &Host, of: usize) -> Authority {
    host.sessions[of].ceiling.clone()
}

/// Seeded: what the sessions above have lost is not asked.
fn above_forgotten(host: &Host, of: usize) -> Authority {
    host.sessions[of].ceiling.at_use(&host.policy, host.own(of), [])
}

/// Seeded: an agent that takes over brings its own authority.
fn override_raises(host: &Host, of: usize) -> Authority {
    match host.sessions[of].taken {
        Some(agent) => host.policy.meet(&host.manifests[agent]),
        None => real(host, of),
    }
}

/// Seeded: the host's policy is asked at the birth of a root and never again.
fn policy_forgotten(host: &Host, of: usize) -> Authority {
    let above = host.above(of).into_iter().map(|up| &host.manifests[host.sessions[up].agent]);
    host.sessions[of].ceiling.at_use(&Authority::allow_all(), host.own(of), above)
}

fn verdicts(authority: &Authority, ats: &[Access; 2]) -> [Verdict; 2] {
    ats.each_ref().map(|at| authority.verdict(at))
}

fn never_more(mine: [Verdict; 2], than: [Verdict; 2]) -> bool {
    mine.iter().zip(than).all(|(mine, than)| *mine <= than)
}

/// P-4: never above the recorded ceiling, nor above what policy, own manifest and the sessions above allow now.
fn is_held(at_use: AtUse, (policy, manifests, steps, ats): TreeLife) -> Result<(), TestCaseError> {
    let (policy, manifests) = (Authority::of(policy), manifests.map(Authority::of).to_vec());
    let ceiling = policy.meet(&manifests[0]);
    let root = TreeSession { parent: None, depth: 0, agent: 0, taken: None, ceiling };
    let mut host = Host { policy, manifests, sessions: vec![root] };
    for step in steps {
        let born = matches!(step, TreeStep::Spawn(..));
        let count = host.sessions.len();
        host.step(at_use, step);
        let may: Vec<[Verdict; 2]> =
            (0..host.sessions.len()).map(|of| at_use(&host, of)).map(|may| verdicts(&may, &ats)).collect();
        if born && let Some(child) = host.sessions.get(count) {
            // At its birth no child may do more than its parent may at that moment, whichever agent is active there.
            let (born, parent) = (verdicts(&child.ceiling, &ats), may[child.parent.unwrap()]);
            prop_assert!(never_more(born, parent), "born above its parent");
        }
        let policy = verdicts(&host.policy, &ats);
        let manifests: Vec<_> = host.manifests.iter().map(|manifest| verdicts(manifest, &ats)).collect();
        let ceilings: Vec<_> = host.sessions.iter().map(|session| verdicts(&session.ceiling, &ats)).collect();
        for (of, session) in host.sessions.iter().enumerate() {
            let mine = may[of];
            prop_assert!(never_more(mine, ceilings[of]), "above the ceiling that was recorded");
            prop_assert!(never_more(mine, policy), "above the host's policy");
            prop_assert!(never_more(mine, manifests[session.taken.unwrap_or(session.agent)]), "above its own manifest");
            for up in host.above(of) {
                let above = &host.sessions[up];
                prop_assert!(never_more(mine, ceilings[up]), "above an ancestor's ceiling");
                prop_assert!(never_more(mine, manifests[above.agent]), "above an ancestor's manifest");
                if above.taken.is_none() {
                    prop_assert!(never_more(mine, may[up]), "above what an ancestor may do");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn p4_no_event_in_a_tree_raises_the_authority_of_a_session() {
    held_and_noticed(
        lives,
        is_held,
        real as AtUse,
        &[
            ("ceiling forgotten", ceiling_forgotten),
            ("frozen", frozen),
            ("above forgotten", above_forgotten),
            ("an override raises", override_raises),
            ("policy forgotten", policy_forgotten),
        ],
    );
}
