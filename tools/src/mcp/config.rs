//! The configured servers: from `.mcp.json`, and in the same format from the user's own configuration.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use subtend_session::ids::Text;

use super::names;
use crate::escape::on_one_line;
use crate::secrets::Secrets;

pub const FILE: &str = ".mcp.json";
pub const MAX_FILE_BYTES: u64 = 256 << 10;
const MAX_SERVERS: usize = 64;
/// Maximum bytes that variables add to a server: a file can name a long one thousands of times.
const MAX_EXPANDED: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The user's own configuration.
    Person,
    /// A file of the workspace, which the user has trusted.
    Workspace,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub enum ServerTransport {
    /// A process that reads and writes one message per line.
    Stdio { command: String, args: Vec<String>, env: BTreeMap<String, String> },
    /// An address of the streamable HTTP transport.
    Http { url: String, headers: BTreeMap<String, String> },
}

/// Lower-case parts of names. A variable, header or parameter with such a part in its name is a secret.
const SECRET_NAMES: [&str; 7] = ["auth", "cookie", "credential", "key", "passw", "secret", "token"];

impl ServerTransport {
    /// Returns the secrets that the server receives, with their names. The server may repeat them in results and errors.
    pub(super) fn secrets(&self) -> Secrets {
        let named: Vec<(String, String)> = match self {
            Self::Stdio { env, .. } => env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            Self::Http { url, headers } => {
                // Include the whole value, and the token after a scheme such as `Bearer`.
                let parts = |(name, value): (&String, &String)| {
                    let token = value.split_once(' ').map(|(_, token)| (name.clone(), token.to_owned()));
                    [Some((name.clone(), value.clone())), token].into_iter().flatten()
                };
                let url = reqwest::Url::parse(url).ok();
                let query = url.iter().flat_map(reqwest::Url::query_pairs);
                let query = query.map(|(name, value)| (name.into_owned(), value.into_owned()));
                headers.iter().flat_map(parts).chain(query).collect()
            }
        };
        let is_secret = |name: &str| {
            let name = name.to_ascii_lowercase();
            SECRET_NAMES.iter().any(|part| name.contains(part))
        };
        Secrets::of(named.into_iter().filter(|(name, _)| is_secret(name)))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerConfig {
    /// The name used in tool names and rules.
    pub name: Text,
    pub origin: Origin,
    pub transport: ServerTransport,
    /// Time limit of one tool call, in addition to the session's own limit.
    pub timeout: Option<Duration>,
    /// True if the server process starts in the workspace.
    pub in_workspace: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerList {
    pub servers: Vec<ServerConfig>,
    pub problems: Vec<String>,
}

/// Shows only names, because arguments, variables and headers may contain secrets.
impl std::fmt::Debug for ServerTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdio { command, env, .. } => {
                f.debug_struct("Stdio").field("command", command).field("env", &env.keys()).finish_non_exhaustive()
            }
            Self::Http { headers, .. } => {
                f.debug_struct("Http").field("headers", &headers.keys()).finish_non_exhaustive()
            }
        }
    }
}

#[derive(Deserialize)]
struct ServerEntry {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Time limit of one call, in milliseconds.
    timeout: Option<u64>,
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    in_workspace: bool,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl ServerList {
    /// Reads `.mcp.json`. An invalid server becomes a problem and does not affect the others.
    pub fn parse(text: &str, origin: Origin, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let problem = |why: String| Self { servers: Vec::new(), problems: vec![format!("{FILE}: {why}")] };
        let file: Value = match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
            Ok(file) => file,
            Err(error) => return problem(format!("it is not JSON: {error}")),
        };
        match file.get("mcpServers") {
            Some(Value::Object(servers)) => Self::of(servers, origin, variable),
            _ => problem("it has no object `mcpServers`".to_owned()),
        }
    }

