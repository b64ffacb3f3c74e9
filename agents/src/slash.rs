//! Slash commands: prompts in files, which a user starts by typing `/name` and arguments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use subtend_session::ids::Text;
use subtend_session::near::near;

use crate::catalog::products::id;
use crate::catalog::{
    AgentProblem, Catalog, MAX_FILES, ProblemKind, ReadBudget, add_problem, first_symlink, has_ending,
};
use crate::files::HardLinks;
use crate::foreign::{fields::Fields, fields::field, lenient};
use crate::front::BadManifest;
use crate::manifest::first_sentence;
use crate::product::Product;
use crate::skill::Skills;
use template::Template;

mod template;

/// The folder of commands in a workspace that belongs to no other product.
const FOLDER: &str = ".subtend/commands";

/// The maximum length of a name in bytes.
const MAX_NAME: usize = 128;

/// The maximum length of an expanded prompt in bytes: the default limit of one input. An expansion can be long, because
/// a file can repeat its arguments many times.
pub(crate) const MAX_EXPANDED: usize = 1 << 20;

/// The maximum number of names that are suggested for an unknown one.
const MAX_NEAR: usize = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlashCommand {
    /// Its name: its path in the folder of commands, with `:` between folders.
    pub name: Text,
    pub description: Text,
    pub argument_hint: Option<Text>,
    pub path: PathBuf,
    /// Warnings about fields without effect.
    pub notes: Vec<String>,
    template: Template,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expanded {
    pub text: String,
    /// Notes on fields that have no effect here, or a different effect than in the file's product.
    pub notes: Vec<String>,
}

/// Error: the prompt of a slash command is longer than one input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the prompt of /{command} is larger than {MAX_EXPANDED} bytes, the limit of one input: shorten its arguments or its file"
)]
pub struct ExpandedTooLong {
    pub command: Text,
}

impl SlashCommand {
    /// Returns the prompt with `arguments` inserted. Placeholders within arguments are not expanded.
    ///
    /// # Errors
    /// [`ExpandedTooLong`].
    pub fn expand(&self, arguments: &str) -> Result<Expanded, ExpandedTooLong> {
        let text = self.template.fill(arguments.trim());
        let text = text.ok_or_else(|| ExpandedTooLong { command: Arc::clone(&self.name) })?;
        Ok(Expanded { text, notes: self.notes.clone() })
    }
}

