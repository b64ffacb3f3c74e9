//! Files that become part of prompts: instruction files, skills and slash commands of the user and of a workspace.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use subtend_agents::catalog::{AgentProblem, ProblemKind};
use subtend_agents::instructions::rules::{self, RuleFiles};
use subtend_agents::instructions::{
    BOOTSTRAP, FoundFile, InstructionArea, Instructions, MAX_FILE_BYTES, NAMES, Unread,
};
use subtend_agents::product::Product;
use subtend_agents::skill::{FILE, Skill, Skills};
use subtend_agents::slash::{SlashCommand, SlashCommands};
use subtend_session::authority::Authority;
use subtend_session::call::ToolErrorKind;
use subtend_tools::skills::{SkillFolder, SkillPlace, tool};
use subtend_tools::tool::{Tool, ToolError};
use subtend_tools::workspace::{Listings, Workspace};

use super::fail::Fail;
use super::notices::notices;
use super::owners;
use super::paint::{CAUTION, Styled, clip, count};
use super::settings;
use super::trust::level::Trust;

/// Returns the instruction files for prompts: those of the user, then those of the workspace if it is trusted.
///
/// # Errors
/// As [`Trust::check`].
pub(crate) fn instructions(workspace: &Workspace, trust: Trust) -> Result<Instructions, Fail> {
    let mut all = if trust.is_used() { Instructions::default() } else { Instructions::withheld() };
    add_own(&mut all, Some(workspace));
    if trust.is_used() {
        add_workspace_files(&mut all, workspace);
    }
    trust.check(workspace.path(), all.files().iter().map(|file| &*file.path))?;
    Ok(all)
}

/// The files of a workspace that can reach prompts, used or not.
pub(crate) struct WorkspaceFiles {
    instructions: Instructions,
    /// Files that begin the prompts of children, with what is shown of their texts.
    bootstrap: Vec<(&'static str, String)>,
    skills: Skills,
    commands: SlashCommands,
    path: PathBuf,
}

impl WorkspaceFiles {
    /// Finds the files without using them.
    pub(crate) fn of(workspace: &Workspace) -> Self {
        let mut instructions = Instructions::default();
        add_workspace_files(&mut instructions, workspace);
        let path = workspace.path();
        let is_used = |name: &str| instructions.files().iter().any(|file| file.path == path.join(name));
        let exists = |name: &str| path.join(name).symlink_metadata().is_ok();
        let shown = |name: &str| {
            read_in_folder(path, name).map_or_else(|_| "cannot be read".to_owned(), |file| one_line(&file.text))
        };
        let bootstrap = BOOTSTRAP.into_iter().filter(|name| exists(name) && !is_used(name));
        let bootstrap = bootstrap.map(|name| (name, shown(name))).collect();
        Self {
            instructions,
            bootstrap,
            skills: Skills::load(path),
            commands: SlashCommands::load(path),
            path: path.to_owned(),
        }
    }

    /// Returns the files that are not refused: instructions, skills and commands.
    fn accepted_files(&self) -> [Vec<PathBuf>; 3] {
        let of_children = self.bootstrap.iter().map(|(name, _)| self.path.join(name));
        let instructions = self.instructions.files().iter().map(|file| file.path.clone()).chain(of_children).collect();
        let skills = self.skills.all().map(|skill| skill.folder.join(FILE)).collect();
        let commands = self.commands.all().map(|command| command.path.clone()).collect();
        [instructions, skills, commands]
    }

    /// Returns all files, refused ones included.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.accepted_files().into_iter().flatten().chain(self.problems().map(|problem| problem.path.clone())).collect()
    }

