//! Agents of Claude Code: Markdown files below `.claude/agents`, identified by `name`.

use std::collections::BTreeSet;

use serde_json::Value;
use subtend_session::authority::Verdict;
use subtend_session::ids::Text;
use subtend_session::place::Isolation;
use subtend_session::settings::Effort;

use super::fields::{Fields, expected, field};
use super::file::ForeignFile;
use super::rights::{Rights, rule};
use super::{lenient, mcp_servers, tools, wildcards};
use crate::form::shown;
use crate::front::{BadManifest, Parsed};
use crate::manifest::{AgentMode, Manifest};
use crate::name::slug;

const MAX_SKILLS: usize = 64;

/// The maximum number of servers that a file names.
const MAX_SERVERS: usize = 64;

/// The maximum size of all names of a list of tools.
const MAX_NAMES: usize = 32 << 10;

/// The size of each name in addition to its length.
const SIZE_OF_NAME: usize = 16;

const ALIASES: [&str; 4] = ["opus", "sonnet", "haiku", "fable"];

pub(super) fn parse(file: ForeignFile<'_>) -> Result<Parsed, BadManifest> {
    let read = lenient::read(file.text)?;
    let mut fields = Fields::of(read.map);
    if read.quoted {
        fields.note("the front matter is not valid YAML: values with `: ` in them are read as text");
    }
    let documentation =
        |key| field(key, "is missing: Claude Code treats such a file as documentation, not as an agent");
    let name = fields.text("name")?.ok_or_else(|| documentation("name"))?;
    let description = fields.text("description")?.ok_or_else(|| documentation("description"))?;
    if read.body.trim().is_empty() {
        return Err(BadManifest::NoPrompt);
    }
    let mut manifest = Manifest::new(fields.name(&name)?, AgentMode::All, read.body);
    manifest.description = description;
    model(&mut fields, &mut manifest)?;
    manifest.settings.effort = effort(&mut fields, "effort")?;
    manifest.turns = fields.count("maxTurns")?;
    manifest.isolation = isolation(&mut fields)?;
    manifest.instructions = !fields.flag("omitClaudeMd")?;
    manifest.skills = skills(&mut fields);
    let mut rights = rights(&mut fields, &mut manifest)?;
    apply_restrictions(&mut fields, &mut rights)?;
    fields.keep(&["color", "experimental"]);
    memory(&mut fields, &name);
    fields.report(&[
        ("background", "the call that starts an agent decides whether to wait for it"),
        ("initialPrompt", "a session begins with the user's input"),
    ]);
    super::finished(file, fields, rights, manifest)
}

fn isolation(fields: &mut Fields) -> Result<Isolation, BadManifest> {
    match fields.text("isolation")?.as_deref() {
        None | Some("none") => Ok(Isolation::None),
        Some("worktree") => Ok(Isolation::Worktree),
        Some(other) => Err(expected("isolation", "`worktree` or `none`", &Value::from(other))),
    }
}

/// Reports that `memory` has no effect. A model can never add text to later prompts without an import by the user.
fn memory(fields: &mut Fields, name: &str) {
    let Some(value) = fields.take("memory") else { return };
    let place = match value.as_str() {
        Some("user") => Some(("~/.claude/agent-memory", "agent-memory", "~/.claude/CLAUDE.md")),
        Some("project") => Some((".claude/agent-memory", ".claude/agent-memory", "CLAUDE.md")),
        Some("local") => Some((".claude/agent-memory-local", ".claude/agent-memory-local", "CLAUDE.local.md")),
        Some(_) | None => None,
    };
    let name = shown(&Value::from(name));
    let name = name.trim_matches('"');
    fields.note(match place {
        Some((folder, from, file)) => format!(
            "`memory` has no effect: agents do not write `{folder}/{name}/MEMORY.md` here, and no prompt contains it. To add it to \
             all prompts, import it: `@{from}/{name}/MEMORY.md` in `{file}`"
        ),
        None => format!("`memory` must be user, project or local, not {}: it has no effect", shown(&value)),
    });
    fields.kept.insert("memory".to_owned(), value);
}

