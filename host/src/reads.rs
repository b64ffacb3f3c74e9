//! Limits concurrent reads, so that they do not occupy all threads of the runtime.
//!
//! A view or a list may fold thousands of records without a pause, which would delay runs, approvals and every other client. Few reads
//! run at a time, so that they leave processors to the rest.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::auth::SenderId;
use crate::host::Host;
use crate::problem::Problem;
use crate::shared_by_key::SharedByKey;

/// Number of reads of live views and event streams at a time.
const LIVE_READS: usize = 2;
const READ_THREAD: &str = "subtend-reads";
/// Time that a read waits for its turn.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// The sender of a read. Senders with tokens share the turns of a host; none of them takes all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum ReadSender {
    /// The host itself.
    #[default]
    Host,
    /// The user of the host, by its Unix socket.
    Socket,
    /// A token or a login.
    Named(SenderId),
}

/// The turns of each kind of reads.
#[derive(Debug)]
struct Turns {
    /// Turns for reads of one session.
    session: Semaphore,
    /// Turns for reads of many sessions.
    store: Semaphore,
    /// Turns for live views and event streams.
    live: Semaphore,
}

#[derive(Clone, Copy, Debug)]
enum TurnKind {
    Session,
    Store,
    Live,
}

impl Turns {
    fn new([session, store, live]: [usize; 3]) -> Self {
        let (session, store, live) = (Semaphore::new(session), Semaphore::new(store), Semaphore::new(live));
        Self { session, store, live }
    }

    /// Returns turns of all senders together.
    fn of_all() -> Self {
        Self::new([4, 2, LIVE_READS])
    }

    /// Returns turns of one sender.
    fn for_sender(sender: ReadSender) -> Self {
        match sender {
            ReadSender::Host | ReadSender::Socket => Self::of_all(),
            ReadSender::Named(_) => Self::new([2, 1, 1]),
        }
    }

    fn of(&self, kind: TurnKind) -> &Semaphore {
        match kind {
            TurnKind::Session => &self.session,
            TurnKind::Store => &self.store,
            TurnKind::Live => &self.live,
        }
    }
}

/// The turns for reads of a host. A read first waits for a turn of its sender, then for a common one. So only a few
/// reads of each sender wait for common turns, and those of other senders are soon next.
#[derive(Debug)]
pub(crate) struct ReadTurns {
    all: Turns,
    by: SharedByKey<ReadSender, Turns>,
    threads: StreamThreads,
}

impl Default for ReadTurns {
    fn default() -> Self {
        Self { all: Turns::of_all(), by: SharedByKey::default(), threads: StreamThreads(OnceLock::new()) }
    }
}

/// The threads of reads of event streams, which start with the first read and end when they have been idle.
///
/// They are few and their own. The allocator keeps what a thread has allocated until that thread allocates again, and the pool of the runtime
/// may have hundreds of threads, which take turns.
#[derive(Debug)]
struct StreamThreads(OnceLock<Option<Runtime>>);

impl StreamThreads {
    /// Returns the pool; `None` if the system refuses it.
    fn handle(&self) -> Option<&Handle> {
        let started = self.0.get_or_init(|| {
            let mut pool = Builder::new_current_thread();
            pool.max_blocking_threads(LIVE_READS).thread_name(READ_THREAD).build().ok()
        });
        started.as_ref().map(Runtime::handle)
    }
}

impl Drop for StreamThreads {
    fn drop(&mut self) {
        if let Some(Some(pool)) = self.0.take() {
            // A host may be dropped by a task, which must not wait.
            pool.shutdown_background();
        }
    }
}

tokio::task_local! {
    static SENDER: ReadSender;
}

/// Returns the sender of the present request.
pub(crate) fn sender() -> ReadSender {
    SENDER.try_with(|sender| *sender).unwrap_or_default()
}

/// Runs `act`, whose reads are those of `sender`.
pub(crate) fn run_as<T>(sender: ReadSender, act: impl Future<Output = T>) -> impl Future<Output = T> {
    SENDER.scope(sender, act)
}

