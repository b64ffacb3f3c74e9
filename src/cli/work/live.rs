//! The tree as its events tell it: what each session of a run is doing right now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use subtend_actors::event::{Event, What};
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
pub(super) struct Live {
    nodes: BTreeMap<SessionId, Node>,
    root: SessionId,
    /// Records of sessions whose birth was not heard of yet.
    early: BTreeMap<SessionId, Vec<Arc<Record>>>,
    /// Events that were missed: what is shown may be behind.
    pub(super) missed: u64,
}

/// One session.
#[derive(Debug)]
pub(super) struct Node {
    /// Its agent.
    pub(super) agent: Text,
    /// Its short name; the root's is left out.
    pub(super) short: Text,
    /// Subagent edges from the root.
    pub(super) depth: usize,
    /// What it does.
    pub(super) doing: Doing,
    /// Answered turns of its last run.
    pub(super) turns: u32,
    /// Tokens of the model calls of its last run.
    pub(super) tokens: u64,
    /// When its last run ended.
    pub(super) ended: Option<Instant>,
    /// When its last run was opened.
    opened: Instant,
    /// Working time of its last run before `working`.
    worked: Duration,
    /// Since when it works.
    working: Option<Instant>,
    kids: Vec<SessionId>,
    /// How calls are shown.
    registry: Registry,
    /// Calls of the last answer that have no result.
    open: BTreeMap<CallId, Open>,
}

#[derive(Debug)]
struct Open {
    brief: String,
    kind: Option<CallKind>,
}

impl Open {
    fn is_local(&self) -> bool {
        self.kind.as_ref().is_some_and(CallKind::is_local)
    }
}

/// What a session does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Doing {
    /// It has no run yet.
    Idle,
    /// It waits for a slot.
    Queued,
    /// The model was asked.
    Thinking,
    /// The model answers.
    Writing,
    /// Tools run.
    Tools,
    /// It waits for its children.
    Waiting,
    /// A call of it waits for approval.
    Asks,
    /// It is held.
    Held(&'static str),
    /// Its run ended.
    Ended(Outcome),
}

/// What is worth a line where there is no live tree.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum News {
    /// A session came to be.
    Born,
    /// A tool was started.
    Tool(String),
    /// A local call ended: what it was, whether it only read, and how it ended with the start of its result.
    Called(String, ToolEffect, CallEnd, Text),
    /// A model call failed, and is tried again or not.
    Failed(String),
    /// The run ended.
    Ended(Outcome),
}

impl Live {
    /// A tree of its root alone, whose calls are shown as the tools of `registry` say.
    pub(super) fn new(root: SessionId, agent: Text, now: Instant, registry: Registry) -> Self {
        let nodes = BTreeMap::from([(root, Node::new(agent, "".into(), 0, now, registry))]);
        Self { nodes, root, early: BTreeMap::new(), missed: 0 }
    }

    /// The sessions, each after its parent, in the order of birth.
    pub(super) fn in_order(&self) -> Vec<(SessionId, &Node)> {
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

    /// The session.
    pub(super) fn node(&self, id: SessionId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Takes one event; gives what is worth a line, with the session that it is about.
    pub(super) fn take(&mut self, event: &Event, now: Instant) -> Option<(SessionId, News)> {
        let id = event.session;
        match &event.what {
            What::Record { record, .. } => self.record(id, record, now),
            What::Delta { delta, .. } => {
                if let Some(node) = self.nodes.get_mut(&id) {
                    let doing = match delta {
                        Delta::Text(_) | Delta::Call { .. } => Doing::Writing,
                        Delta::Reasoning(_) => Doing::Thinking,
                    };
                    node.go(doing, now);
                }
                None
            }
            What::Progress { .. } | What::Queue { .. } => None,
        }
    }

    /// Children of `node` with a run in flight.
    pub(super) fn running(&self, node: &Node) -> usize {
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
        // The host's services work beside the session, not for it: they are no part of what it does.
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
            let mut node = Node::new(agent.clone(), short.0.clone(), depth, now, node.registry.clone());
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

impl Node {
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

    /// The local tools that run now.
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
        self.working = matches!(doing, Doing::Thinking | Doing::Writing | Doing::Tools).then_some(now);
        self.doing = doing;
    }

    fn record(&mut self, record: &Record, now: Instant) -> Option<News> {
        match record {
            Record::RunOpened(opened) => {
                (self.turns, self.tokens, self.ended, self.opened) = (0, 0, None, now);
                // A run that needs no slot starts at once.
                self.go(if opened.slot { Doing::Queued } else { Doing::Thinking }, now);
                self.worked = Duration::ZERO;
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
                    // It was refused before it started.
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
        let asked = answered.calls.iter().zip(0_u32..);
        self.open = asked
            .map(|(asked, ix)| {
                let open = Open { brief: super::brief::call(&asked.tool, &asked.args, &self.registry), kind: None };
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

    fn close(&mut self, call: CallId, now: Instant) -> Option<Open> {
        let open = self.open.remove(&call);
        self.settle(now);
        open
    }

    /// Between two answers: it works while a local call is open, and waits while only others are.
    fn settle(&mut self, now: Instant) {
        let mut started = self.open.values().filter(|open| open.kind.is_some());
        if started.clone().any(Open::is_local) {
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

/// What is told of an attempt that came to nothing: which model it was, where there are several, and what follows.
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
