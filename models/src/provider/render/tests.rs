use std::sync::Arc;
use std::time::Duration;

use subtend_session::ids::{AttemptNo, CallId, Seq, SessionId, Text, TurnNo};
use subtend_session::record::{Prompt, ToolCall};
use subtend_session::settings::Settings;
use subtend_session::values::ValueCount;
use tokio::time::Instant;

use super::notice::{Form, TOOL};
use super::turns::{CALL_VALUES, Call, MESSAGE_VALUES, Outcome, Turn};
use super::*;
use crate::provider::target::Target;

fn user(text: &str) -> Message {
    Message::User { seq: Seq(1), text: text.into() }
}

fn notice(text: &str) -> Message {
    Message::Notice { seq: Seq(9), text: text.into() }
}

fn tool_call(id: &str, args: &str) -> ToolCall {
    ToolCall { provider_id: id.into(), tool: "read".into(), args: args.into() }
}

fn answer(text: Option<&str>, calls: &[ToolCall]) -> Message {
    reasoning_message(text, None, calls)
}

fn reasoning_message(text: Option<&str>, reasoning: Option<Text>, calls: &[ToolCall]) -> Message {
    Message::Assistant { seq: Seq(2), text: text.map(Text::from), reasoning, calls: calls.into() }
}

fn result(ix: u32, content: &str) -> Message {
    Message::Result { call: CallId { turn: TurnNo(1), ix }, error: false, content: content.into() }
}

fn text_turn(text: &str) -> Turn {
    Turn::User(vec![text.into()])
}

fn assistant_turn(text: Option<&str>, calls: &[Call]) -> Turn {
    Turn::Assistant { text: text.map(str::to_owned), kept: None, calls: calls.to_vec() }
}

fn call(id: &str, args: Value) -> Call {
    Call { id: id.into(), name: "read".into(), args }
}

fn outcome(id: &str, content: &str) -> Outcome {
    Outcome { id: id.into(), name: "read".into(), content: content.into(), error: false }
}

/// Returns the call and the result of a notice.
fn result_turn(id: &str, text: &str) -> (Call, Turn) {
    let call = Call { id: id.into(), name: TOOL.into(), args: json!({}) };
    let report = Outcome { id: id.into(), name: TOOL.into(), content: text.into(), error: false };
    (call, Turn::Results(vec![report]))
}

fn turns(messages: &[Message]) -> Vec<Turn> {
    turns::of(messages, Form::Call).unwrap().turns
}

#[test]
fn calls_keep_their_order_and_each_has_its_result() {
    let calls = [tool_call("a", "{\"n\":1}"), tool_call("b", "{}")];
    let messages = [
        user("go"),
        answer(Some("see"), &calls),
        result(0, "one"),
        result(1, "two"),
        answer(Some("done"), &[]),
        user("more"),
    ];
    assert_eq!(
        turns(&messages),
        [
            text_turn("go"),
            assistant_turn(Some("see"), &[call("a", json!({"n": 1})), call("b", json!({}))]),
            Turn::Results(vec![outcome("a", "one"), outcome("b", "two")]),
            assistant_turn(Some("done"), &[]),
            text_turn("more"),
        ]
    );
}

#[test]
fn call_ids_are_made_unique_and_valid() {
    let long = "x".repeat(65);
    let calls = ["", "", "call#read#0", "ok", "ok", &long, "call_1"].map(|id| tool_call(id, "{}"));
    let results: Vec<Message> = (0..7).map(|ix| result(ix, &format!("r{ix}"))).collect();
    let messages: Vec<Message> = [user("go"), answer(None, &calls)].into_iter().chain(results).collect();
    let turns = turns(&messages);
    let [_, Turn::Assistant { calls, .. }, Turn::Results(outcomes)] = turns.as_slice() else { panic!("{turns:?}") };
    let ids: Vec<&str> = calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["call_0", "call_1", "call_2", "ok", "call_4", "call_5", "call_6"]);
    let matched: Vec<(&str, &str)> = outcomes.iter().map(|of| (of.id.as_str(), of.content.as_str())).collect();
    assert_eq!(
        matched,
        ids.iter().zip(["r0", "r1", "r2", "r3", "r4", "r5", "r6"]).map(|(a, b)| (*a, b)).collect::<Vec<_>>()
    );
}

