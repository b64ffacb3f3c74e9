//! The cells of a runtime: delivery of commands to sessions, activating them if necessary.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use ractor::ActorRef;
use subtend_session::command::{Command, Deadline};
use subtend_session::ids::SessionId;
use subtend_supervision::{SlotPools, StormDetected, StormLimit, Supervisors, Timers, TokenTree};

use crate::approvals::open_asks::Approvals;
use crate::calls::model_calls::ModelCalls;
use crate::cell::resident::ResidentText;
use crate::cell::working::WorkingShares;
use crate::delivery::cancel_causes::Continued;
use crate::delivery::commands::handling;
use crate::delivery::directory::{Directory, NextAction};
use crate::delivery::inbox::{Full, InboxItem, Wake};
use crate::delivery::live_processes::LiveProcesses;
use crate::delivery::runs::Runs;
use crate::delivery::sender::SenderKey;
use crate::delivery::ticket::{Ticket, Timer};
use crate::delivery::waiters::Waiters;
use crate::faults::{InternalEvent, RuntimeBug};
use crate::host::HostParts;
use crate::life::Lifecycle;
use crate::log::Log;
use crate::recovery::takeover::Takeover;
use crate::services::running::Services;
use crate::spawn::environments::Environments;

/// Time in which the actors of one level may finish their current work.
const LEVEL_GRACE: Duration = Duration::from_millis(100);

/// The services that cells use. Other code reaches them only through the cells.
pub(crate) struct CellServices {
    pub(crate) environments: Arc<Environments>,
    pub(crate) calls: Arc<ModelCalls>,
    pub(crate) log: Arc<Log>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) takeover: Arc<Takeover>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) services: Arc<Services>,
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) host: Arc<HostParts>,
}

/// The cells of one runtime, which start and restart their actors.
pub(crate) struct Cells {
    pub(super) environments: Arc<Environments>,
    pub(crate) calls: Arc<ModelCalls>,
    pub(super) log: Arc<Log>,
    pub(super) directory: Arc<Directory>,
    pub(super) waiters: Arc<Waiters>,
    pub(super) takeover: Arc<Takeover>,
    pub(super) approvals: Arc<Approvals>,
    pub(super) services: Arc<Services>,
    pub(super) life: Arc<Lifecycle>,
    pub(super) host: Arc<HostParts>,
    pub(super) runs: Arc<Runs>,
    pub(super) supervisors: Supervisors,
    pub(super) readings: AtomicU64,
    pub(super) resident: Arc<ResidentText>,
    pub(super) working: WorkingShares,
}

impl Cells {
    /// Returns the cells. Slots, deadlines and exits of actors come back by callbacks that hold the cells weakly.
    pub(crate) fn new(below: CellServices) -> Arc<Self> {
        let CellServices { environments, calls, log, directory, waiters, takeover, approvals, services, life, host } =
            below;
        Arc::new_cyclic(|cells: &Weak<Self>| {
            let runs = Runs {
                tokens: TokenTree::new(),
                slots: slots(cells, host.options.slots),
                timers: timers(cells),
                processes: LiveProcesses::default(),
                continued: Continued::default(),
                calls: Arc::clone(&calls),
                journal: log.journal.clone(),
                recorded: Mutex::default(),
            };
            let supervisors = supervisors(cells, &life);
            Self {
                environments,
                calls,
                log,
                directory,
                waiters,
                takeover,
                approvals,
                services,
                life,
                host,
                runs: Arc::new(runs),
                supervisors,
                readings: AtomicU64::new(0),
                resident: Arc::default(),
                working: WorkingShares::default(),
            }
        })
    }

    pub(crate) fn environments(&self) -> &Environments {
        &self.environments
    }

    pub(crate) fn runs(&self) -> &Arc<Runs> {
        &self.runs
    }

    /// Queues `item` for `session`, and activates it if it has no actor.
    pub(crate) fn deliver(self: &Arc<Self>, session: SessionId, item: InboxItem) {
        if let InboxItem::Command(command, _) = &item
            && handling(command).is_control
        {
            self.host.faults.see(InternalEvent::Control { session, command: command.name() });
        }
        let next = self.directory.push(session, item);
        self.start_next(session, next);
    }

    pub(crate) fn send_command(self: &Arc<Self>, session: SessionId, command: Command) {
        self.deliver(session, InboxItem::Command(command, None));
    }

