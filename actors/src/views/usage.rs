//! The usage of sessions: their own model calls, those of owned runs, and those of the whole tree.

use std::collections::{BTreeMap, BTreeSet};

use subtend_journal::{Journal, ReadError, Stored};
use subtend_session::ids::{RunKey, RunNo, SessionId, Short, Text};
use subtend_session::record::Record;
use subtend_session::usage::Usage;

use crate::values::owned_runs::runs_below;
use crate::views::history;

/// The usage of a session so far. Each attempt of a model call counts once in each sum that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageView {
    /// The session's own model calls, of all its runs.
    pub own: Usage,
    /// Model calls of the runs that its runs own, at any depth.
    pub owned: Usage,
    /// Model calls of the session and of all sessions below it, regardless of their owners.
    pub tree: Usage,
    /// The parent; `None` for a root.
    pub parent: Option<SessionId>,
    /// The children, oldest first, each with its own usage.
    pub children: Vec<ChildUsage>,
    /// The used part of the model's context at the last answer; `None` before the first.
    pub context: Option<ContextShare>,
    /// Size of the journal in bytes, as the store encodes it; 0 in memory.
    pub recorded: u64,
    /// Size in bytes of the journals of the session and of all sessions below it.
    pub recorded_below: u64,
    pub created_ms: i64,
    pub updated_ms: i64,
}

/// The used part of a model's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextShare {
    /// Tokens of the last answer and its request.
    pub used: u64,
    /// Maximum number of tokens that the model accepts, if known.
    pub window: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildUsage {
    pub session: SessionId,
    pub short: Short,
    pub agent: Text,
    /// The child's own model calls; unreliable if its records cannot be read.
    pub own: Usage,
    /// The used part of its model's context at its last answer; `None` before the first.
    pub context: Option<ContextShare>,
    pub recorded: u64,
}

impl ContextShare {
    /// Returns the used part of the window in percent, if the window is known. It may exceed 100, since providers count differently.
    pub fn percent(&self) -> Option<u64> {
        self.used.saturating_mul(100).checked_div(self.window?)
    }
}

impl UsageView {
    /// Reads the usage of `session` from a journal without a runtime. Blocks while it reads every record of the tree once. Unreadable sessions below
    /// it are omitted, and make the sums unreliable.
    ///
    /// `window` returns the context window of a model, if known.
    /// # Errors
    /// The error if the session is unknown or cannot be read.
    pub fn read(
        journal: &Journal,
        session: SessionId,
        window: impl Fn(&Text) -> Option<u64>,
    ) -> Result<Self, ReadError> {
        let head = journal.head(session)?.ok_or(ReadError::NoSuchSession(session))?;
        let mut sum = Sum::default();
        sum.read(journal, session)?;
        sum.below(journal, session)?;
        let (own, owned, tree) = sum.views(session);
        let (context, children) = (sum.context(session, &window), sum.children(journal, session, &window)?);
        let (parent, created_ms, updated_ms) = (head.parent, head.created_ms, head.updated_ms);
        let recorded = sum.recorded_bytes(session);
        let recorded_below = sum.bytes.values().fold(0, |all: u64, bytes| all.saturating_add(*bytes));
        Ok(Self { own, owned, tree, parent, children, context, recorded, recorded_below, created_ms, updated_ms })
    }
}

/// Adds `part`. Calls before a price was set have tokens but no cost: the sum of money is then incomplete, and marked so.
fn add(sum: &mut Usage, part: &Usage) {
    let unpriced = |usage: &Usage| usage.cost_micro.is_none() && usage.tokens() > 0;
    let leaves_out = (unpriced(sum) && part.cost_micro.is_some()) || (unpriced(part) && sum.cost_micro.is_some());
    sum.add(part);
    sum.unreliable |= leaves_out;
}

/// The usage of one run, and its owner.
#[derive(Clone, Copy, Debug)]
struct Spent {
    owner: Option<RunKey>,
    usage: Usage,
}

#[derive(Debug, Default)]
struct Sum {
    runs: BTreeMap<RunKey, Spent>,
    seen: BTreeSet<SessionId>,
    holes: BTreeSet<SessionId>,
    bytes: BTreeMap<SessionId, u64>,
    /// The tokens of the last answer, with its model's requested name and the provider's name.
    last: BTreeMap<SessionId, (Vec<Text>, u64)>,
}

