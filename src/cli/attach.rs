use std::io::{IsTerminal as _, Write as _};

use subtend_session::ids::Seq;

use super::chat::earlier;
use super::data::StoreArgs;
use super::fail::{Code, Fail};
use super::work::output_options::OutputOptions;
use super::work::{self, Work};

/// Joins a session that another process runs: shows the conversation so far, and follows the run in flight.
///
/// Close the terminal or press Ctrl-D to leave; the run continues. Ctrl-C cancels it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Session: an id, the start of one, a short name, or a path such as `root/a3f9c1`
    #[arg(value_name = "ID")]
    session: String,

    /// Print every event as a line of JSON on stdout, and the end of the run as the last one
    #[arg(long)]
    json: bool,

    /// Print nothing on stderr but errors
    #[arg(long)]
    quiet: bool,

    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    let none = || {
        let (name, again) = (&args.session, args.store.options_for_shell());
        Fail::Other(format!(
            "no process hosts the store, so nothing runs in it: `subtend show {name}{again}` shows the session, `subtend chat \
             {name}{again}` continues it"
        ))
    };
    let output_options = OutputOptions { json: args.json, raw: false, quiet: args.quiet, store: &args.store };
    let done = work::run_attached(output_options, &args.session, async |mut work: Work<'_>| {
        let id = work.session()?;
        // Subscribe before reading the conversation, so that no later event is missed.
        let since = work.since(Some(id)).await?;
        if !args.json {
            let tools = work.screen.tools().clone();
            let mut out = anstream::stdout().lock();
            for text in work.read(|journal| earlier::read(journal, id, Seq(u64::MAX), &tools))? {
                writeln!(out, "{text}")?;
            }
        }
        let run = work.read(|journal| journal.inflight_of(id))?.map(|row| row.run);
        let Some(run) = run else {
            let (name, again) = (id.short().0, args.store.options_for_shell());
            work.screen.note(&format!("no run is in flight; write to it: subtend send {name}{again} TEXT"));
            return Ok(Code::Done);
        };
        if std::io::stdin().is_terminal() {
            work.can_leave = true;
            work.screen.note("Ctrl-D leaves, Ctrl-C cancels the run");
        }
        work.follow(since, id, run).await
    });
    done?.ok_or_else(none)
}
