use std::sync::Mutex;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use subtend_session::ids::{AttemptNo, CallId, Seq, TurnNo};
use subtend_session::message::Message;
use subtend_session::outcome::ModelFail;
use subtend_session::record::{Prompt, Stop, ToolCall};
use subtend_session::settings::Settings;
use subtend_session::usage::Usage;

use super::*;
use crate::model::Delta;

fn user(text: &str) -> Message {
    Message::User { seq: Seq(1), text: text.into() }
}

fn assistant(text: &str) -> Message {
    Message::Assistant { seq: Seq(2), text: Some(text.into()), reasoning: None, calls: Arc::new([]) }
}

fn result(text: &str) -> Message {
    Message::Result { call: CallId { turn: TurnNo(1), ix: 0 }, error: false, content: text.into() }
}

fn request(agent: &str, attempt: u32, messages: Vec<Message>) -> Request {
    Request {
        session: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
        agent: agent.into(),
        model: "scripted".into(),
        turn: TurnNo(4),
        attempt: AttemptNo(attempt),
        system: "".into(),
        messages: Arc::new(messages),
        prompt: Prompt::Plain,
        tools: Arc::new([]),
        settings: Settings::default(),
        format: None,
    }
}

fn script(steps: &Value) -> Scripted {
    json!({ "rules": [{ "agent": "*", "steps": steps }] }).to_string().parse().unwrap()
}

async fn ask(script: &Scripted, messages: Vec<Message>) -> Result<Answer, ModelError> {
    script.call(request("general", 1, messages), Deltas::none()).await
}

fn tool_call(id: &str, tool: &str, args: &str) -> ToolCall {
    ToolCall { provider_id: id.into(), tool: tool.into(), args: args.into() }
}

fn wrong(text: &str) -> String {
    text.parse::<Scripted>().map_or_else(|error| error.to_string(), |script| format!("accepted: {script:?}"))
}

#[tokio::test]
async fn nth_answer_takes_the_nth_step() {
    let script = script(&json!([{ "text": "one: {prompt}" }, { "text": "two: {last}, answer {n}" }]));
    let first = ask(&script, vec![user("hello")]).await;
    assert_eq!(first, Ok(Answer::of_text("one: hello")));
    let second = ask(&script, vec![user("hello"), assistant("one"), result("a result")]).await;
    assert_eq!(second, Ok(Answer::of_text("two: a result, answer 2")));
    let third = ask(&script, vec![user("hello"), assistant("one"), assistant("two")]).await;
    let says = "the script's rule for `*` has 2 steps, and this is answer 3: add a step, or mark the last with \"repeat\": true";
    assert_eq!(third, Err(ModelError::new(ModelFail::InvalidRequest, says)));
}

#[tokio::test]
async fn marked_last_step_repeats() {
    let script = script(&json!([{ "text": "one" }, { "text": "again {n}", "repeat": true }]));
    let many = vec![user("u"), assistant(""), assistant(""), assistant(""), assistant("")];
    assert_eq!(ask(&script, many).await, Ok(Answer::of_text("again 5")));
}

#[tokio::test]
async fn first_rule_for_the_agent_applies() {
    let script = Scripted::builder("s")
        .rule("explore", [Step::text("I explore")])
        .rule("general", [Step::text("I do anything")])
        .build()
        .unwrap();
    let of = |agent: &str| script.call(request(agent, 1, vec![user("u")]), Deltas::none());
    assert_eq!(of("explore").await, Ok(Answer::of_text("I explore")));
    assert_eq!(of("general").await, Ok(Answer::of_text("I do anything")));
    let says = "the script has no rule for agent `plan`: it has explore, general; add one, or one for \"*\"";
    assert_eq!(of("plan").await, Err(ModelError::new(ModelFail::InvalidRequest, says)));
}

