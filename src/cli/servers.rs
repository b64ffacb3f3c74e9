//! MCP servers of `.mcp.json` in a trusted workspace, and of the user's own configuration.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};
use subtend::config::Loaded;
use subtend_agents::catalog::{AgentProblem, Catalog, ProblemKind};
use subtend_agents::manifest::{Manifest, Source};
use subtend_host::warnings::ToolWarnings;
use subtend_session::authority::{Authority, Rule};
use subtend_session::ids::{Hash, Text as Name};
use subtend_tools::mcp::{
    ConnectionSettings, FILE, KnownTools, LoginKey, LoginStore, MAX_FILE_BYTES, Origin, ServerConfig, ServerList,
    ServerReport, Servers, login_address,
};
use subtend_tools::workspace::Workspace;

use super::fail::Fail;
use super::logins::LoginFile;
use super::notices::notices;
use super::paint::{CAUTION, Styled, clip, count, on_one_line};
use super::trust::level::Trust;
use super::work::setup;
use super::{guard, settings, web};

/// File of cached tool descriptions, next to the user's configuration.
pub(crate) const KNOWN_TOOLS_FILE: &str = settings::KNOWN_TOOLS;

/// Keys that decide which program runs or which address is used, in the order of display.
const DECISIVE_KEYS: [&str; 6] = ["command", "url", "args", "env", "headers", "in_workspace"];

/// Maximum length in bytes of a decisive value that is shown in full.
const MAX_FULL_BYTES: usize = 8 << 10;

/// Maximum number of other keys that are shown.
const MAX_OTHERS: usize = 8;
/// Maximum width of another key with its value.
const MAX_OTHER: usize = 200;

/// Number of workspaces above which the servers of those without sessions stop.
const MAX_UNUSED: usize = 8;

/// The servers of each workspace, shared by the sessions of the workspace in this process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerPool(Arc<Mutex<HashMap<PathBuf, PooledServers>>>);

/// The servers of a workspace, with the values that they were created from.
#[derive(Debug)]
struct PooledServers {
    list: ServerList,
    /// When the user logged in to each server.
    since: Vec<Option<u64>>,
    servers: Servers,
}

impl ServerPool {
    /// Returns the servers of a workspace as currently configured, without starting them.
    pub(crate) fn for_workspace(&self, workspace: &Workspace, trust: Trust, loaded: &Loaded) -> Result<Servers, Fail> {
        let list = list(workspace, trust, loaded)?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (logins, since) = logins(&list, workspace);
        if let Some(known) = all.get(workspace.path())
            && (&known.list, &known.since) == (&list, &since)
        {
            return Ok(known.servers.clone());
        }
        let guard =
            guard::guard().map_err(|error| Fail::Other(format!("the running program cannot be found: {error}")))?;
        // Not checked again: a file that others can write since it was read must not move its servers into the workspace.
        let own = settings::unchecked_user_path(subtend::config::FILE);
        let file = settings::user_path(KNOWN_TOOLS_FILE);
        let (workspace_path, commands) = (workspace.path().to_owned(), loaded.config.commands());
        let elsewhere = own.and_then(|file| Some(file.parent()?.to_owned()));
        let internal_hosts = web::internal_hosts(&loaded.config.web)?;
        let settings = ConnectionSettings {
            workspace: workspace_path,
            elsewhere,
            guard: Some(guard),
            commands,
            logins,
            internal_hosts,
        };
        let known = Arc::new(file.map_or_else(KnownTools::in_memory, KnownTools::in_file));
        let servers = Servers::new(list.clone(), settings, known, setup::keys());
        if all.len() >= MAX_UNUSED {
            all.retain(|_, known| known.servers.is_shared());
        }
        all.insert(workspace.path().to_owned(), PooledServers { list, since, servers: servers.clone() });
        Ok(servers)
    }
}

impl ToolWarnings for ServerPool {
    fn of(&self, workspace: &str) -> Vec<String> {
        let path = Path::new(workspace);
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.get(path).or_else(|| all.get(&path.canonicalize().ok()?));
        known.map(|known| warnings(&known.servers)).unwrap_or_default()
    }
}

/// Returns a sentence for each needed server that cannot be used fully, or that changed descriptions of its tools.
fn warnings(servers: &Servers) -> Vec<String> {
    let of_server = |ServerReport { name, down, lacking, tools, .. }: ServerReport| {
        let down = down.map(|why| format!("the MCP server `{name}` cannot be used: {why}"));
        let lacking = lacking.map(|why| format!("the MCP server `{name}` refused a call: {why}"));
        let mut changed = tools.iter().filter(|tool| tool.changed);
        let changed = changed.next().map(|first| match changed.count() {
            0 => {
                format!("the MCP server `{name}` changed the description of `{}`: see `subtend tools list`", first.name)
            }
            more => format!(
                "the MCP server `{name}` changed the descriptions of {} tools, such as `{}`: see `subtend tools list`",
                more.saturating_add(1),
                first.name
            ),
        });
        [down, lacking, changed].into_iter().flatten().collect::<Vec<_>>()
    };
    servers.reports().into_iter().flat_map(of_server).collect()
}

