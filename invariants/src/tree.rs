//! Trees: T-1 to T-7, and the ceilings of P-1.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::{RunFacts, SessionFacts, World, owner_outcome};
use crate::{InvariantId, Verdict, ensure, ensure_if};
use subtend_session::ids::{RunKey, SessionId};
use subtend_session::message::Message;
use subtend_session::outcome::{Initiator, Outcome, OutcomeKind};
use subtend_session::place::{BranchKind, Owner, Place, Worktree};
use subtend_session::record::{BranchCreated, Hold, Record};

/// Checks that each parent has the record of the call or branch that created the child.
pub(super) fn parents_record_children(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let Some(Place::Child { parent, call, kind, .. }) = seen.place() else { continue };
        let Some(parent) = world.sessions.get(parent) else {
            ensure(world.may_lack(*parent), InvariantId::T1, *session, || {
                format!("its parent {parent} does not exist")
            })?;
            continue;
        };
        let known = match call {
            Some(call) => parent.spawned.iter().any(|(_, spawned)| spawned.child == *session && spawned.call == *call),
            None => parent.branches.iter().any(|(_, branch)| branch.child == *session && branch.kind == *kind),
        };
        ensure(known, InvariantId::T1, *session, || match call {
            Some(call) => format!("its parent has no record of its creation by call {call}"),
            None => format!("its parent has no record of a {kind:?} branch"),
        })?;
    }
    Ok(())
}

pub(super) fn places_are_consistent(world: &World<'_>) -> Verdict {
    let mut parents: BTreeMap<SessionId, SessionId> = BTreeMap::new();
    for (session, seen) in &world.sessions {
        for (_, spawned) in &seen.spawned {
            let other = parents.insert(spawned.child, *session);
            ensure(other.is_none(), InvariantId::T2, spawned.child, || {
                format!("created by {session} and by {other:?}")
            })?;
        }
        for (at, branch) in &seen.branches {
            let other = parents.insert(branch.child, *session);
            ensure(other.is_none(), InvariantId::T2, branch.child, || {
                format!("created by {session} and by {other:?}")
            })?;
            let is_earlier = usize::try_from(branch.at.0).is_ok_and(|seq| (1..=*at).contains(&seq));
            ensure(is_earlier, InvariantId::T2, branch.child, || {
                format!("it branches at record {} of {session}, which is not before it", branch.at)
            })?;
            inherits(world, *session, seen, branch)?;
        }
        place(world, *session, seen)?;
    }
    Ok(())
}

/// Checks that a branch inherits no message after its branch point.
fn inherits(world: &World<'_>, parent: SessionId, seen: &SessionFacts<'_>, branch: &BranchCreated) -> Verdict {
    let Some(created) = world.sessions.get(&branch.child).and_then(|child| child.created) else { return Ok(()) };
    let above = seen.created.map_or(0, |created| created.inherited.len());
    let later = created.inherited.iter().skip(above).find(|message| match message {
        Message::User { seq, .. } | Message::Assistant { seq, .. } | Message::Notice { seq, .. } => *seq > branch.at,
        Message::Result { .. } | Message::Prompt { .. } => false,
    });
    ensure(later.is_none(), InvariantId::T2, branch.child, || {
        format!("it branches at record {} of {parent}, but inherits {later:?}", branch.at)
    })
}

