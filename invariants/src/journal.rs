//! The journal: J-2, J-3, J-4, J-6.

use crate::world::{SessionFacts, World};
use crate::{InvariantId, Verdict, ensure};
use subtend_session::ids::{Epoch, Seq, SessionId};
use subtend_session::index::{Row, RowKey, RowKind};
use subtend_session::place::Owner;
use subtend_session::record::Record;
use subtend_session::state::{Ended, Run, State};

pub(super) fn gap_free(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let creations = seen.view.records.iter().filter(|record| matches!(record, Record::SessionCreated(_))).count();
        let created_first = matches!(seen.view.records.first(), None | Some(Record::SessionCreated(_)));
        ensure(creations <= 1 && created_first, InvariantId::J2, *session, || {
            format!("{creations} records create the session; the first record creates it: {created_first}")
        })?;
        if seen.view.frames.is_empty() {
            continue;
        }
        let mut next = Seq(1);
        for frame in seen.view.frames {
            let fits = frame.first_seq == next && frame.count > 0;
            ensure(fits, InvariantId::J2, *session, || format!("{frame:?}, but {next} was expected"))?;
            next = Seq(next.0.saturating_add(u64::from(frame.count)));
        }
        let records = u64::try_from(seen.view.records.len()).unwrap_or(u64::MAX);
        ensure(next.0.saturating_sub(1) == records, InvariantId::J2, *session, || {
            format!("{records} records, but frames up to {next}")
        })?;
    }
    Ok(())
}

pub(super) fn one_writer(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        let mut last = Epoch(0);
        let activation = seen.view.activation.as_ref().map(|activation| activation.epoch);
        for epoch in seen.view.frames.iter().map(|frame| frame.epoch).chain(activation) {
            ensure(epoch >= last, InvariantId::J6, *session, || format!("epoch {epoch} after {last}"))?;
            last = epoch;
        }
    }
    Ok(())
}

/// Checks that either all parts of a batch are durable, or none.
pub(super) fn whole_batches(world: &World<'_>) -> Verdict {
    if !world.complete {
        return Ok(());
    }
    for (session, seen) in &world.sessions {
        check_creation(world, *session, seen)?;
        check_owed_ends(world, *session, seen)?;
        check_continues_and_cancels(world, *session, seen)?;
        check_asks(world, *session, seen)?;
    }
    world.rows.iter().try_for_each(|row| check_row(world, row))
}

fn check_creation(world: &World<'_>, session: SessionId, seen: &SessionFacts<'_>) -> Verdict {
    let kept = |child: SessionId| !world.may_lack(child);
    seen.spawned.iter().filter(|(_, spawned)| kept(spawned.child)).try_for_each(|(_, spawned)| {
        let whole = world
            .sessions
            .get(&spawned.child)
            .is_some_and(|child| child.created.is_some() && child.runs.values().any(|run| run.opened.is_some()));
        ensure(whole, InvariantId::J3, session, || {
            format!("call {} created {}, which does not exist", spawned.call, spawned.child)
        })
    })?;
    seen.branches.iter().filter(|(_, branch)| kept(branch.child)).try_for_each(|(_, branch)| {
        let exists = world.sessions.get(&branch.child).is_some_and(|child| child.created.is_some());
        ensure(exists, InvariantId::J3, session, || format!("branch {} does not exist", branch.child))
    })
}

fn check_owed_ends(world: &World<'_>, session: SessionId, seen: &SessionFacts<'_>) -> Verdict {
    for (no, run) in &seen.runs {
        let (Some((_, opened)), Some(_)) = (run.opened, run.ended) else { continue };
        let (to, key) = match (&opened.owner, seen.place().and_then(subtend_session::place::Place::parent)) {
            (Owner::Run { session, call, .. }, _) => (*session, RowKey::Call(*call)),
            (Owner::Person | Owner::Detached { .. }, Some(parent)) => (parent, RowKey::Run(*no)),
            (Owner::Person | Owner::Detached { .. }, None) | (Owner::Host(_), _) => continue,
        };
        check_completion(world, session, to, key)?;
    }
    seen.refused.iter().try_for_each(|(owner, key, _)| check_completion(world, session, *owner, RowKey::Call(*key)))
}

