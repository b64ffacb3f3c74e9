//! Actions. An action is one request of a person to a session. It must be answered in time.

pub(crate) mod answers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use subtend_actors::{BranchOptions, Control, QueueKind, SessionHandle, Tree};
use subtend_session::command::SwitchTo;
use subtend_session::ids::{RunNo, SessionId};
use subtend_session::place::BranchKind;

use crate::simulate::judge::{self, secret};
use crate::simulate::oracle::archive::last_failed_run;
use crate::simulate::oracle::observer::Cancels;
use crate::simulate::tally::Verb;
use crate::simulate::watcher;
use crate::simulate::world::World;

pub(crate) struct Action {
    pub(crate) verb: Verb,
    pub(crate) session: SessionHandle,
}

/// Time limit of an answer while no fault is active (B-2).
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// Time limit of any answer, including the time of restarts.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(180);

pub(crate) fn spawn(world: &Arc<World>, action: Action) {
    let world = Arc::clone(world);
    tokio::spawn(async move {
        let (asked_at, began) = {
            let mut oracle = world.oracle.lock();
            oracle.trace(|| format!("> {:?} {}", action.verb, oracle.session_number(action.session.id())));
            (oracle.ask(action.verb), oracle.now())
        };
        if action.verb == Verb::Wait {
            wait(&world, &action.session).await;
        } else if !in_time(&world, ask(&world, &action)).await {
            let what =
                format!("{:?} of {} was not answered within {MAX_ANSWER_TIME:?}", action.verb, action.session.id());
            world.oracle.wrong("B-2", what);
        }
        if is_judged(action.verb) && world.rng.one_in(5) {
            judge::judge_all(&world, false);
        }
        let mut oracle = world.oracle.lock();
        oracle.answer(asked_at);
        oracle.trace(|| format!("< {:?} {}", action.verb, oracle.session_number(action.session.id())));
        let took = oracle.now().saturating_sub(began);
        // A deletion first ends the services of its session, and waits for them.
        let grace = if action.verb == Verb::Delete { world.swarm.limits.grace_ms } else { 0 };
        let prompt = ANSWER_LIMIT.saturating_add(Duration::from_millis(grace));
        if is_prompt(action.verb) && took > prompt && oracle.has_no_excuse_since(began) {
            let what = format!("{:?} of {} was answered after {took:?}", action.verb, action.session.id());
            oracle.wrong("B-2", what);
        }
    });
}

/// Returns whether the store is judged right after the request.
fn is_judged(verb: Verb) -> bool {
    matches!(verb, Verb::Interrupt | Verb::CancelTree | Verb::Background | Verb::Close | Verb::Switch)
}

/// Returns whether the request is answered without waiting for the end of a run.
fn is_prompt(verb: Verb) -> bool {
    !matches!(verb, Verb::Wait | Verb::DeleteForced | Verb::Summarise)
}

/// Returns whether the request is answered before the limit, excluding jumps of the clock.
async fn in_time(world: &World, asking: impl Future<Output = ()>) -> bool {
    tokio::pin!(asking);
    let mut jumped = world.oracle.lock().jumped;
    let mut left = MAX_ANSWER_TIME;
    loop {
        if tokio::time::timeout(left, &mut asking).await.is_ok() {
            return true;
        }
        let now = world.oracle.lock().jumped;
        left = now.saturating_sub(jumped);
        jumped = now;
        if left.is_zero() {
            return false;
        }
    }
}

