//! Branches that a person or the host creates: children without a call, at any time.

use std::sync::Arc;

use super::draft::Draft;
use crate::authority::Authority;
use crate::command::BranchPlan;
use crate::context::{self, Visible};
use crate::creation;
use crate::effect::{NewSession, Rejection, Reply};
use crate::ids::{Interned, MsgRef, RunNo, Seq, SessionId, Short};
use crate::message::{Message, Transcript};
use crate::outcome::Initiator;
use crate::place::{BranchKind, Place, Worktree};
use crate::record::{BranchCreated, Record, SessionCreated};

/// Maximum number of messages that an error lists.
const MAX_LISTED: usize = 8;

pub(super) fn branch(draft: &mut Draft<'_>, plan: BranchPlan) -> Result<(), Rejection> {
    let BranchPlan { child, kind, at, created, manifest, by, is_task } = plan;
    if draft.is_created(child)? {
        return Ok(());
    }
    if is_task && draft.state.closed {
        let parent = draft.state.id.short();
        return Err(Rejection::BadInput(format!("session {parent} is closed: name another parent, or none")));
    }
    let visible = context::visible_before(draft.state, at);
    let at = branch_point(draft, kind, at, &visible)?;
    let (inherited, deeper) = match kind {
        BranchKind::Human => (context::inherited(draft.state, &visible, at), 0),
        BranchKind::Service => (Transcript::default(), 0),
        BranchKind::Subagent => (Transcript::default(), 1),
        BranchKind::Alternative => {
            return Err(Rejection::BadInput(
                "an alternative cannot be created as a branch: regenerate the answer".into(),
            ));
        }
    };
    let depth = draft.state.created.place.depth().saturating_add(deeper);
    let max = draft.state.limits.max_depth;
    if depth > max {
        return Err(Rejection::BadInput(format!(
            "the session is at level {}, the limit is {max} levels of tasks: branch off from a session further up",
            depth.saturating_sub(1)
        )));
    }
    let (user, answer) = position_of(&visible, at);
    let place = draft.place(kind, user, answer, depth);
    let created = SessionCreated { place, inherited, ..created };
    let created = draft.create_branch(child, kind, at, by, created, &manifest)?;
    draft.decision.new_sessions.push(NewSession { session: child, records: vec![created] });
    Ok(())
}

fn branch_point(draft: &Draft<'_>, kind: BranchKind, at: Option<Seq>, visible: &Visible) -> Result<Seq, Rejection> {
    let points = context::points(visible.own());
    match (at, points.last()) {
        (Some(at), _) if points.contains(&at) => Ok(at),
        (Some(at), _) => Err(invalid_point(draft, at, &points)),
        (None, Some(last)) => Ok(*last),
        // A branch with an empty context needs no message: its branch point is the session's creation.
        (None, None) if kind != BranchKind::Human => Ok(Seq(1)),
        (None, None) => {
            Err(Rejection::BadInput("the session has no message to branch off from: send one first".into()))
        }
    }
}

fn invalid_point(draft: &Draft<'_>, at: Seq, points: &[Seq]) -> Rejection {
    if let Some(run) = context::rolled_back(draft.state, at) {
        return hidden(at, run);
    }
    let own = draft.state.transcript.get(draft.state.created.inherited.len()..).unwrap_or_default();
    let replaced = context::points(own).contains(&at);
    if replaced {
        return Rejection::BadInput(format!(
            "message {at} is hidden, because another alternative of its answer is selected: switch back to the original first"
        ));
    }
    Rejection::NotFound(format!(
        "message {at} not found: no user message or answer of the session has that number; {}",
        list_last("available messages:", points)
    ))
}

pub(super) fn hidden(at: Seq, run: RunNo) -> Rejection {
    Rejection::BadInput(format!("message {at} is hidden, because run {run} was rolled back: choose a visible message"))
}

/// Returns the label and the last few numbers, as `available messages: 3, 7, 9`.
pub(super) fn list_last(label: &str, seqs: &[Seq]) -> String {
    if seqs.is_empty() {
        return format!("{label} none");
    }
    let from = seqs.len().saturating_sub(MAX_LISTED);
    let last = seqs.get(from..).unwrap_or_default();
    let numbers: Vec<String> = last.iter().map(Seq::to_string).collect();
    let more = if from > 0 { format!(", and {from} earlier ones") } else { String::new() };
    format!("{label} {}{more}", numbers.join(", "))
}

/// Returns the last user message up to message `at`, and `at` itself if it is an answer.
fn position_of(visible: &Visible, at: Seq) -> (Seq, Option<Seq>) {
    let (mut user, mut answer) = (None, None);
    for message in visible.own() {
        match message {
            Message::User { seq, .. } if *seq <= at => user = Some(*seq),
            Message::Assistant { seq, .. } if *seq == at => answer = Some(*seq),
            Message::User { .. }
            | Message::Assistant { .. }
            | Message::Result { .. }
            | Message::Notice { .. }
            | Message::Prompt { .. } => {}
        }
    }
    (user.unwrap_or(Seq(1)), answer)
}

impl Draft<'_> {
    /// Returns whether the branch exists, and replies if so: a command repeated after a restart gets the same reply.
    pub(super) fn is_created(&mut self, child: SessionId) -> Result<bool, Rejection> {
        if self.state.deleted {
            return Err(Rejection::Deleted);
        }
        let Some(existing) = self.state.children.get(&child) else { return Ok(false) };
        let short = existing.short.clone();
        self.reply(Reply::Branched { child, short });
        Ok(true)
    }

    pub(super) fn place(&self, kind: BranchKind, user: Seq, answer: Option<Seq>, depth: u32) -> Place {
        let session = self.state.id;
        Place::Child {
            parent: session,
            root: self.state.created.place.root(session),
            kind,
            user_msg: MsgRef { session, seq: user },
            assistant_msg: answer.map(|seq| MsgRef { session, seq }),
            call: None,
            depth,
        }
    }

    /// Records the branch, replies with it and returns its creation record.
    pub(super) fn create_branch(
        &mut self,
        child: SessionId,
        kind: BranchKind,
        at: Seq,
        by: Initiator,
        created: SessionCreated,
        manifest: &Authority,
    ) -> Result<Record, Rejection> {
        let bytes = created.inherited_bytes();
        let max = self.state.limits.inherited_bytes;
        if bytes > max {
            return Err(Rejection::BadInput(format!(
                "the branch would inherit {bytes} bytes, the limit is {max}: branch off at an earlier message"
            )));
        }
        let ceiling = self.state.ceiling.meet(manifest);
        // An import refuses more rules, also of a branch that the host creates.
        ceiling.check_size().map_err(|error| Rejection::BadInput(format!("the branch is not created: {error}")))?;
        let ceiling = Interned::new(Arc::new(ceiling)).map_err(|error| {
            Rejection::BadInput(format!("the branch's authority cannot be written as JSON: {error}"))
        })?;
        let short: Short = creation::short(&self.state.shorts, child);
        let agent = Arc::clone(&created.agent);
        self.emit(Record::BranchCreated(Box::new(BranchCreated { child, short: short.clone(), agent, kind, at, by })));
        self.reply(Reply::Branched { child, short: short.clone() });
        // A human branch or alternative continues in the worktree that its tools have used.
        let above = self.state.created.worktree;
        let own = created.worktree.filter(|_| kind == BranchKind::Subagent).map(|_| Worktree::own(child, above));
        let worktree = own.or(above);
        Ok(Record::SessionCreated(Box::new(SessionCreated { short, ceiling, worktree, ..created })))
    }
}
