//! Random operations, with a check of invariants after each operation.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::Builder;

use super::super::Rates;
use super::Bug;
use super::callers::{Callers, LAB, MODEL, OTHER, concurrent_rate};

/// Quotas of calls: a model and its provider, another model of that provider, only the provider, and another provider.
const PATHS: [&[&str]; 4] = [&[MODEL, LAB], &[LAB, OTHER], &[LAB], &["shop"]];
const NAMES: [&str; 4] = [MODEL, OTHER, LAB, "shop"];

#[derive(Clone, Debug)]
enum ThrottleStep {
    Enter { session: char, path: usize, tokens: u64 },
    DropWaiting(prop::sample::Index),
    End(prop::sample::Index),
    Settle(prop::sample::Index, u64),
    Pause(usize, u64),
    Advance(u64),
    AdvanceUnpolled(u64),
    Poll,
}

fn step() -> impl Strategy<Value = ThrottleStep> {
    let enter = (prop::char::range('a', 'd'), 0..PATHS.len(), 0..400_u64);
    prop_oneof![
        8 => enter.prop_map(|(session, path, tokens)| ThrottleStep::Enter { session, path, tokens }),
        2 => any::<prop::sample::Index>().prop_map(ThrottleStep::DropWaiting),
        4 => any::<prop::sample::Index>().prop_map(ThrottleStep::End),
        2 => (any::<prop::sample::Index>(), 0..1_000_u64).prop_map(|(ix, cost)| ThrottleStep::Settle(ix, cost)),
        1 => (0..NAMES.len(), 0..20_000_u64).prop_map(|(ix, ms)| ThrottleStep::Pause(ix, ms)),
        4 => (0..10_000_u64).prop_map(ThrottleStep::Advance),
        1 => (0..90_000_u64).prop_map(ThrottleStep::AdvanceUnpolled),
        4 => Just(ThrottleStep::Poll),
    ]
}

fn rates() -> impl Strategy<Value = Rates> {
    (prop::option::of(1..4_u32), prop::option::of(1..40_u32), prop::option::of(200..2_000_u64)).prop_map(
        |(concurrent, requests_per_minute, tokens_per_minute)| Rates {
            concurrent,
            requests_per_minute,
            tokens_per_minute,
        },
    )
}

fn scene() -> impl Strategy<Value = (Vec<Rates>, Vec<ThrottleStep>)> {
    (prop::collection::vec(rates(), NAMES.len()), prop::collection::vec(step(), 1..80))
}

struct Scene {
    callers: Callers,
    rates: BTreeMap<&'static str, Rates>,
    paths: BTreeMap<String, &'static [&'static str]>,
    pauses: BTreeMap<&'static str, u64>,
    checked: usize,
}

type CheckResult = Result<(), TestCaseError>;

impl Scene {
    fn new(rates: &[Rates], bug: Option<Bug>) -> Self {
        let rates: BTreeMap<_, _> = NAMES.into_iter().zip(rates.iter().copied()).collect();
        let named: Vec<_> = rates.iter().map(|(name, rates)| (*name, *rates)).collect();
        let callers = Callers::with_quotas(&named).with_bug(bug);
        Self { callers, rates, paths: BTreeMap::new(), pauses: BTreeMap::new(), checked: 0 }
    }

    async fn take(&mut self, n: usize, step: &ThrottleStep) {
        let (waiting, running) = (self.callers.waiting(), self.callers.running());
        match step {
            ThrottleStep::Enter { session, path, tokens } => {
                let name = format!("{session}{n:03}");
                self.paths.insert(name.clone(), PATHS[*path]);
                self.callers.enter(&name, PATHS[*path], *tokens);
            }
            ThrottleStep::DropWaiting(ix) if !waiting.is_empty() => {
                self.callers.drop_waiting(ix.get::<String>(&waiting))
            }
            ThrottleStep::End(ix) if !running.is_empty() => self.callers.end_unpolled(ix.get::<String>(&running)),
            ThrottleStep::Settle(ix, cost) if !running.is_empty() => {
                self.callers.settle(ix.get::<String>(&running), *cost)
            }
            ThrottleStep::DropWaiting(_) | ThrottleStep::End(_) | ThrottleStep::Settle(..) => {}
            ThrottleStep::Pause(ix, ms) => {
                let name = NAMES[*ix];
                self.callers.throttles.pause(&name.into(), *ms);
                let until = self.pauses.entry(name).or_default();
                *until = (*until).max(self.callers.now_ms() + ms);
            }
            ThrottleStep::Advance(ms) => self.callers.advance(*ms).await,
            ThrottleStep::AdvanceUnpolled(ms) => self.callers.advance_unpolled(*ms).await,
            ThrottleStep::Poll => self.callers.poll_woken(),
        }
    }

