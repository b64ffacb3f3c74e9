//! The interactive conversation: one loop over keys, events and questions.

use std::collections::BTreeSet;
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use subtend_actors::QueueEntry;
use subtend_actors::event::{Event, EventKind, Next};
use subtend_agents::slash::SlashCommands;
use subtend_journal::Journal;
use subtend_session::ids::{Seq, SessionId};
use subtend_session::outcome::Outcome;
use subtend_session::record::{AskVerdict, Record};
use subtend_session::usage::Usage;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::super::answers::{Controlled, Removed, Switched};
use super::super::cause;
use super::super::fail::{Code, Fail};
use super::super::paint::{clip, count, harmless, in_flight};
use super::super::queue;
use super::super::work::approve::{OpenQuestion, ReplacedQuestion, WaitingCalls, verdict};
use super::super::work::source::{EventSource, Since};
use super::super::work::{Accepted, Work, slash};
use super::command::{ChatCommand, ChatLine, HELP, parse};
use super::condensing::Condensing;
use super::earlier;
use super::lines::{LineEditor, TerminalInput};
use super::read_positions::{ReadPositions, active, ends};

/// Usage of the session and of its descendants.
#[derive(Deserialize)]
struct UsageReply {
    own: Usage,
    tree: Usage,
}

const FRAME_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for cancelled runs to end when the user leaves.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct Conversation<'a, 'b> {
    work: &'a mut Work<'b>,
    session: SessionId,
    root: SessionId,
    /// The alternative in which the last answer is being regenerated.
    regenerating: Option<SessionId>,
    events: EventSource,
    /// Last shown record of each session.
    positions: ReadPositions,
    /// The open question of an agent; the next line answers it.
    question: Option<OpenQuestion>,
    replaced: ReplacedQuestion,
    /// Calls that may be waiting for an approval.
    waiting: WaitingCalls,
    lines: LineEditor,
    /// Sessions of the tree with a run in flight.
    active: BTreeSet<SessionId>,
    /// The agent that answers from the next line on.
    agent: Option<String>,
    commands: SlashCommands,
    condensing: Condensing,
    /// True if the host may have new warnings.
    may_warn: bool,
}

/// The loop's next step: continue or leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Continue,
    Leave(Code),
}

impl<'a, 'b> Conversation<'a, 'b> {
    /// Puts the terminal into raw mode and shows the earlier conversation.
    pub(super) async fn begin(
        work: &'a mut Work<'b>,
        commands: SlashCommands,
        (session, since): (SessionId, Since),
    ) -> Result<Self, Fail> {
        let (root, agent) = (work.root_of(session)?, work.agent_of(session)?);
        let events = work.events(since, root).await?;
        work.settled().await?;
        // A session that was opened by this command has no earlier records.
        let (positions, missed) = match work.before {
            Seq(0) => (ReadPositions::default(), Vec::new()),
            before => work.read(|journal| ReadPositions::read(journal, session, before))?,
        };
        let active = active(&work.read(|journal| journal.inflight())?, session);
        // Enter raw mode before printing, because the user may type as soon as text appears.
        let lines = LineEditor::open().map_err(|error| Fail::Other(format!("the terminal cannot be used: {error}")))?;
        work.screen.prompt(Some(("", 0)));
        let (tools, before) = (work.screen.tools().clone(), work.before);
        let earlier = work.read(|journal| earlier::read(journal, session, before, &tools))?;
        earlier.iter().for_each(|text| work.screen.note(text));
        work.screen.watch(session, agent);
        work.screen.show_answers_of(session);
        work.screen.note(&format!("session {session} · /help lists the commands"));
        let left = work.resuming_run.filter(|run| !missed.iter().any(|event| ends(event, session, *run)));
        if let Some(run) = left {
            work.screen.note(&match work.is_own() {
                true => format!("resuming run {run} of an earlier process"),
                false => format!("run {run} is in flight in the process that hosts the store"),
            });
        }
        let (regenerating, question, agent) = (None, None, None);
        // In an existing session, a call may already wait for an approval.
        let waiting = WaitingCalls::new(work.before != Seq(0));
        let mut talk = Self {
            work,
            session,
            root,
            regenerating,
            events,
            positions,
            question,
            replaced: ReplacedQuestion::default(),
            waiting,
            lines,
            active,
            agent,
            commands,
            condensing: Condensing::default(),
            may_warn: true,
        };
        missed.iter().for_each(|event| talk.take(event));
        Ok(talk)
    }

