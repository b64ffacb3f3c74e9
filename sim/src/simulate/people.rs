//! People: what they do, in which order, and how long they wait before it.

use std::sync::Arc;
use std::time::Duration;

use subtend_actors::{OpenOptions, Runtime, SessionHandle};
use subtend_session::ids::SessionId;

use crate::simulate::asker;
use crate::simulate::deed::{Deed, spawn};
use crate::simulate::judge;
use crate::simulate::life::End;
use crate::simulate::plan::Mode;
use crate::simulate::tally::{Mishap, Verb};
use crate::simulate::watcher;
use crate::simulate::world::World;

/// People at one process.
pub(crate) struct People {
    world: Arc<World>,
    runtime: Option<Runtime>,
    sessions: Vec<SessionId>,
    roots: u64,
}

/// Actions between two looks of the judge.
const LOOK: u64 = 60;

impl People {
    pub(crate) fn new(world: &Arc<World>, runtime: Runtime) -> Self {
        Self { world: Arc::clone(world), runtime: Some(runtime), sessions: Vec::new(), roots: 0 }
    }

    /// What they leave behind.
    pub(crate) fn leave(mut self) -> Option<Runtime> {
        self.runtime.take()
    }

    /// They are gone with the process. Its runtime is buried when nothing of it can run any more: a process that is killed
    /// has no last words.
    pub(crate) fn abandon(mut self) {
        self.world.leave(self.runtime.take());
    }

    /// Acts until the process ends or there is nothing more to do.
    pub(crate) async fn live(&mut self) -> End {
        let world = Arc::clone(&self.world);
        for _ in 0..world.swarm.watchers {
            self.watch();
        }
        if let Some(runtime) = self.runtime().filter(|_| world.swarm.attended) {
            asker::spawn(&world, runtime.approver());
            let mut book = world.book.open();
            let now = book.now();
            book.attended_since = Some(now);
            book.attended();
        }
        loop {
            if world.book.open().failure.is_some() {
                return End::Over;
            }
            if world.is_calm() || world.step() {
                break;
            }
            self.pause().await;
            if world.chance.one_in(LOOK) {
                self.judge(false);
            }
            let Some(verb) = world.chance.weighted(&world.swarm.verbs) else { break };
            world.book.mark(&format!("verb {verb:?}"));
            if let Some(end) = self.act(verb).await {
                return end;
            }
        }
        match world.swarm.mode {
            Mode::Safety => {
                self.judge(false);
                End::Over
            }
            Mode::Liveness => {
                world.book.open().calm = true;
                self.rest().await;
                End::Over
            }
        }
    }

    async fn pause(&self) {
        let most = self.world.chance.weighted(&self.world.swarm.pauses).unwrap_or(1);
        if most == 0 {
            return self.world.yields().await;
        }
        tokio::time::sleep(self.world.chance.ms(1, most)).await;
    }

    fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other verbs are said to a session")]
    async fn act(&mut self, verb: Verb) -> Option<End> {
        match verb {
            Verb::Open => self.open(),
            Verb::Crash => return Some(End::Crashed),
            Verb::Shutdown => return Some(End::Down),
            Verb::ClockJump => {
                let far = self.world.chance.ms(1, 90_000);
                {
                    let mut book = self.world.book.open();
                    book.mishap(Mishap::ClockJump);
                    book.jumped = book.jumped.saturating_add(far);
                }
                tokio::time::advance(far).await;
                self.world.book.open().landed();
            }
            // Answered by whoever is asked.
            Verb::Answer => {}
            _ => {
                if self.sessions().is_empty() {
                    self.open();
                }
                let session = self.session(verb)?;
                spawn(&self.world, Deed { verb, session });
            }
        }
        None
    }

    fn open(&mut self) {
        if self.roots >= self.world.swarm.roots && !self.sessions().is_empty() {
            return;
        }
        let Some(runtime) = self.runtime() else { return };
        let asked = self.world.book.open().ask(Verb::Open);
        match runtime.open(OpenOptions::agent("worker")) {
            Ok(session) => {
                self.roots = self.roots.saturating_add(1);
                self.sessions.push(session.id());
                spawn(&self.world, Deed { verb: Verb::Send, session });
            }
            // Its journal may have failed a moment ago.
            Err(error) => self.world.book.mark(&format!("not opened: {error}")),
        }
        self.world.book.open().answer(asked);
    }

    /// Sessions that there are: those that were opened here, and all that are durable.
    fn sessions(&self) -> Vec<SessionId> {
        let mut sessions = self.world.book.open().sessions.clone();
        sessions
            .extend(self.sessions.iter().filter(|session| !sessions.contains(session)).copied().collect::<Vec<_>>());
        sessions
    }

    /// One of them: where the verb finds something to do, and the latest, more often than others.
    fn session(&self, verb: Verb) -> Option<SessionHandle> {
        let sessions = self.sessions();
        let recent = sessions.len().saturating_sub(6);
        let some = if self.world.chance.one_in(2) { sessions.get(recent..) } else { None };
        let likely = if self.world.chance.one_in(2) { self.world.book.open().archive.likely(verb) } else { Vec::new() };
        let likely = self.world.chance.pick(&likely);
        let id = likely.or_else(|| self.world.chance.pick(some.unwrap_or(&sessions)))?;
        match self.runtime()?.session(id) {
            Ok(found) => found,
            Err(error) => {
                self.world.book.mark(&format!("not found: {error}"));
                None
            }
        }
    }

    fn watch(&self) {
        let Some(runtime) = self.runtime() else { return };
        let root = self.world.book.open().sessions.first().copied().filter(|_| self.world.chance.one_in(2));
        watcher::spawn(&self.world, runtime.subscribe(root));
    }

    fn judge(&self, at_rest: bool) {
        judge::archive(&self.world, at_rest);
    }

    /// Nothing goes wrong any more: waits until everything has ended, and judges that.
    async fn rest(&self) {
        let Some(runtime) = self.runtime() else { return };
        let (mut waited, mut next) = (Duration::ZERO, Duration::from_secs(1));
        while !judge::is_quiet(runtime.journal()) {
            if waited >= judge::PATIENCE {
                let left = judge::left(runtime.journal());
                return self.world.book.wrong("S-6", format!("after {waited:?} of calm not all has ended: {left}"));
            }
            tokio::time::sleep(next).await;
            (waited, next) = (waited.saturating_add(next), (next * 2).min(Duration::from_secs(60)));
        }
        // What is told after the last end takes its time too.
        tokio::time::sleep(Duration::from_secs(60)).await;
        self.judge(true);
        judge::baseline(&self.world, runtime);
    }
}
