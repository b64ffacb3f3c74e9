//! The calls that wait for one quota, in lanes by session.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use subtend_session::ids::SessionId;

/// Names one call that waits, in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(pub(super) u64);

/// One lane per session; sessions take turns, calls of one session go in the order of their tickets.
///
/// Every operation takes logarithmic time.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: HashMap<SessionId, Lane>,
    /// The sessions whose turn comes, by turn.
    turns: BTreeMap<i64, SessionId>,
    first: i64,
    last: i64,
    waiting: usize,
}

#[derive(Debug, Default)]
struct Lane {
    calls: BTreeSet<Ticket>,
    turn: Option<i64>,
    /// A call of the session that went on from here and waits for a wider quota. Until it has started the session takes no
    /// turn here: else one session could hold all places of a model with calls that only wait.
    ahead: Option<Ticket>,
}

/// Where a session gets in that had no turn.
#[derive(Clone, Copy)]
enum End {
    First,
    Last,
}

impl Lanes {
    /// Calls that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether no call waits here nor went on from here without having started.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Whose turn it is, and with which call.
    pub(super) fn next(&self) -> Option<(SessionId, Ticket)> {
        let (_, who) = self.turns.first_key_value()?;
        Some((*who, *self.lanes.get(who)?.calls.first()?))
    }

    /// A call comes to wait.
    pub(super) fn join(&mut self, who: SessionId, ticket: Ticket) {
        self.put(who, ticket);
        self.tidy(who, End::Last);
    }

    /// A call that waits here gives up.
    pub(super) fn leave(&mut self, who: SessionId, ticket: Ticket) {
        self.take(who, ticket);
        self.tidy(who, End::Last);
    }

    /// A call is let through, which uses its session's turn; with `ahead` it goes on to wait for a wider quota.
    pub(super) fn serve(&mut self, who: SessionId, ticket: Ticket, ahead: bool) {
        self.take(who, ticket);
        self.lose_turn(who);
        if let Some(lane) = self.lanes.get_mut(&who).filter(|_| ahead) {
            lane.ahead = Some(ticket);
        }
        self.tidy(who, End::Last);
    }

    /// A call that went on from here has started or given up.
    pub(super) fn gone(&mut self, who: SessionId, ticket: Ticket) {
        self.forget_ahead(who, ticket);
        self.tidy(who, End::Last);
    }

    /// A call that went on from here must wait here again: its session's turn was not used and comes first.
    pub(super) fn recall(&mut self, who: SessionId, ticket: Ticket) {
        self.forget_ahead(who, ticket);
        self.put(who, ticket);
        self.lose_turn(who);
        self.tidy(who, End::First);
    }

    /// A seeded bug: the session that was served is served again.
    #[cfg(test)]
    pub(super) fn first_again(&mut self, who: SessionId) {
        self.lose_turn(who);
        self.tidy(who, End::First);
    }

    /// Nobody waits any more.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    fn put(&mut self, who: SessionId, ticket: Ticket) {
        if self.lanes.entry(who).or_default().calls.insert(ticket) {
            self.waiting = self.waiting.saturating_add(1);
        }
    }

    fn take(&mut self, who: SessionId, ticket: Ticket) {
        if self.lanes.get_mut(&who).is_some_and(|lane| lane.calls.remove(&ticket)) {
            self.waiting = self.waiting.saturating_sub(1);
        }
    }

    fn forget_ahead(&mut self, who: SessionId, ticket: Ticket) {
        if let Some(lane) = self.lanes.get_mut(&who).filter(|lane| lane.ahead == Some(ticket)) {
            lane.ahead = None;
        }
    }

    fn lose_turn(&mut self, who: SessionId) {
        if let Some(turn) = self.lanes.get_mut(&who).and_then(|lane| lane.turn.take()) {
            self.turns.remove(&turn);
        }
    }

    /// Gives a session a turn that should have one, takes it from one that should not, and forgets one that is done.
    fn tidy(&mut self, who: SessionId, end: End) {
        let Some(lane) = self.lanes.get_mut(&who) else { return };
        let ready = !lane.calls.is_empty() && lane.ahead.is_none();
        if !ready {
            let done = lane.calls.is_empty() && lane.ahead.is_none();
            self.lose_turn(who);
            if done {
                self.lanes.remove(&who);
            }
        } else if lane.turn.is_none() {
            let turn = match end {
                End::First => {
                    self.first = self.first.saturating_sub(1);
                    self.first
                }
                End::Last => {
                    self.last = self.last.saturating_add(1);
                    self.last
                }
            };
            lane.turn = Some(turn);
            self.turns.insert(turn, who);
        }
    }
}