fn place(world: &World<'_>, session: SessionId, seen: &SessionFacts<'_>) -> Verdict {
    let Some(Place::Child { parent, root, kind, depth, .. }) = seen.place() else { return Ok(()) };
    if let Some(state) = seen.view.state {
        let max = state.limits.max_depth;
        ensure(*depth <= max, InvariantId::T2, session, || format!("depth {depth}, but the limit is {max}"))?;
    }
    let parents = world.sessions.get(parent).and_then(|parent| parent.created);
    if let (Some(created), Some(parents)) = (seen.created, parents) {
        let fits = Worktree::fits(created.worktree, session, parents.worktree);
        ensure(fits, InvariantId::T2, session, || {
            format!("it works in {:?}, which is neither its own nor its parent's", created.worktree)
        })?;
    }
    let Some(above) = world.sessions.get(parent).and_then(|parent| parent.place()) else { return Ok(()) };
    let step = match kind {
        BranchKind::Subagent => 1,
        BranchKind::Human | BranchKind::Alternative | BranchKind::Service => 0,
    };
    let expected = above.depth().saturating_add(step);
    ensure(*depth == expected, InvariantId::T2, session, || format!("depth {depth}, but {expected} was expected"))?;
    ensure(*root == above.root(*parent), InvariantId::T2, session, || {
        format!("root {root} differs from that of its parent")
    })?;
    let mut passed = BTreeSet::from([session]);
    let mut at = Some(*parent);
    while let Some(id) = at {
        ensure(passed.insert(id), InvariantId::T2, session, || format!("{id} is its own ancestor"))?;
        at = world.sessions.get(&id).and_then(|seen| seen.place()).and_then(Place::parent);
    }
    Ok(())
}

/// Returns the held slots by root: first of owned and detached runs, then of people's runs in branches.
fn held_slots(world: &World<'_>) -> [BTreeMap<SessionId, u32>; 2] {
    let (mut owned, mut persons) = (BTreeMap::new(), BTreeMap::new());
    for (session, seen) in &world.sessions {
        let Some(place) = seen.place() else { continue };
        let Some(run) = seen.view.state.and_then(|state| state.run.as_ref()).filter(|run| run.slot) else { continue };
        let class = match run.opened.owner {
            Owner::Run { .. } | Owner::Detached { .. } => &mut owned,
            Owner::Person | Owner::Host(_) => &mut persons,
        };
        let count: &mut u32 = class.entry(place.root(*session)).or_default();
        *count = count.saturating_add(1);
    }
    [owned, persons]
}

pub(super) fn slots_are_counted(world: &World<'_>) -> Verdict {
    let Some(ledger) = world.ledger else { return Ok(()) };
    for (held, pool) in held_slots(world).iter().zip([&ledger.owned, &ledger.persons]) {
        let roots: BTreeSet<&SessionId> = pool.used.keys().chain(held.keys()).collect();
        let mut all = 0_u32;
        for root in roots {
            let of = |counts: &BTreeMap<SessionId, u32>| counts.get(root).copied().unwrap_or(0);
            let (used, holding) = (of(&pool.used), of(held).saturating_add(of(&pool.in_transit)));
            all = all.saturating_add(used);
            let held = ledger.lagging || holding <= used;
            ensure(held && used <= pool.per_root, InvariantId::T3, *root, || {
                format!("{holding} runs hold a slot, {used} are in use, the limit is {}", pool.per_root)
            })?;
            let within = ledger.global.is_none_or(|global| all <= global);
            ensure(within, InvariantId::T3, *root, || {
                format!("{all} slots are in use, the limit of the host is {:?}", ledger.global)
            })?;
        }
    }
    Ok(())
}

pub(super) fn slot_counts_match_runs(world: &World<'_>) -> Verdict {
    let Some(ledger) = world.ledger.filter(|ledger| !ledger.lagging) else { return Ok(()) };
    for (held, pool) in held_slots(world).iter().zip([&ledger.owned, &ledger.persons]) {
        for (root, used) in &pool.used {
            let holding = held.get(root).copied().unwrap_or(0);
            ensure(holding == *used, InvariantId::T3, *root, || format!("{holding} hold a slot, {used} are in use"))?;
        }
    }
    Ok(())
}

/// Checks that a waiting run has released its slot.
pub(super) fn waiting_runs_hold_no_slot(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let Some(run) = seen.view.state.and_then(|state| state.run.as_ref()).filter(|run| run.slot) else { continue };
        let works = run.turn.as_ref().is_some_and(|turn| turn.streaming || turn.local > 0);
        ensure(works, InvariantId::T3, *session, || format!("run {} holds a slot, but only waits", run.no))?;
    }
    Ok(())
}

