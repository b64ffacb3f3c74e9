//! Local tools of a turn, polled once in the handler and spawned only if they are pending.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::noop_waker_ref;
use serde_json::Value;
use subtend_session::call::{CallEnd, CallKind, CallResult, Invalid, ToolEffect, ToolErrorKind};
use subtend_session::command::{Command, Deadline, FoundCall, NeededApproval};
use subtend_session::dialect::Dialect;
use subtend_session::ids::{CallId, Lsn, RunNo, SessionId, Text};
use subtend_session::state::{CallPhase, Phase};
use subtend_tools::registry::Registry;
use subtend_tools::tool::{Messenger, Progress, Tool, ToolInvocation, ToolKey};

use crate::calls::in_flight::{Parsed, RunningTool};
use crate::calls::tool_call::{self, StopSignals};
use crate::cell::driver::Driver;
use crate::cell::names::TasksBelow;
use crate::clock::now;
use crate::hooks::ToolAsked;
use crate::hooks::tool::{GrantedApprovals, Hooked};
use crate::observe::event::EventKind;

impl Driver {
    /// Returns whether the tool of `call` must wait for its intent record, since it leaves the process or has side effects.
    pub(crate) fn needs_tool_intent(&mut self, call: CallId) -> bool {
        if self.cells.host.faults.skips_intents() {
            return false;
        }
        self.cells.host.options.durable_before_call
            || self.state.created.worktree.is_some()
            || match self.parsed_call(call) {
                Some(Parsed::Tool(tool, _)) => tool.leaves_process() || tool.effect() != ToolEffect::ReadOnly,
                _ => true,
            }
    }

    /// Queues the command of a closed owner that has not arrived yet. Returns whether it did: then nothing may start.
    /// The token fires for the whole subtree at once; without this, a tool's end could be seen before its cause.
    /// deepest session could see the end of a stopped tool before its cause.
    pub(crate) fn decide_owner_close(&mut self) -> bool {
        let Some(owner) = self.owner_run() else { return false };
        let Some(key) = self.run_key().filter(|key| self.cells.runs.tokens.fired(key)) else { return false };
        let command = self.cells.runs.cancel_cause_command(owner, key);
        self.todo.next.push_back(command);
        true
    }

    /// Runs the local tool of `call`. If `intent` is set, the run waits until that record is durable.
    pub(crate) fn run_tool(&mut self, call: CallId, intent: Option<Lsn>) {
        let Some(run) = self.state.run.as_ref().map(|run| run.no) else { return };
        if !self.cells.life.may_start() {
            return;
        }
        if self.decide_owner_close() {
            return self.todo.next.push_back(tool_call::finished(call, Err(tool_call::not_started_result()), 0));
        }
        let Some(at) = self.state.call(call) else { return };
        let (note, parsed) = match self.work.ready.remove(&call) {
            Some(parsed) => (None, Some(parsed)),
            // The call was classified under another offer. The same tool and arguments give the same kind.
            None => {
                let found = self.agents.classify(&self.offer, &self.state.always, &at.tool, &at.args);
                (found.note, found.ready)
            }
        };
        let Some(Parsed::Tool(tool, args)) = parsed else {
            let content = note.unwrap_or_else(|| "the tool is no longer offered".into());
            let result = Box::new(CallResult::error(ToolErrorKind::UnknownTool, content));
            self.todo.next.push_back(Command::ToolFinished { call, result, worked_ms: 0 });
            return;
        };
        let approvals = self.approvals(call, &*tool, &args);
        if let Err(denied) = approvals.check(&self.agents.tools, &*tool, &args, &self.offer.authority) {
            let end = if denied.denied {
                CallEnd::Denied
            } else {
                CallEnd::ToolError { kind: denied.kind, retryable: denied.retryable }
            };
            let result = Box::new(CallResult { end, content: denied.message.into(), truncated_from: None });
            self.todo.next.push_back(Command::ToolFinished { call, result, worked_ms: 0 });
            return;
        }
        let child = match self.process_of(&tool.spec().name, &args) {
            Ok(child) => child,
            Err(content) => {
                let result = Box::new(CallResult::error(ToolErrorKind::NotFound, content));
                self.todo.next.push_back(Command::ToolFinished { call, result, worked_ms: 0 });
                return;
            }
        };
        self.start_tool(run, call, Local { tool, args, approvals, child }, intent);
    }

