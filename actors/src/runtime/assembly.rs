//! What the parts of a runtime call when something happens: they are made before the hub, and find it by its cell.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use subtend_session::command::{Command, Deadline};
use subtend_session::ids::SessionId;
use subtend_supervision::{SlotPools, StartError as SupervisorsError, StormLimit, StormSeen, Supervisors, Timers};

use crate::delivery::lane::Item;
use crate::delivery::ticket::{Ticket, Timer};
use crate::hub::{Hub, HubCell, upgrade};

/// More failures in a window than any number of bad sessions explains: the runtime takes nothing new, and says so.
fn storm(cell: &HubCell, seen: &StormSeen) {
    tracing::error!(
        ?seen,
        "session actors fail in a storm: the runtime takes no new work; shut it down and look at the log"
    );
    if let Some(hub) = upgrade(cell) {
        hub.gate.close();
    }
}

pub(crate) fn supervisors(cell: &HubCell) -> Result<Supervisors, SupervisorsError> {
    let (exits, storms) = (Arc::clone(cell), Arc::clone(cell));
    Supervisors::start_with(
        2_000,
        Arc::new(move |exit| {
            if let Some(hub) = upgrade(&exits) {
                hub.exited(&exit);
            }
        }),
        StormLimit::default(),
        Arc::new(move |seen| storm(&storms, &seen)),
    )
}

pub(crate) fn slots(cell: &HubCell, global: usize) -> SlotPools<SessionId, Ticket> {
    let cell = Arc::clone(cell);
    SlotPools::new(
        global,
        Arc::new(move |ticket: Ticket, slot| {
            // Without a hub the slot is dropped, which returns it.
            if let Some(hub) = upgrade(&cell) {
                hub.timers.disarm(&Timer::Deadline(ticket.session, Deadline::Queue(ticket.run)));
                hub.deliver(ticket.session, Item::Granted(ticket, slot));
            }
        }),
    )
}

pub(crate) fn timers(cell: &HubCell) -> Timers<Timer> {
    let cell = Arc::clone(cell);
    Timers::start(Arc::new(move |timer| {
        let Some(hub) = upgrade(&cell) else { return };
        match timer {
            Timer::Deadline(session, deadline) => {
                if let Deadline::Queue(run) = deadline
                    && let Some(left) = hub.unborn_queue_left(session, run)
                {
                    return hub.timers.arm(timer, left);
                }
                hub.tell(session, Command::Deadline(deadline));
            }
            Timer::Idle(session) => hub.directory.push_if_active(session, Item::Idle),
        }
    }))
}

/// A poisoned journal stops the whole runtime: nothing after the failed append is ever shown (J-9).
pub(crate) fn watch_poison(hub: &Arc<Hub>) {
    let (journal, weak) = (hub.journal.clone(), Arc::downgrade(hub));
    let watch = tokio::spawn(async move {
        let poison = journal.on_poison().await;
        let Some(hub) = weak.upgrade() else { return };
        tracing::error!(%poison, "the journal failed: the runtime stops");
        hub.stopping.store(true, Ordering::Release);
        hub.gate.close();
        hub.halt.cancel();
        hub.timers.shutdown();
        hub.calls.throttles.close();
        hub.waiters.close();
        hub.directory.clear();
        hub.supervisors.shutdown(std::time::Duration::ZERO).await;
    });
    hub.watch_with(watch.abort_handle());
}
