//! Who may call a model now: bounds per provider and model, for the whole runtime, in the order in which calls come.
//!
//! A quota is a name that calls are counted under, such as `anthropic/claude-x` or `anthropic`; a call usually has two, of
//! its model and of its provider, and starts when both have room. Each may bound how many calls run at once, how many start in
//! a minute and what they cost in tokens ([`Rates`]), and rests when the provider says so ([`Throttles::cool`]).
//!
//! Calls with the same quotas wait in one line. A call that cannot start keeps the quota that has no room for it, and calls that
//! came later do not overtake it there: one that needs many tokens starts when they are there. A session has one call at a time,
//! so the order of arrival is fair between sessions.
//!
//! A call takes all its permits when it is polled and every quota is open to it; one that waits holds none.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use subtend_session::ids::Text;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

mod bucket;
mod desk;
mod quota;
mod rates;

#[cfg(test)]
mod tests;

pub use rates::{BadRates, Rates};

use desk::{Desk, Found, Path};

/// The quotas of one runtime (cheap clone, one shared set).
///
/// A quota without calls is forgotten once it is as good as new. An operation takes time linear in the number of different lists of
/// quotas that calls wait under, of which there are as many as models; how many calls wait matters logarithmically.
#[derive(Clone)]
pub struct Throttles(Arc<Shared>);

struct Shared(Mutex<Desk>);

impl Shared {
    /// Does something at the desk; then, without the lock, wakes the calls that may start now: a waker may run any code.
    fn at_desk<R>(&self, act: impl FnOnce(&mut Desk, Instant) -> R) -> R {
        let mut desk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut desk, Instant::now());
        let rung = desk.take_rung();
        drop(desk);
        rung.iter().for_each(|bell| bell.notify_one());
        result
    }
}

/// One quota, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSeen {
    /// Its name.
    pub name: Text,
    /// Calls that run.
    pub running: u32,
    /// Calls that are counted under it and have not started.
    pub waiting: usize,
    /// How long no call may start, if the provider said so.
    pub cooling_ms: Option<u64>,
}

impl Throttles {
    /// Quotas with these rates by name, and the default for all others, except that a model (`provider/model`) whose
    /// provider has rates by name has no bounds but those. A rate of 0 counts as 1; [`Rates::check`] reports it.
    pub fn new(default: Rates, named: impl IntoIterator<Item = (Text, Rates)>) -> Self {
        let named: BTreeMap<_, _> = named.into_iter().map(|(name, rates)| (name, rates.at_least_one())).collect();
        Self(Arc::new(Shared(Mutex::new(Desk::new(default.at_least_one(), named)))))
    }

    /// Waits until a call may start under all `quotas`; `tokens` is an estimate of what it will cost.
    ///
    /// Without quotas, and after [`Throttles::close`], it returns at once. A call gets its place in the line when this is first
    /// polled, inside a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future at any point gives back its place in the line, which is all that it holds.
    pub async fn enter(&self, quotas: &[Text], tokens: u64) -> Pass {
        let path = desk::path(quotas);
        if path.is_empty() {
            return Pass { held: None };
        }
        let place = Place::take(&self.0, path, tokens);
        loop {
            let until = match place.look() {
                Found::Starts => return place.into_pass(),
                Found::Closed => return Pass { held: None },
                Found::Waits(until) => until,
            };
            match until {
                None => place.bell.notified().await,
                Some(until) => tokio::select! {
                    biased;
                    () = place.bell.notified() => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    /// Lets no call start under `quota` for so long: the provider said so. When it is cooling already the longer of the two
    /// counts. Calls that run are left alone.
    pub fn cool(&self, quota: &Text, ms: u64) {
        self.0.at_desk(|desk, now| desk.cool(quota, ms, now));
    }

    /// Returns how long no call may start under `quota`, if it is cooling.
    pub fn cooling_ms(&self, quota: &Text) -> Option<u64> {
        self.0.at_desk(|desk, now| desk.cooling_ms(quota, now))
    }

    /// Returns the quotas that are in use, cooling or filling up again, by name.
    pub fn seen(&self) -> Vec<QuotaSeen> {
        self.0.at_desk(|desk, now| desk.seen(now))
    }

    /// Ends all waiting: every [`Throttles::enter`] returns at once from here on, with a pass that holds nothing.
    pub fn close(&self) {
        self.0.at_desk(|desk, _| desk.close());
    }
}

impl fmt::Debug for Throttles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttles").field("quotas", &self.seen()).finish()
    }
}

/// The place of a call in its line.
struct Place<'a> {
    shared: &'a Arc<Shared>,
    path: Path,
    tokens: u64,
    bell: Arc<Notify>,
    /// Nothing once the call has started.
    ticket: Option<u64>,
}

impl<'a> Place<'a> {
    fn take(shared: &'a Arc<Shared>, path: Path, tokens: u64) -> Self {
        let bell = Arc::new(Notify::new());
        let ticket = shared.at_desk(|desk, _| desk.join(&path, tokens, Arc::clone(&bell)));
        Self { shared, path, tokens, bell, ticket: Some(ticket) }
    }

    fn look(&self) -> Found {
        let ticket = self.ticket.unwrap_or_default();
        self.shared.at_desk(|desk, now| desk.look(&self.path, ticket, now))
    }

    fn into_pass(mut self) -> Pass {
        self.ticket = None;
        Pass { held: Some((Arc::clone(self.shared), Arc::clone(&self.path), self.tokens)) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.shared.at_desk(|desk, _| desk.leave(&self.path, ticket));
        }
    }
}

/// A right to one call. Dropping it gives its permits back, and counts the call at its estimate.
#[must_use = "dropping the pass ends the right to the call"]
pub struct Pass {
    /// Taken by the end. Nothing for a call without quotas, or after a close.
    held: Option<(Arc<Shared>, Path, u64)>,
}

impl Pass {
    /// Ends the call, which cost so many tokens: gives its permits back and corrects what was counted for it.
    pub fn settle(mut self, tokens: u64) {
        self.end(Some(tokens));
    }

    fn end(&mut self, cost: Option<u64>) {
        if let Some((shared, path, tokens)) = self.held.take() {
            shared.at_desk(|desk, now| desk.finish(&path, tokens, cost.unwrap_or(tokens), now));
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").field("quotas", &self.held.as_ref().map(|(_, path, _)| path)).finish()
    }
}
