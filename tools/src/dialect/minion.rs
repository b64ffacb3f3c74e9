//! The `minion` dialect: a blocking helper with explicitly named tools, which ends by calling `return`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use subtend_session::dialect::Dialect;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;
use subtend_session::place::Mode;

use super::template::{self, OfferedTemplate};
use super::{ContinueRequest, Offered, Request, StartRequest, check_count, check_prompt, label};
use crate::option::ToolOption;
use crate::result::ToolError;

/// The tool that starts a minion.
pub const NAME: &str = "minion";
/// The tool with which a minion returns its result. Callers of minions do not see it.
pub const RETURN: &str = "return";

/// Web tools that `enableWeb` adds, if the host has them.
pub const WEB: [&str; 2] = ["fetch", "web_search"];

const ABOUT: &str = "\
Hand one task to a minion: a helper with a conversation of its own and only the tools that you name. The call waits, and gives \
its response with a minionChatId.

Use it to keep long reading or many small steps out of this conversation. Do not use it for what you can do with one call.
The minion knows nothing of this conversation: its message must contain everything that it needs, and say what to return. Name the \
tools that it needs in enabledTools; with an empty list it has no tools and can only think.
With minionChatId an earlier minion continues: it remembers its own conversation, and has the tools that you name this time.";

const ABOUT_TEMPLATES: &str = "\n\nA template has a prepared message or prompt, which your message and values complete; enableWeb and \
enabledTools are optional if the template sets them. A minion that continues keeps its prompt and model: then omit the template. \
Templates:";

const ABOUT_RETURN: &str = "\
End your work with a result. Your caller gets only this result. Call it alone, when everything is done.";

pub fn options() -> [ToolOption; 3] {
    [
        ToolOption::long_text("systemPrompt", "System prompt", "Left empty, a minion has its caller's prompt")
            .subtitle("The system prompt of every minion"),
        ToolOption::model("model", "Model")
            .subtitle("The model that minions use, for example one that costs less than the session's"),
        ToolOption::boolean("rollbackOnError", "Roll back on error", false)
            .subtitle("Whether a minion forgets what it said in a run that did not complete"),
    ]
}

/// Returns the tool that starts minions. Without templates, it has no parameters for them.
pub fn spec(templates: &[OfferedTemplate]) -> ToolSpec {
    let mut schema = json!({
        "type": "object",
        "properties": {
            "message": {"type": "string", "minLength": 1, "description": "The task, with all that the minion needs to know."},
            "minionChatId": {"type": "string", "description": "An earlier minion of yours to continue."},
            "enableWeb": {"type": "boolean", "description": "Whether it may use the web, if web tools exist."},
            "enabledTools": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The tools that it may use, from those that you have; an empty list means none.",
            },
        },
        "required": ["message", "enableWeb", "enabledTools"],
        "additionalProperties": false,
    });
    let mut about = ABOUT.to_owned();
    if let (false, Some(schema)) = (templates.is_empty(), schema.as_object_mut()) {
        let names: Vec<&str> = templates.iter().map(|template| &*template.name).collect();
        let more = json!({
            "template": {"type": "string", "enum": names, "description": "A template for the task."},
            "values": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Values for the placeholders of the template.",
            },
        });
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        properties.into_iter().for_each(|properties| properties.extend(more.as_object().cloned().unwrap_or_default()));
        schema.insert("required".to_owned(), json!(["message"]));
        about = format!("{ABOUT}{ABOUT_TEMPLATES}{}", template::list_templates(templates));
    }
    ToolSpec { name: NAME.into(), description: about.into(), schema: Arc::new(schema) }
}

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
struct MinionArguments {
    message: String,
    #[serde(rename = "minionChatId", alias = "minion_chat_id")]
    chat: Option<String>,
    #[serde(rename = "enableWeb", alias = "enable_web")]
    web: Option<bool>,
    #[serde(rename = "enabledTools", alias = "enabled_tools")]
    tools: Option<Vec<Text>>,
    template: Option<String>,
    #[serde(default)]
    values: BTreeMap<String, String>,
}

fn parameter_names(offered: &Offered) -> &'static str {
    match offered.templates.is_empty() {
        true => "message, minionChatId, enableWeb and enabledTools",
        false => "message, minionChatId, enableWeb, enabledTools, template and values",
    }
}

