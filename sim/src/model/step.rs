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
use subtend_session::outcome::{By, ModelFail, TimeLimit};
use subtend_session::record::{AskBy, AskVerdict, CompactionFailure, Notice, Record, Stop};
use subtend_session::state::State;
use subtend_session::usage::Usage;

use super::action::{Action, FakeReply};
use super::plan::{self, ROOT};
use super::system::{Batch, Dropped, Message, System};
use super::{Whole, journal, rows};
use crate::fault::Around;

/// The wait of a limit: beyond any turn.
const RESET_MS: u64 = 3_600_000;

pub(super) enum SessionCommand {
    Command(Command),
    /// Ends, without the check that follows one.
    Arrive(Vec<Notice>),
}

#[derive(Default)]
pub(super) struct Decided {
    pub(super) records: Vec<Record>,
    pub(super) new_sessions: Vec<NewSession>,
    pub(super) effects: Vec<Effect>,
    pub(super) changes: Changes,
    /// A slot arrived for a run that no longer needs it.
    pub(super) slot_refused: bool,
}

impl System {
    /// Performs `action`; false if it changes nothing.
    pub(super) fn step(&mut self, whole: &Whole, action: &Action) -> bool {
        self.touched.clear();
        self.answered = Answered::None;
        let happened = match action {
            Action::Deliver(message, reply) => {
                self.take(message);
                self.deliver(whole, message.clone(), *reply)
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
            | Action::Interrupt(_) => self.by_person(whole, action),
            Action::Passed(session, deadline) => self.pass(whole, *session, *deadline),
            Action::Again(row) => {
                self.left.doubles = self.left.doubles.saturating_sub(1);
                let again = rows::message(row);
                again.map(|message| self.send(message)).is_some()
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
        };
        self.answered = Answered::None;
        happened
    }

    fn pass(&mut self, whole: &Whole, session: SessionId, deadline: Deadline) -> bool {
        let armed = self.armed.remove(&(session, deadline));
        match deadline {
            // The reset may always pass, and a second time if its delivery is repeated.
            Deadline::Limit(_) => self.left.doubles = self.left.doubles.saturating_sub(u8::from(!armed)),
            Deadline::Run(_)
            | Deadline::Queue(_)
            | Deadline::WallCap(_)
            | Deadline::Turn(_)
            | Deadline::Call(_)
            | Deadline::Grace(_)
            | Deadline::Ask(_) => self.left.deadlines = self.left.deadlines.saturating_sub(1),
        }
        match deadline {
            Deadline::Run(run) => _ = self.passed.insert((RunKey { session, run }, TimeLimit::Run)),
            Deadline::Queue(run) => _ = self.passed.insert((RunKey { session, run }, TimeLimit::Queue)),
            Deadline::WallCap(run) => _ = self.passed.insert((RunKey { session, run }, TimeLimit::WallCap)),
            Deadline::Turn(_) | Deadline::Call(_) | Deadline::Grace(_) | Deadline::Ask(_) | Deadline::Limit(_) => {}
        }
        self.tell(whole, session, vec![Command::Deadline(deadline)])
    }

    fn take(&mut self, message: &Message) {
        if let Some(at) = self.flight.iter().position(|other| other == message) {
            self.flight.remove(at);
        }
    }

    fn deliver(&mut self, whole: &Whole, message: Message, reply: FakeReply) -> bool {
        match message {
            Message::Stream { session, turn, attempt, dropped, .. } => {
                let mut commands = Vec::new();
                if dropped == Some(Dropped::Token) {
                    commands.extend(self.cancel_by_owner(whole, session));
                }
                if dropped.is_none() && self.compacts(session) {
                    commands.extend(self.summarised(whole, session, (turn, attempt), reply));
                } else {
                    commands.push(self.describe(session, (turn, attempt), dropped, reply));
                }
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
                let notice = self.notice(from, to, key);
                notice.is_some_and(|notice| self.tell(whole, to, vec![Command::OwnedEnded(vec![notice])]))
            }
            Message::Asked { to, from, kind, key } => {
                let command = self.command_for_row(to, from, kind, key);
                command.is_some_and(|command| self.tell(whole, to, vec![command]))
            }
            Message::TreeCancel { to } => self.tree_cancel(whole, to),
            Message::Ask { session, call } => {
                let (verdict, by) = match reply {
                    FakeReply::Allow => (AskVerdict::Allow, AskBy::Person),
                    FakeReply::Always => (AskVerdict::Always, AskBy::Person),
                    FakeReply::Deny => (AskVerdict::Deny, AskBy::Person),
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
                    | FakeReply::Limited => (AskVerdict::Deny, AskBy::NoApprover),
                };
                self.tell(whole, session, vec![Command::AskAnswered { call, verdict, by }])
            }
            Message::OwnerEnded { to, owner, outcome, queue_stands } => {
                self.tell(whole, to.session, vec![Command::OwnerEnded { owner, outcome, queue_stands }])
            }
            Message::Restart(session) => self.tell(whole, session, Vec::new()),
            Message::Append(batch) => {
                self.late_append(whole, *batch);
                true
            }
        }
    }

    fn describe(
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
                self.left.stops = self.left.stops.saturating_sub(1);
                let child = self.active.get(&session).and_then(|active| plan::eldest(&active.state));
                Some(("cancel", child.map(|child| child.to_string()).unwrap_or_default()))
            }
            FakeReply::Read => {
                self.left.tools = self.left.tools.saturating_sub(1);
                Some(("read", "{}".to_owned()))
            }
            FakeReply::Write => {
                self.left.asks = self.left.asks.saturating_sub(1);
                Some(("write", "{}".to_owned()))
            }
            FakeReply::Failed => {
                if dropped.is_none() {
                    self.left.failures = self.left.failures.saturating_sub(1);
                }
                return failed(turn, attempt, ModelFail::Unavailable, None);
            }
            FakeReply::Overflow => {
                self.left.overflows = self.left.overflows.saturating_sub(1);
                return failed(turn, attempt, ModelFail::ContextOverflow, None);
            }
            FakeReply::Limited => {
                self.left.limits = self.left.limits.saturating_sub(1);
                return failed(turn, attempt, ModelFail::Rate, Some(RESET_MS));
            }
        };
        let state = self.active.get(&session).map(|active| &active.state);
        let calls: Vec<ResolvedCall> =
            state.into_iter().zip(call).map(|(state, (tool, args))| plan::resolved_call(state, tool, &args)).collect();
        // The root and the other sessions answer with different texts.
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
        }))
    }

    /// Returns the commands of the compaction that the attempt waits for: the birth of its service, and the summary.
    fn summarised(&self, whole: &Whole, session: SessionId, at: (TurnNo, AttemptNo), reply: FakeReply) -> Vec<Command> {
        let plan = self.active.get(&session).and_then(|active| compaction::plan(&active.state));
        let Some(plan) = plan else { return vec![failed(at.0, at.1, ModelFail::Dropped, None)] };
        let birth = plan::condenser(whole, session, at);
        let result = if reply == FakeReply::Failed {
            Err(Unsummarised { why: CompactionFailure::Agent, message: "no summary".into(), of: None })
        } else {
            Ok(Summary { text: "done".into(), of: birth.child })
        };
        let compact = SummarisedHistory { turn: Some(at), by: By::Host, plan, result };
        vec![Command::Branch(Box::new(birth)), Command::Compact(Box::new(compact))]
    }

    /// Returns the owner's cancel for the run of `session`, which is handled before the ends of the work that its token stopped.
    fn cancel_by_owner(&self, whole: &Whole, session: SessionId) -> Option<Command> {
        let run = self.active.get(&session)?.state.run.as_ref()?;
        let owner = journal::owner_of(&run.opened)?;
        Some(self.word_from_above(whole, owner, RunKey { session, run: run.no }))
    }

    fn admit(&mut self, whole: &Whole, session: SessionId, turn: TurnNo, calls: &[u32]) -> bool {
        if !self.wake_up(whole, session) {
            return true;
        }
        let Some(active) = self.active.get(&session) else { return false };
        let mut left = (self.left.children, self.left.continues);
        let verdicts = calls.iter().map(|ix| {
            let verdict = plan::verdict(whole, &active.state, CallId { turn, ix: *ix }, left);
            match &verdict.verdict {
                Ok(Plan::Child(_)) => left.0 = left.0.saturating_sub(1),
                Ok(Plan::Continue(_)) => left.1 = left.1.saturating_sub(1),
                Err(_) => {}
            }
            verdict
        });
        let command = Command::Spawn { turn, verdicts: verdicts.collect() };
        self.tell(whole, session, vec![command])
    }

    fn granted(&mut self, whole: &Whole, to: RunKey) -> bool {
        if !self.wake_up(whole, to.session) {
            return true;
        }
        let owner_ended = self.owner_ended(to);
        let stands = self.queue_kept_cancel(to);
        // An owner that cancels this run alone is the cause; its command may still be on its way.
        let alone = self.single.get(&to).and_then(|_| self.cancel_by_owner(whole, to.session));
        let admitted = Command::Admitted { run: to.run, owner_ended };
        self.tell(whole, to.session, alone.into_iter().chain(stands).chain([admitted]).collect());
        let works = self.active.get(&to.session).and_then(|active| active.state.run.as_ref());
        if owner_ended.is_some() && works.is_some_and(|run| run.no == to.run && run.slot) {
            // It starts work although it was notified of its owner's end.
            self.late.insert(to);
        }
        true
    }

    /// Sends `commands` to a session, after activating it if needed; false if nothing changed.
    pub(super) fn tell(&mut self, whole: &Whole, session: SessionId, commands: Vec<Command>) -> bool {
        // A queued command keeps the session in memory.
        self.addressed = Some(session);
        let woken = self.wake_up(whole, session);
        self.addressed = None;
        if !woken {
            return true;
        }
        self.flush(whole, session);
        self.run_commands(whole, session, commands.into_iter().map(SessionCommand::Command).collect());
        true
    }

    /// Decides, appends, and requests the effects.
    pub(super) fn run_commands(&mut self, whole: &Whole, session: SessionId, commands: Vec<SessionCommand>) {
        let wanted = commands.iter().find_map(|word| {
            let SessionCommand::Command(Command::Admitted { run, .. }) = word else { return None };
            Some(RunKey { session, run: *run })
        });
        let Some(decided) = self.decide(whole.fault.rules(), session, commands) else { return };
        let Decided { records, new_sessions, effects, changes, slot_refused } = decided;
        if let (true, Some(key)) = (slot_refused, wanted) {
            self.release(whole, key);
        }
        self.append(session, &records, &changes);
        self.be_born_all(session, &new_sessions);
        self.perform(whole, session, effects);
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
                // An earlier command may have opened a run, and the receiver of a message may have ended its own.
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
                    self.wrong = Some(format!("{name} was put to {session}: {rejection}"));
                }
            }
        }
        let stamp = index::Stamp { epoch: active.epoch, ..index::Stamp::default() };
        all.changes = rules.changes(&before, state, &all.records, stamp);
        let count = |is: fn(&Record) -> bool| {
            u8::try_from(all.records.iter().filter(|record| is(record)).count()).unwrap_or(u8::MAX)
        };
        let spawned = count(|record| matches!(record, Record::ChildSpawned(_)));
        self.left.children = self.left.children.saturating_sub(spawned);
        let request_count = count(|record| matches!(record, Record::ContinueAsked(_)));
        self.left.continues = self.left.continues.saturating_sub(request_count);
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

    pub(super) fn be_born_all(&mut self, parent: SessionId, new_sessions: &[NewSession]) {
        for birth in new_sessions {
            if self.journals.contains_key(&birth.session) {
                self.wrong = Some(format!("{parent} made {} a second time", birth.session));
                continue;
            }
            self.be_born(birth.session, &birth.records);
        }
    }

    /// Appends a delayed batch before anything later of its session.
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
        let before: BTreeSet<SessionId> = self.active.keys().copied().filter(|other| *other != session).collect();
        self.active.remove(&session);
        let took = before.into_iter().filter(|other| !self.active.contains_key(other)).collect();
        self.deaths.push(Death { session, at: self.now(), command: None, took });
        // Admission is requested in the handler, whose request is lost.
        self.flight.retain(|message| !matches!(message, Message::Admit { session: of, .. } if *of == session));
        self.send(Message::Restart(session));
    }

    /// The handler panics after its decision, with the batch on the way to the log and the command still queued.
    fn panic_with_batch(&mut self, whole: &Whole, message: &Message, reply: FakeReply) -> bool {
        let session = match message {
            Message::Stream { session, .. } => *session,
            Message::Granted { to } => to.session,
            Message::Tool { .. }
            | Message::Admit { .. }
            | Message::Notice { .. }
            | Message::Asked { .. }
            | Message::TreeCancel { .. }
            | Message::Ask { .. }
            | Message::OwnerEnded { .. }
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

fn failed(turn: TurnNo, attempt: AttemptNo, error: ModelFail, retry_after_ms: Option<u64>) -> Command {
    Command::AttemptFailed(Box::new(AttemptFailed {
        turn,
        attempt,
        error,
        message: "no answer".into(),
        retry_after_ms,
        model: None,
        next: None,
        usage: None,
    }))
}
