//! The agents of a workspace: the built-in ones, and those that its files define.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use subtend_session::authority::{Rule, Verdict};
use subtend_session::escape::on_one_line;
use subtend_session::ids::Text;
use subtend_session::near::unknown_agent;

use crate::builtin;
use crate::files::{self, HardLinks, UNREAD};
use crate::foreign::mcp_servers;
use crate::front::{self, Parsed};
use crate::manifest::{Manifest, Source};
use crate::product::Product;
use crate::size;

pub const FOLDER: &str = ".subtend/agents";

pub const MAX_FILE_BYTES: u64 = files::MAX_BYTES;

pub const MAX_FILES: usize = 1_000;

/// The maximum size of all files of one kind. Parsed, they may take many times this size in memory.
const MAX_ALL_BYTES: usize = 4 << 20;

const MAX_DEPTH: usize = 16;

/// Maximum number of entries in all folders of agents.
const MAX_ENTRIES: usize = 20_000;

pub(crate) const MAX_PROBLEMS: usize = 1_000;

pub(crate) mod products;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    agents: BTreeMap<Text, Arc<Manifest>>,
    problems: Vec<AgentProblem>,
    refused: BTreeSet<String>,
    unread: Option<AgentProblem>,
    /// The product whose files are currently read.
    reading: Option<Product>,
    links: HardLinks,
    entries: usize,
    budget: ReadBudget,
}

/// The remaining bytes for the files of one kind (agents, skills or commands) of a workspace or of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadBudget(usize);

impl Default for ReadBudget {
    fn default() -> Self {
        Self(MAX_ALL_BYTES)
    }
}

impl ReadBudget {
    /// Reads a file as [`files::read`] does. Refuses the first file that exceeds the budget, and all files after it.
    pub(crate) fn read(&mut self, root: &Path, path: &Path, links: HardLinks) -> Result<String, String> {
        self.take(|| files::read(root, path, links))
    }

    /// Reads a file as [`files::read_named`] does, within the budget.
    pub(crate) fn read_named(&mut self, path: &Path) -> Result<String, String> {
        self.take(|| files::read_named(path))
    }

