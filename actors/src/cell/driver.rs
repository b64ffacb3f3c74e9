//! The driver of one activation, without ractor: decides queued items, commits one frame, then performs the effects.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use subtend_session::command::{Command, Deadline};
use subtend_session::decide::wake;
use subtend_session::effect::{Decision, Effect, NewSession, Rejection, Reply};
use subtend_session::ids::{Epoch, RunKey, SessionId, Text, TurnNo};
use subtend_session::index::Before;
use subtend_session::outcome::Initiator;
use subtend_session::place::Owner;
use subtend_session::record::{Notice, QueueChange, Record};
use subtend_session::state::{Phase, State};
use subtend_supervision::Slot;
use tokio::sync::oneshot;

use crate::calls::in_flight::{ParsedCalls, RunningWork};
use crate::calls::reservation::DueReservation;
use crate::cell::cells::Cells;
use crate::cell::clock::RunClock;
use crate::cell::resident::ResidentShare;
use crate::cell::working::WorkingShare;
use crate::cell::written::Written;
use crate::delivery::commands::{Prepared, handling};
use crate::delivery::directory::NewChild;
use crate::delivery::inbox::{CommandReply, Inbox, InboxItem, Listed, Probed, ReplyTo};
use crate::faults::{InternalEvent, Point};
use crate::recovery::takeover::Room;
use crate::spawn::agents::Agents;
use crate::spawn::tool_set::ToolSet;
use crate::values::alternatives::Alternatives;
use crate::values::ended::Ended;
use crate::values::queue_entry::QueueEntry;

/// Maximum number of items taken from the inbox at a time, which bounds a batch.
const MAX_BATCH: usize = 256;
/// Maximum number of immediate results that are decided before the inbox is checked again: a chain of instant tools must not starve a cancel.
const MAX_INLINE: usize = 16;
/// Maximum number of rounds in one call of the handler.
const MAX_ROUNDS: usize = 16;

#[derive(Debug)]
pub(crate) enum DriverStep {
    /// The inbox is empty: sleep until a wake.
    Sleep,
    /// The inbox has more: continue after other messages.
    Again,
    /// The session left the directory, or may no longer write.
    Stop,
    /// The journal refused the batch: fold the session again.
    Fail(String),
}

#[derive(Debug)]
pub(crate) enum Halted {
    /// The activation may no longer write: it was fenced, or the journal is poisoned.
    Over,
    /// The journal refused this batch but accepts others: the session is folded again, within its restart budget.
    Refused(String),
}

/// Work that an activation has taken from the inbox, but not decided yet.
#[derive(Default)]
pub(crate) struct Todo {
    pub(crate) first: Option<Box<First>>,
    pub(crate) items: VecDeque<InboxItem>,
    pub(crate) next: VecDeque<Command>,
    /// Child calls that wait for admission.
    pub(crate) admit: VecDeque<(TurnNo, Vec<u32>)>,
}

#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) records: Vec<Record>,
    pub(crate) new_sessions: Vec<NewSession>,
    /// States of the children created in this batch, in order.
    pub(crate) new_children: VecDeque<NewChild>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) replies: Vec<(ReplyTo, CommandReply)>,
    /// Replies to probes, sent after the commit, with the LSN that they depend on.
    pub(crate) probes: Vec<(oneshot::Sender<Probed>, Probed)>,
    pub(crate) queues: Vec<(oneshot::Sender<Listed>, Vec<QueueEntry>)>,
    /// Slots that arrived while the release of an earlier slot was pending. They are handled after that release.
    pub(crate) granted: Vec<(RunKey, Slot)>,
    /// True if an uncommitted effect stops local work or ends a run: later work then starts after the commit.
    pub(crate) stops: bool,
}

/// Commands and owed ends that an activation handles before its inbox. A new session gets no such commands.
pub(crate) struct First {
    /// True if the run was in flight when the host died.
    pub(crate) lost: bool,
    /// Requests by other sessions, in row order. They come first, so that an owner's cancel is recorded as the cause.
    pub(crate) requests: Vec<Command>,
    /// `Lost`, `Reactivated` or `RestartsExhausted`, if a run is in flight.
    pub(crate) command: Option<Command>,
    /// Undelivered ends for the session in the outbox.
    pub(crate) owed: Vec<Notice>,
}

