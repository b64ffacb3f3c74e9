//! `subtend drill`: kills real processes on a real store, and checks what they left.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::fail::{Code, Fail};
use super::work::{self, Stop};
use course::Course;
use home::Ground;
use report::{Report, Verdict};
use sabotage::Sabotage;

mod chance;
pub(crate) mod child;
mod course;
mod finding;
mod home;
mod judge;
mod line;
mod look;
mod marks;
mod model;
mod names;
mod orphans;
mod plan;
mod process;
mod progress;
mod report;
mod sabotage;
mod told;
mod tools;
mod trigger;
mod workload;

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

/// Does it.
pub(crate) fn verb(args: &Args) -> Result<Code, Fail> {
    if let Some(sabotage) = args.sabotage.filter(|_| !sabotage::is_built_in()) {
        return Err(Fail::Usage(sabotage::refusal(sabotage)));
    }
    let seed = args.seed.unwrap_or_else(any_seed);
    let ground = Ground::prepare(&args.store, seed)?;
    let report = run(ground, seed, args.kills, args.sabotage)?;
    let mut out = anstream::stdout().lock();
    if args.json {
        writeln!(out, "{}", report.json()?)?;
    } else {
        writeln!(out, "{}", report.text())?;
    }
    Ok(match report.verdict() {
        Verdict::Sound | Verdict::Caught => Code::Done,
        Verdict::Violated | Verdict::Vacuous | Verdict::Uncaught => Code::Failed,
        Verdict::Stopped => Code::Cancelled,
    })
}

/// Runs it, to its end or until we are asked to stop: then the kill at hand is the last.
fn run(ground: Ground, seed: u64, kills: u64, sabotage: Option<Sabotage>) -> Result<Report, Fail> {
    let threads = work::threads()?;
    let asked = Arc::new(AtomicBool::new(false));
    threads.block_on(async {
        let mut stop = Stop::listen()?;
        let flag = Arc::clone(&asked);
        tokio::spawn(async move {
            stop.asked().await;
            flag.store(true, Ordering::Relaxed);
        });
        let course = tokio::task::spawn_blocking(move || Course::new(ground, seed, kills, sabotage, &asked).run());
        course.await.map_err(|error| Fail::Other(format!("the drill broke off: {error}")))?
    })
}

/// A seed that nobody has chosen. Of 32 bits, so that it is easily typed again.
fn any_seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish() >> 32
}
