//! Compactions: long conversations within a context window, overflows, requests, failures and restarts, with a model that counts tokens.

use crate::support::*;
use subtend_models::model::Deltas;
use subtend_session::record::{CompactionCause, CompactionFailure};

const WINDOW: u64 = 32_768;

/// A request, with the token counts of the provider.
#[derive(Clone, Debug)]
struct CountedRequest {
    turn: TurnNo,
    tokens: u64,
    /// Tokens of the longest prefix that it shares with the previous request.
    cached: u64,
    /// True if it extends the previous request.
    extends: bool,
    overflows: bool,
}

type SeenRequests = Arc<Mutex<BTreeMap<SessionId, (Vec<CountedRequest>, Arc<Vec<Message>>)>>>;

type ReplyOf = dyn Fn(&Request) -> (Duration, Result<Answer, ModelError>) + Send + Sync;

/// A model with a context window that counts and caches tokens, and reports an overflow.
struct CountingModel {
    seen: SeenRequests,
    /// True if the host knows its context window.
    known: bool,
    reply: Arc<ReplyOf>,
}

fn tokens(message: &Message) -> u64 {
    message.bytes() / 4 + 4
}

impl Model for CountingModel {
    fn name(&self) -> &str {
        "counting"
    }

    fn context_window(&self) -> Option<u64> {
        self.known.then_some(WINDOW)
    }

    fn call(
        &self,
        request: Request,
        _: Deltas,
    ) -> futures_util::future::BoxFuture<'static, Result<Answer, ModelError>> {
        let mut seen = self.seen.lock().unwrap();
        let (all, before) = seen.entry(request.session).or_default();
        let same = before.iter().zip(request.messages.iter()).take_while(|(a, b)| a == b).count();
        let system = request.system.len() as u64 / 4;
        let counted = CountedRequest {
            turn: request.turn,
            tokens: system + request.messages.iter().map(tokens).sum::<u64>(),
            cached: if all.is_empty() { 0 } else { system + request.messages[..same].iter().map(tokens).sum::<u64>() },
            extends: same == before.len(),
            overflows: false,
        };
        let counted = CountedRequest { overflows: counted.tokens > WINDOW, ..counted };
        *before = Arc::clone(&request.messages);
        all.push(counted.clone());
        drop(seen);
        let (after, reply) = if counted.overflows {
            (Duration::ZERO, Err(ModelError::new(ModelFail::ContextOverflow, "the prompt is too long")))
        } else {
            (self.reply)(&request)
        };
        let usage = Usage { input: counted.tokens, output: 10, cache_read: counted.cached, ..Usage::default() };
        drop(request);
        Box::pin(async move {
            tokio::time::sleep(after).await;
            reply.map(|answer| Answer { usage, ..answer })
        })
    }
}

fn counting(
    known: bool,
    reply: impl Fn(&Request) -> (Duration, Result<Answer, ModelError>) + Send + Sync + 'static,
) -> (CountingModel, SeenRequests) {
    let seen = SeenRequests::default();
    (CountingModel { seen: Arc::clone(&seen), known, reply: Arc::new(reply) }, seen)
}

fn at_once(answer: Answer) -> (Duration, Result<Answer, ModelError>) {
    (Duration::ZERO, Ok(answer))
}

fn requests(seen: &SeenRequests, session: SessionId) -> Vec<CountedRequest> {
    seen.lock().unwrap().get(&session).map(|(all, _)| all.clone()).unwrap_or_default()
}

fn long(what: &str, bytes: usize) -> String {
    format!("{what} ").repeat(bytes / (what.len() + 1))
}

async fn say(session: &SessionHandle, text: &str) -> Ended {
    let receipt = session.send(text).await.expect("accepted");
    let ended = tokio::time::timeout(Duration::from_secs(7200), session.run_ended(receipt.run)).await;
    ended.expect("the run ends").expect("the runtime is running")
}

