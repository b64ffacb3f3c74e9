//! The written form of rules, with one parser for agent files, the command line and hosts.

use crate::authority::{Authority, Rule, Verdict, pattern};
use crate::ids::Text;

/// The actions that a written rule can name. A name follows an action that ends with `:`.
pub const ACTIONS: [&str; 8] =
    ["fs.read", "fs.write", "net.fetch", "net.search", "shell.run", "task:", "tool:", "mcp:"];

/// Tool names of this and other products that people write instead of an action.
const ALIASES: [(&str, &[&str]); 6] = [
    ("fs.read", &["read", "list", "ls", "glob", "grep", "search"]),
    ("fs.write", &["write", "edit", "multiedit", "patch", "apply_patch"]),
    ("shell.run", &["bash", "shell"]),
    ("net.fetch", &["fetch", "webfetch", "web_fetch"]),
    ("net.search", &["websearch", "web_search"]),
    ("task:*", &["task", "spawn", "spawn_task", "subagent", "minion", "agent"]),
];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{rule}`: {why}")]
pub struct BadRule {
    pub rule: Text,
    pub why: String,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl Rule {
    /// Parses a written rule: an action pattern, and a resource pattern unless it applies to every resource.
    ///
    /// A tool name means the action that the tool needs: `read` is `fs.read`, `bash` is `shell.run`, and `task` with
    /// the pattern `explore` is `task:explore`.
    ///
    /// ```
    /// use subtend_session::authority::{Rule, Verdict};
    ///
    /// let rule = Rule::parse("read", Some("secret/**"), Verdict::Deny)?;
    /// assert_eq!((&*rule.action, &*rule.resource), ("fs.read", "secret/**"));
    /// assert!(Rule::parse("fs.reed", None, Verdict::Deny).is_err());
    /// # Ok::<(), subtend_session::authority::BadRule>(())
    /// ```
    /// # Errors
    /// [`BadRule`] for an action that no tool needs, or a pattern that no resource matches.
    pub fn parse(action: &str, resource: Option<&str>, verdict: Verdict) -> Result<Self, BadRule> {
        let (named, resource) = (translate_alias(action), resource.unwrap_or("*"));
        let rule = |action: &str, resource: &str| Self { action: action.into(), resource: resource.into(), verdict };
        let bad = |rule: &str, why: String| BadRule { rule: rule.into(), why };
        if named == "task:*" && action != named {
            let agents = format!("task:{resource}");
            check_action(&agents, verdict).map_err(|why| bad(resource, why))?;
            return Ok(rule(&agents, "*"));
        }
        check_action(named, verdict).map_err(|why| bad(action, why))?;
        if resource.is_empty() || resource.trim() != resource || resource.chars().any(char::is_control) {
            return Err(bad(resource, BLANKS.to_owned()));
        }
        if named.starts_with("task:") && !matches!(resource, "*" | ".") {
            let why = format!("`{named}` has no resources: name the agent in the action, as `task:explore`");
            return Err(bad(resource, why));
        }
        if may_match(named, "fs.read") || may_match(named, "fs.write") {
            return path(resource).map(|path| rule(named, path)).map_err(|why| bad(resource, why));
        }
        match placeholder(resource) {
            Some(name) => {
                Err(bad(resource, format!("unknown placeholder `{name}`; patterns do not support placeholders")))
            }
            None => Ok(rule(named, resource)),
        }
    }
}

const BLANKS: &str = "a pattern has at least one character, no control characters and no blanks around it";

