use std::sync::Arc;

use super::outbox_rows::completion_row;
use super::{Changes, Head, Inflight, InflightChange, Row, RowKey, RowKind};
use crate::effect::NewSession;
use crate::ids::{Epoch, Hash, Lsn, RunNo, Seq, SessionId, Text};
use crate::message::Message;
use crate::place::{BranchKind, Owner, Place};
use crate::record::{Record, RunOpened, SessionCreated};
use crate::state::{Phase, State};
use crate::title::fold_line;

/// Bytes of a title taken from the first input.
const TITLE_BYTES: u64 = 80;

/// The part of the state before a frame on which the frame's rows depend. Taken before the first command of a batch.
#[derive(Clone, Debug, Default)]
pub struct Before {
    opened: Option<Arc<RunOpened>>,
    has_cancels: bool,
}

impl Before {
    pub fn of(state: &State) -> Self {
        let has_cancels = state.run.as_ref().is_some_and(|run| run.cancels > 0) || !state.owed.is_empty();
        Self { opened: state.run.as_ref().map(|run| Arc::clone(&run.opened)), has_cancels }
    }
}

/// Facts for the head and in-flight rows that the records do not contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    pub epoch: Epoch,
    /// Number of activation starts since the last durable record; 0 in a frame with records.
    pub starts: u32,
    /// The LSN of the `RunOpened` of the run in flight; 0 until the journal assigns it.
    pub opened_lsn: Lsn,
    pub created_ms: i64,
    pub updated_ms: i64,
}

/// Returns all rows of a frame except its definitions: `records` led the session from `before` to `after`.
pub fn changes(before: &Before, after: &State, records: &[Record], stamp: Stamp) -> Changes {
    let mut out = Changes {
        head: Some(Box::new(head(after, stamp.epoch, stamp.created_ms, stamp.updated_ms))),
        ..Changes::default()
    };
    let had_run = before.opened.is_some() || records.iter().any(|record| matches!(record, Record::RunOpened(_)));
    out.inflight = match inflight(after, stamp.opened_lsn, stamp.epoch, stamp.starts) {
        Some(row) => InflightChange::Put(Box::new(row)),
        None if had_run => InflightChange::Delete,
        None => InflightChange::Keep,
    };
    let builder = RowBuilder { session: after.id, place: &after.created.place, has_cancels: before.has_cancels };
    builder.rows(before.opened.as_ref().map(|opened| &opened.owner), records, &mut out);
    out
}

/// Returns all rows of a new session except its definitions.
pub fn creation(session: &NewSession, stamp: Stamp) -> Changes {
    let mut out = Changes::default();
    let (mut created, mut opened, mut input) = (None, None, None);
    for record in &session.records {
        if let Record::SessionCreated(it) = record {
            created = Some(it);
        } else if let Record::RunOpened(it) = record {
            opened = Some(it);
        } else if let Record::InputAccepted(it) = record {
            input = Some(&it.text);
        }
    }
    let Some(created) = created else { return out };
    let state = if opened.is_some() { Phase::Queued } else { Phase::Quiet };
    let title = created.title.as_ref().map(fold_line).or_else(|| input.map(title_of));
    let title = title.or_else(|| inherited_title(created)).unwrap_or_default();
    out.child_of = created.place.parent();
    out.head = Some(Box::new(Head {
        parent: created.place.parent(),
        root: created.place.root(session.session),
        short: created.short.clone(),
        agent: Arc::clone(&created.agent),
        depth: created.place.depth(),
        inspectable: created.inspectable,
        last_seq: Seq(session.records.len() as u64),
        epoch: stamp.epoch,
        state,
        kind: kind_of(created),
        closed: false,
        deleted: false,
        imported: false,
        last_outcome: None,
        title,
        created_ms: stamp.created_ms,
        updated_ms: stamp.updated_ms,
    }));
    if let Some(opened) = opened {
        let row = inflight_row(session.session, &created.place, opened, state, 0, stamp);
        out.inflight = InflightChange::Put(Box::new(row));
    }
    out
}