/// Takes the skills whose texts are in the prompt. An unusable list is only reported, because skills restrict nothing.
fn skills(fields: &mut Fields) -> Vec<Text> {
    let names = match fields.names("skills") {
        Ok(names) => names.unwrap_or_default(),
        Err(why) => {
            fields.note(why.to_string());
            Vec::new()
        }
    };
    if names.len() > MAX_SKILLS {
        fields.note(format!("`skills`: only the first {MAX_SKILLS} are used"));
    }
    names.into_iter().take(MAX_SKILLS).map(Text::from).collect()
}

fn model(fields: &mut Fields, manifest: &mut Manifest) -> Result<(), BadManifest> {
    match fields.text("model")?.as_deref() {
        None | Some("inherit" | "default") => {}
        Some(alias) if ALIASES.contains(&alias) => manifest.pool = Some(alias.into()),
        Some(model) if model.contains('/') => manifest.model = Some(model.into()),
        Some(model) => manifest.model = Some(format!("anthropic/{model}").into()),
    }
    Ok(())
}

/// Takes an effort level. Levels above `high` become `high`.
pub(super) fn effort(fields: &mut Fields, key: &str) -> Result<Option<Effort>, BadManifest> {
    let Some(word) = fields.text(key)? else { return Ok(None) };
    Ok(match &*word {
        "none" => Some(Effort::None),
        "minimal" | "low" => Some(Effort::Low),
        "medium" => Some(Effort::Medium),
        "high" | "xhigh" | "max" => Some(Effort::High),
        _ => {
            fields.note(format!("`{key}` {} has no effect: use low, medium or high", shown(&Value::from(&*word))));
            None
        }
    })
}

/// An entry of a tool list, such as `Bash(git *)`: the tool, and the text in parentheses.
struct Spec {
    name: String,
    of: Option<String>,
}

impl Spec {
    fn parse(text: &str) -> Self {
        match text.split_once('(').and_then(|(name, rest)| Some((name, rest.strip_suffix(')')?))) {
            Some((name, of)) if of.trim() != "*" => Self { name: name.trim().into(), of: Some(of.trim().into()) },
            Some((name, _)) => Self { name: name.trim().into(), of: None },
            None => Self { name: text.trim().into(), of: None },
        }
    }

    /// Returns whether this entry, as a pattern of tool names, matches `other`.
    fn names(&self, other: &str) -> bool {
        let (own, other) = (self.name.to_lowercase(), other.to_lowercase());
        let server = own.strip_prefix("mcp__").filter(|rest| !rest.contains("__"));
        wildcards::matches(&own, &other) || server.is_some_and(|_| other.starts_with(&format!("{own}__")))
    }
}

/// Takes a list of tools. Each is compared with each denied one, so their number and length are limited.
fn specs(fields: &mut Fields, key: &str) -> Result<Option<Vec<Spec>>, BadManifest> {
    let Some(names) = fields.names(key)? else { return Ok(None) };
    let specs: Vec<Spec> = names.iter().map(|name| Spec::parse(name)).collect();
    let size = specs.iter().map(|spec| spec.name.len().saturating_add(SIZE_OF_NAME)).fold(0, usize::saturating_add);
    match size > MAX_NAMES {
        true => Err(field(
            key,
            format!(
                "names too many tools: their names may have {MAX_NAMES} bytes together, and each counts {SIZE_OF_NAME} more"
            ),
        )),
        false => Ok(Some(specs)),
    }
}

fn rights(fields: &mut Fields, manifest: &mut Manifest) -> Result<Rights, BadManifest> {
    let listed = specs(fields, "tools")?.filter(|specs| !specs.iter().any(|spec| spec.name == "*"));
    let denied = specs(fields, "disallowedTools")?.unwrap_or_default();
    let mut servers = mcp_servers::take(fields);
    if servers.len() > MAX_SERVERS {
        fields.note(format!("`mcpServers`: only the first {MAX_SERVERS} are used"));
        servers.truncate(MAX_SERVERS);
    }
    let mut rights = match &listed {
        Some(listed) => allowed(listed, &denied, manifest, fields),
        None => Rights::of(Verdict::Allow),
    };
    if let Some(offered) = &mut manifest.tools {
        allow_servers(&servers, &denied, offered, &mut rights);
    }
    deny(&denied, listed.is_none(), manifest, &mut rights);
    Ok(rights)
}