/// Returns whether an address pattern may match other hosts than it names, because `*` also matches `/`.
///
/// ```
/// use subtend_session::authority::is_wide_address;
///
/// let wide = ["https://*.example.org/*", "https://example.org*", "*example.org*", "https://example.org"].map(is_wide_address);
/// assert_eq!(wide, [true; 4]);
/// let plain = ["*", "https://*", "https://example.org/*", "http://example.org:8080/a"].map(is_wide_address);
/// assert_eq!(plain, [false; 4]);
/// ```
pub fn is_wide_address(pattern: &str) -> bool {
    let Some((scheme, rest)) = pattern.split_once("://") else { return pattern != "*" };
    let host = rest.split_once('/').map(|(host, _)| host);
    rest != "*" && (scheme.contains('*') || host.is_none_or(|host| host.is_empty() || host.contains('*')))
}

fn translate_alias(action: &str) -> &str {
    let alias = action.to_lowercase();
    let found = ALIASES.iter().find(|(_, names)| names.contains(&alias.as_str()));
    found.map_or(action, |(action, _)| action)
}

/// Checks that some tool may need the action, or one that the pattern matches.
fn check_action(action: &str, verdict: Verdict) -> Result<(), String> {
    if action.is_empty() {
        return Err("the action is missing".to_owned());
    }
    if let Some((before, after)) = action.split_once('=') {
        let (action, word) = (translate_alias(before), verdict.as_str());
        let after = if after.is_empty() { "secret/**" } else { after };
        return Err(format!(
            "a key names an action only; nest the pattern below it: `{action}: {{\"{after}\": {word}}}`"
        ));
    }
    if let Some(name) = placeholder(action) {
        return Err(format!("unknown placeholder `{name}`; actions do not support placeholders: {}", valid_actions()));
    }
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '_' | '-' | '*' | '/');
    if !action.chars().all(valid) {
        return Err(format!("an action holds letters, digits and . : _ - / * only: {}", valid_actions()));
    }
    if let Some(tool) = action.strip_prefix("tool:")
        && translate_alias(tool) != tool
    {
        return Err(format!("no tool needs this action: the tool `{tool}` needs `{}`", translate_alias(tool)));
    }
    if ACTIONS.iter().any(|known| may_match(action, known)) {
        return Ok(());
    }
    let near = near(action).map_or_else(|| ":".to_owned(), |name| format!("; did you mean `{name}`?"));
    Err(format!("unknown action{near} {}", valid_actions()))
}

fn valid_actions() -> String {
    format!(
        "use one of {}, NAME being an agent or a tool",
        ACTIONS
            .map(|action| match action.strip_suffix(':') {
                Some(_) => format!("{action}NAME"),
                None => action.to_owned(),
            })
            .join(", ")
    )
}

/// Returns whether the pattern `action` can match `known`, or an action with that prefix where `known` ends with `:`.
fn may_match(action: &str, known: &str) -> bool {
    if !known.ends_with(':') {
        return pattern::matches(action, known, pattern::Syntax::Plain);
    }
    let literal = action.split('*').next().unwrap_or_default();
    match literal.len() == action.len() {
        true => action.len() > known.len() && action.starts_with(known),
        false => literal.starts_with(known) || known.starts_with(literal),
    }
}

fn near(requested: &str) -> Option<&'static str> {
    let actions = ACTIONS.iter().copied().filter(|action| !action.ends_with(':'));
    let aliases = ALIASES.iter().flat_map(|(_, names)| names.iter().copied());
    crate::near::near(requested, actions.chain(aliases)).map(translate_alias)
}

