//! The rules that decide for all resources of an action, found without comparing each rule with all others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::pattern::{self, Syntax, Weight};
use super::{ActionSet, Match, Ranked, Rule, RuleSet, Verdict};

/// The order in which rules of one resource beat each other.
type Strength = (Weight, Reverse<Verdict>);

fn strength(rule: &Rule) -> Strength {
    (Weight::of(&rule.action, Syntax::Plain), Reverse(rule.verdict))
}

#[derive(Default)]
struct Strongest {
    all: Option<Strength>,
    /// The strongest of the rules that also cover everything below a path.
    covering: Option<Strength>,
}

impl RuleSet {
    /// Returns the rules that can decide about `action`: all that no other rule of the same resource always beats.
    pub(super) fn deciding<'a>(&'a self, action: ActionSet<'a>) -> impl Iterator<Item = &'a Rule> {
        let syntax = action.syntax();
        let mut strongest: BTreeMap<&str, Strongest> = BTreeMap::new();
        for rule in self.rules.iter().filter(|rule| action.all_match(&rule.action)) {
            let found = strongest.entry(pattern::key(&rule.resource, syntax)).or_default();
            let strength = Some(strength(rule));
            found.all = found.all.max(strength);
            if rule.covers(syntax) {
                found.covering = found.covering.max(strength);
            }
        }
        let shadowed = move |rule: &Rule| {
            strongest.get(pattern::key(&rule.resource, syntax)).is_some_and(|found| {
                // An allow of a path does not override a deny of its contents.
                let other = if rule.covers(syntax) { found.covering } else { found.all };
                other > Some(strength(rule))
            })
        };
        self.rules.iter().filter(move |rule| action.some_match(&rule.action) && !shadowed(rule))
    }

    pub(super) fn best(&self, action: ActionSet<'_>) -> Verdict {
        let syntax = action.syntax();
        let deciding: Vec<&Rule> = self.deciding(action).collect();
        let mut everywhere: BTreeMap<Verdict, Ranks> = BTreeMap::new();
        for rule in deciding.iter().filter(|rule| rule.is_everywhere(syntax)) {
            everywhere.entry(rule.verdict).or_default().add(&Ranked::lowest(rule, syntax));
        }
        // A rule for every resource also applies wherever `rule` does, unless `rule` beats it.
        let bound = |rule: &&Rule| {
            let ranked = Ranked::new(rule, syntax, Match::Exact);
            let lowest = everywhere.iter().find(|(_, ranks)| !ranks.are_all_beaten_by(&ranked));
            lowest.map_or(rule.verdict, |(verdict, _)| rule.verdict.min(*verdict))
        };
        let floor = if self.default_decides(action) { self.default } else { Verdict::Deny };
        deciding.iter().map(bound).fold(floor, Verdict::max)
    }
}

/// The ranks of rules with one verdict.
#[derive(Default)]
struct Ranks {
    pairs: BTreeSet<(Weight, Weight)>,
    highest: Option<(Weight, Weight)>,
}

impl Ranks {
    fn add(&mut self, ranked: &Ranked) {
        let pair = (ranked.action, ranked.resource);
        let (action, resource) = self.highest.unwrap_or(pair);
        self.highest = Some((action.max(pair.0), resource.max(pair.1)));
        self.pairs.insert(pair);
    }

    fn are_all_beaten_by(&self, by: &Ranked) -> bool {
        let is_above = |(action, resource): (Weight, Weight)| by.action >= action && by.resource >= resource;
        self.highest.is_none_or(is_above) && !self.pairs.contains(&(by.action, by.resource))
    }
}

pub(super) fn drop_beaten(mut ranked: Vec<Ranked>) -> Vec<Ranked> {
    ranked.sort_unstable_by_key(|rank| Reverse((rank.action, rank.resource)));
    // `above` is the highest resource rank among more specific actions, `group` the first rank of the current action.
    let (mut above, mut group): (Option<Weight>, Option<(Weight, Weight)>) = (None, None);
    ranked.retain(|rank| {
        let (_, resource) = match group {
            Some(group) if group.0 == rank.action => group,
            last => {
                above = above.max(last.map(|(_, resource)| resource));
                *group.insert((rank.action, rank.resource))
            }
        };
        rank.resource == resource && above.is_none_or(|above| resource > above)
    });
    ranked
}
