//! `subtend serve --node`: a host that shares the shards of a database with other hosts.

use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use subtend_actors::OpenOptions;
use subtend_drill::FAULT_VARIABLE;
use subtend_host::auth::{Guard, TokenFile};
use subtend_host::host_bug::InjectedBug;
use subtend_host::listen::{self, Bounds};
use subtend_host::workers::Workers;
use subtend_host::{Host, HostOptions};
use subtend_journal::postgres::ShardAddress;
use subtend_journal::{OpenError, StoreSpec};
use subtend_models::throttle::Throttles;
use subtend_nodes::gateway::Gateway;
use subtend_nodes::{Node, NotOpened, OpenShard};
use subtend_session::ids::Lsn;
use subtend_session::place::OnRestart;
use subtend_supervision::Lease;
use subtend_tools::memory_threads::spawn_for;

use super::super::client::SOCKET;
use super::super::data::NodeShard;
use super::super::fail::{Code, Fail};
use super::super::work::slash::HostedCommands;
use super::super::work::{HostParts, Screen, StopSignal, WorkArgs, async_runtime, end_runtime};
use super::settings::HomeSettings;
use super::tcp_sockets::TcpSockets;
use super::{Args, TOKENS, announce, create_private, early_end_error};

/// Opens shards with the options of the command.
struct CommandShards {
    work: WorkArgs,
    dir: PathBuf,
    /// Remote tools, shared by all shards: a worker that connects to this node answers calls of all shards.
    workers: Option<Workers>,
    /// Rate limits of providers. All shards of this node share them, and nodes divide them among each other.
    throttles: Option<Throttles>,
    /// Shards whose watermark could not be written at the last attempt. Only changes are logged.
    unwritten_watermarks: Arc<Mutex<BTreeSet<String>>>,
}

pub(super) fn run(args: &Args, name: &str) -> Result<Code, Fail> {
    let place = args.work.store.place()?;
    let StoreSpec::Postgres(target) = place.spec() else { return Err(no_database_error()) };
    if target.names_shard() {
        return Err(Fail::Usage(
            "`--node`: nodes share all shards of the database; leave `shard=` out of its address".to_owned(),
        ));
    }
    let target = (**target).clone();
    let dir = args.work.store.node_dir(name)?.ok_or_else(no_database_error)?;
    subtend_journal::owner_only::create_dir_all(&dir)
        .map_err(|error| Fail::Store(format!("{}: {error}", dir.display())))?;
    let host_dir = dir.join("host");
    create_private(&host_dir)
        .map_err(|error| Fail::Store(format!("the host's directory {}: {error}", host_dir.display())))?;
    let mut shards = CommandShards {
        work: args.work.clone(),
        dir,
        workers: None,
        throttles: None,
        unwritten_watermarks: Arc::default(),
    };
    let mut screen = Screen::new(args.work.quiet(), args.work.json);
    // Check the options now, so that errors are not reported for each shard.
    let first = NodeShard { dir: shards.dir.clone(), name: "none".to_owned(), spec: place.spec().clone() };
    let parts = HostParts::of(&shards.work_args_for(&first), &mut screen)?;
    (shards.workers, shards.throttles) = (Some(parts.workers()), Some(parts.throttles()));
    let slots = parts.slots();
    let async_runtime = async_runtime()?;
    let done = async_runtime.block_on(async {
        let mut stop = StopSignal::listen()?;
        let Some(sockets) = TcpSockets::bind(args.listen).await? else {
            return Err(Fail::Usage(
                "`--listen none` is not possible with `--node`: other nodes need an address; name one".to_owned(),
            ));
        };
        let options = args.nodes.options(name, sockets.address, slots)?;
        let joining = Node::join(&target, options, Arc::new(shards));
        let node = tokio::select! {
            joined = joining => joined.map_err(|error| Fail::Store(error.to_string()))?,
            () = stop.requested() => return Ok(Code::Cancelled),
        };
        run_node(args, node, sockets, &host_dir, &mut screen, &mut stop).await
    });
    end_runtime(async_runtime);
    done
}

async fn run_node(
    args: &Args,
    node: Node,
    sockets: TcpSockets,
    dir: &Path,
    screen: &mut Screen,
    stop: &mut StopSignal,
) -> Result<Code, Fail> {
    let (gateway, address) = (Gateway::new(node.clone()), sockets.address);
    let tokens = TokenFile::at(args.nodes.tokens.clone().unwrap_or_else(|| dir.join(TOKENS)));
    let guard = Guard::of_node(address, args.allow_host.iter().cloned(), tokens.clone(), Some(node.key().clone()));
    let ends = node.left().clone();
    let mut servers = tokio::task::JoinSet::new();
    servers.spawn(listen::tcp(sockets.listeners, guard.protect(gateway.router()), Bounds::default(), ends.clone()));
    #[cfg(unix)]
    let socket = {
        let path = dir.join(SOCKET);
        match listen::bind_unix(&path) {
            Ok(listener) => {
                servers.spawn(listen::unix(
                    listener,
                    guard.with_login_links(gateway.router()),
                    Bounds::default(),
                    ends.clone(),
                ));
                Some(path)
            }
            Err(error) => {
                screen.alert(&format!("no Unix socket at {}: {error}. TCP is served", path.display()));
                None
            }
        }
    };
    #[cfg(not(unix))]
    let socket: Option<PathBuf> = None;
    announce(args, socket.as_deref(), Some(&(address, guard)), &tokens)?;
    let stop_requested: std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> = Box::pin(async {
        stop.requested().await;
        screen.note("the node is shutting down: its shards go to other nodes");
    });
    let done = tokio::select! {
        ended = node.run(stop_requested) => ended.map(|()| Code::Done).map_err(Fail::Store),
        Some(ended) = servers.join_next() => Err(early_end_error(ended)),
    };
    ends.cancel();
    while servers.join_next().await.is_some() {}
    if let Some(path) = socket {
        // The error is ignored: the next process replaces a leftover socket.
        drop(std::fs::remove_file(path));
    }
    done
}