pub(crate) struct Driver {
    pub(crate) cells: Arc<Cells>,
    pub(crate) state: Box<State>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) written: Written,
    /// True while the run in flight is dormant, which lasts until an item concerns that run.
    pub(crate) dormant: bool,
    pub(crate) clock: RunClock,
    pub(crate) agents: Arc<Agents>,
    /// The number of environment reloads when `agents` was looked up.
    pub(super) reloads: u64,
    pub(crate) offer: Arc<ToolSet>,
    pub(crate) pending: Pending,
    pub(crate) before: Option<Before>,
    pub(crate) todo: Todo,
    pub(crate) work: RunningWork,
    pub(crate) armed: Vec<Deadline>,
    /// The context window of the session's model, with its name.
    pub(crate) window: Option<(Text, Option<u64>)>,
    pub(crate) resident: ResidentShare,
    pub(super) working: WorkingShare,
    /// True if the idle timer fired: the session leaves memory unless an item arrived with the timer.
    pub(crate) leave: bool,
    /// True if the activation left the directory, or may no longer write.
    pub(crate) left: bool,
    /// Of a large session that a sweep activated. Dropped last, after the state.
    pub(crate) room: Option<Room>,
}

impl Driver {
    pub(crate) fn new(cells: Arc<Cells>, state: Box<State>, inbox: Arc<Inbox>, epoch: Epoch) -> Self {
        // Read before the agents, so that a reload in between is noticed.
        let reloads = cells.environments.reloads();
        let agents = cells.environments.of(&state);
        let offer = agents.offer(&state);
        let clock = RunClock::of(&state);
        let created_ms = cells.host.clock.wall_ms();
        // The cap of a detached run is armed at its creation, before its activation.
        let capped = state.run.as_ref().filter(|run| run.opened.wall_cap_at.is_some());
        let armed = capped.map(|run| Deadline::WallCap(run.no)).into_iter().collect();
        Self {
            resident: ResidentShare::new(Arc::clone(&cells.resident)),
            working: cells.working.take(state.id),
            cells,
            state,
            inbox,
            written: Written::new(epoch, created_ms),
            dormant: false,
            clock,
            agents,
            reloads,
            offer,
            pending: Pending::default(),
            before: None,
            todo: Todo::default(),
            work: RunningWork::default(),
            armed,
            window: None,
            leave: false,
            left: false,
            room: None,
        }
    }

    pub(crate) fn session(&self) -> SessionId {
        self.state.id
    }

    pub(crate) fn root(&self) -> SessionId {
        self.state.created.place.root(self.state.id)
    }

    pub(crate) fn run_key(&self) -> Option<RunKey> {
        self.state.run.as_ref().map(|run| RunKey { session: self.state.id, run: run.no })
    }

    /// Reports that a shutdown stopped the actor. Passivation is not reported, since the session may be a waiting owner.
    pub(crate) fn report_stop(&self) {
        if self.cells.life.halt.is_cancelled() {
            let (session, run) = (self.session(), self.run_key().map(|key| key.run));
            self.cells.host.faults.see(InternalEvent::Stopped { session, run });
        }
    }

    /// Decides and performs until the inbox is empty, or until other messages are due.
    pub(crate) async fn step(&mut self) -> DriverStep {
        if let Some(first) = self.todo.first.take() {
            self.cells.host.faults.see(InternalEvent::Round(self.session()));
            self.decide_first(*first);
            if let Err(halted) = self.flush().await {
                return self.give_up(halted);
            }
            self.inbox.settle();
        }
        for _ in 0..MAX_ROUNDS {
            self.inbox.drain(MAX_BATCH, &mut self.todo.items);
            if self.todo.items.is_empty() && self.todo.next.is_empty() && !self.may_admit() {
                self.inbox.clear_current();
                return self.on_empty_inbox();
            }
            self.cells.host.faults.see(InternalEvent::Round(self.session()));
            self.decide_items();
            self.decide_ready();
            self.admit_chunk();
            if let Err(halted) = self.flush().await {
                return self.give_up(halted);
            }
            if self.may_admit() {
                // The children of this chunk run first and release their memory before the next chunk.
                tokio::task::yield_now().await;
            }
        }
        DriverStep::Again
    }

    /// Handles an empty inbox: leaves the directory if this process has no pending work for the session.
    fn on_empty_inbox(&mut self) -> DriverStep {
        let quiet_child = self.state.run.is_none() && self.state.created.place.parent().is_some();
        // Checked again: an item drained with the timer may have started a stream, which must not be dropped.
        let at_rest = self.state.can_unload() && self.work.tools.is_empty();
        let short_stay = self.resident.short_stay(self.state.text_bytes, self.cells.host.options.resident_text);
        let leaves = std::mem::take(&mut self.leave) || short_stay == Some(Duration::ZERO);
        let leave = leaves && at_rest && !self.inbox.holds_slot();
        if (quiet_child || leave) && self.unload() {
            return DriverStep::Stop;
        }
        self.room = self.room.take().filter(|_| self.cells.takeover.visits(self.state.id));
        if at_rest {
            let idle = self.cells.host.options.idle;
            self.arm_idle(short_stay.map_or(idle, |stay| stay.min(idle)));
        }
        DriverStep::Sleep
    }

