//! `subtend summary`: what was done in a session is summed up.

use std::io::Write as _;

use super::control;
use super::fail::{Code, Fail};
use super::work::serve::{self, ServeArgs, Unmet};

/// Sums up what was done in a session, by the agent `summary`, and prints it; `subtend show` shows it from then on.
///
/// The session's own model answers, unless `--model` names another.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    #[command(flatten)]
    serve: ServeArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let listening = serve::listen()?;
    let ready = args.serve.ready(&args.session)?;
    if ready.parts.models.is_offline() {
        return Err(Fail::Usage(
            "the built-in model `offline` answers by rules, and has none for summaries: name a language model, by --model or by \
             `llm.model` in subtend.yaml"
                .to_owned(),
        ));
    }
    serve::with(listening, ready, async |session, mut stop| {
        match serve::waited(session.summarise(), &mut stop).await {
            Ok(summary) => {
                control::say(&summary?)?;
                Ok(Code::Done)
            }
            Err(Unmet::Late) => Err(Fail::Other("the summary took too long: nothing is recorded".to_owned())),
            Err(Unmet::Stopped) => {
                // Without a stderr there is nobody to tell; the exit code still says it.
                drop(writeln!(anstream::stderr(), "cancelled: the session is not summed up"));
                Ok(Code::Cancelled)
            }
        }
    })
}
