use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use subtend_actors::Runtime;
use subtend_drill::FAULT_VARIABLE;
use subtend_host::auth::{Guard, TokenFile};
use subtend_host::host_bug::InjectedBug;
use subtend_host::listen::{self, Bounds};
use subtend_host::{Host, HostOptions};
use subtend_journal::Journal;
use subtend_journal::owner_only::create_dir_all;
use subtend_session::index::Inflight;
use subtend_session::state::Phase;

use super::client::SOCKET;
use super::data::{StoreLocation, quote_path};
use super::fail::{Code, Fail};
use super::paint::on_one_line;
use super::work::slash::HostedCommands;
use super::work::{self, HostContext, WorkArgs};
use crate::cli::json;
use log::LogFormat;
use node_args::NodeArgs;
use settings::HomeSettings;
use tcp_sockets::TcpSockets;

mod log;
#[cfg(feature = "postgres")]
mod node;
mod node_args;
mod settings;
mod tcp_sockets;

/// Time that running calls have to finish at a shutdown.
const GRACE: Duration = Duration::from_secs(5);

/// Interval of checks whether a run is in flight.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// File of the tokens, in the host's directory.
const TOKENS: &str = "tokens.json";

/// Hosts the store: serves its sessions over HTTP until it is stopped.
///
/// Programs send `Authorization: Bearer TOKEN` (`subtend token create`); a browser opens the login link once. The API is
/// described by `GET /v1/openapi.json`. Programs of this user may use the Unix socket, which needs no token. Ctrl-C or
/// SIGTERM shuts the host down; runs of agents with `on_restart: resume` continue with the next host.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Address to listen on; port 0 takes a free one, `none` serves the Unix socket only
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7475", value_parser = parse_listen_address)]
    listen: Listen,

    /// End when no run is in flight
    #[arg(long)]
    until_idle: bool,

    /// Additional host name that requests may use, such as `box.lan:7475`; repeatable
    #[arg(long, value_name = "HOST")]
    allow_host: Vec<String>,

    /// Write a log to stderr, with one line for each request and its trace id (`traceparent`); needs `--json`, which prints
    /// the login link
    #[arg(long, value_name = "FORMAT", value_enum, requires = "json")]
    log: Option<LogFormat>,

    #[command(flatten)]
    nodes: NodeArgs,

    #[command(flatten)]
    work: WorkArgs,
}

/// The TCP address of a host, in addition to its Unix socket.
#[derive(Clone, Copy, Debug)]
enum Listen {
    None,
    At(SocketAddr),
}

fn parse_listen_address(word: &str) -> Result<Listen, String> {
    match word {
        "none" => Ok(Listen::None),
        address => address.parse().map(Listen::At).map_err(|error| format!("{error}: write IP:PORT, or `none`")),
    }
}

#[derive(Serialize)]
struct ReadyLine {
    r#type: &'static str,
    pid: u32,
    address: Option<SocketAddr>,
    socket: Option<PathBuf>,
    login: Option<String>,
    /// Names and scopes of the valid tokens: a directory of others may bring tokens with it.
    tokens: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    args.work.refuse_for_host()?;
    let mut args = args.clone();
    args.work.store.tokens.clone_from(&args.nodes.tokens);
    let args = &args;
    if args.work.store.place()?.is_in_memory() {
        return Err(Fail::Usage(
            "`serve` needs a store on disk: name one with --data DIR or --store ENGINE:PATH".to_owned(),
        ));
    }
    if let Some(log) = args.log {
        log.begin()?;
    }
    if let Some(name) = &args.nodes.node {
        return as_node(args, name);
    }
    // A host for a detached run is not needed if another process hosts the store.
    work::run_hosted(&args.work, !args.until_idle, async |runtime, hosting| run_host(args, runtime, hosting).await)
}

#[cfg(feature = "postgres")]
fn as_node(args: &Args, name: &str) -> Result<Code, Fail> {
    if args.log.is_none() {
        log::begin_warnings(args.work.quiet())?;
    }
    node::run(args, name)
}

#[cfg(not(feature = "postgres"))]
fn as_node(_: &Args, name: &str) -> Result<Code, Fail> {
    Err(Fail::Usage(format!(
        "`--node {name}`: nodes share a database, and this build is without its engine. Build with the feature `postgres`"
    )))
}

