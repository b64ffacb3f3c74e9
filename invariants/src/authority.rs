//! Invariants P-1 to P-4, P-6 and P-7: what sessions may do, and which tools they are offered.

use std::collections::BTreeSet;

use crate::observed::{Observed, Offer, Probe, QueryContext};
use crate::world::{SessionFacts, World};
use crate::{InvariantId, Verdict, ensure, ensure_if};
use subtend_session::authority::{Access, Verdict as Answer};
use subtend_session::call::{CallEnd, CallKind};
use subtend_session::dialect::discovery;
use subtend_session::ids::{CallId, SessionId, Text, TurnNo};
use subtend_session::outcome::Initiator;
use subtend_session::place::{Owner, Place};
use subtend_session::record::{AnsweredBy, AskVerdict, BranchCreated, From, InputAccepted, Record, ToolCall};

fn judge_each(world: &World<'_>, judge: impl Fn(&Observed, &Probe) -> Verdict) -> Verdict {
    let Some(observed) = world.observed else { return Ok(()) };
    observed.probes.iter().try_for_each(|probe| judge(observed, probe))
}

/// Returns the observed current verdict of `session` for `access`.
fn present(observed: &Observed, session: SessionId, access: &Access) -> Option<Answer> {
    let mut probes = observed.probes.iter();
    let same =
        |probe: &&Probe| probe.under == QueryContext::Present && probe.session == session && probe.access == *access;
    probes.find(same).map(|probe| probe.verdict)
}

/// Checks that a session may do nothing that its parent may not.
pub(super) fn parents_are_not_exceeded(world: &World<'_>) -> Verdict {
    judge_each(world, |observed, probe| {
        let exceeds = world
            .ancestors(probe.session)
            .into_iter()
            .find(|ancestor| present(observed, *ancestor, &probe.access).is_some_and(|most| probe.verdict > most));
        let judged = matches!(probe.under, QueryContext::Present | QueryContext::After(_));
        ensure_if(judged, exceeds.is_none(), InvariantId::P1, probe.session, || {
            format!("{:?} is {:?}, which exceeds its ancestor {exceeds:?}", probe.access, probe.verdict)
        })
    })
}

/// Checks that an added deny raises no verdict, and that an added rule raises no verdict above that of an ancestor.
pub(super) fn permissions_only_shrink(world: &World<'_>) -> Verdict {
    judge_each(world, |observed, probe| {
        let QueryContext::Added { at, rule } = &probe.under else { return Ok(()) };
        let before = present(observed, probe.session, &probe.access);
        let enlarged = rule.verdict == Answer::Deny && before.is_some_and(|before| probe.verdict > before);
        let ancestors = world.ancestors(*at);
        let exceeds = ancestors
            .into_iter()
            .any(|id| present(observed, id, &probe.access).is_some_and(|most| probe.verdict > most));
        ensure(!enlarged && !exceeds, InvariantId::P2, probe.session, || {
            format!("with {rule:?} at {at}, {:?} is {:?}, before {before:?}", probe.access, probe.verdict)
        })
    })
}

/// Checks that the order of rules changes no verdict.
pub(super) fn rule_order_has_no_effect(world: &World<'_>) -> Verdict {
    judge_each(world, |observed, probe| {
        let before = present(observed, probe.session, &probe.access);
        let same = before.is_none_or(|before| before == probe.verdict);
        ensure_if(probe.under == QueryContext::Reordered, same, InvariantId::P3, probe.session, || {
            format!("in another order of rules {:?} is {:?}, before {before:?}", probe.access, probe.verdict)
        })
    })
}

