//! `subtend trust`: whether the configuration and the agents of a workspace are used.
//!
//! They come with a clone, so they are left aside until the person has seen them and said yes, once for each directory.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use subtend::config::{FILE, Layer, Loaded, Origin};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::Source;
use subtend_tools::workspace::Workspace;

use super::fail::{Code, Fail};
use super::paint::{BOLD, In, ODD, clip, count, harmless};
use super::settings::{self, Project};
use super::workspace;
pub(crate) use level::Trust;
use record::Record;

pub(crate) mod level;
mod record;

/// The variable that says what `--trust` says.
const VARIABLE: &str = "SUBTEND_TRUST";

/// Shows what a workspace brings along (subtend.yaml, agents), and asks whether to use it; until then it is left aside.
///
/// The answer is kept with your own configuration, for this directory: one that is moved, or another one in its place, is asked about anew.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Workspace
    #[arg(value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Trust it without a question
    #[arg(long)]
    yes: bool,

    /// Trust it no more
    #[arg(long, conflicts_with = "yes")]
    revoke: bool,

    /// List the workspaces that you were asked about
    #[arg(long, conflicts_with_all = ["yes", "revoke", "workspace"])]
    list: bool,
}

impl Trust {
    /// Settles it for a verb that lets agents work: by `--trust`, by what is kept, by a question at a terminal. What is left aside is one
    /// line on stderr, also where nothing else is told there.
    pub(crate) fn settle(workspace: &Workspace, flag: bool, machine: bool) -> Result<Self, Fail> {
        let brought = Brought::of(workspace);
        brought.forget_nothing(workspace)?;
        if flag || by_variable() || brought.is_nothing() {
            return Ok(Self::Used);
        }
        let path = workspace.path();
        let trust = match Record::of(path)? {
            Some(true) => return Ok(Self::Used),
            None if at_terminal() && !machine => {
                show(workspace, &brought)?;
                ask(path)?
            }
            Some(false) | None => Self::Aside,
        };
        if trust == Self::Aside {
            brought.left_aside()?;
        }
        Ok(trust)
    }

    /// Settles it for a verb that asks nothing: what is left aside is one line on stderr.
    pub(crate) fn told(workspace: &Workspace) -> Result<Self, Fail> {
        let brought = Brought::of(workspace);
        brought.forget_nothing(workspace)?;
        let trust = Self::silent(workspace)?;
        if trust == Self::Aside {
            brought.left_aside()?;
        }
        Ok(trust)
    }

    /// Settles it for a verb that lets no agent work.
    pub(crate) fn silent(workspace: &Workspace) -> Result<Self, Fail> {
        let used = by_variable() || Brought::of(workspace).is_nothing() || Record::of(workspace.path())? == Some(true);
        Ok(if used { Self::Used } else { Self::Aside })
    }

    /// The agents that count.
    pub(crate) fn catalog(self, workspace: &Workspace) -> Catalog {
        if self.is_used() { Catalog::load_checked(workspace.path()) } else { Catalog::builtin() }
    }
}

/// What a workspace brings along that needs trust.
struct Brought {
    config: bool,
    agents: usize,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    if args.list {
        return list();
    }
    let workspace = workspace::open(&args.workspace)?;
    let path = workspace.path();
    if args.revoke {
        let told = match Record::forget(path)? {
            true => format!("{} is not trusted any more", path.display()),
            false => format!("{} was not trusted", path.display()),
        };
        return say(&told);
    }
    let brought = Brought::of(&workspace);
    // Trust of nothing would be trust of whatever comes later, unseen.
    if brought.is_nothing() {
        return say(&format!("{} brings nothing along that needs trust; nothing is recorded", path.display()));
    }
    show(&workspace, &brought)?;
    if args.yes {
        Record::keep(path, true)?;
        return say(&format!("{} is trusted", path.display()));
    }
    if !at_terminal() {
        return Err(Fail::Usage("not trusted: there is no terminal to ask at; use --yes".to_owned()));
    }
    match ask(path)? {
        Trust::Used => say(&format!("{} is trusted", path.display())),
        Trust::Aside => Err(Fail::Other(format!("{} is not trusted", path.display()))),
    }
}

/// Whether the workspace brings nothing along.
pub(crate) fn needs_none(workspace: &Workspace) -> bool {
    Brought::of(workspace).is_nothing()
}

/// Keeps that the person trusts the workspace: they wrote its first file themselves.
pub(crate) fn keep(workspace: &Workspace) -> Result<(), Fail> {
    Record::keep(workspace.path(), true)
}