    fn take(&mut self, read: impl FnOnce() -> Result<String, String>) -> Result<String, String> {
        let text = if self.0 == 0 { None } else { Some(read()?) };
        let rest = text.as_ref().and_then(|text| self.0.checked_sub(text.len()));
        self.0 = rest.unwrap_or(0);
        let late = || format!("not used: all files of this kind may have at most {MAX_ALL_BYTES} bytes together");
        text.filter(|_| rest.is_some()).ok_or_else(late)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentProblem {
    pub path: PathBuf,
    pub kind: ProblemKind,
    /// The product that the file belongs to; `None` for a native agent file.
    pub product: Option<Product>,
    pub message: String,
}

impl AgentProblem {
    pub(crate) fn size(&self) -> usize {
        size::of_texts([&*self.path.to_string_lossy(), &self.message])
    }
}

impl AgentProblem {
    /// Returns the path and the message on one line, with invisible characters escaped.
    pub fn text(&self) -> String {
        format!("{}: {}", on_one_line(&self.path.display().to_string()), on_one_line(&self.message))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    Refused,
    /// The agent is usable, but its file needs attention.
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent cannot be used: {0}")]
pub struct BadAgentText(String);

impl Catalog {
    pub fn builtin() -> Self {
        let agents = builtin::all().into_iter().map(|manifest| (Arc::clone(&manifest.name), Arc::new(manifest)));
        Self { agents: agents.collect(), ..Self::default() }
    }

    /// Loads the built-in agents, every `*.md` below [`FOLDER`] of `workspace`, and its agents of other products ([`Product`]).
    ///
    /// If several files define one name, [`FOLDER`] wins over the products, which follow in their order; within a folder the first path wins.
    /// A refused file is listed in [`Catalog::problems`]. It also removes the built-in agent of its name, which might do what the file
    /// denies. Symbolic links are not followed.
    pub fn load(workspace: &Path) -> Self {
        let mut catalog = Self::builtin();
        let mut files = Vec::new();
        match first_symlink(workspace, Path::new(FOLDER)) {
            // A session that may write to the target could write agents, and no rule here would prevent it.
            Some(link) => catalog.refuse(&link, "is a symbolic link, which is not followed: use a folder".to_owned()),
            None => catalog.find(workspace, &workspace.join(FOLDER), 0, &|path| has_ending(path, "md"), &mut files),
        }
        files.sort_unstable();
        if let Some(first) = files.get(MAX_FILES) {
            let message =
                format!("this file and all after it are not read: there are more than {MAX_FILES} agent files");
            catalog.refuse(first, message);
        }
        for path in files.into_iter().take(MAX_FILES) {
            catalog.read(workspace, &path);
        }
        for product in Product::ALL {
            catalog.load_product(product, workspace);
        }
        catalog.problems.sort_by(|a, b| a.path.cmp(&b.path));
        catalog
    }

    /// Like [`Catalog::load`], but refuses rules for unknown agents and tools: for a host that adds none in code.
    pub fn load_checked(workspace: &Path) -> Self {
        let mut catalog = Self::load(workspace);
        let known = catalog.names();
        let bad: Vec<_> =
            catalog.all().filter_map(|agent| Some((Arc::clone(agent), bad_rule(agent, &known)?))).collect();
        for (agent, why) in bad {
            let Source::File(path) = &agent.source else { continue };
            catalog.agents.remove(&agent.name);
            catalog.refuse_agent(path, &agent.name, why);
        }
        catalog.problems.sort_by(|a, b| a.path.cmp(&b.path));
        catalog
    }

    /// Returns the names of all agents, including those of refused files.
    pub fn names(&self) -> BTreeSet<String> {
        let names = self.agents.keys().map(|name| name.to_string());
        names.chain(self.refused.iter().cloned()).collect()
    }

    pub fn insert(&mut self, manifest: impl Into<Arc<Manifest>>) -> Option<Arc<Manifest>> {
        let manifest = manifest.into();
        self.agents.insert(Arc::clone(&manifest.name), manifest)
    }

    /// Parses the text of an agent file for the agent `name`, with the checks of [`Catalog::load_checked`]. Returns the agent, which the caller
    /// inserts, and warnings.
    ///
    /// # Errors
    /// [`BadAgentText`] if the text cannot be used.
    pub fn read_text(&self, text: &str, name: &str) -> Result<(Manifest, Vec<String>), BadAgentText> {
        let bytes = text.len() as u64;
        if bytes > MAX_FILE_BYTES {
            return Err(BadAgentText(format!("it has {bytes} bytes, more than {MAX_FILE_BYTES}")));
        }
        let parsed = front::parse(text, name, Source::Host).map_err(|error| BadAgentText(error.to_string()))?;
        let manifest = parsed.manifest;
        if *manifest.name != *name {
            return Err(BadAgentText(format!("its `name` is `{}`: omit it, or use that name", manifest.name)));
        }
        let others = self.all().filter(|agent| agent.source == Source::Host && *agent.name != *name);
        let bytes: usize = others.map(|agent| size::of_agent(agent)).sum();
        if bytes.saturating_add(size::of_agent(&manifest)) > MAX_ALL_BYTES {
            let why = format!("all agents that a host registers may take at most {MAX_ALL_BYTES} bytes: remove others");
            return Err(BadAgentText(why));
        }
        let mut known = self.names();
        known.insert(name.to_owned());
        match bad_rule(&manifest, &known) {
            Some(why) => Err(BadAgentText(why)),
            None => Ok((manifest, parsed.warnings)),
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<Arc<Manifest>> {
        self.agents.remove(name)
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Manifest>> {
        self.agents.get(name)
    }

    /// Returns all agents, ordered by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Manifest>> {
        self.agents.values()
    }

    pub fn spawnable(&self) -> impl Iterator<Item = &Arc<Manifest>> {
        self.all().filter(|manifest| manifest.spawnable())
    }

    pub fn pickable(&self) -> impl Iterator<Item = &Arc<Manifest>> {
        self.all().filter(|manifest| manifest.pickable())
    }

    /// Returns the bytes of memory that the agents take, by an estimate.
    pub fn bytes(&self) -> usize {
        let problems = self.problems.iter().map(AgentProblem::size);
        let refused = self.refused.iter().map(|name| size::of_text(name));
        self.all().map(|agent| size::of_agent(agent)).chain(problems).chain(refused).sum()
    }

    pub fn problems(&self) -> &[AgentProblem] {
        &self.problems
    }

    /// Returns the first folder or file that the operating system did not let this process read. It may restrict any agent, also a
    /// built-in one, so a host should not start with this catalog.
    pub fn unread(&self) -> Option<&AgentProblem> {
        self.unread.as_ref()
    }

    /// Returns why the file of the agent `name` is refused; `None` if the agent exists or has no file.
    pub fn refusal(&self, name: &str) -> Option<String> {
        let is_refused = |problem: &&AgentProblem| {
            problem.kind == ProblemKind::Refused && problem.path.file_stem().is_some_and(|stem| stem == name)
        };
        let problem = self.problems.iter().find(is_refused).filter(|_| self.get(name).is_none())?;
        Some(format!("the agent `{}` is refused: {}", on_one_line(name), problem.text()))
    }

    pub fn replaces_builtin(manifest: &Manifest) -> bool {
        manifest.source != Source::Builtin && builtin::all().iter().any(|builtin| builtin.name == manifest.name)
    }

    /// A file of another product may not replace an agent that only the host starts.
    pub(crate) fn is_of_host(manifest: &Manifest) -> bool {
        let hidden = || builtin::all().iter().any(|builtin| builtin.hidden && builtin.name == manifest.name);
        matches!(manifest.source, Source::Foreign(..)) && hidden()
    }

    /// Returns the MCP servers that the file of an agent names in `mcpServers`, in the spelling of tool names.
    pub fn server_names(manifest: &Manifest) -> Vec<String> {
        let is_claude = matches!(manifest.source, Source::Foreign(Product::Claude, _));
        let named = manifest.extra.get(mcp_servers::KEY).filter(|_| is_claude);
        named.map(mcp_servers::names).unwrap_or_default()
    }

    /// Finds the files of `folder`, which is `root` or lies below it, without following links.
    pub(crate) fn find(
        &mut self,
        root: &Path,
        folder: &Path,
        depth: usize,
        wanted: &dyn Fn(&Path) -> bool,
        found: &mut Vec<PathBuf>,
    ) {
        let entries = match files::list(root, folder) {
            Ok(entries) => entries,
            Err(error) if depth == 0 && error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => return self.refuse_unread(folder, format!("cannot be listed: {error}")),
        };
        for entry in entries {
            if self.entries >= MAX_ENTRIES {
                return self.refuse(
                    folder,
                    format!("not read to its end: at most {MAX_ENTRIES} entries of all folders are read"),
                );
            }
            self.entries = self.entries.saturating_add(1);
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.refuse_unread(folder, format!("cannot be listed to its end: {error}"));
                    continue;
                }
            };
            let path = folder.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => {
                    self.find(root, &path, depth.saturating_add(1), wanted, found);
                }
                Ok(kind) if kind.is_dir() => {
                    self.refuse(
                        &path,
                        format!("not read: it is more than {MAX_DEPTH} folders deep. Move its files up."),
                    );
                }
                Ok(kind) if kind.is_file() && wanted(&path) => found.push(path),
                Ok(kind) if kind.is_symlink() => {
                    // The target of a link may lie outside the workspace, and its text would end up in a prompt.
                    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                    let message = "is a symbolic link, which is not followed: copy the file".to_owned();
                    self.refuse_agent(&path, &stem, message);
                }
                Ok(kind) if !kind.is_file() && wanted(&path) => {
                    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                    self.refuse_agent(&path, &stem, "is not a regular file: replace it with one".to_owned());
                }
                Ok(_) => {}
                Err(error) => self.refuse_unread(&path, format!("cannot be inspected: {error}")),
            }
        }
    }

    fn read(&mut self, root: &Path, path: &Path) {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let text = match self.read_file(root, path) {
            Ok(text) => text,
            Err(message) => return self.refuse_agent(path, &stem, message),
        };
        let parsed = match front::parse(&text, &stem, Source::File(path.to_owned())) {
            Ok(parsed) => parsed,
            Err(error) => return self.refuse_agent(path, &front::name(&text, &stem), error.to_string()),
        };
        match self.get(&parsed.manifest.name).map(|other| other.source.clone()) {
            Some(Source::File(first) | Source::Foreign(_, first)) => {
                let name = &parsed.manifest.name;
                self.refuse(path, format!("`{name}` is already defined in {}: rename one", first.display()));
            }
            Some(Source::Builtin | Source::Host) => {
                let name = &parsed.manifest.name;
                self.warn(path, format!("replaces the built-in agent `{name}`"));
                self.insert_parsed(path, parsed);
            }
            None => self.insert_parsed(path, parsed),
        }
    }

    fn read_file(&mut self, root: &Path, path: &Path) -> Result<String, String> {
        let text = self.budget.read(root, path, self.links);
        if let Some(message) = text.as_ref().err().filter(|message| message.starts_with(UNREAD)) {
            self.keep_unread(path, message.clone());
        }
        text
    }

    fn insert_parsed(&mut self, path: &Path, parsed: Parsed) {
        for warning in parsed.warnings {
            self.warn(path, warning);
        }
        self.insert(parsed.manifest);
    }

    /// Refuses the file of agent `name` and removes a built-in agent of that name, which might do what the file denies.
    fn refuse_agent(&mut self, path: &Path, name: &str, message: String) {
        let builtin = self.get(name).is_some_and(|agent| agent.source == Source::Builtin);
        let message = match builtin.then(|| self.agents.remove(name)) {
            Some(_) => {
                format!("{message} (and the built-in agent `{name}`, which the file would replace, is not used)")
            }
            None => message,
        };
        self.refused.insert(name.to_owned());
        self.refuse(path, message);
    }

    fn refuse(&mut self, path: &Path, message: String) {
        self.report(path, ProblemKind::Refused, message);
    }

    fn refuse_unread(&mut self, path: &Path, message: String) {
        self.keep_unread(path, message.clone());
        self.refuse(path, message);
    }

    fn keep_unread(&mut self, path: &Path, message: String) {
        let (path, kind, product) = (path.to_owned(), ProblemKind::Refused, self.reading);
        self.unread.get_or_insert(AgentProblem { path, kind, product, message });
    }

    fn warn(&mut self, path: &Path, message: String) {
        self.report(path, ProblemKind::Warning, message);
    }

    fn report(&mut self, path: &Path, kind: ProblemKind, message: String) {
        let problem = AgentProblem { path: path.to_owned(), kind, product: self.reading, message };
        add_problem(&mut self.problems, problem);
    }
}

/// Adds a problem. The first problem above [`MAX_PROBLEMS`] is replaced by a note, and later ones are dropped.
pub(crate) fn add_problem(problems: &mut Vec<AgentProblem>, problem: AgentProblem) {
    match problems.len().cmp(&MAX_PROBLEMS) {
        Ordering::Less => problems.push(problem),
        Ordering::Equal => {
            let message = format!("more than {MAX_PROBLEMS} problems: further ones are not listed");
            problems.push(AgentProblem { message, ..problem });
        }
        Ordering::Greater => {}
    }
}

pub(crate) fn has_ending(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|ending| ending == wanted)
}

pub(crate) fn first_symlink(workspace: &Path, below: &Path) -> Option<PathBuf> {
    let mut at = workspace.to_owned();
    below.components().find_map(|part| {
        at.push(part);
        at.is_symlink().then(|| at.clone())
    })
}

const MESSAGE: &str = "tool:message";

/// Describes the first rule that has no effect, for a host that adds no tools and has only the agents in `known`.
pub(crate) fn bad_rule(manifest: &Manifest, known: &BTreeSet<String>) -> Option<String> {
    let rules = manifest.rules.iter().flat_map(|set| &set.rules);
    // A rule for `message` may name receivers, so it does more than hide the tool.
    let of_hosts = |rule: &&Rule| rule.action.starts_with("tool:") && *rule.action != *MESSAGE;
    if let Some(rule) = rules.clone().filter(of_hosts).find(|rule| rule.verdict != Verdict::Allow) {
        let (action, verdict) = (&rule.action, rule.verdict.as_str());
        return Some(format!(
            "`permissions` `{action}`: no tool needs this action: restrict what tools do, such as `fs.write: {verdict}`, or list \
            the tools of the agent in `tools`"
        ));
    }
    let mut named = rules.filter_map(|rule| rule.action.strip_prefix("task:").filter(|name| !name.contains('*')));
    let unknown = named.find(|name| !known.contains(*name))?;
    let why = unknown_agent(unknown, known.iter().map(String::as_str));
    Some(format!("`permissions` `task:{unknown}`: {why}"))
}

#[cfg(test)]
mod tests;
