//! One account: what is settled, what is out, and who waits; without locks and without a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

use tokio::time::Instant;

use super::{Currency, Spend, SpendLimit};

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is out.
    Granted,
    /// It never will be.
    Refused(Currency),
}

/// A request that waits.
struct Claim {
    want: Spend,
    /// When it has waited long enough; later for those who came later.
    until: Option<Instant>,
    waker: Option<Waker>,
}

/// The account of one root run.
///
/// Between two operations no request waits that could be granted or refused: the first one fits only if what is out comes
/// back, and each fits into what is settled. So as long as one waits something is out, and its return looks again.
pub(super) struct Account {
    pub(super) number: u64,
    pub(super) settled: Spend,
    pub(super) outstanding: Spend,
    limit: SpendLimit,
    /// In the order of request.
    line: BTreeMap<u64, Claim>,
    /// Who waits, by what they want: the largest are the first to be refused.
    by_tokens: BTreeSet<(u64, u64)>,
    by_cost: BTreeSet<(u64, u64)>,
    /// What became of those who waited, until they hear it.
    told: BTreeMap<u64, Verdict>,
    called: Vec<Waker>,
    #[cfg(test)]
    bug: Option<super::tests::Bug>,
}

impl Account {
    pub(super) fn new(number: u64, settled: Spend) -> Self {
        Self {
            number,
            settled,
            outstanding: Spend::NOTHING,
            limit: SpendLimit::default(),
            line: BTreeMap::new(),
            by_tokens: BTreeSet::new(),
            by_cost: BTreeSet::new(),
            told: BTreeMap::new(),
            called: Vec::new(),
            #[cfg(test)]
            bug: None,
        }
    }

    /// Queues a request and looks who is next; the verdict if it has one already.
    pub(super) fn ask(
        &mut self,
        ticket: u64,
        want: Spend,
        limit: SpendLimit,
        until: Option<Instant>,
    ) -> Option<Verdict> {
        self.limit = limit;
        self.line.insert(ticket, Claim { want, until, waker: None });
        self.by_tokens.insert((want.tokens, ticket));
        self.by_cost.insert((want.cost_micro, ticket));
        #[cfg(test)]
        if self.has_bug(super::tests::Bug::Overtaken) && self.fits(want) {
            self.grant(ticket);
        }
        self.look();
        self.told.remove(&ticket)
    }

    /// Takes back what was reserved and adds what it came to.
    pub(super) fn finish(&mut self, reserved: Spend, actual: Spend) {
        self.outstanding = self.outstanding.minus(reserved);
        self.settled = self.settled.plus(actual);
        #[cfg(test)]
        if self.has_bug(super::tests::Bug::SettledTwice) {
            self.settled = self.settled.plus(actual);
        }
        self.look();
    }

    /// What became of a request; while nothing has, its waker is kept. The one before it is to be dropped outside the lock:
    /// it is foreign code.
    pub(super) fn hear(&mut self, ticket: u64, waker: &Waker) -> (Option<Verdict>, Option<Waker>) {
        if let Some(verdict) = self.told.remove(&ticket) {
            return (Some(verdict), None);
        }
        let Some(claim) = self.line.get_mut(&ticket) else { return (None, None) };
        let kept = claim.waker.as_ref().is_some_and(|kept| kept.will_wake(waker));
        (None, if kept { None } else { claim.waker.replace(waker.clone()) })
    }

    /// Refuses all who have waited too long, in the order in which they came.
    ///
    /// All of them, whoever looked at the clock first: one that is refused makes room for the one behind it.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some((ticket, claim)) = self.line.first_key_value() {
            if claim.until.is_none_or(|until| until > now) {
                return;
            }
            let (ticket, total) = (*ticket, self.settled.plus(self.outstanding).plus(claim.want));
            let which = self.limit.exceeded_by(total).unwrap_or_else(|| self.limit.first());
            self.tell(ticket, Verdict::Refused(which));
            self.look();
        }
    }

    /// Whoever made the request does not want it any more. What was granted and not heard of comes back: no call was made.
    ///
    /// Returns its waker, to be dropped outside the lock.
    pub(super) fn leave(&mut self, ticket: u64, want: Spend) -> Option<Waker> {
        match self.told.remove(&ticket) {
            Some(Verdict::Granted) => {
                #[cfg(test)]
                if self.has_bug(super::tests::Bug::GrantLost) {
                    return None;
                }
                self.finish(want, Spend::NOTHING);
                None
            }
            Some(Verdict::Refused(_)) => None,
            None => {
                let claim = self.remove(ticket);
                #[cfg(test)]
                if self.has_bug(super::tests::Bug::WakeLost) {
                    return None;
                }
                // It may have been the first: the one behind it may want less.
                self.look();
                claim.and_then(|claim| claim.waker)
            }
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.line.len()
    }

    pub(super) fn take_called(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.called)
    }

    /// The account is closed: all who wait are to look again, and find it gone.
    pub(super) fn into_called(mut self) -> Vec<Waker> {
        let waiting = std::mem::take(&mut self.line).into_values().filter_map(|claim| claim.waker);
        self.called.extend(waiting);
        self.called
    }

    /// Refuses whom nothing can help any more, and grants in the order of request as far as it fits.
    fn look(&mut self) {
        self.refuse();
        while let Some((ticket, claim)) = self.line.first_key_value() {
            if !self.fits(claim.want) {
                return;
            }
            self.grant(*ticket);
        }
    }

    fn refuse(&mut self) {
        while let Some((tokens, ticket)) = self.by_tokens.last().copied() {
            let total = Spend { tokens, cost_micro: 0 }.plus(self.settled);
            if self.limit.tokens.is_none_or(|limit| total.tokens <= limit) {
                break;
            }
            self.tell(ticket, Verdict::Refused(Currency::Tokens));
        }
        while let Some((cost_micro, ticket)) = self.by_cost.last().copied() {
            let total = Spend { tokens: 0, cost_micro }.plus(self.settled);
            if self.limit.cost_micro.is_none_or(|limit| total.cost_micro <= limit) {
                break;
            }
            self.tell(ticket, Verdict::Refused(Currency::Money));
        }
    }

    fn fits(&self, want: Spend) -> bool {
        #[cfg(test)]
        if self.has_bug(super::tests::Bug::OutstandingIgnored) {
            return self.limit.exceeded_by(self.settled.plus(want)).is_none();
        }
        self.limit.exceeded_by(self.settled.plus(self.outstanding).plus(want)).is_none()
    }

    fn grant(&mut self, ticket: u64) {
        if let Some(want) = self.tell(ticket, Verdict::Granted) {
            self.outstanding = self.outstanding.plus(want);
        }
    }

    fn tell(&mut self, ticket: u64, verdict: Verdict) -> Option<Spend> {
        let claim = self.remove(ticket)?;
        self.told.insert(ticket, verdict);
        self.called.extend(claim.waker);
        Some(claim.want)
    }

    fn remove(&mut self, ticket: u64) -> Option<Claim> {
        let claim = self.line.remove(&ticket)?;
        self.by_tokens.remove(&(claim.want.tokens, ticket));
        self.by_cost.remove(&(claim.want.cost_micro, ticket));
        Some(claim)
    }

    #[cfg(test)]
    pub(super) fn with_bug(self, bug: Option<super::tests::Bug>) -> Self {
        Self { bug, ..self }
    }

    #[cfg(test)]
    pub(super) fn has_bug(&self, bug: super::tests::Bug) -> bool {
        self.bug == Some(bug)
    }
}
