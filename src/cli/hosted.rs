//! A session and the host of its store: controls are requests of the HTTP API.

use std::cell::Cell;
use std::io::Write as _;
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use serde_json::Value;
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
use super::{cause, paint, work};

/// How long a cancel waits for the end of the run, in milliseconds.
const PATIENCE_MS: u32 = 10_000;

pub(crate) struct Hosted {
    host: Attached,
    /// The store.
    pub(crate) journal: Journal,
    pub(crate) id: SessionId,
    /// Whether this process hosts the store: no agent works in it.
    pub(crate) is_own: bool,
    /// The last record of the session when the verb began: a control that is sent again with it has no second effect.
    after: Seq,
    /// Whether a command was sent that would act twice if it were sent again.
    is_bound: Cell<bool>,
}

/// Runs `job` with the session `name`, through the host of the store. If no process hosts the store, this one does during `job`.
/// A host that ends before it answers is replaced by the next one, unless it may have taken a command that would act twice.
///
/// # Errors
/// Those of `job`; as [`names::find`]; and when the store or its host cannot be used.
pub(crate) fn with(store: &StoreArgs, name: &str, job: impl Fn(&Hosted) -> Result<Code, Fail>) -> Result<Code, Fail> {
    let place = store.place()?;
    if !place.exists()? {
        return Err(place.none());
    }
    let (mut after, mut hosts) = (None, 0);
    let journal = loop {
        let reader = match client::either(&place)? {
            Store::Hosted(reader) => reader,
            Store::Own(journal) => break journal,
        };
        let pid = reader.serving.pid;
        hosts += 1;
        let hosted = match Hosted::through(reader, &place, name) {
            Err(_) if hosts < HOSTS && client::is_gone(&place, pid)? => continue,
            hosted => hosted?,
        };
        let first = *after.get_or_insert(hosted.after);
        let hosted = Hosted { after: first, ..hosted };
        match job(&hosted) {
            Err(Fail::Unavailable(_)) if hosts < HOSTS && !hosted.is_bound.get() && client::is_gone(&place, pid)? => {}
            done => return done,
        }
    };
    let id = names::find(&journal, name)?;
    let begin = async |journal| {
        let host = control::begin(journal, &place).await?;
        if let Some(text) = checkpoints::unrecorded(&host.runtime().boot().unrecorded) {
            writeln!(anstream::stderr(), "{text}")?;
        }
        Ok(host)
    };
    hosting(work::threads()?, (journal, id, after), begin, job)
}

/// Runs `job` with a session of the store `journal`, which this process hosts during `job`. `after` is the last record that an earlier
/// attempt of the command found there.
///
/// # Errors
/// Those of `begin` and `job`.
pub(crate) fn hosting(
    threads: Runtime,
    (journal, id, after): (Journal, SessionId, Option<Seq>),
    begin: impl AsyncFnOnce(Journal) -> Result<Host, Fail>,
    job: impl FnOnce(&Hosted) -> Result<Code, Fail>,
) -> Result<Code, Fail> {
    let host = threads.block_on(begin(journal.clone()))?;
    let after = after.map_or_else(|| last(&journal, id), Ok)?;
    let host_of_this = Attached::own(threads, host.local());
    let hosted = Hosted { host: host_of_this, journal, id, is_own: true, after, is_bound: Cell::new(false) };
    let done = job(&hosted);
    let threads = hosted.host.into_threads();
    threads.block_on(control::end(host));
    threads.shutdown_timeout(Duration::from_secs(1));
    done
}

fn last(journal: &Journal, session: SessionId) -> Result<Seq, Fail> {
    Ok(journal.head(session)?.map_or(Seq(0), |head| head.last_seq))
}

impl Hosted {
    /// Finds the session that `name` means in the host of the store; `None` where no process hosts it.
    ///
    /// # Errors
    /// As [`names::find`], and when the host cannot be used.
    pub(crate) fn find(store: &StoreArgs, name: &str) -> Result<Option<Self>, Fail> {
        let place = store.place()?;
        let Some(reader) = Attached::to(&place)? else { return Ok(None) };
        Self::through(reader, &place, name).map(Some)
    }

    fn through(reader: Attached, place: &StoreLocation, name: &str) -> Result<Self, Fail> {
        let journal = reader.journal()?;
        let id = names::find(&journal, name)?;
        // One connection reads, the other one controls.
        let host = Attached::to(place)?.ok_or_else(client::host_is_gone)?;
        let after = last(&journal, id)?;
        Ok(Self { host, journal, id, is_own: false, after, is_bound: Cell::new(false) })
    }

