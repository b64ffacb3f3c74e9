//! How calls are let through: one quota after the other, whose turn it is first.

use std::mem;

use tokio::time::Instant;

use super::{Claim, Desk};
use crate::throttle::lanes::Ticket;
use crate::throttle::quota::{Key, Room};
#[cfg(test)]
use crate::throttle::tests::Bug;

impl Desk {
    /// Looks at quotas until none can let anybody in. Ends: each step lets a call one quota further, or sends it back to one
    /// that is shut to it.
    pub(super) fn work(&mut self, now: Instant) {
        while let Some(key) = self.look.pop_first() {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            self.look_at(key, now);
        }
    }

    fn look_at(&mut self, key: Key, now: Instant) {
        let Some(quota) = self.quotas.get_mut(&key) else { return };
        let Some((who, ticket)) = quota.lanes.next() else { return self.rest(&key, now) };
        let Some((claim, passed)) = self.waiting.get(&ticket).map(|waiting| (waiting.claim.clone(), waiting.passed))
        else {
            quota.lanes.leave(who, ticket);
            self.look.insert(key);
            return;
        };
        if let Some(shut) = self.first_shut(&claim, passed, now) {
            return self.send_back(ticket, shut);
        }
        let room = self.quota(&key, now).room(claim.tokens, now);
        #[cfg(test)]
        let room = if self.has_bug(Bug::TooEarly) && room != Room::Full { Room::Now } else { room };
        match room {
            Room::Now => self.let_in(ticket, &claim, passed, now),
            Room::Full => self.set_due(&key, None),
            Room::NotBefore(then) => self.set_due(&key, Some(then)),
        }
    }

    /// The first of the quotas that let a call in and that is shut to it now.
    pub(super) fn first_shut(&mut self, claim: &Claim, passed: usize, now: Instant) -> Option<usize> {
        #[cfg(test)]
        if self.has_bug(Bug::TooEarly) {
            return None;
        }
        claim.path.iter().take(passed).position(|key| !self.quota(key, now).still_open(claim.tokens, now))
    }

    /// A quota lets a call in: it goes on to the next, or is called up.
    fn let_in(&mut self, ticket: Ticket, claim: &Claim, passed: usize, now: Instant) {
        let next = claim.path.get(passed.saturating_add(1));
        if let Some(key) = claim.path.get(passed) {
            let quota = self.quota(key, now);
            quota.admit(claim.tokens);
            quota.lanes.serve(claim.who, ticket, next.is_some());
            #[cfg(test)]
            if self.has_bug(Bug::Unfair) {
                self.quota(key, now).lanes.first_again(claim.who);
            }
            self.look.insert(key.clone());
        }
        if let Some(key) = next {
            self.quota(key, now).lanes.join(claim.who, ticket);
            self.look.insert(key.clone());
        } else {
            for key in claim.path.iter().take(passed) {
                self.quota(key, now).lanes.gone(claim.who, ticket);
                self.look.insert(key.clone());
            }
        }
        if let Some(waiting) = self.waiting.get_mut(&ticket) {
            waiting.passed = passed.saturating_add(1);
            if next.is_none() {
                self.called.extend(waiting.waker.take());
            }
        }
    }

    /// A call must wait again in the quota `to` of its path: it gives up what that one and those after it gave.
    pub(super) fn send_back(&mut self, ticket: Ticket, to: usize) {
        let Some(waiting) = self.waiting.get_mut(&ticket) else { return };
        let passed = mem::replace(&mut waiting.passed, to);
        let claim = waiting.claim.clone();
        for (ix, key) in claim.path.iter().enumerate().skip(to) {
            let Some(quota) = self.quotas.get_mut(key).filter(|_| ix <= passed) else { break };
            if ix < passed {
                quota.give_back(claim.tokens);
            }
            if ix == to {
                quota.lanes.recall(claim.who, ticket);
            } else if ix < passed {
                quota.lanes.gone(claim.who, ticket);
            } else {
                quota.lanes.leave(claim.who, ticket);
            }
            self.look.insert(key.clone());
        }
    }

    /// Nobody can be let in here. A quota that no call knows is forgotten when it is as good as new.
    fn rest(&mut self, key: &Key, now: Instant) {
        let closed = self.closed;
        let Some(quota) = self.quotas.get_mut(key) else { return };
        let until = if quota.idle() { quota.resting_until(now).filter(|_| !closed) } else { None };
        let forget = quota.idle() && until.is_none();
        self.set_due(key, until);
        if forget {
            self.quotas.remove(key);
        }
    }

    fn set_due(&mut self, key: &Key, due: Option<Instant>) {
        let Some(quota) = self.quotas.get_mut(key) else { return };
        if quota.due == due {
            return;
        }
        if let Some(old) = mem::replace(&mut quota.due, due) {
            self.dues.remove(&(old, key.clone()));
        }
        if let Some(new) = due {
            self.dues.insert((new, key.clone()));
        }
    }
}
