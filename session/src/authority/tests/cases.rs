//! Single cases that the laws do not cover.

use super::*;

#[test]
fn path_without_span_is_more_specific_than_one_with_span() {
    let verdict_of = |allowed, denied| {
        let rules = set(Verdict::Ask, &[("fs.*", allowed, Verdict::Allow), ("fs.*", denied, Verdict::Deny)]);
        Authority::of(rules).verdict(&access("fs.read", "src/a.rs"))
    };
    assert_eq!(verdict_of("src/a.rs", "src/**/a.rs"), Verdict::Allow);
    assert_eq!(verdict_of("src/**/a.rs", "src/a.rs"), Verdict::Deny);
    assert_eq!(verdict_of("src/**/a.rs", "src/**/**/a.rs"), Verdict::Deny, "ties take the lower verdict");
    assert_eq!(verdict_of("src/**/**/a.rs", "src/**/a.rs"), Verdict::Deny);
}

#[test]
fn duplicate_rules_are_merged() {
    let read = ("fs.read", "src/**", Verdict::Allow);
    let (once, twice) = (set(Verdict::Deny, &[read]), set(Verdict::Deny, &[read, read]));
    assert_eq!(Authority::of(twice), Authority::of(once));
}

#[test]
fn tool_is_not_offered_when_all_resources_are_denied() {
    let reader = set(
        Verdict::Deny,
        &[("fs.*", "*", Verdict::Allow), ("fs.write", "**", Verdict::Deny), ("shell.run", "ls*", Verdict::Ask)],
    );
    let authority = Authority::of(reader);
    assert_eq!(authority.best("fs.read"), Verdict::Allow);
    assert_eq!(authority.best("fs.write"), Verdict::Deny);
    assert_eq!(authority.best("shell.run"), Verdict::Ask);
    assert_eq!(authority.best("net.fetch"), Verdict::Deny);
    assert_eq!(Authority::deny_all().best("fs.read"), Verdict::Deny);
    assert_eq!(Authority::allow_all().best("fs.read"), Verdict::Allow);
}

#[test]
fn deny_of_any_file_or_address_removes_the_shell() {
    let needs = ["fs.*", "net.*"];
    let all = || Authority::of(RuleSet::only(Verdict::Allow));
    assert!(all().unrestricted(&needs));
    assert!(Authority::of(set(Verdict::Deny, &[("*", "*", Verdict::Allow)])).unrestricted(&needs));
    assert!(Authority::of(set(Verdict::Allow, &[("task:*", "*", Verdict::Deny)])).unrestricted(&needs));
    for lower in [Verdict::Deny, Verdict::Ask] {
        for (action, resource) in [("fs.read", ".env"), ("fs.list", "*"), ("net.fetch", "https://x/*"), ("*", "x")] {
            let one = Authority::of(set(Verdict::Allow, &[(action, resource, lower)]));
            assert!(!all().meet(&one).unrestricted(&needs), "{action} {resource} {lower:?}");
        }
    }
    assert!(!Authority::of(set(Verdict::Ask, &[("fs.*", "*", Verdict::Allow)])).unrestricted(&needs));
}

#[test]
fn rules_of_all_names_of_a_resource_apply() {
    let verdict_of = |rules: &[(&str, Verdict)], names: &[&str]| {
        let rules: Vec<_> = rules.iter().map(|(resource, verdict)| ("tool:x", *resource, *verdict)).collect();
        Authority::of(set(Verdict::Ask, &rules)).verdict_by_names("tool:x", names)
    };
    let names = ["parent", "a3f9c1"];
    for names in [names, ["a3f9c1", "parent"]] {
        let of = |rules| verdict_of(rules, &names);
        assert_eq!(of(&[("*", Verdict::Deny), ("parent", Verdict::Allow)]), Verdict::Allow);
        assert_eq!(of(&[("a3f9c1", Verdict::Deny), ("parent", Verdict::Allow)]), Verdict::Deny);
        assert_eq!(of(&[("a3*", Verdict::Deny), ("parent", Verdict::Allow)]), Verdict::Deny);
        assert_eq!(of(&[("a3f9c1", Verdict::Allow), ("parent", Verdict::Ask)]), Verdict::Ask);
        assert_eq!(of(&[("*", Verdict::Allow), ("other", Verdict::Deny)]), Verdict::Allow);
        assert_eq!(of(&[]), Verdict::Ask, "no rule matches");
    }
    // The control: one name alone evades the rule for the other.
    assert_eq!(verdict_of(&[("a3f9c1", Verdict::Deny), ("*", Verdict::Allow)], &["parent"]), Verdict::Allow);
    assert_eq!(verdict_of(&[], &[]), Verdict::Deny, "a resource without a name");
}

#[test]
fn equal_sets_are_merged_and_stay_shared() {
    let host = Authority::of(set(Verdict::Ask, &[("fs.*", "*", Verdict::Allow), ("*", "*", Verdict::Deny)]));
    let again = Authority::of(set(Verdict::Ask, &[("*", "*", Verdict::Deny), ("fs.*", "*", Verdict::Allow)]));
    assert_eq!(host, again);
    let met = host.meet(&again);
    assert_eq!(met, host);
    assert!(Arc::ptr_eq(&met.sets[0], &host.sets[0]));
    assert!(host.within(&Authority::allow_all()));
    assert!(!Authority::allow_all().within(&host));
}

#[test]
fn authority_from_unsorted_json_is_sorted() {
    let json = r#"[
        {"default":"allow"},
        {"default":"deny","rules":[{"action":"fs.*","verdict":"allow"},{"action":"*","resource":"x","verdict":"ask"}]},
        {"default":"deny","rules":[{"action":"*","resource":"x","verdict":"ask"},{"action":"fs.*","verdict":"allow"}]}
    ]"#;
    let read: Authority = serde_json::from_str(json).expect("three sets");
    let expected = set(Verdict::Deny, &[("*", "x", Verdict::Ask), ("fs.*", "*", Verdict::Allow)]);
    assert_eq!(read, Authority::of(expected));
    let written = serde_json::to_string(&read).expect("plain data");
    let sorted = r#"[{"default":"deny","rules":[{"action":"*","resource":"x","verdict":"ask"},{"action":"fs.*","verdict":"allow"}]}]"#;
    assert_eq!(written, sorted);
}

#[test]
fn deny_overrides_equal_allow_in_any_order() {
    let (allow, deny) = (("fs.write", "*", Verdict::Allow), ("fs.write", "*", Verdict::Deny));
    for rules in [[allow, deny], [deny, allow]] {
        assert!(!Authority::of(set(Verdict::Deny, &rules)).unrestricted(&["fs.write"]));
    }
    assert!(Authority::of(set(Verdict::Deny, &[allow, allow])).unrestricted(&["fs.write"]));
}

#[test]
fn equal_patterns_and_all_catch_all_patterns_compare_as_same() {
    for syntax in [Syntax::Plain, Syntax::Path] {
        let key = |pattern| pattern::key(pattern, syntax);
        assert_eq!(key("src/a"), "src/a");
        assert_eq!([key("*"), key("**")], ["*"; 2]);
    }
}
