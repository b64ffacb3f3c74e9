//! The state of each call of a remote tool: queued, leased to a worker, or ended. The caller passes the current time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use blake3::Hash;
use serde::{Deserialize, Serialize};
use subtend_session::ids::{SessionId, Text};
use subtend_session::values::JsonText;
use subtend_tools::tool::{Progress, ToolError, ToolInvocation, ToolKey, ToolOutput};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use utoipa::ToSchema;

use super::tool::RemoteTool;
use crate::auth::secret;

#[cfg(test)]
mod tests;

/// Maximum number of times that a call is leased.
pub const ATTEMPTS: u32 = 3;

/// Maximum number of calls that are queued or leased at the same time.
pub const MAX_CALLS: usize = 1_000;

/// Maximum number of workers in the list.
pub const MAX_WORKERS: usize = 1_000;

/// Time without a request after which a worker may be removed from a full list.
const WORKER_TTL: Duration = Duration::from_secs(900);

/// Maximum number of completions that are kept, so that a repeated one gets the same response.
const MAX_COMPLETED: usize = 1_000;

/// The end of the message to a model about an idempotent call that a worker had begun.
const REPEATABLE: &str = "it may have had all, some or none of its effects, and may be called again";

type RemoteEnd = Result<ToolOutput, ToolError>;

#[derive(Debug, Default)]
pub(super) struct CallBoard {
    last: u64,
    pub(super) calls: BTreeMap<u64, RemoteCall>,
    /// The call of each lease token, including tokens of earlier leases.
    leases: HashMap<String, u64>,
    completed: VecDeque<(String, Hash)>,
    pub(super) workers: BTreeMap<String, SeenWorker>,
    /// True if a call was queued again since the last [`CallBoard::has_returned`].
    returned: bool,
    /// Number of leases that ran out.
    pub(super) lost: u64,
}

#[derive(Debug)]
pub(super) struct RemoteCall {
    pub(super) tool: Arc<RemoteTool>,
    pub(super) session: SessionId,
    /// The identity of the call, stable over attempts and restarts of the host.
    pub(super) id: String,
    args: JsonText,
    max_bytes: u64,
    progress: Progress,
    pub(super) state: RemoteState,
    pub(super) attempt: u32,
    /// True if an earlier worker began the call and did not finish it: it may have had effects, although queued again.
    begun_before: bool,
    cancelled: bool,
    pub(super) since: Instant,
    changed: Arc<Notify>,
}

#[derive(Debug)]
pub(super) enum RemoteState {
    Queued,
    Leased(Lease),
    Ended(RemoteEnd),
}

#[derive(Debug)]
pub(super) struct Lease {
    token: String,
    pub(super) worker: String,
    until: Instant,
    /// True if the worker has renewed the lease. Before that, it must not have started the call.
    pub(super) begun: bool,
    stop: CancellationToken,
    /// Fires `stop` when the lease is dropped.
    _ends: DropGuard,
}

#[derive(Debug)]
pub(super) struct SeenWorker {
    pub(super) tools: Vec<Text>,
    pub(super) at: Instant,
}

/// The next step of the waiter of a call.
#[derive(Debug)]
pub(super) enum RemoteStep {
    Ended(Box<RemoteEnd>),
    /// Wait for a change, or until this time.
    Wait(Option<Instant>),
}

/// A call that a worker has leased. The worker must renew the lease before it starts the call.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeasedCall {
    /// The id of the call: the same in each attempt and after a restart of the host, so it can serve as an idempotency key.
    pub(crate) call: String,
    /// The tool.
    #[schema(value_type = String)]
    pub(crate) tool: Text,
    /// The arguments, which match the schema of the tool.
    #[schema(value_type = Object)]
    pub(crate) args: JsonText,
    /// The fencing token: names this lease in each renewal and in the completion.
    pub(crate) token: String,
    /// Milliseconds until the lease runs out, unless it is renewed.
    pub(crate) lease_ms: u64,
    /// Number of the attempt, from 1.
    pub(crate) attempt: u32,
    /// Maximum bytes of a result; longer ones are truncated.
    pub(crate) max_bytes: u64,
}

/// The result of a call, as its worker reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum WorkerResult {
    /// The call succeeded.
    Ok {
        /// The text for the model.
        content: String,
        /// Number of bytes before the worker truncated the text.
        truncated_from: Option<u64>,
    },
    /// The call failed.
    Error {
        /// The reason, for the model.
        message: String,
        /// True if a retry of the same call may succeed.
        #[serde(default)]
        retryable: bool,
    },
    /// The call was stopped at an unknown point and may have had effects.
    Stopped,
    /// The call was not started. Another worker may take it.
    NotStarted,
}