    /// Handles a refused batch: the session is folded again with the next item, or at once if the journal accepts
    /// other batches, because the run in flight may receive no other item.
    fn give_up(&self, halted: Halted) -> DriverStep {
        match halted {
            Halted::Refused(why) => DriverStep::Fail(why),
            Halted::Over => {
                self.cells.directory.remove_if(self.session(), &self.inbox);
                DriverStep::Stop
            }
        }
    }

    /// Leaves the directory, and returns false if an item arrived meanwhile.
    fn unload(&mut self) -> bool {
        let session = self.session();
        let leaves = || self.cells.directory.unload(session, &self.inbox);
        if !self.cells.working.keep_if(session, &mut self.working, leaves) {
            return false;
        }
        self.disarm_idle();
        self.cells.log.journal.deactivate(session, self.written.epoch);
        true
    }

    pub(crate) fn decide_first(&mut self, mut first: First) {
        let mut requests = std::mem::take(&mut first.requests);
        let gives_up = matches!(first.command, Some(Command::RestartsExhausted { .. }));
        if gives_up {
            // The owner's cancel may be what crashes each activation: it must not prevent the end of the run.
            requests.retain(|command| !self.cancels_run(command));
        }
        let (before, after) = if gives_up { (Vec::new(), requests) } else { (requests, Vec::new()) };
        // `first.command` concerns the folded run. If a request has opened another run, the command no longer applies.
        let folded = self.run_key();
        for command in before {
            self.decide(command, None);
        }
        if self.run_key() != folded {
            (first.lost, first.command) = (false, None);
        }
        self.decide_after_fold(first);
        for command in after {
            self.decide(command, None);
        }
    }

    /// Returns whether `command` is its owner's cancel of the run in flight.
    fn cancels_run(&self, command: &Command) -> bool {
        let Some(of) = self.state.run.as_ref().map(|run| &run.opened.owner) else { return false };
        if let Command::OwnerCancels { owner, key, .. } = command {
            return matches!(of, Owner::Run { session, call, .. } if session == owner && call == key);
        }
        matches!(command, Command::OwnerEnded { owner, .. } if of.run() == Some(*owner))
    }

    /// Decides the first command of the folded run, and takes the ends that it is owed.
    fn decide_after_fold(&mut self, first: First) {
        if first.lost && !first.owed.is_empty() {
            self.before = Some(Before::of(&self.state));
            let clock = self.clock.read(self.cells.host.clock.wall_ms());
            let arrived = self.cells.host.faults.arrive(&mut self.state, first.owed, clock);
            self.absorb(arrived, None);
            if let Some(command) = first.command {
                self.decide(command, None);
            }
            return self.request_slot_again();
        }
        let lost = first.lost;
        if let Some(command) = first.command {
            self.decide(command, None);
        }
        if lost {
            self.request_slot_again();
        }
        if !first.owed.is_empty() {
            self.decide(Command::OwnedEnded(first.owed), None);
        }
    }