/// The meaning of a text that begins with `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed<'a> {
    /// A command with its arguments.
    Command(&'a Arc<SlashCommand>, &'a str),
    Unknown(&'a str),
    /// Ordinary text, such as a path.
    Text,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlashCommands {
    all: BTreeMap<Text, Arc<SlashCommand>>,
    problems: Vec<AgentProblem>,
    budget: ReadBudget,
}

impl SlashCommands {
    /// Loads the commands of a workspace. If several commands have one name, the first is used. The order is
    /// `.subtend`, then the folders of other products.
    pub fn load(workspace: &Path) -> Self {
        let mut commands = Self::default();
        let of_products = |product: Product| {
            let below = move |folder: &&str| (Some(product), format!("{}/{folder}", product.folder()));
            product.command_folders().iter().map(below)
        };
        let folders = std::iter::once((None, FOLDER.to_owned())).chain(Product::ALL.into_iter().flat_map(of_products));
        for (product, below) in folders {
            match first_symlink(workspace, Path::new(&below)) {
                Some(link) => commands.refuse(&link, "is a symbolic link, which is not followed: use a folder"),
                None => commands.find(product, (workspace, &workspace.join(&below)), HardLinks::Refused),
            }
        }
        commands
    }

    /// Adds the user's own commands in `folder`. A folder in `workspace` is ignored.
    pub fn add_own(&mut self, product: Option<Product>, folder: &Path, workspace: &Path) {
        let Ok(folder) = folder.canonicalize() else { return };
        let around = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        if folder.starts_with(&around) {
            return self.warn(&folder, "lies in the workspace, so its commands are not loaded as your own");
        }
        self.budget = ReadBudget::default();
        self.find(product, (&folder, &folder), HardLinks::Read);
    }

    /// Adds the skills that a user may start as commands. An existing command of the same name wins.
    pub fn add_skills(&mut self, skills: &Skills) {
        for skill in skills.all().filter(|skill| skill.for_users) {
            let template = Template::of_skill(&skill.body, &skill.resource);
            let notes = template.notes();
            let command = SlashCommand {
                name: Arc::clone(&skill.name),
                description: Arc::clone(&skill.description),
                argument_hint: skill.argument_hint.clone(),
                path: skill.folder.join(crate::skill::FILE),
                notes,
                template,
            };
            self.all.entry(Arc::clone(&skill.name)).or_insert_with(|| Arc::new(command));
        }
    }

    /// Returns all commands, ordered by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<SlashCommand>> {
        self.all.values()
    }

    pub fn problems(&self) -> &[AgentProblem] {
        &self.problems
    }

    /// Returns the command of that name. The user may type `/` instead of `:`, or only the last part if it is
    /// unambiguous.
    pub fn get(&self, name: &str) -> Option<&Arc<SlashCommand>> {
        let name = name.replace('/', ":");
        // Codex lists the commands of prompt files with this prefix.
        let name = name.strip_prefix("prompts:").unwrap_or(&name);
        let mut named =
            self.all().filter(|command| command.name.rsplit_once(':').is_some_and(|(_, last)| last == name));
        self.all.get(name).or_else(|| named.next().filter(|_| named.next().is_none()))
    }

    /// Returns the names of commands that are similar to the unknown `name`.
    pub fn near(&self, name: &str) -> Vec<&str> {
        let is_near = |command: &&Arc<SlashCommand>| {
            let last = command.name.rsplit_once(':').map_or(&*command.name, |(_, last)| last);
            near(name, [&*command.name, last]).is_some()
        };
        self.all().filter(is_near).take(MAX_NEAR).map(|command| &*command.name).collect()
    }

    /// Returns a question that suggests similar names, or an empty string if there are no similar names.
    pub fn suggestion(&self, name: &str) -> String {
        let names: Vec<String> = self.near(name).into_iter().map(|name| format!("/{name}")).collect();
        if names.is_empty() { String::new() } else { format!("did you mean {}? ", names.join(" or ")) }
    }

    pub fn read<'a>(&'a self, text: &'a str) -> Typed<'a> {
        let Some(rest) = text.strip_prefix('/') else { return Typed::Text };
        let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        match self.get(name) {
            Some(command) => Typed::Command(command, arguments),
            None if is_name(name) => Typed::Unknown(name),
            None => Typed::Text,
        }
    }

    fn find(&mut self, product: Option<Product>, (root, folder): (&Path, &Path), links: HardLinks) {
        let (mut seen, mut files) = (Catalog::default(), Vec::new());
        seen.find(root, folder, 0, &|path| has_ending(path, "md"), &mut files);
        seen.problems().iter().for_each(|problem| add_problem(&mut self.problems, problem.clone()));
        files.sort_unstable();
        if let Some(first) = files.get(MAX_FILES) {
            self.refuse(
                first,
                format!("this file and all after it are not read: there are more than {MAX_FILES} commands"),
            );
        }
        files.iter().take(MAX_FILES).for_each(|path| self.file(product, (root, folder), path, links));
    }

    fn file(&mut self, product: Option<Product>, (root, folder): (&Path, &Path), path: &Path, links: HardLinks) {
        let parsed =
            self.budget.read(root, path, links).and_then(|text| parse(product, path, &id(folder, path), &text));
        match parsed {
            Ok(command) => self.insert(command),
            Err(why) => self.refuse(path, why),
        }
    }

    /// Reads one file of a folder of commands. Returns the command, if the file is usable, and the problems.
    pub(crate) fn add_one(
        &mut self,
        product: Option<Product>,
        folder: &Path,
        path: &Path,
    ) -> (Option<Arc<SlashCommand>>, Vec<AgentProblem>) {
        let before = self.problems.len();
        match path.is_symlink() {
            true => self.refuse(path, "is a symbolic link, which is not followed: copy the file"),
            false => self.file(product, (folder, folder), path, HardLinks::Refused),
        }
        let given = self.all().find(|command| command.path == path).cloned();
        (given, self.problems.split_off(before))
    }

    fn insert(&mut self, command: SlashCommand) {
        if let Some(first) = self.all.get(&command.name) {
            let from = first.path.display().to_string();
            return self.refuse(&command.path, format!("not used: `/{}` is already defined in {from}", command.name));
        }
        for note in &command.notes {
            self.warn(&command.path, note.clone());
        }
        self.all.insert(Arc::clone(&command.name), Arc::new(command));
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

/// Returns the folder of commands in the path, and its product.
pub(crate) fn folder_of(path: &Path) -> Option<(Option<Product>, PathBuf)> {
    let of_product = |product: Product| {
        let below = move |folder: &&str| (Some(product), Path::new(product.folder()).join(folder));
        product.command_folders().iter().map(below)
    };
    let folders = std::iter::once((None, PathBuf::from(FOLDER))).chain(Product::ALL.into_iter().flat_map(of_product));
    let folders: Vec<(Option<Product>, PathBuf)> = folders.collect();
    let named = |above: &Path| {
        let (product, _) = folders.iter().find(|(_, below)| above.ends_with(below))?;
        Some((*product, above.to_owned()))
    };
    path.ancestors().skip(1).find_map(named)
}

/// Parses the file of a command; `id` is its path in the folder of commands, without the extension.
pub(crate) fn parse(product: Option<Product>, path: &Path, id: &str, text: &str) -> Result<SlashCommand, String> {
    parsed(product, path, id, text).map_err(|error| error.to_string())
}

fn parsed(product: Option<Product>, path: &Path, id: &str, text: &str) -> Result<SlashCommand, BadManifest> {
    let name = id.replace('/', ":");
    if !name.split(':').all(is_name) || name.len() > MAX_NAME {
        let name: String = name.chars().take(MAX_NAME).collect();
        return Err(field("name", format!("must be letters, digits, `-`, `_` and `.`, not `{name}`: rename the file")));
    }
    let read = lenient::read(text)?;
    if read.body.trim().is_empty() {
        return Err(BadManifest::NoPrompt);
    }
    let mut fields = Fields::of(read.map);
    if read.quoted {
        fields.note("the front matter is not valid YAML: values with `: ` in them are read as text");
    }
    let description = fields.text("description")?.unwrap_or_else(|| first_sentence(read.body).into());
    let argument_hint = fields.hint("argument-hint")?;
    fields.keep(&["name", "disable-model-invocation", "user-invocable", "hide-from-slash-command-tool"]);
    fields.report(&[
        ("allowed-tools", "the agent and your rules decide what a session may do"),
        ("model", "name a model by `--model`"),
        ("agent", "choose an agent by `--agent`, or by `/agent NAME` in a chat"),
        ("subtask", "the session itself does the work"),
        ("context", "the session itself does the work"),
        ("variant", "the settings of the session apply"),
        ("effort", "the settings of the session apply"),
        ("hooks", "hooks that a file names are not run"),
    ]);
    fields.rest("a command");
    let template = Template::of(read.body, product);
    let mut notes = fields.notes;
    notes.extend(template.notes());
    Ok(SlashCommand { name: name.into(), description, argument_hint, path: path.to_owned(), notes, template })
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(plain) && name.contains(char::is_alphanumeric)
}

#[cfg(test)]
mod tests;
