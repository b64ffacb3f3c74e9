//! Environments of other workspaces, for a process that hosts sessions of several workspaces.

use std::fmt::{self, Write as _};
use std::hash::{BuildHasher as _, Hash as _, Hasher, RandomState};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

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
    let versions = RandomState::new();
    move |key| load(key, (&store, &servers, &workers), (slots, &versions)).map_err(|fail| fail.to_string())
}

/// Everything that an environment depends on, besides its key and the variables of this process.
#[derive(Debug)]
struct EnvironmentInputs {
    config: Config,
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

impl EnvironmentInputs {
    /// Returns a hash of all, as the version of the environment. Its key is random, so that no file can be made for one.
    fn version(&self, trust: Trust, versions: &RandomState) -> Option<u64> {
        self.directory?;
        let mut hasher = DebugHasher(versions.build_hasher());
        write!(hasher, "{trust:?}{self:?}").ok()?;
        // Not as text, which omits secrets.
        self.servers.hash(&mut hasher.0);
        Some(hasher.0.finish())
    }
}

/// Hashes a text piece by piece, since the text of an environment is large.
struct DebugHasher<H>(H);

impl<H: Hasher> fmt::Write for DebugHasher<H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

fn load(
    key: &EnvironmentKey,
    (store, pool, workers): (&StoreArgs, &ServerPool, &Workers),
    (slots, versions): (u32, &RandomState),
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
        limits,
        dialects,
        catalog: trust.catalog(&workspace)?,
        instructions: guidance::instructions(&workspace, trust)?,
        skills: guidance::skills(&workspace, trust)?,
        servers: (servers::login_times(&list, &workspace), list),
        rules: policy::session_rules(store, &workspace)?,
        directory: directory(&workspace),
        config: loaded.config,
    };
    let version = read.version(trust, versions);
    let [linked, kept] = read.rules;
    let environment = Environment::default()
        .catalog(read.catalog)
        .instructions(read.instructions)
        .tools(setup::tools_with(&read.config, &read.skills, Some(&pooled), workers)?)
        .skills(read.skills)
        .workspace(workspace)
        .limits(read.limits)
        .policy(RuleSet::only(Verdict::Allow))
        .bounds(linked)
        .bounds(kept)
        .dialects(read.dialects)
        .tool_options(read.config.tool_options())
        .context_windows(read.config.llm.windows())
        .output_tokens(read.config.llm.caps());
    Ok(models.add_to(version.into_iter().fold(environment, Environment::version)))
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

#[cfg(test)]
mod tests {
    use subtend_tools::mcp::Origin;

    use super::*;

    #[test]
    fn version_changes_with_everything_that_was_read() {
        let versions = RandomState::new();
        let version = |change: fn(&mut EnvironmentInputs)| {
            let mut read = EnvironmentInputs {
                config: Config::default(),
                limits: Limits::default(),
                dialects: Dialects::default(),
                catalog: Catalog::builtin(),
                instructions: Instructions::default(),
                skills: Skills::default(),
                servers: (Vec::new(), servers("a")),
                rules: [RuleSet::only(Verdict::Allow), RuleSet::only(Verdict::Allow)],
                directory: Some((1, 2)),
            };
            change(&mut read);
            read.version(Trust::LeftOut, &versions)
        };
        let same = version(|_| {});
        let changes: [fn(&mut EnvironmentInputs); 5] = [
            |read| read.servers.1 = servers("b"),
            |read| read.servers.0 = vec![None],
            |read| read.rules[1] = RuleSet::only(Verdict::Deny),
            |read| read.directory = Some((1, 3)),
            |read| drop(read.catalog.remove("general")),
        ];
        assert_eq!((version(|_| {}) == same, same.is_some()), (true, true));
        assert_eq!(changes.map(|change| version(change) != same), [true; 5]);
        assert_eq!(version(|read| read.directory = None), None);
    }

    fn servers(secret: &str) -> ServerList {
        let file = format!(r#"{{"mcpServers": {{"s": {{"command": "run", "env": {{"KEY": "{secret}"}}}}}}}}"#);
        ServerList::parse(&file, Origin::Person, &|_| None)
    }
}
