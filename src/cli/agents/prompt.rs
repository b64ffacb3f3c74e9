use std::io::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use subtend::config::Config;
use subtend_actors::profiles::{self, Caller};
use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_agents::instructions::Instructions;
use subtend_agents::manifest::Manifest;
use subtend_agents::prompt::{Assembled, Parts, assemble};
use subtend_agents::skill::{self, Skills};
use subtend_host::workers::Workers;
use subtend_session::authority::Authority;
use subtend_session::ids::Text;
use subtend_tools::policy::HostPolicy;
use subtend_tools::workspace::Workspace;

use super::super::fail::{Code, Fail};
use super::super::paint::{CAUTION, Styled, harmless, on_one_line};
use super::super::trust::Trust;
use super::super::work::setup;
use super::super::{guidance, settings, workspace};
use super::lookup::{find_agent, unusable_reason};
use crate::cli::json;

/// Prints the system prompt of a session, exactly as its model sees it.
///
/// It is the prompt of a root session of the agent. With --profile, it is the prompt of a child that such a session starts by
/// `spawn` under that profile.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Agent of the session
    agent: String,

    /// Profile of `tools.spawn.profiles` in subtend.yaml
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    /// Workspace whose agents and configuration apply
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct PromptOutput<'a> {
    agent: &'a Text,
    profile: Option<&'a str>,
    system: &'a Text,
    warnings: &'a [String],
}

/// Prints the prompt under the old name of this command, with a notice on stderr.
pub(crate) fn run_deprecated(args: &Args) -> Result<Code, Fail> {
    let notice = "`subtend prompt` is deprecated; use `subtend agents prompt`";
    writeln!(anstream::stderr(), "{}: {notice}", Styled(CAUTION, "warning"))?;
    run(args)
}

pub(super) fn run(args: &Args) -> Result<Code, Fail> {
    let workspace = workspace::open(&args.workspace)?;
    let trust = Trust::decide_and_warn(&workspace)?;
    let catalog = trust.catalog(&workspace)?;
    let dialects = settings::dialects(&settings::load(&workspace, trust)?, &workspace)?;
    let instructions = guidance::instructions(&workspace, trust)?;
    let manifest = find_agent(&catalog, &args.agent)?;
    let assembled = match &args.profile {
        Some(profile) => assemble_child(profile, manifest, (&catalog, &dialects, &instructions), &workspace)?,
        None => root(manifest, (&catalog, &dialects, &instructions), &guidance::skills(&workspace, trust)?)?,
    };
    let mut out = anstream::stdout().lock();
    if args.json {
        let Assembled { system, warnings, .. } = &assembled;
        let shown = PromptOutput { agent: &manifest.name, profile: args.profile.as_deref(), system, warnings };
        json::write_line(&mut out, &shown)?;
        return Ok(Code::Done);
    }
    writeln!(out, "{}", harmless(&assembled.system))?;
    drop(out);
    let mut err = anstream::stderr().lock();
    for warning in &assembled.warnings {
        writeln!(err, "{}: {}", Styled(CAUTION, "warning"), on_one_line(warning))?;
    }
    Ok(Code::Done)
}

fn root(
    manifest: &Manifest,
    (catalog, dialects, instructions): (&Catalog, &Dialects, &Instructions),
    skills: &Skills,
) -> Result<Assembled, Fail> {
    let authority = Authority::of(HostPolicy::default_for_workspace()).meet(&manifest.authority());
    let offered = dialects.offered_to(manifest, &authority, catalog, false);
    let tools = setup::tools_with(&Config::default(), skills, None, &Workers::default())?;
    let only = manifest.tools.as_ref();
    let caller = Caller { agent: &manifest.name, authority: &authority, only, attended: false };
    let named = || profiles::named(&dialects.profiles, catalog, &tools, caller);
    let mut parts = Parts::of_agent(manifest).with_instructions(instructions, manifest, &authority);
    let has =
        |name: &str| tools.offered(&authority, only.map(Vec::as_slice), false).iter().any(|tool| *tool.name == *name);
    parts.preloaded = skills.preloaded(manifest, &authority);
    if has(skill::TOOL) {
        parts.skills = skills.under(&authority, false);
    }
    Ok(assemble(&parts.offering(&offered, named)))
}

/// Assembles the prompt of a spawned child. A child without spawn tools gets no hint about them.
fn assemble_child(
    name: &str,
    caller: &Manifest,
    (catalog, dialects, instructions): (&Catalog, &Dialects, &Instructions),
    workspace: &Workspace,
) -> Result<Assembled, Fail> {
    let profile = dialects.profiles.get(name).ok_or_else(|| {
        let known = dialects.profiles.names();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Fail::Usage(format!("unknown profile `{}`; known profiles: {known} (--profile)", harmless(name)))
    })?;
    let named = |agent: &str| {
        let (name, why) = (on_one_line(name), unusable_reason(catalog, agent));
        let fail = || Fail::Usage(format!("the profile `{name}` names an agent that cannot be used: {why}"));
        catalog.get(agent).map(|manifest| &**manifest).ok_or_else(fail)
    };
    let named = profile.agent.as_deref().map(named).transpose()?;
    let own = Authority::of(HostPolicy::default_for_workspace()).meet(&caller.authority());
    let authority = named.map_or_else(|| own.clone(), |named| own.meet(&named.authority()));
    let read = settings::reader(workspace);
    Ok(assemble(&Parts::of_spawn(Some(profile), (caller, named), (instructions, &authority), &read)))
}
