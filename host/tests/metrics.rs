//! Metrics of queues.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use serde_json::json;
use subtend_actors::{Options, Runtime};
use subtend_host::{Host, HostOptions};
use subtend_models::closure::fn_model;

use crate::support::{end, get, post, request};

/// A task holds the only slot, a second task waits for the slot, and an input is queued. The controls: the metrics
/// before, and after the second task and the input were removed.
#[tokio::test]
async fn h8_metrics_have_the_lengths_of_queues() {
    let model = fn_model("own", |_, _| std::future::pending());
    let options = Options { slots: 1, titles: false, summaries: false, ..Options::default() };
    let runtime = Runtime::builder().model(Arc::new(model)).options(options).start().await.expect("a runtime");
    let host = Host::new(runtime, HostOptions::default());
    let app = host.router();
    let figures = async || {
        let figures = get(&app, "/metrics").await.body;
        ["slots_in_use", "slots_awaited", "queued_inputs"].map(|name| {
            let name = format!("subtend_{name} ");
            let value =
                figures.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("{figures}"));
            value.parse::<u32>().expect("a number")
        })
    };
    assert_eq!(figures().await, [0, 0, 0]);
    // A slot is requested only when the record of the run is durable.
    let reach = async |expected: [u32; 3]| {
        let reached = async {
            while figures().await != expected {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(60), reached).await.is_err() {
            assert_eq!(figures().await, expected);
        }
    };
    let spawn = async || {
        let spawned = post(&app, "/v1/tasks/spawn", &json!({"type": "explore", "prompt": "hang"})).await.json();
        spawned["childSessionId"].as_str().expect("an id").to_owned()
    };
    let first = spawn().await;
    reach([1, 0, 0]).await;
    let second = spawn().await;
    reach([1, 1, 0]).await;
    let sent = post(&app, &format!("/v1/sessions/{first}/inputs"), &json!({"text": "and then?"})).await.json();
    reach([1, 1, 1]).await;
    post(&app, &format!("/v1/tasks/cancel/{second}"), &json!({})).await;
    reach([1, 0, 1]).await;
    let input = format!("/v1/sessions/{first}/queue/{}", sent["input"].as_str().expect("an id"));
    request(&app, Method::DELETE, &input, &[], "").await;
    reach([1, 0, 0]).await;
    drop(app);
    end(host).await;
}