/// Returns a workspace path pattern without optional prefixes.
fn path(resource: &str) -> Result<&str, String> {
    let relative = "paths are relative to the workspace";
    let plain = resource.trim_start_matches("./");
    if let Some(name) = placeholder(plain) {
        let rest = plain.rsplit_once(&*name).map_or("", |(_, rest)| rest.trim_start_matches('/'));
        let rest = if rest.is_empty() { "**" } else { rest };
        return Err(format!("unknown placeholder `{name}`; {relative}: write `{rest}`"));
    }
    if plain.contains(['{', '}']) {
        return Err("`{` and `}` have no meaning in a pattern: write one entry for each path".to_owned());
    }
    if plain.starts_with('!') || plain.contains(['?', '<', '>']) {
        return Err("only `*` and `**` have a meaning in a pattern".to_owned());
    }
    if plain.starts_with('/') {
        return Err(format!("{relative}: leave out the leading `/`"));
    }
    if plain.starts_with(['~', '$']) {
        return Err(format!("`~` and variables are not expanded; {relative}"));
    }
    if plain.split('/').any(|part| part == "..") {
        return Err("a path cannot leave the workspace by `..`".to_owned());
    }
    if plain.contains(',') {
        return Err(
            "a comma does not separate patterns: write a rule for each path, and `*` for a comma in a name".to_owned()
        );
    }
    if plain.contains('\\') {
        return Err("parts of a path are separated by `/`".to_owned());
    }
    if plain.is_empty() {
        return Err("the pattern is empty".to_owned());
    }
    let (parts, limit) = (pattern::count_parts(plain), Authority::MAX_PATTERN_PARTS);
    if parts > limit {
        return Err(format!("the pattern has {parts} parts between `/`; the limit is {limit}"));
    }
    // A blank may follow `./`.
    if plain.trim_start() != plain {
        return Err(BLANKS.to_owned());
    }
    Ok(plain)
}