    /// Reads servers from entries in the format of `.mcp.json`. `variable` returns the value of `${NAME}`.
    pub fn of(entries: &Map<String, Value>, origin: Origin, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let mut list = Self::default();
        for (raw, entry) in entries {
            if list.servers.len() >= MAX_SERVERS {
                list.problems.push(format!("MCP servers: more than {MAX_SERVERS} are configured; the rest is ignored"));
                break;
            }
            match server(raw, entry, origin, variable, &mut list.problems) {
                Ok(Some(server)) => list.add(server),
                Ok(None) => {}
                Err(why) => list.problems.push(format!("MCP server `{}`: {why}", on_one_line(raw))),
            }
        }
        list
    }

    /// Adds the servers of a source with lower precedence. A server whose name is taken becomes a problem.
    pub fn extend(&mut self, other: Self) {
        self.problems.extend(other.problems);
        other.servers.into_iter().for_each(|server| self.add(server));
    }

    fn add(&mut self, server: ServerConfig) {
        if self.servers.iter().any(|known| known.name.eq_ignore_ascii_case(&server.name)) {
            let why = "another server with this name takes precedence: rename it";
            return self.problems.push(format!("MCP server `{}`: {why}", server.name));
        }
        self.servers.push(server);
    }
}

/// Keys of other clients, which are ignored.
const IGNORED_KEYS: [&str; 4] = ["alwaysLoad", "description", "autoApprove", "alwaysAllow"];

fn server(
    raw: &str,
    entry: &Value,
    origin: Origin,
    variable: &dyn Fn(&str) -> Option<String>,
    problems: &mut Vec<String>,
) -> Result<Option<ServerConfig>, String> {
    let name = names::server(raw)?;
    let entry = ServerEntry::deserialize(entry).map_err(|error| error.to_string())?;
    if entry.disabled {
        return Ok(None);
    }
    for key in entry.rest.keys().filter(|key| !IGNORED_KEYS.contains(&&***key)) {
        problems.push(format!("MCP server `{name}`: `{}` is unknown and has no effect", on_one_line(key)));
    }
    let budget = Cell::new(MAX_EXPANDED);
    let expand = |text: &String| expand_variables(text, variable, &budget);
    let expand_all = |texts: &BTreeMap<String, String>| {
        texts.iter().map(|(key, value)| Ok((key.clone(), expand(value)?))).collect::<Result<BTreeMap<_, _>, String>>()
    };
    let kind = entry.kind.as_deref().unwrap_or(if entry.url.is_some() { "http" } else { "stdio" });
    let transport = match (kind, &entry.command, &entry.url) {
        ("stdio", Some(command), None) => ServerTransport::Stdio {
            command: expand(command)?,
            args: entry.args.iter().map(expand).collect::<Result<_, _>>()?,
            env: expand_all(&entry.env)?,
        },
        ("http" | "streamable-http" | "streamableHttp", None, Some(url)) => {
            ServerTransport::Http { url: address(expand(url)?)?, headers: expand_all(&entry.headers)? }
        }
        ("sse" | "ws", ..) => {
            return Err(format!("the transport `{kind}` is not supported: use stdio or streamable HTTP"));
        }
        ("stdio", None, _) => return Err("`command` is missing".to_owned()),
        ("stdio", ..) => return Err("it has both `command` and `url`: remove one".to_owned()),
        ("http" | "streamable-http" | "streamableHttp", ..) => {
            return Err("an HTTP server needs `url`, without `command`".to_owned());
        }
        _ => return Err(format!("the transport `{}` is unknown: use `stdio` or `http`", on_one_line(kind))),
    };
    if let ServerTransport::Stdio { command, args, env } = &transport {
        let all = [command].into_iter().chain(args).chain(env.keys()).chain(env.values());
        if command.trim().is_empty() || all.into_iter().any(|text| text.contains('\0')) {
            return Err("`command` is empty, or a value contains NUL".to_owned());
        }
        if env.keys().any(|name| name.is_empty() || name.contains('=')) {
            return Err("`env` has an invalid variable name".to_owned());
        }
    }
    let timeout = entry.timeout.map(|ms| Duration::from_millis(ms.max(1)));
    let in_workspace = entry.in_workspace || origin == Origin::Workspace;
    Ok(Some(ServerConfig { name, origin, transport, timeout, in_workspace }))
}

