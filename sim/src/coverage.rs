//! Coverage: which source could refute each predicate, and which predicates no source can.

use std::collections::BTreeMap;
use std::sync::Arc;

use subtend_invariants::{ALWAYS, Count, Coverage, QUIESCENT};

use crate::check::{Effort, check};
use crate::fault::SimFault;
use crate::size::Size;

/// Predicates that neither the model nor the simulator can refute, each with the test that can.
pub const ELSEWHERE: &[(&str, &str)] = &[
    ("store::same_recovery", "crashes_at_writes_and_in_recovery_leave_the_same_result"),
    ("store::set_aside", "damaged_session_returns_a_typed_error_and_others_start"),
    ("actors::within_budget", "restarts_after_any_deaths_are_within_their_budgets"),
    ("authority::below_parents", "authorities_of_any_chain_are_as_the_predicates_say"),
    ("authority::monotone", "authorities_of_any_chain_are_as_the_predicates_say"),
    ("authority::orderless", "authorities_of_any_chain_are_as_the_predicates_say"),
    ("clients::each_event_once", "clients_see_each_event_and_effect_once"),
    ("clients::one_effect_per_key", "clients_see_each_event_and_effect_once"),
];

/// Sizes that are small enough to run for their coverage alone.
const SMALL: [Size; 14] = [
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

/// Returns one line per predicate: its name and, for each source, the worlds judged and those that could have refuted it.
pub fn table(model: &Coverage, simulator: &BTreeMap<&'static str, Count>) -> Vec<(&'static str, Count, Count)> {
    let of = |name| simulator.get(name).copied().unwrap_or_default();
    model.counts().map(|(predicate, count)| (predicate.name, count, of(predicate.name))).collect()
}

/// Returns the differences between the table and [`ELSEWHERE`].
pub fn lacking(table: &[(&'static str, Count, Count)]) -> Vec<String> {
    let listed = |name: &str| ELSEWHERE.iter().any(|(listed, _)| *listed == name);
    let wrong = table.iter().filter_map(|(name, model, simulator)| {
        match (model.telling > 0 || simulator.telling > 0, listed(name)) {
            (false, false) => Some(format!("{name}: no world could have refuted it")),
            (true, true) => {
                Some(format!("{name}: it is put to the test now; take it from the list of those that are not"))
            }
            (true, false) | (false, true) => None,
        }
    });
    let names: Vec<&str> = ALWAYS.iter().chain(QUIESCENT).map(|predicate| predicate.name).collect();
    let exempt = ELSEWHERE.iter().map(|(name, _)| name);
    let unknown = exempt.filter(|name| !names.contains(name)).map(|name| format!("{name}: there is no such predicate"));
    wrong.chain(unknown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a table in which each predicate outside the list can be refuted.
    fn sound() -> Vec<(&'static str, Count, Count)> {
        let listed = |name: &str| ELSEWHERE.iter().any(|(listed, _)| *listed == name);
        let count = |name| Count { judged: 2, telling: u64::from(!listed(name)) };
        let all = ALWAYS.iter().chain(QUIESCENT).map(|predicate| predicate.name);
        all.map(|name| (name, Count::default(), count(name))).collect()
    }

    #[test]
    fn a_predicate_that_no_world_could_refute_is_noticed() {
        assert_eq!(lacking(&sound()), Vec::<String>::new());
        let mut table = sound();
        table[0].2.telling = 0;
        assert_eq!(lacking(&table), [format!("{}: no world could have refuted it", table[0].0)]);
        let mut table = sound();
        table.iter_mut().for_each(|(_, model, _)| model.telling = 1);
        assert_eq!(lacking(&table).len(), ELSEWHERE.len(), "listed, and put to the test");
    }
}
