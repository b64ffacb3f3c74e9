//! Limits of a session and its tree.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize};

/// The last time that a record names, in milliseconds since 1970: the end of the year 9999. An import refuses later ones.
pub const LATEST_MS: i64 = 253_402_300_799_999;

/// Returns the time `ms` after `now`, at most [`LATEST_MS`].
pub(crate) fn time_after(now: i64, ms: u64) -> i64 {
    now.saturating_add_unsigned(ms).min(LATEST_MS)
}

/// Maximum number of inputs of a session, since views hold all its records. An import takes more: continuations count.
pub const MAX_INPUTS: usize = 16_384;

/// Maximum bytes, as JSON, of the inputs that a session accepts together, for the same reason.
pub const MAX_INPUT_BYTES: u64 = 32 << 20;

/// Maximum depth below the root, of subagents and of branches. An import refuses deeper trees.
pub const MAX_DEPTH: u32 = 1_000;

/// Every bound of a session and of the tree below it.
///
/// Times are milliseconds, sizes bytes. `None` means no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Subagent edges from the root, at most [`MAX_DEPTH`]. Sessions at this depth cannot start children.
    pub max_depth: u32,
    /// Number of live owned runs per root. Further runs are queued.
    pub live_runs: u32,
    /// Number of live runs per root that people opened in branches. They are never queued behind owned runs.
    pub live_person_runs: u32,
    /// Total number of spawns per root run, and per detached run.
    pub spawns: u32,
    /// Number of answered turns per run.
    pub turns: u32,
    /// Working time of an owned run.
    pub run_ms: Option<u64>,
    /// Time in the queue. Each grant of a slot to the root's tree restarts it.
    pub queue_ms: u64,
    /// Time of one turn with all its attempts.
    pub turn_ms: u64,
    /// Time that a model may be silent before its first event.
    pub first_byte_ms: u64,
    /// Time that a model may be silent between two events.
    pub stall_ms: u64,
    pub tool_ms: u64,
    /// Time for local work to stop. All sessions of a subtree stop within the same period.
    pub grace_ms: u64,
    /// Number of attempts of one turn.
    pub attempts: u32,
    /// Delay before the first retry; doubled each time.
    pub backoff_ms: u64,
    /// Number of calls of one answer that are started; each further call fails. See [`MAX_CALLS_PER_ANSWER`].
    pub calls_per_answer: u32,
    /// Argument bytes of all calls of one answer. A call that exceeds the rest is refused, and its arguments are not
    /// recorded.
    pub argument_bytes: u64,
    /// Number of read-only calls of one turn that run concurrently.
    pub local_calls: u32,
    pub queue: u32,
    pub input_bytes: u64,
    pub tool_result_bytes: u64,
    /// Bytes of one child's text in its owner's context.
    pub result_bytes: u64,
    /// Bytes of all notices of one boundary.
    pub notices_bytes: u64,
    /// Bytes of answers, results and notices that one run records, and of the texts that its calls put into children. A
    /// run over the limit ends before its next model call, and starts no child over it. All runs of a child that its
    /// owner continues have one such limit together.
    pub recorded_bytes: Option<u64>,
    pub output_tokens: Option<u64>,
    /// Percentage of the model's context window from which old history is summarised and hidden before the next model
    /// call, and once after a provider reports an overflow. 0 turns it off. If absent, 80 if the window is known.
    pub compact_at: Option<u32>,
    /// Input and output tokens of a root run, or a detached run, and its owned runs. Each model call first reserves an estimate. It is charged
    /// the tokens that the provider reports, else the reservation. If a reservation exceeds the budget, its run ends.
    pub tokens: Option<u64>,
    /// Cost in millionths of a US dollar, counted like `tokens`, for models with a known price.
    pub cost_micro: Option<u64>,
    pub wall_ms: Option<u64>,
    /// Time for an approval, after which the call is denied. A restart does not prolong it.
    pub ask_ms: u64,
    /// Time that a check waits for its run. The timeout ends only the wait.
    pub check_ms: u64,
    /// Wall-clock time of a detached run, and working time of a background process.
    pub detached_ms: u64,
    pub inherited_bytes: u64,
    /// Whether runs park until a provider's limit resets, if that is after the end of their turn. If off, they fail at once.
    pub park: Parking,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Parking {
    #[default]
    On,
    Off,
}

