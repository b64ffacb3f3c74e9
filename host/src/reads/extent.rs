//! Classifies requests by what they read.

use axum::extract::Request;

/// The extent of a request's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// The request reads nothing, or waits: a waiting request must not hold a permit.
    Little,
    Session,
    /// A tree, or all sessions.
    Store,
}

impl Reads {
    pub(super) fn of(request: &Request) -> Self {
        let (method, path) = (request.method(), request.uri().path().trim_end_matches('/'));
        let waits = may_wait(path);
        let streams = path.ends_with("/events") || path.starts_with("/v1/store") || path.ends_with("/export");
        if !method.is_safe()
            || waits
            || streams
            || path.starts_with("/assets/")
            || matches!(path, "/v1/openapi.json" | "/v1/host")
        {
            return Self::Little;
        }
        let last = path.rsplit('/').next().unwrap_or_default();
        match last {
            "" | "sessions" | "approvals" | "usage" | "replay" | "at" | "timeline" | "chart" | "tree" | "kids" => {
                Self::Store
            }
            "healthz" | "readyz" | "metrics" | "worktree" => Self::Little,
            _ => Self::Session,
        }
    }
}

/// Returns whether a request to this path may wait. On other paths the parameter `wait` has no effect.
fn may_wait(path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        // The handlers get a permit for each of their reads.
        ["", "v1", "tasks", "get", _] | ["", "v1", "sessions", _, "runs" | "inputs", _] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(method: &str, path: &str) -> Request {
        Request::builder().method(method).uri(path).body(Body::empty()).expect("a request")
    }

    #[test]
    fn request_is_classified_by_what_it_reads() {
        for (line, reads) in [
            ("GET /", Reads::Store),
            ("GET /v1/sessions?limit=500", Reads::Store),
            ("GET /v1/approvals", Reads::Store),
            ("GET /v1/approvals/0192/3.0", Reads::Session),
            ("POST /v1/tasks/list", Reads::Little),
            ("GET /s/0192/replay", Reads::Store),
            ("HEAD /usage", Reads::Store),
            ("GET /s/0192", Reads::Session),
            ("GET /v1/sessions/0192/transcript", Reads::Session),
            ("GET /v1/sessions/0192/runs/1?wait=true", Reads::Little),
            ("GET /v1/sessions/0192/runs/1", Reads::Little),
            ("GET /v1/tasks/get/task_0192", Reads::Little),
            ("GET /v1/sessions/0192/worktree", Reads::Little),
            // Attack: `wait` on paths where it has no effect.
            ("GET /?wait=true", Reads::Store),
            ("GET /v1/sessions?wait", Reads::Store),
            ("GET /s/0192/replay?at=1&wait=true", Reads::Store),
            ("GET /v1/sessions/0192/transcript?wait=true", Reads::Session),
            ("GET /v1/trees/0192/events", Reads::Little),
            ("POST /v1/sessions", Reads::Little),
            ("GET /healthz", Reads::Little),
            ("GET /assets/page.css", Reads::Little),
            ("GET /v1/host", Reads::Little),
        ] {
            let (method, path) = line.split_once(' ').expect("a line");
            assert_eq!(Reads::of(&request(method, path)), reads, "{line}");
        }
    }
}
