//! `subtend prompt`: what a session's model is told before it begins.

use std::io::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use subtend_actors::profiles::{self, Caller};
use subtend_agents::catalog::{Catalog, Problem, ProblemKind};
use subtend_agents::dialect::Dialects;
use subtend_agents::manifest::Manifest;
use subtend_agents::prompt::{Assembled, Parts, assemble};
use subtend_session::authority::Authority;
use subtend_session::ids::Text;
use subtend_session::near::unknown_agent;
use subtend_tools::policy::HostPolicy;
use subtend_tools::workspace::Workspace;

use super::fail::{Code, Fail};
use super::paint::{In, ODD, harmless};
use super::trust::Trust;
use super::work::hub;
use super::{settings, workspace};
use crate::cli::json;

/// Prints the system prompt of a session: exactly what its model sees.
///
/// That is the prompt of a root session of the agent; with --profile, that of a child which a session of the agent starts by
/// `spawn` under that profile.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Agent of the session
    agent: String,

    /// Profile of `tools.spawn.profiles` in subtend.yaml
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    /// Workspace whose agents and configuration count
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    agent: &'a Text,
    profile: Option<&'a str>,
    system: &'a Text,
    warnings: &'a [String],
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let workspace = workspace::open(&args.workspace)?;
    let trust = Trust::told(&workspace)?;
    let catalog = trust.catalog(&workspace);
    let dialects = settings::dialects(&settings::load(&workspace, trust)?, &workspace)?;
    let manifest = agent(&catalog, &args.agent)?;
    let assembled = match &args.profile {
        Some(profile) => child(profile, manifest, &catalog, &dialects, &workspace)?,
        None => root(manifest, &catalog, &dialects)?,
    };
    let mut out = anstream::stdout().lock();
    if args.json {
        let Assembled { system, warnings, .. } = &assembled;
        let shown = Shown { agent: &manifest.name, profile: args.profile.as_deref(), system, warnings };
        json::write(&mut out, &shown)?;
        writeln!(out)?;
        return Ok(Code::Done);
    }
    writeln!(out, "{}", harmless(&assembled.system))?;
    drop(out);
    let mut err = anstream::stderr().lock();
    for warning in &assembled.warnings {
        writeln!(err, "{}: {}", In(ODD, "warning"), harmless(warning))?;
    }
    Ok(Code::Done)
}

/// The agent of that name, or what there is.
pub(crate) fn agent<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Manifest, Fail> {
    catalog.get(name).map(|manifest| &**manifest).ok_or_else(|| Fail::Usage(why_not(catalog, name)))
}

/// Why there is no agent of that name, where its file is refused.
pub(crate) fn refused(catalog: &Catalog, name: &str) -> Option<String> {
    let refused = |problem: &&Problem| {
        problem.kind == ProblemKind::Refused && problem.path.file_stem().is_some_and(|stem| stem == name)
    };
    let problem = catalog.problems().iter().find(refused).filter(|_| catalog.get(name).is_none())?;
    let (path, why) = (problem.path.display().to_string(), &problem.message);
    Some(format!("the agent `{}` is refused: {}: {}", harmless(name), harmless(&path), harmless(why)))
}

/// Why there is no agent of that name: its file is refused, or there is none.
pub(crate) fn why_not(catalog: &Catalog, name: &str) -> String {
    if let Some(refused) = refused(catalog, name) {
        return refused;
    }
    unknown_agent(&harmless(name), catalog.all().map(|manifest| &*manifest.name))
}

fn root(manifest: &Manifest, catalog: &Catalog, dialects: &Dialects) -> Result<Assembled, Fail> {
    let authority = Authority::of(HostPolicy::default_for_workspace()).meet(&manifest.authority());
    let offered = dialects.offered_to(manifest, &authority, catalog, false);
    let tools = hub::tools()?;
    let only = manifest.tools.as_ref();
    let caller = Caller { agent: &manifest.name, authority: &authority, only, attended: false };
    let named = || profiles::named(&dialects.profiles, catalog, &tools, caller);
    Ok(assemble(&Parts::of_agent(manifest).offering(&offered, named)))
}

/// A child has none of the tools that start children (S4), so its prompt speaks of none.
fn child(
    name: &str,
    caller: &Manifest,
    catalog: &Catalog,
    dialects: &Dialects,
    workspace: &Workspace,
) -> Result<Assembled, Fail> {
    let profile = dialects.profiles.get(name).ok_or_else(|| {
        let known = dialects.profiles.names();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Fail::Usage(format!("there is no profile `{}`; there are: {known} (--profile)", harmless(name)))
    })?;
    let named = |agent: &str| {
        let (name, why) = (harmless(name), why_not(catalog, agent));
        let told = || Fail::Usage(format!("the profile `{name}` names an agent that cannot be used: {why}"));
        catalog.get(agent).map(|manifest| &**manifest).ok_or_else(told)
    };
    let named = profile.agent.as_deref().map(named).transpose()?;
    Ok(assemble(&Parts::of_spawn(Some(profile), caller, named, &settings::reader(workspace))))
}
