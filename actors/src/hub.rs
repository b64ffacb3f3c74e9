//! The hub: everything that sessions of one runtime share, and the one way a command reaches a session.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use subtend_agents::catalog::Catalog;
use subtend_journal::{Journal, ReadError};
use subtend_models::models::Models;
use subtend_models::throttle::Throttles;
use subtend_session::authority::Authority;
use subtend_session::command::Command;
use subtend_session::ids::{Hash, Interned, RunKey, RunNo, SessionId, Text};
use subtend_session::limits::Limits;
use subtend_session::outcome::OutcomeKind;
use subtend_session::place::Owner;
use subtend_session::record::Record;
use subtend_session::state::State;
use subtend_supervision::{Gate, Ledger, Slots, Supervisors, Timers, TokenTree};
use subtend_tools::registry::Registry;
use subtend_tools::workspace::Workspace;

use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::directory::{Directory, Next};
use crate::handle::{Ended, Stopped};
use crate::lane::{Full, Item};
use crate::mint::Mint;
use crate::offer::Offers;
use crate::options::Options;
use crate::publisher::Publisher;
use crate::ticket::{Ticket, Timer};
use crate::waiters::Waiters;

/// What sessions of one runtime share.
pub(crate) struct Hub {
    pub(crate) journal: Journal,
    pub(crate) catalog: Catalog,
    pub(crate) tools: Registry,
    pub(crate) models: Models,
    /// The name of the model of sessions whose agent names none.
    pub(crate) default_model: Text,
    /// What providers allow, over all sessions.
    pub(crate) throttles: Throttles,
    /// Tells who waits for a place that a provider asked for patience.
    pub(crate) cooled: tokio::sync::Notify,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) workspace_path: PathBuf,
    pub(crate) limits: Interned<Limits>,
    pub(crate) policy: Interned<Authority>,
    pub(crate) options: Options,
    pub(crate) directory: Directory,
    pub(crate) supervisors: Supervisors,
    pub(crate) slots: Slots<SessionId, Ticket>,
    /// Spawns by root run.
    pub(crate) ledger: Ledger<RunKey>,
    pub(crate) timers: Timers<Timer>,
    pub(crate) tokens: TokenTree<RunKey>,
    pub(crate) mint: Mint,
    pub(crate) offers: Offers,
    pub(crate) events: Publisher,
    pub(crate) waiters: Waiters,
    pub(crate) gate: Gate,
    /// Why runs are cancelled by their owners (S-8).
    pub(crate) closing: Mutex<Closing>,
    /// Bodies that the journal already has.
    pub(crate) defs: Mutex<std::collections::HashSet<Hash>>,
    /// Completions that came too late: counted, not recorded.
    pub(crate) stale: AtomicU64,
    /// Tasks of turns and tools that are alive (E-5).
    pub(crate) tasks: tokio_util::task::TaskTracker,
    /// Sessions whose run was in flight when the host died: the next activation ends it `Lost` before all else.
    pub(crate) boot: Mutex<std::collections::HashSet<SessionId>>,
    pub(crate) faults: crate::faults::Faults,
    /// The task that waits for the journal to fail.
    pub(crate) watch: Mutex<Option<AbortHandle>>,
    pub(crate) stopping: AtomicBool,
    /// The grace is over for all: ends what waits one out.
    pub(crate) halt: CancellationToken,
    /// Where the runtime was started: it may be dropped elsewhere.
    pub(crate) tokio: tokio::runtime::Handle,
}

/// Why runs are cancelled by their owners. What is noted of a run goes with its end.
#[derive(Default)]
pub(crate) struct Closing {
    /// Runs that close, with their outcomes: the true cause for all that they own.
    pub(crate) own: HashMap<RunKey, OutcomeKind>,
    /// Runs that the interrupt of their owner ends. Noted by themselves, not by the owner: that owns others, which the
    /// interrupt spares and which a cancel from above may still end.
    interrupted: HashSet<RunKey>,
}

/// Where callbacks find the hub that is made after them.
pub(crate) type HubCell = Arc<OnceLock<Weak<Hub>>>;

/// The hub, unless the runtime is gone.
pub(crate) fn upgrade(cell: &HubCell) -> Option<Arc<Hub>> {
    cell.get().and_then(Weak::upgrade)
}

impl Hub {
    /// Queues `item` for `session`, and activates it if it is not present.
    pub(crate) fn deliver(self: &Arc<Self>, session: SessionId, item: Item) {
        match self.directory.push(session, item) {
            Next::Nothing => {}
            Next::Start(lane, hot) => self.start(session, lane, hot),
        }
    }

