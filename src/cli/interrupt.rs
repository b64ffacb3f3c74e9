//! `subtend interrupt`: a run stops and waits for the next input.

use subtend_actors::{QueueEntry, QueueKind};

use super::control;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted::Hosted;

/// Interrupts the run in flight of a session: its model and tools stop, and it waits for the next input.
///
/// Works from any terminal while another process hosts the store.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    session: String,

    #[command(flatten)]
    store: StoreArgs,
}

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    if let Some(hosted) = Hosted::find(&args.store, &args.session)? {
        return hosted.interrupt();
    }
    control::with(&args.store, &args.session, async |session| {
        let inputs = |entry: &QueueEntry| entry.kind != QueueKind::Completion;
        let waiting = session.queue().await?.into_iter().filter(inputs).count();
        if waiting > 0 && session.current_run().await?.is_some() {
            // The run would go on with it at once, or the next one would open, in a process without a model. Where no run is in
            // flight there is nothing to interrupt, and what waits goes on waiting.
            let name = session.id().short().0;
            return Err(Fail::Other(format!(
                "{} in session {name}: the first would be taken at once, and no agent works in this process; \
                 `subtend queue {name} clear` removes what waits, `subtend cancel {name}` ends the run and leaves it",
                if waiting == 1 { "1 input waits".to_owned() } else { format!("{waiting} inputs wait") }
            )));
        }
        control::told(session.id(), &session.interrupt().await?, "is interrupted")
    })
}
