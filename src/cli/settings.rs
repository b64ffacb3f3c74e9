//! Loads the configuration of a workspace: both files, and the environment.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy as _;
use subtend::config::{ConfigError, FILE, Layer, Loaded, MAX_FILE_BYTES, Origin, Warning};
use subtend_agents::dialect::Dialects;
use subtend_agents::product::Product;
use subtend_session::authority::Authority;
use subtend_tools::workspace::Workspace;

use super::fail::{Code, Fail};
use super::notices::notices;
use super::owners;
use super::paint::{CAUTION, Styled, on_one_line};
use super::trust::level::Trust;

/// Maximum size in bytes of a file that a prompt includes.
const MAX_PROMPT_BYTES: u64 = 256 << 10;

/// File of the user's answers about trust, next to the user's configuration.
pub(crate) const TRUSTED: &str = "trusted.json";
/// File of cached tool descriptions of MCP servers.
pub(crate) const KNOWN_TOOLS: &str = "mcp-tools.json";
pub(crate) const LOGINS: &str = "mcp-logins.json";
pub(crate) const INSTRUCTIONS: &str = "AGENTS.md";
pub(crate) const SKILLS: &str = "skills";
pub(crate) const COMMANDS: &str = "commands";
/// Files and folders that reach prompts.
pub(crate) const PROMPTS: [&str; 3] = [INSTRUCTIONS, SKILLS, COMMANDS];

/// Returns a file or folder next to the user's configuration, unless another user can write it.
pub(crate) fn user_path(name: &str) -> Option<PathBuf> {
    unchecked_user_path(name).filter(|path| is_own(path))
}

/// Returns a file next to the user's configuration that may restrict agents, unless another user owns it.
///
/// # Errors
/// [`Fail::Usage`] if the mode of a path of this user prevents its use.
pub(crate) fn restricting_path(name: &str) -> Result<Option<PathBuf>, Fail> {
    if let Some(path) = unchecked_user_path(name) {
        owners::check_own_mode(&path, true, true).map_err(Fail::Usage)?;
    }
    Ok(user_path(name))
}

/// Returns a path next to the user's configuration, for writing.
///
/// # Errors
/// A text with the owner, and a remedy.
pub(crate) fn user_path_to_write(name: &str, what: &str) -> Result<PathBuf, Fail> {
    let path = unchecked_user_path(name)
        .ok_or_else(|| Fail::Usage(format!("no home directory for {what}: set HOME or XDG_CONFIG_HOME")))?;
    let unsafe_to_use = |why| Fail::Usage(format!("{} is not used: {why}, or set XDG_CONFIG_HOME", path.display()));
    owners::check_settings(&path, true).map_err(unsafe_to_use)?;
    Ok(path)
}

/// Returns a file or folder next to the user's configuration, even if another user owns it.
pub(crate) fn unchecked_user_path(name: &str) -> Option<PathBuf> {
    etcetera::choose_base_strategy().ok().map(|base| base.config_dir().join("subtend").join(name))
}

/// Returns whether only this user and the superuser can write or create `path` and the files in it.
pub(crate) fn is_own(path: &Path) -> bool {
    owners::check_settings(path, true).is_ok()
}

/// Returns the user's folder of skills that are shared by products.
pub(crate) fn shared_skills() -> Option<PathBuf> {
    home().map(|home| home.join(".agents/skills"))
}

pub(crate) fn home() -> Option<PathBuf> {
    let home = etcetera::choose_base_strategy().ok()?.home_dir().to_owned();
    Some(home.canonicalize().unwrap_or(home))
}

/// Returns the user's folders of other products that no other user can write.
pub(crate) fn products() -> Vec<(Product, PathBuf)> {
    let mut all = all_products();
    all.retain(|(product, home)| parts(*product, home).all(|(path, deep)| owners::check_settings(&path, deep).is_ok()));
    all
}

/// Returns a product's folder, and the paths in it that are used, with whether all files below are used.
fn parts(product: Product, home: &Path) -> impl Iterator<Item = (PathBuf, bool)> {
    let folders = [product.agent_folders(), product.skill_folders(), product.command_folders(), product.rule_folders()];
    let names = folders.into_iter().chain([product.instruction_files()]).flatten();
    std::iter::once((home.to_owned(), false)).chain(names.map(move |name| (home.join(name), true)))
}

/// Returns a warning for each file of the user that is left out, for example because another user owns it.
///
/// # Errors
/// [`Fail::Usage`] if the mode of this user's own file hides where it leads, or leaves out agents.
fn ignored_file_warnings() -> Result<Vec<Warning>, Fail> {
    let names = [FILE, TRUSTED, KNOWN_TOOLS, LOGINS].into_iter().chain(PROMPTS);
    let shared = shared_skills();
    let of_products = all_products().into_iter().flat_map(|(product, home)| {
        let restricts = product.agent_folders().iter().any(|folder| home.join(folder).exists());
        parts(product, &home).map(move |(path, deep)| (path, deep, restricts)).collect::<Vec<_>>()
    });
    let mut reasons = BTreeSet::new();
    let own = names.filter_map(unchecked_user_path).chain(shared).map(|path| (path, true, false));
    let all: Vec<_> = own.chain(of_products).collect();
    for (path, deep, restricts) in &all {
        owners::check_own_mode(path, *deep, *restricts).map_err(Fail::Usage)?;
    }
    let refused = all.into_iter().filter_map(|(path, deep, _)| {
        let why = path.symlink_metadata().ok().and_then(|_| owners::check_settings(&path, deep).err())?;
        let message = format!("left out: {why}");
        reasons.insert(why).then_some(Warning { origin: Origin::User(path), message })
    });
    Ok(refused.collect())
}

