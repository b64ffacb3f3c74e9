//! Performs effects in the order of the decision, after the records of their intents are in the log.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use subtend_session::call::CallKind;
use subtend_session::command::{Command, Deadline};
use subtend_session::effect::Effect;
use subtend_session::ids::{CallId, RunKey, RunNo, SessionId, TurnNo};
use subtend_session::outcome::{Initiator, Outcome, OutcomeKind};
use subtend_session::record::Record;
use subtend_session::state::State;
use subtend_supervision::{Class, PoolKind};
use tokio::sync::Semaphore;

use crate::calls::files::FileTexts;
use crate::calls::limits::ParkedRuns;
use crate::cell::driver::{Driver, Pending};
use crate::cell::slots::pool;
use crate::delivery::directory::{NewChild, NextAction};
use crate::delivery::inbox::InboxItem;
use crate::delivery::ticket::Timer;
use crate::faults::InternalEvent;
use crate::values::ended::Ended;

/// Worktrees that are examined at the same time after the ends of runs.
static FINISHING: Semaphore = Semaphore::const_new(2);

impl Driver {
    pub(crate) async fn perform(&mut self, pending: Pending) {
        let mut new_children = pending.new_children;
        self.todo.items.extend(pending.granted.into_iter().map(|(ticket, slot)| InboxItem::Granted(ticket, slot)));
        // A deadline that the same batch arms and disarms is never armed.
        let mut timers: Vec<(Deadline, Option<u64>)> = Vec::new();
        for effect in pending.effects {
            match effect {
                Effect::RequestSlot { run, resumed } => self.request_slot(run, resumed),
                Effect::ReleaseSlot { run } => self.release_slot(run),
                Effect::CallModel { turn, attempt, after_ms } => {
                    let intent = self.needs_model_intent().then_some(self.written.last_lsn);
                    self.call_model(turn, attempt, after_ms, intent);
                }
                Effect::Compact { turn, attempt } => self.compact(turn, attempt),
                Effect::RunTool { call } => {
                    let intent = self.needs_tool_intent(call).then_some(self.written.last_lsn);
                    self.run_tool(call, intent);
                }
                Effect::StopTool { call } => self.stop_tool(call),
                // Other `Admit` effects were handled by `take_effect` during the decision.
                Effect::Admit { turn, calls } => self.todo.admit.push_back((turn, calls)),
                Effect::StartChild { child } => Box::pin(self.start_child(child, &mut new_children)).await,
                Effect::DeliverCompletion { to, notice } => {
                    self.cells.send_after_sweep(to, Command::OwnedEnded(vec![*notice]))
                }
                Effect::CancelLocal => self.work.cancel(),
                Effect::CancelOwned { run, outcome, keeps_queue } => self.cancel_owned(run, outcome, keeps_queue),
                Effect::CancelChild { run: _, child, key, by } => self.cancel_child(child, key, by),
                Effect::AskToContinue { child, ask } => self.cells.send_command(child, Command::Continue(ask)),
                Effect::AskPerson { call } => self.open_ask(call),
                Effect::Arm { deadline, after_ms } => replace_last(&mut timers, deadline, Some(after_ms)),
                Effect::Disarm { deadline } => replace_last(&mut timers, deadline, None),
                Effect::Ended { run, outcome } => {
                    timers.clear();
                    self.run_ended(run);
                    self.finish_worktree(&outcome);
                    self.notify_subagent_stop(run, outcome);
                }
                // Only a hint: the session leaves memory after an idle time.
                Effect::Unload => {}
            }
        }
        for (deadline, after_ms) in timers {
            match after_ms {
                Some(after_ms) => {
                    let wanted = self.requested_timeout(deadline);
                    self.arm(deadline, wanted.map_or(after_ms, |wanted| wanted.min(after_ms)));
                }
                None => self.disarm(deadline),
            }
        }
    }

    fn request_slot(&mut self, run: RunNo, resumed: bool) {
        if self.inbox.holds_slot() {
            return;
        }
        let ticket = RunKey { session: self.session(), run };
        // The slot has already arrived, in the batch that requests it.
        if self.todo.items.iter().any(|item| matches!(item, InboxItem::Granted(granted, _) if *granted == ticket)) {
            return;
        }
        let class = if resumed { Class::Resume } else { Class::Start };
        let (pool_kind, bound) = pool(&self.state);
        if let Some(slot) = self.cells.runs.slots.of(pool_kind).request(self.root(), ticket, class, bound) {
            self.todo.items.push_back(InboxItem::Granted(ticket, slot));
        }
    }

