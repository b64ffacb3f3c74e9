//! The protocol from the killed process to the drill: one line per acknowledgement.

use std::fmt;
use std::io::Write as _;

use subtend_session::ids::{CallId, InputId, RunNo, Seq, SessionId, TurnNo};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The store is open, and recovery starts.
    Opened,
    /// The recovery ended this number of microseconds after the store was opened.
    Ready(u64),
    KillPoint,
    Input(SessionId, InputId),
    Ended(SessionId, RunNo),
    Cancelled(SessionId, RunNo),
    Interrupted(SessionId, RunNo),
    Branched(SessionId),
    /// An approval was acknowledged.
    Approved(SessionId, CallId),
    /// A subscriber received a durable record.
    Seen(SessionId, Seq),
    /// The deletion of a session and its descendants begins.
    Deleting(SessionId),
    Deleted(SessionId),
    /// The store was compacted before it was opened, which erased every deleted session.
    Compacted,
    /// The wait for rest ended with this number of runs in flight.
    Quiet(usize),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened => write!(f, "opened"),
            Self::Ready(took_us) => write!(f, "ready {took_us}"),
            Self::KillPoint => write!(f, "kill_point"),
            Self::Input(session, input) => write!(f, "input {session} {input}"),
            Self::Ended(session, run) => write!(f, "ended {session} {run}"),
            Self::Cancelled(session, run) => write!(f, "cancelled {session} {run}"),
            Self::Interrupted(session, run) => write!(f, "interrupted {session} {run}"),
            Self::Branched(session) => write!(f, "branched {session}"),
            Self::Approved(session, call) => write!(f, "approved {session} {} {}", call.turn, call.ix),
            Self::Seen(session, seq) => write!(f, "seen {session} {seq}"),
            Self::Deleting(session) => write!(f, "deleting {session}"),
            Self::Deleted(session) => write!(f, "deleted {session}"),
            Self::Compacted => write!(f, "compacted"),
            Self::Quiet(left) => write!(f, "quiet {left}"),
        }
    }
}

impl Line {
    /// Parses a line. `None` if the kill truncated it.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        Some(match words.as_slice() {
            ["opened"] => Self::Opened,
            ["ready", took_us] => Self::Ready(took_us.parse().ok()?),
            ["kill_point"] => Self::KillPoint,
            ["input", session, input] => Self::Input(session.parse().ok()?, input.parse().ok()?),
            ["ended", session, run] => Self::Ended(session.parse().ok()?, RunNo(run.parse().ok()?)),
            ["cancelled", session, run] => Self::Cancelled(session.parse().ok()?, RunNo(run.parse().ok()?)),
            ["interrupted", session, run] => Self::Interrupted(session.parse().ok()?, RunNo(run.parse().ok()?)),
            ["branched", session] => Self::Branched(session.parse().ok()?),
            ["approved", session, turn, ix] => {
                let call = CallId { turn: TurnNo(turn.parse().ok()?), ix: ix.parse().ok()? };
                Self::Approved(session.parse().ok()?, call)
            }
            ["seen", session, seq] => Self::Seen(session.parse().ok()?, Seq(seq.parse().ok()?)),
            ["deleting", session] => Self::Deleting(session.parse().ok()?),
            ["deleted", session] => Self::Deleted(session.parse().ok()?),
            ["compacted"] => Self::Compacted,
            ["quiet", left] => Self::Quiet(left.parse().ok()?),
            _ => return None,
        })
    }

    /// Writes the line in one call, so that a kill truncates at most the last line.
    pub(crate) fn print(self) {
        let line = format!("{self}\n");
        let mut out = std::io::stdout().lock();
        // Fails only if the drill has ended. Then this process is about to end too.
        drop(out.write_all(line.as_bytes()).and_then(|()| out.flush()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_parsed_unless_the_kill_truncated_it() {
        let session: SessionId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().expect("an id");
        let input = InputId(session.0);
        let lines = [
            Line::Opened,
            Line::Ready(12),
            Line::KillPoint,
            Line::Input(session, input),
            Line::Ended(session, RunNo(2)),
            Line::Cancelled(session, RunNo(1)),
            Line::Interrupted(session, RunNo(3)),
            Line::Branched(session),
            Line::Approved(session, CallId { turn: TurnNo(4), ix: 1 }),
            Line::Seen(session, Seq(9)),
            Line::Deleting(session),
            Line::Deleted(session),
            Line::Compacted,
            Line::Quiet(0),
        ];
        for line in lines {
            assert_eq!(Line::parse(&line.to_string()), Some(line));
        }
        assert_eq!(Line::parse("seen 01890a5d-ac96-774b"), None);
        assert_eq!(Line::parse(""), None);
    }
}