#[tokio::test]
async fn first_step_whose_conditions_hold_is_taken() {
    let script = script(&json!([[
        { "when": { "attempt": 1 }, "error": { "kind": "rate", "message": "slow down", "retry_after_ms": 20 } },
        { "when": { "user_contains": "red", "result_contains": "r" }, "text": "user and result" },
        { "when": { "prompt_contains": "blue" }, "text": "prompt" },
        { "when": { "last_contains": "!" }, "text": "last" },
    ]]));
    let at = |attempt, messages| script.call(request("a", attempt, messages), Deltas::none());
    let rate = ModelError { retry_after_ms: Some(20), ..ModelError::new(ModelFail::Rate, "slow down") };
    assert_eq!(at(1, vec![user("red")]).await, Err(rate));
    assert_eq!(at(2, vec![user("blue"), user("red"), result("r")]).await, Ok(Answer::of_text("user and result")));
    assert_eq!(at(2, vec![user("blue"), user("red"), result("x")]).await, Ok(Answer::of_text("prompt")));
    assert_eq!(at(2, vec![user("red"), result("x!")]).await, Ok(Answer::of_text("last")));
    let says = "no `when` holds in step 1 of the script's rule for `*`: add an alternative without one";
    assert_eq!(at(2, vec![user("red")]).await, Err(ModelError::new(ModelFail::InvalidRequest, says)));
}

#[tokio::test]
async fn calls_keep_their_order_and_raw_arguments_their_text() {
    let script = script(&json!([{
        "text": "look",
        "calls": [
            { "tool": "read", "args": { "path": "{prompt}", "depth": 2 } },
            { "tool": "read", "args": "{\"path\": {prompt" },
            { "tool": "list" },
        ],
        "fan_out": { "n": 2, "agent": "explore", "background": true, "prompt": "part {n} of {prompt}" },
        "usage": { "in": 7, "out": 3, "cost_micro": 5 },
    }]));
    let answer = ask(&script, vec![user("a.md")]).await.unwrap();
    assert_eq!((answer.text.as_deref(), answer.stop), (Some("look"), Stop::Calls));
    assert_eq!(answer.usage, Usage { input: 7, output: 3, cost_micro: Some(5), ..Usage::default() });
    let task = |n| {
        json!({ "subagent_type": "explore", "prompt": format!("part {n} of a.md"), "background": true }).to_string()
    };
    assert_eq!(
        answer.calls,
        [
            tool_call("call_1_0", "read", &json!({ "path": "a.md", "depth": 2 }).to_string()),
            tool_call("call_1_1", "read", "{\"path\": {prompt"),
            tool_call("call_1_2", "list", "{}"),
            tool_call("call_1_3", "task", &task(1)),
            tool_call("call_1_4", "task", &task(2)),
        ]
    );
}

#[tokio::test]
async fn answer_faults_give_answers() {
    let at = async |step: Step| ask(&Scripted::builder("s").rule("*", [step]).build().unwrap(), vec![user("u")]).await;
    let bare = |text: Option<&str>, stop| Answer { text: text.map(Text::from), stop, ..Answer::of_text("") };
    assert_eq!(at(Step::empty()).await, Ok(bare(None, Stop::End)));
    assert_eq!(at(Step::truncated("half an")).await, Ok(bare(Some("half an"), Stop::Length)));
    assert_eq!(at(Step::refuse()).await, Ok(bare(None, Stop::Refused)));
    assert_eq!(at(Step::refuse().with_text("no")).await, Ok(bare(Some("no"), Stop::Refused)));
    assert_eq!(at(Step::text("odd").stop(Stop::Other)).await, Ok(bare(Some("odd"), Stop::Other)));
    let raw = at(Step::default().and_raw_call("read", "{")).await.map(|answer| answer.calls);
    assert_eq!(raw, Ok(vec![tool_call("call_1_0", "read", "{")]));
}

#[tokio::test]
async fn error_faults_report_their_usage() {
    let cost = Usage { input: 9, ..Usage::default() };
    let script = Scripted::builder("s").rule("*", [Step::garbage("<html>").usage(cost)]).build().unwrap();
    let expected = ModelError { usage: Some(cost), ..ModelError::new(ModelFail::BadAnswer, "<html>") };
    assert_eq!(ask(&script, vec![user("u")]).await, Err(expected));
}

