//! The services of a runtime, created in dependency order.

use std::sync::{Arc, Weak};

use tokio::sync::Mutex;

use crate::approvals::open_asks::Approvals;
use crate::calls::model_calls::ModelCalls;
use crate::cell::cells::{CellServices, Cells};
use crate::delivery::directory::Directory;
use crate::delivery::waiters::Waiters;
use crate::handle::sessions::{SessionServices, command_permits};
use crate::host::HostParts;
use crate::life::Lifecycle;
use crate::log::Log;
use crate::recovery::boot::StartRecovery;
use crate::recovery::takeover::Takeover;
use crate::services::running::{Services, Starter};
use crate::spawn::environments::Environments;

/// All services of a runtime. Other parts hold only those they need.
pub(crate) struct Components {
    pub(crate) host: Arc<HostParts>,
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) log: Arc<Log>,
    pub(crate) environments: Arc<Environments>,
    pub(crate) calls: Arc<ModelCalls>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) services: Arc<Services>,
    pub(crate) cells: Arc<Cells>,
    pub(crate) recovery: Arc<StartRecovery>,
    pub(crate) sessions: Arc<SessionServices>,
}

impl Components {
    pub(crate) fn new(
        host: HostParts,
        (life, log): (Lifecycle, Log),
        (environments, calls): (Environments, ModelCalls),
    ) -> Arc<Self> {
        let (host, life, log) = (Arc::new(host), Arc::new(life), Arc::new(log));
        let approvals = Arc::clone(&environments.home().approvals);
        let (environments, calls) = (Arc::new(environments), Arc::new(calls));
        let directory = Arc::new(Directory::new(host.options.queued_states));
        let takeover = Arc::new(Takeover::new(host.options.resumes));
        let waiters = Arc::new(Waiters::default());
        let sessions = Arc::new_cyclic(|sessions: &Weak<SessionServices>| {
            let starter = Weak::clone(sessions) as Weak<dyn Starter>;
            let services = Arc::new(Services::new(Arc::clone(&life), starter, host.options.titles));
            let below = CellServices {
                environments: Arc::clone(&environments),
                calls: Arc::clone(&calls),
                log: Arc::clone(&log),
                directory: Arc::clone(&directory),
                waiters: Arc::clone(&waiters),
                takeover: Arc::clone(&takeover),
                approvals: Arc::clone(&approvals),
                services: Arc::clone(&services),
                life: Arc::clone(&life),
                host: Arc::clone(&host),
            };
            SessionServices {
                cells: Cells::new(below),
                environments: Arc::clone(&environments),
                log: Arc::clone(&log),
                waiters: Arc::clone(&waiters),
                takeover: Arc::clone(&takeover),
                services,
                life: Arc::clone(&life),
                host: Arc::clone(&host),
                restores: command_permits(),
                worktree_work: command_permits(),
            }
        });
        let (services, cells) = (Arc::clone(&sessions.services), Arc::clone(&sessions.cells));
        let recovery = Arc::new(StartRecovery {
            cells: Arc::clone(&cells),
            directory: Arc::clone(&directory),
            takeover,
            log: Arc::clone(&log),
            life: Arc::clone(&life),
            imports: Mutex::default(),
        });
        let components = Self {
            host,
            life,
            log,
            environments,
            calls,
            directory,
            waiters,
            approvals,
            services,
            cells,
            recovery,
            sessions,
        };
        let components = Arc::new(components);
        components.watch_poison();
        components
    }

    /// Ends all waits for a grace, a deadline or a provider.
    pub(crate) fn halt(&self) {
        self.life.halt.cancel();
        self.cells.runs().timers.shutdown();
        self.calls.throttles.close();
    }

    /// Stops the runtime when its journal fails or its lease ends, so that nothing is published after the failed append.
    fn watch_poison(self: &Arc<Self>) {
        let (journal, weak) = (self.log.journal.clone(), Arc::downgrade(self));
        let lease = self.life.lease.clone();
        let watch = tokio::spawn(async move {
            let poison = tokio::select! {
                poison = journal.on_poison() => Some(poison),
                () = lease.ended() => None,
            };
            let Some(components) = weak.upgrade() else { return };
            match poison {
                Some(poison) => tracing::error!(%poison, "the journal failed; the runtime stops"),
                None => tracing::error!(
                    "the lease of this process has ended; the runtime stops, since another process may own its sessions"
                ),
            }
            components.life.stop(false);
            components.halt();
            components.waiters.close();
            components.directory.clear();
            components.cells.kill().await;
        });
        self.life.watch_with(watch.abort_handle());
    }
}