pub(super) fn no_late_effect(world: &World<'_>) -> Verdict {
    let Some(ledger) = world.ledger.filter(|ledger| ledger.fired) else { return Ok(()) };
    let late = ledger.late_effects.first();
    ensure(late.is_none(), InvariantId::T4, late.map_or(SessionId(uuid::Uuid::nil()), |key| key.session), || {
        format!("an effect was started after the token of its run had fired: {late:?}")
    })
}

/// Checks that each cancel names its true cause.
pub(super) fn cancels_have_true_causes(world: &World<'_>) -> Verdict {
    for (key, run) in world.runs() {
        let Some(outcome) = run.outcome() else { continue };
        if let Some(kind) = owner_outcome(outcome) {
            let Some((owner, _)) = run.owner() else {
                return ensure(false, InvariantId::T5, key.session, || {
                    format!("run {} has no owner, but is {outcome:?}", key.run)
                });
            };
            ensure(
                has_ended_as(world, owner, kind) || died_with_host(world, owner, kind),
                InvariantId::T5,
                key.session,
                || format!("run {} is {outcome:?}, but its owner has no such end", key.run),
            )?;
        }
        if let (Outcome::Cancelled { by: Initiator::Person }, Some(ledger)) = (outcome, world.ledger) {
            ensure(ledger.cancelled.contains(&key), InvariantId::T5, key.session, || {
                format!("run {} is cancelled by a person, but no such cancel happened", key.run)
            })?;
        }
        if let (Outcome::Cancelled { by: Initiator::Model { .. } }, Some((owner, call))) = (outcome, run.owner()) {
            let is_requested = world
                .sessions
                .get(&owner.session)
                .is_none_or(|owner| owner.cancel_asked.contains(&(key.session, call)));
            ensure(is_requested, InvariantId::T5, key.session, || {
                format!("run {} is cancelled by a model, but none requested it", key.run)
            })?;
        }
    }
    Ok(())
}

/// Checks that an interrupt ends only runs that the interrupted run waits for, and only by a recorded cancel.
pub(super) fn interrupts_end_only_awaited_runs(world: &World<'_>) -> Verdict {
    for (key, run) in world.runs() {
        if run.outcome().and_then(owner_outcome) != Some(OutcomeKind::Interrupted) {
            continue;
        }
        let Some((owner, call)) = run.owner() else { continue };
        let Some(above) = world.sessions.get(&owner.session) else { continue };
        // The owner was held when the host died, and its request was still a row. The run ended without a start.
        let left = died_with_host(world, owner, OutcomeKind::Interrupted)
            || world.run(owner).is_some_and(|it| it.ended.is_some());
        if !run.started && left && world.causes().is_none_or(|causes| causes.boots > 0) {
            continue;
        }
        let waits = above.blocking_keys().any(|blocking| blocking == (call, key.session));
        ensure(waits && above.cancel_asked.contains(&(key.session, call)), InvariantId::T6, key.session, || {
            format!("run {} was ended by an interrupt of {owner:?}, which does not wait for it", key.run)
        })?;
    }
    Ok(())
}

/// Checks that a detached run has its own cap, outlives owners, and is cancelled only by its id or with its whole tree.
pub(super) fn detached_runs_outlive_owners(world: &World<'_>) -> Verdict {
    for (key, run) in world.runs() {
        let Some((_, opened)) = run.opened.filter(|(_, opened)| matches!(opened.owner, Owner::Detached { .. })) else {
            continue;
        };
        ensure(opened.wall_cap_at.is_some() && opened.slot, InvariantId::T6, key.session, || {
            format!("run {} is detached, but has no cap or no slot of its own", key.run)
        })?;
        let Some(outcome) = run.outcome() else { continue };
        ensure(owner_outcome(outcome).is_none(), InvariantId::T6, key.session, || {
            format!("run {} is detached, but ended with an owner: {outcome:?}", key.run)
        })?;
        if let (Outcome::Cancelled { by }, Some(causes)) = (outcome, world.causes()) {
            let root =
                world.sessions.get(&key.session).and_then(SessionFacts::place).map(|place| place.root(key.session));
            let is_target = causes.cancels.iter().any(|(run, initiator)| *run == key && initiator == by)
                || root.is_some_and(|root| causes.trees.contains(&root));
            ensure(is_target || *by == Initiator::Sweep, InvariantId::T6, key.session, || {
                format!("run {} is detached and {outcome:?}, but no control named it or its tree", key.run)
            })?;
        }
    }
    Ok(())
}

