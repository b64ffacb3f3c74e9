//! Exports the undamaged trees of a damaged store.

use std::collections::{BTreeMap, BTreeSet};

use subtend_session::ids::{Seq, SessionId};
use subtend_session::index::{self, Changes, Head};
use subtend_session::record::Record;
use subtend_session::state::State;

use crate::bodies::Bodies;
use crate::compact;
use crate::engine::{Engine, ScanFlow};
use crate::error::ReadError;
use crate::read;
use crate::verify::Progress;

/// A damaged session, whose tree is left out of the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub session: SessionId,
    /// The root of its tree, if known.
    pub root: SessionId,
    /// Number of sessions of this tree, which the export omits.
    pub sessions: u64,
    pub why: String,
}

struct Survey<'a> {
    engine: &'a dyn Engine,
    heads: BTreeMap<SessionId, Head>,
    damaged: BTreeMap<SessionId, String>,
}

/// Returns the sessions of undamaged trees, and the damaged ones: imports refuse a tree that lacks a session.
pub(super) fn trees(
    engine: &dyn Engine,
    progress: &mut dyn FnMut(Progress),
) -> Result<(BTreeMap<SessionId, Head>, Vec<Skipped>), ReadError> {
    let mut survey = Survey { engine, heads: BTreeMap::new(), damaged: BTreeMap::new() };
    engine.heads(&mut |session, head| {
        match head {
            Ok(head) => _ = survey.heads.insert(session, head),
            Err(error) => _ = survey.damaged.insert(session, error.to_string()),
        }
        ScanFlow::Continue(())
    })?;
    let mut done = Progress::default();
    let deleted = compact::deleted_roots(&survey.heads);
    // Damage to a deleted session does not matter, because the session is not exported.
    let all: Vec<SessionId> = survey.heads.keys().filter(|session| !deleted.contains_key(*session)).copied().collect();
    for session in all {
        if let Some(why) = survey.damage_of(session)? {
            survey.damaged.insert(session, why);
        }
        done.sessions = done.sessions.saturating_add(1);
        progress(done);
    }
    survey.split_damaged()
}

impl Survey<'_> {
    /// Returns the damage of a session with a readable head, or `None` if an import would accept it with its tree.
    fn damage_of(&self, session: SessionId) -> Result<Option<String>, ReadError> {
        let Some(head) = self.heads.get(&session) else { return Ok(None) };
        let stored = match read::records(self.engine, &Bodies::default(), session) {
            Ok(stored) => stored,
            Err(error @ (ReadError::Damaged { .. } | ReadError::Newer { .. } | ReadError::NoSuchSession(_))) => {
                return Ok(Some(error.to_string()));
            }
            Err(error @ (ReadError::Engine(_) | ReadError::Closed)) => return Err(error),
        };
        let last = stored.last().map_or(Seq(0), |stored| stored.seq);
        if last != head.last_seq {
            return Ok(Some(format!("it ends with record {last}, but its head with {}", head.last_seq)));
        }
        let records: Vec<_> = stored.into_iter().map(|stored| stored.record).collect();
        let state = match State::fold(session, records.iter()) {
            Ok(state) => state,
            Err(error) => return Ok(Some(error.to_string())),
        };
        let place = &state.created.place;
        let mut rows = Changes::default();
        index::rows(session, place, None, &records, &mut rows);
        let named = rows.put.iter().chain(&rows.take).flat_map(|row| [row.to, row.from]);
        let gone = named.chain([place.root(session)]).chain(place.parent()).find(|other| !self.knows(*other));
        Ok(gone.map(|gone| format!("it names session {gone}, which is not in the store")))
    }

    fn knows(&self, session: SessionId) -> bool {
        self.heads.contains_key(&session) || self.damaged.contains_key(&session)
    }

    /// Separates undamaged trees from damaged sessions.
    fn split_damaged(self) -> Result<(BTreeMap<SessionId, Head>, Vec<Skipped>), ReadError> {
        let mut parents = BTreeMap::new();
        self.engine.all_children(&mut |parent, child| {
            parents.insert(child, parent);
            ScanFlow::Continue(())
        })?;
        let roots: BTreeMap<SessionId, SessionId> =
            self.damaged.keys().map(|session| (*session, self.find_root(*session, &parents))).collect();
        let lost: BTreeSet<SessionId> = roots.values().copied().collect();
        let (mut kept, mut left) = (BTreeMap::new(), BTreeMap::<SessionId, u64>::new());
        for (session, head) in &self.heads {
            if lost.contains(&head.root) {
                let sessions = left.entry(head.root).or_default();
                *sessions = sessions.saturating_add(1);
            } else {
                kept.insert(*session, head.clone());
            }
        }
        // A session with a damaged head is not among the heads.
        for session in self.damaged.keys().filter(|session| !self.heads.contains_key(*session)) {
            let sessions = left.entry(roots.get(session).copied().unwrap_or(*session)).or_default();
            *sessions = sessions.saturating_add(1);
        }
        let skipped = self.damaged.into_iter().map(|(session, why)| {
            let root = roots.get(&session).copied().unwrap_or(session);
            Skipped { session, root, sessions: left.get(&root).copied().unwrap_or_default(), why }
        });
        Ok((kept, skipped.collect()))
    }

    /// Returns the root of a damaged session, from its head, its first record, or the head of an ancestor.
    fn find_root(&self, session: SessionId, parents: &BTreeMap<SessionId, SessionId>) -> SessionId {
        if let Some(root) = self.root_from_first_record(session).filter(|_| !self.heads.contains_key(&session)) {
            return root;
        }
        let mut at = session;
        // A damaged store may contain a cycle.
        for _ in 0..=parents.len() {
            if let Some(head) = self.heads.get(&at) {
                return head.root;
            }
            match parents.get(&at) {
                Some(parent) => at = *parent,
                None => break,
            }
        }
        at
    }

    /// Returns the root from the session's first record.
    fn root_from_first_record(&self, session: SessionId) -> Option<SessionId> {
        let (_, _, kept) = self.engine.range(session, Seq(1), Seq(2), 1).ok()?.frames.into_iter().next()?;
        let frame = read::open_frame(kept?).ok()?;
        match frame.records.first() {
            Some(Record::SessionCreated(created)) if frame.session == session => Some(created.place.root(session)),
            Some(_) | None => None,
        }
    }
}
