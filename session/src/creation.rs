//! The first records of a session.

use std::collections::BTreeSet;

use crate::authority::Authority;
use crate::command::ChildPlan;
use crate::effect::NewSession;
use crate::ids::{CallId, Interned, MsgRef, RunNo, Seq, SessionId, Short};
use crate::limits::time_after;
use crate::place::{BranchKind, Mode, Owner, Place, Worktree};
use crate::record::{From, InputAccepted, Lane, Record, RunOpened, SessionCreated};
use crate::state::State;

/// Returns a new root session. It has no run until its first input opens run 1.
pub fn root(session: SessionId, created: SessionCreated) -> NewSession {
    NewSession { session, records: vec![Record::SessionCreated(Box::new(created))] }
}

/// Returns a new child session. Its first run is queued for a slot. That run is owned by the run in flight of `parent`
/// through `call`, or detached with a cap that is counted from wall-clock time `wall_ms`.
pub(crate) fn child(
    parent: &State,
    call: CallId,
    plan: ChildPlan,
    short: Short,
    ceiling: Interned<Authority>,
    wall_ms: i64,
) -> NewSession {
    let (run, owner_cap) = parent.run.as_ref().map_or((parent.last_run, None), |run| (run.no, run.opened.wall_cap_at));
    let (owner, wall_cap_at) = match plan.detached_ms {
        // A wall-clock cap applies to all owned runs too.
        None => (Owner::Run { session: parent.id, run, call }, owner_cap),
        // A detached run has no owner that could end it, so it gets a cap of its own.
        Some(ms) => (Owner::Detached { by_host: false }, Some(time_after(wall_ms, ms))),
    };
    let answer = parent.turn().and_then(|turn| turn.answered);
    let mut created = plan.created;
    created.place = Place::Child {
        parent: parent.id,
        root: parent.created.place.root(parent.id),
        kind: BranchKind::Subagent,
        user_msg: parent.about.unwrap_or(MsgRef { session: parent.id, seq: Seq(1) }),
        assistant_msg: answer.map(|seq| MsgRef { session: parent.id, seq }),
        call: Some(call),
        depth: parent.created.place.depth().saturating_add(1),
    };
    let parent_worktree = parent.created.worktree;
    created.worktree = created.worktree.map(|_| Worktree::own(plan.child, parent_worktree)).or(parent_worktree);
    created.short = short;
    created.ceiling = ceiling;
    let input = InputAccepted::new(
        plan.input,
        From::Model { session: parent.id, run, call },
        Lane::Send,
        plan.prompt,
        owner.clone(),
    );
    let opened = RunOpened {
        run: RunNo(1),
        owner,
        inputs: vec![plan.input],
        mode: if plan.detached_ms.is_some() { Mode::Background } else { plan.mode },
        max_turns: plan.max_turns,
        base_turns: 0,
        deadline_ms: plan.deadline_ms,
        wall_cap_at,
        on_restart: plan.on_restart,
        slot: true,
    };
    NewSession {
        session: plan.child,
        records: vec![
            Record::SessionCreated(Box::new(created)),
            Record::InputAccepted(Box::new(input)),
            Record::RunOpened(Box::new(opened)),
        ],
    }
}

/// Returns a short name unique among siblings: six characters of the id, or more if needed.
pub(crate) fn short(taken: &BTreeSet<Short>, id: SessionId) -> Short {
    let six = id.short();
    if !taken.contains(&six) {
        return six;
    }
    let whole = id.0.simple().to_string();
    (7..=whole.len())
        .filter_map(|len| whole.get(whole.len() - len..))
        .map(|tail| Short(tail.into()))
        .find(|short| !taken.contains(short))
        .unwrap_or(six)
}