/// Returns whether `owner` has an end of this `kind`, or a cancelled ancestor.
///
/// One token fires for all descendants at once, so a run may end before its owners are notified.
fn has_ended_as(world: &World<'_>, owner: RunKey, kind: OutcomeKind) -> bool {
    let Some(run) = world.run(owner) else { return world.may_lack(owner.session) };
    let itself = run.outcome().is_some_and(|fixed| fixed.kind() == kind)
        || (kind == OutcomeKind::Interrupted && run.interrupted);
    let mut below = owner;
    let mut above = run.owner();
    while let Some((key, call)) = above.filter(|_| !itself && kind == OutcomeKind::Cancelled) {
        let Some(run) = world.run(key) else { return world.may_lack(key.session) };
        let asks =
            world.sessions.get(&key.session).is_some_and(|seen| seen.cancel_asked.contains(&(below.session, call)));
        if run.outcome().is_some() || asks {
            return true;
        }
        below = key;
        above = run.owner();
    }
    itself
}

/// Returns whether the host died with `owner` in flight, and the next start has not ended it yet: owned runs end first.
/// Also returns true if the recovery of `owner` crashed repeatedly. Then `owner` ends as `RestartsExhausted`, although its
/// owned runs were notified of the loss, or of the hold.
fn died_with_host(world: &World<'_>, owner: RunKey, kind: OutcomeKind) -> bool {
    let given_up = |outcome: &Outcome| matches!(outcome, Outcome::RestartsExhausted { command: Some(command) } if &**command == "lost");
    // A held run ends at a start by what holds it.
    let is_held = |run: &RunFacts<'_>| {
        let out_of_turns = |record: &Record| matches!(record, Record::RunHeld { why, .. } if **why == Hold::OutOfTurns);
        world.sessions.get(&owner.session).is_some_and(|seen| seen.records_of(run).iter().any(out_of_turns))
    };
    let was_notified =
        |run: &RunFacts<'_>| kind == OutcomeKind::Lost || kind == OutcomeKind::OutOfTurns && is_held(run);
    if world.run(owner).is_some_and(|run| run.outcome().is_some_and(given_up) && was_notified(run)) {
        return true;
    }
    let restarted = world.causes().is_none_or(|causes| causes.boots > 0);
    let will_end = matches!(kind, OutcomeKind::Lost | OutcomeKind::Interrupted | OutcomeKind::OutOfTurns);
    restarted && will_end && world.run(owner).is_some_and(|run| run.outcome().is_none())
}

/// Checks that the owner has an outcome, or was interrupted, if a run ended because of it. Also checks that each run that
/// its owner cancelled has an outcome.
pub(super) fn owners_and_owned_end_together(world: &World<'_>) -> Verdict {
    for (key, run) in world.runs() {
        let (Some((owner, call)), Some(fixed)) = (run.owner(), run.outcome()) else { continue };
        let above = world.run(owner).is_none_or(|above| above.outcome().is_some());
        let alone = owner_outcome(fixed) == Some(OutcomeKind::Interrupted);
        ensure_if(owner_outcome(fixed).is_some(), above || alone, InvariantId::T5, key.session, || {
            format!("run {} is {fixed:?}, but its owner {owner:?} (call {call}) continues", key.run)
        })?;
    }
    for seen in world.sessions.values() {
        for (child, key) in &seen.cancel_asked {
            let mut runs = world.sessions.get(child).into_iter().flat_map(|child| child.runs.values());
            let continues =
                runs.find(|run| run.owner().is_some_and(|(_, call)| call == *key) && run.outcome().is_none());
            ensure(continues.is_none(), InvariantId::T5, *child, || {
                format!("the run by key {key} was cancelled by its owner, but continues")
            })?;
        }
    }
    Ok(())
}