/// Returns the user's folders of other products, even if other users can write them.
pub(crate) fn all_products() -> Vec<(Product, PathBuf)> {
    let Ok(base) = etcetera::choose_base_strategy() else { return Vec::new() };
    let directory_of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = |product: Product| match product {
        Product::Claude => directory_of("CLAUDE_CONFIG_DIR").unwrap_or_else(|| base.home_dir().join(".claude")),
        Product::OpenCode => base.config_dir().join("opencode"),
        Product::Codex => directory_of("CODEX_HOME").unwrap_or_else(|| base.home_dir().join(".codex")),
    };
    Product::ALL.map(|product| (product, home(product))).to_vec()
}

/// Loads the configuration for a workspace. The workspace's own file is included if the workspace is trusted.
pub(crate) fn load(workspace: &Workspace, trust: Trust) -> Result<Loaded, Fail> {
    let (mut layers, mut unreadable) = (Vec::new(), None);
    if let Some(path) = restricting_path(FILE)? {
        match read(&path) {
            // An unreadable home, for example under `sudo`, must not block the command.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let message = format!("ignored: it cannot be read: {error}");
                unreadable = Some(Warning { origin: Origin::User(path), message });
            }
            text => {
                let text = found(&path.display().to_string(), text)?;
                layers.extend(text.map(|text| Layer::file(Origin::User(path), &text)).transpose()?);
            }
        }
    }
    let path = workspace.path().join(FILE);
    let mut linked = None;
    if trust.is_used() {
        match project(workspace)? {
            ProjectFile::Linked => {
                let message = "ignored: it is a symbolic link, which is not followed. Use a regular file".to_owned();
                linked = Some(Warning { origin: Origin::Project(path), message });
            }
            ProjectFile::Content(text) => {
                trust.check(workspace.path(), [&*path])?;
                layers.push(Layer::file(Origin::Project(path), &text)?);
            }
            ProjectFile::Missing => {}
        }
    }
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| Some((name.into_string().ok()?, value));
    let variables = std::env::vars_os().filter_map(text).filter(|(name, _)| name.starts_with("SUBTEND_"));
    layers.push(Layer::variables(variables.map(|(name, value)| (name, value.to_string_lossy().into_owned())))?);
    let mut loaded = Loaded::of(layers)?;
    loaded.warnings.extend(unreadable.into_iter().chain(ignored_file_warnings()?).chain(linked));
    Ok(loaded)
}

enum ProjectFile {
    Missing,
    /// A symbolic link, which is not followed: rules that protect this file would not protect the link's target.
    Linked,
    Content(String),
}

/// Reads the configuration file of a workspace. The caller checks trust.
fn project(workspace: &Workspace) -> Result<ProjectFile, Fail> {
    let path = workspace.path().join(FILE);
    // The file is opened without following links, since a check before that could be outrun.
    match workspace.text_for(&Authority::allow_all(), FILE, MAX_FILE_BYTES) {
        Err(_) if path.is_symlink() => Ok(ProjectFile::Linked),
        text => Ok(found(&path.display().to_string(), text)?.map_or(ProjectFile::Missing, ProjectFile::Content)),
    }
}

/// Returns the text of the configuration file of a workspace, or why it cannot be used; `None` if it is missing.
pub(crate) fn project_text(workspace: &Workspace) -> Option<Result<String, String>> {
    match project(workspace) {
        Ok(ProjectFile::Content(text)) => Some(Ok(text)),
        Ok(ProjectFile::Linked) => Some(Err("it is a symbolic link, which is not followed".to_owned())),
        Ok(ProjectFile::Missing) => None,
        Err(why) => Some(Err(why.to_string())),
    }
}

fn read(path: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES.saturating_add(1)).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes")));
    }
    Ok(text)
}

pub(crate) fn found(path: &str, text: io::Result<String>) -> Result<Option<String>, Fail> {
    match text {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Fail::Usage(format!("the configuration {path} cannot be read: {error}"))),
    }
}

pub(crate) fn dialects(loaded: &Loaded, workspace: &Workspace) -> Result<Dialects, Fail> {
    loaded.config.dialects(&reader(workspace)).map_err(|error| {
        let profile = subtend::config::Key::from(["tools", "spawn", "profiles", &error.profile]);
        Fail::Usage(on_one_line(&format!("{}: {error}", loaded.origin(&profile))))
    })
}

/// Returns a function that reads files for prompts, from the workspace only.
pub(crate) fn reader(workspace: &Workspace) -> impl Fn(&str) -> Result<String, String> {
    |path| {
        workspace.text(path, MAX_PROMPT_BYTES).map_err(|error| {
            let gone = error.kind() == io::ErrorKind::NotFound;
            if gone { "no such file".to_owned() } else { error.to_string() }
        })
    }
}

pub(crate) fn warn(loaded: &Loaded) -> Result<Code, Fail> {
    let mut err = notices();
    for warning in &loaded.warnings {
        writeln!(err, "{}: {}", Styled(CAUTION, "warning"), on_one_line(&warning.to_string()))?;
    }
    Ok(Code::Done)
}

impl From<ConfigError> for Fail {
    fn from(error: ConfigError) -> Self {
        // Names and values of a file could forge a message.
        Self::Usage(on_one_line(&error.to_string()))
    }
}
