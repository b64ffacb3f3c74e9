//! `subtend delete`: a session and all below it are deleted.

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::paint::count;

/// Deletes a session and everything below it: they take nothing any more and are in no listing.
///
/// Their journals stay in the store.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, a unique part of one, or a path such as `root/a3f9c1`
    session: String,

    /// Cancel what is in flight there first
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    control::with(&args.store, &args.session, async |session| {
        let deleted = session.delete(args.force).await?;
        control::say(&format!("deleted {}", count(deleted, "session")))?;
        Ok(Code::Done)
    })
}
