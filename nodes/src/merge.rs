//! Merges the answers of all shards: lists, events and metrics.

use axum::Json;
use axum::body;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::future::join_all;
use serde_json::{Value, json};
use subtend_host::iso_time;
use subtend_host::problem::Problem;
use tokio::time::timeout;

use crate::gateway::{BufferedRequest, Gateway, Merge, no_owner};

mod events;
mod metrics;

/// Header of a list that lacks shards, with their names.
const MISSING_SHARDS: &str = "subtend-missing-shards";
/// Maximum bytes of one shard's answer.
const MAX_ANSWER: usize = 64 << 20;
/// Maximum number of times that a shard is asked for one page.
const MAX_TRIES: u32 = 3;
/// Default and maximum number of sessions on a page, the same as in the hosts of shards.
const DEFAULT_PAGE_SIZE: usize = 50;
const MAX_PAGE_SIZE: usize = 500;
/// Default and maximum number of listed tasks, the same as in the hosts of shards.
const MAX_TASKS: usize = 500;

/// Queries every shard and merges the answers. If a shard refuses, returns the first refusal.
pub(crate) async fn answer(gateway: &Gateway, of: Merge, request: BufferedRequest) -> Result<Response, Problem> {
    match of {
        Merge::Events => events::answer(gateway, request).await,
        Merge::Metrics => Ok(metrics::answer(gateway, &request).await),
        Merge::Sessions | Merge::Approvals | Merge::Tasks => {
            let shards = gateway.shards();
            let (mut pages, mut missing) = (Vec::new(), Vec::new());
            let answers = join_all(shards.iter().map(|shard| page(gateway, shard, &request))).await;
            for (shard, answer) in shards.iter().zip(answers) {
                match answer {
                    Ok(Ok(page)) => pages.push(page),
                    Ok(Err(refusal)) if !(request.partial && refusal.status().is_server_error()) => return Ok(refusal),
                    Err(problem) if !request.partial => return Err(add_partial_hint(problem)),
                    Ok(Err(_)) | Err(_) => missing.push(&**shard),
                }
            }
            let merged = match of {
                Merge::Sessions => {
                    sessions(pages, limit(&request).unwrap_or(DEFAULT_PAGE_SIZE).clamp(1, MAX_PAGE_SIZE))
                }
                Merge::Tasks => tasks(pages, task_limit(&request)),
                Merge::Approvals | Merge::Events | Merge::Metrics => {
                    Value::Array(pages.into_iter().flat_map(rows).collect())
                }
            };
            let mut response = Json(merged).into_response();
            if let Some(missing) =
                (!missing.is_empty()).then(|| HeaderValue::try_from(missing.join(", ")).ok()).flatten()
            {
                response.headers_mut().insert(MISSING_SHARDS, missing);
            }
            Ok(response)
        }
    }
}

/// Adds a hint on how to list the other shards.
fn add_partial_hint(problem: Problem) -> Problem {
    if problem.code != "no_owner" {
        return problem;
    }
    Problem { detail: format!("{}; `?partial=true` lists the other shards", problem.detail), ..problem }
}

/// Like [`whole_page`], but a request for a partial list does not wait for an owner.
async fn page(gateway: &Gateway, shard: &str, request: &BufferedRequest) -> Result<Result<Value, Response>, Problem> {
    if request.partial {
        let node = gateway.node();
        if node.host(shard).is_none() && node.members().owner(shard).is_none() {
            return Err(no_owner(shard));
        }
        let asked = timeout(node.times().heartbeat, whole_page(gateway, shard, request)).await;
        return asked.unwrap_or_else(|_| Err(no_owner(shard)));
    }
    whole_page(gateway, shard, request).await
}

/// Requests a page of a shard, and returns the page or the refusal. If the answer breaks off, retries with the next
/// owner, which is safe because a list changes nothing.
async fn whole_page(
    gateway: &Gateway,
    shard: &str,
    request: &BufferedRequest,
) -> Result<Result<Value, Response>, Problem> {
    let mut tries = 1;
    loop {
        let answer = gateway.ask(shard, request).await?;
        if !answer.status().is_success() {
            return Ok(Err(answer));
        }
        match json_of(answer).await {
            Ok(page) => return Ok(Ok(page)),
            Err(_) if tries < MAX_TRIES => tries += 1,
            Err(problem) => return Err(problem),
        }
    }
}

