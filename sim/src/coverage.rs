//! Coverage: whether the worlds of the model and of the simulator test each predicate.
//!
//! A predicate *could have failed* in a world that has at least one fact for it to examine.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use subtend_invariants::{ALWAYS, Count, Coverage, QUIESCENT};

use crate::check::{Effort, check};
use crate::fault::SimFault;
use crate::size::Size;

/// Predicates that can fail neither in the model nor in the simulator, each with the test in which it can.
pub const ELSEWHERE: &[(&str, &str)] = &[
    ("store::same_recovery", "crashes_at_writes_and_in_recovery_leave_the_same_result"),
    ("store::damage_is_isolated", "damaged_session_returns_a_typed_error_and_others_start"),
    ("actors::within_budget", "restarts_after_any_deaths_are_within_their_budgets"),
    ("authority::parents_are_not_exceeded", "authorities_of_any_chain_satisfy_the_predicates"),
    ("authority::permissions_only_shrink", "authorities_of_any_chain_satisfy_the_predicates"),
    ("authority::rule_order_has_no_effect", "authorities_of_any_chain_satisfy_the_predicates"),
    ("clients::each_event_once", "clients_see_each_event_and_effect_once"),
    ("clients::one_effect_per_key", "clients_see_each_event_and_effect_once"),
];

/// The source of a world's facts: the model checker or the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldSource {
    Model,
    Simulator,
}

impl fmt::Display for WorldSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Model => "model",
            Self::Simulator => "simulator",
        })
    }
}

/// Predicates that can fail in only one source, because the other lacks the facts that they judge. All other predicates
/// can fail in both.
///
/// The model has no acknowledgements, disk, budgets or readers. The simulator's archive has no activations and no late
/// effects, and is at rest only when nothing is in flight.
pub const ALONE: &[(&str, WorldSource)] = &[
    ("outside::acknowledgements_are_recorded", WorldSource::Simulator),
    ("effects::intents_precede_effects", WorldSource::Simulator),
    ("store::start_at_rest_changes_nothing", WorldSource::Simulator),
    ("store::failure_stops_acknowledgements", WorldSource::Simulator),
    ("store::erased_session_is_empty", WorldSource::Simulator),
    ("outside::reported_ends_are_recorded", WorldSource::Simulator),
    ("outside::answers_fit", WorldSource::Simulator),
    ("effects::effects_stop_at_ends", WorldSource::Simulator),
    ("tree::no_late_effect", WorldSource::Model),
    ("effects::effects_stop_at_tokens", WorldSource::Simulator),
    ("tree::cancelled_in_time", WorldSource::Simulator),
    ("tree::detached_runs_outlive_owners", WorldSource::Simulator),
    ("actors::deaths_are_isolated", WorldSource::Model),
    ("outside::live_sessions_are_listed", WorldSource::Simulator),
    ("wake::model_receives_notices", WorldSource::Simulator),
    ("outside::received_in_order", WorldSource::Simulator),
    ("effects::unrepeatable_calls_start_once", WorldSource::Simulator),
    ("effects::contexts_are_clean", WorldSource::Simulator),
    ("rollback::no_model_receives_rolled_back_runs", WorldSource::Simulator),
    ("budget::within_limits", WorldSource::Simulator),
    ("budget::caps_are_enforced", WorldSource::Simulator),
    ("actors::crashing_commands_are_set_aside", WorldSource::Model),
    ("effects::fixed_runs_start_nothing", WorldSource::Model),
    ("actors::shutdown_is_ordered", WorldSource::Simulator),
    ("outside::queues_bounded", WorldSource::Simulator),
    ("outside::controls_have_their_own_lane", WorldSource::Simulator),
    ("asks::answered_by_rule", WorldSource::Simulator),
    ("outside::acknowledged_cancels_end", WorldSource::Simulator),
    ("session::reason_to_wait", WorldSource::Model),
    ("effects::waits_are_bounded", WorldSource::Model),
    ("tree::waiting_runs_hold_no_slot", WorldSource::Model),
    ("wake::idle_runs_wake", WorldSource::Model),
    ("effects::resources_are_released", WorldSource::Simulator),
    ("actors::abandoned_runs_end", WorldSource::Simulator),
];

