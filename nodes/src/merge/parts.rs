//! Parts of views from the nodes of their shards. A node may be an impostor, so the bytes of all parts are bounded: of a view, and of all views.

use std::mem;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, BodyDataStream};
use bytes::BytesMut;
use futures_util::StreamExt as _;

/// Maximum bytes of one part. A host sends 4 MiB of cards at most, of which JSON makes up to twice as many.
const MAX_PART: usize = 16 << 20;
/// Maximum bytes of all parts of a view. Each shard has its share of them in any case.
const MAX_PARTS: usize = 32 << 20;

/// Maximum bytes of the parts of all views. While a view takes them, those of others stay small.
const MAX_ALL: usize = 128 << 20;
/// Maximum bytes of a part that needs no room among those of other views.
const SMALL_PART: usize = 64 << 10;

/// The part of a shard is too large, alone or together with those of other shards.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// Counts the bytes of the parts of all views.
#[derive(Clone, Debug, Default)]
pub(super) struct AllParts(Arc<AtomicUsize>);

impl AllParts {
    pub(super) fn view(&self, shards: usize) -> PartsBudget {
        let share = MAX_PARTS.checked_div(shards).unwrap_or(MAX_PARTS);
        PartsBudget { share, used: Arc::default(), all: Arc::clone(&self.0) }
    }
}

/// Counts the bytes of all parts of a view.
#[derive(Debug)]
pub(super) struct PartsBudget {
    share: usize,
    used: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
}

impl PartsBudget {
    pub(super) fn shard(&self) -> ShardBytes {
        let (used, all) = (Arc::clone(&self.used), Arc::clone(&self.all));
        ShardBytes { share: self.share, used, all, shown: 0, counted: 0 }
    }
}

/// Bytes of the parts of one shard. They count until it is dropped.
#[derive(Debug)]
pub(super) struct ShardBytes {
    share: usize,
    used: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
    /// Bytes of the last part, which the view still shows.
    shown: usize,
    counted: usize,
}

impl ShardBytes {
    /// Counts the larger of both parts, so that a smaller one can always replace the last one.
    fn set(&mut self, shown: usize, arriving: usize) -> Result<(), TooLarge> {
        let own = shown.max(arriving);
        let before = mem::replace(&mut self.counted, own);
        self.shown = shown;
        let replaced = |sum: &AtomicUsize| {
            sum.fetch_add(own, Ordering::Relaxed);
            sum.fetch_sub(before, Ordering::Relaxed).saturating_sub(before)
        };
        let (used, all) = (replaced(&self.used), replaced(&self.all));
        let fits_view = own <= self.share || used <= MAX_PARTS;
        let fits_all = own <= SMALL_PART || all <= MAX_ALL;
        let fits = arriving <= MAX_PART && (own <= before || (fits_view && fits_all));
        if fits { Ok(()) } else { Err(TooLarge) }
    }

    /// Forgets the part that did not arrive whole.
    pub(super) fn cancel(&mut self) {
        // The last part was checked when it arrived.
        let _ = self.set(self.shown, 0);
    }
}

