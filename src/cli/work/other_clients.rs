//! Runs in this process that its command does not follow: background children, inputs of other terminals, what an earlier process left.

use std::time::Duration;

use subtend_actors::Runtime;
use subtend_session::ids::SessionId;
use subtend_session::index::Inflight;
use subtend_session::place::Owner;

use super::super::paint::count;
use super::super::serve;
use super::{Screen, StopSignal};

/// Between two checks whether other terminals' runs have ended.
const CHECK: Duration = Duration::from_millis(200);

/// Stays until all runs have ended: with this process they would end, as lost unless they resume.
pub(super) async fn ended(runtime: &Runtime, screen: &mut Screen, stop: &mut StopSignal) {
    let mut is_reported = false;
    loop {
        // A journal that failed has no run that could end.
        let rows = runtime.journal().inflight().unwrap_or_default();
        // A service of this process, such as a title, is waited for elsewhere.
        let sent = |row: &Inflight| !matches!(row.owner, Owner::Host(_));
        let busy = |(_, row): &&(SessionId, Inflight)| sent(row) && serve::is_busy(row);
        let left = rows.iter().filter(busy).count();
        if left == 0 {
            return;
        }
        if !is_reported {
            let runs = count(left as u64, "run");
            screen.alert(&format!("{runs} in flight here: this process stays until they end; Ctrl-C ends them"));
            is_reported = true;
        }
        tokio::select! {
            () = tokio::time::sleep(CHECK) => {}
            () = stop.requested() => return,
        }
    }
}