    fn release_slot(&mut self, run: RunNo) {
        self.inbox.release_slot();
        self.cells.runs.slots.withdraw(RunKey { session: self.session(), run });
    }

    /// Starts a child created in this batch: at once if a slot is free, otherwise when one is granted.
    async fn start_child(&mut self, child: SessionId, new_children: &mut VecDeque<NewChild>) {
        let key = RunKey { session: child, run: RunNo(1) };
        // The batch may also have created branches, which start with their first inputs.
        let new_child = new_children.iter().position(|new| new.session == child).and_then(|at| new_children.remove(at));
        let state = new_child.as_ref().and_then(|new_child| new_child.state.as_deref());
        let owner = state.and_then(owner_of);
        self.cells.runs.tokens.open(key, owner);
        // A detached run has no owner that ends it: its own cap applies from its creation, even while it is queued.
        let opened = state.and_then(|state| state.run.as_ref()).map(|run| &run.opened);
        if let Some(at) = opened.filter(|_| owner.is_none()).and_then(|opened| opened.wall_cap_at) {
            let left = u64::try_from(at.saturating_sub(self.cells.host.clock.wall_ms())).unwrap_or(0);
            self.cells.runs.timers.arm(Timer::Deadline(child, Deadline::WallCap(key.run)), Duration::from_millis(left));
        }
        let (pool_kind, bound) = state.map_or((PoolKind::Background, self.state.limits.live_runs), pool);
        let queue_ms = self.state.limits.queue_ms;
        if let Some(new_child) = new_child {
            self.cells.directory.register_new(child, new_child);
        }
        match self.cells.runs.slots.of(pool_kind).request(self.root(), key, Class::Start, bound) {
            Some(slot) => {
                if let NextAction::Start(inbox, new_child) =
                    self.cells.directory.push(child, InboxItem::Granted(key, slot))
                {
                    self.cells.activate(child, inbox, new_child).await;
                }
            }
            None => {
                self.cells.directory.limit_kept_state(child);
                let timer = Timer::Deadline(child, Deadline::Queue(RunNo(1)));
                self.cells.runs.timers.arm(timer, Duration::from_millis(queue_ms));
            }
        }
    }

    /// Notifies every owned run, then fires the token of the subtree, with the outcome as the cause of dropped streams.
    fn cancel_owned(&mut self, run: RunNo, outcome: OutcomeKind, keeps_queue: bool) {
        let key = RunKey { session: self.session(), run };
        let owned: Vec<SessionId> =
            self.state.run.iter().flat_map(|run| run.owned.values()).map(|owned| owned.child).collect();
        for child in owned {
            self.cells.send_command(child, Command::OwnerEnded { owner: key, outcome, keeps_queue });
        }
        self.cells.host.faults.see(InternalEvent::Fired(key));
        // A lost run has no token yet, but its owned runs need the cause too.
        if self.run_key() == Some(key) {
            self.cells.runs.tokens.open(key, self.owner_run());
        }
        self.cells.runs.tokens.fire(&key, |cause| {
            cause.closes = Some(outcome);
            cause.keeps_queues |= keeps_queue;
        });
    }

    /// Notifies one owned run, then fires its token, in this order.
    /// A run that its session has not opened yet has no token. The session opens it, and then handles the cancel.
    fn cancel_child(&self, child: SessionId, key: CallId, by: Initiator) {
        // The batch may have taken the notice of the run's end already.
        if self.state.run.as_ref().is_none_or(|run| !run.owned.contains_key(&key)) {
            return;
        }
        let owner = self.session();
        let created = self.state.children.get(&child).is_some_and(|child| child.call == Some(key));
        let first = created.then_some(RunKey { session: child, run: RunNo(1) });
        let run = first.or_else(|| self.cells.runs.continued.get(owner, key));
        self.cells.send_command(child, Command::OwnerCancels { owner, key, by: by.clone() });
        if let Some(run) = run {
            self.cells.host.faults.see(InternalEvent::Fired(run));
            self.cells.runs.tokens.fire(&run, |cause| cause.alone = Some((key, by)));
        }
    }

    fn arm(&mut self, deadline: Deadline, after_ms: u64) {
        if matches!(deadline, Deadline::Limit(_)) {
            self.wait_for_reset(after_ms);
        }
        if !self.armed.contains(&deadline) {
            self.armed.push(deadline);
            if self.is_already_armed(deadline) {
                return;
            }
        }
        self.cells.runs.timers.arm(Timer::Deadline(self.session(), deadline), Duration::from_millis(after_ms));
    }

