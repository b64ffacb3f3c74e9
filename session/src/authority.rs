//! The permissions of a session, combined only by meet.
//! # Evaluation of a rule set
//!
//! A rule *matches* an access when both its patterns do. Rule A *beats* rule B when A is at least as specific as B in
//! its action **and** in its resource, and more specific in one of them. The verdict of a set is the lowest verdict
//! among the matching rules that no other matching rule beats. If no rule matches, it is the set's default. The order
//! of rules has no effect. If neither of two rules beats the other, the lower verdict applies: they are equally specific,
//! or one has the more specific action and the other the more specific resource. Adding a deny to a set can only lower
//! verdicts.
//!
//! The pattern with more characters other than `*` is more specific. Ties are broken by more path parts, then by fewer
//! `**`, then by fewer `*`. If pattern A matches a subset of what pattern B matches, A is never less specific than B.
//! # Patterns
//!
//! In actions, and in resources of all actions except `fs.*`, `*` matches any number of characters, including `/`.
//! Resources of `fs.*` are paths in the workspace. There `*` matches any number of characters within one part of the
//! path, and a part `**` matches any number of parts: `src/**` matches `src` and everything in it. A pattern may start
//! with `/` or `./` and end with `/`: `src/` means `src/**`. The pattern `*` alone matches every resource. No other
//! character is special: `?`, `[`, `{` and `!` match themselves.
//!
//! A deny or an ask of a path covers everything below it: `src` means the two rules `src` and `src/**`. An allow
//! covers the path alone, so that it never allows more than its pattern matches.
//!
//! A resource of `fs.*` that is not a normal relative path (empty, absolute, with an empty, `.` or `..` part, with NUL
//! or `\\`, or of more than [`Authority::MAX_PATH_PARTS`]) is denied, whatever the rules say.

mod below;
mod deciding;
mod ordered;
mod pattern;
mod present;
mod size;
#[cfg(test)]
mod tests;
mod words;

use std::cmp::Ordering;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::authority::deciding::drop_beaten;
use crate::authority::pattern::{Syntax, Weight};
use crate::ids::Text;

pub use size::TooManyRules;
pub use words::{ACTIONS, BadRule, is_wide_address};

/// The permission for one resource. The order is the lattice: `Deny < Ask < Allow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    Deny,
    Ask,
    Allow,
}

/// Actions are words such as `fs.read`, `shell.run`, `task:explore`, `mcp:server:tool`; `*` matches any number of
/// characters. Resources of `fs.*` are paths relative to the workspace, with `/` between parts and no leading `/`. The
/// workspace itself is `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rule {
    pub action: Text,
    #[serde(default = "any", skip_serializing_if = "is_any")]
    pub resource: Text,
    pub verdict: Verdict,
}

fn any() -> Text {
    "*".into()
}

fn is_any(pattern: &Text) -> bool {
    &**pattern == "*"
}

/// Rules of one source (host, manifest, request): the most specific rule wins, ties take the lower verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RuleSet {
    /// The verdict if no rule matches.
    pub default: Verdict,
    /// The rules; their order has no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// The permissions of a session: the meet of its rule sets. The meet of no rule sets allows everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Authority {
    /// Sorted and deduplicated, each with sorted rules, so that equal sets compare equal.
    sets: Vec<Arc<RuleSet>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Access {
    pub action: Text,
    pub resource: Text,
}

impl RuleSet {
    /// Returns a set without rules.
    pub fn only(default: Verdict) -> Self {
        Self { default, rules: Vec::new() }
    }

    fn canonical(mut self) -> Self {
        self.rules.sort_unstable();
        self.rules.dedup();
        self
    }

    fn verdict(&self, access: &Access, syntax: Syntax) -> Verdict {
        let mut matching = self.rules.iter().filter_map(|rule| Some((rule, rule.matches(access, syntax)?)));
        let Some(first) = matching.next() else { return self.default };
        let Some(second) = matching.next() else { return first.0.verdict };
        let ranked = [first, second]
            .into_iter()
            .chain(matching)
            .map(|(rule, matched)| Ranked::new(rule, syntax, matched))
            .collect();
        drop_beaten(ranked).iter().map(|rule| rule.verdict).min().unwrap_or(self.default)
    }

