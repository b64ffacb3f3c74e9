use std::io::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use subtend_agents::catalog::Catalog;
use subtend_agents::lint::{Checked, FileContent, lint};
use subtend_agents::product::Product;
use subtend_session::ids::Text;

use super::super::fail::{Code, Fail};
use super::super::paint::{DIM, GOOD, Styled, clip, count};
use super::super::trust::Trust;
use super::super::work::setup;
use super::super::{settings, workspace};
use super::{Warning, guidance, model, print_problem, warning};
use crate::cli::json;

/// Checks files and folders: agents, skills (`SKILL.md`), slash commands, and instruction files such as `AGENTS.md`. The
/// exit code is 1 if one is refused.
///
/// Each file is read as a workspace would load it. Its content is printed; a part without effect is a warning. Rules may
/// name agents among these files, built-in agents, and agents of the current directory.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Files to check, and folders whose files are checked
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Product that the agent files are written for; by default derived from their folder, such as `.claude/agents`
    #[arg(long = "as", value_name = "PRODUCT")]
    product: Option<Format>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Products whose agent files are loaded.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Claude,
    Opencode,
    Codex,
}

impl Format {
    fn product(self) -> Product {
        match self {
            Self::Claude => Product::Claude,
            Self::Opencode => Product::OpenCode,
            Self::Codex => Product::Codex,
        }
    }
}

#[derive(Serialize)]
struct CheckReport {
    sound: bool,
    files: Vec<File>,
}

#[derive(Serialize)]
struct File {
    path: String,
    /// Kind of the file: `agent`, `skill`, `command` or `instructions`; absent if it is refused or unused.
    gives: Option<&'static str>,
    /// Name of the agent that it defines.
    agent: Option<Text>,
    /// Name of the skill or the slash command that it defines.
    name: Option<Text>,
    /// Paths that it imports.
    imports: Vec<String>,
    problems: Vec<Warning>,
}

impl File {
    fn from_checked(file: &Checked) -> Self {
        let (gives, name, imports) = match &file.content {
            None => (None, None, Vec::new()),
            Some(FileContent::Agent(_)) => (Some("agent"), None, Vec::new()),
            Some(FileContent::Skill(skill)) => (Some("skill"), Some(skill.name.clone()), Vec::new()),
            Some(FileContent::Command(command)) => (Some("command"), Some(command.name.clone()), Vec::new()),
            Some(FileContent::Instructions(files)) => {
                let imports = files.iter().skip(1).map(|path| path.display().to_string());
                (Some("instructions"), None, imports.collect())
            }
        };
        let agent = file.agent().map(|agent| agent.name.clone());
        let problems = file.problems.iter().map(warning).collect();
        Self { path: file.path.display().to_string(), gives, agent, name, imports, problems }
    }

    /// Returns a description of the file's content.
    fn line(&self) -> Option<String> {
        let name = || clip(self.name.as_deref().unwrap_or_default(), 160);
        match self.gives? {
            "skill" => Some(format!("skill {}", name())),
            "command" => Some(format!("command /{}", name())),
            "instructions" if self.imports.is_empty() => Some("instructions".to_owned()),
            "instructions" => {
                let imports: Vec<String> = self.imports.iter().map(|path| clip(path, 200)).collect();
                Some(format!("instructions, with {}", imports.join(", ")))
            }
            _ => self.agent.as_deref().map(str::to_owned),
        }
    }
}

pub(super) fn run(args: &Args) -> Result<Code, Fail> {
    let here = workspace::open(std::path::Path::new("."))?;
    let product = args.product.map(Format::product);
    let mut checked = lint(&args.paths, product, &Catalog::load(here.path()), &guidance::read_in_folder);
    let tools = setup::tools(&settings::load(&here, Trust::decide(&here)?)?.config)?;
    for file in &mut checked {
        let missing = file.agent().map(|agent| model::missing_tools(agent, &tools));
        file.problems.extend(missing.into_iter().flatten());
    }
    let refused = checked.iter().filter(|file| file.is_refused()).count();
    let sound = refused == 0;
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &CheckReport { sound, files: checked.iter().map(File::from_checked).collect() })?;
        return Ok(if sound { Code::Done } else { Code::Failed });
    }
    for file in &checked {
        if let Some(given) = File::from_checked(file).line() {
            let path = clip(&file.path.display().to_string(), 400);
            writeln!(out, "{} {given} {}", Styled(GOOD, "✓"), Styled(DIM, format!("({path})")))?;
        }
    }
    drop(out);
    checked.iter().flat_map(|file| &file.problems).try_for_each(print_problem)?;
    let mut err = anstream::stderr().lock();
    writeln!(err, "{} checked, {refused} refused", count(checked.len() as u64, "file"))?;
    Ok(if sound { Code::Done } else { Code::Failed })
}
