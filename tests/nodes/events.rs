//! A client that follows the events of all shards across every failure.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::client::NodeClient;

/// Sequence numbers of the received records, by session.
pub(crate) type Received = BTreeMap<String, Vec<u64>>;

pub(crate) struct Follower {
    thread: JoinHandle<()>,
    received: Arc<Mutex<Received>>,
    stop: Arc<AtomicBool>,
}

impl Follower {
    /// Follows the events, and switches to the next node when a stream ends.
    pub(crate) fn start(client: &NodeClient, ports: Vec<u16>) -> Self {
        let (client, stop) = (client.clone(), Arc::new(AtomicBool::new(false)));
        let (stopping, received) = (Arc::clone(&stop), Arc::<Mutex<Received>>::default());
        let receiving = Arc::clone(&received);
        let thread = std::thread::spawn(move || {
            let (mut last, mut turn) = (String::new(), 0_usize);
            while !stopping.load(Ordering::SeqCst) {
                turn += 1;
                let port = ports[turn % ports.len()];
                // After any end, the next stream continues from the last received id.
                drop(follow(&client, port, &mut last, &receiving, &stopping));
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        Self { thread, received, stop }
    }

    pub(crate) fn so_far(&self) -> Received {
        self.received.lock().unwrap().clone()
    }

    /// Stops the follower at the next event or heartbeat; returns all received records.
    pub(crate) fn received(self) -> Received {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        self.received.lock().unwrap().clone()
    }
}

fn follow(
    client: &NodeClient,
    port: u16,
    last: &mut String,
    received: &Mutex<Received>,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    let header = if last.is_empty() { String::new() } else { format!("last-event-id: {last}\r\n") };
    let mut stream = client.open(port, "GET /v1/events", &header, "")?;
    if stream.status != 200 {
        return Ok(());
    }
    let (mut id, mut data, mut name) = (None, String::new(), String::new());
    while !stop.load(Ordering::SeqCst) {
        let mut line = String::new();
        if stream.body.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim_end();
        if let Some(value) = line.strip_prefix("id: ") {
            id = Some(value.to_owned());
        } else if let Some(value) = line.strip_prefix("event: ") {
            value.clone_into(&mut name);
        } else if let Some(value) = line.strip_prefix("data: ") {
            value.clone_into(&mut data);
        } else if line.is_empty() {
            if let Some(id) = id.take() {
                assert_eq!(name, "record", "an event that is not a record has an id");
                let record: Value = serde_json::from_str(&data).unwrap();
                let session = record["session"].as_str().unwrap().to_owned();
                received.lock().unwrap().entry(session).or_default().push(record["seq"].as_u64().unwrap());
                *last = id;
            }
            data.clear();
        }
    }
    Ok(())
}
