//! `subtend branch`: another way on from a message.

use hyper::Method;
use serde::Deserialize;
use serde_json::json;
use subtend_session::ids::SessionId;
use subtend_session::title;

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted;
use super::names;

/// Branches off a session at one of its messages, and prints the id of the branch.
///
/// The branch knows everything up to that message and nothing after it; `subtend send ID TEXT` continues it. The session itself
/// does not change.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Message: SESSION:RECORD as `subtend show` names it, or SESSION for its last one
    message: String,

    /// Agent that answers in the branch [default: the session's own]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Start with an empty context, as a subagent does, instead of the earlier conversation
    #[arg(long)]
    fresh: bool,

    /// Title for listings
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    #[command(flatten)]
    store: StoreArgs,
}

#[derive(Deserialize)]
struct Made {
    session: SessionId,
}

pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let (session, at) = names::message(&args.message)?;
    if let Some(title) = &args.title {
        title::check(title).map_err(|bad| Fail::Usage(format!("{bad} (--title TEXT)")))?;
    }
    hosted::with(&args.store, session, |hosted| {
        let body = json!({"at": at.map(|at| at.0), "fresh": args.fresh, "agent": args.agent, "title": args.title});
        let made: Made = hosted.call(Method::POST, "/branches", Some(&body))?;
        control::say(&made.session.to_string())?;
        Ok(Code::Done)
    })
}
