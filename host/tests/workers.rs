//! Remote tools: workers take calls under a lease, renew it, and complete the calls.

use crate::support::*;
use subtend_host::host_bug::{HostBug, InjectedBug};
use subtend_host::workers::{RemoteTool, Workers};
use subtend_session::message::ToolSpec;

/// Milliseconds of each lease.
const LEASE: u64 = 30_000;

fn remote_tool(name: &str, idempotent: bool) -> RemoteTool {
    RemoteTool {
        spec: ToolSpec {
            name: name.into(),
            description: "Works elsewhere.".into(),
            schema: Arc::new(json!({"type": "object"})),
        },
        action: format!("tool:{name}").into(),
        idempotent,
        lease: Duration::from_millis(LEASE),
        deadline: Some(Duration::from_secs(100)),
    }
}

/// Returns a host whose agent calls the tool that its input names, and answers with the result. `pay` has effects,
/// `seek` is idempotent, `sealed` is denied.
async fn host(memory: &Memory, injected_bug: InjectedBug) -> Host {
    let model = fn_model("script", |request, _| async move {
        if let Some(Message::Result { content, .. }) = request.messages.iter().last() {
            return Ok(Answer::of_text(content.to_string()));
        }
        let text = request.messages.iter().rev().find_map(|message| match message {
            Message::User { text, .. } => Some(text.to_string()),
            _ => None,
        });
        let offered: Vec<_> = request.tools.iter().map(|tool| tool.name.to_string()).collect();
        let tool = text.unwrap_or_default();
        if tool == "list" {
            return Ok(Answer::of_text(offered.join(" ")));
        }
        Ok(Answer::of_calls(
            None,
            vec![ToolCall { provider_id: "c".into(), tool: tool.into(), args: r#"{"of": 7}"#.into() }],
        ))
    });
    let tools = [remote_tool("pay", false), remote_tool("seek", true), remote_tool("sealed", true)];
    let workers = Workers::new(tools).expect("declarations");
    let journal = Journal::open(Box::new(memory.clone()), subtend_journal::Options::default()).expect("a journal");
    let denied = Rule { action: "tool:sealed".into(), resource: "*".into(), verdict: Verdict::Deny };
    let runtime = Runtime::builder()
        .journal(journal)
        .policy(RuleSet { default: Verdict::Allow, rules: vec![denied] })
        .tools(Registry::builder().tools(workers.tools()).expect("tools").build())
        .options(Options { titles: false, summaries: false, ..Options::default() })
        .model(Arc::new(model))
        .start()
        .await
        .expect("a runtime");
    Host::new(runtime, HostOptions { workers, injected_bug, ..HostOptions::default() })
}

async fn open_calling(app: &Router, tool: &str) -> String {
    let opened = post(app, "/v1/sessions", &json!({"input": {"text": tool}})).await;
    assert_eq!(opened.status, StatusCode::CREATED, "{}", opened.body);
    opened.json()["session"]["id"].as_str().expect("an id").to_owned()
}

async fn try_take(app: &Router, worker: &str, tools: &[&str]) -> HttpResponse {
    post(app, "/v1/workers/take?wait=true&timeout=1000", &json!({"worker": worker, "tools": tools})).await
}

/// Takes a call of `pay` or `seek`.
async fn take(app: &Router, worker: &str) -> Value {
    let taken = try_take(app, worker, &["pay", "seek"]).await;
    assert_eq!(taken.status, StatusCode::OK, "{}", taken.body);
    taken.json()
}

async fn renew(app: &Router, call: &Value) -> HttpResponse {
    post(app, "/v1/workers/renew", &json!({"token": call["token"]})).await
}

async fn take_and_begin(app: &Router, worker: &str) -> Value {
    let call = take(app, worker).await;
    assert_eq!(renew(app, &call).await.json(), json!({"lease_ms": LEASE, "stop": false}));
    call
}

async fn complete(app: &Router, call: &Value, result: &Value) -> HttpResponse {
    post(app, "/v1/workers/complete", &json!({"token": call["token"], "result": result})).await
}

fn complete_body(text: &str) -> Value {
    json!({"ok": {"content": text}})
}

async fn advance(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Waits for the end of the run; returns how its calls ended, with their texts.
async fn wait_for_end(app: &Router, id: &str) -> Vec<(Value, String)> {
    let run = get(app, &format!("/v1/sessions/{id}/runs/1?wait=true&timeout=600000")).await;
    assert_eq!(run.json()["in_flight"], false, "{}", run.body);
    let records = get(app, &format!("/v1/sessions/{id}/records")).await.json();
    let finished = records.as_array().expect("records").iter().map(|stored| &stored["record"]["call_finished"]);
    let finished = finished.filter(|finished| finished.is_object());
    finished.map(|of| (of["end"].clone(), of["content"].as_str().expect("a text").to_owned())).collect()
}

fn code(response: &HttpResponse) -> (u16, String) {
    response.problem()
}

fn lost_problem() -> (u16, String) {
    (409, "lease_lost".to_owned())
}

#[tokio::test(start_paused = true)]
async fn d6_result_of_a_worker_reaches_the_model() {
    let host = host(&Memory::new(), InjectedBug::default()).await;
    let app = host.router();
    assert_eq!(try_take(&app, "one", &["pay"]).await.status, StatusCode::NO_CONTENT);
    let id = open_calling(&app, "pay").await;
    let call = take(&app, "one").await;
    let identity = format!("{id}:1:1.0");
    assert_eq!((&call["call"], &call["tool"], &call["args"]), (&json!(identity), &json!("pay"), &json!({"of": 7})));
    assert_eq!((&call["attempt"], &call["lease_ms"]), (&json!(1), &json!(LEASE)));
    // The call has not begun yet: it begins with the first renewal.
    let early = complete(&app, &call, &complete_body("paid")).await;
    assert_eq!(code(&early), (409, "call_not_begun".to_owned()));
    renew(&app, &call).await;
    let view = get(&app, "/v1/workers").await.json();
    assert_eq!((&view["calls"][0]["state"], &view["calls"][0]["worker"]), (&json!("running"), &json!("one")));
    assert_eq!((&view["workers"][0]["calls"], view["tools"].as_array().map(Vec::len)), (&json!(1), Some(3)));
    for _ in 0..2 {
        assert_eq!(complete(&app, &call, &complete_body("paid")).await.status, StatusCode::NO_CONTENT, "sent again");
    }
    assert_eq!(wait_for_end(&app, &id).await, [(json!("ok"), "paid".to_owned())]);
    assert_eq!(complete(&app, &call, &complete_body("paid")).await.status, StatusCode::NO_CONTENT, "after the end");
    let other = complete(&app, &call, &complete_body("not paid")).await;
    assert_eq!(code(&other), (409, "completed_otherwise".to_owned()));
    assert_eq!(get(&app, "/v1/workers").await.json()["calls"], json!([]));
    finish(host, app).await;
}

#[tokio::test(start_paused = true)]
async fn d6_lost_worker_leaves_a_call_with_unknown_effects() {
    let host = host(&Memory::new(), InjectedBug::default()).await;
    let app = host.router();
    let id = open_calling(&app, "pay").await;
    let call = take_and_begin(&app, "one").await;
    advance(LEASE - 1).await;
    assert_eq!(renew(&app, &call).await.status, StatusCode::OK, "each renewal extends the lease");
    advance(LEASE - 1).await;
    assert_eq!(get(&app, "/v1/workers").await.json()["calls"][0]["state"], "running");
    let figures = async || get(&app, "/metrics").await.body;
    assert!(figures().await.contains("subtend_remote_calls{state=\"running\"} 1\n"), "{}", figures().await);
    advance(1).await;
    let ended = wait_for_end(&app, &id).await;
    assert!(figures().await.contains("subtend_leases_lost 1\n"), "{}", figures().await);
    let text = "the worker `one` was lost during this call of `pay`: it may have had all, some or none of its effects. Check before you \
                call it again.";
    assert_eq!(ended, [(json!("unknown_effects"), text.to_owned())]);
    // The lost worker returns, and its result is not used.
    assert_eq!(code(&renew(&app, &call).await), lost_problem());
    assert_eq!(code(&complete(&app, &call, &complete_body("paid")).await), lost_problem());
    assert_eq!(wait_for_end(&app, &id).await, ended);
    finish(host, app).await;
}

#[tokio::test(start_paused = true)]
async fn d6_call_that_no_worker_began_goes_to_another_one() {
    let host = host(&Memory::new(), InjectedBug::default()).await;
    let app = host.router();
    let id = open_calling(&app, "pay").await;
    let first = take(&app, "one").await;
    advance(LEASE).await;
    let second = take_and_begin(&app, "two").await;
    assert_eq!((&second["call"], &second["attempt"]), (&first["call"], &json!(2)));
    assert_eq!(code(&renew(&app, &first).await), lost_problem(), "the worker learns of the loss before it starts");
    complete(&app, &second, &complete_body("paid once")).await;
    assert_eq!(wait_for_end(&app, &id).await, [(json!("ok"), "paid once".to_owned())]);
    // A worker that shuts down gives back a call that it has not started, even after the first renewal.
    let id = open_calling(&app, "pay").await;
    let third = take_and_begin(&app, "two").await;
    assert_eq!(complete(&app, &third, &json!("not_started")).await.status, StatusCode::NO_CONTENT);
    let fourth = take_and_begin(&app, "one").await;
    complete(&app, &fourth, &complete_body("paid")).await;
    assert_eq!(wait_for_end(&app, &id).await, [(json!("ok"), "paid".to_owned())]);
    finish(host, app).await;
}

/// Returns the response to a late completion of a lost worker, and how the call ends.
async fn late_completion(injected_bug: InjectedBug) -> ((u16, String), Vec<(Value, String)>) {
    let host = host(&Memory::new(), injected_bug).await;
    let app = host.router();
    let id = open_calling(&app, "seek").await;
    let first = take_and_begin(&app, "one").await;
    advance(LEASE).await;
    let second = take_and_begin(&app, "two").await;
    let late = complete(&app, &first, &complete_body("old")).await;
    let late = if late.status.is_success() { (late.status.as_u16(), String::new()) } else { code(&late) };
    complete(&app, &second, &complete_body("new")).await;
    let ended = wait_for_end(&app, &id).await;
    finish(host, app).await;
    (late, ended)
}

/// The control is a host without fencing, where the lost worker's result is used.
#[tokio::test(start_paused = true)]
async fn d6_completion_of_an_old_lease_is_refused() {
    let fenced = late_completion(InjectedBug::default()).await;
    assert_eq!(fenced, (lost_problem(), vec![(json!("ok"), "new".to_owned())]));
    let open = late_completion(InjectedBug::with(HostBug::OldLease)).await;
    assert_eq!(open, ((204, String::new()), vec![(json!("ok"), "old".to_owned())]));
}

#[tokio::test(start_paused = true)]
async fn d6_idempotent_call_is_repeated_at_most_twice() {
    let host = host(&Memory::new(), InjectedBug::default()).await;
    let app = host.router();
    let id = open_calling(&app, "seek").await;
    for attempt in 1..=3 {
        let call = take_and_begin(&app, "one").await;
        assert_eq!((&call["attempt"], &call["call"]), (&json!(attempt), &json!(format!("{id}:1:1.0"))));
        advance(LEASE).await;
    }
    let text = "the worker `one` was lost during this call of `seek`, as were 2 others before";
    let failed = json!({"tool_error": {"kind": "failed", "retryable": true}});
    assert_eq!(wait_for_end(&app, &id).await, [(failed, text.to_owned())]);
    assert_eq!(try_take(&app, "one", &["seek"]).await.status, StatusCode::NO_CONTENT);
    finish(host, app).await;
}

#[tokio::test(start_paused = true)]
async fn d6_cancel_reaches_the_worker_and_removes_queued_calls() {
    let host = host(&Memory::new(), InjectedBug::default()).await;
    let app = host.router();
    let id = open_calling(&app, "pay").await;
    let call = take_and_begin(&app, "one").await;
    let waits = async {
        let begun = tokio::time::Instant::now();
        let path = "/v1/workers/renew?wait=true&timeout=20000";
        let renewed = post(&app, path, &json!({"token": call["token"], "progress": "half done"})).await;
        (renewed.json()["stop"].clone(), begun.elapsed() < Duration::from_secs(20))
    };
    let cancels = async {
        advance(100).await;
        post(&app, &format!("/v1/sessions/{id}/cancel"), &json!({})).await
    };
    let (answer, _) = tokio::join!(waits, cancels);
    assert_eq!(answer, (json!(true), true), "at once, not with the next renewal");
    assert_eq!(complete(&app, &call, &json!("stopped")).await.status, StatusCode::NO_CONTENT);
    assert_eq!(wait_for_end(&app, &id).await[0].0, "unknown_effects");
    // A queued call that is cancelled has had no effects, and no worker gets it.
    let id = open_calling(&app, "pay").await;
    advance(1_000).await;
    assert_eq!(get(&app, "/v1/workers").await.json()["calls"][0]["state"], "queued");
    post(&app, &format!("/v1/sessions/{id}/cancel"), &json!({})).await;
    assert!(wait_for_end(&app, &id).await.iter().all(|(end, _)| *end != "unknown_effects"));
    assert_eq!(try_take(&app, "one", &["pay"]).await.status, StatusCode::NO_CONTENT);
    // A worker that does not stop loses its lease after the grace period of the cancel.
    let id = open_calling(&app, "pay").await;
    let stuck = take_and_begin(&app, "one").await;
    post(&app, &format!("/v1/sessions/{id}/cancel"), &json!({})).await;
    assert_eq!(wait_for_end(&app, &id).await[0].0, "unknown_effects");
    assert_eq!(code(&complete(&app, &stuck, &complete_body("paid")).await), lost_problem());
    finish(host, app).await;
}

#[tokio::test(start_paused = true)]
async fn d6_deadline_without_a_worker_has_no_effects() {
    let host = host(&Memory::new(), InjectedBug::default()).await;
    let app = host.router();
    let id = open_calling(&app, "pay").await;
    let failed = json!({"tool_error": {"kind": "failed", "retryable": true}});
    let text = "no worker began this call of `pay` within 100 s: it had no effects";
    assert_eq!(wait_for_end(&app, &id).await, [(failed, text.to_owned())]);
    let id = open_calling(&app, "pay").await;
    let call = take_and_begin(&app, "one").await;
    let mut beats = 0;
    while renew(&app, &call).await.status.is_success() {
        advance(10_000).await;
        beats += 1;
    }
    assert_eq!(beats, 10, "renewals do not extend the deadline");
    let text = "this call of `pay` was not done within 100 s: it may have had all, some or none of its effects. Check before you call it \
                again.";
    assert_eq!(wait_for_end(&app, &id).await, [(json!("unknown_effects"), text.to_owned())]);
    finish(host, app).await;
}

#[tokio::test(start_paused = true)]
async fn d6_results_are_bounded_and_models_read_errors() {
    let host = host(&Memory::new(), InjectedBug::default()).await;
    let app = host.router();
    let id = open_calling(&app, "seek").await;
    let call = take_and_begin(&app, "one").await;
    let most = usize::try_from(call["max_bytes"].as_u64().expect("a number")).expect("a size");
    assert_eq!(code(&complete(&app, &call, &complete_body(&"x".repeat(5 << 20))).await), (413, "too_large".to_owned()));
    complete(&app, &call, &complete_body(&"x".repeat(most * 2))).await;
    let text = wait_for_end(&app, &id).await.remove(0).1;
    assert!(text.len() <= most && text.len() > most / 2, "{} of {most}", text.len());
    let id = open_calling(&app, "pay").await;
    let call = take_and_begin(&app, "one").await;
    complete(&app, &call, &json!({"error": {"message": "no money"}})).await;
    let failed = json!({"tool_error": {"kind": "failed", "retryable": false}});
    assert_eq!(wait_for_end(&app, &id).await, [(failed, "no money".to_owned())]);
    finish(host, app).await;
}

/// A waiting request keeps its body in memory: only completions may be large. The control: a small one renews a lease.
#[tokio::test(start_paused = true)]
async fn large_body_of_a_renewal_is_refused() {
    let host = host(&Memory::new(), InjectedBug::default()).await;
    let app = host.router();
    open_calling(&app, "seek").await;
    let call = take_and_begin(&app, "one").await;
    for (progress, status) in [(15 << 10, 200), (16 << 10, 413)] {
        let body = json!({"token": call["token"], "progress": "x".repeat(progress)});
        let reply = post(&app, "/v1/workers/renew", &body).await;
        assert_eq!(reply.status.as_u16(), status, "{progress}: {}", reply.body);
    }
    finish(host, app).await;
}

#[tokio::test(start_paused = true)]
async fn d6_denied_remote_tool_reaches_no_worker() {
    let host = host(&Memory::new(), InjectedBug::default()).await;
    let app = host.router();
    let id = open_calling(&app, "list").await;
    wait_for_end(&app, &id).await;
    let run = get(&app, &format!("/v1/sessions/{id}/runs/1?wait=true")).await;
    assert!(run.body.contains("pay seek") && !run.body.contains("sealed"), "{}", run.body);
    let id = open_calling(&app, "sealed").await;
    let ended = wait_for_end(&app, &id).await;
    assert!(ended.iter().all(|(end, _)| *end != "ok"), "{ended:?}");
    assert_eq!(try_take(&app, "one", &["sealed"]).await.status, StatusCode::NO_CONTENT);
    // A worker can neither declare a tool nor take calls of a built-in one.
    for name in ["read", "shell", "task", "other"] {
        assert_eq!(code(&try_take(&app, "one", &[name]).await), (422, "unknown_remote_tool".to_owned()), "{name}");
    }
    let near = try_take(&app, "one", &["sek"]).await;
    assert!(near.body.contains("did you mean `seek`?"), "{}", near.body);
    assert_eq!(code(&try_take(&app, "", &["pay"]).await), (422, "invalid_worker".to_owned()));
    assert_eq!(code(&try_take(&app, "one", &[]).await), (422, "invalid_worker".to_owned()));
    finish(host, app).await;
}

/// The host is dropped during a call, as by a kill. The next host knows the call from the journal, but not its lease.
#[tokio::test(start_paused = true)]
async fn d6_completion_of_a_call_of_an_earlier_host_is_refused() {
    let memory = Memory::new();
    let host = host(&memory, InjectedBug::default()).await;
    let app = host.router();
    let id = open_calling(&app, "pay").await;
    let call = take_and_begin(&app, "one").await;
    drop((app, host));
    let host = self::host(&memory, InjectedBug::default()).await;
    let app = host.router();
    assert_eq!(code(&renew(&app, &call).await), lost_problem());
    assert_eq!(code(&complete(&app, &call, &complete_body("paid")).await), lost_problem());
    assert_eq!(wait_for_end(&app, &id).await[0].0, "unknown_effects");
    finish(host, app).await;
}

#[test]
fn d6_invalid_declarations_are_refused() {
    let refused = |change: fn(&mut RemoteTool)| {
        let mut tool = remote_tool("build", true);
        change(&mut tool);
        Workers::new([tool]).expect_err("it is refused").to_string()
    };
    let problems = [
        refused(|tool| tool.action = "fs.read".into()),
        refused(|tool| tool.action = "tool:*".into()),
        refused(|tool| tool.spec.description = " ".into()),
        refused(|tool| tool.lease = Duration::from_millis(999)),
        refused(|tool| tool.deadline = Some(Duration::ZERO)),
    ];
    let expected = ["its action", "its action", "no description", "its lease", "its deadline"];
    for (problem, word) in problems.iter().zip(expected) {
        assert!(
            problem.starts_with("the remote tool `build` cannot be declared: ") && problem.contains(word),
            "{problem}"
        );
    }
    assert!(Workers::new([remote_tool("build", false)]).is_ok());
}

/// A call after the revocation of a token goes to another worker at once, although the first worker still waits. The
/// control: before the revocation, that worker takes a call.
#[tokio::test(start_paused = true)]
async fn revoked_worker_token_cannot_take_calls() {
    let dir = tempfile::tempdir().expect("a directory");
    let tokens = TokenFile::at(dir.path().join("tokens.json"));
    let secret = format!("Bearer {}", tokens.create("w", TokenScope::Work).expect("a token"));
    let host = host(&Memory::new(), InjectedBug::default()).await;
    let app = host.router();
    let guarded = Guard::new("127.0.0.1:7475".parse().expect("an address"), [], tokens.clone()).protect(host.router());
    let headers = [("host", "127.0.0.1:7475"), ("authorization", &*secret), ("content-type", "application/json")];
    let body = json!({"worker": "one", "tools": ["seek"]}).to_string();
    let takes_one = || request(&guarded, Method::POST, "/v1/workers/take?wait=true&timeout=20000", &headers, &body);
    let first = open_calling(&app, "seek").await;
    let call = takes_one().await;
    assert_eq!(call.status, 200, "{}", call.body);
    // With a token for another tool, the fencing token of the lease is not enough.
    let other = tokens.create_for_tools("other", vec!["pay".to_owned()]).expect("a token");
    let other = format!("Bearer {other}");
    let of_other = [headers[0], ("authorization", &*other), headers[2]];
    for path in ["renew", "complete"] {
        let body = json!({"token": call.json()["token"], "result": complete_body("stolen")}).to_string();
        let body = if path == "renew" { json!({"token": call.json()["token"]}).to_string() } else { body };
        let refused = request(&guarded, Method::POST, &format!("/v1/workers/{path}"), &of_other, &body).await;
        assert_eq!(refused.problem(), (403, "scope_too_small".to_owned()), "{path}");
    }
    renew(&app, &call.json()).await;
    complete(&app, &call.json(), &complete_body("found")).await;
    assert_eq!(wait_for_end(&app, &first).await, [(json!("ok"), "found".to_owned())]);
    let revoked = async {
        advance(1_500).await;
        tokens.revoke("w").expect("revoked");
        let id = open_calling(&app, "seek").await;
        let call = take_and_begin(&app, "two").await;
        assert_eq!(call["attempt"], 1, "no lease was lost");
        complete(&app, &call, &complete_body("found")).await;
        assert_eq!(wait_for_end(&app, &id).await, [(json!("ok"), "found".to_owned())]);
    };
    let (waited, ()) = tokio::join!(takes_one(), revoked);
    assert_eq!(waited.problem(), (401, "unauthorized".to_owned()));
    drop((app, guarded));
    end(host).await;
}
