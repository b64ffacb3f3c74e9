//! MCP servers: those of `.mcp.json` in a trusted workspace, and those of the person's own configuration.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use subtend::config::Loaded;
use subtend_agents::catalog::{AgentProblem, Catalog, ProblemKind};
use subtend_agents::manifest::{Manifest, Source};
use subtend_session::authority::Rule;
use subtend_session::ids::{Hash, Text as Name};
use subtend_tools::mcp::{FILE, Ground, KnownTools, MAX_FILE_BYTES, Origin, ServerList, Servers};
use subtend_tools::workspace::Workspace;

use super::fail::Fail;
use super::paint::{In, ODD, clip, count, harmless};
use super::trust::level::Trust;
use super::work::setup;
use super::{guard, settings};

/// File of earlier tool descriptions, next to the user's configuration.
pub(crate) const KNOWN: &str = "mcp-tools.json";

/// Keys of a server that say what runs or is reached, in the order in which they are shown.
const DECIDING: [&str; 6] = ["command", "url", "args", "env", "headers", "in_workspace"];

/// Longest value of these that is shown whole, in bytes.
const MAX_WHOLE: usize = 8 << 10;

/// Most other keys of a server that are shown, and most columns of each.
const MAX_OTHERS: usize = 8;
const MAX_OTHER: usize = 200;

/// The servers of each workspace, shared by all its sessions in this process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerPool(Arc<Mutex<HashMap<PathBuf, (ServerList, Servers)>>>);

impl ServerPool {
    /// Returns the servers of a workspace as they are named now. Nothing is started.
    pub(crate) fn of(&self, workspace: &Workspace, trust: Trust, loaded: &Loaded) -> Result<Servers, Fail> {
        let list = list(workspace, trust, loaded)?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, servers)) = all.get(workspace.path())
            && *known == list
        {
            return Ok(servers.clone());
        }
        let guard =
            guard::guard().map_err(|error| Fail::Other(format!("the running program cannot be found: {error}")))?;
        let own = settings::user_file().and_then(|file| Some(file.parent()?.to_owned()));
        let file = own.as_ref().map(|own| own.join(KNOWN));
        let (workspace_path, commands) = (workspace.path().to_owned(), loaded.config.commands());
        let elsewhere = own.filter(|own| own.is_dir());
        let ground = Ground { workspace: workspace_path, elsewhere, guard: Some(guard), commands };
        let known = Arc::new(file.map_or_else(KnownTools::in_memory, KnownTools::in_file));
        let servers = Servers::new(list.clone(), ground, known, setup::keys());
        all.insert(workspace.path().to_owned(), (list, servers.clone()));
        Ok(servers)
    }
}

/// Prints what is wrong with the servers that are named.
pub(crate) fn warn(servers: &Servers) -> Result<(), Fail> {
    let mut err = anstream::stderr().lock();
    for problem in servers.problems() {
        writeln!(err, "{}: {}", In(ODD, "warning"), harmless(problem))?;
    }
    Ok(())
}

/// Returns the servers that count in a workspace: a person's own first, so that no file takes their names.
pub(crate) fn list(workspace: &Workspace, trust: Trust, loaded: &Loaded) -> Result<ServerList, Fail> {
    let variable = |name: &str| std::env::var(name).ok();
    let own: Map<String, Value> = match serde_json::to_value(&loaded.config.mcp.servers) {
        Ok(Value::Object(own)) => own,
        Ok(_) | Err(_) => Map::new(),
    };
    let mut list = ServerList::of(&own, Origin::Person, &variable);
    if !trust.is_used() {
        return Ok(list);
    }
    match text(workspace)? {
        Text::Missing => {}
        Text::Says(text) if !trust.uses_servers(&text) => {}
        Text::Linked => {
            list.problems
                .push(format!("{FILE}: ignored: it is a symbolic link, which is not followed. Use a regular file"));
        }
        Text::Says(text) => {
            // A key of a provider or a search engine is given to no server that a file of a workspace names.
            let search = &loaded.config.web.search;
            let of_search = search.engine.is_some().then(|| search.key_variable());
            let keys = setup::key_variables();
            let is_key = |name: &str| keys.contains(&name) || of_search == Some(name);
            let variable = |name: &str| variable(name).filter(|_| !is_key(name));
            list.extend(ServerList::parse(&text, Origin::Workspace, &variable));
        }
    }
    Ok(list)
}

pub(crate) enum Text {
    Missing,
    Linked,
    Says(String),
}

