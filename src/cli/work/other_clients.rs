//! Waits for runs that the command does not follow: background children, runs of other terminals, resumed runs.

use std::time::Duration;

use subtend_actors::Runtime;
use subtend_session::ids::SessionId;
use subtend_session::index::Inflight;
use subtend_session::place::Owner;

use super::super::paint::count;
use super::super::serve;
use super::{Screen, StopSignal};

/// Interval of checks whether these runs have ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Waits until all runs have ended, because they would end with this process. A signal that cancelled the command's own
/// run does not end this wait, unless it asks the process to end.
pub(super) async fn wait_for_runs(runtime: &Runtime, screen: &mut Screen, stop: &mut StopSignal) {
    let mut is_reported = false;
    loop {
        // A failed journal accepts no ends of runs, so this must not wait for them.
        let rows = runtime.journal().inflight().unwrap_or_default();
        // Services of the host, such as titles, are not waited for here.
        let sent = |row: &Inflight| !matches!(row.owner, Owner::Host(_));
        let busy = |(_, row): &&(SessionId, Inflight)| sent(row) && serve::is_busy(row);
        let left = rows.iter().filter(busy).count();
        if left == 0 || stop.is_leave_requested() {
            return;
        }
        if !is_reported {
            stop.rearm();
            let runs = count(left as u64, "run");
            screen.note(&format!("waiting for {runs} hosted by this process; Ctrl-C stops waiting and ends them"));
            is_reported = true;
        }
        tokio::select! {
            () = tokio::time::sleep(CHECK_INTERVAL) => {}
            () = stop.requested() => return,
        }
    }
}
