//! Tools that are added and removed: a model call waits for the first list, and the next call has the changed list.

use std::sync::atomic::AtomicU64;

use crate::support::*;
use futures_util::FutureExt as _;
use subtend_tools::registry::LiveTools;
use subtend_tools::tool::Tool;

/// A source whose list is known after `late`; [`LateTools::next`] changes it to a later list.
struct LateTools {
    late: Option<Duration>,
    settled: AtomicBool,
    generation: AtomicU64,
}

impl LateTools {
    fn after(late: Option<Duration>) -> Arc<Self> {
        Arc::new(Self { late, settled: AtomicBool::new(false), generation: AtomicU64::new(0) })
    }

    fn next(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

struct LateHandle(Arc<LateTools>);

impl LiveTools for LateHandle {
    fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    fn tools(&self) -> Registry {
        if !self.0.settled.load(Ordering::Acquire) {
            return Registry::default();
        }
        let name = if self.generation() < 2 { "early" } else { "later" };
        let source = Arc::clone(&self.0);
        tools([tool(name, ToolEffect::ReadOnly, move |_| {
            source.next();
            async { Ok(ToolOutput::text("came")) }
        })])
    }

    fn find_unlisted(&self, _: &str) -> Option<Arc<dyn Tool>> {
        None
    }

    fn settle(&self) -> Option<BoxFuture<'static, ()>> {
        if self.0.settled.load(Ordering::Acquire) {
            return None;
        }
        let source = Arc::clone(&self.0);
        Some(
            async move {
                match source.late {
                    Some(late) => tokio::time::sleep(late).await,
                    None => std::future::pending().await,
                }
                if !source.settled.swap(true, Ordering::AcqRel) {
                    source.next();
                }
            }
            .boxed(),
        )
    }
}

type Offers = Arc<Mutex<Vec<Vec<String>>>>;

/// Starts a runtime whose model calls the first tool of its list, and then answers.
async fn runtime(source: &Arc<LateTools>, journal: &subtend_journal::Journal) -> (Runtime, Offers) {
    let offers = Offers::default();
    let saw = Arc::clone(&offers);
    let answer = move |request: Request| {
        let names: Vec<_> = offered(&request).into_iter().filter(|name| name == "early" || name == "later").collect();
        saw.lock().expect("no panic").push(names.clone());
        async move { answered(&request, names.first().is_some_and(|name| name == "early")) }
    };
    let registry = Registry::builder().live(Arc::new(LateHandle(Arc::clone(source)))).build();
    let runtime = builder(journal).tools(registry).model(model(answer)).start().await.expect("a runtime");
    (runtime, offers)
}

fn answered(request: &Request, early: bool) -> Result<Answer, ModelError> {
    Ok(match answers(request) {
        0 if early => calls([("early", json!({}))]),
        _ => text(&results(request).join(" ")),
    })
}

#[tokio::test(start_paused = true)]
async fn model_call_waits_for_tools_and_the_next_has_the_changed_list() {
    let (journal, source) = (journal(), LateTools::after(Some(Duration::from_secs(5))));
    let (runtime, offers) = runtime(&source, &journal).await;
    let begun = Instant::now();
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!((ended.outcome, begun.elapsed().as_secs()), (Outcome::Completed, 5));
    assert_eq!(ended.text.as_deref(), Some("came"));
    assert_eq!(*offers.lock().expect("no panic"), [["early"], ["later"]]);
    shut(runtime).await;
}

/// A source that shows each session a tool of its own.
struct OwnTools(Option<SessionId>);

impl LiveTools for OwnTools {
    fn generation(&self) -> u64 {
        1
    }

    fn tools(&self) -> Registry {
        let names = self.0.iter().map(|session| format!("of-{session}")).chain(["shared".to_owned()]);
        tools(names.map(|name| tool(&name, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("came")) })))
    }

    fn of_session(&self, session: SessionId) -> Option<Arc<dyn LiveTools>> {
        Some(Arc::new(Self(Some(session))))
    }

    fn find_unlisted(&self, _: &str) -> Option<Arc<dyn Tool>> {
        None
    }

    fn settle(&self) -> Option<BoxFuture<'static, ()>> {
        None
    }
}

/// Sessions of one agent share their offer otherwise. The control: the tool that all sessions see.
#[tokio::test(start_paused = true)]
async fn tools_of_a_session_are_offered_and_called_in_no_other() {
    let journal = journal();
    let offers = Offers::default();
    let saw = Arc::clone(&offers);
    let answer = move |request: Request| {
        let mut saw = saw.lock().expect("no panic");
        saw.push(offered(&request).into_iter().filter(|name| name.starts_with("of-") || name == "shared").collect());
        // The second session calls the tool of the first one.
        let first: &'static str = saw[0][0].clone().leak();
        async move {
            Ok(match answers(&request) {
                0 => calls([(first, json!({})), ("shared", json!({}))]),
                _ => text(&results(&request).join(" ")),
            })
        }
    };
    let registry = Registry::builder().live(Arc::new(OwnTools(None))).build();
    let runtime = builder(&journal).tools(registry).model(model(answer)).start().await.expect("a runtime");
    let (one, first) = ask(&runtime, "go").await;
    let (other, second) = ask(&runtime, "go").await;
    let own = |session: &SessionHandle| vec![format!("of-{}", session.id()), "shared".to_owned()];
    assert_eq!(*offers.lock().expect("no panic"), [own(&one), own(&one), own(&other), own(&other)]);
    assert_eq!(first.text.as_deref(), Some("came came"));
    let second = second.text.unwrap_or_default().to_string();
    assert!(
        second.starts_with(&format!("no tool is named `of-{}`.", one.id())) && second.ends_with(" came"),
        "{second}"
    );
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_the_wait_for_tools_at_once() {
    let (journal, source) = (journal(), LateTools::after(None));
    let (runtime, offers) = runtime(&source, &journal).await;
    let (session, receipt) = sent(&runtime, "go").await;
    seconds(2).await;
    let begun = Instant::now();
    assert_eq!(session.cancel().await, Ok(Control::Done(receipt.run)));
    let ended = session.run_ended(receipt.run).await.expect("the runtime is running");
    assert_eq!((ended.outcome, begun.elapsed().as_secs()), (Outcome::Cancelled { by: Initiator::Person }, 0));
    assert!(offers.lock().expect("no panic").is_empty(), "a model was called");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn wait_for_tools_ends_with_the_limit_of_the_turn() {
    let (journal, source) = (journal(), LateTools::after(None));
    let (runtime, offers) = runtime(&source, &journal).await;
    let (_, ended) = ask(&runtime, "go").await;
    assert_eq!(ended.outcome, Outcome::TimedOut { what: TimeLimit::Turn });
    assert!(offers.lock().expect("no panic").is_empty(), "a model was called");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_the_wait_for_tools() {
    let (journal, source) = (journal(), LateTools::after(None));
    let (runtime, _) = runtime(&source, &journal).await;
    let _sent = sent(&runtime, "go").await;
    seconds(2).await;
    let report = runtime.shutdown(Duration::from_secs(1)).await;
    assert_eq!((report.actors, report.tasks), (0, 0), "{report:?}");
}
