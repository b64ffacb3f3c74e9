//! The `spawn` dialect: background jobs that are awaited later.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use subtend_session::dialect::Dialect;
use subtend_session::dialect::jobs::{self, Jobs};
use subtend_session::message::ToolSpec;
use subtend_session::place::Mode;

use super::{Offered, OfferedProfile, Request, StartRequest, check_count, check_prompt, label, names, optional_text};
use crate::near;
use crate::result::ToolError;

/// The tool that starts a job.
pub const NAME: &str = "spawn";
/// The tool that waits for jobs.
pub const AWAIT: &str = jobs::AWAIT;

const ABOUT: &str = "\
Start a job: an isolated agent that works on one task alongside you, in a context of its own. You get a short job id at once and continue \
with your own work; fetch the result later with spawn_await.

Use it for research that takes long, for parts that are independent and can run at the same time, and for work that needs \
other tools or instructions than yours. Do not use it for what one or two direct tool calls settle, or where the next step \
needs the result at once.

The job sees none of this conversation: put the goal, the names and paths involved and the form of the answer into the task. It \
cannot start jobs of its own.
Good: \"List every place in src/net that opens a socket, with file and line. Change nothing.\"
Bad: \"check the thing from before\"";

const ABOUT_AWAIT: &str = "\
Wait for jobs that you started with spawn, and get their results: one block for each job, `[id: OK]` or `[id: ERROR]` with its \
text below, `[id: NOT FOUND]` for an id that is not yours. Results stay: a job can be awaited again.

Start all jobs that can run at the same time first, do what does not need them, then wait for them together.";

/// Returns the tools. The schema of `spawn` lists the names of `profiles`.
pub fn specs(profiles: &[OfferedProfile]) -> [ToolSpec; 2] {
    let mut profile =
        json!({"type": "string", "description": "The kind of agent for the job; omit it for one like you."});
    if !profiles.is_empty() {
        let names: Vec<&str> = profiles.iter().map(|profile| &*profile.name).collect();
        if let Some(profile) = profile.as_object_mut() {
            profile.insert("enum".to_owned(), json!(names));
        }
    }
    let spawn = json!({
        "type": "object",
        "properties": {
            "task": {"type": "string", "minLength": 1, "description": "The task of the job, with everything that it needs to know."},
            "profile": profile,
            "context": {"type": "string", "description": "Additional context, which follows the task."},
            "system_prompt": {"type": "string", "description": "Instructions that are added to those of the profile."},
            "tools": {
                "type": "string",
                "description": "The tools that the job may use, separated by commas; omit it for those of the profile, or all of yours.",
            },
        },
        "required": ["task"],
        "additionalProperties": false,
    });
    let wait = json!({
        "type": "object",
        "properties": {
            "job_ids": {"type": "string", "description": "Job ids separated by commas, or `*` for all of yours."},
        },
        "required": ["job_ids"],
        "additionalProperties": false,
    });
    [
        ToolSpec { name: NAME.into(), description: ABOUT.into(), schema: Arc::new(spawn) },
        ToolSpec { name: AWAIT.into(), description: ABOUT_AWAIT.into(), schema: Arc::new(wait) },
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpawnArguments {
    task: Option<String>,
    profile: Option<String>,
    context: Option<String>,
    #[serde(alias = "systemPrompt")]
    system_prompt: Option<String>,
    tools: Option<String>,
}

/// Parses the arguments of `spawn`.
///
/// # Errors
/// If the arguments are invalid, the task is missing or empty, or the profile is unknown.
pub fn parse(args: &str, offered: &Offered) -> Result<Request, ToolError> {
    let arguments: SpawnArguments = super::arguments(NAME, args, "task, profile, context, system_prompt and tools")?;
    let task = arguments.task.unwrap_or_default();
    check_prompt("task", "job", &task)?;
    let profile = arguments.profile.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let profile = profile.map(|name| find(name, &offered.profiles)).transpose()?;
    let agent = profile.and_then(|profile| profile.agent.clone()).unwrap_or_else(|| Arc::clone(&offered.own));
    // Models write an empty string for an omitted list. But a list of separators alone must not mean all tools.
    let listed = arguments.tools.as_deref().filter(|list| !list.trim().is_empty()).map(names);
    if listed.as_ref().is_some_and(Vec::is_empty) {
        let text = "tools is an empty list: name some, separated by commas, or omit it for all that the job can have";
        return Err(ToolError::bad_args(text));
    }
    check_count("tools", listed.as_ref().map_or(0, Vec::len))?;
    offered.check_tools("tools", listed.as_deref().unwrap_or_default())?;
    let of_profile = profile.filter(|profile| !profile.tools.is_empty()).map(|profile| profile.tools.clone());
    Ok(Request::Start(Box::new(StartRequest {
        label: label(&task),
        tools: listed.or(of_profile),
        profile: profile.map(|profile| Arc::clone(&profile.name)),
        system: optional_text("system_prompt", arguments.system_prompt)?,
        context: optional_text("context", arguments.context)?,
        ..StartRequest::plain(Dialect::Spawn, agent, task.into(), Mode::Background)
    })))
}

fn find<'a>(name: &str, profiles: &'a [OfferedProfile]) -> Result<&'a OfferedProfile, ToolError> {
    profiles.iter().find(|profile| *profile.name == *name).ok_or_else(|| {
        let shown: String = name.chars().take(60).collect();
        if profiles.is_empty() {
            return ToolError::bad_args(format!("no profile `{shown}`: no profiles exist here, so leave profile out"));
        }
        let names: Vec<&str> = profiles.iter().map(|profile| &*profile.name).collect();
        ToolError::bad_args(format!("no profile `{shown}`. Valid: {}.", near::list_names(&names)))
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AwaitArguments {
    #[serde(alias = "jobIds")]
    job_ids: String,
}

/// Parses the arguments of `spawn_await`.
///
/// # Errors
/// If the arguments are invalid.
pub fn parse_await(args: &str) -> Result<Jobs, ToolError> {
    let arguments: AwaitArguments = super::arguments(AWAIT, args, "job_ids")?;
    Jobs::parse(&json!({"job_ids": arguments.job_ids}).to_string())
        .ok_or_else(|| ToolError::bad_args("job_ids must be a string: ids separated by commas, or `*`"))
}
