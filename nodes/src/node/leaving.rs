//! How a node leaves: it waits for runs, closes its shards and ends its lease.

use std::sync::Arc;

use subtend_journal::postgres::nodes::NodeLease;
use subtend_session::index::Inflight;
use subtend_session::place::OnRestart;
use subtend_supervision::Lease;
use tokio::time::{Instant, sleep, timeout};

use super::state::{ShardHost, is_busy};
use super::{LeaseTimes, Node};

impl Node {
    /// Drains, closes all shards, and ends the lease.
    pub(super) async fn leave(&self) {
        self.inner.ends.cancel();
        let Some(term) = self.state().term.clone() else { return };
        let leaving = async {
            self.wait_until_drained().await;
            let open = self.state().open();
            for shard in open {
                self.hand_over(shard);
            }
            self.inner.tasks.close();
            self.inner.tasks.wait().await;
        };
        tokio::select! {
            () = leaving => {}
            () = self.watch() => {}
            // The runtimes stop by themselves when the lease ends.
            () = term.work.ended() => return self.fence(),
        }
        // Requests that are still open must not start further work.
        term.work.end();
        if let Err(error) = self.inner.leases.leave(&term.lease).await {
            tracing::warn!(%error, "the lease of this node could not be ended and will expire");
        }
    }

    /// Ends a lost lease in the database after its work has stopped. Otherwise the lease may last longer there, if the
    /// reply to its last renewal was lost. No node, including this one, could then take its shards.
    pub(super) async fn leave_lost(self, lease: NodeLease, work: Lease) {
        let times = self.times();
        let ends = Instant::now() + times.lease;
        if !has_stopped(&work, times).await {
            tracing::warn!("the work of a lost lease has not stopped; the lease has expired meanwhile");
            return;
        }
        while let Err(error) = self.inner.registry.leave(&lease).await {
            if Instant::now() >= ends {
                tracing::warn!(%error, "the lost lease of this node was not ended and will expire");
                return;
            }
            sleep(times.tick()).await;
        }
    }

    /// Keeps reading nodes and shards, so that requests reach the nodes that have taken over. Never returns.
    async fn watch(&self) {
        loop {
            if let Ok(members) = self.inner.registry.members().await {
                self.inner.members.send_replace(Arc::new(members));
            }
            sleep(self.times().tick()).await;
        }
    }

    /// Returns the shard with the fewest busy runs among those that close without ending a run; `None` if each would end one.
    pub(super) async fn least_busy(&self, shards: Vec<String>) -> Option<String> {
        let open: Vec<_> = shards.into_iter().filter_map(|shard| Some((self.host(&shard)?, shard))).collect();
        let quiet = tokio::task::spawn_blocking(move || {
            // Returns `None` if closing the shard would end a run.
            let busy_runs = |open: &ShardHost| {
                let rows = open.host.runtime().journal().inflight().ok()?;
                let busy: Vec<&Inflight> = rows.iter().map(|(_, row)| row).filter(|row| is_busy(row.state)).collect();
                busy.iter().all(|row| row.on_restart == OnRestart::Resume).then_some(busy.len())
            };
            let quiet = open.iter().filter_map(|(open, shard)| Some((busy_runs(open)?, shard)));
            quiet.min().map(|(_, shard)| shard.clone())
        });
        quiet.await.ok().flatten()
    }

    /// Waits, up to the drain limit, until no runs remain that a restart would end.
    async fn wait_until_drained(&self) {
        let drained = async {
            for shard in self.open() {
                while self.host(&shard).is_some() && self.least_busy(vec![shard.clone()]).await.is_none() {
                    sleep(self.times().tick()).await;
                }
            }
        };
        if timeout(self.inner.options.drain, drained).await.is_err() {
            tracing::warn!("runs that do not resume remain; the next owner of their shard reports them as lost");
        }
    }
}

/// Waits until nothing checks a lost lease, and at least as long as between the last start of a call and the end of a lease. Returns
/// false if something still checks it when it has expired everywhere.
async fn has_stopped(work: &Lease, times: LeaseTimes) -> bool {
    sleep(times.heartbeat).await;
    timeout(times.lease.saturating_sub(times.heartbeat), work.released()).await.is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn d2_lost_work_is_awaited_until_its_lease_expires() {
        let times = LeaseTimes::of(Duration::from_secs(15));
        for (held, expected) in [(0, (true, 5)), (7, (true, 7)), (60, (false, 15))] {
            let (work, start) = (Lease::new(times.work, || Duration::ZERO), Instant::now());
            let holder = work.clone();
            tokio::spawn(async move {
                sleep(Duration::from_secs(held)).await;
                drop(holder);
            });
            let stopped = has_stopped(&work, times).await;
            assert_eq!((stopped, start.elapsed().as_secs()), expected, "held for {held} s");
        }
    }
}
