use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use subtend_session::ids::SessionId;
use tokio::sync::watch;

use super::config::ServerList;
use super::connection::ConnectionSettings;
use super::known_tools::KnownTools;
use super::server::{LiveServer, ServerReport};
use super::tool::ServerTool;
use crate::redacted;
use crate::registry::{LiveTools, Registry};
use crate::secrets::Secrets;
use crate::tool::Tool;

/// The servers of one environment, shared by its sessions. Cheap to clone.
///
/// Servers start at the first use of [`LiveTools::settle`] or of a tool. They stop when the last clone is dropped.
#[derive(Clone)]
pub struct Servers(Arc<SharedServers>);

struct SharedServers {
    servers: Vec<Arc<LiveServer>>,
    problems: Vec<String>,
    secrets: Secrets,
    generation: Arc<AtomicU64>,
    /// The cached tools, and their generation.
    registry: Mutex<(u64, Registry)>,
    started: AtomicBool,
    settled: watch::Sender<bool>,
}

impl Servers {
    /// Returns servers that have not started. The values of `secrets` are redacted in the results of their tools.
    pub fn new(list: ServerList, settings: ConnectionSettings, known: Arc<KnownTools>, secrets: Secrets) -> Self {
        let (settings, generation) = (Arc::new(settings), Arc::new(AtomicU64::new(0)));
        let servers: Vec<_> =
            list.servers.into_iter().map(|config| LiveServer::new(config, (&settings, &known), &generation)).collect();
        let (settled, _) = watch::channel(servers.is_empty());
        let registry = Mutex::new((0, Registry::default()));
        let started = AtomicBool::new(false);
        Self(Arc::new(SharedServers {
            servers,
            problems: list.problems,
            secrets,
            generation,
            registry,
            started,
            settled,
        }))
    }

    pub fn is_empty(&self) -> bool {
        self.0.servers.is_empty()
    }

    /// Returns whether there is another clone.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    pub fn reports(&self) -> Vec<ServerReport> {
        self.0.servers.iter().map(|server| server.report()).collect()
    }

    pub fn problems(&self) -> &[String] {
        &self.0.problems
    }
}

impl LiveTools for Servers {
    fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    fn tools(&self) -> Registry {
        self.0.tools(&self.0.registry, None)
    }

    fn of_session(&self, session: SessionId) -> Option<Arc<dyn LiveTools>> {
        let is_asked = self.0.servers.iter().any(|server| server.asked().has_any(session));
        is_asked.then(|| -> Arc<dyn LiveTools> {
            Arc::new(AskedSession { servers: self.clone(), session, registry: Mutex::default() })
        })
    }

    fn find_unlisted(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.0.find_unlisted(name, None)
    }

    fn settle(&self) -> Option<BoxFuture<'static, ()>> {
        if *self.0.settled.borrow() {
            let lists: Vec<_> = self.0.servers.iter().filter_map(|server| server.pending_list()).collect();
            return (!lists.is_empty()).then(|| join_all(lists).map(drop).boxed());
        }
        if !self.0.started.swap(true, Ordering::AcqRel) {
            let inner = Arc::clone(&self.0);
            tokio::spawn(async move {
                join_all(inner.servers.iter().map(LiveServer::connection)).await;
                inner.settled.send_replace(true);
            });
        }
        let mut settled = self.0.settled.subscribe();
        Some(
            async move {
                // Waiting cannot fail: the task above holds the sender until it has sent.
                let _ = settled.wait_for(|settled| *settled).await;
            }
            .boxed(),
        )
    }
}

/// The servers as a session sees them that they asked for input.
struct AskedSession {
    servers: Servers,
    session: SessionId,
    /// The cached tools, and their generation.
    registry: Mutex<(u64, Registry)>,
}

impl LiveTools for AskedSession {
    fn generation(&self) -> u64 {
        self.servers.generation()
    }

    fn tools(&self) -> Registry {
        self.servers.0.tools(&self.registry, Some(self.session))
    }

    fn find_unlisted(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.servers.0.find_unlisted(name, Some(self.session))
    }

    fn settle(&self) -> Option<BoxFuture<'static, ()>> {
        self.servers.settle()
    }
}

impl SharedServers {
    /// Returns the tools as `session` sees them. `cached` has them with their generation.
    fn tools(&self, cached: &Mutex<(u64, Registry)>, session: Option<SessionId>) -> Registry {
        let generation = self.generation.load(Ordering::Acquire);
        let mut cached = cached.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.0 != generation {
            let mut builder = Registry::builder().secrets(self.secrets.clone());
            for server in &self.servers {
                for described in server.tools(session) {
                    let tool = Arc::new(ServerTool::new(described, (server, session)));
                    if let Err(error) = builder.add_foreign(tool) {
                        tracing::warn!(server = %server.config.name, %error, "a tool of an MCP server cannot be offered");
                    }
                }
            }
            *cached = (generation, builder.build());
        }
        cached.1.clone()
    }

    fn find_unlisted(&self, name: &str, session: Option<SessionId>) -> Option<Arc<dyn Tool>> {
        if *self.settled.borrow() {
            return None;
        }
        let server = self.servers.iter().find(|server| server.may_have(name))?;
        Some(redacted::wrap(&self.secrets, Arc::new(ServerTool::unlisted(name, (server, session))?)))
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.servers.iter().map(|server| &server.config)).finish()
    }
}
