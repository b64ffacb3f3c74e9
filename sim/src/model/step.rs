//! One step: a command is decided, its batch is appended, and its effects are requested.

use std::collections::BTreeSet;
use std::sync::Arc;

use subtend_invariants::bugs::Rules;
use subtend_invariants::observed::Death;
use subtend_session::call::{CallEnd, CallResult};
use subtend_session::command::{
    Answered as ModelAnswer, AttemptFailed, Clock, Command, Deadline, Plan, ResolvedCall, SummarisedHistory, Summary,
    Unsummarised,
};
use subtend_session::compaction;
use subtend_session::effect::{Effect, NewSession, Rejection, Reply as Answered};
use subtend_session::ids::{AttemptNo, CallId, RunKey, SessionId, TurnNo};
use subtend_session::index::{self, Changes};
use subtend_session::outcome::{Initiator, ModelFail, TimeLimit};
use subtend_session::record::{AnsweredBy, AskVerdict, CompactionFailure, Notice, Record, Stop};
use subtend_session::state::State;
use subtend_session::usage::Usage;

use super::action::{Action, FakeReply};
use super::plan::{self, ROOT};
use super::system::{Batch, Dropped, Message, System};
use super::{SystemModel, journal, rows};
use crate::fault::EnvironmentBug;

/// Retry-after of a limit: longer than any turn.
const RESET_MS: u64 = 3_600_000;

pub(super) enum SessionCommand {
    Command(Command),
    /// Ends of children that are taken without the check that follows a command.
    Arrive(Vec<Notice>),
}

#[derive(Default)]
pub(super) struct Decided {
    pub(super) records: Vec<Record>,
    pub(super) new_sessions: Vec<NewSession>,
    pub(super) effects: Vec<Effect>,
    pub(super) changes: Changes,
    /// True if a slot arrived for a run that no longer needs it.
    pub(super) slot_refused: bool,
}

impl System {
    /// Performs `action`. Returns false if it changes nothing.
    pub(super) fn step(&mut self, model: &SystemModel, action: &Action) -> bool {
        self.touched.clear();
        self.answered = Answered::None;
        let happened = match action {
            Action::Deliver(message, reply) => {
                self.remove_message(message);
                self.deliver(model, message.clone(), *reply)
            }
            Action::Send
            | Action::SendTo(_)
            | Action::Branch
            | Action::Regenerate
            | Action::RollBack(_)
            | Action::Serve
            | Action::ServeWith(_)
            | Action::Describe(..)
            | Action::Close(_)
            | Action::Write(..)
            | Action::Move(..)
            | Action::CancelTree
            | Action::Cancel(_)
            | Action::CancelEnded(_)
            | Action::Interrupt(_) => self.step_by_person(model, action),
            Action::Passed(session, deadline) => self.pass_deadline(model, *session, *deadline),
            Action::Again(row) => {
                self.remaining.doubles = self.remaining.doubles.saturating_sub(1);
                let again = rows::message(row);
                again.map(|message| self.send(message)).is_some()
            }
            Action::Panic(session) => {
                self.remaining.panics = self.remaining.panics.saturating_sub(1);
                self.panic(model, *session);
                true
            }
            Action::PanicWithBatch(message, reply) => self.panic_with_batch(model, message, *reply),
            Action::PanicBeforeEffects(message, reply) => {
                self.remaining.half_panics = self.remaining.half_panics.saturating_sub(1);
                self.remove_message(message);
                self.discards_effects = true;
                self.deliver(model, message.clone(), *reply);
                self.discards_effects = false;
                self.panic(model, message.to());
                true
            }
            Action::Crash => {
                self.crash(model);
                true
            }
            Action::Boot(session) => {
                self.boot(model, *session);
                true
            }
        };
        self.answered = Answered::None;
        happened
    }

