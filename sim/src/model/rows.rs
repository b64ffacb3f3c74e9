//! Outbox rows as commands, built from the records that created the rows.

use subtend_session::command::Command;
use subtend_session::ids::{CallId, RunKey, Seq, SessionId};
use subtend_session::index::{self, Row, RowKey, RowKind};
use subtend_session::record::{Notice, Record};

use super::journal;
use super::system::{Message, System};

#[derive(Default)]
pub(super) struct SessionRows {
    pub(super) requests: Vec<Command>,
    pub(super) owed: Vec<Notice>,
}

impl System {
    /// Returns the pending outbox rows to a session, in the order in which a new activation handles them.
    pub(super) fn rows_to(&self, session: SessionId) -> SessionRows {
        let mut rows = SessionRows::default();
        let mut pending: Vec<(&Row, _)> = self.rows.iter().filter(|(row, _)| row.to == session).collect();
        // Sorted by record for each sender, so that the row that opens a run precedes the row that cancels it.
        pending.sort_by_key(|(row, at)| (row.from, **at, row.kind));
        for (row, _) in pending {
            match (row.kind, row.key) {
                (RowKind::Notice, key) => rows.owed.extend(self.notice(row.from, session, key)),
                (RowKind::Continue | RowKind::Cancel, RowKey::Call(key)) => {
                    rows.requests.extend(self.command_for_row(session, row.from, row.kind, key));
                }
                // No command: the session that asked handles these rows itself.
                (RowKind::Ask | RowKind::Answer, _) | (RowKind::Continue | RowKind::Cancel, RowKey::Run(_)) => {}
            }
        }
        rows
    }

    pub(super) fn notice(&self, from: SessionId, to: SessionId, key: RowKey) -> Option<Notice> {
        journal::notice(from, to, self.journals.get(&from)?, key)
    }

    /// Returns the command by which an owner continues or cancels a child.
    pub(super) fn command_for_row(
        &self,
        to: SessionId,
        from: SessionId,
        kind: RowKind,
        key: CallId,
    ) -> Option<Command> {
        let records = &self.journals.get(&from)?.records;
        if kind == RowKind::Cancel {
            let call = records.iter().find_map(|record| {
                let Record::CancelAsked { call, child, key: asking_call } = record else { return None };
                (*child == to && *asking_call == key).then_some(*call)
            })?;
            return Some(Command::OwnerCancels { owner: from, key, by: index::cancel_by(call) });
        }
        let mut opened = None;
        for record in records.iter() {
            if let Record::RunOpened(it) = record {
                opened = Some(&**it);
            } else if let Record::ContinueAsked(request) = record
                && (request.call, request.child) == (key, to)
            {
                let mut ask = index::continue_from(from, opened?, request);
                // Computed at delivery, because the owner's run may have ended since the row was written.
                ask.owner_ended = self.owner_outcome_of(RunKey { session: from, run: ask.run });
                return Some(Command::Continue(Box::new(ask)));
            }
        }
        None
    }

    /// Delivers the rows of `session` again, because their first delivery may have been lost.
    pub(super) fn redeliver_rows(&mut self, session: SessionId) {
        let owed: Vec<Row> = self.rows.keys().filter(|row| row.from == session).copied().collect();
        for row in owed {
            // The start of the process has not handled this receiver yet. It will deliver the receiver's rows.
            let waits_for_recovery = self.boot.as_ref().is_some_and(|boot| boot.awaits(row.to));
            if let Some(message) = message(&row).filter(|_| !waits_for_recovery)
                && !self.flight.contains(&message)
            {
                self.send(message);
            }
        }
    }
}

impl System {
    /// Returns whether an earlier row of the same sender to the same receiver is in flight. Rows arrive in order.
    pub(super) fn is_behind(&self, message: &Message) -> bool {
        let Some(at_row) = self.row_of(message) else { return false };
        let before = |other: &Message| {
            self.row_of(other).is_some_and(|other| (other.0, other.1) == (at_row.0, at_row.1) && other.2 < at_row.2)
        };
        self.flight.iter().any(before)
    }

    /// Returns sender, receiver and position of the pending row that a message delivers.
    fn row_of(&self, message: &Message) -> Option<(SessionId, SessionId, (Seq, RowKind))> {
        let row = match message {
            Message::Notice { to, from, key } => Row { to: *to, from: *from, kind: RowKind::Notice, key: *key },
            Message::OwnerRow { to, from, kind, key } => {
                Row { to: *to, from: *from, kind: *kind, key: RowKey::Call(*key) }
            }
            Message::Stream { .. }
            | Message::Tool { .. }
            | Message::Admit { .. }
            | Message::Granted { .. }
            | Message::TreeCancel { .. }
            | Message::Ask { .. }
            | Message::OwnerEnded { .. }
            | Message::Restart(_)
            | Message::Append(_) => return None,
        };
        self.rows.get(&row).map(|at| (row.from, row.to, (*at, row.kind)))
    }
}

pub(super) fn message(row: &Row) -> Option<Message> {
    let Row { to, from, kind, key } = *row;
    match (kind, key) {
        (RowKind::Notice, key) => Some(Message::Notice { to, from, key }),
        (RowKind::Continue | RowKind::Cancel, RowKey::Call(key)) => Some(Message::OwnerRow { to, from, kind, key }),
        (RowKind::Ask | RowKind::Answer, _) | (RowKind::Continue | RowKind::Cancel, RowKey::Run(_)) => None,
    }
}
