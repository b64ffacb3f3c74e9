//! Waits for runs to end and for answers, with a time limit that the client gives.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use subtend_actors::{AnswerError, AnswerWait, Answered, Ended, RunHandle, WaitError};
use subtend_session::ids::SessionId;
use utoipa::IntoParams;

use crate::host::Host;
use crate::problem::Problem;

const DEFAULT_WAIT: Duration = Duration::from_secs(300);
/// Maximum time limit of a wait; clients repeat the request to wait longer.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Something to wait for. Between its reads a wait holds no records.
pub(super) trait Awaited: Send {
    type Found: Send;
    type Error: Send;

    /// Reads whether it has happened. Needs a permit.
    fn read(&mut self) -> impl Future<Output = Result<Option<Self::Found>, Self::Error>> + Send;

    /// Waits until another read may find it. Reads no records.
    fn changed(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

impl Awaited for AnswerWait<'_> {
    type Error = AnswerError;
    type Found = Answered;

    fn read(&mut self) -> impl Future<Output = Result<Option<Answered>, AnswerError>> + Send {
        AnswerWait::read(self)
    }

    fn changed(&mut self) -> impl Future<Output = Result<(), AnswerError>> + Send {
        AnswerWait::changed(self)
    }
}

impl Awaited for RunHandle {
    type Error = WaitError;
    type Found = Ended;

    fn read(&mut self) -> impl Future<Output = Result<Option<Ended>, WaitError>> + Send {
        self.try_ended()
    }

    fn changed(&mut self) -> impl Future<Output = Result<(), WaitError>> + Send {
        RunHandle::changed(self)
    }
}

/// Options of a wait.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitQuery {
    /// True to wait for the end; otherwise the current state is returned.
    #[serde(default)]
    wait: bool,
    /// Maximum time to wait, in ms. Default: 300,000; maximum: 600,000.
    #[serde(default, deserialize_with = "timeout")]
    #[param(minimum = 0, maximum = 600000)]
    timeout: Option<u64>,
}

/// Parses a time limit, and refuses one above [`MAX_WAIT`].
fn timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let timeout = Option::<u64>::deserialize(from)?;
    match timeout.is_some_and(|ms| Duration::from_millis(ms) > MAX_WAIT) {
        true => Err(D::Error::custom(format!("give {} ms at most, or leave it out", MAX_WAIT.as_millis()))),
        false => Ok(timeout),
    }
}

impl WaitQuery {
    /// Waits for `of`, of `session`, until the time limit or the end of the host. Each read needs a permit. The last read catches a run
    /// that ends together with its foreground host.
    pub(super) async fn wait_until<W: Awaited>(
        self,
        host: &Host,
        session: SessionId,
        mut of: W,
    ) -> Result<Option<W::Found>, Problem>
    where
        Problem: From<W::Error>,
    {
        let journal = host.runtime().journal();
        if let Some(found) = host.reads().read_whole_session(journal, session, of.read()).await?? {
            return Ok(Some(found));
        }
        if !self.wait {
            return Ok(None);
        }
        let found = async {
            loop {
                of.changed().await?;
                if let Some(found) = host.reads().read_for_stream(of.read()).await? {
                    return Ok::<_, W::Error>(found);
                }
            }
        };
        if let Some(found) = self.wait_for(host, found).await {
            return Ok(Some(found?));
        }
        Ok(host.reads().read_whole_session(journal, session, of.read()).await??)
    }

