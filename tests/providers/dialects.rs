//! The real model writes the calls of each dialect. Its wording is not checked.
//! Three dialects run over one protocol and two over another, to save time.

use serde_json::{Value, json};

use super::call::User;
use super::chat_message::{MessagePart, messages_of, refused};
use super::llm::{Llm, llm};
use super::protocol::Protocol;
use super::provider_run::{ProviderRun, RunOutput};
use super::relay::{Exchange, Relay};
use super::stored_session::{StoredSession, stored_sessions};

/// A word of the root's first message that no other session's request contains.
const ROOT: &str = "Kestrel";

/// A tool that the model must call, and a function from the results so far to the arguments.
type ScriptedCall = (&'static str, fn(&[String]) -> Value);

fn free_text() -> Value {
    json!({"type": "string", "minLength": 3, "maxLength": 30})
}

fn constant(value: impl Into<Value>) -> Value {
    json!({"type": "string", "enum": [value.into()]})
}

fn object_schema(properties: Value) -> Value {
    let names: Vec<String> = properties.as_object().expect("properties").keys().cloned().collect();
    json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false})
}

fn results(protocol: Protocol, body: &Value) -> Vec<String> {
    let messages = messages_of(protocol, body);
    let parts = messages.iter().flat_map(|message| &message.parts);
    parts.filter_map(|part| if let MessagePart::Result(_, text) = part { Some(text.clone()) } else { None }).collect()
}

/// Makes the model answer this request with the call of `step`.
fn lead(protocol: Protocol, body: &mut Value, (tool, arguments): ScriptedCall) {
    let arguments = arguments(&results(protocol, body));
    let anthropic = protocol == Protocol::Anthropic;
    let name = |spec: &Value| spec[if anthropic { "name" } else { "/" }].as_str().map(str::to_owned);
    let named = |spec: &Value| name(spec).or_else(|| spec["function"]["name"].as_str().map(str::to_owned));
    let tools = body["tools"].as_array_mut().expect("tools");
    tools.retain(|spec| named(spec).as_deref() == Some(tool));
    let spec = tools.first_mut().unwrap_or_else(|| panic!("{tool} is not offered"));
    *(if anthropic { &mut spec["input_schema"] } else { &mut spec["function"]["parameters"] }) = arguments;
    body["tool_choice"] = if anthropic { json!({"type": "any"}) } else { json!("required") };
    // One call, with enough tokens for the white space that the model adds.
    body[stop(protocol)] = json!(["</tool_call>"]);
    body["max_tokens"] = json!(160);
    let prefill = json!({"role": "assistant", "content": "<tool_call>\n"});
    body["messages"].as_array_mut().expect("messages").push(prefill);
}

/// Ends the last answer, which has no calls, at its first full stop or comma.
fn answer(protocol: Protocol, body: &mut Value) {
    body.as_object_mut().expect("a body").remove("tools");
    body[stop(protocol)] = json!([".", ","]);
    // The small model may repeat a result, so it gets enough tokens to avoid a truncated answer.
    body["max_tokens"] = json!(160);
}

fn stop(protocol: Protocol) -> &'static str {
    if protocol == Protocol::Anthropic { "stop_sequences" } else { "stop" }
}

struct DialectConversation {
    stored: Vec<StoredSession>,
    root: Vec<Exchange>,
    output: RunOutput,
}

impl DialectConversation {
    /// Returns the results of the root's calls in its last request.
    fn results(&self, protocol: Protocol) -> Vec<String> {
        results(protocol, &self.root.last().expect("a request").sent)
    }

    /// Returns the child, with its first record and the parent's record of it.
    fn child(&self) -> (&StoredSession, &Value, &Value) {
        assert_eq!(self.stored.len(), 2, "{:#?}", self.output);
        (&self.stored[1], self.stored[1].of("session_created")[0], self.stored[0].of("child_spawned")[0])
    }
}