/// Returns whether a source feeds a predicate: the predicate can fail in its worlds.
pub fn feeds(source: WorldSource, name: &str) -> bool {
    let elsewhere = ELSEWHERE.iter().any(|(listed, _)| *listed == name);
    let alone = ALONE.iter().find(|(listed, _)| *listed == name);
    !elsewhere && alone.is_none_or(|(_, only)| *only == source)
}

/// Sizes that are small enough to run only for their coverage.
const SMALL: [Size; 17] = [
    Size::SMALL,
    Size::PANIC,
    Size::CANCEL,
    Size::CRASH,
    Size::INTERRUPT,
    Size::STOP,
    Size::PERSON,
    Size::MOVE,
    Size::CONTINUED,
    Size::ASKING,
    Size::QUEUEING,
    Size::BRANCHING,
    Size::SERVICE,
    Size::ROLLBACK,
    Size::COMPACT,
    Size::LIMIT,
    Size::MESSAGE,
];

/// Runs the small models, and returns what the predicates examined.
pub fn of_model(threads: usize, states: usize) -> Arc<Coverage> {
    let all = Arc::<Coverage>::default();
    for size in SMALL {
        let effort = Effort { threads, states: Some(states), first_violation: false };
        all.add(&check(size, SimFault::None, effort).coverage);
    }
    all
}

/// Returns for each predicate and source the worlds that it judged, and those in which it could have failed.
pub fn table(model: &Coverage, simulator: &BTreeMap<&'static str, Count>) -> Vec<(&'static str, Count, Count)> {
    let of = |name| simulator.get(name).copied().unwrap_or_default();
    model.counts().map(|(predicate, count)| (predicate.name, count, of(predicate.name))).collect()
}

/// Compares the counts with [`feeds`], and returns an error text for each difference: the source feeds a predicate but has
/// no world in which it could have failed, or the reverse. Also for each listed name that is not a predicate.
pub fn missing(table: &[(&'static str, Count, Count)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, model, simulator) in table {
        for (source, count) in [(WorldSource::Model, model), (WorldSource::Simulator, simulator)] {
            match (feeds(source, name), count.relevant > 0) {
                (true, false) => wrong.push(format!("{name}: the {source} has no world in which it could have failed")),
                (false, true) => wrong.push(format!(
                    "{name}: the {source} has a world in which it could have failed; remove it from ELSEWHERE or ALONE"
                )),
                (true, true) | (false, false) => {}
            }
        }
    }
    let names: Vec<&str> = ALWAYS.iter().chain(QUIESCENT).map(|predicate| predicate.name).collect();
    let listed = ELSEWHERE.iter().map(|(name, _)| name).chain(ALONE.iter().map(|(name, _)| name));
    wrong.extend(listed.filter(|name| !names.contains(name)).map(|name| format!("{name}: unknown predicate")));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a table in which each predicate could have failed in all sources that feed it.
    fn sound() -> Vec<(&'static str, Count, Count)> {
        let count = |source, name| Count { judged: 2, relevant: u64::from(feeds(source, name)) };
        let all = ALWAYS.iter().chain(QUIESCENT).map(|predicate| predicate.name);
        all.map(|name| (name, count(WorldSource::Model, name), count(WorldSource::Simulator, name))).collect()
    }

    #[test]
    fn predicate_that_cannot_fail_is_reported() {
        assert_eq!(missing(&sound()), Vec::<String>::new());
        let at = |name: &str| sound().iter().position(|(of, ..)| *of == name).unwrap();
        // The predicate could still have failed in the other source.
        let (both, alone) = (at("session::one_end_per_run"), at("session::reason_to_wait"));
        let mut table = sound();
        table[both].2.relevant = 0;
        assert_eq!(
            missing(&table),
            ["session::one_end_per_run: the simulator has no world in which it could have failed"]
        );
        let mut table = sound();
        table[both].1.relevant = 0;
        assert_eq!(missing(&table), ["session::one_end_per_run: the model has no world in which it could have failed"]);
        let mut table = sound();
        table[alone].2.relevant = 1;
        let expected = "session::reason_to_wait: the simulator has a world in which it could have failed; remove it from ELSEWHERE or ALONE";
        assert_eq!(missing(&table), [expected]);
        let mut table = sound();
        table.iter_mut().for_each(|(_, model, _)| model.relevant = 1);
        let of_others = ALONE.iter().filter(|(_, source)| *source == WorldSource::Simulator).count();
        assert_eq!(
            missing(&table).len(),
            ELSEWHERE.len() + of_others,
            "listed predicates that can fail must be reported"
        );
    }
}
