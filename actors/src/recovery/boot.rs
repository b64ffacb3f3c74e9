//! The boot sweep: before new work starts, runs in flight end as lost or resume, and every owner is notified.
//!
//! Recovery uses ordinary commands through ordinary activations and has no writer of its own, so it may crash at any write and be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use subtend_journal::{Poisoned, ReadError, StartRows};
use subtend_session::ids::SessionId;
use subtend_session::index::{Inflight, Row, RowKind};
use tokio::sync::{Mutex, oneshot};

use crate::cell::cells::Cells;
use crate::clock::now;
use crate::delivery::directory::Directory;
use crate::delivery::inbox::{InboxItem, Probed};
use crate::life::Lifecycle;
use crate::log::Log;
use crate::recovery::takeover::Takeover;
use crate::values::at_boot::AtBoot;

mod cancelled_trees;
mod report;
mod resuming;

use report::RecoveryTargets;
pub use report::{BootFailure, BootReport};
pub(super) use resuming::levels;
pub use resuming::preview_recovery;

const MAX_CONCURRENT: usize = 256;
/// Number of actor restarts that the sweep waits for: the first, the one that ends the run, and one more.
const MAX_RESTARTS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BootProgress {
    pub done: usize,
    /// Number of sessions to handle, as far as known.
    pub total: usize,
}

pub(super) struct BootSteps<'a> {
    pub(super) done: usize,
    pub(super) total: usize,
    pub(super) progress: &'a (dyn Fn(BootProgress) + Sync),
}

impl BootSteps<'_> {
    fn step(&mut self) {
        self.done = self.done.saturating_add(1);
        self.report();
    }

    fn report(&self) {
        (self.progress)(BootProgress { done: self.done, total: self.total });
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("the journal cannot be read: {0}")]
    Read(#[from] ReadError),
    #[error("the journal failed during recovery: {0}")]
    Poisoned(#[from] Poisoned),
}

pub(crate) struct StartRecovery {
    pub(crate) cells: Arc<Cells>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) takeover: Arc<Takeover>,
    pub(crate) log: Arc<Log>,
    pub(crate) life: Arc<Lifecycle>,
    /// Held by an import, since two imports would write the same sessions.
    pub(crate) imports: Mutex<()>,
}

impl StartRecovery {
    /// Sweeps runs in flight, deepest first, then delivers rows to idle sessions, then resumes runs.
    pub(crate) async fn boot(
        self: &Arc<Self>,
        StartRows { inflight, damaged, .. }: StartRows,
        progress: &(dyn Fn(BootProgress) + Sync),
    ) -> Result<BootReport, BootError> {
        let started = now();
        let _rows = self.takeover.sweep_rows();
        for (session, error) in &damaged {
            // The damaged session remains as it is and returns the error to callers; the other sessions start.
            tracing::error!(?session, %error, "a damaged session is skipped");
            if let Some(session) = session {
                self.takeover.unreadable.add(*session, &error.to_string());
            }
        }
        let levels = levels(&inflight);
        let mut at = BootSteps { done: 0, total: inflight.len(), progress };
        let at_boot = self.plan_recovery(&inflight, &levels, &mut at)?;
        let of = |what: AtBoot| -> Vec<SessionId> {
            let those = inflight.iter().filter(|(session, _)| at_boot.get(session) == Some(&what));
            those.map(|(session, _)| *session).collect()
        };
        let (resuming_runs, dormant) = (of(AtBoot::Resumes), of(AtBoot::Dormant));
        let lost = inflight.iter().filter(|(session, _)| matches!(at_boot.get(session), Some(AtBoot::Lost(_))));
        let mut targets = RecoveryTargets {
            lost: lost.map(|(session, row)| (*session, row.run)).collect(),
            resuming_runs,
            dormant,
            ..RecoveryTargets::default()
        };
        let mut by_depth: BTreeMap<u32, Vec<SessionId>> = BTreeMap::new();
        for session in targets.lost.keys() {
            by_depth.entry(levels.get(session).copied().unwrap_or_default()).or_default().push(*session);
        }
        for (session, depth) in self.sessions_with_continue_rows(&inflight)? {
            by_depth.entry(depth).or_default().push(session);
        }
        self.takeover.mark(at_boot);
        at.total = by_depth.values().map(Vec::len).fold(at.done, usize::saturating_add);
        targets.owed.extend(self.owed_rows()?);
        for (_, level) in by_depth.into_iter().rev() {
            targets.failed.extend(self.visit(level, &mut at).await?);
            targets.owed.extend(self.owed_rows()?);
        }
        let to: BTreeSet<SessionId> = self.owed_rows()?.map(|row| row.to).collect();
        let to: Vec<SessionId> = to.into_iter().filter(|session| !self.takeover.awaits(*session)).collect();
        at.total = at.total.saturating_add(to.len());
        targets.failed.extend(self.visit(to, &mut at).await?);
        at.total = at.total.saturating_add(targets.resuming_runs.len());
        targets.failed.extend(self.visit(targets.resuming_runs.clone(), &mut at).await?);
        self.log.journal.settled().await?;
        let took_ms = u64::try_from(now().duration_since(started).as_millis()).unwrap_or(u64::MAX);
        Ok(BootReport { took_ms, ..self.build_report(&targets, damaged)? })
    }

