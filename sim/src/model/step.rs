//! One step: what happened is put to the session, decided, appended and carried out.

use std::sync::Arc;

use subtend_session::call::{CallEnd, CallResult};
use subtend_session::command::{Answered, AskedCall, AttemptFailed, Clock, Command, Deadline};
use subtend_session::decide::decide;
use subtend_session::effect::{Birth, Effect, Rejection};
use subtend_session::ids::{AttemptNo, CallId, Epoch, RunKey, SessionId, TurnNo};
use subtend_session::index::{self, Changes};
use subtend_session::outcome::{By, ModelFail};
use subtend_session::record::{Notice, Record, Stop};
use subtend_session::state::State;
use subtend_session::usage::Usage;

use super::action::{Action, Reply};
use super::plan::{self, ROOT};
use super::system::{Batch, Dropped, Message, System};
use super::{Whole, view};
use crate::fault::Around;

/// What was decided of one session in one step.
#[derive(Default)]
pub(super) struct Decided {
    pub(super) records: Vec<Record>,
    pub(super) births: Vec<Birth>,
    pub(super) effects: Vec<Effect>,
    pub(super) changes: Changes,
    /// A slot came for a run that does not want it any more.
    pub(super) slot_refused: bool,
}

impl System {
    /// Does `action`; false where it changes nothing.
    pub(super) fn step(&mut self, whole: &Whole, action: &Action) -> bool {
        self.touched.clear();
        match action {
            Action::Deliver(message, reply) => {
                self.take(message);
                self.deliver(whole, message.clone(), *reply)
            }
            Action::Send => {
                let input = Box::new(plan::input(self.left.sends));
                self.left.sends = self.left.sends.saturating_sub(1);
                self.tell(whole, ROOT, vec![Command::Submit(input)])
            }
            Action::Cancel(session) => self.cancel(whole, *session),
            Action::CancelEnded(session) => {
                let Some(run) = self.active.get(session).map(|active| active.state.last_run) else { return false };
                self.tell(whole, *session, vec![Command::Cancel { run: Some(run), by: By::Person }])
            }
            Action::Interrupt(session) => {
                self.left.interrupts = self.left.interrupts.saturating_sub(1);
                self.tell(whole, *session, vec![Command::Interrupt { by: By::Person }])
            }
            Action::Deadline(session) => {
                self.left.deadlines = self.left.deadlines.saturating_sub(1);
                let Some(run) = self.run_in_flight(*session) else { return false };
                self.tell(whole, *session, vec![Command::Deadline(Deadline::Run(run))])
            }
            Action::Panic(session) => {
                self.left.panics = self.left.panics.saturating_sub(1);
                self.panic(whole, *session);
                true
            }
            Action::PanicWithBatch(message, reply) => self.panic_with_batch(whole, message, *reply),
            Action::PanicBeforeEffects(message, reply) => {
                self.left.half_panics = self.left.half_panics.saturating_sub(1);
                self.take(message);
                self.mute = true;
                self.deliver(whole, message.clone(), *reply);
                self.mute = false;
                self.panic(whole, message.to());
                true
            }
            Action::Crash => {
                self.crash(whole);
                true
            }
            Action::Boot(session) => {
                self.boot(whole, *session);
                true
            }
        }
    }

    fn take(&mut self, message: &Message) {
        if let Some(at) = self.flight.iter().position(|other| other == message) {
            self.flight.remove(at);
        }
    }

    fn deliver(&mut self, whole: &Whole, message: Message, reply: Reply) -> bool {
        match message {
            Message::Stream { session, turn, attempt, dropped, .. } => {
                let mut commands = Vec::new();
                if dropped == Some(Dropped::Token) {
                    commands.extend(self.owner_word(session));
                }
                commands.push(self.said(turn, attempt, dropped, reply));
                self.tell(whole, session, commands)
            }
            Message::Tool { session, call, dropped, .. } => {
                let end = if dropped.is_some() { CallEnd::Cancelled } else { CallEnd::Ok };
                let result = Box::new(CallResult { end, content: "read".into(), truncated_from: None });
                self.tell(whole, session, vec![Command::ToolFinished { call, result, worked_ms: 0 }])
            }
            Message::Admit { session, turn, calls } => self.admit(whole, session, turn, &calls),
            Message::Granted { to } => self.granted(whole, to),
            Message::Notice { to, from, key } => {
                let notice = self.notice(from, key);
                notice.is_some_and(|notice| self.tell(whole, to, vec![Command::OwnedEnded(vec![notice])]))
            }
            Message::OwnerOver { to, outcome } => {
                self.tell(whole, to.session, vec![Command::OwnerOver { run: to.run, outcome }])
            }
            Message::Restart(session) => self.tell(whole, session, Vec::new()),
            Message::Append(batch) => {
                self.late_append(whole, *batch);
                true
            }
        }
    }

