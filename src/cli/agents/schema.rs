use std::io::Write as _;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use serde::Serialize;
use serde_json::Value;
use subtend_actors::profiles;
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;

use super::super::fail::{Code, Fail};
use super::super::paint::{BOLD, CAUTION, Styled, harmless};
use super::super::trust::Trust;
use super::super::{settings, workspace};
use crate::cli::json;

/// Prints the tools of a dialect: each with its description and the JSON Schema of its parameters.
///
/// A dialect is a family of tools by which a model starts other agents. The schemas name the agents, profiles and templates of the
/// workspace; permissions of a session can hide some of them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Dialect
    #[arg(value_parser = PossibleValuesParser::new(Dialect::ALL.map(Dialect::name)).try_map(|name| parse_dialect(&name)))]
    dialect: Dialect,

    /// Workspace whose agents and configuration apply
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct DialectSchema<'a> {
    dialect: &'static str,
    enabled: bool,
    tools: Vec<ToolRow<'a>>,
}

#[derive(Serialize)]
struct ToolRow<'a> {
    name: &'a Text,
    /// True if the tool is for a child of the dialect, and not for the session that starts the child.
    of_child: bool,
    description: &'a Text,
    schema: &'a Value,
}

fn parse_dialect(name: &str) -> Result<Dialect, String> {
    Dialect::from_name(name).ok_or_else(|| format!("unknown dialect `{name}`"))
}

fn row(spec: &ToolSpec, of_child: bool) -> ToolRow<'_> {
    let ToolSpec { name, description, schema } = spec;
    ToolRow { name, of_child, description, schema }
}

pub(super) fn run(args: &Args) -> Result<Code, Fail> {
    let workspace = workspace::open(&args.workspace)?;
    let trust = Trust::decide_and_warn(&workspace)?;
    let catalog = trust.catalog(&workspace)?;
    let dialects = settings::dialects(&settings::load(&workspace, trust)?, &workspace)?;
    let (dialect, enabled) = (args.dialect.name(), dialects.offered().contains(&args.dialect));
    let (own, of_child) = profiles::tools_of(args.dialect, &catalog, &dialects);
    let all = own.iter().map(|spec| (spec, false)).chain(of_child.iter().map(|spec| (spec, true)));
    let listing = DialectSchema { dialect, enabled, tools: all.map(|(spec, of_child)| row(spec, of_child)).collect() };
    let mut out = anstream::stdout().lock();
    if args.json {
        json::write_line(&mut out, &listing)?;
        return Ok(Code::Done);
    }
    for (at, tool) in listing.tools.iter().enumerate() {
        let (gap, of) = (if at > 0 { "\n" } else { "" }, if tool.of_child { " (of the child)" } else { "" });
        writeln!(out, "{gap}{}{of}\n\n{}\n", Styled(BOLD, tool.name), harmless(tool.description))?;
        writeln!(out, "{}", harmless(&serde_json::to_string_pretty(tool.schema)?))?;
    }
    drop(out);
    if !enabled {
        let (note, key) = (Styled(CAUTION, "note"), format!("tools.{dialect}.enabled"));
        writeln!(
            anstream::stderr(),
            "{note}: `{dialect}` is not enabled here; `subtend config set {key} true` enables it"
        )?;
    }
    Ok(Code::Done)
}
