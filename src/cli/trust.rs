//! `subtend trust`: whether the configuration and the agents of a workspace are used.
//!
//! They come with a clone, so they are ignored until the user has seen and approved them, once for each directory.

use std::collections::BTreeSet;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use subtend::config::{FILE, Layer, Loaded, Origin};
use subtend_agents::catalog::Catalog;
use subtend_session::ids::Hash;
use subtend_tools::mcp;
use subtend_tools::policy::PROTECTED;
use subtend_tools::workspace::Workspace;

use super::fail::{Code, Fail};
use super::guidance;
use super::paint::{BOLD, In, ODD, clip, count, exact, harmless, path_line};
use super::settings::{self, Project};
use super::{servers, workspace};
pub(crate) use level::{ServerTrust, Trust};
pub(crate) use record::FILE as RECORD_FILE;
use record::Record;

pub(crate) mod level;
mod record;

/// The variable that says what `--trust` says.
const VARIABLE: &str = "SUBTEND_TRUST";

/// Shows the configuration and agents of a workspace, and asks whether to use them; until then they are ignored.
///
/// The answer is kept with your own configuration, for this directory. A directory that was moved or replaced needs a new answer.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Workspace
    #[arg(value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Trust it without asking
    #[arg(long)]
    yes: bool,

    /// Revoke the trust
    #[arg(long, conflicts_with = "yes")]
    revoke: bool,

    /// List the workspaces that you were asked about
    #[arg(long, conflicts_with_all = ["yes", "revoke", "workspace"])]
    list: bool,
}

impl Trust {
    /// Decides by `--trust`, by the recorded answer, or by a question at a terminal. Ignored files are reported on
    /// stderr.
    pub(crate) fn settle(workspace: &Workspace, flag: bool, machine: bool) -> Result<Self, Fail> {
        if flag || by_variable() {
            Brought::of(workspace).forget_gone(workspace)?;
            return Ok(Self::GIVEN);
        }
        Self::settle_by_record(workspace, machine)
    }

    /// As [`Trust::settle`], without `--trust` and its variable: they are for the process that has the store, and for its directory.
    pub(crate) fn settle_by_record(workspace: &Workspace, machine: bool) -> Result<Self, Fail> {
        let brought = Brought::of(workspace);
        brought.forget_gone(workspace)?;
        let trust = match brought.answered(workspace)? {
            Some(trust) => trust,
            None if at_terminal() && !machine => {
                show(workspace, &brought)?;
                ask(workspace, &brought)?
            }
            None => Self::LeftOut,
        };
        if trust == Self::LeftOut {
            brought.left_aside()?;
        }
        Ok(trust)
    }

    /// Decides without a question. Ignored files are reported on stderr.
    pub(crate) fn told(workspace: &Workspace) -> Result<Self, Fail> {
        let brought = Brought::of(workspace);
        brought.forget_gone(workspace)?;
        let trust = Self::silent(workspace)?;
        if trust == Self::LeftOut {
            brought.left_aside()?;
        }
        Ok(trust)
    }

    pub(crate) fn silent(workspace: &Workspace) -> Result<Self, Fail> {
        if by_variable() { Ok(Self::GIVEN) } else { Self::recorded(workspace) }
    }

    /// Decides by the recorded answer alone, for a directory that this process was not called for.
    pub(crate) fn recorded(workspace: &Workspace) -> Result<Self, Fail> {
        Ok(Brought::of(workspace).answered(workspace)?.unwrap_or(Self::LeftOut))
    }

    pub(crate) fn catalog(self, workspace: &Workspace) -> Catalog {
        let path = workspace.path();
        let mut catalog = if self.is_used() { Catalog::load_checked(path) } else { Catalog::builtin() };
        for (product, home) in settings::products() {
            catalog.add_own(product, &home, path);
        }
        catalog
    }
}

