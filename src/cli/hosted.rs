//! A session with the host of its store. Controls are sent to the host as HTTP requests.

use std::cell::Cell;
use std::io::Write as _;
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use subtend_actors::{QueueEntry, QueueKind};
use subtend_host::Host;
use subtend_journal::Journal;
use subtend_session::ids::{RunNo, Seq, SessionId};
use subtend_session::index::Inflight;
use subtend_session::outcome::Outcome;
use subtend_session::record::Record;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::answers::{Controlled, RunReply};
use super::checkpoints;
use super::client::{self, Attached, HOSTS, Store};
use super::control;
use super::data::{StoreArgs, StoreLocation};
use super::fail::{Code, Fail};
use super::names;
use super::{cause, paint, work, worktrees};

/// Time in ms that a cancel waits for the end of the run.
const CANCEL_TIMEOUT_MS: u32 = 10_000;

pub(crate) struct Hosted {
    host: Attached,
    /// Journal that reads the store through the host.
    pub(crate) journal: Journal,
    pub(crate) id: SessionId,
    /// True if this process hosts the store; it does not run agents.
    pub(crate) is_own: bool,
    /// Last record of the session when the command began. With it, a repeated control takes effect once.
    after: Seq,
    /// True if a command that is not idempotent was sent.
    is_not_repeatable: Cell<bool>,
}

/// Runs `job` with the session `name` and the host of its store. If no process hosts the store, this process hosts it
/// during `job`. If a host ends before it answers, repeats `job` with the next host, unless a command that is not
/// idempotent was sent.
///
/// # Errors
/// Errors of `job` and of [`names::find`], and errors of the store and its host.
pub(crate) fn with(store: &StoreArgs, name: &str, job: impl Fn(&Hosted) -> Result<Code, Fail>) -> Result<Code, Fail> {
    let place = store.place()?;
    if !place.exists()? {
        return Err(place.missing_store());
    }
    let (mut after, mut hosts) = (None, 0);
    let journal = loop {
        let reader = match client::connect_or_open(&place)? {
            Store::Hosted(reader) => reader,
            Store::Own(journal) => break journal,
        };
        let pid = reader.serving.pid;
        hosts += 1;
        let hosted = match Hosted::on_other_host(reader, &place, name) {
            Err(_) if hosts < HOSTS && client::has_ended(&place, pid)? => continue,
            hosted => hosted?,
        };
        let first = *after.get_or_insert(hosted.after);
        let hosted = Hosted { after: first, ..hosted };
        match job(&hosted) {
            Err(Fail::Unavailable(_))
                if hosts < HOSTS && !hosted.is_not_repeatable.get() && client::has_ended(&place, pid)? => {}
            done => return done,
        }
    };
    let id = names::find(&journal, name)?;
    let begin = async |journal| {
        let host = control::begin(journal, &place).await?;
        let boot = host.runtime().boot();
        for (session, merged) in &boot.merged {
            writeln!(anstream::stderr(), "{}", worktrees::describe_finished(*session, merged))?;
        }
        if let Some(text) = checkpoints::describe_unrecorded(&boot.unrecorded) {
            writeln!(anstream::stderr(), "{text}")?;
        }
        Ok(host)
    };
    with_own_host(work::async_runtime()?, (journal, id, after), begin, job)
}

/// Runs `job` with a session of the store `journal`, which this process hosts during `job`. `after` is the session's last
/// record at the first attempt of the command.
///
/// # Errors
/// Errors of `begin` and `job`.
pub(crate) fn with_own_host(
    async_runtime: Runtime,
    (journal, id, after): (Journal, SessionId, Option<Seq>),
    begin: impl AsyncFnOnce(Journal) -> Result<Host, Fail>,
    job: impl FnOnce(&Hosted) -> Result<Code, Fail>,
) -> Result<Code, Fail> {
    let host = async_runtime.block_on(begin(journal.clone()))?;
    let after = after.map_or_else(|| last_seq(&journal, id), Ok)?;
    let own_host = Attached::in_process(async_runtime, host.local());
    let hosted = Hosted { host: own_host, journal, id, is_own: true, after, is_not_repeatable: Cell::new(false) };
    let done = job(&hosted);
    let async_runtime = hosted.host.into_runtime();
    async_runtime.block_on(control::end(host));
    work::end_runtime(async_runtime);
    done
}

fn last_seq(journal: &Journal, session: SessionId) -> Result<Seq, Fail> {
    Ok(journal.head(session)?.map_or(Seq(0), |head| head.last_seq))
}

impl Hosted {
    /// Finds the session `name` through the host of the store; `None` if no process hosts it.
    ///
    /// # Errors
    /// As [`names::find`], and when the host cannot be used.
    pub(crate) fn find(store: &StoreArgs, name: &str) -> Result<Option<Self>, Fail> {
        let place = store.place()?;
        let Some(reader) = Attached::to(&place)? else { return Ok(None) };
        Self::on_other_host(reader, &place, name).map(Some)
    }

    fn on_other_host(reader: Attached, place: &StoreLocation, name: &str) -> Result<Self, Fail> {
        let journal = reader.journal()?;
        let id = names::find(&journal, name)?;
        // One connection is for reads, the other for controls.
        let host = Attached::to(place)?.ok_or_else(client::host_ended_error)?;
        let after = last_seq(&journal, id)?;
        Ok(Self { host, journal, id, is_own: false, after, is_not_repeatable: Cell::new(false) })
    }