/// Checks that the notice row from `from` to `to` either exists or was taken, but not both.
fn check_completion(world: &World<'_>, from: SessionId, to: SessionId, key: RowKey) -> Verdict {
    if world.may_lack(to) {
        return Ok(());
    }
    let is_open = world.rows.contains(&Row { to, from, kind: RowKind::Notice, key });
    let taken = world
        .sessions
        .get(&to)
        .is_some_and(|to| to.taken.iter().any(|(_, item)| item.child == from && item.row_key() == Some(key)));
    ensure(is_open != taken, InvariantId::J3, from, || {
        format!("the notice {key:?} for {to}: row exists {is_open}, taken {taken}")
    })
}

fn check_continues_and_cancels(world: &World<'_>, session: SessionId, seen: &SessionFacts<'_>) -> Verdict {
    for (_, request) in seen.continued.iter().filter(|(_, request)| !world.may_lack(request.child)) {
        let row = Row { to: request.child, from: session, kind: RowKind::Continue, key: RowKey::Call(request.call) };
        let is_open = world.rows.contains(&row);
        let answered = world.sessions.get(&request.child).is_some_and(|child| {
            let opened = |owner: (subtend_session::ids::RunKey, subtend_session::ids::CallId)| {
                owner.0.session == session && owner.1 == request.call
            };
            child.refused.iter().any(|(owner, key, _)| (*owner, *key) == (session, request.call))
                || child.runs.values().filter_map(|run| run.owner()).any(opened)
        });
        ensure(is_open != answered, InvariantId::J3, session, || {
            format!("continue {}: row open {is_open}, answered {answered}", request.call)
        })?;
    }
    for (child, key) in seen.cancel_asked.iter().filter(|(child, _)| !world.may_lack(*child)) {
        let row = Row { to: *child, from: session, kind: RowKind::Cancel, key: RowKey::Call(*key) };
        let is_open = world.rows.contains(&row);
        let noticed = seen.notices_by_key(*child, *key).next().is_some();
        ensure(is_open != noticed, InvariantId::J3, session, || {
            format!("cancel of {child} by key {key}: row open {is_open}, its notice taken {noticed}")
        })?;
    }
    Ok(())
}

/// Checks that the root has the row of an ask until the ask is answered.
fn check_asks(world: &World<'_>, session: SessionId, seen: &SessionFacts<'_>) -> Verdict {
    seen.asks.iter().try_for_each(|(call, ask)| {
        let row = Row { to: ask.root, from: session, kind: RowKind::Ask, key: RowKey::Call(*call) };
        let is_open = world.rows.contains(&row);
        ensure(is_open != ask.answered.is_some(), InvariantId::J3, session, || {
            format!("ask for {call}: row open {is_open}, answered {}", ask.answered.is_some())
        })
    })
}

/// Checks that a record of the sender requires the row.
fn check_row(world: &World<'_>, row: &Row) -> Verdict {
    let Some(from) = world.sessions.get(&row.from) else {
        return ensure(false, InvariantId::J3, row.from, || format!("{row:?} of a session that does not exist"));
    };
    let required = match (row.kind, row.key) {
        (RowKind::Notice, RowKey::Call(call)) => {
            let owes = |(owner, key): (subtend_session::ids::RunKey, subtend_session::ids::CallId)| {
                owner.session == row.to && key == call
            };
            from.refused.iter().any(|(owner, key, _)| (*owner, *key) == (row.to, call))
                || from.runs.values().any(|run| run.ended.is_some() && run.owner().is_some_and(owes))
        }
        (RowKind::Notice, RowKey::Run(run)) => from.runs.get(&run).is_some_and(|run| run.ended.is_some()),
        (RowKind::Continue, RowKey::Call(call)) => {
            from.continued.iter().any(|(_, request)| request.call == call && request.child == row.to)
        }
        (RowKind::Cancel, RowKey::Call(call)) => from.cancel_asked.contains(&(row.to, call)),
        (RowKind::Continue | RowKind::Cancel, RowKey::Run(_)) => false,
        (RowKind::Ask, RowKey::Call(call)) => from.asks.get(&call).is_some_and(|ask| ask.root == row.to),
        (RowKind::Ask, RowKey::Run(_)) | (RowKind::Answer, _) => false,
    };
    ensure(required, InvariantId::J3, row.from, || format!("no record requires {row:?}"))
}

pub(super) fn fold_equals_state(world: &World<'_>) -> Verdict {
    for (session, seen) in &world.sessions {
        if let (Some(state), Some(folded)) = (seen.view.state, seen.view.folded) {
            let difference = difference(state, folded);
            ensure(difference.is_none(), InvariantId::J4, *session, || {
                format!("state and fold differ in {}", difference.unwrap_or_default())
            })?;
        }
    }
    Ok(())
}

