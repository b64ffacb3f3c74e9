//! The questions that a server asked, by the session and the tool whose call they belong to. All sessions share the server, and no other
//! session may read a question.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use subtend_session::ids::{SessionId, Text};

use super::question::Question;

/// Maximum number of calls whose questions are kept. Sessions come and go, and a session may never answer.
const MAX_CALLS: usize = 128;

#[derive(Default)]
pub(super) struct AskedQuestions(Mutex<VecDeque<CallQuestions>>);

/// The last call of a tool in a session that asked the user for input.
struct CallQuestions {
    session: SessionId,
    tool: Text,
    questions: Vec<Question>,
}

impl AskedQuestions {
    fn lock(&self) -> MutexGuard<'_, VecDeque<CallQuestions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the answerable questions of the session's last call of a tool that asked any; none without a session.
    pub(super) fn of(&self, session: Option<SessionId>, tool: &str) -> Vec<Question> {
        let calls = self.lock();
        let asked = calls.iter().find(|call| Some(call.session) == session && *call.tool == *tool);
        asked.map(|call| call.questions.clone()).unwrap_or_default()
    }

    pub(super) fn has_any(&self, session: SessionId) -> bool {
        self.lock().iter().any(|call| call.session == session)
    }

    /// Replaces the questions of a tool. Forgets those of the oldest call if there are too many.
    pub(super) fn set(&self, (session, tool): (SessionId, &str), questions: Vec<Question>) {
        let mut calls = self.lock();
        calls.retain(|call| call.session != session || *call.tool != *tool);
        if questions.is_empty() {
            return;
        }
        calls.push_back(CallQuestions { session, tool: tool.into(), questions });
        if calls.len() > MAX_CALLS {
            calls.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::question::ServerQuestion;
    use super::*;

    fn session(number: usize) -> SessionId {
        format!("01890a5d-ac96-774b-bcce-{number:012x}").parse().unwrap()
    }

    fn question(message: &str) -> Question {
        let params =
            json!({"mode": "form", "message": message, "requestedSchema": {"type": "object", "properties": {}}});
        match Question::of(&serde_json::from_value(params).unwrap()).0 {
            ServerQuestion::Answerable(question) => question,
            other @ ServerQuestion::Other { .. } => panic!("{other:?}"),
        }
    }

    /// The control: the questions of the same session and tool.
    #[test]
    fn questions_are_of_one_session_and_tool() {
        let (asked, [one, other]) = (AskedQuestions::default(), [1, 2].map(session));
        asked.set((one, "ask"), vec![question("one?")]);
        asked.set((other, "ask"), vec![question("other?")]);
        assert_eq!(asked.of(Some(one), "ask"), [question("one?")]);
        assert_eq!(asked.of(Some(other), "ask"), [question("other?")]);
        assert_eq!([asked.of(Some(one), "tell"), asked.of(None, "ask")], [vec![], vec![]]);
        asked.set((one, "ask"), Vec::new());
        assert_eq!([one, other].map(|session| asked.has_any(session)), [false, true]);
    }

    /// The control: the questions of the latest calls are kept.
    #[test]
    fn questions_of_many_sessions_are_bounded() {
        let asked = AskedQuestions::default();
        (0..=MAX_CALLS).for_each(|n| asked.set((session(n), "ask"), vec![question("Sure?")]));
        assert_eq!(asked.lock().len(), MAX_CALLS);
        assert_eq!([0, 1, MAX_CALLS].map(|n| asked.has_any(session(n))), [false, true, true]);
    }
}
