//! The TCP sockets of a host.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;

use super::Listen;
use crate::cli::fail::Fail;

/// Ports that are tried if any will do.
const TRIES: usize = 16;

/// The socket of an address, and that of the other loopback address if `localhost` may lead to the first: with one alone, another user could
/// listen at the other one, and get what clients send to `localhost`.
pub(super) struct TcpSockets {
    pub(super) address: SocketAddr,
    pub(super) listeners: Vec<TcpListener>,
}

impl TcpSockets {
    /// Binds the sockets; `None` without an address.
    ///
    /// # Errors
    /// If an address is in use.
    pub(super) async fn bind(at: Listen) -> Result<Option<Self>, Fail> {
        let Listen::At(wanted) = at else { return Ok(None) };
        let mut left = if wanted.port() == 0 { TRIES } else { 1 };
        loop {
            left = left.saturating_sub(1);
            let bound = async {
                let listener = TcpListener::bind(wanted).await?;
                Ok::<_, io::Error>((listener.local_addr()?, listener))
            };
            let bound = bound.await;
            let (address, listener) = bound.map_err(|error| {
                Fail::Other(format!("cannot listen on {wanted}: {error}. Choose another with --listen ADDRESS"))
            })?;
            let mut listeners = vec![listener];
            match bind_other(address).await {
                Ok(other) => {
                    listeners.extend(other);
                    return Ok(Some(Self { address, listeners }));
                }
                Err((other, error)) if left == 0 => {
                    return Err(Fail::Other(format!(
                        "cannot listen on {address}: `localhost` also leads to {other}: {error}. Choose another with --listen ADDRESS"
                    )));
                }
                Err(_) => {}
            }
        }
    }
}

/// Binds the other loopback address. Returns `None` if `localhost` does not lead to `address`, or on a system without the other one.
async fn bind_other(address: SocketAddr) -> Result<Option<TcpListener>, (SocketAddr, io::Error)> {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(Ipv4Addr::LOCALHOST | Ipv4Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V4(_) | IpAddr::V6(_) => return Ok(None),
    };
    let other = SocketAddr::new(ip, address.port());
    match TcpListener::bind(other).await {
        Ok(listener) => Ok(Some(listener)),
        // Without IPv6, no program can listen there.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable || is_unknown_family(&error) => Ok(None),
        Err(error) => Err((other, error)),
    }
}

/// Returns whether the system does not have this kind of address. The error has no `ErrorKind`, and another number on each system.
fn is_unknown_family(error: &io::Error) -> bool {
    let number = if cfg!(target_os = "linux") {
        97
    } else if cfg!(windows) {
        10_047
    } else {
        47
    };
    error.raw_os_error() == Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// Attack: another user listens at one loopback address while the host is at the other one. The controls: after that, and an address
    /// that is no other name of this machine.
    #[tokio::test]
    async fn both_loopback_addresses_are_bound() {
        let Ok(foreign) = TcpListener::bind("[::1]:0").await else {
            let sockets = TcpSockets::bind(Listen::At(parse("127.0.0.1:0"))).await.ok().flatten();
            assert_eq!(sockets.map(|sockets| sockets.listeners.len()), Some(1));
            return;
        };
        let port = foreign.local_addr().expect("its address").port();
        let [mapped, any, wanted] =
            ["[::ffff:127.0.0.1]", "0.0.0.0", "127.0.0.1"].map(|at| parse(&format!("{at}:{port}")));
        for at in [mapped, any, wanted] {
            let Err(Fail::Other(why)) = TcpSockets::bind(Listen::At(at)).await.map(drop) else {
                panic!("{at}: the other address was not bound")
            };
            let expected = format!("cannot listen on {at}: `localhost` also leads to [::1]:{port}: ");
            assert!(why.starts_with(&expected), "{why}");
        }
        drop(foreign);
        for (at, count) in [
            (wanted, 2),
            (parse("[::1]:0"), 2),
            (parse("0.0.0.0:0"), 2),
            (parse("[::ffff:127.0.0.1]:0"), 2),
            (parse("127.0.0.2:0"), 1),
        ] {
            let sockets = TcpSockets::bind(Listen::At(at)).await.ok().flatten().expect("sockets");
            assert_eq!(sockets.listeners.len(), count, "{at}");
            for listener in &sockets.listeners {
                let own = listener.local_addr().expect("its address");
                assert_eq!(own.port(), sockets.address.port());
            }
        }
    }
}
