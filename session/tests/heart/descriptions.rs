use crate::given::*;
use subtend_session::command::Description;
use subtend_session::ids::{Epoch, Text};
use subtend_session::index;
use subtend_session::record::{MetadataSet, SummarySet, TitleSet};

fn title(title: &str, by: Initiator, of: Option<SessionId>) -> Command {
    Command::Describe(Box::new(Description::Title(TitleSet { title: title.into(), by, of })))
}

fn summary(text: &str, of: SessionId) -> Command {
    let set = SummarySet { text: text.into(), upto: Seq(3), of };
    Command::Describe(Box::new(Description::Summary(set)))
}

/// Returns a running session with two services and a person's branch.
fn with_services() -> Heart {
    [(0xA1, BranchKind::Service), (0xA2, BranchKind::Service), (0xC1, BranchKind::Subagent)].into_iter().fold(
        Heart::root().then(send(1, "hello")),
        |heart, (child, kind)| {
            heart.then(Command::Branch(Box::new(BranchPlan {
                child: session(child),
                kind,
                at: None,
                created: created(Place::Root, Limits::default()),
                manifest: authority(),
                by: Initiator::Host,
                is_task: false,
            })))
        },
    )
}

fn shown_title(state: &State) -> Text {
    index::head(state, Epoch(1), 0, 0).title
}

fn records_of(heart: &mut Heart, command: Command) -> Vec<Record> {
    let decision = heart.decide(command).expect("decided");
    assert!(matches!(decision.reply, Reply::Done(_)), "{:?}", decision.reply);
    decision.records
}

#[test]
fn service_sets_the_title_once_if_missing() {
    let mut heart = with_services();
    assert_eq!(&*shown_title(&heart.state), "hello");
    let named = title("Fix it", Initiator::Host, Some(session(0xA1)));
    let set = TitleSet { title: "Fix it".into(), by: Initiator::Host, of: Some(session(0xA1)) };
    assert_eq!(records_of(&mut heart, named.clone()), [Record::TitleSet(Box::new(set))]);
    assert_eq!(&*shown_title(&heart.state), "Fix it");
    assert_eq!(records_of(&mut heart, named), []);
    assert_eq!(
        records_of(&mut heart, title("Other", Initiator::Host, Some(session(0xA2)))),
        [],
        "the session has a title"
    );
    assert_eq!(records_of(&mut heart, title("Mine", Initiator::Person, None)).len(), 1, "a person may change it");
    assert_eq!(records_of(&mut heart, title("Mine", Initiator::Person, None)), []);
    assert_eq!(&*shown_title(&heart.state), "Mine");
}

#[test]
fn each_service_sets_a_summary_once_and_the_last_is_kept() {
    let mut heart = with_services();
    let (first, second) = (summary("one", session(0xA1)), summary("two", session(0xA2)));
    let set = |text: &str, of| SummarySet { text: text.into(), upto: Seq(3), of: session(of) };
    assert_eq!(records_of(&mut heart, first.clone()), [Record::SummarySet(Box::new(set("one", 0xA1)))]);
    assert_eq!(records_of(&mut heart, second), [Record::SummarySet(Box::new(set("two", 0xA2)))]);
    assert_eq!(records_of(&mut heart, first), [], "repeated after another summary");
    assert_eq!(heart.state.summary.as_deref(), Some(&set("two", 0xA2)));
    assert_eq!(&*shown_title(&heart.state), "hello", "a summary is not a title");
}

#[test]
fn invalid_title_or_foreign_service_is_refused_with_reason() {
    let mut heart = with_services();
    let mut why = |command| match heart.decide(command) {
        Err(Rejection::BadInput(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(why(title(" ", Initiator::Person, None)), "the title is empty: describe the session");
    assert_eq!(why(title(&"x".repeat(201), Initiator::Person, None)), "the title has 201 characters, the limit is 200");
    assert_eq!(
        why(title("a\nb", Initiator::Person, None)),
        "the title is more than one line, or has control characters"
    );
    assert_eq!(why(summary("", session(0xA1))), "the summary has 0 bytes: it must have 1 to 32768");
    let person = "session 00000000-0000-0000-0000-0000000000c1 is not a service session of this session";
    assert_eq!(why(title("Fix it", Initiator::Host, Some(session(0xC1)))), person);
    assert_eq!(why(summary("done", session(0xC1))), person);
}

#[test]
fn titles_and_summaries_are_accepted_up_to_their_bounds() {
    let mut heart = with_services();
    assert_eq!(records_of(&mut heart, title(&"é".repeat(200), Initiator::Person, None)).len(), 1);
    assert_eq!(records_of(&mut heart, summary(&"x".repeat(32_768), session(0xA1))).len(), 1);
    let why = heart.decide(summary(&"x".repeat(32_769), session(0xA2))).expect_err("refused");
    let text = "the summary has 32769 bytes: it must have 1 to 32768";
    assert_eq!(why, Rejection::BadInput(text.into()));
}

fn merge(changes: &str) -> Command {
    Command::Describe(Box::new(Description::Metadata { changes: changes.into(), by: Initiator::Person }))
}

/// Each record has the whole metadata, so only the last record matters.
#[test]
fn b3_metadata_changes_are_merged_and_null_removes() {
    let mut heart = with_services();
    let set = |metadata: &str| {
        [Record::MetadataSet(Box::new(MetadataSet { metadata: metadata.into(), by: Initiator::Person }))]
    };
    assert_eq!(heart.state.metadata(), None);
    assert_eq!(records_of(&mut heart, merge(r#"{"a": {"x": 1}, "b": 1}"#)), set(r#"{"a":{"x":1},"b":1}"#));
    assert_eq!(records_of(&mut heart, merge(r#"{"b": 1}"#)), [], "nothing changes");
    assert_eq!(records_of(&mut heart, merge(r#"{"a": {"y": 2}, "b": null}"#)), set(r#"{"a":{"y":2}}"#));
    assert_eq!(records_of(&mut heart, merge(r#"{"gone": null}"#)), []);
    assert_eq!(heart.state.metadata().map(|text| &**text), Some(r#"{"a":{"y":2}}"#));
    for wrong in ["", "[]", "7", "{"] {
        let why = heart.decide(merge(wrong)).expect_err("refused");
        assert_eq!(why, Rejection::BadInput("metadata not merged: the changes are not a JSON object".into()));
    }
}

#[test]
fn records_that_no_decision_writes_do_not_fold() {
    let heart = with_services();
    let set = |by, of| Record::TitleSet(Box::new(TitleSet { title: "Fix it".into(), by, of }));
    let fold = |more: &[Record]| State::fold(heart.state.id, heart.log.iter().chain(more)).map(drop).is_ok();
    assert!(fold(&[set(Initiator::Host, Some(session(0xA1))), set(Initiator::Person, None)]));
    assert!(
        !fold(&[set(Initiator::Person, None), set(Initiator::Host, Some(session(0xA1)))]),
        "the session has a title"
    );
    assert!(!fold(&[set(Initiator::Host, Some(session(0xC1)))]), "not a service");
    let sum = |of| Record::SummarySet(Box::new(SummarySet { text: "done".into(), upto: Seq(3), of }));
    assert!(!fold(&[sum(session(0xA1)), sum(session(0xA1))]), "twice");
}
