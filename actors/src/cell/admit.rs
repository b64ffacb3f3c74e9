//! Admission of spawns: the catalog, the ledger and the id generator provide the verdicts before the session decides.

use std::sync::Arc;

use subtend_agents::profile::Reader;
use subtend_session::authority::{Authority, TooManyRules, Verdict};
use subtend_session::call::ToolErrorKind;
use subtend_session::command::{ChildPlan, Command, ContinuePlan, Plan, Refusal, SpawnVerdict};
use subtend_session::dialect::Dialect;
use subtend_session::ids::{CallId, RunKey, RunNo, SessionId, Short, Text, TurnNo};
use subtend_session::limits::MAX_DEPTH;
use subtend_session::place::Mode;
use subtend_session::record::SpawnGranted;
use subtend_session::state::State;
use subtend_supervision::SpawnGrants;
use subtend_tools::background::AGENT;
use subtend_tools::dialect::{ContinueRequest, Request, StartRequest, subagent};

use crate::calls::files::FileTexts;
use crate::calls::in_flight::{Parsed, ParsedCalls};
use crate::cell::cells::Cells;
use crate::cell::names;
use crate::delivery::live_processes::ProcessGrants;
use crate::hooks::{self, SubagentStart};
use crate::spawn::agents::Agents;
use crate::spawn::ancestors::count_levels;
use crate::spawn::background;
use crate::spawn::caches::Template;
use crate::spawn::child_spec::ChildSpec;
use crate::spawn::proposing::allowed_turns;
use crate::spawn::tool_set::{ToolSet, spawn_access, whitelist};
use crate::values::answering::model_of;

impl Cells {
    /// Returns the command with the verdicts for `calls` and the ledger's grants: a refused spawn returns its grant.
    /// After a crash before the decision is durable, the recount at boot corrects the ledger.
    pub(crate) fn admit(
        &self,
        state: &State,
        (agents, offer): (&Agents, &ToolSet),
        (turn, calls): (TurnNo, &[u32]),
        (ready, read): (&mut ParsedCalls, &FileTexts),
    ) -> (Command, (SpawnGrants<RunKey>, ProcessGrants)) {
        let root = self.root_run(state);
        let wanted = u32::try_from(calls.len()).unwrap_or(u32::MAX);
        let grants = self.calls.ledger.reserve_spawns(root, wanted, state.limits.spawns);
        let (granted, remaining) = (grants.granted(), grants.remaining());
        let mut processes = self.runs.processes.grants(state.created.place.root(state.id));
        let (mut used, most) = (0_u32, background::max_processes(state));
        let above = count_levels(&self.log.journal, state.created.place.parent()).unwrap_or(usize::MAX);
        let verdicts = calls
            .iter()
            .map(|ix| {
                let call = CallId { turn, ix: *ix };
                let parsed = ready.remove(&call);
                let is_process = parsed.as_ref().is_some_and(background::is_process);
                let verdict = if is_process && !processes.fits(most) {
                    Err(background::too_many(most))
                } else if used < granted {
                    let remaining = remaining.saturating_add(granted.saturating_sub(used).saturating_sub(1));
                    let plan = self.plan(state, (agents, offer), (call, parsed), remaining, read);
                    plan.and_then(|plan| match &plan {
                        // No import would take the tree, which may have been imported with this many levels of branches.
                        Plan::Child(child) if above >= MAX_DEPTH as usize => {
                            Err(format_refusal(child.dialect, too_deep()))
                        }
                        Plan::Child(child) if is_process && !processes.take(child.child, most) => {
                            Err(background::too_many(most))
                        }
                        Plan::Child(_) | Plan::Continue(_) => Ok(plan),
                    })
                    .inspect(|_| used = used.saturating_add(1))
                } else {
                    let dialect = state.call(call).and_then(|call| Dialect::from_name(&call.tool)).unwrap_or_default();
                    Err(format_refusal(dialect, over_limit(state.limits.spawns)))
                };
                SpawnVerdict { call, verdict }
            })
            .collect();
        (Command::Spawn { turn, verdicts }, (grants, processes))
    }

    /// Returns the root run above the run in flight, whose account pays for its spawns.
    fn root_run(&self, state: &State) -> RunKey {
        let run = state.run.as_ref().map_or(RunNo(0), |run| run.no);
        let key = RunKey { session: state.id, run };
        self.runs.tokens.root(&key).unwrap_or(key)
    }

