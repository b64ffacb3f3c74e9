//! Limits of a session and its tree.

use serde::{Deserialize, Serialize};

/// Every bound of a session and of the tree below it.
///
/// Times are milliseconds, sizes bytes. `None` means no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Subagent edges from the root; a child at this depth is the last.
    pub max_depth: u32,
    /// Live owned runs per root; further ones are queued.
    pub live_runs: u32,
    /// Live runs that persons opened in branches, per root; never queued behind owned ones.
    pub live_person_runs: u32,
    /// Spawns per root run in total.
    pub spawns: u32,
    /// Answered turns per run.
    pub turns: u32,
    /// Working time of an owned run.
    pub run_ms: Option<u64>,
    /// Time in the queue without a grant to its root.
    pub queue_ms: u64,
    /// One turn with all its attempts.
    pub turn_ms: u64,
    /// Silence of a model before its first event.
    pub first_byte_ms: u64,
    /// Silence of a model between two events.
    pub stall_ms: u64,
    /// One tool call.
    pub tool_ms: u64,
    /// Time for kills, once for a whole subtree.
    pub grace_ms: u64,
    /// Attempts of one turn.
    pub attempts: u32,
    /// First delay before a retry; doubled each time.
    pub backoff_ms: u64,
    /// Calls in one answer that are made; each one above fails by itself. See [`MAX_CALLS_PER_ANSWER`].
    pub calls_per_answer: u32,
    /// Argument bytes of all calls of one answer. A call that exceeds it is refused, and its arguments are not
    /// recorded.
    pub argument_bytes: u64,
    /// Read-only calls of one turn that run concurrently.
    pub local_calls: u32,
    /// Queued inputs.
    pub queue: u32,
    pub input_bytes: u64,
    pub tool_result_bytes: u64,
    /// Bytes of one child's text in its owner's context.
    pub result_bytes: u64,
    /// Bytes of all notices of one boundary.
    pub notices_bytes: u64,
    /// Text of answers, results and notices that one run records. A run above it ends before its next model call.
    pub recorded_bytes: Option<u64>,
    pub output_tokens: Option<u64>,
    /// Tokens of a root run and its owned runs, input and output: reserved by estimate before each model call, settled
    /// by what the provider reports, else by the reservation. A run whose call does not fit ends out of budget.
    pub tokens: Option<u64>,
    /// Millionths of a US dollar, likewise, for models with a known price.
    pub cost_micro: Option<u64>,
    pub wall_ms: Option<u64>,
    /// Time for an approval; then the call is denied.
    pub ask_ms: u64,
    /// How long a check waits for its run; the timeout ends only the wait.
    pub check_ms: u64,
    /// Wall-clock time of a detached run.
    pub detached_ms: u64,
    pub inherited_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_depth: 5,
            live_runs: 3,
            live_person_runs: 64,
            spawns: 200,
            turns: 50,
            run_ms: Some(480_000),
            queue_ms: 600_000,
            turn_ms: 600_000,
            first_byte_ms: 120_000,
            stall_ms: 60_000,
            tool_ms: 120_000,
            grace_ms: 5_000,
            attempts: 3,
            backoff_ms: 500,
            calls_per_answer: 64,
            argument_bytes: 2 << 20,
            local_calls: 8,
            queue: 256,
            input_bytes: 1 << 20,
            tool_result_bytes: 256 << 10,
            result_bytes: 32 << 10,
            notices_bytes: 128 << 10,
            recorded_bytes: Some(64 << 20),
            output_tokens: None,
            tokens: None,
            cost_micro: None,
            wall_ms: None,
            ask_ms: 300_000,
            check_ms: 300_000,
            detached_ms: 3_600_000,
            inherited_bytes: 16 << 20,
        }
    }
}

/// Calls above which an answer is rejected, unless `calls_per_answer` is higher. A provider's answer with more is
/// refused while it streams.
pub const MAX_CALLS_PER_ANSWER: u32 = 1_024;

/// A limit of zero, under which no run could start or end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("with the limit `{name}` of 0 nothing could be done: give 1 or more")]
pub struct BadLimit {
    pub name: &'static str,
}

impl Limits {
    /// Checks that work is possible under these limits.
    ///
    /// # Errors
    /// [`BadLimit`] for the first zero that is not allowed.
    pub fn check(&self) -> Result<(), BadLimit> {
        let wide = |limit: Option<u64>| limit != Some(0);
        let checked = [
            ("live_runs", self.live_runs > 0),
            ("live_person_runs", self.live_person_runs > 0),
            ("turns", self.turns > 0),
            ("run_ms", wide(self.run_ms)),
            ("turn_ms", self.turn_ms > 0),
            ("first_byte_ms", self.first_byte_ms > 0),
            ("stall_ms", self.stall_ms > 0),
            ("attempts", self.attempts > 0),
            ("local_calls", self.local_calls > 0),
            ("queue", self.queue > 0),
            ("input_bytes", self.input_bytes > 0),
            ("argument_bytes", self.argument_bytes > 0),
            ("recorded_bytes", wide(self.recorded_bytes)),
            ("output_tokens", wide(self.output_tokens)),
            ("tokens", wide(self.tokens)),
            ("cost_micro", wide(self.cost_micro)),
            ("wall_ms", wide(self.wall_ms)),
            ("ask_ms", self.ask_ms > 0),
            ("check_ms", self.check_ms > 0),
            ("detached_ms", self.detached_ms > 0),
        ];
        match checked.iter().find(|(_, fine)| !fine) {
            Some((name, _)) => Err(BadLimit { name }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_nothing_are_refused_by_name() {
        assert_eq!(Limits::default().check(), Ok(()));
        assert_eq!(
            Limits { run_ms: None, max_depth: 0, spawns: 0, inherited_bytes: 0, ..Limits::default() }.check(),
            Ok(())
        );
        // Limits for which 0 means none.
        const ZERO: [&str; 3] = ["max_depth", "spawns", "inherited_bytes"];
        let limits = serde_json::to_value(Limits::default()).unwrap();
        let given = |name: &str, value: u64| {
            let mut limits = limits.clone();
            limits[name] = value.into();
            serde_json::from_value::<Limits>(limits).unwrap().check().map_err(|bad| bad.name)
        };
        for name in [
            "live_runs",
            "live_person_runs",
            "turns",
            "run_ms",
            "turn_ms",
            "first_byte_ms",
            "stall_ms",
            "attempts",
            "local_calls",
            "queue",
            "input_bytes",
            "argument_bytes",
            "recorded_bytes",
            "output_tokens",
            "tokens",
            "cost_micro",
            "wall_ms",
            "ask_ms",
            "check_ms",
            "detached_ms",
        ] {
            assert_eq!((given(name, 0), given(name, 1)), (Err(name), Ok(())));
        }
        assert_eq!(ZERO.map(|name| given(name, 0)), [Ok(()); 3]);
    }
}