/// Maximum time of rendering in a test. A quadratic one takes at least twice as long.
const LINEAR: Duration = Duration::from_secs(3);

/// A server takes the ids that would be generated next. The control: without such ids.
#[test]
fn ids_taken_in_advance_do_not_slow_rendering() {
    const CALLS: usize = 8_900;
    let render = |taken: &dyn Fn(usize) -> String| {
        let ids = (0..2 * CALLS).map(|n| if n < CALLS { taken(n) } else { String::new() });
        let calls: Vec<ToolCall> = ids.map(|id| tool_call(&id, "{}")).collect();
        let begun = Instant::now();
        let turns = turns(&[user("go"), answer(None, &calls)]);
        let [_, Turn::Assistant { calls, .. }, _] = turns.as_slice() else { panic!("{}", turns.len()) };
        (calls.last().unwrap().id.clone(), begun.elapsed())
    };
    let (last, free) = render(&|n| format!("other_{n}"));
    assert_eq!(last, format!("call_{}", 2 * CALLS - 1));
    let (last, attacked) = render(&|n| format!("call_{}", CALLS + n));
    assert_eq!(last, format!("call_{}", 3 * CALLS - 1));
    assert!(free < LINEAR && attacked < LINEAR, "{attacked:?}, {free:?} without the attack");
}

/// Merging copied the earlier answers each time.
#[test]
fn many_consecutive_answers_are_merged_in_linear_time() {
    const ANSWERS: usize = 25_000;
    let part = "x".repeat(800);
    let merged = assistant_turn(Some(&vec![part.as_str(); ANSWERS].join("\n\n")), &[]);
    let messages: Vec<Message> = [user("go")].into_iter().chain(vec![answer(Some(&part), &[]); ANSWERS]).collect();
    let begun = Instant::now();
    assert_eq!(turns(&messages)[1], merged);
    assert!(begun.elapsed() < LINEAR, "{:?}", begun.elapsed());
}

#[test]
fn empty_content_is_replaced() {
    let messages = [
        user("go"),
        answer(Some(" \n"), &[tool_call("a", " ")]),
        result(0, "  "),
        user(" "),
        answer(Some(""), &[]),
        user("on"),
    ];
    assert_eq!(
        turns(&messages),
        [
            text_turn("go"),
            assistant_turn(None, &[call("a", json!({}))]),
            Turn::Results(vec![outcome("a", "(empty)")]),
            text_turn("on")
        ]
    );
    assert_eq!(turns(&[]), [text_turn("(empty)")]);
}

#[test]
fn arguments_that_are_not_an_object_are_wrapped() {
    let calls = [tool_call("a", "{\"n\":"), tool_call("b", "[1]"), tool_call("c", "\"x\"")];
    let turns = turns(&[user("go"), answer(None, &calls)]);
    let Some(Turn::Assistant { calls, .. }) = turns.get(1) else { panic!("{turns:?}") };
    let args: Vec<&Value> = calls.iter().map(|call| &call.args).collect();
    let expected = [json!({"unparsed": "{\"n\":"}), json!({"unparsed": "[1]"}), json!({"unparsed": "\"x\""})];
    assert_eq!(args, expected.iter().collect::<Vec<_>>());
}

#[test]
fn unmatched_calls_get_a_result_and_unmatched_results_remain() {
    let lost = Outcome { error: true, ..outcome("b", "(there is no result)") };
    let messages = [
        user("go"),
        answer(None, &[tool_call("a", "{}"), tool_call("b", "{}")]),
        result(0, "one"),
        result(0, "again"),
        user("x"),
    ];
    assert_eq!(
        turns(&messages),
        [
            text_turn("go"),
            assistant_turn(None, &[call("a", json!({})), call("b", json!({}))]),
            Turn::Results(vec![outcome("a", "one"), lost]),
            Turn::User(vec!["again".into(), "x".into()]),
        ]
    );
}

