//! Environments of other workspaces, for a process that hosts sessions of several workspaces.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use subtend::config::{Config, HostConfig};
use subtend_actors::{Environment, EnvironmentKey};
use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_agents::instructions::Instructions;
use subtend_agents::skill::Skills;
use subtend_host::workers::Workers;
use subtend_session::authority::{RuleSet, Verdict};
use subtend_session::limits::Limits;
use subtend_tools::mcp::ServerList;
use subtend_tools::workspace::Workspace;

use super::super::data::StoreArgs;
use super::super::fail::Fail;
use super::super::servers::{self, ServerPool};
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
    let versions = Mutex::default();
    move |key| load(key, (&store, &servers, &workers), (slots, &versions)).map_err(|fail| fail.to_string())
}

/// Maximum number of environments whose files are compared with those of the last load.
const MAX_COMPARED: usize = 8;

/// Everything that an environment depends on, besides its key and the variables of this process.
#[derive(PartialEq)]
struct EnvironmentInputs {
    config: Config,
    trust: Trust,
    limits: Limits,
    dialects: Dialects,
    catalog: Catalog,
    instructions: Instructions,
    skills: Skills,
    servers: (Vec<Option<u64>>, ServerList),
    rules: [RuleSet; 2],
    /// Device and number of the directory. Another one may have its path now.
    directory: Option<(u64, u64)>,
}

/// Returns the device and the number of a directory, if it exists.
fn directory(workspace: &Workspace) -> Option<(u64, u64)> {
    let metadata = std::fs::metadata(workspace.path()).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// What was read by the last load of each environment, with its version.
#[derive(Default)]
struct EnvironmentVersions {
    last: u64,
    known: HashMap<EnvironmentKey, (EnvironmentInputs, u64)>,
}

impl EnvironmentVersions {
    fn of(&mut self, key: &EnvironmentKey, read: EnvironmentInputs) -> u64 {
        if let Some((_, version)) = self.known.get(key).filter(|(known, _)| known.directory.is_some() && *known == read)
        {
            return *version;
        }
        self.last = self.last.saturating_add(1);
        if self.known.len() >= MAX_COMPARED {
            self.known.clear();
        }
        self.known.insert(key.clone(), (read, self.last));
        self.last
    }
}

fn load(
    key: &EnvironmentKey,
    (store, pool, workers): (&StoreArgs, &ServerPool, &Workers),
    (slots, versions): (u32, &Mutex<EnvironmentVersions>),
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
    let pooled = pool.for_workspace(&workspace, trust, &loaded)?;
    let list = servers::list(&workspace, trust, &loaded)?;
    let read = EnvironmentInputs {
        trust,
        limits: limits.clone(),
        dialects: dialects.clone(),
        catalog: trust.catalog(&workspace)?,
        instructions: guidance::instructions(&workspace, trust)?,
        skills: guidance::skills(&workspace, trust)?,
        servers: (servers::login_times(&list, &workspace), list),
        rules: policy::session_rules(store, &workspace)?,
        directory: directory(&workspace),
        config: loaded.config,
    };
    let [linked, kept] = read.rules.clone();
    let environment = Environment::default()
        .catalog(read.catalog.clone())
        .instructions(read.instructions.clone())
        .tools(setup::tools_with(&read.config, &read.skills, Some(&pooled), workers)?)
        .skills(read.skills.clone())
        .workspace(workspace)
        .limits(limits)
        .policy(RuleSet::only(Verdict::Allow))
        .bounds(linked)
        .bounds(kept)
        .dialects(dialects)
        .tool_options(read.config.tool_options())
        .context_windows(read.config.llm.windows())
        .output_tokens(read.config.llm.caps())
        .version(versions.lock().unwrap_or_else(PoisonError::into_inner).of(key, read));
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
