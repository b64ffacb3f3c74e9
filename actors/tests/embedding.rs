//! The API for embedders: models by value, prompts, event streams, default tools.

use crate::support::*;
use futures_util::{FutureExt as _, Stream, StreamExt};
use subtend_actors::{AboveSlots, Environment, PromptError};
use subtend_models::scripted::{Scripted, Step};
use subtend_session::message::ToolSpec;
use subtend_tools::closure::fn_tool;
use subtend_tools::policy::HostPolicy;

fn hello() -> Scripted {
    Scripted::builder("hello").rule("*", [Step::text("Hello, {prompt}")]).build().expect("a script")
}

#[tokio::test(start_paused = true)]
async fn builder_takes_a_model_or_a_shared_one() {
    let shared: Arc<dyn Model> = Arc::new(hello());
    for builder in [
        Runtime::builder().model(hello()),
        Runtime::builder().model(Arc::new(hello())),
        Runtime::builder().model(Arc::clone(&shared)),
        Runtime::builder().named_model("hello", hello()).default_model("hello"),
        Runtime::builder().named_model("hello", shared).default_model("hello"),
    ] {
        let runtime = builder.start().await.expect("a runtime");
        assert_eq!(&*runtime.prompt("general", "you").await.expect("an answer"), "Hello, you");
        shut(runtime).await;
    }
}

/// A limit above the slots would not take effect, so it is refused; a default value is accepted.
#[tokio::test(start_paused = true)]
async fn a11_limits_above_the_slots_are_typed_errors() {
    let options = |slots| Options { slots, ..Options::default() };
    let live = |live_runs| Limits { live_runs, ..Limits::default() };
    let start = async |slots, limits: Limits| {
        Runtime::builder().model(hello()).options(options(slots)).limits(limits).start().await
    };
    let Err(StartError::AboveSlots(above)) = start(256, live(1000)).await else {
        panic!("a limit without effect was accepted")
    };
    assert_eq!(above, AboveSlots { name: "live_runs", value: 1000, slots: 256 });
    let says = "the limit `live_runs` of 1000 is above the host's `slots`, 256. Lower it, or raise `Options::slots`";
    assert_eq!(above.to_string(), says);
    let persons = Limits { live_person_runs: 300, ..Limits::default() };
    assert!(matches!(
        start(256, persons).await,
        Err(StartError::AboveSlots(AboveSlots { name: "live_person_runs", .. }))
    ));
    shut(start(1000, live(1000)).await.expect("a runtime")).await;
    let runtime = start(2, Limits::default()).await.expect("a runtime");
    let above = OpenOptions { limits: Some(live(4)), ..OpenOptions::agent("general") };
    let Err(OpenSessionError::AboveSlots(above)) = runtime.open(above) else {
        panic!("a limit without effect was accepted")
    };
    assert_eq!(above, AboveSlots { name: "live_runs", value: 4, slots: 2 });
    let environment = Environment::default().model(hello()).limits(live(4));
    let building = Runtime::builder().model(hello()).options(options(2)).environments(move |_| Ok(environment.clone()));
    let loading = building.start().await.expect("a runtime");
    let elsewhere = OpenOptions { workspace: Some("elsewhere".into()), ..OpenOptions::agent("general") };
    let refused = loading.open(elsewhere).expect_err("a limit without effect was accepted").to_string();
    assert!(refused.contains("the limit `live_runs` of 4 is above the host's `slots`, 2"), "{refused}");
    shut(runtime).await;
    shut(loading).await;
}

#[tokio::test(start_paused = true)]
async fn prompt_returns_the_answer_or_its_error() {
    let journal = journal();
    let answer = |request: Request| async move {
        match &*request.agent {
            "worker" => Err(ModelError::new(ModelFail::Auth, "no key")),
            _ => Ok(text("An answer.")),
        }
    };
    let runtime = builder(&journal).model(model(answer)).start().await.expect("a runtime");
    assert_eq!(&*runtime.prompt("general", "A question.").await.expect("an answer"), "An answer.");
    let Err(PromptError::Ended { session, outcome, partial }) = runtime.prompt("worker", "A question.").await else {
        panic!("a failed run returned an answer");
    };
    assert_eq!(
        (&outcome, partial),
        (&Outcome::Failed { kind: FailKind::Model { error: ModelFail::Auth, message: "no key".into() } }, None)
    );
    let error = PromptError::Ended { session, outcome, partial: None };
    let says = format!(
        "the run of session {session} did not complete: it failed: the model's key is missing or refused (\"no key\")"
    );
    assert_eq!(error.to_string(), says);
    let unknown = runtime.prompt("generel", "A question.").await;
    assert!(matches!(unknown, Err(PromptError::Open(_))), "{unknown:?}");
    shut(runtime).await;
}

