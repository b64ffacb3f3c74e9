//! Bounds the memory of responses that clients do not read.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;

use crate::auth::SenderId;

/// Parts of responses up to this size are handed to their connection at once. It buffers few of them.
pub(super) const PIECE_BYTES: usize = 16 << 10;

/// The unsent rests of all connections of this process.
pub(super) static UNSENT: Unsent = Unsent::new(64 << 20);

/// The rests of large parts of responses that their connections have not accepted yet.
///
/// They have a maximum number of bytes. Above it, the sender with the most bytes loses the rest that made no progress
/// for the longest time, and that response ends. So a client that reads nothing takes no bytes from other senders.
#[derive(Debug)]
pub(super) struct Unsent {
    max_bytes: usize,
    rests: Mutex<UnsentRests>,
}

#[derive(Debug)]
struct UnsentRests {
    next: u64,
    bytes: usize,
    /// By number: the rest with the lowest one made no progress for the longest time.
    all: BTreeMap<u64, UnsentRest>,
}

#[derive(Debug)]
struct UnsentRest {
    /// `None` for clients of the Unix socket.
    sender: Option<SenderId>,
    bytes: Bytes,
    /// Bytes in memory until the whole rest is sent.
    size: usize,
}

impl Unsent {
    const fn new(max_bytes: usize) -> Self {
        Self { max_bytes, rests: Mutex::new(UnsentRests { next: 0, bytes: 0, all: BTreeMap::new() }) }
    }

    pub(super) fn hold(&'static self, sender: Option<SenderId>, part: Bytes) -> HeldRest {
        let bytes = match part.try_into_mut() {
            Ok(part) if part.capacity() == part.len() => part.freeze(),
            // A copy, because a part that was written piece by piece may occupy twice its bytes.
            Ok(part) => Bytes::copy_from_slice(&part),
            Err(part) => Bytes::copy_from_slice(&part),
        };
        let (left, mut rests) = (bytes.len(), self.lock());
        let number = rests.insert(UnsentRest { sender, bytes, size: left });
        while rests.bytes > self.max_bytes && rests.all.len() > 1 {
            rests.drop_slowest();
        }
        HeldRest { unsent: self, number, left }
    }

    fn lock(&self) -> MutexGuard<'_, UnsentRests> {
        self.rests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnsentRests {
    fn insert(&mut self, rest: UnsentRest) -> u64 {
        let number = self.next;
        self.next = number.saturating_add(1);
        self.bytes = self.bytes.saturating_add(rest.size);
        self.all.insert(number, rest);
        number
    }

    fn remove(&mut self, number: u64) -> Option<UnsentRest> {
        let rest = self.all.remove(&number)?;
        self.bytes = self.bytes.saturating_sub(rest.size);
        Some(rest)
    }

    fn drop_slowest(&mut self) {
        let mut by_sender = HashMap::<_, usize>::new();
        for rest in self.all.values() {
            let bytes = by_sender.entry(rest.sender).or_default();
            *bytes = bytes.saturating_add(rest.size);
        }
        let most = by_sender.into_iter().max_by_key(|(_, bytes)| *bytes).map(|(sender, _)| sender);
        let slowest = self.all.iter().find(|(_, rest)| Some(rest.sender) == most).map(|(number, _)| *number);
        if let Some(rest) = slowest.and_then(|number| self.remove(number)) {
            tracing::warn!(bytes = rest.size, "a response ended, because its client does not read it");
        }
    }
}

/// The place of a rest in [`Unsent`].
#[derive(Debug)]
pub(super) struct HeldRest {
    unsent: &'static Unsent,
    number: u64,
    left: usize,
}

impl HeldRest {
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Returns the next piece, as a copy: the connection must not keep the memory of the rest.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) if the rest was dropped.
    pub(super) fn take_piece(&mut self) -> io::Result<Bytes> {
        let mut rests = self.unsent.lock();
        let mut rest = rests.remove(self.number).ok_or(io::ErrorKind::TimedOut)?;
        let piece = Bytes::copy_from_slice(&rest.bytes.split_to(rest.bytes.len().min(PIECE_BYTES)));
        self.left = rest.bytes.len();
        if self.left > 0 {
            self.number = rests.insert(rest);
        }
        Ok(piece)
    }
}

impl Drop for HeldRest {
    fn drop(&mut self) {
        drop(self.unsent.lock().remove(self.number));
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, HttpBody as _, to_bytes};
    use axum::response::Response;
    use http_body_util::BodyExt as _;

    use super::super::heads::{ResponseState, RouterBody};
    use super::*;

    const RESPONSE_BYTES: usize = 4 * PIECE_BYTES;
    static SMALL: Unsent = Unsent::new(16 * RESPONSE_BYTES);

    /// Returns a response of which the client reads the first piece.
    async fn started(sender: &[u8]) -> RouterBody {
        let mut response = Response::new(Body::from(vec![b'x'; RESPONSE_BYTES]));
        response.extensions_mut().insert(SenderId::of(blake3::hash(sender)));
        let mut body = RouterBody::wrap(response, &SMALL, ResponseState::default().answer()).into_body();
        assert_eq!(body.size_hint().exact(), Some(RESPONSE_BYTES as u64));
        let first = body.frame().await.expect("a frame").expect("no error").into_data().expect("data");
        assert_eq!(first.len(), PIECE_BYTES);
        assert_eq!(
            (body.size_hint().exact(), body.is_end_stream()),
            (Some((RESPONSE_BYTES - PIECE_BYTES) as u64), false)
        );
        body
    }

    /// The control: a sender with one unread response keeps it, although the others began later.
    #[tokio::test]
    async fn unread_responses_hold_a_bounded_number_of_bytes() {
        let other = started(b"other").await;
        let mut unread = Vec::new();
        for _ in 0..200 {
            unread.push(started(b"one").await);
        }
        assert_eq!(SMALL.lock().bytes, SMALL.max_bytes);
        let mut read = Vec::new();
        for body in std::iter::once(other).chain(unread) {
            read.push(
                to_bytes(Body::new(body), usize::MAX)
                    .await
                    .is_ok_and(|rest| rest.len() == RESPONSE_BYTES - PIECE_BYTES),
            );
        }
        let newest = (0..201).map(|number| number == 0 || number > 185).collect::<Vec<_>>();
        assert_eq!(read, newest);
        let rests = SMALL.lock();
        assert_eq!((rests.bytes, rests.all.len()), (0, 0));
    }
}