    fn approvals(&self, call: CallId, tool: &dyn Tool, args: &Value) -> GrantedApprovals {
        let allowed = self.state.call(call).is_some_and(|call| call.allowed);
        let once = if allowed { Registry::accesses(tool, args) } else { Vec::new() };
        GrantedApprovals { always: self.state.always.clone(), once }
    }

    /// Returns the hooks for a call, if the host has any.
    fn hooks_of(&self, run: RunNo, call: CallId, local: &Local) -> Option<Hooked> {
        let hooks = Arc::clone(self.cells.host.hooks.as_ref()?);
        let tool_call = ToolAsked {
            session: self.session(),
            root: self.root(),
            run,
            call,
            agent: Arc::clone(&self.offer.agent),
            tool: Arc::clone(&local.tool.spec().name),
            args: local.args.clone(),
        };
        let (tool, only, approvals) = (Arc::clone(&local.tool), self.offer.only.clone(), local.approvals.clone());
        let lease = self.cells.life.lease.clone();
        Some(Hooked { hooks, tools: self.agents.tools.clone(), tool, tool_call, only, approvals, lease })
    }

    /// Returns the tools that new children of the session may have at most.
    fn child_tools(&self) -> Option<Vec<Text>> {
        // The agent's own list does not bind children that `task` starts.
        let is_unbound = self.offer.opens.dialects.contains(&Dialect::Task);
        if is_unbound { self.state.tools.clone() } else { self.offer.only.clone() }
    }

    fn start_tool(&mut self, run: RunNo, call: CallId, local: Local, intent: Option<Lsn>) {
        let local = Local { tool: self.agents.tool_directory(&self.state).wrap_tool(local.tool), ..local };
        let hooked = self.hooks_of(run, call, &local);
        let Local { tool, args, child, .. } = local;
        let stop = StopSignals::default();
        let effect = tool.effect();
        let tool_call = ToolInvocation {
            key: ToolKey { session: self.session(), run, call },
            args,
            options: self.agents.options_of(&self.state, &*tool),
            workspace: Arc::clone(&self.agents.workspace),
            authority: Arc::clone(&self.offer.authority),
            cancel: stop.ask.clone(),
            max_bytes: self.state.limits.tool_result_bytes,
            progress: self.progress(call),
            processes: self.cells.life.processes.for_child(child),
            checkpoints: self.agents.checkpoints.clone(),
            messenger: Some(Arc::clone(&self.cells) as Arc<dyn Messenger>),
            child_tools: self.child_tools(),
            approved: self.state.call(call).is_some_and(|call| call.allowed),
        };
        let owned = self.run_key().and_then(|key| self.cells.runs.tokens.token(&key)).unwrap_or_default();
        let start = if let Some(hooked) = hooked {
            ToolStart::Hooked(Box::new(hooked), tool_call)
        } else if intent.is_none() {
            // The owner may have closed since this call was decided: work that has not started does not start.
            if owned.is_cancelled() {
                self.todo.next.push_back(tool_call::finished(call, Err(tool_call::not_started_result()), 0));
                return;
            }
            let mut running = tool_call::run(&tool, tool_call);
            match running.as_mut().poll(&mut Context::from_waker(noop_waker_ref())) {
                Poll::Ready(outcome) => {
                    self.todo.next.push_back(tool_call::finished(call, Ok(outcome), 0));
                    return;
                }
                Poll::Pending => ToolStart::Now(running),
            }
        } else {
            ToolStart::Later(tool, tool_call)
        };
        let (cells, session) = (Arc::clone(&self.cells), self.session());
        let task_stop = stop.clone();
        let started = now();
        let task = self.cells.life.tasks.spawn(async move {
            if let Some(lsn) = intent
                && cells.log.journal.wait(lsn).await.is_err()
            {
                return;
            }
            // The process may have been paused meanwhile.
            if !cells.life.lease.is_valid() {
                return;
            }
            // The owner may have closed while the intent was synced: work that has not started does not start.
            if owned.is_cancelled() || task_stop.ask.is_cancelled() {
                return cells.send_command(session, tool_call::finished(call, Err(tool_call::not_started_result()), 0));
            }
            let running = match start {
                ToolStart::Now(running) => running,
                ToolStart::Later(tool, call) => tool_call::run(&tool, call),
                ToolStart::Hooked(hooked, call) => Box::pin(hooked.run(call)),
            };
            let racing = tool_call::run_until_stopped(running, effect, task_stop.clone());
            tokio::pin!(racing);
            // The owner's token fires for the whole subtree at once and cancels every tool in it.
            let outcome = tokio::select! {
                biased;
                outcome = &mut racing => outcome,
                () = owned.cancelled() => {
                    task_stop.ask.cancel();
                    racing.await
                }
            };
            let worked_ms = u64::try_from(now().duration_since(started).as_millis()).unwrap_or(u64::MAX);
            cells.send_command(session, tool_call::finished(call, outcome, worked_ms));
        });
        self.work.tools.insert(call, RunningTool { stop, task });
    }

