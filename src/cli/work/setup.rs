//! Builds and starts the runtime of a command.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use subtend::config::Config;
use subtend_actors::builder::Builder;
use subtend_actors::prices::Prices;
use subtend_actors::{
    Approver, BootError, BootProgress, Environment, EnvironmentKey, Hooks, Options, Runtime, StartError,
};
use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_agents::instructions::Instructions;
use subtend_agents::skill::Skills;
use subtend_host::workers::Workers;
use subtend_journal::Journal;
use subtend_models::throttle::Throttles;
use subtend_models::windows::{ByModel, Windows};
use subtend_session::authority::{Authority, RuleSet, Verdict};
use subtend_session::ids::SessionId;
use subtend_session::limits::Limits;
use subtend_supervision::Lease;
use subtend_tools::checkpoint::Checkpoints;
use subtend_tools::mcp::Servers;
use subtend_tools::message;
use subtend_tools::option::ToolOptions;
use subtend_tools::registry::{Registry, RegistryBuilder};
use subtend_tools::secrets::Secrets;
use subtend_tools::tool::Tool;
use subtend_tools::workspace::Workspace;
use subtend_tools::worktree::Worktrees;

use super::super::data::{self, StoreLocation};
use super::super::fail::Fail;
use super::super::notices::notices;
use super::super::paint::count;
use super::super::progress::ProgressLine;
use super::super::{guard, guidance, remote, web};
use super::choice::ModelSetup;

pub(crate) type Loader = dyn Fn(&EnvironmentKey) -> Result<Environment, String> + Send + Sync;

/// Reads the files of a workspace that may change while it is hosted; `None` if they are as at the last call.
pub(crate) type FilesLoader = dyn Fn() -> Result<Option<WorkspaceFiles>, Fail> + Send + Sync;

/// The parts of an environment that come from files.
pub(crate) struct WorkspaceFiles {
    pub(crate) catalog: Catalog,
    pub(crate) instructions: Instructions,
    pub(crate) skills: Skills,
    pub(crate) tools: Registry,
}

pub(crate) struct Parts {
    pub(crate) place: StoreLocation,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) catalog: Catalog,
    pub(crate) tools: Registry,
    /// Remote tools, with the workers that answer them.
    pub(crate) workers: Workers,
    pub(crate) models: ModelSetup,
    pub(crate) prices: Prices,
    pub(crate) windows: Windows,
    pub(crate) caps: ByModel,
    pub(crate) limits: Limits,
    /// The bounds of every session, whatever its options are.
    pub(crate) bounds: [RuleSet; 2],
    pub(crate) dialects: Dialects,
    pub(crate) instructions: Instructions,
    pub(crate) skills: Skills,
    pub(crate) tool_options: ToolOptions,
    pub(crate) options: Options,
    /// Hook for the model that the command names for an existing session.
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    /// Loads the environments of other workspaces. Without it, all sessions use this environment.
    pub(crate) load: Option<Box<Loader>>,
    /// Reloads the files of this environment.
    pub(crate) files: Option<Box<FilesLoader>>,
    /// Root of a tree that uses this environment, whatever options the root was opened with.
    pub(crate) home_root: Option<SessionId>,
    pub(crate) worktrees: Option<Worktrees>,
    pub(crate) checkpoints: Option<Checkpoints>,
    /// Lease of the shard; model and tool calls start only while it is valid.
    pub(crate) lease: Lease,
    /// Rate limits of providers, if shards of a node share them.
    pub(crate) throttles: Option<Throttles>,
    pub(crate) quiet: bool,
}

/// Returns the tools of the workspace, for checks of names.
pub(crate) fn tools(config: &Config) -> Result<Registry, Fail> {
    let names = guidance::skill_tool(&Skills::default());
    built_in(config, vec![names], &remote::workers(config)?).map(RegistryBuilder::build)
}

/// Returns the tools of the workspace, its skills, its MCP servers and workers. They redact keys in their results.
pub(crate) fn tools_with(
    config: &Config,
    skills: &Skills,
    servers: Option<&Servers>,
    workers: &Workers,
) -> Result<Registry, Fail> {
    let reads = skills.all().next().map(|_| guidance::skill_tool(skills));
    let tools = built_in(config, reads.into_iter().collect(), workers)?;
    Ok(match servers.filter(|servers| !servers.is_empty()) {
        Some(servers) => tools.live(Arc::new(servers.clone())).build(),
        None => tools.build(),
    })
}

fn built_in(config: &Config, more: Vec<Arc<dyn Tool>>, workers: &Workers) -> Result<RegistryBuilder, Fail> {
    let guard = guard::guard().map_err(|error| {
        Fail::Other(format!("cannot start guards of tool processes: the running program cannot be found: {error}"))
    })?;
    let secrets = Secrets::of(provider_keys().chain(web::secret(&config.web)));
    let of_web = web::tools(&config.web, &secrets)?;
    let message = config.subagents.messages.then(message::tool);
    Registry::builder()
        .secrets(secrets)
        .tools(Registry::workspace_tools_with(Some(guard), config.commands()))
        .and_then(|tools| tools.tools(of_web))
        .and_then(|tools| tools.tools(message))
        .and_then(|tools| tools.tools(more))
        .and_then(|tools| tools.tools(workers.tools()))
        .map_err(|error| Fail::Other(format!("the tools are inconsistent: {error}")))
}

