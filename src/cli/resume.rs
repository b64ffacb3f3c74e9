//! `subtend continue`: an ended session goes on.

use serde_json::json;

use super::client::Serving;
use super::fail::{Code, Fail};
use super::work::remote::{self, Remote};
use super::work::{self, About, HereArgs, Work, WorkArgs, prompt};

/// What is said where nothing is.
const DEFAULT: &str = "Continue your previous work.";

/// Lets a session go on whose last run ended: completed, failed, cancelled, out of turns or lost.
///
/// It opens the next run, with everything that was done before in context and a new allowance of turns. A run that an earlier
/// process left and that goes on (`on_restart: resume`) is followed to its end instead, unless there is something to say.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// What to say besides [default: Continue your previous work.]; `-` reads it from stdin
    text: Option<String>,

    /// Turns that the run may take
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,

    #[command(flatten)]
    here: HereArgs,

    #[command(flatten)]
    work: WorkArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    args.work.not_for_opened()?;
    let text = args.text.as_deref().map(|text| prompt::read(text, std::io::stdin())).transpose()?;
    let body = json!({"text": text.as_deref().unwrap_or(DEFAULT), "turns": args.turns});
    let fits = |serving: &Serving| args.work.through(serving, true);
    let hosted = remote::verb(args.work.face(), fits, async |mut remote: Remote<'_>| {
        remote.send(&args.session, "inputs", &body).await
    })?;
    if let Some(code) = hosted {
        return Ok(code);
    }
    work::verb(&args.work, About::Session(&args.session, args.here), async |mut work: Work<'_>| {
        let session = work.session()?;
        let events = session.watch();
        if let (Some(run), None, None) = (work.left, &text, args.turns) {
            // There is nothing to be said to it: words would be one more task for a session that is at its last one.
            return work.follow(events, &session, run).await;
        }
        let mut input = session.input(text.as_deref().unwrap_or(DEFAULT));
        if let Some(turns) = args.turns {
            input = input.turns(turns);
        }
        let receipt = input.send().await?;
        work.answer(events, &session, &receipt).await
    })
}