/// The lease has ended, or was not granted by this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseLost;

/// The reason why a completion is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionRefused {
    Lost,
    /// The lease was never renewed: the worker had not begun the call.
    NotBegun,
    /// The same lease was completed with another result.
    Differs,
}

/// The reason why no call can be leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeRefused {
    /// The system has no random bytes for a token.
    NoRandomness,
}

pub(super) struct ExtendedLease {
    pub(super) lease: Duration,
    pub(super) stop: CancellationToken,
    pub(super) progress: Progress,
}

impl CallBoard {
    /// Queues a call.
    ///
    /// # Errors
    /// If too many calls are queued or leased.
    pub(super) fn add(&mut self, call: RemoteCall) -> Result<(u64, Arc<Notify>), ToolError> {
        if self.calls.len() >= MAX_CALLS {
            let message = format!("{MAX_CALLS} calls of remote tools wait or run already: try again later");
            return Err(ToolError { retryable: true, ..ToolError::limit(message) });
        }
        self.last = self.last.saturating_add(1);
        let changed = Arc::clone(&call.changed);
        self.calls.insert(self.last, call);
        Ok((self.last, changed))
    }

    /// Removes a call. Its leases are lost.
    pub(super) fn remove(&mut self, no: u64) {
        self.calls.remove(&no);
        self.leases.retain(|_, of| *of != no);
    }

    /// Leases the oldest queued call of one of `tools`.
    ///
    /// # Errors
    /// [`TakeRefused`].
    pub(super) fn take(
        &mut self,
        worker: &str,
        tools: &[Text],
        now: Instant,
    ) -> Result<Option<LeasedCall>, TakeRefused> {
        self.record_worker(worker, tools, now);
        let queued = |call: &RemoteCall| matches!(call.state, RemoteState::Queued) && !call.cancelled;
        let mut waiting = self.calls.iter_mut();
        let Some((no, call)) = waiting.find(|(_, call)| queued(call) && tools.contains(&call.tool.spec.name)) else {
            return Ok(None);
        };
        let token = secret().ok_or(TakeRefused::NoRandomness)?;
        self.leases.insert(token.clone(), *no);
        Ok(Some(call.lease_to(token, worker, now)))
    }

    /// Adds a worker to the list. If the list is full, removes workers without a request for [`WORKER_TTL`], and if
    /// necessary the least recently seen worker of the most common set of tools. So a token that keeps inventing names
    /// does not displace workers with other tools.
    fn record_worker(&mut self, worker: &str, tools: &[Text], now: Instant) {
        if !self.workers.contains_key(worker) && self.workers.len() >= MAX_WORKERS {
            self.workers.retain(|_, seen| now.duration_since(seen.at) < WORKER_TTL);
            let mut names: BTreeMap<&[Text], usize> = BTreeMap::new();
            self.workers.values().for_each(|seen| *names.entry(&seen.tools).or_default() += 1);
            let of = |seen: &SeenWorker| Reverse(names.get(&*seen.tools).copied().unwrap_or_default());
            let first = self.workers.iter().min_by_key(|(_, seen)| (of(seen), seen.at));
            let first = first.map(|(name, _)| name.clone()).filter(|_| self.workers.len() >= MAX_WORKERS);
            first.into_iter().for_each(|name| _ = self.workers.remove(&name));
        }
        self.workers.insert(worker.to_owned(), SeenWorker { tools: tools.to_vec(), at: now });
    }

    /// Ends expired leases and calls, then returns the call whose current lease has `token`.
    fn current_call(&mut self, token: &str, now: Instant) -> Option<&mut RemoteCall> {
        let call = self.calls.get_mut(self.leases.get(token)?)?;
        let (expired, returned) = call.expire(now);
        self.lost = self.lost.saturating_add(u64::from(expired));
        self.returned |= returned;
        call.end_expired(now);
        call.has_lease(token).then_some(call)
    }

    pub(super) fn tool_of(&self, token: &str) -> Option<Text> {
        self.calls.get(self.leases.get(token)?).map(|call| Arc::clone(&call.tool.spec.name))
    }

    /// Extends a lease; the first renewal begins the call, unless it is cancelled.
    ///
    /// # Errors
    /// [`LeaseLost`].
    pub(super) fn renew(&mut self, token: &str, now: Instant) -> Result<ExtendedLease, LeaseLost> {
        let call = self.current_call(token, now).ok_or(LeaseLost)?;
        let (lease, cancelled, progress) = (call.tool.lease, call.cancelled, call.progress.clone());
        let RemoteState::Leased(held) = &mut call.state else { return Err(LeaseLost) };
        held.until = now + lease;
        held.begun |= !cancelled;
        let (worker, stop) = (held.worker.clone(), held.stop.clone());
        call.changed.notify_one();
        if let Some(seen) = self.workers.get_mut(&worker) {
            seen.at = now;
        }
        Ok(ExtendedLease { lease, stop, progress })
    }