/// Returns the keys of providers.
pub(crate) fn keys() -> Secrets {
    Secrets::of(provider_keys())
}

fn provider_keys() -> impl Iterator<Item = (String, String)> {
    key_variables().into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
}

/// Returns the names of the variables that hold keys of providers.
#[cfg(feature = "providers")]
pub(crate) fn key_variables() -> Vec<&'static str> {
    use subtend_models::provider::Protocol;

    Protocol::ALL.into_iter().filter_map(Protocol::key_variable).collect()
}

#[cfg(not(feature = "providers"))]
pub(crate) fn key_variables() -> Vec<&'static str> {
    Vec::new()
}

/// Returns the reasons why tools are not offered although their action is allowed.
pub(super) fn withheld_tool_reasons(tools: &Registry, policy: &RuleSet, bounds: &[RuleSet]) -> Vec<String> {
    let met = |all: Authority, rules: &RuleSet| all.meet(&Authority::of(rules.clone()));
    let authority = bounds.iter().fold(Authority::of(policy.clone()), met);
    let allowed = |tool: &Arc<dyn Tool>| tool.access(None).iter().all(|of| authority.verdict(of) == Verdict::Allow);
    let all = tools.names().filter_map(|name| tools.get(name));
    let why = all.filter(|tool| allowed(tool)).filter_map(|tool| tool.exclusion_error(&authority));
    // The set removes duplicates: two tools may have the same reason.
    why.map(|why| why.to_string()).collect::<BTreeSet<_>>().into_iter().collect()
}

impl Parts {
    fn builder(self) -> Builder {
        let rates = self.models.rates();
        let home = Environment::default()
            .workspace(Arc::clone(&self.workspace))
            .catalog(self.catalog)
            .tools(self.tools)
            .policy(RuleSet::only(Verdict::Allow))
            .context_windows(self.windows)
            .output_tokens(self.caps)
            .limits(self.limits)
            .dialects(self.dialects)
            .instructions(self.instructions)
            .skills(self.skills)
            .tool_options(self.tool_options);
        let home = self.models.add_to(self.bounds.into_iter().fold(home, Environment::bounds));
        let builder = match self.worktrees {
            Some(worktrees) => Runtime::builder().worktrees(worktrees.outside(self.workspace.path())),
            None => Runtime::builder(),
        };
        let builder = match self.checkpoints {
            Some(checkpoints) => builder.checkpoints(checkpoints),
            None => builder,
        };
        let builder = builder.lease(self.lease);
        let builder = match self.throttles {
            Some(throttles) => builder.throttles(throttles),
            None => builder,
        };
        let builder = match self.files {
            Some(files) => {
                let home = home.clone();
                builder.home_loader(move || {
                    let files = files().map_err(|fail| fail.to_string())?;
                    Ok(files.map(|files| {
                        let home = home.clone().catalog(files.catalog).instructions(files.instructions);
                        home.skills(files.skills).tools(files.tools)
                    }))
                })
            }
            None => builder,
        };
        let builder = builder.environment(home).rates(rates).prices(self.prices).options(self.options);
        let builder = match self.load {
            Some(load) => builder.environments(load).home_root(self.home_root),
            None => builder,
        };
        match self.hooks {
            Some(hooks) => builder.hooks(hooks),
            None => builder,
        }
    }
}

/// Starts the runtime. With `attended`, attaches an approver first: calls of resumed runs then wait for approvals.
pub(crate) async fn start(journal: Journal, parts: Parts, attended: bool) -> Result<(Runtime, Option<Approver>), Fail> {
    let quiet = parts.quiet;
    let builder = with_progress(journal.clone(), parts.builder(), (!quiet).then(ProgressLine::new));
    let started = if attended {
        builder.start_attended().await.map(|(runtime, approver)| (runtime, Some(approver)))
    } else {
        builder.start().await.map(|runtime| (runtime, None))
    };
    started.map_err(|error| start_failure(&journal, error))
}

pub(crate) async fn begin(journal: Journal, builder: Builder, progress: Option<ProgressLine>) -> Result<Runtime, Fail> {
    with_progress(journal.clone(), builder, progress).start().await.map_err(|error| start_failure(&journal, error))
}

fn with_progress(journal: Journal, builder: Builder, progress: Option<ProgressLine>) -> Builder {
    let progress = progress.map(Mutex::new);
    let report = move |at: BootProgress| {
        let Some(progress) = &progress else { return };
        let describe = || format!("recovering: {} of {} done", at.done, count(at.total as u64, "session"));
        progress.lock().unwrap_or_else(PoisonError::into_inner).report(describe);
    };
    builder.journal(journal).on_boot(report)
}

