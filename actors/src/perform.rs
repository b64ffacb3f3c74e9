//! Effects: done in the order of the decision, after the records that intend them are in the log.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use subtend_session::command::{Command, Deadline};
use subtend_session::effect::Effect;
use subtend_session::ids::{RunKey, RunNo, SessionId};
use subtend_session::outcome::OutcomeKind;
use subtend_session::record::Notice;
use subtend_session::state::{Phase, State};
use subtend_supervision::Class;

use crate::activation::owner_key;
use crate::directory::{Hot, Next};
use crate::driver::{Driver, Pending};
use crate::lane::Item;
use crate::ticket::Timer;

impl Driver {
    /// Does what was decided.
    pub(crate) async fn perform(&mut self, pending: Pending) {
        let mut hot = pending.hot;
        // A deadline that is armed and disarmed by the same batch never reaches the wheel.
        let mut timers: Vec<(Deadline, Option<u64>)> = Vec::new();
        for effect in pending.effects {
            match effect {
                Effect::RequestSlot { run, again } => self.request_slot(run, again),
                Effect::ReleaseSlot { run } => self.release_slot(run),
                Effect::CallModel { turn, attempt, after_ms } => {
                    let intent = self.model_waits().then_some(self.last_lsn);
                    self.call_model(turn, attempt, after_ms, intent);
                }
                Effect::RunTool { call } => {
                    let intent = self.tool_waits(call).then_some(self.last_lsn);
                    self.run_tool(call, intent);
                }
                Effect::StopTool { call } => self.stop_tool(call),
                // Kept back by `take_effect`: it is part of deciding.
                Effect::Admit { turn, calls } => self.admit.push_back((turn, calls)),
                Effect::StartChild { child } => Box::pin(self.start_child(child, &mut hot)).await,
                Effect::Tell { to, notice } => self.tell(to, *notice),
                Effect::CancelLocal => self.cancel_local(),
                Effect::CancelOwned { run, outcome } => self.cancel_owned(run, outcome),
                Effect::CancelChild { run: _, child, outcome } => self.cancel_child(child, outcome),
                Effect::Arm { deadline, after_ms } => last_word(&mut timers, deadline, Some(after_ms)),
                Effect::Disarm { deadline } => last_word(&mut timers, deadline, None),
                Effect::Ended { run, outcome: _ } => {
                    timers.clear();
                    self.run_ended(run);
                }
                // A hint: the session leaves memory when it was idle for a while.
                Effect::Unload => {}
            }
        }
        for (deadline, after_ms) in timers {
            match after_ms {
                Some(after_ms) => self.arm(deadline, after_ms),
                None => self.disarm(deadline),
            }
        }
    }

    /// Tells an owner of an end. One that the boot sweep has not reached yet finds the row in the outbox when it does:
    /// woken now, it would be ended before its other owned runs (deepest first).
    fn tell(&self, to: SessionId, notice: Notice) {
        let boot = self.hub.boot.lock().unwrap_or_else(PoisonError::into_inner).contains(&to);
        if !boot {
            self.hub.tell(to, Command::OwnedEnded(vec![notice]));
        }
    }

    fn request_slot(&mut self, run: RunNo, again: bool) {
        if self.lane.holds_slot() {
            return;
        }
        let ticket = RunKey { session: self.session(), run };
        let class = if again { Class::Again } else { Class::Start };
        if let Some(slot) = self.hub.slots.request(self.root(), ticket, class, self.state.limits.live_runs) {
            self.items.push_back(Item::Granted(ticket, slot));
        }
    }

    fn release_slot(&mut self, run: RunNo) {
        self.lane.release_slot();
        self.hub.slots.withdraw(RunKey { session: self.session(), run });
    }

    /// Starts a child that was born in this batch: at once where a slot is free, else when one is granted.
    async fn start_child(&mut self, child: SessionId, hot: &mut VecDeque<Hot>) {
        let key = RunKey { session: child, run: RunNo(1) };
        let hot = hot.pop_front().filter(|hot| hot.state.id == child);
        let owner = hot.as_ref().and_then(|hot| owner_of(&hot.state));
        self.hub.tokens.open(key, owner);
        let (live, queue_ms) = (self.state.limits.live_runs, self.state.limits.queue_ms);
        if let Some(hot) = hot {
            self.hub.directory.unborn(child, hot);
        }
        match self.hub.slots.request(self.root(), key, Class::Start, live) {
            Some(slot) => {
                if let Next::Start(lane, hot) = self.hub.directory.push(child, Item::Granted(key, slot)) {
                    self.hub.activate(child, lane, hot).await;
                }
            }
            None => {
                let timer = Timer::Deadline(child, Deadline::Queue(RunNo(1)));
                self.hub.timers.arm(timer, Duration::from_millis(queue_ms));
            }
        }
    }

    fn cancel_local(&mut self) {
        if let Some(turn) = &self.turn {
            turn.cancel();
        }
        for tool in self.tools.values() {
            tool.cancel();
        }
    }