/// Checks that no verdict and no started call exceeds the recorded ceilings of the session and its ancestors.
pub(super) fn ceilings_are_not_exceeded(world: &World<'_>) -> Verdict {
    judge_each(world, |_, probe| {
        let judged = matches!(probe.under, QueryContext::Present | QueryContext::After(_) | QueryContext::Reordered);
        let most = ceiling(world, probe.session, &probe.access);
        ensure_if(judged, probe.verdict <= most, InvariantId::P4, probe.session, || {
            format!("{:?} is {:?} ({:?}), and the ceilings say {most:?}", probe.access, probe.verdict, probe.under)
        })
    })?;
    for (session, seen) in &world.sessions {
        for (call, access) in accesses(seen) {
            let most = ceiling(world, *session, &access);
            ensure(most != Answer::Deny, InvariantId::P4, *session, || {
                format!("call {call} was allowed with {access:?}, which the ceilings deny")
            })?;
        }
    }
    Ok(())
}

/// Returns the lowest verdict of the ceilings of a session and its ancestors.
fn ceiling(world: &World<'_>, session: SessionId, access: &Access) -> Answer {
    let chain = std::iter::once(session).chain(world.ancestors(session));
    let ceilings = chain.filter_map(|id| world.sessions.get(&id).and_then(SessionFacts::ceiling));
    ceilings.map(|ceiling| ceiling.verdict(access)).min().unwrap_or(Answer::Allow)
}

fn accesses(seen: &SessionFacts<'_>) -> Vec<(CallId, Access)> {
    let asks = seen.asks.iter().map(|(call, ask)| {
        let (action, resource) = ask.access;
        (*call, Access { action: action.clone(), resource: resource.clone() })
    });
    let started = seen.view.records.iter().filter_map(|record| {
        let Record::CallStarted { call, access: Some(access), .. } = record else { return None };
        Some((*call, (**access).clone()))
    });
    asks.chain(started).collect()
}

/// Checks that no model sets a workspace or authority: a child has its parent's workspace and ceilings, a call continues
/// only children of its session, and only people and the host select another agent.
pub(super) fn calls_set_only_model_fields(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        for record in seen.view.records {
            let Record::InputAccepted(input) = record else { continue };
            ensure(is_plain_input(input), InvariantId::P6, *session, || {
                format!(
                    "{:?} has an agent, an allowance or an owner that its sender may not set: {input:?}",
                    input.from
                )
            })?;
        }
        let unasked = handovers(seen).find(|(at, call)| !is_approved(seen, *at, *call));
        ensure(unasked.is_none(), InvariantId::P6, *session, || {
            format!("call {unasked:?} handed the session to another agent, and no person approved it")
        })?;
        for (at, request) in &seen.continued {
            let child = |id: SessionId| id == request.child;
            let is_child = seen.spawned.iter().any(|(created_at, spawned)| created_at < at && child(spawned.child))
                || seen.branches.iter().any(|(created_at, branch)| created_at < at && child(branch.child));
            ensure(is_child, InvariantId::P6, *session, || {
                format!("call {} continues {}, which is not its child", request.call, request.child)
            })?;
        }
        for (child, key) in &seen.cancel_asked {
            let is_created = seen.owned_keys().any(|(_, call, of)| (call, of) == (*key, *child));
            ensure(is_created, InvariantId::P6, *session, || {
                format!("it cancels {child} by key {key}, which it never created")
            })?;
        }
        child_within_parent(world, *session, seen)?;
    }
    Ok(())
}

/// Returns the calls that handed the session to another agent, each with the position of its result.
fn handovers<'a>(seen: &'a SessionFacts<'_>) -> impl Iterator<Item = (usize, CallId)> + 'a {
    let proposes = |of: CallId| move |record: &Record| matches!(record, Record::CallStarted { call, kind, .. } if *call == of && matches!(**kind, CallKind::Propose(_)));
    seen.view.records.iter().enumerate().filter_map(move |(at, record)| {
        let Record::CallFinished(finished) = record else { return None };
        let carried_out = finished.end == CallEnd::Ok && seen.view.records.iter().any(proposes(finished.call));
        carried_out.then_some((at, finished.call))
    })
}