impl Drop for ShardBytes {
    fn drop(&mut self) {
        self.used.fetch_sub(self.counted, Ordering::Relaxed);
        self.all.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

/// The answer of a shard, which counts until it is dropped.
#[derive(Debug)]
pub(super) struct WholePart {
    bytes: Vec<u8>,
    _counted: ShardBytes,
}

impl Deref for WholePart {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads the parts of one shard.
#[derive(Debug)]
pub(super) struct PartReader {
    body: BodyDataStream,
    buffer: BytesMut,
}

impl PartReader {
    pub(super) fn new(body: Body) -> Self {
        Self { body: body.into_data_stream(), buffer: BytesMut::new() }
    }

    /// Returns all bytes of the body; `None` if it breaks off.
    ///
    /// # Errors
    /// [`TooLarge`] as soon as that is known.
    pub(super) async fn whole(mut self, mut counted: ShardBytes) -> Result<Option<WholePart>, TooLarge> {
        while let Some(piece) = self.body.next().await {
            let Ok(piece) = piece else { return Ok(None) };
            counted.set(0, self.buffer.len().saturating_add(piece.len()))?;
            self.buffer.extend_from_slice(&piece);
        }
        Ok(Some(WholePart { bytes: self.buffer.into(), _counted: counted }))
    }

    /// Returns the data of the next frame of a stream; `None` at its end. Skips comments.
    ///
    /// # Errors
    /// As for [`Self::whole`].
    pub(super) async fn next(&mut self, bytes: &mut ShardBytes) -> Result<Option<Vec<u8>>, TooLarge> {
        // Bytes without an end of a frame: they are not searched again when more arrive.
        let mut searched = 0_usize;
        loop {
            let unsearched = self.buffer.get(searched..).unwrap_or_default();
            if let Some(end) = unsearched.windows(2).position(|pair| pair == b"\n\n") {
                let frame = self.buffer.split_to(searched.saturating_add(end).saturating_add(2));
                searched = 0;
                // A piece may be full of frames without data.
                tokio::task::coop::consume_budget().await;
                if let Some(data) = data_of(&frame) {
                    bytes.set(data.len(), self.buffer.len())?;
                    return Ok(Some(data.to_vec()));
                }
                continue;
            }
            searched = self.buffer.len().saturating_sub(1);
            let Some(Ok(piece)) = self.body.next().await else { return Ok(None) };
            bytes.set(bytes.shown, self.buffer.len().saturating_add(piece.len()))?;
            self.buffer.extend_from_slice(&piece);
        }
    }
}

/// Returns the data of a frame; `None` for a comment.
fn data_of(frame: &[u8]) -> Option<&[u8]> {
    frame.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"data:")).map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream;

    use super::*;

    fn reader(pieces: Vec<Vec<u8>>) -> PartReader {
        PartReader::new(Body::from_stream(stream::iter(pieces).map(Ok::<_, Infallible>)))
    }

    #[test]
    fn d4_part_of_a_list_is_the_data_of_its_frame() {
        for (frame, data) in [
            ("data: {\"rows\":[]}\n\n", Some("{\"rows\":[]}")),
            ("id: 7\ndata:{\"html\":\"data: x\"}\n\n", Some("{\"html\":\"data: x\"}")),
            (":\n\n", None),
        ] {
            assert_eq!(data_of(frame.as_bytes()), data.map(str::as_bytes), "{frame}");
        }
    }

    #[tokio::test]
    async fn d4_parts_are_assembled_from_any_pieces() {
        let mut bytes = AllParts::default().view(1).shard();
        let pieces = ["event: a\nid: 1\nda", "ta: x\n\n:\n\ndata: b", "\n\n", "data: cut"];
        let mut reader = reader(pieces.map(Vec::from).into());
        for part in [Some(b"x".to_vec()), Some(b"b".to_vec()), None] {
            assert_eq!(reader.next(&mut bytes).await, Ok(part));
        }
    }

    /// A part without an end, of a stream and of an answer. The control: a part of the maximum size.
    #[tokio::test]
    async fn d4_endless_part_of_a_shard_is_refused() {
        let most = b"data:".iter().copied().chain(std::iter::repeat_n(b'x', MAX_PART - 7)).chain(*b"\n\n");
        let (most, part) = (most.collect::<Vec<u8>>(), vec![b'x'; MAX_PART - 7]);
        let mut bytes = AllParts::default().view(1).shard();
        assert!(reader(vec![most.clone()]).next(&mut bytes).await == Ok(Some(part)));
        let whole = reader(vec![most]).whole(AllParts::default().view(1).shard()).await;
        assert!(whole.is_ok_and(|part| part.is_some()));
        let arrived = Arc::new(AtomicUsize::new(0));
        let endless = || {
            let arrived = Arc::clone(&arrived);
            let pieces = stream::repeat_with(move || {
                arrived.fetch_add(1, Ordering::Relaxed);
                Ok::<_, Infallible>(vec![b'x'; 1 << 20])
            });
            PartReader::new(Body::from_stream(pieces.take(64)))
        };
        let mut bytes = AllParts::default().view(1).shard();
        assert_eq!(endless().next(&mut bytes).await, Err(TooLarge));
        assert!(matches!(endless().whole(AllParts::default().view(1).shard()).await, Err(TooLarge)));
        assert_eq!(arrived.load(Ordering::Relaxed), 2 * 17);
    }

    /// Shards of an impostor send large parts. The control: parts of other shards arrive, also those within their share that come later, and
    /// a smaller part makes room.
    #[tokio::test]
    async fn d4_parts_of_all_shards_are_bounded_together() {
        let frame = |mib: usize| [b"data:", &*vec![b'x'; mib << 20], b"\n\n"].concat();
        let budget = AllParts::default().view(16);
        let mut shards: Vec<ShardBytes> = (0..5).map(|_| budget.shard()).collect();
        let mut received = Vec::new();
        for (shard, mib) in [(0, 3), (1, 14), (2, 14), (3, 14), (4, 1), (1, 1), (3, 12)] {
            let bytes = &mut shards[shard];
            let part = reader(vec![frame(mib)]).next(bytes).await;
            bytes.cancel();
            received.push(part.map(|part| part.map_or(0, |part| part.len() >> 20)));
        }
        assert_eq!(received, [Ok(3), Ok(14), Ok(14), Err(TooLarge), Ok(1), Ok(1), Ok(12)]);
    }

    /// Many views have parts of an impostor. The controls: small parts arrive, and a view that ends makes room.
    #[tokio::test]
    async fn d4_parts_of_all_views_are_bounded_together() {
        let all = AllParts::default();
        let open = async |bytes: usize| {
            let mut shard = all.view(1).shard();
            let frame = [b"data:", &*vec![b'x'; bytes], b"\n\n"].concat();
            reader(vec![frame]).next(&mut shard).await.map(|_| shard)
        };
        let mut views = Vec::new();
        for _ in 0..9 {
            views.push(open(14 << 20).await.ok());
        }
        assert!(views.iter().all(Option::is_some));
        assert_eq!(open(14 << 20).await.err(), Some(TooLarge));
        assert!(open(60 << 10).await.is_ok());
        // A view still gets parts that are not larger than its last one.
        let shrunk = reader(vec![[b"data:", &*vec![b'x'; 13 << 20], b"\n\n"].concat()]);
        let last = views.last_mut().and_then(Option::as_mut).expect("a view");
        let mut shrunk = shrunk;
        assert!(shrunk.next(last).await.is_ok_and(|part| part.is_some()));
        views.pop();
        assert!(open(14 << 20).await.is_ok());
        views.clear();
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }

    /// Answers that a view still has count. The control: one after they are dropped.
    #[tokio::test]
    async fn d4_answers_count_while_a_view_has_them() {
        let view = AllParts::default().view(4);
        let whole = async || reader(vec![vec![b'x'; 14 << 20]]).whole(view.shard()).await.map(Option::unwrap);
        let (first, second) = (whole().await.expect("small enough"), whole().await.expect("small enough"));
        assert!(whole().await.is_err());
        assert_eq!(first.len().saturating_add(second.len()), 28 << 20);
        drop(first);
        assert!(whole().await.is_ok());
    }
}
