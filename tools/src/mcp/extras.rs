//! Offers the resources and the prompts of a server as one tool each, which lists them and reads one.

use rmcp::model::{
    ContentBlock, ErrorCode, GetPromptRequestParams, GetPromptResponse, JsonObject, Prompt, ReadResourceRequestParams,
    ReadResourceResponse, Role, ServerCapabilities,
};
use rmcp::service::ServiceError;
use serde_json::json;
use subtend_session::message::ToolSpec;

use super::connection::{ServerConnection, at_cursor};
use super::names::ToolName;
use super::open_calls::ServerCall;
use super::result::CallFailure;
use super::sanitized_tool::{Purpose, SanitizedTool};
use super::{paging, result};
use crate::bounded::shorten;
use crate::escape::harmless;
use crate::secrets::Secrets;

/// Maximum bytes of one entry in a list.
const MAX_ENTRY: usize = 300;
const MAX_ENTRIES: usize = 2_000;

/// Returns the tools for the resources and prompts of a server.
pub(super) fn of(server: &str, capabilities: &ServerCapabilities) -> Vec<SanitizedTool> {
    let resources = capabilities.resources.is_some().then(|| {
        let about = format!("Lists the resources of the MCP server {server}; with `uri`, reads one of them.");
        let uri = json!({"type": "string", "description": "A URI of the list, or one made of a template of the list"});
        extra_tool(server, "resources", about, json!({"uri": uri}), Purpose::Resources)
    });
    let prompts = capabilities.prompts.is_some().then(|| {
        let about =
            format!("Lists the prompts of the MCP server {server}; with `name`, returns the text of one of them.");
        let fields = json!({"name": {"type": "string"}, "arguments": {
            "type": "object", "additionalProperties": {"type": "string"}
        }});
        extra_tool(server, "prompts", about, fields, Purpose::Prompts)
    });
    resources.into_iter().chain(prompts).collect()
}

fn extra_tool(server: &str, name: &str, about: String, fields: serde_json::Value, purpose: Purpose) -> SanitizedTool {
    let names = ToolName::of(server, name);
    let schema = json!({"type": "object", "properties": fields, "additionalProperties": false});
    let spec = ToolSpec { name: names.name.clone(), description: about.into(), schema: schema.into() };
    SanitizedTool { names, remote: name.to_owned(), spec, purpose }
}

const REQUESTS_INPUT: &str = "it requests input, which is not supported for resources and prompts";

/// Returns the resource that a call names, or the list of resources.
pub(super) async fn resources(
    up: &ServerConnection,
    args: &JsonObject,
    (open, secrets): (&ServerCall, &Secrets),
) -> Result<String, CallFailure> {
    let peer = &up.peer();
    if let Some(uri) = args.get("uri").and_then(|uri| uri.as_str()) {
        return match peer.read_resource_once(ReadResourceRequestParams::new(uri)).await {
            Ok(ReadResourceResponse::Complete(read)) => {
                Ok(result::join_parts(read.contents.iter().map(|one| result::resource(one, secrets))))
            }
            Ok(_) => Err(CallFailure::Refused(REQUESTS_INPUT.into())),
            Err(error) => Err(up.call_error(error, open).await),
        };
    }
    let listed = paging::read_all("resources", MAX_ENTRIES, |cursor| async move {
        match peer.list_resources(Some(at_cursor(cursor))).await {
            Ok(page) => Ok((page.resources, page.next_cursor)),
            Err(error) => Err(up.call_error(error, open).await),
        }
    })
    .await?;
    let about = |text: Option<&String>| text.map_or_else(String::new, |text| format!(": {text}"));
    let mut lines: Vec<String> = listed
        .entries
        .iter()
        .map(|one| format!("{} ({}){}", one.uri, one.name, about(one.description.as_ref())))
        .collect();
    let templates = paging::read_all("templates of resources", MAX_ENTRIES, |cursor| async move {
        match peer.list_resource_templates(Some(at_cursor(cursor))).await {
            Ok(page) => Ok((page.resource_templates, page.next_cursor)),
            // A server without templates may not support the method.
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => Ok((Vec::new(), None)),
            Err(error) => Err(up.call_error(error, open).await),
        }
    });
    let mut truncated = Vec::from_iter(listed.truncated);
    match templates.await {
        Ok(templates) => {
            truncated.extend(templates.truncated);
            lines.extend(
                templates.entries.into_iter().map(|one| {
                    format!("template {} ({}){}", one.uri_template, one.name, about(one.description.as_ref()))
                }),
            );
        }
        Err(CallFailure::Refused(why)) => truncated.push(why.into_result()),
        Err(failed) => return Err(failed),
    }
    Ok(list(lines, ("resources", secrets), truncated))
}

/// Returns the prompt that a call names, or the list of prompts.
pub(super) async fn prompts(
    up: &ServerConnection,
    args: &JsonObject,
    (open, secrets): (&ServerCall, &Secrets),
) -> Result<String, CallFailure> {
    let peer = &up.peer();
    if let Some(name) = args.get("name").and_then(|name| name.as_str()) {
        let mut params = GetPromptRequestParams::new(name);
        params.arguments = args.get("arguments").and_then(|arguments| arguments.as_object()).cloned();
        return match peer.get_prompt_once(params).await {
            Ok(GetPromptResponse::Complete(got)) => {
                let message = |role: &Role, content: &ContentBlock| {
                    let role = if matches!(role, Role::User) { "user" } else { "assistant" };
                    format!("[{role}]\n{}", result::block(content, secrets))
                };
                Ok(result::join_parts(got.messages.iter().map(|one| message(&one.role, &one.content))))
            }
            Ok(_) => Err(CallFailure::Refused(REQUESTS_INPUT.into())),
            Err(error) => Err(up.call_error(error, open).await),
        };
    }
    let listed = paging::read_all("prompts", MAX_ENTRIES, |cursor| async move {
        match peer.list_prompts(Some(at_cursor(cursor))).await {
            Ok(page) => Ok((page.prompts, page.next_cursor)),
            Err(error) => Err(up.call_error(error, open).await),
        }
    })
    .await?;
    let lines = listed.entries.iter().map(prompt_text).collect();
    Ok(list(lines, ("prompts", secrets), Vec::from_iter(listed.truncated)))
}

fn prompt_text(prompt: &Prompt) -> String {
    let argument = |one: &rmcp::model::PromptArgument| {
        let optional = if one.required == Some(true) { "" } else { "?" };
        format!("{}{optional}", one.name)
    };
    let arguments: Vec<String> = prompt.arguments.iter().flatten().map(argument).collect();
    let about = prompt.description.as_deref().unwrap_or_default();
    format!("{}({}): {about}", prompt.name, arguments.join(", "))
}

/// Returns a list with one printable line for each entry. Redacts an entry before its lines are joined.
fn list(lines: Vec<String>, (what, secrets): (&str, &Secrets), truncated: Vec<String>) -> String {
    if lines.is_empty() && truncated.is_empty() {
        return format!("[the server has no {what}]");
    }
    let line = |line: String| harmless(&shorten(&secrets.redact(&line), MAX_ENTRY)).replace(['\n', '\r'], " ");
    let truncated = truncated.into_iter().map(|why| format!("[{why}]"));
    result::join_parts(lines.into_iter().map(line).chain(truncated))
}
