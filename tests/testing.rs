//! Tests of `subtend::testing`.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use subtend::format::Record;
use subtend::models::{Answer, Scripted, Step, fn_model};
use subtend::session::{Message, Outcome, Rule, RuleSet, ToolEffect, Verdict};
use subtend::testing::{self, AuditError};
use subtend::tools::{HostPolicy, Registry, ToolError, ToolInvocation, TypedTool};
use subtend::{Runtime, SessionHandle};

async fn open(builder: subtend::Builder, script: Scripted) -> (Runtime, SessionHandle) {
    let runtime = builder.model(Arc::new(script)).start().await.expect("a runtime");
    let session = runtime.open("general").expect("a session");
    (runtime, session)
}

/// Returns a script that starts three background children, one of which never answers.
fn tree() -> Scripted {
    let task = |prompt| json!({"subagent_type": "explore", "prompt": prompt, "background": true});
    let three_tasks = Step::call("task", task("one")).and_call("task", task("two")).and_call("task", task("three"));
    let three = subtend::models::When { prompt_contains: Some("three".into()), ..Default::default() };
    Scripted::builder("tree")
        .rule("general", [three_tasks, Step::text("At work.").repeat()])
        .choices("explore", [vec![Step::hang().when(three), Step::text("Seen: {prompt}").latency_ms(50_000)]])
        .build()
        .expect("a script")
}

async fn all_records(runtime: &Runtime) -> Vec<Vec<Record>> {
    let heads = runtime.journal().heads().expect("heads");
    let mut all = Vec::new();
    for (id, _) in heads {
        all.push(testing::records(runtime, id).await.expect("records"));
    }
    all
}

#[test]
fn tree_with_a_silent_child_is_deterministic() {
    let run = || {
        testing::block_on(async {
            let began = tokio::time::Instant::now();
            let (runtime, session) = open(testing::builder(), tree()).await;
            let receipt = session.send("Look.").await.expect("accepted");
            let ended = session.run_ended(receipt.run).await.expect("ended");
            assert_eq!(ended.outcome, Outcome::Completed);
            assert!(began.elapsed() >= Duration::from_secs(300), "{:?}", began.elapsed());
            let records = all_records(&runtime).await;
            testing::finish(runtime).await;
            records
        })
    };
    let (first, second) = (run(), run());
    assert_eq!(first.len(), 4);
    assert_eq!(first, second);
}

#[test]
fn audit_reports_work_in_flight() {
    testing::block_on(async {
        let hang = Scripted::builder("hang").rule("*", [Step::hang()]).build().expect("a script");
        let (runtime, session) = open(testing::builder(), hang).await;
        session.send("Hang.").await.expect("accepted");
        assert!(matches!(testing::audit(&runtime).await, Err(AuditError::Violated(_))));
        session.cancel().await.expect("cancelled");
        tokio::time::sleep(Duration::from_secs(60)).await;
        testing::finish(runtime).await;
    });
}

/// Returns the weather.
#[derive(Deserialize, JsonSchema)]
struct Weather {
    /// The name of the city.
    city: String,
}

impl TypedTool for Weather {
    type Output = String;
    const EFFECT: ToolEffect = ToolEffect::ReadOnly;

    async fn run(self, _call: ToolInvocation) -> Result<String, ToolError> {
        Ok(format!("rain in {}", self.city))
    }
}

async fn results_of(policy: RuleSet, calls: [(&'static str, serde_json::Value); 1]) -> Vec<String> {
    let call = calls;
    let model = fn_model("caller", move |request, _| {
        let first = !request.messages.iter().any(|message| matches!(message, Message::Assistant { .. }));
        let answer = if first { testing::calls(call.clone()) } else { Answer::of_text("done") };
        async { Ok(answer) }
    });
    let tools = Registry::builder().typed::<Weather>().expect("a tool").build();
    let runtime = testing::builder().policy(policy).tools(tools).model(Arc::new(model)).start().await;
    let runtime = runtime.expect("a runtime");
    let session = runtime.open("general").expect("a session");
    let receipt = session.send("Weather?").await.expect("accepted");
    session.run_ended(receipt.run).await.expect("ended");
    let results = testing::results(&runtime, session.id()).await.expect("results");
    testing::finish(runtime).await;
    results.iter().map(ToString::to_string).collect()
}

#[test]
fn custom_tool_is_offered_unless_the_policy_denies_it() {
    let bern = || [("weather", json!({"city": "Bern"}))];
    let results = |policy| testing::block_on(results_of(policy, bern()));
    assert_eq!(results(RuleSet::only(Verdict::Allow)), ["rain in Bern"]);
    assert_eq!(results(HostPolicy::allowing(["tool:weather"]).expect("a rule")), ["rain in Bern"]);
    assert_eq!(results(HostPolicy::default_for_workspace()), ["rain in Bern"]);
    let mut asking = HostPolicy::default_for_workspace();
    asking.rules.push(Rule { action: "tool:weather".into(), resource: "*".into(), verdict: Verdict::Ask });
    let refused = results(asking);
    assert!(refused[0].starts_with("Not allowed: tool:weather on *; approval required"), "{refused:?}");
}

#[test]
fn invalid_arguments_are_reported_to_the_model() {
    let results = testing::block_on(results_of(RuleSet::only(Verdict::Allow), [("weather", json!({"city": 7}))]));
    assert_eq!(
        results,
        ["the arguments of weather do not fit its schema:\n\
          - /city: 7 is not of type \"string\"\n\
          Correct them and call weather again."]
    );
}
