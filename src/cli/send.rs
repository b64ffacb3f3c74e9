//! `subtend send`: an input for a session that is there.

use serde_json::json;

use super::client::Serving;
use super::fail::{Code, Fail};
use super::work::remote::{self, Remote};
use super::work::{self, About, HereArgs, Work, WorkArgs, prompt};

/// Sends an input to a session, follows the run that takes it, and prints the answer.
///
/// A quiet session opens a run for it, a closed one is opened again. The session's own agent answers, with everything that
/// was said before in context.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// What to say; `-` reads it from stdin
    text: String,

    /// Let it enter at the next turn boundary rather than at the next rest point
    #[arg(long)]
    steer: bool,

    /// Agent that answers from here on, within what the session may do
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    #[command(flatten)]
    here: HereArgs,

    #[command(flatten)]
    work: WorkArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    args.work.not_for_opened()?;
    let text = prompt::read(&args.text, std::io::stdin())?;
    let body = json!({"text": text, "lane": if args.steer { "steer" } else { "send" }, "agent": args.agent});
    let fits = |serving: &Serving| args.work.through(serving, true);
    let hosted = remote::verb(args.work.face(), fits, async |mut remote: Remote<'_>| {
        remote.send(&args.session, "inputs", &body).await
    })?;
    if let Some(code) = hosted {
        return Ok(code);
    }
    work::verb(&args.work, About::Session(&args.session, args.here), async |mut work: Work<'_>| {
        let session = work.session()?;
        let mut input = session.input(text);
        if let Some(agent) = &args.agent {
            input = input.agent(agent.as_str());
        }
        let events = session.watch();
        let receipt = if args.steer { input.steer().await? } else { input.send().await? };
        work.answer(events, &session, &receipt).await
    })
}
