//! Makes large reads one at a time, because some hold all texts of their sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use subtend_journal::Journal;
use subtend_session::ids::{Seq, SessionId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::stream_threads::{StreamThreads, run_on};
use super::{PERMIT_TIMEOUT, ReadPermits, busy_problem, is_multi_threaded, run_blocking};
use crate::problem::Problem;

/// Encoded bytes of the sessions of a read with their prompts, from which on it is large.
const LARGE: u64 = 4 << 20;
/// Maximum number of sessions that are measured for a read. With more of them, a read counts as large.
const MAX_MEASURED: usize = 256;
/// Maximum number of sessions whose sizes are remembered.
const MAX_KNOWN: usize = 10_000;

#[derive(Debug)]
pub(super) struct LargeReads {
    large_bytes: u64,
    permit: Arc<Semaphore>,
    thread: StreamThreads,
    /// The last record of each session that was measured, and the bytes up to it.
    sizes: Mutex<HashMap<SessionId, (Seq, u64)>>,
}

/// The permit for large sessions of a request.
struct LargeTurn {
    /// The time until which it waits.
    ends: Instant,
    permit: OnceLock<OwnedSemaphorePermit>,
}

tokio::task_local! {
    /// Set during a read of a request. Commands read little of a session, and never wait for a turn. Live views do not wait either: event
    /// streams need their threads.
    static TURN: LargeTurn;
}

/// Runs `read`, which waits for its turn when it reads the first large session, and holds it to its end.
pub(super) fn in_turn<T>(ends: Instant, read: impl Future<Output = T>) -> impl Future<Output = T> {
    TURN.scope(LargeTurn { ends, permit: OnceLock::new() }, read)
}

impl Default for LargeReads {
    fn default() -> Self {
        Self {
            large_bytes: LARGE,
            permit: Arc::new(Semaphore::new(1)),
            thread: StreamThreads::new(1),
            sizes: Mutex::default(),
        }
    }
}

impl LargeReads {
    /// Returns the encoded bytes of a session with its bodies, or more than what is small. Reads only what was written since it was last
    /// measured.
    fn bytes(&self, journal: &Journal, session: SessionId) -> u64 {
        let lock = || self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, before) = lock().get(&session).copied().unwrap_or_default();
        if before >= self.large_bytes {
            return before;
        }
        let head = match journal.head(session) {
            Ok(Some(head)) => head,
            Ok(None) => return 0,
            // It is shown as far as it can be read.
            Err(_) => return self.large_bytes,
        };
        if head.last_seq <= seen {
            return before;
        }
        let Ok(added) = journal.bytes_from(session, seen.next(), self.large_bytes) else { return self.large_bytes };
        let mut bytes = before.saturating_add(added);
        if seen == Seq(0) && bytes < self.large_bytes {
            let Ok(bodies) = journal.body_bytes(session) else { return self.large_bytes };
            bytes = bytes.saturating_add(bodies);
        }
        let mut sizes = lock();
        if sizes.len() >= MAX_KNOWN {
            sizes.clear();
        }
        sizes.insert(session, (head.last_seq, bytes));
        bytes
    }

    /// Returns whether sessions are large together, or too many to measure.
    fn are_large(&self, journal: &Journal, sessions: impl IntoIterator<Item = SessionId>) -> bool {
        let mut all = 0_u64;
        sessions.into_iter().enumerate().any(|(n, session)| {
            all = all.saturating_add(if n < MAX_MEASURED { self.bytes(journal, session) } else { u64::MAX });
            all >= self.large_bytes
        })
    }
}