impl Parking {
    fn and(self, other: Self) -> Self {
        if other == Self::Off { other } else { self }
    }
}

/// Deserializes `on` or `off`, which some YAML parsers turn into `true` and `false`.
impl<'de> Deserialize<'de> for Parking {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OnOrOff;
        impl Visitor<'_> for OnOrOff {
            type Value = Parking;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`on` or `off`")
            }

            fn visit_bool<E: Error>(self, on: bool) -> Result<Parking, E> {
                Ok(if on { Parking::On } else { Parking::Off })
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Parking, E> {
                match word {
                    "on" => Ok(Parking::On),
                    "off" => Ok(Parking::Off),
                    other => Err(E::invalid_value(Unexpected::Str(other), &self)),
                }
            }
        }
        deserializer.deserialize_any(OnOrOff)
    }
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
            compact_at: None,
            tokens: None,
            cost_micro: None,
            wall_ms: None,
            ask_ms: 300_000,
            check_ms: 300_000,
            detached_ms: 3_600_000,
            inherited_bytes: 16 << 20,
            park: Parking::On,
        }
    }
}

/// Number of calls above which an answer is rejected while it streams, unless `calls_per_answer` is higher.
pub const MAX_CALLS_PER_ANSWER: u32 = 1_024;

/// The error of a limit that cannot take effect, or that lets no run start or end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit `{name}` is {why}")]
pub struct BadLimit {
    pub name: &'static str,
    pub why: &'static str,
}

/// Valid percentages of a context window: a compaction needs room for its summary, and must come before the overflow.
const VALID_SHARES: std::ops::RangeInclusive<u32> = 10..=95;

impl Limits {
    /// Checks that work is possible under these limits.
    /// # Errors
    /// [`BadLimit`] for the first value that is not allowed.
    pub fn check(&self) -> Result<(), BadLimit> {
        let is_positive = |limit: Option<u64>| limit != Some(0);
        let checked = [
            ("live_runs", self.live_runs > 0),
            ("live_person_runs", self.live_person_runs > 0),
            ("turns", self.turns > 0),
            ("run_ms", is_positive(self.run_ms)),
            ("turn_ms", self.turn_ms > 0),
            ("first_byte_ms", self.first_byte_ms > 0),
            ("stall_ms", self.stall_ms > 0),
            ("attempts", self.attempts > 0),
            ("local_calls", self.local_calls > 0),
            ("queue", self.queue > 0),
            ("input_bytes", self.input_bytes > 0),
            ("argument_bytes", self.argument_bytes > 0),
            ("recorded_bytes", is_positive(self.recorded_bytes)),
            ("output_tokens", is_positive(self.output_tokens)),
            ("tokens", is_positive(self.tokens)),
            ("cost_micro", is_positive(self.cost_micro)),
            ("wall_ms", is_positive(self.wall_ms)),
            ("ask_ms", self.ask_ms > 0),
            ("check_ms", self.check_ms > 0),
            ("detached_ms", self.detached_ms > 0),
        ];
        match checked.iter().find(|(_, valid)| !valid) {
            Some((name, _)) => Err(BadLimit { name, why: "0, so nothing could run: give 1 or more" }),
            None if self.max_depth > MAX_DEPTH => Err(BadLimit {
                name: "max_depth",
                why: "too high, since no import takes deeper trees: give 1000 or less",
            }),
            None if self.compact_at.is_some_and(|share| share > 0 && !VALID_SHARES.contains(&share)) => Err(BadLimit {
                name: "compact_at",
                why: "not a valid share of a context window: give 10 to 95 percent, or 0 for never",
            }),
            None => Ok(()),
        }
    }

