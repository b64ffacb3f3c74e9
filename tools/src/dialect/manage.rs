//! Tools that check and cancel a task of `task` or `spawn_task`.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use subtend_session::ids::Text;
use subtend_session::message::ToolSpec;

use crate::result::ToolError;

/// The tool that checks a task and can wait for it. The name is reserved.
pub const CHECK: &str = "check_task";

/// The tool that cancels a task. The name is reserved.
pub const CANCEL: &str = "cancel_task";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckRequest {
    /// The task's id as written by the model. It must be one of the caller's own tasks.
    pub task: Text,
    /// True if the call waits for the end of the task.
    pub wait: bool,
    /// The requested timeout. The host's limit still applies.
    pub timeout_ms: Option<u64>,
}

const ABOUT_CHECK: &str = "\
Check a task that you started in the background, and by default wait for its end: you get its answer or its error.

Use it when you cannot continue without that answer. Do not use it to pass the time: a task's answer comes to you by itself, at the \
latest when you end your turn, and several can run meanwhile. When the wait is over and the task is not, nothing happened \
to the task; it continues. With `wait: false` you learn only whether it is still running.
Good: three tasks are running, and the next step needs the first one's answer: check that one.
Bad: checking the same task again and again with `wait: false`.";

const ABOUT_CANCEL: &str = "\
End a task that you started and whose answer you do not need any more, with all that it started itself. What it found so far \
comes to you as its result{later}.

Use it when you no longer need the answer, or when the task was started with a wrong prompt. Do not use it because a task takes \
long: ask with `check_task` first. A task that has ended already stays as it is.";

