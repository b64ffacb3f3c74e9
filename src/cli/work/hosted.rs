//! A runtime that serves clients rather than one verb.

use std::time::Duration;

use subtend_actors::{Approver, OpenOptions, Runtime};
use subtend_host::workers::Workers;

use super::super::data::StoreLocation;
use super::super::fail::{Code, Fail};
use super::found_session::About;
use super::{PreparedWork, Screen, StopSignal, WorkArgs, recovered, setup, threads};

/// Starts a runtime that recovers the whole store, and runs `job`, which shuts it down. Asks wait for an approver from
/// the start on.
pub(crate) fn hosted<J>(args: &WorkArgs, job: J) -> Result<Code, Fail>
where
    J: AsyncFnOnce(Runtime, Hosting<'_>) -> Result<Code, Fail>,
{
    let mut screen = Screen::new(args.quiet, args.json);
    let PreparedWork { mut parts, agent, model, servers, opens, files, .. } =
        PreparedWork::of(args, About::New(None), &mut screen)?;
    parts.files = Some(files);
    let home = parts.workspace.path().to_string_lossy().into_owned();
    let threads = threads()?;
    let done = threads.block_on(async {
        let mut stop = StopSignal::listen()?;
        let (place, workers, journal) = (parts.place.clone(), parts.workers.clone(), parts.place.open()?);
        let (runtime, approver) = tokio::select! {
            started = setup::start(journal, parts, true) => started?,
            () = stop.asked() => return Ok(Code::Cancelled),
        };
        recovered(runtime.boot(), &mut screen);
        let open = OpenOptions { model, servers, policy: Some(opens), ..OpenOptions::agent(agent) };
        job(runtime, Hosting { place, home, open, workers, _approver: approver, screen: &mut screen, stop: &mut stop })
            .await
    });
    threads.shutdown_timeout(Duration::from_secs(1));
    done
}

pub(crate) struct Hosting<'a> {
    pub(crate) place: StoreLocation,
    pub(crate) home: String,
    pub(crate) open: OpenOptions,
    pub(crate) workers: Workers,
    _approver: Option<Approver>,
    pub(crate) screen: &'a mut Screen,
    pub(crate) stop: &'a mut StopSignal,
}
