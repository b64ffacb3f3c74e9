//! `subtend cancel`: a run ends, with all that it owns.

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::count;

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
            control::say(&format!("cancelled {} in the tree", count(runs, "run")))?;
            return Ok(Code::Done);
        }
        control::told(session.id(), &session.cancel().await?, "is cancelled")
    })
}
