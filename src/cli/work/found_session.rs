//! The session of a command, checked against the workspace.

use std::path::{Path, PathBuf};

use subtend_actors::boot::preview_recovery;
use subtend_journal::Journal;
use subtend_session::ids::{RunNo, Seq, SessionId, Text};
use subtend_session::limits::Limits;
use subtend_session::record::{Record, SessionCreated};
use subtend_session::state::Phase;

use super::super::data::{StoreLocation, quote_path};
use super::super::fail::Fail;
use super::super::{client, names, workspace};
use super::choice::RecordedModel;

#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct HereArgs {
    /// Run a session of another directory in the current directory, this time only
    #[arg(long)]
    pub(crate) here: bool,
}

/// The session that a command works on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CommandSubject<'a> {
    /// A new session of the named agent, or of the default one.
    New(Option<&'a str>),
    Session(&'a str, HereArgs),
}

pub(super) struct FoundSession {
    pub(super) journal: Journal,
    pub(super) session: SessionId,
    pub(super) root: SessionId,
    pub(super) creation: Box<SessionCreated>,
    /// The model that answers: that of the last agent that an input named, else its own.
    model: Text,
    /// Servers at which models of its tree are called instead of the providers' own.
    servers: Vec<Text>,
    imported: bool,
}

impl CommandSubject<'_> {
    /// Finds the session before the runtime starts, because the start could already run its queued inputs.
    pub(super) fn find(self, place: &StoreLocation) -> Result<Option<FoundSession>, Fail> {
        let Self::Session(name, _) = self else { return Ok(None) };
        if place.is_in_memory() {
            return Err(place.missing_store());
        }
        let journal = client::open_exclusive(place)?;
        let session = names::find(&journal, name)?;
        let creation = creation(&journal, session)?;
        let root = journal.head(session)?.map_or(session, |head| head.root);
        let top = if root == session { creation.clone() } else { self::creation(&journal, root)? };
        let imported = top.imported.is_some() || creation.imported.is_some();
        let model = model_of_agent(&journal, session).unwrap_or_else(|| creation.model.clone());
        Ok(Some(FoundSession { journal, session, root, creation, model, servers: top.servers, imported }))
    }
}

impl FoundSession {
    /// Returns the session's own directory if it differs from `here`. `is_named` is true if the user chose `here`.
    ///
    /// # Errors
    /// [`Fail::Usage`] if the session cannot run in its own directory, or if the user chose another one.
    pub(super) fn own_directory(&self, here: &Path, is_named: bool) -> Result<Option<PathBuf>, Fail> {
        let home = Path::new(&*self.creation.workspace);
        if home.is_absolute() && home.is_dir() {
            workspace::open_recorded(home)?;
        }
        if is_same(home, here) {
            return Ok(None);
        }
        // The author of an import chose that directory, so it is not used.
        match is_named || self.imported || !home.is_dir() {
            true => Err(other_workspace(self.session, home, here)),
            false => Ok(Some(home.to_owned())),
        }
    }

    pub(super) fn recorded_model(&self) -> RecordedModel<'_> {
        RecordedModel { model: &self.model, servers: &self.servers, imported: self.imported }
    }

    /// Returns whether an input named another agent, which may have a model of its own.
    pub(super) fn has_agent_override(&self) -> Result<bool, Fail> {
        let records = self.journal.records(self.session)?;
        let names = |record: &Record| matches!(record, Record::InputAccepted(input) if input.agent_override.is_some());
        Ok(records.iter().any(|stored| names(&stored.record)))
    }

    pub(super) fn limits(&self) -> Result<Limits, Fail> {
        let limits = &self.creation.limits;
        if let Some(body) = &limits.body {
            return Ok(Limits::clone(body));
        }
        let known = self.journal.def(limits.hash)?;
        known.and_then(|json| serde_json::from_str(&json).ok()).ok_or_else(|| {
            Fail::Store(format!("the limits {} are not in the store; `subtend verify` reports all damage", limits.hash))
        })
    }
}

