//! Branches that a person or the host creates: children without a call, at any time.

use std::sync::Arc;

use super::draft::Draft;
use crate::authority::Authority;
use crate::birth;
use crate::command::BranchPlan;
use crate::context::{self, Seen};
use crate::effect::{Birth, Rejection, Reply};
use crate::ids::{Interned, MsgRef, RunNo, Seq, SessionId, Short};
use crate::message::{Message, Transcript};
use crate::outcome::By;
use crate::place::{BranchKind, Place, Worktree};
use crate::record::{BranchCreated, Record, SessionCreated};

const NAMED: usize = 8;

pub(super) fn branch(draft: &mut Draft<'_>, plan: BranchPlan) -> Result<(), Rejection> {
    let BranchPlan { child, kind, at, created, manifest, by } = plan;
    if draft.is_born(child)? {
        return Ok(());
    }
    let seen = context::seen_at(draft.state, at);
    let at = branch_point(draft, kind, at, &seen)?;
    let (inherited, deeper) = match kind {
        BranchKind::Human => (context::inherited(draft.state, &seen, at), 0),
        BranchKind::Service => (Transcript::default(), 0),
        BranchKind::Subagent => (Transcript::default(), 1),
        BranchKind::Alternative => {
            return Err(Rejection::BadInput(
                "an alternative is made by regenerating an answer: regenerate that message".into(),
            ));
        }
    };
    let depth = draft.state.created.place.depth().saturating_add(deeper);
    let max = draft.state.limits.max_depth;
    if depth > max {
        return Err(Rejection::BadInput(format!(
            "the session is at level {}, and the limit is {max} levels of tasks: branch off further up",
            depth.saturating_sub(1)
        )));
    }
    let (user, answer) = stands_at(&seen, at);
    let place = draft.place(kind, user, answer, depth);
    let created = SessionCreated { place, inherited, ..created };
    let born = draft.bear_branch(child, kind, at, by, created, &manifest)?;
    draft.decision.births.push(Birth { session: child, records: vec![born] });
    Ok(())
}

/// Returns the branch point, if a branch of this kind may start there.
fn branch_point(draft: &Draft<'_>, kind: BranchKind, at: Option<Seq>, seen: &Seen) -> Result<Seq, Rejection> {
    let points = context::points(seen.own());
    match (at, points.last()) {
        (Some(at), _) if points.contains(&at) => Ok(at),
        (Some(at), _) => Err(no_point(draft, at, &points)),
        (None, Some(last)) => Ok(*last),
        // A branch with an empty context needs no message: its branch point is the session's birth.
        (None, None) if kind != BranchKind::Human => Ok(Seq(1)),
        (None, None) => Err(Rejection::BadInput("the session has no message yet to branch off from: send one".into())),
    }
}

fn no_point(draft: &Draft<'_>, at: Seq, points: &[Seq]) -> Rejection {
    if let Some(run) = context::rolled_back(draft.state, at) {
        return hidden(at, run);
    }
    let own = draft.state.transcript.get(draft.state.created.inherited.len()..).unwrap_or_default();
    let replaced = context::points(own).contains(&at);
    if replaced {
        return Rejection::BadInput(format!(
            "message {at} is not seen, since another alternative of its answer is: switch back to the original first"
        ));
    }
    Rejection::NotFound(format!(
        "message {at} not found: the session has no user message or answer with that number; {}",
        named("there are", points)
    ))
}

pub(super) fn hidden(at: Seq, run: RunNo) -> Rejection {
    Rejection::BadInput(format!(
        "message {at} is not seen any more, since run {run} was rolled back: name one that is seen"
    ))
}

/// Returns `there are 3, 7, 9`: the last few of them.
pub(super) fn named(there_are: &str, seqs: &[Seq]) -> String {
    if seqs.is_empty() {
        return format!("{there_are} none");
    }
    let from = seqs.len().saturating_sub(NAMED);
    let last = seqs.get(from..).unwrap_or_default();
    let numbers: Vec<String> = last.iter().map(Seq::to_string).collect();
    let more = if from > 0 { format!(", and {from} before them") } else { String::new() };
    format!("{there_are} {}{more}", numbers.join(", "))
}

/// Returns the user message that was being processed at message `at`, and the answer if `at` is one.
fn stands_at(seen: &Seen, at: Seq) -> (Seq, Option<Seq>) {
    let (mut user, mut answer) = (None, None);
    for message in seen.own() {
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
    /// Returns whether the branch exists: a command repeated after a restart gets its first reply.
    pub(super) fn is_born(&mut self, child: SessionId) -> Result<bool, Rejection> {
        if self.state.deleted {
            return Err(Rejection::Deleted);
        }
        let Some(born) = self.state.children.get(&child) else { return Ok(false) };
        let short = born.short.clone();
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

    /// Records the branch, replies with it and returns its birth record.
    pub(super) fn bear_branch(
        &mut self,
        child: SessionId,
        kind: BranchKind,
        at: Seq,
        by: By,
        created: SessionCreated,
        manifest: &Authority,
    ) -> Result<Record, Rejection> {
        let bytes = created.inherited.iter().map(Message::bytes).fold(0, u64::saturating_add);
        let max = self.state.limits.inherited_bytes;
        if bytes > max {
            return Err(Rejection::BadInput(format!(
                "the branch would inherit {bytes} bytes, the limit is {max}: branch off at an earlier message"
            )));
        }
        let ceiling = Interned::new(Arc::new(self.state.ceiling.meet(manifest)))
            .map_err(|error| Rejection::BadInput(format!("the branch's authority cannot be written down: {error}")))?;
        let short: Short = birth::short(&self.state.shorts, child);
        let agent = Arc::clone(&created.agent);
        self.emit(Record::BranchCreated(Box::new(BranchCreated { child, short: short.clone(), agent, kind, at, by })));
        self.reply(Reply::Branched { child, short: short.clone() });
        // A conversation that continues does so where its tools have worked.
        let above = self.state.created.worktree;
        let own = created.worktree.filter(|_| kind == BranchKind::Subagent).map(|_| Worktree::own(child, above));
        let worktree = own.or(above);
        Ok(Record::SessionCreated(Box::new(SessionCreated { short, ceiling, worktree, ..created })))
    }
}
