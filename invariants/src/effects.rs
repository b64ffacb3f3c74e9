//! Observed effects: J-5, S-5, S-6, T-4, E-1, E-2, E-5, V-2, V-4.

use std::collections::BTreeSet;

use crate::observed::{Effect, Observed, Work};
use crate::world::{SessionFacts, World};
use crate::{InvariantId, Verdict, ensure, ensure_if};
use subtend_session::call::CallKind;
use subtend_session::command::Deadline;
use subtend_session::ids::{AttemptNo, CallId, RunKey, Seq, SessionId, TurnNo};
use subtend_session::place::Owner;
use subtend_session::record::Record;
use subtend_session::state::{CallPhase, Run};

fn judge_each(world: &World<'_>, judge: impl Fn(&Observed, &Effect) -> Verdict) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.effects.iter().try_for_each(|effect| judge(observed, effect))
}

/// Checks that records are durable first: the intent of an external effect, and the record that a reply relies on.
pub(super) fn intents_precede_effects(world: &World<'_>) -> Verdict {
    judge_each(world, |_, effect| {
        let (Some(durable), Some(seen)) = (effect.durable, world.sessions.get(&effect.run.session)) else {
            return Ok(());
        };
        let intends = |record: &Record| match (&effect.work, record) {
            (Work::Model(no, nth), Record::TurnStarted { turn, attempt, .. }) => (no, nth) == (turn, attempt),
            (Work::Tool { call: started, .. }, Record::CallStarted { call, .. }) => started == call,
            _ => false,
        };
        let at = (1_u64..).map(Seq).zip(seen.view.records).find(|(_, record)| intends(record)).map(|(seq, _)| seq);
        let held = matches!(effect.work, Work::Held(_)) || at.is_some_and(|at| at <= durable);
        ensure(held, InvariantId::J5, effect.run.session, || {
            format!(
                "{:?} started when {durable} was the last durable record, but its intent is record {at:?}",
                effect.work
            )
        })
    })?;
    let Some(observed) = world.observed else { return Ok(()) };
    observed.acked.iter().try_for_each(|acked| {
        let durable = acked.durable.is_none_or(|durable| acked.seq <= durable);
        ensure(durable, InvariantId::J5, acked.session, || {
            format!("a reply relied on record {}, but {:?} was the last durable one", acked.seq, acked.durable)
        })
    })
}

fn is_work(effect: &Effect) -> bool {
    matches!(effect.work, Work::Model(..) | Work::Tool { .. })
}

/// Checks that no effect starts for an ended run, and that its running work stops within the grace.
pub(super) fn effects_stop_at_ends(world: &World<'_>) -> Verdict {
    judge_each(world, |observed, effect| {
        let Some(ended) = observed.ended.get(&effect.run) else { return Ok(()) };
        ensure_if(is_work(effect), effect.started <= *ended, InvariantId::S5, effect.run.session, || {
            format!("{:?} of run {} was started after its end", effect.work, effect.run.run)
        })?;
        let Some(grace) = observed.grace_ms else { return Ok(()) };
        let until = effect.gone.unwrap_or(observed.now).ms;
        ensure(until <= ended.ms.saturating_add(grace), InvariantId::S5, effect.run.session, || {
            format!(
                "{:?} of run {} is active at {until} ms, but the run ended at {} ms",
                effect.work, effect.run.run, ended.ms
            )
        })
    })
}

pub(super) fn effects_stop_at_tokens(world: &World<'_>) -> Verdict {
    judge_each(world, |observed, effect| {
        let Some(fired) = observed.fired.get(&effect.run).filter(|_| is_work(effect)) else { return Ok(()) };
        ensure(effect.started <= *fired, InvariantId::T4, effect.run.session, || {
            format!("{:?} of run {} was started after its token had fired", effect.work, effect.run.run)
        })
    })
}

/// Checks that a call of a tool that must not be repeated starts once, whatever happens to its session.
pub(super) fn unrepeatable_calls_start_once(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    let mut started: BTreeSet<(SessionId, CallId)> = BTreeSet::new();
    observed.effects.iter().try_for_each(|effect| {
        let Work::Tool { call, repeatable: false } = effect.work else { return Ok(()) };
        ensure(started.insert((effect.run.session, call)), InvariantId::E1, effect.run.session, || {
            format!("call {call} was started a second time although it may not be repeated")
        })
    })
}

/// Checks that no model attempt is made twice. After a restart, the model is called in a new attempt.
pub(super) fn finished_work_is_not_redone(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    let mut started: BTreeSet<(SessionId, TurnNo, AttemptNo)> = BTreeSet::new();
    observed.effects.iter().try_for_each(|effect| {
        let Work::Model(turn, attempt) = effect.work else { return Ok(()) };
        ensure(started.insert((effect.run.session, turn, attempt)), InvariantId::V2, effect.run.session, || {
            format!("attempt {attempt} of turn {turn} was made a second time")
        })
    })
}

