//! The boot sweep: what was in flight when the host died ends `Lost`, and every owner hears of it, before new work starts; what
//! was opened to go on goes on.
//!
//! Ordinary commands through ordinary activations: recovery has no writer of its own, so it may die at any write and be done
//! again (J-7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use subtend_journal::{Poisoned, ReadError};
use subtend_session::ids::SessionId;
use subtend_session::index::{Inflight, Row, RowKind};
use tokio::sync::oneshot;

use crate::cell::cells::Cells;
use crate::clock::now;
use crate::delivery::directory::Directory;
use crate::delivery::inbox::{InboxItem, Probed};
use crate::life::Life;
use crate::log::Log;
use crate::recovery::takeover::Takeover;
use crate::values::at_boot::AtBoot;

mod going_on;
mod report;
mod standing;

pub use going_on::at_next_boot;
use report::Aims;
pub use report::{BootReport, Undone};

/// Sessions that are swept at the same time.
const WIDTH: usize = 256;
/// Restarts that the sweep waits for: the first, the one that gives the run up, and one more.
const REVIVALS: u32 = 3;

/// How far the boot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BootProgress {
    /// Sessions that are done with.
    pub done: usize,
    /// Sessions that something is to be done with, as far as that is known.
    pub total: usize,
}

/// How far it is, and who is told.
struct Course<'a> {
    done: usize,
    total: usize,
    progress: &'a (dyn Fn(BootProgress) + Sync),
}

impl Course<'_> {
    fn step(&mut self) {
        self.done = self.done.saturating_add(1);
        self.tell();
    }

    fn tell(&self) {
        (self.progress)(BootProgress { done: self.done, total: self.total });
    }
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

/// What the start uses of other rooms: it has no writer of its own.
pub(crate) struct Recovery {
    pub(crate) cells: Arc<Cells>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) takeover: Arc<Takeover>,
    pub(crate) log: Arc<Log>,
    pub(crate) life: Arc<Life>,
}

impl Recovery {
    /// Sweeps what was in flight, deepest first, then delivers what is owed to sessions at rest, then lets go on what goes on.
    pub(crate) async fn boot(
        self: &Arc<Self>,
        progress: &(dyn Fn(BootProgress) + Sync),
    ) -> Result<BootReport, BootError> {
        let started = now();
        let damaged = self.log.journal.damaged()?;
        for (session, error) in &damaged {
            // Quarantined: it stays as it is, and whoever addresses it gets the error; the others start (J-8).
            tracing::error!(?session, %error, "a damaged session is left alone");
            if let Some(session) = session {
                self.takeover.unreadable.add(*session, &error.to_string());
            }
        }
        let inflight = self.log.journal.inflight()?;
        let levels = going_on::levels(&inflight);
        let mut at = Course { done: 0, total: inflight.len(), progress };
        let at_boot = self.at_boot(&inflight, &levels, &mut at)?;
        let of = |what: AtBoot| -> Vec<SessionId> {
            let those = inflight.iter().filter(|(session, _)| at_boot.get(session) == Some(&what));
            those.map(|(session, _)| *session).collect()
        };
        let (going, staying) = (of(AtBoot::GoesOn), of(AtBoot::Stays));
        let lost = inflight.iter().filter(|(session, _)| matches!(at_boot.get(session), Some(AtBoot::Lost(_))));
        let mut aims =
            Aims { lost: lost.map(|(session, row)| (*session, row.run)).collect(), going, staying, ..Aims::default() };
        let mut by_depth: BTreeMap<u32, Vec<SessionId>> = BTreeMap::new();
        for session in aims.lost.keys() {
            by_depth.entry(levels.get(session).copied().unwrap_or_default()).or_default().push(*session);
        }
        for (session, depth) in self.asked(&inflight)? {
            by_depth.entry(depth).or_default().push(session);
        }
        self.takeover.mark(at_boot);
        at.total = by_depth.values().map(Vec::len).fold(at.done, usize::saturating_add);
        aims.owed.extend(self.owed()?);
        for (_, level) in by_depth.into_iter().rev() {
            aims.failed.extend(self.visit(level, &mut at).await?);
            aims.owed.extend(self.owed()?);
        }
        let to: BTreeSet<SessionId> = self.owed()?.map(|row| row.to).collect();
        let to: Vec<SessionId> = to.into_iter().filter(|session| !self.takeover.awaits(*session)).collect();
        at.total = at.total.saturating_add(to.len());
        aims.failed.extend(self.visit(to, &mut at).await?);
        at.total = at.total.saturating_add(aims.going.len());
        aims.failed.extend(self.visit(aims.going.clone(), &mut at).await?);
        self.log.journal.settled().await?;
        let took_ms = u64::try_from(now().duration_since(started).as_millis()).unwrap_or(u64::MAX);
        Ok(BootReport { took_ms, ..self.told(&aims, damaged)? })
    }

    /// What one session owes another.
    fn owed(&self) -> Result<impl Iterator<Item = Row>, ReadError> {
        Ok(self.log.journal.outbox()?.into_iter().map(|(row, _)| row))
    }

    /// Quiet sessions that their owners asked to go on, with their depths: they answer before the owners end, so that these
    /// hear of it while they still can.
    fn asked(&self, inflight: &[(SessionId, Inflight)]) -> Result<Vec<(SessionId, u32)>, ReadError> {
        let mut asked = BTreeSet::new();
        for (row, _) in self.log.journal.outbox()? {
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
            match self.log.journal.head(session) {
                Ok(head) => found.extend(head.map(|head| (session, head.depth))),
                // Its row stands: it is for whoever mends the session.
                Err(error @ (ReadError::Damaged { .. } | ReadError::Newer { .. })) => {
                    tracing::error!(%session, %error, "it was asked to go on, and cannot be read: it is left alone");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Activates each session and waits until what it hears first is decided and durable; tells how many are done with. Returns
    /// those that could not be.
    async fn visit(
        self: &Arc<Self>,
        sessions: Vec<SessionId>,
        at: &mut Course<'_>,
    ) -> Result<Vec<SessionId>, Poisoned> {
        type Heard = futures_util::future::BoxFuture<'static, (SessionId, bool)>;
        let mut waiting: FuturesUnordered<Heard> = FuturesUnordered::new();
        let mut failed = Vec::new();
        let mut count = |(session, settled): (SessionId, bool)| {
            failed.extend((!settled).then_some(session));
            at.step();
        };
        for session in sessions {
            if waiting.len() >= WIDTH
                && let Some(heard) = waiting.next().await
            {
                count(heard);
            }
            let first = self.probed(session);
            let recovery = Arc::clone(self);
            waiting.push(Box::pin(async move { (session, recovery.heard(session, first).await) }));
        }
        while let Some(heard) = waiting.next().await {
            count(heard);
        }
        match self.log.journal.poisoned() {
            Some(poison) => Err(poison),
            None => Ok(failed),
        }
    }

    /// Asks `session` to tell when all that waits for it now is decided.
    fn probed(self: &Arc<Self>, session: SessionId) -> oneshot::Receiver<Probed> {
        let (tell, told) = oneshot::channel();
        self.cells.deliver(session, InboxItem::Probe(tell));
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
                let settled = self.log.journal.wait(probed.lsn).await.is_ok();
                // It came for the sweep alone: a hundred thousand that stay until they were idle for long would all be in
                // memory at the same time.
                self.directory.push_if_active(session, InboxItem::Idle);
                return settled;
            }
            let restarts = self.directory.with(session, |_| ()).is_some();
            if !restarts || self.life.is_stopping() {
                return false;
            }
            told = self.probed(session);
        }
        false
    }
}
