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
use subtend_session::index::surviving_runs;
use subtend_session::outcome::Outcome;
use subtend_session::place::OnRestart;
use subtend_session::record::Record;
use subtend_tools::memory_threads::spawn_with_memory;
use subtend_tools::workspace::Workspace;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::super::answers::RunReply;
use super::super::approvals::waiting as calls;
use super::super::cause;
use super::super::client::Connection;
use super::super::fail::{Code, Fail};
use super::super::store_reader::StoreReader;
use super::approve::{ListedCall, OpenQuestion, TerminalApprover, WaitingCalls};
use super::own_answer::own_answer;
use super::source::{ReceivedEvent, Since};
use super::{Accepted, Work, report};

const FRAME_INTERVAL: Duration = Duration::from_millis(100);
/// Time to wait for remaining events after a run has ended.
const TRAILING_EVENTS_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum number of attempts to open a store whose host is ending. Each waits some seconds.
const MAX_OPENINGS: u32 = 4;

enum Followed {
    Ended(Ended),
    /// The run was never opened, because the run before it was cancelled.
    NotOpened,
    /// The user left; the run continues.
    Left,
    /// This process was asked to end; the run continues with the next host of the store.
    LeftToNextHost,
}

#[derive(Clone, Copy)]
struct FollowedRun {
    root: SessionId,
    session: SessionId,
    run: RunNo,
}

