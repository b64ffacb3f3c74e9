//! Queries of authorities at their maximum sizes, and the single pass over a path, compared with its simple definition.

use super::*;
use crate::authority::pattern::COMPARISONS;

fn joined(parts: &[&'static str], most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(select(parts.to_vec()), 1..=most).prop_map(|parts| parts.join("/"))
}

/// Returns the result of [`pattern::covers`]: some directory of the path matches by itself.
fn covers(pattern: &str, path: &str) -> bool {
    let above = path.match_indices('/').map(|(at, _)| &path[..at]);
    [".", path].into_iter().chain(above).any(|at| oracle::resource("fs.read", pattern, at))
}

/// Returns the result of [`pattern::may_match_below`]: up to a `**`, each part matches its name.
fn may_match_below(pattern: &str, dir: &str) -> bool {
    let below = if pattern.ends_with('/') { "**" } else { "." };
    let mut parts = pattern.split('/').chain([below]).filter(|part| !part.is_empty() && *part != ".");
    let names = dir.split('/').filter(|name| *name != ".");
    let chars = oracle::chars;
    for name in names {
        match parts.next() {
            Some("**") => return true,
            Some(part) if oracle::plain(&chars(part), &chars(name)) => {}
            Some(_) | None => return false,
        }
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_pass_over_a_path_equals_its_simple_definition(
        pattern in joined(&["a", "b", "*", "a*", "**", "**", "***", ".", ""], 7), path in joined(&["a", "b", "ab"], 7),
    ) {
        for path in [path.as_str(), "."] {
            let matches = oracle::resource("fs.read", &pattern, path);
            prop_assert_eq!(pattern::matches(&pattern, path, Syntax::Path), matches, "{}", path);
            prop_assert_eq!(pattern::covers(&pattern, path), covers(&pattern, path), "{}", path);
            let below = pattern::is_any(&pattern, Syntax::Path) || may_match_below(&pattern, path);
            prop_assert_eq!(pattern::may_match_below(&pattern, path), below, "{}", path);
        }
    }
}

/// Returns the number of comparisons of a part with a name.
fn comparisons<T>(query: impl FnOnce() -> T) -> usize {
    let before = COMPARISONS.get();
    query();
    COMPARISONS.get() - before
}

/// Each `**` may match at each depth, in each directory above the path. A query takes a few passes for each rule.
#[test]
fn long_path_patterns_are_matched_in_one_pass() {
    const RULES: usize = 8;
    let pattern = |n: usize| format!("**/{}{n}", "a/".repeat(Authority::MAX_PATTERN_PARTS - 2));
    let path = format!("{}c", "a/".repeat(Authority::MAX_PATH_PARTS - 1));
    let pass = Authority::MAX_PATTERN_PARTS * Authority::MAX_PATH_PARTS;
    for verdict in [Verdict::Deny, Verdict::Ask, Verdict::Allow] {
        let rules = (0..RULES).map(|n| rule("fs.*", &pattern(n), verdict)).collect();
        let rules = Authority::of(RuleSet { default: Verdict::Allow, rules });
        assert_eq!(rules.check_size(), Ok(()));
        let at = access("fs.read", &path);
        assert_eq!(rules.verdict(&at), Verdict::Allow);
        let more = rules.meet(&Authority::of(set(Verdict::Ask, &[("fs.*", "**", Verdict::Allow)])));
        let counts = [
            ("verdict", comparisons(|| rules.verdict(&at))),
            ("allows_below", comparisons(|| rules.allows_below("fs.read", &path))),
            ("denies_below", comparisons(|| rules.denies_below("fs.read", &path))),
            ("verdict_by_names", comparisons(|| rules.verdict_by_names("fs.read", &[&path]))),
            ("best", comparisons(|| rules.best("fs.read"))),
            ("unrestricted", comparisons(|| rules.unrestricted(&["fs.*", "net.*"]))),
            ("meet", comparisons(|| rules.meet(&more))),
            ("within", comparisons(|| more.within(&rules))),
            ("check_size", comparisons(|| rules.check_size())),
        ];
        for (query, count) in counts {
            assert!(count <= 4 * RULES * (pass + 4), "{query} of {verdict:?}: {count} comparisons");
        }
        // The control: the rules were compared with the path.
        assert!(counts[0].1 >= RULES * pass / 4, "{counts:?}");
    }
}

/// The control: patterns and paths of the maximum number of parts, and a pattern that is not a path.
#[test]
fn longer_patterns_and_paths_are_refused() {
    let pattern = |parts: usize| "a/".repeat(parts - 1) + "b";
    let of = |action: &str, parts| Authority::of(set(Verdict::Allow, &[(action, &pattern(parts), Verdict::Deny)]));
    let parsed = |parts| Rule::parse("fs.read", Some(&pattern(parts)), Verdict::Deny).map(drop);
    let (most, more) = (Authority::MAX_PATTERN_PARTS, Authority::MAX_PATTERN_PARTS + 1);
    assert_eq!((of("fs.read", most).check_size(), parsed(most)), (Ok(()), Ok(())));
    for action in ["fs.read", "fs.*", "*", "f*"] {
        let refused = of(action, more).check_size().unwrap_err();
        assert!(refused.to_string().contains("a path pattern of 129 parts, the limit is 128"), "{refused}");
    }
    let refused = parsed(more).unwrap_err().why;
    assert_eq!(refused, "the pattern has 129 parts between `/`; the limit is 128");
    assert_eq!(of("shell.run", more).check_size(), Ok(()));
    let path = |parts| Authority::allow_all().verdict(&access("fs.read", &pattern(parts)));
    assert_eq!([Authority::MAX_PATH_PARTS, Authority::MAX_PATH_PARTS + 1].map(path), [Verdict::Allow, Verdict::Deny]);
}

/// Each pair of ordered rules is compared. The control: shorter patterns are compared exactly.
#[test]
fn long_ordered_patterns_count_as_overlapping() {
    let lowered = |len: usize| {
        let rule = |start: &str, verdict| Rule {
            verdict,
            ..rule("shell.run", &format!("{start}{}", "x".repeat(len)), verdict)
        };
        RuleSet::last_match(Verdict::Ask, &[rule("aa", Verdict::Allow), rule("b*", Verdict::Deny)]).1.len()
    };
    assert_eq!([80, 200].map(lowered), [0, 1]);
}