    /// Queues a command without an answer.
    pub(crate) fn tell(self: &Arc<Self>, session: SessionId, command: Command) {
        self.deliver(session, Item::Command(command, None));
    }

    /// Queues an input, unless the session's inbox is full (B-1).
    pub(crate) fn deliver_input(self: &Arc<Self>, session: SessionId, item: Item) -> Result<(), Full> {
        match self.directory.push_input(session, item, self.options.inbox)? {
            Next::Nothing => {}
            Next::Start(lane, hot) => self.start(session, lane, hot),
        }
        Ok(())
    }

    /// The bodies of the host's limits.
    pub(crate) fn limits_body(&self) -> Arc<Limits> {
        self.limits.body.clone().unwrap_or_default()
    }

    /// The workspace, as the host gave it.
    pub(crate) fn workspace_name(&self) -> Text {
        self.workspace_path.to_string_lossy().into()
    }

    /// Whether the owner of the run in flight is over or closes, and how: an opening checks it (rule 7).
    ///
    /// The token tells, also across activations: it is fired with the owner's close, and a run whose owner is not known
    /// to this runtime starts with a cancelled one.
    pub(crate) fn owner_over(&self, state: &State) -> Option<OutcomeKind> {
        let run = state.run.as_ref()?;
        match &run.opened.owner {
            Owner::Run { session, run: no, .. } => {
                let key = RunKey { session: state.id, run: run.no };
                let owner = RunKey { session: *session, run: *no };
                let fired = self.tokens.fired(&key) || self.tokens.fired(&owner);
                fired.then(|| self.closing_kind(owner, key))
            }
            Owner::Person | Owner::Host(_) | Owner::Detached { .. } => None,
        }
    }

    /// What of its owner ends the run `owned`. An owner whose own close is not decided yet closes because its owner does.
    pub(crate) fn closing_kind(&self, owner: RunKey, owned: RunKey) -> OutcomeKind {
        let closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if closing.interrupted.contains(&owned) {
            return OutcomeKind::Interrupted;
        }
        closing.own.get(&owner).copied().unwrap_or(OutcomeKind::Cancelled)
    }

    /// Notes whether the interrupt of its owner ends `owned`.
    pub(crate) fn interrupts(&self, owned: RunKey, it_does: bool) {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if it_does {
            closing.interrupted.insert(owned)
        } else {
            closing.interrupted.remove(&owned)
        };
    }

    /// A run is over: nothing hangs on it any more.
    pub(crate) fn run_over(&self, key: RunKey) {
        self.tokens.close(&key);
        // Only a root run has an account.
        self.ledger.forget(key);
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if !closing.own.is_empty() {
            closing.own.remove(&key);
        }
        if !closing.interrupted.is_empty() {
            closing.interrupted.remove(&key);
        }
    }

    /// How a run ended, as the journal has it.
    pub(crate) fn ended(&self, session: SessionId, run: RunNo) -> Result<Option<Ended>, ReadError> {
        let stored = self.journal.records(session)?;
        let ends = stored.iter().enumerate().find_map(|(at, stored)| {
            let Record::RunEnded(ended) = &stored.record else { return None };
            (ended.run == run).then_some((at, ended))
        });
        let Some((at, ended)) = ends else { return Ok(None) };
        // The record's own text is cut to what an owner is sent; the fold up to it has the whole.
        let until = State::fold(session, stored.iter().take(at.saturating_add(1)).map(|stored| &stored.record));
        let whole = until.ok().and_then(|state| state.last).and_then(|last| last.text);
        let mut usage = ended.usage_self;
        usage.add(&ended.usage_owned);
        let text = whole.or_else(|| ended.text.clone());
        Ok(Some(Ended { run, outcome: ended.outcome.clone(), text, turns: ended.turns, usage }))
    }

    /// Why nothing answers any more.
    pub(crate) fn stopped(&self) -> Stopped {
        if let Some(poison) = self.journal.poisoned() {
            return Stopped::Poisoned(poison.to_string());
        }
        if self.gate.is_closed() { Stopped::Shutdown } else { Stopped::Gone }
    }

    /// Keeps the task that waits for the journal to fail.
    pub(crate) fn watch_with(&self, task: AbortHandle) {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Nothing of ours outlives a shutdown, not even a wait.
    pub(crate) fn stop_watching(&self) {
        if let Some(task) = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }

    /// Whether the runtime is going down: nothing new starts.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}
