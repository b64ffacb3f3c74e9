//! The writer thread: drains the queue, writes a group atomically, syncs, and releases the waiters; without a timer.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use subtend_session::ids::Lsn;

use crate::engine::{Engine, Group};
use crate::error::EngineError;
use crate::panics::catch_panics;
use crate::queue::{Queued, next_group};
use crate::shared::Shared;
use crate::watermark::Watermark;

enum WriterEvent {
    Batches(Vec<Queued>),
    Due,
    Close,
}

pub(crate) fn start(
    shared: &Arc<Shared>,
    engine: Arc<dyn Engine>,
    watermark: Option<Watermark>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("subtend-journal".into()).spawn(move || run(&shared, engine, watermark))
}

/// Runs until the journal closes or fails. Releases the store at the close.
pub(crate) fn run(shared: &Shared, engine: Arc<dyn Engine>, watermark: Option<Watermark>) {
    // A panic here or in a waker must not leave waiters sleeping.
    if let Err(error) = catch_panics("write", || drain(shared, &*engine, watermark)) {
        fail(shared, error);
        wait_for_close(shared);
    }
    drop(engine);
    shared.release();
}

fn drain(shared: &Shared, engine: &dyn Engine, mut watermark: Option<Watermark>) -> Result<(), EngineError> {
    loop {
        match next(shared, watermark.as_ref().and_then(Watermark::due_at)) {
            WriterEvent::Batches(batches) => write_all(shared, engine, batches, watermark.as_mut())?,
            WriterEvent::Due => mark(shared, watermark.as_mut()),
            WriterEvent::Close => {
                mark(shared, watermark.as_mut());
                return Ok(());
            }
        }
    }
}

pub(crate) fn fail(shared: &Shared, error: EngineError) {
    shared.poison(error);
    let mut core = shared.core();
    core.queue = Vec::new();
    core.queued_bytes = 0;
    drop(core);
    shared.update_pressure();
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures the age of the watermark, and how long a write takes; no decision depends on it"
)]
fn now() -> Instant {
    Instant::now()
}

fn next(shared: &Shared, due: Option<Instant>) -> WriterEvent {
    let mut core = shared.core();
    loop {
        if !core.queue.is_empty() {
            core.idle = false;
            return WriterEvent::Batches(std::mem::take(&mut core.queue));
        }
        if core.closing {
            return WriterEvent::Close;
        }
        core.idle = true;
        if let Some(due) = due {
            let left = due.saturating_duration_since(now());
            let (woken, timeout) = shared.work.wait_timeout(core, left).unwrap_or_else(PoisonError::into_inner);
            core = woken;
            if timeout.timed_out() && core.queue.is_empty() && !core.closing {
                return WriterEvent::Due;
            }
        } else {
            core = shared.work.wait(core).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Writes the drained batches group by group. New ones collect meanwhile.
fn write_all(
    shared: &Shared,
    engine: &dyn Engine,
    batches: Vec<Queued>,
    mut watermark: Option<&mut Watermark>,
) -> Result<(), EngineError> {
    let mut batches = batches.into_iter().peekable();
    while let Some((group, bytes)) = next_group(&mut batches) {
        let last = group.last().unwrap_or_default();
        let at_ms = group.frames.last().map_or(0, |frame| frame.at_ms);
        commit(shared, engine, group, last)?;
        shared.waiters.publish(last);
        let mut core = shared.core();
        core.queued_bytes = core.queued_bytes.saturating_sub(bytes);
        core.fences.release_durable(last);
        drop(core);
        if *shared.pressure.borrow() {
            shared.update_pressure();
        }
        // The mark is written after the waiters are released, because they do not need it.
        if let Some(watermark) = watermark.as_deref_mut() {
            watermark.record_acknowledged(last, at_ms, now());
        }
    }
    Ok(())
}

fn commit(shared: &Shared, engine: &dyn Engine, group: Group, last: Lsn) -> Result<(), EngineError> {
    if shared.faults.ack_before_commit {
        shared.waiters.publish(last);
        std::thread::sleep(Duration::from_millis(50));
    }
    if shared.faults.no_intent {
        std::thread::sleep(Duration::from_millis(50));
    }
    let from = now();
    let written = catch_panics("write", || engine.write(group));
    let took = u64::try_from(from.elapsed().as_micros()).unwrap_or(u64::MAX);
    shared.commit_us.fetch_add(took, Ordering::Relaxed);
    written
}

fn mark(shared: &Shared, watermark: Option<&mut Watermark>) {
    if let Some(watermark) = watermark {
        watermark.write(shared.waiters.durable());
    }
}

fn wait_for_close(shared: &Shared) {
    let mut core = shared.core();
    while !core.closing {
        core = shared.work.wait(core).unwrap_or_else(PoisonError::into_inner);
    }
}
