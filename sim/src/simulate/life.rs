//! The life of one process: a runtime in virtual time, from its start on the existing store to its end.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use subtend_actors::faults::{Faults, Point};
use subtend_actors::{Options, Runtime, StartError};
use subtend_agents::catalog::Catalog;
use subtend_agents::manifest::{AgentMode, Manifest};
use subtend_invariants::observed::Shutdown;
use subtend_journal::Journal;
use subtend_journal::faulty::Faulty;
use subtend_journal::stepper::{Stepped, Stepper};
use subtend_session::authority::{Rule, RuleSet, Verdict};
use subtend_tools::workspace::{Workspace, WorkspaceError};

use crate::simulate::action::Action;
use crate::simulate::action::answers;
use crate::simulate::fake_catalog::{GUARDED, READER};
use crate::simulate::fake_model::{FakeModel, panic_in_turn_task};
use crate::simulate::fake_tools::registry;
use crate::simulate::fake_users::{FakeUsers, ProcessEnd};
use crate::simulate::judge;
use crate::simulate::plan::{SeedPlan, Sync};
use crate::simulate::seeded::{Seeded, StoreBug};
use crate::simulate::tally::{FaultKind, Verb};
use crate::simulate::world::{World, injected_panic};
use crate::storage::Simulated;

/// Time limit of a start, in virtual time.
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// Time limit of a shutdown, beyond its grace period.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn live(world: &Arc<World>, number: u32) -> ProcessEnd {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let tokio = match tokio {
        Ok(tokio) => tokio,
        Err(error) => {
            world.oracle.wrong("tokio", error.to_string());
            return ProcessEnd::Over;
        }
    };
    let (end, at) = tokio.block_on(async {
        world.oracle.lock().begin();
        let end = tokio::select! {
            biased;
            () = world.disk.death.notified() => ProcessEnd::Crashed,
            end = run_process(world, number) => end,
        };
        let mut oracle = world.oracle.lock();
        if end == ProcessEnd::Crashed {
            let fault = if oracle.booting { FaultKind::CrashInRecovery } else { FaultKind::Crash };
            oracle.record_fault(fault);
        }
        (end, oracle.now())
    });
    world.oracle.lock().end(at);
    // Dropping tasks may start further tasks within the runtime. Those are dropped too.
    let handle = tokio.handle().clone();
    let _inside = handle.enter();
    drop(tokio);
    drop(world.set_abandoned(None));
    end
}

async fn run_process(world: &Arc<World>, number: u32) -> ProcessEnd {
    let Some(journal) = open(world) else { return ProcessEnd::Over };
    draw_death(world);
    world.oracle.lock().booting = true;
    let (at_rest, before) = (is_at_rest(&journal), journal.last_appended());
    let starting = start(world, &journal, number);
    let started = tokio::time::timeout(START_TIMEOUT, starting).await;
    let runtime = match started {
        Ok(Ok(runtime)) => runtime,
        Ok(Err(error)) => {
            if journal.poisoned().is_none() {
                world.oracle.wrong("start", error.to_string());
                return ProcessEnd::Over;
            }
            return ProcessEnd::Down;
        }
        Err(_) => {
            world.oracle.wrong("start", format!("the runtime did not start within {START_TIMEOUT:?}"));
            return ProcessEnd::Over;
        }
    };
    {
        let mut oracle = world.oracle.lock();
        oracle.booting = false;
        oracle.slots = Some(Box::new(runtime.slots_of_root()));
        let (now, wrote) = (oracle.now(), journal.last_appended().0.saturating_sub(before.0));
        oracle.observations.record_boot(now, at_rest, wrote);
        if at_rest {
            oracle.tally.mark("started at rest");
        }
    }
    let mut users = FakeUsers::new(world, runtime);
    let end = tokio::select! {
        biased;
        _ = journal.on_poison() => ProcessEnd::Down,
        end = users.live() => end,
    };
    match end {
        ProcessEnd::Crashed | ProcessEnd::Over => {
            users.abandon();
            end
        }
        ProcessEnd::Down => {
            if let Some(runtime) = users.into_runtime() {
                shut_down(world, runtime).await;
            }
            ProcessEnd::Down
        }
    }
}

/// Returns whether the last process left nothing to recover: no run, no outbox row and no unfinished deletion.
fn is_at_rest(journal: &Journal) -> bool {
    let nothing_in_flight = journal.inflight().is_ok_and(|rows| rows.is_empty());
    let all_deleted = journal.unfinished_deletions().is_ok_and(|tops| tops.is_empty());
    nothing_in_flight && all_deleted && journal.outbox().is_ok_and(|rows| rows.is_empty())
}

