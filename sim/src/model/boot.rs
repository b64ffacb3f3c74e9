//! Crashes, the start of the next process, and activations after a panic, an unload or a crash.

use std::collections::BTreeSet;
use std::sync::Arc;

use subtend_invariants::observed::ActivationCause;
use subtend_session::command::{Clock, Command};
use subtend_session::decide::wake;
use subtend_session::ids::{Lsn, RunKey, SessionId};
use subtend_session::index::{self, Inflight, RowKind};
use subtend_session::place::{Owner, Place};
use subtend_session::record::Park;
use subtend_session::state::{Phase, State};

use super::plan;
use super::rows::SessionRows;
use super::step::SessionCommand;
use super::system::{Active, Boot, Slots, System};
use super::{SystemModel, journal};
use crate::fault::EnvironmentBug;

impl System {
    /// Activates a session if it has no activation. Returns false if that fails.
    pub(super) fn wake_up(&mut self, model: &SystemModel, session: SessionId) -> bool {
        if self.active.contains_key(&session) {
            return true;
        }
        self.activate(model, session, false)
    }

    /// Folds the journal and sends the first commands: rows of owners, the loss or reactivation, then ends of children.
    fn activate(&mut self, model: &SystemModel, session: SessionId, lost: bool) -> bool {
        let Some(journal) = self.journals.get_mut(&session) else { return false };
        let state = match State::fold(session, &*journal.records) {
            Ok(state) => state,
            Err(error) => {
                self.wrong = Some(error.to_string());
                return false;
            }
        };
        if !model.fault.is(EnvironmentBug::EpochNotBumped) {
            journal.epoch = journal.epoch.next();
        }
        let epoch = journal.epoch;
        let SessionRows { requests, owed } = self.rows_to(session);
        let first = state.run.as_ref().map(|run| {
            if lost {
                return Command::Lost {
                    owner_survives: !matches!(run.opened.owner, Owner::Run { .. }),
                    keeps_queue: false,
                };
            }
            let owner_ended = self.ended_owner_outcome(RunKey { session, run: run.no });
            Command::Reactivated { calls: plan::found(&state), owner_ended }
        });
        let owed = if owed.is_empty() { None } else { Some(owed) };
        let run = state.run.as_ref().filter(|_| !lost).map(|run| RunKey { session, run: run.no });
        let owner_end = run.and_then(|run| self.queue_kept_cancel(run));
        let mut commands: Vec<SessionCommand> =
            requests.into_iter().chain(owner_end).map(SessionCommand::Command).collect();
        // A lost run takes these ends before it ends itself, and starts no turn for them. A resumed run first repairs its
        // turn. Otherwise a turn that the ends start would count as left over from the old activation.
        if lost {
            commands.extend(owed.map(SessionCommand::Arrive));
            commands.extend(first.map(SessionCommand::Command));
        } else {
            commands.extend(first.map(SessionCommand::Command));
            commands.extend(owed.map(|owed| SessionCommand::Command(Command::OwnedEnded(owed))));
        }
        self.resting.remove(&session);
        let died = self.deaths.last().is_some_and(|death| death.session == session);
        let why = if lost {
            ActivationCause::Boot
        } else if died {
            ActivationCause::Restart
        } else {
            ActivationCause::Message
        };
        self.record_activation(session, epoch, why);
        self.active.insert(session, Active { epoch, state: Arc::new(state) });
        if !model.fault.is(EnvironmentBug::EffectsForgotten) {
            self.release_stale_slots(model, session);
        }
        self.run_commands(model, session, commands);
        if lost {
            self.requeue(model, session);
        } else if !model.fault.is(EnvironmentBug::EffectsForgotten) {
            self.redo_effects(model, session);
        }
        true
    }

    /// Requests the slot again for a run that was queued when the process died and that survived.
    fn requeue(&mut self, model: &SystemModel, session: SessionId) {
        let queued = self.active.get(&session).filter(|active| active.state.phase() == Phase::Queued);
        let Some(effects) = queued.map(|active| wake(&active.state, Clock::default())) else { return };
        if !model.fault.is(EnvironmentBug::PlaceForgotten) {
            self.perform(model, session, effects);
        }
    }

    /// Redoes effects that the old activation may have decided but not requested, and that no command repeats.
    fn redo_effects(&mut self, model: &SystemModel, session: SessionId) {
        self.redeliver_rows(session);
        let Some(active) = self.active.get(&session) else { return };
        let owned: Vec<_> =
            active.state.run.iter().flat_map(|run| run.owned.values()).map(|owned| owned.child).collect();
        for child in owned {
            let unstarted =
                self.active.get(&child).and_then(|active| active.state.run.as_ref()).filter(|run| !run.started);
            if let Some(run) = unstarted.map(|run| run.no) {
                self.request(model, RunKey { session: child, run }, false);
            }
        }
    }

