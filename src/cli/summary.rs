//! `subtend summary`: what was done in a session is summed up.

use super::control;
use super::fail::{Code, Fail};
use super::work::serve::{self, ServeArgs};

/// Sums up what was done in a session, by the agent `summary`, and prints it; `subtend show` shows it from then on.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, a unique part of one, or a path such as `root/a3f9c1`
    session: String,

    #[command(flatten)]
    serve: ServeArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let parts = args.serve.parts()?;
    if parts.models.is_offline() {
        return Err(Fail::Usage(
            "the built-in model `offline` answers by rules, and has none for summaries: name a language model, by --model or by \
             `llm.model` in subtend.yaml"
                .to_owned(),
        ));
    }
    serve::with(parts, &args.session, async |session, mut stop| {
        match serve::waited(session.summarise(), &mut stop).await {
            Some(summary) => {
                control::say(&summary?)?;
                Ok(Code::Done)
            }
            None => Err(Fail::Other("the summary took too long, or was given up: nothing is recorded".to_owned())),
        }
    })
}
