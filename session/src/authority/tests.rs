//! Laws of authority, each checked against an independent implementation of the rules.

use std::sync::Arc;

use proptest::prelude::{ProptestConfig, Strategy, any, prop, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;

use super::*;

mod bounds;
mod cases;
mod deciding;

fn rule(action: &str, resource: &str, verdict: Verdict) -> Rule {
    Rule { action: action.into(), resource: resource.into(), verdict }
}

fn access(action: &str, resource: &str) -> Access {
    Access { action: action.into(), resource: resource.into() }
}

fn set(default: Verdict, rules: &[(&str, &str, Verdict)]) -> RuleSet {
    RuleSet {
        default,
        rules: rules.iter().map(|(action, resource, verdict)| rule(action, resource, *verdict)).collect(),
    }
}

/// An independent implementation of the rules: simple, quadratic and recursive.
mod oracle {
    use super::*;

    pub(super) fn plain(pattern: &[char], text: &[char]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|n| plain(rest, &text[n..])),
            Some((c, rest)) => text.first() == Some(c) && plain(rest, &text[1..]),
        }
    }

    pub(super) fn chars(text: &str) -> Vec<char> {
        text.chars().collect()
    }

    fn names(path: &str) -> Vec<&str> {
        if path == "." { Vec::new() } else { path.split('/').collect() }
    }

    fn pattern_parts(pattern: &str) -> Vec<&str> {
        if pattern.chars().all(|c| c == '*') && !pattern.is_empty() {
            return vec!["**"];
        }
        let mut parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if pattern.ends_with('/') {
            parts.push("**");
        }
        parts
    }

    fn parts_match(parts: &[&str], names: &[&str]) -> bool {
        match parts.split_first() {
            None => names.is_empty(),
            Some((&"**", rest)) => (0..=names.len()).any(|n| parts_match(rest, &names[n..])),
            Some((part, rest)) => {
                names.first().is_some_and(|name| plain(&chars(part), &chars(name))) && parts_match(rest, &names[1..])
            }
        }
    }

    pub(super) fn resource(action: &str, pattern: &str, text: &str) -> bool {
        if action.starts_with("fs.") {
            parts_match(&pattern_parts(pattern), &names(text))
        } else {
            plain(&chars(pattern), &chars(text))
        }
    }

    type Key = (i64, i64, i64, i64);

    fn runs(text: &str) -> i64 {
        text.split(|c| c != '*').filter(|run| !run.is_empty()).count() as i64
    }

    fn literals(text: &str) -> i64 {
        text.chars().filter(|c| *c != '*').count() as i64
    }

    fn key(pattern: &str, path: bool) -> Key {
        let parts = pattern_parts(pattern);
        if path && !parts.is_empty() && parts.iter().all(|part| *part == "**") {
            return (0, 0, -1, 0);
        }
        if !path {
            let any = !pattern.is_empty() && literals(pattern) == 0;
            return if any { (0, 0, -1, 0) } else { (literals(pattern), 0, 0, -runs(pattern)) };
        }
        let named: Vec<&&str> = parts.iter().filter(|part| **part != "**").collect();
        let spans = parts.split(|part| *part != "**").filter(|run| !run.is_empty()).count() as i64;
        let sum = |of: fn(&str) -> i64| named.iter().map(|part| of(part)).sum::<i64>();
        (sum(literals), named.len() as i64, -spans, -sum(runs))
    }

    /// Returns the path and every directory above it up to the workspace.
    fn upwards(path: &str) -> Vec<String> {
        let names = names(path);
        (0..=names.len()).map(|n| if n == 0 { ".".to_owned() } else { names[..n].join("/") }).collect()
    }

    /// Returns the specificity of the rule's match: of the path itself, or of a directory above it.
    fn at(rule: &Rule, access: &Access) -> Option<Key> {
        let path = access.action.starts_with("fs.");
        if resource(&access.action, &rule.resource, &access.resource) {
            return Some(key(&rule.resource, path));
        }
        let above = || upwards(&access.resource).iter().any(|at| resource(&access.action, &rule.resource, at));
        (path && rule.verdict != Verdict::Allow && above()).then(|| key(&format!("{}/**", rule.resource), path))
    }

    pub(super) fn verdict(set: &RuleSet, access: &Access) -> Verdict {
        let path = access.action.starts_with("fs.");
        let bad = |part: &str| part.is_empty() || part == "." || part == "..";
        let normal = &*access.resource == "."
            || (!access.resource.split('/').any(bad) && !access.resource.chars().any(|c| c == '\\' || c == '\0'));
        if path && !normal {
            return Verdict::Deny;
        }
        let matching: Vec<(Key, Key, Verdict)> = set
            .rules
            .iter()
            .filter(|rule| plain(&chars(&rule.action), &chars(&access.action)))
            .filter_map(|rule| Some((key(&rule.action, false), at(rule, access)?, rule.verdict)))
            .collect();
        let best =
            |a: &(Key, Key, Verdict)| !matching.iter().any(|b| b.0 >= a.0 && b.1 >= a.1 && (b.0 > a.0 || b.1 > a.1));
        matching.iter().filter(|rule| best(rule)).map(|rule| rule.2).min().unwrap_or(set.default)
    }
}

