//! A proxy between a node and its database. It can delay traffic, block one direction, or lose the replies of commits.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    Healthy = 0,
    /// Each piece arrives late.
    Slow = 1,
    /// Requests arrive, replies do not.
    RepliesBlocked = 2,
    /// Nothing arrives, and connections stay open.
    AllBlocked = 3,
    /// The server executes the next commit; its reply is lost with the connection.
    LosesReply = 4,
}

#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<ProxyState>,
}

#[derive(Debug, Default)]
struct ProxyState {
    network: AtomicU8,
    lost: AtomicU32,
}

impl ProxyState {
    fn is(&self, network: Network) -> bool {
        self.network.load(Ordering::SeqCst) == network as u8
    }
}

impl Proxy {
    pub(crate) fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::<ProxyState>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let state = Arc::clone(&shared);
                std::thread::spawn(move || forward(client, server, &state));
            }
        });
        Self { port, state }
    }

    pub(crate) fn set(&self, network: Network) {
        self.state.network.store(network as u8, Ordering::SeqCst);
    }

    pub(crate) fn lost(&self) -> u32 {
        self.state.lost.load(Ordering::SeqCst)
    }
}

fn forward(mut client: TcpStream, mut server: TcpStream, state: &Arc<ProxyState>) {
    let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let (replies, losing) = (Arc::clone(state), Arc::new(AtomicU8::new(0)));
    let loses = Arc::clone(&losing);
    std::thread::spawn(move || {
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = from_server.read(&mut bytes) {
            if loses.load(Ordering::SeqCst) == 1 {
                break;
            }
            if replies.is(Network::Slow) {
                std::thread::sleep(Duration::from_millis(20));
            }
            if !replies.is(Network::RepliesBlocked)
                && !replies.is(Network::AllBlocked)
                && to_client.write_all(&bytes[..count]).is_err()
            {
                break;
            }
        }
        drop(to_client.shutdown(Shutdown::Both));
    });
    let mut bytes = [0; 1 << 16];
    while let Ok(count @ 1..) = client.read(&mut bytes) {
        // Only group commits have more than 1,000 bytes.
        let lost = || state.network.compare_exchange(4, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if count > 1_000 && lost() {
            losing.store(1, Ordering::SeqCst);
            state.lost.fetch_add(1, Ordering::SeqCst);
        }
        if !state.is(Network::AllBlocked) && server.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    drop((server.shutdown(Shutdown::Both), client.shutdown(Shutdown::Both)));
}