/// Returns the first `{name}` of a pattern: placeholders are not expanded. Shell brace lists do not count.
fn placeholder(pattern: &str) -> Option<String> {
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) = after.split_once('}')?;
        let is_name =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        if is_name && !before.ends_with('$') {
            return Some(format!("{{{name}}}"));
        }
        rest = behind;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(action: &str, resource: Option<&str>) -> Result<(String, String), String> {
        let rule = Rule::parse(action, resource, Verdict::Deny);
        rule.map(|rule| (rule.action.to_string(), rule.resource.to_string())).map_err(|bad| bad.to_string())
    }

    fn pair(action: &str, resource: &str) -> Result<(String, String), String> {
        Ok((action.to_owned(), resource.to_owned()))
    }

    #[test]
    fn a1_tool_names_are_translated_to_actions() {
        assert_eq!(parse("fs.read", None), pair("fs.read", "*"));
        assert_eq!(parse("Read", Some("secret/**")), pair("fs.read", "secret/**"));
        assert_eq!(parse("edit", Some("./a.txt")), pair("fs.write", "a.txt"));
        assert_eq!(parse("edit", Some("././**")), pair("fs.write", "**"));
        assert_eq!(parse("bash", Some("git *")), pair("shell.run", "git *"));
        assert_eq!(parse("webfetch", None), pair("net.fetch", "*"));
        assert_eq!(parse("WebSearch", None), pair("net.search", "*"));
        assert_eq!(parse("task", None), pair("task:*", "*"));
        assert_eq!(parse("task", Some("explore")), pair("task:explore", "*"));
        assert_eq!(parse("fs.*", Some("src/")), pair("fs.*", "src/"));
        assert_eq!(parse("shell.run", Some("find . -exec cat {} ; echo ${HOME}")).map(drop), Ok(()));
        for action in ["*", "task:explore", "task:*", "tool:weather", "mcp:server:tool", "net.*", "t*"] {
            assert_eq!(parse(action, None), pair(action, "*"));
        }
    }

    #[test]
    fn a1_unknown_action_error_suggests_a_known_action() {
        let all = "use one of fs.read, fs.write, net.fetch, net.search, shell.run, task:NAME, tool:NAME, mcp:NAME, NAME being an agent or a tool";
        let refusal = |text: &str| Err(format!("{text}{all}"));
        assert_eq!(parse("fs.reed", None), refusal("`fs.reed`: unknown action; did you mean `fs.read`? "));
        assert_eq!(parse("bsh", None), refusal("`bsh`: unknown action; did you mean `shell.run`? "));
        assert_eq!(parse("fs.read*x", None), refusal("`fs.read*x`: unknown action; did you mean `fs.read`? "));
        assert_eq!(parse("cookies", None), refusal("`cookies`: unknown action: "));
        assert_eq!(parse("task:", None), refusal("`task:`: unknown action; did you mean `task:*`? "));
        assert_eq!(
            parse("{workspace}/x", None),
            refusal("`{workspace}/x`: unknown placeholder `{workspace}`; actions do not support placeholders: ")
        );
        assert_eq!(
            parse("fs read", None),
            refusal("`fs read`: an action holds letters, digits and . : _ - / * only: ")
        );
        assert_eq!(parse("", None), Err("``: the action is missing".to_owned()));
    }

    #[test]
    fn a1_pattern_in_the_key_error_names_the_right_place() {
        let nest = "a key names an action only; nest the pattern below it: ";
        assert_eq!(
            parse("fs.read=secret/**", None),
            Err(format!("`fs.read=secret/**`: {nest}`fs.read: {{\"secret/**\": deny}}`"))
        );
        assert_eq!(parse("read=a", None), Err(format!("`read=a`: {nest}`fs.read: {{\"a\": deny}}`")));
    }

    #[test]
    fn a1_unmatchable_resource_pattern_is_refused() {
        let why = |action: &str, pattern: &str| parse(action, Some(pattern)).unwrap_err();
        let relative = "paths are relative to the workspace";
        assert_eq!(
            why("fs.read", "{workspace}/secret/**"),
            format!("`{{workspace}}/secret/**`: unknown placeholder `{{workspace}}`; {relative}: write `secret/**`")
        );
        assert_eq!(why("*", "/etc/**"), format!("`/etc/**`: {relative}: leave out the leading `/`"));
        assert_eq!(why("fs.write", "~/x"), format!("`~/x`: `~` and variables are not expanded; {relative}"));
        assert_eq!(why("fs.read", "a/../../b"), "`a/../../b`: a path cannot leave the workspace by `..`");
        assert_eq!(why("fs.read", "a\\b"), "`a\\b`: parts of a path are separated by `/`");
        assert_eq!(
            why("fs.read", "src/{a,b}"),
            "`src/{a,b}`: `{` and `}` have no meaning in a pattern: write one entry for each path"
        );
        assert_eq!(
            why("shell.run", "{tool} *"),
            "`{tool} *`: unknown placeholder `{tool}`; patterns do not support placeholders"
        );
        let blanks = "a pattern has at least one character, no control characters and no blanks around it";
        assert_eq!(why("fs.read", " "), format!("` `: {blanks}"));
        assert_eq!(why("fs.read", "./ /"), format!("`./ /`: {blanks}"));
        assert_eq!(
            why("task:explore", "src/**"),
            "`src/**`: `task:explore` has no resources: name the agent in the action, as `task:explore`"
        );
    }

    #[test]
    fn a1_ineffective_patterns_are_refused() {
        let refused = [
            ("tool:read", "*", "`tool:read`: no tool needs this action: the tool `read` needs `fs.read`"),
            ("read", "secret/?.txt", "`secret/?.txt`: only `*` and `**` have a meaning in a pattern"),
            (
                "read",
                "src/**,docs/**",
                "`src/**,docs/**`: a comma does not separate patterns: write a rule for each path, and `*` for a comma in a name",
            ),
            ("read", "!a", "`!a`: only `*` and `**` have a meaning in a pattern"),
            ("read", "<root>/a", "`<root>/a`: only `*` and `**` have a meaning in a pattern"),
            (
                "read",
                "secret/** ",
                "`secret/** `: a pattern has at least one character, no control characters and no blanks around it",
            ),
        ];
        for (action, resource, why) in refused {
            assert_eq!(parse(action, Some(resource)), Err(why.to_owned()));
        }
        assert_eq!(parse("tool:note", None), Ok(("tool:note".to_owned(), "*".to_owned())));
    }
}
