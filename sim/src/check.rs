use std::sync::Arc;

use stateright::{Checker, Expectation, HasDiscoveries, Model};
use subtend_invariants::{Coverage, InvariantId, Violation};

use crate::fault::SimFault;
use crate::model::{INVARIANTS, SystemModel};
use crate::size::Size;

#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub threads: usize,
    /// The check stops after this number of generated states, repeated ones included. `None` means all states.
    pub states: Option<usize>,
    /// True to stop at the first violation, even if some expected event has not occurred yet.
    pub first_violation: bool,
}

#[derive(Clone, Debug)]
pub struct CheckReport {
    /// Number of examined transitions.
    pub transitions: usize,
    pub states: usize,
    pub depth: usize,
    /// True if every state was examined.
    pub complete: bool,
    pub violation: Option<(Violation, Vec<String>)>,
    /// Expected events that occurred in no state.
    pub never: Vec<&'static str>,
    pub coverage: Arc<Coverage>,
}

impl CheckReport {
    pub fn has_passed(&self) -> bool {
        self.violation.is_none() && self.never.is_empty()
    }
}

pub fn check(size: Size, fault: SimFault, effort: Effort) -> CheckReport {
    examine(SystemModel { size, fault, coverage: Arc::default(), only: None }, effort)
}

fn examine(model: SystemModel, effort: Effort) -> CheckReport {
    let coverage = Arc::clone(&model.coverage);
    let finish = if effort.first_violation { HasDiscoveries::AnyFailures } else { HasDiscoveries::All };
    let mut builder = model.clone().checker().threads(effort.threads).finish_when(finish);
    if let Some(states) = effort.states {
        builder = builder.target_state_count(states);
    }
    let checker = builder.spawn_bfs().join();
    let found = checker.discoveries();
    let violation = found.get(INVARIANTS).and_then(|path| {
        // The path may contain an invalid state before its last one.
        let mut happened = Vec::new();
        path.clone().into_vec().into_iter().find_map(|(state, action)| {
            let violation = state.judge(&model).err();
            let before = happened.clone();
            happened.extend(action.map(|action| format!("{action:?}")));
            violation.map(|violation| (violation, before))
        })
    });
    let sometimes = model.properties().into_iter().filter(|property| property.expectation == Expectation::Sometimes);
    let never = sometimes.map(|property| property.name).filter(|name| !found.contains_key(name)).collect();
    let transitions = checker.state_count();
    let complete = violation.is_none() && effort.states.is_none_or(|states| transitions < states);
    let states = checker.unique_state_count();
    CheckReport { transitions, states, depth: checker.max_depth(), complete, violation, never, coverage }
}

/// Searches for a violation, first in the size in which this bug shows soonest, then in other sizes.
pub fn hunt(fault: SimFault, threads: usize) -> CheckReport {
    hunt_for(None, fault, threads)
}

/// Searches for a violation of the invariant `only`, or of any invariant if `only` is absent.
pub fn hunt_for(only: Option<InvariantId>, fault: SimFault, threads: usize) -> CheckReport {
    let look = |size| {
        let model = SystemModel { size, fault, coverage: Arc::default(), only };
        examine(model, Effort { threads, states: Some(2_000_000), first_violation: true })
    };
    let mut report = look(fault.shows_in());
    for size in [Size::SMALL, Size::PANIC, Size::HALF_PANIC, Size::CALM, Size::CANCEL, Size::CRASH, Size::MEDIUM] {
        if report.violation.is_some() {
            break;
        }
        report = look(size);
    }
    report
}
