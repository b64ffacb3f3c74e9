//! Trees: a session and all sessions below it, read from the journal.

use std::collections::HashSet;
use std::fmt;

use subtend_journal::{Journal, Poisoned, ReadError};
use subtend_session::ids::{RunNo, SessionId, Short, Text};
use subtend_session::index::Head;
use subtend_session::outcome::Outcome;
use subtend_session::state::Phase;
use subtend_session::usage::Usage;

use crate::faults::RuntimeBug;
use crate::handle::SessionHandle;
use crate::views::history::History;

/// Maximum characters of a title in a drawn tree.
const MAX_TITLE_CHARS: usize = 60;

/// A session and all sessions below it, for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    pub id: SessionId,
    pub short: Short,
    pub agent: Text,
    /// The title, or the start of the first input.
    pub title: Text,
    pub depth: u32,
    /// The phase of the run: idle, queued, working, waiting or held.
    pub phase: Phase,
    /// The run in flight, or the last one; 0 before the first.
    pub run: RunNo,
    /// Outcome of the last run; `None` while one is in flight and before the first.
    pub outcome: Option<Outcome>,
    /// True if the owner of the last run did not wait for it.
    pub background: bool,
    /// Number of answered turns, over all runs.
    pub turns: u32,
    /// The usage of its own runs, without the sessions below.
    pub usage: Usage,
    /// Working time of the ended runs in ms, without waits for children, slots and approvals. For a killed run, the time that its records show
    /// ([`Worked`](crate::worked::Worked)).
    pub worked_ms: u64,
    /// Unix time in ms until which the run is parked at a provider's limit.
    pub limited_until: Option<i64>,
    /// The reason why the session's journal cannot be read; the fields from records are empty then.
    pub unread: Option<String>,
    /// The children in creation order.
    pub children: Vec<Tree>,
}

#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("the tree cannot be read: {0}")]
    Read(#[from] ReadError),
    #[error("the journal failed: {0}. Open the store again to recover")]
    Poisoned(#[from] Poisoned),
}

impl SessionHandle {
    /// Returns the session and all sessions below it from the journal, without activating a session.
    ///
    /// Each session is read at a different moment: a child may have ended although its parent is shown waiting for it. The result is for people, not
    /// for decisions.
    pub async fn tree(&self) -> Result<Tree, TreeError> {
        self.sessions.log.journal.settled().await?;
        let mut tree = Tree::read(&self.sessions.log.journal, self.id)?;
        if self.sessions.host.faults.has(RuntimeBug::TreesEndAtChildren) {
            tree.children.iter_mut().for_each(|child| child.children.clear());
        }
        Ok(tree)
    }
}

impl Tree {
    /// Reads a tree from a journal without a runtime. Blocks while it reads every record of the tree once.
    /// # Errors
    /// The error if the top is unknown or its index row cannot be read.
    pub fn read(journal: &Journal, top: SessionId) -> Result<Self, ReadError> {
        let head = journal.head(top)?.ok_or(ReadError::NoSuchSession(top))?;
        // Visits each once: a damaged store may hold a cycle.
        let mut seen = HashSet::from([top]);
        // Not recursive: a tree may have more levels than the stack of a thread holds.
        let (mut current, mut above) = (Self::entry(journal, top, &head)?, Vec::new());
        loop {
            let (tree, remaining) = &mut current;
            match remaining.next() {
                Some(child) if !seen.insert(child) => {}
                Some(child) => match journal.head(child) {
                    Ok(Some(head)) if !head.deleted => {
                        let entry = Self::entry(journal, child, &head)?;
                        above.push(std::mem::replace(&mut current, entry));
                    }
                    Ok(Some(_) | None) => {}
                    Err(error) => tree.children.push(Self::unreadable(child, tree.depth, error.to_string())),
                },
                None => match above.pop() {
                    None => return Ok(current.0),
                    Some(parent) => {
                        let (tree, _) = std::mem::replace(&mut current, parent);
                        current.0.children.push(tree);
                    }
                },
            }
        }
    }

    /// Returns the entry of a session without its children, and their ids.
    fn entry(
        journal: &Journal,
        id: SessionId,
        head: &Head,
    ) -> Result<(Self, std::vec::IntoIter<SessionId>), ReadError> {
        let (history, unread) = match History::read(journal, id) {
            Ok(history) => (history, None),
            Err(error) => (History::default(), Some(error.to_string())),
        };
        // The parent's records have the creation order. The index knows the children even if those records are damaged.
        let mut children = history.children;
        children.extend(journal.children(id)?);
        let tree = Self {
            id,
            short: head.short.clone(),
            agent: head.agent.clone(),
            title: head.title.clone(),
            depth: head.depth,
            phase: head.state,
            run: history.run,
            outcome: history.outcome,
            background: history.background,
            turns: history.turns,
            usage: history.usage,
            worked_ms: history.worked.ms,
            limited_until: history.limited_until,
            unread,
            children: Vec::new(),
        };
        Ok((tree, children.into_iter()))
    }

    /// Returns the entry of a session without a readable index row, of which only the id is known.
    fn unreadable(id: SessionId, above: u32, why: String) -> Self {
        Self {
            id,
            short: id.short(),
            agent: "".into(),
            title: "".into(),
            depth: above.saturating_add(1),
            phase: Phase::Quiet,
            run: RunNo(0),
            outcome: None,
            background: false,
            turns: 0,
            usage: Usage::default(),
            worked_ms: 0,
            limited_until: None,
            unread: Some(why),
            children: Vec::new(),
        }
    }

    fn draw(&self, f: &mut fmt::Formatter<'_>, before: &str, below: &str) -> fmt::Result {
        let word = match (&self.outcome, self.phase) {
            (Some(outcome), _) => outcome.kind().as_str(),
            (None, Phase::Queued) => "queued",
            (None, Phase::Quiet) => "quiet",
            (None, Phase::WaitingMidTurn) if self.limited_until.is_some() => "parked at a limit",
            (None, Phase::WaitingMidTurn | Phase::WaitingAtRest) => "waiting",
            (None, Phase::Working | Phase::HeldInterrupted | Phase::HeldOutOfTurns | Phase::Closing) => "in flight",
        };
        let turns = if self.turns == 1 { "turn" } else { "turns" };
        write!(f, "{before}{} {}  {word}, {} {turns}", self.agent, self.short, self.turns)?;
        // Joined, since a title may have several lines.
        let title: String = self.title.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut shown: String = title.chars().filter(|c| !c.is_control()).take(MAX_TITLE_CHARS).collect();
        if shown.len() < title.len() {
            shown.push('…');
        }
        if !shown.is_empty() {
            write!(f, "  {shown}")?;
        }
        let last = self.children.len().saturating_sub(1);
        for (at, child) in self.children.iter().enumerate() {
            let (hook, line) = if at == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            writeln!(f)?;
            child.draw(f, &format!("{below}{hook}"), &format!("{below}{line}"))?;
        }
        Ok(())
    }

    /// Visits each session, parents before children.
    pub fn each<'a>(&'a self, visit: &mut dyn FnMut(&'a Tree)) {
        visit(self);
        self.children.iter().for_each(|child| child.each(visit));
    }
}

/// Draws one line per session, indented by depth: agent, short name, outcome and title.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.draw(f, "", "")
    }
}
