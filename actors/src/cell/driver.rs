//! The driver of one activation: decides what waits, commits it as one frame, then does what was decided.
//!
//! It knows nothing of ractor: `session_actor` is the shell around it.

use std::collections::VecDeque;
use std::sync::Arc;

use subtend_session::command::{Command, Deadline};
use subtend_session::decide::wake;
use subtend_session::effect::{Birth, Decision, Effect, Rejection, Reply};
use subtend_session::ids::{Epoch, RunKey, SessionId, TurnNo};
use subtend_session::index::Before;
use subtend_session::outcome::By;
use subtend_session::place::Owner;
use subtend_session::record::{Notice, QueueChange, Record};
use subtend_session::state::{Phase, State};
use subtend_supervision::Slot;
use tokio::sync::oneshot;

use crate::calls::in_flight::{Ready, Work};
use crate::calls::reservation::Due;
use crate::cell::cells::Cells;
use crate::cell::clock::RunClock;
use crate::cell::written::Written;
use crate::delivery::commands::{Prepared, handling};
use crate::delivery::directory::Hot;
use crate::delivery::inbox::{Answer, Inbox, InboxItem, Listed, Probed, ReplyTo};
use crate::faults::{Point, Sight};
use crate::spawn::agents::Agents;
use crate::spawn::tool_set::ToolSet;
use crate::values::ended::Ended;
use crate::values::queue_entry::QueueEntry;

/// Items taken from the inbox at a time: the bound of one decision batch.
const BATCH: usize = 256;
/// Results of effects that were ready at once, decided in one go before the inbox is looked at again: a chain of instant
/// tools must not starve a cancel (B-2).
const INLINE: usize = 16;
/// Rounds of one handler.
const ROUNDS: usize = 16;

/// What the shell does after a step.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing waits: sleep until a wake.
    Sleep,
    /// More waits: look again, after other messages had their turn.
    Again,
    /// The session left the directory, or may not write any more.
    Stop,
    /// The journal refused what was decided: the session is to be folded anew.
    Fail(String),
}

/// Why the activation does not go on.
#[derive(Debug)]
pub(crate) enum Halted {
    /// It may not write any more: it was fenced, or the journal is poisoned.
    Over,
    /// The journal refused this batch and takes others: the session is folded anew, within its restart budget.
    Refused(String),
}

/// What an activation has taken and not decided yet.
#[derive(Default)]
pub(crate) struct Todo {
    pub(crate) first: Option<First>,
    pub(crate) items: VecDeque<InboxItem>,
    /// Results of effects that were ready at once.
    pub(crate) next: VecDeque<Command>,
    /// Child calls that wait for admission.
    pub(crate) admit: VecDeque<(TurnNo, Vec<u32>)>,
}

/// What was decided and is not committed yet.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) records: Vec<Record>,
    pub(crate) births: Vec<Birth>,
    /// States of the children that were born in this batch, in order.
    pub(crate) hot: VecDeque<Hot>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) replies: Vec<(ReplyTo, Answer)>,
    /// Answered after the commit, with the LSN that makes the answer true.
    pub(crate) probes: Vec<(oneshot::Sender<Probed>, Probed)>,
    /// Answered as probes are.
    pub(crate) queues: Vec<(oneshot::Sender<Listed>, Vec<QueueEntry>)>,
    /// Slots that came while one was to be given back: looked at when that is done.
    pub(crate) granted: Vec<(RunKey, Slot)>,
    /// An effect that waits for the commit stops local work or ends a run: work that is decided after it starts after it.
    pub(crate) stops: bool,
}

/// What an activation that was folded from the journal hears before all that waits in its inbox.
pub(crate) struct First {
    /// Whether the run was in flight when the host died.
    pub(crate) lost: bool,
    /// What other sessions asked of it, in the order of their rows: to go on, and to cancel. Before all else: an owner that
    /// cancels one run is its true cause, whatever became of the run since.
    pub(crate) asked: Vec<Command>,
    /// `Lost`, `Reactivated` or `RestartsExhausted`, if a run is in flight.
    pub(crate) command: Option<Command>,
    /// Ends that the outbox holds for the session.
    pub(crate) owed: Vec<Notice>,
}