/// Checks that an activation starts no effect for a run whose outcome is fixed.
pub(super) fn fixed_runs_start_nothing(world: &World<'_>) -> Verdict {
    judge_each(world, |observed, effect| {
        let mut activations = observed.activations.iter();
        let by = activations.find(|by| (by.session, by.epoch) == (effect.run.session, effect.epoch));
        let (Some(by), Some(seen)) = (by.filter(|_| is_work(effect)), world.sessions.get(&effect.run.session)) else {
            return Ok(());
        };
        let before = usize::try_from(by.last.0).unwrap_or(usize::MAX);
        let over = seen.runs.get(&effect.run.run).and_then(|run| run.outcome_at()).is_some_and(|at| at < before);
        ensure(!over, InvariantId::V4, effect.run.session, || {
            format!("{:?} was started by activation {}, after run {} had ended", effect.work, by.epoch, effect.run.run)
        })
    })
}

/// Checks that no ended run holds resources, and that no run at all does after a shutdown.
pub(super) fn resources_are_released(world: &World<'_>) -> Verdict {
    judge_each(world, |observed, effect| {
        let over = world.run(effect.run).is_some_and(|run| run.ended.is_some());
        let down = observed.shutdown.is_some_and(|shutdown| shutdown.returned.is_some());
        ensure_if(over || down, effect.gone.is_some(), InvariantId::E5, effect.run.session, || {
            format!("{:?} of run {} still runs or holds resources", effect.work, effect.run.run)
        })
    })
}

/// Checks that every wait except a wait for owned runs has a deadline, and that runs never wait for each other in a cycle.
pub(super) fn waits_are_bounded(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    for (session, seen) in &world.sessions {
        let Some(run) = seen.view.state.and_then(|state| state.run.as_ref()) else { continue };
        ensure_if(observed.healed, false, InvariantId::S6, *session, || {
            format!("run {} is in flight, long after the last fault", run.no)
        })?;
        let key = RunKey { session: *session, run: run.no };
        ensure_if(
            matches!(run.opened.owner, Owner::Run { .. }),
            !world.is_owned_by(key, key),
            InvariantId::S6,
            *session,
            || format!("run {} owns itself", run.no),
        )?;
        if let Some(armed) = &observed.armed {
            let has = |deadline| armed.contains(&(*session, deadline));
            let active = seen.view.activation.as_ref().map(|_| needed_deadlines(run)).unwrap_or_default();
            // The timer of a run that is parked at a limit outlives the activation.
            let parked = run.turn.as_ref().filter(|_| run.limit_reset_at().is_some());
            let parked = parked.map(|turn| Deadline::Limit(turn.no));
            let missing = active.into_iter().chain(parked).find(|deadline| !has(*deadline));
            ensure(missing.is_none(), InvariantId::S6, *session, || {
                format!("run {} waits, but has not armed the deadline {missing:?}", run.no)
            })?;
        }
    }
    Ok(())
}

/// Returns the deadlines that a run in flight must have armed.
fn needed_deadlines(run: &Run) -> Vec<Deadline> {
    let mut needed = Vec::new();
    if run.opened.wall_cap_at.is_some() {
        needed.push(Deadline::WallCap(run.no));
    }
    if !run.started {
        needed.extend(run.opened.slot.then_some(Deadline::Queue(run.no)));
        return needed;
    }
    let works = run.hold.is_none() && run.parked.is_none();
    if works && run.opened.deadline_ms.is_some() && matches!(run.opened.owner, Owner::Run { .. }) {
        needed.push(Deadline::Run(run.no));
    }
    let Some(turn) = &run.turn else { return needed };
    if run.hold.is_some() {
        let local = turn.streaming || turn.local > 0;
        needed.extend(local.then_some(Deadline::Grace(run.no)));
        return needed;
    }
    needed.extend(turn.streaming.then_some(Deadline::Turn(turn.no)));
    for (ix, call) in (0_u32..).zip(&turn.calls) {
        let id = CallId { turn: turn.no, ix };
        let timed = matches!(call.kind, Some(CallKind::Local(_) | CallKind::Check { wait: true, .. }));
        match &call.phase {
            CallPhase::Asked(_) => needed.push(Deadline::Ask(id)),
            CallPhase::Started if timed => needed.push(Deadline::Call(id)),
            CallPhase::Started | CallPhase::Unstarted | CallPhase::Closed(_) => {}
        }
    }
    needed
}

/// Checks that a model call contains the answers of the journal, and no text of a discarded attempt.
pub(super) fn contexts_are_clean(world: &World<'_>) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    for given in &observed.contexts {
        let (Some(messages), Some(seen)) = (&given.messages, world.sessions.get(&given.run.session)) else { continue };
        let inherited = seen.created.map_or(0, |created| created.inherited.len());
        let stray = messages.iter().skip(inherited).find(|message| is_stray(seen, message));
        ensure(stray.is_none(), InvariantId::E2, given.run.session, || {
            format!("turn {} receives {stray:?}, which is in no record", given.turn)
        })?;
    }
    Ok(())
}

fn is_stray(seen: &SessionFacts<'_>, message: &subtend_session::message::Message) -> bool {
    let subtend_session::message::Message::Assistant { seq, .. } = message else { return false };
    let at = usize::try_from(seq.0).ok().and_then(|seq| seq.checked_sub(1));
    !matches!(at.and_then(|at| seen.view.records.get(at)), Some(Record::TurnAnswered(_)))
}
