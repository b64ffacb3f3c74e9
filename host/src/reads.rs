//! Limits concurrent reads, so that they do not occupy all threads of the runtime.
//!
//! A view or a list may fold thousands of records in one go, which would delay runs, approvals and other clients.
//! Permits limit how many reads run at a time.

mod extent;
mod large;
mod stream_threads;

use std::borrow::Cow;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{Extensions, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use subtend_journal::Journal;
use subtend_session::ids::SessionId;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::block_in_place;
use tokio::time::{Instant, timeout_at};

use crate::auth::SenderId;
use crate::host::Host;
use crate::problem::Problem;
use crate::shared_by_key::SharedByKey;
use extent::Reads;
use large::{LargeReads, in_turn};
use stream_threads::{LIVE_READS, StreamThreads};

/// Maximum number of concurrent reads of one session.
const SESSION_READS: usize = 4;
/// Maximum number of concurrent reads of many sessions.
const STORE_READS: usize = 2;
/// Maximum number of concurrent exports.
const EXPORTS: usize = 8;
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The sender of a read. Senders with tokens share the permits of a host; none of them can hold all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum ReadSender {
    #[default]
    Host,
    /// The user of the host, through the Unix socket.
    Socket,
    /// A token or a login.
    Named(SenderId),
}

impl ReadSender {
    fn number(self) -> Option<u64> {
        let Self::Named(id) = self else { return None };
        Some(id.number())
    }
}

/// The permits for each kind of read.
#[derive(Debug)]
struct Permits {
    /// For reads of one session.
    session: Arc<Semaphore>,
    /// For reads of many sessions.
    store: Arc<Semaphore>,
    /// For live views and event streams.
    live: Arc<Semaphore>,
    /// For exports, each of which occupies a thread until its client has read it.
    export: Arc<Semaphore>,
}

#[derive(Clone, Copy, Debug)]
enum ReadKind {
    Session,
    Store,
    Live,
}

impl Permits {
    fn new([session, store, live, export]: [usize; 4]) -> Self {
        let [session, store, live, export] =
            [session, store, live, export].map(|count| Arc::new(Semaphore::new(count)));
        Self { session, store, live, export }
    }

    fn of_all() -> Self {
        Self::new([SESSION_READS, STORE_READS, LIVE_READS, EXPORTS])
    }

    fn for_sender(sender: ReadSender) -> Self {
        match sender {
            ReadSender::Host | ReadSender::Socket => Self::of_all(),
            ReadSender::Named(_) => Self::new([2, 1, 1, EXPORTS / 2]),
        }
    }

    fn of(&self, kind: ReadKind) -> &Arc<Semaphore> {
        match kind {
            ReadKind::Session => &self.session,
            ReadKind::Store => &self.store,
            ReadKind::Live => &self.live,
        }
    }
}

/// The permits for reads of a host. A read needs a permit of its sender, then a shared one. So only a few reads of each
/// sender wait for shared permits, and no sender delays another for long.
#[derive(Debug)]
pub struct ReadPermits {
    all: Permits,
    by: SharedByKey<ReadSender, Permits>,
    /// For live views and event streams.
    threads: StreamThreads,
    /// For requests that only read.
    request_threads: StreamThreads,
    large: LargeReads,
}

impl Default for ReadPermits {
    fn default() -> Self {
        Self {
            all: Permits::of_all(),
            by: SharedByKey::default(),
            threads: StreamThreads::new(LIVE_READS),
            request_threads: StreamThreads::new(SESSION_READS + STORE_READS),
            large: LargeReads::default(),
        }
    }
}

/// A permit of a read, or of an export for as long as it writes.
pub(crate) struct ReadPermit {
    _permits: [OwnedSemaphorePermit; 2],
    /// Kept, so that later reads of the sender share its permits.
    _own: Arc<Permits>,
}

tokio::task_local! {
    static SENDER: ReadSender;
    /// Set while a request holds a permit. A read within its read needs no other, for which both could wait endlessly.
    static HOLDS_PERMIT: ();
}

pub(crate) fn sender() -> ReadSender {
    SENDER.try_with(|sender| *sender).unwrap_or_default()
}

/// Runs `act`, and counts its reads as those of `sender`.
pub(crate) fn run_as<T>(sender: ReadSender, act: impl Future<Output = T>) -> impl Future<Output = T> {
    SENDER.scope(sender, act)
}

/// Runs a request, with a permit if it reads. Refuses the request if it gets no permit in time.
pub(crate) async fn run_with_permit(State(host): State<Host>, request: Request, next: Next) -> Response {
    let kind = match Reads::of(&request) {
        Reads::Little => None,
        Reads::Session => Some(ReadKind::Session),
        Reads::Store => Some(ReadKind::Store),
    };
    let sender = sender_of(request.extensions());
    let Some(kind) = kind else {
        let answer = run_as(sender, next.run(request));
        return subtend_actors::run_for_sender(sender.number(), answer).await;
    };
    let ends = permit_deadline();
    // A plan of a restore waits for a permit of its own, and large reads must not wait for that.
    let is_plan = request.uri().path().trim_end_matches('/').ends_with("/restore");
    let next = next.run(request);
    // Boxed, so that connections without a read use little memory.
    let read = match is_plan {
        true => Box::pin(host.reads().run_request(sender, (ends, kind), next)).await,
        false => Box::pin(host.reads().run_request(sender, (ends, kind), in_turn(ends, next))).await,
    };
    read.unwrap_or_else(IntoResponse::into_response)
}

fn sender_of(extensions: &Extensions) -> ReadSender {
    extensions.get().map_or(ReadSender::Socket, |id| ReadSender::Named(*id))
}

impl ReadPermits {
    /// Runs a read of many sessions with a permit of the sender of a request, named by its extensions.
    ///
    /// # Errors
    /// `busy` if other reads of the sender, or of all, take too long.
    pub async fn read_for<T: Send>(
        &self,
        extensions: &Extensions,
        read: impl Future<Output = T> + Send,
    ) -> Result<T, Problem> {
        run_as(sender_of(extensions), self.read_store(read)).await
    }

    /// Runs a read of many sessions with a permit, for requests that must not hold one while their body arrives.
    pub(crate) async fn read_store<T: Send>(&self, read: impl Future<Output = T> + Send) -> Result<T, Problem> {
        self.run(permit_deadline(), ReadKind::Store, read).await
    }

    pub(crate) async fn read_session<T: Send>(&self, read: impl Future<Output = T> + Send) -> Result<T, Problem> {
        self.read_session_until(permit_deadline(), read).await
    }

    /// Runs a read of all records of one session, which waits for its turn if they are large.
    pub(crate) async fn read_whole_session<T: Send>(
        &self,
        journal: &Journal,
        session: SessionId,
        read: impl Future<Output = T> + Send,
    ) -> Result<T, Problem> {
        let ends = permit_deadline();
        let read = async {
            self.await_turn(journal, [session]).await?;
            Ok(read.await)
        };
        self.read_session_until(ends, in_turn(ends, read)).await?
    }

    /// Runs a read of one session as [`ReadPermits::read_session`] does, but waits for a permit until `ends`.
    pub(crate) async fn read_session_until<T: Send>(
        &self,
        ends: Instant,
        read: impl Future<Output = T> + Send,
    ) -> Result<T, Problem> {
        self.run(ends, ReadKind::Session, read).await
    }

    /// Runs a read of one session, or returns `None` if it would have to wait for a permit.
    pub(crate) async fn try_read_session<T: Send>(&self, read: impl Future<Output = T> + Send) -> Option<T> {
        let own = self.for_sender(sender());
        let _permit = (own.session.try_acquire().ok()?, self.all.session.try_acquire().ok()?);
        Some(HOLDS_PERMIT.scope((), to_end(read)).await)
    }

    /// Runs a read of the events of a session or of a waiting request. Waits for a permit without a limit: a late stream misses nothing.
    pub(crate) async fn read_for_stream<T: Send>(&self, read: impl Future<Output = T> + Send) -> T {
        let own = self.for_sender(sender());
        // The semaphores are never closed.
        let _permit = (own.of(ReadKind::Live).acquire().await, self.all.of(ReadKind::Live).acquire().await);
        HOLDS_PERMIT.scope((), to_end(read)).await
    }

    /// Returns a permit for an export of the sender of the request.
    ///
    /// # Errors
    /// `busy` if too many exports are in progress.
    pub(crate) fn begin_export(&self) -> Result<ReadPermit, Problem> {
        let own = self.for_sender(sender());
        let acquire = |permits: &Permits| {
            let busy =
                |_| busy_problem("too many exports are in progress: read them to their ends, and send this one again");
            Arc::clone(&permits.export).try_acquire_owned().map_err(busy)
        };
        let permits = [acquire(&own)?, acquire(&self.all)?];
        Ok(ReadPermit { _permits: permits, _own: own })
    }

    async fn run<T: Send>(
        &self,
        ends: Instant,
        kind: ReadKind,
        read: impl Future<Output = T> + Send,
    ) -> Result<T, Problem> {
        if HOLDS_PERMIT.try_get().is_ok() {
            return Ok(to_end(read).await);
        }
        let _permit = self.acquire(sender(), (ends, kind)).await?;
        Ok(HOLDS_PERMIT.scope((), to_end(read)).await)
    }

    /// Waits for the permits of a read of `sender`, at most until the given time.
    async fn acquire(&self, sender: ReadSender, (ends, kind): (Instant, ReadKind)) -> Result<ReadPermit, Problem> {
        let own = self.for_sender(sender);
        let acquire = async {
            let [of_sender, of_all] = [&own, &self.all].map(|permits| Arc::clone(permits.of(kind)).acquire_owned());
            (of_sender.await, of_all.await)
        };
        let permits = timeout_at(ends, acquire).await.ok().filter(|_| Instant::now() < ends);
        // The semaphores are never closed.
        let Some((Ok(of_sender), Ok(of_all))) = permits else {
            let most = PERMIT_TIMEOUT.as_secs();
            return Err(busy_problem(format!("other reads took longer than {most} s: send this one again")));
        };
        Ok(ReadPermit { _permits: [of_sender, of_all], _own: own })
    }

    /// Returns the permits of `sender`. They are shared by its concurrent reads.
    fn for_sender(&self, sender: ReadSender) -> Arc<Permits> {
        self.by.get(sender, || Permits::for_sender(sender))
    }
}

/// Lets tests hold permits, so that reads must wait.
#[cfg(test)]
impl ReadPermits {
    /// Holds all permits for reads of one session until the result is dropped.
    pub(crate) async fn hold_all_session_permits(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.all.session.acquire_many(4).await.expect("all permits")
    }
}

/// Returns the time until which a read that begins now waits for a permit.
pub(crate) fn permit_deadline() -> Instant {
    Instant::now() + PERMIT_TIMEOUT
}

/// Returns whether the calling task holds a permit.
#[cfg(test)]
pub(crate) fn holds_permit() -> bool {
    HOLDS_PERMIT.try_get().is_ok()
}

/// Runs a read that has a permit.
async fn to_end<T: Send>(read: impl Future<Output = T> + Send) -> T {
    let mut read = pin!(read);
    poll_fn(|context| run_blocking(|| read.as_mut().poll(context))).await
}

/// Runs a part of a read as blocking work, so that the runtime moves its other tasks to another thread. A
/// single-threaded runtime, as in simulations, cannot do that.
fn run_blocking<T>(piece: impl FnOnce() -> T) -> T {
    if is_multi_threaded() { block_in_place(piece) } else { piece() }
}

fn is_multi_threaded() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

fn busy_problem(detail: impl Into<Cow<'static, str>>) -> Problem {
    Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail) }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::timeout;

    use super::*;

    /// The read occupies the only worker thread until another task of the same runtime ends it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn long_read_delays_no_other_task() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = tokio::sync::oneshot::channel::<()>();
        let long = async move {
            begin.send(()).expect("it waits");
            ended.recv_timeout(Duration::from_secs(60))
        };
        let read = tokio::spawn(async move { ReadPermits::default().read_store(long).await.expect("a permit") });
        let other = tokio::spawn(async move {
            begun.await.expect("begun");
            end.send(()).expect("it reads");
        });
        other.await.expect("it ran");
        assert_eq!(read.await.expect("it ran"), Ok(()));
    }

    /// A read that waits for a timer ends in virtual time, which passes only while no other thread is busy.
    #[tokio::test(start_paused = true)]
    async fn read_ends_in_virtual_time() {
        let waiting = tokio::time::sleep(Duration::from_secs(3_600));
        ReadPermits::default().read_store(waiting).await.expect("a permit");
    }

    /// Streams have their own permits, and wait for them without a time limit. The control: a request is refused.
    #[tokio::test(start_paused = true)]
    async fn stream_waits_for_a_permit_of_its_own() {
        let permits = ReadPermits::default();
        let store = permits.all.store.acquire_many(2).await.expect("all permits");
        permits.read_for_stream(async {}).await;
        let live = permits.all.live.acquire_many(2).await.expect("all permits");
        let waits = timeout(PERMIT_TIMEOUT * 10, permits.read_for_stream(async {})).await;
        assert!(waits.is_err() && permits.read_store(async {}).await.is_err());
        drop((store, live));
        permits.read_for_stream(async {}).await;
    }

    #[tokio::test(start_paused = true)]
    async fn read_without_a_permit_is_refused_and_others_pass() {
        let permits = ReadPermits::default();
        let all = permits.all.store.acquire_many(2).await.expect("all permits");
        let refused = permits.read_store(async {}).await.expect_err("no permit");
        assert_eq!((refused.status, refused.code, refused.retry_after), (503, "busy", Some(1)));
        permits.read_session(async {}).await.expect("reads of one session have their own permits");
        drop(all);
        permits.read_store(async {}).await.expect("a permit");
    }

    /// The controls: such a read outside of another one waits for a permit, and another sender has its own exports.
    #[tokio::test(start_paused = true)]
    async fn read_within_a_read_needs_one_permit() {
        let permits = ReadPermits::default();
        let all = permits.hold_all_session_permits().await;
        assert!(permits.read_session(async {}).await.is_err());
        assert!(permits.read_store(permits.read_session(async {})).await.is_ok_and(|inner| inner.is_ok()));
        drop(all);
    }

    /// One token sends endless reads. The control: a further read of the same token gets no permit.
    #[tokio::test(start_paused = true)]
    async fn reads_of_one_token_leave_permits_to_others() {
        let permits = Arc::new(ReadPermits::default());
        let [token, other] =
            ["token", "other"].map(|name| ReadSender::Named(SenderId::of(blake3::hash(name.as_bytes()))));
        let mut flood = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let endless = Arc::clone(&permits);
            flood.spawn(run_as(token, async move {
                let endless = [
                    endless.read_store(std::future::pending::<()>()).boxed(),
                    endless.read_session(std::future::pending()).boxed(),
                    endless.read_for_stream(std::future::pending()).map(Ok).boxed(),
                ];
                drop(futures_util::future::join_all(endless).await);
            }));
        }
        while permits.all.live.available_permits() > 1 {
            tokio::task::yield_now().await;
        }
        for sender in [other, ReadSender::Socket, ReadSender::Host] {
            run_as(sender, async {
                permits.read_store(async {}).await.expect("a permit");
                permits.read_session(async {}).await.expect("a permit");
                timeout(PERMIT_TIMEOUT, permits.read_for_stream(async {})).await.expect("a permit");
            })
            .await;
        }
        run_as(token, async {
            assert!(permits.read_store(async {}).await.is_err() && permits.read_session(async {}).await.is_err());
            assert!(timeout(PERMIT_TIMEOUT, permits.read_for_stream(async {})).await.is_err());
        })
        .await;
    }
}
