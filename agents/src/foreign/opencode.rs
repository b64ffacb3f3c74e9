//! Agents of OpenCode, with the keys of the first and the second generation of its format.

use serde_json::Value;
use subtend_session::authority::Verdict;
use subtend_session::ids::Text;

use super::fields::{Fields, expected, field};
use super::file::ForeignFile;
use super::lenient;
use super::opencode_rules::{self as rules, OrderedPermission};
use super::rights::Rights;
use crate::front::{BadManifest, Parsed};
use crate::manifest::{AgentMode, Manifest};

/// Keys that only files of the second generation have.
const SECOND: [&str; 4] = ["permissions", "system", "disabled", "request"];

pub(super) fn parse(file: ForeignFile<'_>) -> Result<Parsed, BadManifest> {
    let read = lenient::read(file.text)?;
    let mut fields = Fields::of(read.map);
    if read.quoted {
        fields.note("the front matter is not valid YAML: values with `: ` in them are read as text");
    }
    for key in ["disable", "disabled"] {
        if fields.flag(key)? {
            return Err(field(key, "is true: the agent is switched off"));
        }
    }
    let second = SECOND.iter().any(|key| fields.has(key));
    let name = fields.text("name")?.unwrap_or_else(|| file.id.into());
    let name = fields.name(&name)?;
    let prompts = [fields.text("prompt")?, fields.text("system")?];
    let body = Some(read.body).filter(|body| !body.trim().is_empty()).map(Text::from);
    let body = body.or_else(|| prompts.into_iter().flatten().next()).ok_or(BadManifest::NoPrompt)?;
    let mode = match fields.text("mode")?.as_deref() {
        None | Some("all") => AgentMode::All,
        Some("primary") => AgentMode::Primary,
        Some("subagent") => AgentMode::Subagent,
        Some(other) => return Err(expected("mode", "primary, subagent or all", &Value::from(other))),
    };
    let mut manifest = Manifest::new(name, mode, body);
    if let Some(description) = fields.text("description")? {
        manifest.description = description;
    }
    manifest.model = fields.text("model")?.filter(|model| **model != *"inherit");
    manifest.settings.temperature = fields.number("temperature", f64::from(f32::MAX));
    manifest.settings.top_p = fields.number("top_p", 1.0);
    let steps = [fields.count("steps")?, fields.count("maxSteps")?];
    let tokens = [fields.count("maxTokens")?, fields.count("maxOutputTokens")?];
    manifest.settings.output_tokens = tokens.into_iter().flatten().min().map(u64::from);
    manifest.turns = steps.into_iter().flatten().min();
    manifest.hidden = fields.flag("hidden")?;
    let entries = if second { rules::second(&mut fields)? } else { rules::first(&mut fields)? };
    let rights = rights(&entries, second, file, &mut manifest);
    fields.keep(&["color"]);
    fields.report(&[
        ("variant", "models have no variants here: set `effort` in a native agent file"),
        ("options", "options of providers are not passed on"),
        ("request", "options of requests are not passed on"),
        ("reasoningEffort", "options of providers are not passed on"),
    ]);
    // In the first generation, an unknown key is an option for the provider's model. It restricts nothing.
    super::finished(file, fields, rights, manifest)
}

fn rights(entries: &[OrderedPermission], second: bool, file: ForeignFile<'_>, manifest: &mut Manifest) -> Rights {
    let default = if second { Verdict::Ask } else { Verdict::Allow };
    let of = |key: &str| rules::of(entries, key, default);
    let rest = rules::rest(entries, default);
    let mut rights = Rights::of(rest);
    let (read, write, run) = (of("read"), of("edit"), of("bash"));
    for (action, scope) in [("fs.read", &read), ("fs.write", &write)] {
        rights.action(action, scope.rest);
        for (pattern, verdict) in &scope.rules {
            rights.path(action, pattern, *verdict, file.workspace);
        }
    }
    rights.commands(run.rest, &run.rules, second);
    let web = of("webfetch");
    rights.action("net.fetch", web.rest);
    for (pattern, verdict) in &web.rules {
        // An allow with `?` is omitted, because `*` instead of `?` would allow more addresses.
        if *verdict != Verdict::Allow || !pattern.contains('?') {
            rights.rule(super::rights::rule("net.fetch", &pattern.replace('?', "*"), *verdict));
        }
    }
    let search = of("websearch");
    rights.action("net.search", search.rest);
    for (pattern, verdict) in
        search.rules.iter().filter(|(pattern, verdict)| *verdict != Verdict::Allow || !pattern.contains('?'))
    {
        rights.rule(super::rights::rule("net.search", &pattern.replace('?', "*"), *verdict));
    }
    let task = of("task");
    rights.action("task:*", task.rest);
    for (pattern, verdict) in &task.rules {
        if *verdict != Verdict::Allow || !pattern.contains('?') {
            rights.action(format!("task:{}", rules::agents(pattern)), *verdict);
        }
    }
    let tools =
        [("list", "list", &read), ("glob", "list", &read), ("grep", "search", &read), ("skill", "skill", &read)];
    let less = |(key, _, needs): &(&str, &str, &rules::KeyPermissions)| {
        let own = of(key);
        !own.rules.is_empty() || own.rest < needs.rest
    };
    let mut without: Vec<&str> = tools.iter().filter(|tool| less(tool)).map(|(_, tool, _)| *tool).collect();
    without.dedup();
    if !without.is_empty() {
        manifest.tools = Some(super::tools::all_except(&without));
        rights.note(format!(
            "{} is not offered, since its permission differs from that of its action; tools of servers and hosts are not offered either",
            without.join(", ")
        ));
    }
    rules::others(entries, &mut rights);
    rights
}
