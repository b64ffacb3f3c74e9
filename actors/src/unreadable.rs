//! Sessions that cannot be read any more: they stay as they are (J-8), and whoever waits for an end of theirs is told (S-6).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use subtend_journal::ReadError;
use subtend_session::command::{Command, Deadline};
use subtend_session::ids::{CallId, RunKey, SessionId, Text};
use subtend_session::index::{self, RowKey, RowKind};
use subtend_session::place::Owner;
use subtend_session::record::Notice;
use subtend_session::state::State;

use crate::activation::ActivationError;
use crate::hub::Hub;
use crate::ticket::Timer;

/// Which they are, and why each cannot be read.
///
/// No record says it, since the next host may find them mended. So it is kept for this one, and an owner hears it again from
/// each of its activations, until it has taken it.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(Mutex<HashMap<SessionId, Text>>);

impl Unreadable {
    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Text>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers one.
    pub(crate) fn add(&self, session: SessionId, why: &str) {
        self.lock().insert(session, why.into());
    }

    /// What the session of `state` is owed of children that cannot be read: the ends that it waits for.
    pub(crate) fn owed(&self, state: &State) -> Vec<Notice> {
        let known = self.lock();
        if known.is_empty() {
            return Vec::new();
        }
        let owed = state.children.iter().filter_map(|(child, it)| Some((*child, it.key?, known.get(child)?)));
        owed.map(|(child, key, why)| index::unreadable_from(child, key, why)).collect()
    }
}

impl Hub {
    /// After an activation that failed: if the session cannot be read, its owner hears so, and what its run held is free.
    pub(crate) fn not_activated(self: &Arc<Self>, session: SessionId, error: &ActivationError) {
        let damaged = match error {
            ActivationError::Read(ReadError::Damaged { .. } | ReadError::Newer { .. }) | ActivationError::Fold(_) => {
                true
            }
            ActivationError::Read(ReadError::NoSuchSession(_) | ReadError::Engine(_) | ReadError::Closed)
            | ActivationError::Poisoned(_)
            | ActivationError::Spawn(_)
            | ActivationError::Panic(_) => false,
        };
        if !damaged {
            return;
        }
        let why = error.to_string();
        self.unreadable.add(session, &why);
        for (owner, key) in self.waiting_for(session) {
            let notice = index::unreadable_from(session, key, &why);
            // One that the sweep has yet to reach hears it from its own activation.
            self.tell_after_sweep(owner, Command::OwnedEnded(vec![notice]));
        }
    }

    /// The calls that wait for an end of the session: that of the run in flight, and those that it was yet to hear of.
    fn waiting_for(&self, session: SessionId) -> Vec<(SessionId, CallId)> {
        let mut waiting = Vec::new();
        // A damaged row names nobody; its owner hears of it when it is activated.
        if let Ok(Some(row)) = self.journal.inflight_of(session) {
            let run = row.run;
            self.run_over(RunKey { session, run });
            for deadline in [Deadline::Queue(run), Deadline::Run(run), Deadline::WallCap(run), Deadline::Grace(run)] {
                self.timers.disarm(&Timer::Deadline(session, deadline));
            }
            if let Owner::Run { session: owner, call, .. } = row.owner {
                waiting.push((owner, call));
            }
        }
        for (row, _) in self.journal.outbox_to(session).unwrap_or_default() {
            if let (RowKind::Continue, RowKey::Call(key)) = (row.kind, row.key) {
                waiting.push((row.from, key));
            }
        }
        waiting
    }
}
