//! Verbs that run only services of the host; queued inputs remain queued.

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
use super::super::{checkpoints, settings, workspace};
use super::choice::ModelArgs;
use super::found_session::{About, FoundSession, HereArgs};
use super::setup::{self, Parts};
use super::{StopSignal, named, threads};

const WAIT: Duration = Duration::from_secs(120);
const TICK: Duration = Duration::from_millis(200);

/// Options of verbs for which services work.
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
    /// Refuses options that another process decides, which hosts the store.
    pub(crate) fn through(&self) -> Result<(), Fail> {
        match self.models.option().or(self.models.limits_calls().then_some("--calls")) {
            Some(option) => Err(Fail::Usage(format!(
                "`{option}`: another process hosts the store and decides that for its sessions; leave it out"
            ))),
            None => Ok(()),
        }
    }

    /// Returns whether the configuration switches summaries off; also where no model can be used.
    pub(crate) fn wants_no_summaries(&self) -> bool {
        let load = |workspace: Arc<Workspace>| settings::load(&workspace, Trust::silent(&workspace)?);
        let loaded = workspace::open(&self.workspace).and_then(load);
        loaded.is_ok_and(|loaded| loaded.config.sessions.summaries == Some(false))
    }

    /// Returns the parts of a runtime for services of the session `name`, without starting it.
    pub(crate) fn ready(&self, name: &str) -> Result<PreparedServices, Fail> {
        let workspace = workspace::open(&self.workspace)?;
        let trust = Trust::told(&workspace)?;
        let loaded = settings::load(&workspace, trust)?;
        let place = self.store.place()?;
        if !place.exists()? {
            return Err(place.none());
        }
        // Services read no files, so the directory of the session does not matter.
        let found = About::Session(name, HereArgs { here: true }).find(&place, &workspace)?;
        let found = found.ok_or_else(|| place.none())?;
        let models = self.models.choose(&loaded, Some(found.own()))?;
        let config = loaded.config;
        let hooks: Option<Arc<dyn Hooks>> = match self.models.is_given() {
            true => {
                named::priced(&found, &models, &config.prices)?;
                Some(Arc::new(Instead(models.name())))
            }
            false => None,
        };
        let options = config.options(models.calls_servers());
        let checkpoints = checkpoints::of(&place);
        let parts = Parts {
            place,
            catalog: trust.catalog(&workspace),
            workspace,
            tools: Registry::builder().build(),
            workers: Workers::default(),
            models,
            prices: config.prices,
            windows: config.llm.windows(),
            caps: config.llm.caps(),
            limits: config.limits,
            // No tool works here.
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
            at_home: None,
            worktrees: None,
            checkpoints,
            lease: Lease::default(),
            throttles: None,
            quiet: false,
        };
        Ok(PreparedServices { parts, found })
    }
}

/// The input of a session's services before anything is started. It holds the store.
pub(crate) struct PreparedServices {
    pub(crate) parts: Parts,
    found: FoundSession,
}

/// The model that the command names, in place of any other.
struct Instead(Text);

impl Hooks for Instead {
    fn resolve_model(&self, _: ModelChoice) -> BoxFuture<'_, Option<Text>> {
        Box::pin(std::future::ready(Some(self.0.clone())))
    }
}

/// Returns threads and a signal listener, before the store is opened, so that a reader of its lock can signal this
/// process.
pub(crate) fn listen() -> Result<(Runtime, StopSignal), Fail> {
    let threads = threads()?;
    let stop = threads.block_on(async { StopSignal::listen() })?;
    Ok((threads, stop))
}

/// Starts a host for services, and does `job` with the session.
pub(crate) fn with(
    threads: Runtime,
    ready: PreparedServices,
    job: impl FnOnce(&Hosted) -> Result<Code, Fail>,
) -> Result<Code, Fail> {
    let PreparedServices { parts, found } = ready;
    let begin = async |journal| {
        let (runtime, _) = setup::start(journal, parts, false).await?;
        Ok(Host::new(runtime, HostOptions { approvals: false, ..HostOptions::default() }))
    };
    hosted::hosting(threads, (found.journal, found.session, None), begin, job)
}

/// Asks for a summary of the session, and waits for it.
pub(crate) fn summarised(
    hosted: &Hosted,
    stop: &mut StopSignal,
    stale: bool,
) -> Result<Result<Option<String>, Fail>, Unmet> {
    #[derive(Deserialize)]
    struct Summarised {
        summary: Option<String>,
    }
    let done = request::<Summarised>(hosted, stop, &format!("/summary?stale={stale}"), "the session is summed up")?;
    Ok(done.map(|done| done.summary))
}

/// Asks for the work of a service, which `activity` names meanwhile, and waits for it.
pub(crate) fn request<T: for<'a> Deserialize<'a>>(
    hosted: &Hosted,
    stop: &mut StopSignal,
    path: &str,
    activity: &str,
) -> Result<Result<T, Fail>, Unmet> {
    hosted.block_on(waited(hosted.ask::<T>(Method::POST, path), stop, activity))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmet {
    Late,
    Stopped,
}

async fn waited<T>(work: impl Future<Output = T>, stop: &mut StopSignal, activity: &str) -> Result<T, Unmet> {
    let mut work = std::pin::pin!(work);
    let mut progress = ProgressLine::new();
    let mut over = std::pin::pin!(tokio::time::sleep(WAIT));
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            () = stop.requested() => return Err(Unmet::Stopped),
            () = &mut over => return Err(Unmet::Late),
            () = tokio::time::sleep(TICK) => progress.report(|| activity.to_owned()),
        }
    }
}