    /// Queues the command of an outbox row for `to`. A session that the sweep has not reached finds the row later: if it were activated now, its run
    /// would end before its other owned runs.
    pub(crate) fn send_after_sweep(self: &Arc<Self>, to: SessionId, command: Command) {
        if !self.takeover.awaits(to) {
            self.send_command(to, command);
        }
    }

    pub(crate) fn deliver_input(self: &Arc<Self>, session: SessionId, item: InboxItem) -> Result<(), Full> {
        let (input, bound) = (item.input(), self.host.options.inbox);
        let pushed = self.directory.push_input(session, item, bound, SenderKey::current());
        let len = pushed.as_ref().map_or_else(|full| full.0, |(_, len)| *len);
        if let Some(input) = input {
            self.host.faults.see(InternalEvent::Put { session, input, len, bound, taken: pushed.is_ok() });
        }
        self.start_next(session, pushed?.0);
        Ok(())
    }

    fn start_next(self: &Arc<Self>, session: SessionId, next: NextAction) {
        match next {
            NextAction::Nothing => {}
            NextAction::Start(inbox, new_child) => self.start(session, inbox, new_child),
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.supervisors.live()
    }

    /// Stops the deepest actors first, so that owners receive the ends of their runs. Kills the rest of each level.
    pub(crate) async fn stop_deepest_first(&self) {
        let mut levels: Vec<_> = self.directory.by_depth().into_values().collect();
        if !self.host.faults.has(RuntimeBug::OwnersStopFirst) {
            levels.reverse();
        }
        for level in levels {
            for actor in &level {
                // Fails only if the actor is already ending.
                drop(actor.drain());
            }
            if tokio::time::timeout(LEVEL_GRACE, await_stopped(&level)).await.is_err() {
                level.iter().for_each(|actor| actor.kill());
                await_stopped(&level).await;
            }
        }
        self.supervisors.shutdown(LEVEL_GRACE).await;
    }

    /// Kills all actors at once. The future does not hold the cells.
    pub(crate) fn kill(&self) -> impl Future<Output = ()> + Send + use<> {
        let supervisors = self.supervisors.clone();
        async move { supervisors.shutdown(Duration::ZERO).await }
    }
}

async fn await_stopped(actors: &[ActorRef<Wake>]) {
    join_all(actors.iter().map(|actor| async move { drop(actor.wait(None).await) })).await;
}

fn supervisors(cells: &Weak<Cells>, life: &Arc<Lifecycle>) -> Supervisors {
    let (exits, life) = (Weak::clone(cells), Arc::clone(life));
    // Single failing sessions do not cause a storm, because each has its own restart limit and backoff.
    let storm = move |seen: StormDetected| {
        tracing::error!(
            ?seen,
            "too many session actors crash: the runtime accepts no new work. Shut it down and read the log"
        );
        life.gate.close();
    };
    let exited = move |exit| {
        if let Some(cells) = exits.upgrade() {
            cells.on_exit(&exit);
        }
    };
    Supervisors::start_full(Arc::new(exited), StormLimit::default(), Arc::new(storm))
}

fn slots(cells: &Weak<Cells>, global: usize) -> SlotPools<SessionId, Ticket> {
    let cells = Weak::clone(cells);
    SlotPools::new(
        global,
        Arc::new(move |ticket: Ticket, slot| {
            // Without cells the slot is dropped, which releases it.
            if let Some(cells) = cells.upgrade() {
                cells.runs.timers.disarm(&Timer::Deadline(ticket.session, Deadline::Queue(ticket.run)));
                cells.deliver(ticket.session, InboxItem::Granted(ticket, slot));
            }
        }),
    )
}

fn timers(cells: &Weak<Cells>) -> Timers<Timer> {
    let cells = Weak::clone(cells);
    Timers::start(Arc::new(move |timer| {
        let Some(cells) = cells.upgrade() else { return };
        match timer {
            Timer::Deadline(session, deadline) => {
                if let Deadline::Queue(run) = deadline
                    && let Some(remaining) = cells.new_child_queue_left(session, run)
                {
                    return cells.runs.timers.arm(timer, remaining);
                }
                if let Deadline::Limit(_) = deadline {
                    let wall_ms = cells.host.clock.wall_ms();
                    if let Some(remaining) = cells.calls.parked.remaining(session, wall_ms, &cells.calls.throttles) {
                        return cells.runs.timers.arm(timer, remaining);
                    }
                }
                cells.send_command(session, Command::Deadline(deadline));
            }
            Timer::Idle(session) => cells.directory.push_if_active(session, InboxItem::Idle),
        }
    }))
}
