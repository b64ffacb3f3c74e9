//! `subtend cancel`: a run ends, with all that it owns.

use std::time::Duration;

use subtend_actors::{Runtime, SessionHandle};
use subtend_session::state::Phase;

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted::Hosted;
use super::paint::count;

/// How long the ends are waited for at most.
const PATIENCE: Duration = Duration::from_secs(10);

/// Cancels the run in flight of a session, and all that it owns.
///
/// Works from any terminal while another process hosts the store.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    /// Cancel everything in the session's whole tree, detached runs and branches too; inputs that wait stay where they are
    #[arg(long)]
    tree: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    if let Some(hosted) = Hosted::find(&args.store, &args.session)? {
        return hosted.cancel(args.tree);
    }
    control::with_runtime(&args.store, async |runtime: &Runtime| {
        let session = control::session(runtime, &args.session)?;
        if args.tree {
            let runs = session.cancel_tree().await?;
            ended(runtime, &session, true).await?;
            control::say(&format!("cancelled {} in the tree", count(runs, "run")))?;
            return Ok(Code::Done);
        }
        let control = session.cancel().await?;
        ended(runtime, &session, false).await?;
        control::told(session.id(), &control, "is cancelled")
    })
}

/// Waits until what was cancelled has ended, in the session or in its whole tree, and with it all that it owns: who had not heard of
/// the cancel when this process ends would end as lost. Nothing is at work here, so that it is soon.
async fn ended(runtime: &Runtime, session: &SessionHandle, tree: bool) -> Result<(), Fail> {
    let journal = runtime.journal();
    let root = journal.head(session.id())?.map(|head| head.root);
    let mut closing = journal.inflight()?;
    closing.retain(|(id, row)| {
        let cancelled = *id == session.id() || (tree && Some(row.root) == root);
        cancelled && row.state == Phase::Closing
    });
    let ends = async {
        for (id, row) in closing {
            if let Some(session) = runtime.session(id)? {
                session.run_ended(row.run).await?;
            }
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, ends).await.unwrap_or_else(|_| {
        Err(Fail::Other(format!(
            "what was cancelled has not ended after {} s: what is still in flight ends with the next verb, `subtend recover` for one",
            PATIENCE.as_secs()
        )))
    })
}