    fn pass_deadline(&mut self, model: &SystemModel, session: SessionId, deadline: Deadline) -> bool {
        let armed = self.armed.remove(&(session, deadline));
        match deadline {
            // The reset may pass at any time, and its delivery may be repeated.
            Deadline::Limit(_) => self.remaining.doubles = self.remaining.doubles.saturating_sub(u8::from(!armed)),
            Deadline::Run(_)
            | Deadline::Queue(_)
            | Deadline::WallCap(_)
            | Deadline::Turn(_)
            | Deadline::Call(_)
            | Deadline::Grace(_)
            | Deadline::Ask(_) => self.remaining.deadlines = self.remaining.deadlines.saturating_sub(1),
        }
        match deadline {
            Deadline::Run(run) => _ = self.passed.insert((RunKey { session, run }, TimeLimit::Run)),
            Deadline::Queue(run) => _ = self.passed.insert((RunKey { session, run }, TimeLimit::Queue)),
            Deadline::WallCap(run) => _ = self.passed.insert((RunKey { session, run }, TimeLimit::WallCap)),
            Deadline::Turn(_) | Deadline::Call(_) | Deadline::Grace(_) | Deadline::Ask(_) | Deadline::Limit(_) => {}
        }
        self.send_commands(model, session, vec![Command::Deadline(deadline)])
    }

    fn remove_message(&mut self, message: &Message) {
        if let Some(at) = self.flight.iter().position(|other| other == message) {
            self.flight.remove(at);
        }
    }

    fn deliver(&mut self, model: &SystemModel, message: Message, reply: FakeReply) -> bool {
        match message {
            Message::Stream { session, turn, attempt, dropped, .. } => {
                let mut commands = Vec::new();
                if dropped == Some(Dropped::ByToken) {
                    commands.extend(self.cancel_by_owner(model, session));
                }
                if dropped.is_none() && self.waits_for_summary(session) {
                    commands.extend(self.compact(model, session, (turn, attempt), reply));
                } else {
                    commands.push(self.model_command(session, (turn, attempt), dropped, reply));
                }
                self.send_commands(model, session, commands)
            }
            Message::Tool { session, call, dropped, .. } => {
                let end = if dropped.is_some() { CallEnd::Cancelled } else { CallEnd::Ok };
                let result = Box::new(CallResult { end, content: "read".into(), truncated_from: None });
                self.send_commands(model, session, vec![Command::ToolFinished { call, result, worked_ms: 0 }])
            }
            Message::Admit { session, turn, calls } => self.admit(model, session, turn, &calls),
            Message::Granted { to } => self.on_granted(model, to),
            Message::Notice { to, from, key } => {
                let notice = self.notice(from, to, key);
                notice.is_some_and(|notice| self.send_commands(model, to, vec![Command::OwnedEnded(vec![notice])]))
            }
            Message::OwnerRow { to, from, kind, key } => {
                let command = self.command_for_row(to, from, kind, key);
                command.is_some_and(|command| self.send_commands(model, to, vec![command]))
            }
            Message::TreeCancel { to } => self.cancel_tree(model, to),
            Message::Ask { session, call } => {
                let (verdict, by) = match reply {
                    FakeReply::Allow => (AskVerdict::Allow, AnsweredBy::Person),
                    FakeReply::Always => (AskVerdict::Always, AnsweredBy::Person),
                    FakeReply::Deny => (AskVerdict::Deny, AnsweredBy::Person),
                    FakeReply::Plain
                    | FakeReply::Final
                    | FakeReply::Blocking
                    | FakeReply::Background
                    | FakeReply::Continue
                    | FakeReply::ContinueAside
                    | FakeReply::Stop
                    | FakeReply::Read
                    | FakeReply::Write
                    | FakeReply::Overflow
                    | FakeReply::Failed
                    | FakeReply::Limited => (AskVerdict::Deny, AnsweredBy::NoApprover),
                };
                self.send_commands(model, session, vec![Command::AskAnswered { call, verdict, by }])
            }
            Message::OwnerEnded { to, owner, outcome, keeps_queue } => {
                self.send_commands(model, to.session, vec![Command::OwnerEnded { owner, outcome, keeps_queue }])
            }
            Message::Restart(session) => self.send_commands(model, session, Vec::new()),
            Message::Append(batch) => {
                self.late_append(model, *batch);
                true
            }
        }
    }

