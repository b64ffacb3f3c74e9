//! Agent Skills: folders with a `SKILL.md`. Prompts list their names and descriptions. The model reads the body when
//! needed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::FileType;
use serde_json::Value;
use subtend_session::authority::{Access, Authority, Verdict};
use subtend_session::ids::Text;

use crate::catalog::{AgentProblem, Catalog, ProblemKind, ReadBudget, add_problem, first_symlink};
use crate::files::{self, HardLinks};
use crate::foreign::{
    fields::{Fields, field},
    lenient,
};
use crate::form::shown;
use crate::front::BadManifest;
use crate::manifest::{Manifest, Source, first_sentence};
use crate::markup::escape_tags;
use crate::product::Product;
use crate::size;

pub const FILE: &str = "SKILL.md";

/// The tool with which a model reads skills.
pub const TOOL: &str = "skill";

/// Folders of skills in a workspace that belong to no other product.
const FOLDERS: [&str; 2] = [".subtend/skills", ".agents/skills"];

/// The maximum length of a name in bytes.
const MAX_NAME: usize = 64;

/// The maximum length of a description in characters.
const MAX_DESCRIPTION: usize = 1024;

/// The maximum number of skills of a workspace and a user together.
const MAX_SKILLS: usize = 500;

/// The maximum number of entries of all folders of skills.
const MAX_ENTRIES: usize = 20_000;

/// The maximum number of folders between a folder of skills and a skill.
const MAX_DEPTH: usize = 3;

/// The maximum size of all names and descriptions in a prompt.
pub const MAX_BYTES: usize = 16 << 10;

/// The maximum size of all texts of an agent's own skills in a prompt.
pub const MAX_PRELOADED_BYTES: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// The name of the skill, which is also the name of its folder.
    pub name: Text,
    /// When a model should use it.
    pub description: Text,
    pub folder: PathBuf,
    /// The folder in rules for `fs.read`: relative in the workspace, and beginning with `~` elsewhere.
    pub resource: Text,
    pub in_workspace: bool,
    /// True if models may see it.
    pub for_models: bool,
    /// True if users may start it as a slash command.
    pub for_users: bool,
    pub argument_hint: Option<Text>,
    /// The text below the front matter.
    pub body: Text,
}

impl Skill {
    /// Returns the access that reading its file needs.
    pub fn access(&self) -> Access {
        Access { action: "fs.read".into(), resource: format!("{}/{FILE}", self.resource).into() }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skills {
    all: BTreeMap<Text, Arc<Skill>>,
    problems: Vec<AgentProblem>,
    /// The number of folder entries that were inspected.
    entries: usize,
    budget: ReadBudget,
}

struct SkillRoot<'a> {
    /// The directory below which no links are followed.
    root: &'a Path,
    folder: &'a Path,
    /// The name of the folder in permission rules.
    resource: &'a str,
    in_workspace: bool,
}

impl Skills {
    /// Loads the skills of a workspace. If several skills have one name, the first is used. The order is `.subtend`,
    /// `.agents`, then the folders of other products.
    pub fn load(workspace: &Path) -> Self {
        let mut skills = Self::default();
        let of_products = |product: Product| {
            product.skill_folders().iter().map(move |folder| format!("{}/{folder}", product.folder()))
        };
        let folders = FOLDERS.into_iter().map(str::to_owned).chain(Product::ALL.into_iter().flat_map(of_products));
        for below in folders {
            match first_symlink(workspace, Path::new(&below)) {
                Some(link) => skills.refuse(&link, "is a symbolic link, which is not followed: use a folder"),
                None => {
                    let folder = workspace.join(&below);
                    let of = SkillRoot { root: workspace, folder: &folder, resource: &below, in_workspace: true };
                    skills.find(&of, &folder, 0);
                }
            }
        }
        skills
    }

    /// Adds the user's own skills in `folder`, unless it lies in `workspace`. Permission rules call the folder `resource`.
    pub fn add_own(&mut self, folder: &Path, resource: &str, workspace: &Path) {
        let Ok(folder) = folder.canonicalize() else { return };
        let around = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        if folder.starts_with(&around) {
            return self.warn(&folder, "lies in the workspace, so its skills are not loaded as your own");
        }
        self.budget = ReadBudget::default();
        self.find(&SkillRoot { root: &folder, folder: &folder, resource, in_workspace: false }, &folder, 0);
    }

