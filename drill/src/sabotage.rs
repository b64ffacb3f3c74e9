//! Seeded bugs that the drill must detect.

use clap::ValueEnum;
use serde::Serialize;
use subtend_actors::faults::Faults;
use subtend_invariants::InvariantId;
use subtend_journal::FAULT_POINTS;

use super::finding::FindingKind;

/// The variable that names the seeded bug of the killed process.
pub const VARIABLE: &str = "SUBTEND_FAULT";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Sabotage {
    /// The journal acknowledges before it commits
    AckBeforeCommit,
    /// The end of a run adds no outbox row
    NoOutbox,
    /// A session processes the end of an owned run twice
    NoDedup,
    /// A later activation does not fence earlier ones
    NoEpoch,
    /// Tools do not wait for their intent records
    NoIntent,
    /// Processes of tools run without a guard
    NoGuard,
    /// A compaction keeps deleted data
    NoErase,
    /// A deletion starts at the deepest sessions
    NoOrder,
    /// An event stream restarts at the first event, ignoring the position of its client (`--clients`)
    NoResume,
    /// An idempotency key is ignored (`--clients`)
    NoKey,
}

impl Sabotage {
    /// Returns the name on the command line and in the environment.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Sabotage {
    /// Returns the kinds of violations that the bug may cause. At least one must be found.
    pub(crate) fn expected_findings(self) -> &'static [FindingKind] {
        match self {
            Self::AckBeforeCommit => &[FindingKind::Lost],
            Self::NoOutbox => &[FindingKind::Unsound, FindingKind::Missing, FindingKind::NotEndedOnce],
            Self::NoDedup => &[FindingKind::Duplicated],
            Self::NoEpoch => &[FindingKind::Unfenced],
            Self::NoIntent => &[FindingKind::Unintended],
            Self::NoGuard => &[FindingKind::Orphaned],
            Self::NoErase => &[FindingKind::NotErased],
            Self::NoOrder => &[FindingKind::Lost],
            Self::NoResume | Self::NoKey => &[],
        }
    }

    /// Returns whether only a drill of clients detects the bug.
    pub fn is_of_clients(self) -> bool {
        matches!(self, Self::NoResume | Self::NoKey)
    }

    /// Returns whether `what`, a violation that a drill of clients found, shows this bug.
    pub(crate) fn is_shown_by(self, what: &str) -> bool {
        let id = if self == Self::NoResume { InvariantId::H1 } else { InvariantId::H2 };
        self.is_of_clients() && what.starts_with(id.id())
    }
}

pub(crate) fn is_on(sabotage: Sabotage) -> bool {
    let named = |text: String| text.split(',').any(|word| word.trim() == sabotage.name());
    Sabotage::is_built_in() && std::env::var(VARIABLE).is_ok_and(named)
}

impl Sabotage {
    /// Returns whether this binary has the seeded bugs.
    pub fn is_built_in() -> bool {
        FAULT_POINTS && Faults::COMPILED
    }

    /// Returns the error of a binary without the seeded bugs. It names the command that builds a binary with them.
    pub fn refusal(self) -> String {
        format!(
            "this binary has no fault points, which --sabotage {} needs. Build another with `cargo build --features \
             fault-points`, and run target/debug/subtend",
            self.name()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sabotage_names_match_the_command_line() {
        for sabotage in Sabotage::value_variants() {
            let value = sabotage.to_possible_value().expect("no sabotage is hidden");
            assert_eq!(value.get_name(), sabotage.name());
            assert_eq!(serde_json::to_value(sabotage).expect("a name"), sabotage.name());
        }
    }

    #[test]
    fn binary_without_fault_points_explains_how_to_build_one() {
        let text = Sabotage::NoEpoch.refusal();
        assert!(text.contains("--sabotage no-epoch") && text.contains("cargo build --features fault-points"), "{text}");
    }
}
