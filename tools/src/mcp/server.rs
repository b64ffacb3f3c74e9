//! One server. It starts at its first use. After its end it is restarted, within a budget.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use rmcp::model::{CallToolResult, JsonObject};
use serde_json::Value;
use subtend_session::ids::{SessionId, Text};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::asked_questions::AskedQuestions;
use super::checker::Checker;
use super::config::{Origin, ServerConfig};
use super::connection::{ConnectionSettings, START_TIMEOUT, ServerConnection};
use super::known_tools::KnownTools;
use super::list_changes::ListChanges;
use super::logged_problems::LoggedProblems;
use super::login::ServerLogin;
use super::names::ANSWERS;
use super::open_calls::{CallTurns, DeclinedQuestions};
use super::question::{self, Question, ServerQuestion};
use super::result::{CallFailure, ServerText};
use super::sanitized_tool::{self, Purpose, SanitizedTool};
use super::{extras, result};
use crate::arguments;
use crate::registry::parts;
use crate::secrets::Secrets;
use crate::tool::{Progress, ToolError, ToolInvocation, ToolOutput};

/// Maximum number of starts within [`START_WINDOW`].
const MAX_STARTS: usize = 5;
const START_WINDOW: Duration = Duration::from_mins(10);
/// Time limit for checking the arguments of one call. A usual check takes milliseconds.
const MAX_CHECK_TIME: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    pub name: Text,
    pub origin: Origin,
    /// The protocol version while the server is connected.
    pub protocol: Option<String>,
    /// The name that the server reports for itself.
    pub about: Option<String>,
    /// The reason why the server is not connected.
    pub down: Option<String>,
    /// Advice for the user about a call that the login does not permit.
    pub lacking: Option<String>,
    pub tools: Vec<ToolReport>,
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolReport {
    pub name: Text,
    /// The action of the tool in rules.
    pub action: Text,
    pub description: Text,
    /// True if the description changed.
    pub changed: bool,
}

pub(super) struct LiveServer {
    pub(super) config: ServerConfig,
    settings: Arc<ConnectionSettings>,
    login: ServerLogin,
    /// The secrets in the server's configuration.
    configured: Secrets,
    known: Arc<KnownTools>,
    /// Counts changes of the tools of all servers.
    generation: Arc<AtomicU64>,
    slot: tokio::sync::Mutex<Slot>,
    listed: Mutex<Listed>,
    asked: AskedQuestions,
    turns: CallTurns,
    /// The changes of the current connection.
    changes: Mutex<ListChanges>,
    /// Compiles the server's schemas, and checks arguments against them.
    checker: Checker,
    logged: LoggedProblems,
}

#[derive(Default)]
struct Slot {
    up: Option<Arc<ServerConnection>>,
    starts: VecDeque<Instant>,
}

#[derive(Default)]
struct Listed {
    tools: Vec<SanitizedTool>,
    changed: BTreeSet<String>,
    problems: Vec<String>,
    about: (String, Option<String>),
    down: Option<String>,
}