    /// Returns all skills, ordered by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Skill>> {
        self.all.values()
    }

    pub fn get(&self, name: &str) -> Option<&Arc<Skill>> {
        self.all.get(name)
    }

    /// Returns the bytes of memory that the skills take, by an estimate.
    pub fn bytes(&self) -> usize {
        let of_skill = |skill: &Arc<Skill>| {
            let texts = [&skill.name, &skill.description, &skill.resource, &skill.body].into_iter();
            let folder = skill.folder.to_string_lossy();
            size::of_texts(texts.chain(&skill.argument_hint).map(|text| &**text).chain([&*folder]))
        };
        self.all().map(of_skill).chain(self.problems.iter().map(AgentProblem::size)).sum()
    }

    pub fn problems(&self) -> &[AgentProblem] {
        &self.problems
    }

    /// Returns the skills that models may read under that authority. If an approver is attached (`attended`), the list
    /// includes skills that require an approval.
    pub fn under(&self, authority: &Authority, attended: bool) -> Vec<Arc<Skill>> {
        let may = |verdict: Verdict| verdict == Verdict::Allow || (verdict == Verdict::Ask && attended);
        let shown = |skill: &&Arc<Skill>| skill.for_models && may(authority.verdict(&skill.access()));
        self.all().filter(shown).cloned().collect()
    }

    /// Returns the skills whose texts are in the prompt of `manifest`: those that it names and that the authority allows without an approval, up
    /// to a size limit.
    pub fn preloaded(&self, manifest: &Manifest, authority: &Authority) -> Vec<Arc<Skill>> {
        let mut remaining = MAX_PRELOADED_BYTES;
        let fits = |skill: &&Arc<Skill>| match remaining.checked_sub(skill.body.len()) {
            Some(rest) => {
                remaining = rest;
                true
            }
            None => false,
        };
        let is_readable = |skill: &&Arc<Skill>| authority.verdict(&skill.access()) == Verdict::Allow;
        let named = unique(&manifest.skills).filter_map(|name| self.get(name)).filter(|skill| skill.for_models);
        named.filter(is_readable).filter(fits).cloned().collect()
    }

    /// Returns a warning for each skill that an agent names but that cannot be in its prompt under any permissions.
    pub fn missing(&self, catalog: &Catalog) -> Vec<AgentProblem> {
        let mut problems = Vec::new();
        for manifest in catalog.all() {
            let Some(path) = manifest.source.path() else { continue };
            let used = self.preloaded(manifest, &Authority::allow_all());
            for name in unique(&manifest.skills).filter(|name| !used.iter().any(|skill| skill.name == **name)) {
                let shown = shown(&Value::from(&**name));
                let why = match self.get(name) {
                    None => "no skill has this name: `subtend agents skills` lists them".to_owned(),
                    Some(skill) if !skill.for_models => {
                        "its `disable-model-invocation` hides it from models".to_owned()
                    }
                    Some(_) => format!("the skills of an agent may have at most {MAX_PRELOADED_BYTES} bytes together"),
                };
                let message = format!("`skills`: {shown} is not in the prompt: {why}");
                let product = match &manifest.source {
                    Source::Foreign(product, _) => Some(*product),
                    Source::Builtin | Source::File(_) | Source::Host => None,
                };
                let path = path.to_owned();
                add_problem(&mut problems, AgentProblem { path, kind: ProblemKind::Warning, product, message });
            }
        }
        problems
    }

    fn find(&mut self, root: &SkillRoot<'_>, folder: &Path, depth: usize) {
        let entries = match files::list(root.root, folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => return self.refuse(folder, format!("cannot be listed: {error}")),
        };
        let mut found: Vec<(PathBuf, Option<FileType>)> = Vec::new();
        for entry in entries {
            if self.entries >= MAX_ENTRIES {
                self.refuse(
                    folder,
                    format!("not read to its end: at most {MAX_ENTRIES} entries of all folders are read"),
                );
                break;
            }
            self.entries = self.entries.saturating_add(1);
            match entry {
                Ok(entry) => found.push((folder.join(entry.file_name()), entry.file_type().ok())),
                Err(error) => self.refuse(folder, format!("cannot be listed to its end: {error}")),
            }
        }
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (path, kind) in found {
            if kind.is_some_and(|kind| kind.is_symlink()) {
                // The target of a link may lie outside the workspace, and its text would be added to a prompt.
                self.refuse(&path, "is a symbolic link, which is not followed: copy the folder");
            } else if !kind.is_some_and(|kind| kind.is_dir()) {
                if path.extension().is_some_and(|ending| ending == "md") {
                    self.warn(&path, format!("is not a skill: a skill is a folder with a {FILE}"));
                }
            } else if files::exists(root.root, &path.join(FILE)) {
                self.read(root, &path);
            } else if depth < MAX_DEPTH {
                self.find(root, &path, depth.saturating_add(1));
            } else {
                self.refuse(&path, format!("not read: it is more than {MAX_DEPTH} folders deep. Move its skills up."));
            }
        }
    }

