//! `subtend drill`: kills real processes on a real store, and checks what they left.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use subtend_drill::{DrillError, Options, Report, Sabotage, Verdict};

use super::fail::{Code, Fail};
use super::guard;
use super::json;
use super::work::{self, Stop};
use progress::Progress;

mod progress;
mod text;

pub(crate) use subtend_drill::child::Args as ChildArgs;

/// Kills subtend with SIGKILL at random moments, on stores of its own, and checks that nothing is lost or done twice.
///
/// Starts itself again and again: many trees of agents at the same time, with children that are waited for and children in the
/// background, cancels, continues, and tools whose side effects can be counted; kills it at work, while it opens a store and within
/// recovery; reads what is on the disk; has it recover and come to rest; and reads again. One store ages, through a hundred kills at
/// most before another takes its place; the others are fresh.
///
/// The same seed gives the same work and the same kills in the same order. When exactly a kill comes down is up to the machine.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// How many times to kill; fewer than ten hit too little to show anything
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    kills: u64,

    /// Repeats the work and the kills of another drill [default: another each time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,

    /// Engine to drill, and the directory to do it in: one that is empty or not there. Without a directory a temporary one; is it
    /// on the disk that you want to know of?
    #[arg(long, value_name = "ENGINE[:DIR]", default_value = "redb")]
    store: String,

    /// Puts a bug in, and ends well as soon as it is noticed; needs a binary that was built for it
    #[arg(long, value_name = "BUG", value_enum)]
    sabotage: Option<Sabotage>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the drill and prints its report.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    if let Some(sabotage) = args.sabotage.filter(|_| !Sabotage::is_built_in()) {
        return Err(Fail::Usage(sabotage.refusal()));
    }
    let seed = args.seed.unwrap_or_else(any_seed);
    let report = run(Options { store: args.store.clone(), seed, kills: args.kills, sabotage: args.sabotage })?;
    let mut out = anstream::stdout().lock();
    if args.json {
        writeln!(out, "{}", json::escaped(report.json()?))?;
    } else {
        writeln!(out, "{}", text::text(&report))?;
    }
    Ok(match report.verdict() {
        Verdict::Sound | Verdict::Caught => Code::Done,
        Verdict::Violated | Verdict::Vacuous | Verdict::Uncaught => Code::Failed,
        Verdict::Stopped => Code::Cancelled,
    })
}

/// Runs the process that is killed.
pub(crate) fn child(args: &ChildArgs) -> Result<Code, Fail> {
    let guard = guard::guard()
        .map_err(|error| Fail::Other(format!("the running program cannot be found, so it guards nothing: {error}")))?;
    subtend_drill::child::work(args, guard)?;
    Ok(Code::Done)
}

/// Runs it, to its end or until we are asked to stop.
fn run(options: Options) -> Result<Report, Fail> {
    let threads = work::threads()?;
    let asked = Arc::new(AtomicBool::new(false));
    threads.block_on(async {
        let mut stop = Stop::listen()?;
        let flag = Arc::clone(&asked);
        tokio::spawn(async move {
            stop.asked().await;
            flag.store(true, Ordering::Relaxed);
        });
        let course = tokio::task::spawn_blocking(move || {
            let mut progress = Progress::new();
            let report = subtend_drill::drill(&options, &asked, &mut |report| progress.tell(report, options.kills));
            progress.clear();
            report
        });
        Ok(course.await.map_err(|error| Fail::Other(format!("the drill broke off: {error}")))??)
    })
}

impl From<DrillError> for Fail {
    fn from(error: DrillError) -> Self {
        match error {
            DrillError::Usage(why) => Self::Usage(why),
            DrillError::Open(error) => error.into(),
            DrillError::Read(error) => error.into(),
            DrillError::Other(why) => Self::Other(why),
        }
    }
}

/// A seed that nobody has chosen. Of 32 bits, so that it is easily typed again.
fn any_seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish() >> 32
}
