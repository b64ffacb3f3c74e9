//! Observed actors: V-1, V-3, V-5, T-8.

use std::collections::BTreeMap;

use crate::observed::{ActivationCause, Observed, Restart, RestartBudget, Shutdown, Stop};
use crate::world::World;
use crate::{InvariantId, Verdict, ensure, ensure_if};
use subtend_session::ids::{RunKey, Seq, SessionId};
use subtend_session::outcome::Outcome;

/// Checks that restarts stay within the session's budget, and are refused only if it or the supervisor's is spent.
pub(super) fn within_budget(world: &World<'_>) -> Verdict {
    let Some((observed, budget)) = world.observed.and_then(|observed| Some((observed, observed.budget?))) else {
        return Ok(());
    };
    for restart in &observed.restarts {
        let own = count_admitted(observed, restart, budget.within_ms, |other| other.session == restart.session);
        let storm = budget.storm.is_some_and(|(most, within_ms)| {
            count_admitted(observed, restart, within_ms, |other| other.supervisor == restart.supervisor) >= most
        });
        let fits = if restart.admitted { own < budget.max && !storm } else { own >= budget.max || storm };
        ensure(fits, InvariantId::V1, restart.session, || describe(restart, own, &budget))?;
    }
    Ok(())
}

fn describe(restart: &Restart, own: u32, budget: &RestartBudget) -> String {
    let word = if restart.admitted { "restarted" } else { "given up" };
    format!("it is {word} after {own} restarts within {} ms, and {} are allowed", budget.within_ms, budget.max)
}

/// Counts the restarts that were admitted before `restart`, within the window that ends with it.
fn count_admitted(observed: &Observed, restart: &Restart, within_ms: u64, counts: impl Fn(&Restart) -> bool) -> u32 {
    let since = restart.at.ms.saturating_sub(within_ms);
    let window = observed.restarts.iter().filter(|other| {
        let fresh = other.at.ms > since || restart.at.ms < within_ms;
        other.admitted && other.at < restart.at && fresh && counts(other)
    });
    u32::try_from(window.count()).unwrap_or(u32::MAX)
}

/// Checks that a run whose actor is no longer restarted ends for that reason, unless its outcome was fixed before.
pub(super) fn abandoned_runs_end(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    let shown = |restart: &&Restart| !restart.admitted && world.sessions.contains_key(&restart.session);
    for restart in observed.restarts.iter().filter(shown) {
        let Some(no) = restart.run else { continue };
        let run = world.run(RunKey { session: restart.session, run: no });
        let ended = run.and_then(|run| run.ended);
        let exhausted = ended.is_some_and(|(_, ended)| {
            let fixed = run.is_some_and(|run| run.closing.is_some());
            fixed || matches!(ended.outcome, Outcome::RestartsExhausted { .. })
        });
        ensure(exhausted, InvariantId::V1, restart.session, || {
            format!("its actor was given up, and run {no} ended as {:?}", ended.map(|(_, ended)| &ended.outcome))
        })?;
    }
    Ok(())
}

/// Checks that a command crashes a session at most twice, and that the outcome then names it. Also checks that at most
/// three activations in a row add no record.
pub(super) fn crashing_commands_are_set_aside(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    let mut killed: BTreeMap<(SessionId, u64), u32> = BTreeMap::new();
    for death in &observed.deaths {
        let Some((id, name)) = &death.command else { continue };
        let times = killed.entry((death.session, *id)).or_default();
        *times = times.saturating_add(1);
        ensure(*times <= 2, InvariantId::V3, death.session, || {
            format!("the command {name} crashed the actor {times} times")
        })?;
    }
    for (key, run) in world.runs() {
        let Some(Outcome::RestartsExhausted { command: Some(named) }) = run.outcome() else { continue };
        let mut deaths = observed.deaths.iter().filter(|death| death.session == key.session).peekable();
        let any = deaths.peek().is_some();
        let twice = |(id, name): &(u64, _)| name == named && killed.get(&(key.session, *id)) >= Some(&2);
        let guilty = deaths.any(|death| death.command.as_ref().is_some_and(twice));
        ensure_if(any, guilty, InvariantId::V3, key.session, || {
            format!("run {} names the command {named}, which did not crash the actor twice", key.run)
        })?;
    }
    without_progress(world, observed)
}

fn without_progress(world: &World<'_>, observed: &Observed) -> Verdict {
    let mut starts: BTreeMap<SessionId, (Seq, u32)> = BTreeMap::new();
    for activated in &observed.activations {
        let again = matches!(activated.why, ActivationCause::Restart | ActivationCause::Boot);
        let Some(seen) = world.sessions.get(&activated.session).filter(|_| again) else { continue };
        let known = usize::try_from(activated.last.0).unwrap_or(usize::MAX);
        if seen.run_in_flight_at(known).is_none() {
            continue;
        }
        let (last, count) = starts.entry(activated.session).or_insert((activated.last, 0));
        if *last == activated.last {
            *count = count.saturating_add(1);
        } else {
            (*last, *count) = (activated.last, 1);
        }
        let count = *count;
        ensure(count <= 3, InvariantId::V3, activated.session, || {
            format!("activation {} is the {count}th after record {}", activated.epoch, activated.last)
        })?;
    }
    Ok(())
}

/// Checks that the death of an actor ends no other actor.
pub(super) fn deaths_are_isolated(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.deaths.iter().try_for_each(|death| {
        ensure(death.took.is_empty(), InvariantId::T8, death.session, || {
            format!("its death also ended {:?}", death.took)
        })
    })
}

/// Checks that a shutdown accepts nothing new, stops owned runs before owners, kills only actors that do not stop in
/// time, and leaves nothing running.
pub(super) fn shutdown_is_ordered(world: &World<'_>) -> Verdict {
    let Some((observed, shutdown)) = world.observed.and_then(|observed| Some((observed, observed.shutdown?))) else {
        return Ok(());
    };
    check_accepts_nothing(observed, &shutdown)?;
    let stops = || observed.stops.iter().filter(|stop| stop.at > shutdown.asked);
    for stop in stops() {
        let in_time = stop.at.ms >= shutdown.asked.ms.saturating_add(shutdown.grace_ms);
        ensure_if(stop.killed, in_time, InvariantId::V5, stop.session, || {
            format!("it was killed at {} ms, within the grace of the shutdown", stop.at.ms)
        })?;
        let Some((owner, _)) = key(stop).and_then(|key| world.run(key)).and_then(|run| run.owner()) else { continue };
        let before = stops().find(|other| key(other) == Some(owner) && other.at < stop.at && !other.killed);
        ensure(before.is_none(), InvariantId::V5, stop.session, || {
            format!("it was stopped after its owner {owner:?}")
        })?;
    }
    Ok(())
}

fn key(stop: &Stop) -> Option<RunKey> {
    stop.run.map(|run| RunKey { session: stop.session, run })
}

fn check_accepts_nothing(observed: &Observed, shutdown: &Shutdown) -> Verdict {
    use crate::observed::QueueAnswer;
    observed.queues.iter().filter(|put| put.at > shutdown.asked).try_for_each(|put| {
        ensure(!matches!(put.answer, QueueAnswer::Taken(_)), InvariantId::V5, put.session, || {
            format!("{put:?} after the shutdown was requested")
        })
    })?;
    let Some(returned) = shutdown.returned else { return Ok(()) };
    observed.activations.iter().try_for_each(|activated| {
        ensure(activated.at <= returned, InvariantId::V5, activated.session, || {
            format!("{activated:?} after the shutdown returned")
        })
    })
}
