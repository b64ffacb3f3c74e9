//! Services of the host write titles and summaries alongside a session's runs. Their cost counts only for the tree.

use crate::support::*;
use subtend_session::place::{Place, Service};
use subtend_session::record::{SummarySet, TitleSet};

mod logged;
mod summaries;

type ServicePrompts = Arc<Mutex<Vec<(String, String)>>>;

/// Returns a builder with titles and summaries. `answer` answers for `title` and `summary`; `worker` says "done", or hangs when asked to.
fn serving<F, Fut>(journal: &Journal, requests: &ServicePrompts, answer: F) -> Builder
where
    F: Fn(Request) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, ModelError>> + Send + 'static,
{
    let requests = Arc::clone(requests);
    let options = Options { seed: Some(7), titles: true, summaries: true, ..Options::default() };
    builder(journal).options(options).model(model(move |request| {
        requests.lock().unwrap().push((request.agent.to_string(), prompt(&request)));
        let answer = answer.clone();
        async move {
            match &*request.agent {
                "worker" if prompt(&request) == "forever" => hangs(request).await,
                "worker" => Ok(text("done")),
                _ => answer(request).await,
            }
        }
    }))
}

async fn good(request: Request) -> Result<Answer, ModelError> {
    let usage = Usage { input: 10, output: 2, ..Usage::default() };
    let reply = if &*request.agent == "title" { " \"Fix the login test.\"\n" } else { "## What changed\nIt works." };
    Ok(Answer { usage, ..text(reply) })
}

async fn hangs(_: Request) -> Result<Answer, ModelError> {
    std::future::pending().await
}

async fn say(session: &SessionHandle, text: &str) {
    let run = session.send(text).await.expect("accepted").run;
    let ended = session.run_ended(run).await.expect("the runtime is running");
    assert_eq!((ended.outcome, ended.text.as_deref()), (Outcome::Completed, Some("done")));
}

fn title(runtime: &Runtime, session: &SessionHandle) -> String {
    runtime.journal().head(session.id()).expect("readable").expect("the session exists").title.to_string()
}

fn children(runtime: &Runtime, session: &SessionHandle) -> Vec<SessionHandle> {
    let children = runtime.journal().children(session.id()).expect("children");
    children.into_iter().map(|child| runtime.session(child).expect("readable").expect("the session exists")).collect()
}

fn session_of(runtime: &Runtime, session: SessionId) -> SessionHandle {
    runtime.session(session).expect("readable").expect("the session exists")
}

fn others(runtime: &Runtime, session: &SessionHandle, known: &[SessionId]) -> Vec<SessionId> {
    children(runtime, session).iter().map(SessionHandle::id).filter(|child| !known.contains(child)).collect()
}

/// Returns the titles and summaries of a session, and the number of other records about its services.
async fn described(journal: &Journal, session: SessionId) -> (Vec<TitleSet>, Vec<SummarySet>, usize) {
    let (mut titles, mut summaries, mut notices) = (Vec::new(), Vec::new(), 0);
    for record in records(journal, session).await {
        match record {
            Record::TitleSet(set) => titles.push(*set),
            Record::SummarySet(set) => summaries.push(*set),
            Record::NoticeTaken(_) => notices += 1,
            _ => {}
        }
    }
    (titles, summaries, notices)
}

