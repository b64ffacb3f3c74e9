//! A file system that does not answer while a restore reads files.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use super::*;

/// Blocks the first thread that reaches a step, until it is released.
#[derive(Debug)]
pub(in crate::checkpoint) struct Hang {
    step: &'static str,
    state: Mutex<HangState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HangState {
    Expected,
    Hangs,
    Released,
}

impl Hang {
    fn before(step: &'static str) -> Arc<Self> {
        Arc::new(Self { step, state: Mutex::new(HangState::Expected), changed: Condvar::new() })
    }

    pub(in crate::checkpoint) fn at(&self, step: &str) {
        let mut state = self.state.lock().unwrap();
        if step == self.step && *state == HangState::Expected {
            *state = HangState::Hangs;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| *state == HangState::Hangs).unwrap());
        }
    }

    fn wait(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |state| *state == HangState::Expected).unwrap());
    }

    fn release(&self) {
        *self.state.lock().unwrap() = HangState::Released;
        self.changed.notify_all();
    }
}

/// Plans the restore of run 2 and records it.
fn record(scene: &CheckpointFixture) -> Result<Option<PendingRestore>, CheckpointError> {
    let start = scene.checkpoints.begin_plan()?;
    let plan = scene.plan(2);
    let (shown, run) = (plan.digest(), RunNo(2));
    scene.checkpoints.intend((session(), run), (plan, shown), AwaitedRecord::RolledBack(run), start)
}

/// Writes a file of another run while a restore hangs in a file system. Returns whether the write ends.
async fn writes_meanwhile(step: &'static str, holds_ledger: bool) -> bool {
    let mut scene = CheckpointFixture::after_two_runs().await;
    let hang = Hang::before(step);
    let mut restoring = CheckpointFixture::existing(scene.dir());
    restoring.checkpoints = scene.checkpoints.clone();
    restoring.checkpoints.hangs = Some(Arc::clone(&hang));
    let restore = std::thread::spawn(move || {
        let record = record(&restoring).unwrap().unwrap();
        restoring.checkpoints.perform(record).unwrap()
    });
    let waiting = Arc::clone(&hang);
    tokio::task::spawn_blocking(move || waiting.wait()).await.unwrap();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let held = scene.checkpoints.clone();
    let (locked, is_locked) = tokio::sync::oneshot::channel();
    let holder = std::thread::spawn(move || {
        let ledger = holds_ledger.then(|| held.lock_ledger());
        locked.send(()).unwrap();
        // The loop ends when the sender is dropped.
        drop((ended.recv(), ledger));
    });
    is_locked.await.unwrap();
    let patience = if holds_ledger { Duration::from_millis(200) } else { Duration::from_secs(60) };
    scene.calls += 1;
    let write = scene.invocation(3, json!({"path": "other", "content": "by 3\n"}));
    let write = tokio::spawn(async move { tools().get("write").unwrap().run(write).await.map(drop) });
    let is_written = matches!(tokio::time::timeout(patience, write).await, Ok(Ok(Ok(()))));
    drop(end);
    holder.join().unwrap();
    hang.release();
    let restored = tokio::task::spawn_blocking(|| restore.join().unwrap()).await.unwrap();
    assert_eq!(restored.files, ["a", "b", "new/dir/d", "sub/c"], "{step}");
    is_written
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x15_restore_that_hangs_does_not_delay_other_writes() {
    // The restore hangs while it is planned, recorded, or performed.
    for step in ["planned", "present", "file"] {
        assert!(writes_meanwhile(step, false).await, "a write waited for a restore that hangs: {step}");
    }
    // The control: a restore that holds the ledger delays the write.
    assert!(!writes_meanwhile("planned", true).await);
}
