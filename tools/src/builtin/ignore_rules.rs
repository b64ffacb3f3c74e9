//! Reads the lines of `.gitignore` and `.ignore` files as the crate `ignore` does, but matches them in bounded memory.

use std::path::{Path, PathBuf};

use globset::{Glob, GlobBuilder};

use super::glob::{CompiledGlobs, GlobStates};

#[derive(Debug)]
struct IgnoreRule {
    /// The number of the rule in its file. The last rule that matches decides.
    line: usize,
    is_negated: bool,
    only_dirs: bool,
}

/// Rules that are matched together.
#[derive(Debug)]
struct RuleSet {
    rules: Vec<IgnoreRule>,
    globs: CompiledGlobs,
}

/// The rules of one directory.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    root: PathBuf,
    /// The rules that depend only on the name of an entry. Most names end the match at the first byte.
    by_name: Option<RuleSet>,
    by_path: Option<RuleSet>,
}

impl IgnoreRules {
    /// Compiles the lines of a file in `root`. Returns `None` if they take more than `most` bytes.
    pub(super) fn new<'a>(root: &Path, lines: impl Iterator<Item = &'a str>, most: usize) -> Option<Self> {
        let (mut by_name, mut by_path) = (Vec::new(), Vec::new());
        // An invalid line is skipped, as in git.
        for (line, (rule, glob, is_name)) in lines.filter_map(parse).enumerate() {
            let set = if is_name { &mut by_name } else { &mut by_path };
            set.push((IgnoreRule { line, ..rule }, glob));
        }
        let compile = |lines: Vec<(IgnoreRule, Glob)>| {
            let (rules, globs): (Vec<_>, Vec<_>) = lines.into_iter().unzip();
            if globs.is_empty() {
                return Some(None);
            }
            Some(Some(RuleSet { rules, globs: CompiledGlobs::new(&globs, most).ok()? }))
        };
        let compiled = Self { root: root.to_owned(), by_name: compile(by_name)?, by_path: compile(by_path)? };
        (compiled.memory_usage() <= most).then_some(compiled)
    }

    fn sets(&self) -> impl Iterator<Item = &RuleSet> {
        self.by_name.iter().chain(&self.by_path)
    }

    pub(super) fn memory_usage(&self) -> usize {
        let of = |set: &RuleSet| {
            let rules = set.rules.capacity().saturating_mul(size_of::<IgnoreRule>());
            rules.saturating_add(set.globs.memory_usage())
        };
        self.sets().map(of).fold(self.root.as_os_str().len(), usize::saturating_add)
    }

    /// Returns whether `path`, an entry below the directory, is ignored; `None` if no rule matches.
    pub(super) fn decide(&self, path: &Path, is_dir: bool, states: &GlobStates) -> Option<bool> {
        let path = path.as_os_str().as_encoded_bytes();
        let below = path.strip_prefix(self.root.as_os_str().as_encoded_bytes()).unwrap_or(path);
        let below = below.strip_prefix(b"/").unwrap_or(below);
        let name = below.rsplit(|byte| *byte == b'/').next().unwrap_or(below);
        let find = |set: &Option<RuleSet>, text: &[u8]| {
            let RuleSet { rules, globs } = set.as_ref()?;
            let applies = |at: usize| rules.get(at).is_some_and(|rule| is_dir || !rule.only_dirs);
            let rule = rules.get(states.last_match(globs, text, applies)?)?;
            Some((rule.line, !rule.is_negated))
        };
        let found = find(&self.by_name, name).max(find(&self.by_path, below))?;
        Some(found.1)
    }
}