/// Returns the rights that the listed tools need, and no others.
fn allowed(listed: &[Spec], denied: &[Spec], manifest: &mut Manifest, fields: &mut Fields) -> Rights {
    let mut rights = Rights::of(Verdict::Deny);
    let mut offered: BTreeSet<String> = BTreeSet::new();
    let mut commands = Some(Vec::new());
    let mut missing = Vec::new();
    for spec in listed.iter().filter(|spec| !denied.iter().any(|denied| denied.names(&spec.name))) {
        if let Some(action) = tools::of_server(&spec.name) {
            offered.insert(spec.name.clone());
            rights.action(action, Verdict::Allow);
            continue;
        }
        let Some(known) = tools::known(&spec.name) else {
            missing.push(spec.name.clone());
            continue;
        };
        let Some(tool) = known.tool else { continue };
        offered.extend(tools::named(tool).into_iter().map(str::to_owned));
        match (known.action, spec.of.as_deref()) {
            ("shell.run", Some(pattern)) => {
                let pattern =
                    pattern.strip_suffix(":*").map_or_else(|| pattern.to_owned(), |begin| format!("{begin} *"));
                commands.iter_mut().for_each(|all| all.push((pattern.clone(), Verdict::Allow)));
            }
            // A shell command may also read, write and connect.
            ("shell.run", None) => {
                commands = None;
                for action in ["shell.run", "fs.*", "net.*"] {
                    rights.action(action, Verdict::Allow);
                }
            }
            ("task:*", Some(agents)) => {
                for agent in agents.split(',') {
                    rights.action(format!("task:{}", slug(agent)), Verdict::Allow);
                }
            }
            ("net.fetch", Some(of)) => match of.strip_prefix("domain:") {
                // `*` would also match paths of other hosts.
                Some(domain) if domain.contains(['*', '/']) => {
                    rights
                        .note(format!("`{}({of})` is not allowed: a domain pattern has no equivalent here", spec.name));
                }
                Some(domain) => rights.rule(rule("net.fetch", &format!("https://{domain}/*"), Verdict::Allow)),
                None => rights.note(format!("`{}({of})` is not allowed: it names no domain", spec.name)),
            },
            (action, Some(pattern)) => rights.rule(rule(action, &translate_ignore_pattern(pattern), Verdict::Allow)),
            (action, None) => rights.action(action, Verdict::Allow),
        }
    }
    if let Some(commands) = commands.filter(|commands| !commands.is_empty()) {
        rights.commands(Verdict::Deny, &commands, true);
    }
    if !missing.is_empty() {
        fields.note(format!("`tools`: there is no {} here", shown(&Value::from(missing.join(", "))).trim_matches('"')));
    }
    // `mcp__server__get_*` means the tools of that server whose names begin with `get_`.
    let usable = |name: &&String| crate::front::is_tool_name(name.strip_suffix('*').unwrap_or(name));
    manifest.tools = Some(offered.iter().filter(usable).map(|name| Text::from(&**name)).collect());
    rights
}

/// Adds all tools of the servers to a list. An agent without a list already has its caller's servers.
fn allow_servers(servers: &[String], denied: &[Spec], offered: &mut Vec<Text>, rights: &mut Rights) {
    for tools in servers.iter().map(|server| mcp_servers::all_tools(server)) {
        if denied.iter().any(|denied| denied.names(&tools)) {
            continue;
        }
        if let Some(action) = tools::of_server(&tools) {
            rights.action(action, Verdict::Allow);
            offered.push(tools.into());
        }
    }
    offered.sort_unstable();
    offered.dedup();
}

/// Translates a path pattern in `.gitignore` syntax. One without an equivalent matches nothing.
fn translate_ignore_pattern(pattern: &str) -> String {
    let plain = pattern.trim_start_matches("./");
    match plain.strip_prefix('/') {
        Some(rooted) => rooted.to_owned(),
        None if plain.trim_end_matches('/').contains('/') => plain.to_owned(),
        None => format!("**/{plain}"),
    }
}