async fn json_of(answer: Response) -> Result<Value, Problem> {
    let failed = |why: String| {
        Problem::new(StatusCode::BAD_GATEWAY, "outcome_unknown", format!("invalid answer from another node: {why}"))
    };
    let bytes = body::to_bytes(answer.into_body(), MAX_ANSWER).await.map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|error| failed(error.to_string()))
}

fn rows(page: Value) -> Vec<Value> {
    if let Value::Array(rows) = page { rows } else { Vec::new() }
}

fn limit(request: &BufferedRequest) -> Option<usize> {
    let pairs = request.parts.uri.query()?.split('&');
    pairs.filter_map(|pair| pair.strip_prefix("limit=")).next_back()?.parse().ok()
}

fn task_limit(request: &BufferedRequest) -> Option<usize> {
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    usize::try_from(body.get("limit")?.as_u64()?).ok()
}

/// Merges pages of sessions, newest first. The merged cursor names the last row, so every shard accepts it.
fn sessions(pages: Vec<Value>, limit: usize) -> Value {
    let more = pages.iter().any(|page| page.get("next").is_some_and(|next| !next.is_null()));
    let items =
        pages.into_iter().flat_map(|mut page| page.get_mut("items").map(Value::take).map(rows).unwrap_or_default());
    let mut items: Vec<Value> = items.collect();
    let place =
        |row: &Value| (row["created_ms"].as_i64().unwrap_or(0), row["id"].as_str().unwrap_or_default().to_owned());
    items.sort_by_cached_key(|row| std::cmp::Reverse(place(row)));
    let cut = more || items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| cut).map(place).map(|(ms, id)| format!("{ms}.{id}"));
    json!({"items": items, "next": next})
}

/// Merges lists of tasks, newest first. A node of an earlier version gives times in milliseconds.
fn tasks(pages: Vec<Value>, limit: Option<usize>) -> Value {
    let mut tasks: Vec<Value> = pages.into_iter().flat_map(rows).collect();
    let created = |at: &Value| at.as_i64().or_else(|| iso_time::from_text(at.as_str()?));
    tasks.sort_by_cached_key(|task| std::cmp::Reverse((created(&task["createdAt"]), task["id"].to_string())));
    tasks.truncate(limit.unwrap_or(MAX_TASKS).min(MAX_TASKS));
    Value::Array(tasks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d4_pages_of_shards_are_merged() {
        let row = |ms: i64, id: &str| json!({"created_ms": ms, "id": id});
        let first = json!({"items": [row(9, "b"), row(5, "a")], "next": "5.a"});
        let second = json!({"items": [row(9, "c"), row(1, "d")], "next": null});
        let page = sessions(vec![first.clone(), second.clone()], 3);
        assert_eq!(page, json!({"items": [row(9, "c"), row(9, "b"), row(5, "a")], "next": "5.a"}));
        let all = sessions(vec![json!({"items": [row(5, "a")], "next": null}), second], 10);
        assert_eq!(all["next"], Value::Null, "the last page");
        assert_eq!(sessions(vec![first], 10)["next"], "5.a", "a shard has more");
    }

    #[test]
    fn d4_tasks_of_shards_are_merged_newest_first() {
        let task = |ms: i64, id: &str| json!({"createdAt": format!("2026-11-24T08:58:15.{ms:03}Z"), "id": id});
        let pages = || vec![json!([task(5, "a"), task(9, "b")]), json!({"no": "list"}), json!([task(9, "c")])];
        assert_eq!(tasks(pages(), None), json!([task(9, "c"), task(9, "b"), task(5, "a")]));
        assert_eq!(tasks(pages(), Some(1)), json!([task(9, "c")]));
        // 2026-11-24T08:58:15.007Z.
        let earlier_version = json!({"createdAt": 1_795_510_695_007_i64, "id": "d"});
        let mut mixed = pages();
        mixed.push(json!([earlier_version]));
        assert_eq!(tasks(mixed, None), json!([task(9, "c"), task(9, "b"), earlier_version, task(5, "a")]));
        let many = vec![Value::Array((0..600).map(|ms| task(ms, "a")).collect())];
        let last =
            |limit| tasks(many.clone(), limit).as_array().map(|tasks| (tasks.len(), tasks[tasks.len() - 1].clone()));
        assert_eq!([last(None), last(Some(600))], [Some((500, task(100, "a"))), Some((500, task(100, "a")))]);
    }
}
