//! The users of a process: their actions and pauses.

use std::sync::Arc;
use std::time::Duration;

use subtend_actors::{OpenOptions, Runtime, SessionHandle};
use subtend_session::ids::SessionId;

use crate::simulate::action::{Action, spawn};
use crate::simulate::fake_approver;
use crate::simulate::judge;
use crate::simulate::plan::Mode;
use crate::simulate::tally::{FaultKind, Verb};
use crate::simulate::watcher;
use crate::simulate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// The process was killed or is about to be killed. No task of it is awaited.
    Crashed,
    Down,
    Over,
}

pub(crate) struct FakeUsers {
    world: Arc<World>,
    runtime: Option<Runtime>,
    sessions: Vec<SessionId>,
    roots: u64,
}

/// Number of actions between two judgements.
const ACTIONS_PER_JUDGEMENT: u64 = 60;

impl FakeUsers {
    pub(crate) fn new(world: &Arc<World>, runtime: Runtime) -> Self {
        Self { world: Arc::clone(world), runtime: Some(runtime), sessions: Vec::new(), roots: 0 }
    }

    pub(crate) fn into_runtime(mut self) -> Option<Runtime> {
        self.runtime.take()
    }

    /// Abandons the runtime of a killed process. It is dropped later, when its tasks can no longer run or have effects.
    pub(crate) fn abandon(mut self) {
        self.world.set_abandoned(self.runtime.take());
    }

    /// Acts until the process ends or all steps are done.
    pub(crate) async fn live(&mut self) -> ProcessEnd {
        let world = Arc::clone(&self.world);
        for _ in 0..world.swarm.watchers {
            self.watch();
        }
        if let Some(runtime) = self.runtime().filter(|_| world.swarm.attended) {
            fake_approver::spawn(&world, runtime.approver());
            let mut oracle = world.oracle.lock();
            let now = oracle.now();
            oracle.attended_since = Some(now);
            oracle.record_approver();
        }
        loop {
            if world.oracle.lock().failure.is_some() {
                return ProcessEnd::Over;
            }
            if world.is_calm() || world.step() {
                break;
            }
            self.pause().await;
            if world.rng.one_in(ACTIONS_PER_JUDGEMENT) {
                self.judge(false);
            }
            let Some(verb) = world.rng.pick_weighted(&world.swarm.verbs) else { break };
            world.oracle.mark(&format!("verb {verb:?}"));
            if let Some(end) = self.act(verb).await {
                return end;
            }
        }
        match world.swarm.mode {
            Mode::Safety => {
                self.judge(false);
                ProcessEnd::Over
            }
            Mode::Liveness => {
                world.oracle.lock().calm = true;
                self.await_rest().await;
                ProcessEnd::Over
            }
        }
    }

    async fn pause(&self) {
        let most = self.world.rng.pick_weighted(&self.world.swarm.pauses).unwrap_or(1);
        if most == 0 {
            return self.world.yield_some().await;
        }
        tokio::time::sleep(self.world.rng.ms(1, most)).await;
    }

    fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other verbs are requests to a session")]
    async fn act(&mut self, verb: Verb) -> Option<ProcessEnd> {
        match verb {
            Verb::Open => self.open(),
            Verb::Crash => return Some(ProcessEnd::Crashed),
            Verb::Shutdown => return Some(ProcessEnd::Down),
            Verb::ClockJump => {
                let far = self.world.rng.ms(1, 90_000);
                {
                    let mut oracle = self.world.oracle.lock();
                    oracle.record_fault(FaultKind::ClockJump);
                    oracle.jumped = oracle.jumped.saturating_add(far);
                }
                tokio::time::advance(far).await;
                self.world.oracle.lock().end_jump();
            }
            // The fake approvers answer asks.
            Verb::Answer => {}
            _ => {
                if self.sessions().is_empty() {
                    self.open();
                }
                let session = self.session(verb)?;
                spawn(&self.world, Action { verb, session });
            }
        }
        None
    }

    fn open(&mut self) {
        if self.roots >= self.world.swarm.roots && !self.sessions().is_empty() {
            return;
        }
        let Some(runtime) = self.runtime() else { return };
        let opening = self.world.oracle.lock().ask(Verb::Open);
        match runtime.open(OpenOptions::agent("worker")) {
            Ok(session) => {
                self.roots = self.roots.saturating_add(1);
                self.sessions.push(session.id());
                spawn(&self.world, Action { verb: Verb::Send, session });
            }
            // Expected if the journal has just failed.
            Err(error) => self.world.oracle.mark(&format!("not opened: {error}")),
        }
        self.world.oracle.lock().answer(opening);
    }

    /// Returns the sessions that this process opened, and all durable sessions.
    fn sessions(&self) -> Vec<SessionId> {
        let mut sessions = self.world.oracle.lock().sessions.clone();
        sessions
            .extend(self.sessions.iter().filter(|session| !sessions.contains(session)).copied().collect::<Vec<_>>());
        sessions
    }

    /// Picks a session. Recent sessions, and those on which the request has an effect, are more likely.
    fn session(&self, verb: Verb) -> Option<SessionHandle> {
        let sessions = self.sessions();
        let recent = sessions.len().saturating_sub(6);
        let some = if self.world.rng.one_in(2) { sessions.get(recent..) } else { None };
        let likely =
            if self.world.rng.one_in(2) { self.world.oracle.lock().archive.likely_targets(verb) } else { Vec::new() };
        let likely = self.world.rng.pick(&likely);
        let id = likely.or_else(|| self.world.rng.pick(some.unwrap_or(&sessions)))?;
        match self.runtime()?.session(id) {
            Ok(found) => found,
            Err(error) => {
                self.world.oracle.mark(&format!("not found: {error}"));
                None
            }
        }
    }

    fn watch(&self) {
        let Some(runtime) = self.runtime() else { return };
        let root = self.world.oracle.lock().sessions.first().copied().filter(|_| self.world.rng.one_in(2));
        watcher::spawn(&self.world, runtime.subscribe(root));
    }

    fn judge(&self, at_rest: bool) {
        judge::judge_all(&self.world, at_rest);
    }

    /// Stops further faults, waits until every run has ended, and judges the result.
    async fn await_rest(&self) {
        let Some(runtime) = self.runtime() else { return };
        let (mut waited, mut next) = (Duration::ZERO, Duration::from_secs(1));
        while !judge::is_quiet(runtime.journal()) {
            if waited >= judge::REST_TIMEOUT {
                let left = judge::describe_pending(runtime.journal());
                return self
                    .world
                    .oracle
                    .wrong("S-6", format!("some runs have not ended after {waited:?} without faults: {left}"));
            }
            tokio::time::sleep(next).await;
            (waited, next) = (waited.saturating_add(next), (next * 2).min(Duration::from_secs(60)));
        }
        // The notices of the last ends take time too.
        tokio::time::sleep(Duration::from_secs(60)).await;
        self.judge(true);
        judge::baseline(&self.world, runtime);
    }
}
