//! The session that a verb works for: one that may go on in this workspace.

use std::path::Path;

use subtend_actors::RecoveryScope;
use subtend_actors::boot::at_next_boot;
use subtend_journal::Journal;
use subtend_session::ids::{RunNo, Seq, SessionId, Text};
use subtend_session::limits::Limits;
use subtend_session::record::{Record, SessionCreated};
use subtend_session::state::Phase;
use subtend_tools::workspace::Workspace;

use super::super::data::{Place, quoted};
use super::super::fail::Fail;
use super::super::{client, control};
use super::choice::Own;

/// Whether a session of another workspace may go on.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct HereArgs {
    /// Let a session of another directory work in this one, on the files that are here; this time only
    #[arg(long)]
    pub(crate) here: bool,
}

/// What a verb lets agents work for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About<'a> {
    /// A session that it opens, of an agent that is named or the default one.
    New(Option<&'a str>),
    /// A session that is there, as a person names it.
    Session(&'a str, HereArgs),
}

/// A session that is there, in its store.
pub(super) struct Found {
    /// The store.
    pub(super) journal: Journal,
    /// The session.
    pub(super) session: SessionId,
    /// The root of its tree.
    pub(super) root: SessionId,
    /// How it was opened.
    pub(super) birth: Box<SessionCreated>,
    /// Servers that the models of its tree are called at instead of the providers' own.
    servers: Vec<Text>,
    /// Whether an import brought its tree.
    imported: bool,
}

impl About<'_> {
    /// Finds the session in a store that nothing works on yet: what waits in it is taken up by the start, so that one that may
    /// not go on here must be refused before. Its agent reads and writes the files of the workspace, so that another one's may
    /// not, unless a person wants it.
    ///
    /// # Errors
    /// [`Fail::Usage`] where it was begun in another workspace, with both and what to do, and where no session can be there; as
    /// [`control::find`].
    pub(super) fn find(self, place: &Place, workspace: &Workspace) -> Result<Option<Found>, Fail> {
        let Self::Session(name, HereArgs { here }) = self else { return Ok(None) };
        if place.path().is_none() {
            return Err(place.none());
        }
        let journal = client::alone(place)?;
        let session = control::find(&journal, name)?;
        let birth = birth(&journal, session)?;
        let home = Path::new(&*birth.workspace);
        if !here && !is_same(home, workspace.path()) {
            return Err(elsewhere(session, home, workspace.path()));
        }
        let root = journal.head(session)?.map_or(session, |head| head.root);
        let top = if root == session { birth.clone() } else { self::birth(&journal, root)? };
        let imported = top.imported.is_some() || birth.imported.is_some();
        Ok(Some(Found { journal, session, root, birth, servers: top.servers, imported }))
    }
}

impl Found {
    /// The model that answers in the session, and where it is called.
    pub(super) fn own(&self) -> Own<'_> {
        Own { model: &self.birth.model, servers: &self.servers, imported: self.imported }
    }

    /// Whether an input has named another agent, which may have a model of its own.
    pub(super) fn overridden(&self) -> Result<bool, Fail> {
        let records = self.journal.records(self.session)?;
        let names = |record: &Record| matches!(record, Record::InputAccepted(input) if input.agent_override.is_some());
        Ok(records.iter().any(|stored| names(&stored.record)))
    }

    /// The limits that the session was opened with.
    pub(super) fn limits(&self) -> Result<Limits, Fail> {
        let limits = &self.birth.limits;
        if let Some(body) = &limits.body {
            return Ok(Limits::clone(body));
        }
        let known = self.journal.def(limits.hash)?;
        known.and_then(|json| serde_json::from_str(&json).ok()).ok_or_else(|| {
            Fail::Store(format!(
                "the limits {} are not in the store; `subtend verify` tells what else is wrong",
                limits.hash
            ))
        })
    }
}

/// The run of `session` that an earlier process left at work or in the queue and that the start lets go on. One that is held
/// waits for an input, and goes on with that alone.
pub(super) fn left(journal: &Journal, session: SessionId) -> Result<Option<RunNo>, Fail> {
    let Some(row) = journal.inflight_of(session)? else { return Ok(None) };
    let by_itself = match row.state {
        Phase::Queued | Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest => true,
        Phase::HeldInterrupted | Phase::HeldOutOfTurns | Phase::Closing | Phase::Quiet => false,
    };
    let (goes_on, keeps) = at_next_boot(&journal.inflight()?);
    let taken_up = goes_on.contains(&session) || keeps.contains(&session);
    Ok((by_itself && taken_up).then_some(row.run))
}

/// The last record of `session`: what comes after it, the start has done.
pub(super) fn last(journal: &Journal, session: SessionId) -> Result<Seq, Fail> {
    Ok(journal.head(session)?.map_or(Seq(0), |head| head.last_seq))
}

/// What the start takes up for `session`: what waits there. This process ends when the verb is done, and what it had taken up of
/// others would be lost with it.
pub(super) fn takes_up(session: Option<SessionId>) -> RecoveryScope {
    session.map_or(RecoveryScope::Nothing, RecoveryScope::Session)
}

/// How a session was opened.
fn birth(journal: &Journal, session: SessionId) -> Result<Box<SessionCreated>, Fail> {
    let births = journal.records_from(session, Seq(1), 1)?;
    let birth = births.into_iter().find_map(|stored| {
        let Record::SessionCreated(created) = stored.record else { return None };
        Some(created)
    });
    birth.ok_or_else(|| {
        Fail::Store(format!("session {session} has no birth; `subtend verify` tells what else is wrong"))
    })
}

/// Whether two names mean one directory: it may have been reached by a link, or by `..`.
fn is_same(home: &Path, here: &Path) -> bool {
    // A name is kept as text: one that is none is compared as it is kept.
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
