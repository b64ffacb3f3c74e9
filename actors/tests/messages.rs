//! Messages between running relatives (X16).

use crate::support::*;
use subtend_actors::transcript::{Entry, TranscriptReading};
use subtend_session::record::From;
use subtend_tools::message;

/// A runtime whose agents may write to each other.
async fn writing<F, Fut>(journal: &Journal, rules: Vec<Rule>, answer: F) -> Runtime
where
    F: Fn(Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer, ModelError>> + Send + 'static,
{
    let tools = Registry::builder().tool(message::tool()).expect("one tool").build();
    let builder = builder(journal).policy(RuleSet { default: Verdict::Allow, rules }).tools(tools);
    builder.model(model(answer)).start().await.expect("a runtime")
}

fn to(to: &str, text: &str) -> (&'static str, Value) {
    ("message", json!({"to": to, "text": text}))
}

fn users(request: &Request) -> Vec<String> {
    let texts = request.messages.iter().filter_map(|message| match message {
        Message::User { text, .. } => Some(text.to_string()),
        _ => None,
    });
    texts.collect()
}

/// Returns the first id that an error lists, other than the parent.
fn listed(error: &str) -> String {
    let names = error.split("running: ").nth(1).unwrap_or_default();
    let ids = names.split(", ").filter_map(|name| name.split_once(" (").map(|(id, _)| id.to_owned()));
    ids.into_iter().next().unwrap_or_default()
}

/// Splits a framed message into its sender and its text.
fn framed(text: &str) -> Option<(String, String)> {
    let (about, rest) = text.strip_prefix("[message from ")?.split_once("]\n")?;
    let lines: Vec<&str> = rest.lines().collect();
    let relation = about.split_once("), ")?.1.split_once('.')?.0;
    Some((relation.to_owned(), lines.get(1)?.to_string()))
}

/// Plays a parent with two tasks: `waits` reads its messages, `writes` sends to its sibling and to its parent.
async fn family(request: Request) -> Result<Answer, ModelError> {
    let texts = users(&request);
    match (prompt(&request).as_str(), answers(&request)) {
        ("parent", 0) => Ok(calls([task("waits", true), task("writes", true)])),
        ("parent", _) => {
            Ok(text(&format!("parent: {:?}", texts.iter().filter_map(|text| framed(text)).collect::<Vec<_>>())))
        }
        ("waits", 0) => {
            seconds(60).await;
            Ok(text("nothing came"))
        }
        ("waits", _) => Ok(text(&format!("waits: {:?}", framed(&texts[1])))),
        ("writes", 0) => Ok(calls([to("stranger", "hello")])),
        ("writes", 1) => Ok(calls([to(&listed(&results(&request)[0]), "read it there"), to("parent", "found it")])),
        _ => Ok(text(&results(&request).join("\n"))),
    }
}

#[tokio::test(start_paused = true)]
async fn x16_running_relatives_exchange_messages() {
    let journal = journal();
    let runtime = writing(&journal, Vec::new(), family).await;
    let (session, ended) = ask(&runtime, "parent").await;
    assert_eq!(ended.text.as_deref(), Some("parent: [(\"an agent that you started\", \"found it\")]"));
    let tree = session.tree().await.expect("a tree");
    let mut texts = Vec::new();
    for child in &tree.children {
        for record in records(&journal, child.id).await {
            if let Record::RunEnded(ended) = record {
                texts.push(ended.text.map(|text| text.to_string()).unwrap_or_default());
            }
        }
    }
    texts.sort();
    let [writes, waits] = &*texts else { panic!("{texts:?}") };
    assert_eq!(waits, "waits: Some((\"another agent that your parent started\", \"read it there\"))");
    let lines: Vec<&str> = writes.lines().collect();
    assert!(lines[0].starts_with("unknown receiver `stranger`; running: `parent`, "), "{writes}");
    assert!(lines[1].ends_with("it reads the text before its next turn, if it has one."), "{writes}");
    assert!(lines[2].starts_with("Delivered to ") && lines[2].contains("(worker)"), "{writes}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn x16_transcripts_name_both_sides_of_a_message() {
    let runtime = writing(&journal(), Vec::new(), family).await;
    let (session, _) = ask(&runtime, "parent").await;
    let (mut receivers, mut senders) = (Vec::new(), Vec::new());
    let tree = session.tree().await.expect("a tree");
    let children: Vec<_> = tree.children.iter().map(|child| child.id).collect();
    for id in children.iter().chain([&session.id()]) {
        let handle = runtime.session(*id).expect("readable").expect("a session");
        for shown in handle.transcript(TranscriptReading::default()).await.expect("a transcript").entries {
            match shown.entry {
                Entry::Input { relative: true, from: From::Model { session, .. }, .. } => senders.push((session, *id)),
                Entry::Answer { calls, .. } => {
                    receivers
                        .extend(calls.iter().filter(|call| *call.tool == *"message").map(|call| (*id, call.receiver)));
                }
                _ => {}
            }
        }
    }
    let [waits, writes] = &*children else { panic!("{children:?}") };
    // The first message went to an unknown agent, so it was not delivered.
    assert_eq!(receivers, [(*writes, None), (*writes, Some(*waits)), (*writes, Some(session.id()))]);
    assert_eq!(senders, [(*writes, *waits), (*writes, session.id())]);
    shut(runtime).await;
}

/// Returns the results of a child's calls, and whether the child was offered the tool.
async fn child<const N: usize>(rules: Vec<Rule>, sent: [(&'static str, Value); N]) -> (Vec<String>, bool) {
    let answer = move |request: Request| {
        let sent = sent.clone();
        async move {
            Ok(match (prompt(&request).as_str(), answers(&request)) {
                ("parent", 0) => calls([task("child", false)]),
                ("child", 0) => calls(sent),
                ("child", _) => text(
                    &json!([results(&request), offered(&request).iter().any(|name| name == "message")]).to_string(),
                ),
                _ => text(&results(&request).join("\n")),
            })
        }
    };
    let runtime = writing(&journal(), rules, answer).await;
    let (_, ended) = ask(&runtime, "parent").await;
    shut(runtime).await;
    let message = ended.text.expect("an answer");
    let json =
        message.get(message.find('[').unwrap_or_default()..=message.rfind(']').unwrap_or_default()).unwrap_or_default();
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {message}"))
}

fn rule(resource: &str, verdict: Verdict) -> Rule {
    Rule::parse("tool:message", Some(resource), verdict).expect("a rule")
}

#[tokio::test(start_paused = true)]
async fn x16_rules_apply_to_receivers() {
    let rules = vec![rule("*", Verdict::Deny), rule("parent", Verdict::Allow)];
    let (got, offered) = child(rules, [to("parent", "found it"), to("a3f9c1", "read it there")]).await;
    assert!(got[0].starts_with("Delivered to "), "{got:?}");
    assert!(got[1].contains("tool:message") || got[1].contains("not allowed"), "{got:?}");
    assert!(offered);
    let (got, offered) = child(vec![rule("*", Verdict::Deny)], [to("parent", "a"), to("x", "b")]).await;
    assert!(!offered && got.iter().all(|got| !got.starts_with("Delivered")), "{got:?}");
}

/// Starts a runtime whose child writes to its parent by the parent's full id.
async fn writing_by_id(rules: Vec<Rule>) -> Runtime {
    let journal = journal();
    let read = journal.clone();
    let answer = move |request: Request| {
        let parent = read.head(request.session).ok().flatten().and_then(|head| head.parent);
        async move {
            Ok(match (prompt(&request).as_str(), answers(&request)) {
                ("parent", 0) => calls([task("child", false)]),
                ("child", 0) => calls([to(&parent.expect("a parent").to_string(), "found it")]),
                _ => text(&results(&request).join("\n")),
            })
        }
    };
    writing(&journal, rules, answer).await
}

/// The control: rules that allow the parent by its name allow it by its id.
#[tokio::test(start_paused = true)]
async fn x16_rules_for_the_parent_hold_for_its_id() {
    for (verdict, expected) in [
        (Verdict::Deny, "did not get the message: your rules deny it by another of its names"),
        (Verdict::Ask, "your rules require approval by another of its names. Write to `parent`"),
        (Verdict::Allow, "Delivered to "),
    ] {
        let runtime = writing_by_id(vec![rule("*", Verdict::Allow), rule("parent", verdict)]).await;
        let (_, ended) = ask(&runtime, "parent").await;
        shut(runtime).await;
        let got = ended.text.expect("an answer");
        assert!(got.contains(expected), "{verdict:?}: {got}");
    }
}

#[tokio::test(start_paused = true)]
async fn x16_approved_message_is_delivered_by_a_full_id() {
    for (answer, delivered) in [(AskVerdict::Allow, true), (AskVerdict::Deny, false)] {
        let runtime = writing_by_id(vec![rule("*", Verdict::Ask)]).await;
        let mut approver = runtime.approver();
        let approve = async {
            let approval = approver.next().await;
            approver.answer(&approval, answer).await.expect("the call waits");
        };
        let ((_, ended), ()) = tokio::join!(ask(&runtime, "parent"), approve);
        drop(approver);
        shut(runtime).await;
        let got = ended.text.expect("an answer");
        assert_eq!(got.contains("Delivered to "), delivered, "{got}");
    }
}

#[tokio::test(start_paused = true)]
async fn x16_message_is_bounded() {
    let long = "x".repeat(message::MAX_BYTES + 1);
    let escaped = "\u{1b}".repeat(message::MAX_BYTES / "<U+001B>".len());
    let over = format!("{escaped}x");
    let texts = [to("parent", &long), to("parent", " "), to("parent", &over), to("parent", &escaped)];
    let (got, _) = child(Vec::new(), texts).await;
    assert_eq!(got[0], "the text has 16385 bytes; the limit is 16384: put the rest into a file and name it");
    assert!(got[1].contains("text"), "{got:?}");
    let expected = "the text has 16385 bytes with its invisible characters written out; the limit is 16384: put the rest \
                    into a file and name it";
    assert_eq!(got[2], expected);
    assert!(got[3].starts_with("Delivered to "), "{got:?}");
}

#[tokio::test(start_paused = true)]
async fn x16_ended_relatives_get_no_message() {
    let journal = journal();
    let answer = |request: Request| async move {
        Ok(match (prompt(&request).as_str(), answers(&request)) {
            ("parent", 0) => calls([task("child", true)]),
            ("parent", 1) => calls([to("stranger", "hello")]),
            ("parent", 2) => text("waiting"),
            ("parent", 3) => calls([to(&listed(&results(&request)[1]), "late")]),
            ("parent", _) => text(&results(&request)[1..].join("\n")),
            _ => {
                seconds(60).await;
                text("done")
            }
        })
    };
    let runtime = writing(&journal, Vec::new(), answer).await;
    let (session, ended) = ask(&runtime, "parent").await;
    let message = ended.text.expect("an answer");
    assert!(message.starts_with("unknown receiver `stranger`; running: "), "{message}");
    assert!(
        message.ends_with("(worker) did not get the message: message does not fit: the receiver is not running"),
        "{message}"
    );
    let child = session.tree().await.expect("a tree").children[0].id;
    let inputs = records(&journal, child).await.into_iter().filter(|record| matches!(record, Record::InputAccepted(_)));
    assert_eq!(inputs.count(), 1, "{message}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn x16_message_is_off_by_default() {
    let journal = journal();
    let mut catalog = Catalog::builtin();
    catalog.insert(Manifest::new("worker", AgentMode::All, "You are a worker."));
    let answer = |request: Request| async move { Ok(text(&offered(&request).join(" "))) };
    let runtime = builder(&journal).catalog(catalog).model(model(answer)).start().await.expect("a runtime");
    let (_, ended) = ask(&runtime, "go").await;
    let message: Arc<str> = ended.text.expect("an answer");
    assert!(message.split(' ').all(|name| name != "message"), "{message}");
    shut(runtime).await;
}