#[tokio::test]
#[should_panic(expected = "wires crossed")]
async fn scripted_panic_panics() {
    let script = script(&json!([{ "panic": "wires crossed" }]));
    assert_eq!(ask(&script, vec![user("u")]).await, Ok(Answer::of_text("never")));
}

#[tokio::test(start_paused = true)]
async fn latency_passes_before_the_answer_and_before_each_piece() {
    let text = "word ".repeat(20);
    let script = script(&json!([{ "latency_ms": 1000, "chunk_ms": 10, "text": text }]));
    let before = tokio::time::Instant::now();
    assert_eq!(ask(&script, vec![user("u")]).await, Ok(Answer::of_text(text)));
    assert_eq!(before.elapsed(), Duration::from_millis(1030));
}

#[tokio::test(start_paused = true)]
async fn hang_streams_its_text_and_never_answers() {
    let script = script(&json!([{ "text": "let me see", "hang": true }]));
    let (deltas_received, deltas) = listener();
    let hung = tokio::time::timeout(Duration::from_secs(86_400), script.call(request("a", 1, vec![user("u")]), deltas));
    assert!(hung.await.is_err());
    assert_eq!(*deltas_received.lock().unwrap(), [Delta::Text("let me see".into())]);
}

fn listener() -> (Arc<Mutex<Vec<Delta>>>, Deltas) {
    let deltas_received = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&deltas_received);
    (deltas_received, Deltas::to(move |delta| sink.lock().unwrap().push(delta)))
}

/// A cancel is handled between the parts of a long text. The control: a short one takes no turn of others.
#[tokio::test]
async fn long_text_lets_other_tasks_run() {
    let polls = async |bytes: usize| {
        let script = Scripted::builder("s").rule("*", [Step::text("x".repeat(bytes))]).build().unwrap();
        let (deltas_received, deltas) = listener();
        let mut call = script.call(request("a", 1, vec![user("u")]), deltas);
        let mut after_polls = Vec::new();
        std::future::poll_fn(|context| {
            let done = call.as_mut().poll(context).map(|answer| drop(answer.unwrap()));
            after_polls.push(deltas_received.lock().unwrap().len());
            done
        })
        .await;
        after_polls
    };
    assert_eq!(polls(48 * 2_500).await, [1_024, 2_048, 2_500]);
    assert_eq!(polls(48 * 1_024).await, [1_024]);
}

#[tokio::test]
async fn pieces_add_up_to_the_text_before_the_calls() {
    let text = "Größe ".repeat(40) + &"x".repeat(100);
    let step = Step::text(text.clone()).and_call("read", json!({})).reasoning("hm");
    let script = Scripted::builder("s").rule("*", [step]).build().unwrap();
    let (deltas_received, deltas) = listener();
    script.call(request("a", 1, vec![user("u")]), deltas).await.unwrap();
    let deltas_received = deltas_received.lock().unwrap();
    let pieces: Vec<&str> = deltas_received
        .iter()
        .filter_map(|delta| if let Delta::Text(text) = delta { Some(&**text) } else { None })
        .collect();
    assert_eq!(pieces.concat(), text);
    assert!(pieces.len() > 5 && pieces.iter().all(|piece| piece.len() <= 48), "{pieces:?}");
    assert_eq!(deltas_received.first(), Some(&Delta::Reasoning("hm".into())));
    let call = Delta::Call { call: CallId { turn: TurnNo(4), ix: 0 }, tool: "read".into() };
    assert_eq!(deltas_received.last(), Some(&call));
}

#[tokio::test]
async fn transcript_is_dropped_before_a_slow_answer() {
    let script = script(&json!([{ "hang": true }]));
    let request = request("a", 1, vec![user("u")]);
    let messages = Arc::clone(&request.messages);
    let _call = script.call(request, Deltas::none());
    assert_eq!(Arc::strong_count(&messages), 1);
}

