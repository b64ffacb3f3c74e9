//! The live tree: the current activity of each session, built from events.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use subtend_actors::event::{Event, EventKind};
use subtend_models::model::Delta;
use subtend_session::call::{CallEnd, CallKind, ToolEffect};
use subtend_session::ids::{CallId, SessionId, Text};
use subtend_session::outcome::{ModelFail, Outcome, OutcomeKind};
use subtend_session::place::BranchKind;
use subtend_session::record::{Carrier, Hold, NoticeTaken, Park, Record, TurnAnswered};
use subtend_tools::registry::Registry;
use tokio::time::Instant;

use crate::cli::paint::limited;

/// The sessions of one tree, as known from events.
#[derive(Debug)]
pub(super) struct LiveTree {
    // Boxed, because a map of many large values has much free room.
    nodes: HashMap<SessionId, Box<LiveNode>>,
    root: SessionId,
    registry: Registry,
    early_records: BTreeMap<SessionId, Vec<Arc<Record>>>,
    /// Services of the host, which are not shown: their records would stay for a node that never comes.
    services: HashSet<SessionId>,
    pub(super) missed: u64,
}

#[derive(Debug)]
pub(super) struct LiveNode {
    pub(super) agent: Text,
    /// Short name; empty for the root.
    pub(super) short: Text,
    pub(super) depth: usize,
    pub(super) activity: NodeActivity,
    pub(super) turns: u32,
    pub(super) tokens: u64,
    pub(super) ended: Option<Instant>,
    opened: Instant,
    worked: Duration,
    working: Option<Instant>,
    children: Vec<SessionId>,
    /// The calls of the last answer, while one has no result.
    open: Option<Box<OpenCalls>>,
    /// The last failed attempt, until a record says whether it is retried.
    failed: Option<Box<(String, u64)>>,
}

/// The calls of the last answer that have no result.
#[derive(Debug, Default)]
struct OpenCalls {
    calls: BTreeMap<CallId, RunningCall>,
    // Kept as counts, because an answer may have very many calls.
    started_local: usize,
    started_other: usize,
}

impl OpenCalls {
    fn new(calls: BTreeMap<CallId, RunningCall>) -> Self {
        Self { calls, ..Self::default() }
    }

    /// Marks a call as started. Returns its description; `None` if the call is unknown.
    fn start(&mut self, call: CallId, kind: &CallKind) -> Option<&str> {
        let open = self.calls.get_mut(&call)?;
        let stage = if let CallKind::Local(effect) = kind { CallStage::Local(*effect) } else { CallStage::Other };
        let before = std::mem::replace(&mut open.stage, stage);
        Self::count(before, (&mut self.started_local, &mut self.started_other), usize::saturating_sub);
        Self::count(stage, (&mut self.started_local, &mut self.started_other), usize::saturating_add);
        Some(&open.brief)
    }

    fn close(&mut self, call: CallId) -> Option<RunningCall> {
        let open = self.calls.remove(&call)?;
        Self::count(open.stage, (&mut self.started_local, &mut self.started_other), usize::saturating_sub);
        Some(open)
    }

    fn count(stage: CallStage, (local, other): (&mut usize, &mut usize), change: fn(usize, usize) -> usize) {
        let count = match stage {
            CallStage::Requested => return,
            CallStage::Local(_) => local,
            CallStage::Other => other,
        };
        *count = change(*count, 1);
    }
}

#[derive(Debug)]
struct RunningCall {
    brief: String,
    stage: CallStage,
}

impl RunningCall {
    fn is_local(&self) -> bool {
        matches!(self.stage, CallStage::Local(_))
    }
}

