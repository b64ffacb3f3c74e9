//! Helpers for tests of agents: models that play a script, a journal in memory, and virtual time.
//!
//! The feature `testing` enables this module:
//!
//! ```toml
//! [dev-dependencies]
//! subtend = { version = "0.1", default-features = false, features = ["testing"] }
//! ```
//!
//! A complete test of an agent whose child exceeds its time limit:
//!
//! ```
//!
//! use subtend::models::{Scripted, Step};
//! use subtend::session::Outcome;
//! use subtend::testing;
//!
//! // In your tests this line is `#[test]`.
//! fn child_timeout_reaches_its_owner() -> Result<(), Box<dyn std::error::Error>> {
//!     let task = serde_json::json!({"subagent_type": "explore", "prompt": "Read everything."});
//!     let model = Scripted::builder("script")
//!         .rule("general", [Step::call("task", task), Step::text("It said: {last}")])
//!         .rule("explore", [Step::text("Still reading. ".repeat(100)).chunk_ms(50_000)])
//!         .build()?;
//!
//!     testing::block_on(async {
//!         let runtime = testing::builder().model(model).start().await?;
//!         let session = runtime.open("general")?;
//!         let receipt = session.send("Have a look.").await?;
//!
//!         let answered = receipt.answer().await?; // after the child's 480 virtual seconds
//!         assert!(answered.text.contains("timed out"));
//!         assert_eq!(session.run_ended(receipt.run).await?.outcome, Outcome::Completed);
//!         assert_eq!(testing::kinds(&runtime, session.id()).await?.last(), Some(&"run_ended"));
//!
//!         testing::finish(runtime).await; // every invariant holds, and nothing is left alive
//!         Ok(())
//!     })
//! }
//! # child_timeout_reaches_its_owner().expect("the test passes");
//! ```

use std::future::Future;
use std::time::Duration;

use subtend_actors::{Builder, Options, Runtime};
use subtend_journal::memory::Memory;
use subtend_journal::{Journal, ReadError};
use subtend_models::model::Answer;
use subtend_session::authority::{RuleSet, Verdict};
use subtend_session::ids::{SessionId, Text};
use subtend_session::record::{Record, ToolCall};

pub use subtend_journal::AuditError;
pub use subtend_journal::audit::Violation;

/// Seed of [`builder`].
pub const SEED: u64 = 7;

/// Grace period of [`finish`] for active runs, in virtual time.
const GRACE: Duration = Duration::from_secs(1);

/// Returns a single-threaded tokio runtime whose clock jumps to the next timer when no task can run.
///
/// Sleeps, deadlines, back-off and latencies of scripted models then take no real time, and fire in the same order in
/// every run. The clock does not wait for anything outside of tokio (a socket, a process, another thread). Use the
/// journal in memory, and test code that does I/O in real time.
///
/// # Panics
/// When the async runtime cannot start.
#[expect(clippy::expect_used, reason = "a test cannot continue without a runtime")]
pub fn virtual_time() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().expect("a runtime")
}

/// Runs `work` in virtual time, in its own tokio runtime; see [`virtual_time`].
///
/// # Panics
/// As [`virtual_time`], and when `work` does.
pub fn block_on<F: Future>(work: F) -> F::Output {
    virtual_time().block_on(work)
}

/// Returns a journal in memory.
pub fn journal() -> Journal {
    reopen(&Memory::new())
}

/// Opens a journal on a store in memory, as a restarted host does. Drop or shut down the earlier runtime first.
///
/// # Panics
/// When the store contains anything other than a journal.
#[expect(clippy::expect_used, reason = "a test cannot continue without its journal")]
pub fn reopen(store: &Memory) -> Journal {
    Journal::open(Box::new(store.clone()), subtend_journal::Options::default()).expect("a journal")
}

/// Returns a builder of deterministic runtimes: ids and clock from [`SEED`], a journal in memory, the built-in agents,
/// no tools, and **everything allowed**. Set a model, and override other settings where needed.
///
/// A second runtime on the same journal needs another seed, because the same seed generates the same ids:
/// `.options(Options { seed: Some(8), ..Options::default() })`.
pub fn builder() -> Builder {
    Runtime::builder()
        .journal(journal())
        .policy(RuleSet::only(Verdict::Allow))
        .options(Options { seed: Some(SEED), ..Options::default() })
}

/// Returns an answer with tool calls, given as names of tools and their arguments.
///
/// ```
/// let answer = subtend::testing::calls([("weather", serde_json::json!({"city": "Bern"}))]);
/// assert_eq!(&*answer.calls[0].tool, "weather");
/// ```
pub fn calls(calls: impl IntoIterator<Item = (&'static str, serde_json::Value)>) -> Answer {
    let tool_call = |(at, (tool, args)): (usize, (&str, serde_json::Value))| ToolCall {
        provider_id: format!("call-{at}").into(),
        tool: tool.into(),
        args: args.to_string().into(),
    };
    Answer::of_calls(None, calls.into_iter().enumerate().map(tool_call).collect())
}

/// Waits until all decisions so far are durable, then returns all records of a session.
///
/// # Errors
/// When the journal cannot be read.
pub async fn records(runtime: &Runtime, session: SessionId) -> Result<Vec<Record>, ReadError> {
    wait_until_durable(runtime.journal()).await;
    Ok(runtime.journal().records(session)?.into_iter().map(|stored| stored.record).collect())
}

/// Returns the kinds of all records of a session in order, such as `turn_answered`.
///
/// # Errors
/// As [`records`].
pub async fn kinds(runtime: &Runtime, session: SessionId) -> Result<Vec<&'static str>, ReadError> {
    Ok(records(runtime, session).await?.iter().map(Record::kind).collect())
}

/// Returns the tool results of a session as its model received them, in order.
///
/// Results of `task` are not included: those of subagents are in [`Record::NoticeTaken`].
///
/// # Errors
/// As [`records`].
pub async fn results(runtime: &Runtime, session: SessionId) -> Result<Vec<Text>, ReadError> {
    let result = |record| if let Record::CallFinished(finished) = record { Some(finished.content) } else { None };
    Ok(records(runtime, session).await?.into_iter().filter_map(result).collect())
}

/// Checks the whole journal against the invariants of a store **at rest**: every run ended once, every owner was notified
/// of every end once, and no session exceeded the permissions of its owner. Call it after the runs of the test have
/// ended.
///
/// # Errors
/// When an invariant does not hold (the first one is returned), or the journal cannot be read.
pub async fn audit(runtime: &Runtime) -> Result<(), AuditError> {
    wait_until_durable(runtime.journal()).await;
    subtend_journal::audit(runtime.journal(), true)
}

/// Ends a test: runs [`audit`], shuts the runtime down, and checks that no actor or task is left.
///
/// # Panics
/// When an invariant does not hold, or an actor or a task outlives the shutdown.
#[expect(clippy::panic, reason = "this is an assertion")]
pub async fn finish(runtime: Runtime) {
    if let Err(error) = audit(&runtime).await {
        panic!("the journal violates an invariant: {error}");
    }
    let report = runtime.shutdown(GRACE).await;
    assert_eq!((report.actors, report.tasks), (0, 0), "something outlived the shutdown: {report:?}");
}

/// Waits until appended records are durable, and reports a failed journal.
async fn wait_until_durable(journal: &Journal) {
    drop(journal.settled().await);
}