    /// What the model says.
    fn said(&mut self, turn: TurnNo, attempt: AttemptNo, dropped: Option<Dropped>, reply: Reply) -> Command {
        let answer = |text: Option<&str>, calls: Vec<AskedCall>| {
            let stop = if calls.is_empty() { Stop::End } else { Stop::Calls };
            let (text, usage) = (text.map(Into::into), Usage::default());
            Command::ModelAnswered(Box::new(Answered {
                turn,
                attempt,
                text,
                reasoning: None,
                calls,
                stop,
                model: None,
                usage,
            }))
        };
        match reply {
            Reply::Plain | Reply::Final => answer(Some("done"), Vec::new()),
            Reply::Blocking => answer(None, vec![plan::asked("task", "blocking")]),
            Reply::Background => answer(None, vec![plan::asked("task", "background")]),
            Reply::Read => {
                self.left.tools = self.left.tools.saturating_sub(1);
                answer(None, vec![plan::asked("read", "{}")])
            }
            Reply::Failed => {
                if dropped.is_none() {
                    self.left.failures = self.left.failures.saturating_sub(1);
                }
                Command::AttemptFailed(Box::new(AttemptFailed {
                    turn,
                    attempt,
                    error: ModelFail::Unavailable,
                    message: "no answer".into(),
                    retry_after_ms: None,
                    model: None,
                    next: None,
                    usage: None,
                }))
            }
        }
    }

    /// The word of the owner of `session`'s run, before what its fired token stopped is heard.
    fn owner_word(&self, session: SessionId) -> Option<Command> {
        let run = self.active.get(&session)?.state.run.as_ref()?;
        let owner = view::owner_of(&run.opened)?;
        Some(Command::OwnerOver { run: run.no, outcome: self.closing_kind(owner, RunKey { session, run: run.no }) })
    }

    fn admit(&mut self, whole: &Whole, session: SessionId, turn: TurnNo, calls: &[u32]) -> bool {
        if !self.wake_up(whole, session) {
            return true;
        }
        let Some(active) = self.active.get(&session) else { return false };
        let mut left = self.left.children;
        let verdicts = calls.iter().map(|ix| {
            let verdict = plan::verdict(whole, &active.state, CallId { turn, ix: *ix }, left);
            left = left.saturating_sub(u8::from(verdict.verdict.is_ok()));
            verdict
        });
        let command = Command::Spawn { turn, verdicts: verdicts.collect() };
        self.tell(whole, session, vec![command])
    }

    fn granted(&mut self, whole: &Whole, to: RunKey) -> bool {
        if !self.wake_up(whole, to.session) {
            return true;
        }
        let owner_over = self.owner_over(to);
        self.tell(whole, to.session, vec![Command::Admitted { run: to.run, owner_over }]);
        let works = self.active.get(&to.session).and_then(|active| active.state.run.as_ref());
        if owner_over.is_some() && works.is_some_and(|run| run.no == to.run && run.slot) {
            // It was told that its owner is over, and means to work all the same.
            self.late.insert(to);
        }
        true
    }

    fn cancel(&mut self, whole: &Whole, session: SessionId) -> bool {
        self.left.cancels = self.left.cancels.saturating_sub(1);
        let Some(run) = self.run_in_flight(session) else { return false };
        self.cancelled.insert(RunKey { session, run });
        let command = Command::Cancel { run: Some(run), by: By::Person };
        if !whole.fault.is(Around::CancelNotDurable) {
            return self.tell(whole, session, vec![command]);
        }
        let Some(decided) = self.decide(session, vec![command]) else { return false };
        let epoch = self.active.get(&session).map_or(Epoch(0), |active| active.epoch);
        let Decided { records, births, effects, changes, .. } = decided;
        self.send(Message::Append(Box::new(Batch { session, epoch, records, changes })));
        self.be_born_all(whole, session, &births);
        self.perform(whole, session, effects);
        true
    }

    /// The end that a row tells of, as its record says it.
    pub(super) fn notice(&self, from: SessionId, key: index::RowKey) -> Option<Notice> {
        view::notice(from, self.journals.get(&from)?, key)
    }

    /// Puts `commands` to a session, which is activated first if it is not; false where nothing changed at all.
    pub(super) fn tell(&mut self, whole: &Whole, session: SessionId, commands: Vec<Command>) -> bool {
        if !self.wake_up(whole, session) {
            return true;
        }
        self.flush(whole, session);
        self.run_commands(whole, session, commands, Vec::new());
        true
    }

    /// Decides, appends, and asks for the effects, after those that come `before`.
    pub(super) fn run_commands(
        &mut self,
        whole: &Whole,
        session: SessionId,
        commands: Vec<Command>,
        before: Vec<Effect>,
    ) {
        let wanted = commands.iter().find_map(|command| {
            let Command::Admitted { run, .. } = command else { return None };
            Some(RunKey { session, run: *run })
        });
        let Some(decided) = self.decide(session, commands) else { return };
        let Decided { records, births, effects, changes, slot_refused } = decided;
        if let (true, Some(key)) = (slot_refused, wanted) {
            self.release(whole, key);
        }
        self.append(session, &records, &changes);
        self.be_born_all(whole, session, &births);
        self.perform(whole, session, before);
        self.perform(whole, session, effects);
    }