fn asked_of(requests: &ServicePrompts, agent: &str) -> Vec<String> {
    requests.lock().unwrap().iter().filter(|(of, _)| of == agent).map(|(_, prompt)| prompt.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn session_is_titled_once_by_the_first_message() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let runtime = serving(&journal, &requests, good).start().await.expect("a runtime");
    let session = open(&runtime);
    say(&session, "the login test fails\nplease check").await;
    session.services_done().await;
    assert_eq!(title(&runtime, &session), "Fix the login test");
    say(&session, "and now the next one").await;
    seconds(100).await;
    let given = "The first message of the conversation, indented:\n\n  the login test fails\n  please check\n";
    assert_eq!(asked_of(&requests, "title"), [given]);
    let [service] = &children(&runtime, &session)[..] else { panic!("one service") };
    let set = TitleSet { title: "Fix the login test".into(), by: Initiator::Host, of: Some(service.id()) };
    assert_eq!(described(&journal, session.id()).await, (vec![set], Vec::new(), 0));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn service_takes_no_slot_depth_or_listing_row() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let tools = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&tools);
    let runtime = serving(&journal, &requests, move |request| {
        let settings = &request.settings;
        seen.lock().unwrap().push((offered(&request), settings.temperature, settings.output_tokens));
        hangs(request)
    });
    let runtime = runtime.start().await.expect("a runtime");
    let session = open(&runtime);
    say(&session, "hello").await;
    seconds(1).await;
    assert_eq!(runtime.slots_in_use(), 0, "the running service holds a slot");
    let [service] = &children(&runtime, &session)[..] else { panic!("one service") };
    let of = records(&journal, service.id()).await;
    let [Record::SessionCreated(created), Record::InputAccepted(_), Record::RunOpened(opened), ..] = &of[..] else {
        panic!("{of:#?}")
    };
    let Place::Child { parent, kind, call, depth, .. } = &created.place else { panic!("{:?}", created.place) };
    assert_eq!((*parent, *kind, *call, *depth), (session.id(), BranchKind::Service, None, 0));
    assert_eq!((&*created.agent, created.inspectable, opened.slot), ("title", false, false));
    assert_eq!(opened.owner, Owner::Host(Service::Title));
    assert_eq!(
        *tools.lock().unwrap(),
        [(Vec::new(), Some(0.3), Some(80))],
        "expected no tools, a low temperature and a short answer"
    );
    shut_at_once(runtime).await;
}

