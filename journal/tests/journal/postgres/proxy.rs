//! A proxy between a journal and its server that loses messages.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use crate::scene::*;

use super::{create_session, journal, unused_shard};
use crate::server::{self, Server, shared};

/// The fault of the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    None,
    /// The server commits, but its reply is lost with the connection.
    Reply,
    /// The commit never arrives, and the connection is lost.
    Request,
    /// The server commits, but its reply never arrives, and the connection stays open.
    Silence,
}

const LOSSES: [Loss; 4] = [Loss::None, Loss::Reply, Loss::Request, Loss::Silence];

pub(super) struct Proxy {
    port: u16,
    next: Arc<AtomicU8>,
    lost: Arc<AtomicU32>,
    requests: Arc<AtomicU32>,
    /// True if no reply arrives any more, while connections stay open.
    is_silent: Arc<AtomicBool>,
}

impl Proxy {
    fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, to) = (listener.local_addr().unwrap().port(), server.port());
        let (next, lost, requests) = (Arc::new(AtomicU8::new(0)), Arc::default(), Arc::default());
        let is_silent = Arc::new(AtomicBool::new(false));
        let counts: [Arc<AtomicU32>; 2] = [Arc::clone(&lost), Arc::clone(&requests)];
        let shared = (Arc::clone(&next), counts, Arc::clone(&is_silent));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let (next, counts, is_silent) = shared.clone();
                std::thread::spawn(move || carry(client, server, &next, counts.each_ref().map(Arc::as_ref), is_silent));
            }
        });
        Self { port, next, lost, requests, is_silent }
    }

    fn lose(&self, loss: Loss) {
        let at = LOSSES.iter().position(|other| *other == loss).unwrap();
        self.next.store(at as u8, Ordering::SeqCst);
    }
}

/// Forwards both directions. A loss applies to the next large request: a group with a new session is larger than any other message.
fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    next: &Arc<AtomicU8>,
    [lost, requests]: [&AtomicU32; 2],
    is_silent: Arc<AtomicBool>,
) {
    let silent = Arc::new(Mutex::new(Loss::None));
    let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let replies = Arc::clone(&silent);
    std::thread::spawn(move || {
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = from_server.read(&mut bytes) {
            if is_silent.load(Ordering::SeqCst) {
                continue;
            }
            match *replies.lock().unwrap() {
                Loss::None | Loss::Request => drop(to_client.write_all(&bytes[..count])),
                Loss::Reply => break,
                Loss::Silence => {}
            }
        }
        drop(to_client.shutdown(Shutdown::Both));
    });
    let mut bytes = [0; 1 << 16];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        requests.fetch_add(1, Ordering::SeqCst);
        if count > 1_000 {
            let loss = LOSSES[next.swap(0, Ordering::SeqCst) as usize];
            *silent.lock().unwrap() = loss;
            lost.fetch_add(u32::from(loss != Loss::None), Ordering::SeqCst);
            if loss == Loss::Request {
                break;
            }
        }
        if server.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    drop((server.shutdown(Shutdown::Both), client.shutdown(Shutdown::Both)));
}

#[tokio::test]
async fn d1_lost_reply_of_a_commit_is_resolved_by_the_next_epoch() {
    let (proxy, shard) = (Proxy::to(shared()), unused_shard());
    let target = server::target(&format!("{}&{shard}&reply_timeout=1", server::address(proxy.port)));
    let journal = journal(&target);
    create_session(&journal, 1).await.unwrap();
    let mut n = 1;
    for loss in [Loss::Reply, Loss::Request, Loss::Silence, Loss::Reply, Loss::None] {
        n += 1;
        proxy.lose(loss);
        // No commit is lost or written twice.
        assert_eq!(create_session(&journal, n).await.unwrap(), Lsn(n as u64), "{loss:?}");
    }
    assert_eq!(proxy.lost.load(Ordering::SeqCst), 4, "a loss did not hit a commit");
    let name = shard.trim_start_matches("shard=");
    let row = shared().sql(&format!("SELECT epoch, last_lsn FROM subtend.shard WHERE name = '{name}'"));
    assert_eq!(row, format!("5|{n}"), "the number of epochs differs from that of losses");
    assert_eq!((problems(&journal), journal.heads().unwrap().len()), (Vec::new(), n as usize));
    journal.close().await.unwrap();
    let journal = super::journal(&target);
    (1..=n).for_each(|n| assert_eq!(journal.records(id(n)).unwrap().len(), 3, "{n}"));
}

/// A server that never answers a scan would block a thread and stop a node. Control: it answers before.
#[tokio::test]
async fn d1_scan_ends_when_the_server_falls_silent() {
    let (proxy, shard) = (Proxy::to(shared()), unused_shard());
    let target = server::target(&format!("{}&{shard}&reply_timeout=1", server::address(proxy.port)));
    let journal = journal(&target);
    create_session(&journal, 1).await.unwrap();
    assert_eq!(journal.heads().unwrap().len(), 1);
    proxy.is_silent.store(true, Ordering::SeqCst);
    let failed = journal.heads().unwrap_err().to_string();
    assert!(failed.contains("no answer within 1 s"), "{failed}");
}

#[tokio::test]
async fn d1_activation_takes_one_round_trip() {
    let (proxy, shard) = (Proxy::to(shared()), unused_shard());
    let journal = journal(&server::target(&format!("{}&{shard}", server::address(proxy.port))));
    for n in 1..=2 {
        create_session(&journal, n).await.unwrap();
    }
    // The first one also connects, and prepares the statement.
    journal.activate_with_records(id(1)).unwrap();
    let before = proxy.requests.load(Ordering::SeqCst);
    let (activation, records) = journal.activate_with_records(id(2)).unwrap();
    assert_eq!(proxy.requests.load(Ordering::SeqCst) - before, 1);
    assert_eq!((activation.next_seq, records.len(), activation.head.is_some()), (Seq(4), 3, true));
}

#[tokio::test]
async fn d1_unreachable_database_poisons_the_journal() {
    let server = Server::start(&[]);
    let journal = journal(&server.target("shard=a&reply_timeout=1"));
    create_session(&journal, 1).await.unwrap();
    server.crash();
    let poisoned = create_session(&journal, 2).await.unwrap_err().to_string();
    assert!(poisoned.contains("the connection to the database was lost: error connecting to server"), "{poisoned}");
    assert!(create_session(&journal, 3).await.is_err(), "a poisoned journal accepted a write");
    drop(journal);
    server.up();
    let journal = super::journal(&server.target("shard=a"));
    assert_eq!((journal.durable(), problems(&journal)), (Lsn(1), Vec::new()));
}