impl MinionArguments {
    fn template<'a>(&self, offered: &'a Offered) -> Result<Option<&'a OfferedTemplate>, ToolError> {
        let name = self.template.as_deref().map(str::trim).filter(|name| !name.is_empty());
        match name {
            Some(name) => offered.template(name).map(Some),
            None if self.values.is_empty() => Ok(None),
            None => Err(ToolError::bad_args("values are for a template: name one, or leave them out")),
        }
    }

    fn tools(&self, template: Option<&OfferedTemplate>, offered: &Offered) -> Result<Vec<Text>, ToolError> {
        let missing = |key: &str| {
            ToolError::bad_args(format!(
                "the arguments of {NAME} do not fit: missing field `{key}`; it takes {}",
                parameter_names(offered)
            ))
        };
        let web = self.web.or(template.and_then(|template| template.web)).ok_or_else(|| missing("enableWeb"))?;
        if web && !WEB.iter().any(|name| offered.shown_tools.iter().any(|tool| **tool == **name)) {
            return Err(ToolError::bad_args(format!(
                "enableWeb is true, but you have no web tools. Call {NAME} with enableWeb false, and say in the message \
                 what the minion should do without"
            )));
        }
        let listed = self.tools.as_ref().or(template.and_then(|template| template.tools.as_ref()));
        let listed = listed.ok_or_else(|| missing("enabledTools"))?;
        check_count("enabledTools", listed.len())?;
        let named: Vec<Text> =
            listed.iter().map(|name| name.trim()).filter(|name| !WEB.contains(name)).map(Text::from).collect();
        offered.check_tools("enabledTools", &named)?;
        let has = |name: &&&str| offered.tools.iter().any(|tool| **tool == ***name);
        let web: Vec<Text> = WEB.iter().filter(|_| web).filter(has).map(|name| Text::from(*name)).collect();
        Ok(named.into_iter().chain(web).collect())
    }
}

/// Parses the arguments of a call.
///
/// # Errors
/// If the arguments are invalid, or the message is empty or too long.
pub fn parse(args: &str, offered: &Offered) -> Result<Request, ToolError> {
    read(args, offered).map_err(|error| {
        let message = Dialect::Minion.refused("", &error.message).to_string();
        ToolError { message, ..error }
    })
}

fn read(args: &str, offered: &Offered) -> Result<Request, ToolError> {
    let arguments: MinionArguments = super::arguments(NAME, args, parameter_names(offered))?;
    check_prompt("message", "minion", &arguments.message)?;
    let template = arguments.template(offered)?;
    let tools = arguments.tools(template, offered)?;
    if let Some(chat) = arguments.chat.as_deref().map(str::trim).filter(|chat| !chat.is_empty()) {
        if template.is_some() {
            let why = "a minion that continues keeps its prompt and model: leave `template` or `minionChatId` out";
            return Err(ToolError::bad_args(why));
        }
        return Ok(Request::Continue(ContinueRequest {
            dialect: Dialect::Minion,
            task: chat.into(),
            agent: None,
            prompt: arguments.message.into(),
            mode: Mode::Blocking,
            turns: None,
            tools: Some(tools),
        }));
    }
    let filled = template.map(|template| template.fill(&arguments.message, &arguments.values)).transpose()?;
    let (message, body) = filled.map_or_else(|| (arguments.message.clone(), None), |it| (it.message, it.system_prompt));
    check_prompt("message", "minion", &message)?;
    Ok(Request::Start(Box::new(StartRequest {
        label: label(&arguments.message),
        tools: Some(tools),
        template: template.map(|template| Arc::clone(&template.name)),
        body,
        ..StartRequest::plain(Dialect::Minion, Arc::clone(&offered.own), message.into(), Mode::Blocking)
    })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReturnArguments {
    #[expect(dead_code, reason = "the end of the run reads it from the arguments in the journal")]
    result: String,
}

/// Checks the arguments of `return`.
///
/// # Errors
/// If the arguments are invalid.
pub fn check_return(args: &str) -> Result<(), ToolError> {
    super::arguments::<ReturnArguments>(RETURN, args, "result").map(drop)
}