/// Plays a long conversation: each run reads once and answers; some start a background child, whose end opens another turn.
fn converses(request: &Request) -> (Duration, Result<Answer, ModelError>) {
    if &*request.agent == "compaction" {
        return at_once(text(&long("condensed", 2_000)));
    }
    let user = last_user(request);
    if user.starts_with("report") {
        return (Duration::from_secs(30), Ok(text(&long(&user, 400))));
    }
    match request.messages.last() {
        Some(Message::User { .. }) if user.starts_with("start") => {
            at_once(calls([("read", json!({})), task(&format!("report on {}", &user[..9]), true)]))
        }
        Some(Message::User { .. }) => at_once(calls([("read", json!({}))])),
        _ => at_once(text(&long("answered", 600))),
    }
}

fn compacted(records: &[Record]) -> Vec<(CompactionCause, u64, u64)> {
    let of = |record: &Record| match record {
        Record::Compacted(it) => Some((it.cause, it.before, it.after)),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

fn turns(records: &[Record]) -> usize {
    records.iter().filter(|record| matches!(record, Record::TurnAnswered(_))).count()
}

#[tokio::test(start_paused = true)]
async fn g14_three_hundred_turns_stay_within_a_32k_window() {
    let journal = journal();
    let (model, seen) = counting(true, converses);
    let reads = tool("read", ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text(long("line", 4_000))) });
    let runtime = builder(&journal).tools(tools([reads])).model(model).start().await.expect("a runtime");
    let session = open(&runtime);
    for run in 0..140 {
        let verb = if run % 7 == 0 { "start" } else { "read" };
        assert_eq!(
            say(&session, &format!("{verb} {run:03} {}", long("please", 300))).await.outcome,
            Outcome::Completed
        );
    }
    let records = records(&journal, session.id()).await;
    let (counted, compactions) = (requests(&seen, session.id()), compacted(&records));
    assert_eq!((turns(&records), counted.len()), (300, 300));
    assert_eq!(counted.iter().filter(|request| request.overflows).count(), 0);
    assert!(compactions.iter().all(|(cause, before, after)| *cause == CompactionCause::Share && after * 2 < *before));
    assert!((8..=30).contains(&compactions.len()), "{compactions:?}");
    // Between two compactions, each request extends the previous one, so that a provider's cache serves it.
    let breaks = counted.iter().skip(1).filter(|request| !request.extends).count();
    assert_eq!(breaks, compactions.len());
    let sum = |all: &[CountedRequest], of: fn(&CountedRequest) -> u64| all.iter().map(of).sum::<u64>();
    let (all, cached) = (sum(&counted, |it| it.tokens), sum(&counted, |it| it.cached));
    assert!(cached * 100 / all >= 85, "{cached} of {all} tokens come from the cache");
    // The second half costs as much as the first, apart from the growth before the first compaction.
    let (first, second) = counted.split_at(150);
    let (first, second) = (sum(first, |it| it.tokens), sum(second, |it| it.tokens));
    assert!(second * 100 / first <= 120, "{first} tokens, then {second}");
    shut(runtime).await;
}

/// Returns the outcomes of the runs of a conversation with messages of 20 KB each.
async fn large(runtime: &Runtime, session: &SessionHandle, messages: usize) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for n in 0..messages {
        outcomes.push(say(session, &long(&format!("message{n}"), 20_000)).await.outcome);
    }
    runtime.journal().settled().await.expect("the journal is open");
    outcomes
}

fn answers(request: &Request) -> (Duration, Result<Answer, ModelError>) {
    at_once(text(if &*request.agent == "compaction" { "Six messages were answered." } else { "done" }))
}

