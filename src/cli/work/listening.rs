//! The socket of a command that runs agents. Through it, other terminals reach its sessions.

use std::path::PathBuf;

use subtend_host::Host;
use tokio::task::JoinHandle;

use super::super::client::SOCKET;
use super::super::data::StoreLocation;
use super::super::serve::directory;
use super::Screen;

pub(super) struct ListeningSocket {
    served: Option<(JoinHandle<std::io::Result<()>>, PathBuf)>,
}

impl ListeningSocket {
    /// Serves `host` on the socket of its store. Without the socket, prints a warning; the command continues.
    #[cfg(unix)]
    pub(super) fn begin(place: &StoreLocation, host: &Host, screen: &mut Screen) -> Self {
        use subtend_host::listen::{self, Bounds};
        if place.host_dir().is_none() {
            return Self { served: None };
        }
        let opened = directory(place).and_then(|dir| {
            let path = dir.join(SOCKET);
            Ok((listen::bind_unix(&path)?, path))
        });
        let (listener, path) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                screen.alert(&format!("other terminals cannot reach this process: {error}"));
                return Self { served: None };
            }
        };
        let (router, ends) = (host.router(), host.ends().clone());
        let served = tokio::spawn(listen::unix(listener, router, Bounds::default(), ends));
        Self { served: Some((served, path)) }
    }

    /// Does nothing: without Unix sockets other terminals cannot reach this process.
    #[cfg(not(unix))]
    pub(super) fn begin(_: &StoreLocation, _: &Host, _: &mut Screen) -> Self {
        Self { served: None }
    }

    /// Waits until all connections are closed, and removes the socket. Called after the host's shutdown was announced.
    pub(super) async fn end(self, screen: &mut Screen) {
        let Some((served, path)) = self.served else { return };
        // A panic of the task is already reported.
        if let Ok(Err(error)) = served.await {
            screen.alert(&format!("the socket for other terminals failed: {error}"));
        }
        // The error is ignored: the next host replaces a leftover socket.
        drop(std::fs::remove_file(path));
    }
}
