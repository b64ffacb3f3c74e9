//! The conversation: keys, events and questions, one loop.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use subtend_actors::event::{Event, Next, Subscription, What};
use subtend_actors::{Approval, Approver, Control, Runtime, SessionHandle};
use subtend_session::command::SwitchTo;
use subtend_session::ids::{RunNo, Seq, SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::record::Record;
use subtend_tools::workspace::Workspace;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::super::cause;
use super::super::fail::{Code, Fail};
use super::super::paint::{clip, count, harmless, in_flight};
use super::super::queue;
use super::super::work::approve::{is_closed, question, verdict};
use super::super::work::{Screen, Stop, Work};
use super::command::{HELP, Line, Word, read};
use super::earlier;
use super::lines::{Key, Lines};
use super::told::{Told, at_work};

/// Between two drawings of the tree.
const FRAME: Duration = Duration::from_millis(100);
/// How long we wait, on leaving, for the end of what was cancelled.
const LEAVING: Duration = Duration::from_secs(5);

/// A conversation at a terminal.
pub(super) struct Talk<'a> {
    runtime: &'a Runtime,
    session: SessionHandle,
    /// Where the last answer that was asked for anew is given.
    anew: Option<SessionHandle>,
    events: Subscription,
    /// What was shown as the journal has it.
    told: Told,
    approver: Approver,
    /// What an agent asks; the next line answers it.
    asked: Option<Approval>,
    screen: &'a mut Screen,
    stop: &'a mut Stop,
    lines: Lines,
    workspace: Arc<Workspace>,
    /// Sessions of the tree with a run in flight.
    at_work: BTreeSet<SessionId>,
    /// The agent that answers from the next line on.
    agent: Option<String>,
}

/// Whether the conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Go,
    Leave(Code),
}

impl<'a> Talk<'a> {
    /// Takes the terminal.
    pub(super) async fn begin(
        work: &'a mut Work<'_>,
        session: SessionHandle,
        events: Subscription,
        agent: Text,
    ) -> Result<Self, Fail> {
        let journal = work.runtime.journal();
        // A session that was opened here has nothing of an earlier process.
        let (told, missed) = match work.since {
            Seq(0) => (Told::default(), Vec::new()),
            since => Told::read(journal, session.id(), since).await?,
        };
        let at_work = at_work(&journal.inflight()?, session.id());
        // Before anything is shown: who sees it may type.
        let lines = Lines::take().map_err(|error| Fail::Other(format!("the terminal cannot be used: {error}")))?;
        work.screen.prompt(Some(("", 0)));
        let earlier = earlier::read(journal, session.id(), work.since, work.screen.tools())?;
        earlier.iter().for_each(|text| work.screen.note(text));
        work.screen.watch(session.id(), agent);
        work.screen.hear(session.id());
        work.screen.note(&format!("session {} · /help tells the commands", session.id()));
        let id = session.id();
        let mut talk = Self {
            runtime: work.runtime,
            anew: None,
            events,
            told,
            approver: work.approver.take().unwrap_or_else(|| work.runtime.approver()),
            asked: None,
            screen: work.screen,
            stop: work.stop,
            lines,
            workspace: Arc::clone(&work.workspace),
            at_work,
            agent: None,
            session,
        };
        if let Some(run) = work.left.filter(|run| !missed.iter().any(|event| ends(event, id, *run))) {
            talk.screen.note(&format!("run {run}, which an earlier process left, goes on"));
        }
        missed.iter().for_each(|event| talk.take(event));
        Ok(talk)
    }

    /// Talks until the person leaves.
    pub(super) async fn talk(mut self) -> Result<Code, Fail> {
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
        // How to leave, and when at the latest.
        let mut leaving: Option<(Code, Instant)> = None;
        let code = loop {
            let on = tokio::select! {
                biased;
                () = self.stop.asked(), if leaving.is_none() => On::Leave(Code::Cancelled),
                key = self.lines.next() => self.key(key).await,
                // Before questions: the answer that asks is read first.
                Some(next) = self.events.next() => self.hear(&next),
                approval = self.approver.next(), if self.asked.is_none() => self.ask(approval),
                _ = frames.tick() => On::Go,
            };
            self.screen.prompt(Some(self.lines.at_hand()));
            self.screen.hold(self.asked.is_some());
            self.screen.draw();
            match (on, leaving) {
                (On::Leave(code), None) => {
                    self.cancel_all().await;
                    leaving = Some((code, Instant::now() + LEAVING));
                }
                (On::Leave(_), Some((code, _))) => break code,
                (On::Go, _) => {}
            }
            if let Some((code, until)) = leaving
                && (self.at_work.is_empty() || Instant::now() >= until)
            {
                break code;
            }
        };
        let Self { screen, lines, .. } = self;
        screen.prompt(None);
        // What is drawn last is drawn on a terminal that is the person's again.
        drop(lines);
        screen.close();
        Ok(code)
    }