    fn owed_rows(&self) -> Result<impl Iterator<Item = Row>, ReadError> {
        Ok(self.log.journal.outbox()?.into_iter().map(|(row, _)| row))
    }

    /// Returns idle sessions with a continue row, with their depths. They reply before their owners end, so that the owners still receive the reply.
    fn sessions_with_continue_rows(
        &self,
        inflight: &[(SessionId, Inflight)],
    ) -> Result<Vec<(SessionId, u32)>, ReadError> {
        let mut requested_cancels = BTreeSet::new();
        for (row, _) in self.log.journal.outbox()? {
            match row.kind {
                RowKind::Continue => requested_cancels.insert(row.to),
                // A cancel after a continue is handled with it; a cancel alone is for an ended run.
                RowKind::Cancel | RowKind::Notice | RowKind::Ask | RowKind::Answer => false,
            };
        }
        for (session, _) in inflight {
            requested_cancels.remove(session);
        }
        let mut found = Vec::with_capacity(requested_cancels.len());
        for session in requested_cancels {
            match self.log.journal.head(session) {
                Ok(head) => found.extend(head.map(|head| (session, head.depth))),
                // Its row remains until the session is repaired.
                Err(error @ (ReadError::Damaged { .. } | ReadError::Newer { .. })) => {
                    tracing::error!(%session, %error, "cannot read a continued session; it is skipped");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Activates each session and waits until its first commands are decided and durable; counts the handled ones. Returns the sessions that failed.
    pub(super) async fn visit(
        self: &Arc<Self>,
        sessions: Vec<SessionId>,
        at: &mut BootSteps<'_>,
    ) -> Result<Vec<SessionId>, Poisoned> {
        type SettledSession = futures_util::future::BoxFuture<'static, (SessionId, bool)>;
        let mut waiting: FuturesUnordered<SettledSession> = FuturesUnordered::new();
        let mut failed = Vec::new();
        let mut count = |(session, settled): (SessionId, bool)| {
            failed.extend((!settled).then_some(session));
            at.step();
        };
        for session in sessions {
            if waiting.len() >= MAX_CONCURRENT
                && let Some(received) = waiting.next().await
            {
                count(received);
            }
            let visit = self.takeover.visit(session);
            let first = self.probe(session);
            let recovery = Arc::clone(self);
            waiting.push(Box::pin(async move {
                let settled = recovery.wait_for_decision(session, first).await;
                drop(visit);
                // Unloaded at once, since otherwise all swept sessions would be in memory together until they passivate. After the
                // visit: the session then returns its room also if it stays.
                recovery.directory.push_if_active(session, InboxItem::Idle);
                (session, settled)
            }));
        }
        while let Some(received) = waiting.next().await {
            count(received);
        }
        match self.log.journal.poisoned() {
            Some(poison) => Err(poison),
            None => Ok(failed),
        }
    }

    /// Probes `session`: the probe returns when every queued item is decided.
    fn probe(self: &Arc<Self>, session: SessionId) -> oneshot::Receiver<Probed> {
        let (sender, probed) = oneshot::channel();
        self.cells.deliver(session, InboxItem::Probe(sender));
        probed
    }

    /// Waits until the first commands of `session` are decided and durable; returns whether they are.
    /// A panic of the actor loses its probe, so the restarted actor is probed again: otherwise the owner would be swept
    /// first and end before its owned runs. If the actor also crashes while it ends the run, its delayed restarts are
    /// not awaited, so that the other sessions start.
    async fn wait_for_decision(self: &Arc<Self>, session: SessionId, mut probe: oneshot::Receiver<Probed>) -> bool {
        for _ in 0..=MAX_RESTARTS {
            if let Ok(probed) = probe.await {
                return self.log.journal.wait(probed.lsn).await.is_ok();
            }
            let restarts = self.directory.with(session, |_| ()).is_some();
            if !restarts || self.life.is_stopping() {
                return false;
            }
            probe = self.probe(session);
        }
        false
    }
}
