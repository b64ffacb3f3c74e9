//! Interrupts a commit at each point: within its request, before its end, and within its reply. At that point, the
//! shard's owner is killed, the server crashes, or the connection is cut.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Child;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use crate::scene::*;

use super::{create_session, journal};
use crate::crash;
use crate::engines::Kind;
use crate::server::{ADDRESS, Server, address, shard_at, shared, target};

/// The point up to which a commit arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// This many eighths of its request.
    Request(usize),
    /// All of its request except the final `Sync`: the transaction of the executed statement is open until the `Sync`.
    Open,
    /// The request, and this many eighths of its reply.
    Reply(usize),
    /// All of the reply except the message that ends it.
    Unended,
}

const POINTS: [Point; 9] = [
    Point::Request(0),
    Point::Request(1),
    Point::Request(4),
    Point::Request(7),
    Point::Open,
    Point::Reply(0),
    Point::Reply(1),
    Point::Reply(4),
    Point::Unended,
];

/// Lengths of `Sync`, which ends a request, and of `ReadyForQuery`, which ends a reply.
const SYNC: usize = 5;
const READY: usize = 6;

impl Point {
    fn of_request(self, len: usize) -> usize {
        match self {
            Self::Request(eighths) => len * eighths / 8,
            Self::Open => len - SYNC,
            Self::Reply(_) | Self::Unended => len,
        }
    }

    fn of_reply(self, len: usize) -> usize {
        match self {
            Self::Reply(eighths) => len * eighths / 8,
            Self::Unended => len - READY,
            Self::Request(_) | Self::Open => 0,
        }
    }
}

/// The next interruption, after this many commits.
type NextPoint = Arc<Mutex<Option<(Point, u32)>>>;

/// A connection that waits within a commit until the test wants it to be lost.
struct Hold {
    reaches: SyncSender<()>,
    lost: Mutex<Receiver<()>>,
}

impl Hold {
    fn stop(&self) {
        self.reaches.send(()).unwrap();
        // The connection is also lost when the test ends.
        let _ = self.lost.lock().unwrap().recv();
    }
}

/// A proxy that stops within a commit, reports it, and loses the connection on request.
struct Interrupter {
    port: u16,
    next: NextPoint,
    reached: Receiver<()>,
    lose: SyncSender<()>,
}

impl Interrupter {
    fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, to) = (listener.local_addr().unwrap().port(), server.port());
        let ((reaches, reached), (lose, lost)) = (sync_channel(1), sync_channel(1));
        let (next, hold) = (NextPoint::default(), Arc::new(Hold { reaches, lost: Mutex::new(lost) }));
        let next_point = Arc::clone(&next);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A crashed server refuses connections, and its client retries.
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let (next, hold) = (Arc::clone(&next_point), Arc::clone(&hold));
                std::thread::spawn(move || carry(client, server, &next, &hold));
            }
        });
        Self { port, next, reached, lose }
    }

    /// Interrupts a commit at this point, after `after` others.
    fn interrupt(&self, point: Point, after: u32) {
        *self.next.lock().unwrap() = Some((point, after));
    }

    fn wait(&self, point: Point) {
        let reached = self.reached.recv_timeout(Duration::from_secs(30));
        reached.unwrap_or_else(|_| panic!("no commit reached {point:?}"));
    }

    fn lose(&self) {
        self.lose.send(()).unwrap();
    }
}

/// A group with a new session is larger than any other message.
fn is_commit(bytes: &[u8]) -> bool {
    bytes.len() > 1_000
}

fn carry(mut client: TcpStream, mut server: TcpStream, next: &NextPoint, hold: &Arc<Hold>) {
    let due: Arc<Mutex<Option<Point>>> = Arc::default();
    let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let (stops, held) = (Arc::clone(&due), Arc::clone(hold));
    std::thread::spawn(move || {
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = from_server.read(&mut bytes) {
            let point = stops.lock().unwrap().take();
            let part = point.map_or(count, |point| point.of_reply(count));
            drop(to_client.write_all(&bytes[..part]));
            if point.is_some() {
                held.stop();
                break;
            }
        }
        drop((to_client.shutdown(Shutdown::Both), from_server.shutdown(Shutdown::Both)));
    });
    let mut bytes = [0; 1 << 16];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        let point = is_commit(&bytes[..count]).then(|| take_point(next)).flatten();
        let within = matches!(point, Some(Point::Request(_) | Point::Open));
        *due.lock().unwrap() = point.filter(|_| !within);
        let part = point.map_or(count, |point| point.of_request(count));
        if server.write_all(&bytes[..part]).is_err() {
            break;
        }
        if within {
            hold.stop();
            break;
        }
    }
    drop((server.shutdown(Shutdown::Both), client.shutdown(Shutdown::Both)));
}

fn take_point(next: &NextPoint) -> Option<Point> {
    let mut next = next.lock().unwrap();
    let (point, after) = (*next)?;
    *next = after.checked_sub(1).map(|after| (point, after));
    next.is_none().then_some(point)
}

/// Creates session `n` with a commit that stops at `point`, and runs `meanwhile` there.
fn interrupt_commit(proxy: &Interrupter, journal: &Journal, n: u128, point: Point, meanwhile: impl FnOnce()) {
    proxy.interrupt(point, 0);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    std::thread::scope(|scope| {
        let creating = scope.spawn(|| runtime.block_on(create_session(journal, n)));
        proxy.wait(point);
        meanwhile();
        proxy.lose();
        let lsn = creating.join().unwrap().unwrap_or_else(|poisoned| panic!("{point:?}: {poisoned}"));
        assert_eq!(lsn, Lsn(n as u64), "{point:?}: lost or written twice");
    });
}