    fn model_command(
        &mut self,
        session: SessionId,
        (turn, attempt): (TurnNo, AttemptNo),
        dropped: Option<Dropped>,
        reply: FakeReply,
    ) -> Command {
        let call = match reply {
            FakeReply::Plain | FakeReply::Final | FakeReply::Allow | FakeReply::Always | FakeReply::Deny => None,
            FakeReply::Blocking => Some(("task", "blocking".to_owned())),
            FakeReply::Background => Some(("task", "background".to_owned())),
            FakeReply::Continue => Some(("continue", "blocking".to_owned())),
            FakeReply::ContinueAside => Some(("continue", "background".to_owned())),
            FakeReply::Stop => {
                self.remaining.stops = self.remaining.stops.saturating_sub(1);
                let child = self.active.get(&session).and_then(|active| plan::first_child(&active.state));
                Some(("cancel", child.map(|child| child.to_string()).unwrap_or_default()))
            }
            FakeReply::Read => {
                self.remaining.tools = self.remaining.tools.saturating_sub(1);
                Some(("read", "{}".to_owned()))
            }
            FakeReply::Write => {
                self.remaining.asks = self.remaining.asks.saturating_sub(1);
                Some(("write", "{}".to_owned()))
            }
            FakeReply::Failed => {
                if dropped.is_none() {
                    self.remaining.failures = self.remaining.failures.saturating_sub(1);
                }
                return failed(turn, attempt, ModelFail::Unavailable, None);
            }
            FakeReply::Overflow => {
                self.remaining.overflows = self.remaining.overflows.saturating_sub(1);
                return failed(turn, attempt, ModelFail::ContextOverflow, None);
            }
            FakeReply::Limited => {
                self.remaining.limits = self.remaining.limits.saturating_sub(1);
                return failed(turn, attempt, ModelFail::Rate, Some(RESET_MS));
            }
        };
        let state = self.active.get(&session).map(|active| &active.state);
        let calls: Vec<ResolvedCall> =
            state.into_iter().zip(call).map(|(state, (tool, args))| plan::resolve_call(state, tool, &args)).collect();
        // The root and other sessions answer with different texts, so that a mix-up shows.
        let done = if session == ROOT { "done" } else { "done elsewhere" };
        let (text, stop) = if calls.is_empty() { (Some(done.into()), Stop::End) } else { (None, Stop::Calls) };
        let usage = Usage::default();
        Command::ModelAnswered(Box::new(ModelAnswer {
            turn,
            attempt,
            text,
            reasoning: None,
            calls,
            stop,
            model: None,
            usage,
            queued_ms: 0,
        }))
    }

    /// Returns the commands of the compaction that the attempt waits for: the creation of the service, and the summary.
    fn compact(&self, model: &SystemModel, of: SessionId, at: (TurnNo, AttemptNo), reply: FakeReply) -> Vec<Command> {
        let plan = self.active.get(&of).and_then(|active| compaction::plan(&active.state));
        let Some(plan) = plan else { return vec![failed(at.0, at.1, ModelFail::Dropped, None)] };
        let creation = plan::compaction_service(model, of, at);
        let result = if reply == FakeReply::Failed {
            Err(Unsummarised { why: CompactionFailure::Agent, message: "no summary".into(), of: None, reset: None })
        } else {
            Ok(Summary { text: "done".into(), of: creation.child })
        };
        let compact = SummarisedHistory { turn: Some(at), by: Initiator::Host, plan, result };
        vec![Command::Branch(Box::new(creation)), Command::Compact(Box::new(compact))]
    }

    /// Returns the owner's cancel for the run of `session`. It arrives before the ends of the work that the token stopped.
    fn cancel_by_owner(&self, model: &SystemModel, session: SessionId) -> Option<Command> {
        let run = self.active.get(&session)?.state.run.as_ref()?;
        let owner = journal::owner_of(&run.opened)?;
        Some(self.command_from_owner(model, owner, RunKey { session, run: run.no }))
    }

    fn admit(&mut self, model: &SystemModel, session: SessionId, turn: TurnNo, calls: &[u32]) -> bool {
        if !self.wake_up(model, session) {
            return true;
        }
        let Some(active) = self.active.get(&session) else { return false };
        let mut remaining = (self.remaining.children, self.remaining.continues);
        let verdicts = calls.iter().map(|ix| {
            let verdict = plan::verdict(model, &active.state, CallId { turn, ix: *ix }, remaining);
            match &verdict.verdict {
                Ok(Plan::Child(_)) => remaining.0 = remaining.0.saturating_sub(1),
                Ok(Plan::Continue(_)) => remaining.1 = remaining.1.saturating_sub(1),
                Err(_) => {}
            }
            verdict
        });
        let command = Command::Spawn { turn, verdicts: verdicts.collect() };
        self.send_commands(model, session, vec![command])
    }

