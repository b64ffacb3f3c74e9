//! Translation of path patterns in which `*` also matches `/` into patterns in which only `**` does.

use std::path::Path;

use subtend_session::authority::{Authority, Verdict};

const MAX_PATTERNS: usize = 16;
/// Maximum bytes of a pattern that is translated. A longer one has no exact translation.
const MAX_PATTERN_BYTES: usize = 1 << 10;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Paths {
    /// Patterns that match the same paths.
    Same(Vec<String>),
    /// Patterns that match more paths. They are only used for a deny or an ask.
    More(Vec<String>),
    /// The pattern matches nothing in the workspace.
    Outside,
    /// No exact translation exists, and the pattern is for an allow.
    Inexpressible,
}

pub(super) fn translate(pattern: &str, verdict: Verdict, workspace: Option<&Path>) -> Paths {
    let allow = verdict == Verdict::Allow;
    let relative = match relative(pattern.trim(), workspace) {
        Within::Inside(relative) => relative,
        Within::All if allow => return Paths::Inexpressible,
        Within::All => return Paths::More(vec!["**".to_owned()]),
        Within::Outside => return Paths::Outside,
        Within::Possibly(_) if allow => return Paths::Inexpressible,
        Within::Possibly(relative) => return Paths::More(relative.iter().flat_map(|one| widen(one).0).collect()),
    };
    if allow {
        let exact = if relative.contains(['?', '\\']) { None } else { expand(&relative) };
        return exact.map_or(Paths::Inexpressible, Paths::Same);
    }
    match widen(&relative) {
        (wide, true) => Paths::Same(wide),
        (wide, false) => Paths::More(wide),
    }
}

enum Within {
    Inside(String),
    /// A pattern below the home directory, which is unknown here. The patterns may match in the workspace.
    Possibly(Vec<String>),
    All,
    Outside,
}

fn relative(pattern: &str, workspace: Option<&Path>) -> Within {
    if pattern.is_empty() || pattern.split('/').any(|part| part == "..") {
        return Within::Outside;
    }
    let home = ["~/", "$HOME/"].iter().find_map(|prefix| pattern.strip_prefix(prefix));
    if let Some(rest) = home {
        return below_home(rest, workspace);
    }
    if matches!(pattern, "~" | "$HOME") {
        return Within::All;
    }
    if !pattern.starts_with('/') {
        return Within::Inside(pattern.trim_start_matches("./").to_owned());
    }
    let Some(workspace) = workspace.and_then(Path::to_str) else { return Within::Outside };
    if let Some(rest) = pattern.strip_prefix(workspace).and_then(|rest| rest.strip_prefix('/')) {
        return Within::Inside(if rest.is_empty() { "*".to_owned() } else { rest.to_owned() });
    }
    let literal = pattern.split(['*', '?']).next().unwrap_or_default();
    let crosses = literal.len() < pattern.len();
    let inside = workspace.starts_with(literal) && crosses || pattern == workspace;
    if inside || workspace.starts_with(&format!("{}/", literal.trim_end_matches('/'))) {
        Within::All
    } else {
        Within::Outside
    }
}

/// Returns possible patterns: the home directory is unknown here, so the workspace may contain the named directory or lie in it.
fn below_home(rest: &str, workspace: Option<&Path>) -> Within {
    let names: Vec<&str> = workspace.into_iter().flat_map(Path::iter).filter_map(|name| name.to_str()).collect();
    let parts: Vec<&str> = rest.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let literal: Vec<&str> = parts.iter().copied().take_while(|part| !part.contains(['*', '?'])).collect();
    let is_around = literal.is_empty() || names.windows(literal.len()).any(|names| names == literal);
    if is_around {
        return Within::All;
    }
    let ends = |count: &usize| literal.get(..*count).is_some_and(|begin| names.ends_with(begin));
    let left = |count: usize| parts.get(count..).unwrap_or_default().join("/");
    Within::Possibly((0..literal.len()).filter(ends).map(left).collect())
}

/// Returns patterns that match at least what `pattern` matches, and what users expect `**/` to match, and whether they match
/// no more.
fn widen(pattern: &str) -> (Vec<String>, bool) {
    if pattern.contains('\\') {
        return (vec!["**".to_owned()], false);
    }
    let plain = pattern.replace('?', "*");
    let Some(mut all) = expand(&plain) else { return (vec!["**".to_owned()], false) };
    if plain.contains("**/") {
        all.extend(expand(&plain.replace("**/", "")).unwrap_or_default());
    }
    all.retain(|pattern| !pattern.is_empty());
    (all, plain == pattern)
}

/// Returns the patterns that together match what `pattern` matches, or `None` if there would be too many or too long ones.
fn expand(pattern: &str) -> Option<Vec<String>> {
    if pattern.len() > MAX_PATTERN_BYTES {
        return None;
    }
    let mut text = pattern.to_owned();
    while text.contains("**") {
        text = text.replace("**", "*");
    }
    if text == "*" {
        return Some(vec![text]);
    }
    let mut pieces = text.split('*');
    let mut before = pieces.next().unwrap_or_default();
    let mut all = vec![before.to_owned()];
    for piece in pieces {
        let left = before.is_empty() || before.ends_with('/');
        let right = piece.is_empty() || piece.starts_with('/');
        let single = match (left, right) {
            (_, true) => Some("*/**"),
            (true, false) => Some("**/*"),
            (false, false) => None,
        };
        match single {
            // The patterns grow in place: a copy at each `*` would take time that grows with the square of the length.
            Some(star) => all.iter_mut().for_each(|begin| begin.extend([star, piece])),
            None => {
                all = all.iter().flat_map(|begin| ["*", "*/**/*"].map(|star| format!("{begin}{star}{piece}"))).collect()
            }
        }
        if all.len() > MAX_PATTERNS {
            return None;
        }
        before = piece;
    }
    all.iter().all(|one| one.split('/').count() <= Authority::MAX_PATTERN_PARTS).then_some(all)
}

