//! A session of a store that another process hosts: controls go to that process.

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use subtend_journal::Journal;
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::index::Inflight;
use subtend_session::outcome::Outcome;
use subtend_session::record::Record;

use super::client::Attached;
use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::{cause, paint};

/// How long the end of a run is waited for that was cancelled, in milliseconds.
const PATIENCE_MS: u32 = 10_000;

/// A session, and the host that has it.
pub(crate) struct Hosted {
    host: Attached,
    /// The store, read through the host.
    pub(crate) journal: Journal,
    pub(crate) id: SessionId,
}

/// What a control came to.
#[derive(Deserialize)]
struct Controlled {
    run: Option<u32>,
    cancelled: Option<u32>,
}

/// Whether a run has ended.
#[derive(Deserialize)]
struct Run {
    in_flight: bool,
}

impl Hosted {
    /// Finds the session that `name` means; `None` where no process hosts the store.
    ///
    /// # Errors
    /// As [`control::find`], and when the host cannot be used.
    pub(crate) fn find(store: &StoreArgs, name: &str) -> Result<Option<Self>, Fail> {
        let place = store.place()?;
        let Some(reader) = Attached::to(&place)? else { return Ok(None) };
        let journal = reader.journal()?;
        let id = control::find(&journal, name)?;
        // One connection reads, the other one controls.
        let host = Attached::to(&place)?.ok_or_else(|| Fail::Store("the host of the store is gone".to_owned()))?;
        Ok(Some(Self { host, journal, id }))
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
        self.host.call(method, &format!("/v1/sessions/{}{what}", self.id), body)
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
        let done: Controlled = self.call(Method::POST, &format!("/cancel?tree={tree}"), None)?;
        for (id, run) in runs {
            let path = format!("/v1/sessions/{id}/runs/{run}?wait=true&timeout={PATIENCE_MS}");
            // A host in the foreground ends with its own run: the cancel was accepted, and nothing is left to wait for.
            let Ok(ended) = self.host.call::<Run>(Method::GET, &path, None) else { break };
            if ended.in_flight {
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
            None => self.told(&done, "is cancelled"),
        }
    }

    /// Interrupts the run in flight.
    pub(crate) fn interrupt(&self) -> Result<Code, Fail> {
        let done: Controlled = self.call(Method::POST, "/interrupt", None)?;
        self.told(&done, "is interrupted")
    }

    fn told(&self, done: &Controlled, what: &str) -> Result<Code, Fail> {
        let name = self.id.short().0;
        control::say(&match done.run {
            Some(run) => format!("session {name}: run {run} {what}"),
            None => {
                let sentence = self.last_outcome()?.map_or_else(String::new, |outcome| cause::sentence(&outcome));
                format!("session {name}: its last run had ended: {sentence}")
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

    /// Answers a call that waits for an approval, as it is shown now.
    pub(crate) fn answer(&self, call: &str, verdict: &str) -> Result<Code, Fail> {
        let open: Vec<Value> = self.host.call(Method::GET, "/v1/approvals", None)?;
        let (id, name) = (json!(self.id), self.id.short().0);
        let Some(row) = open.iter().find(|row| row["session"] == id && row["call"] == call) else {
            return Err(Fail::Other(format!(
                "call {call} of session {name} does not wait for an approval: `subtend approvals` lists those that do"
            )));
        };
        let body = json!({"verdict": verdict, "digest": row["digest"]});
        let _: Value = self.host.call(Method::POST, &format!("/v1/approvals/{}/{call}", self.id), Some(&body))?;
        let done = if verdict == "deny" { "denied" } else { "allowed" };
        control::say(&format!("session {name}: call {call} is {done}"))?;
        Ok(Code::Done)
    }
}