/// How far a call is.
#[derive(Clone, Copy, Debug)]
enum CallStage {
    Requested,
    Local(ToolEffect),
    Other,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum NodeActivity {
    Idle,
    Queued,
    Thinking,
    /// The history is compacted before the model call.
    Compacting,
    Writing,
    Tools,
    Waiting,
    /// Parked at a provider's limit until this Unix time in ms.
    Limited(i64),
    Asks,
    Held(&'static str),
    Ended(OutcomeKind),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ActivityUpdate {
    Created,
    Tool(String),
    /// A local call ended, with its description, effect, end and result.
    Called(String, ToolEffect, CallEnd, Text),
    /// A model call failed; the message says whether it is retried.
    Failed(String),
    /// A compaction succeeded or failed; the message describes it.
    Compacted(String),
    Ended(Outcome),
}

impl LiveTree {
    /// Creates a tree with the root only. Calls are described by the tools of `registry`.
    pub(super) fn new(root: SessionId, agent: Text, now: Instant, registry: Registry) -> Self {
        let nodes = HashMap::from([(root, Box::new(LiveNode::new(agent, "".into(), 0, now)))]);
        Self { nodes, root, registry, early_records: BTreeMap::new(), services: HashSet::new(), missed: 0 }
    }

    pub(super) fn in_order(&self) -> Vec<(SessionId, &LiveNode)> {
        let mut out = Vec::with_capacity(self.nodes.len());
        let mut next = vec![self.root];
        while let Some(id) = next.pop() {
            if let Some(node) = self.nodes.get(&id) {
                out.push((id, &**node));
                next.extend(node.children.iter().rev());
            }
        }
        out
    }

    pub(super) fn node(&self, id: SessionId) -> Option<&LiveNode> {
        self.nodes.get(&id).map(|node| &**node)
    }

    /// Handles an event. Returns an update to print, with its session.
    pub(super) fn take(&mut self, event: &Event, now: Instant) -> Option<(SessionId, ActivityUpdate)> {
        let id = event.session;
        match &event.what {
            EventKind::Record { record, .. } => self.record(id, record, now),
            EventKind::Delta { delta, .. } => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    let activity = match delta {
                        Delta::Text(_) | Delta::Call { .. } => NodeActivity::Writing,
                        Delta::Reasoning(_) => NodeActivity::Thinking,
                    };
                    node.set_activity(activity, now);
                }
                None
            }
            EventKind::Progress { .. } | EventKind::Queue { .. } => None,
        }
    }

    pub(super) fn running(&self, node: &LiveNode) -> usize {
        let children = node.children.iter().filter_map(|child| self.nodes.get(child));
        children.filter(|child| !matches!(child.activity, NodeActivity::Idle | NodeActivity::Ended(_))).count()
    }

    /// Returns the tokens of the last run of the root and of all runs that began after it.
    pub(super) fn tokens(&self) -> u64 {
        let since = self.nodes.get(&self.root).map(|root| root.opened);
        let runs = self.nodes.values().filter(|node| Some(node.opened) >= since);
        runs.map(|node| node.tokens).fold(0, u64::saturating_add)
    }

    fn record(&mut self, id: SessionId, record: &Arc<Record>, now: Instant) -> Option<(SessionId, ActivityUpdate)> {
        let Some(node) = self.nodes.get_mut(&id) else {
            // Parent and child publish independently: a child's first records may arrive before its creation.
            if !self.services.contains(&id) {
                self.early_records.entry(id).or_default().push(Arc::clone(record));
            }
            return None;
        };
        let new_child = if let Record::ChildSpawned(spawned) = &**record {
            Some((spawned.child, &spawned.agent, &spawned.short))
        } else if let Record::BranchCreated(created) = &**record {
            if created.kind == BranchKind::Service {
                self.services.insert(created.child);
                self.early_records.remove(&created.child);
                return None;
            }
            Some((created.child, &created.agent, &created.short))
        } else {
            None
        };
        if let Some((child, agent, short)) = new_child {
            node.children.push(child);
            let depth = node.depth.saturating_add(1);
            let mut node = LiveNode::new(agent.clone(), short.0.clone(), depth, now);
            if matches!(&**record, Record::ChildSpawned(_)) {
                node.activity = NodeActivity::Queued;
            }
            for record in self.early_records.remove(&child).unwrap_or_default() {
                node.record(&record, &self.registry, now);
            }
            self.nodes.insert(child, Box::new(node));
            return Some((child, ActivityUpdate::Created));
        }
        node.record(record, &self.registry, now).map(|news| (id, news))
    }
}

impl LiveNode {
    fn new(agent: Text, short: Text, depth: usize, now: Instant) -> Self {
        Self {
            agent,
            short,
            depth,
            activity: NodeActivity::Idle,
            turns: 0,
            tokens: 0,
            ended: None,
            opened: now,
            worked: Duration::ZERO,
            working: None,
            children: Vec::new(),
            open: None,
            failed: None,
        }
    }