/// Shuts down while a service hangs, without waiting for the service.
async fn shut_at_once(runtime: Runtime) {
    let before = Instant::now();
    let report = runtime.shutdown(Duration::from_secs(100)).await;
    assert_eq!((report.drained, report.actors, report.tasks), (true, 0, 0));
    assert!(before.elapsed() < Duration::from_secs(10), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn hanging_title_does_not_delay_runs_and_is_not_retried() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let runtime = serving(&journal, &requests, hangs).start().await.expect("a runtime");
    let session = open(&runtime);
    let before = Instant::now();
    say(&session, "hello").await;
    say(&session, "again").await;
    assert_eq!(before.elapsed(), Duration::ZERO);
    session.services_done().await;
    assert_eq!(before.elapsed().as_secs(), 15, "expected the service to end by its own limit");
    let [service] = &children(&runtime, &session)[..] else { panic!("one service") };
    let ended = outcome_of(&journal, service.id()).await;
    assert_eq!(ended, Some(Outcome::TimedOut { what: TimeLimit::WallCap }));
    say(&session, "once more").await;
    seconds(100).await;
    assert_eq!((asked_of(&requests, "title").len(), title(&runtime, &session)), (1, "hello".to_owned()));
    assert_eq!(described(&journal, session.id()).await, (Vec::new(), Vec::new(), 0));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn failed_or_unusable_title_leaves_the_session_untitled() {
    async fn fails(_: Request) -> Result<Answer, ModelError> {
        Err(ModelError::new(ModelFail::Auth, "no key"))
    }
    async fn chats(_: Request) -> Result<Answer, ModelError> {
        Ok(text("Sure! Here is one:\nHello"))
    }
    let (journal, requests) = (journal(), ServicePrompts::default());
    let runtime = serving(&journal, &requests, |request: Request| async {
        if prompt(&request).contains("fail") { fails(request).await } else { chats(request).await }
    });
    let runtime = runtime.start().await.expect("a runtime");
    for wording in ["fail at it", "chat about it"] {
        let session = open(&runtime);
        say(&session, wording).await;
        session.services_done().await;
        say(&session, "more").await;
        seconds(100).await;
        assert_eq!(title(&runtime, &session), wording);
        assert_eq!(described(&journal, session.id()).await, (Vec::new(), Vec::new(), 0), "{wording}");
    }
    assert_eq!(asked_of(&requests, "title").len(), 2, "a title was requested again");
    shut(runtime).await;
}

/// The provider refuses titles until the reset of its limit. The next message after the reset retries the title.
#[tokio::test(start_paused = true)]
async fn title_at_a_limit_is_retried_after_the_reset() {
    const LIMITED: Duration = Duration::from_secs(3_500);
    let (journal, requests, begun) = (journal(), ServicePrompts::default(), Instant::now());
    let runtime = serving(&journal, &requests, move |request| async move {
        if begun.elapsed() >= LIMITED {
            return good(request).await;
        }
        Err(ModelError { retry_after_ms: Some(3_600_000), ..ModelError::new(ModelFail::Rate, "the limit is reached") })
    });
    let runtime = runtime.start().await.expect("a runtime");
    let session = open(&runtime);
    say(&session, "the login test fails").await;
    session.services_done().await;
    assert_eq!((title(&runtime, &session), asked_of(&requests, "title").len()), ("the login test fails".into(), 1));
    seconds(3_600).await;
    assert_eq!(asked_of(&requests, "title").len(), 1, "a timer retried the title");
    say(&session, "and the next one").await;
    session.services_done().await;
    let prompts = asked_of(&requests, "title");
    assert_eq!((title(&runtime, &session), prompts.len()), ("Fix the login test".into(), 2));
    assert_eq!(prompts[0], prompts[1], "the title is written from another message");
    assert_eq!(described(&journal, session.id()).await.0.len(), 1);
    shut(runtime).await;
}

/// The provider names no reset of its limit: a title is retried after a minute, not with each message.
#[tokio::test(start_paused = true)]
async fn title_at_a_limit_without_a_reset_is_retried_later() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let runtime =
        serving(&journal, &requests, |_| async { Err(ModelError::new(ModelFail::Rate, "too many requests")) });
    let runtime = runtime.start().await.expect("a runtime");
    let session = open(&runtime);
    let mut services = Vec::new();
    for pause in [0, 0, 30, 60] {
        seconds(pause).await;
        say(&session, "the login test fails").await;
        session.services_done().await;
        services.push(children(&runtime, &session).len());
    }
    assert_eq!(services, [1, 1, 1, 2]);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn title_of_a_person_or_the_opening_is_kept() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let runtime = serving(&journal, &requests, |request: Request| async {
        seconds(5).await;
        good(request).await
    });
    let runtime = runtime.start().await.expect("a runtime");
    let options = OpenOptions { title: Some("Mine".into()), ..OpenOptions::agent("worker") };
    let opened = runtime.open(options).expect("a session");
    say(&opened, "hello").await;
    assert_eq!(asked_of(&requests, "title"), Vec::<String>::new(), "the agent was asked for a title");
    let named = open(&runtime);
    say(&named, "hello").await;
    named.set_title("Also mine").await.expect("set");
    named.services_done().await;
    assert_eq!(asked_of(&requests, "title").len(), 1, "expected the service that was already running");
    assert_eq!((title(&runtime, &opened), title(&runtime, &named)), ("Mine".into(), "Also mine".into()));
    let set = TitleSet { title: "Also mine".into(), by: Initiator::Person, of: None };
    assert_eq!(described(&journal, named.id()).await, (vec![set], Vec::new(), 0));
    // A title set by a person replaces any other.
    opened.set_title("Better").await.expect("set");
    assert_eq!(title(&runtime, &opened), "Better");
    let refused = opened.set_title("two\nlines").await;
    assert_eq!(
        refused,
        Err(ControlError::Refused("the title is more than one line, or has control characters".into()))
    );
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn end_of_a_session_ends_its_services() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let runtime = serving(&journal, &requests, hangs).start().await.expect("a runtime");
    let (cancelled, _) = sent(&runtime, "forever").await;
    seconds(1).await;
    cancelled.cancel().await.expect("cancelled");
    let (closed, deleted) = (open(&runtime), open(&runtime));
    let before = Instant::now();
    for session in [&closed, &deleted] {
        say(session, "hello").await;
        seconds(1).await;
    }
    closed.close().await.expect("closed");
    assert_eq!(deleted.delete(false).await, Ok(2), "a session with only a service could not be deleted");
    for session in [&cancelled, &deleted] {
        session.services_done().await;
        for service in children(&runtime, session) {
            let ended = outcome_of(&journal, service.id()).await;
            assert!(matches!(ended, None | Some(Outcome::Cancelled { .. })), "{ended:?}");
        }
    }
    let [service, _] = &children(&runtime, &closed)[..] else { panic!("a title and a summary") };
    assert_eq!(outcome_of(&journal, service.id()).await, Some(Outcome::Cancelled { by: Initiator::Host }));
    assert!(before.elapsed() < Duration::from_secs(10), "{:?}", before.elapsed());
    assert_eq!(closed.delete(true).await, Ok(3));
    closed.services_done().await;
    assert_eq!(journal.inflight().expect("inflight"), []);
    shut(runtime).await;
}

/// A close starts a service while the deletion runs, on two threads so that neither waits for the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_session_is_deleted_while_its_service_starts() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let runtime = serving(&journal, &requests, |request| async move {
        if &*request.agent == "title" { good(request).await } else { hangs(request).await }
    });
    let runtime = runtime.start().await.expect("a runtime");
    for (steps, force) in (0..20).flat_map(|steps| [(steps, false), (steps, true)]) {
        let session = open(&runtime);
        say(&session, "hello").await;
        session.services_done().await;
        session.close().await.expect("closed");
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        let deleted = session.delete(force).await;
        assert!(matches!(deleted, Ok(2 | 3)), "after {steps} steps: {deleted:?}");
        session.services_done().await;
        journal.settled().await.expect("the journal is open");
        let mut all = children(&runtime, &session);
        all.push(session);
        for one in all {
            assert!(
                journal.head(one.id()).expect("readable").expect("the session exists").deleted,
                "after {steps} steps"
            );
        }
        assert_eq!(journal.inflight().expect("inflight"), []);
    }
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn foreign_message_to_a_service_sets_no_title_or_summary() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let answer = |request: Request| async move {
        seconds(5).await;
        good(request).await
    };
    let armed = Arc::new(AtomicBool::new(false));
    let strikes = Arc::clone(&armed);
    let faults = Faults::new(move |point, detail| {
        if (point, detail) == (Point::AfterAppend, "branch_created") && strikes.swap(false, Ordering::Relaxed) {
            panic!("injected fault at the creation of a service");
        }
    });
    let runtime = serving(&journal, &requests, answer).faults(faults).start().await.expect("a runtime");
    let session = open(&runtime);
    say(&session, "hello").await;
    session.services_done().await;
    let [title] = &children(&runtime, &session)[..] else { panic!("a title") };
    let refused = |service: SessionId| {
        Err(ControlError::Refused(format!(
            "cannot summarise the session: its session {service} got another input before its answer"
        )))
    };

    // A foreign message arrives while the service's run is in flight.
    let late = tokio::spawn({
        let session = session.clone();
        async move { session.summarise().await }
    });
    seconds(2).await;
    let [first] = others(&runtime, &session, &[title.id()])[..] else { panic!("a summary") };
    session_of(&runtime, first).send("late").await.expect("accepted");
    assert_eq!(late.await.expect("no panic"), refused(first));

    // The service session restarts before its own message is sent, so the message joins the person's run.
    armed.store(true, Ordering::Relaxed);
    let (summary, early) = tokio::join!(session.summarise(), async {
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if let [service] = others(&runtime, &session, &[title.id(), first])[..] {
                session_of(&runtime, service).send("early").await.expect("accepted");
                return service;
            }
        }
        panic!("no service was created");
    });
    let opened = records(&journal, early).await.into_iter().find_map(|record| match record {
        Record::RunOpened(opened) => Some(opened.owner),
        _ => None,
    });
    assert_eq!((summary, opened), (refused(early), Some(Owner::Person)));
    assert_eq!(described(&journal, session.id()).await.1, []);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn cost_of_services_counts_only_for_the_tree() {
    let (journal, requests) = (journal(), ServicePrompts::default());
    let runtime = serving(&journal, &requests, good).start().await.expect("a runtime");
    let session = open(&runtime);
    say(&session, "hello").await;
    session.services_done().await;
    let usage = session.usage().await.expect("readable");
    let sums = |usage: Usage| (usage.input, usage.output);
    assert_eq!((sums(usage.own), sums(usage.owned), sums(usage.tree)), ((0, 0), (0, 0), (10, 2)));
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn restart_ends_a_service_as_lost_without_a_notice() {
    let (memory, requests) = (Memory::new(), ServicePrompts::default());
    let journal = reopen(&memory);
    let runtime = serving(&journal, &requests, hangs).start().await.expect("a runtime");
    let session = open(&runtime);
    say(&session, "hello").await;
    seconds(1).await;
    let id = session.id();
    drop((session, runtime, journal));

    let journal = reopen(&memory);
    let runtime = serving(&journal, &requests, good).start().await.expect("a runtime");
    let boot = runtime.boot();
    assert_eq!((boot.swept, boot.notices, &*boot.failures), (1, 0, &[][..]));
    let session = runtime.session(id).expect("readable").expect("the session exists");
    let [service] = &children(&runtime, &session)[..] else { panic!("one service") };
    assert_eq!(outcome_of(&journal, service.id()).await, Some(Outcome::Lost));
    say(&session, "again").await;
    seconds(10).await;
    assert_eq!((asked_of(&requests, "title").len(), title(&runtime, &session)), (1, "hello".to_owned()));
    assert_eq!(described(&journal, id).await, (Vec::new(), Vec::new(), 0));
    shut(runtime).await;
}
