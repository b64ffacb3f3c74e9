//! `subtend drill-child`: the process that is killed. `subtend drill` starts it.

use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use subtend_actors::faults::Faults;
use subtend_actors::{Options, Runtime};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_journal::Journal;
use subtend_session::authority::{Rule, RuleSet, Verdict};
use subtend_session::place::OnRestart;
use subtend_tools::guard::Guard;
use subtend_tools::registry::Registry;
use subtend_tools::workspace::Workspace;
use tokio::time::Instant;

use super::error::DrillError;
use super::line::Line;
use super::plan::KillPoint;
use super::rng::SeededRng;
use super::sabotage::{Sabotage, VARIABLE};
use super::store_dir::StoreDir;
use super::trigger::{Trigger, die};
use super::{model, names, sabotage, tools, workload};

/// Works on a store until it is killed; `subtend drill` starts it
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directory of the drill
    #[arg(long)]
    dir: PathBuf,

    /// Engine of the store
    #[arg(long)]
    engine: String,

    /// Seed of the work
    #[arg(long)]
    seed: u64,

    /// Moment of the kill; without this option the process recovers, finishes all runs and ends
    #[arg(long)]
    kill_point: Option<KillPoint>,

    /// Maximum wait until no run is in flight, in ms
    #[arg(long)]
    patience_ms: u64,
}

/// Works on a store until the process is killed or at rest. `guard` is the command that guards processes of tools.
/// # Errors
/// If the store or the runtime cannot be opened. The drill sees the exit status.
pub fn work(args: &Args, guard: Guard) -> Result<(), DrillError> {
    exit_with_the_drill();
    let store_dir = StoreDir::of(&args.engine, &args.dir);
    let trigger = Arc::new(Trigger::new(args.kill_point));
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let threads = threads.map_err(|error| DrillError::Other(format!("cannot start the async runtime: {error}")))?;
    threads.block_on(async {
        let started = Instant::now();
        if trigger.dies_in_compaction() || SeededRng::of(args.seed, "compact").one_in(3) {
            if store_dir.address().is_some() {
                trigger.kill_after_time();
            }
            let is_erased = store_dir.compact(&mut |_| trigger.on_compaction_step())?;
            if is_erased {
                Line::Compacted.print();
            }
            trigger.on_compacted();
        }
        let journal = store_dir.open()?;
        Line::Opened.print();
        trigger.watch_recovery(&journal);
        let runtime = start(&store_dir, journal, args, guard, &trigger).await?;
        Line::Ready(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)).print();
        trigger.on_recovered();
        let people = tokio::spawn(workload::answer(runtime.approver(), args.seed));
        if args.kill_point.is_some() {
            workload::run(runtime, args.seed, trigger).await;
        } else {
            let left = await_rest(&runtime, Duration::from_millis(args.patience_ms)).await?;
            people.abort();
            runtime.shutdown(Duration::from_secs(2)).await;
            Line::Quiet(left).print();
        }
        Ok(())
    })
}

/// Starts a thread that exits the process when the drill ends, which closes stdin.
fn exit_with_the_drill() {
    std::thread::spawn(|| {
        let mut byte = [0];
        while matches!(std::io::stdin().read(&mut byte), Ok(read) if read > 0) {}
        die()
    });
}

async fn start(
    store_dir: &StoreDir,
    journal: Journal,
    args: &Args,
    guard: Guard,
    trigger: &Arc<Trigger>,
) -> Result<Runtime, DrillError> {
    let workspace = Workspace::open(store_dir.workspace())
        .map_err(|error| DrillError::Other(format!("cannot open the workspace of the drill: {error}")))?;
    let guard = Some(guard).filter(|_| !sabotage::is_on(Sabotage::NoGuard));
    let unfit = |error| DrillError::Other(format!("the tools are inconsistent: {error}"));
    let mut registry = Registry::builder().tools(Registry::workspace_tools(guard)).map_err(unfit)?;
    for tool in tools::all(store_dir, trigger) {
        registry = registry.tool(tool).map_err(unfit)?;
    }
    let mut catalog = Catalog::builtin();
    let worker = Manifest {
        on_restart: Some(OnRestart::Fail),
        ..Manifest::new(names::WORKER, AgentMode::All, "You work in a drill.")
    };
    let steady = Manifest { name: names::STEADY.into(), on_restart: Some(OnRestart::Resume), ..worker.clone() };
    catalog.insert(worker);
    catalog.insert(steady);
    let ask_rule = Rule { action: tools::NOTE.into(), resource: "*".into(), verdict: Verdict::Ask };
    let builder = Runtime::builder()
        .workspace(Arc::new(workspace))
        .catalog(catalog)
        .tools(registry.build())
        .model(Arc::new(model::model(args.seed)))
        .policy(RuleSet { default: Verdict::Allow, rules: vec![ask_rule] })
        .faults(Faults::named(&std::env::var(VARIABLE).unwrap_or_default()))
        // Waiting owners are unloaded quickly, so that some ends of runs find their owner in memory and some do not.
        .options(Options { durable_before_call: true, idle: Duration::from_millis(10), ..Options::default() });
    builder.journal(journal).start().await.map_err(|error| DrillError::Other(error.to_string()))
}

/// Waits until no run is in flight and no outbox row remains. Returns the number of runs in flight at the end of the wait.
async fn await_rest(runtime: &Runtime, patience: Duration) -> Result<usize, DrillError> {
    const POLL_INTERVAL: Duration = Duration::from_millis(10);
    let journal = runtime.journal();
    let until = Instant::now() + patience;
    let mut quiet = 0_u32;
    loop {
        // The next read, or the check of the store, reports a journal that failed.
        drop(journal.settled().await);
        let (inflight, owed) = (journal.inflight()?.len(), journal.outbox()?.len());
        quiet = if inflight == 0 && owed == 0 { quiet.saturating_add(1) } else { 0 };
        // Requires two checks in a row, because there may be a gap between the end of a run and the start of the next.
        if quiet == 2 || Instant::now() > until {
            return Ok(inflight);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