    pub(super) fn tools(&self) -> impl Iterator<Item = &str> {
        let calls = self.open.iter().flat_map(|open| open.calls.values());
        calls.filter(|open| open.is_local()).map(|open| open.brief.as_str())
    }

    /// Returns the working time of the last run, without waits for children, slots and approvals.
    pub(super) fn working_time(&self, now: Instant) -> Duration {
        let since = self.working.map(|since| now.saturating_duration_since(since));
        self.worked.saturating_add(since.unwrap_or_default())
    }

    fn set_activity(&mut self, activity: NodeActivity, now: Instant) {
        self.worked = self.working_time(now);
        self.working = matches!(
            activity,
            NodeActivity::Thinking | NodeActivity::Compacting | NodeActivity::Writing | NodeActivity::Tools
        )
        .then_some(now);
        self.activity = activity;
    }

    /// Switches from compacting to thinking when a compaction has ended.
    fn end_compaction(&mut self, now: Instant) {
        if self.activity == NodeActivity::Compacting {
            self.set_activity(NodeActivity::Thinking, now);
        }
    }

    fn record(&mut self, record: &Record, registry: &Registry, now: Instant) -> Option<ActivityUpdate> {
        match record {
            Record::RunOpened(opened) => {
                (self.turns, self.tokens, self.ended, self.opened) = (0, 0, None, now);
                // A run that does not need a slot starts at once.
                self.set_activity(if opened.slot { NodeActivity::Queued } else { NodeActivity::Thinking }, now);
                self.worked = Duration::ZERO;
            }
            Record::TurnStarted { compacts, .. } => {
                let is_compacting = compacts.is_some();
                self.set_activity(if is_compacting { NodeActivity::Compacting } else { NodeActivity::Thinking }, now);
                return self.failed.take().map(|failed| retried(*failed));
            }
            Record::Compacted(done) => {
                self.end_compaction(now);
                let why = done.cause.phrase();
                return Some(ActivityUpdate::Compacted(format!(
                    "compacted, {why}: {} to {} tokens",
                    done.before, done.after
                )));
            }
            Record::CompactionFailed(failed) => {
                self.end_compaction(now);
                return Some(ActivityUpdate::Compacted(format!("not compacted: {}", failed.message)));
            }
            Record::RunStarted { .. } | Record::RunResumed { .. } => {
                self.set_activity(NodeActivity::Thinking, now);
            }
            Record::TurnAnswered(answered) => self.record_answer(answered, registry),
            Record::AttemptDiscarded(discarded) => {
                let usage = discarded.usage.unwrap_or_default();
                self.tokens = self.tokens.saturating_add(usage.tokens());
                let model = discarded.model.as_ref().map(|model| format!("{model}: ")).unwrap_or_default();
                let message = format!("{model}{}", discarded.message);
                let Some(ms) = discarded.retry_delay_ms else {
                    // A call that is dropped without a retry was stopped with its run, whose end or hold is shown.
                    let is_stopped = discarded.error == ModelFail::Dropped;
                    return (!is_stopped).then_some(ActivityUpdate::Failed(message));
                };
                self.failed = Some(Box::new((message, ms)));
            }
            Record::CallStarted { call, kind, .. } => return self.start_call(*call, kind, now),
            Record::CallFinished(finished) => {
                let open = self.close(finished.call, now)?;
                let effect = match open.stage {
                    CallStage::Local(effect) => effect,
                    // The call was refused before it started.
                    CallStage::Requested => ToolEffect::ReadOnly,
                    CallStage::Other => return None,
                };
                return Some(ActivityUpdate::Called(
                    open.brief,
                    effect,
                    finished.end.clone(),
                    finished.content.clone(),
                ));
            }
            Record::NoticeTaken(taken) => self.close_calls(taken, now),
            Record::RunParked { why, .. } => {
                let activity = match why {
                    Park::MidTurn | Park::AtRest => NodeActivity::Waiting,
                    Park::Ask => NodeActivity::Asks,
                    Park::Slot => NodeActivity::Queued,
                    Park::Limit { until } => NodeActivity::Limited(*until),
                };
                self.set_activity(activity, now);
                if let Park::Limit { until } = why {
                    let message = self.failed.take().map(|failed| format!(": {}", failed.0)).unwrap_or_default();
                    return Some(ActivityUpdate::Failed(format!("{}{message}", limited(*until))));
                }
            }
            Record::AskOpened { .. } => self.set_activity(NodeActivity::Asks, now),
            Record::RunHeld { why, .. } => {
                let activity = NodeActivity::Held(match &**why {
                    Hold::Interrupted { .. } => "held: interrupted",
                    Hold::OutOfTurns => "held: out of turns",
                    Hold::Closing { .. } => "closing",
                });
                self.set_activity(activity, now);
            }
            Record::RunEnded(ended) => {
                self.open = None;
                self.ended = Some(now);
                self.set_activity(NodeActivity::Ended(ended.outcome.kind()), now);
                self.worked = Duration::from_millis(ended.worked_ms);
                return Some(ActivityUpdate::Ended(ended.outcome.clone()));
            }
            Record::SessionCreated(_)
            | Record::InputAccepted(_)
            | Record::InputsTaken { .. }
            | Record::QueueChanged { .. }
            | Record::ChildSpawned(_)
            | Record::BranchCreated(_)
            | Record::AlternativeSwitched { .. }
            | Record::RolledBack { .. }
            | Record::CompactionUndone { .. }
            | Record::TitleSet(_)
            | Record::SummarySet(_)
            | Record::MetadataSet(_)
            | Record::SessionDeleted { .. }
            | Record::ContinueAsked(_)
            | Record::ContinueRefused { .. }
            | Record::CancelAsked { .. }
            | Record::AskAnswered { .. }
            | Record::SessionClosed { .. }
            | Record::SessionReopened { .. } => {}
        }
        None
    }

