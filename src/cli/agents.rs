use std::io::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use subtend::config::Key;
use subtend_agents::catalog::{AgentProblem, Catalog, ProblemKind};
use subtend_agents::manifest::{AgentMode, Manifest, Source};
use subtend_session::ids::Text;
use subtend_session::settings::Settings;

use super::fail::{Code, Fail};
use super::notices::notices;
use super::paint::{BAD, BOLD, CAUTION, DIM, Styled, clip, count, fill};
use super::trust::Trust;
use super::work::{choice, setup};
use super::{guidance, servers, settings, workspace};
use crate::cli::json;

mod check;
mod commands;
mod detail;
mod lookup;
pub(crate) mod model;
pub(crate) mod prompt;
mod reload;
mod schema;

/// Lists the agents of a workspace: the built-in ones, those in `.subtend/agents/` and the profiles of subtend.yaml, with their
/// problems. With a name, shows one in full.
#[derive(clap::Args, Debug)]
#[command(args_conflicts_with_subcommands = true, subcommand_value_name = "COMMAND")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<AgentsCommand>,

    /// Agent to show in full
    name: Option<String>,

    /// Workspace whose agents apply
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum AgentsCommand {
    Check(check::Args),
    Commands(commands::CommandsArgs),
    Prompt(prompt::Args),
    Reload(reload::Args),
    Schema(schema::Args),
    Skills(commands::SkillsArgs),
}

#[derive(Serialize)]
struct AgentList<'a> {
    agents: Vec<AgentRow<'a>>,
    profiles: Vec<ProfileRow>,
    warnings: Vec<Warning>,
}

#[derive(Serialize)]
struct AgentRow<'a> {
    name: &'a Text,
    mode: AgentMode,
    source: String,
    replaces_builtin: bool,
    description: &'a Text,
    model: Option<&'a Text>,
    pool: Option<&'a Text>,
    settings: Settings,
    tools: Option<&'a Vec<Text>>,
    turns: Option<u32>,
    inspectable: bool,
    hidden: bool,
    pickable: bool,
    spawnable: bool,
}

#[derive(Serialize)]
struct ProfileRow {
    name: Text,
    source: String,
    description: String,
    agent: Option<Text>,
    tools: Vec<Text>,
    pool: Option<Text>,
}

#[derive(Serialize)]
struct Warning {
    path: String,
    refused: bool,
    message: String,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    match &args.command {
        Some(AgentsCommand::Check(check)) => return check::run(check),
        Some(AgentsCommand::Commands(args)) => return commands::commands(args),
        Some(AgentsCommand::Skills(args)) => return commands::skills(args),
        Some(AgentsCommand::Prompt(prompt)) => return prompt::run(prompt),
        Some(AgentsCommand::Reload(reload)) => return reload::run(reload),
        Some(AgentsCommand::Schema(schema)) => return schema::run(schema),
        None => {}
    }
    let workspace = workspace::open(&args.workspace)?;
    let trust = Trust::decide_and_warn(&workspace)?;
    let catalog = trust.catalog(&workspace)?;
    let agent = args.name.as_deref().map(|name| lookup::find_agent(&catalog, name)).transpose()?;
    let loaded = settings::load(&workspace, trust)?;
    let mut problems =
        model::problems(&catalog, &loaded, choice::variable().as_deref(), &setup::tools(&loaded.config)?);
    if let Some(agent) = agent {
        return detail::show(agent, &problems, args.json);
    }
    problems.extend_from_slice(guidance::instructions(&workspace, trust)?.problems());
    let skills = guidance::skills(&workspace, trust)?;
    problems.extend_from_slice(skills.problems());
    problems.extend(skills.missing(&catalog));
    problems.extend(servers::unknown_server_warnings(&catalog, (&workspace, trust), &loaded)?);
    let dialects = settings::dialects(&loaded, &workspace)?;
    let profile = |profile: &std::sync::Arc<subtend_agents::profile::Profile>| ProfileRow {
        name: profile.name.clone(),
        source: loaded.origin(&Key::from(["tools", "spawn", "profiles", &profile.name])).to_string(),
        description: profile.about(),
        agent: profile.agent.clone(),
        tools: profile.tools.clone(),
        pool: profile.pool.clone(),
    };
    let listing = AgentList {
        agents: catalog.all().map(|manifest| row(manifest)).collect(),
        profiles: dialects.profiles.all().map(profile).collect(),
        warnings: problems.iter().map(warning).collect(),
    };
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &listing)?;
        return Ok(Code::Done);
    }
    let agents = listing.agents.iter().map(|row| row.name.chars().count());
    let width = agents.chain(listing.profiles.iter().map(|row| row.name.chars().count())).max().unwrap_or(0);
    listing.agents.iter().try_for_each(|row| writeln!(out, "{}", line(row, width)))?;
    listing.profiles.iter().try_for_each(|row| writeln!(out, "{}", profile_line(row, width)))?;
    drop(out);
    settings::warn(&loaded)?;
    warn(&problems)
}

