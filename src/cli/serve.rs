//! `subtend serve`: hosts the store for clients.

use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use subtend_actors::Runtime;
use subtend_host::auth::{Guard, Tokens};
use subtend_host::listen::{self, Bounds};
use subtend_host::{Host, HostOptions};
use tokio::net::TcpListener;

use super::data::Place;
use super::fail::{Code, Fail};
use super::work::{self, Hosting, WorkArgs};
use crate::cli::json;

/// Time for an orderly end: running calls may finish within it.
const GRACE: Duration = Duration::from_secs(5);

/// File of the tokens, in the host's directory.
const TOKENS: &str = "tokens.json";
/// File of the socket, in the host's directory.
const SOCKET: &str = "host.sock";

/// Hosts the store: serves its sessions over HTTP until it is stopped.
///
/// Programs send `Authorization: Bearer TOKEN` (`subtend token create`), a browser opens the login link once. The API is described by
/// `GET /v1/openapi.json`. Programs of this user may use the Unix socket, which needs no token. Ctrl-C or SIGTERM ends the host in order;
/// runs of agents with `on_restart: resume` continue with the next one.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7475")]
    listen: SocketAddr,

    /// Another name of this host in the address of requests, such as `box.lan:7475`; may be given again
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,

    #[command(flatten)]
    work: WorkArgs,
}

/// What a machine reads when the host is ready.
#[derive(Serialize)]
struct Serving {
    r#type: &'static str,
    pid: u32,
    address: SocketAddr,
    socket: Option<PathBuf>,
    login: String,
}

/// Runs the command.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    args.work.not_for_host()?;
    if args.work.store.place()?.path().is_none() {
        return Err(Fail::Usage(
            "`serve` needs a store on disk: name one with --data DIR or --store ENGINE:PATH".to_owned(),
        ));
    }
    work::hosted(&args.work, async |runtime, hosting| served(args, runtime, hosting).await)
}

async fn served(args: &Args, runtime: Runtime, hosting: Hosting<'_>) -> Result<Code, Fail> {
    let dir = directory(&hosting.place)?;
    let listener = match TcpListener::bind(args.listen).await {
        Ok(listener) => listener,
        Err(error) => {
            work::hub::shut_down(runtime, GRACE).await;
            return Err(Fail::Other(format!(
                "cannot listen on {}: {error}. Choose another with --listen ADDRESS",
                args.listen
            )));
        }
    };
    let address = listener.local_addr()?;
    let tokens = Tokens::at(dir.join(TOKENS));
    let guard = Guard::new(address, args.allow_host.iter().cloned(), tokens);
    let host = Host::new(
        runtime,
        HostOptions { open: hosting.open.clone(), home: Some(hosting.home.clone()), ..HostOptions::default() },
    );
    let ends = host.ends().clone();
    let mut servers = tokio::task::JoinSet::new();
    servers.spawn(listen::tcp(listener, guard.protect(host.router()), Bounds::default(), ends.clone()));
    #[cfg(unix)]
    let socket = {
        let path = dir.join(SOCKET);
        match listen::bind_unix(&path) {
            Ok(listener) => {
                servers.spawn(listen::unix(listener, host.router(), Bounds::default(), ends.clone()));
                Some(path)
            }
            Err(error) => {
                hosting.screen.alert(&format!("no Unix socket at {}: {error}. TCP is served", path.display()));
                None
            }
        }
    };
    #[cfg(not(unix))]
    let socket = None;
    let done = match announce(args, address, socket.as_deref(), &guard) {
        Ok(()) => tokio::select! {
            () = hosting.stop.asked() => Ok(Code::Done),
            Some(ended) = servers.join_next() => Err(ended_early(ended)),
        },
        Err(error) => Err(error),
    };
    hosting.screen.note("the host ends: running calls have 5 s to finish");
    ends.cancel();
    while servers.join_next().await.is_some() {}
    drop(guard);
    if host.shutdown(GRACE).await.is_none() {
        hosting.screen.alert("a request held the host beyond its end: runs in flight are recovered by the next start");
    }
    if let Some(path) = socket {
        // The next host replaces a leftover.
        drop(std::fs::remove_file(path));
    }
    done
}

fn ended_early(ended: Result<std::io::Result<()>, tokio::task::JoinError>) -> Fail {
    let why = match ended {
        Ok(Ok(())) => "it ended".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Fail::Other(format!("a socket of the host failed: {why}"))
}

/// Makes the directory of socket and tokens, which only its owner may enter.
fn directory(place: &Place) -> Result<PathBuf, Fail> {
    let dir = place.host_dir().ok_or_else(|| Fail::Usage("a store in memory has no host directory".to_owned()))?;
    private(&dir).map_err(|error| Fail::Store(format!("the host's directory {}: {error}", dir.display())))?;
    Ok(dir)
}

#[cfg(unix)]
fn private(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700))
        }
        made => made,
    }
}

#[cfg(not(unix))]
fn private(dir: &Path) -> std::io::Result<()> {
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Prints where the host is found: to people on stderr, and with --json as one line on stdout.
fn announce(args: &Args, address: SocketAddr, socket: Option<&Path>, guard: &Guard) -> Result<(), Fail> {
    let code = guard.logins().link().ok_or_else(|| Fail::Other("the system gives no random bytes".to_owned()))?;
    let login = format!("http://{address}/login?code={code}");
    if args.work.json {
        let serving =
            Serving { r#type: "serving", pid: std::process::id(), address, socket: socket.map(Path::to_owned), login };
        let mut out = std::io::stdout().lock();
        json::write(&mut out, &serving)?;
        return Ok(writeln!(out).and_then(|()| out.flush())?);
    }
    let mut err = anstream::stderr();
    writeln!(err, "serving on http://{address} (Ctrl-C ends it)")?;
    if !address.ip().is_loopback() {
        writeln!(err, "other machines can reach it: each request needs a token or a login")?;
    }
    writeln!(err, "  login, once and within 5 minutes: {login}")?;
    writeln!(err, "  tokens: subtend token create NAME{}", args.work.store.again())?;
    if let Some(socket) = socket {
        writeln!(err, "  socket: {}", socket.display())?;
    }
    Ok(())
}

/// The file of a host's tokens.
pub(crate) fn tokens(place: &Place) -> Result<Tokens, Fail> {
    let dir = place.host_dir().ok_or_else(|| {
        Fail::Usage("a store in memory has no tokens: name a store with --data DIR or --store ENGINE:PATH".to_owned())
    })?;
    if let Some(above) = dir.parent() {
        std::fs::create_dir_all(above).map_err(|error| Fail::Store(format!("{}: {error}", above.display())))?;
    }
    Ok(Tokens::at(directory(place)?.join(TOKENS)))
}
