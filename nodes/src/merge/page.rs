//! Merges the lists of the page. A list names the shards that do not answer, instead of waiting for them.

use std::sync::LazyLock;
use std::time::Duration;

use axum::http::{Method, Uri, header};
use axum::response::{Html, IntoResponse, Response};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use subtend_host::problem::Problem;
use subtend_host::{PageList, PartUpdate, ShardedPage};
use subtend_journal::postgres::nodes::Members;
use tokio::time::{Instant, sleep};

use super::parts::{AllParts, PartReader, ShardBytes, TooLarge, WholePart};
use super::{CONCURRENT_SHARDS, add_missing, unless_missing};
use crate::gateway::{BufferedRequest, Gateway, SharedView, no_owner};

/// The parts of all views of this process.
static PARTS: LazyLock<AllParts> = LazyLock::new(AllParts::default);

/// Answers a request for a view of all shards, or of `only` one.
pub(crate) async fn answer(
    gateway: &Gateway,
    view: SharedView,
    only: Option<String>,
    mut request: BufferedRequest,
) -> Result<Response, Problem> {
    let page = |list: PageList| ShardedPage::new(list, &request.parts.uri, gateway.shards(), only.clone());
    match view {
        SharedView::List(list) => {
            let mut page = page(list)?;
            request.parts.uri = uri(&page.part_path())?;
            // A sender with many requests must not take the memory and the threads of the node.
            let extensions = request.parts.extensions.clone();
            let asked = async {
                let parts = ask_each(gateway, &page.shards(), &request).await;
                for (shard, part) in &parts {
                    page.set(shard, part.as_deref());
                }
                parts
            };
            let parts = gateway.node().reads().read_for(&extensions, asked).await?;
            let mut response = page.page();
            drop(parts);
            add_missing(&mut response, &page.missing());
            Ok(response)
        }
        SharedView::Live(list) => {
            let page = page(list)?;
            request.parts.uri = uri(&page.live_path())?;
            let budget = PARTS.view(page.shards().len());
            let parts = page.shards().into_iter().map(|shard| parts_of(gateway, shard, &request, budget.shard()));
            let parts = stream::select_all(parts).take_until(wait_until_outdated(gateway));
            Ok(page.follow(parts))
        }
        SharedView::Asks => {
            let shards = only.map_or_else(|| gateway.shards(), |only| vec![only]);
            let parts = ask_each(gateway, &shards, &request).await;
            let count = |part: Option<WholePart>| std::str::from_utf8(&part?).ok()?.parse::<usize>().ok();
            let all: usize = parts.into_iter().filter_map(|(_, part)| count(part)).sum();
            Ok(Html(if all == 0 { String::new() } else { all.to_string() }).into_response())
        }
    }
}

fn uri(path: &str) -> Result<Uri, Problem> {
    path.parse().map_err(|_| Problem::malformed(format!("the query is too long: {} bytes", path.len())))
}

/// Returns the answer of each shard; `None` if it does not answer now.
async fn ask_each(gateway: &Gateway, shards: &[String], request: &BufferedRequest) -> Vec<(String, Option<WholePart>)> {
    let until = Instant::now() + gateway.node().times().heartbeat * 2;
    let (mut parts, budget) = (Vec::new(), PARTS.view(shards.len()));
    for some in shards.chunks(CONCURRENT_SHARDS) {
        let part = |shard| part(gateway, shard, request, budget.shard());
        let asked = some.iter().map(|shard| unless_missing(gateway, shard, Some(until), part(shard)));
        let answers = join_all(asked).await.into_iter().map(Result::ok);
        parts.extend(some.iter().cloned().zip(answers));
    }
    parts
}

async fn part(
    gateway: &Gateway,
    shard: &str,
    request: &BufferedRequest,
    bytes: ShardBytes,
) -> Result<WholePart, Problem> {
    let answer = success(shard, gateway.ask(shard, request).await?)?;
    match PartReader::new(answer.into_body()).whole(bytes).await {
        Ok(Some(part)) => Ok(part),
        Ok(None) | Err(TooLarge) => Err(no_owner(shard)),
    }
}

/// Returns an answer that is not a refusal. A node of an earlier version refuses parts.
fn success(shard: &str, answer: Response) -> Result<Response, Problem> {
    if answer.status().is_success() { Ok(answer) } else { Err(no_owner(shard)) }
}

