//! The open calls of a connection, each with the questions that the server asked during it.
//!
//! Calls of several sessions share a connection, and a server need not name the call of a question. A question is therefore kept only
//! for a call that the server named, or that was the only open one. No other session reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::ElicitRequestParams;
use serde_json::Value;

use super::question::{Question, ServerQuestion};

/// Maximum number of a call's questions that its result lists.
const MAX_QUESTIONS: usize = 4;

/// The open calls of a connection. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct OpenCalls(Arc<Mutex<CallTable>>);

#[derive(Default)]
struct CallTable {
    next: u64,
    open: BTreeMap<u64, DeclinedQuestions>,
}

/// The questions of the server that were declined during a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DeclinedQuestions {
    pub(super) questions: Vec<ServerQuestion>,
    /// True if there was a question that could also be of another call. Its text is not kept.
    pub(super) has_unassigned: bool,
}

impl DeclinedQuestions {
    fn add(&mut self, question: ServerQuestion) {
        if self.questions.len() < MAX_QUESTIONS {
            self.questions.push(question);
        }
    }
}

/// An open call. Dropping it ends the call.
pub(super) struct ServerCall {
    calls: OpenCalls,
    id: u64,
}

impl OpenCalls {
    fn lock(&self) -> MutexGuard<'_, CallTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open(&self) -> ServerCall {
        let mut table = self.lock();
        let id = table.next;
        table.next = table.next.wrapping_add(1);
        table.open.insert(id, DeclinedQuestions::default());
        ServerCall { calls: self.clone(), id }
    }

    /// Keeps a question for the only open call.
    pub(super) fn declined(&self, question: ServerQuestion) {
        let mut table = self.lock();
        let is_only = table.open.len() == 1;
        match table.open.values_mut().next() {
            Some(call) if is_only => call.add(question),
            _ => table.open.values_mut().for_each(|call| call.has_unassigned = true),
        }
    }
}

impl ServerCall {
    /// Keeps a question that the server asked in an answer to this call.
    pub(super) fn declined(&self, question: ServerQuestion) {
        if let Some(call) = self.calls.lock().open.get_mut(&self.id) {
            call.add(question);
        }
    }

    /// Keeps the pages that the server wants opened before it answers this call, from the data of its error.
    pub(super) fn declined_pages(&self, data: &Value) {
        let pages = data.get("elicitations").and_then(Value::as_array);
        for page in pages.into_iter().flatten().take(MAX_QUESTIONS) {
            if let Ok(page @ ElicitRequestParams::UrlElicitationParams { .. }) = serde_json::from_value(page.clone()) {
                self.declined(Question::of(&page).0);
            }
        }
    }

    /// Takes the questions of this call.
    pub(super) fn take_questions(&self) -> DeclinedQuestions {
        self.calls.lock().open.get_mut(&self.id).map(std::mem::take).unwrap_or_default()
    }
}

impl Drop for ServerCall {
    fn drop(&mut self) {
        self.calls.lock().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control: the question of a call that is alone, or named, is kept for it.
    #[test]
    fn question_of_unknown_call_is_kept_for_none() {
        let question = |text: &str| ServerQuestion::Other(text.to_owned());
        let kept = |questions: &[&str], has_unassigned| DeclinedQuestions {
            questions: questions.iter().map(|text| question(text)).collect(),
            has_unassigned,
        };
        let calls = OpenCalls::default();
        calls.declined(question("before"));
        let first = calls.open();
        calls.declined(question("alone"));
        assert_eq!(first.take_questions(), kept(&["alone"], false));
        let second = calls.open();
        calls.declined(question("unknown"));
        second.declined(question("named"));
        assert_eq!(first.take_questions(), kept(&[], true));
        assert_eq!(second.take_questions(), kept(&["named"], true));
        drop(second);
        (0..9).for_each(|_| calls.declined(question("many")));
        assert_eq!(first.take_questions(), kept(&["many"; MAX_QUESTIONS], false));
    }
}
