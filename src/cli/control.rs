//! Verbs that change a session without letting agents work: a runtime for the time of one control.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use subtend_actors::{Control, ControlError, Options, RecoveryScope, Runtime, SessionHandle};
use subtend_journal::Journal;
use subtend_models::closure::fn_model;
use subtend_models::model::ModelError;
use subtend_session::ids::{Seq, SessionId};
use subtend_session::outcome::ModelFail;
use subtend_tools::registry::Registry;

use super::aside::Aside;
use super::cause;
use super::client;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::clip;
use super::progress::Teller;
use super::trust::Trust;
use super::{find, work, workspace};

/// Time for an orderly end: nothing is at work.
const GRACE: Duration = Duration::from_secs(1);

/// Finds the session that `name` means, and does `job` with it.
///
/// Opening the store ends what an earlier process left in flight, as every opening does. No agent works, and what waits goes on
/// waiting.
pub(crate) fn with<J, F>(store: &StoreArgs, name: &str, job: J) -> Result<Code, Fail>
where
    J: FnOnce(SessionHandle) -> F,
    F: Future<Output = Result<Code, Fail>>,
{
    with_runtime(store, async |runtime| job(session(runtime, name)?).await)
}

/// Starts a runtime on a store that is there, and does `job` with it.
pub(crate) fn with_runtime<J>(store: &StoreArgs, job: J) -> Result<Code, Fail>
where
    J: AsyncFnOnce(&Runtime) -> Result<Code, Fail>,
{
    let place = store.place()?;
    if !place.exists()? {
        return Err(place.none());
    }
    let journal = client::alone(&place)?;
    let threads = work::threads()?;
    let done = threads.block_on(async {
        let none = fn_model("none", |_, _| async {
            Err(ModelError::new(ModelFail::Unavailable, "this process only changes sessions: no agent works in it"))
        });
        let workspace = workspace::open(".".as_ref())?;
        let builder = Runtime::builder()
            .catalog(Trust::silent(&workspace)?.catalog(&workspace))
            .workspace(workspace)
            .options(Options { recovery_scope: RecoveryScope::Nothing, ..Options::default() })
            .tools(Registry::builder().build())
            .model(Arc::new(none));
        let runtime = work::hub::begin(journal, builder, Some(Teller::new())).await?;
        let done = job(&runtime).await;
        work::hub::shut_down(runtime, GRACE).await;
        done
    });
    threads.shutdown_timeout(Duration::from_secs(1));
    done
}

/// The session that a person means.
pub(crate) fn session(runtime: &Runtime, name: &str) -> Result<SessionHandle, Fail> {
    let id = self::find(runtime.journal(), name)?;
    runtime.session(id)?.ok_or_else(|| Fail::Other(format!("session {id} is not in the store")))
}

/// The session that a person means, in a store that nothing need work on.
///
/// # Errors
/// [`Fail::Usage`] or [`Fail::Other`] where none or more than one is meant; [`Fail::Store`] where it is damaged.
pub(crate) fn find(journal: &Journal, name: &str) -> Result<SessionId, Fail> {
    let (heads, aside) = Aside::of(journal)?;
    find::find(&heads, name).map_err(|none| aside.told(name, none))
}

/// A message, as a person names it: `SESSION:RECORD`, or `SESSION` for its last one.
pub(crate) fn message(word: &str) -> Result<(&str, Option<Seq>), Fail> {
    let Some((session, record)) = word.rsplit_once(':') else { return Ok((word, None)) };
    match record.parse::<u64>() {
        Ok(seq) if seq > 0 => Ok((session, Some(Seq(seq)))),
        _ => Err(Fail::Usage(format!(
            "`{}` names no message: write SESSION:RECORD as `subtend show` does, such as `a3f9c1:12`, or SESSION for its \
             last one",
            clip(word, 80)
        ))),
    }
}

/// Tells what a control came to, and its exit code.
pub(crate) fn told(session: SessionId, control: &Control, done: &str) -> Result<Code, Fail> {
    match control {
        Control::Done(run) => {
            say(&format!("session {}: run {run} {done}", session.short().0))?;
            Ok(Code::Done)
        }
        Control::AlreadyEnded(outcome) => {
            say(&format!("session {}: its last run had ended: {}", session.short().0, cause::sentence(outcome)))?;
            Ok(Code::Done)
        }
        Control::NotFound => Err(Fail::Other(format!("session {} never had a run", session.short().0))),
    }
}

/// One line for people.
pub(crate) fn say(text: &str) -> Result<(), Fail> {
    use std::io::Write as _;
    Ok(writeln!(anstream::stdout(), "{}", super::paint::harmless(text))?)
}

impl From<ControlError> for Fail {
    fn from(error: ControlError) -> Self {
        Self::Other(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_session_and_a_record() {
        assert_eq!(message("a3f9c1:12").expect("a message"), ("a3f9c1", Some(Seq(12))));
        assert_eq!(message("root/a3f9c1").expect("the last one"), ("root/a3f9c1", None));
        for wrong in ["a3f9c1:", "a3f9c1:x", "a3f9c1:0"] {
            assert!(message(wrong).expect_err("no message").to_string().contains("SESSION:RECORD"), "{wrong}");
        }
    }
}
