//! The requests to a server that it has not answered.

use std::collections::{HashMap, VecDeque};

use rmcp::model::RequestId;
use tokio_util::sync::CancellationToken;

/// Maximum number of cancelled requests whose late answers are ignored.
const MAX_CANCELLED: usize = 1_024;

/// Requests without an answer, and those whose answers are ignored.
#[derive(Default)]
pub(super) struct SentRequests {
    /// Requests whose write has not begun. A cancelled token drops the request.
    waiting: HashMap<RequestId, CancellationToken>,
    /// Requests that are being posted. A cancelled token ends the POST, which holds the message and may stay open without an answer.
    posting: HashMap<RequestId, CancellationToken>,
    open: HashMap<RequestId, usize>,
    cancelled: VecDeque<RequestId>,
}

impl SentRequests {
    /// Adds a request whose write has not begun. Returns the token that is cancelled with its call.
    pub(super) fn wait(&mut self, id: &RequestId) -> CancellationToken {
        let withdrawn = CancellationToken::new();
        self.waiting.insert(id.clone(), withdrawn.clone());
        withdrawn
    }

    /// Notes that the write of a request begins. Returns false if the request was cancelled.
    pub(super) fn begin(&mut self, id: &RequestId, is_post: bool) -> bool {
        let Some(withdrawn) = self.waiting.remove(id) else { return false };
        if is_post {
            self.posting.insert(id.clone(), withdrawn);
        }
        self.add(id);
        true
    }

    /// Notes that the write of a request ended. The server need not answer a request whose write failed.
    pub(super) fn finish(&mut self, id: &RequestId, is_sent: bool) {
        self.posting.remove(id);
        if !is_sent {
            self.cancel(id);
        }
    }

    fn end_post(&mut self, id: &RequestId) {
        if let Some(post) = self.posting.remove(id) {
            post.cancel();
        }
    }

    fn add(&mut self, id: &RequestId) {
        let count = self.open.entry(id.clone()).or_default();
        *count = count.saturating_add(1);
    }

    fn remove(&mut self, id: &RequestId) -> bool {
        let Some(count) = self.open.get_mut(id) else { return false };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.open.remove(id);
        }
        true
    }

    /// Notes that the server need not answer a request. Returns false if the write of the request has not begun, and drops the request.
    pub(super) fn cancel(&mut self, id: &RequestId) -> bool {
        if let Some(withdrawn) = self.waiting.remove(id) {
            withdrawn.cancel();
            return false;
        }
        self.end_post(id);
        if self.remove(id) {
            self.cancelled.truncate(MAX_CANCELLED.saturating_sub(1));
            self.cancelled.push_front(id.clone());
        }
        true
    }

    pub(super) fn open(&self) -> impl Iterator<Item = &RequestId> {
        self.open.keys()
    }

    /// Notes an answer. Returns false if it answers no request while others wait: a caller would wait in vain. An answer to a request that was
    /// not written would end its call, and leave its message in memory.
    pub(super) fn answer(&mut self, id: &RequestId) -> bool {
        if self.remove(id) {
            self.end_post(id);
            return true;
        }
        let late = self.cancelled.iter().position(|cancelled| cancelled == id);
        late.is_some_and(|at| self.cancelled.remove(at).is_some()) || (self.open.is_empty() && self.waiting.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The controls: an answer to an open or cancelled request, and any answer while no request is open.
    #[test]
    fn answer_to_no_open_request_is_a_fault() {
        let (mut sent, id) = (SentRequests::default(), RequestId::Number);
        [1, 2, 3, 4].iter().for_each(|n| sent.add(&id(*n)));
        sent.cancel(&id(2));
        let ids = [id(1), id(1), id(2), id(2), id(9), RequestId::String("3".into()), id(3), id(4), id(4), id(9)];
        let expected = [true, false, true, false, false, false, true, true, true, true];
        assert_eq!(ids.map(|id| sent.answer(&id)), expected);
        // A request that was sent twice has two answers.
        [1, 1, 2].iter().for_each(|n| sent.add(&id(*n)));
        assert_eq!([1, 1, 1].map(|n| sent.answer(&id(n))), [true, true, false]);
        // A request that waits to be written has no answer.
        let mut sent = SentRequests::default();
        sent.wait(&id(1));
        assert_eq!([sent.answer(&id(1)), sent.begin(&id(1), false), sent.answer(&id(1))], [false, true, true]);
    }

    /// Each failed POST would be an open request for as long as the connection, and a late answer to it end that. The control: a POST that
    /// was sent, and has one answer.
    #[test]
    fn failed_post_leaves_no_open_request() {
        for is_sent in [false, true] {
            let (mut sent, id) = (SentRequests::default(), RequestId::Number);
            [1, 2].iter().for_each(|n| drop(sent.wait(&id(*n))));
            assert!(sent.begin(&id(1), true) && sent.begin(&id(2), true));
            sent.finish(&id(1), is_sent);
            assert_eq!((sent.open.len(), sent.posting.len()), (1 + usize::from(is_sent), 1));
            assert_eq!([1, 1].map(|n| sent.answer(&id(n))), [true, false]);
        }
    }
}