/// Checks that an address contains no credentials, and that credentials in headers are encrypted on the network.
fn address(url: String) -> Result<String, String> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let Some(rest) = rest else { return Err("`url` must start with https:// or http://".to_owned()) };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("`url` has a user name: put credentials into `headers`".to_owned());
    }
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let local = matches!(host, "localhost" | "127.0.0.1" | "::1");
    if url.starts_with("http://") && !local {
        return Err("`url` is not encrypted: use https://".to_owned());
    }
    Ok(url)
}

/// Expands `${NAME}` and `${NAME:-default}`, up to a budget of bytes.
fn expand_variables(
    text: &str,
    variable: &dyn Fn(&str) -> Option<String>,
    budget: &Cell<usize>,
) -> Result<String, String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((inner, remaining)) = after.split_once('}') else {
            out.push_str("${");
            rest = after;
            continue;
        };
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let value = match (variable(name), default) {
            (Some(value), None) => value,
            (Some(value), Some(_)) if !value.is_empty() => value,
            (_, Some(default)) => default.to_owned(),
            (None, None) => {
                let name = on_one_line(name);
                return Err(format!(
                    "the variable `{name}` is not set, or servers may not use it: set it, or write `${{{name}:-default}}`"
                ));
            }
        };
        let left = budget.get().checked_sub(value.len());
        budget.set(left.ok_or_else(|| format!("its variables have more than {MAX_EXPANDED} bytes: name fewer"))?);
        out.push_str(&value);
        rest = remaining;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn variable(name: &str) -> Option<String> {
        match name {
            "TOKEN" => Some("t0p".into()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    fn parse(text: &str) -> ServerList {
        ServerList::parse(text, Origin::Workspace, &variable)
    }

    fn stdio(name: &str, command: &str, args: &[&str], env: &[(&str, &str)]) -> ServerConfig {
        ServerConfig {
            name: name.into(),
            origin: Origin::Workspace,
            transport: ServerTransport::Stdio {
                command: command.into(),
                args: args.iter().map(|arg| (*arg).into()).collect(),
                env: env.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            },
            timeout: None,
            in_workspace: true,
        }
    }

    #[test]
    fn mcp_json_of_claude_code_is_parsed() {
        let list = parse(
            r#"{"mcpServers": {
                "fs": {"command": "npx", "args": ["-y", "x@${VERSION:-1}"], "env": {"KEY": "${TOKEN}"}, "alwaysLoad": true},
                "web": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeout": 5},
                "off": {"command": "x", "disabled": true}
            }}"#,
        );
        let web = ServerConfig {
            name: "web".into(),
            origin: Origin::Workspace,
            transport: ServerTransport::Http {
                url: "https://example.com/mcp".into(),
                headers: [("Authorization".into(), "Bearer t0p".into())].into(),
            },
            timeout: Some(Duration::from_millis(5)),
            in_workspace: true,
        };
        let fs = stdio("fs", "npx", &["-y", "x@1"], &[("KEY", "t0p")]);
        assert_eq!(list, ServerList { servers: vec![fs, web], problems: Vec::new() });
    }

    #[test]
    fn invalid_server_does_not_affect_others() {
        let list = parse(
            r#"{"mcpServers": {"good": {"command": "a", "odd": 1}, "a__b": {"command": "a"}, "var": {"command": "${NONE}"},
                "old": {"type": "sse", "url": "https://x"}, "open": {"url": "http://example.com/"}, "none": {},
                "user": {"url": "https://me:pw@example.com/"}, "num": {"command": 3}, "nul": {"command": "a\u0000b"}}}"#,
        );
        assert_eq!(list.servers, [stdio("good", "a", &[], &[])]);
        let problem_at = |at: usize| list.problems.get(at).map(String::as_str).unwrap_or_default();
        assert_eq!(list.problems.len(), 9, "{:#?}", list.problems);
        assert_eq!(problem_at(0), "MCP server `good`: `odd` is unknown and has no effect");
        assert!(problem_at(2).contains("the variable `NONE` is not set"), "{}", problem_at(2));
        assert!(problem_at(3).contains("`sse` is not supported"), "{}", problem_at(3));
    }

    #[test]
    fn workspace_cannot_replace_a_users_server() {
        let mut own = ServerList { servers: vec![stdio("github", "mine", &[], &[])], problems: Vec::new() };
        own.extend(parse(r#"{"mcpServers": {"GitHub": {"command": "theirs"}}}"#));
        assert_eq!(own.servers, [stdio("github", "mine", &[], &[])]);
        assert_eq!(own.problems.len(), 1);
    }

    #[test]
    fn variables_expand_as_in_other_products() {
        let expanded = |text| expand_variables(text, &variable, &Cell::new(4));
        assert_eq!(expanded("a${TOKEN}b${EMPTY:-c}$d${EMPTY}"), Ok("at0pbc$d".into()));
        assert_eq!(expanded("${TOKEN"), Ok("${TOKEN".into()));
        assert!(expanded("${NONE}").is_err());
    }

    /// A file can name a variable thousands of times in each server. The control: as often as the limit allows.
    #[test]
    fn variables_add_a_bounded_part_to_a_server() {
        let long = |_: &str| Some("x".repeat(1 << 10));
        let parsed = |count: usize| {
            let entry = json!({"command": "a", "args": vec!["${LONG}"; count], "env": {"K": "${LONG:-y}"}});
            let list = ServerList::parse(&json!({"mcpServers": {"s": entry}}).to_string(), Origin::Workspace, &long);
            (list.servers.len(), list.problems)
        };
        let refused = "MCP server `s`: its variables have more than 262144 bytes: name fewer".to_owned();
        assert_eq!((parsed(255), parsed(256)), ((1, vec![]), (0, vec![refused])));
    }

    #[test]
    fn names_of_a_file_stay_on_one_line_of_a_problem() {
        let list = parse(
            r#"{"mcpServers": {"a\nb": {"command": "x", "k\nl": 1}, "b": {"type": "t\nu"}, "c": {"command": "${V\nW}"},
                "d__\n": {}, "e\nf": {}}}"#,
        );
        let expected = [
            "MCP server `a_b`: `k<U+000A>l` is unknown and has no effect",
            "MCP server `b`: the transport `t<U+000A>u` is unknown: use `stdio` or `http`",
            "MCP server `c`: the variable `V<U+000A>W` is not set, or servers may not use it: set it, or write \
             `${V<U+000A>W:-default}`",
            "MCP server `d__<U+000A>`: its name `d___` contains `__`, or starts or ends with `_`: rename it",
            "MCP server `e<U+000A>f`: `command` is missing",
        ];
        assert_eq!(list.problems, expected);
    }

    #[test]
    fn debug_shows_no_values() {
        let list = parse(
            r#"{"mcpServers": {"a": {"command": "x", "env": {"K": "${TOKEN}"}}, "b": {"url": "https://x", "headers": {"H": "${TOKEN}"}}}}"#,
        );
        assert!(list.servers.len() == 2 && !format!("{list:?}").contains("t0p"));
    }

    /// The controls: values with other names, and a short value.
    #[test]
    fn secrets_of_a_server_are_recognized_by_their_names() {
        let text = "API_KEY=k-123456789 MODE=m-123456789 PASSWD=short";
        let process = stdio("a", "x", &[], &[("API_KEY", "k-123456789"), ("MODE", "m-123456789"), ("PASSWD", "short")]);
        let redacted = "API_KEY=[API_KEY redacted] MODE=m-123456789 PASSWD=short";
        assert_eq!(process.transport.secrets().redact(text), redacted);
        let http = ServerTransport::Http {
            url: "https://example.com/mcp?apiKey=q-123456789&project=p-123456789".into(),
            headers: [("Authorization".into(), "Bearer t-123456789".into()), ("X-Team".into(), "e-123456789".into())]
                .into(),
        };
        let text = "t-123456789, Bearer t-123456789, q-123456789, p-123456789, e-123456789";
        let redacted =
            "[Authorization redacted], [Authorization redacted], [apiKey redacted], p-123456789, e-123456789";
        assert_eq!(http.secrets().redact(text), redacted);
    }
}
