//! The drill of nodes applies faults of every kind under load. Database and workspace alone decide whether it passes.
//!
//! `FAULTS=1000 CLUSTERS=4 LEASE=15 .ci/run nodes` runs more faults, divided among independent clusters, with leases of
//! 15 s. Most of the time of a fault is spent waiting for a lease to end. `SEED=N` repeats the choice of victims in
//! each cluster. With `SUBTEND_OTHER`, the command of another version, a node that leaves returns with the version that
//! it did not have.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use subtend_session::ids::SessionId;
use subtend_session::record::Record;

use crate::client::NodeClient;
use crate::cluster::{Cluster, LEASE, PATIENCE, owned, shares};
use crate::events::{Follower, Received};
use crate::history;
use crate::proxy::Network;

const NODES: usize = 3;
const SHARDS: u16 = 6;
const SENDERS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NodeFault {
    Kill,
    Pause,
    Leave,
    AllBlocked,
    RepliesBlocked,
    Slow,
    LosesReply,
    CutConnections,
    CrashDatabase,
}

const FAULTS: [NodeFault; 9] = [
    NodeFault::Kill,
    NodeFault::LosesReply,
    NodeFault::Pause,
    NodeFault::CrashDatabase,
    NodeFault::Leave,
    NodeFault::RepliesBlocked,
    NodeFault::CutConnections,
    NodeFault::AllBlocked,
    NodeFault::Slow,
];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Opens sessions until it is stopped. A command without an answer is repeated, with its key, at any node.
fn send(
    client: &NodeClient,
    ports: &[u16],
    (sender, pause): (usize, Duration),
    stop: &AtomicBool,
    sent: &AtomicU64,
) -> Vec<String> {
    let (mut opened, mut turn) = (Vec::new(), sender);
    let mut n = 0;
    while !stop.load(Ordering::SeqCst) {
        n += 1;
        let text = format!("{}{sender}-{n}", if n % 4 == 0 { "" } else { "quick " });
        let (key, body) = (format!("idempotency-key: {sender}-{n}\r\n"), json!({"input": {"text": text}}).to_string());
        loop {
            turn += 1;
            match client.ask(ports[turn % ports.len()], "POST /v1/sessions", &key, &body) {
                Ok((200 | 201, answer)) => {
                    opened.push(answer["session"]["id"].as_str().unwrap().to_owned());
                    sent.fetch_add(1, Ordering::SeqCst);
                    break;
                }
                Ok((502 | 503, _)) | Err(_) => std::thread::sleep(Duration::from_millis(50)),
                Ok((status, answer)) => panic!("{status} {answer}"),
            }
        }
        std::thread::sleep(pause);
    }
    opened
}

struct Drill {
    cluster: Cluster,
    sent: Arc<AtomicU64>,
    totals: DrillTotals,
}

#[derive(Default)]
struct DrillTotals {
    failovers: Vec<Duration>,
    done: BTreeMap<NodeFault, u32>,
    sessions: usize,
    claims: usize,
    events: usize,
    /// Number of nodes that ended during their start.
    restarts: u32,
}

impl DrillTotals {
    fn add(&mut self, other: Self) {
        self.failovers.extend(other.failovers);
        for (fault, count) in other.done {
            *self.done.entry(fault).or_default() += count;
        }
        self.sessions += other.sessions;
        self.claims += other.claims;
        self.events += other.events;
        self.restarts += other.restarts;
    }

    fn report(&mut self, lease: u64) {
        self.failovers.sort_unstable();
        let at = |share: usize| self.failovers.get((self.failovers.len() * share).div_ceil(100).saturating_sub(1));
        let ms = |time: Option<&Duration>| time.map_or(0, |time| time.as_millis());
        let late = self.failovers.iter().filter(|time| **time > Duration::from_secs(lease + 5)).count();
        println!("faults: {:?}, {} in all", self.done, self.done.values().sum::<u32>());
        println!("sessions {}, events {}, claims {}", self.sessions, self.events, self.claims);
        println!("nodes that ended at their start and were started again: {}", self.restarts);
        println!(
            "{} failovers with a lease of {lease} s: p50 {} ms, p99 {} ms, longest {} ms, {late} above lease + 5 s",
            self.failovers.len(),
            ms(at(50)),
            ms(at(99)),
            ms(at(100))
        );
    }
}

/// Stops the drills of other clusters soon after this one has failed.
struct StopsOthers<'a>(&'a AtomicBool);

impl Drop for StopsOthers<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

