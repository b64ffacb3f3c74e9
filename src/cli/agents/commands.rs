use std::io::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use subtend_agents::catalog::AgentProblem;
use subtend_session::ids::Text;

use super::super::fail::{Code, Fail};
use super::super::paint::{BOLD, DIM, Styled, clip, fill, harmless, on_one_line};
use super::super::trust::Trust;
use super::super::{guidance, workspace};
use super::{Warning, warn, warning};
use crate::cli::json;

/// Lists the slash commands of a workspace: files of `.subtend/commands`, `.claude/commands`, `.opencode/commands` and
/// `.codex/prompts`, your own, and skills. With a name, prints the prompt that the command expands to.
#[derive(clap::Args, Debug)]
pub(crate) struct CommandsArgs {
    /// Command whose prompt is printed
    name: Option<String>,

    /// Arguments of the command
    #[arg(requires = "name", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,

    /// Workspace whose commands apply
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Lists the skills of a workspace and your own: folders with a `SKILL.md`, in `.subtend/skills`, `.agents/skills`,
/// `.claude/skills` and the skill folders of other products.
#[derive(clap::Args, Debug)]
pub(crate) struct SkillsArgs {
    /// Workspace whose skills apply
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct FileList<'a> {
    files: Vec<FileRow<'a>>,
    warnings: Vec<Warning>,
}

#[derive(Serialize)]
struct FileRow<'a> {
    name: &'a Text,
    argument_hint: Option<&'a Text>,
    description: &'a Text,
    source: String,
}

pub(super) fn commands(args: &CommandsArgs) -> Result<Code, Fail> {
    let workspace = workspace::open(&args.workspace)?;
    let commands = guidance::commands(&workspace, Trust::decide_and_warn(&workspace)?)?;
    if let Some(name) = &args.name {
        let command = commands.get(name.trim_start_matches('/')).ok_or_else(|| {
            let known: Vec<&str> = commands.all().map(|command| &*command.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Fail::Usage(format!("unknown command `{}`; known commands: {known}", harmless(name)))
        })?;
        let expanded = command.expand(&args.arguments.join(" ")).map_err(|error| Fail::Usage(error.to_string()))?;
        writeln!(anstream::stdout(), "{}", harmless(&expanded.text))?;
        for note in &expanded.notes {
            writeln!(anstream::stderr(), "{}: {}", Styled(super::CAUTION, "warning"), on_one_line(note))?;
        }
        return Ok(Code::Done);
    }
    let rows = commands.all().map(|command| FileRow {
        name: &command.name,
        argument_hint: command.argument_hint.as_ref(),
        description: &command.description,
        source: command.path.display().to_string(),
    });
    list("commands", rows.collect(), commands.problems(), args.json)
}

pub(super) fn skills(args: &SkillsArgs) -> Result<Code, Fail> {
    let workspace = workspace::open(&args.workspace)?;
    let skills = guidance::skills(&workspace, Trust::decide_and_warn(&workspace)?)?;
    let rows = skills.all().map(|skill| FileRow {
        name: &skill.name,
        argument_hint: skill.argument_hint.as_ref(),
        description: &skill.description,
        source: skill.folder.display().to_string(),
    });
    list("skills", rows.collect(), skills.problems(), args.json)
}

fn list(what: &str, files: Vec<FileRow<'_>>, problems: &[AgentProblem], machine: bool) -> Result<Code, Fail> {
    let mut out = anstream::stdout().lock();
    if machine {
        json::write_line(&mut out, &FileList { files, warnings: problems.iter().map(warning).collect() })?;
        return Ok(Code::Done);
    }
    let shown = |row: &FileRow<'_>| match row.argument_hint {
        Some(hint) => format!("{} {}", row.name, clip(hint, 60)),
        None => row.name.to_string(),
    };
    let width = files.iter().map(|row| shown(row).chars().count()).max().unwrap_or(0);
    for row in &files {
        let name = shown(row);
        let (pad, about) = (fill(&name, width), clip(row.description, 100));
        let source = Styled(DIM, format!("({})", clip(&row.source, 200)));
        writeln!(out, "{}{pad}  {about}  {source}", Styled(BOLD, &name))?;
    }
    drop(out);
    if files.is_empty() {
        writeln!(anstream::stderr(), "no {what}: `subtend agents {what} --help` names the folders that are read")?;
    }
    warn(problems)
}
