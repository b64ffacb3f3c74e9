//! `subtend agents`: which agents a workspace has.

use std::io::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use subtend_agents::catalog::{Catalog, ProblemKind};
use subtend_agents::manifest::{AgentMode, Manifest, Source};
use subtend_session::ids::Text;
use subtend_session::settings::Settings;

use super::fail::{Code, Fail};
use super::paint::{BAD, BOLD, DIM, In, ODD, clip, fill};

/// Lists the agents of a workspace: the built-in ones and those in `.subtend/agents/`, with what is wrong with their files.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Workspace whose agents count
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listing<'a> {
    agents: Vec<Row<'a>>,
    warnings: Vec<Warning>,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a Text,
    mode: AgentMode,
    source: String,
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
struct Warning {
    path: String,
    refused: bool,
    message: String,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let catalog = Catalog::load(super::workspace::open(&args.workspace)?.path());
    let listing = Listing {
        agents: catalog.all().map(|manifest| row(manifest)).collect(),
        warnings: catalog.problems().iter().map(warning).collect(),
    };
    let mut out = anstream::stdout().lock();
    if args.json {
        serde_json::to_writer(&mut out, &listing)?;
        writeln!(out)?;
        return Ok(Code::Done);
    }
    let width = listing.agents.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    listing.agents.iter().try_for_each(|row| writeln!(out, "{}", line(row, width)))?;
    drop(out);
    warn(&catalog)
}

/// Tells on stderr what is wrong with agent files.
pub(crate) fn warn(catalog: &Catalog) -> Result<Code, Fail> {
    let mut err = anstream::stderr().lock();
    for problem in catalog.problems() {
        let (style, word) = match problem.kind {
            ProblemKind::Refused => (BAD, "refused"),
            ProblemKind::Warning => (ODD, "warning"),
        };
        let path = problem.path.display().to_string();
        writeln!(err, "{}: {}: {}", In(style, word), clip(&path, 400), clip(&problem.message, 400))?;
    }
    Ok(Code::Done)
}

fn row(manifest: &Manifest) -> Row<'_> {
    Row {
        name: &manifest.name,
        mode: manifest.mode,
        source: source(&manifest.source),
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
        Source::Host => "host".to_owned(),
    }
}

fn warning(problem: &subtend_agents::catalog::Problem) -> Warning {
    Warning {
        path: problem.path.display().to_string(),
        refused: problem.kind == ProblemKind::Refused,
        message: problem.message.clone(),
    }
}

fn line(row: &Row<'_>, width: usize) -> String {
    let mode = row.mode.word();
    format!(
        "{name}{pad}  {mode}{gap}  {description}  {source}",
        name = In(BOLD, row.name),
        pad = fill(row.name, width),
        gap = fill(mode, 8),
        description = clip(row.description, 100),
        source = In(DIM, format!("({}{})", clip(&row.source, 200), if row.hidden { ", hidden" } else { "" })),
    )
}