    pub(super) async fn run(mut self) -> Result<Code, Fail> {
        let mut frames = interval(FRAME_INTERVAL);
        frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // Exit code and deadline, once the user is leaving.
        let mut leaving: Option<(Code, Instant)> = None;
        let mut is_hosted = true;
        let code = loop {
            self.next_question().await;
            if std::mem::take(&mut self.may_warn) {
                self.work.warn_of_host_servers(self.session).await;
            }
            let on = tokio::select! {
                biased;
                () = self.work.stop.requested(), if leaving.is_none() => Flow::Leave(Code::Cancelled),
                key = self.lines.next() => self.key(key).await,
                done = self.condensing.wait() => {
                    let done = done.map(|sentence| self.work.screen.note(&sentence));
                    self.report(done)
                }
                // Events come first, so that an answer with a call is shown before the question about the call.
                next = self.events.next(), if is_hosted => match next? {
                    Some(received) => self.receive(received.next.as_ref()),
                    None => {
                        is_hosted = false;
                        Flow::Leave(Code::Store)
                    }
                },
                _ = frames.tick() => Flow::Continue,
            };
            self.work.draw(self.lines.value_and_cursor(), self.question.is_some());
            match (on, leaving) {
                (Flow::Leave(code), None) => {
                    self.cancel_all().await;
                    leaving = Some((code, Instant::now() + LEAVE_TIMEOUT));
                }
                (Flow::Leave(_), Some((code, _))) => break code,
                (Flow::Continue, _) => {}
            }
            if let Some((code, until)) = leaving
                && (!self.work.is_own() || self.active.is_empty() || Instant::now() >= until)
            {
                break code;
            }
        };
        let Self { work, lines, .. } = self;
        work.screen.prompt(None);
        // The last drawing needs the terminal in its normal mode.
        drop(lines);
        work.screen.close();
        if !is_hosted {
            work.screen.alert("the process that hosts the store ended, so the conversation ends");
        }
        Ok(code)
    }

    /// Cancels active runs if this process hosts them; without a cancel, they would end as lost.
    async fn cancel_all(&mut self) {
        if self.active.is_empty() {
            return;
        }
        if !self.work.is_own() {
            self.work.screen.note("the runs in flight continue in the process that hosts the store");
            return;
        }
        self.work.screen.alert("leaving: cancelling active runs; Ctrl-C leaves at once");
        let cancelled = self.control::<Value>(Method::POST, "/cancel?tree=true").await.map(drop);
        self.report(cancelled);
    }

    /// Sends a command without a body to the session.
    async fn control<T: for<'c> Deserialize<'c>>(&mut self, method: Method, what: &str) -> Result<T, Fail> {
        let path = format!("/v1/sessions/{}{what}", self.session);
        self.work.call(method, &path, None).await
    }

    fn is_active(&self) -> bool {
        self.active.contains(&self.session)
    }

    fn regenerating_branch(&self) -> Option<SessionId> {
        self.regenerating.filter(|alternative| self.active.contains(alternative))
    }

    async fn key(&mut self, key: TerminalInput) -> Flow {
        match key {
            TerminalInput::Changed => Flow::Continue,
            // Commands work while a question is open.
            TerminalInput::Line(line) => match self.question.take_if(|_| !line.trim_start().starts_with('/')) {
                Some(question) => self.answer(question, &line).await,
                None => self.line(line).await,
            },
            TerminalInput::Escape => self.act(ChatCommand::Interrupt).await,
            TerminalInput::Break if self.is_active() || self.regenerating_branch().is_some() => {
                self.act(ChatCommand::Cancel).await
            }
            TerminalInput::Break if self.lines.clear() => Flow::Continue,
            TerminalInput::Break | TerminalInput::End => Flow::Leave(Code::Done),
        }
    }

    async fn next_question(&mut self) {
        if self.question.is_some() || !self.waiting.may_wait() {
            return;
        }
        match self.work.waiting_call(self.root, &mut self.waiting).await {
            Ok(Some(question)) => self.ask(question).await,
            Ok(None) => {}
            Err(fail) => {
                // Retried at the next event.
                self.waiting = WaitingCalls::new(false);
                self.work.screen.alert(&harmless(&fail.to_string()));
            }
        }
    }

    async fn ask(&mut self, question: OpenQuestion) {
        self.lines.set_aside().await;
        self.work.screen.alert(&question.question);
        self.replaced.open();
        self.question = Some(question);
    }

    async fn answer(&mut self, question: OpenQuestion, line: &str) -> Flow {
        let is_taken = |verdict: &AskVerdict| !question.refuses(*verdict) && !self.replaced.refuses(*verdict);
        let Some(verdict) = verdict(line).filter(is_taken) else {
            self.ask(question).await;
            return Flow::Continue;
        };
        let body = question.body(verdict);
        let answered = self.work.call::<Value>(Method::POST, &question.path(), Some(&body)).await;
        self.report(answered.map(drop))
    }