/// Returns the parts of a shard as they change, and `None` each time that it stops to answer. Never ends: the shard may
/// move to another node.
fn parts_of(
    gateway: &Gateway,
    shard: String,
    request: &BufferedRequest,
    bytes: ShardBytes,
) -> BoxStream<'static, PartUpdate> {
    let mut request = request.clone();
    request.parts.method = Method::GET;
    // The parts of a shard have no ids.
    request.parts.headers.remove("last-event-id");
    request.parts.headers.remove(header::ACCEPT);
    let name = shard.clone();
    let (gateway, pause) = (gateway.clone(), gateway.node().times().heartbeat / 5);
    let open = move || {
        let (gateway, shard, request) = (gateway.clone(), shard.clone(), request.clone());
        let asked = async move {
            let until = Instant::now() + gateway.node().times().heartbeat;
            let answer = unless_missing(&gateway, &shard, Some(until), gateway.ask(&shard, &request)).await?;
            Ok(PartReader::new(success(&shard, answer)?.into_body()))
        };
        asked.boxed()
    };
    reopened(name, open, pause, bytes)
}

fn reopened(shard: String, open: impl OpenParts, pause: Duration, bytes: ShardBytes) -> BoxStream<'static, PartUpdate> {
    let parts =
        stream::unfold(ShardParts { open, pause, reader: None, bytes, is_missing: false }, async |mut parts| {
            let part = parts.next().await;
            Some((part, parts))
        });
    parts.map(move |part| (shard.clone(), part)).boxed()
}

/// Opens the stream of a shard's parts.
trait OpenParts: FnMut() -> BoxFuture<'static, Result<PartReader, Problem>> + Send + 'static {}

impl<O: FnMut() -> BoxFuture<'static, Result<PartReader, Problem>> + Send + 'static> OpenParts for O {}

struct ShardParts<O> {
    open: O,
    pause: Duration,
    reader: Option<PartReader>,
    bytes: ShardBytes,
    is_missing: bool,
}

impl<O: OpenParts> ShardParts<O> {
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(reader) = &mut self.reader {
                let ended = match reader.next(&mut self.bytes).await {
                    Ok(Some(part)) => {
                        self.is_missing = false;
                        return Some(part);
                    }
                    Ok(None) => Ok(()),
                    Err(TooLarge) => Err(TooLarge),
                };
                self.reader = None;
                self.bytes.cancel();
                // A stream that ended may end again at once.
                sleep(self.pause).await;
                if ended.is_err() && !self.is_missing {
                    self.is_missing = true;
                    return None;
                }
            }
            match (self.open)().await {
                Ok(reader) => self.reader = Some(reader),
                Err(_) if self.is_missing => sleep(self.pause).await,
                Err(_) => {
                    self.is_missing = true;
                    return None;
                }
            }
        }
    }
}

/// Resolves when the node has left, or there are other shards: the browser then connects again.
fn wait_until_outdated(gateway: &Gateway) -> impl Future<Output = ()> + Send + use<> {
    let node = gateway.node();
    let (mut changes, left, shards) = (node.changes(), node.left().clone(), gateway.shards());
    let is_other = move |members: &Members| !members.shards.iter().map(|shard| &shard.name).eq(&shards);
    async move {
        tokio::select! {
            () = left.cancelled() => {}
            () = async { drop(changes.wait_for(|members| is_other(members)).await) } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Body;

    use super::*;

    /// A shard answers, and its stream ends at once, as while it moves. The control: a stream with parts.
    #[tokio::test(start_paused = true)]
    async fn d4_stream_that_ends_is_opened_again_after_a_pause() {
        let (opened, start) = (Arc::new(AtomicUsize::new(0)), Instant::now());
        let opens = Arc::clone(&opened);
        let open = move || {
            let pieces: &[&str] = if opens.fetch_add(1, Ordering::Relaxed) == 100 { &["data: 1\n\n"] } else { &[] };
            let body = Body::from_stream(stream::iter(pieces.iter().copied().map(Ok::<_, Infallible>)));
            async move { Ok(PartReader::new(body)) }.boxed()
        };
        let mut parts = reopened("a".to_owned(), open, Duration::from_secs(1), AllParts::default().view(1).shard());
        assert_eq!(parts.next().await, Some(("a".to_owned(), Some(b"1".to_vec()))));
        assert_eq!((opened.load(Ordering::Relaxed), start.elapsed().as_secs()), (101, 100));
    }

    /// The stream of an impostor has no end of a frame. The control: the part before it.
    #[tokio::test(start_paused = true)]
    async fn d4_shard_with_an_endless_part_is_missing() {
        let open = || {
            let endless = stream::repeat_with(|| vec![b'x'; 1 << 20]).take(64);
            let pieces = stream::iter([b"data: 1\n\n".to_vec()]).chain(endless).map(Ok::<_, Infallible>);
            async move { Ok(PartReader::new(Body::from_stream(pieces))) }.boxed()
        };
        let parts = reopened("a".to_owned(), open, Duration::from_secs(1), AllParts::default().view(1).shard());
        let parts: Vec<_> = parts.map(|(_, part)| part).take(4).collect().await;
        assert_eq!(parts, [Some(b"1".to_vec()), None, Some(b"1".to_vec()), None]);
    }
}
