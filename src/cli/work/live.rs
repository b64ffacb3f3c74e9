//! The live tree, built from events: the current activity of each session.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use subtend_actors::event::{Event, EventKind};
use subtend_models::model::Delta;
use subtend_session::call::{CallEnd, CallKind, ToolEffect};
use subtend_session::ids::{CallId, SessionId, Text};
use subtend_session::outcome::Outcome;
use subtend_session::place::BranchKind;
use subtend_session::record::{AttemptDiscarded, Carrier, Hold, NoticeTaken, Park, Record, TurnAnswered};
use subtend_tools::registry::Registry;
use tokio::time::Instant;

/// All sessions of one tree, as far as their events were seen.
#[derive(Debug)]
pub(super) struct LiveTree {
    nodes: BTreeMap<SessionId, LiveNode>,
    root: SessionId,
    early: BTreeMap<SessionId, Vec<Arc<Record>>>,
    pub(super) missed: u64,
}

#[derive(Debug)]
pub(super) struct LiveNode {
    pub(super) agent: Text,
    /// Its short name; the root's is left out.
    pub(super) short: Text,
    pub(super) depth: usize,
    pub(super) doing: Doing,
    pub(super) turns: u32,
    pub(super) tokens: u64,
    pub(super) ended: Option<Instant>,
    opened: Instant,
    worked: Duration,
    working: Option<Instant>,
    kids: Vec<SessionId>,
    registry: Registry,
    open: BTreeMap<CallId, RunningCall>,
}

#[derive(Debug)]
struct RunningCall {
    brief: String,
    kind: Option<CallKind>,
}

