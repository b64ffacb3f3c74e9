use subtend_session::ids::{AttemptNo, RunNo, SessionId, TurnNo};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) session: SessionId,
    pub(crate) root: SessionId,
    pub(crate) run: RunNo,
    pub(crate) turn: TurnNo,
    pub(crate) attempt: AttemptNo,
}