    /// Waits for `end` within the time limit. Returns `None` after the time limit, or if the host ends.
    pub(super) async fn wait_for<T>(self, host: &Host, end: impl Future<Output = T>) -> Option<T> {
        let most = match (self.wait, self.timeout) {
            (false, _) => Duration::ZERO,
            (true, None) => DEFAULT_WAIT,
            (true, Some(ms)) => Duration::from_millis(ms),
        };
        tokio::select! {
            biased;
            ended = tokio::time::timeout(most, end) => ended.ok(),
            () = host.ends().cancelled() => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::http::Request;
    use serde_json::json;
    use subtend_actors::{OpenOptions, Runtime};
    use tokio::sync::Notify;
    use tokio::time::timeout;
    use tower::ServiceExt as _;

    use super::*;
    use crate::{HostOptions, reads};

    /// A session that the journal does not have.
    const NOT_STORED: SessionId = SessionId(uuid::Uuid::nil());

    async fn host() -> Host {
        let model = subtend_models::closure::fn_model("x", |_, _| std::future::pending());
        let runtime = Runtime::builder().model(std::sync::Arc::new(model)).start().await.expect("a runtime");
        Host::new(runtime, HostOptions::default())
    }

    /// Found by a read; each change is immediate, or never comes.
    #[derive(Default)]
    struct Steps {
        reads: u32,
        found_by: u32,
        never_changes: bool,
        awaits_change: Arc<Notify>,
        without_permit: Arc<AtomicU32>,
    }

    impl Awaited for Steps {
        type Error = Problem;
        type Found = u32;

        async fn read(&mut self) -> Result<Option<u32>, Problem> {
            self.reads += 1;
            self.without_permit.fetch_add(u32::from(!reads::holds_permit()), Ordering::Relaxed);
            Ok((self.reads == self.found_by).then_some(self.reads))
        }

        async fn changed(&mut self) -> Result<(), Problem> {
            self.awaits_change.notify_one();
            if self.never_changes { std::future::pending().await } else { Ok(()) }
        }
    }

    fn found_by(found_by: u32) -> Steps {
        Steps { found_by, ..Steps::default() }
    }

    fn outcome(result: Result<Option<u32>, Problem>) -> Result<Option<u32>, (u16, &'static str)> {
        result.map_err(|problem| (problem.status, problem.code))
    }

    /// A request that waits reads its session before and after. The controls: with a permit, both reads succeed.
    #[tokio::test]
    async fn wait_needs_a_permit_for_each_of_its_reads() {
        let host = host().await;
        tokio::time::pause();
        let waiting = WaitQuery { wait: true, timeout: Some(1_000) };
        let all = host.reads().hold_all_session_permits().await;
        assert_eq!(outcome(waiting.wait_until(&host, NOT_STORED, found_by(1)).await), Err((503, "busy")));
        drop(all);
        assert_eq!(outcome(waiting.wait_until(&host, NOT_STORED, found_by(1)).await), Ok(Some(1)));

        for (is_taken, expected) in [(true, Err((503, "busy"))), (false, Ok(Some(2)))] {
            let steps = Steps { never_changes: true, ..found_by(2) };
            let waits = Arc::clone(&steps.awaits_change);
            let taken = async {
                waits.notified().await;
                if is_taken { Some(host.reads().hold_all_session_permits().await) } else { None }
            };
            let (found, _all) = tokio::join!(waiting.wait_until(&host, NOT_STORED, steps), taken);
            assert_eq!(outcome(found), expected, "{is_taken}");
        }
    }

    /// Attack: many requests wait for one input, and each new record wakes all of them. The control: a read without a
    /// permit is counted as such.
    #[tokio::test]
    async fn woken_waits_read_with_permits() {
        let host = host().await;
        let mut steps = found_by(2);
        let without_permit = Arc::clone(&steps.without_permit);
        drop(steps.read().await);
        assert_eq!(without_permit.swap(0, Ordering::Relaxed), 1, "control");
        let waiting = WaitQuery { wait: true, timeout: Some(60_000) };
        steps.found_by = 9;
        assert_eq!(outcome(waiting.wait_until(&host, NOT_STORED, steps).await), Ok(Some(9)));
        assert_eq!(without_permit.load(Ordering::Relaxed), 0);
    }

    /// Commands do not hold a permit throughout, because some wait. The controls: a merge of metadata reads no records, and an id names its
    /// session without a lookup among all.
    #[tokio::test]
    async fn commands_that_read_sessions_need_a_permit() {
        let host = host().await;
        let (session, _) = host.open(OpenOptions::agent("general")).await.expect("a session");
        session.merge_metadata(json!({ "a": 1 })).await.expect("merged");
        tokio::time::pause();
        let id = session.id();
        let all = host.reads().hold_all_session_permits().await;
        let mut found = Vec::new();
        for (method, path, body) in [
            ("POST", format!("{id}/branches"), "{}"),
            ("POST", format!("{id}/regenerate"), "{}"),
            ("POST", format!("{id}/rollback"), "{}"),
            ("POST", format!("{id}/summary?stale=true"), ""),
            ("POST", "root/interrupt".to_owned(), ""),
            ("POST", format!("{id}/interrupt"), ""),
            ("PATCH", id.to_string(), r#"{"metadata": {"b": 2}}"#),
        ] {
            let request = Request::builder().method(method).uri(format!("/v1/sessions/{path}"));
            let request = request
                .header("content-type", "application/json")
                .body(axum::body::Body::from(body))
                .expect("a request");
            found.push(host.router().oneshot(request).await.expect("infallible").status().as_u16());
        }
        assert_eq!(found, [503, 503, 503, 503, 503, 404, 200]);
        drop(all);
    }

    /// Attack: a token uses up its permits, so that its commands must wait for one. The control: with a permit, a
    /// command waits for the lock.
    #[tokio::test]
    async fn command_without_a_permit_holds_no_lock() {
        let host = host().await;
        let (session, _) = host.open(OpenOptions::agent("general")).await.expect("a session");
        tokio::time::pause();
        let (id, second) = (session.id(), Duration::from_secs(1));
        let request = |path: &str, body: &'static str| {
            let request = Request::post(format!("/v1/sessions/{id}/{path}")).header("content-type", "application/json");
            host.router().oneshot(request.body(axum::body::Body::from(body)).expect("a request"))
        };
        for (path, body) in [("rollback", "{}"), ("switch?after=1", r#"{"to": "next"}"#), ("interrupt?after=1", "")] {
            let all = host.reads().hold_all_session_permits().await;
            let mut waiting = pin!(request(path, body));
            timeout(second, &mut waiting).await.expect_err("no permit");
            drop(timeout(second, host.lock_session(id)).await.expect("no request holds the lock"));
            drop(all);
            let locked = host.lock_session(id).await;
            timeout(second, &mut waiting).await.expect_err("control: the lock is held");
            drop(locked);
            assert!(waiting.await.expect("infallible").status().as_u16() != 503);
        }
        // A command without `after` reads nothing, and an interrupt needs no lock either.
        let (_all, _locked) = (host.reads().hold_all_session_permits().await, host.lock_session(id).await);
        let done = timeout(second, request("interrupt", "")).await.expect("it waits for nothing");
        assert_eq!(done.expect("infallible").status().as_u16(), 404);
    }

    /// Attack: commands for one session occupy it, and others wait for them. The control: a read without a permit is
    /// refused.
    #[tokio::test]
    async fn commands_that_wait_for_a_lock_hold_no_permit() {
        let host = host().await;
        let (slow, _) = host.open(OpenOptions::agent("general")).await.expect("a session");
        let (other, _) = host.open(OpenOptions::agent("general")).await.expect("a session");
        tokio::time::pause();
        let (slow, read) = (slow.id(), format!("/v1/sessions/{}/transcript", other.id()));
        let send = |method: &str, path: &str, body: &'static str| {
            let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
            host.router().oneshot(request.body(axum::body::Body::from(body)).expect("a request"))
        };
        let status =
            async |method: &str, path: &str| send(method, path, "").await.expect("infallible").status().as_u16();
        let locked = host.lock_session(slow).await;
        let commands = ["rollback", "switch?after=1", "interrupt?after=1", "close?after=1"].map(|path| {
            let body = match path {
                "rollback" => "{}",
                "switch?after=1" => r#"{"to": "next"}"#,
                _ => "",
            };
            Box::pin(send("POST", &format!("/v1/sessions/{slow}/{path}"), body))
        });
        let mut waiting = Box::pin(futures_util::future::join_all(commands));
        timeout(Duration::from_secs(60), &mut waiting).await.expect_err("they wait for the lock");
        assert_eq!(status("GET", &read).await, 200);
        let all = host.reads().hold_all_session_permits().await;
        assert_eq!(status("GET", &read).await, 503, "control");
        let close = format!("/v1/sessions/{}/close", other.id());
        assert_eq!(status("POST", &close).await, 204, "a command that reads nothing needs no permit");
        drop((all, locked));
        let done: Vec<_> = waiting.await.into_iter().map(|done| done.expect("infallible").status().as_u16()).collect();
        assert_eq!(done, [409, 409, 404, 204]);
    }

    /// Attack: the lock of a session and the permits are free in turns. The control: a command waits within the limit.
    #[tokio::test]
    async fn command_waits_for_permits_up_to_one_limit() {
        let host = host().await;
        let (session, _) = host.open(OpenOptions::agent("general")).await.expect("a session");
        tokio::time::pause();
        let request = Request::post(format!("/v1/sessions/{}/rollback", session.id()));
        let request =
            request.header("content-type", "application/json").body(axum::body::Body::from("{}")).expect("a request");
        let (mut waiting, limit) = (pin!(host.router().oneshot(request)), Duration::from_secs(6));
        let all = host.reads().hold_all_session_permits().await;
        timeout(limit, &mut waiting).await.expect_err("control: no permit");
        let locked = host.lock_session(session.id()).await;
        drop(all);
        timeout(Duration::from_secs(1), &mut waiting).await.expect_err("control: the lock is held");
        let _all = host.reads().hold_all_session_permits().await;
        drop(locked);
        let refused = timeout(limit, &mut waiting).await.expect("refused after one limit").expect("infallible");
        assert_eq!(refused.status().as_u16(), 503);
    }

    /// A wait without a permit for its first read does not return a task as if it had waited. The control: with a permit, it waits.
    #[tokio::test]
    async fn task_wait_without_a_permit_is_refused() {
        let host = host().await;
        let task = host.runtime().spawn_task(OpenOptions::agent("general"), "go").await.expect("a task");
        tokio::time::pause();
        let path = format!("/v1/tasks/get/task_{}?wait=true", task.session().id());
        let get = || host.router().oneshot(Request::get(&path).body(axum::body::Body::empty()).expect("a request"));
        timeout(Duration::from_secs(60), get()).await.expect_err("control: it waits");
        let all = host.reads().hold_all_session_permits().await;
        let (mut waiting, mut next) = (pin!(get()), pin!(host.reads().hold_all_session_permits()));
        assert!(futures_util::poll!(&mut waiting).is_pending() && futures_util::poll!(&mut next).is_pending());
        drop(all);
        // The lookup got a permit, and the first read of the wait does not.
        let (refused, held) = tokio::join!(timeout(Duration::from_secs(15), &mut waiting), next);
        let refused = refused.expect("it does not read the task instead").expect("infallible");
        assert_eq!(refused.status().as_u16(), 503);
        drop(held);
    }

    /// A request that may wait does not hold a permit throughout; its handler gets one for each read. The control: with
    /// a permit, the session is looked up.
    #[tokio::test]
    async fn session_lookup_needs_a_permit_if_the_request_may_wait() {
        let host = host().await;
        tokio::time::pause();
        let id = SessionId(uuid::Uuid::from_u128(1));
        let paths = [
            format!("/v1/sessions/{id}/runs/1"),
            format!("/v1/sessions/{id}/inputs/{id}"),
            format!("/v1/tasks/get/task_{id}"),
        ];
        let status = async |path: &str| {
            let request = Request::get(path).body(axum::body::Body::empty()).expect("a request");
            host.router().oneshot(request).await.expect("infallible").status().as_u16()
        };
        let all = host.reads().hold_all_session_permits().await;
        for path in &paths {
            assert_eq!(status(path).await, 503, "{path}");
        }
        drop(all);
        for path in &paths {
            assert_eq!(status(path).await, 404, "{path}");
        }
    }
}
