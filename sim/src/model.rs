//! The model: sessions that decide for real, in a world whose every interleaving is tried.
//!
//! What happens in the process as one step is one step here: a command is decided, its batch is appended whole, and its
//! effects are asked for. What takes time is a message in flight, delivered whenever: grants, ends of owned runs, words of
//! owners, answers of models and tools. A crash leaves the journals and the rows of the outbox and takes everything else.

mod action;
mod boot;
mod effects;
mod plan;
mod step;
mod system;
mod view;

use stateright::{Model, Property};

pub use action::{Action, Reply};
pub use system::{Message, System};

use crate::fault::Fault;
use crate::size::Size;

/// The whole: how large it is, and what is wrong with it.
#[derive(Clone, Copy, Debug)]
pub struct Whole {
    /// Bounds.
    pub size: Size,
    /// The seeded bug.
    pub fault: Fault,
}

/// Every invariant of a state, and at rest those of quiescent states.
pub const INVARIANTS: &str = "invariants";

impl Model for Whole {
    type State = System;
    type Action = Action;

    fn init_states(&self) -> Vec<System> {
        vec![System::new(self)]
    }

    fn actions(&self, state: &System, actions: &mut Vec<Action>) {
        state.actions(self, actions);
    }

    fn next_state(&self, last: &System, action: Action) -> Option<System> {
        let mut next = last.clone();
        next.step(self, &action).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let size = self.size;
        let mut properties = vec![
            Property::always(INVARIANTS, |whole: &Self, state: &System| state.judge(whole).is_ok()),
            Property::sometimes("a root completes with its child's result", |_: &Self, state: &System| {
                state.root_completed()
            }),
        ];
        if size.crashes > 0 && size.children > 0 {
            properties.push(Property::sometimes(
                "a notice of a lost run is delivered after a crash",
                |_: &Self, state: &System| state.lost_child_noticed(),
            ));
        }
        if size.crashes > 1 {
            properties.push(Property::sometimes("a crash falls into a recovery", |_: &Self, state: &System| {
                state.crashed_in_boot
            }));
        }
        if size.panics > 0 {
            properties.push(Property::sometimes("a child completes after a panic", |_: &Self, state: &System| {
                state.revived_completes()
            }));
        }
        if size.cancels > 0 && size.depth > 1 {
            properties
                .push(Property::sometimes("a cancel of the root ends a grandchild", |_: &Self, state: &System| {
                    state.grandchild_cancelled()
                }));
        }
        if size.interrupts > 0 && size.children > 0 {
            properties.push(Property::sometimes(
                "a background child completes under an interrupted owner",
                |_: &Self, state: &System| state.spared_completes(),
            ));
            properties.push(Property::sometimes("an interrupt ends a blocking child", |_: &Self, state: &System| {
                state.interrupt_ends_child()
            }));
        }
        if size.interrupts > 0 && size.sends > 1 {
            properties
                .push(Property::sometimes("an interrupted run goes on and completes", |_: &Self, state: &System| {
                    state.resumed_completes()
                }));
        }
        if size.children > u8::from(size.slots > 0) * size.slots {
            properties
                .push(Property::sometimes("a child waits for a slot", |_: &Self, state: &System| state.slots.waits()));
            properties.push(Property::sometimes("both children complete on one slot", |_: &Self, state: &System| {
                state.children_completed() >= 2
            }));
        }
        properties
    }
}
