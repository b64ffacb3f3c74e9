//! Merges the answers of all shards: lists, views of the page, events and metrics.

use axum::body;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use futures_util::future::join_all;
use serde::Deserialize;
use subtend_host::problem::Problem;
use tokio::time::{Instant, timeout_at};

use crate::gateway::{BufferedRequest, Gateway, Merge, no_owner};
use list::{MergedList, ShardPage};

mod events;
mod json_parts;
mod list;
mod metrics;
pub(crate) mod page;
mod parts;

/// Header of an answer that lacks shards, with their names.
const MISSING_SHARDS: &str = "subtend-missing-shards";
/// Maximum bytes of one shard's answer, and of a merged list.
const MAX_ANSWER: usize = 64 << 20;
/// Number of shards that are asked for a list at the same time, because their answers are in memory together.
const CONCURRENT_SHARDS: usize = 2;
/// Maximum number of times that a shard is asked for one page.
const MAX_TRIES: u32 = 3;
/// Default and maximum number of sessions on a page, the same as in the hosts of shards.
const DEFAULT_PAGE_SIZE: usize = 50;
const MAX_PAGE_SIZE: usize = 500;
/// Default and maximum number of listed tasks and approvals, the same as in the hosts of shards.
const MAX_TASKS: usize = 500;

/// Queries every shard and merges the answers. If a shard refuses, returns the first refusal.
pub(crate) async fn answer(gateway: &Gateway, of: Merge, request: BufferedRequest) -> Result<Response, Problem> {
    match of {
        Merge::Events => events::answer(gateway, request).await,
        Merge::Metrics => Ok(metrics::answer(gateway, &request).await),
        Merge::Sessions | Merge::Approvals | Merge::Tasks => {
            if !request.partial {
                wait_for_owners(gateway).await?;
            }
            // A sender with many requests must not take the memory and the threads of the node.
            let extensions = request.parts.extensions.clone();
            gateway.node().reads().read_for(&extensions, merged_list(gateway, of, &request)).await?
        }
    }
}

/// Waits while a shard has no owner, up to the time for which a request waits for one. A list that waits has no permit.
async fn wait_for_owners(gateway: &Gateway) -> Result<(), Problem> {
    let node = gateway.node();
    let (times, mut changes) = (node.times(), node.changes());
    let give_up = Instant::now() + times.lease + times.heartbeat * 2;
    let is_free = |shard: &String| node.host(shard).is_none() && node.members().owner(shard).is_none();
    loop {
        let Some(free) = gateway.shards().into_iter().find(is_free) else { return Ok(()) };
        if Instant::now() >= give_up {
            return Err(add_partial_hint(no_owner(&free)));
        }
        let pause = (Instant::now() + times.heartbeat / 10).min(give_up);
        drop(timeout_at(pause, changes.changed()).await);
    }
}

async fn merged_list(gateway: &Gateway, of: Merge, request: &BufferedRequest) -> Result<Response, Problem> {
    let most = match of {
        Merge::Sessions => limit(request).unwrap_or(DEFAULT_PAGE_SIZE).clamp(1, MAX_PAGE_SIZE),
        Merge::Tasks => task_limit(&request.body).unwrap_or(MAX_TASKS).min(MAX_TASKS),
        Merge::Approvals => limit(request).unwrap_or(MAX_TASKS).min(MAX_TASKS),
        Merge::Events | Merge::Metrics => usize::MAX,
    };
    let (shards, mut list, mut missing) = (gateway.shards(), MergedList::new(of, most), Vec::new());
    let until = Instant::now() + gateway.node().times().heartbeat * 2;
    for some in shards.chunks(CONCURRENT_SHARDS) {
        let answers = join_all(some.iter().map(|shard| page(gateway, shard, (of, request), until))).await;
        for (shard, answer) in some.iter().zip(answers) {
            match answer {
                Ok(Ok(page)) => list.add(page)?,
                Ok(Err(refusal)) if !(request.partial && refusal.status().is_server_error()) => return Ok(refusal),
                Err(problem) if !request.partial => return Err(add_partial_hint(problem)),
                Ok(Err(_)) | Err(_) => missing.push(shard.clone()),
            }
        }
    }
    let mut response = list.into_response();
    add_missing(&mut response, &missing);
    Ok(response)
}