/// Runs one conversation: the root makes the calls of `steps`, one a turn, the child those of `below`; both answer.
fn converse(
    llm: &Llm,
    protocol: Protocol,
    dialect: &str,
    steps: &'static [ScriptedCall],
    below: &'static [ScriptedCall],
) -> DialectConversation {
    let user = User::new();
    let dialects = ["task", "spawn", "spawn_task", "minion", "subagent"];
    let keys = dialects.map(|name| format!("  {name}: {{enabled: {}}}\n", name == dialect));
    user.file("subtend.yaml", &format!("tools:\n{}", keys.concat()));
    let agent = |mode: &str, prompt: &str| {
        format!("---\nmode: {mode}\ndescription: One of two.\ntemperature: 0\noutput_tokens: 24\n---\n{prompt}\n")
    };
    user.file(".subtend/agents/lead.md", &agent("primary", "You lead."));
    user.file(".subtend/agents/scout.md", &agent("subagent", "You scout."));
    let real = llm.origin();
    let relay = Relay::start(move |_, body| {
        let turn = messages_of(protocol, body)
            .iter()
            .filter(|message| message.role == super::chat_message::Role::Model)
            .count();
        let steps = if body.to_string().contains(ROOT) { steps } else { below };
        match steps.get(turn) {
            Some(step) => lead(protocol, body, *step),
            None => answer(protocol, body),
        }
        real.to_owned()
    });
    let talk = ProviderRun { agent: "lead", model: "smollm2", ..ProviderRun::new(protocol, relay.origin()) };
    let output = talk.run(&user, &format!("{ROOT}: delegate the search, and report."));
    let seen = relay.seen();
    for exchange in &seen {
        let messages = messages_of(protocol, &exchange.sent);
        assert_eq!(refused(protocol, &messages), [""; 0], "{protocol:?}: {:#}", exchange.sent);
        assert!(exchange.status.contains(" 200 "), "{protocol:?}: {exchange:#?}");
    }
    let root = seen.into_iter().filter(|exchange| exchange.sent.to_string().contains(ROOT)).collect();
    let stored = stored_sessions(&user);
    // A model this small may ramble until the limit.
    for end in stored.iter().flat_map(|stored| stored.of("run_ended")) {
        let fine = [json!("completed"), json!({"failed": {"kind": "truncated"}})].contains(&end["outcome"]);
        assert!(fine, "{protocol:?}: {end:#}");
    }
    DialectConversation { stored, root, output }
}

/// Returns `well` or `ill`, the dialect's words for how the child's run ended.
fn ended<'a>(conversation: &DialectConversation, well: &'a str, ill: &'a str) -> &'a str {
    let (child, ..) = conversation.child();
    let end = child.of("run_ended");
    assert_eq!(end.len(), 1, "{:#?}", conversation.output);
    if end[0]["outcome"] == "completed" { well } else { ill }
}

fn calls(conversation: &DialectConversation) -> Vec<(String, Value)> {
    let answers = conversation.stored[0].of("turn_answered");
    let all = answers.clone().into_iter().flat_map(|answer| answer["calls"].as_array().cloned().unwrap_or_default());
    let call = |call: Value| {
        let args = call["args"].as_str().expect("arguments");
        let args = serde_json::from_str(args).unwrap_or_else(|_| panic!("no JSON: {answers:#?}"));
        (call["tool"].as_str().expect("a tool").to_owned(), args)
    };
    all.map(call).collect()
}

fn names(conversation: &DialectConversation) -> Vec<String> {
    calls(conversation).into_iter().map(|(tool, _)| tool).collect()
}

fn prompt(child: &StoredSession) -> &str {
    child.of("input_accepted")[0]["text"].as_str().expect("a text")
}

#[test]
fn real_model_starts_jobs_by_spawn_and_awaits_them() {
    const STEPS: &[ScriptedCall] = &[
        ("spawn", |_| object_schema(json!({"task": free_text()}))),
        ("spawn_await", |_| object_schema(json!({"job_ids": constant("*")}))),
    ];
    let (llm, protocol) = (llm(), Protocol::Chat);
    let conversation = converse(&llm, protocol, "spawn", STEPS, &[]);
    assert_eq!(names(&conversation), ["spawn", "spawn_await"], "{protocol:?}");
    let (child, created, spawned) = conversation.child();
    assert_eq!((&spawned["dialect"], &spawned["mode"]), (&json!("spawn"), &json!("background")), "{protocol:?}");
    assert_eq!(created["joins"], true, "{protocol:?}");
    assert!(prompt(child).contains(calls(&conversation)[0].1["task"].as_str().expect("a task")), "{protocol:?}");
    let output = conversation.results(protocol);
    assert_eq!(output[0], child.short, "{protocol:?}");
    let marker = format!("[{}: {}]\n", child.short, ended(&conversation, "OK", "ERROR"));
    assert!(output[1].starts_with(&marker), "{protocol:?}: {output:?}");
    let taken = &conversation.stored[0].of("notice_taken")[0]["carrier"];
    assert!(taken["await"].is_object(), "{protocol:?}: {taken}");
}

#[test]
fn real_model_starts_a_task_by_spawn_task_and_checks_it() {
    const STEPS: &[ScriptedCall] = &[
        ("spawn_task", |_| {
            object_schema(json!({"type": constant("scout"), "prompt": free_text(), "description": free_text()}))
        }),
        ("check_task", |output| {
            let started: Value = serde_json::from_str(&output[0]).expect("an object");
            object_schema(json!({"taskId": constant(started["taskId"].clone())}))
        }),
    ];
    let (llm, protocol) = (llm(), Protocol::Anthropic);
    let conversation = converse(&llm, protocol, "spawn_task", STEPS, &[]);
    assert_eq!(names(&conversation), ["spawn_task", "check_task"], "{protocol:?}");
    let (child, created, spawned) = conversation.child();
    assert_eq!((&created["agent"], &spawned["dialect"]), (&json!("scout"), &json!("spawn_task")), "{protocol:?}");
    let output = conversation.results(protocol);
    let id = format!("task_{}", child.id.replace('-', ""));
    assert_eq!(serde_json::from_str::<Value>(&output[0]).ok(), Some(json!({"taskId": id, "status": "pending"})));
    let answer = child.of("run_ended")[0]["text"].as_str().unwrap_or_default();
    match ended(&conversation, "result", "failed") {
        "result" => assert_eq!(output[1], answer, "{protocol:?}"),
        _ => assert!(output[1].starts_with(&format!("Task {id} failed: ")), "{protocol:?}: {output:?}"),
    }
}

