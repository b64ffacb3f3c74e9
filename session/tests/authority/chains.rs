//! P-1, P-2 and P-3: what a chain of rule sets, from the host's down, comes to.

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq};
use proptest::sample::Index;
use proptest::test_runner::TestCaseError;
use subtend_session::authority::{Access, Authority, Rule, RuleSet, Verdict};

use crate::given::{accesses, chains, held_and_noticed, rules};

/// How a chain of rule sets, the host's first, comes to a verdict.
type Reading = fn(&[RuleSet], &Access) -> Verdict;

/// The one of the crate: each session's own rules are met with what its parent may do.
fn real(chain: &[RuleSet], at: &Access) -> Verdict {
    let met = chain.iter().cloned().map(Authority::of);
    met.fold(Authority::allow_all(), |above, own| above.meet(&own)).verdict(at)
}

fn matches(rule: &Rule, at: &Access) -> bool {
    let alone = RuleSet { default: Verdict::Allow, rules: vec![Rule { verdict: Verdict::Deny, ..rule.clone() }] };
    Authority::of(alone).verdict(at) == Verdict::Deny
}

/// Seeded: one long list, of which the last rule that matches wins; no session's default but the first one's counts.
fn last_match_wins(chain: &[RuleSet], at: &Access) -> Verdict {
    let all = chain.iter().flat_map(|set| &set.rules);
    all.rev().find(|rule| matches(rule, at)).map_or(chain[0].default, |rule| rule.verdict)
}

/// Seeded: what either allows.
fn union(chain: &[RuleSet], at: &Access) -> Verdict {
    chain.iter().map(|set| Authority::of(set.clone()).verdict(at)).max().unwrap()
}

/// Seeded: a session goes by its own manifest alone.
fn own_rules_only(chain: &[RuleSet], at: &Access) -> Verdict {
    Authority::of(chain.last().unwrap().clone()).verdict(at)
}

/// Seeded: the grandparent is forgotten.
fn parent_only(chain: &[RuleSet], at: &Access) -> Verdict {
    real(&chain[chain.len().saturating_sub(2)..], at)
}

/// Seeded: a set that has rules at all is taken to allow what they do not name.
fn some_rule_is_permission(chain: &[RuleSet], at: &Access) -> Verdict {
    let lax = chain
        .iter()
        .cloned()
        .map(|set| RuleSet { default: if set.rules.is_empty() { set.default } else { Verdict::Allow }, ..set });
    real(&lax.collect::<Vec<_>>(), at)
}

/// P-1: at every depth a session may do no more than each session above it.
fn a_child_never_exceeds(read: Reading, (chain, ats): (Vec<RuleSet>, [Access; 3])) -> Result<(), TestCaseError> {
    for at in &ats {
        let mut least = Verdict::Allow;
        for depth in 1..=chain.len() {
            let here = read(&chain[..depth], at);
            prop_assert!(here <= least, "at depth {depth} {here:?} of {at:?}, above it {least:?}");
            least = here;
        }
    }
    Ok(())
}

#[test]
fn p1_a_child_may_do_nothing_that_a_session_above_may_not() {
    held_and_noticed(
        || (chains(), [accesses(), accesses(), accesses()]),
        a_child_never_exceeds,
        real as Reading,
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

/// P-2: a deny that is added anywhere enlarges nothing at the end of the chain, and an allow that is added there never exceeds
/// what holds above it.
fn is_monotone(read: Reading, (chain, set, place, rule, at): Added) -> Result<(), TestCaseError> {
    let with = |set: usize, verdict| {
        let mut more = chain.clone();
        let rules = &mut more[set].rules;
        rules.insert(place.index(rules.len() + 1), Rule { verdict, ..rule.clone() });
        more
    };
    let before = read(&chain, &at);
    let denied = with(set.index(chain.len()), Verdict::Deny);
    prop_assert!(read(&denied, &at) <= before, "a deny made {before:?} more");
    if let [above @ .., _] = &*chain
        && !above.is_empty()
    {
        let allowed = with(chain.len() - 1, Verdict::Allow);
        prop_assert!(read(&allowed, &at) <= read(above, &at), "an allow exceeds what holds above");
    }
    Ok(())
}

#[test]
fn p2_deny_above_and_allow_below_never_enlarge_authority() {
    held_and_noticed(
        additions,
        is_monotone,
        real as Reading,
        &[("last match wins", last_match_wins), ("union", union), ("some rule is permission", some_rule_is_permission)],
    );
}

/// P-3: rules in any order, and sets of one session in any order, say the same.
fn is_without_order(
    read: Reading,
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

/// Seeded: of the rules of a set the first that matches wins.
fn first_match_wins(chain: &[RuleSet], at: &Access) -> Verdict {
    let of = |set: &RuleSet| set.rules.iter().find(|rule| matches(rule, at)).map_or(set.default, |rule| rule.verdict);
    chain.iter().map(of).min().unwrap()
}

#[test]
fn p3_the_order_of_rules_means_nothing() {
    let turns = || proptest::collection::vec((any::<Index>(), any::<bool>()), 13);
    held_and_noticed(
        || (chains(), turns(), accesses()),
        is_without_order,
        real as Reading,
        &[("last match wins", last_match_wins), ("first match wins", first_match_wins)],
    );
}
