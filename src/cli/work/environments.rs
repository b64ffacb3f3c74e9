//! Environments of other workspaces, for a process that hosts sessions of several workspaces.

use std::path::Path;

use subtend::config::HostConfig;
use subtend_actors::{Environment, EnvironmentKey};
use subtend_host::workers::Workers;
use subtend_session::authority::{RuleSet, Verdict};

use super::super::data::StoreArgs;
use super::super::fail::Fail;
use super::super::servers::ServerPool;
use super::super::trust::Trust;
use super::super::{guidance, settings, workspace};
use super::choice::{self, ModelArgs, RecordedModel};
use super::{limit, policy, setup};

/// Returns a loader of environments. For an untrusted workspace, only built-in agents and the user's files are used.
pub(crate) fn loader(
    store: StoreArgs,
    slots: u32,
    servers: ServerPool,
    workers: Workers,
) -> impl Fn(&EnvironmentKey) -> Result<Environment, String> + Send + Sync + 'static {
    move |key| load(key, (&store, &servers, &workers), slots).map_err(|fail| fail.to_string())
}

fn load(
    key: &EnvironmentKey,
    (store, servers, workers): (&StoreArgs, &ServerPool, &Workers),
    slots: u32,
) -> Result<Environment, Fail> {
    if key.imported {
        return Err(Fail::Usage(format!(
            "the session was imported, and you have not confirmed its directory {}: while no other process hosts the store, send to \
             it with --here from the directory in which it may run",
            key.workspace
        )));
    }
    let path = Path::new(&*key.workspace);
    let workspace = if key.opening { workspace::open(path)? } else { workspace::open_recorded(path)? };
    let trust = Trust::by_record(&workspace)?;
    let loaded = settings::load(&workspace, trust)?;
    let dialects = settings::dialects(&loaded, &workspace)?;
    let (mut limits, host) = limit::read_limits(&[], &[], &loaded)?;
    if key.opening {
        limit::check_bounds(&limits, &[], &loaded, &HostConfig { slots, ..host })?;
    }
    limits.live_runs = limits.live_runs.min(slots);
    limits.live_person_runs = limits.live_person_runs.min(slots);
    let model = key.model.as_deref();
    let args = match key.opening {
        true => ModelArgs::for_session(model, &key.servers),
        false => ModelArgs::for_session(None, &[]),
    };
    if !key.opening {
        check_no_scripts(model.unwrap_or_default(), &key.workspace)?;
    }
    let own = RecordedModel { model: model.unwrap_or_default(), servers: &key.servers, imported: key.imported };
    let models = args.choose(&loaded, (!key.opening).then_some(own))?;
    let servers = servers.for_workspace(&workspace, trust, &loaded)?;
    let [linked, kept] = policy::session_rules(store, &workspace)?;
    let skills = guidance::skills(&workspace, trust)?;
    let environment = Environment::default()
        .catalog(trust.catalog(&workspace)?)
        .instructions(guidance::instructions(&workspace, trust)?)
        .tools(setup::tools_with(&loaded.config, &skills, Some(&servers), workers)?)
        .skills(skills)
        .workspace(workspace)
        .limits(limits)
        .policy(RuleSet::only(Verdict::Allow))
        .bounds(linked)
        .bounds(kept)
        .dialects(dialects)
        .tool_options(loaded.config.tool_options())
        .context_windows(loaded.config.llm.windows())
        .output_tokens(loaded.config.llm.caps());
    Ok(models.add_to(environment))
}

/// Refuses scripts that a session of an earlier process used. Only the command line can name a script, and a host's
/// command line applies only to its own directory.
fn check_no_scripts(model: &str, workspace: &str) -> Result<(), Fail> {
    let model = model.strip_prefix("pool:").unwrap_or(model);
    choice::check_no_scripts(model).map_err(|_| {
        Fail::Usage(format!(
            "the session's own model cannot answer: the process that hosts the store was not started with the script `{model}`. End that \
             process, then send with `--model {model}` in {workspace}, or start `subtend serve --model {model}` there"
        ))
    })
}
