//! Who may call a model now: bounds per provider and model, for the whole runtime, fair between sessions.
//!
//! A quota is a name that calls are counted under, such as `anthropic/claude-x` or `anthropic`; a call usually has two, of
//! its model and of its provider, and starts when both let it. Each may bound how many calls run at once, how many start in
//! a minute and what they cost in tokens ([`Rates`]), and rests when the provider says so ([`Throttles::cool`]).
//!
//! Calls that wait stand in lanes by session. The sessions take turns; the calls of one go in the order in which they came.
//! So a session with a thousand calls delays another one by at most one of them per round, and a call that needs more tokens
//! than there are holds up its quota until they are there, rather than being overtaken for ever. Turns count calls, not what
//! they cost. A call that was let in by its model waits for its provider on that model's account: it holds a place there,
//! and its session takes no turn at that model until it starts.
//!
//! A call starts when it is polled: a call that is let in but not polled holds its places, and does not count as started.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use subtend_session::ids::{SessionId, Text};

mod bucket;
mod desk;
mod lanes;
mod pass;
mod quota;
mod rates;
mod shared;
mod timer;
mod wait;

#[cfg(test)]
mod tests;

pub use pass::Pass;
pub use rates::{BadRates, Rates};

use desk::{Claim, Desk};
use quota::Key;
use shared::Shared;
use wait::Wait;

/// The quotas of one runtime (cheap clone, one shared set).
///
/// Times need one task: it is spawned on the current tokio runtime when the first call waits for a time, and ends with
/// [`Throttles::close`] or with the last clone. A quota that nobody uses is forgotten once it is as good as new. Every
/// operation takes time logarithmic in the calls that wait; [`Throttles::close`] and [`Throttles::seen`] take linear time, and
/// [`Throttles::cool`] looks at each quota.
#[derive(Clone)]
pub struct Throttles(Arc<Owner>);

/// Closes the desk with the last handle.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// One quota, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSeen {
    /// Its name.
    pub name: Text,
    /// Calls that run.
    pub running: u32,
    /// Calls that came to it and have not started: they wait for it, or hold a place in it and wait for a wider one. A call
    /// that still waits for a narrower one has not come yet.
    pub waiting: usize,
    /// How long nobody may start, if the provider said so.
    pub cooling_ms: Option<u64>,
}

impl Throttles {
    /// Quotas with these rates by name, and the default for all others, except that a model (`provider/model`) whose
    /// provider has rates by name has no bounds but those. A rate of 0 counts as 1; [`Rates::check`] tells of it.
    pub fn new(default: Rates, named: impl IntoIterator<Item = (Text, Rates)>) -> Self {
        let named: BTreeMap<_, _> = named.into_iter().map(|(name, rates)| (name, rates.at_least_one())).collect();
        Self(Arc::new(Owner(Arc::new(Shared::new(Desk::new(default.at_least_one(), named))))))
    }

    /// Waits until a call of `who` may start under all `quotas`; `tokens` is an estimate of what it will cost.
    ///
    /// The quotas are taken from the narrowest to the widest, by the parts of their names, in whatever order they are given;
    /// none is taken twice. Without quotas, and after [`Throttles::close`], it returns at once. A call comes to its place in
    /// the line when this is first polled, inside a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future at any point gives back everything that the call held and its place in the line.
    pub async fn enter(&self, quotas: &[Text], who: SessionId, tokens: u64) -> Pass {
        let path: BTreeSet<Key> = quotas.iter().map(Key::of).collect();
        if path.is_empty() {
            return Pass::of_nothing();
        }
        Wait::new(&self.0.0, Claim { who, path: path.into_iter().collect(), tokens }).await
    }

    /// Lets nobody start under `quota` for so long: the provider said so. When it is cooling already the longer of the two
    /// counts. Calls that run are left alone.
    pub fn cool(&self, quota: &Text, ms: u64) {
        self.0.0.at_desk(|desk, now| desk.cool(quota, ms, now));
    }

    /// How long nobody may start under `quota`, if it is cooling.
    pub fn cooling_ms(&self, quota: &Text) -> Option<u64> {
        self.0.0.at_desk(|desk, now| desk.cooling_ms(quota, now))
    }

    /// The quotas that are in use, cooling or filling up again, by name.
    pub fn seen(&self) -> Vec<QuotaSeen> {
        self.0.0.at_desk(|desk, now| desk.seen(now))
    }

    /// Ends its task; after this nobody waits: every [`Throttles::enter`] returns at once, with a pass that holds nothing.
    pub fn close(&self) {
        self.0.0.close();
    }
}

impl fmt::Debug for Throttles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttles").field("quotas", &self.seen()).finish()
    }
}