impl ReadPermits {
    /// Waits until no other request makes a large read, if `sessions` are large together.
    ///
    /// A read waits for this permit after those of its kind, and no holder waits for one of these.
    ///
    /// # Errors
    /// `busy` if other reads take too long.
    pub(crate) async fn await_turn(
        &self,
        journal: &Journal,
        sessions: impl IntoIterator<Item = SessionId>,
    ) -> Result<(), Problem> {
        let Ok(Some(ends)) = TURN.try_with(|turn| turn.permit.get().is_none().then_some(turn.ends)) else {
            return Ok(());
        };
        if !self.large.are_large(journal, sessions) {
            return Ok(());
        }
        let acquire = Arc::clone(&self.large.permit).acquire_owned();
        // The semaphore is never closed.
        let Ok(Ok(permit)) = timeout_at(ends, acquire).await else {
            let most = PERMIT_TIMEOUT.as_secs();
            return Err(busy_problem(format!("other reads took longer than {most} s: send this one again")));
        };
        // Nothing else of this task has set it since.
        TURN.with(|turn| drop(turn.permit.set(permit)));
        Ok(())
    }

    /// Runs a read. All reads of large sessions run on one thread, because the allocator caches what a thread frees.
    pub(crate) async fn read_in_turn<T: Send + 'static>(&self, read: impl FnOnce() -> T + Send + 'static) -> T {
        let is_large = TURN.try_with(|turn| turn.permit.get().is_some()).unwrap_or(false);
        match self.large.thread.handle().filter(|_| is_large && is_multi_threaded()) {
            Some(pool) => run_on(pool, read).await,
            None => run_blocking(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use subtend_actors::{OpenOptions, Runtime};
    use subtend_agents::catalog::Catalog;
    use subtend_agents::manifest::{AgentMode, Manifest};

    use super::*;
    use crate::reads::permit_deadline;

    /// Attack: concurrent reads of a large session, or of one with a large prompt. The controls: a small session, and a
    /// read after the other.
    #[tokio::test]
    async fn large_sessions_are_read_one_at_a_time() {
        let model = subtend_models::closure::fn_model("x", |_, _| std::future::pending());
        let mut catalog = Catalog::builtin();
        catalog.insert(Manifest::new("long", AgentMode::All, "x".repeat(40_000)));
        let builder = Runtime::builder().model(Arc::new(model)).catalog(catalog);
        let runtime = builder.start().await.expect("a runtime");
        let [large, small, prompted] =
            ["general", "general", "long"].map(|name| runtime.open(OpenOptions::agent(name)).expect("a session"));
        for key in ["a", "b"] {
            large.merge_metadata(json!({ key: "x".repeat(20_000) })).await.expect("merged");
        }
        for session in [&small, &prompted] {
            session.merge_metadata(json!({ "a": 1 })).await.expect("merged");
        }
        let (mut permits, journal) = (ReadPermits::default(), runtime.journal());
        permits.large.large_bytes = 35_000;
        tokio::time::pause();
        let wait = async |session| permits.await_turn(journal, [session]).await;
        let read = |session| in_turn(permit_deadline(), wait(session));
        in_turn(permit_deadline(), async {
            wait(large.id()).await.expect("the first one");
            wait(large.id()).await.expect("it has its turn");
            let refused = read(large.id()).await.expect_err("another one");
            assert_eq!((refused.code, refused.retry_after), ("busy", Some(1)));
            assert_eq!(read(prompted.id()).await.expect_err("a large prompt").code, "busy");
            read(small.id()).await.expect("a small session");
            let whole = |session| permits.read_whole_session(journal, session, async {});
            assert_eq!(whole(large.id()).await.expect_err("outside of the request").code, "busy");
            whole(small.id()).await.expect("all of a small session");
            let many = |session, count| {
                let sessions = std::iter::repeat_n(session, count);
                in_turn(permit_deadline(), permits.await_turn(journal, sessions))
            };
            assert_eq!(many(small.id(), MAX_MEASURED).await.expect_err("large together").code, "busy");
            // Many sessions are not measured one by one. One that is not in the store has no bytes.
            let empty = SessionId(uuid::Uuid::nil());
            many(empty, MAX_MEASURED).await.expect("small together");
            assert_eq!(many(empty, MAX_MEASURED + 1).await.expect_err("too many").code, "busy");
        })
        .await;
        read(large.id()).await.expect("after the first one");
        assert!(permits.large.permit.available_permits() == 1);
    }
}
