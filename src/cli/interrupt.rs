use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted;

/// Interrupts the run in flight of a session: its model and tools stop, and it waits for the next input.
///
/// It works from any terminal while another process hosts the store.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    hosted::with(&args.store, &args.session, |hosted| hosted.interrupt(args.json))
}