    /// Decides `commands` in one batch; the activation's state is what they leave.
    pub(super) fn decide(&mut self, session: SessionId, commands: Vec<Command>) -> Option<Decided> {
        let active = self.active.get_mut(&session)?;
        let state: &mut State = Arc::make_mut(&mut active.state);
        let before = index::Before::of(state);
        let mut all = Decided::default();
        for command in commands {
            let name = command.name();
            match decide(state, command, Clock::default()) {
                Ok(decision) => {
                    all.records.extend(decision.records);
                    all.births.extend(decision.births);
                    all.effects.extend(decision.effects);
                }
                Err(Rejection::Stale(_)) => all.slot_refused |= name == "admitted",
                Err(Rejection::Busy { .. }) => {}
                Err(rejection @ (Rejection::BadInput(_) | Rejection::NotYet(_) | Rejection::Misplaced { .. })) => {
                    self.wrong = Some(format!("{name} was put to {session}: {rejection}"));
                }
            }
        }
        let stamp = index::Stamp { epoch: active.epoch, ..index::Stamp::default() };
        all.changes = index::changes(&before, state, &all.records, stamp);
        let children = u8::try_from(all.births.len()).unwrap_or(u8::MAX);
        self.left.children = self.left.children.saturating_sub(children);
        Some(all)
    }

    pub(super) fn append(&mut self, session: SessionId, records: &[Record], changes: &Changes) {
        let Some(journal) = self.journals.get_mut(&session) else { return };
        self.touched.insert(session);
        if !records.is_empty() {
            journal.append(records);
        }
        let last = subtend_session::ids::Seq(u64::try_from(journal.records.len()).unwrap_or(u64::MAX));
        for row in &changes.take {
            self.rows.remove(row);
        }
        for row in &changes.put {
            self.rows.insert(*row, last);
        }
    }

    fn be_born_all(&mut self, whole: &Whole, parent: SessionId, births: &[Birth]) {
        for birth in births {
            if self.journals.contains_key(&birth.session) {
                self.wrong = Some(format!("{parent} made {} a second time", birth.session));
                continue;
            }
            self.be_born(whole, birth.session, &birth.records);
        }
    }

    /// A batch that waited is in the log before anything later of its session.
    pub(super) fn flush(&mut self, whole: &Whole, session: SessionId) {
        let late = self.flight.iter().position(|message| {
            let Message::Append(batch) = message else { return false };
            batch.session == session && self.active.get(&session).is_some_and(|active| active.epoch == batch.epoch)
        });
        if let (Some(at), true) = (late, whole.fault.is(Around::CancelNotDurable)) {
            let Message::Append(batch) = self.flight.remove(at) else { return };
            self.append(session, &batch.records, &batch.changes);
        }
    }

    fn late_append(&mut self, whole: &Whole, batch: Batch) {
        let fenced = self.journals.get(&batch.session).is_none_or(|journal| journal.epoch > batch.epoch);
        if !fenced || whole.fault.is(Around::CancelNotDurable) {
            self.append(batch.session, &batch.records, &batch.changes);
        }
    }

    fn panic(&mut self, whole: &Whole, session: SessionId) {
        if let (Some(run), true) = (self.run_in_flight(session), whole.fault.is(Around::SlotLostAtPanic)) {
            self.release(whole, RunKey { session, run });
        }
        self.active.remove(&session);
        // Admission is asked for in the handler; what asked is gone.
        self.flight.retain(|message| !matches!(message, Message::Admit { session: of, .. } if *of == session));
        self.send(Message::Restart(session));
    }

    /// The handler had decided, and its batch was on its way to the log when it panicked; the command is still in its lane.
    fn panic_with_batch(&mut self, whole: &Whole, message: &Message, reply: Reply) -> bool {
        let session = match message {
            Message::Stream { session, .. } => *session,
            Message::Granted { to } => to.session,
            Message::Tool { .. }
            | Message::Admit { .. }
            | Message::Notice { .. }
            | Message::OwnerOver { .. }
            | Message::Restart(_)
            | Message::Append(_) => return false,
        };
        let mut other = self.clone();
        let known = other.journals.get(&session).map_or(0, |journal| journal.records.len());
        other.take(message);
        other.deliver(whole, message.clone(), reply);
        let Some(epoch) = self.active.get(&session).map(|active| active.epoch) else { return false };
        let Some(journal) = other.journals.get(&session) else { return false };
        let records: Vec<Record> = journal.records.iter().skip(known).cloned().collect();
        if records.is_empty() {
            return false;
        }
        self.left.panics = self.left.panics.saturating_sub(1);
        self.panic(whole, session);
        self.send(Message::Append(Box::new(Batch { session, epoch, records, changes: Changes::default() })));
        true
    }
}
