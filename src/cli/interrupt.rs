//! `subtend interrupt`: a run stops and waits for the next input.

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};

/// Interrupts the run in flight of a session: its model and tools stop, and it waits for the next input.
///
/// A run is in flight only while a process works on its store; from another process this says which one, and `kill -INT PID`
/// or Ctrl-C there cancels.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, a unique part of one, or a path such as `root/a3f9c1`
    session: String,

    #[command(flatten)]
    store: StoreArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    control::with(&args.store, &args.session, async |session| {
        control::told(session.id(), &session.interrupt().await?, "is interrupted")
    })
}