    fn on_granted(&mut self, model: &SystemModel, to: RunKey) -> bool {
        if !self.wake_up(model, to.session) {
            return true;
        }
        let owner_ended = self.ended_owner_outcome(to);
        let owner_end = self.queue_kept_cancel(to);
        // The owner may have cancelled this run individually, by a command that is still in flight. Then that is the cause.
        let alone = self.single.get(&to).and_then(|_| self.cancel_by_owner(model, to.session));
        let admitted = Command::Admitted { run: to.run, owner_ended };
        self.send_commands(model, to.session, alone.into_iter().chain(owner_end).chain([admitted]).collect());
        let works = self.active.get(&to.session).and_then(|active| active.state.run.as_ref());
        if owner_ended.is_some() && works.is_some_and(|run| run.no == to.run && run.slot) {
            // The run started work although its token had fired.
            self.late.insert(to);
        }
        true
    }

    /// Sends `commands` to a session, after activating it if needed. Returns false if nothing changed.
    pub(super) fn send_commands(&mut self, model: &SystemModel, session: SessionId, commands: Vec<Command>) -> bool {
        // A queued command keeps the session in memory.
        self.addressed = Some(session);
        let woken = self.wake_up(model, session);
        self.addressed = None;
        if !woken {
            return true;
        }
        self.flush(model, session);
        self.run_commands(model, session, commands.into_iter().map(SessionCommand::Command).collect());
        true
    }

    /// Decides the commands, appends the records, and requests the effects.
    pub(super) fn run_commands(&mut self, model: &SystemModel, session: SessionId, commands: Vec<SessionCommand>) {
        let wanted = commands.iter().find_map(|word| {
            let SessionCommand::Command(Command::Admitted { run, .. }) = word else { return None };
            Some(RunKey { session, run: *run })
        });
        let Some(decided) = self.decide(model.fault.rules(), session, commands) else { return };
        let Decided { records, new_sessions, effects, changes, slot_refused } = decided;
        if let (true, Some(key)) = (slot_refused, wanted) {
            self.release(model, key);
        }
        self.append(session, &records, &changes);
        self.create_children(session, &new_sessions);
        self.perform(model, session, effects);
    }