impl Drill {
    /// Applies one fault to a node, repairs it, and waits until every shard has an owner again.
    fn apply_fault(&mut self, fault: NodeFault, victim: usize) {
        let seconds = Duration::from_secs;
        let session = self.session_of(victim);
        match fault {
            NodeFault::Kill => {
                self.cluster.kill(victim);
                self.failover(victim, session);
                self.cluster.start_node(victim, SHARDS);
            }
            NodeFault::Pause => {
                self.cluster.signal(victim, "STOP");
                self.failover(victim, session);
                std::thread::sleep(seconds(1));
                self.cluster.signal(victim, "CONT");
            }
            NodeFault::Leave => {
                self.cluster.signal(victim, "TERM");
                assert_eq!(self.cluster.ended(victim), Some(0), "{}", self.cluster.log(victim));
                self.cluster.change_version(victim);
                self.cluster.start_node(victim, SHARDS);
            }
            NodeFault::AllBlocked | NodeFault::RepliesBlocked => {
                let network =
                    if fault == NodeFault::AllBlocked { Network::AllBlocked } else { Network::RepliesBlocked };
                self.cluster.nodes[victim].proxy.set(network);
                self.failover(victim, session);
                self.cluster.nodes[victim].proxy.set(Network::Healthy);
            }
            NodeFault::Slow => {
                self.cluster.nodes[victim].proxy.set(Network::Slow);
                std::thread::sleep(seconds(self.cluster.lease));
                self.cluster.nodes[victim].proxy.set(Network::Healthy);
            }
            NodeFault::LosesReply => {
                let (proxy, before) = (&self.cluster.nodes[victim].proxy, self.cluster.nodes[victim].proxy.lost());
                proxy.set(Network::LosesReply);
                let give_up = Instant::now() + PATIENCE;
                while proxy.lost() == before && Instant::now() < give_up {
                    std::thread::sleep(Duration::from_millis(10));
                }
                assert!(proxy.lost() > before, "no reply of a commit was lost\n{}", self.cluster.log(victim));
            }
            NodeFault::CutConnections => self.cluster.server.cut(),
            NodeFault::CrashDatabase => {
                self.cluster.server.crash();
                std::thread::sleep(Duration::from_millis(200));
                self.cluster.server.up();
            }
        }
        *self.totals.done.entry(fault).or_default() += 1;
        self.wait_until_settled(victim);
    }

