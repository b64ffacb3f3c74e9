//! Agents of Codex: TOML below `.codex/agents`.

use serde_json::{Map, Value};
use subtend_session::authority::Verdict;

use super::claude;
use super::fields::{Fields, expected, field};
use super::file::ForeignFile;
use super::mcp_servers;
use super::rights::Rights;
use crate::front::{BadManifest, Parsed};
use crate::manifest::{AgentMode, Manifest};

pub(super) fn parse(file: ForeignFile<'_>) -> Result<Parsed, BadManifest> {
    let text = file.text.strip_prefix('\u{feff}').unwrap_or(file.text);
    let map: Map<String, Value> = toml::from_str(text).map_err(|error| {
        let reason = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        let line = error.span().and_then(|span| text.get(..span.start)).map(|before| before.lines().count().max(1));
        BadManifest::Toml(line.map_or_else(|| reason.clone(), |line| format!("line {line}: {reason}")))
    })?;
    let mut fields = Fields::of(map);
    let missing = |key| field(key, "is missing or empty: Codex requires it");
    let name = fields.text("name")?.ok_or_else(|| missing("name"))?;
    let description = fields.text("description")?.ok_or_else(|| missing("description"))?;
    let body = fields.text("developer_instructions")?.ok_or_else(|| missing("developer_instructions"))?;
    let mut manifest = Manifest::new(fields.name(&name)?, AgentMode::Subagent, body);
    manifest.description = description;
    manifest.model = fields.text("model")?.map(|model| match model.contains('/') {
        true => model,
        false => format!("openai/{model}").into(),
    });
    manifest.settings.effort = claude::effort(&mut fields, "model_reasoning_effort")?;
    manifest.settings.output_tokens = fields.count("model_max_output_tokens")?.map(u64::from);
    let mut rights = Rights::of(Verdict::Allow);
    sandbox(&mut fields, &mut rights)?;
    fields.keep(&[
        "nickname_candidates",
        "model_verbosity",
        "model_reasoning_summary",
        "model_supports_reasoning_summaries",
        "model_context_window",
        "model_auto_compact_token_limit",
        "tool_output_token_limit",
        "hide_agent_reasoning",
        "show_raw_agent_reasoning",
        "personality",
        "project_doc_max_bytes",
    ]);
    servers(&mut fields, &mut rights);
    switches(&mut fields, &mut rights);
    fields.report(&[
        ("model_provider", "name the provider in `model`, as `PROVIDER/MODEL`"),
        ("skills", "an agent has the skills of its session"),
    ]);
    super::finished(file, fields, rights, manifest)
}

/// The file starts no server, but the restrictions apply to a running server of that name.
fn servers(fields: &mut Fields, rights: &mut Rights) {
    let Some(mcp_servers) = fields.take("mcp_servers") else { return };
    fields.note(
        "`mcp_servers` starts no server: define servers in `.mcp.json` or in your configuration (`mcp.servers`). Its deny and ask \
         rules apply to servers of the same names",
    );
    for (server, of) in mcp_servers.as_object().into_iter().flatten() {
        // Rules use the sanitized names of servers and tools.
        let action = |tool: &str| format!("mcp:{}:{tool}", mcp_servers::sanitize(server));
        let all = action("*");
        let is_off = of.get("enabled").is_some_and(|enabled| enabled.as_bool() != Some(true));
        let lists = ["enabled_tools", "disabled_tools"].map(|key| of.get(key).map(names_of));
        if is_off || lists.iter().any(|names| matches!(names, Some(None))) {
            rights.bound(&[&all], Verdict::Deny);
            continue;
        }
        let [enabled, disabled] = lists.map(Option::flatten);
        if let Some(enabled) = enabled {
            rights.only(&all, enabled.iter().map(|tool| action(&mcp_servers::sanitize(tool))));
        }
        for disabled in disabled.into_iter().flatten() {
            rights.bound(&[&action(&mcp_servers::sanitize(disabled))], Verdict::Deny);
        }
        if of.get("default_tools_approval_mode").is_some_and(asks) {
            rights.bound(&[&all], Verdict::Ask);
        }
        for (tool, of) in of.get("tools").and_then(Value::as_object).into_iter().flatten() {
            if of.get("approval_mode").is_some_and(asks) {
                rights.bound(&[&action(&mcp_servers::sanitize(tool))], Verdict::Ask);
            }
        }
    }
    fields.kept.insert("mcp_servers".to_owned(), mcp_servers);
}

