//! Journal without a thread, for deterministic simulators: the caller decides when queued batches are written.

use std::sync::Arc;

use subtend_session::ids::Lsn;

use crate::engine::{Engine, Group};
use crate::error::OpenError;
use crate::journal::{Journal, Options};
use crate::panics::catch_panics;
use crate::shared::Shared;
use crate::writer::fail;

/// Writer of a journal, driven by the caller. Dropping it leaves queued batches unwritten, like a crash.
pub struct Stepper {
    shared: Arc<Shared>,
    engine: Option<Arc<dyn Engine>>,
}

impl std::fmt::Debug for Stepper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stepper").field("waiting", &self.queued()).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// Everything up to this LSN is durable.
    Wrote(Lsn),
    /// The write failed: the journal is poisoned.
    Failed,
    Nothing,
    /// The journal is closed and has released its engine.
    Closed,
}

impl Journal {
    /// Opens a journal whose writes are performed through the [`Stepper`].
    /// # Errors
    /// When the engine cannot report the end of its log.
    pub fn open_stepped(engine: Box<dyn Engine>, options: Options) -> Result<(Self, Stepper), OpenError> {
        let engine: Arc<dyn Engine> = engine.into();
        let shared = Arc::new(Shared::for_stepper(Arc::clone(&engine), options.queue_bytes, engine.last_lsn()?));
        let stepper = Stepper { shared: Arc::clone(&shared), engine: Some(engine) };
        Ok((Self::of(shared, None), stepper))
    }
}

impl Stepper {
    pub fn queued(&self) -> usize {
        self.shared.core().queue.len()
    }

    /// Waits until the queue is not empty, or the journal is about to close. Cancel safe.
    pub async fn wait_for_work(&self) {
        loop {
            let work_added = self.shared.work_added.notified();
            if self.has_work() {
                return;
            }
            work_added.await;
        }
    }

    fn has_work(&self) -> bool {
        let core = self.shared.core();
        core.closing || !core.queue.is_empty()
    }

    /// Writes up to `most` queued batches as one durable group.
    pub fn step(&mut self, most: usize) -> Stepped {
        let Some(engine) = &self.engine else { return Stepped::Closed };
        let mut core = self.shared.core();
        let many = core.queue.len().min(most);
        let batches: Vec<_> = core.queue.drain(..many).collect();
        if batches.is_empty() {
            if !core.closing {
                return Stepped::Nothing;
            }
            drop(core);
            self.engine = None;
            self.shared.release();
            return Stepped::Closed;
        }
        drop(core);
        let bytes = batches.iter().fold(0_u64, |sum, batch| sum.saturating_add(batch.bytes));
        let group = Group { frames: batches.into_iter().flat_map(|batch| batch.frames).collect() };
        let last = group.last().unwrap_or_default();
        if let Err(error) = catch_panics("write", || engine.write(group)) {
            fail(&self.shared, error);
            return Stepped::Failed;
        }
        self.shared.waiters.publish(last);
        let mut core = self.shared.core();
        core.queued_bytes = core.queued_bytes.saturating_sub(bytes);
        core.fences.release_durable(last);
        drop(core);
        self.shared.update_pressure();
        Stepped::Wrote(last)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use subtend_session::ids::SessionId;

    use super::*;
    use crate::error::EngineError;
    use crate::faulty::Faulty;
    use crate::memory::Memory;

    fn batch(n: u128) -> crate::Batch {
        let frame = crate::Frame {
            session: SessionId(uuid::Uuid::from_u128(n)),
            first_seq: subtend_session::ids::Seq(1),
            epoch: subtend_session::ids::Epoch(1),
            at_ms: 0,
            records: vec![subtend_session::record::Record::SessionClosed {
                by: subtend_session::outcome::Initiator::Host,
            }],
            changes: Default::default(),
        };
        crate::Batch { frames: vec![frame] }
    }

    #[test]
    fn batch_is_durable_only_after_its_step() {
        let (journal, mut stepper) = Journal::open_stepped(Box::new(Memory::new()), Options::default()).unwrap();
        for n in 1..=3 {
            journal.append(batch(n)).unwrap();
        }
        assert_eq!((journal.last_appended(), journal.durable(), stepper.queued()), (Lsn(3), Lsn(0), 3));
        assert_eq!((stepper.step(2), journal.durable()), (Stepped::Wrote(Lsn(2)), Lsn(2)));
        assert_eq!((stepper.step(2), stepper.step(2)), (Stepped::Wrote(Lsn(3)), Stepped::Nothing));
    }

    #[test]
    fn unwritten_batches_are_lost_with_the_process() {
        let memory = Memory::new();
        let (journal, stepper) = Journal::open_stepped(Box::new(memory.clone()), Options::default()).unwrap();
        journal.append(batch(1)).unwrap();
        drop((journal, stepper));
        assert_eq!(memory.last_lsn().unwrap(), Lsn(0));
    }

    #[test]
    fn failed_write_poisons_the_journal() {
        let (engine, faults) = Faulty::new(Box::new(Memory::new()));
        let (journal, mut stepper) = Journal::open_stepped(Box::new(engine), Options::default()).unwrap();
        faults.fail_write(1);
        journal.append(batch(1)).unwrap();
        assert_eq!(stepper.step(1), Stepped::Failed);
        let poisoned = journal.poisoned().map(|poisoned| poisoned.to_string());
        let why = crate::error::Poisoned(Arc::new(EngineError::Injected("a write fails"))).to_string();
        assert_eq!(poisoned, Some(why));
    }

    #[tokio::test]
    async fn close_waits_for_the_last_step() {
        let (journal, mut stepper) = Journal::open_stepped(Box::new(Memory::new()), Options::default()).unwrap();
        journal.append(batch(1)).unwrap();
        let closing = tokio::spawn(journal.close());
        let mut steps = Vec::new();
        while steps.last() != Some(&Stepped::Closed) {
            stepper.wait_for_work().await;
            tokio::task::yield_now().await;
            steps.push(stepper.step(1));
        }
        assert_eq!(steps, [Stepped::Wrote(Lsn(1)), Stepped::Closed]);
        assert!(closing.await.unwrap().is_ok());
    }
}
