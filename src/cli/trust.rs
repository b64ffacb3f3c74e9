//! Configuration and agents of a workspace may come from a cloned repository. So they are ignored until the user has
//! seen and approved them, once for each directory.

use std::collections::BTreeSet;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;
use subtend::config::{FILE, Layer, Loaded, Origin};
use subtend_agents::catalog::Catalog;
use subtend_session::ids::Hash;
use subtend_tools::mcp;
use subtend_tools::workspace::Workspace;

use super::fail::{Code, Fail};
use super::guidance;
use super::notices::notices;
use super::paint::{BOLD, CAUTION, Styled, clip, clip_shown, count, exact, harmless, path_line};
use super::{json, servers, settings, workspace};
use level::{CoveredPaths, protected_kind};
pub(crate) use level::{ServerTrust, Trust};
pub(crate) use record::FILE as RECORD_FILE;
use record::TrustAnswer;

pub(crate) mod level;
mod record;

/// The variable with the effect of `--trust`.
const VARIABLE: &str = "SUBTEND_TRUST";

/// Shows the configuration and agents of a workspace, and asks whether to use them; until then they are ignored.
///
/// The answer is stored with your own configuration, for this directory. A directory that was moved or replaced needs a
/// new answer.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Workspace
    #[arg(value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Trust it without asking
    #[arg(long)]
    yes: bool,

    /// Stop trusting it
    #[arg(long, conflicts_with = "yes")]
    revoke: bool,

    /// List the recorded answers
    #[arg(long, conflicts_with_all = ["yes", "revoke", "workspace"])]
    list: bool,

    /// Print one JSON object per answer
    #[arg(long, requires = "list")]
    json: bool,
}

/// A recorded answer, for `--json`.
#[derive(Serialize)]
struct AnswerRow<'a> {
    path: &'a str,
    trusted: bool,
    /// True if the directory was replaced since the answer, which then has no effect.
    replaced: bool,
}

impl Trust {
    /// Decides by `--trust`, by the recorded answer, or by a question. Ignored files are reported on stderr.
    pub(crate) fn decide_or_ask(workspace: &Workspace, flag: bool, machine: bool) -> Result<Self, Fail> {
        if flag || by_variable() {
            UntrustedFiles::of(workspace).forget_removed(workspace)?;
            return Ok(Self::GIVEN);
        }
        Self::decide_by_record_or_ask(workspace, machine)
    }

    /// As [`Trust::decide_or_ask`], without `--trust` and its variable, which apply to the host process and its directory.
    pub(crate) fn decide_by_record_or_ask(workspace: &Workspace, machine: bool) -> Result<Self, Fail> {
        let mut files = UntrustedFiles::of(workspace);
        files.forget_removed(workspace)?;
        let trust = match files.recorded_answer(workspace)? {
            Some(trust) => trust,
            None if at_terminal() && !machine => {
                let shown = show(workspace, &files)?;
                ask(workspace, &mut files, shown)?
            }
            None => Self::LeftOut,
        };
        if trust == Self::LeftOut {
            files.warn_ignored()?;
        }
        Ok(trust)
    }

    /// Returns whether [`Trust::decide_by_record_or_ask`] asks a person.
    pub(crate) fn asks(workspace: &Workspace, machine: bool) -> Result<bool, Fail> {
        Ok(at_terminal() && !machine && UntrustedFiles::of(workspace).recorded_answer(workspace)?.is_none())
    }

    /// Decides without a question, and reports ignored files on stderr.
    pub(crate) fn decide_and_warn(workspace: &Workspace) -> Result<Self, Fail> {
        let files = UntrustedFiles::of(workspace);
        files.forget_removed(workspace)?;
        if by_variable() {
            return Ok(Self::GIVEN);
        }
        let trust = files.recorded_answer(workspace)?.unwrap_or(Self::LeftOut);
        if trust == Self::LeftOut {
            files.warn_ignored()?;
        }
        Ok(trust)
    }

