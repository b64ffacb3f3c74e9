//! `subtend rollback`: what a run that failed said is hidden.

use hyper::Method;
use serde::Deserialize;
use serde_json::json as object;
use subtend_session::ids::{RunNo, SessionId};

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted::Hosted;
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

/// What a host rolled back.
#[derive(Deserialize)]
struct Done {
    run: RunNo,
}

/// Runs the command.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    if let Some(hosted) = Hosted::find(&args.store, &args.session)? {
        let done: Done = hosted.call(Method::POST, "/rollback", Some(&object!({"run": args.run})))?;
        return told(args, hosted.id, done.run);
    }
    control::with(&args.store, &args.session, async |session| {
        let run = session.roll_back(args.run.map(RunNo)).await?;
        told(args, session.id(), run)
    })
}

fn told(args: &Args, session: SessionId, run: RunNo) -> Result<Code, Fail> {
    if args.json {
        control::say(&json::text(&object!({"session": session, "run": run, "rolled_back": true}))?)?;
    } else {
        let name = session.short().0;
        control::say(&format!("session {name}: run {run} is rolled back; what it changed in files stays"))?;
    }
    Ok(Code::Done)
}
