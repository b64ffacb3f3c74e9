//! One account, without locks or a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

use tokio::time::Instant;

use super::{Currency, Spend, SpendLimit};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestResult {
    Granted,
    Refused(Currency),
}

struct Claim {
    want: Spend,
    /// Timeout. It is never earlier than that of an older request.
    until: Option<Instant>,
    waker: Option<Waker>,
}

/// Each operation ends with `advance`, so a request waits only while an open reservation blocks it. Closing that reservation
/// checks the queue again.
pub(super) struct Account {
    pub(super) number: u64,
    pub(super) settled: Spend,
    pub(super) outstanding: Spend,
    limit: SpendLimit,
    queue: BTreeMap<u64, Claim>,
    /// Waiting requests by tokens, with their ticket.
    by_tokens: BTreeSet<(u64, u64)>,
    by_cost: BTreeSet<(u64, u64)>,
    /// Results of requests that have not polled since they were resolved.
    results: BTreeMap<u64, RequestResult>,
    wakers: Vec<Waker>,
    #[cfg(test)]
    bug: Option<super::tests::BudgetBug>,
}

impl Account {
    pub(super) fn new(number: u64, settled: Spend) -> Self {
        Self {
            number,
            settled,
            outstanding: Spend::NOTHING,
            limit: SpendLimit::default(),
            queue: BTreeMap::new(),
            by_tokens: BTreeSet::new(),
            by_cost: BTreeSet::new(),
            results: BTreeMap::new(),
            wakers: Vec::new(),
            #[cfg(test)]
            bug: None,
        }
    }

    /// Queues a request and checks the queue. Returns the result if the request is resolved already.
    pub(super) fn ask(
        &mut self,
        ticket: u64,
        want: Spend,
        limit: SpendLimit,
        until: Option<Instant>,
    ) -> Option<RequestResult> {
        self.limit = limit;
        self.queue.insert(ticket, Claim { want, until, waker: None });
        self.by_tokens.insert((want.tokens, ticket));
        self.by_cost.insert((want.cost_micro, ticket));
        #[cfg(test)]
        if self.has_bug(super::tests::BudgetBug::Overtaken) && self.fits(want) {
            self.grant(ticket);
        }
        self.advance();
        self.results.remove(&ticket)
    }

    pub(super) fn finish(&mut self, reserved: Spend, actual: Spend) {
        self.outstanding = self.outstanding.minus(reserved);
        self.settled = self.settled.plus(actual);
        #[cfg(test)]
        if self.has_bug(super::tests::BudgetBug::SettledTwice) {
            self.settled = self.settled.plus(actual);
        }
        self.advance();
    }

    /// Returns the result, or stores the waker. The caller drops the old waker outside the lock: it is foreign code.
    pub(super) fn poll(&mut self, ticket: u64, waker: &Waker) -> (Option<RequestResult>, Option<Waker>) {
        if let Some(verdict) = self.results.remove(&ticket) {
            return (Some(verdict), None);
        }
        let Some(claim) = self.queue.get_mut(&ticket) else { return (None, None) };
        let is_same = claim.waker.as_ref().is_some_and(|stored| stored.will_wake(waker));
        (None, if is_same { None } else { claim.waker.replace(waker.clone()) })
    }

    /// Refuses all requests past their timeout, oldest first. Each refusal may let later requests fit.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((ticket, claim)) = self.queue.first_key_value() {
            if claim.until.is_none_or(|until| until > now) {
                return;
            }
            let (ticket, total) = (*ticket, self.settled.plus(self.outstanding).plus(claim.want));
            let which = self.limit.exceeded_by(total).unwrap_or_else(|| self.limit.limited_currency());
            self.resolve(ticket, RequestResult::Refused(which));
            self.advance();
        }
    }

    /// Removes a request. A grant that it has not received returns to the account.
    /// Returns its waker, to be dropped outside the lock.
    pub(super) fn leave(&mut self, ticket: u64, want: Spend) -> Option<Waker> {
        match self.results.remove(&ticket) {
            Some(RequestResult::Granted) => {
                #[cfg(test)]
                if self.has_bug(super::tests::BudgetBug::GrantLost) {
                    return None;
                }
                self.finish(want, Spend::NOTHING);
                None
            }
            Some(RequestResult::Refused(_)) => None,
            None => {
                let claim = self.remove(ticket);
                #[cfg(test)]
                if self.has_bug(super::tests::BudgetBug::WakeLost) {
                    return None;
                }
                // The next request may be smaller and fit.
                self.advance();
                claim.and_then(|claim| claim.waker)
            }
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }

    /// Returns the wakers of all waiting requests, which then find the account closed.
    pub(super) fn into_wakers(mut self) -> Vec<Waker> {
        let waiting = std::mem::take(&mut self.queue).into_values().filter_map(|claim| claim.waker);
        self.wakers.extend(waiting);
        self.wakers
    }

    /// Refuses requests that can no longer fit, then grants the others in the order of request.
    fn advance(&mut self) {
        self.refuse_hopeless();
        while let Some((ticket, claim)) = self.queue.first_key_value() {
            if !self.fits(claim.want) {
                return;
            }
            self.grant(*ticket);
        }
    }

    fn refuse_hopeless(&mut self) {
        while let Some((tokens, ticket)) = self.by_tokens.last().copied() {
            let total = Spend { tokens, cost_micro: 0 }.plus(self.settled);
            if self.limit.tokens.is_none_or(|limit| total.tokens <= limit) {
                break;
            }
            self.resolve(ticket, RequestResult::Refused(Currency::Tokens));
        }
        while let Some((cost_micro, ticket)) = self.by_cost.last().copied() {
            let total = Spend { tokens: 0, cost_micro }.plus(self.settled);
            if self.limit.cost_micro.is_none_or(|limit| total.cost_micro <= limit) {
                break;
            }
            self.resolve(ticket, RequestResult::Refused(Currency::Money));
        }
    }

    fn fits(&self, want: Spend) -> bool {
        #[cfg(test)]
        if self.has_bug(super::tests::BudgetBug::OutstandingIgnored) {
            return self.limit.exceeded_by(self.settled.plus(want)).is_none();
        }
        self.limit.exceeded_by(self.settled.plus(self.outstanding).plus(want)).is_none()
    }

    fn grant(&mut self, ticket: u64) {
        if let Some(want) = self.resolve(ticket, RequestResult::Granted) {
            self.outstanding = self.outstanding.plus(want);
        }
    }

    fn resolve(&mut self, ticket: u64, verdict: RequestResult) -> Option<Spend> {
        let claim = self.remove(ticket)?;
        self.results.insert(ticket, verdict);
        self.wakers.extend(claim.waker);
        Some(claim.want)
    }

    fn remove(&mut self, ticket: u64) -> Option<Claim> {
        let claim = self.queue.remove(&ticket)?;
        self.by_tokens.remove(&(claim.want.tokens, ticket));
        self.by_cost.remove(&(claim.want.cost_micro, ticket));
        Some(claim)
    }

    #[cfg(test)]
    pub(super) fn with_bug(self, bug: Option<super::tests::BudgetBug>) -> Self {
        Self { bug, ..self }
    }

    #[cfg(test)]
    pub(super) fn has_bug(&self, bug: super::tests::BudgetBug) -> bool {
        self.bug == Some(bug)
    }
}
