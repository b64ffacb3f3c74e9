//! Verbs for which services of the host work, and nobody else: what waits in the store goes on waiting.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use subtend_actors::{Hooks, ModelChoice, Options, RecoveryScope, SessionHandle};
use subtend_agents::dialect::Dialects;
use subtend_session::authority::{RuleSet, Verdict};
use subtend_session::ids::Text;
use subtend_tools::option::ToolOptions;
use subtend_tools::registry::Registry;
use subtend_tools::workspace::Workspace;
use tokio::runtime::Runtime;

use super::super::data::StoreArgs;
use super::super::fail::{Code, Fail};
use super::super::progress::Teller;
use super::super::trust::Trust;
use super::super::{settings, workspace};
use super::choice::ModelArgs;
use super::here::{About, Found, HereArgs};
use super::hub::{self, Parts};
use super::{Stop, named, threads};

/// What a summary is waited for.
const WAIT: Duration = Duration::from_secs(120);
/// How often a person is told that it is waited for.
const TICK: Duration = Duration::from_millis(200);
/// Time for an orderly end.
const GRACE: Duration = Duration::from_secs(1);

/// Options of verbs for which services work.
#[derive(clap::Args, Debug)]
pub(crate) struct ServeArgs {
    /// Directory whose `subtend.yaml` and agents count
    #[arg(long, value_name = "DIR", default_value = ".")]
    workspace: PathBuf,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    models: ModelArgs,
}

impl ServeArgs {
    /// Whether the configuration switches summaries off; also where no model can be used.
    pub(crate) fn wants_no_summaries(&self) -> bool {
        let load = |workspace: Arc<Workspace>| settings::load(&workspace, Trust::silent(&workspace)?);
        let loaded = workspace::open(&self.workspace).and_then(load);
        loaded.is_ok_and(|loaded| loaded.config.sessions.summaries == Some(false))
    }

    /// Returns what a runtime for services of the session `name` is made of; nothing is started. The model that is named answers,
    /// else the session's own.
    pub(crate) fn ready(&self, name: &str) -> Result<Ready, Fail> {
        let workspace = workspace::open(&self.workspace)?;
        let trust = Trust::told(&workspace)?;
        let loaded = settings::load(&workspace, trust)?;
        let place = self.store.place()?;
        if !place.exists()? {
            return Err(place.none());
        }
        // Services read no file, so the directory of the session is of no matter.
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
        let parts = Parts {
            place,
            catalog: trust.catalog(&workspace),
            workspace,
            tools: Registry::builder().build(),
            models,
            prices: config.prices,
            windows: config.llm.windows(),
            caps: config.llm.caps(),
            limits: config.limits,
            // No tool works here.
            bounds: [RuleSet::only(Verdict::Allow), RuleSet::only(Verdict::Allow)],
            dialects: Dialects::default(),
            tool_options: ToolOptions::new(),
            options: Options { recovery_scope: RecoveryScope::Nothing, ..options },
            hooks,
            load: None,
            at_home: None,
            quiet: false,
        };
        Ok(Ready { parts, found })
    }
}

/// What services of one session need before anything is started. It holds the store.
pub(crate) struct Ready {
    pub(crate) parts: Parts,
    found: Found,
}

/// The model that the command names, in place of any other.
struct Instead(Text);

impl Hooks for Instead {
    fn resolve_model(&self, _: ModelChoice) -> BoxFuture<'_, Option<Text>> {
        Box::pin(std::future::ready(Some(self.0.clone())))
    }
}

/// Threads to work with, and the signals that end the work.
pub(crate) struct Listening {
    threads: Runtime,
    stop: Stop,
}

/// Listens for signals from here on: before the store is opened, so that whoever reads its lock can signal this process.
pub(crate) fn listen() -> Result<Listening, Fail> {
    let threads = threads()?;
    let stop = threads.block_on(async { Stop::listen() })?;
    Ok(Listening { threads, stop })
}

/// Starts a runtime for services, and does `job` with the session.
pub(crate) fn with<J>(listening: Listening, ready: Ready, job: J) -> Result<Code, Fail>
where
    J: AsyncFnOnce(SessionHandle, Stop) -> Result<Code, Fail>,
{
    let (Listening { threads, stop }, Ready { parts, found }) = (listening, ready);
    let done = threads.block_on(async {
        let (runtime, _) = hub::start(found.journal, parts, false).await?;
        let done = match runtime.session(found.session)? {
            Some(session) => job(session, stop).await,
            None => Err(Fail::Other("the session is not in the store any more".to_owned())),
        };
        hub::shut_down(runtime, GRACE).await;
        done
    });
    threads.shutdown_timeout(Duration::from_secs(1));
    done
}

/// Why something is not waited for any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmet {
    /// It took too long.
    Late,
    /// We were asked to stop.
    Stopped,
}

/// Waits for a summary, and tells that it is waited for.
pub(crate) async fn waited<T>(work: impl Future<Output = T>, stop: &mut Stop) -> Result<T, Unmet> {
    let mut work = std::pin::pin!(work);
    let mut teller = Teller::new();
    let mut over = std::pin::pin!(tokio::time::sleep(WAIT));
    loop {
        tokio::select! {
            done = &mut work => return Ok(done),
            () = stop.asked() => return Err(Unmet::Stopped),
            () = &mut over => return Err(Unmet::Late),
            () = tokio::time::sleep(TICK) => teller.tell(|| "the session is summed up".to_owned()),
        }
    }
}