/// Returns the run of an earlier process that resumes at the start. A held run does not resume.
pub(super) fn resuming_run(journal: &Journal, session: SessionId) -> Result<Option<RunNo>, Fail> {
    let (resuming, queued) = preview_recovery(journal)?;
    let continues = resuming.contains(&session) || queued.contains(&session);
    Ok(running(journal, session)?.filter(|_| continues))
}

/// Returns the run in flight of `session`, unless it is held or closing.
pub(super) fn running(journal: &Journal, session: SessionId) -> Result<Option<RunNo>, Fail> {
    Ok(journal.inflight_of(session)?.and_then(|row| match row.state {
        Phase::Queued | Phase::Working | Phase::WaitingMidTurn | Phase::WaitingAtRest => Some(row.run),
        Phase::HeldInterrupted | Phase::HeldOutOfTurns | Phase::Closing | Phase::Quiet => None,
    }))
}

/// Returns the last record of `session` before the start. The recovery appends later ones.
pub(super) fn last(journal: &Journal, session: SessionId) -> Result<Seq, Fail> {
    Ok(journal.head(session)?.map_or(Seq(0), |head| head.last_seq))
}

pub(super) fn creation(journal: &Journal, session: SessionId) -> Result<Box<SessionCreated>, Fail> {
    let Record::SessionCreated(created) = journal.first_record(session)?.record else {
        return Err(Fail::Store(format!(
            "session {session} has no creation record; `subtend verify` reports all damage"
        )));
    };
    Ok(created)
}

/// Returns the model of the last agent that an input named, if any. What cannot be read is reported where it is used.
fn model_of_agent(journal: &Journal, session: SessionId) -> Option<Text> {
    let records = journal.records(session).ok()?;
    records.iter().rev().find_map(|stored| {
        let Record::InputAccepted(input) = &stored.record else { return None };
        input.agent_override.as_ref().map(|agent| agent.model.clone())
    })
}

/// Returns whether two paths are the same directory, after links and `..` are resolved.
pub(super) fn is_same(home: &Path, here: &Path) -> bool {
    let same_name = || *home.to_string_lossy() == *here.to_string_lossy();
    // Compare only absolute paths: a relative one would depend on the current directory.
    let same = || matches!((home.canonicalize(), here.canonicalize()), (Ok(home), Ok(here)) if home == here);
    same_name() || (home.is_absolute() && same())
}

fn other_workspace(session: SessionId, home: &Path, here: &Path) -> Fail {
    let (name, home_shown, here_shown) = (session.short().0, home.display(), here.display());
    let advice = format!("use `--here` to run it in {here_shown} this time");
    Fail::Usage(match home.try_exists() {
        Ok(false) => format!(
            "session {name} belongs to {home_shown}, which no longer exists, and this is {here_shown}: its agent would read \
             and write the files here. If you want that, {advice}"
        ),
        Ok(true) | Err(_) => {
            let cd = quote_path(&home.to_string_lossy());
            format!(
                "session {name} belongs to {home_shown}, and this is {here_shown}: its agent would read and write the files here. \
                 Run the command there (`cd {cd}`, or `--workspace {cd}`), or {advice}"
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_directory_is_recognized_by_other_paths() {
        let dir = tempfile::tempdir().expect("a directory");
        let (home, sibling) = (dir.path().join("home"), dir.path().join("beside"));
        std::fs::create_dir(&home).expect("a directory");
        std::fs::create_dir(&sibling).expect("another");
        assert!(is_same(&sibling.join("../home"), &home));
        assert!(!is_same(&sibling, &home));
        assert!(is_same(Path::new("/not/there"), Path::new("/not/there")), "a removed directory is compared by name");
        assert!(!is_same(Path::new("/not/there"), Path::new("/nor/there")));
    }
}
