//! Effects: what a decision asks of the world.

use subtend_session::effect::Effect;
use subtend_session::ids::{AttemptNo, CallId, RunKey, RunNo, SessionId, TurnNo};
use subtend_session::index::RowKey;
use subtend_session::outcome::OutcomeKind;
use subtend_session::record::Notice;
use subtend_session::state::{Phase, State};

use super::system::{Dropped, Message, System};
use super::{Whole, view};
use crate::fault::Around;

impl System {
    pub(super) fn perform(&mut self, whole: &Whole, session: SessionId, effects: Vec<Effect>) {
        if self.mute {
            return;
        }
        for effect in effects {
            match effect {
                Effect::RequestSlot { run, again } => self.request(whole, RunKey { session, run }, again),
                Effect::ReleaseSlot { run } => self.release(whole, RunKey { session, run }),
                Effect::CallModel { turn, attempt, .. } => self.call_model(whole, session, turn, attempt),
                Effect::RunTool { call } => self.run_tool(whole, session, call),
                Effect::StopTool { call } => self.stop_tool(session, call),
                Effect::Admit { turn, calls } => self.send(Message::Admit { session, turn, calls }),
                Effect::StartChild { child } => self.request(whole, RunKey { session: child, run: RunNo(1) }, false),
                Effect::Tell { to, notice } => self.told(to, &notice),
                Effect::CancelLocal => self.drop_work(session, Dropped::Own),
                Effect::CancelOwned { run, outcome } => self.cancel_owned(RunKey { session, run }, outcome),
                Effect::CancelChild { run, child, outcome } => {
                    self.cancel_child(RunKey { session, run }, child, outcome)
                }
                Effect::Ended { run, .. } => self.ended(whole, RunKey { session, run }),
                Effect::Unload => self.unload(session),
                // Deadlines may pass at any time in the model, so that nothing is kept of them.
                Effect::Arm { .. } | Effect::Disarm { .. } => {}
            }
        }
    }

    pub(super) fn request(&mut self, whole: &Whole, key: RunKey, again: bool) {
        self.slots.ask(key, again);
        self.grant(whole);
    }

    pub(super) fn release(&mut self, whole: &Whole, key: RunKey) {
        self.slots.give_back(key, whole.fault.is(Around::SlotFreedTwice));
        // Whoever gives a slot up does not want the word of it any more.
        self.flight.retain(|message| *message != Message::Granted { to: key });
        self.grant(whole);
    }

    fn grant(&mut self, whole: &Whole) {
        while let Some(to) = self.slots.next(u32::from(whole.size.slots)) {
            self.send(Message::Granted { to });
        }
    }

    fn call_model(&mut self, whole: &Whole, session: SessionId, turn: TurnNo, attempt: AttemptNo) {
        let due = self.active.get(&session).and_then(|active| active.state.turn());
        // A later command of the batch may have ended what an earlier one began.
        if !due.is_some_and(|due| due.streaming && (due.no, due.attempt) == (turn, attempt)) {
            return;
        }
        let Some((epoch, dropped)) = self.work(whole, session) else { return };
        self.send(Message::Stream { session, epoch, turn, attempt, dropped });
    }

    fn run_tool(&mut self, whole: &Whole, session: SessionId, call: CallId) {
        if !self.active.get(&session).is_some_and(|active| active.state.is_open(call)) {
            return;
        }
        let Some((epoch, dropped)) = self.work(whole, session) else { return };
        self.send(Message::Tool { session, epoch, call, dropped });
    }

    /// Who starts work, and whether the run's token has fired: then the work is dropped before it starts.
    fn work(&mut self, whole: &Whole, session: SessionId) -> Option<(subtend_session::ids::Epoch, Option<Dropped>)> {
        let active = self.active.get(&session)?;
        let epoch = active.epoch;
        let fired =
            active.state.run.as_ref().map(|run| RunKey { session, run: run.no }).filter(|key| self.fired.contains(key));
        match fired {
            Some(key) if whole.fault.is(Around::TokenIgnored) => {
                self.late.insert(key);
                Some((epoch, None))
            }
            Some(_) => Some((epoch, Some(Dropped::Token))),
            None => Some((epoch, None)),
        }
    }

    fn stop_tool(&mut self, session: SessionId, call: CallId) {
        self.flight.retain(
            |message| !matches!(message, Message::Tool { session: of, call: at, .. } if *of == session && *at == call),
        );
    }

    fn told(&mut self, to: SessionId, notice: &Notice) {
        // An owner that the sweep has not reached finds the row when it does.
        if self.boot.as_ref().is_some_and(|boot| boot.sweep.contains(&to)) {
            return;
        }
        let key = match (notice.key, notice.run) {
            (Some(call), _) => RowKey::Call(call),
            (None, Some(run)) => RowKey::Run(run),
            (None, None) => return,
        };
        self.send(Message::Notice { to, from: notice.child, key });
    }

