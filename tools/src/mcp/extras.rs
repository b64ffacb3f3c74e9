//! Offers the resources and the prompts of a server as one tool each, which lists them and reads one.

use rmcp::model::{
    ContentBlock, GetPromptRequestParams, GetPromptResponse, JsonObject, Prompt, ReadResourceRequestParams,
    ReadResourceResponse, Role, ServerCapabilities,
};
use serde_json::json;
use subtend_session::message::ToolSpec;

use super::connection::{Failed, ServerConnection};
use super::described::{Described, Purpose};
use super::names::ToolName;
use super::result;
use crate::bounded::shown;
use crate::escape::harmless;

/// Maximum bytes of one entry in a list.
const MAX_ENTRY: usize = 300;

/// Returns the tools for the resources and prompts of a server.
pub(super) fn of(server: &str, capabilities: &ServerCapabilities) -> Vec<Described> {
    let resources = capabilities.resources.is_some().then(|| {
        let about = format!("Lists the resources of the MCP server {server}; with `uri`, reads one of them.");
        let uri = json!({"type": "string", "description": "A URI of the list, or one made of a template of the list"});
        described(server, "resources", about, json!({"uri": uri}), Purpose::Resources)
    });
    let prompts = capabilities.prompts.is_some().then(|| {
        let about =
            format!("Lists the prompts of the MCP server {server}; with `name`, returns the text of one of them.");
        let fields = json!({"name": {"type": "string"}, "arguments": {
            "type": "object", "additionalProperties": {"type": "string"}
        }});
        described(server, "prompts", about, fields, Purpose::Prompts)
    });
    resources.into_iter().chain(prompts).collect()
}

fn described(server: &str, name: &str, about: String, fields: serde_json::Value, purpose: Purpose) -> Described {
    let names = ToolName::of(server, name);
    let schema = json!({"type": "object", "properties": fields, "additionalProperties": false});
    let spec = ToolSpec { name: names.name.clone(), description: about.into(), schema: schema.into() };
    Described { names, remote: name.to_owned(), spec, purpose }
}

const REQUESTS_INPUT: &str = "it requests input, which is not supported for resources and prompts";

/// Returns the resource that a call names, or the list.
pub(super) async fn resources(up: &ServerConnection, args: &JsonObject) -> Result<String, Failed> {
    let peer = up.peer();
    if let Some(uri) = args.get("uri").and_then(|uri| uri.as_str()) {
        return match peer.read_resource_once(ReadResourceRequestParams::new(uri)).await {
            Ok(ReadResourceResponse::Complete(read)) => Ok(result::joined(read.contents.iter().map(result::resource))),
            Ok(_) => Err(Failed::Refused(REQUESTS_INPUT.to_owned())),
            Err(error) => Err(up.classify_error(error).await),
        };
    }
    let listed = match peer.list_resources(None).await {
        Ok(listed) => listed,
        Err(error) => return Err(up.classify_error(error).await),
    };
    let about = |text: Option<&String>| text.map_or_else(String::new, |text| format!(": {text}"));
    let mut lines: Vec<String> = listed
        .resources
        .iter()
        .map(|one| format!("{} ({}){}", one.uri, one.name, about(one.description.as_ref())))
        .collect();
    // A server without templates may not know the method.
    if let Ok(templates) = peer.list_resource_templates(None).await {
        let templates = templates.resource_templates.into_iter();
        lines.extend(
            templates
                .map(|one| format!("template {} ({}){}", one.uri_template, one.name, about(one.description.as_ref()))),
        );
    }
    Ok(list(lines, "resources", listed.next_cursor.is_some()))
}

/// Returns the prompt that a call names, or the list.
pub(super) async fn prompts(up: &ServerConnection, args: &JsonObject) -> Result<String, Failed> {
    let peer = up.peer();
    if let Some(name) = args.get("name").and_then(|name| name.as_str()) {
        let mut params = GetPromptRequestParams::new(name);
        params.arguments = args.get("arguments").and_then(|arguments| arguments.as_object()).cloned();
        return match peer.get_prompt_once(params).await {
            Ok(GetPromptResponse::Complete(got)) => {
                let message = |role: &Role, content: &ContentBlock| {
                    let role = if matches!(role, Role::User) { "user" } else { "assistant" };
                    format!("[{role}]\n{}", result::block(content))
                };
                Ok(result::joined(got.messages.iter().map(|one| message(&one.role, &one.content))))
            }
            Ok(_) => Err(Failed::Refused(REQUESTS_INPUT.to_owned())),
            Err(error) => Err(up.classify_error(error).await),
        };
    }
    match peer.list_prompts(None).await {
        Ok(listed) => Ok(list(listed.prompts.iter().map(prompt).collect(), "prompts", listed.next_cursor.is_some())),
        Err(error) => Err(up.classify_error(error).await),
    }
}

fn prompt(prompt: &Prompt) -> String {
    let argument = |one: &rmcp::model::PromptArgument| {
        let optional = if one.required == Some(true) { "" } else { "?" };
        format!("{}{optional}", one.name)
    };
    let arguments: Vec<String> = prompt.arguments.iter().flatten().map(argument).collect();
    let about = prompt.description.as_deref().unwrap_or_default();
    format!("{}({}): {about}", prompt.name, arguments.join(", "))
}

/// Returns a list with one printable line for each entry.
fn list(lines: Vec<String>, what: &str, more: bool) -> String {
    if lines.is_empty() {
        return format!("[the server has no {what}]");
    }
    let line = |line: String| harmless(&shown(&line, MAX_ENTRY)).replace(['\n', '\r'], " ");
    let more = more.then(|| format!("[there are more {what}, which are not listed]"));
    result::joined(lines.into_iter().map(line).chain(more))
}