    /// Returns whether the worker of a lease should stop.
    ///
    /// # Errors
    /// [`LeaseLost`].
    pub(super) fn is_stopped(&mut self, token: &str, now: Instant) -> Result<bool, LeaseLost> {
        self.current_call(token, now).map(|call| call.cancelled).ok_or(LeaseLost)
    }

    /// Ends a call with the result of its worker.
    ///
    /// # Errors
    /// [`CompletionRefused`]; then nothing changes.
    pub(super) fn complete(
        &mut self,
        token: &str,
        result: WorkerResult,
        any_lease: bool,
        now: Instant,
    ) -> Result<(), CompletionRefused> {
        let hash = blake3::hash(&serde_json::to_vec(&result).unwrap_or_default());
        if let Some((_, before)) = self.completed.iter().find(|(completed, _)| completed == token) {
            return if *before == hash { Ok(()) } else { Err(CompletionRefused::Differs) };
        }
        let call = match self.leases.get(token).copied() {
            Some(no) if any_lease => {
                self.calls.get_mut(&no).filter(|call| !matches!(call.state, RemoteState::Ended(_)))
            }
            _ => self.current_call(token, now),
        };
        let call = call.ok_or(CompletionRefused::Lost)?;
        let begun = matches!(&call.state, RemoteState::Leased(lease) if lease.begun);
        if !begun && !any_lease && result != WorkerResult::NotStarted {
            return Err(CompletionRefused::NotBegun);
        }
        let returned = call.complete(result);
        self.returned |= returned;
        if self.completed.len() >= MAX_COMPLETED {
            self.completed.pop_front();
        }
        self.completed.push_back((token.to_owned(), hash));
        Ok(())
    }

    /// Applies a cancel, ends expired leases and calls, then returns the next step of a call.
    pub(super) fn step(&mut self, no: u64, cancelled: bool, now: Instant) -> RemoteStep {
        // Does not happen: only the waiter itself removes a call.
        let Some(call) = self.calls.get_mut(&no) else {
            return RemoteStep::Ended(Box::new(Err(ToolError::cancelled())));
        };
        if cancelled {
            call.cancel();
        }
        let (expired, returned) = call.expire(now);
        self.lost = self.lost.saturating_add(u64::from(expired));
        self.returned |= returned;
        call.end_expired(now);
        match &call.state {
            RemoteState::Ended(end) => RemoteStep::Ended(Box::new(end.clone())),
            RemoteState::Queued => RemoteStep::Wait(call.deadline()),
            RemoteState::Leased(lease) => {
                RemoteStep::Wait(Some(call.deadline().map_or(lease.until, |deadline| deadline.min(lease.until))))
            }
        }
    }

    /// Returns whether a call was returned to the queue since this was last asked.
    pub(super) fn has_returned(&mut self) -> bool {
        std::mem::take(&mut self.returned)
    }
}

impl RemoteCall {
    pub(super) fn new(tool: Arc<RemoteTool>, call: ToolInvocation, now: Instant) -> Self {
        let ToolKey { session, run, call: no } = call.key;
        Self {
            tool,
            session,
            id: format!("{session}:{run}:{no}"),
            args: JsonText(call.args.to_string().into()),
            max_bytes: call.max_bytes,
            progress: call.progress,
            state: RemoteState::Queued,
            attempt: 0,
            begun_before: false,
            cancelled: false,
            since: now,
            changed: Arc::default(),
        }
    }

    fn lease_to(&mut self, token: String, worker: &str, now: Instant) -> LeasedCall {
        self.attempt = self.attempt.saturating_add(1);
        let stop = CancellationToken::new();
        let (until, ends) = (now + self.tool.lease, stop.clone().drop_guard());
        let lease = Lease { token: token.clone(), worker: worker.to_owned(), until, begun: false, stop, _ends: ends };
        self.state = RemoteState::Leased(lease);
        self.changed.notify_one();
        LeasedCall {
            call: self.id.clone(),
            tool: Arc::clone(&self.tool.spec.name),
            args: self.args.clone(),
            token,
            lease_ms: u64::try_from(self.tool.lease.as_millis()).unwrap_or(u64::MAX),
            attempt: self.attempt,
            max_bytes: self.max_bytes,
        }
    }

