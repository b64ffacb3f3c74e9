//! Observations: what is seen of a simulation from outside, in the order in which it is seen.

use std::collections::BTreeMap;
use std::time::Duration;

use subtend_invariants::observed::{
    Acked, Answer, AnswerSeen, Boot, ContextGiven, Effect, Failure, Given, Heard, Listing, Offer, Shutdown,
    SubscriberLog, Work,
};
use subtend_invariants::{Observed, When};
use subtend_session::authority::Verdict;
use subtend_session::ids::{Epoch, RunKey, Seq, SessionId, Text};

/// What was seen so far.
#[derive(Default)]
pub(crate) struct Observations {
    seen: Observed,
    /// Effects at work, by their place among all.
    at_work: BTreeMap<usize, ()>,
}

impl Observations {
    /// The next thing is seen.
    pub(crate) fn tick(&mut self, now: Duration) -> When {
        self.seen.now = When {
            order: self.seen.now.order.saturating_add(1),
            ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        };
        self.seen.now
    }

    /// All of it, as it stands.
    pub(crate) fn all(&self) -> &Observed {
        &self.seen
    }

    /// For the time of one judgement.
    pub(crate) fn all_mut(&mut self) -> &mut Observed {
        &mut self.seen
    }

    /// A word was given that rests on record `seq`.
    pub(crate) fn acked(&mut self, now: Duration, session: SessionId, seq: Seq, durable: Option<Seq>) {
        let at = self.tick(now);
        self.seen.acked.push(Acked { session, seq, at, durable });
    }

    /// A write is about to fail.
    pub(crate) fn fails(&mut self, now: Duration, durable: BTreeMap<SessionId, Seq>) {
        let at = self.tick(now);
        self.seen.failures.push(Failure { at, reopened: None, durable });
    }

    /// The store is opened again.
    pub(crate) fn reopens(&mut self, now: Duration) {
        let at = self.tick(now);
        if let Some(failure) = self.seen.failures.last_mut() {
            failure.reopened.get_or_insert(at);
        }
    }

    /// A start has returned.
    pub(crate) fn booted(&mut self, now: Duration, at_rest: bool, wrote: u64) {
        let at = self.tick(now);
        self.seen.boots.push(Boot { at, at_rest, wrote });
    }

    /// A control, or a wait, was answered.
    pub(crate) fn answered(&mut self, now: Duration, run: RunKey, given: Given, answer: Answer) {
        let at = self.tick(now);
        self.seen.answers.push(AnswerSeen { run, given, at, answer });
    }

    /// A run has ended.
    pub(crate) fn ended(&mut self, now: Duration, run: RunKey) {
        let at = self.tick(now);
        self.seen.ended.insert(run, at);
    }

    /// An effect begins that leaves the process. Returns its place.
    pub(crate) fn begins(&mut self, now: Duration, run: RunKey, work: Work, durable: Option<Seq>) -> usize {
        let started = self.tick(now);
        let at = self.seen.effects.len();
        self.at_work.insert(at, ());
        self.seen.effects.push(Effect { run, epoch: Epoch(0), work, started, durable, gone: None });
        at
    }

    /// It is gone.
    pub(crate) fn gone(&mut self, now: Duration, at: usize) {
        self.at_work.remove(&at);
        let gone = self.tick(now);
        if let Some(effect) = self.seen.effects.get_mut(at) {
            effect.gone.get_or_insert(gone);
        }
    }

    /// The process is dead, and all that it had at work.
    pub(crate) fn all_gone(&mut self, now: Duration) {
        let left: Vec<usize> = self.at_work.keys().copied().collect();
        left.into_iter().for_each(|at| self.gone(now, at));
    }

    /// Somebody begins to read events. Returns its place.
    pub(crate) fn reads(&mut self, name: Text, follows: Option<(SessionId, Seq)>) -> usize {
        self.seen.subscribers.push(SubscriberLog { name, follows, heard: Vec::new(), dry: false });
        self.seen.subscribers.len().saturating_sub(1)
    }

    /// It hears of something.
    pub(crate) fn hears(&mut self, reader: usize, heard: Heard) {
        if let Some(log) = self.seen.subscribers.get_mut(reader) {
            log.heard.push(heard);
        }
    }

    /// A model call was given tools.
    pub(crate) fn offered(&mut self, given: ContextGiven) {
        self.seen.contexts.push(given);
    }

    /// What is listed from roots, at this instant.
    pub(crate) fn lists(&mut self, listings: Vec<Listing>) {
        self.seen.listings = listings;
    }

    /// The runtime was shut down, and nothing of it is alive; until the next one begins.
    pub(crate) fn down(&mut self, down: Option<Shutdown>) {
        self.seen.shutdown = down;
    }
}

/// A tool, as it was put to a model or kept from it.
pub(crate) fn offer(tool: &str, offered: bool, best: Verdict, can_ask: bool) -> Offer {
    Offer { tool: tool.into(), offered, best, can_ask }
}