/// Shuts the runtime down, and checks that no task remains.
async fn shut_down(world: &Arc<World>, runtime: Runtime) {
    let grace = world.rng.pick(&[0, 200, 20_000]).unwrap_or(0);
    let grace = Duration::from_millis(grace);
    let begun_at = {
        let mut oracle = world.oracle.lock();
        let now = oracle.now();
        oracle.observations.tick(now)
    };
    spawn_late_input(world, &runtime);
    let Ok(report) = tokio::time::timeout(grace + SHUTDOWN_TIMEOUT, runtime.shutdown(grace)).await else {
        return world
            .oracle
            .wrong("E-5", format!("a shutdown with a grace of {grace:?} took {SHUTDOWN_TIMEOUT:?} longer"));
    };
    if (report.actors, report.tasks) != (0, 0) {
        world.oracle.wrong("E-5", format!("something is alive after a shutdown: {report:?}"));
    }
    let mut oracle = world.oracle.lock();
    let now = oracle.now();
    let (returned, grace_ms) =
        (Some(oracle.observations.tick(now)), u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
    oracle.observations.record_shutdown(Some(Shutdown { asked: begun_at, returned, grace_ms }));
    oracle.tally.mark("shut down");
    drop(oracle);
    judge::judge_all(world, false);
}

/// Sends an input during the shutdown, which must refuse it (V-5).
fn spawn_late_input(world: &Arc<World>, runtime: &Runtime) {
    let Some(session) = world.oracle.lock().sessions.first().copied() else { return };
    let Ok(Some(session)) = runtime.session(session) else { return };
    let world = Arc::clone(world);
    tokio::spawn(async move {
        let sent = session.send("too late").await;
        answers::check_sent(&world, &Action { verb: Verb::Send, session }, sent);
    });
}

fn open(world: &Arc<World>) -> Option<Journal> {
    let (faulty, faults) = Faulty::new(Box::new(Simulated(world.disk.clone())));
    {
        let mut oracle = world.oracle.lock();
        let now = oracle.now();
        oracle.observations.record_reopening(now);
    }
    let (oracle, armed) = (Arc::clone(&world.oracle), Arc::new(OnceLock::new()));
    let drawn = Arc::clone(&armed);
    faults.on_failure(move || {
        let mut oracle = oracle.lock();
        oracle.begin_store_failure();
        // Counts the fault only when it occurs, because the process may end earlier.
        drawn.get().into_iter().for_each(|fault| oracle.record_fault(*fault));
    });
    let at = world.rng.between(1, 60);
    if world.is_drawn(world.swarm.write_fails) {
        faults.fail_write(at);
        armed.get_or_init(|| FaultKind::WriteFails);
    } else if world.is_drawn(world.swarm.sync_fails) {
        faults.fail_sync(at);
        armed.get_or_init(|| FaultKind::SyncFails);
    }
    if world.plan.bug == Some(Seeded::Disk(StoreBug::TailLost)) && world.rng.one_in(2) {
        faults.drop_writes(at);
    }
    if world.plan.bug == Some(Seeded::Disk(StoreBug::FailureHidden)) {
        faults.hide_failures();
        faults.fail_sync(at);
    }
    let options = subtend_journal::Options::default();
    let opened = match world.swarm.sync {
        Sync::AtOnce => Journal::open(Box::new(faulty), options),
        Sync::Later(most) => Journal::open_stepped(Box::new(faulty), options).map(|(journal, stepper)| {
            tokio::spawn(write(Arc::clone(world), stepper, most));
            journal
        }),
    };
    opened.map_err(|error| world.oracle.wrong("open", error.to_string())).ok()
}

/// Writes queued groups to the disk, with delays.
async fn write(world: Arc<World>, mut stepper: Stepper, most_ms: u64) {
    loop {
        stepper.wait_for_work().await;
        world.yield_some().await;
        if most_ms > 0 {
            tokio::time::sleep(world.rng.ms(0, most_ms)).await;
        }
        let group = usize::try_from(world.rng.between(1, 8)).unwrap_or(1);
        if stepper.step(group) == Stepped::Closed {
            return;
        }
    }
}

/// Draws whether the process is killed at a write, and at which.
fn draw_death(world: &World) {
    let dies = world.rng.one_in(world.swarm.dies_at_write) && !world.is_calm();
    let (after, is_written) = (world.rng.between(1, 40), world.rng.one_in(2));
    let mut oracle = world.oracle.lock();
    let at = oracle.writes.saturating_add(after);
    oracle.dies_at = dies.then_some((at, is_written));
}

async fn start(world: &Arc<World>, journal: &Journal, number: u32) -> Result<Runtime, StartError> {
    let swarm = &world.swarm;
    let tools = registry(world).map_err(|error| world.oracle.wrong("tools", error.to_string())).unwrap_or_default();
    let options = Options {
        inbox: swarm.inbox,
        slots: swarm.slots,
        queued_states: swarm.queued_states,
        resident_text: swarm.resident_text,
        idle: swarm.idle,
        events: swarm.events,
        durable_before_call: swarm.durable_before_call,
        titles: world.plan.writes_titles(),
        summaries: world.plan.writes_summaries(),
        // Each process has its own seed, so that ids differ.
        seed: Some(world.plan.seed.wrapping_mul(1_000).wrapping_add(u64::from(number))),
        ..Options::default()
    };
    Runtime::builder()
        .journal(journal.clone())
        .workspace(workspace()?)
        .catalog(catalog(&world.plan))
        .tools(tools)
        .model(Arc::new(FakeModel(Arc::clone(world))))
        .limits(swarm.limits.clone())
        .policy(policy())
        .options(options)
        .faults(faults(world))
        .start()
        .await
}

/// Returns the workspace of all simulations. No simulation writes to it.
fn workspace() -> Result<Arc<Workspace>, WorkspaceError> {
    static WORKSPACE: OnceLock<Arc<Workspace>> = OnceLock::new();
    if let Some(workspace) = WORKSPACE.get() {
        return Ok(Arc::clone(workspace));
    }
    let opened = Arc::new(Workspace::open("/")?);
    Ok(Arc::clone(WORKSPACE.get_or_init(|| opened)))
}

fn catalog(plan: &SeedPlan) -> Catalog {
    let mut catalog = Catalog::builtin();
    let worker = Manifest::new("worker", AgentMode::All, "You work.");
    catalog.insert(Manifest { on_restart: Some(plan.on_restart(3)), ..worker });
    let reads = READER.1.map(Into::into).to_vec();
    let reader = Manifest { tools: Some(reads), ..Manifest::new(READER.0, AgentMode::All, "You read.") };
    catalog.insert(Manifest { on_restart: Some(plan.on_restart(6)), ..reader });
    catalog
}

fn policy() -> RuleSet {
    let guarded = Rule { action: GUARDED.into(), resource: "*".into(), verdict: Verdict::Ask };
    RuleSet { default: Verdict::Allow, rules: vec![guarded] }
}

fn faults(world: &Arc<World>) -> Faults {
    let (fault_world, bug) = (Arc::clone(world), world.plan.bug);
    let faults = Faults::new(move |point, _| match point {
        Point::Handler => {
            if fault_world.draw_fault(fault_world.swarm.handler_panics, FaultKind::HandlerPanic) {
                injected_panic();
            }
        }
        Point::AfterAppend => {
            if fault_world.draw_fault(fault_world.swarm.append_panics, FaultKind::AppendPanic) {
                injected_panic();
            }
        }
        Point::TurnTask => panic_in_turn_task(&fault_world),
        // Simulated tasks read no files.
        Point::Reading => {}
    });
    let observed_world = Arc::clone(world);
    let faults = faults.with_observer(move |event| observed_world.oracle.lock().observe(event));
    match bug {
        Some(Seeded::Heart(bug)) => faults.rules(subtend_invariants::bugs::Rules::without(bug)),
        Some(Seeded::Hub(runtime_bug)) => faults.with_bug(runtime_bug),
        Some(Seeded::Disk(_)) | None => faults,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a world whose first process has this fault and no other.
    fn failing(fault: FaultKind) -> Arc<World> {
        let mut world = World::new(SeedPlan { seed: 5, steps: 500, bug: None, trace: false });
        let swarm = &mut Arc::get_mut(&mut world).expect("not shared yet").swarm;
        (swarm.write_fails, swarm.sync_fails) = if fault == FaultKind::WriteFails { (1, 0) } else { (0, 1) };
        (swarm.handler_panics, swarm.append_panics, swarm.task_panics) = (0, 0, 0);
        swarm.sync = Sync::AtOnce;
        world
    }

    /// A drawn fault may not occur, because the process can end before the write.
    #[test]
    fn failure_counts_only_when_it_occurs() {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        tokio.expect("a runtime").block_on(async {
            for fault in [FaultKind::WriteFails, FaultKind::SyncFails] {
                let world = failing(fault);
                let counted =
                    || world.oracle.lock().tally.marks.get(&format!("{fault:?}")).copied().unwrap_or_default();
                drop(open(&world).expect("a journal"));
                assert_eq!(counted(), 0, "{fault:?}: the process ended before a write");
                let journal = open(&world).expect("a journal");
                let runtime = start(&world, &journal, 0).await.expect("a runtime");
                let mut opened = 0;
                while journal.poisoned().is_none() {
                    assert_eq!(counted(), 0, "{fault:?}: {opened} writes succeeded");
                    let session = runtime.open("worker");
                    let settled = journal.settled().await;
                    opened += u32::from(session.is_ok() && settled.is_ok());
                    assert!(opened <= 60, "{fault:?}: the failure did not occur");
                }
                assert_eq!(counted(), 1, "{fault:?}: it occurred after {opened} writes");
                drop(runtime.open("worker"));
                assert_eq!(counted(), 1, "{fault:?}: once");
                runtime.shutdown(Duration::ZERO).await;
            }
        });
    }
}
