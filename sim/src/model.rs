//! The model: sessions that decide with the real code, in a modelled environment. Every interleaving is tried.
//!
//! In one step a command is decided, its batch is appended as a whole, and its effects are requested. Everything that
//! takes time is a message in flight with any delay: grants, ends, rows of owners, and answers of models, tools and
//! people. A crash keeps only the journals and the outbox.

mod action;
mod boot;
mod effects;
mod goals;
mod journal;
mod judge;
mod person;
mod plan;
mod rows;
mod step;
mod system;
mod tokens;

use std::sync::Arc;

use stateright::{Model, Property};
use subtend_invariants::{Coverage, InvariantId};
use subtend_session::record::{AnsweredBy, AskVerdict};

pub use action::{Action, FakeReply};
pub use system::{Message, System};

use crate::fault::SimFault;
use crate::size::Size;

#[derive(Clone, Debug)]
pub struct SystemModel {
    pub size: Size,
    pub fault: SimFault,
    pub coverage: Arc<Coverage>,
    /// The only invariant to judge, if any. Otherwise a violation of another invariant may be found first.
    pub only: Option<InvariantId>,
}

/// The property that judges the invariants of a state, and at rest also those of quiescent states.
pub const INVARIANTS: &str = "invariants";

impl Model for SystemModel {
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
        let mut properties =
            vec![Property::always(INVARIANTS, |model: &Self, state: &System| state.judge(model).is_ok())];
        // In sizes with services, rollbacks or compactions, the root has no owned child.
        if size.services == 0 && size.rollbacks == 0 && size.overflows == 0 {
            properties
                .push(Property::sometimes("a root completes with its child's result", |_: &Self, state: &System| {
                    state.root_completed()
                }));
        }
        if size.crashes > 0 && size.children > 0 {
            properties.push(Property::sometimes(
                "a notice of a lost run is delivered after a crash",
                |_: &Self, state: &System| state.lost_child_noticed(),
            ));
        }
        if size.crashes > 1 {
            properties.push(Property::sometimes("a crash interrupts a recovery", |_: &Self, state: &System| {
                state.crashed_in_boot
            }));
        }
        if size.panics > 0 && size.children > 0 {
            properties.push(Property::sometimes("a child completes after a panic", |_: &Self, state: &System| {
                state.restarted_child_completes()
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
                |_: &Self, state: &System| state.background_child_completes(),
            ));
            properties.push(Property::sometimes("an interrupt ends a blocking child", |_: &Self, state: &System| {
                state.interrupt_ends_child()
            }));
        }
        if size.interrupts > 0 && size.sends > 1 {
            properties
                .push(Property::sometimes("an interrupted run resumes and completes", |_: &Self, state: &System| {
                    state.resumed_completes()
                }));
        }
        if size.children > u8::from(size.slots > 0) * size.slots {
            properties.push(Property::sometimes("a child waits for a slot", |_: &Self, state: &System| {
                state.slots.owned.waits()
            }));
            properties.push(Property::sometimes("both children complete on one slot", |_: &Self, state: &System| {
                state.children_completed() >= 2
            }));
        }
        if size.continues > 0
            || size.asks > 0
            || size.tree_cancels > 0
            || size.moves > 0
            || size.resumes > 0
            || size.regenerates > 0
            || size.services > 0
            || size.rollbacks > 0
            || size.overflows > 0
            || size.limits > 0
            || size.messages > 0
        {
            properties.extend(events_of_verbs(size));
        }
        properties
    }
}

/// Returns the events that must occur, each in the sizes that allow the action that causes it.
fn events_of_verbs(size: Size) -> Vec<Property<SystemModel>> {
    let mut properties = Vec::new();
    let mut sometimes = |wanted: bool, name, condition: fn(&SystemModel, &System) -> bool| {
        if wanted {
            properties.push(Property::sometimes(name, condition));
        }
    };
    let continues = size.continues > 0 && size.children > 0;
    sometimes(continues, "a continued run completes", |_, state| state.continued_completes());
    sometimes(continues && size.resumes > 0, "a refused continue is reported", |_, state| state.refusal_noticed());
    sometimes(continues && size.closes > 0, "a closed session refuses a continue", |_, state| {
        state.closed_session_refuses()
    });
    sometimes(size.stops > 0, "a run ends by a call of its owner's model", |_, state| state.stopped_by_model());
    sometimes(size.moves > 0, "a run in the background completes", |_, state| state.moved_call_completes());
    sometimes(size.tree_cancels > 0, "a queue is kept", |_, state| state.queue_is_kept());
    sometimes(size.resumes > 0 && size.children > 0, "a person's run in a child completes", |_, state| {
        state.persons_run_in_child_completes()
    });
    sometimes(size.regenerates > 0, "an alternative is selected", |_, state| state.alternative_switched());
    let branches = size.branches > 0 && size.resumes > 0;
    sometimes(branches, "a branch answers", |_, state| state.branch_answers());
    sometimes(size.rollbacks > 0, "a run is rolled back", |_, state| state.is_rolled_back());
    let overflows = size.overflows > 0;
    sometimes(overflows, "a history is compacted", |_, state| state.is_compacted());
    sometimes(overflows, "a compaction fails", |_, state| state.compaction_failed());
    let services = size.services > 0;
    sometimes(services, "a session gets a title", |_, state| state.is_titled());
    sometimes(size.services > 1, "a session gets a summary", |_, state| state.is_summarised());
    sometimes(size.messages > 0, "a run completes with a relative's message", |_, state| state.message_taken());
    let limits = size.limits > 0;
    sometimes(limits, "a parked run completes after the reset", |_, state| state.reset_completes());
    sometimes(limits && size.crashes > 0, "a parked run survives a crash", |model, state| {
        state.remaining_crashes() < model.size.crashes && state.is_parked()
    });
    let asks = size.asks > 0;
    sometimes(asks && size.approvers > 0, "a person allows", |_, state| {
        state.ask_answered(AskVerdict::Allow, AnsweredBy::Person)
    });
    sometimes(asks && size.approvers > 0, "a person denies", |_, state| {
        state.ask_answered(AskVerdict::Deny, AnsweredBy::Person)
    });
    sometimes(asks && size.approvers == 0, "no approver is attached", |_, state| {
        state.ask_answered(AskVerdict::Deny, AnsweredBy::NoApprover)
    });
    sometimes(asks && size.approvers > 0 && size.deadlines > 0, "a person answers too late", |_, state| {
        state.ask_answered(AskVerdict::Deny, AnsweredBy::Deadline)
    });
    properties
}
