//! A run that is followed to its end.

use std::io::Write as _;
use std::time::Duration;

use subtend_actors::event::{Event, Line, Next, Subscription, What};
use subtend_actors::{Ended, SessionHandle, WaitError};
use subtend_session::ids::RunNo;
use subtend_session::record::Record;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::super::fail::Fail;
use super::approve::Approving;
use super::screen::Screen;
use super::stop::Stop;
use crate::cli::json;

/// Between two drawings of the tree.
const FRAME: Duration = Duration::from_millis(100);
/// How long the events of an ended run may trail behind its end.
const TRAIL: Duration = Duration::from_millis(500);

/// A run that is followed to its end.
pub(super) struct Watch<'a> {
    pub(super) session: &'a SessionHandle,
    pub(super) events: Subscription,
    pub(super) screen: &'a mut Screen,
    pub(super) json: bool,
    /// Whether the event of the run's end was seen: the last one that is shown.
    pub(super) ended: bool,
}

impl Watch<'_> {
    /// Shows what happens until `run` has ended; a person who is there is asked what agents need a word for. Returns `None` where
    /// the run before it ended and did not open it.
    pub(super) async fn follow(
        &mut self,
        run: RunNo,
        stop: &mut Stop,
        mut approving: Option<Approving>,
    ) -> Result<Option<Ended>, Fail> {
        let session = self.session.clone();
        let run_handle = session.run(run);
        let ended = run_handle.ended();
        tokio::pin!(ended);
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut stopping, mut more) = (false, true);
        let end = loop {
            self.screen.hold(approving.as_ref().is_some_and(Approving::is_asking));
            tokio::select! {
                biased;
                () = stop.asked(), if !stopping => {
                    stopping = true;
                    self.cancel("asked to stop");
                }
                _ = frames.tick() => self.screen.draw(),
                next = self.events.next(), if more => match next.inspect(|next| Approving::hear(&mut approving, next)) {
                    Some(next) if self.show(&next, run).is_err() => {
                        // Nobody reads the events any more: what they were wanted for is over.
                        more = false;
                        stopping = true;
                        self.cancel("nobody reads the events any more");
                    }
                    Some(_) => {}
                    None => more = false,
                },
                Some(word) = Approving::next(&mut approving) => self.screen.alert(&word),
                ended = &mut ended => break ended,
            }
        };
        if matches!(end, Err(WaitError::NoSuchRun { .. })) {
            return Ok(None);
        }
        self.trail(run, more).await;
        Ok(Some(end?))
    }

    /// Asks for the end of the whole tree. The answer is the run's end.
    fn cancel(&mut self, why: &str) {
        self.screen.alert(&format!(
            "{why}: cancelling the run and all that it started, then shutting down; Ctrl-C leaves at once"
        ));
        let session = self.session.clone();
        // Detached runs too: with the process they would end as lost.
        tokio::spawn(async move { session.cancel_tree().await });
    }

    /// Shows what was published before the end but arrives after it.
    async fn trail(&mut self, run: RunNo, more: bool) {
        let until = Instant::now() + TRAIL;
        while more && !self.ended {
            match timeout_at(until, self.events.next()).await {
                Ok(Some(next)) if self.show(&next, run).is_ok() => {}
                Ok(Some(_) | None) | Err(_) => return,
            }
        }
    }

    fn show(&mut self, next: &Next, run: RunNo) -> Result<(), Fail> {
        match next {
            Next::Event(event) => {
                self.ended |= self.is_end(event, run);
                self.screen.take(event);
                self.print(&event.line())
            }
            Next::Missed(events) => {
                self.screen.missed(*events);
                self.print(&Line::Missed { events: *events })
            }
        }
    }

    fn is_end(&self, event: &Event, run: RunNo) -> bool {
        let What::Record { record, .. } = &event.what else { return false };
        let Record::RunEnded(ended) = &**record else { return false };
        event.session == self.session.id() && ended.run == run
    }

    fn print(&self, line: &impl serde::Serialize) -> Result<(), Fail> {
        if self.json {
            writeln!(std::io::stdout(), "{}", json::text(line)?)?;
        }
        Ok(())
    }
}
