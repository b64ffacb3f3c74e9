//! The hub: everything that sessions of one runtime share, and the one way a command reaches a session.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use subtend_journal::{Journal, ReadError};
use subtend_session::command::Command;
use subtend_session::ids::{Hash, RunKey, RunNo, SessionId, Text};
use subtend_session::record::Record;
use subtend_session::state::State;
use subtend_supervision::{Gate, SlotPools, Supervisors, Timers, TokenTree};
use subtend_tools::workspace::Workspace;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::approvals::questions::Approvals;
use crate::calls::model_calls::ModelCalls;
use crate::delivery::cancel_causes::CancelCauses;
use crate::delivery::directory::{Directory, Next};
use crate::delivery::lane::{Full, Item, is_control};
use crate::delivery::ticket::{Ticket, Timer};
use crate::delivery::waiters::Waiters;
use crate::faults::Sight;
use crate::hooks::Hooks;
use crate::mint::Mint;
use crate::observe::publisher::Publisher;
use crate::recovery::unreadable::Unreadable;
use crate::services::running::Services;
use crate::spawn::agents::Agents;
use crate::values::at_boot::AtBoot;
use crate::values::ended::Ended;
use crate::values::error::{Stopped, WaitError};
use crate::values::options::{Options, TakesUp};

/// What sessions of one runtime share.
pub(crate) struct Hub {
    /// What sessions are offered and born with.
    pub(crate) agents: Agents,
    /// Model calls and their accounts.
    pub(crate) calls: ModelCalls,
    pub(crate) journal: Journal,
    /// The name of the model of sessions whose agent names none.
    pub(crate) default_model: Text,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) options: Options,
    pub(crate) directory: Directory,
    pub(crate) supervisors: Supervisors,
    pub(crate) slots: SlotPools<SessionId, Ticket>,
    pub(crate) timers: Timers<Timer>,
    pub(crate) tokens: TokenTree<RunKey>,
    pub(crate) mint: Mint,
    pub(crate) events: Publisher,
    pub(crate) waiters: Waiters,
    /// What works for sessions on the host's own word.
    pub(crate) services: Services,
    /// Sessions that cannot be read any more.
    pub(crate) unreadable: Unreadable,
    pub(crate) gate: Gate,
    /// A host's own code at the points where a session's course can be changed.
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    /// Who can give a person's word, and what waits for one.
    pub(crate) approvals: Arc<Approvals>,
    /// Why runs are cancelled by their owners (S-8).
    pub(crate) causes: CancelCauses,
    /// Bodies that the journal already has.
    pub(crate) defs: Mutex<std::collections::HashSet<Hash>>,
    /// Completions that came too late: counted, not recorded.
    pub(crate) stale: AtomicU64,
    /// Numbers readings of files.
    pub(crate) readings: AtomicU64,
    /// Tasks of turns, tools and services that are alive (E-5).
    pub(crate) tasks: tokio_util::task::TaskTracker,
    /// Sessions whose run was in flight when the host died, and what becomes of it: the next activation ends one that is lost before
    /// all else, and leaves one that stays as it is until something concerns it.
    pub(crate) boot: Mutex<std::collections::HashMap<SessionId, AtBoot>>,
    /// The sessions that the start takes up, where these are not all or none.
    pub(crate) takes: Mutex<std::collections::HashSet<SessionId>>,
    /// Inputs that stay in their queues behind runs that the start ended.
    pub(crate) standing: Mutex<std::collections::HashMap<SessionId, usize>>,
    pub(crate) faults: crate::faults::Faults,
    /// The task that waits for the journal to fail.
    pub(crate) watch: Mutex<Option<AbortHandle>>,
    pub(crate) stopping: AtomicBool,
    /// It stops in order: a runtime that is dropped stops too.
    pub(crate) shuts_down: AtomicBool,
    /// The grace is over for all: ends what waits one out.
    pub(crate) halt: CancellationToken,
    /// Where the runtime was started: it may be dropped elsewhere.
    pub(crate) tokio: tokio::runtime::Handle,
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
        if let Item::Command(command, _) = &item
            && is_control(command)
        {
            self.faults.see(Sight::Control { session, command: command.name() });
        }
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
        let (input, bound) = (item.input(), self.options.inbox);
        let pushed = self.directory.push_input(session, item, bound);
        let len = pushed.as_ref().map_or_else(|full| full.0, |(_, len)| *len);
        if let Some(input) = input {
            self.faults.see(Sight::Put { session, input, len, bound, taken: pushed.is_ok() });
        }
        match pushed?.0 {
            Next::Nothing => {}
            Next::Start(lane, hot) => self.start(session, lane, hot),
        }
        Ok(())
    }

    /// Whether the start leaves alone what waits in `state`'s session.
    pub(crate) fn leaves(&self, state: &State) -> bool {
        match self.options.takes_up {
            TakesUp::All => false,
            TakesUp::Session(_) => {
                let takes = self.takes.lock().unwrap_or_else(PoisonError::into_inner);
                !takes.contains(&state.id)
            }
            TakesUp::Nothing => true,
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

    /// What somebody hears who waits, where the journal cannot be read: of one that was closed meanwhile, why it was.
    pub(crate) fn unread(&self, error: &ReadError) -> WaitError {
        match error {
            ReadError::Closed => WaitError::Stopped(self.stopped()),
            ReadError::NoSuchSession(_)
            | ReadError::Damaged { .. }
            | ReadError::Newer { .. }
            | ReadError::Engine(_) => WaitError::Refused(error.to_string()),
        }
    }

    /// Why `session` does not answer: one that cannot be read is left alone, and whoever addresses it hears why (J-8).
    pub(crate) fn stopped_at(&self, session: SessionId) -> Stopped {
        let stopped = self.stopped();
        if stopped != Stopped::Gone {
            return stopped;
        }
        let read = self.journal.records(session).map_err(|error| error.to_string());
        let folded = read.and_then(|stored| {
            let folded = State::fold(session, stored.iter().map(|stored| &stored.record));
            folded.map(drop).map_err(|error| error.to_string())
        });
        folded.map_or_else(Stopped::Unreadable, |()| Stopped::Gone)
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