#[test]
fn real_model_starts_a_minion_that_returns() {
    const STEPS: &[ScriptedCall] = &[("minion", |_| {
        object_schema(json!({
            "message": free_text(),
            "enableWeb": {"type": "boolean", "enum": [false]},
            "enabledTools": {"type": "array", "items": constant("read"), "maxItems": 1},
        }))
    })];
    const CHILD_STEPS: &[ScriptedCall] = &[("return", |_| object_schema(json!({"result": free_text()})))];
    let (llm, protocol) = (llm(), Protocol::Chat);
    let conversation = converse(&llm, protocol, "minion", STEPS, CHILD_STEPS);
    assert_eq!(names(&conversation), ["minion"], "{protocol:?}");
    let (child, created, spawned) = conversation.child();
    assert_eq!((&created["returns"], &spawned["dialect"]), (&json!(true), &json!("minion")), "{protocol:?}");
    let end = child.of("run_ended")[0];
    assert_eq!(
        (&end["outcome"], end["returned"].is_string() || end["returned"].is_object()),
        (&json!("completed"), true)
    );
    let output: Value = serde_json::from_str(&conversation.results(protocol)[0]).expect("an object");
    let returned = &child.of("turn_answered")[0]["calls"][0]["args"];
    let returned: Value = serde_json::from_str(returned.as_str().expect("arguments")).expect("JSON");
    assert_eq!(
        output,
        json!({
            "minionChatId": child.short,
            "minionResponse": returned["result"],
            "minionUsedReturnTool": true,
            "activity": {"turns": 1},
        }),
        "{protocol:?}"
    );
}

#[test]
fn real_model_starts_a_subagent_and_receives_its_end() {
    const STEPS: &[ScriptedCall] =
        &[("subagent", |_| object_schema(json!({"task": free_text(), "agent": constant("scout")})))];
    let (llm, protocol) = (llm(), Protocol::Anthropic);
    let conversation = converse(&llm, protocol, "subagent", STEPS, &[]);
    assert_eq!(names(&conversation), ["subagent"], "{protocol:?}");
    let (child, created, spawned) = conversation.child();
    assert_eq!((&created["agent"], &spawned["dialect"]), (&json!("scout"), &json!("subagent")), "{protocol:?}");
    assert!(prompt(child).contains(calls(&conversation)[0].1["task"].as_str().expect("a task")), "{protocol:?}");
    let output = conversation.results(protocol);
    let started: Value = serde_json::from_str(&output[0]).expect("an object");
    let parts = |of: &Value| (of["success"].clone(), of["branchId"].clone(), of["status"].clone());
    assert_eq!(parts(&started), (json!(true), json!(child.short), json!("started")), "{protocol:?}: {output:?}");
    // The end of the child arrives in a separate message.
    let notice = output.last().expect("a notice");
    let end = notice.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{protocol:?}: {output:?}"));
    let end: Value = serde_json::from_str(end).expect("an object");
    let status = ended(&conversation, "complete", "error");
    assert_eq!(parts(&end), (json!(status == "complete"), json!(child.short), json!(status)), "{protocol:?}");
    assert_eq!(end["iterations"], child.of("run_ended")[0]["turns"], "{protocol:?}");
}

#[test]
fn real_model_gets_the_answer_of_a_task_as_its_result() {
    const STEPS: &[ScriptedCall] =
        &[("task", |_| object_schema(json!({"subagent_type": constant("scout"), "prompt": free_text()})))];
    let (llm, protocol) = (llm(), Protocol::Chat);
    let conversation = converse(&llm, protocol, "task", STEPS, &[]);
    assert_eq!(names(&conversation), ["task"], "{protocol:?}");
    let (child, created, spawned) = conversation.child();
    assert_eq!((&created["agent"], &spawned["mode"]), (&json!("scout"), &json!("blocking")), "{protocol:?}");
    assert!(spawned.get("dialect").is_none(), "the default dialect is recorded: {spawned}");
    assert_eq!(prompt(child), calls(&conversation)[0].1["prompt"], "{protocol:?}");
    let output = conversation.results(protocol);
    let answer = child.of("run_ended")[0]["text"].as_str().unwrap_or_default();
    match ended(&conversation, "output", "error") {
        "output" => assert_eq!(output[0], answer, "{protocol:?}"),
        _ => assert!(
            output[0].starts_with(&format!("Task {} (scout) failed: ", child.short)),
            "{protocol:?}: {output:?}"
        ),
    }
}
