use std::io::Write as _;

use super::control;
use super::fail::{Code, Fail};
use super::hosted::Hosted;
use super::work::StopSignal;
use super::work::serve::{self, ServeArgs, ServiceError};

/// Summarizes a session with the agent `summary`, and prints the summary; `subtend show` shows it from then on.
///
/// The session's own model answers, unless `--model` names another.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    serve: ServeArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    // Nothing has begun until the host is found, so a signal may simply end this process.
    if let Some(hosted) = Hosted::find(&args.serve.store, &args.session)? {
        args.serve.refuse_for_other_host()?;
        let (_threads, mut stop) = serve::listen()?;
        return summarise(&hosted, &mut stop, args.json);
    }
    let (threads, mut stop) = serve::listen()?;
    let ready = args.serve.ready(&args.session)?;
    if ready.parts.models.is_offline() {
        return Err(Fail::Usage(
            "cannot summarise with the built-in model `offline`: it answers by rules. Name a language model by --model or by `llm.model` \
             in subtend.yaml"
                .to_owned(),
        ));
    }
    serve::with(threads, ready, |hosted| summarise(hosted, &mut stop, args.json))
}

fn summarise(hosted: &Hosted, stop: &mut StopSignal, is_json: bool) -> Result<Code, Fail> {
    match serve::request_summary(hosted, stop, false) {
        Ok(summary) => {
            let summary = summary?.unwrap_or_default();
            let value = serde_json::json!({"session": hosted.id, "summary": summary});
            control::report(is_json, &value, &summary)
        }
        Err(ServiceError::Late) => Err(Fail::Other("the summary took too long: nothing is recorded".to_owned())),
        Err(ServiceError::Stopped) => {
            // A failed write is ignored: the exit code still reports the cancellation.
            drop(writeln!(anstream::stderr(), "cancelled: the session is not summarised"));
            Ok(Code::Cancelled)
        }
    }
}