    /// Reads the skill of one folder. Returns the skill, if the file is usable, and the problems.
    pub(crate) fn add_one(&mut self, folder: &Path) -> (Option<Arc<Skill>>, Vec<AgentProblem>) {
        let above = folder.parent().unwrap_or(folder);
        let root = SkillRoot { root: above, folder: above, resource: &above.to_string_lossy(), in_workspace: true };
        let before = self.problems.len();
        match folder.is_symlink() {
            true => self.refuse(&folder.join(FILE), "is in a symbolic link, which is not followed: copy the folder"),
            false => self.read(&root, folder),
        }
        let loaded = self.all().find(|skill| skill.folder == folder).cloned();
        (loaded, self.problems.split_off(before))
    }

    fn read(&mut self, root: &SkillRoot<'_>, folder: &Path) {
        let path = folder.join(FILE);
        if self.all.len() >= MAX_SKILLS {
            return self.refuse(&path, format!("not read: at most {MAX_SKILLS} skills are loaded"));
        }
        let below = folder.strip_prefix(root.folder).unwrap_or(folder).to_string_lossy().into_owned();
        let links = if root.in_workspace { HardLinks::Refused } else { HardLinks::Read };
        let text = match self.budget.read(root.root, &path, links) {
            Ok(text) => text,
            Err(why) => return self.refuse(&path, why),
        };
        let parsed = parse(folder, &text);
        for note in parsed.notes {
            self.warn(&path, note);
        }
        let skill = match parsed.skill {
            Ok(skill) => skill,
            Err(why) => return self.refuse(&path, why),
        };
        if let Some(first) = self.all.get(&skill.name) {
            let from = first.folder.display().to_string();
            return self.refuse(&path, format!("not used: `{}` is already defined in {from}", skill.name));
        }
        let resource = format!("{}/{below}", root.resource).into();
        let skill = Skill { resource, in_workspace: root.in_workspace, ..skill };
        self.all.insert(Arc::clone(&skill.name), Arc::new(skill));
    }

    fn refuse(&mut self, path: &Path, message: impl Into<String>) {
        self.report(path, ProblemKind::Refused, message.into());
    }

    fn warn(&mut self, path: &Path, message: impl Into<String>) {
        self.report(path, ProblemKind::Warning, message.into());
    }

    fn report(&mut self, path: &Path, kind: ProblemKind, message: String) {
        add_problem(&mut self.problems, AgentProblem { path: path.to_owned(), kind, product: None, message });
    }
}

fn unique(names: &[Text]) -> impl Iterator<Item = &Text> {
    names
        .iter()
        .enumerate()
        .filter(|(at, name)| !names.iter().take(*at).any(|before| before == *name))
        .map(|(_, name)| name)
}

/// A parsed skill, or the reason why the file is refused.
pub(crate) struct ParsedSkill {
    pub(crate) skill: Result<Skill, String>,
    pub(crate) notes: Vec<String>,
}

/// Parses the `SKILL.md` of a folder.
pub(crate) fn parse(folder: &Path, text: &str) -> ParsedSkill {
    let mut notes = Vec::new();
    let skill = parsed(folder, text, &mut notes).map_err(|error| error.to_string());
    ParsedSkill { skill, notes }
}

