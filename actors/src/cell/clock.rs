//! The working time of a run, without the time in which it waits, is queued or is held.

use subtend_session::command::Clock;
use subtend_session::ids::RunNo;
use subtend_session::state::{Phase, State};
use tokio::time::Instant;

use crate::clock::now;

#[derive(Clone, Copy, Default)]
pub(crate) struct RunClock {
    run: Option<RunNo>,
    base_ms: u64,
    since: Option<Instant>,
}

impl RunClock {
    /// Continues from the recorded time of earlier activations.
    pub(crate) fn of(state: &State) -> Self {
        let run = state.run.as_ref();
        Self { run: run.map(|run| run.no), base_ms: run.map_or(0, |run| run.worked_ms), since: None }
    }

    pub(crate) fn read(&self, wall_ms: i64) -> Clock {
        let running = self.since.map_or(0, |since| millis(now().duration_since(since)));
        Clock { wall_ms, worked_ms: self.base_ms.saturating_add(running) }
    }

    /// Starts or stops the clock by the phase of `state`; a new run starts at zero.
    pub(crate) fn follow(&mut self, state: &State) {
        if state.run.as_ref().map(|run| run.no) != self.run {
            *self = Self::of(state);
        }
        match (state.phase(), self.since) {
            (Phase::Working, None) => self.since = Some(now()),
            (Phase::Working, Some(_)) | (Phase::Quiet, _) => {}
            (
                Phase::Queued
                | Phase::WaitingMidTurn
                | Phase::WaitingAtRest
                | Phase::HeldInterrupted
                | Phase::HeldOutOfTurns
                | Phase::Closing,
                since,
            ) => {
                let ran = since.map_or(0, |since| millis(now().duration_since(since)));
                *self = Self { base_ms: self.base_ms.saturating_add(ran), since: None, ..*self };
            }
        }
    }
}

fn millis(elapsed: std::time::Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
