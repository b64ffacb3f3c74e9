//! Notices and calls: N-1 to N-4.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::{SessionFacts, World};
use crate::{InvariantId, Verdict, ensure};
use subtend_session::ids::{CallId, RunNo, SessionId};
use subtend_session::index::RowKind;
use subtend_session::outcome::{FailKind, Outcome};
use subtend_session::record::{Carrier, Notice, Park, Record, RunEnded};
use subtend_session::state::{State, Turn};

pub(super) fn one_notice_per_run(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let mut keys = BTreeSet::new();
        let mut runs = BTreeSet::new();
        for (_, item) in &seen.taken {
            let first = item.key.is_none_or(|key| keys.insert((item.child, key)))
                && item.run.is_none_or(|run| runs.insert((item.child, run)));
            ensure(first, InvariantId::N1, *session, || {
                format!("a second notice of {} run {:?} key {:?}", item.child, item.run, item.key)
            })?;
            let wakes_rightly = item.key.is_some() || !item.waking;
            ensure(wakes_rightly, InvariantId::N1, *session, || {
                format!("run {:?} of {} is not owned here, but its notice wakes", item.run, item.child)
            })?;
        }
    }
    Ok(())
}

/// Checks that each run that ended or was refused has its notice. While the owner works, the row may wait for the boundary.
pub(super) fn check_notices(world: &World<'_>) -> Verdict {
    if !world.complete {
        return Ok(());
    }
    let ended = world.runs().filter_map(|(key, run)| {
        run.ended?;
        let (owner, call) = run.owner()?;
        Some((owner.session, call, key.session))
    });
    let refused = world.sessions.iter().flat_map(|(child, seen)| {
        let keys = seen.refused.iter();
        keys.map(|(owner, key, _)| (*owner, *key, *child))
    });
    for (owner, call, child) in ended.chain(refused) {
        let Some(seen) = world.sessions.get(&owner) else { continue };
        let notices = seen.notices_by_key(child, call).count();
        let at_work = seen.view.state.is_some_and(is_working);
        ensure(notices == 1 || (at_work && notices == 0), InvariantId::N1, owner, || {
            format!("{notices} notices of {child} by key {call}, whose run has ended")
        })?;
    }
    let left = world.rows.iter().find(|row| {
        let at_work = world.sessions.get(&row.to).and_then(|seen| seen.view.state).is_some_and(is_working);
        row.kind == RowKind::Continue || (row.kind == RowKind::Notice && !at_work)
    });
    left.map_or(Ok(()), |row| ensure(false, InvariantId::N1, row.to, || format!("{row:?} is not taken")))
}

fn is_working(state: &State) -> bool {
    state.run.as_ref().is_some_and(|run| {
        let due = |turn: &Turn| turn.streaming || turn.limited.is_some() || turn.open > 0 || turn.local > 0;
        let turn = run.turn.as_deref().is_some_and(due);
        turn || !run.started || run.parked == Some(Park::Slot)
    })
}

pub(super) fn notices_match_ends(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        for (_, item) in &seen.taken {
            let Some(child) = world.sessions.get(&item.child) else { continue };
            let same = match (item.run, item.key) {
                (Some(run), _) => {
                    let Some((_, ended)) = child.runs.get(&run).and_then(|run| run.ended) else { continue };
                    matches_end(item, ended)
                }
                (None, Some(key)) => {
                    let mut refusals = child.refused.iter().filter(|(owner, by, _)| (owner, *by) == (session, key));
                    refusals.next().is_some_and(|(.., why)| {
                        let outcome = Outcome::Failed { kind: FailKind::NotContinued { why: *why } };
                        item.refused == Some(*why) && item.outcome == outcome
                    })
                }
                (None, None) => false,
            };
            ensure(same, InvariantId::N2, *session, || {
                format!("the notice {item:?} differs from the record of its session")
            })?;
        }
    }
    Ok(())
}

fn matches_end(item: &Notice, ended: &RunEnded) -> bool {
    let text = ended.text.as_deref().unwrap_or_default();
    let mut usage = ended.usage_self;
    usage.add(&ended.usage_owned);
    item.has_outcome(&ended.outcome)
        && item.refused.is_none()
        && item.len == ended.len
        && item.hash == ended.hash
        && text.starts_with(&*item.prefix)
        && item.turns == ended.turns
        && item.usage == usage
}

pub(super) fn notices_follow_ends(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let mut last: BTreeMap<(SessionId, bool), RunNo> = BTreeMap::new();
        for (_, item) in &seen.taken {
            let Some(run) = item.run else { continue };
            if let Some(child) = world.sessions.get(&item.child) {
                let ended = child.runs.get(&run).is_some_and(|run| run.ended.is_some());
                ensure(ended, InvariantId::N3, *session, || {
                    format!("a notice of run {run} of {}, which has not ended", item.child)
                })?;
            } else {
                ensure(world.may_lack(item.child), InvariantId::N3, *session, || {
                    format!("a notice of {}, which does not exist", item.child)
                })?;
            }
            let before = last.insert((item.child, item.key.is_some()), run);
            ensure(before.is_none_or(|before| before < run), InvariantId::N3, *session, || {
                format!("a notice of run {run} of {} after that of {before:?}", item.child)
            })?;
        }
    }
    Ok(())
}

/// Checks that a call never has more than one result, and has one before the next turn and the end of the run.
pub(super) fn one_result_per_call(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let mut open = BTreeSet::new();
        for record in seen.view.records {
            if let Record::TurnAnswered(answer) = record {
                open.extend((0_u32..).zip(&answer.calls).map(|(ix, _)| CallId { turn: answer.turn, ix }));
            } else if matches!(record, Record::TurnStarted { .. } | Record::RunEnded(_)) {
                ensure(open.is_empty(), InvariantId::N4, *session, || {
                    format!("calls {open:?} have no result before {record:?}")
                })?;
            } else if let Record::CallFinished(finished) = record {
                check_closes(&mut open, finished.call, *session, seen)?;
            } else if let Record::NoticeTaken(taken) = record {
                match taken.carrier {
                    Carrier::Result => {
                        let calls = taken.items.iter().filter_map(|item| item.key);
                        calls.into_iter().try_for_each(|call| check_closes(&mut open, call, *session, seen))?;
                    }
                    Carrier::Await { call } => check_closes(&mut open, call, *session, seen)?,
                    Carrier::Message => {}
                }
            }
        }
    }
    Ok(())
}

fn check_closes(open: &mut BTreeSet<CallId>, call: CallId, session: SessionId, seen: &SessionFacts<'_>) -> Verdict {
    let was_open = open.remove(&call);
    ensure(was_open, InvariantId::N4, session, || {
        format!("call {call} gets a result but is not open; all results: {:?}", seen.results.get(&call))
    })
}