    /// Returns the lower of each limit; parking is off if either is off. Keeps `compact_at`, which is not an upper bound.
    #[must_use]
    pub fn lowered(&self, other: &Self) -> Self {
        let least = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self {
            max_depth: self.max_depth.min(other.max_depth),
            live_runs: self.live_runs.min(other.live_runs),
            live_person_runs: self.live_person_runs.min(other.live_person_runs),
            spawns: self.spawns.min(other.spawns),
            turns: self.turns.min(other.turns),
            run_ms: least(self.run_ms, other.run_ms),
            queue_ms: self.queue_ms.min(other.queue_ms),
            turn_ms: self.turn_ms.min(other.turn_ms),
            first_byte_ms: self.first_byte_ms.min(other.first_byte_ms),
            stall_ms: self.stall_ms.min(other.stall_ms),
            tool_ms: self.tool_ms.min(other.tool_ms),
            grace_ms: self.grace_ms.min(other.grace_ms),
            attempts: self.attempts.min(other.attempts),
            backoff_ms: self.backoff_ms.min(other.backoff_ms),
            calls_per_answer: self.calls_per_answer.min(other.calls_per_answer),
            argument_bytes: self.argument_bytes.min(other.argument_bytes),
            local_calls: self.local_calls.min(other.local_calls),
            queue: self.queue.min(other.queue),
            input_bytes: self.input_bytes.min(other.input_bytes),
            tool_result_bytes: self.tool_result_bytes.min(other.tool_result_bytes),
            result_bytes: self.result_bytes.min(other.result_bytes),
            notices_bytes: self.notices_bytes.min(other.notices_bytes),
            recorded_bytes: least(self.recorded_bytes, other.recorded_bytes),
            output_tokens: least(self.output_tokens, other.output_tokens),
            compact_at: self.compact_at,
            tokens: least(self.tokens, other.tokens),
            cost_micro: least(self.cost_micro, other.cost_micro),
            wall_ms: least(self.wall_ms, other.wall_ms),
            ask_ms: self.ask_ms.min(other.ask_ms),
            check_ms: self.check_ms.min(other.check_ms),
            detached_ms: self.detached_ms.min(other.detached_ms),
            inherited_bytes: self.inherited_bytes.min(other.inherited_bytes),
            park: self.park.and(other.park),
        }
    }

    /// Returns the configured share for compactions, if any. It needs a known context window.
    pub fn configured_share(&self) -> Option<u32> {
        self.compact_at.filter(|share| *share > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parking_is_on_or_off() {
        let read = |park: serde_json::Value| serde_json::from_value::<Parking>(park).map_err(|error| error.to_string());
        assert_eq!([read("on".into()), read(true.into())], [Ok(Parking::On), Ok(Parking::On)]);
        assert_eq!([read("off".into()), read(false.into())], [Ok(Parking::Off), Ok(Parking::Off)]);
        assert_eq!(read("no".into()), Err("invalid value: string \"no\", expected `on` or `off`".into()));
        assert_eq!(serde_json::to_value(Limits::default()).unwrap()["park"], "on");
    }

    #[test]
    fn lowered_limits_are_the_lower_one_of_each() {
        const KEPT: [&str; 1] = ["compact_at"];
        let (own, other) = (Limits::default(), serde_json::to_value(Limits::default()).unwrap());
        for (name, value) in other.as_object().unwrap() {
            for bound in [0_u64, u64::from(u32::MAX)] {
                let mut other = other.clone();
                other[name] = bound.into();
                let Ok(other) = serde_json::from_value::<Limits>(other) else { continue };
                let lowered = serde_json::to_value(own.lowered(&other)).unwrap()[name].clone();
                let lower = value.as_u64().map_or(bound, |value| value.min(bound));
                let expected = if KEPT.contains(&&**name) { value.clone() } else { lower.into() };
                assert_eq!(lowered, expected, "{name}");
                assert_eq!(other.lowered(&own) == other, KEPT.contains(&&**name) || lower == bound, "{name}");
            }
        }
    }

    #[test]
    fn limits_out_of_range_are_refused_by_name() {
        assert_eq!(Limits::default().check(), Ok(()));
        assert_eq!(
            Limits { run_ms: None, max_depth: 0, spawns: 0, inherited_bytes: 0, ..Limits::default() }.check(),
            Ok(())
        );
        let deep = |max_depth| Limits { max_depth, ..Limits::default() }.check().map_err(|bad| bad.name);
        assert_eq!([deep(MAX_DEPTH), deep(MAX_DEPTH + 1)], [Ok(()), Err("max_depth")]);
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
        let shares = [0, 9, 10, 95, 96].map(|share| given("compact_at", share).is_ok());
        assert_eq!(shares, [true, false, true, true, false]);
        assert_eq!(ZERO.map(|name| given(name, 0)), [Ok(()); 3]);
    }
}
