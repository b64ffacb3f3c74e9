//! The `minion` dialect: a blocking helper with tools that are named one by one, which ends by `return`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;
use subtend_session::place::Mode;

use super::{ContinueRequest, Offered, Request, StartRequest, label, not_too_many, says_something};
use crate::option::ToolOption;
use crate::tool::ToolError;

/// The tool that hands a task to a minion.
pub const NAME: &str = "minion";
/// The tool by which a minion ends with an explicit result: hidden from those who call minions.
pub const RETURN: &str = "return";

/// Tools of the web, which `enableWeb` adds where the host has them.
pub const WEB: [&str; 2] = ["fetch", "web_search"];

const ABOUT: &str = "\
Hand one task to a minion: a helper with a conversation of its own and only the tools that you name. The call waits, and gives \
its response with a minionChatId.

Use it to keep long reading or many small steps out of this conversation. Do not use it for what you can do with one call.
The minion knows nothing of this conversation: its message must say all that it needs, and what it should give back. Name the \
tools that it needs in enabledTools; with an empty list it has none and can only think.
With minionChatId an earlier minion goes on: it remembers its own conversation, and has the tools that you name this time.";

const ABOUT_RETURN: &str = "\
End your work with a result: what you give here is all that your caller gets. Call it alone, when everything is done.";

/// The options of the tool (M7, M10).
pub fn options() -> [ToolOption; 3] {
    [
        ToolOption::long_text("systemPrompt", "System prompt", "Left empty, a minion has its caller's prompt")
            .subtitle("The system prompt of every minion"),
        ToolOption::model("model", "Model")
            .subtitle("The model that minions use; one that costs less than the session's, perhaps"),
        ToolOption::boolean("rollbackOnError", "Roll back on error", false)
            .subtitle("Whether a minion forgets what it said in a run that did not complete"),
    ]
}

/// The tool that callers are offered.
pub fn spec() -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {
            "message": {"type": "string", "minLength": 1, "description": "The task, with all that the minion needs to know."},
            "minionChatId": {"type": "string", "description": "An earlier minion of yours that is to go on."},
            "enableWeb": {"type": "boolean", "description": "Whether it may use the web, where there are tools for it."},
            "enabledTools": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The tools that it may use, of those that you have; an empty list means none.",
            },
        },
        "required": ["message", "enableWeb", "enabledTools"],
        "additionalProperties": false,
    });
    ToolSpec { name: NAME.into(), description: ABOUT.into(), schema: Arc::new(schema) }
}

/// The tool that minions are offered.
pub fn return_spec() -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {"result": {"type": "string", "description": "The result."}},
        "required": ["result"],
        "additionalProperties": false,
    });
    ToolSpec { name: RETURN.into(), description: ABOUT_RETURN.into(), schema: Arc::new(schema) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    message: String,
    #[serde(rename = "minionChatId", alias = "minion_chat_id")]
    chat: Option<String>,
    #[serde(rename = "enableWeb", alias = "enable_web")]
    web: bool,
    #[serde(rename = "enabledTools", alias = "enabled_tools")]
    tools: Vec<String>,
}

/// Reads the arguments of a call, as the model wrote them.
///
/// # Errors
/// When they do not fit; when the message is empty or too long.
pub fn parse(args: &str, offered: &Offered) -> Result<Request, ToolError> {
    read(args, offered).map_err(|error| {
        let message = Dialect::Minion.refused("", &error.message).to_string();
        ToolError { message, ..error }
    })
}

fn read(args: &str, offered: &Offered) -> Result<Request, ToolError> {
    let asked: Arguments = super::arguments(NAME, args, "message, minionChatId, enableWeb and enabledTools")?;
    says_something("message", "minion", &asked.message)?;
    not_too_many("enabledTools", asked.tools.len())?;
    let named: Vec<Text> =
        asked.tools.iter().map(|name| name.trim()).filter(|name| !WEB.contains(name)).map(Text::from).collect();
    offered.can_give("enabledTools", &named)?;
    let web = WEB.iter().filter(|_| asked.web).map(|name| Text::from(*name));
    let tools: Vec<Text> = named.into_iter().chain(web).collect();
    if let Some(chat) = asked.chat.as_deref().map(str::trim).filter(|chat| !chat.is_empty()) {
        return Ok(Request::Continue(ContinueRequest {
            dialect: Dialect::Minion,
            task: chat.into(),
            agent: None,
            prompt: asked.message.into(),
            mode: Mode::Blocking,
            turns: None,
            tools: Some(tools),
        }));
    }
    Ok(Request::Start(Box::new(StartRequest {
        label: label(&asked.message),
        tools: Some(tools),
        ..StartRequest::plain(Dialect::Minion, Arc::clone(&offered.own), asked.message.into(), Mode::Blocking)
    })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Returned {
    #[expect(dead_code, reason = "the end of the run reads it from the arguments as they stand in the journal")]
    result: String,
}

/// Whether the arguments of `return` can be taken.
///
/// # Errors
/// When they do not fit.
pub fn check_return(args: &str) -> Result<(), ToolError> {
    super::arguments::<Returned>(RETURN, args, "result").map(drop)
}
