//! Reads and folds the journal of a session for its activation.

use subtend_journal::{Activation, Journal, ReadError, Stored};
use subtend_session::ids::{Seq, SessionId};
use subtend_session::state::State;

use crate::cell::activation::ActivationError;
use crate::cell::cells::Cells;
use crate::recovery::takeover::{LARGE, ROOM, Room};

impl Cells {
    /// Folds the journal of a session, off the threads of the runtime. A sweep activates many sessions at a time: small ones
    /// are folded here, and large ones when there is room.
    pub(super) async fn fold_journal(
        &self,
        session: SessionId,
    ) -> Result<(Activation, Box<State>, Option<Room>), ActivationError> {
        let is_swept = self.takeover.visits(session);
        if is_swept && let Some(read) = self.log.journal.activate_small(session, LARGE)? {
            let (activation, state) = folded(session, read)?;
            return Ok((activation, state, None));
        }
        let room = if is_swept { self.await_room(session).await? } else { None };
        let read = move |journal: &Journal| folded(session, journal.activate_with_records(session)?);
        let (activation, state) = self.log.read_whole(read).await?;
        Ok((activation, state, room))
    }

    /// Waits until a large session fits into the memory of the sweep, or the runtime halts.
    async fn await_room(&self, session: SessionId) -> Result<Option<Room>, ActivationError> {
        let halted = || ActivationError::Read(ReadError::Closed);
        let room = async |bytes| {
            let room = self.takeover.room(bytes);
            self.life.halt.run_until_cancelled(room).await.ok_or_else(halted)
        };
        // Damage takes the whole room, and the read reports it.
        let frames = self.log.journal.bytes_from(session, Seq(1), ROOM).unwrap_or(ROOM);
        let of_frames = room(frames).await?;
        // Read with the room of the frames, because the record that names the bodies may be large.
        let bodies = self.log.read_whole(move |journal| journal.body_bytes(session)).await.unwrap_or(ROOM);
        if bodies < LARGE {
            return Ok(of_frames);
        }
        // No activation waits for more while it has some.
        drop(of_frames);
        room(frames.saturating_add(bodies)).await
    }
}

fn folded(
    session: SessionId,
    (activation, stored): (Activation, Vec<Stored>),
) -> Result<(Activation, Box<State>), ActivationError> {
    let state = Box::new(State::fold(session, stored.iter().map(|stored| &stored.record))?);
    Ok((activation, state))
}
