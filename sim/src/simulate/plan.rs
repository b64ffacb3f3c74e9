//! Plans: the parameters of one run of the simulator, which a seed determines.

use std::time::Duration;

use subtend_session::limits::Limits;
use subtend_session::place::OnRestart;

use crate::rng::SeededRng;
use crate::simulate::seeded::Seeded;
use crate::simulate::tally::Verb;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeedPlan {
    /// The source of all draws.
    pub seed: u64,
    /// Maximum number of user actions and external events.
    pub steps: u32,
    pub bug: Option<Seeded>,
    pub trace: bool,
}

impl SeedPlan {
    /// Returns the `on_restart` of an agent that resumes in one of `one_in` seeds. Computed from the seed without a draw,
    /// so that older recorded seeds give the same runs.
    pub(crate) fn on_restart(&self, one_in: u64) -> OnRestart {
        if self.seed.is_multiple_of(one_in) { OnRestart::Resume } else { OnRestart::Fail }
    }

    /// Returns whether users roll runs back and summarise. Computed without a draw: recorded seeds give the same runs.
    pub(crate) fn has_rollbacks_and_summaries(&self) -> bool {
        matches!(self.seed % RARE_MODULUS, 1 | 3 | 7 | 9 | 11 | 13)
    }

    /// Returns whether the host writes titles. Computed in the same way.
    pub(crate) fn writes_titles(&self) -> bool {
        matches!(self.seed % RARE_MODULUS, 1 | 3 | 7)
    }

    /// Returns a small context window of the model, in tokens, so that histories are compacted. Computed in the same way.
    pub(crate) fn window(&self) -> Option<u64> {
        matches!(self.seed % RARE_MODULUS, 7 | 9 | 11 | 13).then_some(1_000)
    }

    /// Returns whether users request and undo compactions instead of summaries. Computed in the same way.
    pub(crate) fn compacts(&self) -> bool {
        self.seed % RARE_MODULUS == 13
    }

    /// Returns whether agents may message their relatives. Computed in the same way.
    pub(crate) fn has_messages(&self) -> bool {
        matches!(self.seed % RARE_MODULUS, 3 | 13)
    }

    /// Returns whether the host summarises closed sessions. Computed in the same way.
    pub(crate) fn writes_summaries(&self) -> bool {
        matches!(self.seed % RARE_MODULUS, 3 | 7 | 9)
    }
}

/// The seed modulo this number decides which rare events occur. It is prime, since another divisor decides on restarts.
const RARE_MODULUS: u64 = 17;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Faults occur until the end. No invariant may be violated.
    Safety,
    /// Faults occur, then stop. Every run must end.
    Liveness,
}

/// The time at which appended records become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    AtOnce,
    /// At most this many milliseconds later.
    Later(u64),
}

/// The behaviour of a model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelBehaviour {
    Text,
    Calls,
    Cut,
    CutCalls,
    Empty,
    Refuses,
    Fails,
    Hangs,
    Panics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallChoice {
    Task,
    Background,
    Read,
    Write,
    Keep,
    Slow,
    Stubborn,
    Broken,
    Guarded,
    Unknown,
    Garbage,
    Continue,
    Check,
    Cancel,
    Message,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallDuration {
    Nothing,
    Yields,
    Tick,
    Short,
    Long,
}

/// The frequencies of events (swarm testing). Each run sets some to zero, so that frequent events do not hide rare ones.
#[derive(Clone, Debug)]
pub(crate) struct Swarm {
    pub(crate) mode: Mode,
    pub(crate) sync: Sync,
    pub(crate) limits: Limits,
    pub(crate) slots: usize,
    pub(crate) inbox: usize,
    pub(crate) queued_states: usize,
    pub(crate) resident_text: u64,
    pub(crate) events: usize,
    pub(crate) idle: Duration,
    pub(crate) durable_before_call: bool,
    /// True if calls of models and read-only tools leave the process.
    pub(crate) tools_leave_process: bool,
    pub(crate) verbs: Vec<(Verb, u32)>,
    pub(crate) behaviours: Vec<(ModelBehaviour, u32)>,
    pub(crate) calls: Vec<(CallChoice, u32)>,
    pub(crate) durations: Vec<(CallDuration, u32)>,
    /// Maximum pauses of a user in milliseconds, with weights.
    pub(crate) pauses: Vec<(u64, u32)>,
    /// One in this many commands crashes its actor. 0 means none.
    pub(crate) handler_panics: u64,
    /// One in this many batches panics between its append and its effects.
    pub(crate) append_panics: u64,
    pub(crate) task_panics: u64,
    /// One in this many processes has a failing write.
    pub(crate) write_fails: u64,
    /// One in this many processes has a failing sync.
    pub(crate) sync_fails: u64,
    /// One in this many processes is killed at a write rather than at a step.
    pub(crate) dies_at_write: u64,
    pub(crate) roots: u64,
    pub(crate) watchers: u64,
    pub(crate) attended: bool,
}

impl Swarm {
    pub(crate) fn draw(plan: &SeedPlan, rng: &SeededRng) -> Self {
        let weight = || rng.pick(&[0, 1, 1, 3, 10]).unwrap_or(1);
        let rate = |rare: u64| rng.pick(&[0, 0, rare, rare / 4]).unwrap_or(0);
        let verbs = verbs(plan, rng);
        let mut swarm = Self {
            mode: rng.pick(&[Mode::Safety, Mode::Liveness, Mode::Liveness]).unwrap_or(Mode::Liveness),
            sync: rng.pick(&[Sync::AtOnce, Sync::Later(0), Sync::Later(3), Sync::Later(40)]).unwrap_or(Sync::AtOnce),
            limits: limits(rng),
            slots: rng.pick(&[1, 2, 3, 8, 64]).unwrap_or(8),
            inbox: rng.pick(&[2, 8, 64]).unwrap_or(64),
            events: rng.pick(&[4, 64, 8192]).unwrap_or(8192),
            idle: Duration::from_millis(rng.pick(&[1, 50, 5_000]).unwrap_or(5_000)),
            durable_before_call: rng.one_in(4),
            tools_leave_process: rng.one_in(2),
            verbs,
            behaviours: behaviours(&weight),
            calls: calls(plan, &weight),
            durations: durations(&weight),
            pauses: [
                (0, weight().min(3)),
                (1, weight().min(3)),
                (20, weight()),
                (400, weight().max(1)),
                (5_000, weight()),
            ]
            .into(),
            handler_panics: rate(80),
            append_panics: rate(80),
            task_panics: rate(40),
            write_fails: rate(6),
            sync_fails: rate(6),
            dies_at_write: rate(4),
            roots: rng.between(1, 4),
            watchers: rng.between(0, 3),
            attended: !rng.one_in(4),
            // Computed from the seed without a draw, so that the other draws stay the same. Never small with a seeded bug: a run
            // that the bug keeps from ending would be folded again and again within one instant of virtual time.
            resident_text: match (plan.bug, plan.seed % 7) {
                (None, 0) => 0,
                (None, 1 | 2) => 4 << 10,
                (None | Some(_), _) => 128 << 20,
            },
            queued_states: [0, 1, 1_024].get((plan.seed % 3) as usize).copied().unwrap_or_default(),
        };
        // The runtime refuses a limit above the number of slots.
        let slots = u32::try_from(swarm.slots).unwrap_or(u32::MAX);
        swarm.limits.live_runs = swarm.limits.live_runs.min(slots);
        swarm
    }
}

/// Draws the weight of each kind of request. Many are 0, but those of opening and sending never are.
fn verbs(plan: &SeedPlan, rng: &SeededRng) -> Vec<(Verb, u32)> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other verbs are equally likely")]
    let weight = |verb: &Verb| match verb {
        Verb::Open => 3,
        Verb::Send => rng.pick(&[10, 20, 40]).unwrap_or(20),
        Verb::Crash | Verb::Shutdown | Verb::ClockJump | Verb::Delete | Verb::DeleteForced => {
            rng.pick(&[0, 0, 1, 2]).unwrap_or(0)
        }
        Verb::RollBack | Verb::Summarise if !plan.has_rollbacks_and_summaries() => 0,
        _ => rng.pick(&[0, 0, 2, 6]).unwrap_or(0),
    };
    Verb::OF_USERS.iter().map(|verb| (*verb, weight(verb))).collect()
}