/// Reads `.mcp.json`; trust is the caller's matter.
pub(crate) fn text(workspace: &Workspace) -> Result<Text, Fail> {
    if workspace.path().join(FILE).is_symlink() {
        return Ok(Text::Linked);
    }
    match workspace.text(FILE, MAX_FILE_BYTES) {
        Ok(text) => Ok(Text::Says(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Text::Missing),
        Err(error) => Err(Fail::Usage(format!("{FILE} cannot be read: {error}"))),
    }
}

/// Returns a problem for each tool that an agent lists of a server that is not named, and for each such rule: no server, no tool. Files
/// of other products do not say which part of a name is the server.
pub(crate) fn missing(
    catalog: &Catalog,
    (workspace, trust): (&Workspace, Trust),
    loaded: &Loaded,
) -> Result<Vec<AgentProblem>, Fail> {
    let known: Vec<Name> = list(workspace, trust, loaded)?.servers.into_iter().map(|server| server.name).collect();
    let unknown = |tool: &Name| {
        let server = tool.strip_prefix("mcp__")?.split("__").next()?.trim_end_matches('*');
        let is_known = known.iter().any(|known| **known == *server) || server.is_empty();
        (!is_known).then(|| format!("`tools`: `{tool}` is not offered: no MCP server is called `{server}`"))
    };
    let unmatched = |rule: &Rule| {
        let server = rule.action.strip_prefix("mcp:")?.split(':').next()?;
        let is_known = server.contains('*') || known.iter().any(|known| **known == *server);
        let action = &rule.action;
        (!is_known).then(|| format!("`permissions`: `{action}` matches no tool: no MCP server is called `{server}`"))
    };
    let of = |manifest: &Arc<Manifest>| {
        let path = manifest.source.path().map(std::path::Path::to_owned)?;
        let product = match &manifest.source {
            Source::Foreign(product, _) => Some(*product),
            Source::Builtin | Source::File(_) | Source::Host => None,
        };
        let rules = manifest.rules.iter().flat_map(|set| &set.rules).filter(|_| product.is_none());
        let listed = manifest.tools.iter().flatten().filter_map(unknown);
        let messages: Vec<String> = listed.chain(rules.filter_map(unmatched)).collect();
        Some(messages.into_iter().map(move |message| AgentProblem {
            path: path.clone(),
            kind: ProblemKind::Warning,
            product,
            message,
        }))
    };
    Ok(catalog.all().filter_map(of).flatten().collect())
}

/// Returns `.mcp.json` of a workspace, if it has one: the text, or why the file cannot be used.
pub(crate) fn brought(workspace: &Workspace) -> Option<Result<String, String>> {
    workspace.path().join(FILE).symlink_metadata().ok()?;
    match text(workspace) {
        Ok(Text::Says(text)) => Some(Ok(text)),
        Ok(Text::Missing) => None,
        Ok(Text::Linked) => Some(Err("it is a symbolic link, which is not followed".to_owned())),
        Err(why) => Some(Err(why.to_string())),
    }
}

/// Returns lines about each server that the text of a `.mcp.json` names: first what runs or is reached, whole and as it is written there.
pub(crate) fn lines(text: &Result<String, String>) -> Vec<String> {
    let text = match text {
        Ok(text) => text,
        Err(why) => return vec![why.clone()],
    };
    // As the servers are read for their start.
    let file: Value = match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
        Ok(file) => file,
        Err(error) => return vec![format!("it is not JSON: {error}")],
    };
    let servers = file.get("mcpServers").and_then(Value::as_object);
    servers.into_iter().flatten().flat_map(|(name, entry)| about(name, entry)).collect()
}

fn about(name: &str, entry: &Value) -> Vec<String> {
    // JSON as text escapes line breaks, which could pose as lines of their own.
    let name = Value::from(name);
    let Some(fields) = entry.as_object() else {
        return vec![format!("MCP server {name}: {}", clip(&entry.to_string(), MAX_OTHER))];
    };
    let decides = |key: &str| DECIDING.contains(&key);
    let first = DECIDING.iter().filter_map(|key| Some(format!("  {key}: {}", whole(fields.get(*key)?))));
    let others = || fields.iter().filter(|(key, _)| !decides(key));
    let other = |(key, value): (&String, &Value)| clip(&format!("  {}: {value}", Value::from(&**key)), MAX_OTHER);
    let left = others().count().saturating_sub(MAX_OTHERS);
    let left = (left > 0).then(|| format!("  {} without effect", count(left as u64, "more key")));
    let head = std::iter::once(format!("MCP server {name}:"));
    head.chain(first).chain(others().take(MAX_OTHERS).map(other)).chain(left).collect()
}

/// Returns a value as JSON; of a very long one its start, its length and its hash.
fn whole(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= MAX_WHOLE {
        return text;
    }
    let start: String = text.chars().take(MAX_WHOLE / 4).collect();
    let (bytes, hash) = (text.len(), Hash::of(text.as_bytes()));
    format!("{start}… ({bytes} bytes in all, with the hash {hash}: read {FILE} before you trust it)")
}
