//! Entries of a transcript, made from the records of a session.

use serde::{Deserialize, Serialize};
use subtend_session::call::CallEnd;
use subtend_session::ids::{AttemptNo, CallId, InputId, RunNo, Seq, SessionId, Text, TurnNo};
use subtend_session::outcome::{By, ModelFail, Outcome};
use subtend_session::place::BranchKind;
use subtend_session::record::{AskBy, AskVerdict, From, Hold};
use subtend_session::usage::Usage;

use super::Transcript;
use super::end::End;
use super::minion::Minion;

/// One thing that was said or done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Entry {
    /// An input that a run took.
    Input {
        /// Its id.
        id: InputId,
        /// Its message: what a branch may hang on.
        seq: Seq,
        /// Who sent it.
        from: From,
        /// The run that took it.
        run: RunNo,
        /// The text.
        text: Text,
        /// When it was accepted.
        at_ms: i64,
    },
    /// An input that no run has taken.
    Waiting {
        /// Its id.
        id: InputId,
        /// The text.
        text: Text,
    },
    /// An answer with the calls that it asks for.
    Answer {
        /// The turn.
        turn: TurnNo,
        /// Its message: what a branch may hang on, and what may be answered anew.
        seq: Seq,
        /// The text.
        text: Option<Text>,
        /// The calls, in order.
        calls: Vec<Call>,
        /// The agent that answered.
        agent: Option<Text>,
        /// The model that answered, with its provider: as the server names it where it does, else by the session's name for it.
        model: Option<Text>,
        /// What it cost.
        usage: Usage,
        /// When.
        at_ms: i64,
    },
    /// An attempt of a turn that came to nothing.
    Discarded {
        /// The turn.
        turn: TurnNo,
        /// The attempt within it.
        attempt: AttemptNo,
        /// The model that was called, where the session's name for it stands for several.
        model: Option<Text>,
        /// What went wrong.
        error: ModelFail,
        /// The model's own words.
        message: Text,
        /// What it cost all the same.
        usage: Option<Usage>,
    },
    /// Ends of owned runs that reached the model as one message.
    Notice {
        /// The ends.
        ends: Vec<End>,
    },
    /// The run is held.
    Held {
        /// The run.
        run: RunNo,
        /// Why.
        why: Hold,
    },
    /// The run ended.
    Ended {
        /// The run.
        run: RunNo,
        /// How.
        outcome: Outcome,
        /// Answered turns.
        turns: u32,
        /// What it and all that it owned cost.
        usage: Usage,
        /// Working time in milliseconds.
        worked_ms: u64,
        /// Whether it may be more: a process ended while the run worked.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        worked_at_least: bool,
        /// When.
        at_ms: i64,
    },
    /// A branch was made here by a person or the host.
    Branch {
        /// It.
        child: SessionId,
        /// Its kind.
        kind: BranchKind,
        /// The message that it hangs on.
        at: Seq,
    },
    /// Another alternative of an answer is seen from here on.
    Switched {
        /// The answer.
        of: Seq,
        /// Which; 0 is the original.
        to: u32,
    },
    /// What a run said is not seen any more from here on.
    RolledBack {
        /// The run.
        run: RunNo,
        /// On whose word.
        by: By,
    },
    /// A call waits for a person's word.
    Asked {
        /// The call.
        call: CallId,
        /// What it would do.
        action: Text,
        /// With what.
        resource: Text,
    },
    /// The word was given.
    Word {
        /// The call.
        call: CallId,
        /// It.
        verdict: AskVerdict,
        /// Who gave it.
        by: AskBy,
    },
    /// The session was deleted.
    Deleted {
        /// On whose word.
        by: By,
    },
    /// The session was closed or opened again.
    Closed {
        /// Whether it is closed.
        closed: bool,
        /// On whose word.
        by: By,
    },
}

impl Entry {
    /// The ends that arrived as one message; none of anything else.
    pub(super) fn ends_mut(&mut self) -> &mut [End] {
        if let Self::Notice { ends } = self { ends } else { &mut [] }
    }

    /// The calls of an answer; none of anything else.
    pub(super) fn calls_mut(&mut self) -> &mut [Call] {
        match self {
            Self::Answer { calls, .. } => calls,
            Self::Input { .. }
            | Self::Waiting { .. }
            | Self::Discarded { .. }
            | Self::Notice { .. }
            | Self::Held { .. }
            | Self::Ended { .. }
            | Self::Branch { .. }
            | Self::Switched { .. }
            | Self::RolledBack { .. }
            | Self::Asked { .. }
            | Self::Word { .. }
            | Self::Deleted { .. }
            | Self::Closed { .. } => &mut [],
        }
    }
}

/// An entry, its record, and whether models see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The record that it began with; later records complete the calls of an answer.
    #[serde(skip)]
    pub record: Seq,
    /// The entry.
    #[serde(flatten)]
    pub entry: Entry,
    /// Whether it is a message that was rolled back with its run: no model is given it any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled_back: bool,
}

/// One call of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Its name.
    pub call: CallId,
    /// The tool.
    pub tool: Text,
    /// The arguments, as the model wrote them.
    pub args: Text,
    /// The child that it opened.
    pub child: Option<SessionId>,
    /// What was left out of the child's prompt, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Text>,
    /// Whether it waits for approval.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asks: bool,
    /// What came of it; absent while it is open.
    pub result: Option<Came>,
    /// What a minion did for the call, where everything is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minion: Option<Minion>,
    /// The child, where it has no row of its own and everything is shown.
    #[serde(flatten)]
    pub nested: Option<Nested>,
}

/// A child within the call that started it (G9).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nested {
    /// What was said and done in it.
    Transcript(Box<Transcript>),
    /// Why it cannot be read.
    Unreadable(String),
}

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Came {
    /// A result of the tool.
    Result {
        /// How it ended.
        end: CallEnd,
        /// What the model saw.
        content: Text,
        /// Bytes before it was cut.
        truncated_from: Option<u64>,
    },
    /// The ends of runs that it waited for.
    Ends(Vec<End>),
}
