//! Follows a run to its end.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::time::Duration;

use hyper::Method;
use serde_json::Value;
use subtend_actors::event::{Event, EventKind, Next};
use subtend_actors::{Ended, QueueEntry};
use subtend_journal::Journal;
use subtend_session::ids::{InputId, RunNo, Seq, SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::record::Record;
use subtend_tools::workspace::Workspace;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::super::answers::RunReply;
use super::super::cause;
use super::super::client::Connection;
use super::super::fail::{Code, Fail};
use super::super::store_reader::StoreReader;
use super::approve::{Approving, ListedCall, OpenQuestion, WaitingCalls};
use super::own_answer::own_answer;
use super::source::{ReceivedEvent, Since};
use super::{Accepted, Work, report};

/// Between two drawings of the tree.
const FRAME: Duration = Duration::from_millis(100);
/// How long the events of an ended run may trail behind its end.
const TRAIL: Duration = Duration::from_millis(500);

/// How following a run ends.
enum Followed {
    /// The run ended.
    Ended(Ended),
    /// It was never opened, since the run before it was cancelled.
    Never,
    /// You left, and it continues.
    Left,
}

/// A run that is followed.
#[derive(Clone, Copy)]
struct Of {
    root: SessionId,
    session: SessionId,
    run: RunNo,
}

impl Work<'_> {
    /// Sends `body` to `what` of the session that the command is about, and follows the run that takes it.
    pub(crate) async fn send(&mut self, what: &str, body: &Value) -> Result<Code, Fail> {
        let id = self.session()?;
        self.send_to(id, what, body).await
    }

    /// As [`Work::send`], to any session.
    pub(crate) async fn send_to(&mut self, id: SessionId, what: &str, body: &Value) -> Result<Code, Fail> {
        let since = self.since(Some(id)).await?;
        let accepted: Accepted = self.create(&format!("/v1/sessions/{id}/{what}"), body).await?;
        self.follow_input(since, accepted.session, accepted.run, accepted.input).await
    }

    /// Reports what to do with an input whose run was never opened, for example behind a run that Ctrl-C cancelled.
    async fn report_queued(&mut self, id: SessionId, input: InputId) -> Result<(), Fail> {
        let list = move |journal: &Journal| QueueEntry::list(journal, id, true).map_err(Fail::from);
        let queued = match self.read(list) {
            Err(_) if !self.is_own() => self.read_without_host(list).await?,
            queued => queued?,
        };
        if self.face.store.place()?.path().is_some() && queued.iter().any(|entry| entry.id == input) {
            let (name, again) = (id.short().0, self.face.store.again());
            self.screen.alert(&format!(
                "the input was not taken and waits in session {name}: `subtend continue {name}{again}` runs it, `subtend \
                 queue {name}{again} remove {input}` takes it back"
            ));
        }
        Ok(())
    }

    /// Follows `run` of `session` to its end, shows what happens from where `since` begins, and reports the end. A run that is never
    /// opened counts as cancelled.
    pub(crate) async fn follow(&mut self, since: Since, session: SessionId, run: RunNo) -> Result<Code, Fail> {
        self.follow_input(since, session, run, None).await
    }

    async fn follow_input(
        &mut self,
        since: Since,
        session: SessionId,
        run: RunNo,
        input: Option<InputId>,
    ) -> Result<Code, Fail> {
        let followed = self.watched(since, session, run).await;
        self.screen.close();
        let followed = match followed {
            // A process that hosts a store for its own run ends with that run.
            Err(Fail::Unavailable(_)) if !self.is_own() => {
                Followed::Ended(self.ended_without_host(session, run).await?)
            }
            followed => followed?,
        };
        match followed {
            Followed::Never => {
                if let Some(input) = input {
                    self.report_queued(session, input).await?;
                }
                Ok(Code::Cancelled)
            }
            Followed::Left => {
                let (name, again) = (session.short().0, self.face.store.again());
                self.screen.note(&format!("it keeps running; follow it: subtend attach {name}{again}"));
                Ok(Code::Done)
            }
            Followed::Ended(mut ended) => {
                if let Some(input) = input.filter(|_| !self.face.json) {
                    ended.text = self.own_answer(session, (ended.run, input)).await.or(ended.text);
                }
                report::report_end(self.face, self.screen, session, &ended)?;
                if let Some(input) = input.filter(|_| ended.outcome != Outcome::Completed) {
                    self.report_queued(session, input).await?;
                }
                Ok(cause::code(&ended.outcome))
            }
        }
    }

    /// Returns the answer to one of several inputs of a run.
    async fn own_answer(&mut self, session: SessionId, of: (RunNo, InputId)) -> Option<Text> {
        let before = self.before;
        let find = move |journal: &Journal| own_answer(journal, (session, before), of).map_err(Fail::from);
        let found = match self.read(find) {
            Err(_) if !self.is_own() => self.read_without_host(find).await,
            found => found,
        };
        // The text of the end is what there is otherwise.
        found.ok().flatten().filter(|_| self.session().is_ok_and(|about| about == session))
    }

    /// Shows the tree of `session` while `run` is followed.
    async fn watched(&mut self, since: Since, session: SessionId, run: RunNo) -> Result<Followed, Fail> {
        let agent = self.agent_of(session)?;
        self.screen.watch(session, agent);
        // If stdout is not a terminal, the answer is printed there only.
        if std::io::stdout().is_terminal() {
            self.screen.hear(session);
        }
        let of = Of { root: self.root_of(session)?, session, run };
        // A session that was open before may have a call that waits.
        let waiting = WaitingCalls::new(self.before != Seq(0));
        let mut approving = (self.attended || self.leaves).then(|| Approving::new(self.attended, waiting));
        self.followed(since, of, &mut approving).await
    }

    /// Reads how a run ended from the store that its host has left.
    async fn ended_without_host(&self, session: SessionId, run: RunNo) -> Result<Ended, Fail> {
        let read = move |journal: &Journal| Ended::read(journal, session, run).map_err(Fail::from);
        self.read_without_host(read).await?.ok_or_else(|| host_ended(session))
    }

    /// Reads the store that its host has left.
    async fn read_without_host<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Journal) -> Result<T, Fail> + Send + 'static,
    ) -> Result<T, Fail> {
        let store = self.face.store.clone();
        let done = tokio::task::spawn_blocking(move || read(StoreReader::must_open(&store)?.journal())).await;
        done.map_err(|error| Fail::Store(error.to_string()))?
    }

    /// Shows what happens until the run ends or you leave.
    async fn followed(&mut self, since: Since, of: Of, approving: &mut Option<Approving>) -> Result<Followed, Fail> {
        let mut events = self.events(since, of.root).await?;
        let waiting = self.connect().await?;
        let end = ended(waiting, of, self.is_own());
        tokio::pin!(end);
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut stopping, mut more, mut seen) = (false, true, false);
        let end = loop {
            self.screen.hold(approving.as_ref().is_some_and(Approving::is_asking));
            if let Some(approving) = approving.as_mut() {
                self.ask(of.root, approving).await?;
            }
            tokio::select! {
                biased;
                () = self.stop.requested(), if !stopping => {
                    if self.stop.leaves() && !self.is_own() {
                        return Ok(Followed::Left);
                    }
                    stopping = true;
                    self.cancel(of, "asked to stop").await?;
                }
                _ = frames.tick() => self.screen.draw(),
                next = events.next(), if more => match next? {
                    Some(received) if self.shown(&received, of, approving, &mut seen).is_err() => {
                        if !self.is_own() {
                            return Ok(Followed::Left);
                        }
                        // No client reads the events, so the run is cancelled.
                        (more, stopping) = (false, true);
                        self.cancel(of, "no client reads the events").await?;
                    }
                    Some(_) => {}
                    None if self.is_own() => more = false,
                    None => return Err(host_ended(of.session)),
                },
                line = Approving::line(approving) => match line {
                    Some(line) => self.answer(&line, approving).await?,
                    None if self.leaves => return Ok(Followed::Left),
                    None => *approving = None,
                },
                ended = &mut end => break ended?,
            }
        };
        let Some(end) = end else { return Ok(Followed::Never) };
        let until = Instant::now() + TRAIL;
        while more && !seen {
            match timeout_at(until, events.next()).await {
                Ok(Ok(Some(received))) if self.shown(&received, of, approving, &mut seen).is_ok() => {}
                Ok(_) | Err(_) => break,
            }
        }
        Ok(Followed::Ended(end))
    }

    /// Asks for the end of the whole tree. The answer is the run's end. Detached runs too: with the host they would end as lost.
    async fn cancel(&mut self, of: Of, why: &str) -> Result<(), Fail> {
        let down = if self.is_own() { ", then shutting down" } else { "" };
        self.screen.alert(&format!("{why}: cancelling the run and all that it started{down}; Ctrl-C leaves at once"));
        let path = format!("/v1/sessions/{}/cancel?tree=true", of.session);
        let _: Value = self.connection.call(Method::POST, &path, None).await?;
        Ok(())
    }

    /// Shows one event; sets `seen` if it is the run's end.
    fn shown(
        &mut self,
        received: &ReceivedEvent,
        of: Of,
        approving: &mut Option<Approving>,
        seen: &mut bool,
    ) -> Result<(), Fail> {
        match &received.next {
            Some(Next::Event(event)) => {
                if let Some(approving) = approving {
                    approving.observe(event);
                }
                *seen |= is_end(event, of);
                self.screen.take(event);
                self.say_how_to_approve(event);
            }
            Some(Next::Missed(events)) => {
                if let Some(approving) = approving {
                    approving.missed();
                }
                self.screen.missed(*events);
            }
            None => {}
        }
        if self.face.json {
            writeln!(std::io::stdout(), "{}", received.line()?)?;
        }
        Ok(())
    }

    /// Says how to approve a call of another process, where this terminal cannot ask.
    fn say_how_to_approve(&mut self, event: &Event) {
        let EventKind::Record { record, .. } = &event.what else { return };
        if let Record::AskOpened { call, .. } = &**record
            && !self.attended
            && !self.is_own()
        {
            let name = event.session.short().0;
            self.screen.alert(&format!(
                "call {call} of session {name} waits for an approval: `subtend approvals {name}` shows it and how to answer"
            ));
        }
    }

    /// Asks for the next call of the tree that waits for an approval, if one does and may be asked about.
    async fn ask(&mut self, root: SessionId, approving: &mut Approving) -> Result<(), Fail> {
        let Some(waiting) = approving.next() else { return Ok(()) };
        if let Some(open_question) = self.waiting_call(root, waiting).await? {
            let question = open_question.question.clone();
            // Before it is shown: what is typed from then on answers it.
            approving.ask(open_question);
            self.screen.alert(&question);
        }
        Ok(())
    }

    /// Returns the first of the calls of a tree that need an approval, with the question.
    pub(crate) async fn waiting_call(
        &mut self,
        root: SessionId,
        waiting: &mut WaitingCalls,
    ) -> Result<Option<OpenQuestion>, Fail> {
        let listed: Vec<ListedCall> = self.connection.get("/v1/approvals").await?;
        let mut listed: Vec<_> = listed.into_iter().filter(|call| call.root == root).collect();
        let Some(first) = waiting.first(&listed.iter().map(ListedCall::id).collect::<Result<Vec<_>, _>>()?) else {
            return Ok(None);
        };
        let home: Value = self.connection.get(&format!("/v1/sessions/{root}")).await?;
        // Without the directory there is no file to compare with.
        let workspace =
            home.get("workspace").and_then(Value::as_str).and_then(|path| Workspace::open(Path::new(path)).ok());
        listed.swap_remove(first).question(workspace.as_ref()).map(Some)
    }

    /// Answers the open question by a typed line.
    async fn answer(&mut self, line: &str, approving: &mut Option<Approving>) -> Result<(), Fail> {
        let Some(approving) = approving else { return Ok(()) };
        match approving.answer(line) {
            None => {}
            Some(Err(again)) => self.screen.alert(&again),
            Some(Ok((question, verdict))) => {
                let body = question.body(verdict);
                let answered: Result<Value, _> = self.call(Method::POST, &question.path(), Some(&body)).await;
                if let Err(fail) = answered {
                    self.screen.alert(&fail.to_string());
                }
            }
        }
        Ok(())
    }
}

/// Waits for the end of a run; `None` for one that is never opened.
async fn ended(mut connection: Connection, of: Of, is_own: bool) -> Result<Option<Ended>, Fail> {
    let path = format!("/v1/sessions/{}/runs/{}?wait=true", of.session, of.run);
    loop {
        let Some(run) = connection
            .find::<RunReply>(Method::GET, &path)
            .await
            .map_err(|fail| if is_own { fail } else { host_ended(of.session) })?
        else {
            return Ok(None);
        };
        if let Some(outcome) = run.cause {
            let (turns, usage) = (run.turns.unwrap_or_default(), run.usage.unwrap_or_default());
            return Ok(Some(Ended { run: of.run, outcome, text: run.text, turns, usage }));
        }
    }
}

fn is_end(event: &Event, of: Of) -> bool {
    let EventKind::Record { record, .. } = &event.what else { return false };
    event.session == of.session && matches!(&**record, Record::RunEnded(ended) if ended.run == of.run)
}

fn host_ended(session: SessionId) -> Fail {
    let name = session.short().0;
    Fail::Unavailable(format!(
        "the host of the store ended before the run did: `subtend tree {name}` shows what became of it, `subtend continue {name}` continues it"
    ))
}
