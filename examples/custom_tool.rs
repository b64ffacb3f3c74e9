//! Two custom tools: one is the struct of its arguments, the other a closure that captures its state.
//!
//! `cargo run --example custom_tool`. A scripted model calls both. It calls the second with wrong arguments at first;
//! the error says what is wrong, and the model corrects the call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use subtend::Runtime;
use subtend::models::{Scripted, Step};
use subtend::session::{Access, Outcome, ToolEffect};
use subtend::tools::{FnTool, Registry, ToolError, ToolInvocation, TypedTool};

/// Counts the days between two days of one year, each given as its number in the year.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DaysBetween {
    /// The first day.
    from: u16,
    /// The last day.
    to: u16,
}

impl TypedTool for DaysBetween {
    type Output = String;
    const EFFECT: ToolEffect = ToolEffect::ReadOnly;

    // The tool has no side effects, so it needs no permission.
    fn access(_: Option<&Self>) -> Vec<Access> {
        Vec::new()
    }

    async fn run(self, _call: ToolInvocation) -> Result<String, ToolError> {
        match self.to.checked_sub(self.from) {
            Some(days) => Ok(format!("{days} days")),
            None => Err(ToolError::bad_args(format!("{} is before {}: exchange them", self.to, self.from))),
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct Article {
    /// Number of the article, as in `A-17`.
    article: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stock = Arc::new(BTreeMap::from([("A-17".to_owned(), 3_u32)]));
    let about = "Returns how many pieces of an article are in stock.";
    let in_stock = FnTool::typed("in_stock", about, ToolEffect::ReadOnly, move |args: Article, _: ToolInvocation| {
        let stock = Arc::clone(&stock);
        async move { stock.get(&args.article).copied().ok_or_else(|| ToolError::not_found("unknown article")) }
    });

    let steps = [
        Step::call("days_between", json!({"from": 32, "to": 60})),
        Step::call("in_stock", json!({"number": "A-17"})),
        Step::call("in_stock", json!({"article": "A-17"})),
        Step::text("In stock: {last}"),
    ];
    let runtime = Runtime::builder()
        .tools(Registry::builder().typed::<DaysBetween>()?.tool(Arc::new(in_stock))?.build())
        .model(Scripted::builder("script").rule("*", steps).build()?)
        .start()
        .await?;
    let session = runtime.open("general")?;
    let receipt = session.send("How many A-17 are there?").await?;
    let ended = session.run_ended(receipt.run).await?;
    for stored in runtime.journal().records(session.id())? {
        if let subtend::format::Record::CallFinished(call) = stored.record {
            println!("{:?}: {}", call.end, call.content);
        }
    }
    println!("{}", ended.text.as_deref().unwrap_or_default());
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("In stock: 3")));
    runtime.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