const ACTIONS: [&str; 6] = ["fs.read", "fs.write", "shell.run", "net.fetch", "task:explore", "mcp:s:t"];
const ACTION_PATTERNS: [&str; 11] =
    ["*", "fs.*", "fs.read", "fs.write", "f*", "*.r*", "shell.run", "net.*", "task:*", "mcp:*", "task:explore"];
const RESOURCES: [&str; 14] = [
    ".",
    "src",
    "src/a.rs",
    "src/b/a.rs",
    "src/b/c/a.rs",
    ".env",
    "b/.env",
    "secret",
    "secret/k",
    "explore",
    "https://x/y",
    "ls -l",
    "../x",
    "src//a.rs",
];
const RESOURCE_PATTERNS: [&str; 20] = [
    "*",
    "**",
    "src/**",
    "src/*",
    "src/",
    "**/a.rs",
    "**/*.rs",
    "src/**/a.rs",
    ".env",
    "**/.env",
    "secret/**",
    ".",
    "https://x/*",
    "ls*",
    "./src/a.rs",
    "*/*",
    "s*/**",
    "src",
    "s*",
    "src/b",
];

fn verdicts() -> impl Strategy<Value = Verdict> {
    select(vec![Verdict::Deny, Verdict::Ask, Verdict::Allow])
}

fn rules() -> impl Strategy<Value = Rule> {
    (select(&ACTION_PATTERNS[..]), select(&RESOURCE_PATTERNS[..]), verdicts())
        .prop_map(|(action, resource, verdict)| rule(action, resource, verdict))
}

fn rule_sets() -> impl Strategy<Value = RuleSet> {
    (verdicts(), prop::collection::vec(rules(), 0..6)).prop_map(|(default, rules)| RuleSet { default, rules })
}

fn authorities() -> impl Strategy<Value = Authority> {
    prop::collection::vec(rule_sets(), 0..4)
        .prop_map(|sets| sets.into_iter().map(Authority::of).fold(Authority::allow_all(), |all, one| all.meet(&one)))
}

fn accesses() -> impl Strategy<Value = Access> {
    (select(&ACTIONS[..]), select(&RESOURCES[..])).prop_map(|(action, resource)| access(action, resource))
}