    fn record_answer(&mut self, answered: &TurnAnswered, registry: &Registry) {
        self.turns = self.turns.saturating_add(1);
        self.tokens = self.tokens.saturating_add(answered.usage.tokens());
        let tool_calls = answered.calls.iter().zip(0_u32..);
        let calls: BTreeMap<_, _> = tool_calls
            .map(|(tool_call, ix)| {
                let open = RunningCall {
                    brief: super::brief::call(&tool_call.tool, &tool_call.args, registry),
                    stage: CallStage::Requested,
                };
                (CallId { turn: answered.turn, ix }, open)
            })
            .collect();
        self.open = (!calls.is_empty()).then(|| Box::new(OpenCalls::new(calls)));
    }

    fn start_call(&mut self, call: CallId, kind: &CallKind, now: Instant) -> Option<ActivityUpdate> {
        let brief = self.open.as_mut()?.start(call, kind)?;
        let news = kind.is_local().then(|| ActivityUpdate::Tool(brief.to_owned()));
        self.update_activity(now);
        news
    }

    fn close(&mut self, call: CallId, now: Instant) -> Option<RunningCall> {
        let open = self.open.as_mut().and_then(|open| open.close(call));
        self.update_activity(now);
        open
    }

    /// Updates the activity between two answers: running tools if a local call is open, else waiting.
    fn update_activity(&mut self, now: Instant) {
        let Some(open) = &self.open else { return };
        if open.started_local > 0 {
            self.set_activity(NodeActivity::Tools, now);
        } else if open.started_other > 0 {
            self.set_activity(NodeActivity::Waiting, now);
        }
    }

    fn close_calls(&mut self, taken: &NoticeTaken, now: Instant) {
        let mut close = |call| drop(self.close(call, now));
        match taken.carrier {
            Carrier::Result => taken.items.iter().filter_map(|item| item.key).for_each(close),
            Carrier::Await { call } => close(call),
            Carrier::Message => {}
        }
    }
}

/// Describes a failed attempt that is repeated after some milliseconds.
fn retried((message, ms): (String, u64)) -> ActivityUpdate {
    let then = match ms {
        0 => String::new(),
        ms => format!(" in {}.{} s", ms / 1_000, ms % 1_000 / 100),
    };
    ActivityUpdate::Failed(format!("{message}; retrying{then}"))
}

#[cfg(test)]
pub(in crate::cli::work) mod tests;