pub(super) fn complete(journal: &Journal, count: u128) {
    assert_eq!((problems(journal), journal.heads().unwrap().len() as u128), (Vec::new(), count));
    (1..=count).for_each(|n| assert_eq!(journal.records(id(n)).unwrap().len(), 3, "{n}"));
}

#[test]
fn d1_commit_interrupted_at_any_point_is_resolved() {
    let (proxy, shard) = (Interrupter::to(shared()), super::unused_shard());
    let journal = journal(&target(&format!("{}&{shard}", address(proxy.port))));
    for (n, point) in (1..).zip(POINTS) {
        interrupt_commit(&proxy, &journal, n, point, || {});
    }
    complete(&journal, POINTS.len() as u128);
}

#[test]
fn d1_server_that_crashes_within_a_commit_loses_nothing() {
    let server = Server::start(&[]);
    let proxy = Interrupter::to(&server);
    let journal = journal(&target(&format!("{}&shard=a&reply_timeout=20", address(proxy.port))));
    let points = [Point::Request(4), Point::Open, Point::Reply(0), Point::Unended];
    for (n, point) in (1..).zip(points) {
        interrupt_commit(&proxy, &journal, n, point, || {
            server.crash();
            server.up();
        });
    }
    complete(&journal, points.len() as u128);
}

/// Starts a process that writes through the proxy.
fn writer(proxy: &Interrupter, store: &Path, fault: &str) -> Child {
    let mut writer = crash::writer(Kind::Postgres, store, 0);
    writer.env(ADDRESS, address(proxy.port)).env("SUBTEND_FAULT", fault);
    writer.spawn().unwrap()
}

/// Kills the writer when a commit has been stopped at `point` for `later`. Returns the result of [`missing_sessions`].
fn kill_writer(point: Point, fault: &str, later: Duration) -> Vec<String> {
    let (proxy, dir) = (Interrupter::to(shared()), tempfile::tempdir().unwrap());
    proxy.interrupt(point, 3);
    let mut child = writer(&proxy, dir.path(), fault);
    proxy.wait(point);
    // Earlier acknowledgements are printed in this time.
    std::thread::sleep(later);
    child.kill().unwrap();
    child.wait().unwrap();
    proxy.lose();
    let acked = crash::parse_acknowledged(BufReader::new(child.stdout.take().unwrap()).lines());
    missing_sessions(&Kind::Postgres.open(dir.path()), &acked)
}

/// Returns the problems of the store, and its missing and incomplete sessions.
fn missing_sessions(journal: &Journal, acked: &[u128]) -> Vec<String> {
    let mut wrong = problems(journal);
    let last = |n: u128| journal.records(id(n)).ok().and_then(|records| records.last().map(|stored| stored.seq.0));
    let lost = acked.iter().filter(|n| (last(**n * 10 + 1), last(**n * 10 + 2)) != (Some(6), Some(3)));
    wrong.extend(lost.map(|n| format!("{n} was acknowledged, but is missing or incomplete")));
    // Two sessions are created in one batch.
    let halves = (0..10_000).take_while(|n| *n < 10 || last((n - 10) * 10 + 1).is_some());
    let halves = halves.filter(|n| last(n * 10 + 1).is_some() != last(n * 10 + 2).is_some());
    wrong.extend(halves.map(|n| format!("half of {n} is stored")));
    wrong
}

#[test]
fn d1_owner_killed_at_any_point_of_a_commit_loses_nothing() {
    for point in POINTS {
        assert_eq!(kill_writer(point, "", Duration::ZERO), Vec::<String>::new(), "{point:?}");
    }
}

/// Negative control: a frame that is acknowledged before its commit is lost.
#[test]
fn d1_acknowledgement_before_the_commit_is_noticed() {
    // Each attempt waits longer, because printing takes longer on a busy machine.
    let mut found =
        (1..=20).map(|n| kill_writer(Point::Request(4), "ack-before-commit", Duration::from_millis(200 * n)));
    let wrong = found.find(|wrong| !wrong.is_empty()).unwrap_or_default();
    assert!(!wrong.is_empty() && wrong.iter().all(|what| what.ends_with("is missing or incomplete")), "{wrong:?}");
}

/// A statement that waits in the server outlives its owner: the shard is in use until its group is complete.
#[test]
fn d2_commit_of_a_killed_owner_ends_before_the_next_claim() {
    let (server, dir) = (Server::start(&[]), tempfile::tempdir().unwrap());
    let spec = shard_at(&server.address(), dir.path());
    drop(open_store(&spec).unwrap());
    let mut child = crash::writer(Kind::Postgres, dir.path(), 0).env(ADDRESS, server.address()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while crash::parse_acknowledged(lines.next().into_iter()).is_empty() {}
    let before = std::thread::scope(|scope| {
        let lock = "BEGIN; SELECT epoch FROM subtend.shard FOR UPDATE; SELECT pg_sleep(4); COMMIT";
        let lock = scope.spawn(|| server.sql(lock));
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'WITH own%'";
        while server.sql(waits) != "1" {}
        child.kill().unwrap();
        child.wait().unwrap();
        let refused = open_store(&spec).unwrap_err();
        assert!(matches!(refused, OpenError::ClaimedElsewhere { .. }), "{refused}");
        let before: u64 = server.sql("SELECT last_lsn FROM subtend.shard").parse().unwrap();
        lock.join().unwrap();
        before
    });
    let journal = open_store(&spec).unwrap();
    assert!(journal.durable() > Lsn(before), "the group was not committed after its owner was killed");
    let acked = crash::parse_acknowledged(lines);
    assert_eq!(missing_sessions(&journal, &acked), Vec::<String>::new());
}