    fn has_lease(&self, token: &str) -> bool {
        matches!(&self.state, RemoteState::Leased(lease) if lease.token == token)
    }

    fn deadline(&self) -> Option<Instant> {
        self.tool.deadline.map(|deadline| self.since + deadline)
    }

    fn end(&mut self, end: RemoteEnd) {
        self.state = RemoteState::Ended(end);
        self.changed.notify_one();
    }

    /// Cancels a call. One that has not begun ends at once; one that has begun continues until its worker stops.
    fn cancel(&mut self) {
        self.cancelled = true;
        match &self.state {
            RemoteState::Queued => self.end(Err(ToolError::cancelled())),
            RemoteState::Leased(lease) if !lease.begun => self.end(Err(ToolError::cancelled())),
            RemoteState::Leased(lease) => lease.stop.cancel(),
            RemoteState::Ended(_) => {}
        }
    }

    /// Ends the lease if it has run out. Returns whether it has, and whether the call is queued again.
    fn expire(&mut self, now: Instant) -> (bool, bool) {
        let RemoteState::Leased(lease) = &self.state else { return (false, false) };
        if lease.until > now {
            return (false, false);
        }
        let (call, tool, worker, begun) = (&self.id, &self.tool.spec.name, &lease.worker, lease.begun);
        tracing::warn!(%call, %tool, worker, attempt = self.attempt, begun, "the lease of a worker ran out");
        let lost = format!("the worker `{worker}` was lost");
        (true, self.abandon(begun, &lost))
    }

    /// Ends the lease of a worker that did not finish the call. Returns whether the call is queued again.
    fn abandon(&mut self, begun: bool, why: &str) -> bool {
        let (name, before) = (Arc::clone(&self.tool.spec.name), self.begun_before);
        self.begun_before |= begun;
        let retry = |message: String| ToolError { retryable: true, ..ToolError::failed(message) };
        if begun && !self.tool.idempotent {
            let message = format!(
                "{why} during this call of `{name}`: it may have had all, some or none of its effects. Check before you call it again."
            );
            self.end(Err(ToolError::unknown_effects(message)));
        } else if self.cancelled {
            self.end(Err(ToolError::cancelled()));
        } else if self.attempt >= ATTEMPTS && begun {
            self.end(Err(retry(format!("{why} during this call of `{name}`, as were {} others before", ATTEMPTS - 1))));
        } else if self.attempt >= ATTEMPTS && before {
            self.end(Err(retry(format!(
                "{why} before it began this call of `{name}` again, after {} others: {REPEATABLE}",
                ATTEMPTS - 1
            ))));
        } else if self.attempt >= ATTEMPTS {
            self.end(Err(retry(format!("no worker began this call of `{name}`, the last of {ATTEMPTS} since {why}"))));
        } else {
            self.state = RemoteState::Queued;
            self.changed.notify_one();
            return true;
        }
        false
    }

    /// Ends a call whose deadline has passed.
    fn end_expired(&mut self, now: Instant) {
        let Some(deadline) = self.tool.deadline.filter(|deadline| self.since + *deadline <= now) else { return };
        let begun = match &self.state {
            RemoteState::Ended(_) => return,
            RemoteState::Queued => self.begun_before,
            RemoteState::Leased(lease) => lease.begun || self.begun_before,
        };
        let (name, seconds) = (&self.tool.spec.name, deadline.as_secs());
        let error = match (begun, self.tool.idempotent) {
            (false, _) => {
                let message = format!("no worker began this call of `{name}` within {seconds} s: it had no effects");
                ToolError { retryable: true, ..ToolError::failed(message) }
            }
            (true, true) => ToolError {
                retryable: true,
                ..ToolError::failed(format!("this call of `{name}` was not done within {seconds} s: {REPEATABLE}"))
            },
            (true, false) => ToolError::unknown_effects(format!(
                "this call of `{name}` was not done within {seconds} s: it may have had all, some or none of its effects. Check \
                 before you call it again."
            )),
        };
        self.end(Err(error));
    }

    /// Ends the call with the result of its worker. Returns whether the call is queued again.
    fn complete(&mut self, result: WorkerResult) -> bool {
        match result {
            WorkerResult::Ok { content, truncated_from } => {
                self.end(Ok(ToolOutput { content: content.into(), truncated_from }));
                false
            }
            WorkerResult::Error { message, retryable } => {
                self.end(Err(ToolError { retryable, ..ToolError::failed(message) }));
                false
            }
            WorkerResult::Stopped => self.abandon(true, "the worker stopped"),
            WorkerResult::NotStarted => self.abandon(false, "the worker gave it back"),
        }
    }
}
