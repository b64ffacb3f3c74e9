//! The open calls of a connection, with the server's questions during each call and the user's approved answers.
//!
//! Calls of several sessions share a connection, and a server need not say to which call a question belongs. So a question belongs to the
//! call that the server named, or to the only open call. Other sessions never see the question, and their answers are never used for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::ElicitRequestParams;
use serde_json::Value;

use super::question::{Question, ServerQuestion};

/// Maximum number of questions in the result of a call.
const MAX_QUESTIONS: usize = 4;
/// Maximum time for which other calls wait for a call.
const MAX_TURN: Duration = Duration::from_secs(5);

/// The open calls of a connection. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct OpenCalls(Arc<Mutex<CallTable>>);

#[derive(Default)]
struct CallTable {
    next: u64,
    open: BTreeMap<u64, OpenServerCall>,
}

#[derive(Default)]
struct OpenServerCall {
    /// The user's approved answers, by question id.
    answers: BTreeMap<String, Value>,
    declined: DeclinedQuestions,
}

/// The questions of the server that were declined during a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DeclinedQuestions {
    pub(super) questions: Vec<ServerQuestion>,
    /// True if there was a question that may belong to another call. The text of such a question is not kept.
    pub(super) has_unassigned: bool,
}

impl DeclinedQuestions {
    fn add(&mut self, question: ServerQuestion) {
        if self.questions.len() < MAX_QUESTIONS {
            self.questions.push(question);
        }
    }
}

/// An open call. The drop of this value ends it.
pub(super) struct ServerCall {
    calls: OpenCalls,
    id: u64,
}

impl OpenCalls {
    fn lock(&self) -> MutexGuard<'_, CallTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn open(&self, answers: BTreeMap<String, Value>) -> ServerCall {
        let mut table = self.lock();
        let id = table.next;
        table.next = table.next.wrapping_add(1);
        table.open.insert(id, OpenServerCall { answers, ..OpenServerCall::default() });
        ServerCall { calls: self.clone(), id }
    }

    /// Takes the answer to a question of `call`, or of the only open call if the server did not name one.
    pub(super) fn take_answer(&self, question: &str, call: Option<&ServerCall>) -> Option<Value> {
        let mut table = self.lock();
        let call = match call {
            Some(call) => table.open.get_mut(&call.id),
            None if table.open.len() == 1 => table.open.values_mut().next(),
            None => None,
        };
        call?.answers.remove(question)
    }

    /// Keeps a question for the only open call.
    pub(super) fn keep_question(&self, question: ServerQuestion) {
        let mut table = self.lock();
        let is_only = table.open.len() == 1;
        match table.open.values_mut().next() {
            Some(call) if is_only => call.declined.add(question),
            _ => table.open.values_mut().for_each(|call| call.declined.has_unassigned = true),
        }
    }
}

impl ServerCall {
    /// Keeps a question that the server asked in an answer to this call.
    pub(super) fn keep_question(&self, question: ServerQuestion) {
        if let Some(call) = self.calls.lock().open.get_mut(&self.id) {
            call.declined.add(question);
        }
    }

    /// Keeps the pages that the user must open first. `data` is the data of the server's error.
    pub(super) fn keep_pages(&self, data: &Value) {
        let pages = data.get("elicitations").and_then(Value::as_array);
        for page in pages.into_iter().flatten().take(MAX_QUESTIONS) {
            if let Ok(page @ ElicitRequestParams::UrlElicitationParams { .. }) = serde_json::from_value(page.clone()) {
                self.keep_question(Question::of(&page).0);
            }
        }
    }

    pub(super) fn take_questions(&self) -> DeclinedQuestions {
        self.calls.lock().open.get_mut(&self.id).map(|call| std::mem::take(&mut call.declined)).unwrap_or_default()
    }
}

impl Drop for ServerCall {
    fn drop(&mut self) {
        self.calls.lock().open.remove(&self.id);
    }
}

/// Runs a call that has answers alone, because a question without a call is answered only if one call is open.
#[derive(Default)]
pub(super) struct CallTurns(tokio::sync::RwLock<()>);

