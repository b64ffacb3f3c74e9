//! Task names that a model writes. They resolve only to its session's own tasks.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use subtend_session::authority::{Access, Verdict};
use subtend_session::call::{CallKind, Invalid};
use subtend_session::command::{Answered, Command, Deadline, NeededApproval};
use subtend_session::dialect::jobs::{JobIndex, Jobs};
use subtend_session::dialect::{Dialect, id_for_model};
use subtend_session::ids::{CallId, RunKey, SessionId, Text};
use subtend_session::state::{Child, Phase, State};
use subtend_tools::background as tools;
use subtend_tools::dialect::Request;
use uuid::Uuid;

use crate::calls::in_flight::Parsed;
use crate::cell::cells::Cells;
use crate::cell::driver::Driver;
use crate::delivery::directory::Presence;
use crate::spawn::background;
use crate::spawn::tool_set::spawn_access;

const MAX_LISTED: usize = 20;
/// Maximum number of sessions below the caller that are searched for the owner of a task.
const MAX_SEARCHED: usize = 1_000;

/// Returns the task with the name `named`, if a call of this session started it in one of `dialects`. The error is a text for the model.
pub(crate) fn find_own_task(state: &State, named: &str, dialects: &[Dialect]) -> Result<SessionId, Text> {
    let of = |child: &Child| child.call.is_some() && dialects.contains(&child.dialect);
    let own = || state.children.iter().filter(|(_, child)| of(child));
    let full = Uuid::try_parse(named.strip_prefix("task_").unwrap_or(named)).ok().map(SessionId);
    if let Some(id) = full.filter(|id| state.children.get(id).is_some_and(of)) {
        return Ok(id);
    }
    if let Some((id, _)) = own().find(|(_, child)| *child.short.0 == *named) {
        return Ok(*id);
    }
    let (named, noun): (String, _) = (named.chars().take(60).collect(), noun(dialects));
    let all = own().count();
    if all == 0 {
        return Err(format!("Unknown {noun} `{named}`: no earlier answer of yours started one.").into());
    }
    let mut newest: Vec<_> = own().collect();
    newest.sort_by_key(|(_, child)| std::cmp::Reverse(child.call));
    let shown: Vec<String> = newest
        .iter()
        .take(MAX_LISTED)
        .map(|(id, child)| format!("{} ({})", id_for_model(child.dialect, **id, &child.short), child.agent))
        .collect();
    let more = if all > MAX_LISTED { format!(" and {} older ones", all - MAX_LISTED) } else { String::new() };
    Err(format!("Unknown {noun} `{named}`. Yours: {}{more}.", shown.join(", ")).into())
}

pub(crate) fn noun(dialects: &[Dialect]) -> &'static str {
    match dialects {
        [Dialect::Minion] => "minion chat",
        [Dialect::Subagent] => "branch",
        _ => "task",
    }
}

/// Tasks below those of a session, by full and short id, with the session's own task above them. Read once for all calls of
/// an answer, when the first one names an unknown task.
#[derive(Default)]
pub(crate) struct TasksBelow(Option<BTreeMap<Text, SessionId>>);

/// Dialects whose tasks can be checked and cancelled by id.
const MANAGED: [Dialect; 2] = [Dialect::Task, Dialect::SpawnTask];

impl Driver {
    /// Resolves the task names in the calls of an answer, and decides which calls need an approval.
    pub(crate) fn resolve_calls(&self, answer: &mut Answered) {
        let (turn, mut below) = (answer.turn, TasksBelow::default());
        for (call, ix) in answer.calls.iter_mut().zip(0_u32..) {
            let Some(parsed) = self.work.ready.get(&CallId { turn, ix }) else { continue };
            self.resolve_task(parsed, &mut call.kind, &mut call.note, &mut below);
            if let CallKind::Continue(_) = call.kind {
                call.access = self.access_to_continue(&call.asked.tool, parsed);
                call.ask = NeededApproval::of_one(call.access.is_some());
            } else if call.ask.is_needed() && !self.state.always.is_empty() {
                let (access, ask) =
                    self.agents.required_access(&self.offer, &self.state.always, &call.asked.tool, parsed);
                (call.access, call.ask) = (access.map(Box::new), ask);
            }
        }
    }

    /// Returns the access that needs an approval before the named task continues: the same as for starting its agent. Returns `None` if no approval is
    /// needed, or if the task is unknown; admission then refuses the call.
    pub(crate) fn access_to_continue(&self, tool: &str, parsed: &Parsed) -> Option<Box<Access>> {
        let Parsed::Spawn(Request::Continue(again)) = parsed else { return None };
        let child = self.state.children.get(&find_own_task(&self.state, &again.task, &[again.dialect]).ok()?)?;
        let access = spawn_access(&child.agent);
        let asks = self.offer.authority.verdict(&access) == Verdict::Ask;
        (asks && !background::is_granted(&self.state.always, tool, &access)).then(|| Box::new(access))
    }