/// One activation of one session.
pub(crate) struct Driver {
    pub(crate) cells: Arc<Cells>,
    pub(crate) state: Box<State>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) written: Written,
    /// The run in flight stays as it was left until something concerns it.
    pub(crate) stays: bool,
    pub(crate) clock: RunClock,
    /// What the sessions of its environment are made of.
    pub(crate) agents: Arc<Agents>,
    pub(crate) offer: Arc<ToolSet>,
    pub(crate) pending: Pending,
    pub(crate) before: Option<Before>,
    pub(crate) todo: Todo,
    pub(crate) work: Work,
    pub(crate) armed: Vec<Deadline>,
    /// The session was idle: it leaves memory if nothing else came with that word.
    pub(crate) leave: bool,
    /// The activation left the directory, or may not write any more.
    pub(crate) left: bool,
}

impl Driver {
    /// An activation of `state`, with nothing at work.
    pub(crate) fn new(cells: Arc<Cells>, state: Box<State>, inbox: Arc<Inbox>, epoch: Epoch) -> Self {
        let agents = cells.environments.of(&state);
        let offer = agents.offer(&state);
        let clock = RunClock::of(&state);
        let created_ms = cells.host.clock.wall_ms();
        // The cap of a detached run is armed at its birth, before there is an activation.
        let capped = state.run.as_ref().filter(|run| run.opened.wall_cap_at.is_some());
        let armed = capped.map(|run| Deadline::WallCap(run.no)).into_iter().collect();
        Self {
            cells,
            state,
            inbox,
            written: Written::new(epoch, created_ms),
            stays: false,
            clock,
            agents,
            offer,
            pending: Pending::default(),
            before: None,
            todo: Todo::default(),
            work: Work::default(),
            armed,
            leave: false,
            left: false,
        }
    }

    /// The session.
    pub(crate) fn session(&self) -> SessionId {
        self.state.id
    }

    /// The root of its tree.
    pub(crate) fn root(&self) -> SessionId {
        self.state.created.place.root(self.state.id)
    }

    /// The run in flight.
    pub(crate) fn run_key(&self) -> Option<RunKey> {
        self.state.run.as_ref().map(|run| RunKey { session: self.state.id, run: run.no })
    }

    /// Shows that a shutdown stopped the actor. One that was passivated meanwhile is not meant: it may be an owner that waits.
    pub(crate) fn stopped(&self) {
        if self.cells.life.halt.is_cancelled() {
            let (session, run) = (self.session(), self.run_key().map(|key| key.run));
            self.cells.host.faults.see(Sight::Stopped { session, run });
        }
    }

    /// Decides and does what waits, until nothing does or others must have their turn.
    pub(crate) async fn step(&mut self) -> Step {
        if let Some(first) = self.todo.first.take() {
            self.cells.host.faults.see(Sight::Round(self.session()));
            self.decide_first(first);
            if let Err(halted) = self.flush().await {
                return self.give_up(halted);
            }
            self.inbox.settle();
        }
        for _ in 0..ROUNDS {
            self.inbox.drain(BATCH, &mut self.todo.items);
            if self.todo.items.is_empty() && self.todo.next.is_empty() && !self.may_admit() {
                self.inbox.put_down();
                return self.rest();
            }
            self.cells.host.faults.see(Sight::Round(self.session()));
            self.decide_items();
            self.decide_ready();
            self.admit_chunk();
            if let Err(halted) = self.flush().await {
                return self.give_up(halted);
            }
        }
        Step::Again
    }

    /// Nothing waits: leaves the directory where nothing in this process is to come.
    fn rest(&mut self) -> Step {
        let quiet_child = self.state.run.is_none() && self.state.created.place.parent().is_some();
        // Asked again: an input that was drained with the timer's word has a stream by now, which must not be dropped.
        let at_rest = self.state.can_unload() && self.work.tools.is_empty();
        let leave = std::mem::take(&mut self.leave) && at_rest && !self.inbox.holds_slot();
        if (quiet_child || leave) && self.unload() {
            return Step::Stop;
        }
        if at_rest {
            self.arm_idle();
        }
        Step::Sleep
    }

    /// The journal refused what was decided: what it holds is the session, and that is folded anew.
    ///
    /// At once where the journal takes other batches, since nothing else may ever come for the run in flight; else with the
    /// next item.
    fn give_up(&self, halted: Halted) -> Step {
        match halted {
            Halted::Refused(why) => Step::Fail(why),
            Halted::Over => {
                self.cells.directory.remove_if(self.session(), &self.inbox);
                Step::Stop
            }
        }
    }

    /// Leaves the directory, unless something came meanwhile.
    fn unload(&mut self) -> bool {
        let session = self.session();
        if !self.cells.directory.unload(session, &self.inbox) {
            return false;
        }
        self.disarm_idle();
        self.cells.log.journal.deactivate(session, self.written.epoch);
        true
    }