/// The contents of a workspace that need trust.
struct Brought {
    config: bool,
    /// `.mcp.json`: what is shown of it is what the answer is about.
    servers: Option<Result<String, String>>,
    agents: usize,
    texts: guidance::Brought,
    /// Names of protected paths that exist. A command cannot replace these, but could create the others, which need a new answer.
    protected: BTreeSet<String>,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    if args.list {
        return list();
    }
    let workspace = workspace::open(&args.workspace)?;
    let path = workspace.path();
    if args.revoke {
        let text = match Record::forget(path)? {
            true => format!("{} is no longer trusted", path_line(path)),
            false => format!("{} was not trusted", path_line(path)),
        };
        return say(&text);
    }
    let brought = Brought::of(&workspace);
    // An empty workspace is not trusted: that would trust files that appear later, unseen.
    if brought.is_nothing() {
        return say(&format!("{} contains nothing that needs trust; nothing is recorded", path_line(path)));
    }
    show(&workspace, &brought)?;
    if args.yes {
        if !brought.keep(&workspace, true)? {
            return Err(Fail::Other(not_kept(path)));
        }
        return say(&format!("{} is trusted", path_line(path)));
    }
    if !at_terminal() {
        return Err(Fail::Usage("not trusted: there is no terminal to ask on. Use --yes to trust it".to_owned()));
    }
    match ask(&workspace, &brought)? {
        Trust::Used { .. } => say(&format!("{} is trusted", path_line(path))),
        Trust::LeftOut => Err(Fail::Other(format!("{} is not trusted", path_line(path)))),
    }
}

/// Returns whether a file that the user writes by this command is trusted, as everything in the workspace is.
pub(crate) fn is_settled(workspace: &Workspace) -> Result<bool, Fail> {
    Ok(Trust::recorded(workspace)?.is_used())
}

/// Records that the user trusts the workspace, since they wrote a file of it themselves.
pub(crate) fn keep(workspace: &Workspace) -> Result<(), Fail> {
    if !Brought::of(workspace).keep(workspace, true)? {
        say(&not_kept(workspace.path()))?;
    }
    Ok(())
}

/// Says why a yes is not kept.
fn not_kept(path: &Path) -> String {
    format!(
        "{} cannot be trusted for good: its file system keeps no time of creation, by which another directory in its place would be \
         noticed. Use --trust on each call, or move it to another file system",
        path_line(path)
    )
}

impl Brought {
    /// Reads files without using them.
    fn of(workspace: &Workspace) -> Self {
        let path = workspace.path();
        let catalog = Catalog::load(path);
        // A file may have several problems.
        let files = catalog.all().filter_map(|manifest| manifest.source.path());
        let problems = catalog.problems().iter().map(|problem| &*problem.path);
        let agents = files.chain(problems).collect::<BTreeSet<_>>();
        let texts = guidance::Brought::of(workspace);
        let (config, servers) = (path.join(FILE).symlink_metadata().is_ok(), servers::brought(workspace));
        let single = [(config, FILE), (servers.is_some(), mcp::FILE)].into_iter().filter(|(exists, _)| *exists);
        let of_texts = texts.paths();
        let files = agents.iter().copied().chain(of_texts.iter().map(PathBuf::as_path));
        let protected =
            files.filter_map(|file| protected(path, file)).chain(single.map(|(_, name)| name)).map(str::to_owned);
        Self { config, servers, agents: agents.len(), protected: protected.collect(), texts }
    }

    fn is_nothing(&self) -> bool {
        let texts = self.texts.counts().iter().any(|(files, _)| *files > 0);
        !self.config && self.servers.is_none() && self.agents == 0 && !texts
    }

    /// Returns the trust that needs no question; `None` where the person was not asked about all of it.
    fn answered(&self, workspace: &Workspace) -> Result<Option<Trust>, Fail> {
        if self.is_nothing() {
            return Ok(Some(Trust::Used { servers: ServerTrust::None }));
        }
        let record = Record::of(workspace.path())?;
        Ok(record.and_then(|record| match record.trusted {
            true => self
                .protected
                .iter()
                .all(|name| record.covers(name) && (name != mcp::FILE || record.covers_servers(self.seen())))
                .then(|| self.used()),
            false => Some(Trust::LeftOut),
        }))
    }

    /// Returns the content of the file of servers: a program that a command wrote into it later would run outside of a sandbox.
    fn seen(&self) -> Option<Hash> {
        self.servers.as_ref()?.as_ref().ok().map(|text| Hash::of(text.as_bytes()))
    }

