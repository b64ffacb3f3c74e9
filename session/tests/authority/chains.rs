//! P-1, P-2 and P-3: the verdict of a chain of rule sets, starting with the host's.

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq};
use proptest::sample::Index;
use proptest::test_runner::TestCaseError;
use subtend_session::authority::{Access, Authority, Rule, RuleSet, Verdict};

use crate::given::{accesses, assert_property, chains, rules};

/// An evaluation of a chain of rule sets, the host's first.
type Evaluate = fn(&[RuleSet], &Access) -> Verdict;

/// Evaluates like the crate: each session's rules are met with the authority of its parent.
fn real(chain: &[RuleSet], at: &Access) -> Verdict {
    let met = chain.iter().cloned().map(Authority::of);
    met.fold(Authority::allow_all(), |parent, own| parent.meet(&own)).verdict(at)
}

fn matches(rule: &Rule, at: &Access) -> bool {
    let alone = RuleSet { default: Verdict::Allow, rules: vec![Rule { verdict: Verdict::Deny, ..rule.clone() }] };
    Authority::of(alone).verdict(at) == Verdict::Deny
}

/// Seeded bug: the last matching rule of all sets decides, and only the first session's default counts.
fn last_match_wins(chain: &[RuleSet], at: &Access) -> Verdict {
    let all = chain.iter().flat_map(|set| &set.rules);
    all.rev().find(|rule| matches(rule, at)).map_or(chain[0].default, |rule| rule.verdict)
}

/// Seeded bug: the highest verdict of all sets.
fn union(chain: &[RuleSet], at: &Access) -> Verdict {
    chain.iter().map(|set| Authority::of(set.clone()).verdict(at)).max().unwrap()
}

/// Seeded bug: only the session's own manifest counts.
fn own_rules_only(chain: &[RuleSet], at: &Access) -> Verdict {
    Authority::of(chain.last().unwrap().clone()).verdict(at)
}

/// Seeded bug: the grandparent is ignored.
fn parent_only(chain: &[RuleSet], at: &Access) -> Verdict {
    real(&chain[chain.len().saturating_sub(2)..], at)
}

/// Seeded bug: a set with rules allows everything that they do not match.
fn some_rule_is_permission(chain: &[RuleSet], at: &Access) -> Verdict {
    let lax = chain
        .iter()
        .cloned()
        .map(|set| RuleSet { default: if set.rules.is_empty() { set.default } else { Verdict::Allow }, ..set });
    real(&lax.collect::<Vec<_>>(), at)
}

/// P-1: at every depth a session never exceeds its ancestors.
fn child_never_exceeds(read: Evaluate, (chain, ats): (Vec<RuleSet>, [Access; 3])) -> Result<(), TestCaseError> {
    for at in &ats {
        let mut least = Verdict::Allow;
        for depth in 1..=chain.len() {
            let verdict = read(&chain[..depth], at);
            prop_assert!(verdict <= least, "at depth {depth} {verdict:?} of {at:?}, its ancestors {least:?}");
            least = verdict;
        }
    }
    Ok(())
}

#[test]
fn p1_child_never_exceeds_any_ancestor() {
    assert_property(
        || (chains(), [accesses(), accesses(), accesses()]),
        child_never_exceeds,
        real as Evaluate,
        &[
            ("last match wins", last_match_wins),
            ("union", union),
            ("own rules only", own_rules_only),
            ("the parent only", parent_only),
        ],
    );
}

type Added = (Vec<RuleSet>, Index, Index, Rule, Access);

fn additions() -> impl Strategy<Value = Added> {
    (chains(), any::<Index>(), any::<Index>(), rules(), accesses())
}

/// P-2: a deny that is added anywhere in the chain never raises a verdict of the last session. An allow that is added in
/// the last session never exceeds the ancestors.
fn is_monotone(read: Evaluate, (chain, set, place, rule, at): Added) -> Result<(), TestCaseError> {
    let with = |set: usize, verdict| {
        let mut more = chain.clone();
        let rules = &mut more[set].rules;
        rules.insert(place.index(rules.len() + 1), Rule { verdict, ..rule.clone() });
        more
    };
    let before = read(&chain, &at);
    let denied = with(set.index(chain.len()), Verdict::Deny);
    prop_assert!(read(&denied, &at) <= before, "a deny raised the verdict {before:?}");
    if let [ancestors @ .., _] = &*chain
        && !ancestors.is_empty()
    {
        let allowed = with(chain.len() - 1, Verdict::Allow);
        prop_assert!(read(&allowed, &at) <= read(ancestors, &at), "an allow exceeds the ancestors");
    }
    Ok(())
}

#[test]
fn p2_deny_above_and_allow_below_never_enlarge_authority() {
    assert_property(
        additions,
        is_monotone,
        real as Evaluate,
        &[("last match wins", last_match_wins), ("union", union), ("some rule is permission", some_rule_is_permission)],
    );
}

/// P-3: the order of the rules of a set does not change the verdict.
fn is_order_independent(
    read: Evaluate,
    (chain, turns, at): (Vec<RuleSet>, Vec<(Index, bool)>, Access),
) -> Result<(), TestCaseError> {
    let mut turned = chain.clone();
    for (set, (by, back)) in turned.iter_mut().zip(&turns) {
        let len = set.rules.len();
        set.rules.rotate_left(if len == 0 { 0 } else { by.index(len) });
        if *back {
            set.rules.reverse();
        }
    }
    prop_assert_eq!(read(&turned, &at), read(&chain, &at));
    Ok(())
}

/// Seeded bug: the first matching rule of a set decides.
fn first_match_wins(chain: &[RuleSet], at: &Access) -> Verdict {
    let of = |set: &RuleSet| set.rules.iter().find(|rule| matches(rule, at)).map_or(set.default, |rule| rule.verdict);
    chain.iter().map(of).min().unwrap()
}

#[test]
fn p3_rule_order_has_no_effect() {
    let turns = || proptest::collection::vec((any::<Index>(), any::<bool>()), 13);
    assert_property(
        || (chains(), turns(), accesses()),
        is_order_independent,
        real as Evaluate,
        &[("last match wins", last_match_wins), ("first match wins", first_match_wins)],
    );
}
