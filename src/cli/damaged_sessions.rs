//! Sessions with a damaged row in the index. Commands do not change them, but must not report them as missing.

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
    pub(crate) fn split(journal: &Journal) -> Result<(Heads, Self), Fail> {
        let heads = journal.heads()?.into_iter().filter(|(_, head)| !head.deleted).collect();
        let damaged =
            journal.damaged_heads()?.into_iter().map(|(session, error)| (session, harmless(&error.to_string())));
        Ok((heads, Self(damaged.collect())))
    }

    /// As [`DamagedSessions::split`], for reading: a damaged row is replaced by one derived from the session's own records.
    pub(crate) fn read(journal: &Journal) -> Result<(Heads, Self), Fail> {
        let (mut heads, damaged) = Self::split(journal)?;
        for session in damaged.0.keys() {
            if let Some(head) = stand_in(journal, *session)?.filter(|head| !head.deleted) {
                heads.insert(*session, head);
            }
        }
        Ok((heads, damaged))
    }

    pub(crate) fn reason(&self, session: SessionId) -> Option<&str> {
        self.0.get(&session).map(String::as_str)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (SessionId, &str)> {
        self.0.iter().map(|(session, why)| (*session, why.as_str()))
    }

    /// Returns the error for an unknown name. If the name may match a damaged session, the error describes the damage.
    pub(crate) fn with_skipped(&self, name: &str, none: Fail) -> Fail {
        let word = name.trim().trim_start_matches("root/").to_ascii_lowercase();
        let part: String = word.chars().filter(|c| *c != '-').collect();
        let begins = |id: &SessionId| part.len() >= 4 && id.0.simple().to_string().starts_with(&part);
        let means = |id: &SessionId| begins(id) || *id.short().0 == *part;
        match self.0.iter().find(|(id, _)| means(id)) {
            Some((id, why)) => Fail::Store(format!(
                "session {id} is damaged and is not changed: {why}; other sessions are not affected. `subtend verify` \
                 reports all damage; restore the store from a backup"
            )),
            None => none,
        }
    }
}
