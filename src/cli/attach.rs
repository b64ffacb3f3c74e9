//! `subtend attach`: joins a session that runs in another process.

use std::io::Write as _;

use subtend_session::ids::Seq;

use super::chat::earlier;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::hosted::Hosted;
use super::work::face::Face;
use super::work::hub;
use super::work::remote::{self, Remote};

/// Joins a session that runs in the process that hosts the store: shows the conversation so far, and follows the run in flight.
///
/// Leaving stops nothing: close the terminal, or press Ctrl-D. Ctrl-C cancels the run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    #[arg(value_name = "ID")]
    session: String,

    /// Print every event as a line of JSON on stdout, last the end of the run
    #[arg(long)]
    json: bool,

    /// Print nothing on stderr but errors
    #[arg(long)]
    quiet: bool,

    #[command(flatten)]
    store: StoreArgs,
}

/// Runs the command.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    let none = || {
        let (name, again) = (&args.session, args.store.again());
        Fail::Other(format!(
            "no process hosts the store, so nothing runs in it: `subtend show {name}{again}` shows the session, `subtend chat \
             {name}{again}` continues it"
        ))
    };
    let hosted = Hosted::find(&args.store, &args.session)?.ok_or_else(none)?;
    // Read before the conversation: what comes after it is followed.
    let after = hosted.journal.durable();
    if !args.json {
        let mut out = anstream::stdout().lock();
        for text in earlier::read(&hosted.journal, hosted.id, Seq(u64::MAX), &hub::tools()?)? {
            writeln!(out, "{text}")?;
        }
    }
    let face = Face { json: args.json, raw: false, quiet: args.quiet, store: &args.store };
    let done = remote::verb(face, |_| Ok(()), async |mut remote: Remote<'_>| remote.attach(hosted.id, after).await)?;
    done.ok_or_else(none)
}