/// Adds to `out` the rows that `records` add and fulfil. `owner_before` owns the run in flight before these records.
pub fn rows(session: SessionId, place: &Place, owner_before: Option<&Owner>, records: &[Record], out: &mut Changes) {
    RowBuilder { session, place, has_cancels: true }.rows(owner_before, records, out);
}

/// Returns the bodies that a creation record contains, as definitions of the store.
/// # Errors
/// If a body cannot be written as JSON.
pub fn defs(created: &SessionCreated) -> Result<Vec<(Hash, Text)>, serde_json::Error> {
    let mut out = Vec::with_capacity(3);
    if let Some(body) = &created.system.body {
        out.push((created.system.hash, serde_json::to_string(body)?.into()));
    }
    if let Some(body) = &created.ceiling.body {
        out.push((created.ceiling.hash, serde_json::to_string(body)?.into()));
    }
    if let Some(body) = &created.limits.body {
        out.push((created.limits.hash, serde_json::to_string(body)?.into()));
    }
    Ok(out)
}

pub fn head(state: &State, epoch: Epoch, created_ms: i64, updated_ms: i64) -> Head {
    let created = &state.created;
    Head {
        parent: created.place.parent(),
        root: created.place.root(state.id),
        short: created.short.clone(),
        agent: Arc::clone(&created.agent),
        depth: created.place.depth(),
        inspectable: created.inspectable,
        last_seq: Seq(state.next_seq.0.saturating_sub(1)),
        epoch,
        state: state.phase(),
        kind: kind_of(created),
        closed: state.closed,
        deleted: state.deleted,
        imported: false,
        last_outcome: state.last.as_ref().map(|last| last.outcome.kind()),
        title: title(state),
        created_ms,
        updated_ms,
    }
}

fn kind_of(created: &SessionCreated) -> Option<BranchKind> {
    match &created.place {
        Place::Root => created.task.then_some(BranchKind::Subagent),
        Place::Child { kind, .. } => Some(*kind),
    }
}

fn title(state: &State) -> Text {
    if let Some(title) = state.title.as_ref().or(state.created.title.as_ref()) {
        return fold_line(title);
    }
    // Inherited messages belong to another session.
    if let Some(Message::User { text, .. }) = state.transcript.get(state.created.inherited.len()) {
        return title_of(text);
    }
    let waiting = state.run.as_ref().and_then(|run| run.waiting.first()).or(state.queue.front());
    let waiting = waiting.map(|queued| title_of(&queued.input.text));
    waiting.or_else(|| inherited_title(&state.created)).unwrap_or_default()
}

/// Returns the title of a human branch without messages of its own: the start of its inherited messages.
fn inherited_title(created: &SessionCreated) -> Option<Text> {
    let human = kind_of(created) == Some(BranchKind::Human);
    created.inherited.iter().filter(|_| human).find_map(|message| match message {
        Message::User { text, .. } => Some(title_of(text)),
        Message::Assistant { .. } | Message::Result { .. } | Message::Notice { .. } | Message::Prompt { .. } => None,
    })
}

fn title_of(text: &Text) -> Text {
    fold_line(&crate::render::cut(text, TITLE_BYTES))
}

/// Returns the boot-scan row; `None` if no run is in flight.
pub fn inflight(state: &State, opened_lsn: Lsn, epoch: Epoch, starts: u32) -> Option<Inflight> {
    let run = state.run.as_ref()?;
    let stamp = Stamp { epoch, starts, opened_lsn, ..Stamp::default() };
    let row = inflight_row(state.id, &state.created.place, &run.opened, state.phase(), run.worked_ms, stamp);
    Some(Inflight { limited_until: run.turn.as_ref().and_then(|turn| turn.limited), ..row })
}