    /// Cancels what runs: a run that nobody stopped would count as lost.
    async fn cancel_all(&mut self) {
        if self.at_work.is_empty() {
            return;
        }
        self.screen.alert("leaving: cancelling what runs first; Ctrl-C leaves at once");
        let cancelled = self.session.cancel_tree().await.map(drop).map_err(Fail::from);
        self.said(cancelled);
    }

    /// Whether a run of the session is in flight.
    fn works(&self) -> bool {
        self.at_work.contains(&self.session.id())
    }

    /// Where an answer is being given anew.
    fn anew(&self) -> Option<&SessionHandle> {
        self.anew.as_ref().filter(|alternative| self.at_work.contains(&alternative.id()))
    }

    async fn key(&mut self, key: Key) -> On {
        match key {
            Key::Changed => On::Go,
            // A question does not stand in the way of commands.
            Key::Line(line) => match self.asked.take_if(|_| !line.trim_start().starts_with('/')) {
                Some(approval) => self.answer(approval, &line).await,
                None => self.line(line).await,
            },
            Key::Escape => self.act(Word::Interrupt).await,
            Key::Break if self.works() || self.anew().is_some() => self.act(Word::Cancel).await,
            Key::Break if self.lines.clear() => On::Go,
            Key::Break | Key::End => On::Leave(Code::Done),
        }
    }

    fn ask(&mut self, approval: Approval) -> On {
        self.screen.alert(&question(&approval, &self.workspace));
        self.asked = Some(approval);
        On::Go
    }

    async fn answer(&mut self, approval: Approval, line: &str) -> On {
        let Some(verdict) = verdict(line) else { return self.ask(approval) };
        let answered = self.approver.answer(&approval, verdict).await;
        self.said(answered.map(drop).map_err(Fail::from))
    }

    async fn line(&mut self, typed: String) -> On {
        match read(&typed) {
            Line::Empty => On::Go,
            Line::Unknown(command) => {
                self.screen.alert(&format!("there is no command /{}: /help tells them", clip(&command, 40)));
                On::Go
            }
            Line::Agent(name) => self.pick(name),
            Line::Say(text) => self.send(text, self.works(), typed).await,
            Line::Queue(text) => self.send(text, false, typed).await,
            Line::Do(word) => self.act(word).await,
        }
    }

    fn pick(&mut self, name: String) -> On {
        let known: Vec<Text> = self.runtime.agents().collect();
        let name_shown = clip(&name, 40);
        if known.iter().any(|known| **known == *name) {
            self.screen.note(&format!("{name_shown} answers from the next line on"));
            self.agent = Some(name);
        } else {
            let known = known.join(", ");
            self.screen.alert(&format!("there is no agent {name_shown} that could answer; agents to pick: {known}"));
        }
        On::Go
    }

    /// Sends a text. What is not taken stays on the line, as it was typed.
    async fn send(&mut self, text: String, steer: bool, typed: String) -> On {
        // Beside it, the line would be answered without the answer that is on its way.
        if self.anew().is_some() {
            self.screen.alert("an answer is being given anew: send the line when it is there, or /cancel it (Ctrl-C)");
            self.lines.put_back(typed);
            return On::Go;
        }
        let mut input = self.session.input(text.clone());
        if let Some(agent) = &self.agent {
            input = input.agent(agent.clone());
        }
        match if steer { input.steer().await } else { input.send().await } {
            Ok(_) => {
                self.screen.note(&earlier::message(&text));
                self.agent = None;
                self.at_work.insert(self.session.id());
                On::Go
            }
            Err(error) => {
                self.lines.put_back(typed);
                self.said(Err(error.into()))
            }
        }
    }

