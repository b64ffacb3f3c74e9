//! The host's policy, which limits every root session.

use subtend_session::authority::{self, Rule, RuleSet, Verdict};
use subtend_session::ids::Text;

pub use bounds::{PROTECTED, ProtectError};
pub(crate) use bounds::{for_commands, imitates_protected, is_in_repository, is_protected};

mod bounds;

#[derive(Clone, Copy, Debug)]
pub struct HostPolicy;

impl HostPolicy {
    /// Returns the default policy: reading the workspace, starting agents and calling the host's tools (`tool:NAME`) is allowed. Everything
    /// else requires approval.
    pub fn default_for_workspace() -> RuleSet {
        let allowed = |action: &str| Rule { action: action.into(), resource: "*".into(), verdict: Verdict::Allow };
        RuleSet { default: Verdict::Ask, rules: vec![allowed("fs.read"), allowed("task:*"), allowed("tool:*")] }
    }

    /// Returns [`HostPolicy::default_for_workspace`] plus `rules`, each parsed by [`HostPolicy::allow`].
    ///
    /// ```
    /// use subtend_tools::policy::HostPolicy;
    ///
    /// let policy = HostPolicy::allowing(["net.fetch", "fs.write=reports/**"])?;
    /// # let _ = policy;
    /// # Ok::<(), subtend_tools::policy::BadRule>(())
    /// ```
    ///
    /// # Errors
    /// [`BadRule`] for the first invalid rule.
    pub fn allowing<'a>(rules: impl IntoIterator<Item = &'a str>) -> Result<RuleSet, BadRule> {
        let mut set = Self::default_for_workspace();
        for rule in rules {
            set.rules.push(Self::allow(rule)?);
        }
        Ok(set)
    }

    /// Parses `ACTION[=PATTERN]`, such as `fs.write=src/**` or `shell.run`, into a rule that allows. Without a pattern, the rule matches every
    /// resource.
    ///
    /// # Errors
    /// If no tool needs the action, or no resource can match the pattern; see [`Rule::parse`]. For actions of its own tools, a host creates
    /// [`Rule`]s directly.
    pub fn allow(rule: &str) -> Result<Rule, BadRule> {
        let (action, pattern) = match rule.split_once('=') {
            Some((action, pattern)) => (action, Some(pattern)),
            None => (rule, None),
        };
        let bad = |why: String| BadRule { rule: rule.into(), why };
        if pattern == Some("") {
            return Err(bad("the pattern is empty: omit the `=` to match every resource".to_owned()));
        }
        let why = |error: authority::BadRule| if *error.rule == *rule { error.why } else { error.to_string() };
        Rule::parse(action, pattern, Verdict::Allow).map_err(|error| bad(why(error)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read the rule `{rule}`: {why}; write ACTION or ACTION=PATTERN, such as `shell.run` or `fs.write=src/**`"
)]
pub struct BadRule {
    pub rule: Text,
    pub why: String,
}

#[cfg(test)]
mod tests {
    use subtend_session::authority::{Access, Authority};

    use super::*;

    fn verdict(authority: &Authority, action: &str, resource: &str) -> Verdict {
        authority.verdict(&Access { action: action.into(), resource: resource.into() })
    }

    #[test]
    fn default_policy_allows_reading_tools_and_agents() {
        let host = Authority::of(HostPolicy::default_for_workspace());
        let seen =
            [("fs.read", "a/b"), ("task:explore", "*"), ("tool:weather", "*"), ("fs.write", "a"), ("shell.run", "ls")]
                .map(|(action, resource)| verdict(&host, action, resource));
        assert_eq!(seen, [Verdict::Allow, Verdict::Allow, Verdict::Allow, Verdict::Ask, Verdict::Ask]);
        assert!(!host.unrestricted(&["fs.write"]));
    }

    #[test]
    fn allow_rule_is_an_action_with_an_optional_pattern() {
        let rule = |action: &str, resource: &str| {
            Ok(Rule { action: action.into(), resource: resource.into(), verdict: Verdict::Allow })
        };
        assert_eq!(HostPolicy::allow("shell.run"), rule("shell.run", "*"));
        assert_eq!(HostPolicy::allow("fs.write=src/**"), rule("fs.write", "src/**"));
        assert_eq!(HostPolicy::allow("fs.write=./a.txt"), rule("fs.write", "a.txt"));
        assert_eq!(HostPolicy::allow("net.fetch=https://x/?a=b"), rule("net.fetch", "https://x/?a=b"));
    }

    #[test]
    fn bad_rule_error_shows_the_syntax() {
        let why = |rule| HostPolicy::allow(rule).unwrap_err().why;
        assert_eq!(why("shell.run="), "the pattern is empty: omit the `=` to match every resource");
        assert_eq!(why("=src"), "``: the action is missing");
        assert_eq!(
            HostPolicy::allow("fs.write=/etc").unwrap_err().to_string(),
            "cannot read the rule `fs.write=/etc`: `/etc`: paths are relative to the workspace: leave out the leading `/`; \
             write ACTION or ACTION=PATTERN, such as `shell.run` or `fs.write=src/**`"
        );
    }

    #[test]
    fn a1_command_line_rules_translate_tool_names() {
        let rule = HostPolicy::allow("edit=src/**");
        let expected = Rule { action: "fs.write".into(), resource: "src/**".into(), verdict: Verdict::Allow };
        assert_eq!(rule, Ok(expected));
    }
}
