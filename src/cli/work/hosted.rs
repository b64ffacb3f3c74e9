//! A runtime that serves clients rather than one verb.

use std::time::Duration;

use subtend_actors::{Approver, OpenOptions, Runtime};

use super::super::data::Place;
use super::super::fail::{Code, Fail};
use super::here::About;
use super::{Ready, Screen, Stop, WorkArgs, hub, recovered, threads};

/// Starts a runtime that takes up everything in the store, and hands it to `job`, which shuts it down. Calls may wait for an approval
/// from the start on.
pub(crate) fn hosted<J>(args: &WorkArgs, job: J) -> Result<Code, Fail>
where
    J: AsyncFnOnce(Runtime, Hosting<'_>) -> Result<Code, Fail>,
{
    let mut screen = Screen::new(args.quiet, args.json);
    let Ready { parts, agent, model, servers, opens, .. } = Ready::of(args, About::New(None), &mut screen)?;
    let home = parts.workspace.path().to_string_lossy().into_owned();
    let threads = threads()?;
    let done = threads.block_on(async {
        let mut stop = Stop::listen()?;
        let (place, journal) = (parts.place.clone(), parts.place.open()?);
        let (runtime, approver) = tokio::select! {
            started = hub::start(journal, parts, true) => started?,
            () = stop.asked() => return Ok(Code::Cancelled),
        };
        recovered(runtime.boot(), &mut screen);
        let open = OpenOptions { model, servers, policy: Some(opens), ..OpenOptions::agent(agent) };
        job(runtime, Hosting { place, home, open, _approver: approver, screen: &mut screen, stop: &mut stop }).await
    });
    threads.shutdown_timeout(Duration::from_secs(1));
    done
}

/// What a host needs besides its runtime.
pub(crate) struct Hosting<'a> {
    /// The store.
    pub(crate) place: Place,
    /// The directory that it was started for.
    pub(crate) home: String,
    /// What sessions are opened with where a client does not say.
    pub(crate) open: OpenOptions,
    /// Someone can approve until the host itself can.
    _approver: Option<Approver>,
    /// Where progress is written.
    pub(crate) screen: &'a mut Screen,
    /// Whether the process is to stop.
    pub(crate) stop: &'a mut Stop,
}