    /// Decides the commands in one batch, and keeps the resulting state.
    pub(super) fn decide(&mut self, rules: Rules, session: SessionId, batch: Vec<SessionCommand>) -> Option<Decided> {
        let active = self.active.get_mut(&session)?;
        let state: &mut State = Arc::make_mut(&mut active.state);
        let before = index::Before::of(state);
        let mut all = Decided::default();
        for word in batch {
            let (name, decided) = match word {
                SessionCommand::Arrive(notices) => ("arrive", Ok(rules.arrive(state, notices, Clock::default()))),
                SessionCommand::Command(command) => {
                    let late = Clock { wall_ms: i64::MAX, ..Clock::default() };
                    let reset = matches!(command, Command::Deadline(Deadline::Limit(_)));
                    let clock = if reset { late } else { Clock::default() };
                    (command.name(), rules.decide(state, command, clock))
                }
            };
            match decided {
                Ok(decision) => {
                    all.records.extend(decision.records);
                    all.new_sessions.extend(decision.new_sessions);
                    all.effects.extend(decision.effects);
                    self.answered = decision.reply;
                }
                Err(Rejection::Stale(_)) => all.slot_refused |= name == "admitted",
                // An earlier command may have opened a run, and the receiver of a message may have ended its run.
                Err(
                    Rejection::Busy { .. }
                    | Rejection::Working { .. }
                    | Rejection::Waiting { .. }
                    | Rejection::Misplaced { command: "message", .. },
                ) => {}
                Err(
                    rejection @ (Rejection::BadInput(_)
                    | Rejection::Deleted
                    | Rejection::NotFound(_)
                    | Rejection::NotYet(_)
                    | Rejection::Misplaced { .. }),
                ) => {
                    self.wrong = Some(format!("{session} rejects {name}: {rejection}"));
                }
            }
        }
        let stamp = index::Stamp { epoch: active.epoch, ..index::Stamp::default() };
        all.changes = rules.changes(&before, state, &all.records, stamp);
        let count = |is: fn(&Record) -> bool| {
            u8::try_from(all.records.iter().filter(|record| is(record)).count()).unwrap_or(u8::MAX)
        };
        let spawned = count(|record| matches!(record, Record::ChildSpawned(_)));
        self.remaining.children = self.remaining.children.saturating_sub(spawned);
        let request_count = count(|record| matches!(record, Record::ContinueAsked(_)));
        self.remaining.continues = self.remaining.continues.saturating_sub(request_count);
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

    pub(super) fn create_children(&mut self, parent: SessionId, new_sessions: &[NewSession]) {
        for creation in new_sessions {
            if self.journals.contains_key(&creation.session) {
                self.wrong = Some(format!("{parent} created {} a second time", creation.session));
                continue;
            }
            self.create_session(creation.session, &creation.records);
        }
    }

    /// Appends a delayed batch before any later batch of its session.
    pub(super) fn flush(&mut self, model: &SystemModel, session: SessionId) {
        let late = self.flight.iter().position(|message| {
            let Message::Append(batch) = message else { return false };
            batch.session == session && self.active.get(&session).is_some_and(|active| active.epoch == batch.epoch)
        });
        if let (Some(at), true) = (late, model.fault.is(EnvironmentBug::CancelNotDurable)) {
            let Message::Append(batch) = self.flight.remove(at) else { return };
            self.append(session, &batch.records, &batch.changes);
        }
    }

    fn late_append(&mut self, model: &SystemModel, batch: Batch) {
        let fenced = self.journals.get(&batch.session).is_none_or(|journal| journal.epoch > batch.epoch);
        if !fenced || model.fault.is(EnvironmentBug::CancelNotDurable) {
            self.append(batch.session, &batch.records, &batch.changes);
        }
    }

    fn panic(&mut self, model: &SystemModel, session: SessionId) {
        if let (Some(run), true) = (self.run_in_flight(session), model.fault.is(EnvironmentBug::SlotLostAtPanic)) {
            self.release(model, RunKey { session, run });
        }
        let before: BTreeSet<SessionId> = self.active.keys().copied().filter(|other| *other != session).collect();
        self.active.remove(&session);
        let took = before.into_iter().filter(|other| !self.active.contains_key(other)).collect();
        self.deaths.push(Death { session, at: self.now(), command: None, took });
        // The handler requests admission, so its request is lost with the panic.
        self.flight.retain(|message| !matches!(message, Message::Admit { session: of, .. } if *of == session));
        self.send(Message::Restart(session));
    }

    /// Panics in a handler after the decision, while the batch is not yet in the log and the command is still queued.
    fn panic_with_batch(&mut self, model: &SystemModel, message: &Message, reply: FakeReply) -> bool {
        let session = match message {
            Message::Stream { session, .. } => *session,
            Message::Granted { to } => to.session,
            Message::Tool { .. }
            | Message::Admit { .. }
            | Message::Notice { .. }
            | Message::OwnerRow { .. }
            | Message::TreeCancel { .. }
            | Message::Ask { .. }
            | Message::OwnerEnded { .. }
            | Message::Restart(_)
            | Message::Append(_) => return false,
        };
        let mut other = self.clone();
        let known = other.journals.get(&session).map_or(0, |journal| journal.records.len());
        other.remove_message(message);
        other.deliver(model, message.clone(), reply);
        let Some(epoch) = self.active.get(&session).map(|active| active.epoch) else { return false };
        let Some(journal) = other.journals.get(&session) else { return false };
        let records: Vec<Record> = journal.records.iter().skip(known).cloned().collect();
        if records.is_empty() {
            return false;
        }
        self.remaining.panics = self.remaining.panics.saturating_sub(1);
        self.panic(model, session);
        self.send(Message::Append(Box::new(Batch { session, epoch, records, changes: Changes::default() })));
        true
    }
}

fn failed(turn: TurnNo, attempt: AttemptNo, error: ModelFail, retry_after_ms: Option<u64>) -> Command {
    Command::AttemptFailed(Box::new(AttemptFailed {
        turn,
        attempt,
        error,
        message: "no answer".into(),
        retry_after_ms,
        model: None,
        next: None,
        resets: Vec::new(),
        usage: None,
        queued_ms: 0,
    }))
}