    fn verdict_by_names(&self, action: &str, names: &[&str]) -> Verdict {
        let syntax = Syntax::of(action);
        let (mut named, mut others) = (None::<Verdict>, None::<Verdict>);
        for name in names {
            let access = Access { action: action.into(), resource: (*name).into() };
            let is_named = |rule: &Rule| !rule.is_everywhere(syntax) && rule.matches(&access, syntax).is_some();
            let lowest = if self.rules.iter().any(is_named) { &mut named } else { &mut others };
            let verdict = self.verdict(&access, syntax);
            *lowest = Some(lowest.map_or(verdict, |lowest| lowest.min(verdict)));
        }
        named.or(others).unwrap_or(Verdict::Deny)
    }

    /// Returns whether the default applies to some resource of `action`.
    fn default_decides(&self, action: ActionSet<'_>) -> bool {
        let syntax = action.syntax();
        !self.rules.iter().any(|rule| action.all_match(&rule.action) && rule.is_everywhere(syntax))
    }

    fn unrestricted(&self, action: ActionSet<'_>) -> bool {
        (!self.default_decides(action) || self.default == Verdict::Allow)
            && self.deciding(action).all(|rule| rule.verdict == Verdict::Allow)
    }
}

impl Rule {
    fn matches(&self, access: &Access, syntax: Syntax) -> Option<Match> {
        if !pattern::matches(&self.action, &access.action, Syntax::Plain) {
            return None;
        }
        if pattern::matches(&self.resource, &access.resource, syntax) {
            return Some(Match::Exact);
        }
        (self.covers(syntax) && pattern::covers(&self.resource, &access.resource)).then_some(Match::Below)
    }

    fn is_everywhere(&self, syntax: Syntax) -> bool {
        pattern::is_any(&self.resource, syntax) || (self.covers(syntax) && pattern::covers(&self.resource, "."))
    }

    /// Returns whether the rule also covers everything below a path that it matches.
    fn covers(&self, syntax: Syntax) -> bool {
        syntax == Syntax::Path && (self.verdict != Verdict::Allow || pattern::ends_with_span(&self.resource))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    Exact,
    Below,
}

#[derive(Clone, Copy)]
struct Ranked {
    action: Weight,
    resource: Weight,
    verdict: Verdict,
}

impl Ranked {
    fn new(rule: &Rule, syntax: Syntax, matched: Match) -> Self {
        Self {
            action: Weight::of(&rule.action, Syntax::Plain),
            resource: match matched {
                Match::Exact => Weight::of(&rule.resource, syntax),
                Match::Below => Weight::of_cover(&rule.resource),
            },
            verdict: rule.verdict,
        }
    }

    fn lowest(rule: &Rule, syntax: Syntax) -> Self {
        Self::new(rule, syntax, if rule.covers(syntax) { Match::Below } else { Match::Exact })
    }

    fn beats(&self, other: &Self) -> bool {
        self.action >= other.action
            && self.resource >= other.resource
            && (self.action > other.action || self.resource > other.resource)
    }
}

#[derive(Clone, Copy)]
enum ActionSet<'a> {
    One(&'a str),
    Prefix(&'a str),
}

impl<'a> ActionSet<'a> {
    fn parse(action: &'a str) -> Self {
        action.strip_suffix('*').map_or(Self::One(action), Self::Prefix)
    }

    fn syntax(self) -> Syntax {
        match self {
            Self::One(action) | Self::Prefix(action) => Syntax::of(action),
        }
    }

    /// Returns whether `pattern` surely matches every one of the actions.
    fn all_match(self, pattern: &str) -> bool {
        match self {
            Self::One(action) => pattern::matches(pattern, action, Syntax::Plain),
            Self::Prefix(prefix) => pattern.ends_with('*') && pattern::matches(pattern, prefix, Syntax::Plain),
        }
    }

    /// Returns whether `pattern` may match one of the actions.
    fn some_match(self, pattern: &str) -> bool {
        match self {
            Self::One(action) => pattern::matches(pattern, action, Syntax::Plain),
            Self::Prefix(prefix) => {
                let literal = pattern.split('*').next().unwrap_or_default();
                let all_literal = literal.len() == pattern.len();
                literal.starts_with(prefix) || (!all_literal && prefix.starts_with(literal))
            }
        }
    }
}

impl Authority {
    pub fn of(rules: RuleSet) -> Self {
        Self::collect([Arc::new(rules)])
    }

    pub fn deny_all() -> Self {
        Self::of(RuleSet::only(Verdict::Deny))
    }

    pub fn allow_all() -> Self {
        Self { sets: Vec::new() }
    }

    /// Returns the meet: for each access the lower of the two verdicts. Rule sets are shared, not copied.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        let mut sets = Vec::with_capacity(self.sets.len().saturating_add(other.sets.len()));
        let (mut left, mut right) = (self.sets.iter().peekable(), other.sets.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) if Arc::ptr_eq(a, b) => Ordering::Equal,
                (Some(a), Some(b)) => a.cmp(b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Self { sets },
            };
            let taken = match order {
                Ordering::Less => left.next(),
                Ordering::Greater => right.next(),
                Ordering::Equal => {
                    right.next();
                    left.next()
                }
            };
            sets.extend(taken.cloned());
        }
    }