fn is_approved(seen: &SessionFacts<'_>, at: usize, call: CallId) -> bool {
    let approval = seen.asks.get(&call).and_then(|ask| ask.answered).filter(|(answered, ..)| *answered < at);
    matches!(approval, Some((_, AskVerdict::Allow | AskVerdict::Always, AnsweredBy::Person)))
}

/// Returns whether an input sets no agent, allowance or owner that its sender may not set.
fn is_plain_input(input: &InputAccepted) -> bool {
    match &input.from {
        From::Model { session, run, call } => {
            let owner = Owner::Run { session: *session, run: *run, call: *call };
            let owned = input.as_owner == owner || matches!(input.as_owner, Owner::Detached { .. });
            input.agent_override.is_none() && owned
        }
        From::AgentResult => input.agent_override.is_none(),
        From::Person | From::Host => !matches!(input.as_owner, Owner::Run { .. }),
    }
}

/// Checks that a child has its parent's workspace, and that no call creates a child with an agent that the ceilings deny.
fn child_within_parent(world: &World<'_>, session: SessionId, seen: &SessionFacts<'_>) -> Verdict {
    for (_, spawned) in &seen.spawned {
        let access = Access { action: format!("task:{}", spawned.agent).into(), resource: ".".into() };
        let most = ceiling(world, session, &access);
        ensure(most != Answer::Deny, InvariantId::P6, session, || {
            format!("call {} created a child with the agent {}, which the ceilings deny", spawned.call, spawned.agent)
        })?;
        let Some(child) = world.sessions.get(&spawned.child).and_then(|child| child.created) else { continue };
        let same_workspace = seen.created.is_none_or(|created| created.workspace == child.workspace);
        ensure(same_workspace, InvariantId::P6, spawned.child, || {
            format!("it works in {}, and its parent does not", child.workspace)
        })?;
    }
    Ok(())
}

/// Checks that a tool is offered if and only if the rules may allow a call of it, and that each call is checked again at
/// its start. A tool that was not offered runs only after an approval.
pub(super) fn offers_follow_rules(world: &World<'_>) -> Verdict {
    let contexts = world.observed.map_or(&[][..], |observed| &observed.contexts);
    for given in contexts {
        let session = given.run.session;
        let wrong = given.tools.iter().find(|offer| offer.offered != may_be_used(offer));
        ensure_if(!given.tools.is_empty(), wrong.is_none(), InvariantId::P7, session, || {
            format!("turn {} offers a tool against its verdict: {wrong:?}", given.turn)
        })?;
        let Some(seen) = world.sessions.get(&session).filter(|_| !given.tools.is_empty()) else { continue };
        let names: BTreeSet<&str> =
            given.tools.iter().filter(|offer| offer.offered).map(|offer| &*offer.tool).collect();
        for (call, tool) in started_calls(seen, given.turn) {
            ensure(names.contains(tool) || was_approved(seen, call), InvariantId::P7, session, || {
                format!("call {call} of {tool} started although it was not offered")
            })?;
        }
    }
    world.sessions.iter().try_for_each(|(session, seen)| check_approvals(*session, seen))
}

/// Returns whether a person approved the call, or always allows its access.
fn was_approved(seen: &SessionFacts<'_>, call: CallId) -> bool {
    let access = seen.view.records.iter().find_map(|record| {
        let Record::CallStarted { call: started, access, .. } = record else { return None };
        access.as_deref().filter(|_| *started == call)
    });
    let same = |answered: &CallId| {
        let ask_access = seen.asks.get(answered).map(|ask| ask.access);
        access.is_some_and(|access| {
            ask_access.is_some_and(|(action, on)| (action, on) == (&access.action, &access.resource))
        })
    };
    seen.view.records.iter().any(|record| {
        let Record::AskAnswered { call: answered, verdict, by: AnsweredBy::Person } = record else { return false };
        let allows = matches!(verdict, AskVerdict::Allow | AskVerdict::Always);
        (*answered == call && allows) || (*verdict == AskVerdict::Always && same(answered))
    })
}

