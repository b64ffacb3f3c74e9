//! Support for commands that run only services of the host, such as summaries. Queued inputs remain queued.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::Method;
use serde::Deserialize;
use subtend_actors::{Hooks, ModelChoice, Options};
use subtend_agents::dialect::Dialects;
use subtend_agents::instructions::Instructions;
use subtend_agents::skill::Skills;
use subtend_host::workers::Workers;
use subtend_host::{Host, HostOptions};
use subtend_session::authority::{RuleSet, Verdict};
use subtend_session::ids::Text;
use subtend_supervision::Lease;
use subtend_tools::option::ToolOptions;
use subtend_tools::registry::Registry;
use subtend_tools::workspace::Workspace;
use tokio::runtime::Runtime;

use super::super::data::StoreArgs;
use super::super::fail::{Code, Fail};
use super::super::hosted::{self, Hosted};
use super::super::progress::ProgressLine;
use super::super::trust::Trust;
use super::super::{checkpoints, settings, workspace, worktrees};
use super::choice::ModelArgs;
use super::found_session::{CommandSubject, FoundSession, HereArgs};
use super::setup::{self, Parts};
use super::{StopSignal, async_runtime, replaced_model};

const SERVICE_TIMEOUT: Duration = Duration::from_secs(120);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Options of commands that run services.
#[derive(clap::Args, Debug)]
pub(crate) struct ServeArgs {
    /// Directory whose `subtend.yaml` and agents apply
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    models: ModelArgs,
}

impl ServeArgs {
    /// Refuses options that have no effect if another process hosts the store.
    pub(crate) fn refuse_for_other_host(&self) -> Result<(), Fail> {
        match self.models.option().or(self.models.limits_calls().then_some("--calls")) {
            Some(option) => Err(Fail::Usage(format!(
                "`{option}`: another process hosts the store, and its options apply; omit this one"
            ))),
            None => Ok(()),
        }
    }

    /// Returns whether the configuration disables summaries.
    pub(crate) fn are_summaries_disabled(&self) -> bool {
        let load = |workspace: Arc<Workspace>| settings::load(&workspace, Trust::decide(&workspace)?);
        let loaded = workspace::open(&self.workspace).and_then(load);
        loaded.is_ok_and(|loaded| loaded.config.sessions.summaries == Some(false))
    }

    /// Prepares a runtime for services of the session `name`, without starting it.
    pub(crate) fn ready(&self, name: &str) -> Result<PreparedServices, Fail> {
        let workspace = workspace::open(&self.workspace)?;
        let trust = Trust::decide_and_warn(&workspace)?;
        let loaded = settings::load(&workspace, trust)?;
        let place = self.store.place()?;
        if !place.exists()? {
            return Err(place.missing_store());
        }
        // Services do not read files, so any directory is suitable.
        let found = CommandSubject::Session(name, HereArgs { here: true }).find(&place)?;
        let found = found.ok_or_else(|| place.missing_store())?;
        let models = self.models.choose(&loaded, Some(found.recorded_model()))?;
        let config = loaded.config;
        let hooks: Option<Arc<dyn Hooks>> = match self.models.is_model_given() {
            true => {
                replaced_model::check_price(&found, &models, &config.prices)?;
                Some(Arc::new(NamedModel(models.name())))
            }
            false => None,
        };
        let options = config.options(models.calls_servers());
        let (checkpoints, worktrees) = (checkpoints::for_store(&place), worktrees::for_store(&place)?);
        let parts = Parts {
            place,
            catalog: trust.catalog(&workspace)?,
            workspace,
            tools: Registry::builder().build(),
            workers: Workers::default(),
            models,
            prices: config.prices,
            windows: config.llm.windows(),
            caps: config.llm.caps(),
            limits: config.limits,
            // Services have no tools, so no bounds are needed.
            bounds: [RuleSet::only(Verdict::Allow), RuleSet::only(Verdict::Allow)],
            dialects: Dialects::default(),
            // Services have no instructions.
            instructions: Instructions::withheld(),
            skills: Skills::default(),
            tool_options: ToolOptions::new(),
            options: Options { resumes: false, ..options },
            hooks,
            load: None,
            files: None,
            home_root: None,
            worktrees,
            checkpoints,
            lease: Lease::default(),
            throttles: None,
            quiet: false,
        };
        Ok(PreparedServices { parts, found })
    }
}

/// The open store and the parts of a runtime for services, before anything is started.
pub(crate) struct PreparedServices {
    pub(crate) parts: Parts,
    found: FoundSession,
}

/// Hook that makes the model that the command names answer everywhere.
struct NamedModel(Text);

impl Hooks for NamedModel {
    fn resolve_model(&self, _: ModelChoice) -> BoxFuture<'_, Option<Text>> {
        Box::pin(std::future::ready(Some(self.0.clone())))
    }
}

/// Starts the runtime and the signal listener. Call it before the store is opened: the lock file names whom to signal.
pub(crate) fn listen() -> Result<(Runtime, StopSignal), Fail> {
    let async_runtime = async_runtime()?;
    let stop = async_runtime.block_on(async { StopSignal::listen() })?;
    Ok((async_runtime, stop))
}

/// Starts a host for services, and runs `job` with the session.
pub(crate) fn with(
    async_runtime: Runtime,
    ready: PreparedServices,
    job: impl FnOnce(&Hosted) -> Result<Code, Fail>,
) -> Result<Code, Fail> {
    let PreparedServices { parts, found } = ready;
    let begin = async |journal| {
        let (runtime, _) = setup::start(journal, parts, false).await?;
        Ok(Host::new(runtime, HostOptions { approvals: false, ..HostOptions::default() }))
    };
    hosted::with_own_host(async_runtime, (found.journal, found.session, None), begin, job)
}

/// Requests a summary of the session, and waits for it.
pub(crate) fn request_summary(
    hosted: &Hosted,
    stop: &mut StopSignal,
    stale: bool,
) -> Result<Result<Option<String>, Fail>, ServiceError> {
    #[derive(Deserialize)]
    struct Summarised {
        summary: Option<String>,
    }
    let done = request::<Summarised>(hosted, stop, &format!("/summary?stale={stale}"), "summarising the session")?;
    Ok(done.map(|done| done.summary))
}

/// Requests a service and waits for the result. `activity` describes it in progress reports.
pub(crate) fn request<T: for<'a> Deserialize<'a>>(
    hosted: &Hosted,
    stop: &mut StopSignal,
    path: &str,
    activity: &str,
) -> Result<Result<T, Fail>, ServiceError> {
    hosted.block_on(wait_with_progress(hosted.ask::<T>(Method::POST, path), stop, activity))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceError {
    Late,
    Stopped,
}

async fn wait_with_progress<T>(
    work: impl Future<Output = T>,
    stop: &mut StopSignal,
    activity: &str,
) -> Result<T, ServiceError> {
    let mut work = std::pin::pin!(work);
    let mut progress = ProgressLine::new();
    let mut deadline = std::pin::pin!(tokio::time::sleep(SERVICE_TIMEOUT));
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            () = stop.requested() => return Err(ServiceError::Stopped),
            () = &mut deadline => return Err(ServiceError::Late),
            () = tokio::time::sleep(PROGRESS_INTERVAL) => progress.report(|| activity.to_owned()),
        }
    }
}
