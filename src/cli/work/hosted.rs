//! A runtime that serves clients instead of a single command.

use std::time::Duration;

use subtend_actors::{Approver, OpenOptions, Runtime};
use subtend_host::workers::Workers;
use subtend_journal::{Journal, OpenError};
#[cfg(feature = "postgres")]
use subtend_models::throttle::Throttles;
#[cfg(feature = "postgres")]
use subtend_supervision::Lease;

use super::super::client::{self, Connection};
use super::super::data::StoreLocation;
use super::super::fail::{Code, Fail};
use super::super::servers::ServerPool;
use super::found_session::CommandSubject;
use super::{PreparedWork, Screen, StopSignal, WorkArgs, async_runtime, end_runtime, limit, report_recovery, setup};

/// Interval of checks whether the store is free.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The parts of a runtime before its start, and the options with which its host opens sessions.
pub(crate) struct HostParts {
    parts: setup::Parts,
    pub(crate) home: String,
    pub(crate) open: OpenOptions,
    pub(crate) servers: ServerPool,
}

impl HostParts {
    #[cfg(feature = "postgres")]
    pub(crate) fn workers(&self) -> Workers {
        self.parts.workers.clone()
    }

    /// Checks options and files before anything is started.
    pub(crate) fn of(args: &WorkArgs, screen: &mut Screen) -> Result<Self, Fail> {
        let PreparedWork { mut parts, agent, model, servers, authority, files, pool, .. } =
            PreparedWork::of(args, CommandSubject::New(None), screen)?;
        parts.files = Some(files);
        let home = parts.workspace.path().to_string_lossy().into_owned();
        // Passed to each session, because the environment of a list of models has only the limits of its directory.
        let limit_changes = limit::changes(&args.limit)?;
        let open = OpenOptions { model, servers, policy: Some(authority), limit_changes, ..OpenOptions::agent(agent) };
        Ok(Self { parts, home, open, servers: pool })
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn slots(&self) -> usize {
        self.parts.options.slots
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn throttles(&self) -> Throttles {
        Throttles::new(self.parts.models.rates(), [])
    }

    /// Starts the runtime on a journal. Effects are performed only while `lease` is valid.
    #[cfg(feature = "postgres")]
    pub(crate) async fn start(
        self,
        journal: Journal,
        lease: Lease,
        throttles: Option<Throttles>,
    ) -> Result<(Runtime, Option<Approver>), Fail> {
        setup::start(journal, setup::Parts { lease, throttles, ..self.parts }, true).await
    }
}

/// Starts a runtime that recovers the whole store, and runs `job`, which shuts it down. Calls wait for approvals from
/// the start on. With `waits`, first waits for a process that hosts the store only until its runs end.
pub(crate) fn run_hosted<J>(args: &WorkArgs, waits: bool, job: J) -> Result<Code, Fail>
where
    J: AsyncFnOnce(Runtime, HostContext<'_>) -> Result<Code, Fail>,
{
    let mut screen = Screen::new(args.quiet, args.json);
    let HostParts { parts, home, open, servers } = HostParts::of(args, &mut screen)?;
    let async_runtime = async_runtime()?;
    let done = async_runtime.block_on(async {
        let mut stop = StopSignal::listen()?;
        let (place, workers) = (parts.place.clone(), parts.workers.clone());
        let journal = match waits {
            true => open_when_released(&place, &mut screen, &mut stop).await?,
            false => Some(place.open()?),
        };
        let Some(journal) = journal else { return Ok(Code::Cancelled) };
        let (runtime, approver) = tokio::select! {
            started = setup::start(journal, parts, true) => started?,
            () = stop.requested() => return Ok(Code::Cancelled),
        };
        report_recovery(runtime.boot(), &mut screen);
        let (screen, stop) = (&mut screen, &mut stop);
        job(runtime, HostContext { place, home, open, servers, workers, _approver: approver, screen, stop }).await
    });
    end_runtime(async_runtime);
    done
}

/// Opens the store when no other process holds it; `None` if a stop was requested first.
///
/// # Errors
/// If the store cannot be opened, or if another process serves it until it is stopped.
async fn open_when_released(
    place: &StoreLocation,
    screen: &mut Screen,
    stop: &mut StopSignal,
) -> Result<Option<Journal>, Fail> {
    let mut is_reported = false;
    loop {
        let pid = match place.try_open() {
            Ok(journal) => return Ok(Some(journal)),
            Err(OpenError::InUse { pid, .. }) => pid,
            Err(error) => return Err(place.open_error(error)),
        };
        let socket = client::socket(place).filter(|path| path.exists());
        let host = match &socket {
            Some(path) => tokio::select! {
                opened = Connection::open(path) => opened?,
                () = stop.requested() => return Ok(None),
            },
            // The process is starting or ending, or holds the store without listening, as `compact` does.
            None => None,
        };
        if let Some((_, serving)) = host.filter(|(_, serving)| serving.stays) {
            return Err(Fail::Store(format!(
                "the store {} is served by process {} already: use that host (`subtend token login` opens its page), or stop it first",
                place.name(),
                serving.pid
            )));
        }
        if !is_reported {
            screen.alert(&format!(
                "waiting for process {pid}, which has the store {} until its runs have ended; `subtend cancel ID` ends a run, Ctrl-C \
                 stops waiting",
                place.name()
            ));
            is_reported = true;
        }
        tokio::select! {
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
            () = stop.requested() => return Ok(None),
        }
    }
}

pub(crate) struct HostContext<'a> {
    pub(crate) place: StoreLocation,
    pub(crate) home: String,
    pub(crate) open: OpenOptions,
    pub(crate) servers: ServerPool,
    pub(crate) workers: Workers,
    _approver: Option<Approver>,
    pub(crate) screen: &'a mut Screen,
    pub(crate) stop: &'a mut StopSignal,
}
