//! `subtend cancel`: a run ends, with all that it owns.

use std::time::Duration;

use subtend_actors::{Control, SessionHandle};

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::count;

/// How long the ends are waited for at most.
const PATIENCE: Duration = Duration::from_secs(10);

/// Cancels the run in flight of a session, and all that it owns.
///
/// A run is in flight only while a process works on its store; from another process this says which one, and `kill -INT PID`
/// or Ctrl-C there cancels.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, a unique part of one, or a path such as `root/a3f9c1`
    session: String,

    /// Cancel everything in the session's whole tree, detached runs and branches too; inputs that wait stay where they are
    #[arg(long)]
    tree: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    control::with(&args.store, &args.session, async |session| {
        if args.tree {
            let runs = session.cancel_tree().await?;
            ended(&session, &session.cancel().await?).await?;
            control::say(&format!("cancelled {} in the tree", count(runs, "run")))?;
            return Ok(Code::Done);
        }
        let control = session.cancel().await?;
        ended(&session, &control).await?;
        control::told(session.id(), &control, "is cancelled")
    })
}

/// Waits until the run has ended, and with it all that it owns: who had not heard of the cancel when this process ends would end as
/// lost. Nothing is at work here, so that it is soon.
async fn ended(session: &SessionHandle, control: &Control) -> Result<(), Fail> {
    let Control::Done(run) = control else { return Ok(()) };
    let ended = tokio::time::timeout(PATIENCE, session.run_ended(*run)).await;
    ended.map_or(Ok(()), |ended| ended.map(drop).map_err(Fail::from))
}