#[cfg(test)]
mod tests {
    use subtend_session::authority::{Access, Authority, Rule, RuleSet};

    use super::*;

    fn same(patterns: &[&str]) -> Paths {
        Paths::Same(patterns.iter().map(|pattern| (*pattern).to_owned()).collect())
    }

    #[test]
    fn star_crosses_slashes_in_translated_patterns() {
        let allow = |pattern| translate(pattern, Verdict::Allow, None);
        assert_eq!(allow("*"), same(&["*"]));
        assert_eq!(allow("**/*"), same(&["*/**/*/**"]), "a slash is part of the pattern");
        assert_eq!(allow("src/*"), same(&["src/*/**"]));
        assert_eq!(allow("src/*.rs"), same(&["src/**/*.rs"]));
        assert_eq!(allow("*.env"), same(&["**/*.env"]));
        assert_eq!(allow("a*b"), same(&["a*b", "a*/**/*b"]));
        assert_eq!(allow("a?b"), Paths::Inexpressible);
        assert_eq!(allow("~/x"), Paths::Inexpressible);
        assert_eq!(allow("../x"), Paths::Outside);
        assert_eq!(translate("a?b", Verdict::Deny, None), Paths::More(vec!["a*b".into(), "a*/**/*b".into()]));
        assert_eq!(translate("**/x", Verdict::Deny, None), same(&["*/**/x", "x"]));
    }

    /// A repository without trust may have such patterns: each `*` copied all before it. The control: the longest patterns.
    #[test]
    fn very_long_patterns_are_not_translated() {
        let parts = |count: usize| format!("a{}", "/*".repeat(count));
        let (long, longer) = ("x".repeat(MAX_PATTERN_BYTES), "x".repeat(MAX_PATTERN_BYTES + 1));
        for pattern in [parts(129_000), parts(64), longer, format!("~/{}", parts(64)), "a\\b".to_owned()] {
            for verdict in [Verdict::Deny, Verdict::Ask] {
                let translated = translate(&pattern, verdict, Some(Path::new("/home/me")));
                assert_eq!(translated, Paths::More(vec!["**".to_owned()]), "{verdict:?} {}", pattern.len());
            }
            assert_eq!(translate(&pattern, Verdict::Allow, None), Paths::Inexpressible, "{}", pattern.len());
        }
        for verdict in [Verdict::Deny, Verdict::Ask, Verdict::Allow] {
            assert_eq!(translate(&long, verdict, None), same(&[&long]));
            assert_eq!(translate(&parts(63), verdict, None), same(&[&format!("a{}", "/*/**".repeat(63))]));
        }
    }

    #[test]
    fn absolute_patterns_are_relative_to_the_workspace() {
        let deny = |pattern| translate(pattern, Verdict::Deny, Some(Path::new("/home/me/work")));
        assert_eq!(deny("/home/me/work/secret/*"), same(&["secret/*/**"]));
        assert_eq!(deny("/etc/*"), Paths::Outside);
        let all = || Paths::More(vec!["**".to_owned()]);
        for around in ["/home/*", "/home/me", "/*", "/home/me/w*", "~/work/*", "~", "~/*", "/home/me/work"] {
            assert_eq!(deny(around), all(), "{around}");
        }
        assert_eq!(deny("~/.ssh/*"), Paths::More(vec![".ssh/*/**".to_owned()]));
    }

    /// Each deny applies wherever the product's pattern matches, and each allow applies nowhere else.
    #[test]
    fn translated_denies_match_no_less_and_allows_no_more() {
        let paths =
            ["x", "a", "ab", "axb", "a/b", "a/x/b", "src", "src/a.rs", "src/x/a.rs", ".env", "x/.env", "a/src/b", "xa"];
        let patterns =
            ["*", "a*b", "src/*", "*.rs", "src/*.rs", "*/b", "a/*/b", "a?b", "*.env", "**/b", "a", "*a*", "s*/*.rs"];
        for pattern in patterns {
            for verdict in [Verdict::Deny, Verdict::Allow] {
                let default = if verdict == Verdict::Allow { Verdict::Deny } else { Verdict::Allow };
                let found = match translate(pattern, verdict, None) {
                    Paths::Same(found) | Paths::More(found) => found,
                    Paths::Outside | Paths::Inexpressible => Vec::new(),
                };
                let rule = |resource: String| Rule { action: "fs.read".into(), resource: resource.into(), verdict };
                let authority = Authority::of(RuleSet { default, rules: found.into_iter().map(rule).collect() });
                for path in paths {
                    let given = authority.verdict(&Access { action: "fs.read".into(), resource: path.into() });
                    let theirs = if matches(pattern, path) { verdict } else { default };
                    assert!(given <= theirs, "{verdict:?} {pattern} {path}: {given:?}, not {theirs:?}");
                }
            }
        }
    }

    fn matches(pattern: &str, text: &str) -> bool {
        let mut pieces = pattern.chars();
        match pieces.next() {
            None => text.is_empty(),
            Some('*') => (0..=text.len()).any(|at| matches(pieces.as_str(), &text[at..])),
            Some('?') => !text.is_empty() && matches(pieces.as_str(), &text[1..]),
            Some(c) => text.starts_with(c) && matches(pieces.as_str(), &text[c.len_utf8()..]),
        }
    }
}
