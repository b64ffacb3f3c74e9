//! Dialects: families of tools for child sessions. All dialects map to the same commands, and differ in their words for
//! outcomes ([`Dialect::word`]).

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::ids::{SessionId, Short, Text};
use crate::outcome::OutcomeKind;
use crate::phase::Phase;

pub mod discovery;
pub mod jobs;

/// A family of tools for children, with its own words for outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    Subagent,
    #[default]
    Task,
    Spawn,
    SpawnTask,
    Minion,
}

impl Dialect {
    pub const ALL: [Self; 5] = [Self::Subagent, Self::Task, Self::Spawn, Self::SpawnTask, Self::Minion];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Subagent => "subagent",
            Self::Task => "task",
            Self::Spawn => "spawn",
            Self::SpawnTask => "spawn_task",
            Self::Minion => "minion",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name)
    }

    /// Returns whether the model fetches ends by a tool. They are kept for later reads, and sent only to an idle model.
    pub const fn is_pulled(self) -> bool {
        self.fetch_tool().is_some()
    }

    pub const fn fetch_tool(self) -> Option<&'static str> {
        match self {
            Self::Spawn => Some(jobs::AWAIT),
            Self::SpawnTask => Some("check_task"),
            Self::Subagent | Self::Task | Self::Minion => None,
        }
    }

    pub const fn allows_nesting(self) -> bool {
        match self {
            Self::Task | Self::SpawnTask => true,
            Self::Subagent | Self::Spawn | Self::Minion => false,
        }
    }

    /// Returns whether the dialect's tools are hidden from MCP clients and refused to them.
    pub const fn is_internal_only(self) -> bool {
        match self {
            Self::Subagent => true,
            Self::Task | Self::Spawn | Self::SpawnTask | Self::Minion => false,
        }
    }

    /// Returns the result of a refused call. `subagent` returns an object even then.
    pub fn refused(self, code: &str, message: &str) -> Text {
        match self {
            Self::Subagent => {
                let report = json!({
                    "success": false, "subagentId": "", "branchId": "", "status": "error", "message": message, "error": code,
                });
                report.to_string().into()
            }
            Self::Minion => format!("Minion error: {message}").into(),
            Self::Task | Self::Spawn | Self::SpawnTask => message.into(),
        }
    }

    /// Returns whether this is the default dialect, which records omit.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub(crate) fn is_task(&self) -> bool {
        *self == Self::Task
    }

    /// No dialect has a word for partial output: a failed run returns it together with its status.
    pub const fn word(self, kind: OutcomeKind) -> &'static str {
        let [subagent, task, spawn, spawn_task, minion] = match kind {
            OutcomeKind::Completed => ["complete", "output", "OK", "completed", "result"],
            OutcomeKind::Cancelled => ["cancelled", "error", "ERROR", "cancelled", "error"],
            // For `task`, the final text at the turn limit is still an answer, and mentions the limit.
            OutcomeKind::OutOfTurns => ["max_iterations", "output", "ERROR", "failed", "error"],
            OutcomeKind::Lost => ["abandoned", "error", "ERROR", "failed", "error"],
            OutcomeKind::Failed
            | OutcomeKind::Interrupted
            | OutcomeKind::TimedOut
            | OutcomeKind::OutOfBudget
            | OutcomeKind::RestartsExhausted => ["error", "error", "ERROR", "failed", "error"],
        };
        match self {
            Self::Subagent => subagent,
            Self::Task => task,
            Self::Spawn => spawn,
            Self::SpawnTask => spawn_task,
            Self::Minion => minion,
        }
    }

    /// Returns the outcome of a word; `None` for an ambiguous or unknown word.
    pub fn kind(self, word: &str) -> Option<OutcomeKind> {
        let mut targets = OutcomeKind::ALL.into_iter().filter(|kind| self.word(*kind) == word);
        match (targets.next(), targets.next()) {
            (Some(kind), None) => Some(kind),
            (None, _) | (Some(_), Some(_)) => None,
        }
    }
}

/// Returns the state of a branch in the words of `subagent`; `None` before its first run.
pub fn branch_state(phase: Phase, last: Option<OutcomeKind>) -> Option<&'static str> {
    match phase {
        Phase::Quiet => last.map(|kind| Dialect::Subagent.word(kind)),
        Phase::Queued
        | Phase::Working
        | Phase::WaitingMidTurn
        | Phase::WaitingAtRest
        | Phase::HeldInterrupted
        | Phase::HeldOutOfTurns
        | Phase::Closing => Some("running"),
    }
}

/// Returns the task id of `spawn_task`, which sorts by creation time.
pub fn task_id(child: SessionId) -> String {
    format!("task_{}", child.0.simple())
}