    /// Returns how many files of each kind there are, refused ones included.
    pub(crate) fn counts(&self) -> [(usize, &'static str); 3] {
        let refused = |problem: &&AgentProblem| problem.kind == ProblemKind::Refused;
        let files = |accepted: Vec<PathBuf>, problems: &[AgentProblem]| {
            let refused = problems.iter().filter(refused).map(|problem| problem.path.clone());
            accepted.into_iter().chain(refused).collect::<BTreeSet<_>>().len()
        };
        let [instructions, skills, commands] = self.accepted_files();
        [
            (files(instructions, self.instructions.problems()), "instruction file"),
            (files(skills, self.skills.problems()), "skill"),
            (files(commands, self.commands.problems()), "command"),
        ]
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let instructions = self.instructions.files().iter();
        let instructions = instructions.map(|file| {
            let paths = file.paths.as_ref().map_or_else(String::new, |paths| format!(" for {}", clip(paths, 100)));
            format!("instructions {}{paths}: {}", file.name, one_line(&file.text))
        });
        let skills = self.skills.all();
        let skills = skills.map(|skill| format!("skill {}: {} ({})", skill.name, skill.description, skill.resource));
        let commands = self.commands.all();
        let prompt = |command: &SlashCommand| match command.expand("") {
            Ok(expanded) => one_line(&expanded.text),
            Err(error) => error.to_string(),
        };
        let commands = commands.map(|command| format!("command /{}: {}", command.name, prompt(command)));
        let of_children = self.bootstrap.iter().map(|(name, text)| format!("instructions of children {name}: {text}"));
        instructions.chain(of_children).chain(skills).chain(commands).collect()
    }

    pub(crate) fn problems(&self) -> impl Iterator<Item = &AgentProblem> {
        let more = self.skills.problems().iter().chain(self.commands.problems());
        self.instructions.problems().iter().chain(more)
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the skills of a workspace if it is trusted, then those of the user.
///
/// # Errors
/// As [`Trust::check`].
pub(crate) fn skills(workspace: &Workspace, trust: Trust) -> Result<Skills, Fail> {
    let path = workspace.path();
    let mut skills = if trust.is_used() { Skills::load(path) } else { Skills::default() };
    trust.check(path, skills.all().map(|skill| &*skill.folder))?;
    let own = settings::user_path(settings::SKILLS).map(|folder| (folder, "~/.config/subtend/skills".to_owned()));
    let shared = settings::shared_skills().filter(|folder| settings::is_own(folder));
    let shared = shared.map(|folder| (folder, "~/.agents/skills".to_owned()));
    let of_products = settings::all_products().into_iter().flat_map(|(product, home)| {
        let shown = move |folder: &&str| format!("~/{}/{folder}", product.folder());
        product.skill_folders().iter().map(move |folder| (home.join(folder), shown(folder)))
    });
    for (folder, resource) in own.into_iter().chain(shared).chain(of_products) {
        skills.add_own(&folder, &resource, path);
    }
    Ok(skills)
}

/// Returns the slash commands of a workspace if it is trusted, then those of the user, then skills.
///
/// # Errors
/// As [`Trust::check`].
pub(crate) fn commands(workspace: &Workspace, trust: Trust) -> Result<SlashCommands, Fail> {
    let path = workspace.path();
    let mut commands = if trust.is_used() { SlashCommands::load(path) } else { SlashCommands::default() };
    trust.check(path, commands.all().map(|command| &*command.path))?;
    if let Some(folder) = settings::user_path(settings::COMMANDS) {
        commands.add_own(None, &folder, path);
    }
    for (product, home) in settings::products() {
        for folder in product.command_folders() {
            commands.add_own(Some(product), &home.join(folder), path);
        }
    }
    commands.add_skills(&skills(workspace, trust)?);
    Ok(commands)
}

pub(crate) fn skill_tool(skills: &Skills) -> Arc<dyn Tool> {
    let folder = |skill: &Arc<Skill>| {
        let place = match skill.in_workspace {
            true => SkillPlace::Workspace,
            // Does not offer a skill whose folder was removed meanwhile.
            false => SkillPlace::Own(Arc::new(Workspace::open(&skill.folder).ok()?)),
        };
        Some(SkillFolder { name: Arc::clone(&skill.name), resource: Arc::clone(&skill.resource), place })
    };
    tool(skills.all().filter(|skill| skill.for_models).filter_map(folder).collect())
}

/// Warns in one line that files were refused, for commands that do not list them.
pub(crate) fn warn_briefly(problems: &[AgentProblem]) -> Result<(), Fail> {
    let refused = problems.iter().filter(|problem| problem.kind == ProblemKind::Refused);
    let files = refused.map(|problem| &problem.path).collect::<BTreeSet<_>>().len();
    if files > 0 {
        let (word, files) = (Styled(CAUTION, "warning"), count(files as u64, "file"));
        let what = "with instructions or skills not used, or used only in part";
        writeln!(notices(), "{word}: {files} {what}: `subtend agents` says why")?;
    }
    Ok(())
}

/// Returns the user's own paths whose content becomes part of every prompt. Links among them may lead into `workspace`.
///
/// # Errors
/// [`Fail::Usage`] if the mode of an own instruction file or import hides that it imports files in `workspace`.
pub(crate) fn user_paths(workspace: &Path) -> Result<Vec<PathBuf>, Fail> {
    let own = settings::PROMPTS.into_iter().filter_map(settings::unchecked_user_path);
    let shared = settings::shared_skills();
    let of_products = settings::all_products().into_iter().flat_map(|(product, home)| {
        let folders =
            [product.agent_folders(), product.skill_folders(), product.command_folders(), product.rule_folders()];
        let names = folders.into_iter().chain([product.instruction_files()]).flatten();
        names.map(move |name| home.join(name)).collect::<Vec<_>>()
    });
    let mut instructions = Instructions::default();
    add_own(&mut instructions, None);
    let (file, products) = (settings::unchecked_user_path(settings::INSTRUCTIONS), settings::all_products());
    let real = own_instruction_files(file, products).filter_map(|(path, _)| path.canonicalize().ok());
    for file in real {
        // A file imports only what lies below its directory.
        let Some(folder) = file.parent().filter(|path| path.starts_with(workspace) || workspace.starts_with(path))
        else {
            continue;
        };
        let imported = instructions.imported_paths().filter(|path| path.starts_with(folder));
        for path in [folder, &*file].into_iter().chain(imported) {
            owners::check_own_mode(path, false, true).map_err(Fail::Usage)?;
        }
    }
    let used = instructions.files().iter().map(|file| &*file.path).chain(instructions.imported_paths());
    Ok(own.chain(shared).chain(of_products).chain(used.map(Path::to_owned)).collect())
}

/// Adds the user's instruction file and rules. Skips files in `workspace`, which are added with the workspace.
fn add_own(all: &mut Instructions, workspace: Option<&Workspace>) {
    add_own_file(all, workspace);
    for (product, home) in settings::products() {
        for folder in product.rule_folders() {
            let Ok(folder) = home.join(folder).canonicalize() else { continue };
            if workspace.is_some_and(|workspace| folder.starts_with(workspace.path())) {
                continue;
            }
            let Ok(opened) = Workspace::open(&folder) else { continue };
            let (found, read) = (RuleFiles::find(&folder, ""), reader(&opened, HardLinks::Read));
            let (home, rules) = (settings::home(), Some(&found));
            let home = home.as_deref();
            all.add(InstructionArea { path: &folder, home, names: &[], workspace: None, rules, read: &read });
        }
    }
}

/// Returns the user's possible instruction files with their names: that for subtend, then those of other products.
fn own_instruction_files(
    own: Option<PathBuf>,
    products: Vec<(Product, PathBuf)>,
) -> impl Iterator<Item = (PathBuf, &'static str)> {
    let own = own.map(|file| (file, settings::INSTRUCTIONS)).into_iter();
    let names = products.into_iter();
    own.chain(
        names.flat_map(|(product, home)| product.instruction_files().iter().map(move |name| (home.join(name), *name))),
    )
}

/// Adds the user's first existing instruction file.
fn add_own_file(all: &mut Instructions, workspace: Option<&Workspace>) {
    let home = settings::home();
    for (path, name) in own_instruction_files(settings::user_path(settings::INSTRUCTIONS), settings::products()) {
        // The user's own file may be a link, for example into a dotfiles repository.
        let Ok(path) = path.canonicalize() else { continue };
        let (Some(folder), Some(file)) = (path.parent(), path.file_name().and_then(|file| file.to_str())) else {
            continue;
        };
        if workspace.is_some_and(|workspace| folder.starts_with(workspace.path())) {
            continue;
        }
        let Ok(opened) = Workspace::open(folder) else { continue };
        let read = reader(&opened, HardLinks::Read);
        let names = [if path.ends_with(name) { name } else { file }];
        let home = home.as_deref();
        if all.add(InstructionArea { path: folder, home, names: &names, workspace: None, rules: None, read: &read }) {
            return;
        }
    }
}

/// Adds the instruction files and rules of the directories from the top of the repository down to the workspace.
fn add_workspace_files(all: &mut Instructions, workspace: &Workspace) {
    let path = workspace.path();
    for folder in parents(path) {
        let below = path.strip_prefix(&folder).ok().and_then(Path::to_str);
        let (Some(below), Ok(opened)) = (below, Workspace::open(&folder)) else { continue };
        add_directory(all, &opened, &folder, below);
    }
    add_directory(all, workspace, path, "");
}

/// Adds the files of one directory; `below` is the path of the workspace below it.
fn add_directory(all: &mut Instructions, opened: &Workspace, path: &Path, below: &str) {
    let home = settings::home();
    let (found, read) = (RuleFiles::find(path, rules::FOLDER), reader(opened, HardLinks::Refused));
    let (home, rules) = (home.as_deref(), Some(&found));
    all.add(InstructionArea { path, home, names: &NAMES, workspace: Some(below), rules, read: &read });
}

/// Returns the parents of a workspace from the top of its repository down, below the last one that others can write.
fn parents(workspace: &Path) -> Vec<PathBuf> {
    let Some(top) = workspace.ancestors().find(|folder| folder.join(".git").symlink_metadata().is_ok()) else {
        return Vec::new();
    };
    let within = workspace.ancestors().skip(1).take_while(|folder| folder.starts_with(top));
    let mut folders: Vec<PathBuf> = within.take_while(|folder| is_own(folder, workspace)).map(Path::to_owned).collect();
    folders.reverse();
    folders
}

/// Returns whether the directory has the same owner as the workspace and is not writable by others. A group with the
/// owner's id counts as private, because systems with umask 002 create such groups.
#[cfg(unix)]
fn is_own(folder: &Path, workspace: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    let both = folder.metadata().and_then(|of| Ok((of, workspace.metadata()?)));
    both.is_ok_and(|(folder, workspace)| {
        let others = if folder.gid() == folder.uid() { 0o002 } else { 0o022 };
        folder.uid() == workspace.uid() && folder.mode() & others == 0
    })
}

#[cfg(not(unix))]
fn is_own(_: &Path, _: &Path) -> bool {
    true
}

pub(crate) fn read_in_folder(folder: &Path, path: &str) -> Result<FoundFile, Unread> {
    let opened = Workspace::open(folder).map_err(|error| Unread::Refused(format!("cannot be read: {error}")))?;
    reader(&opened, HardLinks::Refused)(path)
}

/// Policy for files with several hard links.
#[derive(Clone, Copy)]
enum HardLinks {
    /// The user's own file may be linked from a dotfiles repository. No other user may be able to write it.
    Read,
    /// In a workspace, another link may be a file that sessions must not read.
    Refused,
}

/// Returns a function that reads files below a directory through its handle, so that paths and links cannot lead out.
fn reader(folder: &Workspace, links: HardLinks) -> impl Fn(&str) -> Result<FoundFile, Unread> {
    let listings = Listings::default();
    move |path| {
        let missing = |error: &ToolError| error.kind == ToolErrorKind::NotFound;
        if matches!(links, HardLinks::Read) {
            owners::check_settings(&folder.path().join(path), false).map_err(Unread::Refused)?;
        }
        let real = folder
            .real_of_many(path, &listings)
            .map_err(|error| if missing(&error) { Unread::Missing } else { Unread::Refused(error.message) })?;
        let text = match links {
            HardLinks::Read => folder.text_for(&Authority::allow_all(), &real, MAX_FILE_BYTES),
            HardLinks::Refused => folder.read_host_text(&real, MAX_FILE_BYTES),
        };
        match text {
            Ok(text) => Ok(FoundFile { real, text }),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(Unread::Missing)
            }
            Err(error) => Err(Unread::Refused(format!("cannot be read: {error}"))),
        }
    }
}