impl RunningCall {
    fn is_local(&self) -> bool {
        self.kind.as_ref().is_some_and(CallKind::is_local)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Doing {
    Idle,
    Queued,
    Thinking,
    /// Its history is summarised before the model is called.
    Compacting,
    Writing,
    Tools,
    Waiting,
    /// Parked at a provider's limit until then, in milliseconds since the epoch.
    Limited(i64),
    Asks,
    Held(&'static str),
    Ended(Outcome),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum News {
    Born,
    Tool(String),
    /// A local call ended: its display, its effect, its end, and the start of its result.
    Called(String, ToolEffect, CallEnd, Text),
    /// A model call failed, and is tried again or not.
    Failed(String),
    /// Old messages were summarised, or not: the event in words.
    Compacted(String),
    Ended(Outcome),
}

impl LiveTree {
    /// Returns a tree of its root alone, whose calls are shown as the tools of `registry` say.
    pub(super) fn new(root: SessionId, agent: Text, now: Instant, registry: Registry) -> Self {
        let nodes = BTreeMap::from([(root, LiveNode::new(agent, "".into(), 0, now, registry))]);
        Self { nodes, root, early: BTreeMap::new(), missed: 0 }
    }

    pub(super) fn in_order(&self) -> Vec<(SessionId, &LiveNode)> {
        let mut out = Vec::with_capacity(self.nodes.len());
        let mut next = vec![self.root];
        while let Some(id) = next.pop() {
            if let Some(node) = self.nodes.get(&id) {
                out.push((id, node));
                next.extend(node.kids.iter().rev());
            }
        }
        out
    }

    pub(super) fn node(&self, id: SessionId) -> Option<&LiveNode> {
        self.nodes.get(&id)
    }

    /// Handles one event; returns the news to print, with its session.
    pub(super) fn take(&mut self, event: &Event, now: Instant) -> Option<(SessionId, News)> {
        let id = event.session;
        match &event.what {
            EventKind::Record { record, .. } => self.record(id, record, now),
            EventKind::Delta { delta, .. } => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    let doing = match delta {
                        Delta::Text(_) | Delta::Call { .. } => Doing::Writing,
                        Delta::Reasoning(_) => Doing::Thinking,
                    };
                    node.go(doing, now);
                }
                None
            }
            EventKind::Progress { .. } | EventKind::Queue { .. } => None,
        }
    }

    pub(super) fn running(&self, node: &LiveNode) -> usize {
        let kids = node.kids.iter().filter_map(|kid| self.nodes.get(kid));
        kids.filter(|kid| !matches!(kid.doing, Doing::Idle | Doing::Ended(_))).count()
    }

    /// Tokens of the last run of the root and of all runs that began after it.
    pub(super) fn tokens(&self) -> u64 {
        let since = self.nodes.get(&self.root).map(|root| root.opened);
        let runs = self.nodes.values().filter(|node| Some(node.opened) >= since);
        runs.map(|node| node.tokens).fold(0, u64::saturating_add)
    }

    fn record(&mut self, id: SessionId, record: &Arc<Record>, now: Instant) -> Option<(SessionId, News)> {
        let Some(node) = self.nodes.get_mut(&id) else {
            // Parent and child publish on their own: the child's first records may overtake the record of its birth.
            self.early.entry(id).or_default().push(Arc::clone(record));
            return None;
        };
        // Services of the host are not part of the session's activity.
        let born = if let Record::ChildSpawned(spawned) = &**record {
            Some((spawned.child, &spawned.agent, &spawned.short))
        } else if let Record::BranchCreated(created) = &**record
            && created.kind != BranchKind::Service
        {
            Some((created.child, &created.agent, &created.short))
        } else {
            None
        };
        if let Some((child, agent, short)) = born {
            node.kids.push(child);
            let depth = node.depth.saturating_add(1);
            let mut node = LiveNode::new(agent.clone(), short.0.clone(), depth, now, node.registry.clone());
            if matches!(&**record, Record::ChildSpawned(_)) {
                node.doing = Doing::Queued;
            }
            for record in self.early.remove(&child).unwrap_or_default() {
                node.record(&record, now);
            }
            self.nodes.insert(child, node);
            return Some((child, News::Born));
        }
        node.record(record, now).map(|news| (id, news))
    }
}

impl LiveNode {
    fn new(agent: Text, short: Text, depth: usize, now: Instant, registry: Registry) -> Self {
        Self {
            registry,
            agent,
            short,
            depth,
            doing: Doing::Idle,
            turns: 0,
            tokens: 0,
            ended: None,
            opened: now,
            worked: Duration::ZERO,
            working: None,
            kids: Vec::new(),
            open: BTreeMap::new(),
        }
    }

    pub(super) fn tools(&self) -> impl Iterator<Item = &str> {
        self.open.values().filter(|open| open.is_local()).map(|open| open.brief.as_str())
    }

    /// Working time of the last run: without waits for children, for a slot and for a person.
    pub(super) fn worked(&self, now: Instant) -> Duration {
        let since = self.working.map(|since| now.saturating_duration_since(since));
        self.worked.saturating_add(since.unwrap_or_default())
    }

    fn go(&mut self, doing: Doing, now: Instant) {
        self.worked = self.worked(now);
        self.working =
            matches!(doing, Doing::Thinking | Doing::Compacting | Doing::Writing | Doing::Tools).then_some(now);
        self.doing = doing;
    }

    /// Shows that the model is called, if its call waited for a compaction.
    fn compacted(&mut self, now: Instant) {
        if self.doing == Doing::Compacting {
            self.go(Doing::Thinking, now);
        }
    }

    fn record(&mut self, record: &Record, now: Instant) -> Option<News> {
        match record {
            Record::RunOpened(opened) => {
                (self.turns, self.tokens, self.ended, self.opened) = (0, 0, None, now);
                // A run that needs no slot starts at once.
                self.go(if opened.slot { Doing::Queued } else { Doing::Thinking }, now);
                self.worked = Duration::ZERO;
            }
            Record::TurnStarted { compacts: Some(_), .. } => self.go(Doing::Compacting, now),
            Record::Compacted(done) => {
                self.compacted(now);
                let why = done.cause.phrase();
                return Some(News::Compacted(format!("compacted, {why}: {} to {} tokens", done.before, done.after)));
            }
            Record::CompactionFailed(failed) => {
                self.compacted(now);
                return Some(News::Compacted(format!("not compacted: {}", failed.message)));
            }
            Record::RunStarted { .. } | Record::TurnStarted { .. } | Record::RunResumed { .. } => {
                self.go(Doing::Thinking, now);
            }
            Record::TurnAnswered(answered) => self.answered(answered),
            Record::AttemptDiscarded(discarded) => {
                let usage = discarded.usage.unwrap_or_default();
                self.tokens = self.tokens.saturating_add(usage.tokens());
                return Some(News::Failed(failed(discarded)));
            }
            Record::CallStarted { call, kind, .. } => return self.started(*call, kind, now),
            Record::CallFinished(finished) => {
                let open = self.close(finished.call, now)?;
                let effect = match open.kind {
                    Some(CallKind::Local(effect)) => effect,
                    // The call was refused before it started.
                    None => ToolEffect::ReadOnly,
                    Some(_) => return None,
                };
                return Some(News::Called(open.brief, effect, finished.end.clone(), finished.content.clone()));
            }
            Record::NoticeTaken(taken) => self.noticed(taken, now),
            Record::RunParked { why, .. } => {
                let doing = match why {
                    Park::MidTurn | Park::AtRest => Doing::Waiting,
                    Park::Ask => Doing::Asks,
                    Park::Slot => Doing::Queued,
                    Park::Limit { until } => Doing::Limited(*until),
                };
                self.go(doing, now);
            }
            Record::AskOpened { .. } => self.go(Doing::Asks, now),
            Record::RunHeld { why, .. } => {
                let doing = Doing::Held(match &**why {
                    Hold::Interrupted { .. } => "interrupted",
                    Hold::OutOfTurns => "out of turns",
                    Hold::Closing { .. } => "closing",
                });
                self.go(doing, now);
            }
            Record::RunEnded(ended) => {
                self.open.clear();
                self.ended = Some(now);
                self.go(Doing::Ended(ended.outcome.clone()), now);
                self.worked = Duration::from_millis(ended.worked_ms);
                return Some(News::Ended(ended.outcome.clone()));
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

    fn answered(&mut self, answered: &TurnAnswered) {
        self.turns = self.turns.saturating_add(1);
        self.tokens = self.tokens.saturating_add(answered.usage.tokens());
        let tool_calls = answered.calls.iter().zip(0_u32..);
        self.open = tool_calls
            .map(|(tool_call, ix)| {
                let open = RunningCall {
                    brief: super::brief::call(&tool_call.tool, &tool_call.args, &self.registry),
                    kind: None,
                };
                (CallId { turn: answered.turn, ix }, open)
            })
            .collect();
    }

    fn started(&mut self, call: CallId, kind: &CallKind, now: Instant) -> Option<News> {
        let open = self.open.get_mut(&call)?;
        open.kind = Some(kind.clone());
        let news = kind.is_local().then(|| News::Tool(open.brief.clone()));
        self.settle(now);
        news
    }

    fn close(&mut self, call: CallId, now: Instant) -> Option<RunningCall> {
        let open = self.open.remove(&call);
        self.settle(now);
        open
    }

    /// Updates the activity between two answers: working while a local call is open, waiting while only others are.
    fn settle(&mut self, now: Instant) {
        let mut started = self.open.values().filter(|open| open.kind.is_some());
        if started.clone().any(RunningCall::is_local) {
            self.go(Doing::Tools, now);
        } else if started.next().is_some() {
            self.go(Doing::Waiting, now);
        }
    }

    fn noticed(&mut self, taken: &NoticeTaken, now: Instant) {
        let mut close = |call| drop(self.close(call, now));
        match taken.carrier {
            Carrier::Result => taken.items.iter().filter_map(|item| item.key).for_each(close),
            Carrier::Await { call } => close(call),
            Carrier::Message => {}
        }
    }
}

/// Describes a discarded attempt: its model, if there are several, and what follows.
fn failed(discarded: &AttemptDiscarded) -> String {
    let who = discarded.model.as_ref().map(|model| format!("{model}: ")).unwrap_or_default();
    let then = match discarded.again_ms {
        None => String::new(),
        Some(0) => "; asking again".to_owned(),
        Some(ms) => format!("; asking again in {}.{} s", ms / 1_000, ms % 1_000 / 100),
    };
    format!("{who}{}{then}", discarded.message)
}

#[cfg(test)]
pub(in crate::cli::work) mod tests;