impl Brought {
    /// Looks at files and uses none.
    fn of(workspace: &Workspace) -> Self {
        let path = workspace.path();
        let catalog = Catalog::load(path);
        let files = catalog.all().filter(|manifest| matches!(manifest.source, Source::File(_))).count();
        let agents = files.max(catalog.problems().len());
        Self { config: path.join(FILE).symlink_metadata().is_ok(), agents }
    }

    fn is_nothing(&self) -> bool {
        !self.config && self.agents == 0
    }

    /// Ends the trust of a workspace that brings nothing along any more: a command could make what comes next, and nobody saw it.
    fn forget_nothing(&self, workspace: &Workspace) -> Result<(), Fail> {
        if self.is_nothing() && Record::of(workspace.path())? == Some(true) {
            Record::forget(workspace.path())?;
        }
        Ok(())
    }

    fn names(&self) -> String {
        let agents = (self.agents > 0).then(|| count(self.agents as u64, "agent"));
        let config = self.config.then(|| FILE.to_owned());
        config.into_iter().chain(agents).collect::<Vec<_>>().join(" and ")
    }

    fn left_aside(&self) -> Result<(), Fail> {
        let names = self.names();
        writeln!(
            anstream::stderr(),
            "{}: {names} of this workspace left aside, which you have not trusted: `subtend trust` shows and trusts what it brings along, \
             --trust uses it this time",
            In(ODD, "warning")
        )?;
        Ok(())
    }
}

fn by_variable() -> bool {
    std::env::var(VARIABLE).is_ok_and(|value| matches!(value.trim(), "1" | "true"))
}

fn at_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

fn say(text: &str) -> Result<Code, Fail> {
    writeln!(anstream::stderr(), "{}", harmless(text))?;
    Ok(Code::Done)
}

/// Asks, and keeps the answer. No answer is none.
fn ask(path: &Path) -> Result<Trust, Fail> {
    let mut err = anstream::stderr();
    write!(err, "Use it? [y/N] ")?;
    err.flush()?;
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line)? == 0 {
        writeln!(err)?;
        return Ok(Trust::Aside);
    }
    let yes = matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    Record::keep(path, yes)?;
    Ok(if yes { Trust::Used } else { Trust::Aside })
}

/// Prints on stderr what the workspace brings along.
fn show(workspace: &Workspace, brought: &Brought) -> Result<(), Fail> {
    let mut err = anstream::stderr().lock();
    let path = workspace.path();
    writeln!(err, "{} brings along:", In(BOLD, harmless(&path.display().to_string())))?;
    if brought.config {
        writeln!(err, "  {FILE}")?;
        let text = match settings::project(workspace) {
            Ok(Project::Says(text)) => Ok(text),
            Ok(Project::Linked) => Err("it is a symbolic link, which is not followed".to_owned()),
            Ok(Project::Missing) => Err("it is gone".to_owned()),
            Err(why) => Err(why.to_string()),
        };
        let layer =
            text.and_then(|text| Layer::file(Origin::Project(FILE.into()), &text).map_err(|error| error.to_string()));
        match layer.and_then(|layer| Loaded::of([layer]).map_err(|error| error.to_string())) {
            Ok(loaded) => {
                for setting in loaded.values.iter().filter(|setting| setting.origin != Origin::Default) {
                    let line = format!("{} = {}", setting.key, setting.value);
                    writeln!(err, "    {}", clip(&harmless(&line), 200))?;
                }
            }
            Err(why) => writeln!(err, "    {}", clip(&harmless(&why), 400))?,
        }
    }
    let catalog = Catalog::load(path);
    for manifest in catalog.all() {
        if let Source::File(file) = &manifest.source {
            let model = manifest.model.as_ref().map_or_else(String::new, |model| format!(", model {model}"));
            let line = format!("agent {}{model}: {} ({})", manifest.name, manifest.description, file.display());
            writeln!(err, "  {}", clip(&harmless(&line), 300))?;
        }
    }
    for problem in catalog.problems() {
        let line = format!("{}: {}", problem.path.display(), problem.message);
        writeln!(err, "  {}", clip(&harmless(&line), 300))?;
    }
    Ok(())
}

fn list() -> Result<Code, Fail> {
    let mut out = anstream::stdout().lock();
    for entry in Record::all()? {
        let word = match (entry.trusted, entry.is_same()) {
            (true, true) => "trusted",
            (true, false) => "gone or replaced",
            (false, _) => "left aside",
        };
        writeln!(out, "{word}  {}", harmless(&entry.path))?;
    }
    Ok(Code::Done)
}