async fn run_host(args: &Args, runtime: Runtime, hosting: HostContext<'_>) -> Result<Code, Fail> {
    let prepared = match directory(&hosting.place) {
        Ok(dir) => TcpSockets::bind(args.listen).await.map(|sockets| (dir, sockets)),
        Err(why) => Err(why),
    };
    let (dir, sockets) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => {
            work::setup::shut_down(runtime, GRACE).await;
            return Err(why);
        }
    };
    let options = HostOptions {
        open: hosting.open.clone(),
        home: Some(hosting.home.clone()),
        stays: !args.until_idle,
        settings: Some(Arc::new(HomeSettings::of(&hosting.home))),
        commands: Some(Arc::new(HostedCommands { home: PathBuf::from(&hosting.home) })),
        warnings: Some(Arc::new(hosting.servers.clone())),
        workers: hosting.workers.clone(),
        injected_bug: InjectedBug::parse(&std::env::var(FAULT_VARIABLE).unwrap_or_default()),
        ..HostOptions::default()
    };
    let host = Host::new(runtime, options);
    let ends = host.ends().clone();
    let mut servers = tokio::task::JoinSet::new();
    let mut guard = None;
    let tokens = TokenFile::at(args.nodes.tokens.clone().unwrap_or_else(|| dir.join(TOKENS)));
    if let Some(sockets) = sockets {
        let address = sockets.address;
        let guards = Guard::new(address, args.allow_host.iter().cloned(), tokens.clone());
        servers.spawn(listen::tcp(sockets.listeners, guards.protect(host.router()), Bounds::default(), ends.clone()));
        guard = Some((address, guards));
    }
    #[cfg(unix)]
    let socket = {
        let path = dir.join(SOCKET);
        match listen::bind_unix(&path) {
            Ok(listener) => {
                let router = match &guard {
                    Some((_, guard)) => guard.with_login_links(host.router()),
                    None => host.router(),
                };
                servers.spawn(listen::unix(listener, router, Bounds::default(), ends.clone()));
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
    let done = match announce(args, socket.as_deref(), guard.as_ref(), &tokens) {
        Ok(()) => tokio::select! {
            () = hosting.stop.requested() => Ok(Code::Done),
            () = idle(&host), if args.until_idle => Ok(Code::Done),
            why = journal_failure(host.runtime().journal()) => Err(why),
            Some(ended) = servers.join_next() => Err(early_end_error(ended)),
        },
        Err(error) => Err(error),
    };
    hosting.screen.note("the host is shutting down: running calls have 5 s to finish");
    work::setup::report_full_disk(host.runtime());
    ends.cancel();
    while servers.join_next().await.is_some() {}
    if let Some(path) = socket {
        // Before the store is unlocked: the next host opens its socket then. The error is ignored, because that replaces a leftover socket.
        drop(std::fs::remove_file(path));
    }
    drop(guard);
    if host.shutdown(GRACE).await.is_none() {
        hosting.screen.alert("a request did not end in time: runs in flight are recovered at the next start");
    }
    done
}

/// Waits until two checks in a row find no run in flight and no client that follows events. After a single check, a
/// client that has just connected could not send its first input.
async fn idle(host: &Host) {
    let mut quiet = 0_u32;
    while quiet < 2 {
        tokio::time::sleep(IDLE_CHECK_INTERVAL).await;
        // Errors are ignored, because clients report a journal that cannot be read.
        let rows = host.runtime().journal().inflight();
        let is_busy = rows.is_ok_and(|rows| rows.iter().any(|(_, row)| is_busy(row)));
        quiet = if is_busy || host.is_followed() { 0 } else { quiet.saturating_add(1) };
    }
}

/// Waits until the journal fails. No run can continue or end then, so the host ends, and the next one recovers them.
async fn journal_failure(journal: &Journal) -> Fail {
    let poisoned = journal.on_poison().await;
    Fail::Store(format!(
        "the host ends because its journal has failed: {poisoned}. The next command opens the store again and recovers its runs"
    ))
}

/// Returns whether a run continues without an input; a held run does not.
pub(crate) fn is_busy(row: &Inflight) -> bool {
    match row.state {
        Phase::HeldInterrupted | Phase::HeldOutOfTurns | Phase::Quiet => false,
        Phase::Queued | Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest | Phase::Closing => true,
    }
}

fn early_end_error(ended: Result<std::io::Result<()>, tokio::task::JoinError>) -> Fail {
    let why = match ended {
        Ok(Ok(())) => "it ended".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Fail::Other(format!("a socket of the host failed: {why}"))
}

/// Creates the directory of the socket and the tokens, which only its owner can open.
pub(crate) fn directory(place: &StoreLocation) -> Result<PathBuf, Fail> {
    let dir = place.host_dir().ok_or_else(|| Fail::Usage("a store in memory has no host directory".to_owned()))?;
    place.check_not_writable_by_others()?;
    create_private(&dir).map_err(|error| Fail::Store(format!("the host's directory {}: {error}", dir.display())))?;
    Ok(dir)
}

/// Creates `dir` for this user only. Refuses, even for root, links and others' directories: owners choose the tokens.
#[cfg(unix)]
fn create_private(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;

    use rustix::fs::{Mode, OFlags, fchmod, fstat};
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => return made,
    }
    // Check and change the opened directory, not the path: the path may be swapped concurrently.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let foreign = || {
        std::io::Error::other(
            "it is a link or belongs to another user: remove it, or use a store in your own directory",
        )
    };
    let opened = rustix::fs::open(dir, flags, Mode::empty()).map_err(|error| match error {
        rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP | rustix::io::Errno::ACCESS => foreign(),
        other => other.into(),
    })?;
    if fstat(&opened)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(foreign());
    }
    Ok(fchmod(&opened, Mode::RWXU)?)
}