async fn ask(world: &Arc<World>, action: &Action) {
    let session = &action.session;
    match action.verb {
        Verb::Send | Verb::Steer | Verb::Override | Verb::Continue => input(world, action).await,
        Verb::Cancel => {
            world.oracle.lock().cancels(session.id(), Cancels::Session);
            answers::check_control(world, action, session.cancel().await);
        }
        Verb::CancelRun => {
            let run = some_run(world, session);
            world.oracle.lock().cancels(session.id(), Cancels::Run(run));
            answers::check_control(world, action, session.run(run).cancel().await);
        }
        Verb::Interrupt => answers::check_control(world, action, session.interrupt().await),
        // Chosen by the seed without a draw, so that recorded seeds give the same runs.
        Verb::CancelTree if session.is_root() && world.plan.seed.is_multiple_of(3) => cancel_each(world, session).await,
        Verb::CancelTree => {
            world.oracle.lock().cancels(session.id(), Cancels::Tree);
            answers::check_reply(world, action, session.cancel_tree().await.map_err(Into::into));
        }
        Verb::Background => {
            let call = world.oracle.lock().child_calls.get(&session.id()).copied();
            if let Some(call) = call {
                answers::check_reply(world, action, session.background(call).await);
                // An interrupt right after the call must not affect the run that it moved.
                if world.rng.one_in(3) {
                    let action = Action { verb: Verb::Interrupt, session: session.clone() };
                    answers::check_control(world, &action, session.interrupt().await);
                }
            }
        }
        Verb::Close => answers::check_reply(world, action, session.close().await),
        Verb::Delete | Verb::DeleteForced => {
            {
                let mut oracle = world.oracle.lock();
                oracle.deletions += 1;
                let forced = action.verb == Verb::DeleteForced;
                oracle.cancels(session.id(), if forced { Cancels::Tree } else { Cancels::Deletion });
            }
            answers::check_reply(world, action, session.delete(action.verb == Verb::DeleteForced).await);
        }
        Verb::Queue | Verb::QueueRemove | Verb::QueueClear => queue(world, action).await,
        Verb::Branch | Verb::Regenerate | Verb::Switch => branch(world, action).await,
        Verb::RollBack => roll_back(world, action).await,
        Verb::Summarise if world.plan.compacts() => compact(world, action).await,
        Verb::Summarise => answers::check_summary(world, action, session.summarise().await),
        Verb::Detach => answers::check_reply(world, action, session.detach("worker", task(world)).await),
        Verb::Look => read_listings(world, action).await,
        // These are not requests to a session.
        Verb::Open | Verb::Answer | Verb::Wait | Verb::Crash | Verb::Shutdown | Verb::ClockJump => {}
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only the verbs of an input reach this function")]
async fn input(world: &World, action: &Action) {
    let session = &action.session;
    let mut input = session.input(describe(world, session.id()));
    if world.rng.one_in(6) {
        let turns = u32::try_from(world.rng.between(1, 4)).unwrap_or(1);
        // An input with more turns than the limit is refused.
        input = input.turns(turns.min(world.swarm.limits.turns));
    }
    // Uses few different keys, so that some are reused.
    if world.rng.one_in(8) {
        input = input.key(format!("key {}", world.rng.below(3)));
    }
    let sent = match action.verb {
        Verb::Steer => input.steer().await,
        Verb::Override => input.agent(world.rng.pick(&["reader", "worker"]).unwrap_or("worker")).send().await,
        Verb::Continue => session.continue_with(None).await,
        _ => input.send().await,
    };
    answers::check_sent(world, action, sent);
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only the verbs of a queue reach this function")]
async fn queue(world: &World, action: &Action) {
    let session = &action.session;
    match action.verb {
        Verb::QueueRemove => {
            let back = usize::try_from(world.rng.below(3)).unwrap_or_default();
            let input = world.oracle.lock().some_input(session.id(), back);
            if let Some(input) = input {
                answers::check_reply(world, action, session.queue_remove(input).await);
            }
        }
        Verb::QueueClear => answers::check_reply(world, action, session.queue_clear().await),
        _ => {
            let listed = session.queue().await;
            if let Ok(entries) = &listed {
                let mut oracle = world.oracle.lock();
                let queue = u64::from(world.swarm.limits.queue);
                let inputs = entries.iter().filter(|entry| entry.kind != QueueKind::Completion).count() as u64;
                if inputs > queue {
                    let what = format!("the queue of {} has {inputs} inputs, the limit is {queue}", session.id());
                    oracle.wrong("B-1", what);
                }
            }
            answers::check_reply(world, action, listed);
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only the verbs of branches reach this function")]
async fn branch(world: &World, action: &Action) {
    let session = &action.session;
    let answers = world.oracle.lock().answers.get(&session.id()).cloned().unwrap_or_default();
    let at = world.rng.pick(&answers).filter(|_| world.rng.one_in(2));
    match action.verb {
        Verb::Branch => {
            let kind = world.rng.pick(&[BranchKind::Human, BranchKind::Human, BranchKind::Subagent]);
            let kind = kind.unwrap_or(BranchKind::Human);
            let made = session.branch(BranchOptions { at, kind, ..BranchOptions::default() }).await;
            if let Ok(child) = &made
                && world.rng.one_in(2)
            {
                // The input shows whether the model receives the inherited context.
                answers::check_sent(
                    world,
                    &Action { verb: Verb::Send, session: child.clone() },
                    child.send(describe(world, child.id())).await,
                );
            }
            answers::check_reply(world, action, made);
        }
        Verb::Regenerate => answers::check_reply(world, action, session.regenerate(at).await),
        _ => {
            let to = [SwitchTo::Previous, SwitchTo::Next, SwitchTo::Index(0), SwitchTo::Index(1), SwitchTo::Index(9)];
            let to = world.rng.pick(&to).unwrap_or(SwitchTo::Next);
            answers::check_reply(world, action, session.switch(at, to).await);
        }
    }
}

/// Rolls back a run, mostly the last failed one. Half the time an input follows, so that the model is called again.
async fn roll_back(world: &World, action: &Action) {
    let session = &action.session;
    let run = match world.rng.below(6) {
        0 => None,
        1 => Some(some_run(world, session)),
        _ => world.oracle.lock().archive.state(session.id()).and_then(last_failed_run),
    };
    let rolled_back = session.roll_back(run).await;
    let done = rolled_back.is_ok();
    answers::check_rollback(world, action, rolled_back);
    if done && world.rng.one_in(2) {
        let action = Action { verb: Verb::Send, session: session.clone() };
        answers::check_sent(world, &action, session.send(describe(world, session.id())).await);
    }
}

/// Requests a compaction, or undoes the last one. An input often follows, so that the history is used.
async fn compact(world: &World, action: &Action) {
    let session = &action.session;
    if world.rng.one_in(3) {
        answers::check_reply(world, action, session.undo_compaction().await);
    } else {
        answers::check_compaction(world, action, session.compact().await);
    }
    if world.rng.one_in(2) {
        let action = Action { verb: Verb::Send, session: session.clone() };
        answers::check_sent(world, &action, session.send(describe(world, session.id())).await);
    }
}

/// Reads listings, which must neither fail nor have an effect.
async fn read_listings(world: &Arc<World>, action: &Action) {
    let session = &action.session;
    match world.rng.below(6) {
        // A follower of this session keeps reading its journal.
        5 => watcher::follow(world, session),
        0 => answers::check_read(world, action, session.usage().await),
        1 => answers::check_read(world, action, session.branches().await),
        2 => answers::check_reply(world, action, session.alternatives().await),
        3 => answers::check_read(world, action, session.audit().await),
        _ => drop(tree(world, session).await),
    }
}

/// Reads a tree. The tree of a root must show each run in flight below it (T-9).
async fn tree(world: &World, session: &SessionHandle) -> Option<Tree> {
    let alive = session.is_root().then(|| world.oracle.lock().archive.in_flight_below(session.id()));
    match session.tree().await {
        Ok(tree) => {
            let mut listed = BTreeSet::new();
            tree.each(&mut |node| _ = listed.insert(node.id));
            world.oracle.lock().compare_tree(&alive.unwrap_or_default(), &listed);
            Some(tree)
        }
        Err(error) => {
            world.oracle.mark(&format!("tree: {error}"));
            None
        }
    }
}

/// Cancels each session of a root's tree by id. Each cancel must reach the session's run in flight (T-9).
async fn cancel_each(world: &World, root: &SessionHandle) {
    let alive = world.oracle.lock().archive.in_flight_below(root.id());
    let Some(tree) = tree(world, root).await else { return };
    let (mut found, mut lost) = (Vec::new(), BTreeSet::new());
    let mut next = vec![(root.clone(), &tree)];
    while let Some((session, node)) = next.pop() {
        for child in &node.children {
            match session.child(&child.short.0) {
                Ok(Some(handle)) => next.push((handle, child)),
                Ok(None) => _ = lost.insert(child.id),
                Err(error) => world.oracle.mark(&format!("child: {error}")),
            }
        }
        found.push(session);
    }
    let cancels = found.into_iter().map(async |session| {
        world.oracle.lock().cancels(session.id(), Cancels::Session);
        let reply = session.cancel().await;
        let is_lost = matches!(reply, Ok(Control::NotFound)).then_some(session.id());
        answers::check_control(world, &Action { verb: Verb::Cancel, session }, reply);
        is_lost
    });
    lost.extend(join_all(cancels).await.into_iter().flatten());
    world.oracle.lock().compare_cancels(root.id(), &alive, &lost);
}

fn some_run(world: &World, session: &SessionHandle) -> RunNo {
    let last = world.oracle.lock().runs.get(&session.id()).map_or(1, |run| run.0);
    RunNo(u32::try_from(world.rng.between(1, u64::from(last))).unwrap_or(1))
}

/// Returns a text for an input to `session`. No other session may contain it after `session` is deleted (J-10).
fn describe(world: &World, session: SessionId) -> String {
    format!("{} {}", task(world), secret(session))
}

fn task(world: &World) -> String {
    format!("do {}", world.rng.below(1_000))
}

async fn wait(world: &World, session: &SessionHandle) {
    let run = some_run(world, session);
    world.oracle.lock().waits += 1;
    let ended = session.run_ended(run).await;
    world.oracle.lock().waits -= 1;
    answers::check_end(world, session.id(), run, ended);
}
