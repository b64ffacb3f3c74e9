use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use subtend_drill::{DrillError, DrillOptions, DrillVerdict, Report, Sabotage};

use super::fail::{Code, Fail};
use super::guard;
use super::json;
use super::owners;
use super::work::{self, StopSignal};
use progress::DrillProgress;

mod clients;
mod progress;
mod text;

pub(crate) use subtend_drill::child::Args as ChildArgs;

/// Kills subtend with SIGKILL at random moments, on its own stores, and checks that nothing is lost or done twice.
///
/// It starts itself with many concurrent trees of agents: children that are awaited and children in the background,
/// cancels, continued sessions, and tools with countable side effects. It kills that process while it runs, while it
/// opens a store, or while it recovers, and reads the disk. Then it starts a new process that recovers the store, and
/// reads the disk again. One store is kept for up to a hundred kills; the others are new.
///
/// The same seed gives the same work and the same order of kills. The exact moment of a kill depends on the machine.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Number of kills, at least ten
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(10..=1_000_000))]
    kills: u64,

    /// Seed of the work and the kills [default: a new one each time]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,

    /// Engine to drill, and an empty or new directory for it, on the disk that you want to check. Without a directory, a
    /// temporary one is used; `postgres` starts a temporary server
    #[arg(long, value_name = "ENGINE[:DIR]", default_value = "redb")]
    store: String,

    /// Inject a bug, and succeed as soon as it is detected; needs a binary built with the feature `fault-points`
    #[arg(long, value_name = "BUG", value_enum)]
    sabotage: Option<Sabotage>,

    /// Kill a host that serves N clients instead. The clients follow all events and send commands with idempotency
    /// keys. Each event must arrive once, and each command must take effect once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    clients: Option<u64>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Code, Fail> {
    if let Some(sabotage) = args.sabotage.filter(|_| !Sabotage::is_built_in()) {
        return Err(Fail::Usage(sabotage.refusal()));
    }
    check_owners(&args.store)?;
    let seed = args.seed.unwrap_or_else(random_seed);
    if let Some(sabotage) = args.sabotage.filter(|sabotage| sabotage.is_of_clients() != args.clients.is_some()) {
        let (without, with) = if args.clients.is_some() {
            ("leave out", "is detected without clients")
        } else {
            ("add", "is detected by clients only")
        };
        return Err(Fail::Usage(format!("`--sabotage {}` {with}; {without} `--clients N`", sabotage.name())));
    }
    if let Some(clients) = args.clients {
        return clients::run(args, clients, seed);
    }
    let report =
        run_drill(DrillOptions { store: args.store.clone(), seed, kills: args.kills, sabotage: args.sabotage })?;
    let mut out = anstream::stdout().lock();
    if args.json {
        writeln!(out, "{}", json::text(&report.json())?)?;
    } else {
        writeln!(out, "{}", text::text(&report))?;
    }
    Ok(match report.verdict() {
        DrillVerdict::Sound | DrillVerdict::Caught => Code::Done,
        DrillVerdict::Violated | DrillVerdict::Vacuous | DrillVerdict::Uncaught => Code::Failed,
        DrillVerdict::Stopped => Code::Cancelled,
    })
}

/// Refuses a directory that another user could replace through a parent: a drill starts programs in it.
fn check_owners(store: &str) -> Result<(), Fail> {
    let dir = store.split_once(':').map(|(_, dir)| Path::new(dir));
    owners::check(dir, None, &[]).map_err(|why| Fail::Usage(format!("--store {store}: {why}")))
}

pub(crate) fn child(args: &ChildArgs) -> Result<Code, Fail> {
    let guard = guard::guard().map_err(|error| {
        Fail::Other(format!("cannot start guards of tool processes: the running program cannot be found: {error}"))
    })?;
    subtend_drill::child::work(args, guard)?;
    Ok(Code::Done)
}

fn run_drill(options: DrillOptions) -> Result<Report, Fail> {
    let async_runtime = work::async_runtime()?;
    let stop_requested = Arc::new(AtomicBool::new(false));
    async_runtime.block_on(async {
        let mut stop = StopSignal::listen()?;
        let flag = Arc::clone(&stop_requested);
        tokio::spawn(async move {
            stop.requested().await;
            flag.store(true, Ordering::Relaxed);
        });
        let drill = tokio::task::spawn_blocking(move || {
            let mut progress = DrillProgress::new();
            let report =
                subtend_drill::drill(&options, &stop_requested, &mut |report| progress.report(report, options.kills));
            progress.clear();
            report
        });
        Ok(drill.await.map_err(|error| Fail::Other(format!("the drill panicked: {error}")))??)
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

/// Returns a random seed of 32 bits, short enough to type.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish() >> 32
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// The control: a parent directory that only this user can write.
    #[test]
    fn directory_below_one_of_others_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = format!("redb:{}", dir.path().join("a/b").display());
        let allow = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).expect("chmod");
        allow(0o777);
        let refusal = check_owners(&store).expect_err("others can write").to_string();
        let expected = format!(
            "--store {store}: other users can write {} (mode 777), and so replace its content: ",
            dir.path().display()
        );
        assert!(refusal.starts_with(&expected), "{refusal}");
        allow(0o700);
        check_owners(&store).expect("a parent of this user");
        check_owners("redb").expect("a temporary directory");
    }
}
