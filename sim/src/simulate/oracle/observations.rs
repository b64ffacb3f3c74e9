//! Observations of a simulation from outside the runtime, in order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use subtend_invariants::observed::{
    Acknowledgement, Boot, ControlAnswer, Delivered, Effect, Failure, GivenContext, Listing, ObservedAnswer, Offer,
    ReplySubject, Shutdown, SubscriberLog, Work,
};
use subtend_invariants::{Observed, When};
use subtend_session::authority::Verdict;
use subtend_session::ids::{Epoch, RunKey, Seq, SessionId, Text};

#[derive(Default)]
pub(crate) struct Observations {
    seen: Observed,
    /// Running effects, by their index.
    running: BTreeSet<usize>,
}

impl Observations {
    pub(crate) fn tick(&mut self, now: Duration) -> When {
        self.seen.now = When {
            order: self.seen.now.order.saturating_add(1),
            ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        };
        self.seen.now
    }

    pub(crate) fn all(&self) -> &Observed {
        &self.seen
    }

    pub(crate) fn all_mut(&mut self) -> &mut Observed {
        &mut self.seen
    }

    /// Records an acknowledgement that depends on record `seq`.
    pub(crate) fn record_acknowledgement(&mut self, now: Duration, session: SessionId, seq: Seq, durable: Option<Seq>) {
        let at = self.tick(now);
        self.seen.acked.push(Acknowledgement { session, seq, at, durable });
    }

    pub(crate) fn begin_store_failure(&mut self, now: Duration, durable: BTreeMap<SessionId, Seq>) {
        let at = self.tick(now);
        self.seen.failures.push(Failure { at, reopened: None, durable });
    }

    pub(crate) fn record_reopening(&mut self, now: Duration) {
        let at = self.tick(now);
        if let Some(failure) = self.seen.failures.last_mut() {
            failure.reopened.get_or_insert(at);
        }
    }

    pub(crate) fn record_boot(&mut self, now: Duration, at_rest: bool, wrote: u64) {
        let at = self.tick(now);
        self.seen.boots.push(Boot { at, at_rest, wrote });
    }

    pub(crate) fn record_answer(&mut self, now: Duration, run: RunKey, given: ReplySubject, answer: ControlAnswer) {
        let at = self.tick(now);
        self.seen.answers.push(ObservedAnswer { run, given, at, answer });
    }

    pub(crate) fn record_end(&mut self, now: Duration, run: RunKey) {
        let at = self.tick(now);
        self.seen.ended.insert(run, at);
    }

    /// Records the start of an effect that leaves the process. Returns the index of the effect.
    pub(crate) fn begin_effect(&mut self, now: Duration, run: RunKey, work: Work, durable: Option<Seq>) -> usize {
        let started = self.tick(now);
        let at = self.seen.effects.len();
        self.running.insert(at);
        self.seen.effects.push(Effect { run, epoch: Epoch(0), work, started, durable, gone: None });
        at
    }

    pub(crate) fn end_effect(&mut self, now: Duration, at: usize) {
        self.running.remove(&at);
        let gone = self.tick(now);
        if let Some(effect) = self.seen.effects.get_mut(at) {
            effect.gone.get_or_insert(gone);
        }
    }

    /// Records that all running effects ended, because the process was killed.
    pub(crate) fn end_all_effects(&mut self, now: Duration) {
        let left: Vec<usize> = self.running.iter().copied().collect();
        left.into_iter().for_each(|at| self.end_effect(now, at));
    }

    /// Records a new reader of events. Returns the index of the reader.
    pub(crate) fn add_reader(&mut self, name: Text, follows: Option<(SessionId, Seq)>) -> usize {
        self.seen.subscribers.push(SubscriberLog { name, follows, received: Vec::new(), caught_up: false });
        self.seen.subscribers.len().saturating_sub(1)
    }

    pub(crate) fn record_delivery(&mut self, reader: usize, delivery: Delivered) {
        if let Some(log) = self.seen.subscribers.get_mut(reader) {
            log.received.push(delivery);
        }
    }

    pub(crate) fn record_context(&mut self, given: GivenContext) {
        self.seen.contexts.push(given);
    }

    pub(crate) fn record_listings(&mut self, listings: Vec<Listing>) {
        self.seen.listings = listings;
    }

    /// Records a shutdown that left no task alive, or `None` when the next process starts.
    pub(crate) fn record_shutdown(&mut self, shutdown: Option<Shutdown>) {
        self.seen.shutdown = shutdown;
    }
}

/// Returns a tool that was offered to a model or withheld from it.
pub(crate) fn offer(tool: &str, offered: bool, best: Verdict, can_ask: bool) -> Offer {
    Offer { tool: tool.into(), offered, best, can_ask }
}