/// Adds a hint on how to get the answers of the other shards.
fn add_partial_hint(problem: Problem) -> Problem {
    if problem.code != "no_owner" {
        return problem;
    }
    Problem { detail: format!("{}; `?partial=true` leaves it out", problem.detail), ..problem }
}

/// Like [`whole_page`], but a request for a partial list does not wait for an owner, nor after `until`.
async fn page(
    gateway: &Gateway,
    shard: &str,
    (of, request): (Merge, &BufferedRequest),
    until: Instant,
) -> Result<Result<ShardPage, Response>, Problem> {
    let until = request.partial.then_some(until);
    unless_missing(gateway, shard, until, whole_page(gateway, shard, of, request)).await
}

/// Awaits the answer of a shard. With `until`, waits neither for an owner, nor after that time or a heartbeat.
async fn unless_missing<T>(
    gateway: &Gateway,
    shard: &str,
    until: Option<Instant>,
    asked: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    let Some(until) = until else { return asked.await };
    let node = gateway.node();
    if node.host(shard).is_none() && node.members().owner(shard).is_none() {
        return Err(no_owner(shard));
    }
    let until = (Instant::now() + node.times().heartbeat).min(until);
    timeout_at(until, asked).await.unwrap_or_else(|_| Err(no_owner(shard)))
}

/// Names the shards that an answer lacks.
fn add_missing(response: &mut Response, missing: &[String]) {
    if let Some(missing) = (!missing.is_empty()).then(|| HeaderValue::try_from(missing.join(", ")).ok()).flatten() {
        response.headers_mut().insert(MISSING_SHARDS, missing);
    }
}

/// Requests a page of a shard, and returns the page or the refusal. If the answer breaks off, retries with the next
/// owner, which is safe because a list changes nothing.
async fn whole_page(
    gateway: &Gateway,
    shard: &str,
    of: Merge,
    request: &BufferedRequest,
) -> Result<Result<ShardPage, Response>, Problem> {
    let mut tries = 1;
    loop {
        let answer = gateway.ask(shard, request).await?;
        if !answer.status().is_success() {
            return Ok(Err(answer));
        }
        match page_of(of, answer).await {
            Ok(page) => return Ok(Ok(page)),
            Err(_) if tries < MAX_TRIES => tries += 1,
            Err(problem) => return Err(problem),
        }
    }
}

async fn page_of(of: Merge, answer: Response) -> Result<ShardPage, Problem> {
    let failed = |why: String| {
        Problem::new(StatusCode::BAD_GATEWAY, "outcome_unknown", format!("invalid answer from another node: {why}"))
    };
    let bytes = body::to_bytes(answer.into_body(), MAX_ANSWER).await.map_err(|error| failed(error.to_string()))?;
    ShardPage::parse(of, &bytes).map_err(|error| failed(error.to_string()))
}

fn limit(request: &BufferedRequest) -> Option<usize> {
    let pairs = request.parts.uri.query()?.split('&');
    pairs.filter_map(|pair| pair.strip_prefix("limit=")).next_back()?.parse().ok()
}

fn task_limit(body: &[u8]) -> Option<usize> {
    /// Other fields are skipped: as values, they would take up to a hundred times their text, and no limit has counted them.
    #[derive(Deserialize)]
    struct TaskLimit {
        limit: Option<usize>,
    }
    serde_json::from_slice::<TaskLimit>(body).ok()?.limit
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree of values has at most 128 levels: that deeper fields are skipped shows that none is built. The control: the limit
    /// itself is read.
    #[test]
    fn d4_other_fields_of_a_task_list_are_skipped() {
        let levels = 1 << 20;
        let attack = format!("{{\"x\":{}{},\"limit\":7}}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(task_limit(attack.as_bytes()), Some(7));
        let read = |body: &str| task_limit(body.as_bytes());
        assert_eq!(
            [read("{\"limit\": 7}"), read("{}"), read("{\"limit\": [7]}"), read("x")],
            [Some(7), None, None, None]
        );
    }
}