    /// Returns the same authority without the rules for which `keep` is false.
    ///
    /// Use it only where something else enforces those rules: the result may allow more.
    #[must_use]
    pub fn retaining(&self, keep: impl Fn(&RuleSet, &Rule) -> bool) -> Self {
        let rest = |set: &Arc<RuleSet>| {
            let rules = set.rules.iter().filter(|rule| keep(set, rule)).cloned().collect();
            Arc::new(RuleSet { default: set.default, rules })
        };
        Self::collect(self.sets.iter().map(rest))
    }

    pub fn verdict(&self, access: &Access) -> Verdict {
        let syntax = Syntax::of(&access.action);
        if syntax == Syntax::Path && !pattern::is_normal(&access.resource) {
            return Verdict::Deny;
        }
        self.least(|set| set.verdict(access, syntax))
    }

    /// Returns the verdict for a resource with several names. In each rule set, rules for any of the names take
    /// precedence over rules for every resource (`*`), and the lowest verdict applies. So no name evades a rule for
    /// another name.
    pub fn verdict_by_names(&self, action: &str, names: &[&str]) -> Verdict {
        self.least(|set| set.verdict_by_names(action, names))
    }

    /// Returns an upper bound of the verdicts for `action`: never less than [`Authority::verdict`] of any resource.
    ///
    /// The bound decides whether a tool is offered. It is exact for one rule set, unless several patterns must be
    /// combined to cover everything.
    pub fn best(&self, action: &str) -> Verdict {
        self.least(|set| set.best(ActionSet::One(action)))
    }

    /// Returns whether every resource of these actions is allowed; `fs.*` means all actions that start with `fs.`.
    ///
    /// A shell needs `["fs.*", "net.*"]`. The result may be `false` by mistake if rules override each other. It is never
    /// `true` by mistake.
    pub fn unrestricted(&self, actions: &[&str]) -> bool {
        actions.iter().all(|action| {
            let actions = ActionSet::parse(action);
            self.sets.iter().all(|set| set.unrestricted(actions))
        })
    }

    /// Returns whether this authority contains all rule sets of `ancestor`, and so never exceeds it.
    pub fn within(&self, ancestor: &Self) -> bool {
        let mut mine = self.sets.iter();
        ancestor.sets.iter().all(|set| mine.any(|own| own == set))
    }

    fn least(&self, verdict: impl Fn(&RuleSet) -> Verdict) -> Verdict {
        let mut least = Verdict::Allow;
        for set in &self.sets {
            least = least.min(verdict(set));
            if least == Verdict::Deny {
                break;
            }
        }
        least
    }

    fn collect(sets: impl IntoIterator<Item = Arc<RuleSet>>) -> Self {
        let canonical = |set: Arc<RuleSet>| Arc::new(Arc::unwrap_or_clone(set).canonical());
        let mut sets: Vec<_> = sets.into_iter().map(canonical).filter(|set| **set != ALLOW_ALL).collect();
        sets.sort();
        sets.dedup();
        Self { sets }
    }
}

static ALLOW_ALL: RuleSet = RuleSet { default: Verdict::Allow, rules: Vec::new() };

impl<'de> Deserialize<'de> for Authority {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<Arc<RuleSet>>::deserialize(deserializer).map(Self::collect)
    }
}