    /// Requests the slot again for a run that was queued when the host died and whose owner survives.
    fn request_slot_again(&mut self) {
        let waits = self.state.phase() == Phase::Queued && self.cells.takeover.resumes;
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
                InboxItem::Parsed(answered) => self.on_parsed(*answered),
                InboxItem::Granted(ticket, slot) => self.on_granted(ticket, slot),
                InboxItem::Idle => self.on_idle(),
                InboxItem::Probe(sender) => self.probe(sender),
                InboxItem::Queue(sender) => self.pending.queues.push((sender, QueueEntry::all(&self.state, true))),
                InboxItem::ClearQueue(sender, reply) => self.clear_queue(sender, reply),
                InboxItem::FilesRead(outcome) => self.on_files_read(*outcome),
                InboxItem::ModelDue(due) => self.on_tools_settled(due),
            }
        }
        // One decision takes all pending notices. Inputs that were drained with them come first.
        if !ends.is_empty() {
            self.decide(Command::OwnedEnded(ends), None);
        }
    }

    /// Decides an answer. Its calls replace those of the previous answer, which have ended or were admitted.
    fn on_parsed(&mut self, (command, ready): (Command, ParsedCalls)) {
        let now = self.state.turn().map(|turn| (turn.no, turn.attempt));
        if let Command::ModelAnswered(answer) = &command
            && now == Some((answer.turn, answer.attempt))
        {
            self.work.ready = ready;
        }
        self.decide(command, None);
    }

    fn decide_ready(&mut self) {
        for _ in 0..MAX_INLINE {
            let Some(command) = self.todo.next.pop_front() else { break };
            self.decide(command, None);
        }
    }

    fn on_granted(&mut self, ticket: RunKey, slot: Slot) {
        if self.inbox.holds_slot() || self.run_key() != Some(ticket) {
            // Dropping an unneeded slot releases it.
            return;
        }
        let gives_back = |effect: &Effect| matches!(effect, Effect::ReleaseSlot { .. });
        if self.pending.effects.iter().any(gives_back) {
            // The run stopped waiting and waited again: the pending release must not release the new slot.
            self.pending.granted.push((ticket, slot));
            return;
        }
        if self.cells.life.halt.is_cancelled() {
            // An actor died and freed this slot, but the records of its run still hold it. The next start decides about that run.
            return;
        }
        self.inbox.hold_slot(slot);
        let cancels: Vec<_> = self.cells.runs.pending_cancels(&self.state).collect();
        for command in cancels {
            self.decide(command, None);
        }
        let owner_ended = self.cells.runs.ended_owner_outcome(&self.state);
        self.decide(Command::Admitted { run: ticket.run, owner_ended }, None);
        if self.state.run.as_ref().is_none_or(|run| !run.slot) {
            self.inbox.release_slot();
        }
    }

    fn on_idle(&mut self) {
        let waits =
            !self.inbox.is_empty() || !self.todo.next.is_empty() || !self.todo.admit.is_empty() || self.is_reading();
        let busy = waits || self.inbox.holds_slot();
        if busy || !self.work.tools.is_empty() || !self.state.can_unload() {
            return;
        }
        self.leave = true;
    }

    fn clear_queue(&mut self, sender: oneshot::Sender<u32>, reply: ReplyTo) {
        let _ = sender.send(u32::try_from(self.state.queue.len()).unwrap_or(u32::MAX));
        self.decide(Command::ChangeQueue { change: QueueChange::Cleared, by: Initiator::Person }, Some(reply));
    }

    fn probe(&mut self, sender: oneshot::Sender<Probed>) {
        let in_flight = self.state.run.as_ref().map(|run| run.no);
        let metadata = self.state.metadata().cloned();
        let alternatives = Alternatives::all(&self.state);
        let probed = Probed { lsn: self.written.last_lsn, in_flight, last: self.last_ended(), metadata, alternatives };
        self.pending.probes.push((sender, probed));
    }

    pub(crate) fn last_ended(&self) -> Option<Ended> {
        self.state.last.as_ref().map(|last| {
            let mut usage = last.usage_self;
            usage.add(&last.usage_owned);
            Ended { run: last.run, outcome: last.outcome.clone(), text: last.text.clone(), turns: last.turns, usage }
        })
    }

    pub(crate) fn decide(&mut self, mut command: Command, reply: Option<ReplyTo>) {
        let name = command.name();
        self.inbox.set_current(name);
        if handling(&command).is_control {
            self.cells.host.faults.see(InternalEvent::Handles { session: self.session(), command: name });
        }
        self.cells.host.faults.inject(Point::Handler, name);
        if self.before.is_none() {
            self.before = Some(Before::of(&self.state));
        }
        match self.prepare(&mut command) {
            Prepared::Ready => {}
            Prepared::Postponed => return,
            Prepared::Refused(rejection) => return self.on_rejected(name, rejection, reply),
        }
        let clock = self.clock.read(self.cells.host.clock.wall_ms());
        match self.cells.host.faults.decide(&mut self.state, command, clock) {
            Ok(decision) => self.absorb(decision, reply),
            Err(rejection) => self.on_rejected(name, rejection, reply),
        }
        self.clock.follow(&self.state);
    }

    fn on_rejected(&mut self, command: &'static str, rejection: Rejection, reply: Option<ReplyTo>) {
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
                self.cells.host.faults.see(InternalEvent::Answered { session: self.session(), call: *call, by: *by });
                self.cells.approvals.close(self.session(), *call);
            } else if let Record::RunEnded(_) = record {
                self.state.recalled.clear();
            } else if let Record::TurnStarted { turn, attempt, reserved: Some(reserved), .. } = record {
                self.work.reserved = Some(DueReservation { turn: *turn, attempt: *attempt, reserved: **reserved });
            } else if let Record::RunOpened(opened) = record {
                // This precedes every effect of the run: tokens of owned runs derive from its own token.
                let key = RunKey { session: self.session(), run: opened.run };
                self.cells.runs.tokens.open(key, opened.owner.run());
                if let Owner::Run { session, call, .. } = &opened.owner {
                    // The owner of a continued child knows the child's run only by the call.
                    self.cells.runs.continued.insert(*session, *call, key);
                }
            }
        }
        append(&mut self.pending.records, decision.records);
        append(&mut self.pending.new_sessions, decision.new_sessions);
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

/// Appends `new` to `to`, reusing its buffer if `to` is empty.
fn append<T>(to: &mut Vec<T>, new: Vec<T>) {
    if to.is_empty() {
        *to = new;
    } else {
        to.extend(new);
    }
}