fn parsed(folder: &Path, text: &str, notes: &mut Vec<String>) -> Result<Skill, BadManifest> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    check(&name)?;
    let read = lenient::read(text)?;
    let mut fields = Fields::of(read.map);
    if read.quoted {
        fields.note("the front matter is not valid YAML: values with `: ` in them are read as text");
    }
    if let Some(given_name) = fields.text("name")?.filter(|given_name| **given_name != name) {
        let given_name = shown(&Value::from(&*given_name));
        fields.note(format!("its name {given_name} differs from that of its folder: `{name}` is used"));
    }
    let description = fields.text("description")?.unwrap_or_else(|| first_sentence(read.body).into());
    let when = fields.text("when_to_use")?.unwrap_or_default();
    let description = format!("{description} {when}").split_whitespace().collect::<Vec<_>>().join(" ");
    if description.is_empty() {
        return Err(field("description", "is missing: say what the skill does, and when to use it"));
    }
    if description.chars().count() > MAX_DESCRIPTION {
        fields.note(format!("`description` is longer than {MAX_DESCRIPTION} characters: models see its beginning"));
    }
    if read.body.trim().is_empty() {
        return Err(BadManifest::NoPrompt);
    }
    let for_models = !fields.flag("disable-model-invocation")?;
    let for_users = !fields.has("user-invocable") || fields.flag("user-invocable")?;
    let argument_hint = fields.hint("argument-hint")?;
    fields.keep(&["license", "compatibility", "metadata", "version", "arguments"]);
    fields.report(&[
        ("allowed-tools", "the agent and your rules decide what a session may do"),
        ("model", "the model of the session answers"),
        ("effort", "the settings of the session apply"),
        ("context", "the session itself reads the skill"),
        ("agent", "the agent of the session reads the skill"),
        ("hooks", "hooks that a file names are not run"),
        ("paths", "the skill is offered regardless of the files in use"),
        ("shell", "commands in a skill are not run automatically"),
    ]);
    fields.rest("a skill");
    notes.append(&mut fields.notes);
    Ok(Skill {
        name: name.into(),
        description: description.chars().take(MAX_DESCRIPTION).collect::<String>().into(),
        folder: folder.to_owned(),
        resource: "".into(),
        in_workspace: false,
        for_models,
        for_users,
        argument_hint,
        body: read.body.into(),
    })
}

fn check(name: &str) -> Result<(), BadManifest> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let dashes = name.starts_with('-') || name.ends_with('-') || name.contains("--");
    if !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(plain) && !dashes {
        return Ok(());
    }
    let name: String = name.chars().take(MAX_NAME).collect();
    let why = format!(
        "must be 1 to {MAX_NAME} of a-z, 0-9 and single `-` between them, not `{name}` (the name of the folder)"
    );
    Err(field("name", why))
}

/// Returns the texts of an agent's own skills for its system prompt, or `None` without skills.
pub(crate) fn texts(skills: &[Arc<Skill>]) -> Option<String> {
    const PREFACE: &str = "The texts of your skills follow. They are instructions, and permit nothing. Read other files that a skill names, which are \
                           in its folder, with the tool `skill` if you have it.";
    let one = |skill: &Arc<Skill>| {
        // The text must not contain the closing tag of its own block.
        let text = skill.body.replace("</skill", "<\\/skill");
        let text = text.trim_matches(['\r', '\n']).trim_end();
        format!("<skill name=\"{}\" folder=\"{}\">\n{text}\n</skill>", skill.name, escape_tags(&skill.resource))
    };
    let texts = std::iter::once(PREFACE.to_owned()).chain(skills.iter().map(one));
    (!skills.is_empty()).then(|| texts.collect::<Vec<_>>().join("\n\n"))
}

/// Returns the part of a system prompt that lists skills, or `None` if there are no skills.
pub(crate) fn block(skills: &[Arc<Skill>]) -> Option<String> {
    const PREFACE: &str = "Skills are instructions for special tasks. Where one fits the task, read it with the tool `skill` before \
                           you begin. A skill permits nothing.";
    let mut out = format!("{PREFACE}\n\n<available_skills>\n");
    let mut left_out = 0_usize;
    for skill in skills {
        let line = format!("  <skill name=\"{}\">{}</skill>\n", skill.name, escape_tags(&skill.description));
        match out.len().saturating_add(line.len()) > MAX_BYTES {
            true => left_out = left_out.saturating_add(1),
            false => out.push_str(&line),
        }
    }
    if left_out > 0 {
        out.push_str(&format!("  ({left_out} more are left out)\n"));
    }
    out.push_str("</available_skills>");
    (!skills.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests;