    /// Parks the run until the reset of a provider's limit, and pauses the limit for all sessions, even after a restart
    /// of the host.
    /// The record names the pool's member. One of an earlier build names none: the last failed model's limit applies.
    /// No member is paused if the turn names only its pool, or one that is not configured: the limit is not that of the
    /// model that is called instead.
    fn wait_for_reset(&self, after_ms: u64) {
        let Some(until) = self.state.run.as_ref().and_then(|run| run.limit_reset_at()) else { return };
        let Some(turn) = self.state.turn() else { return };
        let (calls, models) = (&self.cells.calls, &self.agents.models.models);
        let picked = models.pick(turn.awaits.as_ref().unwrap_or(&turn.model));
        let is_known = !picked.pool && !picked.is_fallback;
        let limit = ParkedRuns::limit_of(&*picked.member.model);
        if is_known && !picked.member.model.quotas().is_empty() {
            calls.throttles.pause(&limit, after_ms);
            calls.cooled.notify_waiters();
        }
        calls.parked.park(self.session(), limit, until, after_ms == 0);
    }

    /// Returns whether an earlier activation armed `deadline`, so that repeated activations do not prolong the wait.
    fn is_already_armed(&self, deadline: Deadline) -> bool {
        let waits = match deadline {
            Deadline::Ask(_) | Deadline::Queue(_) => true,
            // Redone work gets its full time.
            Deadline::Call(call) => {
                let kind = self.state.call(call).and_then(|call| call.kind.as_ref());
                matches!(kind, Some(CallKind::Check { .. }))
            }
            // The reset is recorded as a Unix time, so arming it again does not move it.
            Deadline::Run(_) | Deadline::Turn(_) | Deadline::WallCap(_) | Deadline::Grace(_) | Deadline::Limit(_) => {
                false
            }
        };
        waits && self.cells.runs.timers.is_armed(&Timer::Deadline(self.session(), deadline))
    }

    fn disarm(&mut self, deadline: Deadline) {
        let before = self.armed.len();
        self.armed.retain(|armed| *armed != deadline);
        if before != self.armed.len() {
            self.cells.runs.timers.disarm(&Timer::Deadline(self.session(), deadline));
        }
    }

    /// Releases the resources of an ended run, and notifies waiting callers once its end is durable.
    fn run_ended(&mut self, run: RunNo) {
        let key = RunKey { session: self.session(), run };
        self.inbox.release_slot();
        self.work.end_run();
        self.cells.runs.release_run(key);
        if self.state.last.as_ref().is_some_and(|last| last.turns == 0 || last.run != run) {
            // If the run never started, its queue position and the deadline from its creation are removed too.
            self.cells.runs.slots.withdraw(key);
            self.cells.runs.timers.disarm(&Timer::Deadline(self.session(), Deadline::Queue(run)));
        }
        for deadline in std::mem::take(&mut self.armed) {
            self.cells.runs.timers.disarm(&Timer::Deadline(self.session(), deadline));
        }
        self.notify_waiters(run);
    }

    /// Removes the worktree of a session whose run made no changes. A last answer has done so before it was recorded.
    fn finish_worktree(&self, outcome: &Outcome) {
        let is_own = self.state.created.worktree.is_some_and(|worktree| worktree.of == self.session());
        if !is_own || *outcome == Outcome::Completed {
            return;
        }
        let (place, ids) = (self.agents.tool_directory(&self.state), (self.root(), self.session()));
        let (log, lsn, halt) = (Arc::clone(&self.cells.log), self.written.last_lsn, self.cells.life.halt.clone());
        self.cells.life.tasks.spawn(async move {
            // Few at a time, because a cancel may end the runs of many children. A shutdown leaves the rest.
            let Some(_permit) = halt.run_until_cancelled(FINISHING.acquire()).await else { return };
            // Until its end is durable, the run counts as one that works in the worktree.
            if log.journal.wait(lsn).await.is_ok() {
                // Git may take minutes in a hostile repository. It ends with the process.
                halt.run_until_cancelled(place.remove_unchanged(ids, &log.journal)).await;
            }
        });
    }

