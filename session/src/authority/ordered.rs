//! Ordered rules of other products, in which the last rule that matches decides.

use super::{Match, Ranked, Rule, RuleSet, Syntax, Verdict, pattern};

/// Largest product of the lengths of two patterns that are compared exactly; longer ones count as overlapping, because
/// each pair of rules is compared.
const MAX_COMPARED: usize = 8 << 10;

impl RuleSet {
    /// Converts `rules`, in which the last match decides, to a set that never allows more. Also returns the rules whose
    /// verdicts the set lowers, because a later, less specific rule may overrule them.
    ///
    /// ```
    /// use subtend_session::authority::{Rule, RuleSet, Verdict};
    ///
    /// let rule = |resource: &str, verdict| Rule { action: "shell.run".into(), resource: resource.into(), verdict };
    /// let rules = [rule("git status", Verdict::Allow), rule("git *", Verdict::Deny)];
    /// let (set, lowered) = RuleSet::last_match(Verdict::Ask, &rules);
    /// assert!(set.rules.iter().all(|rule| rule.verdict == Verdict::Deny));
    /// assert_eq!(lowered, [rules[0].clone()]);
    /// ```
    pub fn last_match(default: Verdict, rules: &[Rule]) -> (Self, Vec<Rule>) {
        let mut kept: Vec<Rule> = Vec::new();
        let mut lowered = Vec::new();
        for rule in rules.iter().rev() {
            if kept.iter().any(|later| later.replaces(rule)) {
                continue;
            }
            let decides =
                |later: &&Rule| later.verdict < rule.verdict && rule.may_beat(later) && rule.may_overlap(later);
            let bound = kept.iter().filter(decides).map(|later| later.verdict).min();
            let verdict = match bound {
                // Unlike an allow, an ask of a path also covers the path's contents, where it could override a deny.
                Some(Verdict::Ask) if !pattern::ends_with_span(&rule.resource) => Verdict::Deny,
                Some(bound) => bound,
                None => rule.verdict,
            };
            if bound.is_some() {
                lowered.push(rule.clone());
            }
            kept.push(Rule { verdict, ..rule.clone() });
        }
        (Self { default, rules: kept }.canonical(), lowered)
    }
}

impl Rule {
    /// Returns whether the rule surely matches wherever `earlier` does.
    fn replaces(&self, earlier: &Self) -> bool {
        let actions = *self.action == *"*" || self.action == earlier.action;
        let same = self.resource == earlier.resource;
        let below = self.covers(Syntax::Path) || !earlier.covers(Syntax::Path);
        actions && (*self.resource == *"*" || (same && below))
    }

    fn may_beat(&self, other: &Self) -> bool {
        let beats = |syntax| Ranked::new(self, syntax, Match::Exact).beats(&Ranked::lowest(other, syntax));
        beats(Syntax::Plain) || beats(Syntax::Path)
    }

    fn may_overlap(&self, other: &Self) -> bool {
        patterns_overlap(&self.action, &other.action) && patterns_overlap(&self.reach(), &other.reach())
    }

    /// Returns a pattern that matches at least the resources of the rule. In it `*` matches any number of characters.
    fn reach(&self) -> String {
        let literal = self.resource.trim_start_matches("./").trim_end_matches('/');
        let spans = literal.replace("**/", "*").replace("/**", "*").replace("//", "*").replace("/./", "*");
        let open = self.covers(Syntax::Path) || self.resource.ends_with('/') || spans.starts_with('/');
        match spans.as_str() {
            "" | "." => "*".to_owned(),
            _ if open => format!("{}*", spans.trim_start_matches('/')),
            _ => spans,
        }
    }
}

