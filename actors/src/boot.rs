//! The boot sweep: what was in flight when the host died ends `Lost`, and every owner hears of it, before new work starts; what
//! was opened to go on goes on.
//!
//! Ordinary commands through ordinary activations: recovery has no writer of its own, so it may die at any write and be done
//! again (J-7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use futures_util::stream::{FuturesUnordered, StreamExt};
use subtend_journal::{Poisoned, ReadError};
use subtend_session::command::Command;
use subtend_session::ids::SessionId;
use subtend_session::index::{Inflight, RowKind};
use tokio::sync::oneshot;

use crate::hub::Hub;
use crate::lane::{Item, Probed};
use crate::mint::now;

mod going_on;

pub(crate) use going_on::AtBoot;

/// Sessions that are swept at the same time.
const WIDTH: usize = 256;
/// Restarts that the sweep waits for: the first, the one that gives the run up, and one more.
const REVIVALS: u32 = 3;

/// What the boot found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootReport {
    /// Runs that were in flight and were swept.
    pub swept: usize,
    /// Runs that were in flight and go on (`on_restart: resume`); with [`crate::Options::leaves_waiting`] they are left as they are.
    pub resumed: usize,
    /// Notices that were owed and delivered.
    pub notices: usize,
    /// Sessions that could not be read: they stay as they are; `verify` says what is wrong with them.
    pub unreadable: usize,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// How far the boot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootProgress {
    /// Sessions swept.
    pub done: usize,
    /// Sessions to be swept.
    pub total: usize,
}

/// Why the boot could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The journal cannot be read.
    #[error("the journal cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The journal failed meanwhile.
    #[error("the journal failed during recovery: {0}")]
    Poisoned(#[from] Poisoned),
}

impl Hub {
    /// Sweeps what was in flight, deepest first, then delivers what is owed to sessions at rest, then lets go on what goes on.
    pub(crate) async fn boot(
        self: &Arc<Self>,
        progress: &(dyn Fn(BootProgress) + Sync),
    ) -> Result<BootReport, BootError> {
        let started = now();
        let damaged = self.journal.damaged()?;
        for (session, error) in &damaged {
            // Quarantined: it stays as it is, and whoever addresses it gets the error; the others start (J-8).
            tracing::error!(?session, %error, "a damaged session is left alone");
        }
        let inflight = self.journal.inflight()?;
        let levels = going_on::levels(&inflight);
        let at_boot = self.at_boot(&inflight, &levels)?;
        let going: Vec<SessionId> = inflight
            .iter()
            .filter(|(session, _)| at_boot.get(session) == Some(&AtBoot::GoesOn))
            .map(|(session, _)| *session)
            .collect();
        let mut report = BootReport { unreadable: damaged.len(), resumed: going.len(), ..BootReport::default() };
        report.swept = inflight.len().saturating_sub(going.len());
        let mut by_depth: BTreeMap<u32, Vec<SessionId>> = BTreeMap::new();
        for (session, _) in inflight.iter().filter(|(session, _)| at_boot.get(session) == Some(&AtBoot::Lost)) {
            by_depth.entry(levels.get(session).copied().unwrap_or_default()).or_default().push(*session);
        }
        for (session, depth) in self.asked(&inflight)? {
            by_depth.entry(depth).or_default().push(session);
        }
        self.boot.lock().unwrap_or_else(PoisonError::into_inner).extend(at_boot);
        let mut at = BootProgress { done: 0, total: by_depth.values().map(Vec::len).sum() };
        for (_, level) in by_depth.into_iter().rev() {
            let before = at;
            at.done += level.len();
            let told = |done| progress(BootProgress { done: before.done.saturating_add(done), ..before });
            report.unreadable += self.visit(level, &told).await?;
        }
        let owed = self.journal.outbox()?;
        report.notices = owed.len();
        let to: BTreeSet<SessionId> = owed.into_iter().map(|(row, _)| row.to).collect();
        let to = to.into_iter().filter(|session| !self.awaits_boot(*session)).collect();
        report.unreadable += self.visit(to, &|_| {}).await?;
        if !self.options.leaves_waiting {
            report.unreadable += self.visit(going, &|_| {}).await?;
        }
        report.took_ms = u64::try_from(now().duration_since(started).as_millis()).unwrap_or(u64::MAX);
        Ok(report)
    }