/// Prints problems of agent files on stderr.
pub(crate) fn warn(problems: &[AgentProblem]) -> Result<Code, Fail> {
    problems.iter().try_for_each(print_problem)?;
    Ok(Code::Done)
}

/// Prints problems of agent files for commands that do not list agents, with one line for those of other products.
pub(crate) fn warn_briefly(problems: &[AgentProblem]) -> Result<Code, Fail> {
    let (foreign, own): (Vec<_>, Vec<_>) = problems.iter().partition(|problem| problem.product.is_some());
    own.into_iter().try_for_each(print_problem)?;
    let refused = foreign.iter().filter(|problem| problem.kind == ProblemKind::Refused).count();
    if refused > 0 {
        let files = count(refused as u64, "agent file");
        let word = Styled(CAUTION, "warning");
        writeln!(notices(), "{word}: {files} of other products refused: `subtend agents` says why")?;
    }
    Ok(Code::Done)
}

fn print_problem(problem: &AgentProblem) -> Result<(), Fail> {
    let (style, word) = match problem.kind {
        ProblemKind::Refused => (BAD, "refused"),
        ProblemKind::Warning => (CAUTION, "warning"),
    };
    let path = problem.path.display().to_string();
    writeln!(notices(), "{}: {}: {}", Styled(style, word), clip(&path, 400), clip(&problem.message, 400))?;
    Ok(())
}

fn row(manifest: &Manifest) -> AgentRow<'_> {
    AgentRow {
        name: &manifest.name,
        mode: manifest.mode,
        source: source(&manifest.source),
        replaces_builtin: Catalog::replaces_builtin(manifest),
        description: &manifest.description,
        model: manifest.model.as_ref(),
        pool: manifest.pool.as_ref(),
        settings: manifest.settings,
        tools: manifest.tools.as_ref(),
        turns: manifest.turns,
        inspectable: manifest.inspectable,
        hidden: manifest.hidden,
        pickable: manifest.pickable(),
        spawnable: manifest.spawnable(),
    }
}

fn source(source: &Source) -> String {
    match source {
        Source::Builtin => "built in".to_owned(),
        Source::File(path) => path.display().to_string(),
        Source::Foreign(product, path) => format!("{}, {}", path.display(), product.name()),
        Source::Host => "host".to_owned(),
    }
}

fn warning(problem: &AgentProblem) -> Warning {
    Warning {
        path: problem.path.display().to_string(),
        refused: problem.kind == ProblemKind::Refused,
        message: problem.message.clone(),
    }
}

fn line(row: &AgentRow<'_>, width: usize) -> String {
    let mode = row.mode.as_str();
    format!(
        "{name}{pad}  {mode}{gap}  {description}  {source}",
        name = Styled(BOLD, row.name),
        pad = fill(row.name, width),
        gap = fill(mode, 8),
        description = clip(row.description, 100),
        source = Styled(DIM, format!("({}{})", clip(&row.source, 200), marks(row))),
    )
}

fn marks(row: &AgentRow<'_>) -> String {
    let marks = [(row.hidden, ", hidden"), (row.replaces_builtin, ", instead of the built-in one")];
    marks.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark).collect()
}

fn profile_line(row: &ProfileRow, width: usize) -> String {
    format!(
        "{name}{pad}  profile{gap}  {description}  {source}",
        name = Styled(BOLD, &row.name),
        pad = fill(&row.name, width),
        gap = fill("profile", 8),
        description = clip(&row.description, 100),
        source = Styled(DIM, format!("({})", clip(&row.source, 200))),
    )
}
