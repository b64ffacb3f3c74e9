//! Trees: T-1 to T-7, P-1.

use std::collections::{BTreeMap, BTreeSet};

use crate::authority::Authority;
use crate::ids::{RunKey, SessionId};
use crate::invariant::world::{Seen, SeenRun, World, by_owner};
use crate::invariant::{InvariantId, Verdict, ensure};
use crate::outcome::{By, Outcome, OutcomeKind};
use crate::place::{BranchKind, Place};

pub(super) fn parents_know(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let Some(Place::Child { parent, call: Some(call), kind: BranchKind::Subagent, .. }) = seen.place() else {
            continue;
        };
        let Some(parent) = world.sessions.get(parent) else {
            ensure(!world.complete, InvariantId::T1, *session, || format!("its parent {parent} is not there"))?;
            continue;
        };
        let known = parent.spawned.iter().any(|(_, spawned)| spawned.child == *session && spawned.call == *call);
        ensure(known, InvariantId::T1, *session, || format!("its parent has no record of call {call} making it"))?;
    }
    Ok(())
}

pub(super) fn places(world: &World<'_>) -> Verdict {
    let mut mothers: BTreeMap<SessionId, SessionId> = BTreeMap::new();
    for (session, seen) in &world.sessions {
        for (_, spawned) in &seen.spawned {
            let other = mothers.insert(spawned.child, *session);
            ensure(other.is_none(), InvariantId::T2, spawned.child, || format!("made by {session} and by {other:?}"))?;
        }
        place(world, *session, seen)?;
    }
    Ok(())
}

fn place(world: &World<'_>, session: SessionId, seen: &Seen<'_>) -> Verdict {
    let Some(Place::Child { parent, root, kind, depth, .. }) = seen.place() else { return Ok(()) };
    if let Some(state) = seen.view.state {
        let max = state.limits.max_depth;
        ensure(*depth <= max, InvariantId::T2, session, || format!("depth {depth} where {max} is the limit"))?;
    }
    let Some(above) = world.sessions.get(parent).and_then(|parent| parent.place()) else { return Ok(()) };
    let step = match kind {
        BranchKind::Subagent => 1,
        BranchKind::Human | BranchKind::Alternative | BranchKind::Service => 0,
    };
    let expected = above.depth().saturating_add(step);
    ensure(*depth == expected, InvariantId::T2, session, || format!("depth {depth} where {expected} is right"))?;
    ensure(*root == above.root(*parent), InvariantId::T2, session, || format!("root {root} is not its parent's"))?;
    let mut passed = BTreeSet::from([session]);
    let mut at = Some(*parent);
    while let Some(id) = at {
        ensure(passed.insert(id), InvariantId::T2, session, || format!("{id} is above itself"))?;
        at = world.sessions.get(&id).and_then(|seen| seen.place()).and_then(Place::parent);
    }
    Ok(())
}

/// Slots that runs hold, by root.
fn held(world: &World<'_>) -> BTreeMap<SessionId, u32> {
    let mut held = BTreeMap::new();
    for (session, seen) in &world.sessions {
        let Some(place) = seen.place() else { continue };
        if seen.view.state.and_then(|state| state.run.as_ref()).is_some_and(|run| run.slot) {
            let count: &mut u32 = held.entry(place.root(*session)).or_default();
            *count = count.saturating_add(1);
        }
    }
    held
}

pub(super) fn slots(world: &World<'_>) -> Verdict {
    let Some(ledger) = world.ledger else { return Ok(()) };
    let held = held(world);
    let roots: BTreeSet<&SessionId> = ledger.used.keys().chain(held.keys()).collect();
    for root in roots {
        let of = |counts: &BTreeMap<SessionId, u32>| counts.get(root).copied().unwrap_or(0);
        let (used, holding) = (of(&ledger.used), of(&held).saturating_add(of(&ledger.on_the_way)));
        ensure(holding <= used && used <= ledger.per_root, InvariantId::T3, *root, || {
            format!("{holding} hold a slot, {used} are in use, {} exist", ledger.per_root)
        })?;
    }
    Ok(())
}

pub(super) fn slots_recounted(world: &World<'_>) -> Verdict {
    let Some(ledger) = world.ledger else { return Ok(()) };
    let held = held(world);
    ledger.used.iter().try_for_each(|(root, used)| {
        let holding = held.get(root).copied().unwrap_or(0);
        ensure(holding == *used, InvariantId::T3, *root, || format!("{holding} hold a slot, {used} are in use"))
    })
}

pub(super) fn no_late_effect(world: &World<'_>) -> Verdict {
    let late = world.ledger.and_then(|ledger| ledger.late_effects.first());
    late.map_or(Ok(()), |key| {
        ensure(false, InvariantId::T4, key.session, || {
            format!("run {} started an effect after its token had fired", key.run)
        })
    })
}