fn may_be_used(offer: &Offer) -> bool {
    match offer.best {
        Answer::Allow => true,
        Answer::Ask => offer.can_ask,
        Answer::Deny => false,
    }
}

/// Returns the valid calls of the answer to `turn` that started, with their tools.
fn started_calls<'a>(seen: &SessionFacts<'a>, turn: TurnNo) -> Vec<(CallId, &'a str)> {
    let answer = seen.view.records.iter().find_map(|record| {
        let Record::TurnAnswered(answer) = record else { return None };
        (answer.turn == turn).then_some(answer)
    });
    let tool_call = |call: &CallId| answer.and_then(|answer| answer.calls.get(usize::try_from(call.ix).ok()?));
    let calls = seen.view.records.iter().filter_map(|record| {
        let Record::CallStarted { call, kind, .. } = record else { return None };
        let valid = call.turn == turn && !matches!(**kind, CallKind::Invalid(_));
        Some((*call, &*tool_call(call).filter(|_| valid)?.tool))
    });
    calls.collect()
}

/// Checks that a call that needs an approval was approved, or is covered by an earlier "always" of the session for its
/// tool.
fn check_approvals(session: SessionId, seen: &SessionFacts<'_>) -> Verdict {
    let mut always: BTreeSet<(Text, Access)> = BTreeSet::new();
    let mut allowed: BTreeSet<CallId> = BTreeSet::new();
    let mut calls: &[ToolCall] = &[];
    for record in seen.view.records {
        if let Record::TurnAnswered(answer) = record {
            calls = &answer.calls;
        } else if let Record::AskAnswered {
            call, verdict: verdict @ (AskVerdict::Allow | AskVerdict::Always), ..
        } = record
        {
            allowed.insert(*call);
            if let (AskVerdict::Always, Some(ask)) = (verdict, seen.asks.get(call)) {
                let access = Access { action: ask.access.0.clone(), resource: ask.access.1.clone() };
                always.insert((tool_of(calls, *call), access));
            }
        } else if let Record::CallStarted { call, access: Some(access), .. } = record {
            let asks = seen.ceiling().is_some_and(|ceiling| ceiling.verdict(access) == Answer::Ask);
            let approval = allowed.contains(call) || always.contains(&(tool_of(calls, *call), (**access).clone()));
            ensure_if(asks, approval, InvariantId::P7, session, || {
                format!("call {call} started with {access:?}, which was not approved")
            })?;
        }
    }
    Ok(())
}

/// Returns the tool of a call of the last answer.
fn tool_of(calls: &[ToolCall], call: CallId) -> Text {
    let called = usize::try_from(call.ix).ok().and_then(|ix| calls.get(ix));
    called.map_or_else(|| "".into(), |called| discovery::display_name(&called.tool, &called.args).into())
}

/// Checks that people or the host create each branch, and that a child's first run belongs to the call that created it.
pub(super) fn creators_are_legal(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let is_illegal = |branch: &BranchCreated| {
            matches!(branch.by, Initiator::Model { .. } | Initiator::Owner { .. } | Initiator::Sweep)
        };
        let wrong = seen.branches.iter().find(|(_, branch)| is_illegal(branch));
        ensure_if(!seen.branches.is_empty(), wrong.is_none(), InvariantId::P6, *session, || {
            format!("{wrong:?} comes neither from a person nor from the host")
        })?;
        let Some(Place::Child { parent, call: Some(call), .. }) = seen.place() else { continue };
        let first = seen.runs.values().next().and_then(|run| run.opened);
        let right = first.is_none_or(|(_, opened)| match &opened.owner {
            Owner::Run { session, call: by, .. } => (session, by) == (parent, call),
            Owner::Detached { .. } => true,
            Owner::Person | Owner::Host(_) => false,
        });
        ensure(right, InvariantId::P6, *session, || format!("its first run is not that of call {call} of {parent}"))?;
    }
    Ok(())
}
