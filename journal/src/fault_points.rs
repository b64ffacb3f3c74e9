//! Seeded bugs that drills must detect. They need the feature `fault-points`.

use subtend_session::index::Changes;

/// True if this build has fault points.
pub const FAULT_POINTS: bool = cfg!(feature = "fault-points");

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FaultPoints {
    /// Durability is announced 50 ms before the commit.
    pub(crate) ack_before_commit: bool,
    pub(crate) no_outbox: bool,
    /// An activation reuses the previous epoch.
    pub(crate) no_epoch: bool,
    /// Commits take 50 ms longer, which exposes tools that do not wait for their intent records.
    pub(crate) no_intent: bool,
    /// A compaction keeps deleted sessions.
    pub(crate) no_erase: bool,
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
    fn parse(text: &str) -> Self {
        let has = |name| text.split(',').any(|word| word.trim() == name);
        Self {
            ack_before_commit: has("ack-before-commit"),
            no_outbox: has("no-outbox"),
            no_epoch: has("no-epoch"),
            no_intent: has("no-intent"),
            no_erase: has("no-erase"),
        }
    }

    pub(crate) fn apply(self, changes: &mut Changes) {
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
        let none = FaultPoints::default();
        assert_eq!(FaultPoints::parse("no-outbox"), FaultPoints { no_outbox: true, ..none });
        assert_eq!(FaultPoints::parse("no-epoch"), FaultPoints { no_epoch: true, ..none });
        assert_eq!(FaultPoints::parse("no-intent"), FaultPoints { no_intent: true, ..none });
        assert_eq!(FaultPoints::parse("no-erase"), FaultPoints { no_erase: true, ..none });
        assert_eq!(
            FaultPoints::parse("ack-before-commit, no-outbox"),
            FaultPoints { ack_before_commit: true, no_outbox: true, ..none }
        );
    }
}
