//! Background processes. A process is a child session: a built-in model starts its command by `shell`, polls it, and answers with its last output.

use std::collections::BTreeSet;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::json;
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest, Source};
use subtend_models::model::{Answer, Deltas, Model, ModelError, Request};
use subtend_session::authority::Access;
use subtend_session::call::{CallKind, ToolErrorKind};
use subtend_session::command::Refusal;
use subtend_session::ids::{SessionId, Text, TurnNo};
use subtend_session::message::Message;
use subtend_session::outcome::ModelFail;
use subtend_session::place::{Mode, OnRestart};
use subtend_session::record::ToolCall;
use subtend_session::state::State;
use subtend_tools::background::{self, AGENT, PROCESS, RUNNING, SHELL};
use subtend_tools::dialect::Request as Opening;
use subtend_tools::registry::{Classified as Found, Registry, Ruling};

use crate::calls::in_flight::Parsed;
use crate::spawn::agents::Agents;
use crate::spawn::tool_set::{Classified, ToolSet};

/// Turn limit of a process, which is effectively none: its limit is time.
const MAX_TURNS: u32 = 1_000_000;

/// Maximum bytes of output in each turn's text, for the owner of a process that is lost or cancelled.
const MAX_TURN_BYTES: usize = 1 << 10;

/// Maximum wait of one call in ms, below the default time limit of tools.
const MAX_WAIT_MS: u64 = 60_000;

/// Returns whether the permanent approvals of a session cover an access of `tool`. None covers text that is typed into a process: its access does
/// not name the process that reads it.
pub(crate) fn is_granted(always: &BTreeSet<(Text, Access)>, tool: &str, access: &Access) -> bool {
    tool != PROCESS && always.iter().any(|(of, granted)| **of == *tool && granted == access)
}

/// Adds the agent of processes to `catalog`, if `tools` can start them.
pub(crate) fn add(catalog: &mut Catalog, tools: &Registry) {
    if [SHELL, PROCESS].iter().all(|name| tools.get(name).is_some()) {
        catalog.insert(Manifest {
            description: "Runs one command in the background.".into(),
            model: Some(AGENT.into()),
            tools: Some(vec![SHELL.into(), PROCESS.into()]),
            turns: Some(MAX_TURNS),
            hidden: true,
            // A command ends with its host, even if the session that started it resumes.
            on_restart: Some(OnRestart::Fail),
            instructions: false,
            source: Source::Builtin,
            ..Manifest::new(AGENT, AgentMode::Subagent, "You run one command and report its end.")
        });
    }
}

impl Agents {
    /// Classifies a call that starts a background process; `None` for other calls. The process itself asks for its permission, as `shell`.
    pub(crate) fn starts_process(&self, offer: &ToolSet, tool: &str, args: &str) -> Option<Classified> {
        if tool != SHELL || *offer.agent == *AGENT || self.catalog.get(AGENT).is_none() {
            return None;
        }
        let all = |_: &Access| true;
        let found = self.tools.classify_offered(tool, args, &offer.authority, offer.only.as_deref(), true, &all);
        let Some(Found::Ready { tool, args, .. }) = found else { return None };
        let command = match background::command(&args) {
            Ok(command) => command?,
            Err(error) => return Some(Classified::tree(Err(error.message.into()))),
        };
        if let Ruling::Denied(error) = Registry::ruling(&*tool, &args, &offer.authority, &all) {
            return Some(Classified::tree(Err(error.message.into())));
        }
        if !offer.specs.iter().any(|spec| *spec.name == *PROCESS) {
            let text = format!("`background` needs the tool `{PROCESS}`, which is not available in this session");
            return Some(Classified::tree(Err(text.into())));
        }
        let start = Box::new(background::start(AGENT.into(), &command));
        let ready = Some(Parsed::Spawn(Opening::Start(start)));
        Some(Classified::tree(Ok((CallKind::Child(Mode::Background), ready))))
    }
}

/// Returns the process of `state`'s session with the name `named`.
pub(crate) fn find_process(state: &State, named: &str, child: Result<SessionId, Text>) -> Result<SessionId, Text> {
    let child = child?;
    match state.children.get(&child) {
        Some(known) if *known.agent == *AGENT => Ok(child),
        Some(known) => Err(format!("{named} is not a background process but a task of {}", known.agent).into()),
        None => Err(format!("Unknown process `{named}`.").into()),
    }
}

pub(crate) fn is_process(parsed: &Parsed) -> bool {
    matches!(parsed, Parsed::Spawn(Opening::Start(start)) if *start.agent == *AGENT)
}

/// Returns how many processes may run in the tree of `state`'s session: one slot stays free for its agents.
pub(crate) fn max_processes(state: &State) -> u32 {
    state.limits.live_runs.saturating_sub(1).max(1)
}

pub(crate) fn too_many(most: u32) -> Refusal {
    let message = format!(
        "not started: {most} background processes of this tree run already, and the limit is one less than `live_runs`: stop one of \
         yours with the tool {PROCESS} first, or work without"
    );
    Refusal { kind: ToolErrorKind::Limit, message: message.into() }
}