/// Returns the user's logins, and when the user logged in to each server, because a new login restarts the server. Each
/// server that needs the file reports if it cannot be read.
fn logins(list: &ServerList, workspace: &Workspace) -> (Option<Arc<dyn LoginStore>>, Vec<Option<u64>>) {
    let Some(file) = LoginFile::locate() else { return (None, Vec::new()) };
    let since = |server: &ServerConfig| {
        login_address(server).ok()?;
        let login = file.load(&LoginKey::of(server, workspace.path())).ok()??;
        Some(login.report().since)
    };
    let since = list.servers.iter().map(since).collect();
    (Some(Arc::new(file)), since)
}

/// Returns when the user logged in to each server of a workspace.
pub(crate) fn login_times(list: &ServerList, workspace: &Workspace) -> Vec<Option<u64>> {
    logins(list, workspace).1
}

/// Prints problems of the configured servers.
pub(crate) fn warn(servers: &Servers) -> Result<(), Fail> {
    let mut err = notices();
    for problem in servers.problems() {
        writeln!(err, "{}: {}", Styled(CAUTION, "warning"), on_one_line(problem))?;
    }
    Ok(())
}

/// Warnings about needed servers that cannot be used fully. Each is returned once.
#[derive(Default)]
pub(crate) struct ServerWarnings {
    /// The servers, if this process starts them.
    servers: Option<Servers>,
    given: BTreeSet<String>,
}

impl ServerWarnings {
    pub(crate) fn of(servers: Servers) -> Self {
        Self { servers: Some(servers), given: BTreeSet::new() }
    }

    /// Returns the warnings of this process that were not returned before.
    pub(crate) fn take_new(&mut self) -> Vec<String> {
        let all = self.servers.as_ref().map(warnings).unwrap_or_default();
        self.keep_new(all)
    }

    /// Returns the warnings among `all` that were not returned before.
    pub(crate) fn keep_new(&mut self, all: Vec<String>) -> Vec<String> {
        let all = all.into_iter().map(|warning| on_one_line(&warning));
        all.filter(|warning| self.given.insert(warning.clone())).collect()
    }
}

/// Returns the servers of a workspace. The user's own come first, so that a file of the workspace cannot take their names.
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
    match read_file(workspace)? {
        ServersFile::Missing => {}
        ServersFile::Content(read_file) if !trust.uses_servers(&read_file) => {}
        ServersFile::Linked => {
            list.problems
                .push(format!("{FILE}: ignored: it is a symbolic link, which is not followed. Use a regular file"));
        }
        ServersFile::Content(read_file) => {
            // Servers from a file of the workspace never receive keys of providers or search engines.
            let search = &loaded.config.web.search;
            let of_search = search.engine.is_some().then(|| search.key_variable());
            let keys = setup::key_variables();
            let is_key = |name: &str| keys.contains(&name) || of_search == Some(name);
            let variable = |name: &str| variable(name).filter(|_| !is_key(name));
            list.extend(ServerList::parse(&read_file, Origin::Workspace, &variable));
        }
    }
    Ok(list)
}

pub(crate) enum ServersFile {
    Missing,
    Linked,
    Content(String),
}

/// Reads `.mcp.json`. The caller checks trust.
pub(crate) fn read_file(workspace: &Workspace) -> Result<ServersFile, Fail> {
    match workspace.text_for(&Authority::allow_all(), FILE, MAX_FILE_BYTES) {
        Ok(read_file) => Ok(ServersFile::Content(read_file)),
        // The file is opened without following links, since a check before that could be outrun.
        Err(_) if workspace.path().join(FILE).is_symlink() => Ok(ServersFile::Linked),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ServersFile::Missing),
        Err(error) => Err(Fail::Usage(format!("{FILE} cannot be read: {error}"))),
    }
}

