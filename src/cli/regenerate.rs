//! `subtend regenerate`: an answer is given anew.

use serde_json::json;

use super::client::Serving;
use super::control;
use super::fail::{Code, Fail};
use super::work::remote::{self, Remote};
use super::work::{self, About, HereArgs, Work, WorkArgs};

/// Lets an answer be given anew, beside the one that is there.
///
/// The new answer takes the place of the old one when it is complete; the old one stays intact, and `subtend switch` brings it
/// back. Refused while the session works.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Answer: SESSION:RECORD as `subtend show` names it, or SESSION for its last one
    message: String,

    #[command(flatten)]
    here: HereArgs,

    #[command(flatten)]
    work: WorkArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    args.work.not_for_opened()?;
    let (session, of) = control::message(&args.message)?;
    let fits = |serving: &Serving| args.work.through(serving, true);
    let body = json!({"of": of.map(|of| of.0)});
    let hosted = remote::verb(args.work.face(), fits, async |mut remote: Remote<'_>| {
        remote.send(session, "regenerate", &body).await
    })?;
    if let Some(code) = hosted {
        return Ok(code);
    }
    work::verb(&args.work, About::Session(session, args.here), async |mut work: Work<'_>| {
        let session = work.session()?;
        let events = session.watch();
        let (alternative, run) = session.regenerate(of).await?;
        work.follow(events, &alternative, run).await
    })
}