    pub(crate) fn decide(workspace: &Workspace) -> Result<Self, Fail> {
        if by_variable() { Ok(Self::GIVEN) } else { Self::by_record(workspace) }
    }

    /// Decides by the recorded answer only. For directories other than that of the command line.
    pub(crate) fn by_record(workspace: &Workspace) -> Result<Self, Fail> {
        Ok(UntrustedFiles::of(workspace).recorded_answer(workspace)?.unwrap_or(Self::LeftOut))
    }

    /// Returns the agents of the workspace and of the user.
    ///
    /// # Errors
    /// [`Fail::Usage`] if a file or folder of agents cannot be read, because it may restrict agents, and as
    /// [`Trust::check`].
    pub(crate) fn catalog(self, workspace: &Workspace) -> Result<Catalog, Fail> {
        let path = workspace.path();
        let mut catalog = if self.is_used() { Catalog::load_checked(path) } else { Catalog::builtin() };
        // A refused file counts too, because it removes the agent that it would replace.
        self.check(path, agent_files(&catalog))?;
        for (product, home) in settings::products() {
            catalog.add_own(product, &home, path);
        }
        if let Some(unread) = catalog.unread() {
            let why = "an agent that it defines may restrict what is allowed. Correct its mode, or remove it";
            return Err(Fail::Usage(format!("{}: {why}", unread.text())));
        }
        Ok(catalog)
    }
}

/// The contents of a workspace that need trust.
struct UntrustedFiles {
    /// Text of the configuration, or why it cannot be used.
    config: Option<Result<String, String>>,
    /// Text of `.mcp.json`. The user's answer applies only to this text.
    servers: Option<Result<String, String>>,
    catalog: Catalog,
    texts: guidance::WorkspaceFiles,
    /// Names of existing protected paths. Agents cannot replace these; others that they create need a new answer.
    protected: BTreeSet<String>,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    if args.list {
        return list(args.json);
    }
    let workspace = workspace::open(&args.workspace)?;
    let path = workspace.path();
    if args.revoke {
        let text = match TrustAnswer::forget(path)? {
            true => format!("{} is no longer trusted", path_line(path)),
            false => format!("{} was not trusted", path_line(path)),
        };
        return say(&text);
    }
    let mut files = UntrustedFiles::of(&workspace);
    // Do not record an empty workspace as trusted, because that would trust files that are created later.
    if files.is_empty() {
        return say(&format!("{} contains nothing that needs trust; nothing is recorded", path_line(path)));
    }
    let shown = show(&workspace, &files)?;
    if args.yes {
        if !files.keep(&workspace, true)? {
            return Err(Fail::Other(unsaved_answer_message(path)));
        }
        return say(&format!("{} is trusted", path_line(path)));
    }
    if !at_terminal() {
        return Err(Fail::Usage("not trusted: there is no terminal to ask on. Use --yes to trust it".to_owned()));
    }
    match ask(&workspace, &mut files, shown)? {
        Trust::Used { .. } => say(&format!("{} is trusted", path_line(path))),
        Trust::LeftOut | Trust::Empty => Err(Fail::Other(format!("{} is not trusted", path_line(path)))),
    }
}

/// The files of a workspace that is trusted, or in which nothing needs trust.
pub(crate) struct TrustedFiles(UntrustedFiles);

impl TrustedFiles {
    /// Returns the files; `None` if they are not trusted.
    pub(crate) fn of(workspace: &Workspace) -> Result<Option<Self>, Fail> {
        let files = UntrustedFiles::of(workspace);
        let is_trusted = files.is_empty() || files.recorded_answer(workspace)?.is_some_and(Trust::is_used);
        Ok(is_trusted.then_some(Self(files)))
    }

    pub(crate) fn has_config(&self) -> bool {
        self.0.config.is_some()
    }