impl Sum {
    fn read(&mut self, journal: &Journal, session: SessionId) -> Result<(), ReadError> {
        self.seen.insert(session);
        self.bytes.insert(session, journal.bytes_of(session)?);
        let (mut run, mut model) = (RunNo(0), None);
        history::each(journal, session, |Stored { record, .. }| {
            if let Record::SessionCreated(created) = record {
                model = Some(created.model.clone());
            } else if let Record::RunOpened(opened) = record {
                run = opened.run;
                let spent = Spent { owner: opened.owner.run(), usage: Usage::default() };
                self.runs.insert(RunKey { session, run }, spent);
            } else if let Record::TurnStarted { model: requested, .. } = record {
                model = Some(requested.clone());
            } else if let Record::TurnAnswered(answered) = record {
                self.spent(RunKey { session, run }, &answered.usage);
                let used = answered.usage.tokens();
                if used > 0 {
                    let names = model.iter().chain(&answered.model).cloned().collect();
                    self.last.insert(session, (names, used));
                }
            } else if let Record::AttemptDiscarded(discarded) = record
                && let Some(usage) = &discarded.usage
            {
                self.spent(RunKey { session, run }, usage);
            }
        })
    }

    fn recorded_bytes(&self, session: SessionId) -> u64 {
        self.bytes.get(&session).copied().unwrap_or(0)
    }

    fn spent(&mut self, key: RunKey, usage: &Usage) {
        if let Some(spent) = self.runs.get_mut(&key) {
            add(&mut spent.usage, usage);
        }
    }

    fn below(&mut self, journal: &Journal, top: SessionId) -> Result<(), ReadError> {
        let mut todo = journal.children(top)?;
        while let Some(session) = todo.pop() {
            // Visits each once: a damaged store may hold a cycle.
            if self.seen.contains(&session) {
                continue;
            }
            if self.read(journal, session).is_err() {
                self.holes.insert(session);
            }
            todo.extend(journal.children(session)?);
        }
        Ok(())
    }

    fn context(&self, session: SessionId, window: &dyn Fn(&Text) -> Option<u64>) -> Option<ContextShare> {
        let (names, used) = self.last.get(&session)?;
        Some(ContextShare { used: *used, window: names.iter().find_map(window) })
    }

    /// Returns the usage of `top`, of its owned runs, and of all runs.
    fn views(&self, top: SessionId) -> (Usage, Usage, Usage) {
        let nothing = Usage { unreliable: !self.holes.is_empty(), ..Usage::default() };
        let (mut own, mut owned, mut tree) = (Usage::default(), nothing, nothing);
        let owners = self.runs.iter().filter_map(|(run, spent)| Some((*run, spent.owner?)));
        let below = runs_below(owners, |owner| owner.session == top);
        for (key, spent) in &self.runs {
            add(&mut tree, &spent.usage);
            if key.session == top {
                add(&mut own, &spent.usage);
            } else if below.contains(key) {
                add(&mut owned, &spent.usage);
            }
        }
        (own, owned, tree)
    }

    /// Returns the children of `top`, oldest first. A child with a damaged row is omitted, since its name is unknown.
    fn children(
        &self,
        journal: &Journal,
        top: SessionId,
        window: &dyn Fn(&Text) -> Option<u64>,
    ) -> Result<Vec<ChildUsage>, ReadError> {
        let mut children = Vec::new();
        for session in journal.children(top)? {
            let Ok(Some(head)) = journal.head(session) else { continue };
            let mut own = Usage { unreliable: self.holes.contains(&session), ..Usage::default() };
            let runs = RunKey { session, run: RunNo(0) }..=RunKey { session, run: RunNo(u32::MAX) };
            self.runs.range(runs).for_each(|(_, spent)| add(&mut own, &spent.usage));
            let (context, recorded) = (self.context(session, window), self.recorded_bytes(session));
            let (short, agent) = (head.short, head.agent);
            children.push((head.created_ms, ChildUsage { session, short, agent, own, context, recorded }));
        }
        children.sort_by_key(|(created_ms, child)| (*created_ms, child.session));
        Ok(children.into_iter().map(|(_, child)| child).collect())
    }
}
