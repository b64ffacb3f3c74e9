//! Sessions whose row in the index is not what was written: they are left alone, and must not seem never to have been.

use std::collections::BTreeMap;

use subtend_actors::transcript::stand_in;
use subtend_journal::Journal;
use subtend_session::ids::SessionId;

use super::fail::Fail;
use super::find::Heads;
use super::paint::harmless;

#[derive(Debug, Default)]
pub(crate) struct DamagedSessions(BTreeMap<SessionId, String>);

impl DamagedSessions {
    pub(crate) fn of(journal: &Journal) -> Result<(Heads, Self), Fail> {
        let heads = journal.heads()?.into_iter().filter(|(_, head)| !head.deleted).collect();
        let damaged =
            journal.damaged_heads()?.into_iter().map(|(session, error)| (session, harmless(&error.to_string())));
        Ok((heads, Self(damaged.collect())))
    }

    /// As [`DamagedSessions::of`], for reading: what their own records say stands in for rows that are damaged.
    pub(crate) fn read(journal: &Journal) -> Result<(Heads, Self), Fail> {
        let (mut heads, damaged) = Self::of(journal)?;
        for session in damaged.0.keys() {
            if let Some(head) = stand_in(journal, *session)?.filter(|head| !head.deleted) {
                heads.insert(*session, head);
            }
        }
        Ok((heads, damaged))
    }

    pub(crate) fn why(&self, session: SessionId) -> Option<&str> {
        self.0.get(&session).map(String::as_str)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (SessionId, &str)> {
        self.0.iter().map(|(session, why)| (*session, why.as_str()))
    }

    /// Returns what to say of a name that no sound row answers to: which damaged session it may mean.
    pub(crate) fn with_skipped(&self, name: &str, none: Fail) -> Fail {
        let word = name.trim().trim_start_matches("root/").to_ascii_lowercase();
        let part: String = word.chars().filter(|c| *c != '-').collect();
        let begins = |id: &SessionId| part.len() >= 4 && id.0.simple().to_string().starts_with(&part);
        let means = |id: &SessionId| begins(id) || *id.short().0 == *part;
        match self.0.iter().find(|(id, _)| means(id)) {
            Some((id, why)) => Fail::Store(format!(
                "session {id} is damaged and is left alone: {why}; the others are not touched by it. `subtend verify` tells \
                 all that is wrong, and a backup of the store is the way back"
            )),
            None => none,
        }
    }
}
