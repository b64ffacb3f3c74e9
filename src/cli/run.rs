//! `subtend run`: one prompt, one answer, and the tree of sessions that finds it.

use super::fail::{Code, Fail};
use super::work::{self, About, Work, WorkArgs, hub, prompt};

/// Runs one prompt in a new session and prints the answer.
///
/// The answer goes to stdout, progress to stderr. Every session that takes part is kept: `subtend tree` shows them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// What to do; `-` reads it from stdin
    prompt: String,

    /// Agent that answers [default: `agent` in subtend.yaml, else `general`]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    #[command(flatten)]
    work: WorkArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let prompt = prompt::read(&args.prompt, std::io::stdin())?;
    work::verb(&args.work, About::New(args.agent.as_deref()), async |mut work: Work<'_>| {
        let (session, events) = hub::open(work.runtime, &work.agent, work.model.as_ref(), &work.servers)?;
        let receipt = session.send(prompt).await?;
        work.follow(events, &session, receipt.run).await
    })
}