/// Returns whether both patterns match some text. In the patterns `*` matches any number of characters.
fn patterns_overlap(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len().saturating_mul(b.len()) > MAX_COMPARED {
        return true;
    }
    // `row[j]` is true if the rest of `a` overlaps with `b[j..]`.
    let mut row = vec![false; b.len().saturating_add(1)];
    let ends = |text: &[u8]| text.iter().all(|c| *c == b'*');
    for at in (0..=a.len()).rev() {
        let rest = a.get(at..).unwrap_or_default();
        let mut next = vec![false; row.len()];
        for from in (0..=b.len()).rev() {
            let other = b.get(from..).unwrap_or_default();
            let is_set = |row: &[bool], at: usize| row.get(at).copied().unwrap_or(false);
            let fits = match (rest.first(), other.first()) {
                (None, _) => ends(other),
                (_, None) => ends(rest),
                (Some(b'*'), _) | (_, Some(b'*')) => is_set(&row, from) || is_set(&next, from.saturating_add(1)),
                (Some(one), Some(two)) => one == two && is_set(&row, from.saturating_add(1)),
            };
            if let Some(cell) = next.get_mut(from) {
                *cell = fits;
            }
        }
        row = next;
    }
    row.first().copied().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, Strategy, prop, prop_assert, prop_assert_eq, proptest};
    use proptest::sample::select;

    use super::super::{Access, Authority};
    use super::*;

    fn rule() -> impl Strategy<Value = Rule> {
        let actions = select(vec!["*", "fs.*", "fs.read", "shell.run"]);
        let resources = select(vec![
            "*", "**", "a", "a/b", "a/**", "*/b", "**/b", "a*", "a*b", "b", "b/", "ab", "a b", "a *", "* b", "./a",
            "a/*/c", ".",
        ]);
        let verdicts = select(vec![Verdict::Deny, Verdict::Ask, Verdict::Allow]);
        (actions, resources, verdicts).prop_map(|(action, resource, verdict)| Rule {
            action: action.into(),
            resource: resource.into(),
            verdict,
        })
    }

    fn accesses() -> impl Iterator<Item = Access> {
        let resources = [".", "a", "b", "a/b", "b/a", "a/x/b", "a/x/c", "ab", "axb", "a b", "b/b/b", "c a b", "x"];
        ["fs.read", "fs.write", "shell.run"].into_iter().flat_map(move |action| {
            resources.map(|resource| Access { action: action.into(), resource: resource.into() })
        })
    }

    /// Returns the verdict of the other products, in which the last rule that matches decides.
    fn last(default: Verdict, rules: &[Rule], access: &Access) -> Verdict {
        let syntax = Syntax::of(&access.action);
        let found = rules.iter().rev().find(|rule| rule.matches(access, syntax).is_some());
        found.map_or(default, |rule| rule.verdict)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn ordered_rules_never_give_more_than_the_last_match(rules in prop::collection::vec(rule(), 0..7)) {
            for default in [Verdict::Deny, Verdict::Ask, Verdict::Allow] {
                let (set, _) = RuleSet::last_match(default, &rules);
                let authority = Authority::of(set);
                for access in accesses() {
                    let (given, expected) = (authority.verdict(&access), last(default, &rules, &access));
                    prop_assert!(given <= expected, "{access:?} of {rules:?}: {given:?}, not {expected:?}");
                }
            }
        }

        #[test]
        fn ordered_rules_from_broad_to_narrow_keep_their_verdicts(verdicts in prop::collection::vec(
            select(vec![Verdict::Deny, Verdict::Ask, Verdict::Allow]), 3..=3)
        ) {
            let rule = |(resource, verdict): (&str, &Verdict)| Rule {
                action: "shell.run".into(), resource: resource.into(), verdict: *verdict
            };
            let rules: Vec<Rule> = ["*", "a*", "a b"].into_iter().zip(&verdicts).map(rule).collect();
            let (set, lowered) = RuleSet::last_match(Verdict::Ask, &rules);
            prop_assert_eq!(lowered, []);
            let authority = Authority::of(set);
            for access in accesses().filter(|access| *access.action == *"shell.run") {
                prop_assert_eq!(authority.verdict(&access), last(Verdict::Ask, &rules, &access));
            }
        }
    }

    /// Negative control of the first property: without lowering, the set allows more.
    #[test]
    fn unlowered_rule_allows_more_than_last_match() {
        let rule = |resource: &str, verdict| Rule { action: "shell.run".into(), resource: resource.into(), verdict };
        let rules = vec![rule("a b", Verdict::Allow), rule("a*", Verdict::Deny)];
        let access = Access { action: "shell.run".into(), resource: "a b".into() };
        assert_eq!(last(Verdict::Ask, &rules, &access), Verdict::Deny);
        let unlowered = Authority::of(RuleSet { default: Verdict::Ask, rules: rules.clone() });
        assert_eq!(unlowered.verdict(&access), Verdict::Allow);
        assert_eq!(Authority::of(RuleSet::last_match(Verdict::Ask, &rules).0).verdict(&access), Verdict::Deny);
    }

    #[test]
    fn patterns_overlap_when_one_text_matches_both() {
        for (a, b, fits) in [
            ("a*", "*b", true),
            ("a*c", "ab*", true),
            ("a", "a", true),
            ("", "", true),
            ("*", "", true),
            ("a*b*c", "*x*", true),
            ("a", "b", false),
            ("a*", "b*", false),
            ("git *", "rm *", false),
            ("a", "", false),
            ("ab*", "a", false),
        ] {
            assert_eq!((patterns_overlap(a, b), patterns_overlap(b, a)), (fits, fits), "{a} {b}");
        }
    }
}
