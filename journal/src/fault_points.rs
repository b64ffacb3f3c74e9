//! Sabotage for drills that must notice it: off without the feature `fault-points`.

use subtend_session::index::Changes;

/// What is sabotaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FaultPoints {
    /// Durability is announced 50 ms before the commit.
    pub(crate) ack_before_commit: bool,
    /// Obligations are dropped.
    pub(crate) no_outbox: bool,
}

impl FaultPoints {
    /// Reads `SUBTEND_FAULT`, a comma-separated list, once.
    #[cfg(feature = "fault-points")]
    pub(crate) fn read() -> Self {
        Self::parse(&std::env::var("SUBTEND_FAULT").unwrap_or_default())
    }

    #[cfg(not(feature = "fault-points"))]
    pub(crate) fn read() -> Self {
        Self::default()
    }

    #[cfg(any(feature = "fault-points", test))]
    fn parse(words: &str) -> Self {
        let has = |name| words.split(',').any(|word| word.trim() == name);
        Self { ack_before_commit: has("ack-before-commit"), no_outbox: has("no-outbox") }
    }

    pub(crate) fn spoil(self, changes: &mut Changes) {
        if self.no_outbox {
            changes.put.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_faults_are_on() {
        assert_eq!(FaultPoints::parse(""), FaultPoints::default());
        assert_eq!(FaultPoints::parse("no-outbox"), FaultPoints { ack_before_commit: false, no_outbox: true });
        assert_eq!(
            FaultPoints::parse("ack-before-commit, no-outbox"),
            FaultPoints { ack_before_commit: true, no_outbox: true }
        );
    }
}