    pub(crate) fn decide_first(&mut self, first: First) {
        // The first command is about the run that was folded: one that a row opens meanwhile is no old one.
        let folded = self.run_key();
        for command in first.asked {
            self.decide(command, None);
        }
        let same = self.run_key() == folded;
        let command = first.command.filter(|_| same);
        let first = First { lost: first.lost && same, asked: Vec::new(), command, owed: first.owed };
        if first.lost && !first.owed.is_empty() {
            self.before = Some(Before::of(&self.state));
            let clock = self.clock.read(self.cells.host.clock.wall_ms());
            let arrived = self.cells.host.faults.arrive(&mut self.state, first.owed, clock);
            self.absorb(arrived, None);
            if let Some(command) = first.command {
                self.decide(command, None);
            }
            return self.keep_place();
        }
        let lost = first.lost;
        if let Some(command) = first.command {
            self.decide(command, None);
        }
        if lost {
            self.keep_place();
        }
        if !first.owed.is_empty() {
            self.decide(Command::OwnedEnded(first.owed), None);
        }
    }

    /// A run that was queued when the host died, and whose owner survives, asks for its slot again.
    fn keep_place(&mut self) {
        let waits = self.state.phase() == Phase::Queued && !self.cells.takeover.leaves(&self.state);
        let Some(key) = self.run_key().filter(|_| waits) else { return };
        self.cells.runs.tokens.open(key, self.owner_run());
        let clock = self.clock.read(self.cells.host.clock.wall_ms());
        self.pending.effects.extend(wake(&self.state, clock));
    }

    fn decide_items(&mut self) {
        let mut ends = Vec::new();
        while let Some(item) = self.todo.items.pop_front() {
            self.wake_for(&item);
            match item {
                InboxItem::Command(Command::OwnedEnded(notices), None) => ends.extend(notices),
                InboxItem::Command(command, reply) => self.decide(command, reply),
                InboxItem::Parsed(answered) => self.parsed(*answered),
                InboxItem::Granted(ticket, slot) => self.granted(ticket, slot),
                InboxItem::Idle => self.idle(),
                InboxItem::Probe(tell) => self.probe(tell),
                InboxItem::Queue(tell) => self.pending.queues.push((tell, QueueEntry::all(&self.state, true))),
                InboxItem::ClearQueue(tell, reply) => self.clear_queue(tell, reply),
                InboxItem::HasRead(came) => self.has_read(*came),
            }
        }
        // All notices that are pending go into one decision; inputs that were drained with them come first.
        if !ends.is_empty() {
            self.decide(Command::OwnedEnded(ends), None);
        }
    }

    /// Decides an answer. Its calls replace those of the answer before, which are all over or admitted.
    fn parsed(&mut self, (command, ready): (Command, Ready)) {
        let now = self.state.turn().map(|turn| (turn.no, turn.attempt));
        if let Command::ModelAnswered(answer) = &command
            && now == Some((answer.turn, answer.attempt))
        {
            self.work.ready = ready;
        }
        self.decide(command, None);
    }

    fn decide_ready(&mut self) {
        for _ in 0..INLINE {
            let Some(command) = self.todo.next.pop_front() else { break };
            self.decide(command, None);
        }
    }

    fn granted(&mut self, ticket: RunKey, slot: Slot) {
        if self.inbox.holds_slot() || self.run_key() != Some(ticket) {
            // Dropping a slot that nobody waits for returns it.
            return;
        }
        let gives_back = |effect: &Effect| matches!(effect, Effect::ReleaseSlot { .. });
        if self.pending.effects.iter().any(gives_back) {
            // It was granted for a wait that ended in this batch, an interrupt's perhaps, and the run waits anew: what gives the
            // old one back, when the batch is committed, must not give back this one (T-3).
            self.pending.granted.push((ticket, slot));
            return;
        }
        if self.cells.life.halt.is_cancelled() {
            // It came free because an actor is gone whose run still holds it by its records (T-3): the next start decides.
            return;
        }
        self.inbox.hold_slot(slot);
        let words: Vec<_> = self.cells.runs.words_from_above(&self.state).collect();
        for word in words {
            self.decide(word, None);
        }
        let owner_over = self.cells.runs.owner_over(&self.state);
        self.decide(Command::Admitted { run: ticket.run, owner_over }, None);
        if self.state.run.as_ref().is_none_or(|run| !run.slot) {
            self.inbox.release_slot();
        }
    }