    /// Marks what `session` has at work as stopped; each still answers.
    fn drop_work(&mut self, session: SessionId, why: Dropped) {
        for message in &mut self.flight {
            if let Message::Stream { session: of, dropped, .. } | Message::Tool { session: of, dropped, .. } = message
                && *of == session
            {
                *dropped = dropped.or(Some(why));
            }
        }
        self.flight.sort();
    }

    fn cancel_owned(&mut self, key: RunKey, outcome: OutcomeKind) {
        self.closing.insert(key, outcome);
        for to in self.owned_by(key) {
            self.cut_off(to, outcome);
        }
    }

    fn cancel_child(&mut self, key: RunKey, child: SessionId, outcome: OutcomeKind) {
        let held = |state: &State| state.phase() == Phase::HeldInterrupted;
        if !self.active.get(&key.session).is_some_and(|active| held(&active.state)) {
            return;
        }
        if let Some(to) = self.owned_by(key).into_iter().find(|to| to.session == child) {
            // Noted by the child, not by its owner: that owns others, which the interrupt spares.
            self.interrupted.insert(to);
            self.cut_off(to, outcome);
        }
    }

    /// Tells a run that its owner is over, and fires the token of it and of all below it.
    fn cut_off(&mut self, to: RunKey, outcome: OutcomeKind) {
        self.send(Message::OwnerOver { to, outcome });
        let mut below = vec![to];
        while let Some(key) = below.pop() {
            if self.fired.insert(key) {
                self.drop_work(key.session, Dropped::Token);
            }
            below.extend(self.owned_by(key));
        }
    }

    /// Runs in flight that `owner` owns itself.
    fn owned_by(&self, owner: RunKey) -> Vec<RunKey> {
        let runs = self.journals.iter().filter_map(|(session, journal)| {
            let (opened, ended) = view::last_run(journal)?;
            (!ended && view::owner_of(opened) == Some(owner)).then_some(RunKey { session: *session, run: opened.run })
        });
        runs.collect()
    }

    fn ended(&mut self, whole: &Whole, key: RunKey) {
        self.flight.retain(|message| match message {
            // The hub drops what the run still has at work; what already came stays in the lane, and is stale.
            Message::Stream { session, dropped, .. } | Message::Tool { session, dropped, .. } => {
                *session != key.session || dropped.is_none()
            }
            Message::Admit { .. }
            | Message::Granted { .. }
            | Message::Notice { .. }
            | Message::OwnerOver { .. }
            | Message::Restart(_)
            | Message::Append(_) => true,
        });
        self.closing.remove(&key);
        self.interrupted.remove(&key);
        self.fired.remove(&key);
        if self.slots.holders.contains(&key) || self.slots.queue.iter().any(|(_, queued)| *queued == key) {
            self.release(whole, key);
        }
    }

    /// The session leaves memory, unless something is on its way to it.
    fn unload(&mut self, session: SessionId) {
        let busy = self.flight.iter().any(|message| message.to() == session);
        if !busy && let Some(active) = self.active.remove(&session) {
            self.resting.insert(session, active.state);
        }
    }

    /// Why the owner of a run is over, if it is.
    pub(super) fn owner_over(&self, key: RunKey) -> Option<OutcomeKind> {
        let (opened, ended) = view::last_run(self.journals.get(&key.session)?)?;
        let owner = view::owner_of(opened).filter(|_| !ended)?;
        let over = view::ended(self.journals.get(&owner.session)?, owner.run);
        let fired = self.fired.contains(&key) || self.fired.contains(&owner);
        over.or_else(|| fired.then(|| self.closing_kind(owner, key)))
    }

    /// What of its owner ends the run `owned`; an owner whose own close is not decided yet closes because its owner does.
    pub(super) fn closing_kind(&self, owner: RunKey, owned: RunKey) -> OutcomeKind {
        if self.interrupted.contains(&owned) {
            return OutcomeKind::Interrupted;
        }
        self.closing.get(&owner).copied().unwrap_or(OutcomeKind::Cancelled)
    }
}

impl Message {
    /// The session that hears of it.
    pub(super) fn to(&self) -> SessionId {
        match self {
            Self::Stream { session, .. } | Self::Tool { session, .. } | Self::Admit { session, .. } => *session,
            Self::Granted { to } | Self::OwnerOver { to, .. } => to.session,
            Self::Notice { to, .. } | Self::Restart(to) => *to,
            Self::Append(batch) => batch.session,
        }
    }
}