#[test]
fn invalid_tool_name_is_adapted() {
    assert_eq!(turns::tool_name("fs.read file"), "fs_read_file");
    assert_eq!(turns::tool_name(""), "unnamed");
    assert_eq!(turns::tool_name(&"é".repeat(80)).len(), 64);
}

#[test]
fn conversation_starts_and_ends_with_the_user() {
    assert_eq!(
        turns(&[answer(Some("hi"), &[])]),
        [text_turn("(The conversation continues.)"), assistant_turn(Some("hi"), &[]), text_turn("Continue.")]
    );
    let prompt = Message::Prompt { text: "Continue.".into() };
    assert_eq!(
        turns(&[user("a"), answer(Some("b"), &[]), prompt]),
        [text_turn("a"), assistant_turn(Some("b"), &[]), text_turn("Continue.")]
    );
    assert_eq!(
        turns(&[user("a"), answer(Some("b"), &[]), answer(Some("c"), &[]), user("d")]),
        [text_turn("a"), assistant_turn(Some("b\n\nc"), &[]), text_turn("d")]
    );
}

#[test]
fn notice_joins_the_previous_answer_as_a_call() {
    let (made_up, results) = result_turn("call_0", "a has ended");
    assert_eq!(
        turns(&[user("go"), answer(Some("started"), &[]), notice("a has ended")]),
        [text_turn("go"), assistant_turn(Some("started"), &[made_up]), results]
    );
}

#[test]
fn notice_after_results_or_user_is_a_separate_turn() {
    let (first, first_results) = result_turn("call_1", "one");
    let (second, second_results) = result_turn("call_2", "two");
    let messages = [user("go"), answer(None, &[tool_call("a", "{}")]), result(0, "r"), notice("one"), notice("two")];
    assert_eq!(
        turns(&messages),
        [
            text_turn("go"),
            assistant_turn(None, &[call("a", json!({}))]),
            Turn::Results(vec![outcome("a", "r")]),
            assistant_turn(None, &[first]),
            first_results,
            assistant_turn(None, &[second]),
            second_results,
        ]
    );
    let (only, results) = result_turn("call_0", "one");
    assert_eq!(turns(&[user("go"), notice("one")]), [text_turn("go"), assistant_turn(None, &[only]), results]);
    assert_eq!(turns(&[notice("one")]), [text_turn("one")]);
}

fn request(messages: Vec<Message>, tools: &[&str]) -> Request {
    let tool = |name: &&str| ToolSpec {
        name: (*name).into(),
        description: "d".into(),
        schema: Arc::new(json!({"type": "object"})),
    };
    Request {
        session: SessionId("0190aaaa-0000-7000-8000-000000000001".parse().unwrap()),
        agent: "general".into(),
        model: "m".into(),
        turn: TurnNo(1),
        attempt: AttemptNo(1),
        system: "s".into(),
        messages: Arc::new(messages),
        prompt: Prompt::Plain,
        tools: tools.iter().map(tool).collect::<Vec<_>>().into(),
        settings: Settings::default(),
        format: None,
    }
}

#[test]
fn notice_is_text_if_a_call_would_be_refused() {
    let kept = |kept: StoredReasoning| vec![user("go"), reasoning_message(Some("x"), kept.to_text(), &[])];
    let anthropic = kept(StoredReasoning::Anthropic {
        blocks: vec![json!({"type": "thinking", "thinking": "hm", "signature": "s"})],
    });
    let openai = kept(StoredReasoning::OpenAi { text: "hm".into() });
    let form =
        |protocol, messages: &[Message], tools: &[&str]| notice::form(protocol, &request(messages.to_vec(), tools));
    for protocol in Protocol::ALL {
        assert_eq!(form(protocol, &[user("go")], &[]), Form::Text, "{protocol} without tools");
        assert_eq!(form(protocol, &[user("go")], &["read"]), Form::Call, "{protocol} with tools");
        let thinks = if protocol == Protocol::Anthropic { Form::Text } else { Form::Call };
        assert_eq!(form(protocol, &anthropic, &["read"]), thinks, "{protocol} after Anthropic's thinking");
        let reasons = if protocol == Protocol::OpenAi { Form::Text } else { Form::Call };
        assert_eq!(form(protocol, &openai, &["read"]), reasons, "{protocol} after plain reasoning");
    }
    let thinking = Settings { effort: Some(Effort::High), ..Settings::default() };
    let request = Request { settings: thinking, ..request(vec![user("go")], &["read"]) };
    assert_eq!(notice::form(Protocol::Anthropic, &request), Form::Text);
}

