//! Generators of the properties' inputs, and the number of cases.

use proptest::prelude::{Strategy, prop};
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use subtend_session::authority::{Access, Rule, RuleSet, Verdict};

pub(crate) const CASES: u32 = 10_000;
/// Maximum number of sessions below the root.
pub(crate) const DEPTH: usize = 12;

const ACTIONS: [&str; 6] = ["fs.read", "fs.write", "shell.run", "net.fetch", "task:explore", "mcp:s:t"];
const ACTION_PATTERNS: [&str; 9] =
    ["*", "fs.*", "fs.read", "fs.write", "shell.run", "net.*", "task:*", "mcp:*", "task:explore"];
const RESOURCES: [&str; 11] =
    [".", "src", "src/a.rs", "src/b/a.rs", ".env", "b/.env", "secret/k", "https://x/y", "ls -l", "../x", "src//a.rs"];
const RESOURCE_PATTERNS: [&str; 13] = [
    "*",
    "src/**",
    "src/*",
    "src/",
    "**/a.rs",
    "src/**/a.rs",
    ".env",
    "**/.env",
    "secret/**",
    ".",
    "https://x/*",
    "ls*",
    "*/*",
];

pub(crate) fn verdicts() -> impl Strategy<Value = Verdict> {
    select(vec![Verdict::Deny, Verdict::Ask, Verdict::Allow])
}

pub(crate) fn rules() -> impl Strategy<Value = Rule> {
    (select(&ACTION_PATTERNS[..]), select(&RESOURCE_PATTERNS[..]), verdicts())
        .prop_map(|(action, resource, verdict)| Rule { action: action.into(), resource: resource.into(), verdict })
}

pub(crate) fn rule_sets() -> impl Strategy<Value = RuleSet> {
    (verdicts(), prop::collection::vec(rules(), 0..5)).prop_map(|(default, rules)| RuleSet { default, rules })
}

/// Generates a host's policy and the manifests of a chain below it.
pub(crate) fn chains() -> impl Strategy<Value = Vec<RuleSet>> {
    prop::collection::vec(rule_sets(), 1..=DEPTH + 1)
}

pub(crate) fn accesses() -> impl Strategy<Value = Access> {
    (select(&ACTIONS[..]), select(&RESOURCES[..]))
        .prop_map(|(action, resource)| Access { action: action.into(), resource: resource.into() })
}

/// Checks a property on every case; returns the smallest case that violates it.
pub(crate) fn check<S: Strategy>(
    cases: S,
    shrink: u32,
    property: impl Fn(S::Value) -> Result<(), TestCaseError>,
) -> Result<(), TestError<S::Value>> {
    let config = Config { cases: CASES, max_shrink_iters: shrink, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)).run(&cases, property)
}

/// Checks that a property holds, and that every seeded bug violates it.
pub(crate) fn assert_property<S: Strategy, R: Copy>(
    cases: impl Fn() -> S,
    property: impl Fn(R, S::Value) -> Result<(), TestCaseError>,
    real: R,
    bugs: &[(&str, R)],
) {
    if let Err(broken) = check(cases(), 10_000, |case| property(real, case)) {
        panic!("{broken}");
    }
    for (name, bug) in bugs {
        let result = check(cases(), 0, |case| property(*bug, case));
        assert!(matches!(result, Err(TestError::Fail(..))), "the seeded bug `{name}` was not detected");
    }
}
