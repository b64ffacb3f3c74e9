//! Regenerated answers.

use std::collections::BTreeMap;

use subtend_session::ids::{Seq, SessionId, Text};
use subtend_session::message::Message;
use subtend_session::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternatives {
    /// The record of the answer.
    pub of: Seq,
    /// The index of the active alternative.
    pub active: u32,
    /// All alternatives; the first is the original.
    pub choices: Vec<Alternative>,
}

impl Alternatives {
    /// Lists the answers of a session that have alternatives, in order.
    pub(crate) fn all(state: &State) -> Vec<Self> {
        if state.alternatives.is_empty() {
            return Vec::new();
        }
        let answers = state.transcript.iter().filter_map(|message| {
            let Message::Assistant { seq, text: Some(text), .. } = message else { return None };
            Some((*seq, text))
        });
        let texts: BTreeMap<Seq, &Text> = answers.collect();
        let original = |of: Seq| Alternative { session: None, text: texts.get(&of).copied().cloned() };
        let listed = state.alternatives.iter().map(|(of, known)| {
            let given = known
                .branches
                .iter()
                .map(|branch| Alternative { session: Some(branch.child), text: branch.text.clone() });
            let choices = std::iter::once(original(*of)).chain(given).collect();
            Self { of: *of, active: known.active, choices }
        });
        listed.collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// The branch with this alternative; `None` for the original.
    pub session: Option<SessionId>,
    /// The text; `None` while the run is in flight, and if the run failed.
    pub text: Option<Text>,
}
