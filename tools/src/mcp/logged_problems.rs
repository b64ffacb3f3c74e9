//! The problems of a server that were logged. A server can report changed lists without end, and each one may have problems.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use subtend_session::ids::Hash;

/// Maximum number of problems of a server that are logged.
const MAX_LOGGED: usize = 256;

#[derive(Default)]
pub(super) struct LoggedProblems(Mutex<BTreeSet<[u8; 16]>>);

impl LoggedProblems {
    /// Calls `log` if the problem is new and few were logged.
    pub(super) fn log_new(&self, server: &str, problem: &str, log: impl FnOnce()) {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() >= MAX_LOGGED || !logged.insert(Hash::of(problem.as_bytes()).0) {
            return;
        }
        log();
        if logged.len() == MAX_LOGGED {
            tracing::warn!(%server, "further problems of an MCP server are not logged; `subtend tools list` shows them");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control: each of a few problems is logged.
    #[test]
    fn problem_is_logged_once_and_few_are_logged() {
        let (logged, mut lines) = (LoggedProblems::default(), Vec::new());
        for problem in ["a", "b", "a", "b"] {
            logged.log_new("s", problem, || lines.push(problem));
        }
        assert_eq!(lines, ["a", "b"]);
        let mut count = 0;
        (0..9_999).for_each(|n| logged.log_new("s", &n.to_string(), || count += 1));
        assert_eq!(count, MAX_LOGGED - 2);
    }
}
