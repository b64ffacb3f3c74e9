//! `subtend rollback`: what a run that failed said is hidden.

use hyper::Method;
use serde::Deserialize;
use serde_json::json as object;
use subtend_session::ids::{RunNo, SessionId};

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted;
use super::json;

/// Hides the messages of a run that did not complete from later model calls and branches.
///
/// Nothing is deleted: `subtend show` marks the messages. Files that the run changed stay as they are.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    #[arg(value_name = "ID")]
    session: String,

    /// Number of the run [default: the last one]
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
struct RollbackReply {
    run: RunNo,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    hosted::with(&args.store, &args.session, |hosted| {
        let done: RollbackReply = hosted.call(Method::POST, "/rollback", Some(&object!({"run": args.run})))?;
        told(args, hosted.id, done.run)
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