    /// Releases slots that the folded run neither holds nor waits for. A slot outlives the actor, whose request to release
    /// it may be lost. Called before the run requests a slot.
    fn release_stale_slots(&mut self, model: &SystemModel, session: SessionId) {
        // A run that waits for a slot may own a granted slot that is still in flight.
        let active = self.active.get(&session).and_then(|active| active.state.run.as_ref());
        let kept = active.filter(|run| run.slot || !run.started || run.parked == Some(Park::Slot)).map(|run| run.no);
        let all = self.slots.both().into_iter().flat_map(Slots::keys);
        let over: Vec<_> = all.filter(|key| key.session == session && kept != Some(key.run)).collect();
        for key in over {
            self.release(model, key);
        }
    }

    pub(super) fn crash(&mut self, model: &SystemModel) {
        self.remaining.crashes = self.remaining.crashes.saturating_sub(1);
        self.crashed_in_boot |= self.boot.is_some();
        self.active.clear();
        self.resting.clear();
        self.flight.clear();
        self.slots = Default::default();
        self.fired.clear();
        self.closing.clear();
        self.single.clear();
        self.armed.clear();
        self.late.clear();
        if model.fault.is(EnvironmentBug::RowsLost) {
            self.rows.clear();
        }
        let in_flight =
            self.journals.iter().filter(|(_, journal)| journal::last_run(journal).is_some_and(|(_, ended)| !ended));
        let in_flight: BTreeSet<SessionId> = in_flight.map(|(session, _)| *session).collect();
        let resuming = self.resumable_sessions(model, &in_flight);
        let sweep: BTreeSet<SessionId> = in_flight.difference(&resuming).copied().collect();
        let rows = self.rows.keys().filter(|row| row.kind == RowKind::Continue && !in_flight.contains(&row.to));
        let targets = rows.map(|row| row.to).collect();
        self.boot = Some(Boot { sweep, reached: targets, owed: None, resuming });
        self.end_boot();
    }

    /// Returns the sessions whose runs the next process resumes: surviving runs, and queued runs that these own.
    fn resumable_sessions(&self, model: &SystemModel, in_flight: &BTreeSet<SessionId>) -> BTreeSet<SessionId> {
        let row = |session: &SessionId| {
            let journal = self.journals.get(session)?;
            let state = State::fold(*session, &*journal.records).ok()?;
            Some((*session, index::inflight(&state, Lsn(0), journal.epoch, 0)?))
        };
        let mut rows: Vec<(SessionId, Inflight)> = in_flight.iter().filter_map(row).collect();
        rows.sort_by_key(|(_, row)| row.depth);
        let kept =
            if model.fault.is(EnvironmentBug::ParkedAreLost) { BTreeSet::new() } else { index::surviving_runs(&rows) };
        let mut resuming = BTreeSet::new();
        for (session, row) in &rows {
            let owner = row.owner.run();
            let below = owner.is_some_and(|owner| resuming.contains(&owner.session));
            let waits = below && row.state == Phase::Queued;
            if waits || kept.contains(session) && (below || owner.is_none()) {
                resuming.insert(*session);
            }
        }
        resuming
    }

    /// Returns the sessions that the start may handle next: those of the deepest level that the sweep has not handled. After
    /// the sweep, those with pending rows, then those that resume.
    pub(super) fn next_to_boot(&self, model: &SystemModel, boot: &Boot) -> Vec<SessionId> {
        let depth = |session: &SessionId| self.journals.get(session).and_then(journal::place).map_or(0, Place::depth);
        let all = || boot.sweep.union(&boot.reached);
        let depths = all().map(depth);
        let level = if model.fault.is(EnvironmentBug::SweepFromTheTop) { depths.min() } else { depths.max() };
        match level {
            Some(level) => all().filter(|session| depth(session) == level).copied().collect(),
            None if boot.owed.iter().flatten().next().is_some() => boot.owed.iter().flatten().copied().collect(),
            None => boot.resuming.iter().copied().collect(),
        }
    }

    pub(super) fn boot(&mut self, model: &SystemModel, session: SessionId) {
        let Some(boot) = &mut self.boot else { return };
        let lost = boot.sweep.remove(&session);
        boot.reached.remove(&session);
        boot.resuming.remove(&session);
        if let Some(owed) = &mut boot.owed {
            owed.remove(&session);
        }
        if lost {
            self.active.remove(&session);
            self.addressed = Some(session);
            self.activate(model, session, true);
            self.addressed = None;
        } else {
            self.wake_up(model, session);
        }
        self.end_boot();
    }

    /// Continues with pending rows after the sweep, and ends the start of the process when no rows remain.
    fn end_boot(&mut self) {
        let Some(boot) = &mut self.boot else { return };
        if !(boot.sweep.is_empty() && boot.reached.is_empty()) {
            return;
        }
        let rows = &self.rows;
        let resting = |to: &SessionId| !boot.resuming.contains(to);
        let owed =
            boot.owed.get_or_insert_with(|| rows.keys().map(|row| row.to).filter(resting).collect::<BTreeSet<_>>());
        if owed.is_empty() && boot.resuming.is_empty() {
            self.boot = None;
        }
    }
}
