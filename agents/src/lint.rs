//! Checks files of prompts outside a catalog, by the code that reads them for sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::catalog::products::{self, id};
use crate::catalog::{AgentProblem, Catalog, FOLDER, ProblemKind, ReadBudget, bad_rule, has_ending};
use crate::files::{self, HardLinks};
use crate::foreign::{self, file::ForeignFile};
use crate::front;
use crate::instructions::{FoundFile, Unread};
use crate::manifest::{Manifest, Source};
use crate::product::Product;
use crate::skill::{self, Skill, Skills};
use crate::slash::{self, SlashCommand, SlashCommands};

mod instruction_files;

#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    pub path: PathBuf,
    /// The content, unless the file is refused or unused.
    pub content: Option<FileContent>,
    pub problems: Vec<AgentProblem>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FileContent {
    Agent(Arc<Manifest>),
    Skill(Arc<Skill>),
    Command(Arc<SlashCommand>),
    /// The path of an instruction file, followed by those of the files that it imports.
    Instructions(Vec<PathBuf>),
}

impl Checked {
    pub fn is_refused(&self) -> bool {
        self.problems.iter().any(|problem| problem.kind == ProblemKind::Refused)
    }

    pub fn agent(&self) -> Option<&Arc<Manifest>> {
        let Some(FileContent::Agent(agent)) = &self.content else { return None };
        Some(agent)
    }
}

/// Reads a file below a directory, by its relative path. The function must refuse paths that lead out of the directory.
pub type ReadBelow<'a> = &'a dyn Fn(&Path, &str) -> Result<FoundFile, Unread>;

/// Checks files, and all files below folders, as a workspace would load them: agents, skills, slash commands and instruction
/// files. Refuses the second agent, skill or command of one name. Also refuses a rule for an agent that is neither in these
/// files nor in `around`.
///
/// An agent file has the format of `product`. Without `product`, the folder in its path decides; other files are native. `read` reads
/// instruction files and their imports.
pub fn lint(paths: &[PathBuf], product: Option<Product>, around: &Catalog, read: ReadBelow<'_>) -> Vec<Checked> {
    let mut checks = Files {
        all: Vec::new(),
        agents: ReadBudget::default(),
        skills: Skills::default(),
        commands: SlashCommands::default(),
        read,
    };
    for path in paths {
        if path.is_dir() {
            checks.check_folder(path, product);
        } else {
            checks.take(path, product, None);
        }
    }
    let mut all = checks.all;
    let mut known = around.names();
    known.extend(all.iter().filter(|file| !matches!(kind(&file.path), FileKind::Other(_))).map(
        |file| match file.agent() {
            Some(agent) => agent.name.to_string(),
            None => file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        },
    ));
    for file in &mut all {
        let native = file.agent().filter(|agent| matches!(agent.source, Source::File(_)));
        if let Some(message) = native.and_then(|agent| bad_rule(agent, &known)) {
            file.content = None;
            file.problems.push(problem(&file.path, ProblemKind::Refused, message));
        }
    }
    all
}

enum FileKind {
    Agent,
    Other(OtherKind),
}

enum OtherKind {
    Skill,
    Command(Option<Product>, PathBuf),
    Instructions(PathBuf, &'static str),
    /// A rule of Claude Code, by its path below the directory.
    Rule(PathBuf, String),
    /// An instruction file of another product that subtend does not read.
    Unread(String),
}

fn kind(path: &Path) -> FileKind {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if is_of_agents(&whole) {
        return FileKind::Agent;
    }
    if whole.file_name().is_some_and(|name| name == skill::FILE) {
        return FileKind::Other(OtherKind::Skill);
    }
    if let Some((product, folder)) = slash::folder_of(&whole) {
        return FileKind::Other(OtherKind::Command(product, folder));
    }
    instruction_files::kind(&whole).map_or(FileKind::Agent, FileKind::Other)
}

/// Returns whether a workspace loads the file at that absolute path as an agent.
fn is_of_agents(path: &Path) -> bool {
    let in_agents = path.parent().is_some_and(|above| above.ancestors().any(|folder| folder.ends_with(FOLDER)));
    in_agents || Product::of(path).is_some()
}

/// Returns whether it needs no check, like a `README.md` without front matter outside a folder of agents.
fn is_other_markdown(root: &Path, path: &Path) -> bool {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let is_agent = matches!(kind(path), FileKind::Agent) && !is_of_agents(&whole);
    is_agent
        && files::read(root, path, HardLinks::Refused)
            .is_ok_and(|text| !text.trim_start_matches('\u{feff}').starts_with("---"))
}

struct Files<'a> {
    all: Vec<Checked>,
    /// The remaining bytes for agent files, as for those of a workspace.
    agents: ReadBudget,
    skills: Skills,
    commands: SlashCommands,
    read: ReadBelow<'a>,
}