    /// Tells every owned run, then fires the token of the whole owned subtree at once.
    ///
    /// In this order: a stream below that the token drops finds its owner's outcome already noted (S-8).
    fn cancel_owned(&mut self, run: RunNo, outcome: OutcomeKind) {
        let key = RunKey { session: self.session(), run };
        self.hub.closing.lock().unwrap_or_else(PoisonError::into_inner).own.insert(key, outcome);
        let owned: Vec<SessionId> =
            self.state.run.iter().flat_map(|run| run.owned.values()).map(|owned| owned.child).collect();
        for child in owned {
            self.hub.tell(child, Command::OwnerOver { run: RunNo(1), outcome });
        }
        self.hub.tokens.fire(&key);
    }

    /// Tells one owned run, then fires the token of it and of all below it: in this order, as with all of them.
    fn cancel_child(&self, child: SessionId, outcome: OutcomeKind) {
        // A later command of the batch may have fixed another outcome, or brought its end and an input after it.
        if self.state.phase() != Phase::HeldInterrupted {
            return;
        }
        let key = RunKey { session: child, run: RunNo(1) };
        self.hub.interrupts(key, true);
        self.hub.tell(child, Command::OwnerOver { run: key.run, outcome });
        if !self.hub.tokens.fire(&key) {
            // It ended before that, or has not been opened here: nobody would take the note away.
            self.hub.interrupts(key, false);
        }
    }

    fn arm(&mut self, deadline: Deadline, after_ms: u64) {
        if !self.armed.contains(&deadline) {
            self.armed.push(deadline);
        }
        self.hub.timers.arm(Timer::Deadline(self.session(), deadline), Duration::from_millis(after_ms));
    }

    fn disarm(&mut self, deadline: Deadline) {
        let before = self.armed.len();
        self.armed.retain(|armed| *armed != deadline);
        if before != self.armed.len() {
            self.hub.timers.disarm(&Timer::Deadline(self.session(), deadline));
        }
    }

    /// The run ended: gives back what it held, and tells those who wait, when its end is durable.
    fn run_ended(&mut self, run: RunNo) {
        let key = RunKey { session: self.session(), run };
        self.lane.release_slot();
        self.turn = None;
        self.ready.clear();
        self.hub.run_over(key);
        if self.state.last.as_ref().is_some_and(|last| last.turns == 0 || last.run != run) {
            // It may never have started: its place in the queue, and the deadline that was armed at its birth, go with it.
            self.hub.slots.withdraw(key);
            self.hub.timers.disarm(&Timer::Deadline(self.session(), Deadline::Queue(run)));
        }
        for deadline in std::mem::take(&mut self.armed) {
            self.hub.timers.disarm(&Timer::Deadline(self.session(), deadline));
        }
        self.tell_waiters(run);
    }

    /// Tells those who wait for `run`, which has ended, when its end is durable.
    pub(crate) fn tell_waiters(&self, run: RunNo) {
        if !self.hub.waiters.any(self.session()) {
            return;
        }
        let last = self.ended().filter(|ended| ended.run == run);
        let (hub, lsn, session) = (Arc::clone(&self.hub), self.last_lsn, self.session());
        tokio::spawn(async move {
            if hub.journal.wait(lsn).await.is_err() {
                return;
            }
            // Two runs may end in one batch: the state knows the last one only.
            let ended = last.or_else(|| hub.ended(session, run).ok().flatten());
            if let Some(ended) = ended {
                hub.waiters.tell(session, &ended);
            }
        });
    }

    /// Asks for child calls that wait for admission: a chunk at a time, so that the lanes are looked at between two.
    pub(crate) fn admit_chunk(&mut self) {
        let Some((turn, mut calls)) = self.admit.pop_front() else { return };
        let rest = calls.split_off(calls.len().min(CHUNK));
        if !rest.is_empty() {
            self.admit.push_front((turn, rest));
        }
        let (hub, offer) = (Arc::clone(&self.hub), Arc::clone(&self.offer));
        let (command, grants) = hub.admit(&self.state, &offer, turn, &calls);
        let before = self.pending.births.len();
        self.decide(command, None);
        let born = self.pending.births.len().saturating_sub(before);
        grants.commit_some(u32::try_from(born).unwrap_or(u32::MAX));
    }

    pub(crate) fn arm_idle(&self) {
        self.hub.timers.arm(Timer::Idle(self.session()), self.hub.options.idle);
    }

    pub(crate) fn disarm_idle(&self) {
        self.hub.timers.disarm(&Timer::Idle(self.session()));
    }

    /// The run that owns the one in flight.
    pub(crate) fn owner_run(&self) -> Option<RunKey> {
        owner_of(&self.state)
    }
}

/// Births of one batch: large enough to amortise the commit, small enough to keep listening.
const CHUNK: usize = 512;

/// Few deadlines change in one batch but for a turn of many local calls, so the search is from the end.
fn last_word(timers: &mut Vec<(Deadline, Option<u64>)>, deadline: Deadline, word: Option<u64>) {
    match timers.iter_mut().rev().find(|(at, _)| *at == deadline) {
        Some((_, before)) => *before = word,
        None => timers.push((deadline, word)),
    }
}

fn owner_of(state: &State) -> Option<RunKey> {
    state.run.as_ref().and_then(|run| owner_key(&run.opened.owner))
}