/// A cancel names whose word it was, and that word was given.
pub(super) fn true_cancels(world: &World<'_>) -> Verdict {
    for (key, run) in world.runs() {
        let Some(outcome) = run.fixed() else { continue };
        if let Some(kind) = by_owner(outcome) {
            let Some((owner, _)) = run.owner() else {
                return ensure(false, InvariantId::T5, key.session, || {
                    format!("run {} has no owning run, and {outcome:?}", key.run)
                });
            };
            ensure(is_over(world, owner, kind), InvariantId::T5, key.session, || {
                format!("run {} is {outcome:?}, and its owner is not over so", key.run)
            })?;
        }
        if let (Outcome::Cancelled { by: By::Person }, Some(ledger)) = (outcome, world.ledger) {
            ensure(ledger.cancelled.contains(&key), InvariantId::T5, key.session, || {
                format!("run {} is cancelled by a person, and nobody did", key.run)
            })?;
        }
        if let (Outcome::Cancelled { by: By::Model { .. } }, Some((owner, call))) = (outcome, run.owner()) {
            let asked = world
                .sessions
                .get(&owner.session)
                .is_none_or(|owner| owner.cancel_asked.contains(&(key.session, call)));
            ensure(asked, InvariantId::T5, key.session, || {
                format!("run {} is cancelled by a model, and none asked", key.run)
            })?;
        }
    }
    Ok(())
}

/// An interrupt ends only runs that its own one waits for, each of which it asked to cancel.
pub(super) fn interrupts_spare(world: &World<'_>) -> Verdict {
    for (key, run) in world.runs() {
        if run.fixed().and_then(by_owner) != Some(OutcomeKind::Interrupted) {
            continue;
        }
        let Some((owner, call)) = run.owner() else { continue };
        let Some(above) = world.sessions.get(&owner.session) else { continue };
        let waits = above.blocking().any(|blocking| blocking == (call, key.session));
        ensure(waits && above.cancel_asked.contains(&(key.session, call)), InvariantId::T6, key.session, || {
            format!("run {} was ended by an interrupt of {owner:?}, which does not wait for it", key.run)
        })?;
    }
    Ok(())
}

/// Whether `owner` is over as `kind` says, or is about to be cancelled because a run above it is over or cancels it.
///
/// One token fires for all that is below, at once: below a run that has not heard of it yet, others may have ended.
fn is_over(world: &World<'_>, owner: RunKey, kind: OutcomeKind) -> bool {
    let Some(run) = world.run(owner) else { return !world.complete };
    let itself =
        run.fixed().is_some_and(|fixed| fixed.kind() == kind) || (kind == OutcomeKind::Interrupted && run.interrupted);
    let mut below = owner;
    let mut above = run.owner();
    while let Some((key, call)) = above.filter(|_| !itself && kind == OutcomeKind::Cancelled) {
        let Some(run) = world.run(key) else { return !world.complete };
        let asks =
            world.sessions.get(&key.session).is_some_and(|seen| seen.cancel_asked.contains(&(below.session, call)));
        if run.fixed().is_some() || asks {
            return true;
        }
        below = key;
        above = run.owner();
    }
    itself
}

pub(super) fn cancelled_trees_ended(world: &World<'_>) -> Verdict {
    for (key, run) in world.runs() {
        let Some((owner, _)) = run.owner() else { continue };
        let Some(outcome) = world.run(owner).and_then(SeenRun::fixed) else { continue };
        let cancelled = matches!(outcome, Outcome::Cancelled { .. });
        ensure(!cancelled || run.ended.is_some() || running_down(world, key), InvariantId::T5, key.session, || {
            format!("run {} goes on while its owner {owner:?} is {outcome:?}", key.run)
        })?;
    }
    Ok(())
}

/// Whether a run is closing too, and waits for what it owns or for local work to stop.
fn running_down(world: &World<'_>, key: RunKey) -> bool {
    world.run(key).is_some_and(|run| run.closing.is_some())
}

/// No run ends while one that it owns has not been noticed; only a lost one may, for it cannot wait.
pub(super) fn ends_after_owned(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        for (no, run) in &seen.runs {
            let (Some((opened, _)), Some((ended, end))) = (run.opened, run.ended) else { continue };
            if end.outcome == Outcome::Lost {
                continue;
            }
            for (at, key, child) in seen.keys().filter(|(at, _, _)| (opened..ended).contains(at)) {
                let noticed = seen.taken_by_key(child, key).any(|(taken, _)| (at..ended).contains(&taken));
                ensure(noticed, InvariantId::T7, *session, || {
                    format!("run {no} ended as {:?} before the end of what call {key} opened", end.outcome)
                })?;
            }
        }
    }
    Ok(())
}

pub(super) fn owned_ended(world: &World<'_>) -> Verdict {
    world.runs().try_for_each(|(key, run)| {
        let Some((owner, _)) = run.owner() else { return Ok(()) };
        let owner_ended = world.run(owner).is_some_and(|owner| owner.ended.is_some());
        ensure(!owner_ended || run.ended.is_some(), InvariantId::T7, key.session, || {
            format!("run {} goes on, and its owner {owner:?} has ended", key.run)
        })
    })
}

pub(super) fn ceilings(world: &World<'_>) -> Verdict {
    fn ceiling<'a>(seen: &Seen<'a>) -> Option<&'a Authority> {
        let recorded = || seen.created.and_then(|created| created.ceiling.body.as_deref());
        seen.view.state.map(|state| &*state.ceiling).or_else(recorded)
    }
    for (session, seen) in &world.sessions {
        let Some(above) = seen.place().and_then(Place::parent).and_then(|parent| world.sessions.get(&parent)) else {
            continue;
        };
        let (Some(mine), Some(above)) = (ceiling(seen), ceiling(above)) else { continue };
        ensure(mine.within(above), InvariantId::P1, *session, || format!("{mine:?} is not within {above:?}"))?;
    }
    Ok(())
}