pub(super) fn cancelled_trees_ended(world: &World<'_>) -> Verdict {
    for (key, run) in world.runs() {
        let Some((owner, _)) = run.owner() else { continue };
        let Some(outcome) = world.run(owner).and_then(RunFacts::outcome) else { continue };
        let cancelled = matches!(outcome, Outcome::Cancelled { .. });
        ensure_if(cancelled, run.ended.is_some() || is_closing(world, key), InvariantId::T5, key.session, || {
            format!("run {} continues while its owner {owner:?} is {outcome:?}", key.run)
        })?;
    }
    Ok(())
}

/// Returns whether a run began to close.
fn is_closing(world: &World<'_>, key: RunKey) -> bool {
    world.run(key).is_some_and(|run| run.closing.is_some())
}

/// Returns whether a start of the host ended a run that was held.
fn was_swept(world: &World<'_>, seen: &SessionFacts<'_>, run: &RunFacts<'_>) -> bool {
    let epochs = run.held.and_then(|at| seen.epoch(at)).zip(run.ended.and_then(|(at, _)| seen.epoch(at)));
    world.causes().is_none_or(|causes| causes.boots > 0) && epochs.is_some_and(|(held, ended)| held < ended)
}

/// Checks that no run ends before it has the notices of its owned runs. Only a start of the host may end a run earlier: it
/// cannot wait for a child that has not received its `continue` row yet.
pub(super) fn ends_after_owned(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        for (no, run) in &seen.runs {
            let (Some((opened, _)), Some((ended, end))) = (run.opened, run.ended) else { continue };
            if end.outcome == Outcome::Lost || was_swept(world, seen, run) {
                continue;
            }
            for (at, key, child) in seen.owned_keys().filter(|(at, _, _)| (opened..ended).contains(at)) {
                let noticed = seen.notices_by_key(child, key).any(|(taken, _)| (at..ended).contains(&taken));
                ensure(noticed, InvariantId::T7, *session, || {
                    format!("run {no} ended as {:?} before the end of the run that call {key} opened", end.outcome)
                })?;
            }
        }
    }
    Ok(())
}

pub(super) fn owners_end_after_owned_runs(world: &World<'_>) -> Verdict {
    world.runs().try_for_each(|(key, run)| {
        let Some((owner, _)) = run.owner() else { return Ok(()) };
        let owner_ended = world.run(owner).is_some_and(|owner| owner.ended.is_some());
        ensure_if(owner_ended, run.ended.is_some(), InvariantId::T7, key.session, || {
            format!("run {} continues, but its owner {owner:?} has ended", key.run)
        })
    })
}

/// Checks that a cancelled run and the runs that it owns end within one grace period after the reply to the cancel.
pub(super) fn cancelled_in_time(world: &World<'_>) -> Verdict {
    let Some((observed, grace)) = world.observed.and_then(|observed| Some((observed, observed.grace_ms?))) else {
        return Ok(());
    };
    for (cancelled, when) in &observed.cancelled {
        let latest = when.ms.saturating_add(grace).saturating_add(observed.late_ms);
        for (key, run) in world.runs().filter(|(key, _)| key == cancelled || world.is_owned_by(*key, *cancelled)) {
            let at = observed.ended.get(&key).map_or(observed.now.ms, |ended| ended.ms);
            let known = run.ended.is_none() || observed.ended.contains_key(&key);
            ensure_if(known, at <= latest, InvariantId::T5, key.session, || {
                format!("{cancelled:?} was cancelled: run {} had to end by {latest} ms, but ran until {at} ms", key.run)
            })?;
        }
    }
    Ok(())
}

pub(super) fn ceilings_never_grow(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let Some(above) = seen.place().and_then(Place::parent).and_then(|parent| world.sessions.get(&parent)) else {
            continue;
        };
        let (Some(mine), Some(above)) = (seen.ceiling(), above.ceiling()) else { continue };
        ensure(mine.within(above), InvariantId::P1, *session, || format!("{mine:?} is not within {above:?}"))?;
    }
    Ok(())
}