#[test]
fn script_errors_name_place_line_and_field() {
    for (text, says) in [
        ("{", "script: EOF while parsing an object at line 1 column 1"),
        ("{}", "script: missing field `rules` at line 1 column 2"),
        (
            "{\n\"rules\": [],\n\"speed\": 3}",
            "speed: unknown field `speed`, expected one of `name`, `leaves_process`, `context_window`, `rules` at line 3 column 7",
        ),
        (
            "{\"rules\": [{\"agent\": \"*\", \"steps\": [\n{\"latency_ms\": \"5\"}]}]}",
            "rules[0].steps[0].latency_ms: invalid type: string \"5\", expected u64 at line 2 column 18",
        ),
        (
            "{\"rules\": [{\"agent\": \"*\", \"steps\": [\n{}]}]}",
            "rules[0].steps[0]: the step is empty. Give it `text`, `reasoning`, `calls`, `fan_out` or a fault (`error`, `hang`, \
             `panic`, `garbage`, `truncated`, `empty`, `refuse`) at line 2 column 2",
        ),
        ("{\"rules\": []} x", "script: trailing characters at line 1 column 15"),
    ] {
        assert_eq!(wrong(text), says);
    }
}

#[test]
fn contradictory_steps_are_refused() {
    let step = |step: Value| wrong(&json!({ "rules": [{ "agent": "a", "steps": [step] }] }).to_string());
    for (value, says) in [
        (json!({ "hang": true, "empty": true }), "a step may have only one fault, but this one has `hang` and `empty`"),
        (json!({ "empty": true, "text": "x" }), "`text` has no effect with `empty`. Remove one of them"),
        (
            json!({ "panic": "p", "calls": [{ "tool": "t" }] }),
            "`calls` and `fan_out` have no effect with `panic`. Remove one of them",
        ),
        (json!({ "truncated": true, "stop": "end" }), "`stop` has no effect with `truncated`. Remove one of them"),
        (json!({ "fan_out": { "n": 0, "agent": "a", "prompt": "p" } }), "`fan_out.n` is 0; it must be 1 to 100000"),
        (
            json!(7),
            "invalid type: integer `7`, expected a step, or a list of steps, of which the first whose `when` holds is used",
        ),
        (json!({ "calls": [{ "tool": "t", "args": 1 }] }), "expected an object, or a string that is sent unchanged"),
        (json!({ "when": { "attempts": 1 }, "text": "x" }), "unknown field `attempts`"),
        (json!({ "error": { "kind": "down" } }), "unknown variant `down`"),
    ] {
        let got = step(value);
        assert!(got.contains(says) && got.contains("line 1") && got.starts_with("rules[0].steps[0]"), "{got}");
    }
}

#[test]
fn invalid_rules_are_refused() {
    let rules = |rules: Value| wrong(&json!({ "rules": rules }).to_string());
    let repeated = rules(json!([{ "agent": "a", "steps": [{ "text": "x", "repeat": true }, { "text": "y" }] }]));
    assert!(repeated.starts_with("rules[0]: `repeat` is allowed only in the last step"), "{repeated}");
    let stepless = rules(json!([{ "agent": "a", "steps": [] }]));
    assert!(stepless.starts_with("rules[0]: the rule for `a` has no steps"), "{stepless}");
    let nameless = rules(json!([{ "agent": "", "steps": [{ "text": "x" }] }]));
    assert!(nameless.starts_with("rules[0]: `agent` is empty"), "{nameless}");
    let built = Scripted::builder("s").rule("a", [Step::text("x"), Step::default()]).build();
    assert!(built.is_err_and(|error| error.to_string().starts_with("rules[0].steps[1]: the step is empty")));
}

