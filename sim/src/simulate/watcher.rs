//! Readers of events, fast and slow, that check for gaps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use subtend_actors::SessionHandle;
use subtend_actors::event::{EventKind, Next, Subscription};
use subtend_invariants::observed::Delivered;
use subtend_session::ids::{Seq, SessionId};

use crate::simulate::tally::FaultKind;
use crate::simulate::world::World;

/// Maximum delay of the disk.
const MAX_DISK_DELAY: Duration = Duration::from_secs(5);

/// Reads until the runtime ends.
pub(crate) fn spawn(world: &Arc<World>, subscription: Subscription) {
    let world = Arc::clone(world);
    tokio::spawn(read(world, subscription));
}

async fn read(world: Arc<World>, mut subscription: Subscription) {
    let slow = world.rng.one_in(3);
    let name = if slow { "a slow watcher" } else { "a watcher" };
    let reader = world.oracle.lock().observations.add_reader(name.into(), None);
    let (since, before) = {
        let oracle = world.oracle.lock();
        (oracle.now(), oracle.jumped)
    };
    let mut last = BTreeMap::<SessionId, Seq>::new();
    // After a gap, the next record of no session is known, because the gap may have hidden it.
    let mut missed = false;
    while let Some(next) = subscription.next().await {
        if slow && !world.is_calm() {
            tokio::time::sleep(world.rng.ms(0, 200)).await;
        }
        let event = match next {
            Next::Event(event) => event,
            Next::Missed(count) => {
                let mut oracle = world.oracle.lock();
                oracle.observations.record_delivery(reader, Delivered::Missed(count));
                oracle.record_fault(FaultKind::SlowSubscriber);
                missed = true;
                last.clear();
                continue;
            }
        };
        let EventKind::Record { seq, .. } = event.what else { continue };
        let mut oracle = world.oracle.lock();
        oracle.observations.record_delivery(reader, Delivered::Record(event.session, seq));
        let seen = oracle.seen.get(&event.session).copied();
        if seen.is_none_or(|seen| seen.last < seq) {
            oracle.wrong("J-5", format!("record {seq} of {} was received, but is not durable", event.session));
        }
        // A reader does not receive records that were appended before it subscribed, even if they become durable later.
        let disk = MAX_DISK_DELAY.saturating_add(oracle.jumped.saturating_sub(before));
        let created_here = !missed && seen.is_some_and(|seen| seen.created_at > since.saturating_add(disk));
        let expected = last.get(&event.session).map(|last| last.next()).or(created_here.then_some(Seq(1)));
        if expected.is_some_and(|expected| expected != seq) {
            oracle.wrong("N-6", format!("record {seq} of {} was received, but {expected:?} is next", event.session));
        }
        last.insert(event.session, seq);
    }
}

/// Follows one session from a random record, at any speed, and checks that no record is missed.
pub(crate) fn follow(world: &Arc<World>, session: &SessionHandle) {
    let (world, id) = (Arc::clone(world), session.id());
    let last = world.oracle.lock().seen.get(&id).map_or(Seq(1), |seen| seen.last);
    let from = Seq(world.rng.between(1, last.0));
    let mut events = session.events(from);
    tokio::spawn(async move {
        let slow = world.rng.one_in(2);
        let reader = world.oracle.lock().observations.add_reader("a follower".into(), Some((id, from)));
        while let Ok(Some(event)) = events.next().await {
            if slow && !world.is_calm() {
                tokio::time::sleep(world.rng.ms(0, 400)).await;
            }
            let EventKind::Record { seq, .. } = event.what else { continue };
            let mut oracle = world.oracle.lock();
            oracle.tally.mark("followed");
            if oracle.seen.get(&id).is_none_or(|seen| seen.last < seq) {
                oracle.wrong("J-5", format!("record {seq} of {id} was received, but is not durable"));
            }
            oracle.observations.record_delivery(reader, Delivered::Record(id, seq));
        }
    });
}