fn client(protocol: Protocol, base_url: Option<&str>) -> Client {
    let target = Target::parse(&format!("{protocol}/m")).unwrap();
    let target = base_url.map_or(Ok(target.clone()), |url| target.with_base_url(url)).unwrap();
    Client::new(target, |_| Some("key".to_owned())).unwrap()
}

#[test]
fn reasoning_is_sent_back_only_to_its_own_protocol() {
    let block = json!({"type": "thinking", "thinking": "hmhm", "signature": "sign"});
    let of_each: [(Protocol, StoredReasoning, &[&str]); 4] = [
        (Protocol::Anthropic, StoredReasoning::Anthropic { blocks: vec![block] }, &["hmhm", "sign"]),
        (Protocol::OpenAi, StoredReasoning::OpenAi { text: "hmhm".into() }, &["\"reasoning_content\":\"hmhm\""]),
        (
            Protocol::OpenAiResponses,
            StoredReasoning::OpenAiResponses { encrypted: vec!["sealed".into()] },
            &["\"encrypted_content\":\"sealed\""],
        ),
        (
            Protocol::Gemini,
            StoredReasoning::Gemini { text: Some("of text".into()), calls: vec![None, Some("of call".into())] },
            &["of text", "of call"],
        ),
    ];
    for (own, kept, marks) in of_each {
        for protocol in Protocol::ALL {
            let calls = [tool_call("a", "{}"), tool_call("b", "{}")];
            let messages =
                vec![user("go"), reasoning_message(Some("x"), kept.to_text(), &calls), result(0, "r"), result(1, "r")];
            let body = body(&client(protocol, None), &request(messages, &["read"])).unwrap().to_string();
            for mark in marks {
                assert_eq!(body.contains(mark), protocol == own, "{own}'s reasoning for {protocol}: {body}");
            }
        }
    }
}

#[test]
fn caches_are_requested_only_from_the_provider_itself() {
    let marks = |protocol, base_url| {
        let body = body(&client(protocol, base_url), &request(vec![user("go")], &["read"])).unwrap().to_string();
        (body.contains("cache_control"), body.contains("prompt_cache_key"))
    };
    for protocol in Protocol::ALL {
        assert_eq!(marks(protocol, Some("http://127.0.0.1:1")), (false, false), "{protocol}");
    }
    assert_eq!(marks(Protocol::Anthropic, None), (true, false));
    assert_eq!(marks(Protocol::OpenAi, None), (false, true));
    assert_eq!(marks(Protocol::OpenAiResponses, None), (false, true));
}

#[test]
fn called_tools_are_listed_if_no_tools_are_offered() {
    let messages = vec![user("go"), answer(None, &[tool_call("a", "{}")]), result(0, "r")];
    let tools = |protocol, tools: &[&str]| {
        let body = body(&client(protocol, None), &request(messages.clone(), tools)).unwrap();
        (body["tools"].pointer("/0/name").cloned(), body.get("tool_choice").cloned())
    };
    let (read, list) = (Some(json!("read")), Some(json!("list")));
    assert_eq!(tools(Protocol::Anthropic, &[]), (read, Some(json!({"type": "none"}))));
    assert_eq!(tools(Protocol::Anthropic, &["list"]), (list, None));
    assert_eq!(tools(Protocol::OpenAi, &[]), (None, None));
}