#[test]
fn script_errors_name_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.json");
    std::fs::write(&path, "{\"rules\": 1}").unwrap();
    let says = Scripted::from_file(&path).map_or_else(|error| error.to_string(), |_| "accepted".into());
    let expected = "rules: invalid type: integer `1`, expected a sequence at line 1 column 11";
    assert_eq!(says, format!("the script {} is invalid: {expected}", path.display()));
    std::fs::write(&path, r#"{"name": "n", "leaves_process": true, "context_window": 9, "rules": []}"#).unwrap();
    let script = Scripted::from_file(&path).unwrap();
    assert_eq!((script.name(), script.leaves_process(), script.context_window()), ("n", true, Some(9)));
}

/// A pipe that takes the place of a file after a check would block the reader. The control: the file is accepted.
#[cfg(target_os = "linux")]
#[test]
fn script_is_checked_as_it_was_opened() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (path, pipe) = (at("script.json"), at("pipe"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::write(&path, r#"{"rules": []}"#).unwrap();
    let (done, finished) = std::sync::mpsc::channel();
    let script = path.clone();
    std::thread::spawn(move || {
        let read = || Scripted::from_file(&script).map_or_else(|error| error.to_string(), |_| "accepted".into());
        let mut outcomes: std::collections::BTreeSet<String> = (0..5_000).map(|_| read()).collect();
        while outcomes.len() < 2 {
            outcomes.insert(read());
        }
        done.send(outcomes)
    });
    let begun = tokio::time::Instant::now();
    let outcomes = loop {
        // Exchanges the names, so that there is always one of the two.
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, &path, rustix::fs::CWD, &pipe, flags).unwrap();
        match finished.recv_timeout(std::time::Duration::from_micros(10)) {
            Ok(outcomes) => break outcomes,
            Err(_) => assert!(begun.elapsed() < std::time::Duration::from_secs(60), "opening the pipe blocks"),
        }
    };
    let refused = "it is not a regular file. Copy the script into one";
    let refused = format!("the script {} cannot be read: {refused}", path.display());
    assert_eq!(outcomes, [refused, "accepted".to_owned()].into());
    let long = at("long.json");
    std::fs::File::create(&long).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
    let error = Scripted::from_file(&long).unwrap_err().to_string();
    assert_eq!(error, format!("the script {} cannot be read: it is larger than 16777216 bytes", long.display()));
}

/// Returns JSON that resembles a script: valid keys, and any values.
fn near_script() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "name",
        "rules",
        "agent",
        "steps",
        "when",
        "attempt",
        "text",
        "calls",
        "tool",
        "args",
        "fan_out",
        "n",
        "prompt",
        "error",
        "kind",
        "hang",
        "empty",
        "stop",
        "usage",
        "in",
        "repeat",
        "leaves_process",
        "zzz",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z*{}é]{0,6}".prop_map(Value::from),
        Just(json!("rate")),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn reading_never_panics_on_any_text(text in "\\PC{0,200}") {
        let _ = text.parse::<Scripted>();
    }

    #[test]
    fn reading_never_panics_on_nearly_a_script(value in near_script(), cut in 0_usize..400) {
        let text = value.to_string();
        let _ = text.parse::<Scripted>();
        let _ = text[..text.floor_char_boundary(cut.min(text.len()))].parse::<Scripted>();
        let _ = json!({ "rules": [{ "agent": "*", "steps": value }] }).to_string().parse::<Scripted>();
    }

    #[test]
    fn playing_random_texts_never_panics_and_pieces_add_up(text in "\\PC{1,300}", prompt in "\\PC{0,40}") {
        let script = script(&json!([{ "text": text }]));
        let (deltas_received, deltas) = listener();
        let call = script.call(request("a", 1, vec![user(&prompt)]), deltas);
        let answer = futures_util::FutureExt::now_or_never(call).unwrap().unwrap();
        let pieces: String = deltas_received.lock().unwrap().iter()
            .map(|delta| if let Delta::Text(text) = delta { text.to_string() } else { String::new() }).collect();
        prop_assert_eq!(Some(&*pieces), answer.text.as_deref());
    }
}
