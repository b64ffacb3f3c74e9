//! The order in which a session takes queued entries. Decisions and listings use the same rules.

use serde::Serialize;

use super::{Phase, Queued, State};
use crate::ids::InputId;
use crate::record::{Lane, Notice};

/// The point at which a queued entry is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Boundary {
    /// A boundary between two turns of the run in flight, or its rest point if that comes first.
    Turn,
    /// A rest point: the model answered without calling a tool.
    Rest,
    Run,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Waiting<'a> {
    Input(&'a Queued),
    /// The end of a child's run that the model receives.
    End(&'a Notice),
}

/// Returns the inputs that leave the queue first. The oldest message of a person leaves alone. If none is queued, all inputs
/// of the host and results of agents leave together. Excludes messages of relatives, which do not open a run.
pub(crate) fn first<'a>(queue: impl Iterator<Item = &'a Queued> + Clone) -> Vec<&'a Queued> {
    match queue.clone().find(|queued| queued.is_message()) {
        Some(message) => vec![message],
        None => queue.filter(|queued| !queued.input.is_from_relative()).collect(),
    }
}

/// Returns the first inputs that open a run together: those with the same owner.
pub(crate) fn opening<'a>(queue: impl Iterator<Item = &'a Queued> + Clone) -> Vec<&'a Queued> {
    let mut next = first(queue);
    if let Some(owner) = next.first().map(|queued| queued.input.as_owner.clone()) {
        next.retain(|queued| queued.input.as_owner == owner);
    }
    next
}

/// Returns inputs in the order in which a boundary takes them: people's messages last, next to their answer.
pub(crate) fn messages_last<'a>(inputs: impl IntoIterator<Item = &'a Queued>) -> Vec<&'a Queued> {
    let mut inputs: Vec<&Queued> = inputs.into_iter().collect();
    inputs.sort_by_key(|queued| queued.is_message());
    inputs
}

pub(crate) fn ids<'a>(inputs: impl IntoIterator<Item = &'a Queued>) -> Vec<InputId> {
    inputs.into_iter().map(|queued| queued.input.id).collect()
}

impl State {
    /// Returns the queued entries in the order in which they are taken, each with the boundary that takes it. `continues` is
    /// false if the run in flight does not continue, as after the host was killed.
    ///
    /// The prediction assumes answers without calls, so that each boundary is a rest point. If the model calls a tool
    /// first, entries for a turn boundary are taken earlier.
    pub fn waiting(&self, continues: bool) -> Vec<(Waiting<'_>, Boundary)> {
        let ends = self.arrived.iter().filter(|notice| self.reaches_model(notice)).collect();
        let mut order = Order { state: self, remaining: self.queue.iter().collect(), ends, out: Vec::new() };
        match self.run.as_ref().filter(|_| continues) {
            None => order.order_runs(),
            Some(run) => order.run(!run.opened.owner.is_model_call()),
        }
        order.out
    }
}

struct Order<'a> {
    state: &'a State,
    remaining: Vec<&'a Queued>,
    ends: Vec<&'a Notice>,
    out: Vec<(Waiting<'a>, Boundary)>,
}

impl<'a> Order<'a> {
    /// Orders the entries that the run in flight takes. `extends` is true if a person's message extends the run.
    fn run(&mut self, extends: bool) {
        match self.state.phase() {
            Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest => {}
            // In these phases, ends are stored before the next model call.
            Phase::Quiet | Phase::Queued | Phase::HeldInterrupted | Phase::HeldOutOfTurns | Phase::Closing => {
                self.take_ends();
            }
        }
        if self.state.phase() == Phase::Closing {
            return self.order_runs();
        }
        let steers = self.steers();
        let held = extends && self.remaining.iter().any(|queued| queued.is_message());
        // If the answer has calls, the next boundary is not a rest point.
        let calls = self.state.turn().is_some_and(|turn| !turn.streaming && !turn.calls.is_empty());
        let steered = steers.iter().any(|queued| queued.is_message());
        self.take(steers, Boundary::Turn);
        if calls && !held && !steered {
            self.take_ends();
        }
        if extends {
            return self.order_rest_points();
        }
        self.take_ends();
        self.order_runs();
    }

    /// Orders the entries of rest points in a run that a person's message extends. Ends come after the last queued message.
    fn order_rest_points(&mut self) {
        loop {
            let next = self.next();
            let Some(message) = next.first().map(|queued| queued.is_message()) else { break };
            self.take(next, Boundary::Rest);
            if !message {
                self.take_ends();
            }
        }
        self.take_ends();
    }

    /// Orders the entries of the next runs. Each run takes the first input and all steering inputs. The first run that a
    /// person's message extends takes the other inputs at its rest points.
    fn order_runs(&mut self) {
        self.take_ends();
        loop {
            let mut with = opening(self.remaining.iter().copied());
            let Some(extends) = with.first().map(|queued| !queued.input.as_owner.is_model_call()) else { return };
            let others = self.steers().into_iter().filter(|steer| !with.contains(steer)).collect::<Vec<_>>();
            with.extend(others);
            self.take(messages_last(with), Boundary::Run);
            if extends {
                return self.order_rest_points();
            }
        }
    }

    fn next(&self) -> Vec<&'a Queued> {
        first(self.remaining.iter().copied())
    }

    fn steers(&self) -> Vec<&'a Queued> {
        messages_last(self.remaining.iter().copied().filter(|queued| queued.lane() == Lane::Steer))
    }

    fn take(&mut self, inputs: Vec<&'a Queued>, at: Boundary) {
        self.remaining.retain(|queued| !inputs.contains(queued));
        self.out.extend(inputs.into_iter().map(|queued| (Waiting::Input(queued), at)));
    }

    /// Takes all ends. Ends that the model fetches come last, because they are sent only to an idle model.
    fn take_ends(&mut self) {
        let (fetched, pushed): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.ends).into_iter().partition(|end| self.state.is_pulled(end.child));
        self.out.extend(pushed.into_iter().map(|end| (Waiting::End(end), Boundary::Turn)));
        self.out.extend(fetched.into_iter().map(|end| (Waiting::End(end), Boundary::Rest)));
    }
}