    async fn act(&mut self, word: Word) -> On {
        let session = self.session.clone();
        let done = match word {
            Word::Help => {
                self.screen.note(HELP);
                Ok(())
            }
            Word::Quit => return On::Leave(Code::Done),
            Word::Interrupt | Word::Cancel => self.stop_run(word).await,
            Word::CancelTree => session.cancel_tree().await.map_err(Fail::from).map(|told| self.idle(told == 0)),
            Word::Regenerate => self.regenerate().await,
            Word::Previous => self.switch(SwitchTo::Previous).await,
            Word::Next => self.switch(SwitchTo::Next).await,
            Word::Waiting => session.queue().await.map_err(Fail::from).map(|entries| {
                let lines: Vec<_> =
                    entries.iter().map(|entry| format!("{}  {}", queue::what(entry), clip(&entry.text, 70))).collect();
                self.screen.note(&if lines.is_empty() { "nothing waits".to_owned() } else { lines.join("\n") });
            }),
            Word::Clear => session.queue_clear().await.map_err(Fail::from).map(|removed| {
                self.screen.note(&format!("removed {}", count(removed, "input")));
            }),
            Word::Usage => session.usage().await.map_err(Fail::from).map(|usage| {
                let (own, tree) = (usage.own.tokens(), usage.tree.tokens());
                self.screen.note(&format!("{own} tokens itself, {tree} with all below it"));
            }),
        };
        self.said(done)
    }

    /// Stops the run that the person sees: the session's, or that of the answer that is given anew.
    async fn stop_run(&mut self, word: Word) -> Result<(), Fail> {
        let stopped = match self.anew().cloned() {
            // No line goes there: held by an interrupt, it would wait for ever.
            Some(alternative) => alternative.cancel().await?,
            None if word == Word::Interrupt => self.session.interrupt().await?,
            None => self.session.cancel().await?,
        };
        match stopped {
            Control::Done(_) => {}
            Control::AlreadyEnded(_) | Control::NotFound => {
                self.look();
                self.idle(true);
            }
        }
        Ok(())
    }

    fn idle(&mut self, idle: bool) {
        if idle {
            self.screen.note("nothing runs here");
        }
    }

    async fn regenerate(&mut self) -> Result<(), Fail> {
        if self.anew().is_some() {
            return Err(Fail::Other("an answer is being given anew already: /cancel ends that (Ctrl-C)".to_owned()));
        }
        let (alternative, _) = self.session.regenerate(None).await?;
        self.screen.hear(alternative.id());
        // Its events come later than the next key perhaps.
        self.at_work.insert(alternative.id());
        self.anew = Some(alternative);
        Ok(())
    }

    async fn switch(&mut self, to: SwitchTo) -> Result<(), Fail> {
        let switched = self.session.switch(None, to).await?;
        self.screen.note(&format!("alternative {} of the last answer that has some", switched.to));
        Ok(())
    }

    fn said(&mut self, done: Result<(), Fail>) -> On {
        if let Err(fail) = done {
            self.screen.alert(&harmless(&fail.to_string()));
        }
        On::Go
    }

    fn hear(&mut self, next: &Next) -> On {
        match next {
            // What was appended after we listened and before we read the journal comes twice.
            Next::Event(event) if self.told.has(event) => {}
            Next::Event(event) => self.take(event),
            Next::Missed(events) => {
                self.screen.missed(*events);
                self.look();
            }
        }
        On::Go
    }

    fn take(&mut self, event: &Event) {
        self.screen.take(event);
        self.note(event);
        self.show(event);
    }

    /// Looks who is at work still: ends may be among the events that were missed, and lines wait for them.
    fn look(&mut self) {
        let journal = self.runtime.journal();
        // One that cannot be read ends nowhere else.
        self.at_work.retain(|id| journal.head(*id).is_ok_and(|head| head.is_some_and(|head| in_flight(head.state))));
    }

    /// Who is at work, and whether a question is open still.
    fn note(&mut self, event: &Event) {
        if self.asked.take_if(|asked| is_closed(asked, event)).is_some() {
            self.screen.note("the question was closed");
        }
        let What::Record { record, .. } = &event.what else { return };
        if let Record::RunOpened(_) = &**record {
            self.at_work.insert(event.session);
        } else if let Record::RunEnded(_) = &**record {
            self.at_work.remove(&event.session);
        }
    }

    /// Why a run of a session that is shown ended without an answer.
    fn show(&mut self, event: &Event) {
        let What::Record { record, .. } = &event.what else { return };
        if let Record::RunEnded(ended) = &**record
            && ended.outcome != Outcome::Completed
            && self.screen.hears(event.session)
        {
            let why = harmless(&cause::sentence(&ended.outcome));
            self.screen.alert(&format!("run {} {why}", ended.run));
        }
    }
}

fn ends(event: &Event, session: SessionId, run: RunNo) -> bool {
    let What::Record { record, .. } = &event.what else { return false };
    event.session == session && matches!(&**record, Record::RunEnded(ended) if ended.run == run)
}