#[cfg(not(unix))]
fn create_private(dir: &Path) -> std::io::Result<()> {
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Prints the addresses of the host: on stderr, or with --json as one line on stdout.
fn announce(
    args: &Args,
    socket: Option<&Path>,
    guard: Option<&(SocketAddr, Guard)>,
    tokens: &TokenFile,
) -> Result<(), Fail> {
    let login = |(address, guard): &(SocketAddr, Guard)| {
        let link =
            guard.login_link().ok_or_else(|| Fail::Other("cannot get random bytes from the system".to_owned()))?;
        Ok::<_, Fail>((*address, link))
    };
    let tcp = guard.map(login).transpose()?;
    // The tokens of an unreadable file are refused until it is replaced.
    let valid = tokens.list().unwrap_or_else(|error| {
        drop(writeln!(anstream::stderr(), "warning: {}", on_one_line(&error.to_string())));
        Vec::new()
    });
    let valid = if guard.is_some() { valid } else { Vec::new() };
    let names: Vec<_> = valid.iter().map(|token| format!("{} ({})", on_one_line(&token.name), token.scope)).collect();
    if args.work.json {
        let (address, login) = tcp.unzip();
        let serving = ReadyLine {
            r#type: "serving",
            pid: std::process::id(),
            address,
            socket: socket.map(Path::to_owned),
            login,
            tokens: names,
        };
        let mut out = std::io::stdout().lock();
        json::write_line(&mut out, &serving)?;
        return Ok(out.flush()?);
    }
    let mut err = anstream::stderr();
    if let Some((address, login)) = tcp {
        writeln!(err, "serving on http://{address} (Ctrl-C ends it)")?;
        if !address.ip().is_loopback() {
            writeln!(err, "other machines can reach it: each request needs a token or a login")?;
        }
        writeln!(err, "  login, once and within 5 minutes: {login} (`subtend token login` makes another)")?;
        let of = match &args.nodes.tokens {
            Some(file) => format!(" --tokens {}", quote_path(&file.to_string_lossy())),
            None => args.work.store.options_for_shell(),
        };
        if names.is_empty() {
            writeln!(err, "  tokens: subtend token{of} create NAME")?;
        } else {
            writeln!(err, "  tokens: {} (subtend token{of} revoke NAME)", names.join(", "))?;
        }
    }
    if let Some(socket) = socket {
        writeln!(err, "  socket: {}", socket.display())?;
    }
    Ok(())
}

pub(crate) fn tokens(place: &StoreLocation) -> Result<TokenFile, Fail> {
    let dir = place.host_dir().ok_or_else(|| {
        Fail::Usage("a store in memory has no tokens: name a store with --data DIR or --store ENGINE:PATH".to_owned())
    })?;
    create_parent(&dir)?;
    Ok(TokenFile::at(directory(place)?.join(TOKENS)))
}

/// Returns the path of the socket of a store, even if no process has hosted the store yet.
pub(crate) fn socket(place: &StoreLocation) -> Result<PathBuf, Fail> {
    if let Some(dir) = place.host_dir() {
        create_parent(&dir)?;
    }
    Ok(directory(place)?.join(SOCKET))
}

fn create_parent(dir: &Path) -> Result<(), Fail> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    create_dir_all(parent).map_err(|error| Fail::Store(format!("{}: {error}", parent.display())))
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("a directory").permissions().mode() & 0o777
    }

    /// Repeatedly replaces `dir` with a link; returns whether `attempt` changed its target's mode within `calls` calls.
    fn changes_another_directory(calls: usize, attempt: impl Fn(&Path)) -> bool {
        let at = tempfile::tempdir().expect("a directory");
        let [dir, link, victim] = ["host", "link", "victim"].map(|name| at.path().join(name));
        [&dir, &victim].into_iter().for_each(|path| std::fs::create_dir(path).expect("a directory"));
        std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o755)).expect("its owner may");
        std::os::unix::fs::symlink(&victim, &link).expect("a link");
        let ends = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                use rustix::fs::{CWD, RenameFlags, renameat_with};
                while !ends.load(Ordering::Relaxed) {
                    renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).expect("exchanged");
                }
            });
            let closed = (0..calls).any(|_| {
                attempt(&dir);
                mode(&victim) != 0o755
            });
            ends.store(true, Ordering::Relaxed);
            closed
        })
    }

    /// Attack: between the check and the change of the mode, the owner of the parent directory replaces the host's
    /// directory with a link. Positive control: code that uses the path changes the other directory.
    #[test]
    fn swapped_link_does_not_change_another_directory() {
        assert!(!changes_another_directory(20_000, |dir| drop(create_private(dir))));
        assert!(changes_another_directory(5_000_000, |dir| {
            if std::fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir()) {
                drop(std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)));
            }
        }));
    }
}
