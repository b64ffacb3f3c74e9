//! The session of a verb, if it may continue in this workspace.

use std::path::Path;

use subtend_actors::boot::at_next_boot;
use subtend_journal::Journal;
use subtend_session::ids::{RunNo, Seq, SessionId, Text};
use subtend_session::limits::Limits;
use subtend_session::record::{Record, SessionCreated};
use subtend_session::state::Phase;
use subtend_tools::workspace::Workspace;

use super::super::data::{StoreLocation, quoted};
use super::super::fail::Fail;
use super::super::{client, names};
use super::choice::Own;

#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct HereArgs {
    /// Run a session of another directory on the files of this one, this time only
    #[arg(long)]
    pub(crate) here: bool,
}

/// The subject of a verb that runs agents.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About<'a> {
    /// A session that it opens, of an agent that is named or the default one.
    New(Option<&'a str>),
    Session(&'a str, HereArgs),
}

pub(super) struct FoundSession {
    pub(super) journal: Journal,
    pub(super) session: SessionId,
    pub(super) root: SessionId,
    pub(super) birth: Box<SessionCreated>,
    /// Servers that the models of its tree are called at instead of the providers' own.
    servers: Vec<Text>,
    imported: bool,
}

impl About<'_> {
    /// Finds the session before the start, which would resume its queue. A session of another workspace is refused
    /// unless `--here` allows it, because its agent would use the files of this one.
    pub(super) fn find(self, place: &StoreLocation, workspace: &Workspace) -> Result<Option<FoundSession>, Fail> {
        let Self::Session(name, HereArgs { here }) = self else { return Ok(None) };
        if place.is_in_memory() {
            return Err(place.none());
        }
        let journal = client::alone(place)?;
        let session = names::find(&journal, name)?;
        let birth = birth(&journal, session)?;
        let home = Path::new(&*birth.workspace);
        if !here && !is_same(home, workspace.path()) {
            return Err(elsewhere(session, home, workspace.path()));
        }
        let root = journal.head(session)?.map_or(session, |head| head.root);
        let top = if root == session { birth.clone() } else { self::birth(&journal, root)? };
        let imported = top.imported.is_some() || birth.imported.is_some();
        Ok(Some(FoundSession { journal, session, root, birth, servers: top.servers, imported }))
    }
}

impl FoundSession {
    pub(super) fn own(&self) -> Own<'_> {
        Own { model: &self.birth.model, servers: &self.servers, imported: self.imported }
    }

    /// Returns whether an input has named another agent, which may have a model of its own.
    pub(super) fn overridden(&self) -> Result<bool, Fail> {
        let records = self.journal.records(self.session)?;
        let names = |record: &Record| matches!(record, Record::InputAccepted(input) if input.agent_override.is_some());
        Ok(records.iter().any(|stored| names(&stored.record)))
    }

    pub(super) fn limits(&self) -> Result<Limits, Fail> {
        let limits = &self.birth.limits;
        if let Some(body) = &limits.body {
            return Ok(Limits::clone(body));
        }
        let known = self.journal.def(limits.hash)?;
        known.and_then(|json| serde_json::from_str(&json).ok()).ok_or_else(|| {
            Fail::Store(format!(
                "the limits {} are not in the store; `subtend verify` reports what else is wrong",
                limits.hash
            ))
        })
    }
}

/// Returns the run of an earlier process that the start resumes. A held one waits for an input.
pub(super) fn left(journal: &Journal, session: SessionId) -> Result<Option<RunNo>, Fail> {
    let (goes_on, keeps) = at_next_boot(&journal.inflight()?);
    let taken_up = goes_on.contains(&session) || keeps.contains(&session);
    Ok(running(journal, session)?.filter(|_| taken_up))
}

/// The run of `session` in flight that needs no input.
pub(super) fn running(journal: &Journal, session: SessionId) -> Result<Option<RunNo>, Fail> {
    Ok(journal.inflight_of(session)?.and_then(|row| match row.state {
        Phase::Queued | Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest => Some(row.run),
        Phase::HeldInterrupted | Phase::HeldOutOfTurns | Phase::Closing | Phase::Quiet => None,
    }))
}

/// Returns the last record of `session`: what comes after it, the start has done.
pub(super) fn last(journal: &Journal, session: SessionId) -> Result<Seq, Fail> {
    Ok(journal.head(session)?.map_or(Seq(0), |head| head.last_seq))
}

pub(super) fn birth(journal: &Journal, session: SessionId) -> Result<Box<SessionCreated>, Fail> {
    let births = journal.records_from(session, Seq(1), 1)?;
    let birth = births.into_iter().find_map(|stored| {
        let Record::SessionCreated(created) = stored.record else { return None };
        Some(created)
    });
    birth.ok_or_else(|| {
        Fail::Store(format!("session {session} has no birth; `subtend verify` reports what else is wrong"))
    })
}

/// Returns whether two names mean one directory: it may have been reached by a link, or by `..`.
pub(super) fn is_same(home: &Path, here: &Path) -> bool {
    let as_kept = || *home.to_string_lossy() == *here.to_string_lossy();
    // A relative name would mean whatever directory this process was started in.
    let same = || matches!((home.canonicalize(), here.canonicalize()), (Ok(home), Ok(here)) if home == here);
    as_kept() || (home.is_absolute() && same())
}

fn elsewhere(session: SessionId, home: &Path, here: &Path) -> Fail {
    let (name, home_shown, here_shown) = (session.short().0, home.display(), here.display());
    let here_it_works = format!("`--here` lets it work in {here_shown}, this time");
    Fail::Usage(match home.try_exists() {
        Ok(false) => format!(
            "session {name} belongs to {home_shown}, which is not there any more, and this is {here_shown}: its agent would read \
             and write the files here. If you want that, {here_it_works}"
        ),
        Ok(true) | Err(_) => {
            let cd = quoted(&home.to_string_lossy());
            format!(
                "session {name} belongs to {home_shown}, and this is {here_shown}: its agent would read and write the files here. \
                 Call it there (`cd {cd}`, or `--workspace {cd}`); {here_it_works}"
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_the_same_by_whatever_name_it_is_reached() {
        let dir = tempfile::tempdir().expect("a directory");
        let (home, beside) = (dir.path().join("home"), dir.path().join("beside"));
        std::fs::create_dir(&home).expect("a directory");
        std::fs::create_dir(&beside).expect("another");
        assert!(is_same(&beside.join("../home"), &home));
        assert!(!is_same(&beside, &home));
        assert!(is_same(Path::new("/not/there"), Path::new("/not/there")), "its name is all that is left of it");
        assert!(!is_same(Path::new("/not/there"), Path::new("/nor/there")));
    }
}