    async fn line(&mut self, typed: String) -> Flow {
        match parse(&typed) {
            ChatLine::Empty => Flow::Continue,
            ChatLine::Unknown(command) => {
                match slash::expand(&self.commands, &format!("/{command}"), self.work.screen) {
                    Some(Ok(text)) => self.send(text, self.is_active(), typed).await,
                    Some(Err(fail)) => self.report(Err(fail)),
                    None => {
                        let name = command.split_whitespace().next().unwrap_or_default();
                        let hint = self.commands.suggestion(name);
                        self.work.screen.alert(&format!("unknown command /{}: {hint}/help lists all", clip(name, 40)));
                        Flow::Continue
                    }
                }
            }
            ChatLine::Agent(name) => self.pick_agent(name).await,
            ChatLine::Send(text) => self.say(text, self.is_active(), typed).await,
            ChatLine::Queue(text) => self.say(text, false, typed).await,
            ChatLine::Command(word) => self.act(word).await,
        }
    }

    /// Sends a text. If a pasted or queued text names a slash command, sends the command's prompt instead.
    async fn say(&mut self, text: String, steer: bool, typed: String) -> Flow {
        match slash::expand(&self.commands, &text, self.work.screen).transpose() {
            Err(fail) => self.report(Err(fail)),
            Ok(expanded) => self.send(expanded.unwrap_or(text), steer, typed).await,
        }
    }

    async fn pick_agent(&mut self, name: String) -> Flow {
        #[derive(Deserialize)]
        struct PickableAgent {
            name: String,
            pickable: bool,
        }
        let known: Vec<PickableAgent> = match self.work.call(Method::GET, "/v1/agents", None).await {
            Ok(known) => known,
            Err(fail) => return self.report(Err(fail)),
        };
        let known: Vec<_> = known.into_iter().filter(|agent| agent.pickable).map(|agent| agent.name).collect();
        let name_shown = clip(&name, 40);
        if known.contains(&name) {
            self.work.screen.note(&format!("{name_shown} answers from the next line on"));
            self.agent = Some(name);
        } else {
            let known = known.join(", ");
            self.work.screen.alert(&format!("unknown agent {name_shown}; agents that can answer: {known}"));
        }
        Flow::Continue
    }

    /// Sends a text. If the host refuses it, the typed line is restored.
    async fn send(&mut self, text: String, steer: bool, typed: String) -> Flow {
        // A run that starts now would not see the answer in progress.
        if self.regenerating_branch().is_some() {
            self.work.screen.alert("an answer is being regenerated: wait until it is complete, or /cancel it (Ctrl-C)");
            self.lines.put_back(typed);
            return Flow::Continue;
        }
        let lane = if steer { "steer" } else { "send" };
        let body = json!({"text": text, "lane": lane, "agent": self.agent});
        match self.work.create::<Value>(&format!("/v1/sessions/{}/inputs", self.session), &body).await {
            Ok(_) => {
                self.work.screen.note(&earlier::message(&text));
                self.agent = None;
                self.active.insert(self.session);
                Flow::Continue
            }
            Err(fail) => {
                self.lines.put_back(typed);
                self.report(Err(fail))
            }
        }
    }

    async fn act(&mut self, word: ChatCommand) -> Flow {
        let done = match word {
            ChatCommand::Help => {
                self.work.screen.note(HELP);
                Ok(())
            }
            ChatCommand::Quit => return Flow::Leave(Code::Done),
            ChatCommand::Interrupt | ChatCommand::Cancel => self.stop_visible_run(word).await,
            ChatCommand::CancelTree => {
                let done = self.control::<Controlled>(Method::POST, "/cancel?tree=true").await;
                done.map(|done| self.idle(done.cancelled == Some(0)))
            }
            ChatCommand::Regenerate => self.regenerate().await,
            ChatCommand::Previous => self.switch("previous").await,
            ChatCommand::Next => self.switch("next").await,
            ChatCommand::Waiting => self.list_queue(),
            ChatCommand::Clear => {
                let done = self.control::<Removed>(Method::DELETE, "/queue").await;
                done.map(|done| self.work.screen.note(&format!("removed {}", count(done.removed, "input"))))
            }
            ChatCommand::Condense => {
                self.work.connect().await.map(|connection| self.condensing.start(connection, self.session))
            }
            ChatCommand::Uncondense => {
                let done = self.control::<Value>(Method::DELETE, "/compaction").await;
                done.map(|_| {
                    self.work.screen.note("the messages hidden by the last compaction are visible to the model again")
                })
            }
            ChatCommand::Usage => {
                let done = self.control::<UsageReply>(Method::GET, "/usage").await;
                done.map(|UsageReply { own, tree }| {
                    let (own, tree) = (own.tokens(), tree.tokens());
                    self.work.screen.note(&format!("{own} tokens for the session, {tree} with its tree"));
                })
            }
        };
        self.report(done)
    }

