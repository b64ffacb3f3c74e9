//! Waits for runs to end and for answers, with a time limit that the client gives.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use utoipa::IntoParams;

use crate::host::Host;
use crate::problem::Problem;
use crate::reads;

const DEFAULT_WAIT: Duration = Duration::from_secs(300);
/// Maximum time limit of a wait; clients repeat the request to wait longer.
const MAX_WAIT: Duration = Duration::from_secs(600);

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
    /// Waits for `end` until the time limit or the end of the host. Checks `yet` before and after the wait: the last
    /// check catches a run that ends together with its foreground host. Each check needs a permit for reads.
    pub(super) async fn wait_until<T: Send, E: Send, F>(
        self,
        host: &Host,
        end: impl Future<Output = Result<T, E>> + Send,
        yet: impl Fn() -> F,
    ) -> Result<Option<T>, Problem>
    where
        F: Future<Output = Result<Option<T>, E>> + Send,
        Problem: From<E>,
    {
        if let Some(ended) = host.reads().read_session(yet()).await?? {
            return Ok(Some(ended));
        }
        if !self.wait {
            return Ok(None);
        }
        if let Some(ended) = self.wait_for(host, reads::to_end(end)).await {
            return Ok(Some(ended?));
        }
        Ok(host.reads().read_session(yet()).await??)
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
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::http::Request;
    use serde_json::json;
    use subtend_actors::{OpenOptions, Runtime};
    use subtend_session::ids::SessionId;
    use tower::ServiceExt as _;

    use super::*;
    use crate::HostOptions;

    async fn host() -> Host {
        let model = subtend_models::closure::fn_model("x", |_, _| std::future::pending());
        let runtime = Runtime::builder().model(std::sync::Arc::new(model)).start().await.expect("a runtime");
        Host::new(runtime, HostOptions::default())
    }

    fn outcome(result: Result<Option<u8>, Problem>) -> Result<Option<u8>, (u16, &'static str)> {
        result.map_err(|problem| (problem.status, problem.code))
    }

    /// A request that waits reads its session before and after. The controls: with a permit, both reads succeed.
    #[tokio::test]
    async fn wait_needs_a_permit_for_each_of_its_reads() {
        let host = host().await;
        tokio::time::pause();
        let waiting = WaitQuery { wait: true, timeout: Some(1_000) };
        let ended = || async { Ok::<_, Problem>(Some(1)) };
        let never = std::future::pending::<Result<u8, Problem>>;
        let all = host.reads().hold_all_session_permits().await;
        assert_eq!(outcome(waiting.wait_until(&host, never(), ended).await), Err((503, "busy")));
        drop(all);
        assert_eq!(outcome(waiting.wait_until(&host, never(), ended).await), Ok(Some(1)));

        for (is_taken, expected) in [(true, Err((503, "busy"))), (false, Ok(Some(1)))] {
            let (taken, was_read) = (OnceLock::new(), AtomicBool::new(false));
            let end = async {
                if is_taken {
                    drop(taken.set(host.reads().hold_all_session_permits().await));
                }
                std::future::pending().await
            };
            let yet = || {
                let is_second = was_read.swap(true, Ordering::Relaxed);
                async move { Ok::<_, Problem>(is_second.then_some(1)) }
            };
            assert_eq!(outcome(waiting.wait_until(&host, end, yet).await), expected, "{is_taken}");
        }
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
