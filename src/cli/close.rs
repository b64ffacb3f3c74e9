//! `subtend close`: a quiet session is closed.

use std::io::Write as _;

use subtend_actors::{ControlError, SessionHandle};

use super::control;
use super::fail::{Code, Fail};
use super::paint::{In, ODD, count, harmless};
use super::work::serve::{self, ServeArgs, Unmet};

/// Closes a quiet session; the next input opens it again.
///
/// Where the host sums up what is closed (`sessions.summaries`), that is waited for, at most two minutes. The session is closed in any
/// case.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, a unique part of one, or a path such as `root/a3f9c1`
    session: String,

    #[command(flatten)]
    serve: ServeArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    match args.serve.parts() {
        Ok(parts) if parts.options.summaries && !parts.models.is_offline() => {
            let tried = serve::with(parts, &args.session, async |session, mut stop| {
                close(&session).await?;
                let short = session.id().short();
                match serve::waited(session.services_done(), &mut stop).await {
                    // Only a root is summed up by its close.
                    _ if !session.is_root() => {}
                    Ok(()) if session.is_summed_up().await? => {}
                    Ok(()) => unsummed("it came to nothing", &short.0),
                    Err(Unmet::Late) => unsummed("it took too long", &short.0),
                    Err(Unmet::Stopped) => {
                        unsummed("it was cancelled", &short.0);
                        return Ok(Code::Cancelled);
                    }
                }
                Ok(Code::Done)
            });
            match tried {
                // Nothing was started.
                Err(Fail::Usage(why)) => closed_alone(args, &why),
                done => done,
            }
        }
        Ok(_) => control::with(&args.serve.store, &args.session, async |session| close(&session).await),
        Err(why) => closed_alone(args, &why.to_string()),
    }
}

/// Closes it where no model can be used, and tells why.
fn closed_alone(args: &Args, why: &str) -> Result<Code, Fail> {
    let closed = control::with(&args.serve.store, &args.session, async |session| close(&session).await)?;
    unsummed(why, &args.session);
    Ok(closed)
}

async fn close(session: &SessionHandle) -> Result<Code, Fail> {
    session.close().await.map_err(|error| {
        if let ControlError::Waiting(inputs) = error { waiting(&session.id().short().0, inputs) } else { error.into() }
    })?;
    control::say(&format!("session {} is closed; `subtend send` opens it again", session.id().short().0))?;
    Ok(Code::Done)
}

/// What to do with the inputs of a session that would be closed without having taken them.
fn waiting(session: &str, inputs: usize) -> Fail {
    let what = count(inputs as u64, "input");
    Fail::Other(format!(
        "session {session} is not closed, since {what} in its queue would be left behind: `subtend continue {session}` lets it take what \
         waits, `subtend queue {session} clear` removes it"
    ))
}

/// Tells that what was closed has no summary. Without a stderr there is nobody to tell.
fn unsummed(why: &str, session: &str) {
    let text = harmless(&format!("no summary: {why} (`subtend summary {session}` tries again)"));
    drop(writeln!(anstream::stderr(), "{} {text}", In(ODD, "warning:")));
}