impl Work<'_> {
    /// Sends `body` to the path `what` below the command's session, and follows the run that takes it.
    pub(crate) async fn send(&mut self, what: &str, body: &Value) -> Result<Code, Fail> {
        let id = self.session()?;
        self.send_to(id, what, body).await
    }

    /// As [`Work::send`], for any session.
    pub(crate) async fn send_to(&mut self, id: SessionId, what: &str, body: &Value) -> Result<Code, Fail> {
        let since = self.since(Some(id)).await?;
        let accepted: Accepted = self.create(&format!("/v1/sessions/{id}/{what}"), body).await?;
        self.follow_input(since, accepted.session, accepted.run, accepted.input).await
    }

    /// Reports an input that is still queued, for example after Ctrl-C, with the commands to run or remove it.
    async fn report_queued(&mut self, id: SessionId, input: InputId) -> Result<(), Fail> {
        let list = move |journal: &Journal| QueueEntry::list(journal, id, true).map_err(Fail::from);
        let queued = match self.read(list) {
            Err(_) if !self.is_own() => self.read_without_host(list).await?,
            queued => queued?,
        };
        if !self.output_options.store.place()?.is_in_memory() && queued.iter().any(|entry| entry.id == input) {
            let (name, again) = (id.short().0, self.output_options.store.options_for_shell());
            self.screen.alert(&format!(
                "the input was not taken and is queued in session {name}: run it with `subtend continue {name}{again}`, or remove \
                 it with `subtend queue {name}{again} remove {input}`"
            ));
        }
        Ok(())
    }

    /// Follows `run` of `session` to its end and reports it. A run that is never opened counts as cancelled.
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
        let wait_for_end = self.follow_on_screen(since, session, run).await;
        self.screen.close();
        let wait_for_end = match wait_for_end {
            // The host may have ended after its own run.
            Err(Fail::Unavailable(_)) if !self.is_own() => Followed::Ended(self.read_stored_end(session, run).await?),
            wait_for_end => wait_for_end?,
        };
        match wait_for_end {
            Followed::NotOpened => {
                if let Some(input) = input {
                    self.report_queued(session, input).await?;
                }
                Ok(Code::Cancelled)
            }
            Followed::Left => {
                let (name, again) = (session.short().0, self.output_options.store.options_for_shell());
                self.screen.note(&format!("it continues in the background; follow it: subtend attach {name}{again}"));
                Ok(Code::Done)
            }
            Followed::LeftToNextHost => {
                let (name, again) = (session.short().0, self.output_options.store.options_for_shell());
                Err(Fail::Unavailable(format!(
                    "this process was asked to end: run {run} of session {name} continues with the next one, such as `subtend continue \
                     {name}{again}`"
                )))
            }
            Followed::Ended(mut ended) => {
                self.warn_of_host_servers(session).await;
                if let Some(input) = input.filter(|_| !self.output_options.json) {
                    ended.text = self.own_answer(session, (ended.run, input)).await.or(ended.text);
                }
                report::report_end(self.output_options, self.screen, session, &ended)?;
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
        // Errors are ignored, because the final text of the run can be used instead.
        found.ok().flatten().filter(|_| self.session().is_ok_and(|about| about == session))
    }

    /// Follows `run` with the tree of `session` on the screen.
    async fn follow_on_screen(&mut self, since: Since, session: SessionId, run: RunNo) -> Result<Followed, Fail> {
        let agent = self.agent_of(session)?;
        self.screen.watch(session, agent);
        // If stdout is not a terminal, the answer is printed only there.
        if std::io::stdout().is_terminal() {
            self.screen.show_answers_of(session);
        }
        let of = FollowedRun { root: self.root_of(session)?, session, run };
        // In an existing session, a call may already wait for an approval.
        let waiting = WaitingCalls::new(self.before != Seq(0));
        let mut approver = (self.attended || self.can_leave).then(|| TerminalApprover::new(self.attended, waiting));
        self.wait_for_end(since, of, &mut approver).await
    }

    /// Reads the end of a run from the store after its host has ended.
    async fn read_stored_end(&self, session: SessionId, run: RunNo) -> Result<Ended, Fail> {
        let read = move |journal: &Journal| Ended::read(journal, session, run).map_err(Fail::from);
        self.read_without_host(read).await?.ok_or_else(|| host_ended_error(session))
    }

    /// Reads the store after its host has ended. One that shuts down still holds the store until running calls finish.
    async fn read_without_host<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Journal) -> Result<T, Fail> + Send + 'static,
    ) -> Result<T, Fail> {
        let store = self.output_options.store.clone();
        let open = move || {
            for _ in 1..MAX_OPENINGS {
                match StoreReader::open_existing(&store) {
                    Err(Fail::Unavailable(_)) => {}
                    opened => return opened,
                }
            }
            StoreReader::open_existing(&store)
        };
        let done = spawn_with_memory(move || read(open()?.journal())).await;
        done.map_err(|error| Fail::Store(error.to_string()))?
    }

    /// Shows events until the run ends or the user leaves.
    async fn wait_for_end(
        &mut self,
        since: Since,
        of: FollowedRun,
        approver: &mut Option<TerminalApprover>,
    ) -> Result<Followed, Fail> {
        let mut events = self.events(since, of.root).await?;
        let waiting = self.connect().await?;
        let end = wait_ended(waiting, of, self.is_own());
        tokio::pin!(end);
        let mut frames = interval(FRAME_INTERVAL);
        frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut stopping, mut more, mut seen) = (false, true, false);
        let end = loop {
            self.screen.hold_text(approver.as_ref().is_some_and(TerminalApprover::is_asking));
            if let Some(approver) = approver.as_mut() {
                self.ask(of.root, approver).await?;
            }
            tokio::select! {
                biased;
                () = self.stop.requested(), if !stopping => {
                    if self.stop.is_leave_requested() && !self.is_own() {
                        return Ok(Followed::Left);
                    }
                    if self.stop.is_leave_requested() && self.resumes(of.session)? {
                        return Ok(Followed::LeftToNextHost);
                    }
                    stopping = true;
                    self.cancel(of, "stop requested").await?;
                }
                next = events.next(), if more => match next? {
                    Some(received) if self.show_event(&received, of, approver, &mut seen).is_err() => {
                        if !self.is_own() {
                            return Ok(Followed::Left);
                        }
                        // Stdout is closed, so cancel the run.
                        (more, stopping) = (false, true);
                        self.cancel(of, "stdout is closed").await?;
                    }
                    Some(_) => {}
                    None if self.is_own() => more = false,
                    None => return Err(host_ended_error(of.session)),
                },
                line = TerminalApprover::line(approver) => match line {
                    Some(line) => self.answer(&line, approver).await?,
                    None if self.can_leave => return Ok(Followed::Left),
                    None => *approver = None,
                },
                ended = &mut end => break ended?,
                // Frames come last: slow ones must not hold back the events and the end.
                _ = frames.tick() => self.screen.draw(),
            }
        };
        let Some(end) = end else { return Ok(Followed::NotOpened) };
        let until = Instant::now() + TRAILING_EVENTS_TIMEOUT;
        while more && !seen {
            match timeout_at(until, events.next()).await {
                Ok(Ok(Some(received))) if self.show_event(&received, of, approver, &mut seen).is_ok() => {}
                Ok(_) | Err(_) => break,
            }
        }
        Ok(Followed::Ended(end))
    }

    /// Returns whether the run of `session` outlives a restart: by `on_restart`, or because it waits at a limit.
    fn resumes(&self, session: SessionId) -> Result<bool, Fail> {
        let inflight = self.journal.inflight()?;
        let mut own = inflight.iter().filter(|(of, _)| *of == session);
        Ok(own.any(|(_, row)| row.on_restart == OnRestart::Resume) || surviving_runs(&inflight).contains(&session))
    }

    /// Cancels the whole tree, including detached runs, which would otherwise end as lost with the host.
    async fn cancel(&mut self, of: FollowedRun, why: &str) -> Result<(), Fail> {
        let down = if self.is_own() { ", then shutting down" } else { "" };
        self.screen.alert(&format!("{why}: cancelling the run and its children{down}; Ctrl-C leaves at once"));
        let path = format!("/v1/sessions/{}/cancel?tree=true", of.session);
        let _: Value = self.connection.call(Method::POST, &path, None).await?;
        Ok(())
    }

    /// Shows one event; sets `seen` if it is the run's end.
    fn show_event(
        &mut self,
        received: &ReceivedEvent,
        of: FollowedRun,
        approver: &mut Option<TerminalApprover>,
        seen: &mut bool,
    ) -> Result<(), Fail> {
        match &received.next {
            Some(Next::Event(event)) => {
                if let Some(approver) = approver {
                    approver.observe(event);
                }
                *seen |= is_end(event, of);
                self.screen.handle(event);
                self.print_approval_hint(event);
            }
            Some(Next::Missed(events)) => {
                if let Some(approver) = approver {
                    approver.mark_missed_events();
                }
                self.screen.count_missed_events(*events);
            }
            None => {}
        }
        if self.output_options.json {
            writeln!(std::io::stdout(), "{}", received.line()?)?;
        }
        Ok(())
    }

    /// Prints how to answer a waiting call, if this terminal cannot ask and another process hosts the run.
    fn print_approval_hint(&mut self, event: &Event) {
        let EventKind::Record { record, .. } = &event.what else { return };
        if let Record::AskOpened { call, .. } = &**record
            && !self.attended
            && !self.is_own()
        {
            let name = event.session.short().0;
            self.screen.alert(&format!(
                "call {call} of session {name} waits for an approval: answer it with `subtend approvals {name}`"
            ));
        }
    }

    /// Asks the user about the next call of the tree that waits for an approval, if a question can be asked.
    async fn ask(&mut self, root: SessionId, approver: &mut TerminalApprover) -> Result<(), Fail> {
        let Some(waiting) = approver.next() else { return Ok(()) };
        if let Some(open_question) = self.waiting_call(root, waiting).await? {
            let question = open_question.question.clone();
            // Open the question before showing it, so that the first line typed afterwards answers it.
            approver.ask(open_question);
            self.screen.alert(&question);
        }
        Ok(())
    }

    /// Returns the question about the first call of a tree that waits for an approval.
    pub(crate) async fn waiting_call(
        &mut self,
        root: SessionId,
        waiting: &mut WaitingCalls,
    ) -> Result<Option<OpenQuestion>, Fail> {
        let mut listed: Vec<ListedCall> = Vec::new();
        let mut path = calls::page_path(None);
        loop {
            let page: Vec<ListedCall> = self.connection.get(&path).await?;
            let last = page.last().filter(|_| calls::is_full(page.len()));
            let next = last.map(|last| calls::page_path(Some(last.position())));
            listed.extend(page.into_iter().filter(|call| call.root == root));
            let Some(next) = next else { break };
            path = next;
        }
        let Some(first) = waiting.first(&listed.iter().map(ListedCall::id).collect::<Result<Vec<_>, _>>()?) else {
            return Ok(None);
        };
        let mut call = listed.swap_remove(first);
        if let Some(path) = call.path_of_rest() {
            // Answered meanwhile: its event follows.
            let Some(whole) = self.connection.find(Method::GET, &path).await? else { return Ok(None) };
            call = whole;
        }
        let records: Value = self.connection.get(&format!("/v1/sessions/{}/records?limit=1", call.id()?.0)).await?;
        let created = records.pointer("/0/record/session_created");
        call.question(created.and_then(compared_directory).as_ref()).map(Some)
    }

    async fn answer(&mut self, line: &str, approver: &mut Option<TerminalApprover>) -> Result<(), Fail> {
        let Some(approver) = approver else { return Ok(()) };
        match approver.answer(line) {
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

/// Returns the directory whose files a session replaces. `None` if it cannot be opened, or if the session uses a worktree, whose files may
/// be other ones: then no diff is shown.
fn compared_directory(created: &Value) -> Option<Workspace> {
    let shared = created.get("worktree").is_none_or(Value::is_null);
    let path = created.get("workspace").and_then(Value::as_str).filter(|_| shared)?;
    Workspace::open(Path::new(path)).ok()
}

/// Waits for the end of a run; `None` if it is never opened.
async fn wait_ended(mut connection: Connection, of: FollowedRun, is_own: bool) -> Result<Option<Ended>, Fail> {
    let path = format!("/v1/sessions/{}/runs/{}?wait=true", of.session, of.run);
    loop {
        let Some(run) = connection
            .find::<RunReply>(Method::GET, &path)
            .await
            .map_err(|fail| if is_own { fail } else { host_ended_error(of.session) })?
        else {
            return Ok(None);
        };
        if let Some(outcome) = run.cause {
            let (turns, usage) = (run.turns.unwrap_or_default(), run.usage.unwrap_or_default());
            return Ok(Some(Ended { run: of.run, outcome, text: run.text, turns, usage }));
        }
    }
}

fn is_end(event: &Event, of: FollowedRun) -> bool {
    let EventKind::Record { record, .. } = &event.what else { return false };
    event.session == of.session && matches!(&**record, Record::RunEnded(ended) if ended.run == of.run)
}

fn host_ended_error(session: SessionId) -> Fail {
    let name = session.short().0;
    Fail::Unavailable(format!(
        "the host of the store ended before the run: inspect it with `subtend tree {name}`, continue it with `subtend continue {name}`"
    ))
}