fn inflight_row(
    session: SessionId,
    place: &Place,
    opened: &RunOpened,
    state: Phase,
    worked_ms: u64,
    stamp: Stamp,
) -> Inflight {
    Inflight {
        run: opened.run,
        state,
        owner: opened.owner.clone(),
        root: place.root(session),
        depth: place.depth(),
        opened_lsn: stamp.opened_lsn,
        deadline_left_ms: opened.deadline_ms.map(|ms| ms.saturating_sub(worked_ms)),
        wall_cap_at: opened.wall_cap_at,
        on_restart: opened.on_restart,
        epoch: stamp.epoch,
        starts: stamp.starts,
        limited_until: None,
    }
}

struct RowBuilder<'a> {
    session: SessionId,
    place: &'a Place,
    /// True if owned runs may have been cancelled. Their notices then also fulfil the `cancel` rows.
    has_cancels: bool,
}

impl RowBuilder<'_> {
    fn rows<'a>(mut self, mut owner: Option<&'a Owner>, records: &'a [Record], out: &mut Changes) {
        let me = self.session;
        let row = |to, from, kind, key| Row { to, from, kind, key };
        for record in records {
            match record {
                Record::SessionCreated(created) => out.child_of = created.place.parent(),
                Record::RunOpened(opened) => {
                    owner = Some(&opened.owner);
                    // The first run of a child is created with the child. A row requested each later owned run.
                    if let (Owner::Run { session, call, .. }, true) = (&opened.owner, opened.run > RunNo(1)) {
                        out.take.push(row(me, *session, RowKind::Continue, RowKey::Call(*call)));
                    }
                }
                Record::RunEnded(ended) => {
                    let completion = owner.and_then(|owner| completion_row(self.place, owner, ended.run));
                    out.put.extend(completion.map(|(to, key)| row(to, me, RowKind::Notice, key)));
                }
                Record::ContinueAsked(request) => {
                    out.put.push(row(request.child, me, RowKind::Continue, RowKey::Call(request.call)));
                }
                Record::ContinueRefused { owner, key, .. } => {
                    out.put.push(row(*owner, me, RowKind::Notice, RowKey::Call(*key)));
                    out.take.push(row(me, *owner, RowKind::Continue, RowKey::Call(*key)));
                }
                Record::CancelAsked { child, key, .. } => {
                    self.has_cancels = true;
                    out.put.push(row(*child, me, RowKind::Cancel, RowKey::Call(*key)));
                }
                // The asking session removes the row, because only it knows when the call is answered or closed.
                Record::AskOpened { call, root, .. } => {
                    out.put.push(row(*root, me, RowKind::Ask, RowKey::Call(*call)));
                }
                Record::AskAnswered { call, .. } => {
                    let root = self.place.root(me);
                    out.take.push(row(root, me, RowKind::Ask, RowKey::Call(*call)));
                }
                Record::NoticeTaken(taken) => {
                    for item in &taken.items {
                        let Some(key) = item.row_key() else { continue };
                        out.take.push(row(me, item.child, RowKind::Notice, key));
                        if self.has_cancels && item.key.is_some() {
                            out.take.push(row(item.child, me, RowKind::Cancel, key));
                        }
                    }
                }
                Record::RunStarted { .. }
                | Record::InputAccepted(_)
                | Record::InputsTaken { .. }
                | Record::QueueChanged { .. }
                | Record::TurnStarted { .. }
                | Record::AttemptDiscarded(_)
                | Record::TurnAnswered(_)
                | Record::CallStarted { .. }
                | Record::CallFinished(_)
                | Record::ChildSpawned(_)
                | Record::RunParked { .. }
                | Record::RunResumed { .. }
                | Record::RunHeld { .. }
                | Record::BranchCreated(_)
                | Record::AlternativeSwitched { .. }
                | Record::RolledBack { .. }
                | Record::TitleSet(_)
                | Record::SummarySet(_)
                | Record::MetadataSet(_)
                | Record::SessionDeleted { .. }
                | Record::SessionClosed { .. }
                | Record::Compacted(_)
                | Record::CompactionFailed(_)
                | Record::CompactionUndone { .. }
                | Record::SessionReopened { .. } => {}
            }
        }
    }
}
