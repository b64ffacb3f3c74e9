//! Measures the cost of nodes: the same sessions on one, two and three nodes of one database, all on this machine.
//!
//! `cargo bench --bench nodes --features testing,postgres` prints for each number of nodes how many sessions end
//! in a second, how long a client waits until its session is open, and the processor time of one session in the nodes
//! and in the database. Then it prints the processor time of a node without work. A session has three turns, a command
//! and two children. `-- --quick` opens fewer sessions.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a bench measures wall time and fails by panicking"
)]

#[path = "../tests/nodes/client.rs"]
#[expect(dead_code, reason = "the tests need all of it")]
mod client;
#[path = "../tests/nodes/cluster.rs"]
#[expect(dead_code, reason = "the tests need all of it")]
mod cluster;
#[path = "../tests/nodes/history.rs"]
#[expect(dead_code, reason = "the tests need all of it")]
mod history;
#[path = "../tests/nodes/proxy.rs"]
#[expect(dead_code, reason = "the tests need all of it")]
mod proxy;
#[path = "../journal/tests/journal/postgres/server.rs"]
#[expect(dead_code, reason = "tests of the journal need all of it")]
mod server;

use std::time::{Duration, Instant};

use cluster::Cluster;

const SHARDS: u16 = 6;
const CLIENTS: usize = 16;
const IDLE: Duration = Duration::from_secs(10);

/// Processor time of the nodes and of the database's processes.
#[derive(Clone, Copy)]
struct Spent {
    nodes: Duration,
    database: Duration,
}

impl Spent {
    fn until_now(cluster: &Cluster) -> Self {
        let running = cluster.nodes.iter().filter_map(|node| node.child.as_ref());
        let nodes = running.map(|child| processor_time(child.id())).sum();
        Self { nodes, database: database_time(cluster) }
    }

    fn since(self, before: Self) -> Self {
        Self { nodes: self.nodes - before.nodes, database: self.database.saturating_sub(before.database) }
    }
}

/// Reads the processor time of a process and of its children that have ended.
fn processor_time(process: u32) -> Duration {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return Duration::ZERO };
    // The name of the program may contain spaces; the fields after it are numbers.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11..15].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// Reads the processor time of the postmaster, including its ended children, and of its running children.
fn database_time(cluster: &Cluster) -> Duration {
    let pid = std::fs::read_to_string(cluster.server.dir().join("data/postmaster.pid")).unwrap();
    let postmaster: u32 = pid.lines().next().unwrap().parse().unwrap();
    let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children")).unwrap();
    let children = children.split_whitespace().map(|child| child.parse().unwrap());
    children.chain([postmaster]).map(processor_time).sum()
}

/// Opens sessions one after the other, waits for the end of each, and returns how long each opening took.
fn work(cluster: &Cluster, nodes: usize, number: usize, sessions: usize) -> Vec<Duration> {
    let one = |session| {
        let (node, started) = ((number + session) % nodes, Instant::now());
        let id = cluster.open(node, &format!("{number}-{session}"));
        let opened = started.elapsed();
        assert_eq!(cluster.outcome(node, &id), "completed");
        opened
    };
    (0..sessions).map(one).collect()
}

fn measure(nodes: usize, sessions: usize) {
    let mut cluster = Cluster::steady(nodes, SHARDS);
    // The trigger that records changes for the tests would add to the cost of each commit.
    cluster.server.sql("DROP TRIGGER keep ON subtend.shard");
    let (before, started) = (Spent::until_now(&cluster), Instant::now());
    let mut opened: Vec<Duration> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let cluster = &cluster;
                scope.spawn(move || work(cluster, nodes, number, sessions / CLIENTS))
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let (wall, spent) = (started.elapsed(), Spent::until_now(&cluster).since(before));
    let before = Spent::until_now(&cluster);
    std::thread::sleep(IDLE);
    let idle = Spent::until_now(&cluster).since(before);
    cluster.end();
    opened.sort_unstable();
    let count = opened.len();
    let each = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(u32::try_from(count).unwrap());
    let share = |time: Duration| time.as_secs_f64() * 1e3 / IDLE.as_secs_f64();
    println!(
        "{nodes:>5} {:>11.1} {:>11.1} {:>11.1} {:>16.1} {:>19.1} {:>15.1} {:>18.1}",
        f64::from(u32::try_from(count).unwrap()) / wall.as_secs_f64(),
        opened[count / 2].as_secs_f64() * 1e3,
        opened[count * 99 / 100].as_secs_f64() * 1e3,
        each(spent.nodes),
        each(spent.database),
        share(idle.nodes) / f64::from(u32::try_from(nodes).unwrap()),
        share(idle.database),
    );
}

fn main() {
    let sessions = if std::env::args().any(|argument| argument == "--quick") { 160 } else { 1_600 };
    println!(
        "{:>5} {:>11} {:>11} {:>11} {:>16} {:>19} {:>15} {:>18}",
        "nodes",
        "sessions/s",
        "open p50 ms",
        "open p99 ms",
        "CPU ms, nodes",
        "CPU ms, database",
        "idle node ms/s",
        "idle database ms/s"
    );
    for nodes in [1, 2, 3] {
        measure(nodes, sessions);
    }
}