/// Returns the first durable field in which two states differ.
fn difference(a: &State, b: &State) -> Option<&'static str> {
    // Lists every field, so that the author of a new one must decide whether it is compared.
    let State {
        id,
        created,
        ceiling,
        limits,
        next_seq,
        run,
        last,
        outcomes,
        last_run,
        last_turn,
        queue,
        seen,
        accepted,
        transcript,
        asked,
        about,
        children,
        kept,
        shorts,
        owed,
        noticed,
        agent,
        tools,
        always,
        alternatives,
        message_ranges,
        compactions,
        measured,
        revised,
        title,
        summary,
        metadata,
        metadata_bytes,
        turns,
        own_turns,
        deleted,
        closed,
        usage,
        // An estimate: it is lower in the fold after texts of a deleted branch were erased.
        text_bytes: _,
        recorded: _,
        input_bytes: _,
        agent_inputs,
        agent_input_bytes: _,
        arrived: _,
        due: _,
        recalled: _,
        window: _,
        queued_children: _,
    } = a;
    let fields = [
        ("id", *id == b.id),
        ("created", *created == b.created),
        ("ceiling", *ceiling == b.ceiling),
        ("limits", *limits == b.limits),
        ("next_seq", *next_seq == b.next_seq),
        ("last", is_same_end(last.as_deref(), b.last.as_deref())),
        ("outcomes", *outcomes == b.outcomes),
        ("last_run", *last_run == b.last_run),
        ("last_turn", *last_turn == b.last_turn),
        ("queue", *queue == b.queue),
        ("seen", *seen == b.seen),
        ("accepted", *accepted == b.accepted),
        ("agent_inputs", *agent_inputs == b.agent_inputs),
        ("transcript", *transcript == b.transcript),
        ("asked", *asked == b.asked),
        ("about", *about == b.about),
        ("children", *children == b.children),
        ("kept", *kept == b.kept),
        ("shorts", *shorts == b.shorts),
        ("owed", *owed == b.owed),
        ("noticed", *noticed == b.noticed),
        ("agent", *agent == b.agent),
        ("tools", *tools == b.tools),
        ("always", *always == b.always),
        ("alternatives", *alternatives == b.alternatives),
        ("message_ranges", *message_ranges == b.message_ranges),
        ("compactions", *compactions == b.compactions),
        ("measured", *measured == b.measured),
        ("revised", *revised == b.revised),
        ("title", *title == b.title),
        ("metadata", *metadata == b.metadata),
        ("metadata_bytes", *metadata_bytes == b.metadata_bytes),
        ("summary", *summary == b.summary),
        ("turns", *turns == b.turns),
        ("own_turns", *own_turns == b.own_turns),
        ("deleted", *deleted == b.deleted),
        ("closed", *closed == b.closed),
        ("usage", *usage == b.usage),
    ];
    let field = fields.iter().find(|(_, same)| !same).map(|(name, _)| *name);
    field.or_else(|| match (run, &b.run) {
        (Some(a), Some(b)) => run_difference(a, b),
        (None, None) => None,
        (Some(_), None) | (None, Some(_)) => Some("run"),
    })
}

/// Returns whether two ends are equal. The state may have the whole text of an ended run, but the fold only its prefix.
fn is_same_end(a: Option<&Ended>, b: Option<&Ended>) -> bool {
    let facts = |ended: &Ended| (ended.run, ended.turns, ended.max_turns, ended.usage_self, ended.usage_owned);
    a.map(facts) == b.map(facts)
        && a.map(|ended| (&ended.owner, &ended.outcome)) == b.map(|ended| (&ended.owner, &ended.outcome))
}

fn run_difference(a: &Run, b: &Run) -> Option<&'static str> {
    let fields = [
        ("run.opened", a.opened == b.opened),
        ("run.slot", a.slot == b.slot),
        ("run.parked", a.parked == b.parked),
        ("run.hold", a.hold == b.hold),
        ("run.worked_ms", a.worked_ms == b.worked_ms),
        ("run.turn", a.turn == b.turn),
        ("run.owned", a.owned == b.owned),
        ("run.unanswered", a.unanswered == b.unanswered),
        ("run.answer", a.answer == b.answer),
        ("run.partial", a.partial == b.partial),
        ("run", a == b),
    ];
    fields.iter().find(|(_, same)| !same).map(|(name, _)| *name)
}