/// Returns a warning for each tool or rule of an agent that names an unknown server. Skips rules in files of other
/// products, which do not say which part of a name is the server.
pub(crate) fn unknown_server_warnings(
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
    let for_workspace = |manifest: &Arc<Manifest>| {
        let path = manifest.source.path().map(std::path::Path::to_owned)?;
        let product = match &manifest.source {
            Source::Foreign(product, _) => Some(*product),
            Source::Builtin | Source::File(_) | Source::Host => None,
        };
        let rules = manifest.rules.iter().flat_map(|set| &set.rules).filter(|_| product.is_none());
        let named = Catalog::server_names(manifest);
        let is_listed = |tool: &&Name| !named.iter().any(|server| tool.strip_prefix("mcp__") == Some(server));
        let listed = manifest.tools.iter().flatten().filter(is_listed).filter_map(unknown);
        let of_names = named.iter().filter(|server| !known.iter().any(|known| **known == ***server));
        let of_names = of_names.map(|server| {
            format!(
                "`mcpServers`: no MCP server is called `{server}`: define it in `{FILE}` or in your configuration (`mcp.servers`)"
            )
        });
        let messages: Vec<String> = listed.chain(of_names).chain(rules.filter_map(unmatched)).collect();
        Some(messages.into_iter().map(move |message| AgentProblem {
            path: path.clone(),
            kind: ProblemKind::Warning,
            product,
            message,
        }))
    };
    Ok(catalog.all().filter_map(for_workspace).flatten().collect())
}

/// Returns the text of a workspace's `.mcp.json`, or the reason if it cannot be used; `None` if it is missing.
pub(crate) fn workspace_file(workspace: &Workspace) -> Option<Result<String, String>> {
    workspace.path().join(FILE).symlink_metadata().ok()?;
    match read_file(workspace) {
        Ok(ServersFile::Content(read_file)) => Some(Ok(read_file)),
        Ok(ServersFile::Missing) => None,
        Ok(ServersFile::Linked) => Some(Err("it is a symbolic link, which is not followed".to_owned())),
        Err(why) => Some(Err(why.to_string())),
    }
}

/// Describes each server in the text of a `.mcp.json`. The program or address comes first, in full and unchanged.
pub(crate) fn lines(read_file: &Result<String, String>) -> Vec<String> {
    let read_file = match read_file {
        Ok(read_file) => read_file,
        Err(why) => return vec![why.clone()],
    };
    // Parsed in the same way as when the servers are started.
    let file: Value = match serde_json::from_str(read_file.trim_start_matches('\u{feff}')) {
        Ok(file) => file,
        Err(error) => return vec![format!("it is not JSON: {error}")],
    };
    let servers = file.get("mcpServers").and_then(Value::as_object);
    servers.into_iter().flatten().flat_map(|(name, entry)| describe_entry(name, entry)).collect()
}

fn describe_entry(name: &str, entry: &Value) -> Vec<String> {
    // JSON escapes line breaks, which could otherwise forge lines.
    let name = Value::from(name);
    let Some(fields) = entry.as_object() else {
        return vec![format!("MCP server {name}: {}", clip(&entry.to_string(), MAX_OTHER))];
    };
    let is_decisive = |key: &str| DECISIVE_KEYS.contains(&key);
    let first = DECISIVE_KEYS.iter().filter_map(|key| Some(format!("  {key}: {}", bounded_json(fields.get(*key)?))));
    let others = || fields.iter().filter(|(key, _)| !is_decisive(key));
    let other = |(key, value): (&String, &Value)| clip(&format!("  {}: {value}", Value::from(&**key)), MAX_OTHER);
    let hidden = others().count().saturating_sub(MAX_OTHERS);
    let hidden = (hidden > 0).then(|| format!("  {} without effect", count(hidden as u64, "more key")));
    let head = std::iter::once(format!("MCP server {name}:"));
    head.chain(first).chain(others().take(MAX_OTHERS).map(other)).chain(hidden).collect()
}

/// Returns a value as JSON; a very long one as its start, its length and its hash.
fn bounded_json(value: &Value) -> String {
    let read_file = value.to_string();
    if read_file.len() <= MAX_FULL_BYTES {
        return read_file;
    }
    let start: String = read_file.chars().take(MAX_FULL_BYTES / 4).collect();
    let (bytes, hash) = (read_file.len(), Hash::of(read_file.as_bytes()));
    format!("{start}… ({bytes} bytes in all, with the hash {hash}: read {FILE} before you trust it)")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client opens sessions in ever more directories. The control: the servers of one that is in use remain.
    #[test]
    fn servers_of_unused_directories_are_forgotten() {
        let (pool, loaded) = (ServerPool::default(), Loaded::of([]).expect("a configuration"));
        let servers = |dir: &Path| {
            let workspace = Workspace::open(dir).expect("a workspace");
            pool.for_workspace(&workspace, Trust::LeftOut, &loaded).expect("its servers")
        };
        let used = tempfile::tempdir().expect("a directory");
        let _used = servers(used.path());
        for _ in 0..30 {
            servers(tempfile::tempdir().expect("a directory").path());
        }
        let known = pool.0.lock().expect("a lock");
        let path = Workspace::open(used.path()).expect("a workspace").path().to_owned();
        assert_eq!((known.len() <= MAX_UNUSED, known.contains_key(&path)), (true, true), "{}", known.len());
    }
}
