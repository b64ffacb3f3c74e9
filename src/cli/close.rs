//! `subtend close`: a quiet session is closed.

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};

/// Closes a quiet session; the next input opens it again.
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
        session.close().await?;
        control::say(&format!("session {} is closed; `subtend send` opens it again", session.id().short().0))?;
        Ok(Code::Done)
    })
}