fn world() -> impl Iterator<Item = Access> {
    ACTIONS.iter().flat_map(|action| RESOURCES.iter().map(|resource| access(action, resource)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn meet_is_a_semilattice(a in authorities(), b in authorities(), c in authorities()) {
        prop_assert_eq!(&a.meet(&a), &a);
        prop_assert_eq!(a.meet(&b), b.meet(&a));
        prop_assert_eq!(a.meet(&b).meet(&c), a.meet(&b.meet(&c)));
        prop_assert_eq!(&a.meet(&Authority::allow_all()), &a);
    }

    #[test]
    fn meet_gives_the_lower_verdict_for_each_access(a in authorities(), b in authorities(), at in accesses()) {
        prop_assert_eq!(a.meet(&b).verdict(&at), a.verdict(&at).min(b.verdict(&at)));
    }

    #[test]
    fn descendant_never_exceeds_its_ancestors(chain in prop::collection::vec(rule_sets(), 1..=12), at in accesses()) {
        let mut above = Authority::allow_all();
        let mut least = Verdict::Allow;
        for manifest in chain {
            let below = above.meet(&Authority::of(manifest));
            prop_assert!(below.within(&above));
            prop_assert!(below.verdict(&at) <= least, "{:?} over {:?}", below, above);
            least = below.verdict(&at);
            above = below;
        }
    }

    /// The deny may be at any level of the chain.
    #[test]
    fn deny_added_to_an_ancestor_never_allows_more(
        chain in prop::collection::vec(rule_sets(), 1..=12), place in any::<prop::sample::Index>(),
        added in rules(), at in accesses(),
    ) {
        let effective = |chain: &[RuleSet]| {
            let met = chain.iter().cloned().map(Authority::of);
            met.fold(Authority::allow_all(), |all, one| all.meet(&one)).verdict(&at)
        };
        let before = effective(&chain);
        let mut after = chain.clone();
        after[place.index(chain.len())].rules.push(Rule { verdict: Verdict::Deny, ..added });
        prop_assert!(effective(&after) <= before);
    }

    #[test]
    fn allow_added_to_a_descendant_stays_within_ancestor(above in authorities(), below in rule_sets(), added in rules(), at in accesses()) {
        let mut more = below;
        more.rules.push(Rule { verdict: Verdict::Allow, ..added });
        prop_assert!(above.meet(&Authority::of(more)).verdict(&at) <= above.verdict(&at));
    }

    #[test]
    fn rule_order_has_no_effect(rules in rule_sets(), by in any::<u64>(), at in accesses()) {
        let mut shuffled = rules.clone();
        let turn = usize::try_from(by).unwrap_or(0) % shuffled.rules.len().max(1);
        shuffled.rules.rotate_left(turn);
        if by % 2 == 0 {
            shuffled.rules.reverse();
        }
        prop_assert_eq!(shuffled.verdict(&at, Syntax::of(&at.action)), rules.verdict(&at, Syntax::of(&at.action)));
        prop_assert_eq!(Authority::of(shuffled), Authority::of(rules));
    }

    #[test]
    fn rule_set_matches_the_oracle(rules in rule_sets(), at in accesses()) {
        // An authority denies paths that are not normal before it reads any set.
        let expected = oracle::verdict(&rules, &at);
        let all_allowed = rules == RuleSet::only(Verdict::Allow);
        prop_assert_eq!(Authority::of(rules).verdict(&at), if all_allowed { expected.min(Authority::allow_all().verdict(&at)) } else { expected });
    }

    /// A path that no rule allows by itself is not allowed just because a rule names a directory above it.
    #[test]
    fn a1_covering_directories_never_allows_more(rules in rule_sets(), at in accesses()) {
        let verdict = Authority::of(rules.clone()).verdict(&at);
        prop_assert!(verdict != Verdict::Allow || exact(&rules, &at) == Verdict::Allow);
    }

    /// The bound decides which tools are offered: a hidden tool would never be allowed.
    #[test]
    fn best_bounds_every_resource(authority in authorities(), at in accesses()) {
        prop_assert!(authority.verdict(&at) <= authority.best(&at.action));
    }

    #[test]
    fn unrestricted_implies_every_resource_is_allowed(authority in authorities(), prefix in select(vec!["*", "f*", "fs.*", "net.*", "mcp:*"])) {
        let is_unrestricted = authority.unrestricted(&[prefix]);
        for at in world().filter(|at| at.action.starts_with(prefix.trim_end_matches('*'))) {
            let normal = Syntax::of(&at.action) == Syntax::Plain || pattern::is_normal(&at.resource);
            prop_assert!(!is_unrestricted || !normal || authority.verdict(&at) == Verdict::Allow, "{:?}", at);
        }
    }

    #[test]
    fn json_brings_back_the_same_authority(authority in authorities()) {
        let json = serde_json::to_string(&authority).expect("authorities are plain data");
        prop_assert_eq!(serde_json::from_str::<Authority>(&json).expect("the written JSON parses"), authority);
    }

    /// A resource can be any text: an `fs` path that is not normal is denied, and nothing panics.
    #[test]
    fn hostile_resources_are_denied(rules in rule_sets(), resource in "[a./\\\\*\u{0}é]{0,12}") {
        let at = access("fs.read", &resource);
        let authority = Authority::of(rules);
        let parts_normal = resource.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        let normal = &*resource == "." || (parts_normal && !resource.contains('\\') && !resource.contains('\0'));
        if !normal {
            prop_assert_eq!(authority.verdict(&at), Verdict::Deny);
            prop_assert_eq!(Authority::allow_all().verdict(&at), Verdict::Deny);
        }
        prop_assert!(authority.verdict(&access("net.fetch", &resource)) <= authority.best("net.fetch"));
    }
}

/// Returns all words of at most `len` letters of `alphabet`.
fn words(alphabet: &[char], len: usize) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut last = all.clone();
    for _ in 0..len {
        last = last.iter().flat_map(|word| alphabet.iter().map(move |c| format!("{word}{c}"))).collect();
        all.extend(last.iter().cloned());
    }
    all
}

#[test]
fn every_short_pattern_matches_like_the_oracle() {
    let texts = words(&['a', 'b', '/'], 4);
    for pattern in words(&['a', 'b', '/', '*'], 4) {
        for text in &texts {
            let plain = oracle::plain(&oracle::chars(&pattern), &oracle::chars(text));
            assert_eq!(pattern::matches(&pattern, text, Syntax::Plain), plain, "{pattern:?} on {text:?}");
            if pattern::is_normal(text) {
                let path = oracle::resource("fs.read", &pattern, text);
                assert_eq!(pattern::matches(&pattern, text, Syntax::Path), path, "{pattern:?} on path {text:?}");
            }
        }
    }
}

/// The documented reason for the weights: a pattern that matches less is never less specific.
#[test]
fn narrower_pattern_is_never_less_specific() {
    for syntax in [Syntax::Plain, Syntax::Path] {
        // No pattern contains `c`: only a wildcard matches it.
        let texts: Vec<String> = match syntax {
            Syntax::Plain => words(&['a', '/', 'c'], 5),
            Syntax::Path => words(&['a', '/', 'c'], 7)
                .into_iter()
                .chain([".".into()])
                .filter(|text| pattern::is_normal(text))
                .collect(),
        };
        let patterns = words(&['a', '/', '*'], 4);
        let matched: Vec<Vec<bool>> = patterns
            .iter()
            .map(|pattern| texts.iter().map(|text| pattern::matches(pattern, text, syntax)).collect())
            .collect();
        for (less, of_less) in patterns.iter().zip(&matched) {
            for (more, of_more) in patterns.iter().zip(&matched) {
                let within = of_less.contains(&true) && of_less.iter().zip(of_more).all(|(less, more)| !less || *more);
                if within && of_less != of_more {
                    assert!(Weight::of(less, syntax) >= Weight::of(more, syntax), "{less:?} in {more:?}, {syntax:?}");
                }
            }
        }
    }
}

/// Returns the verdict of a set whose rules match paths exactly and do not cover directories.
fn exact(set: &RuleSet, at: &Access) -> Verdict {
    let spelled = |rule: &&Rule| oracle::resource(&at.action, &rule.resource, &at.resource);
    let rules = set.rules.iter().filter(spelled).cloned().collect();
    oracle::verdict(&RuleSet { default: set.default, rules }, at)
}

#[test]
fn a1_deny_or_ask_of_a_directory_covers_its_contents() {
    let verdict_of = |rules: &[(&str, &str, Verdict)], resource| {
        Authority::of(set(Verdict::Allow, rules)).verdict(&access("fs.read", resource))
    };
    for verdict in [Verdict::Deny, Verdict::Ask] {
        for pattern in ["secret", "./secret", "/secret", "s*t", "**/secret"] {
            let rules = [("fs.read", pattern, verdict)];
            let got = ["secret", "secret/k", "secret/a/b", "secrets", "src/a.rs"].map(|at| verdict_of(&rules, at));
            let expected = [verdict, verdict, verdict, Verdict::Allow, Verdict::Allow];
            assert_eq!(got, expected, "{pattern}");
        }
        assert_eq!(verdict_of(&[("fs.*", ".", verdict)], "src/a.rs"), verdict, "the workspace is a directory too");
    }
    // A more specific rule decides inside, as with `secret/**`.
    let open = [("fs.read", "secret", Verdict::Deny), ("fs.read", "secret/open/**", Verdict::Allow)];
    assert_eq!([verdict_of(&open, "secret/k"), verdict_of(&open, "secret/open/k")], [Verdict::Deny, Verdict::Allow]);
    let same = [("fs.read", "secret", Verdict::Ask), ("fs.read", "secret/**", Verdict::Deny)];
    assert_eq!(verdict_of(&same, "secret/k"), Verdict::Deny, "ties take the lower verdict");
}

#[test]
fn a1_allow_of_a_directory_does_not_cover_its_contents() {
    let authority = Authority::of(set(Verdict::Deny, &[("fs.write", "src", Verdict::Allow)]));
    let verdict_of = |resource| authority.verdict(&access("fs.write", resource));
    assert_eq!([verdict_of("src"), verdict_of("src/a.rs")], [Verdict::Allow, Verdict::Deny]);
}

#[test]
fn a1_patterns_of_other_actions_do_not_cover_contents() {
    let authority = Authority::of(set(Verdict::Allow, &[("net.fetch", "https://x", Verdict::Deny)]));
    assert_eq!(authority.verdict(&access("net.fetch", "https://x/y")), Verdict::Allow);
}

#[test]
fn a1_specific_allow_does_not_override_directory_deny() {
    let rules = [("fs.*", "secret", Verdict::Deny), ("fs.read", "secret", Verdict::Allow)];
    let authority = Authority::of(set(Verdict::Allow, &rules));
    assert_eq!(authority.verdict(&access("fs.read", "secret/k")), Verdict::Deny);
    assert!(!authority.unrestricted(&["fs.read"]));
}

#[test]
fn every_pair_of_rules_matches_the_oracle() {
    let all: Vec<Rule> = ["*", "fs.*", "fs.read"]
        .iter()
        .flat_map(|action| {
            ["*", "src/**", "src/*", "src", "s*", ".", "**/a.rs", "src/b/a.rs", "src/a.rs"].iter().flat_map(
                move |resource| {
                    [Verdict::Deny, Verdict::Ask, Verdict::Allow].map(|verdict| rule(action, resource, verdict))
                },
            )
        })
        .collect();
    for first in &all {
        for second in &all {
            let rules = RuleSet { default: Verdict::Ask, rules: vec![first.clone(), second.clone()] };
            let authority = Authority::of(rules.clone());
            for at in world() {
                assert_eq!(authority.verdict(&at), oracle::verdict(&rules, &at), "{rules:?} on {at:?}");
            }
        }
    }
}

#[test]
fn most_specific_rule_applies_and_ties_take_the_lower_verdict() {
    let rules = set(
        Verdict::Deny,
        &[
            ("fs.*", "*", Verdict::Ask),
            ("fs.read", "**", Verdict::Allow),
            ("fs.read", "**/.env", Verdict::Deny),
            ("fs.*", "secret/", Verdict::Deny),
            ("fs.write", "src/gen/**", Verdict::Allow),
            ("fs.write", "src/*/**", Verdict::Ask),
        ],
    );
    let authority = Authority::of(rules);
    let verdict_of = |action, resource| authority.verdict(&access(action, resource));
    assert_eq!(verdict_of("fs.read", "src/a.rs"), Verdict::Allow);
    assert_eq!(verdict_of("fs.read", "a/b/.env"), Verdict::Deny);
    assert_eq!(verdict_of("fs.read", ".env"), Verdict::Deny);
    // One rule names the action, the other the path: neither is more specific, so the lower verdict applies.
    assert_eq!(verdict_of("fs.read", "secret/key"), Verdict::Deny);
    assert_eq!(verdict_of("fs.read", "secret"), Verdict::Deny);
    assert_eq!(verdict_of("fs.read", "secrets"), Verdict::Allow);
    assert_eq!(verdict_of("fs.write", "src/gen/x.rs"), Verdict::Allow);
    assert_eq!(verdict_of("fs.write", "src/lib/x.rs"), Verdict::Ask);
    assert_eq!(verdict_of("fs.write", "doc"), Verdict::Ask);
    assert_eq!(verdict_of("net.fetch", "https://x/"), Verdict::Deny);
}