#[tokio::test(start_paused = true)]
async fn g14_overflow_of_an_unknown_window_is_compacted_once() {
    let journal = journal();
    let (model, seen) = counting(false, answers);
    let runtime = builder(&journal).model(model).start().await.expect("a runtime");
    let session = open(&runtime);
    assert_eq!(large(&runtime, &session, 8).await, vec![Outcome::Completed; 8]);
    let records = records(&journal, session.id()).await;
    assert_eq!(compacted(&records).iter().map(|(cause, ..)| *cause).collect::<Vec<_>>(), [CompactionCause::Overflow]);
    let counted = requests(&seen, session.id());
    assert_eq!(counted.iter().map(|it| it.overflows).filter(|it| *it).count(), 1);
    let repeated: Vec<_> = counted.iter().filter(|it| it.turn == TurnNo(7)).map(|it| it.overflows).collect();
    assert_eq!(repeated, [true, false], "the call was not repeated");
    // The usage of the compaction agent counts in the tree, not in the run.
    let usage = session.usage().await.expect("usage");
    let agent = usage.children.iter().map(|child| child.own.tokens()).sum::<u64>();
    assert!(agent > 10_000, "{usage:?}");
    assert_eq!(usage.tree.tokens(), usage.own.tokens() + agent);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn g14_failed_compaction_is_shown_and_not_repeated() {
    let journal = journal();
    let (model, _) = counting(true, |request| match &*request.agent {
        "compaction" => (Duration::ZERO, Err(ModelError::new(ModelFail::Auth, "no key"))),
        _ => at_once(text("done")),
    });
    let runtime = builder(&journal).model(model).start().await.expect("a runtime");
    let session = open(&runtime);
    let outcomes = large(&runtime, &session, 7).await;
    let records = records(&journal, session.id()).await;
    let failed: Vec<_> = records
        .iter()
        .filter_map(|record| match record {
            Record::CompactionFailed(failed) => Some((failed.cause, failed.why, failed.message.to_string())),
            _ => None,
        })
        .collect();
    let message =
        "the compaction agent produced no summary: its run failed: the model's key is missing or refused (\"no key\")";
    // Before turn 6 the provider still accepts the request. In turn 7 it reports an overflow, after a compaction failed.
    let fails = (CompactionCause::Share, CompactionFailure::Agent, message.to_owned());
    assert_eq!(failed, [fails.clone(), fails]);
    let kind = FailKind::Model { error: ModelFail::ContextOverflow, message: "the prompt is too long".into() };
    assert_eq!(outcomes[..6], vec![Outcome::Completed; 6]);
    assert_eq!(outcomes[6], Outcome::Failed { kind });
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn g14_share_of_an_unknown_window_is_refused() {
    let limits = Limits { compact_at: Some(50), ..Limits::default() };
    let start = builder(&journal()).model(counting(false, answers).0).limits(limits.clone()).start().await;
    let error = start.map(drop).expect_err("refused");
    assert!(matches!(&error, StartError::NoWindow(model) if &**model == "counting"), "{error}");
    let runtime = builder(&journal()).model(counting(false, answers).0).start().await.expect("a runtime");
    let options = OpenOptions { limits: Some(limits.clone()), ..OpenOptions::agent("worker") };
    let error = runtime.open(options).map(drop).expect_err("refused");
    assert!(matches!(&error, OpenSessionError::NoWindow(model) if &**model == "counting"), "{error}");
    shut(runtime).await;
    // A child's model may differ from the root's.
    let (known, unknown) = (counting(true, spawns).0, counting(false, spawns).0);
    let mut catalog = subtend_agents::catalog::Catalog::builtin();
    let other = Manifest { model: Some("other".into()), ..Manifest::new("other", AgentMode::Subagent, "You help.") };
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    catalog.insert(other);
    let named = builder(&journal()).catalog(catalog).model(known).named_model("other", unknown).limits(limits);
    let runtime = named.start().await.expect("a runtime");
    let ended = say(&open(&runtime), "start").await;
    let message =
        "the limit compact_at needs a context window, and that of the model `other` is unknown. Name another model";
    assert!(ended.text.as_deref().is_some_and(|text| text.contains(message)), "{ended:?}");
    shut(runtime).await;
}

fn spawns(request: &Request) -> (Duration, Result<Answer, ModelError>) {
    let results = crate::support::results(request);
    let call = ("task", json!({"subagent_type": "other", "prompt": "help", "background": false}));
    at_once(results.last().map_or_else(|| calls([call]), |result| text(result)))
}

#[tokio::test(start_paused = true)]
async fn g14_requested_compaction_can_be_undone() {
    let journal = journal();
    let (model, seen) = counting(true, answers);
    let runtime = builder(&journal).model(model).start().await.expect("a runtime");
    let session = open(&runtime);
    let nothing = session.compact().await;
    let why = "cannot compact the session: no old message can be hidden yet";
    assert_eq!(nothing, Err(ControlError::Refused(why.into())));
    large(&runtime, &session, 3).await;
    let whole = requests(&seen, session.id())[2].tokens;
    let done = session.compact().await.expect("compacted");
    assert!(done.messages == 5 && done.after * 2 < done.before, "{done:?}");
    assert_eq!(say(&session, "and now?").await.outcome, Outcome::Completed);
    assert!(requests(&seen, session.id())[3].tokens * 2 < whole);
    session.undo_compaction().await.expect("undone");
    assert_eq!(say(&session, "and again?").await.outcome, Outcome::Completed);
    assert!(requests(&seen, session.id())[4].tokens > whole);
    let tail: Vec<_> =
        kinds(&journal, session.id()).await.into_iter().filter(|kind| kind.starts_with("compact")).collect();
    assert_eq!(tail, ["compacted", "compaction_undone"]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn g14_cancel_and_interrupt_end_the_compaction_agent() {
    for cancels in [true, false] {
        let journal = journal();
        let (model, _) = counting(true, |request| match &*request.agent {
            "compaction" => (Duration::from_secs(100), Ok(text("late"))),
            _ => at_once(text("done")),
        });
        let runtime = builder(&journal).model(model).start().await.expect("a runtime");
        let session = open(&runtime);
        large(&runtime, &session, 5).await;
        let receipt = session.send(long("message5", 20_000)).await.expect("accepted");
        seconds(1).await;
        if cancels {
            session.cancel().await.expect("cancelled");
        } else {
            session.interrupt().await.expect("interrupted");
        }
        let ended = session.run_ended(receipt.run).await.expect("ended");
        assert!(matches!(ended.outcome, Outcome::Cancelled { .. } | Outcome::Interrupted { .. }), "{ended:?}");
        session.services_done().await;
        let records = records(&journal, session.id()).await;
        assert_eq!(compacted(&records), []);
        assert!(!records.iter().any(|record| matches!(record, Record::CompactionFailed(_))));
        shut(runtime).await;
    }
}

#[tokio::test(start_paused = true)]
async fn g14_shutdown_within_a_compaction_leaves_nothing_half_done() {
    let memory = Memory::new();
    let journal = reopen(&memory);
    let slow = |request: &Request| match &*request.agent {
        "compaction" => (Duration::from_secs(100), Ok(text("late"))),
        _ => at_once(text("done")),
    };
    let runtime = builder(&journal).model(counting(true, slow).0).start().await.expect("a runtime");
    let options = OpenOptions { agent: "worker".into(), on_restart: Some(OnRestart::Resume), ..Default::default() };
    let session = runtime.open(options).expect("a session");
    large(&runtime, &session, 5).await;
    session.send(long("message5", 20_000)).await.expect("accepted");
    seconds(1).await;
    runtime.shutdown(Duration::from_millis(1)).await;
    let journal = reopen(&memory);
    let before = records(&journal, session.id()).await;
    assert_eq!(compacted(&before), []);
    // The next process starts the compaction again, in another service session.
    let options = Options { seed: Some(8), ..Options::default() };
    let again = builder(&journal).options(options).model(counting(true, answers).0);
    let runtime = again.start().await.expect("a runtime");
    let session = runtime.session(session.id()).expect("readable").expect("the session exists");
    let ended = tokio::time::timeout(Duration::from_secs(60), session.run_ended(RunNo(6))).await;
    assert_eq!(ended.expect("the run ends").expect("ended").outcome, Outcome::Completed);
    let after = records(&journal, session.id()).await;
    assert_eq!(compacted(&after).len(), 1);
    let services =
        |records: &[Record]| records.iter().filter(|record| matches!(record, Record::BranchCreated(_))).count();
    assert_eq!((services(&before), services(&after)), (1, 2));
    shut(runtime).await;
}
