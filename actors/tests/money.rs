//! Prices: recorded costs, and budgets in money.

use crate::support::*;
use subtend_actors::{Price, Prices};
use subtend_session::outcome::Budget;

const SPENT: Outcome = Outcome::OutOfBudget { which: Budget::Money };

fn provider(name: &str, usage: Usage) -> Arc<dyn Model> {
    let answer = move |_, _| async move { Ok::<_, ModelError>(Answer { usage, ..text("done") }) };
    Arc::new(fn_model(name, answer).with_leaves_process(true).with_quotas([format!("lab/{name}"), "lab".to_owned()]))
}

fn used(input: u64, output: u64) -> Usage {
    Usage { input, output, ..Usage::default() }
}

fn money(cost_micro: u64) -> Limits {
    Limits { cost_micro: Some(cost_micro), output_tokens: Some(100), ..Limits::default() }
}

async fn recorded(prices: Prices, model: Arc<dyn Model>) -> Usage {
    let runtime = builder(&journal()).model(model).prices(prices).start().await.expect("a runtime");
    let (_, ended) = ask(&runtime, "go").await;
    shut(runtime).await;
    ended.usage
}

#[tokio::test(start_paused = true)]
async fn answer_without_a_cost_is_priced() {
    let table = Prices::new().with("lab/*", Price::new(2.0, 10.0)).with("lab/big", Price::new(4.0, 20.0));
    let small = recorded(table.clone(), provider("small", used(1_000, 10))).await;
    assert_eq!(small, Usage { cost_micro: Some(2_100), ..used(1_000, 10) });
    let big = recorded(table.clone(), provider("big", used(1_000, 10))).await;
    assert_eq!(
        big.cost_micro,
        Some(4_200),
        "expected the price of PROVIDER/MODEL, although the session uses another name"
    );
    let cached = recorded(table.clone(), provider("small", Usage { cache_read: 500, ..used(1_000, 10) })).await;
    assert_eq!(
        (cached.cost_micro, cached.unreliable),
        (Some(2_100), true),
        "the cost of the cache must be marked as unknown"
    );
    let received = recorded(table, provider("small", Usage { cost_micro: Some(7), ..used(1_000, 10) })).await;
    assert_eq!(received.cost_micro, Some(7));
}

#[tokio::test(start_paused = true)]
async fn remote_model_without_a_price_has_an_unknown_cost() {
    let table = Prices::new().with("other/*", Price::new(2.0, 10.0));
    let foreign = recorded(table.clone(), provider("small", used(1_000, 10))).await;
    assert_eq!((foreign.cost_micro, foreign.unreliable), (None, true));
    let usage = used(1_000, 10);
    let answer = move |_, _| async move { Ok::<_, ModelError>(Answer { usage, ..text("done") }) };
    let near = recorded(table, Arc::new(fn_model("near", answer))).await;
    assert_eq!(near, Usage { cost_micro: Some(0), ..usage }, "a local model must cost nothing, reliably");
    assert_eq!(
        recorded(Prices::new(), provider("small", usage)).await,
        usage,
        "without prices the usage must not change"
    );
}

#[tokio::test(start_paused = true)]
async fn run_ends_when_its_money_cannot_cover_the_next_call() {
    let journal = journal();
    let answer = |_: Request, _| async {
        Ok::<_, ModelError>(Answer { usage: used(1_000, 100), ..calls([("nothing", json!({}))]) })
    };
    let model = Arc::new(fn_model("lab/small", answer).with_leaves_process(true));
    // A call costs 2,000 for its input and 1,000 for its output.
    let prices = Prices::new().with("lab/small", Price::new(2.0, 10.0));
    let builder = builder(&journal).model(model).prices(prices).limits(money(10_000));
    let runtime = builder.start().await.expect("a runtime");
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!((ended.outcome, ended.turns, ended.usage.cost_micro), (SPENT, 3, Some(9_000)));
    assert_eq!(runtime.stats().accounts, 0);
    shut(runtime).await;
}

