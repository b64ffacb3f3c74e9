//! `subtend branch`: another way on from a message.

use hyper::Method;
use serde::Deserialize;
use serde_json::json;
use subtend_actors::BranchOptions;
use subtend_session::ids::SessionId;
use subtend_session::place::BranchKind;
use subtend_session::title;

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted::Hosted;

/// Makes a branch of a session at one of its messages, and prints its id.
///
/// It knows everything up to that message and nothing after it; `subtend send ID TEXT` goes on from there. The session itself
/// stays as it is.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Message: SESSION:RECORD as `subtend show` names it, or SESSION for its last one
    message: String,

    /// Agent that answers in the branch [default: the session's own]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Start afresh, as a subagent does, rather than with what was said before
    #[arg(long)]
    fresh: bool,

    /// Title for listings
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    #[command(flatten)]
    store: StoreArgs,
}

/// The branch that a host made.
#[derive(Deserialize)]
struct Made {
    session: SessionId,
}

/// Runs the command.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let (session, at) = control::message(&args.message)?;
    if let Some(title) = &args.title {
        title::check(title).map_err(|bad| Fail::Usage(format!("{bad} (--title TEXT)")))?;
    }
    if let Some(hosted) = Hosted::find(&args.store, session)? {
        let body = json!({"at": at.map(|at| at.0), "fresh": args.fresh, "agent": args.agent, "title": args.title});
        let made: Made = hosted.call(Method::POST, "/branches", Some(&body))?;
        control::say(&made.session.to_string())?;
        return Ok(Code::Done);
    }
    control::with(&args.store, session, async |session| {
        let kind = if args.fresh { BranchKind::Subagent } else { BranchKind::Human };
        let (agent, title) = (args.agent.as_deref().map(Into::into), args.title.as_deref().map(Into::into));
        let branch = session.branch(BranchOptions { id: None, at, kind, agent, title, metadata: None }).await?;
        control::say(&branch.id().to_string())?;
        Ok(Code::Done)
    })
}
