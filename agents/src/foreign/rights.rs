//! The rights that an agent file of another product gives, as several rule sets that apply together.

use std::path::Path;

use subtend_session::authority::{Rule, RuleSet, Verdict};

use super::fields::{field, shorten};
use super::paths::{self, Paths};
use crate::front::BadManifest;
use crate::manifest::Manifest;

/// The maximum number of rules of one file.
pub(super) const MAX_RULES: usize = 300;

/// Strings in a command line that may separate several commands, or hide a command from a pattern.
const SEPARATORS: [&str; 9] = [";", "&", "|", "`", "(", "\n", "\r", "\t", "  "];

pub(super) struct Rights {
    default: Verdict,
    /// The rules in order; the last match decides.
    rules: Vec<Rule>,
    bounds: Vec<RuleSet>,
    notes: Vec<String>,
}

pub(super) fn rule(action: impl AsRef<str>, resource: &str, verdict: Verdict) -> Rule {
    Rule { action: action.as_ref().into(), resource: resource.into(), verdict }
}

impl Rights {
    pub(super) fn of(default: Verdict) -> Self {
        Self { default, rules: Vec::new(), bounds: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Adds a rule about every resource of an action.
    pub(super) fn action(&mut self, action: impl AsRef<str>, verdict: Verdict) {
        self.rules.push(rule(action, "*", verdict));
    }

    pub(super) fn rule(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Limits these actions to at most `verdict`, regardless of the rules.
    pub(super) fn bound(&mut self, actions: &[&str], verdict: Verdict) {
        let rules = actions.iter().map(|action| rule(action, "*", verdict)).collect();
        self.bounds.push(RuleSet { default: Verdict::Allow, rules });
    }

    /// Denies the actions that `all` matches, except those of `tools`.
    pub(super) fn only(&mut self, all: &str, tools: impl Iterator<Item = String>) {
        let allowed = tools.map(|tool| rule(tool, "*", Verdict::Allow));
        let rules = std::iter::once(rule(all, "*", Verdict::Deny)).chain(allowed).collect();
        self.bounds.push(RuleSet { default: Verdict::Allow, rules });
    }

    /// Limits all actions to at most `verdict`.
    pub(super) fn bound_all(&mut self, verdict: Verdict) {
        self.bounds.push(RuleSet::only(verdict));
    }

    /// Adds a rule about paths. In `pattern`, `*` also matches `/`.
    pub(super) fn path(&mut self, action: &str, pattern: &str, verdict: Verdict, workspace: Option<&Path>) {
        let start = shorten(pattern);
        match paths::translate(pattern, verdict, workspace) {
            Paths::Same(patterns) => self.rules.extend(patterns.iter().map(|one| rule(action, one, verdict))),
            Paths::More(patterns) => {
                self.note(format!(
                    "`{start}` has no exact equivalent here: the rule {} more than the pattern matches",
                    verb(verdict)
                ));
                let rules = patterns.iter().map(|one| rule(action, one, verdict)).collect();
                self.bounds.push(RuleSet { default: Verdict::Allow, rules });
            }
            Paths::Outside => {
                self.note(format!("`{start}` matches nothing in the workspace, and paths outside cannot be reached"))
            }
            Paths::Inexpressible => self.note(format!("`{start}` is not allowed: the pattern has no equivalent here")),
        }
    }

    /// Adds rules about commands, in their order. `rest` is the verdict of all other commands. With `bare`, a pattern
    /// that ends with ` *` also allows the command without arguments.
    pub(super) fn commands(&mut self, rest: Verdict, rules: &[(String, Verdict)], bare: bool) {
        const RUN: &str = "shell.run";
        self.action(RUN, rest);
        for (pattern, verdict) in rules {
            let pattern = pattern.trim();
            let lowers = *verdict != Verdict::Allow;
            let known = pattern.replace('?', "*");
            let alone = known.strip_suffix(" *").filter(|alone| !alone.is_empty());
            if known == pattern {
                self.rules.push(rule(RUN, pattern, *verdict));
                self.rules.extend(alone.filter(|_| lowers || bare).map(|alone| rule(RUN, alone, *verdict)));
            } else if !lowers {
                self.note(format!("`{}` is not allowed: `?` has no equivalent here", shorten(pattern)));
            }
            if lowers {
                // It also covers later commands on the line, and those that others run, as by `sudo` and `xargs`.
                let all = [Some(&*known), alone].into_iter().flatten();
                let behind = all.map(|pattern| rule(RUN, &format!("* {pattern}"), *verdict));
                let itself = (known != pattern).then(|| rule(RUN, &known, *verdict));
                self.bounds.push(RuleSet { default: Verdict::Allow, rules: behind.chain(itself).collect() });
            }
        }
        if rules.is_empty() {
            return;
        }
        let verdict = rest.min(Verdict::Ask);
        let several = SEPARATORS.iter().map(|text| rule(RUN, &format!("*{text}*"), verdict)).collect();
        self.bounds.push(RuleSet { default: Verdict::Allow, rules: several });
        let done = if verdict == Verdict::Deny { "are denied" } else { "need an approval" };
        self.note(format!("patterns match single commands: lines with several (`;`, `|`, `&`, `(`) {done}"));
    }

    pub(super) fn apply_to(self, manifest: &mut Manifest, notes: &mut Vec<String>) -> Result<(), BadManifest> {
        if self.rules.len() > MAX_RULES || self.bounds.len() > MAX_RULES {
            return Err(field("permission", format!("becomes more than {MAX_RULES} rules: write fewer patterns")));
        }
        let (set, lowered) = RuleSet::last_match(self.default, &self.rules);
        notes.extend(self.notes);
        notes.extend(lowered.iter().map(|rule| {
            let (action, resource) = (shorten(&rule.action), shorten(&rule.resource));
            format!(
                "`{action}` `{resource}` gets less than `{}`: a later rule that may match the same resource restricts it",
                rule.verdict.as_str()
            )
        }));
        let allows_all = set.default == Verdict::Allow && set.rules.iter().all(|rule| rule.verdict == Verdict::Allow);
        manifest.rules = (!allows_all).then_some(set);
        manifest.bounds = self.bounds;
        Ok(())
    }
}

fn verb(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Deny => "denies",
        Verdict::Ask => "asks for approval of",
        Verdict::Allow => "allows",
    }
}