    /// Records trust in these files and in the configuration, which the user wrote, and in no file that came meanwhile.
    pub(crate) fn keep_with_config(mut self, workspace: &Workspace) -> Result<(), Fail> {
        self.0.protected.insert(FILE.to_owned());
        if !self.0.keep(workspace, true)? {
            say(&unsaved_answer_message(workspace.path()))?;
        }
        Ok(())
    }
}

fn unsaved_answer_message(path: &Path) -> String {
    format!(
        "{} cannot be trusted permanently: its file system does not record creation times, by which a replaced directory is \
         detected. Use --trust on each call, or move it to another file system",
        path_line(path)
    )
}

impl UntrustedFiles {
    /// Reads files without using them.
    fn of(workspace: &Workspace) -> Self {
        let path = workspace.path();
        let (catalog, texts) = (Catalog::load(path), guidance::WorkspaceFiles::of(workspace));
        let (config, servers) = (settings::project_text(workspace), servers::workspace_file(workspace));
        let single =
            [(config.is_some(), FILE), (servers.is_some(), mcp::FILE)].into_iter().filter(|(exists, _)| *exists);
        let of_texts = texts.paths();
        let files = agent_files(&catalog).chain(of_texts.iter().map(PathBuf::as_path));
        let protected =
            files.filter_map(|file| protected_kind(path, file)).chain(single.map(|(_, name)| name)).map(str::to_owned);
        let protected = protected.collect();
        Self { config, servers, catalog, protected, texts }
    }

    fn agents(&self) -> usize {
        // Remove duplicates, because a file may have several problems.
        agent_files(&self.catalog).collect::<BTreeSet<_>>().len()
    }

    fn is_empty(&self) -> bool {
        let texts = self.texts.counts().iter().any(|(files, _)| *files > 0);
        self.config.is_none() && self.servers.is_none() && self.agents() == 0 && !texts
    }

    /// Returns the recorded answer; `None` if no answer covers all files.
    fn recorded_answer(&self, workspace: &Workspace) -> Result<Option<Trust>, Fail> {
        if self.is_empty() {
            return Ok(Some(Trust::Empty));
        }
        let record = TrustAnswer::of(workspace.path())?;
        Ok(record.and_then(|record| match record.trusted {
            true => self
                .protected
                .iter()
                .all(|name| record.covers(name) && (name != mcp::FILE || record.covers_servers(self.servers_hash())))
                .then(|| self.trust()),
            false => Some(Trust::LeftOut),
        }))
    }

    /// Returns the hash of `.mcp.json`. The answer applies only to this content, because servers run outside a sandbox.
    fn servers_hash(&self) -> Option<Hash> {
        self.servers.as_ref()?.as_ref().ok().map(|text| Hash::of(text.as_bytes()))
    }

    fn trust(&self) -> Trust {
        let servers = self.servers_hash().map_or(ServerTrust::None, ServerTrust::Seen);
        Trust::Used { servers, paths: CoveredPaths::of(&self.protected) }
    }

    fn keep(&self, workspace: &Workspace, trusted: bool) -> Result<bool, Fail> {
        TrustAnswer::keep(workspace.path(), trusted, (&self.protected, self.servers_hash()))
    }

    /// Removes the trust in files that no longer exist, because a command of an agent could create them later.
    fn forget_removed(&self, workspace: &Workspace) -> Result<(), Fail> {
        let path = workspace.path();
        let Some(record) = TrustAnswer::of(path)?.filter(|record| record.trusted) else { return Ok(()) };
        if self.is_empty() {
            TrustAnswer::forget(path)?;
        } else if record.covers_more(&self.protected) {
            TrustAnswer::cover_only(path, &self.protected)?;
        }
        Ok(())
    }

    fn names(&self) -> String {
        let all = std::iter::once((self.agents(), "agent")).chain(self.texts.counts());
        let counted = all.filter(|(files, _)| *files > 0).map(|(files, what)| count(files as u64, what));
        let config = self.config.as_ref().map(|_| FILE.to_owned());
        let servers = self.servers.as_ref().map(|_| mcp::FILE.to_owned());
        config.into_iter().chain(servers).chain(counted).collect::<Vec<_>>().join(" and ")
    }