async fn kinds<T>(stream: impl Stream<Item = T>, what: impl Fn(T) -> EventKind) -> Vec<&'static str> {
    let mut stream = std::pin::pin!(stream);
    let mut kinds = Vec::new();
    while let Some(item) = stream.next().await {
        if let EventKind::Record { record, .. } = what(item) {
            kinds.push(record.kind());
        }
        if kinds.last() == Some(&"run_ended") {
            break;
        }
    }
    kinds
}

#[tokio::test(start_paused = true)]
async fn events_and_activity_are_streams() {
    let journal = journal();
    let runtime = builder(&journal).model(hello()).start().await.expect("a runtime");
    let session = crate::support::open(&runtime);
    let (watched, activity) = (session.watch(), session.activity());
    let live = |next| match next {
        Next::Event(event) => event.what,
        Next::Missed(missed) => panic!("{missed} events are missed"),
    };
    let seen = |seen| match seen {
        subtend_actors::activity::ActivityItem::Event(nested) => nested.event.what,
        subtend_actors::activity::ActivityItem::Missed(missed) => panic!("{missed} events are missed"),
    };
    let events = session.events(Seq(1));
    let read = tokio::spawn(async move {
        let followed = kinds(events, |event| event.expect("an event").what);
        tokio::join!(followed, kinds(watched, live), kinds(activity, seen))
    });
    session.send("you").await.expect("accepted");
    let (followed, watched, activity) = read.await.expect("joined");
    assert_eq!(followed, crate::support::kinds(&journal, session.id()).await);
    // The live stream starts after the first record.
    assert!(watched.len() >= 7 && followed.ends_with(&watched) && watched == activity, "{watched:?} {activity:?}");
    // A poll without an item leaves the reader unchanged.
    let mut late = session.watch();
    assert!(StreamExt::next(&mut late).now_or_never().is_none());
    assert!(late.try_next().is_none());
    session.send("again").await.expect("accepted");
    assert_eq!(kinds(late, live).await.first(), Some(&"input_accepted"));
    let mut closed = session.watch();
    shut(runtime).await;
    assert!(StreamExt::next(&mut closed).await.is_none(), "the stream did not end with its runtime");
}

#[tokio::test(start_paused = true)]
async fn events_begin_with_the_creation_when_opened_watched() {
    let journal = journal();
    let runtime = builder(&journal).model(hello()).start().await.expect("a runtime");
    let (session, watched) = runtime.open_watched("general").expect("a session");
    // Events of another session are not included.
    crate::support::open(&runtime).send("aside").await.expect("accepted");
    session.send("you").await.expect("accepted");
    let seen = kinds(watched, |next| match next {
        Next::Event(event) => event.what,
        Next::Missed(missed) => panic!("{missed} events are missed"),
    });
    assert_eq!(seen.await, crate::support::kinds(&journal, session.id()).await);
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn tool_of_the_host_is_offered_unless_denied() {
    let deny = Rule { action: "tool:lookup".into(), resource: "*".into(), verdict: Verdict::Deny };
    let mut denying = HostPolicy::default_for_workspace();
    denying.rules.push(deny);
    for (policy, expected) in [(HostPolicy::default_for_workspace(), "true"), (denying, "false")] {
        let names = fn_model("names", |request, _| async move {
            Ok(Answer::of_text(request.tools.iter().any(|tool| &*tool.name == "lookup").to_string()))
        });
        let schema = Arc::new(json!({"type": "object"}));
        let spec = ToolSpec { name: "lookup".into(), description: "Looks.".into(), schema };
        let lookup = fn_tool(spec, ToolEffect::ReadOnly, |_| async { Ok(ToolOutput::text("seen")) });
        let tools = Registry::builder().tool(lookup).expect("a tool").build();
        let runtime = Runtime::builder().policy(policy).tools(tools).model(names).start().await.expect("a runtime");
        assert_eq!(&*runtime.prompt("general", "What is offered?").await.expect("an answer"), expected);
        shut(runtime).await;
    }
}