    /// Notifies the callers that wait for the ended `run` once its end is durable.
    pub(crate) fn notify_waiters(&self, run: RunNo) {
        if !self.cells.waiters.any(self.session()) {
            return;
        }
        let last = self.last_ended().filter(|ended| ended.run == run);
        let (cells, lsn, session) = (Arc::clone(&self.cells), self.written.last_lsn, self.session());
        tokio::spawn(async move {
            if cells.log.journal.wait(lsn).await.is_err() {
                return;
            }
            // Two runs may end in one batch, but the state holds only the last one.
            let ended = last.or_else(|| Ended::read(&cells.log.journal, session, run).ok().flatten());
            if let Some(ended) = ended {
                cells.waiters.notify(session, &ended);
            }
        });
    }

    /// Starts an effect that needs no durable record; returns an effect that must wait for the commit.
    pub(crate) fn take_effect(&mut self, effect: Effect) -> Option<Effect> {
        match effect {
            Effect::CallModel { turn, attempt, after_ms: 0 } if !self.pending.stops && !self.needs_model_intent() => {
                self.call_model(turn, attempt, 0, None);
            }
            Effect::RunTool { call } if !self.pending.stops && !self.needs_tool_intent(call) => {
                self.run_tool(call, None)
            }
            Effect::Admit { turn, calls } => self.todo.admit.push_back((turn, calls)),
            Effect::CallModel { .. }
            | Effect::Compact { .. }
            | Effect::RunTool { .. }
            | Effect::RequestSlot { .. }
            | Effect::ReleaseSlot { .. }
            | Effect::StopTool { .. }
            | Effect::StartChild { .. }
            | Effect::DeliverCompletion { .. }
            | Effect::CancelOwned { .. }
            | Effect::CancelChild { .. }
            | Effect::AskToContinue { .. }
            | Effect::AskPerson { .. }
            | Effect::Arm { .. }
            | Effect::Disarm { .. }
            | Effect::Unload => return Some(effect),
            // The same decision may open the next run: an earlier stream would be taken for that of the ended run.
            Effect::CancelLocal | Effect::Ended { .. } => {
                self.pending.stops = true;
                return Some(effect);
            }
        }
        None
    }

    /// Requests admission for child calls, a chunk at a time, so that the inbox is checked in between.
    pub(crate) fn admit_chunk(&mut self) {
        if !self.may_admit() {
            return;
        }
        let Some((turn, mut calls)) = self.todo.admit.pop_front() else { return };
        if self.decide_owner_close() {
            // No child is created below a closing run, not even a detached one.
            return;
        }
        let rest = calls.split_off(calls.len().min(CHUNK));
        if !rest.is_empty() {
            self.todo.admit.push_front((turn, rest));
        }
        if let Some(calls) = self.read_first(turn, calls) {
            self.admit_now(turn, &calls, &FileTexts::new());
        }
    }

    pub(crate) fn admit_now(&mut self, turn: TurnNo, calls: &[u32], read: &FileTexts) {
        let environment = (&*self.agents, &*self.offer);
        let (command, (grants, processes)) =
            self.cells.admit(&self.state, environment, (turn, calls), (&mut self.work.ready, read));
        if self.work.ready.is_empty() {
            // An answer may have a hundred thousand calls.
            self.work.ready.shrink_to_fit();
        }
        let before = self.pending.records.len();
        self.decide(command, None);
        let opens = |record: &&Record| matches!(record, Record::ChildSpawned(_) | Record::ContinueAsked(_));
        let opened = self.pending.records.iter().skip(before).filter(opens).count();
        grants.commit_some(u32::try_from(opened).unwrap_or(u32::MAX));
        processes.commit(|process| self.state.children.contains_key(&process));
    }

    pub(crate) fn arm_idle(&self, after: Duration) {
        self.cells.runs.timers.arm(Timer::Idle(self.session()), after);
    }

    pub(crate) fn disarm_idle(&self) {
        self.cells.runs.timers.disarm(&Timer::Idle(self.session()));
    }

    pub(crate) fn owner_run(&self) -> Option<RunKey> {
        owner_of(&self.state)
    }
}

/// Children per batch: enough to amortise the commit, few enough to check the inbox often and to bound memory.
const CHUNK: usize = 128;

/// Replaces the last change of `deadline`. Most batches change few, so the search starts at the end.
fn replace_last(timers: &mut Vec<(Deadline, Option<u64>)>, deadline: Deadline, change: Option<u64>) {
    match timers.iter_mut().rev().find(|(at, _)| *at == deadline) {
        Some((_, before)) => *before = change,
        None => timers.push((deadline, change)),
    }
}

fn owner_of(state: &State) -> Option<RunKey> {
    state.run.as_ref().and_then(|run| run.opened.owner.run())
}