async fn refused(builder: Builder) -> StartError {
    builder.start().await.map(drop).expect_err("no runtime")
}

#[tokio::test(start_paused = true)]
async fn money_limit_is_refused_without_a_known_price() {
    let small = || provider("small", used(1, 1));
    let journal = journal();
    let error = refused(builder(&journal).model(small()).limits(money(10))).await;
    assert!(matches!(&error, StartError::NoPrice(model) if &**model == "small"), "{error}");
    let journal = crate::support::journal();
    let pooled = builder(&journal)
        .named_model("a", small())
        .named_model("b", provider("big", used(1, 1)))
        .pool("smart", ["a", "b"])
        .default_model("pool:smart")
        .prices(Prices::new().with("a", Price::new(1.0, 1.0)))
        .limits(money(10));
    let error = refused(pooled).await;
    assert!(matches!(&error, StartError::NoPrice(model) if &**model == "b"), "{error}");
    let journal = crate::support::journal();
    let error = refused(builder(&journal).model(small()).prices(Prices::new().with("a", Price::new(-1.0, 1.0)))).await;
    assert!(matches!(&error, StartError::Price(name, _) if &**name == "a"), "{error}");
    let journal = crate::support::journal();
    let runtime = builder(&journal).model(small()).start().await.expect("a runtime");
    let limited = OpenOptions { limits: Some(money(10)), ..OpenOptions::agent("worker") };
    let error = runtime.open(limited.clone()).map(drop).expect_err("no session");
    assert!(matches!(&error, OpenSessionError::NoPrice(model) if &**model == "small"), "{error}");
    open(&runtime);
    shut(runtime).await;
    let journal = crate::support::journal();
    let answer = |_, _| async { Ok::<_, ModelError>(text("done")) };
    let runtime = builder(&journal).model(Arc::new(fn_model("near", answer))).start().await.expect("a runtime");
    runtime.open(limited).expect("a model without a provider costs nothing");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn child_without_a_price_counts_at_the_highest_price() {
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("parent", AgentMode::All, "You are a parent."));
    let odd = Manifest { model: Some("odd".into()), ..Manifest::new("worker", AgentMode::Subagent, "You are odd.") };
    catalog.insert(odd);
    let answer = |request: Request, _| async move {
        match (prompt(&request).as_str(), answers(&request)) {
            ("go", 0) => Ok::<_, ModelError>(Answer { usage: used(1, 1), ..calls([task("child", false)]) }),
            (_, _) => Ok(Answer { usage: used(1, 1), ..text("done") }),
        }
    };
    let known: Arc<dyn Model> = Arc::new(fn_model("known", answer).with_leaves_process(true));
    // A call of at least 100 tokens at the highest price costs at least 100,000.
    let prices = Prices::new().with("known", Price::new(1.0, 1.0)).with("dear", Price::new(1_000.0, 1_000.0));
    for (limit, expected) in [(50_000, SPENT), (5_000_000, Outcome::Completed)] {
        let journal = journal();
        let builder = builder(&journal).catalog(catalog.clone()).model(Arc::clone(&known));
        let builder = builder.named_model("odd", provider("odd", used(1, 1))).prices(prices.clone());
        let runtime = builder.limits(money(limit)).start().await.expect("a runtime");
        let session = runtime.open("parent").expect("a session");
        let receipt = session.send("go").await.expect("accepted");
        let parent = session.run_ended(receipt.run).await.expect("ended");
        let child = journal.children(session.id()).expect("children")[0];
        let child = runtime.session(child).expect("readable").expect("the session exists");
        let ended = child.run_ended(RunNo(1)).await.expect("ended");
        assert_eq!((ended.outcome, parent.outcome), (expected, Outcome::Completed));
        shut(runtime).await;
    }
}