pub(crate) struct ProcessModel;

impl Model for ProcessModel {
    fn name(&self) -> &str {
        AGENT
    }

    fn leaves_process(&self) -> bool {
        false
    }

    /// Returns `None`: no context limit applies.
    fn context_window(&self) -> Option<u64> {
        Some(u64::from(u32::MAX))
    }

    fn call(&self, request: Request, _: Deltas) -> BoxFuture<'static, Result<Answer, ModelError>> {
        // Any session can name this model, and would run the text of its first input.
        if *request.agent != *AGENT {
            let why = "the model of background processes answers in no other session";
            return std::future::ready(Err(ModelError::new(ModelFail::InvalidRequest, why))).boxed();
        }
        let can_poll = request.tools.iter().any(|tool| *tool.name == *PROCESS);
        let starts = request.turn == TurnNo(1);
        std::future::ready(Ok(answer(&request.messages, starts, can_poll))).boxed()
    }
}

/// Returns the process model's answer. Only the first turn `starts`: a rollback may leave a message as transcript.
fn answer(messages: &[Message], starts: bool, can_poll: bool) -> Answer {
    let call = |tool: &str, args: serde_json::Value| ToolCall {
        provider_id: "process".into(),
        tool: tool.into(),
        args: args.to_string().into(),
    };
    if let ([Message::User { text, .. }], true) = (messages, starts) {
        return Answer::of_calls(None, vec![call(SHELL, json!({"command": &**text, "background": true}))]);
    }
    let result =
        |message: &Message| if let Message::Result { content, .. } = message { Some(content.clone()) } else { None };
    let mut results = messages.iter().rev().filter_map(result);
    // Messages of people have no effect while the command is running.
    if let Some(written) = results.next().and_then(|last| new_output(&last)).filter(|_| can_poll) {
        let wait =
            u32::try_from(results.count()).ok().and_then(|before| 2_000_u64.checked_shl(before)).unwrap_or(MAX_WAIT_MS);
        let args = json!({"action": "output", "wait_ms": wait.clamp(2_000, MAX_WAIT_MS)});
        return Answer::of_calls(written, vec![call(PROCESS, args)]);
    }
    let last = messages.last().and_then(result);
    Answer::of_text(
        last.unwrap_or_else(|| "This session runs one command and does not take messages. Nothing was done.".into()),
    )
}

/// Returns the end of the output of a running process since the last call; `None` if it is not running.
fn new_output(result: &str) -> Option<Option<Text>> {
    let (output, state) = result.rsplit_once('\n').unwrap_or(("", result));
    let tail = output.get(output.ceil_char_boundary(output.len().saturating_sub(MAX_TURN_BYTES))..).unwrap_or_default();
    state.starts_with(RUNNING).then(|| (!tail.is_empty()).then(|| tail.into()))
}

#[cfg(test)]
mod tests {
    use subtend_session::ids::{CallId, Seq};

    use super::*;

    fn result(content: &str) -> Message {
        Message::Result { call: CallId { turn: TurnNo(1), ix: 0 }, error: false, content: content.into() }
    }

    fn user(text: &str) -> Message {
        Message::User { seq: Seq(1), text: text.into() }
    }

    #[test]
    fn r9_model_starts_polls_and_reports_the_command() {
        let answered = |messages: Vec<Message>| answer(&messages, true, true);
        let first = answered(vec![user("make")]);
        let args: serde_json::Value = serde_json::from_str(&first.calls[0].args).unwrap();
        assert_eq!((&*first.calls[0].tool, args), (SHELL, json!({"command": "make", "background": true})));
        let next = answered(vec![user("make"), result("one\n[running for 1 s; output 0 to 4 of 4 bytes]")]);
        assert_eq!((next.text.as_deref(), &*next.calls[0].tool), (Some("one"), PROCESS));
        let silent = answered(vec![user("make"), result("[running for 1 s; output 0 to 0 of 0 bytes]")]);
        assert_eq!((silent.text, silent.calls.len()), (None, 1));
        let ended = answered(vec![user("make"), result("[running\n[exit code 0; output 0 to 9 of 9 bytes]")]);
        assert!(ended.calls.is_empty() && ended.text.is_some_and(|text| text.contains("exit code 0")));
    }

    #[test]
    fn r9_message_to_a_process_session_runs_nothing() {
        let messages = vec![user("make"), result("[exit code 0]"), user("rm -rf .")];
        assert!(answer(&messages, true, true).calls.is_empty());
        let messages = vec![user("make"), user("rm -rf .")];
        assert!(answer(&messages, true, true).calls.is_empty());
        // The transcript that a rollback leaves.
        assert!(answer(&[user("rm -rf .")], false, true).calls.is_empty());
        let messages = vec![user("make"), result("[running for 1 s]"), user("rm -rf .")];
        assert_eq!(&*answer(&messages, false, true).calls[0].tool, PROCESS);
    }
}