    /// Sends a command to the path `what` below the session's resource.
    ///
    /// # Errors
    /// As [`Attached::call`].
    pub(crate) fn call<T: for<'a> Deserialize<'a>>(
        &self,
        method: Method,
        what: &str,
        body: Option<&Value>,
    ) -> Result<T, Fail> {
        self.is_not_repeatable.set(self.is_not_repeatable.get() || method != Method::GET);
        self.host.call(method, &format!("/v1/sessions/{}{what}", self.id), body)
    }

    /// Sends an idempotent control. The host ignores a repetition if the session has a record of the control after
    /// `after`, the last record at the start of this command.
    ///
    /// # Errors
    /// As [`Attached::call`].
    pub(crate) fn control<T: for<'a> Deserialize<'a>>(
        &self,
        method: Method,
        what: &str,
        body: Option<&Value>,
    ) -> Result<T, Fail> {
        self.host.call(method, &format!("/v1/sessions/{}{what}?after={}", self.id, self.after), body)
    }

    /// As [`Hosted::call`] without a body, for async callers.
    ///
    /// # Errors
    /// As [`Attached::call`].
    pub(crate) async fn ask<T: for<'a> Deserialize<'a>>(&self, method: Method, what: &str) -> Result<T, Fail> {
        self.host.ask(method, &format!("/v1/sessions/{}{what}", self.id), None).await
    }

    /// Runs `work` to its end on the client's async runtime.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.host.block_on(work)
    }

    /// Cancels the run in flight, or the whole tree, and waits for the runs to end.
    pub(crate) fn cancel(&self, tree: bool, is_json: bool) -> Result<Code, Fail> {
        let root = self.journal.head(self.id)?.map(|head| head.root);
        let is_in_tree = |row: &Inflight| tree && Some(row.root) == root;
        let mut runs: Vec<(SessionId, RunNo)> = Vec::new();
        for (id, row) in self.journal.inflight()? {
            if id == self.id || is_in_tree(&row) {
                runs.push((id, row.run));
            }
        }
        // List the runs before the cancel, because they are no longer in flight afterwards. The number of the run
        // prevents a late cancel of the next run. A store that this process opened has no other clients.
        let own = runs.iter().find(|(id, _)| *id == self.id).filter(|_| !tree && !self.is_own);
        let which = own.map_or_else(|| format!("tree={tree}"), |(_, run)| format!("run={run}"));
        let path = format!("/v1/sessions/{}/cancel?{which}", self.id);
        let done: Controlled = self.host.call(Method::POST, &path, None)?;
        let due = Instant::now() + Duration::from_millis(CANCEL_TIMEOUT_MS.into());
        for (id, run) in runs {
            let left = due.saturating_duration_since(Instant::now()).as_millis().saturating_add(1);
            let path = format!("/v1/sessions/{id}/runs/{run}?wait=true&timeout={left}");
            // A host that is shutting down has accepted the cancel.
            let Ok(ended) = self.host.call::<RunReply>(Method::GET, &path, None) else { break };
            if ended.in_flight {
                if Instant::now() < due {
                    break;
                }
                return Err(Fail::Other(format!(
                    "the cancel was sent, but run {run} of session {} has not ended after {} s: check it with `subtend tree {}`",
                    id.short().0,
                    CANCEL_TIMEOUT_MS / 1_000,
                    self.id.short().0
                )));
            }
        }
        match done.cancelled {
            Some(cancelled) => control::report(
                is_json,
                &json!({"session": self.id, "result": "cancelled", "cancelled": cancelled}),
                &format!("cancelled {} in the tree", paint::count(cancelled, "run")),
            ),
            None => self.report(&done, "cancelled", is_json),
        }
    }

    /// Interrupts the run in flight.
    ///
    /// # Errors
    /// [`Fail::Other`] if the session has queued inputs: its run would take them, and this process runs no agents.
    pub(crate) fn interrupt(&self, is_json: bool) -> Result<Code, Fail> {
        let in_flight = self.journal.inflight_of(self.id)?.is_some();
        let inputs = |entry: &QueueEntry| entry.kind != QueueKind::Completion;
        let waiting = QueueEntry::list(&self.journal, self.id, in_flight)?.into_iter().filter(inputs).count();
        if self.is_own && in_flight && waiting > 0 {
            let name = self.id.short().0;
            return Err(Fail::Other(format!(
                "cannot interrupt session {name}: {}, and the run would take the next one at once, but this process does not run \
                 agents. Remove them with `subtend queue {name} clear`, or end the run with `subtend cancel {name}`",
                if waiting == 1 { "1 input is queued".to_owned() } else { format!("{waiting} inputs are queued") }
            )));
        }
        let done: Controlled = self.control(Method::POST, "/interrupt", None)?;
        self.report(&done, "interrupted", is_json)
    }

    fn report(&self, done: &Controlled, result: &str, is_json: bool) -> Result<Code, Fail> {
        let name = self.id.short().0;
        if let Some(run) = done.stopped_run() {
            let value = json!({"session": self.id, "result": result, "run": run});
            return control::report(is_json, &value, &format!("session {name}: run {run} is {result}"));
        }
        let outcome = self.last_outcome()?;
        let sentence = outcome.as_ref().map_or_else(String::new, cause::describe_outcome);
        let value = json!({
            "session": self.id, "result": "already_ended", "run": done.run,
            "outcome": outcome.as_ref().map(|outcome| outcome.kind().as_str()),
        });
        let text = format!("session {name}: no run is in flight; the last one ended as {sentence}");
        control::report(is_json, &value, &text)
    }

    fn last_outcome(&self) -> Result<Option<Outcome>, Fail> {
        let records = self.journal.records(self.id)?;
        Ok(records.into_iter().rev().find_map(|stored| {
            let Record::RunEnded(ended) = stored.record else { return None };
            Some(ended.outcome)
        }))
    }
}