/// The extent of a request's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// The request reads nothing, or waits for something: a wait must not take a turn.
    Little,
    Session,
    /// A tree, or all sessions.
    Store,
}

impl Reads {
    fn of(request: &Request) -> Self {
        let (method, path) = (request.method(), request.uri().path().trim_end_matches('/'));
        let waits = may_wait(path);
        let streams = path.ends_with("/events") || path.starts_with("/v1/store") || path.ends_with("/export");
        if !method.is_safe()
            || waits
            || streams
            || path.starts_with("/assets/")
            || matches!(path, "/v1/openapi.json" | "/v1/host")
        {
            return Self::Little;
        }
        let last = path.rsplit('/').next().unwrap_or_default();
        match last {
            "" | "sessions" | "usage" | "replay" | "at" | "timeline" | "chart" | "tree" | "kids" => Self::Store,
            "healthz" | "readyz" | "metrics" => Self::Little,
            _ => Self::Session,
        }
    }
}

/// Returns whether a request may wait for something. On other paths the parameter has no effect, so a read takes its turn.
fn may_wait(path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        // The handlers take turns for their reads.
        ["", "v1", "tasks", "get", _] | ["", "v1", "sessions", _, "runs" | "inputs", _] => true,
        _ => false,
    }
}

/// Runs a request that reads when its turn comes. One that gets no turn is refused.
pub(crate) async fn run_in_turn(State(host): State<Host>, request: Request, next: Next) -> Response {
    let kind = match Reads::of(&request) {
        Reads::Little => None,
        Reads::Session => Some(TurnKind::Session),
        Reads::Store => Some(TurnKind::Store),
    };
    let sender = request.extensions().get().map_or(ReadSender::Socket, |id| ReadSender::Named(*id));
    run_as(sender, async {
        match kind {
            None => next.run(request).await,
            Some(kind) => host.reads().run(kind, next.run(request)).await.unwrap_or_else(IntoResponse::into_response),
        }
    })
    .await
}

impl ReadTurns {
    /// Runs a read of many sessions as [`run_in_turn`] does, for a request whose body must arrive first: that wait must not
    /// take a turn.
    pub(crate) async fn read_store<T: Send>(&self, read: impl Future<Output = T> + Send) -> Result<T, Problem> {
        self.run(TurnKind::Store, read).await
    }

    /// Runs a read of one session in the same way.
    pub(crate) async fn read_session<T: Send>(&self, read: impl Future<Output = T> + Send) -> Result<T, Problem> {
        self.run(TurnKind::Session, read).await
    }

    /// Runs a read of a live view or an event stream. It waits for its turn without a limit: a late stream misses nothing.
    pub(crate) async fn read_for_stream<T: Send>(&self, read: impl Future<Output = T> + Send) -> T {
        let own = self.for_sender(sender());
        // The semaphores are never closed.
        let _turn = (own.of(TurnKind::Live).acquire().await, self.all.of(TurnKind::Live).acquire().await);
        to_end(read).await
    }

    /// Runs a read of an event stream of `sender` on a thread for such reads.
    pub(crate) async fn read_events<T: Send + 'static>(
        &self,
        sender: ReadSender,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let own = self.for_sender(sender);
        let _turn = (own.of(TurnKind::Live).acquire().await, self.all.of(TurnKind::Live).acquire().await);
        let Some(pool) = self.threads.handle().filter(|_| is_multi_threaded()) else { return run_blocking(read) };
        // A read that has not started when its stream ends is not made: its turn goes to another.
        match AbortOnDropHandle::new(pool.spawn_blocking(read)).await {
            Ok(read) => read,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime shuts down, and so does this future.
                Err(_) => std::future::pending().await,
            },
        }
    }

    async fn run<T: Send>(&self, kind: TurnKind, read: impl Future<Output = T> + Send) -> Result<T, Problem> {
        let own = self.for_sender(sender());
        let turn = async { (own.of(kind).acquire().await, self.all.of(kind).acquire().await) };
        let Ok(_turn) = timeout(TURN_TIMEOUT, turn).await else { return Err(busy_problem()) };
        Ok(to_end(read).await)
    }

    /// Returns the turns of `sender`, which last as long as one of its reads.
    fn for_sender(&self, sender: ReadSender) -> Arc<Turns> {
        self.by.get(sender, || Turns::for_sender(sender))
    }
}

