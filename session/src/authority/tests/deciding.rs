//! Verdicts of rule sets, compared with definitions that test each rule against all others.

use super::*;

/// Returns the result of [`RuleSet::deciding`], computed by its definition.
fn deciding<'a>(set: &'a RuleSet, action: ActionSet<'a>) -> Vec<&'a Rule> {
    let syntax = action.syntax();
    let same = |a: &str, b: &str| a == b || (pattern::is_any(a, syntax) && pattern::is_any(b, syntax));
    let shadowed = |rule: &Rule| {
        let weight = Weight::of(&rule.action, Syntax::Plain);
        set.rules.iter().any(|other| {
            action.all_match(&other.action)
                && same(&other.resource, &rule.resource)
                && (other.covers(syntax) || !rule.covers(syntax))
                && match Weight::of(&other.action, Syntax::Plain).cmp(&weight) {
                    Ordering::Greater => true,
                    Ordering::Equal => other.verdict < rule.verdict,
                    Ordering::Less => false,
                }
        })
    };
    set.rules.iter().filter(|rule| action.some_match(&rule.action) && !shadowed(rule)).collect()
}

/// Returns the result of [`RuleSet::best`], computed by its definition.
fn best(set: &RuleSet, action: ActionSet<'_>) -> Verdict {
    let syntax = action.syntax();
    let deciding: Vec<_> = deciding(set, action);
    let bound = |rule: &&Rule| {
        let ranked = Ranked::new(rule, syntax, Match::Exact);
        let everywhere = deciding.iter().filter(|rule| rule.is_everywhere(syntax));
        everywhere
            .map(|rule| Ranked::lowest(rule, syntax))
            .filter(|other| !ranked.beats(other))
            .fold(rule.verdict, |least, other| least.min(other.verdict))
    };
    let floor = if set.default_decides(action) { set.default } else { Verdict::Deny };
    deciding.iter().map(bound).fold(floor, Verdict::max)
}

fn sets() -> impl Strategy<Value = RuleSet> {
    (verdicts(), prop::collection::vec(rules(), 0..24)).prop_map(|(default, rules)| RuleSet { default, rules })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn deciding_rules_are_those_that_no_other_shadows(set in sets(), action in select(vec!["*", "fs.*", "fs.read", "net.*", "mcp:a"])) {
        let action = ActionSet::parse(action);
        prop_assert_eq!(set.deciding(action).collect::<Vec<_>>(), deciding(&set, action));
        prop_assert_eq!(set.best(action), best(&set, action));
    }

    #[test]
    fn verdict_is_the_lowest_of_unbeaten_rules(set in sets(), at in accesses()) {
        let syntax = Syntax::of(&at.action);
        let matching = set.rules.iter().filter_map(|rule| Some(Ranked::new(rule, syntax, rule.matches(&at, syntax)?)));
        let ranked: Vec<Ranked> = matching.collect();
        let unbeaten = ranked.iter().filter(|rule| !ranked.iter().any(|other| other.beats(rule)));
        let lowest = unbeaten.map(|rule| rule.verdict).min().unwrap_or(set.default);
        prop_assert_eq!(set.verdict(&at, syntax), lowest);
    }
}

/// A comparison of each pair would take hours.
#[test]
fn many_rules_are_not_compared_pairwise() {
    let many = |action: &str, resource: &str| {
        let rules = (0..100_000).map(|n| rule(action, &format!("{resource}{n:x}"), Verdict::Ask));
        Authority::of(RuleSet { default: Verdict::Deny, rules: rules.collect() })
    };
    let files = many("fs.read", "a");
    assert_eq!(files.best("fs.read"), Verdict::Ask);
    assert!(!files.unrestricted(&["fs.*"]));
    assert_eq!(files.verdict(&access("fs.read", "a1")), Verdict::Ask);
    assert!(!files.allows_below("fs.read", "."));
    let all = many("fs.*", "**/");
    assert_eq!(all.verdict(&access("fs.write", "5")), Verdict::Ask);
    assert!(all.denies_below("fs.read", "."));
}