    fn used(&self) -> Trust {
        Trust::Used { servers: self.seen().map_or(ServerTrust::None, ServerTrust::Seen) }
    }

    fn keep(&self, workspace: &Workspace, trusted: bool) -> Result<bool, Fail> {
        Record::keep(workspace.path(), trusted, (&self.protected, self.seen()))
    }

    /// Ends the trust of what is gone: a command could create it later, unseen.
    fn forget_gone(&self, workspace: &Workspace) -> Result<(), Fail> {
        let path = workspace.path();
        let Some(record) = Record::of(path)?.filter(|record| record.trusted) else { return Ok(()) };
        if self.is_nothing() {
            Record::forget(path)?;
        } else if record.covers_more(&self.protected) {
            let left = self.protected.iter().filter(|name| record.covers(name)).cloned().collect();
            Record::keep(path, true, (&left, record.servers()))?;
        }
        Ok(())
    }

    fn names(&self) -> String {
        let all = std::iter::once((self.agents, "agent")).chain(self.texts.counts());
        let counted = all.filter(|(files, _)| *files > 0).map(|(files, what)| count(files as u64, what));
        let config = self.config.then(|| FILE.to_owned());
        let servers = self.servers.as_ref().map(|_| mcp::FILE.to_owned());
        config.into_iter().chain(servers).chain(counted).collect::<Vec<_>>().join(" and ")
    }

    fn left_aside(&self) -> Result<(), Fail> {
        let names = self.names();
        writeln!(
            anstream::stderr(),
            "{}: {names} of this workspace ignored, which you have not trusted: `subtend trust` shows and trusts the workspace, \
             --trust uses it this time",
            In(ODD, "warning")
        )?;
        Ok(())
    }
}

/// Returns the protected path of `workspace` that holds `file`.
fn protected(workspace: &Path, file: &Path) -> Option<&'static str> {
    let top = file.strip_prefix(workspace).ok()?.components().next()?;
    PROTECTED.into_iter().find(|name| top.as_os_str() == *name)
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

fn ask(workspace: &Workspace, shown: &Brought) -> Result<Trust, Fail> {
    let mut err = anstream::stderr();
    write!(err, "Use it? [y/N] ")?;
    err.flush()?;
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line)? == 0 {
        writeln!(err)?;
        return Ok(Trust::LeftOut);
    }
    let yes = matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !shown.keep(workspace, yes)? {
        say(&not_kept(workspace.path()))?;
    }
    Ok(if yes { shown.used() } else { Trust::LeftOut })
}

/// Prints on stderr what in the workspace needs trust.
fn show(workspace: &Workspace, brought: &Brought) -> Result<(), Fail> {
    let mut err = anstream::stderr().lock();
    let path = workspace.path();
    writeln!(err, "{} contains:", In(BOLD, path_line(path)))?;
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
        if let Some(file) = manifest.source.path() {
            let model = manifest.model.as_ref().map_or_else(String::new, |model| format!(", model {model}"));
            let line = format!("agent {}{model}: {} ({})", manifest.name, manifest.description, file.display());
            writeln!(err, "  {}", clip(&harmless(&line), 300))?;
        }
    }
    for line in brought.texts.lines() {
        writeln!(err, "  {}", clip(&harmless(&line), 300))?;
    }
    let problems = catalog.problems().iter().chain(brought.texts.problems());
    for problem in problems {
        let line = format!("{}: {}", problem.path.display(), problem.message);
        writeln!(err, "  {}", clip(&harmless(&line), 300))?;
    }
    // Last, next to the question: these run outside of a sandbox. What they run is not clipped.
    if let Some(text) = &brought.servers {
        writeln!(err, "  {}", mcp::FILE)?;
        for line in servers::lines(text) {
            writeln!(err, "    {}", exact(&line))?;
        }
    }
    Ok(())
}

fn list() -> Result<Code, Fail> {
    let mut out = anstream::stdout().lock();
    for entry in Record::all()? {
        let word = match (entry.trusted, entry.is_same()) {
            (true, true) => "trusted",
            (true, false) => "gone or replaced",
            (false, _) => "not trusted",
        };
        writeln!(out, "{word}  {}", path_line(Path::new(&entry.path)))?;
    }
    Ok(Code::Done)
}