/// Returns the id that an owner's model uses for a child of `dialect`.
pub fn id_for_model(dialect: Dialect, child: SessionId, short: &Short) -> String {
    match dialect {
        Dialect::SpawnTask => task_id(child),
        Dialect::Subagent | Dialect::Task | Dialect::Spawn | Dialect::Minion => short.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row for each outcome, with the words of the dialects in the order of [`Dialect::ALL`].
    const TABLE: [(OutcomeKind, [&str; 5]); 9] = [
        (OutcomeKind::Completed, ["complete", "output", "OK", "completed", "result"]),
        (OutcomeKind::Failed, ["error", "error", "ERROR", "failed", "error"]),
        (OutcomeKind::Cancelled, ["cancelled", "error", "ERROR", "cancelled", "error"]),
        (OutcomeKind::Interrupted, ["error", "error", "ERROR", "failed", "error"]),
        (OutcomeKind::TimedOut, ["error", "error", "ERROR", "failed", "error"]),
        (OutcomeKind::OutOfTurns, ["max_iterations", "output", "ERROR", "failed", "error"]),
        (OutcomeKind::OutOfBudget, ["error", "error", "ERROR", "failed", "error"]),
        (OutcomeKind::Lost, ["abandoned", "error", "ERROR", "failed", "error"]),
        (OutcomeKind::RestartsExhausted, ["error", "error", "ERROR", "failed", "error"]),
    ];

    #[test]
    fn dialect_name_is_unique_and_equals_its_record_form() {
        for dialect in Dialect::ALL {
            assert_eq!(Dialect::from_name(dialect.name()), Some(dialect));
            assert_eq!(serde_json::to_value(dialect).unwrap(), dialect.name());
        }
        assert_eq!(Dialect::from_name("tasks"), None);
    }

    #[test]
    fn dialect_properties_match_the_table() {
        let rows = Dialect::ALL
            .map(|it| (it.name(), it.is_pulled(), it.allows_nesting(), it.is_internal_only(), it.is_task()));
        let expected = [
            ("subagent", false, false, true, false),
            ("task", false, true, false, true),
            ("spawn", true, false, false, false),
            ("spawn_task", true, true, false, false),
            ("minion", false, false, false, false),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn child_is_known_by_short_name_and_task_by_its_own_id() {
        let child: SessionId = "0192f0c1-2d3e-7abc-8def-0123456789ab".parse().unwrap();
        let known = Dialect::ALL.map(|dialect| id_for_model(dialect, child, &Short("a3f9c1".into())));
        let task = "task_0192f0c12d3e7abc8def0123456789ab";
        assert_eq!(known, ["a3f9c1", "a3f9c1", "a3f9c1", task, "a3f9c1"]);
    }

    #[test]
    fn k6_every_outcome_has_a_word_in_each_dialect() {
        let table = OutcomeKind::ALL.map(|kind| (kind, Dialect::ALL.map(|dialect| dialect.word(kind))));
        assert_eq!(table, TABLE);
    }

    #[test]
    fn unambiguous_words_map_back_to_their_outcome() {
        let kinds_by_word = |dialect: Dialect| {
            let mut words: Vec<_> = OutcomeKind::ALL.map(|kind| dialect.word(kind)).to_vec();
            words.sort_unstable();
            words.dedup();
            words.into_iter().map(|word| (word, dialect.kind(word))).collect::<Vec<_>>()
        };
        use OutcomeKind::{Cancelled, Completed, Lost, OutOfTurns};
        let subagent = [
            ("abandoned", Some(Lost)),
            ("cancelled", Some(Cancelled)),
            ("complete", Some(Completed)),
            ("error", None),
            ("max_iterations", Some(OutOfTurns)),
        ];
        assert_eq!(kinds_by_word(Dialect::Subagent), subagent);
        assert_eq!(kinds_by_word(Dialect::Task), [("error", None), ("output", None)]);
        assert_eq!(kinds_by_word(Dialect::Spawn), [("ERROR", None), ("OK", Some(Completed))]);
        let spawn_task = [("cancelled", Some(Cancelled)), ("completed", Some(Completed)), ("failed", None)];
        assert_eq!(kinds_by_word(Dialect::SpawnTask), spawn_task);
        assert_eq!(kinds_by_word(Dialect::Minion), [("error", None), ("result", Some(Completed))]);
    }

    #[test]
    fn foreign_or_running_words_have_no_outcome() {
        for (dialect, word) in [
            (Dialect::Subagent, "completed"),
            (Dialect::Subagent, "running"),
            (Dialect::Spawn, "ok"),
            (Dialect::SpawnTask, "pending"),
            (Dialect::Minion, ""),
        ] {
            assert_eq!(dialect.kind(word), None, "{dialect:?} {word:?}");
        }
    }
}