    fn list_queue(&mut self) -> Result<(), Fail> {
        let id = self.session;
        let entries = self.work.read(|journal| QueueEntry::list(journal, id, true))?;
        let line = |entry: &QueueEntry| format!("{}  {}", queue::describe_entry(entry), clip(&entry.text, 70));
        let lines: Vec<_> = entries.iter().map(line).collect();
        self.work.screen.note(&if lines.is_empty() { "the queue is empty".to_owned() } else { lines.join("\n") });
        Ok(())
    }

    /// Stops the visible run: the session's, or that of a regenerated answer.
    async fn stop_visible_run(&mut self, word: ChatCommand) -> Result<(), Fail> {
        let (of, what) = match self.regenerating_branch() {
            // An interrupted run would wait forever, because no later line reaches the alternative.
            Some(alternative) => (alternative, "cancel"),
            None if word == ChatCommand::Interrupt => (self.session, "interrupt"),
            None => (self.session, "cancel"),
        };
        // A session without any run answers 404.
        let stopped: Option<Controlled> = self.work.find(Method::POST, &format!("/v1/sessions/{of}/{what}")).await?;
        if stopped.is_none_or(|stopped| stopped.stopped_run().is_none()) {
            self.refresh();
            self.idle(true);
        }
        Ok(())
    }

    fn idle(&mut self, idle: bool) {
        if idle {
            self.work.screen.note("no run is in flight");
        }
    }

    async fn regenerate(&mut self) -> Result<(), Fail> {
        if self.regenerating_branch().is_some() {
            return Err(Fail::Other("an answer is already being regenerated: wait, or /cancel it (Ctrl-C)".to_owned()));
        }
        let path = format!("/v1/sessions/{}/regenerate", self.session);
        let made: Accepted = self.work.create(&path, &json!({})).await?;
        self.work.screen.show_answers_of(made.session);
        // Its events may arrive after the next key.
        self.active.insert(made.session);
        self.regenerating = Some(made.session);
        Ok(())
    }

    async fn switch(&mut self, to: &str) -> Result<(), Fail> {
        let path = format!("/v1/sessions/{}/switch", self.session);
        let switched: Switched = self.work.call(Method::POST, &path, Some(&json!({"to": to}))).await?;
        self.work.screen.note(&format!("showing alternative {} of the last answer that has alternatives", switched.to));
        Ok(())
    }

    fn report(&mut self, done: Result<(), Fail>) -> Flow {
        if let Err(fail) = done {
            self.work.screen.alert(&harmless(&fail.to_string()));
        }
        Flow::Continue
    }

    fn receive(&mut self, next: Option<&Next>) -> Flow {
        match next {
            // Already read from the journal.
            Some(Next::Event(event)) if self.positions.covers(event) => {}
            Some(Next::Event(event)) => self.take(event),
            Some(Next::Missed(events)) => {
                self.work.screen.count_missed_events(*events);
                self.refresh();
                self.waiting.mark_missed_events();
            }
            None => {}
        }
        Flow::Continue
    }

    fn take(&mut self, event: &Event) {
        self.work.screen.handle(event);
        self.track_event(event);
        self.show(event);
    }

    /// Re-reads which sessions are active, because the missed events may contain ends of runs.
    fn refresh(&mut self) {
        let is_active = |journal: &Journal, id: SessionId| {
            // A session that cannot be read counts as ended, because no event would ever remove it.
            journal.head(id).is_ok_and(|head| head.is_some_and(|head| in_flight(head.state)))
        };
        let Self { work, active, .. } = self;
        work.read(|journal| active.retain(|id| is_active(journal, *id)));
    }

    /// Updates the active sessions and the open question.
    fn track_event(&mut self, event: &Event) {
        if self.question.take_if(|question| question.is_closed(event)).is_some() {
            self.work.screen.note("the question was closed");
            self.replaced.close();
        }
        self.waiting.observe(event);
        let EventKind::Record { record, .. } = &event.what else { return };
        // MCP servers start with the first model call, so new warnings may exist after it.
        self.may_warn |= matches!(&**record, Record::TurnAnswered(_) | Record::RunEnded(_));
        if let Record::RunOpened(_) = &**record {
            self.active.insert(event.session);
        } else if let Record::RunEnded(_) = &**record {
            self.active.remove(&event.session);
        }
    }

    /// Shows why a run of a shown session ended without an answer.
    fn show(&mut self, event: &Event) {
        let EventKind::Record { record, .. } = &event.what else { return };
        if let Record::RunEnded(ended) = &**record
            && ended.outcome != Outcome::Completed
            && self.work.screen.is_showing_answers_of(event.session)
        {
            let why = harmless(&cause::describe_outcome(&ended.outcome));
            self.work.screen.alert(&format!("run {} {why}", ended.run));
        }
    }
}