    fn progress(&self, call: CallId) -> Progress {
        if !self.cells.log.events.any() {
            return Progress::none();
        }
        let (cells, session, root) = (Arc::downgrade(&self.cells), self.session(), self.root());
        Progress::to(move |line| {
            if let Some(cells) = cells.upgrade() {
                cells.log.events.publish_progress(root, session, EventKind::Progress { call, line });
            }
        })
    }

    /// Removes a call that has its result. A tool that still runs is stopped, because it must not outlive its run.
    pub(crate) fn stop_tool(&mut self, call: CallId) {
        let Some(mut tool) = self.work.tools.remove(&call) else { return };
        if tool.task.is_finished() {
            return;
        }
        tool.cancel();
        let grace = Duration::from_millis(self.state.limits.grace_ms);
        let halt = self.cells.life.halt.clone();
        self.cells.life.tasks.spawn(async move {
            // The task may be about to end after its result. Its grace must not delay a shutdown.
            tokio::select! {
                _ = &mut tool.task => {}
                () = tokio::time::sleep(grace) => {}
                () = halt.cancelled() => {}
            }
        });
    }

    /// Stops local work at a deadline, before the session decides.
    pub(crate) fn stop_due_work(&mut self, deadline: Deadline) {
        self.armed.retain(|armed| *armed != deadline);
        // A late deadline must not touch the work of a run that resumed meanwhile.
        let stops = matches!(self.state.phase(), Phase::HeldInterrupted | Phase::Closing);
        if matches!(deadline, Deadline::Grace(_)) && stops {
            self.work.kill_tools();
        }
    }

    /// Returns, after a fold, the calls that have not started or wait for an approval, and keeps their parsed form.
    pub(crate) fn unstarted_calls(&mut self) -> Vec<FoundCall> {
        let Some(turn) = self.state.turn() else { return Vec::new() };
        let (mut unstarted, no, mut below) = (Vec::new(), turn.no, TasksBelow::default());
        for (call, ix) in turn.calls.iter().zip(0_u32..) {
            if !matches!(call.phase, CallPhase::Unstarted | CallPhase::Asked(_)) {
                continue;
            }
            if ix >= self.state.limits.calls_per_answer {
                let over = CallKind::Invalid(Invalid::OverLimit);
                unstarted.push((FoundCall::plain(CallId { turn: no, ix }, over), None));
                continue;
            }
            let mut found = self.agents.classify(&self.offer, &self.state.always, &call.tool, &call.args);
            if let Some(parsed) = &found.ready {
                self.resolve_task(parsed, &mut found.kind, &mut found.note, &mut below);
                if let CallKind::Continue(_) = found.kind {
                    found.access = self.access_to_continue(&call.tool, parsed);
                    found.ask = NeededApproval::of_one(found.access.is_some());
                }
            }
            let call = CallId { turn: no, ix };
            unstarted.push((FoundCall { call, kind: found.kind, access: found.access, ask: found.ask }, found.ready));
        }
        let kept = unstarted.into_iter().map(|(found, parsed)| {
            self.work.ready.extend(parsed.map(|parsed| (found.call, parsed)));
            found
        });
        kept.collect()
    }
}

enum ToolStart {
    Now(tool_call::Running),
    Later(Arc<dyn Tool>, ToolInvocation),
    Hooked(Box<Hooked>, ToolInvocation),
}

struct Local {
    tool: Arc<dyn Tool>,
    args: Value,
    approvals: GrantedApprovals,
    /// The background process that the call names.
    child: Option<SessionId>,
}
