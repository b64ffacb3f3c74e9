//! Verdicts for whole directories, for sandboxes that cannot enforce patterns.

use super::deciding::drop_beaten;
use super::pattern::{self, Syntax};
use super::{ActionSet, Authority, Match, Ranked, Rule, RuleSet, Verdict};

impl Authority {
    /// Returns whether `action` is allowed for every path at and below `dir`, existing or not.
    ///
    /// The result may be `false` by mistake if no single rule allows every path, but several together do. It is never
    /// `true` by mistake. `action` is one of `fs.*`.
    pub fn allows_below(&self, action: &str, dir: &str) -> bool {
        pattern::is_normal(dir) && self.sets.iter().all(|set| set.allows_below(action, dir))
    }

    /// Returns whether `action` is allowed for no path at or below `dir`, existing or not; never `true` by mistake.
    pub fn denies_below(&self, action: &str, dir: &str) -> bool {
        !pattern::is_normal(dir) || self.sets.iter().any(|set| set.denies_below(action, dir))
    }
}

impl RuleSet {
    fn allows_below(&self, action: &str, dir: &str) -> bool {
        let rules = self.rules_below(action, dir);
        let everywhere = rules.iter().filter(|rule| rule.everywhere && rule.verdict() == Verdict::Allow);
        let everywhere = highest(everywhere);
        let mut lower = rules.iter().filter(|rule| rule.verdict() != Verdict::Allow);
        // If a rule covers the whole directory, the default never applies. A rule with a lower verdict does not apply if
        // an allow beats it.
        (self.default == Verdict::Allow || !everywhere.is_empty())
            && lower.all(|lower| everywhere.iter().any(|allow| allow.beats(&lower.ranked)))
    }

    fn denies_below(&self, action: &str, dir: &str) -> bool {
        let rules = self.rules_below(action, dir);
        let allows = highest(rules.iter().filter(|rule| rule.verdict() == Verdict::Allow));
        if self.default != Verdict::Allow && allows.is_empty() {
            return true;
        }
        let mut lower = rules.iter().filter(|rule| rule.everywhere && rule.verdict() != Verdict::Allow);
        lower.any(|lower| !allows.iter().any(|allow| allow.beats(&lower.least)))
    }

    fn rules_below(&self, action: &str, dir: &str) -> Vec<DirectoryRule> {
        let actions = ActionSet::One(action);
        let matching = self.rules.iter().filter(|rule| actions.some_match(&rule.action) && may_apply_below(rule, dir));
        matching
            .map(|rule| DirectoryRule {
                ranked: Ranked::new(rule, Syntax::Path, Match::Exact),
                least: Ranked::lowest(rule, Syntax::Path),
                everywhere: match covers(rule) {
                    true => pattern::covers(&rule.resource, dir),
                    false => pattern::matches_all_below(&rule.resource, dir),
                },
            })
            .collect()
    }
}

/// Returns the ranks of `rules` that no other one beats, each once: whatever some rank beats, one of these beats too.
fn highest<'a>(rules: impl Iterator<Item = &'a DirectoryRule>) -> Vec<Ranked> {
    let mut ranked = drop_beaten(rules.map(|rule| rule.ranked).collect());
    ranked.dedup_by_key(|rank| (rank.action, rank.resource));
    ranked
}

fn covers(rule: &Rule) -> bool {
    rule.covers(Syntax::Path)
}

fn may_apply_below(rule: &Rule, dir: &str) -> bool {
    pattern::may_match_below(&rule.resource, dir) || (covers(rule) && pattern::covers(&rule.resource, dir))
}

struct DirectoryRule {
    /// The rank of a match by the pattern itself, the highest.
    ranked: Ranked,
    /// The rank of a match by an ancestor directory, the lowest.
    least: Ranked,
    everywhere: bool,
}

