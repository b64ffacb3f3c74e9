use serde_json::json;

use super::fail::{Code, Fail};
use super::names;
use super::work::{self, CommandSubject, HereArgs, Work, WorkArgs};

/// Regenerates an answer, as an alternative to the existing one.
///
/// The new answer replaces the old one in the conversation when it is complete; `subtend switch` brings the old one back.
/// The command is refused while a run is in flight.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Answer: SESSION:RECORD as `subtend show` names it, or SESSION for its last one
    message: String,

    #[command(flatten)]
    here: HereArgs,

    #[command(flatten)]
    work: WorkArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    args.work.refuse_for_existing_session()?;
    let (session, of) = names::message(&args.message)?;
    let body = json!({"of": of.map(|of| of.0)});
    work::run(&args.work, CommandSubject::Session(session, args.here), async |mut work: Work<'_>| {
        work.send("regenerate", &body).await
    })
}