/// Functions by which tests hold turns, so that reads must wait.
#[cfg(test)]
impl ReadTurns {
    /// Takes all turns of reads of one session until the result is dropped.
    pub(crate) async fn take_all_of_session(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.all.session.acquire_many(4).await.expect("all turns")
    }
}

pub(crate) async fn to_end<T: Send>(read: impl Future<Output = T> + Send) -> T {
    let mut read = pin!(read);
    poll_fn(|context| run_blocking(|| read.as_mut().poll(context))).await
}

/// Runs a piece of a read, for which the runtime replaces the current thread. A runtime of one thread, such as that of a simulation in
/// virtual time, has nothing to replace it with.
fn run_blocking<T>(piece: impl FnOnce() -> T) -> T {
    if is_multi_threaded() { block_in_place(piece) } else { piece() }
}

fn is_multi_threaded() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

fn busy_problem() -> Problem {
    let detail = format!("other reads took longer than {} s: send this one again", TURN_TIMEOUT.as_secs());
    Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail) }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures_util::FutureExt as _;

    use super::*;

    fn request(method: &str, path: &str) -> Request {
        Request::builder().method(method).uri(path).body(Body::empty()).expect("a request")
    }

    #[test]
    fn request_is_classified_by_what_it_reads() {
        for (line, reads) in [
            ("GET /", Reads::Store),
            ("GET /v1/sessions?limit=500", Reads::Store),
            ("POST /v1/tasks/list", Reads::Little),
            ("GET /s/0192/replay", Reads::Store),
            ("HEAD /usage", Reads::Store),
            ("GET /s/0192", Reads::Session),
            ("GET /v1/sessions/0192/transcript", Reads::Session),
            ("GET /v1/sessions/0192/runs/1?wait=true", Reads::Little),
            ("GET /v1/sessions/0192/runs/1", Reads::Little),
            ("GET /v1/tasks/get/task_0192", Reads::Little),
            // Attacks: a parameter without effect.
            ("GET /?wait=true", Reads::Store),
            ("GET /v1/sessions?wait", Reads::Store),
            ("GET /s/0192/replay?at=1&wait=true", Reads::Store),
            ("GET /v1/sessions/0192/transcript?wait=true", Reads::Session),
            ("GET /v1/trees/0192/events", Reads::Little),
            ("POST /v1/sessions", Reads::Little),
            ("GET /healthz", Reads::Little),
            ("GET /assets/page.css", Reads::Little),
            ("GET /v1/host", Reads::Little),
        ] {
            let (method, path) = line.split_once(' ').expect("a line");
            assert_eq!(Reads::of(&request(method, path)), reads, "{line}");
        }
    }

    /// The only thread of the runtime is in a read, until another task of the runtime ends it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn read_that_takes_long_delays_no_other_task() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = tokio::sync::oneshot::channel::<()>();
        let long = async move {
            begin.send(()).expect("it waits");
            ended.recv_timeout(Duration::from_secs(60))
        };
        let read = tokio::spawn(async move { ReadTurns::default().read_store(long).await.expect("a turn") });
        let other = tokio::spawn(async move {
            begun.await.expect("begun");
            end.send(()).expect("it reads");
        });
        other.await.expect("it ran");
        assert_eq!(read.await.expect("it ran"), Ok(()));
    }

    /// A thousand reads of streams, all at once, use two threads of their own. The control: a view replaces a worker of the runtime.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn reads_of_streams_use_few_threads() {
        fn thread() -> (std::thread::ThreadId, Option<String>) {
            let thread = std::thread::current();
            (thread.id(), thread.name().map(str::to_owned))
        }
        let read_turns = ReadTurns::default();
        let reads = (0..1_000).map(|_| read_turns.read_events(ReadSender::Socket, thread));
        let used: std::collections::HashSet<_> = futures_util::future::join_all(reads).await.into_iter().collect();
        let named = used.iter().filter(|(_, name)| name.as_deref() == Some(READ_THREAD)).count();
        assert!((1..=LIVE_READS).contains(&used.len()) && named == used.len(), "{used:?}");
        assert_ne!(read_turns.read_for_stream(async { thread() }).await.1.as_deref(), Some(READ_THREAD));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    #[should_panic(expected = "a broken frame")]
    async fn panic_of_a_stream_read_reaches_its_stream() {
        ReadTurns::default().read_events(ReadSender::Socket, || panic!("a broken frame")).await;
    }

    /// A read that waits for a timer ends in virtual time, which passes only while no other thread works.
    #[tokio::test(start_paused = true)]
    async fn read_ends_in_virtual_time() {
        let waiting = tokio::time::sleep(Duration::from_secs(3_600));
        ReadTurns::default().read_store(waiting).await.expect("a turn");
    }

    /// Streams have turns of their own, and wait for them without a limit. The control: a request is refused.
    #[tokio::test(start_paused = true)]
    async fn stream_waits_for_a_turn_of_its_own() {
        let read_turns = ReadTurns::default();
        let store = read_turns.all.store.acquire_many(2).await.expect("all turns");
        read_turns.read_for_stream(async {}).await;
        let live = read_turns.all.live.acquire_many(2).await.expect("all turns");
        let waits = timeout(TURN_TIMEOUT * 10, read_turns.read_for_stream(async {})).await;
        assert!(waits.is_err() && read_turns.read_store(async {}).await.is_err());
        drop((store, live));
        read_turns.read_for_stream(async {}).await;
    }

    #[tokio::test(start_paused = true)]
    async fn read_without_a_turn_is_refused_and_others_pass() {
        let read_turns = ReadTurns::default();
        let turns = read_turns.all.store.acquire_many(2).await.expect("all turns");
        let refused = read_turns.read_store(async {}).await.expect_err("no turn");
        assert_eq!((refused.status, refused.code, refused.retry_after), (503, "busy", Some(1)));
        read_turns.read_session(async {}).await.expect("reads of one session have turns of their own");
        drop(turns);
        read_turns.read_store(async {}).await.expect("a turn");
    }

    /// A token sends reads without end. The control: a further read of the same token gets no turn.
    #[tokio::test(start_paused = true)]
    async fn reads_of_one_token_leave_turns_to_others() {
        let read_turns = Arc::new(ReadTurns::default());
        let [token, other] =
            ["token", "other"].map(|name| ReadSender::Named(SenderId::of(blake3::hash(name.as_bytes()))));
        let mut flood = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let endless = Arc::clone(&read_turns);
            flood.spawn(run_as(token, async move {
                let endless = [
                    endless.read_store(std::future::pending::<()>()).boxed(),
                    endless.read_session(std::future::pending()).boxed(),
                    endless.read_for_stream(std::future::pending()).map(Ok).boxed(),
                ];
                drop(futures_util::future::join_all(endless).await);
            }));
        }
        while read_turns.all.live.available_permits() > 1 {
            tokio::task::yield_now().await;
        }
        for sender in [other, ReadSender::Socket, ReadSender::Host] {
            run_as(sender, async {
                read_turns.read_store(async {}).await.expect("a turn");
                read_turns.read_session(async {}).await.expect("a turn");
                timeout(TURN_TIMEOUT, read_turns.read_for_stream(async {})).await.expect("a turn");
            })
            .await;
        }
        run_as(token, async {
            assert!(read_turns.read_store(async {}).await.is_err() && read_turns.read_session(async {}).await.is_err());
            assert!(timeout(TURN_TIMEOUT, read_turns.read_for_stream(async {})).await.is_err());
        })
        .await;
    }
}
