//! Changes of a server's tool list: the number of reported changes, and the number that the last list includes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

/// Time for which changes are collected before the tools are listed. This time doubles with each list, up to [`MAX_DEBOUNCE`], and is
/// reset after [`QUIET_TIME`] without a change.
const DEBOUNCE: Duration = Duration::from_millis(100);
const MAX_DEBOUNCE: Duration = Duration::from_secs(30);
const QUIET_TIME: Duration = Duration::from_secs(10);
/// Maximum time that a model call waits for a changed list. A later list applies from the next call on.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// The changes of one connection. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct ListChanges(Arc<watch::Sender<ReportedChanges>>);

#[derive(Default)]
struct ReportedChanges {
    reported: u64,
    /// Number of changes that the last attempt to list the tools covers, even if it failed.
    listed: u64,
    listed_at: Option<Instant>,
    /// Time between the first change and its list.
    delay: Duration,
    /// True if the next list comes too late for a waiting model call.
    is_late: bool,
    /// True if the connection has ended, so that no list follows.
    has_ended: bool,
}

impl ReportedChanges {
    fn is_due(&self) -> bool {
        !self.has_ended && self.reported > self.listed
    }

    fn schedule(&mut self) {
        let is_quiet = self.listed_at.is_none_or(|at| at.elapsed() > QUIET_TIME);
        self.delay = if is_quiet { DEBOUNCE } else { self.delay.saturating_mul(2).min(MAX_DEBOUNCE) };
        self.is_late = self.delay > MAX_WAIT;
    }
}

impl ListChanges {
    pub(super) fn report(&self) {
        self.0.send_modify(|changes| {
            if !changes.is_due() {
                changes.schedule();
            }
            changes.reported = changes.reported.saturating_add(1);
        });
    }

    /// Waits until a list is due, and returns the number of changes that it will include; `None` if the connection has ended.
    pub(super) async fn due(&self) -> Option<u64> {
        let mut seen = self.0.subscribe();
        let next = seen.wait_for(|changes| changes.is_due() || changes.has_ended).await;
        // Receiving cannot fail, because `self` holds the sender.
        let delay = next.ok().filter(|changes| !changes.has_ended).map(|changes| changes.delay)?;
        tokio::time::sleep(delay).await;
        Some(self.0.borrow().reported)
    }

    pub(super) fn mark_listed(&self, count: u64) {
        self.0.send_modify(|changes| {
            (changes.listed, changes.listed_at) = (count, Some(Instant::now()));
            if changes.is_due() {
                changes.schedule();
            }
        });
    }

    /// Ends all waits, because the connection has ended.
    pub(super) fn end(&self) {
        self.0.send_modify(|changes| changes.has_ended = true);
    }

    /// Returns a future that waits for a list with all changes reported so far. Returns `None` if no list is due or it comes too late.
    pub(super) fn wait_for_list(&self) -> Option<BoxFuture<'static, ()>> {
        let count = {
            let changes = self.0.borrow();
            (changes.is_due() && !changes.is_late).then_some(changes.reported)?
        };
        let changes = self.clone();
        Some(
            async move {
                let mut seen = changes.0.subscribe();
                let listed = seen.wait_for(|changes| changes.listed >= count || changes.is_late || changes.has_ended);
                let is_late = tokio::time::timeout(MAX_WAIT, listed).await.is_err();
                if is_late {
                    // Without this, the same call would wait again.
                    changes.0.send_modify(|changes| changes.is_late = true);
                }
            }
            .boxed(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marks each due list as read at once, like the task of a connection.
    fn read_lists(changes: &ListChanges) {
        let changes = changes.clone();
        tokio::spawn(async move {
            while let Some(count) = changes.due().await {
                changes.mark_listed(count);
            }
        });
    }

    /// Returns the milliseconds that a model call waits.
    async fn wait(changes: &ListChanges) -> u128 {
        let begun = Instant::now();
        if let Some(pending) = changes.wait_for_list() {
            pending.await;
        }
        begun.elapsed().as_millis()
    }

    /// The control: without a change, no call waits.
    #[tokio::test(start_paused = true)]
    async fn call_waits_for_the_list_with_a_reported_change() {
        let changes = ListChanges::default();
        read_lists(&changes);
        assert_eq!(wait(&changes).await, 0);
        (0..3).for_each(|_| changes.report());
        assert_eq!((wait(&changes).await, wait(&changes).await), (100, 0));
        tokio::time::sleep(Duration::from_secs(11)).await;
        changes.report();
        assert_eq!(wait(&changes).await, 100);
    }

    /// A server that constantly reports changes delays five calls by three seconds in total, and later calls not at all.
    #[tokio::test(start_paused = true)]
    async fn endless_changes_delay_few_calls() {
        let changes = ListChanges::default();
        read_lists(&changes);
        let reports = changes.clone();
        tokio::spawn(async move {
            loop {
                reports.report();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        tokio::task::yield_now().await;
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(wait(&changes).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(waits.iter().sum::<u128>() <= 3_100 && waits[5..] == [0, 0, 0], "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn call_waits_once_for_a_list_that_never_arrives() {
        let changes = ListChanges::default();
        changes.report();
        assert_eq!((wait(&changes).await, wait(&changes).await), (2_000, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_the_connection_ends_the_wait() {
        let changes = ListChanges::default();
        changes.report();
        let pending = changes.wait_for_list().expect("a list is due");
        changes.end();
        let begun = Instant::now();
        pending.await;
        changes.report();
        assert_eq!((begun.elapsed().as_millis(), wait(&changes).await, changes.due().await), (0, 0, None));
    }
}