    /// Quiet sessions that their owners asked to go on, with their depths: they answer before the owners end, so that these
    /// hear of it while they still can.
    fn asked(&self, inflight: &[(SessionId, Inflight)]) -> Result<Vec<(SessionId, u32)>, ReadError> {
        let mut asked = BTreeSet::new();
        for (row, _) in self.journal.outbox()? {
            match row.kind {
                RowKind::Continue => asked.insert(row.to),
                // A cancel behind a continue is taken with it; alone it is for a run that has ended.
                RowKind::Cancel | RowKind::Notice | RowKind::Ask | RowKind::Answer => false,
            };
        }
        for (session, _) in inflight {
            asked.remove(session);
        }
        let mut found = Vec::with_capacity(asked.len());
        for session in asked {
            found.extend(self.journal.head(session)?.map(|head| (session, head.depth)));
        }
        Ok(found)
    }

    /// Activates each session and waits until what it hears first is decided and durable; tells how many are done with. Returns
    /// how many could not be.
    async fn visit(
        self: &Arc<Self>,
        sessions: Vec<SessionId>,
        done: &(dyn Fn(usize) + Sync),
    ) -> Result<usize, Poisoned> {
        let mut waiting: FuturesUnordered<futures_util::future::BoxFuture<'static, bool>> = FuturesUnordered::new();
        let (mut failed, mut heard) = (0_usize, 0_usize);
        let mut count = |settled: bool| {
            failed += usize::from(!settled);
            heard += 1;
            done(heard);
        };
        for session in sessions {
            if waiting.len() >= WIDTH
                && let Some(settled) = waiting.next().await
            {
                count(settled);
            }
            let first = self.probed(session);
            waiting.push(Box::pin(Arc::clone(self).heard(session, first)));
        }
        while let Some(settled) = waiting.next().await {
            count(settled);
        }
        match self.journal.poisoned() {
            Some(poison) => Err(poison),
            None => Ok(failed),
        }
    }

    /// Queues what a row holds for `to`. One that the sweep has not reached yet finds the row in the outbox when it does: woken
    /// now, by an end or by an actor that makes good what it had appended, it would end before its other owned runs (T-7).
    pub(crate) fn tell_after_sweep(self: &Arc<Self>, to: SessionId, command: Command) {
        if !self.awaits_boot(to) {
            self.tell(to, command);
        }
    }

    fn awaits_boot(&self, session: SessionId) -> bool {
        self.boot.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&session)
    }

    /// Asks `session` to tell when all that waits for it now is decided.
    fn probed(self: &Arc<Self>, session: SessionId) -> oneshot::Receiver<Probed> {
        let (tell, told) = oneshot::channel();
        self.deliver(session, Item::Probe(tell));
        told
    }

    /// Waits until what `session` hears first is decided and durable; tells whether it is.
    ///
    /// An actor that panics takes its probe along, and is restarted: the next one is asked, or its owner would be swept before
    /// it and end before what it owns (T-7). One that dies at being given up too (V-3) is left to its slow restarts, so that the
    /// others start.
    async fn heard(self: Arc<Self>, session: SessionId, mut told: oneshot::Receiver<Probed>) -> bool {
        for _ in 0..=REVIVALS {
            if let Ok(probed) = told.await {
                return self.journal.wait(probed.lsn).await.is_ok();
            }
            let restarts = self.directory.with(session, |_| ()).is_some();
            if !restarts || self.is_stopping() {
                return false;
            }
            told = self.probed(session);
        }
        false
    }
}
