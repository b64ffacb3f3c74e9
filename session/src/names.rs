//! Names, models and directories in records. Hosts record no others, and an import refuses them: one of them would keep a
//! whole store from being imported.

use crate::ids::Text;
use crate::record::SessionCreated;
use crate::unseen::changes_direction;

/// Maximum bytes of the name of an agent, a tool or a dialect.
pub const MAX_NAME: usize = 512;
/// Maximum number of tools that a list names: those of 64 MCP servers with 256 tools each, and of subtend.
const MAX_TOOLS: usize = 1 << 15;
/// Maximum number of model servers of a session, and of their bytes. A host keeps those of roots in memory.
const MAX_SERVERS: usize = 256;
const MAX_SERVER_BYTES: usize = 8 << 10;
/// Maximum bytes of a title, a label, a model or a path.
const MAX_LINE: usize = 4 << 10;

impl SessionCreated {
    /// Checks the names and the model of a session, but not its directory, which it may share with its parent.
    /// # Errors
    /// The first of them that an import would refuse, and why.
    pub fn check_names(&self) -> Result<(), String> {
        check_agent(&self.agent)?;
        check_line("model", &self.model)?;
        self.title.iter().try_for_each(|title| check_line("title", title))?;
        if self.servers.len() > MAX_SERVERS {
            return Err(format!("{} servers are listed, the limit is {MAX_SERVERS}", self.servers.len()));
        }
        let bytes: usize = self.servers.iter().map(|server| server.len()).sum();
        if bytes > MAX_SERVER_BYTES {
            return Err(format!("the servers have {bytes} bytes together, the limit is {MAX_SERVER_BYTES}"));
        }
        self.servers.iter().try_for_each(|server| check_line("server", server))?;
        self.dialects.iter().try_for_each(|dialect| check_name("dialect", dialect))?;
        [&self.tools, &self.in_full].into_iter().flatten().try_for_each(|tools| check_tools(tools))
    }
}

/// Checks a list of tools.
/// # Errors
/// Why an import would refuse it.
pub fn check_tools(tools: &[Text]) -> Result<(), String> {
    if tools.len() > MAX_TOOLS {
        return Err(format!("{} tools are listed, the limit is {MAX_TOOLS}", tools.len()));
    }
    tools.iter().try_for_each(|tool| check_name("tool", tool))
}

/// Checks the name of an agent. Slashes are allowed, but the name must not lead out of a directory.
/// # Errors
/// Why an import would refuse it.
pub fn check_agent(text: &Text) -> Result<(), String> {
    check_name("agent", text)?;
    let is_path = text.contains('\\') || text.split('/').any(|part| matches!(part, "" | "." | ".."));
    if is_path { Err(format!("the agent {:?} is a path, not a name", &**text)) } else { Ok(()) }
}

/// Checks that a workspace is an absolute directory path or the host's working directory.
/// # Errors
/// Why an import would refuse it.
pub fn check_workspace(text: &Text) -> Result<(), String> {
    check_line("workspace", text)?;
    let has_parent_parts = text.split(['/', '\\']).any(|part| part == "..");
    let drive = text.split_once(':').is_some_and(|(drive, _)| drive.len() == 1);
    if !has_parent_parts && (matches!(&**text, "" | ".") || text.starts_with(['/', '\\']) || drive) {
        return Ok(());
    }
    Err(format!("the workspace {:?} is not an absolute path of a directory", start(text)))
}

fn check_name(what: &str, text: &Text) -> Result<(), String> {
    if text.is_empty() || text.len() > MAX_NAME || text.chars().any(char::is_whitespace) && what != "agent" {
        return Err(format!("the {what} {:?} is not a valid name of 1 to {MAX_NAME} bytes", start(text)));
    }
    check_line(what, text)
}

/// Checks that a text has no control characters. Line breaks are allowed in titles and labels, because earlier versions wrote them. In other
/// texts, messages would show what follows one as a line of their own.
/// # Errors
/// Why an import would refuse the text.
pub fn check_line(what: &str, text: &Text) -> Result<(), String> {
    check_length(what, text)?;
    let is_prose = matches!(what, "title" | "label");
    let obeyed = |c: char| (c.is_control() && !(is_prose && matches!(c, '\n' | '\r' | '\t'))) || changes_direction(c);
    match text.chars().find(|c| obeyed(*c)) {
        None => Ok(()),
        Some(c) => Err(format!("the {what} {:?} has the control character {c:?}", start(text))),
    }
}

/// Checks only the length of a name that a model or its provider wrote: hosts record such a name as it was written.
/// # Errors
/// Why an import would refuse the name.
pub fn check_length(what: &str, text: &Text) -> Result<(), String> {
    match text.len() {
        0..=MAX_LINE => Ok(()),
        bytes => Err(format!("the {what} {:?} has {bytes} bytes, the limit is {MAX_LINE}", start(text))),
    }
}

/// Returns the start of a text, for errors.
pub fn start(text: &str) -> String {
    text.chars().take(64).collect()
}