    fn wait_until_settled(&mut self, victim: usize) {
        let all = |members: &Value| owned(members) == usize::from(SHARDS) && shares(members).len() == NODES;
        self.cluster.wait_with_restarts(SHARDS, all);
        // Sessions must make progress before the next fault.
        let (before, give_up) = (self.sent.load(Ordering::SeqCst), Instant::now() + PATIENCE);
        while self.sent.load(Ordering::SeqCst) < before + 8 {
            assert!(Instant::now() < give_up, "no session could be opened\n{}", self.cluster.log(victim));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns a session of a shard that the node owns.
    fn session_of(&self, node: usize) -> String {
        let name = &self.cluster.nodes[node].name;
        let sql = format!(
            "SELECT encode(head.key, 'hex') FROM subtend.head JOIN subtend.shard ON shard.id = head.shard \
             JOIN subtend.node ON node.lease = shard.lease WHERE node.name = '{name}' LIMIT 1"
        );
        let give_up = Instant::now() + PATIENCE;
        loop {
            // The node may have just claimed its shards, or may be losing them.
            if let Ok(id) = uuid::Uuid::parse_str(&self.cluster.server.sql(&sql)) {
                return SessionId(id).to_string();
            }
            assert!(Instant::now() < give_up, "no session of {name}\n{}", self.cluster.log(node));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Measures how long a client of another node waits for a session of a killed node.
    fn failover(&mut self, gone: usize, session: String) {
        let started = Instant::now();
        let other = (gone + 1) % NODES;
        loop {
            let (status, _) = self.cluster.ask(other, &format!("GET /v1/sessions/{session}"), "", &Value::Null);
            if status == 200 && self.cluster.owner_of(&session) != gone {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "{status}\n{}", self.cluster.log(other));
            std::thread::sleep(Duration::from_millis(10));
        }
        self.totals.failovers.push(started.elapsed());
    }
}

/// Returns all sessions with the number of their last record; `None` while a shard has no owner.
fn last_records(cluster: &Cluster) -> Option<BTreeMap<String, u64>> {
    let (mut all, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let (status, page) = cluster.ask(0, &format!("GET /v1/sessions?all=true&limit=500{cursor}"), "", &Value::Null);
        if status == 503 {
            return None;
        }
        assert_eq!(status, 200, "{page}");
        for row in page["items"].as_array().unwrap() {
            all.insert(row["id"].as_str().unwrap().to_owned(), row["last_seq"].as_u64().unwrap());
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Some(all),
        }
    }
}

/// Waits until a follower has the last record of each session. Checks that it got each record once and in order.
fn check_events(cluster: &Cluster, follower: Follower) -> usize {
    let give_up = Instant::now() + Duration::from_secs(600);
    let complete = |received: &Received| {
        last_records(cluster).is_some_and(|all| {
            all.iter().all(|(session, last)| received.get(session).and_then(|seqs| seqs.last()) == Some(last))
        })
    };
    while !complete(&follower.so_far()) {
        assert!(Instant::now() < give_up, "a follower lacks records\n{}", cluster.log(0));
        std::thread::sleep(Duration::from_millis(200));
    }
    let received = follower.received();
    for (session, seqs) in &received {
        let expected: Vec<u64> = (1..=seqs.len() as u64).collect();
        assert_eq!(*seqs, expected, "session {session}: records are missing, repeated or out of order");
    }
    received.values().map(Vec::len).sum()
}

/// Checks that each acknowledged session exists, that each run ended once, and that no command ran twice.
fn check_store(cluster: &Cluster, opened: &[String]) {
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    for journal in history::journals(&cluster.server) {
        let heads = journal.heads().unwrap();
        let here: BTreeSet<SessionId> = heads.iter().map(|(session, _)| *session).collect();
        for (session, head) in heads {
            let family = [Some(head.root), head.parent];
            assert!(
                family.into_iter().flatten().all(|of| here.contains(&of)),
                "session {session} is not in the shard of its tree"
            );
            let records = journal.records(session).unwrap();
            let runs = records.iter().filter(|stored| matches!(stored.record, Record::RunOpened(..))).count();
            let ended = records.iter().filter(|stored| matches!(stored.record, Record::RunEnded { .. })).count();
            assert_eq!((runs, ended), (1, 1), "session {session}: one run must have ended once");
            assert!(ends.insert(session.to_string(), ended).is_none(), "session {session} is in two shards");
        }
    }
    opened.iter().for_each(|session| assert!(ends.contains_key(session), "session {session} was acknowledged"));
    let effects = cluster.effects();
    let mut once = effects.clone();
    once.sort();
    once.dedup();
    assert_eq!(effects.len(), once.len(), "a command ran twice");
}

/// Applies faults to one cluster under load, and checks its store afterwards.
fn run_drill(cluster: Cluster, faults: Range<u64>, mut seed: u64, pause: Duration, failed: &AtomicBool) -> DrillTotals {
    let (_stops_others, first) = (StopsOthers(failed), seed);
    let sent = Arc::new(AtomicU64::new(0));
    let mut drill = Drill { cluster, sent: Arc::clone(&sent), totals: DrillTotals::default() };
    let ports: Vec<u16> = drill.cluster.nodes.iter().map(|node| node.port).collect();
    let client = drill.cluster.client.clone();
    let followers: Vec<Follower> = (0..2).map(|_| Follower::start(&client, ports.clone())).collect();
    let stop = AtomicBool::new(false);
    let opened: Vec<String> = std::thread::scope(|scope| {
        let begin = |sender| {
            let (client, ports, stop, sent) = (&client, &ports, &stop, &*sent);
            scope.spawn(move || send(client, ports, (sender, pause), stop, sent))
        };
        let senders: Vec<_> = (0..SENDERS).map(begin).collect();
        // A panic in a fault must also stop the senders.
        let struck = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drill.wait_until_settled(0);
            for at in faults.clone().take_while(|_| !failed.load(Ordering::SeqCst)) {
                // A linear congruential generator, so that a seed always selects the same victims.
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let fault = FAULTS[usize::try_from(at).unwrap() % FAULTS.len()];
                drill.apply_fault(fault, usize::try_from(seed >> 33).unwrap() % NODES);
                eprintln!("seed {first}: fault {} of {}: {fault:?}", at - faults.start + 1, faults.end - faults.start);
            }
        }));
        stop.store(true, Ordering::SeqCst);
        let opened = senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect();
        struck.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        opened
    });
    for session in &opened {
        assert!(!drill.cluster.outcome(0, session).is_null(), "{session}");
    }
    let events = followers.into_iter().map(|follower| check_events(&drill.cluster, follower)).sum();
    drill.cluster.end();
    let claims = history::check(&drill.cluster.server);
    check_store(&drill.cluster, &opened);
    let restarts = drill.cluster.restarts;
    DrillTotals { sessions: opened.len(), claims, events, restarts, ..drill.totals }
}

#[test]
fn d3_faults_of_every_kind_lose_nothing() {
    let (faults, seed, clusters) = (number("FAULTS", FAULTS.len() as u64), number("SEED", 1), number("CLUSTERS", 1));
    let lease = number("LEASE", LEASE);
    // Many clusters together get no more load than two cores can bear.
    let pause = Duration::from_millis(if clusters == 1 { 40 } else { 300 * clusters });
    let (failed, mut totals) = (AtomicBool::new(false), DrillTotals::default());
    let started: Vec<Cluster> = (0..clusters).map(|_| Cluster::with_lease(NODES, SHARDS, lease)).collect();
    std::thread::scope(|scope| {
        let begin = |(cluster, n): (Cluster, u64)| {
            let (share, failed) = (faults * n / clusters..faults * (n + 1) / clusters, &failed);
            scope.spawn(move || run_drill(cluster, share, seed.wrapping_add(n), pause, failed))
        };
        let drills: Vec<_> = started.into_iter().zip(0..).map(begin).collect();
        for drill in drills {
            totals.add(drill.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    totals.report(lease);
}