impl DirectoryRule {
    fn verdict(&self) -> Verdict {
        self.ranked.verdict
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::authority::{Access, Rule};

    fn authority(default: Verdict, rules: &[(&str, &str, Verdict)]) -> Authority {
        let rules = rules.iter().map(|(action, resource, verdict)| Rule {
            action: (*action).into(),
            resource: (*resource).into(),
            verdict: *verdict,
        });
        Authority::of(RuleSet { default, rules: rules.collect() })
    }

    #[test]
    fn directory_verdicts_differ_from_single_paths() {
        let rules = [
            ("fs.*", "secret/**", Verdict::Deny),
            ("fs.*", "secret/open/**", Verdict::Allow),
            ("fs.read", "**/.env", Verdict::Deny),
            ("fs.write", "doc/*", Verdict::Ask),
        ];
        let authority = authority(Verdict::Allow, &rules);
        let all = |action, dir| (authority.allows_below(action, dir), authority.denies_below(action, dir));
        assert_eq!(all("fs.write", "."), (false, false));
        assert_eq!(all("fs.write", "src"), (true, false));
        assert_eq!(all("fs.write", "secret"), (false, false));
        assert_eq!(all("fs.write", "secret/deep"), (false, true));
        assert_eq!(all("fs.write", "secret/open"), (true, false));
        assert_eq!(all("fs.write", "doc"), (false, false));
        // An ask of `doc/*` also covers everything below each match.
        assert_eq!(all("fs.write", "doc/a"), (false, true));
        assert_eq!(all("fs.write", "doc/a/b"), (false, true));
        // Files that do not exist yet count too.
        assert_eq!(all("fs.read", "src"), (false, false));
        assert_eq!(all("fs.read", "secret/deep"), (false, true));
        assert_eq!(all("fs.read", "../x"), (false, true));
    }

    fn verdicts() -> impl Strategy<Value = Verdict> {
        prop_oneof![Just(Verdict::Deny), Just(Verdict::Ask), Just(Verdict::Allow)]
    }

    const DIRS: [&str; 6] = [".", "a", "b", "a/a", "a/b", "a/b/a"];

    fn rule() -> impl Strategy<Value = Rule> {
        let resources =
            vec!["*", "a", "a/", "a/*", "a/**", "**/b", "a/b/**", "*/a", "**/a/**", "a/*/b", "b*", "./a/b", "a/b", "."];
        let actions = prop::sample::select(vec!["*", "fs.*", "fs.read", "fs.write"]);
        (actions, prop::sample::select(resources), verdicts()).prop_map(|(action, resource, verdict)| Rule {
            action: action.into(),
            resource: resource.into(),
            verdict,
        })
    }

    fn authorities() -> impl Strategy<Value = Authority> {
        let set = (verdicts(), prop::collection::vec(rule(), 0..5))
            .prop_map(|(default, rules)| Authority::of(RuleSet { default, rules }));
        prop::collection::vec(set, 0..3)
            .prop_map(|sets| sets.iter().fold(Authority::allow_all(), |all, one| all.meet(one)))
    }

    fn paths() -> Vec<String> {
        let mut all: Vec<String> = vec![".".into()];
        let mut last = vec![String::new()];
        for _ in 0..4 {
            last = last.iter().flat_map(|dir| ["a", "b"].map(|name| format!("{dir}{name}/"))).collect();
            all.extend(last.iter().map(|path| path.trim_end_matches('/').to_owned()));
        }
        all
    }

    fn is_below(dir: &str, path: &str) -> bool {
        dir == "." || path == dir || path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn directory_verdict_holds_for_each_path_in_it(authority in authorities()) {
            for dir in DIRS {
                let (allows, denies) = (authority.allows_below("fs.read", dir), authority.denies_below("fs.read", dir));
                prop_assert!(!(allows && denies), "{dir}");
                for path in paths().iter().filter(|path| is_below(dir, path)) {
                    let at = Access { action: "fs.read".into(), resource: path.as_str().into() };
                    let allowed = authority.verdict(&at) == Verdict::Allow;
                    prop_assert!(!allows || allowed, "{path} is not allowed below {dir}");
                    prop_assert!(!denies || !allowed, "{path} is allowed below {dir}");
                }
            }
        }
    }
}
