//! The commands that a verb sends, and whether they may be sent again.

use std::cell::Cell;

use super::super::client::HOSTS;
use super::super::fail::Fail;

/// The commands that a verb sent. If a host ends before it answers, the verb restarts: each command has the key of the earlier try, by which
/// a host that finds it in the store does not do it twice.
pub(crate) struct Attempts {
    key: String,
    tries: Cell<u32>,
    /// Commands of this try.
    commands: Cell<u32>,
    /// Whether one was sent that may have been accepted, in this try or before.
    is_sent: Cell<bool>,
    is_answered: Cell<bool>,
}

impl Attempts {
    #[expect(clippy::disallowed_methods, reason = "it names a request, and no session")]
    pub(crate) fn new() -> Self {
        Self {
            key: uuid::Uuid::now_v7().to_string(),
            tries: Cell::new(1),
            commands: Cell::new(0),
            is_sent: Cell::new(false),
            is_answered: Cell::new(false),
        }
    }

    /// Returns whether the verb is retried after `fail`.
    pub(super) fn again(&self, fail: &Fail) -> bool {
        let again = matches!(fail, Fail::Unavailable(_)) && !self.is_answered.get() && self.tries.get() < HOSTS;
        self.tries.set(self.tries.get().saturating_add(1));
        self.commands.set(0);
        again
    }

    /// Whether another process may have accepted a command of a try before.
    pub(super) fn may_be_accepted(&self) -> bool {
        self.is_sent.get()
    }

    /// Returns the idempotency key of the next command. The host of this process needs none, unless another host may have accepted the
    /// command: a search for a key costs a read of one row of each session.
    pub(super) fn key(&self, is_own: bool) -> Option<String> {
        let known = !is_own || self.is_sent.get();
        let number = self.commands.get();
        self.commands.set(number.saturating_add(1));
        self.is_sent.set(self.is_sent.get() || !is_own);
        known.then(|| format!("{}-{number}", self.key))
    }

    /// Records the result of a command.
    pub(super) fn sent<T>(&self, done: Result<T, Fail>) -> Result<T, Fail> {
        if !matches!(done, Err(Fail::Unavailable(_))) {
            self.is_answered.set(true);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone() -> Fail {
        Fail::Unavailable("the host is gone".to_owned())
    }

    #[test]
    fn command_keeps_its_key_when_the_verb_begins_again() {
        let attempts = Attempts::new();
        let first = [attempts.key(false), attempts.key(false)];
        assert!(attempts.again(&gone()));
        assert_eq!([attempts.key(false), attempts.key(true)], first);
        assert_ne!(first[0], first[1]);
    }

    #[test]
    fn host_of_this_process_needs_no_key_for_a_first_try() {
        let attempts = Attempts::new();
        assert_eq!(attempts.key(true), None);
    }

    #[test]
    fn verb_begins_again_only_while_no_host_answered() {
        let attempts = Attempts::new();
        assert!(attempts.sent::<()>(Err(gone())).is_err());
        let again = (0..HOSTS).take_while(|_| attempts.again(&gone())).count();
        assert_eq!(again, HOSTS as usize - 1, "the last try is not repeated");
        assert!(!Attempts::new().again(&Fail::Store("damaged".to_owned())));
        let answered = Attempts::new();
        assert!(answered.sent(Ok(())).is_ok());
        assert!(!answered.again(&gone()));
    }
}