    fn idle(&mut self) {
        let waits =
            !self.inbox.is_empty() || !self.todo.next.is_empty() || !self.todo.admit.is_empty() || self.is_reading();
        let busy = waits || self.inbox.holds_slot();
        if busy || !self.work.tools.is_empty() || !self.state.can_unload() {
            return;
        }
        self.leave = true;
    }

    fn clear_queue(&mut self, tell: oneshot::Sender<u32>, reply: ReplyTo) {
        // One who gave up waiting needs no count.
        let _ = tell.send(u32::try_from(self.state.queue.len()).unwrap_or(u32::MAX));
        self.decide(Command::ChangeQueue { change: QueueChange::Cleared, by: By::Person }, Some(reply));
    }

    fn probe(&mut self, tell: oneshot::Sender<Probed>) {
        let in_flight = self.state.run.as_ref().map(|run| run.no);
        let probed = Probed { lsn: self.written.last_lsn, in_flight, last: self.ended() };
        self.pending.probes.push((tell, probed));
    }

    /// How the last run ended.
    pub(crate) fn ended(&self) -> Option<Ended> {
        self.state.last.as_ref().map(|last| {
            let mut usage = last.usage_self;
            usage.add(&last.usage_owned);
            Ended { run: last.run, outcome: last.outcome.clone(), text: last.text.clone(), turns: last.turns, usage }
        })
    }

    /// Decides one command and keeps what it decided for the commit.
    pub(crate) fn decide(&mut self, mut command: Command, reply: Option<ReplyTo>) {
        let name = command.name();
        self.inbox.take_in_hand(name);
        if handling(&command).is_control {
            self.cells.host.faults.see(Sight::Handles { session: self.session(), command: name });
        }
        self.cells.host.faults.strike(Point::Handler, name);
        if self.before.is_none() {
            self.before = Some(Before::of(&self.state));
        }
        match self.prepare(&mut command) {
            Prepared::Ready => {}
            Prepared::Postponed => return,
            Prepared::Refused(rejection) => return self.rejected(name, rejection, reply),
        }
        let clock = self.clock.read(self.cells.host.clock.wall_ms());
        match self.cells.host.faults.decide(&mut self.state, command, clock) {
            Ok(decision) => self.absorb(decision, reply),
            Err(rejection) => self.rejected(name, rejection, reply),
        }
        self.clock.follow(self.state.phase());
    }

    fn rejected(&mut self, command: &'static str, rejection: Rejection, reply: Option<ReplyTo>) {
        if let Some(reply) = reply {
            self.pending.replies.push((reply, Err(rejection)));
            return;
        }
        tracing::debug!(session = %self.session(), command, %rejection, "not decided");
        self.cells.life.stale.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn absorb(&mut self, decision: Decision, reply: Option<ReplyTo>) {
        for record in &decision.records {
            if let Record::CallFinished(finished) = record {
                self.stop_tool(finished.call);
            } else if let Record::AskAnswered { call, by, .. } = record {
                self.cells.host.faults.see(Sight::Answered { session: self.session(), call: *call, by: *by });
                self.cells.approvals.closed(self.session(), *call);
            } else if let Record::RunEnded(_) = record {
                self.state.recalled.clear();
            } else if let Record::TurnStarted { turn, attempt, reserved: Some(reserved), .. } = record {
                self.work.reserved = Some(Due { turn: *turn, attempt: *attempt, reserved: **reserved });
            } else if let Record::RunOpened(opened) = record {
                // Before any effect of the run: what it will own hangs on its token.
                let key = RunKey { session: self.session(), run: opened.run };
                self.cells.runs.tokens.open(key, opened.owner.run());
                if let Owner::Run { session, call, .. } = &opened.owner {
                    // A later run of a child: its owner will know it by the key.
                    self.cells.runs.continued.insert(*session, *call, key);
                }
            }
        }
        append(&mut self.pending.records, decision.records);
        append(&mut self.pending.births, decision.births);
        if let Some(reply) = reply {
            let of_input = if let Reply::Accepted { input, .. } = &decision.reply {
                Some(self.state.run_of(*input))
            } else {
                None
            };
            let run = of_input.unwrap_or(self.state.last_run);
            self.pending.replies.push((reply, Ok((decision.reply, run))));
        }
        let kept = decision.effects.into_iter().filter_map(|effect| self.take_effect(effect)).collect();
        append(&mut self.pending.effects, kept);
    }
}

/// Appends `new` to `to`, taking its buffer where nothing else is there.
fn append<T>(to: &mut Vec<T>, new: Vec<T>) {
    if to.is_empty() {
        *to = new;
    } else {
        to.extend(new);
    }
}