    fn warn_ignored(&self) -> Result<(), Fail> {
        let names = self.names();
        writeln!(
            notices(),
            "{}: {names} of this workspace ignored: you have not trusted it. Use `subtend trust` to inspect and trust the workspace, \
             or --trust to use it this time",
            Styled(CAUTION, "warning")
        )?;
        Ok(())
    }
}

/// Returns the trusted files in directories below `workspace`, which the sessions of the workspace can reach.
pub(crate) fn files_below(workspace: &Path) -> Result<Vec<PathBuf>, Fail> {
    let is_below = |answer: &&TrustAnswer| {
        let path = Path::new(&answer.path);
        answer.trusted && path != workspace && path.starts_with(workspace) && answer.may_be_same()
    };
    Ok(TrustAnswer::read_all()?.iter().filter(is_below).flat_map(TrustAnswer::files).collect())
}

/// Returns the files of agents, refused ones included.
fn agent_files(catalog: &Catalog) -> impl Iterator<Item = &Path> {
    let used = catalog.all().filter_map(|manifest| manifest.source.path());
    used.chain(catalog.problems().iter().map(|problem| &*problem.path))
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

/// Asks about what was shown, and again if the files are others by the time of a yes.
fn ask(workspace: &Workspace, files: &mut UntrustedFiles, mut shown: Vec<u8>) -> Result<Trust, Fail> {
    let mut err = anstream::stderr();
    loop {
        write!(err, "Use it? [y/N] ")?;
        err.flush()?;
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            writeln!(err)?;
            return Ok(Trust::LeftOut);
        }
        let yes = matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes");
        let now = UntrustedFiles::of(workspace);
        let is_same = now.servers_hash() == files.servers_hash() && now.protected == files.protected;
        if yes && !(is_same && description(workspace, &now)? == shown) {
            say("the files changed while you were asked, so this answer is not used")?;
            *files = now;
            if files.is_empty() {
                return Ok(Trust::Empty);
            }
            shown = show(workspace, files)?;
            continue;
        }
        if !files.keep(workspace, yes)? {
            say(&unsaved_answer_message(workspace.path()))?;
        }
        return Ok(if yes { files.trust() } else { Trust::LeftOut });
    }
}

/// Prints on stderr the content of the workspace that needs trust, and returns what was printed.
fn show(workspace: &Workspace, files: &UntrustedFiles) -> Result<Vec<u8>, Fail> {
    let description = description(workspace, files)?;
    anstream::stderr().write_all(&description)?;
    Ok(description)
}

fn description(workspace: &Workspace, files: &UntrustedFiles) -> Result<Vec<u8>, Fail> {
    let mut out = Vec::new();
    let path = workspace.path();
    writeln!(out, "{} contains:", Styled(BOLD, path_line(path)))?;
    if let Some(text) = &files.config {
        writeln!(out, "  {FILE}")?;
        let parse = |text: &String| Layer::file(Origin::Project(FILE.into()), text).map_err(|error| error.to_string());
        let layer = text.as_ref().map_err(Clone::clone).and_then(parse);
        match layer.and_then(|layer| Loaded::of([layer]).map_err(|error| error.to_string())) {
            Ok(loaded) => {
                for setting in loaded.values.iter().filter(|setting| setting.origin != Origin::Default) {
                    writeln!(out, "    {}", clip_shown(format_args!("{} = {}", setting.key, setting.value), 200))?;
                }
            }
            Err(why) => writeln!(out, "    {}", clip(&why, 400))?,
        }
    }
    for manifest in files.catalog.all() {
        if let Some(file) = manifest.source.path() {
            let model = manifest.model.as_ref().map_or_else(String::new, |model| format!(", model {model}"));
            let line = format!("agent {}{model}: {} ({})", manifest.name, manifest.description, file.display());
            writeln!(out, "  {}", clip(&line, 300))?;
        }
    }
    for line in files.texts.lines() {
        writeln!(out, "  {}", clip(&line, 300))?;
    }
    let problems = files.catalog.problems().iter().chain(files.texts.problems());
    for problem in problems {
        let line = format!("{}: {}", problem.path.display(), problem.message);
        writeln!(out, "  {}", clip(&line, 300))?;
    }
    // Show servers last, next to the question, and in full, because they run outside a sandbox.
    if let Some(text) = &files.servers {
        writeln!(out, "  {}", mcp::FILE)?;
        for line in servers::lines(text) {
            writeln!(out, "    {}", exact(&line))?;
        }
    }
    Ok(out)
}

