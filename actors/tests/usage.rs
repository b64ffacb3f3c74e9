//! The usage of sessions: each attempt counts once in each sum that it belongs to (M1).

use crate::support::*;
use subtend_actors::{ContextShare, UsageView};
use subtend_models::model::Deltas;

fn cost(tokens: u64) -> Usage {
    Usage {
        input: tokens,
        output: tokens / 2,
        reasoning: tokens / 4,
        cache_new: 1,
        cache_read: 2,
        cost_micro: Some(tokens),
        ..Usage::default()
    }
}

fn costing(answer: Answer, usage: Usage) -> Answer {
    Answer { usage, ..answer }
}

fn sum(usages: impl IntoIterator<Item = Usage>) -> Usage {
    usages.into_iter().fold(Usage::default(), |mut sum, usage| {
        sum.add(&usage);
        sum
    })
}

struct Windowed;

impl Model for Windowed {
    fn name(&self) -> &str {
        "windowed"
    }

    fn context_window(&self) -> Option<u64> {
        Some(10_000)
    }

    fn call(&self, _: Request, _: Deltas) -> futures_util::future::BoxFuture<'static, Result<Answer, ModelError>> {
        Box::pin(async { Ok(costing(text("fine"), cost(2_000))) })
    }
}

#[tokio::test(start_paused = true)]
async fn usage_has_the_window_share_of_the_last_answer_and_times() {
    let journal = journal();
    let runtime = builder(&journal).model(Arc::new(Windowed)).start().await.expect("the runtime starts");
    let session = open(&runtime);
    let before = session.usage().await.expect("a view");
    assert_eq!((before.own, before.context), (Usage::default(), None));
    session.send("one").await.expect("accepted").answer().await.expect("an answer");
    session.run_ended(RunNo(1)).await.expect("the run ends");
    let view = session.usage().await.expect("a view");
    let context = ContextShare { used: 3_000, window: Some(10_000) };
    assert_eq!((view.context, context.percent()), (Some(context), Some(30)));
    let unknown = UsageView::read(&journal, session.id(), |_| None).expect("a view").context.expect("an answer");
    assert_eq!((unknown, unknown.percent()), (ContextShare { used: 3_000, window: None }, None));
    assert_eq!((view.parent, view.children), (None, Vec::new()));
    assert_eq!((view.own, view.owned, view.tree), (cost(2_000), Usage::default(), cost(2_000)));
    let head = journal.head(session.id()).expect("a store").expect("a head");
    assert_eq!((view.created_ms, view.updated_ms), (head.created_ms, head.updated_ms));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn owned_runs_branches_and_failed_attempts_count_once() {
    let answering = model(|request| async move {
        match (&*prompt(&request), answers(&request), request.attempt.0) {
            ("go", 0, 1) => {
                Err(ModelError { usage: Some(cost(7)), ..ModelError::new(ModelFail::Unavailable, "not now") })
            }
            ("go", 0, _) => Ok(costing(calls([task("child", false)]), cost(10))),
            ("child", 0, _) => Ok(costing(calls([task("grandchild", true)]), cost(100))),
            ("grandchild", _, _) => Ok(costing(text("deep"), cost(1_000))),
            ("child", _, _) => Ok(costing(text("found"), cost(20))),
            ("branch", _, _) => Ok(costing(text("aside"), cost(10_000))),
            _ => Ok(costing(text("done"), cost(1))),
        }
    });
    let runtime = builder(&journal()).model(answering).start().await.expect("the runtime starts");
    let (session, _) = sent(&runtime, "go").await;
    let ended = session.run_ended(RunNo(1)).await.expect("the run ends");
    let child = session.branches().await.expect("a list")[0].id;
    let child = runtime.session(child).expect("a store").expect("a session");
    // A person's run below the child belongs to no session's own sum, but to the tree.
    let branch =
        child.branch(BranchOptions { kind: subtend_session::place::BranchKind::Subagent, ..BranchOptions::default() });
    let branch = branch.await.expect("a branch");
    branch.send("branch").await.expect("accepted").answer().await.expect("an answer");
    branch.run_ended(RunNo(1)).await.expect("the run ends");

    let view = session.usage().await.expect("a view");
    assert_eq!(view.own, sum([cost(7), cost(10), cost(1)]));
    // The child is called twice after its first answer: with the start of the task, then with its end.
    assert_eq!(view.owned, sum([cost(100), cost(20), cost(20), cost(1_000)]));
    assert_eq!(view.tree, sum([view.own, view.owned, cost(10_000)]));
    assert_eq!(ended.usage, sum([view.own, view.owned]), "the end reported another usage");
    let below = child.usage().await.expect("a view");
    assert_eq!((below.own, below.owned), (sum([cost(100), cost(20), cost(20)]), cost(1_000)));
    assert_eq!(below.tree, sum([below.own, below.owned, cost(10_000)]));

    let own = |view: &UsageView| view.children.iter().map(|kid| (kid.session, kid.own)).collect::<Vec<_>>();
    assert_eq!((below.parent, own(&view)), (Some(session.id()), vec![(child.id(), below.own)]));
    let grandchild = child.branches().await.expect("a list")[0].id;
    assert_eq!(own(&below), [(grandchild, cost(1_000)), (branch.id(), cost(10_000))]);
    shut(runtime).await;
}

/// The usage that a random model has reported, and its random generator.
struct RandomModel {
    rng: fastrand::Rng,
    reported: Usage,
    tasks_left: u32,
}

impl RandomModel {
    fn usage(&mut self) -> Usage {
        Usage {
            input: self.rng.u64(..1_000),
            output: self.rng.u64(..1_000),
            reasoning: self.rng.u64(..100),
            cache_new: self.rng.u64(..100),
            cache_read: self.rng.u64(..100),
            cost_micro: self.rng.bool().then(|| self.rng.u64(..1_000)),
            unreliable: self.rng.u32(..20) == 0,
        }
    }

    fn answer(&mut self, request: &Request) -> Result<Answer, ModelError> {
        let usage = self.usage();
        if self.rng.u32(..10) == 0 {
            let kind = if self.rng.bool() { ModelFail::Unavailable } else { ModelFail::InvalidRequest };
            return Err(ModelError { usage: Some(usage), ..ModelError::new(kind, "thrown") });
        }
        let wanted = self.rng.u32(..4).min(self.tasks_left);
        if answers(request) > 2 || wanted == 0 {
            return Ok(costing(text("done"), usage));
        }
        self.tasks_left -= wanted;
        let tasks: Vec<_> = (0..wanted).map(|_| task("work", self.rng.bool())).collect();
        Ok(costing(calls(tasks), usage))
    }
}

async fn random_tree(seed: u64) {
    let journal = journal();
    let random_model = RandomModel { rng: fastrand::Rng::with_seed(seed), reported: Usage::default(), tasks_left: 30 };
    let random_model = Arc::new(Mutex::new(random_model));
    let shared = Arc::clone(&random_model);
    let answering = model(move |request| {
        let (answer, ms) = {
            let mut random_model = shared.lock().unwrap();
            (random_model.answer(&request), random_model.rng.u64(..100))
        };
        let shared = Arc::clone(&shared);
        async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            // A call that was dropped because its run closed has an unknown cost.
            let received = answer.as_ref().map_or_else(|error| error.usage, |answer| Some(answer.usage));
            shared.lock().unwrap().reported.add(&received.expect("each says what it cost"));
            answer
        }
    });
    let limits = Limits { live_runs: 2, ..Limits::default() };
    let runtime = builder(&journal).limits(limits).model(answering).start().await.expect("the runtime starts");
    let (session, _) = sent(&runtime, "work").await;
    session.run_ended(RunNo(1)).await.expect("the run ends");
    // Persons continue some sessions, as runs without an owner.
    for (id, _) in journal.heads().expect("heads") {
        if random_model.lock().unwrap().rng.u32(..4) == 0 {
            let session = runtime.session(id).expect("a store").expect("a session");
            let receipt = session.send("continue").await.expect("accepted");
            session.run_ended(receipt.run).await.expect("the run ends");
        }
    }
    let reported = random_model.lock().unwrap().reported;
    let view = session.usage().await.expect("a view");
    assert!(
        view.tree.unreliable || !reported.unreliable,
        "seed {seed}: an unknown part did not make the sum unreliable"
    );
    let reported = Usage { unreliable: view.tree.unreliable, ..reported };
    assert_eq!(view.tree, reported, "seed {seed}: the tree is not the sum of all attempts");
    let all = journal.heads().expect("heads").into_iter().map(|(id, _)| id);
    let views: Vec<UsageView> = all.map(|id| UsageView::read(&journal, id, |_| None).expect("a view")).collect();
    // A gap in another session does not make this session's own sum unreliable.
    let owns = Usage { unreliable: reported.unreliable, ..sum(views.iter().map(|view| view.own)) };
    assert_eq!(owns, reported, "seed {seed}: an attempt is in no session's own sum");
    for view in views {
        let both = sum([view.own, view.owned]);
        assert!(both.tokens() <= view.tree.tokens(), "seed {seed}: {view:?}");
    }
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn random_trees_count_every_attempt_once() {
    for seed in 0..60 {
        random_tree(seed).await;
    }
}

/// Prices were set after a session was used: its earlier cost is unknown, and the sum must be marked as incomplete.
#[tokio::test(start_paused = true)]
async fn sum_with_calls_before_their_price_was_set_is_marked() {
    let free = Usage { cost_micro: None, ..cost(10) };
    let prices = Arc::new(AtomicBool::new(false));
    let priced = Arc::clone(&prices);
    let runtime = builder(&journal())
        .model(model(move |_| {
            let usage = if priced.load(Ordering::Relaxed) { cost(1_000) } else { free };
            async move { Ok(costing(text("done"), usage)) }
        }))
        .start()
        .await
        .expect("the runtime starts");
    let session = open(&runtime);
    for (wording, owns) in [
        ("before", free),
        ("priced", Usage { unreliable: true, ..sum([free, cost(1_000)]) }),
        ("priced again", Usage { unreliable: true, ..sum([free, cost(1_000), cost(1_000)]) }),
    ] {
        let run = session.send(wording).await.expect("accepted").run;
        session.run_ended(run).await.expect("the run ends");
        let view = session.usage().await.expect("a view");
        assert_eq!((view.own, view.tree), (owns, owns), "{wording}");
        prices.store(true, Ordering::Relaxed);
    }
    // Another session with prices for all calls is not marked.
    let other = open(&runtime);
    let run = other.send("priced").await.expect("accepted").run;
    other.run_ended(run).await.expect("the run ends");
    assert_eq!(other.usage().await.expect("a view").own, cost(1_000));
    shut(runtime).await;
}
