//! Cost of runs and their caps: E-3, E-4.

use std::collections::BTreeMap;

use crate::world::{RunFacts, SessionFacts, World};
use crate::{InvariantId, Verdict, ensure};
use subtend_session::ids::{AttemptNo, RunKey, TurnNo};
use subtend_session::record::{Record, Reserved};
use subtend_session::usage::Usage;

/// Checks the cost in the end of a run: each attempt, and each owned run whose notice the run received, counts once.
pub(super) fn counted_once(world: &World<'_>) -> Verdict {
    for (key, run) in world.runs() {
        let (Some((opened, _)), Some((at, ended))) = (run.opened, run.ended) else { continue };
        let Some(seen) = world.sessions.get(&key.session) else { continue };
        let (mut own, mut turns) = (Usage::default(), 0_u32);
        for record in seen.records_of(run) {
            if let Record::TurnAnswered(answer) = record {
                own.add(&answer.usage);
                turns = turns.saturating_add(1);
            } else if let Record::AttemptDiscarded(discarded) = record
                && let Some(usage) = &discarded.usage
            {
                own.add(usage);
            }
        }
        let mut owned = Usage::default();
        for (made, call, child) in seen.owned_keys().filter(|(made, ..)| (opened..at).contains(made)) {
            let notices = seen.notices_by_key(child, call).filter(|(taken, _)| (made..at).contains(taken));
            notices.for_each(|(_, item)| owned.add(&item.usage));
        }
        let recorded = (ended.usage_self, ended.usage_owned, ended.turns);
        ensure(recorded == (own, owned, turns), InvariantId::E3, key.session, || {
            format!("run {} reports the cost {recorded:?}, but its cost is {:?}", key.run, (own, owned, turns))
        })?;
    }
    Ok(())
}

/// Checks that a root run and its owned runs never reserve or use more than their limit. A request is admitted only if
/// settled and reserved tokens, including its own, are within the limit. So the sum of all usage, with each attempt
/// counted up to its reservation, must be within the limit too.
pub(super) fn within_limits(world: &World<'_>) -> Verdict {
    let mut spent: BTreeMap<RunKey, u64> = BTreeMap::new();
    for (key, run) in world.runs() {
        let Some(seen) = world.sessions.get(&key.session) else { continue };
        let root = root_run(world, key);
        let sum = spent.entry(root).or_default();
        *sum = sum.saturating_add(settled_tokens(seen, run));
    }
    for (root, sum) in spent {
        let limits = world.sessions.get(&root.session).and_then(SessionFacts::limits);
        let Some(limit) = limits.and_then(|limits| limits.tokens) else { continue };
        ensure(sum <= limit, InvariantId::E3, root.session, || {
            format!("run {} and its owned runs used {sum} reserved tokens, the limit is {limit}", root.run)
        })?;
    }
    Ok(())
}

/// Returns the topmost owner of `key`, or `key` itself if no run owns it.
fn root_run(world: &World<'_>, key: RunKey) -> RunKey {
    let mut root = key;
    let mut steps = world.sessions.len();
    while let Some((owner, _)) = world.run(root).and_then(RunFacts::owner).filter(|_| steps > 0) {
        root = owner;
        steps = steps.saturating_sub(1);
    }
    root
}

/// Returns the tokens of a run's settled attempts, each up to its reservation.
fn settled_tokens(seen: &SessionFacts<'_>, run: &RunFacts<'_>) -> u64 {
    let mut reserved: BTreeMap<(TurnNo, AttemptNo), &Reserved> = BTreeMap::new();
    let mut sum = 0_u64;
    for record in seen.records_of(run) {
        if let Record::TurnStarted { turn, attempt, reserved: Some(tokens), .. } = record {
            reserved.insert((*turn, *attempt), tokens);
        }
        let settled = if let Record::TurnAnswered(it) = record {
            Some((it.turn, it.attempt, it.usage))
        } else if let Record::AttemptDiscarded(it) = record {
            it.usage.map(|usage| (it.turn, it.attempt, usage))
        } else {
            None
        };
        let Some((turn, attempt, usage)) = settled else { continue };
        let Some(tokens) = reserved.remove(&(turn, attempt)) else { continue };
        let most = tokens.input.saturating_add(tokens.output);
        let used = if usage.unreliable { 0 } else { usage.tokens() };
        sum = sum.saturating_add(used.min(most));
    }
    sum
}

/// Checks that a wall-clock cap applies to all owned runs.
pub(super) fn caps_are_enforced(world: &World<'_>) -> Verdict {
    for (key, run) in world.runs() {
        let (Some((owner, _)), Some((_, opened))) = (run.owner(), run.opened) else { continue };
        let cap = world.run(owner).and_then(|above| above.opened).and_then(|(_, above)| above.wall_cap_at);
        let Some(cap) = cap else { continue };
        ensure(opened.wall_cap_at.is_some_and(|own| own <= cap), InvariantId::E4, key.session, || {
            format!("the cap of run {} is {:?}, that of its owner {owner:?} is {cap}", key.run, opened.wall_cap_at)
        })?;
    }
    Ok(())
}