    fn check_invariants(&mut self) -> CheckResult {
        let starts = self.callers.started_at();
        for (name, rates) in &self.rates {
            let of_quota = |call: &str| self.paths.get(call).is_some_and(|path| path.contains(name));
            let running = self.callers.running().iter().filter(|call| of_quota(call)).count();
            let bound = rates.concurrent.map_or(usize::MAX, |bound| bound as usize);
            prop_assert!(running <= bound, "{running} run under {name}");
            let seen = self.callers.active_quotas().into_iter().find(|seen| &*seen.name == *name);
            prop_assert_eq!(seen.map_or(0, |seen| seen.running) as usize, running, "{}", name);
            // Pauses cannot have started and ended since these starts, so only current pauses count.
            let until = self.pauses.get(name).copied().unwrap_or(0);
            let early = starts[self.checked..].iter().find(|(call, at)| of_quota(call) && *at < until);
            prop_assert!(early.is_none(), "{early:?} started while {name} was paused until {until}");
        }
        self.checked = starts.len();
        Ok(())
    }

    /// Checks that no minute has more starts than the rate and a burst.
    fn check_minutes(&self) -> CheckResult {
        let starts = self.callers.started_at();
        for (name, rates) in &self.rates {
            let Some(rate) = rates.requests_per_minute else { continue };
            let times: Vec<u64> =
                starts.iter().filter(|(call, _)| self.paths[*call].contains(name)).map(|(_, at)| *at).collect();
            let bound = (rate + (rate / 10).max(1)) as usize;
            for from in &times {
                let within = times.iter().filter(|at| (*from..from + 60_000).contains(at)).count();
                prop_assert!(within <= bound, "{within} started within a minute of {from} ms under {name}");
            }
        }
        Ok(())
    }

    /// Checks that every waiting call starts, and that in the end all quotas are unused.
    async fn run_out(&mut self) -> CheckResult {
        for _ in 0..10_000 {
            if self.callers.waiting().is_empty() {
                break;
            }
            for name in self.callers.running() {
                self.callers.end(&name);
            }
            self.callers.advance(1_000).await;
            self.check_invariants()?;
        }
        prop_assert_eq!(
            self.callers.waiting(),
            Vec::<String>::new(),
            "starved, or not woken: {:?}",
            self.callers.active_quotas()
        );
        for name in self.callers.running() {
            self.callers.end(&name);
        }
        self.callers.advance(2 * 60 * 60 * 1_000).await;
        prop_assert_eq!(self.callers.active_quotas(), vec![]);
        Ok(())
    }
}

fn check_scene(rates: &[Rates], steps: &[ThrottleStep], bug: Option<Bug>) -> CheckResult {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut scene = Scene::new(rates, bug);
        for (n, step) in steps.iter().enumerate() {
            scene.take(n, step).await;
            scene.check_invariants()?;
        }
        scene.run_out().await?;
        scene.check_minutes()
    })
}

/// Checks that calls start in order of arrival if only concurrency is limited.
fn check_order(
    concurrent: (u32, u32),
    arrivals: &[(char, bool)],
    path: &'static [&'static str],
    bug: Option<Bug>,
) -> CheckResult {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let rates =
            [(LAB, concurrent_rate(concurrent.0)), (MODEL, concurrent_rate(concurrent.1)), (OTHER, concurrent_rate(1))];
        let mut callers = Callers::with_quotas(&rates).with_bug(bug);
        for (n, (session, ends)) in arrivals.iter().enumerate() {
            if let Some(name) = callers.running().into_iter().min_by_key(|name| name[1..].to_owned()).filter(|_| *ends)
            {
                callers.end(&name);
            } else {
                callers.enter(&format!("{session}{n:03}"), path, 1);
            }
        }
        let started = callers.started_at();
        let numbers: Vec<&str> = started.iter().map(|(name, _)| &name[1..]).collect();
        prop_assert!(numbers.is_sorted(), "{}", callers.started());
        Ok(())
    })
}

fn crowd() -> impl Strategy<Value = ((u32, u32), Vec<(char, bool)>)> {
    let bounds = (1..4_u32, 1..6_u32);
    let arrivals = prop::collection::vec(
        (prop_oneof![3 => Just('a'), 1 => prop::char::range('b', 'd')], prop::bool::weighted(0.45)),
        1..120,
    );
    (bounds, arrivals)
}

/// Returns whether the check finds a seeded bug within the cases of the property.
fn detects_bug(bug: Bug) -> bool {
    let config = Config { cases: 300, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    match bug {
        Bug::Unfair => {
            runner.run(&crowd(), |(bounds, arrivals)| check_order(bounds, &arrivals, &[LAB], Some(bug))).is_err()
        }
        Bug::TicketLost | Bug::TooEarly => {
            runner.run(&scene(), |(rates, steps)| check_scene(&rates, &steps, Some(bug))).is_err()
        }
    }
}

#[test]
fn seeded_bugs_are_detected() {
    assert_eq!([Bug::Unfair, Bug::TicketLost, Bug::TooEarly].map(detects_bug), [true, true, true]);
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    #[test]
    fn limits_hold_and_every_call_starts((rates, steps) in scene()) {
        check_scene(&rates, &steps, None)?;
    }

    #[test]
    fn calls_of_one_queue_start_in_order((bounds, arrivals) in crowd()) {
        check_order(bounds, &arrivals, &[LAB], None)?;
        check_order(bounds, &arrivals, &[MODEL, LAB], None)?;
    }
}