/// Arguments become JSON values in a request, and a long conversation has many of them.
#[test]
fn arguments_above_the_request_limit_are_text() {
    let args = format!("{{\"a\":[{}0]}}", "{},".repeat(40_000));
    let messages: Vec<Message> = (0..8).flat_map(|_| [user("go"), answer(None, &[tool_call("a", &args)])]).collect();
    let is_text = |turn: Turn| match turn {
        Turn::Assistant { calls, .. } => Some(calls[0].args == json!({ "unparsed": args })),
        Turn::User(_) | Turn::Results(_) => None,
    };
    let wrapped: Vec<bool> = turns(&messages).into_iter().filter_map(is_text).collect();
    assert_eq!(wrapped, [false, false, false, false, false, false, true, true]);
}

/// Reasoning becomes JSON values too, and providers refuse thinking after a call whose thinking is left out. The control: the first answers.
#[test]
fn reasoning_above_the_request_limit_is_left_out() {
    let block = json!({"type": "redacted_thinking", "data": ""});
    let kept = StoredReasoning::Anthropic { blocks: vec![block; 15_000] };
    let conversation = |answers: usize| {
        let answer = || reasoning_message(None, kept.to_text(), &[tool_call("", "{}")]);
        let messages: Vec<Message> = (0..answers).flat_map(|_| [user("go"), answer()]).collect();
        turns::of(&messages, Form::Text).unwrap()
    };
    let is_kept = |turn: &Turn| match turn {
        Turn::Assistant { kept, .. } => Some(kept.is_some()),
        Turn::User(_) | Turn::Results(_) => None,
    };
    let kept_by_answer = |answers| conversation(answers).turns.iter().filter_map(is_kept).collect::<Vec<bool>>();
    assert_eq!(kept_by_answer(8), [true, true, true, true, true, true, false, false]);
    assert_eq!([5, 6, 7].map(|answers| conversation(answers).is_unsigned), [false, false, true]);
}