    fn plan(
        &self,
        state: &State,
        (agents, offer): (&Agents, &ToolSet),
        (call, parsed): (CallId, Option<Parsed>),
        remaining: u32,
        read: &FileTexts,
    ) -> Result<Plan, Refusal> {
        let missing = || Refusal {
            kind: ToolErrorKind::Failed,
            message: "the call is missing; call again if it is still needed".into(),
        };
        let open_call = state.call(call).ok_or_else(missing)?;
        let request = match parsed {
            Some(Parsed::Spawn(request)) => request,
            Some(Parsed::Refused(error)) => {
                return Err(Refusal { kind: error.kind, message: error.message.into() });
            }
            _ => {
                let message = format!("{} is no longer offered", open_call.tool).into();
                let refusal = Refusal { kind: ToolErrorKind::UnknownTool, message };
                return Err(format_refusal(Dialect::from_name(&open_call.tool).unwrap_or_default(), refusal));
            }
        };
        let (grant, dialect) = (SpawnGranted { spawns_left: remaining }, request.dialect());
        let texts = |path: &str| match read.get(&(call.ix, path.into())) {
            Some(Ok(text)) => Ok(text.to_string()),
            Some(Err(why)) => Err(why.to_string()),
            None => Err("it was not read".to_owned()),
        };
        self.plan_request(state, (agents, offer), call, (request, &texts), grant)
            .map_err(|refusal| format_refusal(dialect, refusal))
    }

