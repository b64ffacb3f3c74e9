//! Idempotency keys and retries of the commands that are sent to a host.

use std::cell::Cell;

use super::super::client::HOSTS;
use super::super::fail::Fail;

/// The attempts of a CLI command, which restarts if a host ends before it answers. Each request keeps its idempotency
/// key, so that the next host does not repeat a request that is in the store.
pub(crate) struct Attempts {
    key: String,
    attempts: Cell<u32>,
    /// Number of requests in this attempt.
    requests: Cell<u32>,
    /// True if another host may have accepted a request of this or an earlier attempt.
    is_sent: Cell<bool>,
    is_answered: Cell<bool>,
}

impl Attempts {
    #[expect(clippy::disallowed_methods, reason = "it names a request, not a session")]
    pub(crate) fn new() -> Self {
        Self {
            key: uuid::Uuid::now_v7().to_string(),
            attempts: Cell::new(1),
            requests: Cell::new(0),
            is_sent: Cell::new(false),
            is_answered: Cell::new(false),
        }
    }

    /// Returns whether the CLI command is retried after `fail`.
    pub(super) fn should_retry(&self, fail: &Fail) -> bool {
        let should_retry =
            matches!(fail, Fail::Unavailable(_)) && !self.is_answered.get() && self.attempts.get() < HOSTS;
        self.attempts.set(self.attempts.get().saturating_add(1));
        self.requests.set(0);
        should_retry
    }

    /// Returns whether another process may have accepted a request of an earlier attempt.
    pub(super) fn may_be_accepted(&self) -> bool {
        self.is_sent.get()
    }

    /// Returns the idempotency key of the next request. Returns `None` for the host within this process, unless another
    /// host may have accepted the request: looking up a key reads every session.
    pub(super) fn key(&self, is_own: bool) -> Option<String> {
        let known = !is_own || self.is_sent.get();
        let number = self.requests.get();
        self.requests.set(number.saturating_add(1));
        self.is_sent.set(self.is_sent.get() || !is_own);
        known.then(|| format!("{}-{number}", self.key))
    }

    pub(super) fn record_result<T>(&self, done: Result<T, Fail>) -> Result<T, Fail> {
        if !matches!(done, Err(Fail::Unavailable(_))) {
            self.is_answered.set(true);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unavailable() -> Fail {
        Fail::Unavailable("the host is gone".to_owned())
    }

    #[test]
    fn request_keeps_its_key_in_a_retry() {
        let attempts = Attempts::new();
        let first = [attempts.key(false), attempts.key(false)];
        assert!(attempts.should_retry(&unavailable()));
        assert_eq!([attempts.key(false), attempts.key(true)], first);
        assert_ne!(first[0], first[1]);
    }

    #[test]
    fn own_host_needs_no_key_in_the_first_attempt() {
        let attempts = Attempts::new();
        assert_eq!(attempts.key(true), None);
    }

    #[test]
    fn command_is_retried_only_before_an_answer() {
        let attempts = Attempts::new();
        assert!(attempts.record_result::<()>(Err(unavailable())).is_err());
        let should_retry = (0..HOSTS).take_while(|_| attempts.should_retry(&unavailable())).count();
        assert_eq!(should_retry, HOSTS as usize - 1, "the last attempt is not repeated");
        assert!(!Attempts::new().should_retry(&Fail::Store("damaged".to_owned())));
        let answered = Attempts::new();
        assert!(answered.record_result(Ok(())).is_ok());
        assert!(!answered.should_retry(&unavailable()));
    }
}
