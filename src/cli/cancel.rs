use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted;

/// Cancels the run in flight of a session, and everything that it owns.
///
/// It works from any terminal while another process hosts the store.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// Cancel everything in the session's whole tree, including detached runs and branches; queued inputs stay queued
    #[arg(long)]
    tree: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    hosted::with(&args.store, &args.session, |hosted| hosted.cancel(args.tree, args.json))
}
