//! Where a session may go on: in the workspace in which it was begun, unless a person says otherwise.

use std::path::Path;

use subtend_actors::SessionHandle;
use subtend_session::ids::{Seq, SessionId};
use subtend_session::record::Record;

use super::super::control;
use super::super::data::quoted;
use super::super::fail::Fail;
use super::Work;

/// Whether a session of another workspace may go on.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct HereArgs {
    /// Let a session of another directory work in this one, on the files that are here; this time only
    #[arg(long)]
    pub(crate) here: bool,
}

impl Work<'_> {
    /// The session that `name` means, to work for: its agent reads and writes the files of the workspace, so another one's is not
    /// taken up unless a person wants it.
    ///
    /// # Errors
    /// [`Fail::Usage`] where it was begun in another workspace, with both and what to do; as [`control::session`].
    pub(crate) fn session(&self, name: &str, here: HereArgs) -> Result<SessionHandle, Fail> {
        let session = control::session(self.runtime, name)?;
        if !here.here
            && let Some(home) = self.home(session.id())?
            && !is_same(Path::new(&home), self.workspace.path())
        {
            return Err(elsewhere(session.id(), Path::new(&home), self.workspace.path()));
        }
        Ok(session)
    }

    /// The workspace in which a session was begun.
    fn home(&self, session: SessionId) -> Result<Option<String>, Fail> {
        let births = self.runtime.journal().records_from(session, Seq(1), 1)?;
        Ok(births.into_iter().find_map(|stored| {
            let Record::SessionCreated(created) = stored.record else { return None };
            Some(created.workspace.to_string())
        }))
    }
}

/// Whether two names mean one directory: it may have been reached by a link, or by `..`.
fn is_same(home: &Path, here: &Path) -> bool {
    // A name is kept as text: one that is none is compared as it is kept.
    let as_kept = || *home.to_string_lossy() == *here.to_string_lossy();
    as_kept() || matches!((home.canonicalize(), here.canonicalize()), (Ok(home), Ok(here)) if home == here)
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
