//! `subtend agents check`: agent files, before they are used.

use std::io::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use subtend_agents::catalog::Catalog;
use subtend_agents::lint::{Checked, lint};
use subtend_agents::product::Product;
use subtend_session::ids::Text;

use super::super::fail::{Code, Fail};
use super::super::paint::{DIM, GOOD, In, clip, count};
use super::super::work::setup;
use super::super::workspace;
use super::{Warning, model, tell, warning};
use crate::cli::json;

/// Checks agent files, and those in folders; the exit code is 1 if one is refused.
///
/// Rules may name agents among these files, built-in agents, and agents of the current directory.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Files, and folders in which every agent file is checked
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Product whose files they are; by default their folder says it, such as `.claude/agents`
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
    /// The agent that it gives; absent where it is refused.
    agent: Option<Text>,
    problems: Vec<Warning>,
}

pub(super) fn verb(args: &Args) -> Result<Code, Fail> {
    let here = workspace::open(std::path::Path::new("."))?;
    let mut checked = lint(&args.paths, args.product.map(Format::product), &Catalog::load(here.path()));
    let tools = setup::tools()?;
    for file in &mut checked {
        let missing = file.agent.as_ref().map(|agent| model::missing_tools(agent, &tools));
        file.problems.extend(missing.into_iter().flatten());
    }
    let refused = checked.iter().filter(|file| file.is_refused()).count();
    let sound = refused == 0;
    let mut out = anstream::stdout().lock();
    if args.json {
        let file = |file: &Checked| File {
            path: file.path.display().to_string(),
            agent: file.agent.as_ref().map(|agent| agent.name.clone()),
            problems: file.problems.iter().map(warning).collect(),
        };
        json::write(&mut out, &CheckReport { sound, files: checked.iter().map(file).collect() })?;
        writeln!(out)?;
        return Ok(if sound { Code::Done } else { Code::Failed });
    }
    for file in &checked {
        if let Some(agent) = &file.agent {
            let path = clip(&file.path.display().to_string(), 400);
            writeln!(out, "{} {} {}", In(GOOD, "✓"), agent.name, In(DIM, format!("({path})")))?;
        }
    }
    drop(out);
    checked.iter().flat_map(|file| &file.problems).try_for_each(tell)?;
    let mut err = anstream::stderr().lock();
    writeln!(err, "{} checked, {refused} refused", count(checked.len() as u64, "file"))?;
    Ok(if sound { Code::Done } else { Code::Failed })
}
