use serde_json::json;

use super::fail::{Code, Fail};
use super::work::{self, CommandSubject, HereArgs, Work, WorkArgs, prompt};

/// Sends an input to a session, follows the run that takes it, and prints the answer.
///
/// An idle session opens a run for it, and a closed session is reopened. The session's own agent answers, with the
/// earlier conversation in context. If one run takes several messages, the answer to this one is printed. `/NAME …` is a
/// slash command of the session's directory.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// Message; `-` reads it from stdin
    text: String,

    /// Deliver the input at the next turn boundary instead of the next rest point, as `subtend steer` does
    #[arg(long)]
    pub(super) steer: bool,

    /// Agent that answers from now on, within the permissions of the session
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    #[command(flatten)]
    here: HereArgs,

    #[command(flatten)]
    work: WorkArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    args.work.refuse_for_existing_session()?;
    let text = prompt::read(&args.text, std::io::stdin())?;
    work::run(&args.work, CommandSubject::Session(&args.session, args.here), async |mut work: Work<'_>| {
        let text = args.work.prompt(&mut work, args.here, &text)?;
        let body = json!({"text": text, "lane": if args.steer { "steer" } else { "send" }, "agent": args.agent});
        work.send("inputs", &body).await
    })
}