fn behaviours(weight: &dyn Fn() -> u32) -> Vec<(ModelBehaviour, u32)> {
    let some = |behaviour| (behaviour, weight().min(3));
    vec![
        (ModelBehaviour::Text, weight().max(2) * 3),
        (ModelBehaviour::Calls, weight().max(3) * 3),
        some(ModelBehaviour::Cut),
        some(ModelBehaviour::CutCalls),
        some(ModelBehaviour::Empty),
        some(ModelBehaviour::Refuses),
        some(ModelBehaviour::Fails),
        some(ModelBehaviour::Hangs),
        some(ModelBehaviour::Panics),
    ]
}

fn calls(plan: &SeedPlan, weight: &dyn Fn() -> u32) -> Vec<(CallChoice, u32)> {
    let some = |call| (call, weight());
    vec![
        (CallChoice::Task, weight().max(2) * 2),
        (CallChoice::Background, weight() * 2),
        some(CallChoice::Read),
        some(CallChoice::Write),
        some(CallChoice::Keep),
        some(CallChoice::Slow),
        some(CallChoice::Stubborn),
        some(CallChoice::Broken),
        some(CallChoice::Guarded),
        (CallChoice::Unknown, weight().min(1)),
        (CallChoice::Garbage, weight().min(1)),
        some(CallChoice::Continue),
        some(CallChoice::Check),
        some(CallChoice::Cancel),
        (CallChoice::Message, u32::from(plan.has_messages()) * 4),
    ]
}

fn durations(weight: &dyn Fn() -> u32) -> Vec<(CallDuration, u32)> {
    vec![
        (CallDuration::Nothing, weight()),
        (CallDuration::Yields, weight()),
        (CallDuration::Tick, weight()),
        (CallDuration::Short, weight().max(1)),
        (CallDuration::Long, weight().min(1)),
    ]
}

fn limits(rng: &SeededRng) -> Limits {
    let pick = |of: &[u32]| rng.pick(of).unwrap_or(3);
    Limits {
        max_depth: pick(&[1, 2, 3, 3]),
        live_runs: pick(&[1, 2, 3, 8]),
        spawns: pick(&[3, 12, 40]),
        turns: pick(&[2, 4, 12]),
        run_ms: Some(60_000),
        queue_ms: 45_000,
        turn_ms: 20_000,
        first_byte_ms: 5_000,
        stall_ms: 2_000,
        tool_ms: 8_000,
        grace_ms: 1_000,
        attempts: pick(&[1, 2, 3]),
        backoff_ms: 100,
        calls_per_answer: 8,
        local_calls: pick(&[1, 2, 8]),
        queue: pick(&[2, 16]),
        wall_ms: rng.pick(&[None, None, Some(40_000)]).flatten(),
        ask_ms: 10_000,
        detached_ms: 30_000,
        tokens: rng.pick(&[None, None, Some(20_000)]).flatten(),
        ..Limits::default()
    }
}