/// Parses a line. Returns its rule, and the glob for names, with `true`, or for paths.
fn parse(line: &str) -> Option<(IgnoreRule, Glob, bool)> {
    let line = if line.ends_with("\\ ") { line } else { line.trim_end() };
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (escaped, mut glob) = match line.strip_prefix('\\') {
        Some(rest) if rest.starts_with(['!', '#']) => (true, rest),
        _ => (false, line),
    };
    let mut rule = IgnoreRule { line: 0, is_negated: false, only_dirs: false };
    let mut is_anchored = false;
    if !escaped {
        if let Some(rest) = glob.strip_prefix('!') {
            (rule.is_negated, glob) = (true, rest);
        }
        if let Some(rest) = glob.strip_prefix('/') {
            (is_anchored, glob) = (true, rest);
        }
    }
    if let Some(rest) = glob.strip_suffix('/') {
        rule.only_dirs = true;
        glob = rest.strip_suffix('\\').unwrap_or(rest);
    }
    let at_any_depth = !is_anchored && !glob.contains('/') && glob != "**";
    // These parts of globs can match `/`.
    let may_leave_name = glob.is_empty() || glob.contains('{') || glob.contains('[') && glob.contains(['!', '^', '-']);
    let is_name = at_any_depth && !may_leave_name;
    let mut glob = if at_any_depth && may_leave_name { format!("**/{glob}") } else { glob.to_owned() };
    if glob.ends_with("/**") {
        // The rule excludes everything in the directory, but not the directory.
        glob.push_str("/*");
    }
    let glob = GlobBuilder::new(&glob)
        .literal_separator(true)
        .backslash_escape(true)
        .allow_unclosed_class(true)
        .build()
        .ok()?;
    Some((rule, glob, is_name))
}

#[cfg(test)]
mod tests {
    use ignore::gitignore::GitignoreBuilder;
    use proptest::prelude::*;

    use super::*;

    /// Compares the decisions with those of the crate `ignore`.
    fn check<'a>(root: &str, text: &str, paths: impl IntoIterator<Item = &'a str>) {
        let mut builder = GitignoreBuilder::new(root);
        text.lines().for_each(|line| drop(builder.add_line(None, line)));
        let (reference, states) = (builder.build().unwrap(), GlobStates::default());
        let rules = IgnoreRules::new(Path::new(root), text.lines(), 1 << 20).unwrap();
        for (path, is_dir) in paths.into_iter().flat_map(|path| [(path, false), (path, true)]) {
            let path = Path::new(root).join(path);
            let expected = match reference.matched(&path, is_dir) {
                ignore::Match::None => None,
                ignore::Match::Ignore(_) => Some(true),
                ignore::Match::Whitelist(_) => Some(false),
            };
            assert_eq!(rules.decide(&path, is_dir, &states), expected, "{text:?} {path:?} {is_dir}");
        }
    }

    #[test]
    fn common_rules_decide_as_in_the_crate_ignore() {
        let text = "# comment\n*.log\n!keep.log\ntarget/\n/build\n/docs/*.html\nsrc/**/gen\n**/tmp\nout/**\n\\#x\n\\!y\n\
            trail\\ \n space \n[Dd]ebug\n*.[oa]\n[!a-z]q\n*.{jpg,png}\na**b\n**\n!*\nx\\*y\n[open\n!\n/\n";
        let paths = [
            "a.log",
            "b/keep.log",
            "target",
            "b/target",
            "build",
            "b/build",
            "docs/a.html",
            "docs/b/a.html",
            "src/gen",
            "src/a/b/gen",
            "b/tmp",
            "out",
            "out/a",
            "#x",
            "!y",
            "trail ",
            " space",
            "Debug",
            "b/x.o",
            "1q",
            "a/q",
            "x.png",
            "axxb",
            "a/b",
            "x*y",
            "xxy",
            "[open",
            ".hidden",
            "é",
        ];
        for end in 1..=text.lines().count() {
            let text: String = text.lines().take(end).map(|line| format!("{line}\n")).collect();
            for root in ["", "src", "a/b"] {
                check(root, &text, paths);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

        #[test]
        fn random_rules_decide_as_in_the_crate_ignore(
            lines in prop::collection::vec("(a|b|é|/|\\*|\\*\\*|\\?|!|#|\\[|\\]|\\^|-|\\{|\\}|,|\\\\| |\\.){0,7}", 1..5),
            paths in prop::collection::vec("(a|b|é|\\.a|-|#|!|\\[| ){1,3}(/(a|b|é|\\.a|-|,|\\\\|\\^){1,3}){0,2}", 4),
            root in "(|a|a/b)",
        ) {
            check(&root, &lines.join("\n"), paths.iter().map(String::as_str));
        }
    }
}