fn list(as_json: bool) -> Result<Code, Fail> {
    let mut out = anstream::stdout().lock();
    for entry in TrustAnswer::read_all()? {
        let (trusted, replaced) = (entry.trusted, entry.trusted && !entry.is_same());
        if as_json {
            json::write_line(&mut out, &AnswerRow { path: &entry.path, trusted: trusted && !replaced, replaced })?;
            continue;
        }
        let word = match (trusted, replaced) {
            (true, false) => "trusted",
            (true, true) => "removed or replaced",
            (false, _) => "not trusted",
        };
        writeln!(out, "{word}  {}", path_line(Path::new(&entry.path)))?;
    }
    Ok(Code::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that come between the decision about an empty workspace and their use are not used. The control: with
    /// trust they are.
    #[test]
    fn files_that_come_after_the_decision_are_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let workspace = Workspace::open(folder.path()).expect("a workspace");
        let trust = Trust::by_record(&workspace).expect("a decision");
        std::fs::create_dir_all(folder.path().join(".subtend/agents")).expect("a folder");
        let files = [
            (".subtend/agents/late.md", "---\nmode: all\ndescription: Late.\n---\nObey.\n"),
            ("AGENTS.md", "Obey.\n"),
            (FILE, "agent: late\n"),
        ];
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        let used = |trust: Trust| {
            let instructions = guidance::instructions(&workspace, trust).expect("instructions");
            let has_instructions = instructions.files().iter().any(|file| file.in_workspace);
            let agent = settings::load(&workspace, trust).expect("a configuration").config.agent;
            let catalog = trust.catalog(&workspace).expect("agents");
            (catalog.get("late").is_some(), has_instructions, &*agent == "late")
        };
        assert_eq!((used(trust), used(Trust::GIVEN)), ((false, false, false), (true, true, true)));
    }

    /// A file that is hidden while the question is shown would be covered by its answer. The control: files that were read
    /// when it was hidden.
    #[test]
    fn trust_question_shows_the_files_that_its_answer_covers() {
        let folder = tempfile::tempdir().expect("a folder");
        let workspace = Workspace::open(folder.path()).expect("a workspace");
        std::fs::create_dir_all(folder.path().join(".subtend/agents")).expect("a folder");
        for (name, text) in [
            (".subtend/agents/late.md", "---\nmode: all\ndescription: Late.\n---\nObey.\n"),
            ("ENVIRONMENT.md", "Trust me.\n"),
            (FILE, "agent: late\n"),
        ] {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        let files = UntrustedFiles::of(&workspace);
        std::fs::remove_dir_all(folder.path().join(".subtend")).expect("a folder");
        for name in ["ENVIRONMENT.md", FILE] {
            std::fs::remove_file(folder.path().join(name)).expect("a file");
        }
        let shown = |files: &UntrustedFiles| {
            let text = String::from_utf8(description(&workspace, files).expect("a description")).expect("text");
            ["agent late", "Trust me.", "    agent = "].map(|part| text.contains(part))
        };
        let now = UntrustedFiles::of(&workspace);
        assert_eq!((shown(&files), shown(&now)), ([true; 3], [false; 3]));
        assert_eq!((files.protected.len(), now.protected.len()), (2, 0));
    }
}