    fn plan_request(
        &self,
        state: &State,
        (agents, offer): (&Agents, &ToolSet),
        call: CallId,
        (request, read): (Request, Reader<'_>),
        grant: SpawnGranted,
    ) -> Result<Plan, Refusal> {
        match request {
            Request::Start(start) => {
                let (agent, prompt) = (Arc::clone(&start.agent), Arc::clone(&start.prompt));
                let plan = self.child(state, (agents, offer), (&start, read), grant)?;
                self.may_start(state, call, &agent, &prompt, plan.mode, None)?;
                Ok(Plan::Child(Box::new(plan)))
            }
            Request::Continue(request) => {
                let plan = self.continue_plan(state, (agents, offer), request, grant)?;
                let agent = state.children.get(&plan.child).map_or_else(|| "".into(), |child| Arc::clone(&child.agent));
                self.may_start(state, call, &agent, &plan.text, plan.mode, Some(plan.child))?;
                Ok(Plan::Continue(Box::new(plan)))
            }
        }
    }

    fn may_start(
        &self,
        state: &State,
        call: CallId,
        agent: &Text,
        prompt: &Text,
        mode: Mode,
        continues: Option<SessionId>,
    ) -> Result<(), Refusal> {
        let start = || SubagentStart {
            parent: state.id,
            root: state.created.place.root(state.id),
            run: state.last_run,
            call,
            agent: Arc::clone(agent),
            prompt: Arc::clone(prompt),
            mode,
            continues,
        };
        let refused = |message| Refusal { kind: ToolErrorKind::Refused, message };
        hooks::may_start(self.host.hooks.as_ref(), start).map_err(refused)
    }

    fn child(
        &self,
        state: &State,
        (agents, offer): (&Agents, &ToolSet),
        (request, read): (&StartRequest, Reader<'_>),
        grant: SpawnGranted,
    ) -> Result<ChildPlan, Refusal> {
        let template = agents
            .template(&request.agent, model_of(state), state.created.source)
            .map_err(|error| Refusal { kind: ToolErrorKind::NotFound, message: error.to_string().into() })?;
        let ChildSpec { created, first: prompt, skipped, warnings } =
            agents.child_spec(state, offer, request, &template, read)?;
        // The call precedes the manifest, and the manifest the dialect; both only lower the limit.
        let most = template.own_turns.map_or(state.limits.turns, |own| own.min(state.limits.turns));
        let turns = request.turns.or(template.own_turns).or(iterations_of(request.dialect)).unwrap_or(template.turns);
        let manifest = self.child_authority(state, offer, &template);
        let too_many = |error: TooManyRules| Refusal {
            kind: ToolErrorKind::Limit,
            message: format!("Not started: {error}.").into(),
        };
        state.ceiling.meet(&manifest).check_size().map_err(too_many)?;
        Ok(ChildPlan {
            child: self.host.ids.session(),
            input: self.host.ids.input(),
            prompt,
            on_restart: created.on_restart,
            created,
            manifest,
            dialect: request.dialect,
            label: request.label.clone(),
            skipped,
            warnings,
            mode: request.mode,
            max_turns: turns.min(most),
            deadline_ms: if *request.agent == *AGENT { Some(state.limits.detached_ms) } else { state.limits.run_ms },
            detached_ms: template.detached.then_some(state.limits.detached_ms),
            grant,
        })
    }

    /// Returns the plan to continue an ended task. The decision checks that the task has ended.
    fn continue_plan(
        &self,
        state: &State,
        (agents, offer): (&Agents, &ToolSet),
        request: ContinueRequest,
        grant: SpawnGranted,
    ) -> Result<ContinuePlan, Refusal> {
        let refusal = |kind, message: String| Refusal { kind, message: message.into() };
        let task = names::find_own_task(state, &request.task, &[request.dialect])
            .map_err(|message| Refusal { kind: ToolErrorKind::NotFound, message })?;
        let noun = names::noun(&[request.dialect]);
        let unknown = || refusal(ToolErrorKind::NotFound, format!("Unknown {noun} {}.", request.task));
        let known = state.children.get(&task).ok_or_else(unknown)?;
        let (short, agent) = (&known.short, &known.agent);
        if let Some(other) = request.agent.as_ref().filter(|requested| *requested != agent) {
            let key = if request.dialect == Dialect::Subagent { "agent" } else { "subagent_type" };
            let report = format!("The {noun} {short} is worked on by {agent}, not by {other}: leave {key} out.");
            return Err(refusal(ToolErrorKind::BadArgs, report));
        }
        let manifest =
            agents.catalog.get(agent).filter(|_| offer.authority.verdict(&spawn_access(agent)) != Verdict::Deny);
        let manifest = manifest.ok_or_else(|| {
            let report = format!("The {noun} {short} is worked on by {agent}, which you may no longer start.");
            refusal(ToolErrorKind::Refused, report)
        })?;
        let head = self.log.journal.head(task).ok().flatten();
        let gone = head.map(|head| (head.deleted, head.closed));
        match gone {
            Some((true, _)) => {
                Err(refusal(ToolErrorKind::Refused, format!("The {noun} {short} is deleted: start a new one.")))
            }
            Some((false, true)) => {
                Err(refusal(ToolErrorKind::Refused, format!("The {noun} {short} is closed: start a new one.")))
            }
            Some((false, false)) | None => {
                self.check_within_caller(state, (agents, offer), (&request, task), short)?;
                let (text, mode) = (request.prompt, request.mode);
                // If the call sets no number of turns, each run of a branch starts from the default.
                let own = || iterations_of(request.dialect).map(|turns| manifest.turns.unwrap_or(turns));
                let most = allowed_turns(manifest, &state.limits);
                let turns = request.turns.or_else(own).map(|turns| turns.min(most));
                let tools = request.tools.and_then(|tools| whitelist(Some(&tools), offer.only.as_ref()));
                Ok(ContinuePlan { child: task, text, mode, turns, tools, grant })
            }
        }
    }
}

impl Cells {
    /// Refuses to continue a task with more rights than its caller now: another agent may have answered at its start.
    fn check_within_caller(
        &self,
        state: &State,
        (agents, offer): (&Agents, &ToolSet),
        (request, task): (&ContinueRequest, SessionId),
        short: &Short,
    ) -> Result<(), Refusal> {
        // The tool list that bounds new children, unless the call names tools, since these bound its run.
        let only = if request.dialect == Dialect::Task { state.tools.as_ref() } else { offer.only.as_ref() };
        let only = only.filter(|_| request.tools.is_none());
        if only.is_none() && state.ceiling.within(&offer.authority) {
            return Ok(());
        }
        let noun = names::noun(&[request.dialect]);
        let message = match agents.excess((state.id, task), (&offer.authority, only)) {
            Ok(None) => return Ok(()),
            Ok(Some(more)) => format!("The {noun} {short} {more}: start a new one."),
            Err(error) => format!("The {noun} {short} cannot be read: {error}. Start a new one."),
        };
        Err(Refusal { kind: ToolErrorKind::Refused, message: message.into() })
    }

    /// Returns a child's authority: its manifest's, within the parent's if it lost some or another agent answers.
    fn child_authority(&self, state: &State, offer: &ToolSet, template: &Template) -> Arc<Authority> {
        if state.ceiling.within(&offer.authority) {
            return Arc::clone(&template.manifest);
        }
        Arc::new(template.manifest.meet(&offer.authority))
    }
}

fn iterations_of(dialect: Dialect) -> Option<u32> {
    (dialect == Dialect::Subagent).then_some(subagent::ITERATIONS)
}

fn format_refusal(dialect: Dialect, refusal: Refusal) -> Refusal {
    Refusal { message: dialect.refused(code(refusal.kind), &refusal.message), ..refusal }
}

/// Returns the code of a refusal, for dialects with codes.
fn code(kind: ToolErrorKind) -> &'static str {
    match kind {
        ToolErrorKind::UnknownTool => "UNKNOWN_TOOL",
        ToolErrorKind::BadArgs => "INVALID_ARGUMENTS",
        ToolErrorKind::NotFound => "NOT_FOUND",
        ToolErrorKind::Limit => "LIMIT_REACHED",
        ToolErrorKind::Refused => "REFUSED",
        ToolErrorKind::Failed | ToolErrorKind::Panicked => "FAILED",
    }
}

fn too_deep() -> Refusal {
    Refusal {
        kind: ToolErrorKind::Limit,
        message: format!(
            "Not started: {MAX_DEPTH} sessions are above this one, which is the limit. Do the work yourself."
        )
        .into(),
    }
}

fn over_limit(limit: u32) -> Refusal {
    Refusal {
        kind: ToolErrorKind::Limit,
        message: format!(
            "the limit of {limit} spawns of this tree is reached and 0 remain; finish with what the children found so far, \
             or do the rest yourself"
        )
        .into(),
    }
}