/// A copy of the parsed values would double the memory of a request, and `json!` copies. The control: a copy has another address.
#[test]
fn rendering_moves_arguments_and_reasoning() {
    let block = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    let kept = StoredReasoning::Anthropic { blocks: vec![block] };
    let messages = [user("go"), reasoning_message(None, kept.to_text(), &[tool_call("a", r#"{"a":["x"]}"#)])];
    let outgoing = Outgoing {
        model: "m",
        session: request(Vec::new(), &[]).session,
        is_official: true,
        system: None,
        tools: &[],
        settings: Settings::default(),
        format: None,
        thinks: false,
        is_unsigned: false,
    };
    let address = |value: Option<&Value>| value.and_then(Value::as_str).map(str::as_ptr);
    let rendered = |body: fn(&Outgoing<'_>, Vec<Turn>) -> Map<String, Value>, paths: [&str; 2]| {
        let turns = turns::of(&messages, Form::Text).unwrap().turns;
        let Some(Turn::Assistant { kept: Some(StoredReasoning::Anthropic { blocks }), calls, .. }) = turns.get(1)
        else {
            panic!("no answer: {turns:?}")
        };
        let (args, thinking) = (address(calls[0].args.pointer("/a/0")), address(blocks[0].get("thinking")));
        assert_ne!(address(calls[0].args.clone().pointer("/a/0")), args);
        let body = Value::Object(body(&outgoing, turns));
        let found = paths.map(|path| address(body.pointer(path)));
        assert!(found[0] == args && (paths[1].is_empty() || found[1] == thinking), "{body}");
    };
    let paths = ["/messages/1/content/1/input/a/0", "/messages/1/content/0/thinking"];
    rendered(anthropic::body, paths);
    rendered(gemini::body, ["/contents/1/parts/0/functionCall/args/a/0", ""]);
    rendered(ollama::body, ["/messages/1/tool_calls/0/function/arguments/a/0", ""]);
}

/// Makes the messages of one step of a conversation, from the reasoning of its answer and the number of the step.
type NextMessages = fn(Option<&Text>, usize) -> Vec<Message>;

/// Returns a call of a tool of its own, because each called tool is listed if no tools are offered.
fn distinct_call(ix: usize) -> ToolCall {
    ToolCall { tool: format!("t{ix}").into(), ..tool_call("", "5") }
}

/// A call of a few bytes becomes several objects, and a conversation may have a million of them. The control: the largest conversations.
#[test]
fn conversation_of_too_many_values_is_refused() {
    let text = "the messages and calls of the conversation have more than 500000 JSON values";
    let steps: [(NextMessages, usize, &[&str]); 3] = [
        (|kept, _| vec![user("x"), reasoning_message(Some("x"), kept.cloned(), &[])], 2 * MESSAGE_VALUES, &[]),
        (
            |kept, ix| vec![reasoning_message(Some("x"), kept.cloned(), &[distinct_call(ix)]), result(0, "x")],
            MESSAGE_VALUES + CALL_VALUES,
            &[],
        ),
        // Notices are calls if tools are offered.
        (|_, _| vec![user("x"), notice("x")], 2 * MESSAGE_VALUES + CALL_VALUES, &["read"]),
    ];
    for protocol in Protocol::ALL {
        let kept = match protocol {
            Protocol::Anthropic | Protocol::OpenAiResponses | Protocol::Ollama => None,
            Protocol::OpenAi => Some(StoredReasoning::OpenAi { text: "hm".into() }),
            Protocol::Gemini => Some(StoredReasoning::Gemini { text: Some("s".into()), calls: vec![Some("t".into())] }),
        };
        let kept = kept.and_then(|kept| kept.to_text());
        for (kind, (step, values, tools)) in steps.into_iter().enumerate() {
            let rendered = |steps: usize| {
                let messages = (0..steps).flat_map(|ix| step(kept.as_ref(), ix)).collect();
                body(&client(protocol, None), &request(messages, tools)).map_err(|fault| (fault.kind, fault.text))
            };
            let most = MAX_REQUEST_VALUES / values;
            let written = ValueCount::default().add(rendered(most).unwrap().to_string().as_bytes());
            assert!(written <= MAX_REQUEST_VALUES, "{protocol} {kind}: {written}");
            assert_eq!(rendered(most + 1), Err((ModelFail::ContextOverflow, text.to_owned())), "{protocol} {kind}");
        }
    }
}

/// The journal has one value for a piece, and a request has an object. The control: the first pieces are sent.
#[test]
fn encrypted_reasoning_is_counted_as_it_is_rendered() {
    let kept = StoredReasoning::OpenAiResponses { encrypted: vec!["ab".into(); 4_096] }.to_text();
    let messages = (0..100).flat_map(|_| [user("x"), reasoning_message(Some("x"), kept.clone(), &[])]).collect();
    let body = body(&client(Protocol::OpenAiResponses, None), &request(messages, &[])).unwrap().to_string();
    let values = ValueCount::default().add(body.as_bytes());
    assert!(values <= MAX_REQUEST_VALUES, "{values}");
    assert_eq!(body.matches("encrypted_content").count(), 13 * 4_096);
}

/// Rendering takes a multiple of the text's memory, and a control character takes six bytes. The control: a conversation within the limit.
#[test]
fn conversation_above_the_request_limit_is_refused() {
    let refused = |text: &str, messages: u64| {
        let text: Text = text.repeat(1 << 20).into();
        let messages = (0..messages).map(|_| Message::User { seq: Seq(1), text: Text::clone(&text) }).collect();
        body(&client(Protocol::Ollama, None), &request(messages, &[]))
            .map(drop)
            .map_err(|fault| (fault.kind, fault.text))
    };
    let text = "the conversation has more than 16777216 bytes".to_owned();
    for (character, most) in [("x", 16), ("\n", 8), ("\u{1}", 2)] {
        assert_eq!(refused(character, most + 1), Err((ModelFail::ContextOverflow, text.clone())));
        assert_eq!(refused(character, most), Ok(()));
    }
}