impl CommandShards {
    fn work_args_for(&self, shard: &NodeShard) -> WorkArgs {
        self.work.for_shard(shard.clone(), self.workers.clone())
    }

    async fn open_host(work: WorkArgs, lease: Lease, throttles: Option<Throttles>) -> Result<Host, NotOpened> {
        let prepare = move || {
            let mut screen = Screen::new(true, false);
            let parts = HostParts::of(&work, &mut screen).map_err(not_opened)?;
            let place = work.store.place().map_err(not_opened)?;
            let journal = place.try_open().map_err(|error| {
                // Nothing that this node does later changes what it saw.
                let behind = matches!(error, OpenError::Behind { .. });
                if behind { NotOpened::Refused(error.to_string()) } else { not_opened(place.open_error(error)) }
            })?;
            Ok::<_, NotOpened>((parts, journal))
        };
        let prepared = spawn_for(0, prepare).await;
        let (parts, journal) = prepared.map_err(|error| NotOpened::Failed(error.to_string()))??;
        // By default, runs resume with the next owner of their shard.
        let open = OpenOptions { on_restart: Some(OnRestart::Resume), ..parts.open.clone() };
        let (home, workers, servers) = (parts.home.clone(), parts.workers(), parts.servers.clone());
        let (runtime, approver) = parts.start(journal, lease, throttles).await.map_err(not_opened)?;
        let options = HostOptions {
            open,
            workers,
            home: Some(home.clone()),
            is_shard: true,
            settings: Some(Arc::new(HomeSettings::of(&home))),
            commands: Some(Arc::new(HostedCommands { home: PathBuf::from(&home) })),
            warnings: Some(Arc::new(servers)),
            injected_bug: InjectedBug::parse(&std::env::var(FAULT_VARIABLE).unwrap_or_default()),
            ..HostOptions::default()
        };
        let host = Host::new(runtime, options);
        drop(approver);
        Ok(host)
    }
}

impl OpenShard for CommandShards {
    fn open(&self, shard: ShardAddress, lease: Lease) -> BoxFuture<'static, Result<Host, NotOpened>> {
        let name = shard.shard().to_owned();
        let work =
            self.work_args_for(&NodeShard { dir: self.dir.clone(), name, spec: StoreSpec::Postgres(Box::new(shard)) });
        let throttles = self.throttles.clone();
        Box::pin(Self::open_host(work, lease, throttles))
    }

    fn remember(&self, mut shards: Vec<(String, u64)>) -> BoxFuture<'static, Vec<(String, u64)>> {
        let (dir, accept_loss) = (self.dir.clone(), self.work.store.accept_loss);
        let unwritten_watermarks = Arc::clone(&self.unwritten_watermarks);
        let remember = move || {
            let mut failing = unwritten_watermarks.lock().unwrap_or_else(PoisonError::into_inner);
            shards.retain(|(shard, last)| {
                let done = subtend_journal::postgres::store_watermark(&dir.join(shard), Lsn(*last), accept_loss);
                match &done {
                    Ok(()) if failing.remove(shard) => {
                        tracing::info!(shard, "the watermark of the shard can be written again");
                    }
                    Err(error) if failing.insert(shard.clone()) => {
                        tracing::error!(shard, %error, "the watermark of the shard cannot be written");
                    }
                    Ok(()) | Err(_) => {}
                }
                done.is_ok()
            });
            shards
        };
        Box::pin(async move {
            spawn_for(0, remember).await.unwrap_or_else(|error| {
                tracing::error!(%error, "the watermarks of shards cannot be written");
                Vec::new()
            })
        })
    }

    fn set_live_nodes(&self, nodes: u32) {
        if let Some(throttles) = &self.throttles {
            throttles.divide(nodes);
        }
    }
}

fn not_opened(fail: Fail) -> NotOpened {
    match fail {
        Fail::Unavailable(why) => NotOpened::Held(why),
        fail @ (Fail::Usage(_) | Fail::Store(_) | Fail::Other(_) | Fail::Closed) => NotOpened::Failed(fail.to_string()),
    }
}

fn no_database_error() -> Fail {
    Fail::Usage(
        "`--node`: nodes share a database; name it with --store postgres://USER@HOST/DATABASE, or in SUBTEND_STORE"
            .to_owned(),
    )
}