impl LiveServer {
    pub(super) fn new(
        config: ServerConfig,
        (settings, known): (&Arc<ConnectionSettings>, &Arc<KnownTools>),
        generation: &Arc<AtomicU64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            login: ServerLogin::of(&config, &settings.workspace, (settings.logins.as_ref(), &settings.internal_hosts)),
            configured: config.transport.secrets(),
            config,
            settings: Arc::clone(settings),
            known: Arc::clone(known),
            generation: Arc::clone(generation),
            slot: tokio::sync::Mutex::default(),
            listed: Mutex::default(),
            asked: AskedQuestions::default(),
            turns: CallTurns::default(),
            changes: Mutex::default(),
            checker: Checker::default(),
            logged: LoggedProblems::default(),
        })
    }

    fn lock_listed(&self) -> MutexGuard<'_, Listed> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tools for `session`. Only its own questions are in them.
    pub(super) fn tools(&self, session: Option<SessionId>) -> Vec<SanitizedTool> {
        let mut tools = self.lock_listed().tools.clone();
        for tool in &mut tools {
            let questions = self.asked.of(session, &tool.names.name);
            if !questions.is_empty() {
                tool.add_answers_argument(&questions);
            }
        }
        tools
    }

    pub(super) fn asked(&self) -> &AskedQuestions {
        &self.asked
    }

    /// Remembers the questions of a tool, so that the session's next call can answer them. Returns a text that lists the questions.
    fn remember_questions(&self, (session, name): (SessionId, &str), declined: &DeclinedQuestions) -> Option<String> {
        let secrets = self.secrets();
        let requests: Vec<ServerQuestion> =
            declined.questions.iter().map(|question| question.without_secrets(&secrets)).collect();
        if requests.is_empty() {
            let unassigned = format!(
                "[the server asked the user for input, and got none: several calls were open, so the question may belong to another one. If \
                 its answer is needed, call {name} again while no other call of `{}` runs]",
                self.config.name
            );
            return declined.has_unassigned.then_some(unassigned);
        }
        let requested: Vec<String> = requests.iter().map(ServerQuestion::line).collect();
        let form = |request: &ServerQuestion| match request {
            ServerQuestion::Answerable(question) => Some(question.clone()),
            ServerQuestion::Other { .. } => None,
        };
        let questions: Vec<Question> = requests.iter().filter_map(form).collect();
        let again = if questions.is_empty() {
            String::new()
        } else {
            format!(
                ". To answer, call {name} again with the same arguments and `{ANSWERS}`, a list with \
                 {{\"question\": its id, \"answer\": the object}} for each question; the user approves it"
            )
        };
        self.asked.set((session, name), questions);
        self.generation.fetch_add(1, Ordering::AcqRel);
        Some(format!("[the server asked the user for input, and got none: {}{again}]", requested.join("; ")))
    }

    fn add_questions(
        &self,
        (name, call): (&str, &ToolInvocation),
        asked: &DeclinedQuestions,
        output: ToolOutput,
    ) -> ToolOutput {
        let Some(asked) = self.remember_questions((call.key.session, name), asked) else { return output };
        let truncated_from = output.truncated_from;
        let output = result::truncate(format!("{}\n{asked}", output.content), call.max_bytes);
        ToolOutput { truncated_from: truncated_from.or(output.truncated_from), ..output }
    }

    pub(super) fn report(&self) -> ServerReport {
        let listed = self.lock_listed();
        let tool = |tool: &SanitizedTool| ToolReport {
            name: tool.names.name.clone(),
            action: tool.names.action.clone(),
            description: tool.spec.description.clone(),
            changed: listed.changed.contains(&*tool.names.name),
        };
        ServerReport {
            name: self.config.name.clone(),
            origin: self.config.origin,
            protocol: Some(listed.about.0.clone()).filter(|version| listed.down.is_none() && !version.is_empty()),
            about: listed.about.1.clone(),
            down: listed.down.clone(),
            // The server named the scopes.
            lacking: self.login.missing_scope_advice().map(|advice| self.one_line(advice)),
            tools: listed.tools.iter().map(tool).collect(),
            problems: listed.problems.clone(),
        }
    }

    /// Returns the connection. Starts the server if it is not connected, or only with an earlier login.
    ///
    /// # Errors
    /// Returns the reason why the server cannot be used.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<ServerConnection>, String> {
        let mut slot = self.slot.lock().await;
        if let Some(up) = slot.up.take().filter(|up| !up.is_closed() && !up.has_replaced_login()) {
            slot.up = Some(Arc::clone(&up));
            return Ok(up);
        }
        let now = Instant::now();
        slot.starts.retain(|start| now.duration_since(*start) < START_WINDOW);
        if slot.starts.len() >= MAX_STARTS {
            let last = self.lock_listed().down.clone().unwrap_or_default();
            let minutes = START_WINDOW.as_secs() / 60;
            return Err(format!(
                "it was started {MAX_STARTS} times within {minutes} minutes, and is not restarted for now: {last}"
            ));
        }
        slot.starts.push_back(now);
        match self.start().await {
            Ok(up) => {
                slot.up = Some(Arc::clone(&up));
                Ok(up)
            }
            Err(why) => {
                let why = self.one_line(why);
                self.lock_listed().down = Some(why.clone());
                tracing::warn!(server = %self.config.name, %why, "the MCP server cannot be used");
                Err(why)
            }
        }
    }

    async fn start(self: &Arc<Self>) -> Result<Arc<ServerConnection>, ServerText> {
        let up = Arc::new(ServerConnection::open(&self.config, &self.settings, &self.login).await?);
        self.list(&up).await?;
        tokio::spawn(ServerConnection::subscribe(up.peer()));
        let changes = up.client().changes().clone();
        *self.changes.lock().unwrap_or_else(PoisonError::into_inner) = changes.clone();
        let (server, connection) = (Arc::downgrade(self), Arc::downgrade(&up));
        tokio::spawn(async move {
            while let Some(count) = changes.due().await {
                if !refresh(&server, &connection).await {
                    return changes.end();
                }
                changes.mark_listed(count);
            }
        });
        Ok(up)
    }

    /// Returns a future that waits for a changed list that the server has reported.
    pub(super) fn pending_list(&self) -> Option<BoxFuture<'static, ()>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).wait_for_list()
    }

    /// Lists the tools, and compares their descriptions with earlier ones.
    async fn list(&self, up: &ServerConnection) -> Result<(), ServerText> {
        let (mut tools, mut problems) = up.list().await?;
        // Descriptions are sent to the provider of a model, so they must not contain tokens.
        let secrets = self.secrets();
        let total = tools.len();
        tools.retain(|tool| serde_json::to_value(tool).is_ok_and(|tool| !secrets.are_in(&tool)));
        if tools.len() < total {
            problems.push(format!(
                "{} of its tools are ignored: they contain a secret of its configuration or login",
                total.saturating_sub(tools.len())
            ));
        }
        let server = self.config.name.clone();
        let described = self.checker.run(START_TIMEOUT, move |stop| sanitized_tool::all(&server, &tools, stop)).await;
        let (mut tools, refused, seen_tools) =
            described.map_err(|why| ServerText::from(format!("the schemas of its tools cannot be checked: {why}")))?;
        problems.extend(refused);
        for extra in extras::of(&self.config.name, &up.capabilities()) {
            if tools.iter().any(|tool| tool.names == extra.names) {
                problems.push(format!("its own tool `{0}` replaces the tool for its {0}", extra.remote));
            } else {
                tools.push(extra);
            }
        }
        let seen_tools: Vec<(&str, String)> =
            seen_tools.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
        let (changed, kept) = self.known.remember_and_compare(&self.settings.workspace, &self.config.name, &seen_tools);
        problems.extend(kept.err().map(|why| format!("the descriptions of its tools cannot be remembered: {why}")));
        let server = &self.config.name;
        for tool in &changed {
            // Every change is new.
            let change = format!("{tool} {}", self.generation.load(Ordering::Acquire));
            self.logged.log_new(server, &change, || {
                tracing::warn!(%server, %tool, "the description of an MCP tool changed");
            });
        }
        let problems: Vec<String> = problems.into_iter().map(|problem| self.one_line(problem)).collect();
        for problem in &problems {
            self.logged.log_new(server, problem, || tracing::warn!(%server, %problem, "an MCP server has problems"));
        }
        let (protocol, name) = up.server_info();
        let about = (self.one_line(protocol), name.map(|name| self.one_line(name)));
        let mut listed = self.lock_listed();
        *listed = Listed { tools, changed: std::mem::take(&mut listed.changed), problems, about, down: None };
        listed.changed.extend(changed);
        drop(listed);
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    async fn check_arguments(&self, name: &str, schema: Arc<Value>, args: Value) -> Result<Value, ToolError> {
        let tool = name.to_owned();
        let check = move |_: &CancellationToken| {
            arguments::compile_foreign(&schema).and_then(|schema| arguments::validate(&tool, &schema, args))
        };
        match self.checker.run(MAX_CHECK_TIME, check).await {
            Ok(checked) => checked.map_err(ToolError::bad_args),
            Err(why) => Err(ToolError::limit(format!("the arguments of {name} cannot be checked: {why}"))),
        }
    }

    /// Calls the tool that models call `name`, if the server still lists it and `check` permits the call. The invocation has no arguments.
    /// Only questions of `session` can be answered: those that the approval shows.
    pub(super) async fn call(
        self: &Arc<Self>,
        (name, session): (&str, Option<SessionId>),
        (call, mut args): (&ToolInvocation, Value),
        check: &(dyn Fn(&SanitizedTool, &Value) -> Result<(), ToolError> + Send + Sync),
    ) -> Result<ToolOutput, ToolError> {
        let server = &self.config.name;
        let up = self.connection().await.map_err(|why| ToolError {
            retryable: true,
            ..ToolError::failed(format!("the MCP server `{server}` cannot be used: {why}"))
        })?;
        let found = self.lock_listed().tools.iter().find(|tool| *tool.names.name == *name).cloned();
        let Some(tool) = found else {
            let message = format!("the MCP server `{server}` no longer has the tool `{name}`: use another one");
            return Err(ToolError::not_found(message));
        };
        check(&tool, &args)?;
        // The schema may have changed since the call was classified.
        let answers = args.as_object_mut().and_then(|args| args.remove(ANSWERS));
        let answers = match &answers {
            Some(answers) => question::check_answers(&tool.names.action, &self.asked.of(session, name), answers)
                .map_err(ToolError::bad_args)?,
            None => BTreeMap::new(),
        };
        let Value::Object(args) = self.check_arguments(name, tool.spec.schema.clone(), args).await? else {
            return Err(ToolError::bad_args("the arguments are not an object"));
        };
        let calling = self.answer(&up, &tool, args, answers, &call.progress);
        let (called, asked) = match self.config.timeout {
            Some(limit) => match tokio::time::timeout(limit, calling).await {
                Ok(called) => called,
                Err(_) => (Err(CallFailure::TimedOut), DeclinedQuestions::default()),
            },
            None => calling.await,
        };
        match called {
            Ok(ServerAnswer::Text(text)) => Ok(result::truncate(text, call.max_bytes)),
            Ok(ServerAnswer::Call(answer)) => {
                let output = result::of(server, &answer, (call.max_bytes, &self.secrets()))?;
                Ok(self.add_questions((name, call), &asked, output))
            }
            Err(CallFailure::Refused(why)) => {
                let asked = self.remember_questions((call.key.session, name), &asked);
                let asked = asked.map_or_else(String::new, |asked| format!("\n{asked}"));
                let why = why.into_result();
                Err(ToolError::failed(format!("the MCP server `{server}` refused the call: {why}{asked}")))
            }
            Err(CallFailure::Unauthorized(why)) => {
                // The next call reconnects, with the login that exists then.
                let why = self.record_down(&up, why).await;
                let message = format!("the MCP server `{server}` refused the call, which had no effects: {why}");
                Err(ToolError::failed(message))
            }
            Err(CallFailure::TimedOut) => {
                let limit = self.config.timeout.unwrap_or_default().as_millis();
                Err(ToolError::limit(format!(
                    "the call of `{name}` was cancelled: the MCP server `{server}` did not answer within its `timeout` of {limit} ms"
                )))
            }
            Err(CallFailure::Disconnected(why)) => {
                let why = self.record_down(&up, why).await;
                let message = format!(
                    "the MCP server `{server}` ended during the call, whose effects are unknown: {why}. The next call starts it again."
                );
                Err(ToolError { retryable: true, ..ToolError::failed(message) })
            }
        }
    }

    /// Sends a call. Returns the answer and the declined questions.
    async fn answer(
        &self,
        up: &ServerConnection,
        tool: &SanitizedTool,
        args: JsonObject,
        answers: BTreeMap<String, Value>,
        progress: &Progress,
    ) -> (Result<ServerAnswer, CallFailure>, DeclinedQuestions) {
        let (has_answers, secrets) = (!answers.is_empty(), self.secrets());
        let calling = async {
            let open = up.client().open_call(answers);
            let answered = match tool.purpose {
                Purpose::Tool => up.call(&tool.remote, args, (&open, progress)).await.map(ServerAnswer::Call),
                Purpose::Resources => extras::resources(up, &args, (&open, &secrets)).await.map(ServerAnswer::Text),
                Purpose::Prompts => extras::prompts(up, &args, (&open, &secrets)).await.map(ServerAnswer::Text),
            };
            (answered, open.take_questions())
        };
        self.turns.take(has_answers, calling).await
    }

    /// Returns the reason as it is recorded.
    async fn record_down(&self, ended: &Arc<ServerConnection>, why: ServerText) -> String {
        let why = self.one_line(why);
        self.lock_listed().down = Some(why.clone());
        let mut slot = self.slot.lock().await;
        if slot.up.as_ref().is_some_and(|up| Arc::ptr_eq(up, ended)) {
            slot.up = None;
        }
        why
    }

    /// Returns the secrets that the server knows: those of its configuration, and the tokens of its login.
    pub(super) fn secrets(&self) -> Secrets {
        self.login.secrets().with(&self.configured)
    }

    /// Returns a text of the server as one line without secrets.
    fn one_line(&self, text: impl Into<ServerText>) -> String {
        text.into().one_line(&self.secrets())
    }

    /// Returns whether `name` may be a tool of this server.
    pub(super) fn may_have(&self, name: &str) -> bool {
        parts(name).is_some_and(|(server, _)| *server == *self.config.name)
    }
}

enum ServerAnswer {
    Call(CallToolResult),
    Text(String),
}

/// Lists the tools again after a change. Returns false if the connection has ended.
async fn refresh(server: &Weak<LiveServer>, connection: &Weak<ServerConnection>) -> bool {
    let (Some(server), Some(up)) = (server.upgrade(), connection.upgrade()) else { return false };
    if up.is_closed() {
        return false;
    }
    if let Err(why) = server.list(&up).await {
        let (name, why) = (&server.config.name, server.one_line(why));
        server.logged.log_new(name, &why, || {
            tracing::warn!(server = %name, %why, "the changed tools of an MCP server cannot be listed");
        });
    }
    true
}

#[cfg(test)]
mod tests;