impl Files<'_> {
    fn check_folder(&mut self, path: &Path, product: Option<Product>) {
        let of = |path: &Path| product.or_else(|| product_of(path));
        let wanted = |path: &Path| {
            has_ending(path, of(path).map_or("md", Product::extension)) || matches!(kind(path), FileKind::Other(_))
        };
        let (mut seen, mut found) = (Catalog::default(), Vec::new());
        seen.find(path, path, 0, &wanted, &mut found);
        for problem in seen.problems() {
            self.all.push(Checked { path: problem.path.clone(), content: None, problems: vec![problem.clone()] });
        }
        found.sort_unstable();
        for file in found {
            // Other files in the folder of a skill are read only when the model asks for them.
            let above = file.ancestors().skip(1).take_while(|above| above.starts_with(path));
            let of_skill =
                !file.ends_with(skill::FILE) && above.into_iter().any(|above| above.join(skill::FILE).exists());
            let is_other = product.is_none() && is_other_markdown(path, &file);
            if !of_skill && !is_other {
                self.take(&file, product, Some(path));
            }
        }
    }

    /// Checks a file that was found below `root`, or that the user names.
    fn take(&mut self, path: &Path, product: Option<Product>, root: Option<&Path>) {
        let other = match kind(path) {
            FileKind::Other(other) if product.is_none() => other,
            FileKind::Agent | FileKind::Other(_) => {
                let given = || root.or_else(|| path.parent()).unwrap_or(path).to_owned();
                let folder = || if Product::of(path).is_some() { folder_of(path) } else { given() };
                let of = product.or_else(|| product_of(path));
                let text = match root {
                    Some(root) => self.agents.read(root, path, HardLinks::Refused),
                    None => self.agents.read_named(path),
                };
                let checked = match text {
                    Ok(text) => check_read(path, of.map(|product| (product, folder())), &text, &self.all),
                    Err(message) => refuse(path, message),
                };
                return self.all.push(checked);
            }
        };
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let (content, problems) = match (whole.symlink_metadata(), other) {
            (Err(error), _) => (None, vec![problem(path, ProblemKind::Refused, format!("cannot be read: {error}"))]),
            (Ok(_), OtherKind::Skill) => {
                let (skill, problems) = self.skills.add_one(whole.parent().unwrap_or(&whole));
                (skill.map(FileContent::Skill), problems)
            }
            (Ok(_), OtherKind::Command(product, folder)) => {
                let (command, problems) = self.commands.add_one(product, &folder, &whole);
                (command.map(FileContent::Command), problems)
            }
            (Ok(_), OtherKind::Instructions(folder, name)) => instruction_files::check_file(&folder, name, self.read),
            (Ok(_), OtherKind::Rule(folder, name)) => instruction_files::check_rule(&folder, &name, self.read),
            (Ok(_), OtherKind::Unread(name)) => (None, vec![instruction_files::read_problem(path, &name)]),
        };
        // The path is kept as the caller wrote it.
        let named = |problem: AgentProblem| match problem.path == whole {
            true => AgentProblem { path: path.to_owned(), ..problem },
            false => problem,
        };
        self.all.push(Checked { path: path.to_owned(), content, problems: problems.into_iter().map(named).collect() });
    }
}

fn problem(path: &Path, kind: ProblemKind, message: String) -> AgentProblem {
    AgentProblem { path: path.to_owned(), kind, product: None, message }
}

fn product_of(path: &Path) -> Option<Product> {
    Product::of(path).or_else(|| Product::of(&std::path::absolute(path).ok()?))
}

/// Returns the folder of agents in the path, or else the parent folder of the file.
fn folder_of(path: &Path) -> PathBuf {
    let is_agents =
        |above: &&Path| Product::of(above).is_some() && above.parent().is_some_and(|up| Product::of(up).is_none());
    let found = path.ancestors().skip(1).filter(is_agents).last();
    found.or_else(|| path.parent()).unwrap_or(path).to_owned()
}

fn check_read(path: &Path, of: Option<(Product, PathBuf)>, text: &str, before: &[Checked]) -> Checked {
    match of {
        Some((product, folder)) => check_foreign_text(path, product, &id(&folder, path), text, before),
        None => self::check_text(path, text, before),
    }
}

fn refuse(path: &Path, message: String) -> Checked {
    Checked { path: path.to_owned(), content: None, problems: vec![problem(path, ProblemKind::Refused, message)] }
}

/// Checks `text` as the agent file of `product` at `path`, which need not exist; `id` is its path in the folder of agents.
pub fn check_foreign_text(path: &Path, product: Product, id: &str, text: &str, before: &[Checked]) -> Checked {
    match foreign::parse(ForeignFile { product, path, id, text, workspace: None }) {
        Ok(parsed) => check_parsed(path, parsed, before),
        Err(error) => refuse(path, error.to_string()),
    }
}

/// Checks `text` as the native agent file at `path`, which need not exist. [`lint`] checks rules for unknown agents.
pub fn check_text(path: &Path, text: &str, before: &[Checked]) -> Checked {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    match front::parse(text, &stem, Source::File(path.to_owned())) {
        Ok(parsed) => check_parsed(path, parsed, before),
        Err(error) => refuse(path, error.to_string()),
    }
}

fn check_parsed(path: &Path, parsed: front::Parsed, before: &[Checked]) -> Checked {
    let name = &parsed.manifest.name;
    let twin = before.iter().find(|other| other.agent().is_some_and(|agent| agent.name == *name));
    if let Some(twin) = twin {
        return refuse(path, format!("`{name}` is already defined in {}: rename one", twin.path.display()));
    }
    if Catalog::is_of_host(&parsed.manifest) {
        return refuse(path, products::reserved_name_error(name));
    }
    let mut problems = Vec::new();
    if Catalog::replaces_builtin(&parsed.manifest) {
        problems.push(problem(path, ProblemKind::Warning, format!("replaces the built-in agent `{name}`")));
    }
    problems.extend(parsed.warnings.into_iter().map(|warning| problem(path, ProblemKind::Warning, warning)));
    Checked { path: path.to_owned(), content: Some(FileContent::Agent(Arc::new(parsed.manifest))), problems }
}

#[cfg(test)]
mod tests;