/// Returns the names in a list, or `None` if the value is not a list.
fn names_of(value: &Value) -> Option<Vec<&str>> {
    value.as_array()?.iter().map(Value::as_str).collect()
}

/// Returns whether the approval mode of a server's tools asks the user. An unknown mode counts as one that asks.
fn asks(mode: &Value) -> bool {
    !matches!(mode.as_str(), Some("auto" | "approve"))
}

/// Takes the on/off switches of tools. Only a switch that is off restricts the agent.
fn switches(fields: &mut Fields, rights: &mut Rights) {
    for (key, what) in
        [("features", "features of Codex are not supported"), ("tools", "tools of Codex are not supported")]
    {
        let Some(map) = fields.take(key) else { continue };
        let off = |name: &str| map.get(name).is_some_and(|on| on.as_bool() == Some(false));
        let mut denied = Vec::new();
        for (names, action) in [
            (&["shell_tool"][..], "shell.run"),
            (&["web_search", "web_search_request"], "net.*"),
            (&["multi_agent", "collab"], "task:*"),
        ] {
            if names.iter().any(|name| off(name)) {
                rights.bound(&[action], Verdict::Deny);
                denied.push(action);
            }
        }
        fields.note(match denied.is_empty() {
            true => format!("`{key}` has no effect: {what}"),
            false => format!("`{key}`: {} is denied, and the rest has no effect: {what}", denied.join(", ")),
        });
        fields.kept.insert(key.to_owned(), map);
    }
}

fn sandbox(fields: &mut Fields, rights: &mut Rights) -> Result<(), BadManifest> {
    let own = fields.take("sandbox_workspace_write");
    let network = own.as_ref().and_then(|own| own.get("network_access")).and_then(Value::as_bool).unwrap_or(false);
    match fields.text("sandbox_mode")?.as_deref() {
        None => {}
        Some("read-only") => rights.bound(&["fs.write", "net.*"], Verdict::Deny),
        Some("workspace-write") if network => {}
        Some("workspace-write") => rights.bound(&["net.*"], Verdict::Deny),
        Some("danger-full-access") => {
            rights.note("`sandbox_mode` grants nothing here: the agent may do at most what its caller may do");
        }
        Some(other) => return Err(expected("sandbox_mode", "a mode of Codex", &Value::from(other))),
    }
    if let Some(own) = own {
        fields.kept.insert("sandbox_workspace_write".to_owned(), own);
    }
    match fields.take("approval_policy") {
        None => {}
        Some(Value::String(word)) if matches!(&*word, "on-request" | "on-failure") => {}
        Some(Value::String(word)) if word == "never" => {
            rights.note("`approval_policy: never`: calls that require approval still ask for it, and are refused without an approver");
        }
        Some(Value::String(word)) if word == "untrusted" => rights.bound(&["fs.write", "shell.run"], Verdict::Ask),
        Some(other) => {
            rights.bound_all(Verdict::Ask);
            rights.note("`approval_policy`: every action requires approval");
            fields.kept.insert("approval_policy".to_owned(), other);
        }
    }
    match fields.take("web_search") {
        None => {}
        Some(Value::String(word)) if word == "disabled" => rights.bound(&["net.*"], Verdict::Deny),
        Some(Value::Bool(false)) => rights.bound(&["net.*"], Verdict::Deny),
        Some(Value::String(word)) if matches!(&*word, "cached" | "indexed") => {
            rights.bound(&["net.fetch"], Verdict::Ask);
            rights.note("`web_search`: net.fetch requires approval, since pages are fetched live here");
        }
        Some(other) => drop(fields.kept.insert("web_search".to_owned(), other)),
    }
    Ok(())
}