impl CallTurns {
    /// Runs `call` in its turn. A call that takes longer than [`MAX_TURN`] continues, but others no longer wait for it.
    pub(super) async fn take<T>(&self, has_answers: bool, call: impl Future<Output = T>) -> T {
        let turn = match has_answers {
            false => (Some(self.0.read().await), None),
            true => (None, Some(self.0.write().await)),
        };
        tokio::pin!(call);
        if let Ok(done) = tokio::time::timeout(MAX_TURN, &mut call).await {
            return done;
        }
        drop(turn);
        call.await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    /// The control: a question is kept for the only open call, or for the named call.
    #[test]
    fn question_without_a_call_is_not_kept() {
        let question = |text: &str| ServerQuestion::Other { message: text.to_owned(), why: "" };
        let kept = |questions: &[&str], has_unassigned| DeclinedQuestions {
            questions: questions.iter().map(|text| question(text)).collect(),
            has_unassigned,
        };
        let calls = OpenCalls::default();
        calls.keep_question(question("before"));
        let first = calls.open(BTreeMap::new());
        calls.keep_question(question("alone"));
        assert_eq!(first.take_questions(), kept(&["alone"], false));
        let second = calls.open(BTreeMap::new());
        calls.keep_question(question("unknown"));
        second.keep_question(question("named"));
        assert_eq!(first.take_questions(), kept(&[], true));
        assert_eq!(second.take_questions(), kept(&["named"], true));
        drop(second);
        (0..9).for_each(|_| calls.keep_question(question("many")));
        assert_eq!(first.take_questions(), kept(&["many"; MAX_QUESTIONS], false));
    }

    /// The control: a question of the only open call, or of a named call, is answered once.
    #[test]
    fn question_gets_no_answer_of_another_call() {
        let answers = || BTreeMap::from([("q".to_owned(), Value::from("yes"))]);
        let calls = OpenCalls::default();
        assert_eq!(calls.take_answer("q", None), None);
        let first = calls.open(answers());
        let second = calls.open(BTreeMap::new());
        assert_eq!((calls.take_answer("q", None), calls.take_answer("q", Some(&second))), (None, None));
        assert_eq!(calls.take_answer("q", Some(&first)), Some("yes".into()));
        assert_eq!(calls.take_answer("q", Some(&first)), None);
        drop(first);
        let third = calls.open(answers());
        drop(second);
        assert_eq!((calls.take_answer("other", None), calls.take_answer("q", None)), (None, Some("yes".into())));
        drop(third);
        assert_eq!(calls.take_answer("q", None), None);
    }

    /// The control: other calls wait for a call that ends sooner.
    #[tokio::test(start_paused = true)]
    async fn endless_call_delays_others_by_seconds_only() {
        for (endless_has_answers, next_has_answers) in [(false, true), (true, false), (true, true)] {
            let turns = Arc::new(CallTurns::default());
            let other = Arc::clone(&turns);
            let endless = tokio::spawn(async move { other.take(endless_has_answers, pending::<()>()).await });
            sleep(Duration::from_secs(1)).await;
            let begun = Instant::now();
            turns.take(next_has_answers, async {}).await;
            turns.take(false, async {}).await;
            assert_eq!(begun.elapsed().as_secs(), 4, "{endless_has_answers}, {next_has_answers}");
            assert!(!endless.is_finished());
            endless.abort();
        }
        let turns = CallTurns::default();
        let short = turns.take(true, sleep(Duration::from_secs(3)));
        let (begun, ((), waited)) =
            (Instant::now(), tokio::join!(short, async { turns.take(false, async { Instant::now() }).await }));
        assert_eq!(waited.duration_since(begun).as_secs(), 3);
        // Calls without answers do not wait for each other.
        let (_, at_once) = tokio::join!(
            timeout(Duration::from_secs(9), turns.take(false, pending::<()>())),
            turns.take(false, async { Instant::now() })
        );
        assert_eq!(at_once.duration_since(waited).as_secs(), 0);
    }
}