/// Returns the tools. `continues` is true if the tool `task` is also offered: it can continue an ended task.
pub fn specs(continues: bool) -> [ToolSpec; 2] {
    let later =
        if continues { "; a task that you started with `task` can continue later, by its session_id" } else { "" };
    let about_cancel = ABOUT_CANCEL.replace("{later}", later);
    let task = json!({"type": "string", "description": "The id of the task, which you got when you started it."});
    let check = json!({
        "type": "object",
        "properties": {
            "taskId": task,
            "wait": {"type": "boolean", "default": true, "description": "Wait for its end."},
            "timeoutMs": {
                "type": "integer",
                "minimum": 1,
                "default": 300_000,
                "description": "The maximum time to wait, in milliseconds; the host may allow less.",
            },
        },
        "required": ["taskId"],
        "additionalProperties": false,
    });
    let cancel = json!({
        "type": "object",
        "properties": {"taskId": task},
        "required": ["taskId"],
        "additionalProperties": false,
    });
    [
        ToolSpec { name: CHECK.into(), description: ABOUT_CHECK.into(), schema: Arc::new(check) },
        ToolSpec { name: CANCEL.into(), description: about_cancel.into(), schema: Arc::new(cancel) },
    ]
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckArguments {
    #[serde(rename = "taskId", alias = "task_id", alias = "session_id", alias = "sessionId")]
    task: String,
    wait: Option<bool>,
    #[serde(rename = "timeoutMs", alias = "timeout_ms")]
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelArguments {
    #[serde(rename = "taskId", alias = "task_id", alias = "session_id", alias = "sessionId")]
    task: String,
}

/// Parses the arguments of `check_task`.
///
/// # Errors
/// If the arguments are invalid.
pub fn parse_check(args: &str) -> Result<CheckRequest, ToolError> {
    let arguments: CheckArguments = super::arguments(CHECK, args, "taskId, wait and timeoutMs")?;
    if arguments.timeout_ms == Some(0) {
        return Err(ToolError::bad_args("timeoutMs is 0: to check without waiting, say `wait: false`"));
    }
    let (task, wait) = (task_id(CHECK, &arguments.task)?, arguments.wait.unwrap_or(true));
    Ok(CheckRequest { task, wait, timeout_ms: arguments.timeout_ms })
}

/// Parses the arguments of `cancel_task` and returns the task.
///
/// # Errors
/// If the arguments are invalid.
pub fn parse_cancel(args: &str) -> Result<Text, ToolError> {
    let arguments: CancelArguments = super::arguments(CANCEL, args, "taskId")?;
    task_id(CANCEL, &arguments.task)
}

fn task_id(tool: &str, task: &str) -> Result<Text, ToolError> {
    match task.trim() {
        "" => Err(ToolError::bad_args(format!("{tool} needs a taskId: the id that you were given for the task"))),
        task => Ok(task.into()),
    }
}

#[cfg(test)]
mod tests {
    use subtend_session::call::ToolErrorKind;

    use super::*;
    use crate::arguments;

    fn check(task: &str, wait: bool, timeout_ms: Option<u64>) -> Result<CheckRequest, ToolError> {
        Ok(CheckRequest { task: task.into(), wait, timeout_ms })
    }

    fn error(parsed: Result<impl std::fmt::Debug, ToolError>) -> String {
        let error = parsed.unwrap_err();
        assert_eq!((error.kind, error.denied), (ToolErrorKind::BadArgs, false));
        error.message
    }

    #[test]
    fn schemas_agree_with_the_parser() {
        let [check, cancel] = specs(true).map(|spec| (arguments::compile(&spec.schema).unwrap(), spec.name));
        assert_eq!((&*check.1, &*cancel.1), ("check_task", "cancel_task"));
        for (args, fits) in [
            (json!({"taskId": "9a8057"}), true),
            (json!({"taskId": "9a8057", "wait": false, "timeoutMs": 5}), true),
            (json!({"taskId": "9a8057", "timeoutMs": 0}), false),
            (json!({"wait": true}), false),
        ] {
            assert_eq!(check.0.is_valid(&args), fits, "{args}");
            assert_eq!(parse_check(&args.to_string()).is_ok(), fits, "{args}");
        }
        for (args, fits) in [(json!({"taskId": "9a8057"}), true), (json!({"taskId": "9a8057", "all": true}), false)] {
            assert_eq!(cancel.0.is_valid(&args), fits, "{args}");
            assert_eq!(parse_cancel(&args.to_string()).is_ok(), fits, "{args}");
        }
    }

    #[test]
    fn descriptions_name_task_only_if_it_is_offered() {
        let about = |continues| specs(continues).map(|spec| spec.description.to_string());
        let [with, without] = [about(true), about(false)];
        assert!(with[1].contains("`task`") && !with[1].contains("{later}"), "{}", with[1]);
        assert!(without.iter().all(|about| !about.contains("`task`") && !about.contains("session_id")), "{without:?}");
        assert!(without[1].contains("comes to you as its result.\n"), "{}", without[1]);
    }

    #[test]
    fn check_waits_by_default() {
        assert_eq!(parse_check(r#"{"taskId":" 9a8057 "}"#), check("9a8057", true, None));
        assert_eq!(parse_check(r#"{"taskId":"x","wait":null,"timeoutMs":null}"#), check("x", true, None));
        assert_eq!(parse_check(r#"{"taskId":"x","wait":false,"timeoutMs":9}"#), check("x", false, Some(9)));
        assert_eq!(parse_cancel(r#"{"taskId":" 9a8057 "}"#), Ok("9a8057".into()));
    }

    #[test]
    fn r3_check_and_cancel_accept_session_id_as_key() {
        for key in ["taskId", "task_id", "session_id", "sessionId"] {
            let args = json!({key: "9a8057"}).to_string();
            assert_eq!(parse_check(&args), check("9a8057", true, None), "{key}");
            assert_eq!(parse_cancel(&args), Ok("9a8057".into()), "{key}");
        }
    }

    #[test]
    fn wrong_arguments_error_names_the_expected_ones() {
        assert_eq!(
            error(parse_cancel(r#"{"taskId":" "}"#)),
            "cancel_task needs a taskId: the id that you were given for the task"
        );
        assert_eq!(
            error(parse_check(r#"{"taskId":"x","timeoutMs":0}"#)),
            "timeoutMs is 0: to check without waiting, say `wait: false`"
        );
        assert!(error(parse_check(r#"{"task":"x"}"#)).contains("unknown field `task`"));
        assert!(error(parse_cancel("[]")).contains("an array"));
    }
}
