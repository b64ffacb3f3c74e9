//! `subtend rollback`: what a run that failed said is hidden.

use serde_json::json as object;
use subtend_session::ids::RunNo;

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::json;

/// Hides what a run said that did not complete: no later call of its model and no later branch is given it.
///
/// Nothing is deleted: `subtend show` marks the messages. Files that the run changed stay as they are.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    #[arg(value_name = "ID")]
    session: String,

    /// The run, by its number; the last one if absent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    run: Option<u32>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    control::with(&args.store, &args.session, async |session| {
        let run = session.roll_back(args.run.map(RunNo)).await?;
        if args.json {
            control::say(&json::text(&object!({"session": session.id(), "run": run, "rolled_back": true}))?)?;
        } else {
            control::say(&format!(
                "session {}: run {run} is rolled back; what it changed in files stays",
                session.id().short().0
            ))?;
        }
        Ok(Code::Done)
    })
}