fn start_failure(journal: &Journal, error: StartError) -> Fail {
    match error {
        StartError::Journal(error) => Fail::from(error),
        StartError::Boot(BootError::Read(error)) => Fail::from(error),
        StartError::Boot(error @ BootError::Poisoned(_)) => {
            Fail::Store(full_disk(journal).unwrap_or_else(|| error.to_string()))
        }
        StartError::Limits(_)
        | StartError::AboveSlots(_)
        | StartError::Pool(_)
        | StartError::Rates(..)
        | StartError::Price(..)
        | StartError::NoPrice(_)
        | StartError::NoWindow(_)
        | StartError::NoSuchDefault(_)
        | StartError::ToolOptions(_) => Fail::Usage(error.to_string()),
        StartError::NoModel
        | StartError::Workspace(_)
        | StartError::TemporaryFiles(_)
        | StartError::Unrecordable(_) => Fail::Other(error.to_string()),
    }
}

pub(crate) async fn shut_down(runtime: Runtime, grace: Duration) {
    report_full_disk(&runtime);
    runtime.shutdown(grace).await;
}

/// Reports a full disk with a remedy, because the error of a failed journal contains none.
pub(crate) fn report_full_disk(runtime: &Runtime) {
    if let Some(full_disk) = full_disk(runtime.journal()) {
        drop(writeln!(notices(), "{full_disk}"));
    }
}

/// Returns the message if the journal failed because its disk is full.
pub(crate) fn full_disk(journal: &Journal) -> Option<String> {
    let poisoned = journal.poisoned().filter(|poisoned| poisoned.0.is_full())?;
    let place = journal.info().path.map_or_else(|| "the store".to_owned(), |path| path.display().to_string());
    Some(data::full_disk(&place, &poisoned.to_string()))
}

#[cfg(test)]
mod tests {
    use subtend_actors::OpenOptions;
    use subtend_journal::faulty::Faulty;
    use subtend_journal::memory::Memory;
    use subtend_journal::{Engine, Options};
    use subtend_models::closure::fn_model;

    use super::super::super::fail::Code;
    use super::super::super::progress::CapturedProgress;
    use super::*;

    /// Returns a runtime whose model never answers.
    fn built() -> Builder {
        let silent = fn_model("silent", |_, _| std::future::pending());
        Runtime::builder().model(Arc::new(silent))
    }

    fn journal(engine: impl Engine) -> Journal {
        Journal::open(Box::new(engine), Options::default()).expect("a journal")
    }

    /// Returns the progress output of a start that recovers three runs.
    async fn boot_progress(progress: impl FnOnce(CapturedProgress) -> Option<ProgressLine>) -> String {
        let memory = Memory::new();
        let runtime = begin(journal(memory.clone()), built(), None).await.expect("a runtime");
        for _ in 0..3 {
            runtime.open(OpenOptions::agent("general")).expect("a session").send("work").await.expect("accepted");
        }
        drop(runtime);
        let captured = CapturedProgress::default();
        let runtime = begin(journal(memory.clone()), built(), progress(captured.clone())).await.expect("a runtime");
        assert_eq!(runtime.boot().swept, 3);
        shut_down(runtime, Duration::ZERO).await;
        captured.text()
    }

    #[tokio::test]
    async fn recovery_on_a_full_disk_names_the_remedy() {
        let memory = Memory::new();
        let runtime = begin(journal(memory.clone()), built(), None).await.expect("a runtime");
        runtime.open(OpenOptions::agent("general")).expect("a session").send("work").await.expect("accepted");
        drop(runtime);
        let (engine, faults) = Faulty::new(Box::new(memory));
        faults.fill(1);
        let fail = begin(journal(engine), built(), None).await.expect_err("no runtime");
        let text = fail.to_string();
        assert_eq!(fail.code(), Code::Store);
        assert!(
            text.starts_with("the disk that holds the store is full") && text.contains("free some space"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn slow_boot_reports_progress() {
        let step =
            "recovering: 1 of 3 sessions done\nrecovering: 2 of 3 sessions done\nrecovering: 3 of 3 sessions done\n";
        assert_eq!(boot_progress(|out| Some(ProgressLine::of(out, false, Duration::ZERO))).await, step);
        let clear = "\r\u{1b}[K";
        let drawn: String = step.lines().flat_map(|line| [clear, line]).chain([clear]).collect();
        assert_eq!(boot_progress(|out| Some(ProgressLine::of(out, true, Duration::ZERO))).await, drawn);
        assert_eq!(
            boot_progress(|out| Some(ProgressLine::of(out, false, Duration::from_secs(3_600)))).await,
            "",
            "progress is not due yet"
        );
        assert_eq!(boot_progress(|_| None).await, "");
    }
}
