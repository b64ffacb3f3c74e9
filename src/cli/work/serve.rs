//! Verbs for which services of the host work, and nobody else: what waits in the store goes on waiting.

use std::path::PathBuf;
use std::time::Duration;

use subtend_actors::{Options, SessionHandle, TakesUp};
use subtend_agents::catalog::Catalog;
use subtend_agents::dialect::Dialects;
use subtend_tools::option::ToolOptions;
use subtend_tools::policy::HostPolicy;
use subtend_tools::registry::Registry;

use super::super::control;
use super::super::data::StoreArgs;
use super::super::fail::{Code, Fail};
use super::super::progress::Teller;
use super::super::{settings, workspace};
use super::choice::ModelArgs;
use super::hub::{self, Parts};
use super::{Stop, threads};

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
    /// What a runtime for services is made of; nothing is started.
    pub(crate) fn parts(&self) -> Result<Parts, Fail> {
        let workspace = workspace::open(&self.workspace)?;
        let loaded = settings::load(&workspace)?;
        let models = self.models.choose(&loaded)?;
        let config = loaded.config;
        let options = config.sessions.options(models.calls_servers());
        Ok(Parts {
            place: self.store.place()?,
            catalog: Catalog::load(workspace.path()),
            workspace,
            tools: Registry::builder().build(),
            models,
            prices: config.prices,
            limits: config.limits,
            policy: HostPolicy::default_for_workspace(),
            dialects: Dialects::default(),
            tool_options: ToolOptions::new(),
            options: Options { takes_up: TakesUp::Nothing, ..options },
            quiet: false,
        })
    }
}

/// Finds the session that `name` means, and does `job` with it.
pub(crate) fn with<J>(parts: Parts, name: &str, job: J) -> Result<Code, Fail>
where
    J: AsyncFnOnce(SessionHandle, Stop) -> Result<Code, Fail>,
{
    if !parts.place.exists() {
        return Err(parts.place.none());
    }
    let threads = threads()?;
    let done = threads.block_on(async {
        let stop = Stop::listen()?;
        let (runtime, _) = hub::start(parts.place.open()?, parts, false).await?;
        let done = match control::session(&runtime, name) {
            Ok(session) => job(session, stop).await,
            Err(fail) => Err(fail),
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