    /// Sends a command to `what` below the session.
    ///
    /// # Errors
    /// As [`Attached::call`].
    pub(crate) fn call<T: for<'a> Deserialize<'a>>(
        &self,
        method: Method,
        what: &str,
        body: Option<&Value>,
    ) -> Result<T, Fail> {
        self.is_bound.set(self.is_bound.get() || method != Method::GET);
        self.host.call(method, &format!("/v1/sessions/{}{what}", self.id), body)
    }

    /// Sends a control that acts once, however often it is sent: the host finds its record behind the one that this verb began with.
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

    /// As [`Hosted::call`] without a body, for a caller that waits for something else too.
    ///
    /// # Errors
    /// As [`Attached::call`].
    pub(crate) async fn ask<T: for<'a> Deserialize<'a>>(&self, method: Method, what: &str) -> Result<T, Fail> {
        self.host.ask(method, &format!("/v1/sessions/{}{what}", self.id), None).await
    }

    /// Waits for `work`.
    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.host.block_on(work)
    }

    /// Cancels the run in flight, or all of the tree, and waits for the ends.
    pub(crate) fn cancel(&self, tree: bool) -> Result<Code, Fail> {
        let root = self.journal.head(self.id)?.map(|head| head.root);
        let below = |row: &Inflight| tree && Some(row.root) == root;
        let mut runs: Vec<(SessionId, RunNo)> = Vec::new();
        for (id, row) in self.journal.inflight()? {
            if id == self.id || below(&row) {
                runs.push((id, row.run));
            }
        }
        // What a host cancelled before it ended is not in flight any more.
        let path = format!("/v1/sessions/{}/cancel?tree={tree}", self.id);
        let done: Controlled = self.host.call(Method::POST, &path, None)?;
        let due = Instant::now() + Duration::from_millis(PATIENCE_MS.into());
        for (id, run) in runs {
            let left = due.saturating_duration_since(Instant::now()).as_millis().saturating_add(1);
            let path = format!("/v1/sessions/{id}/runs/{run}?wait=true&timeout={left}");
            // A host that ends has accepted the cancel, and nothing is left to wait for.
            let Ok(ended) = self.host.call::<RunReply>(Method::GET, &path, None) else { break };
            if ended.in_flight {
                if Instant::now() < due {
                    break;
                }
                return Err(Fail::Other(format!(
                    "cancelled, and run {run} of session {} has not ended after {} s: `subtend tree {}` shows when it has",
                    id.short().0,
                    PATIENCE_MS / 1_000,
                    self.id.short().0
                )));
            }
        }
        match done.cancelled {
            Some(cancelled) => {
                control::say(&format!("cancelled {} in the tree", paint::count(cancelled, "run")))?;
                Ok(Code::Done)
            }
            None => self.report(&done, "is cancelled"),
        }
    }

    /// Interrupts the run in flight.
    ///
    /// # Errors
    /// [`Fail::Other`] where the run would take an input at once that no agent of this process could answer.
    pub(crate) fn interrupt(&self) -> Result<Code, Fail> {
        let in_flight = self.journal.inflight_of(self.id)?.is_some();
        let inputs = |entry: &QueueEntry| entry.kind != QueueKind::Completion;
        let waiting = QueueEntry::list(&self.journal, self.id, in_flight)?.into_iter().filter(inputs).count();
        if self.is_own && in_flight && waiting > 0 {
            let name = self.id.short().0;
            return Err(Fail::Other(format!(
                "{} in session {name}: the first would be taken at once, and no agent works in this process; \
                 `subtend queue {name} clear` removes the queued inputs, `subtend cancel {name}` ends the run and leaves it",
                if waiting == 1 { "1 input waits".to_owned() } else { format!("{waiting} inputs wait") }
            )));
        }
        let done: Controlled = self.control(Method::POST, "/interrupt", None)?;
        self.report(&done, "is interrupted")
    }

    fn report(&self, done: &Controlled, what: &str) -> Result<Code, Fail> {
        let name = self.id.short().0;
        control::say(&match done.run {
            Some(run) => format!("session {name}: run {run} {what}"),
            None => {
                let sentence = self.last_outcome()?.map_or_else(String::new, |outcome| cause::sentence(&outcome));
                format!("session {name}: no run is in flight; the last one ended as {sentence}")
            }
        })?;
        Ok(Code::Done)
    }

    /// How the last run ended.
    fn last_outcome(&self) -> Result<Option<Outcome>, Fail> {
        let records = self.journal.records(self.id)?;
        Ok(records.into_iter().rev().find_map(|stored| {
            let Record::RunEnded(ended) = stored.record else { return None };
            Some(ended.outcome)
        }))
    }
}
