//! Invariant P-5: approvals of calls.

use crate::observed::{Approver, Observed, ObservedAsk, When};
use crate::world::{SessionFacts, World};
use crate::{InvariantId, Verdict, ensure, ensure_if};
use subtend_session::ids::{CallId, SessionId};
use subtend_session::record::{AnsweredBy, AskVerdict, Record};

/// Checks that each ask is opened once, at the root, and answered once, before its call has a result. Only a person may
/// allow a call.
pub(super) fn asks_are_answered_once(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let root = seen.place().map(|place| place.root(*session));
        for (call, ask) in &seen.asks {
            let (opened, answered) = ask.counts;
            ensure(opened == 1 && answered <= 1, InvariantId::P5, *session, || {
                format!("the ask for call {call} was opened {opened} times and answered {answered} times")
            })?;
            ensure(root.is_none_or(|root| root == ask.root), InvariantId::P5, *session, || {
                format!("the ask for call {call} is at {}, which is not its root", ask.root)
            })?;
            let by_person = ask.answered.is_none_or(|(_, verdict, by)| match verdict {
                AskVerdict::Allow | AskVerdict::Always => by == AnsweredBy::Person,
                AskVerdict::Deny => true,
            });
            ensure(by_person, InvariantId::P5, *session, || format!("call {call} was allowed by {:?}", ask.answered))?;
        }
        check_order(*session, seen)?;
    }
    Ok(())
}

/// Checks that no call starts while its ask is denied or open, and that none finishes while its ask is open.
fn check_order(session: SessionId, seen: &SessionFacts<'_>) -> Verdict {
    for (at, record) in seen.view.records.iter().enumerate() {
        let (call, starts) = if let Record::CallStarted { call, .. } = record {
            (*call, true)
        } else if let Record::CallFinished(finished) = record {
            (finished.call, false)
        } else {
            continue;
        };
        let Some(ask) = seen.asks.get(&call).filter(|ask| ask.at < at) else { continue };
        let answer = ask.answered.filter(|(answered, ..)| *answered < at).map(|(_, verdict, _)| verdict);
        let fits = match answer {
            None => false,
            Some(AskVerdict::Deny) => !starts || is_refused_after(seen, at, call),
            Some(AskVerdict::Allow | AskVerdict::Always) => true,
        };
        ensure(fits, InvariantId::P5, session, || format!("{record:?} while its ask has the answer {answer:?}"))?;
    }
    Ok(())
}

/// Returns whether the call that starts at record `at` is closed as refused right after.
fn is_refused_after(seen: &SessionFacts<'_>, at: usize, call: CallId) -> bool {
    matches!(seen.view.records.get(at.saturating_add(1)), Some(Record::CallFinished(finished)) if finished.call == call)
}

/// Checks that an ask without an approver is denied at once, and that any other ask is answered by its deadline.
pub(super) fn answered_by_rule(world: &World<'_>) -> Verdict {
    let Some((observed, approvers)) = world.observed.and_then(|it| Some((it, it.approvers.as_deref()?))) else {
        return Ok(());
    };
    observed.asks.iter().try_for_each(|ask| {
        let right = judge(observed, approvers, ask);
        ensure(right.is_ok(), InvariantId::P5, ask.session, || {
            format!("the ask for call {}: {}, {ask:?}", ask.call, right.err().unwrap_or_default())
        })
    })
}

fn judge(observed: &Observed, approvers: &[Approver], ask: &ObservedAsk) -> Result<(), &'static str> {
    let need = |holds: bool, why| if holds { Ok(()) } else { Err(why) };
    let until = ask.answered.map_or(observed.now, |(at, _)| at);
    let deadline = observed.ask_ms.map(|ms| ask.opened.ms.saturating_add(ms));
    let latest = deadline.map(|deadline| deadline.saturating_add(observed.late_ms));
    need(latest.is_none_or(|latest| until.ms <= latest), "it was open beyond its deadline")?;
    let attached = |at: When| approvers.iter().any(|it| it.from <= at && it.until.is_none_or(|until| at < until));
    match ask.answered {
        None => Ok(()),
        Some((at, AnsweredBy::NoApprover)) => {
            need(!attached(ask.opened), "an approver was attached")?;
            need(at.ms == ask.opened.ms, "it waited although no approver was attached")
        }
        Some((at, AnsweredBy::Deadline)) => {
            need(deadline.is_none_or(|deadline| at.ms >= deadline), "its deadline had not passed")
        }
        Some((_, AnsweredBy::Person)) => {
            let ever = approvers.iter().any(|it| it.from <= until && it.until.is_none_or(|until| until > ask.opened));
            need(ever, "no approver was ever attached")
        }
        Some((_, AnsweredBy::Closed)) => Ok(()),
    }
}

/// Checks that an "always" applies only in its own session.
pub(super) fn always_is_own(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let Some(state) = seen.view.state else { continue };
        let own = state.always.iter().all(|(_, access)| {
            let mut answers = seen.asks.values().filter(|ask| ask.access == (&access.action, &access.resource));
            answers.any(|ask| matches!(ask.answered, Some((_, AskVerdict::Always, AnsweredBy::Person))))
        });
        ensure_if(!state.always.is_empty(), own, InvariantId::P5, *session, || {
            format!("it has an \"always\" that was not given here: {:?}", state.always)
        })?;
    }
    Ok(())
}