    /// Resolves the task of a call. If the task is unknown, the call becomes invalid, with a text for the model.
    pub(crate) fn resolve_task(
        &self,
        parsed: &Parsed,
        kind: &mut CallKind,
        note: &mut Option<Text>,
        below: &mut TasksBelow,
    ) {
        let found = match (&mut *kind, parsed) {
            (CallKind::Check { run, .. }, Parsed::Check(check)) => {
                find_own_task(&self.state, &check.task, &MANAGED).map(|task| *run = self.state.owned_run(task))
            }
            (CallKind::Cancel { child }, Parsed::Cancel(task)) => {
                self.task_to_cancel(task, below).map(|task| *child = task)
            }
            (CallKind::Cancel { child }, Parsed::Stop(named)) => {
                background::find_process(&self.state, named, find_own_task(&self.state, named, &MANAGED))
                    .map(|own| *child = own)
            }
            (CallKind::Await { runs, .. }, Parsed::Await(jobs)) => {
                *runs = self.awaited_runs(jobs);
                return;
            }
            _ => return,
        };
        if let Err(error) = found {
            (*kind, *note) = (CallKind::Invalid(Invalid::BadArgs), Some(error));
        }
    }

    /// Returns the runs to await. Unknown jobs are skipped here; the result of the call lists them.
    fn awaited_runs(&self, jobs: &Jobs) -> Vec<RunKey> {
        let Jobs::Named(named) = jobs else { return Vec::new() };
        let index = JobIndex::of(&self.state);
        let targets: BTreeSet<SessionId> =
            named.iter().filter_map(|named| index.find(named)).map(|(job, _)| job).collect();
        targets.into_iter().map(|job| self.state.owned_run(job)).collect()
    }

    fn task_to_cancel(&self, named: &str, below: &mut TasksBelow) -> Result<SessionId, Text> {
        find_own_task(&self.state, named, &MANAGED).map_err(|error| {
            let below = below.0.get_or_insert_with(|| self.cells.tasks_below(&self.state));
            let Some(ancestor) = below.get(named) else { return error };
            let short = self.state.children.get(ancestor).map(|child| child.short.to_string()).unwrap_or_default();
            format!("Task {named} was not started by you but below your task {short}: cancel that one.").into()
        })
    }

    /// Records which checked tasks still wait for their first slot, because the session's state does not contain this.
    pub(crate) fn record_queued_checks(&mut self, command: &Command) {
        let mut checked: BTreeSet<SessionId> = BTreeSet::new();
        let mut add = |kind: &CallKind| {
            if let CallKind::Check { run, .. } = kind {
                checked.insert(run.session);
            }
        };
        if let Command::ModelAnswered(answer) = command {
            answer.calls.iter().for_each(|call| add(&call.kind));
        }
        self.state.due.waits.iter().for_each(|(_, kind)| add(kind));
        let open = self
            .state
            .turn()
            .into_iter()
            .flat_map(|turn| turn.waits.iter().filter_map(|ix| turn.calls.get(*ix as usize)));
        open.filter_map(|call| call.kind.as_ref()).for_each(add);
        self.state.queued_children = checked.into_iter().filter(|child| self.cells.is_queued(*child)).collect();
    }

    /// Returns the time limit that the model set for a check.
    pub(crate) fn requested_timeout(&mut self, deadline: Deadline) -> Option<u64> {
        let Deadline::Call(call) = deadline else { return None };
        if !matches!(self.state.call(call)?.kind, Some(CallKind::Check { .. })) {
            return None;
        }
        if let Parsed::Check(check) = self.parsed_call(call)? { check.timeout_ms } else { None }
    }

    /// Returns the process that a call of the tool `process` names; `None` for other calls.
    pub(crate) fn process_of(&self, tool: &str, args: &Value) -> Result<Option<SessionId>, Text> {
        let named = (tool == tools::PROCESS).then(|| tools::process_name(args)).flatten();
        let own = |named| background::find_process(&self.state, named, find_own_task(&self.state, named, &MANAGED));
        named.map(own).transpose()
    }

    /// Returns a parsed call. Parses it here if it was classified by an earlier activation or with other tools.
    pub(crate) fn parsed_call(&mut self, call: CallId) -> Option<&Parsed> {
        match self.work.ready.entry(call) {
            Entry::Occupied(parsed) => Some(parsed.into_mut()),
            Entry::Vacant(place) => {
                let at = self.state.call(call)?;
                let found = self.agents.classify(&self.offer, &self.state.always, &at.tool, &at.args);
                Some(place.insert(found.ready?))
            }
        }
    }
}

impl Cells {
    fn is_queued(&self, session: SessionId) -> bool {
        let in_memory = self.directory.with(session, |entry| match entry.presence {
            Presence::NotStarted(_) => Some(true),
            Presence::Starting | Presence::Active => Some(false),
            Presence::Absent => None,
        });
        let stored = || self.log.journal.head(session).ok().flatten().is_some_and(|head| head.state == Phase::Queued);
        in_memory.flatten().unwrap_or_else(stored)
    }

    /// Returns the tasks below those of `state`'s session, as far as they can be read.
    fn tasks_below(&self, state: &State) -> BTreeMap<Text, SessionId> {
        let own = state.children.iter().filter(|(_, child)| child.call.is_some());
        let mut next: Vec<(SessionId, SessionId)> = own.map(|(id, _)| (*id, *id)).collect();
        let (mut found, mut searched) = (BTreeMap::new(), 0);
        while let Some((ancestor, at)) = next.pop() {
            let Ok(children) = self.log.journal.children(at) else { return found };
            for child in children {
                searched += 1;
                if searched > MAX_SEARCHED {
                    return found;
                }
                let Ok(head) = self.log.journal.head(child) else { return found };
                let names = head.map(|head| head.short.0).into_iter().chain([child.to_string().into()]);
                for name in names {
                    found.entry(name).or_insert(ancestor);
                }
                next.push((ancestor, child));
            }
        }
        found
    }
}