/// Denies whole tools, even for some of their calls. `open` is true if the file does not list allowed tools.
fn deny(denied: &[Spec], open: bool, manifest: &mut Manifest, rights: &mut Rights) {
    let mut without: Vec<&'static str> = Vec::new();
    for spec in denied {
        if spec.name == "*" {
            rights.bound_all(Verdict::Deny);
            continue;
        }
        if spec.name.starts_with("mcp__") {
            match tools::of_server(&spec.name) {
                Some(action) => rights.bound(&[&action], Verdict::Deny),
                None => rights.bound(&["mcp:*"], Verdict::Deny),
            }
            continue;
        }
        if spec.name.contains('*') {
            deny_pattern(spec, &mut without, rights);
            continue;
        }
        match tools::known(&spec.name) {
            Some(known) => without.extend(known.tool),
            None => rights.note(format!("`disallowedTools`: there is no {} here", shown(&Value::from(&*spec.name)))),
        }
    }
    // The skills of a session are files too, so only the tool `skill` is removed.
    let mut partly = without.contains(&"skill");
    for action in ["fs.read", "fs.write", "shell.run", "net.fetch", "net.search", "task:*"] {
        let mut all = tools::of_action(action);
        let some = tools::of_action(action).any(|tool| without.contains(&tool));
        if some && all.all(|tool| without.contains(&tool)) {
            rights.bound(&[action], Verdict::Deny);
        } else {
            partly |= some;
        }
    }
    if partly && open {
        manifest.tools = Some(tools::all_except(&without));
        rights.note("`disallowedTools`: tools of servers and hosts are not offered, since the remaining tools are listed by name");
    }
}

/// Denies the tools that a pattern such as `Web*` matches.
fn deny_pattern(spec: &Spec, without: &mut Vec<&'static str>, rights: &mut Rights) {
    let before = without.len();
    without.extend(tools::matching(|name| spec.names(name)));
    let begin = spec.name.split('*').next().unwrap_or_default().to_lowercase();
    if "mcp__".starts_with(&begin) {
        rights.bound(&["mcp:*"], Verdict::Deny);
        rights.note(format!(
            "`disallowedTools`: {} may match tools of servers, so all of these are denied",
            shown(&Value::from(&*spec.name))
        ));
    } else if without.len() == before {
        rights.note(format!("`disallowedTools`: no tool here matches {}", shown(&Value::from(&*spec.name))));
    }
}

/// Applies the keys that restrict the agent further.
fn apply_restrictions(fields: &mut Fields, rights: &mut Rights) -> Result<(), BadManifest> {
    match fields.text("permissionMode")?.as_deref() {
        None | Some("default" | "manual") => {}
        Some("acceptEdits" | "bypassPermissions" | "auto") => {
            rights.note("`permissionMode` grants nothing here: the agent may do at most what its caller may do");
        }
        Some("dontAsk") => {
            rights.note("`permissionMode: dontAsk`: calls that require approval still ask for it, and are refused without an approver")
        }
        Some("plan") => rights.bound(&["fs.write", "shell.run"], Verdict::Deny),
        Some(other) => return Err(expected("permissionMode", "a mode of Claude Code", &Value::from(other))),
    }
    if let Some(hooks) = fields.take("hooks") {
        ask_for_hooks(&hooks, rights);
        fields.kept.insert("hooks".to_owned(), hooks);
    }
    Ok(())
}

/// Lets the calls that a `PreToolUse` hook may refuse require approval, because hooks do not run here.
fn ask_for_hooks(hooks: &Value, rights: &mut Rights) {
    rights.note("`hooks` has no effect: commands that a file names are not run");
    let Some(before) = hooks.get("PreToolUse").filter(|hooks| !hooks.as_array().is_some_and(Vec::is_empty)) else {
        return;
    };
    let matchers = || before.as_array().into_iter().flatten().map(|hook| hook.get("matcher").and_then(Value::as_str));
    let plain = |matcher: &str| matcher.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '|' | '_'));
    let actions: Option<Vec<&str>> = matchers()
        .flat_map(|matcher| matcher.filter(|matcher| plain(matcher)).unwrap_or("?").split('|'))
        .map(|tool| tools::known(tool).map(|known| known.action))
        .collect();
    match actions.filter(|actions| !actions.is_empty()) {
        Some(actions) => {
            let actions: BTreeSet<&str> = actions.into_iter().filter(|action| !action.is_empty()).collect();
            let actions: Vec<&str> = actions.into_iter().collect();
            rights.bound(&actions, Verdict::Ask);
            rights.note(format!("`hooks`: {} requires approval, since a hook may refuse it", actions.join(", ")));
        }
        None => {
            rights.bound_all(Verdict::Ask);
            rights.note("`hooks`: every action requires approval, since a hook may refuse it");
        }
    }
}
