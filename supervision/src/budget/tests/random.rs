//! Random operations, compared with a naive model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::runtime::Builder;

use super::super::{Currency, DEFAULT_MAX_WAIT, Spend, SpendLimit};
use super::BudgetBug;
use super::callers::Callers;

#[derive(Clone, Debug)]
enum BudgetStep {
    Come { root: u8, want: Spend },
    Settle(prop::sample::Index, Spend),
    Unknown(prop::sample::Index),
    Forgotten(prop::sample::Index),
    GiveBack(prop::sample::Index),
    GiveUp(prop::sample::Index),
    Pass(u64),
}

fn spend(max: u64) -> impl Strategy<Value = Spend> {
    (0..max, 0..max).prop_map(|(tokens, cost_micro)| Spend { tokens, cost_micro })
}

fn step() -> impl Strategy<Value = BudgetStep> {
    let ix = any::<prop::sample::Index>;
    prop_oneof![
        8 => (0..2_u8, spend(60)).prop_map(|(root, want)| BudgetStep::Come { root, want }),
        3 => (ix(), spend(80)).prop_map(|(ix, actual)| BudgetStep::Settle(ix, actual)),
        1 => ix().prop_map(BudgetStep::Unknown),
        1 => ix().prop_map(BudgetStep::Forgotten),
        4 => ix().prop_map(BudgetStep::GiveBack),
        2 => ix().prop_map(BudgetStep::GiveUp),
        3 => (0..40_000_u64).prop_map(BudgetStep::Pass),
    ]
}

fn scenarios() -> impl Strategy<Value = (SpendLimit, Vec<BudgetStep>)> {
    let limit = (prop::option::weighted(0.9, 0..300_u64), prop::option::weighted(0.5, 0..300_u64))
        .prop_map(|(tokens, cost_micro)| SpendLimit { tokens, cost_micro });
    (limit, prop::collection::vec(step(), 1..80))
}

#[derive(Default)]
struct Model {
    limit: SpendLimit,
    now: u64,
    settled: Spend,
    out: BTreeMap<usize, Spend>,
    queue: Vec<(usize, Spend, u64)>,
    refused: BTreeMap<usize, Currency>,
    excess: Spend,
}

fn sum(spends: impl IntoIterator<Item = Spend>) -> Spend {
    spends
        .into_iter()
        .fold(Spend::NOTHING, |a, b| Spend { tokens: a.tokens + b.tokens, cost_micro: a.cost_micro + b.cost_micro })
}

impl Model {
    fn exceeded(&self, spend: Spend) -> Option<Currency> {
        if self.limit.tokens.is_some_and(|limit| spend.tokens > limit) {
            return Some(Currency::Tokens);
        }
        self.limit.cost_micro.is_some_and(|limit| spend.cost_micro > limit).then_some(Currency::Money)
    }

    fn outstanding(&self) -> Spend {
        sum(self.out.values().copied())
    }

    fn request(&mut self, call: usize, want: Spend) {
        self.queue.push((call, want, self.now + DEFAULT_MAX_WAIT.as_millis() as u64));
        self.serve();
    }

    fn serve(&mut self) {
        loop {
            let refused =
                self.queue.iter().position(|(_, want, _)| self.exceeded(sum([self.settled, *want])).is_some());
            if let Some(at) = refused {
                let (call, want, _) = self.queue.remove(at);
                self.refused.insert(call, self.exceeded(sum([self.settled, want])).unwrap());
                continue;
            }
            let Some((call, want, _)) = self.queue.first().copied() else { return };
            if self.exceeded(sum([self.settled, self.outstanding(), want])).is_some() {
                return;
            }
            self.queue.remove(0);
            self.out.insert(call, want);
        }
    }

    fn end(&mut self, call: usize, actual: Option<Spend>) {
        let want = self.out.remove(&call).unwrap();
        let actual = actual.unwrap_or(want);
        self.settled = sum([self.settled, actual]);
        self.excess.tokens += actual.tokens.saturating_sub(want.tokens);
        self.excess.cost_micro += actual.cost_micro.saturating_sub(want.cost_micro);
        self.serve();
    }

    fn advance(&mut self, ms: u64) {
        self.now += ms;
        while let Some((call, want, _)) = self.queue.first().copied().filter(|(_, _, until)| *until <= self.now) {
            self.queue.remove(0);
            self.refused.insert(call, self.exceeded(sum([self.settled, self.outstanding(), want])).unwrap());
            self.serve();
        }
    }
}

type CheckResult = Result<(), TestCaseError>;

struct Pair {
    callers: Callers,
    model: [Model; 2],
    roots: BTreeMap<usize, u8>,
    limit: SpendLimit,
}

impl Pair {
    fn new(limit: SpendLimit, bug: Option<BudgetBug>) -> Self {
        let callers = Callers::new(bug);
        callers.budgets.open(0);
        callers.budgets.open(1);
        let model = || Model { limit, ..Model::default() };
        Self { callers, model: [model(), model()], roots: BTreeMap::new(), limit }
    }

    fn model_of(&mut self, call: usize) -> &mut Model {
        &mut self.model[usize::from(self.roots[&call])]
    }

    fn end(&mut self, call: usize, actual: Option<Spend>) {
        // A call that does not run in the model is reported by `assert_equal`.
        if self.model_of(call).out.contains_key(&call) {
            self.model_of(call).end(call, actual);
        }
    }

    async fn step(&mut self, call: usize, step: &BudgetStep) {
        let (waiting, running) = (self.callers.waiting_calls(), self.callers.running_calls());
        let runs = |ix: &prop::sample::Index| (!running.is_empty()).then(|| *ix.get::<usize>(&running));
        match step {
            BudgetStep::Come { root, want } => {
                self.roots.insert(call, *root);
                self.callers.request(call, *root, *want, self.limit);
                self.model_of(call).request(call, *want);
            }
            BudgetStep::Settle(ix, actual) => {
                if let Some(call) = runs(ix) {
                    self.callers.take(call).settle(*actual);
                    self.end(call, Some(*actual));
                }
            }
            BudgetStep::Unknown(ix) => {
                if let Some(call) = runs(ix) {
                    self.callers.take(call).settle_unknown();
                    self.end(call, None);
                }
            }
            BudgetStep::Forgotten(ix) => {
                if let Some(call) = runs(ix) {
                    drop(self.callers.take(call));
                    self.end(call, None);
                }
            }
            BudgetStep::GiveBack(ix) => {
                if let Some(call) = runs(ix) {
                    self.callers.take(call).give_back();
                    self.end(call, Some(Spend::NOTHING));
                }
            }
            BudgetStep::GiveUp(ix) if !waiting.is_empty() => self.give_up(*ix.get::<usize>(&waiting)),
            BudgetStep::GiveUp(_) => {}
            BudgetStep::Pass(ms) => {
                self.callers.advance(*ms).await;
                self.model.iter_mut().for_each(|model| model.advance(*ms));
            }
        }
    }

    /// Drops a waiting call. If it was granted but not polled, its grant returns to the account.
    fn give_up(&mut self, call: usize) {
        self.callers.give_up(call);
        let model = self.model_of(call);
        model.queue.retain(|(waits, ..)| *waits != call);
        model.refused.remove(&call);
        if model.out.contains_key(&call) {
            model.end(call, Some(Spend::NOTHING));
        }
        model.serve();
    }

    fn assert_equal(&mut self) -> CheckResult {
        self.callers.poll_woken();
        let (mut out, mut waits, mut refused) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (root, model) in (0_u8..).zip(&self.model) {
            let budgets = &self.callers.budgets;
            prop_assert_eq!((budgets.settled(root), budgets.outstanding(root)), (model.settled, model.outstanding()));
            prop_assert_eq!(budgets.waiting(root), model.queue.len());
            let used = sum([model.settled, model.outstanding()]);
            let within = |used: u64, excess: u64, limit: Option<u64>| limit.is_none_or(|limit| used <= limit + excess);
            prop_assert!(within(used.tokens, model.excess.tokens, self.limit.tokens), "{used:?}");
            prop_assert!(within(used.cost_micro, model.excess.cost_micro, self.limit.cost_micro), "{used:?}");
            out.extend(model.out.keys().copied());
            waits.extend(model.queue.iter().map(|(call, ..)| *call));
            refused.extend(&model.refused);
        }
        out.sort_unstable();
        waits.sort_unstable();
        prop_assert_eq!(self.callers.running_calls(), out);
        prop_assert_eq!(self.callers.waiting_calls(), waits);
        prop_assert_eq!(&self.callers.refused, &refused);
        Ok(())
    }

    /// Checks that every waiting call starts when the others return their reservations, and that nothing stays reserved.
    fn drain(&mut self) -> CheckResult {
        while let Some(call) = self.callers.running_calls().first().copied() {
            self.callers.take(call).give_back();
            self.end(call, Some(Spend::NOTHING));
            self.assert_equal()?;
        }
        prop_assert_eq!(self.callers.waiting_calls(), Vec::<usize>::new());
        let out = [0, 1].map(|root| self.callers.budgets.outstanding(root));
        prop_assert_eq!(out, [Spend::NOTHING; 2]);
        Ok(())
    }
}

/// Checks all steps. `polls` selects the steps after which woken calls are polled, so that wakes and drops interleave.
fn check_steps(limit: SpendLimit, steps: &[BudgetStep], polls: &[bool], bug: Option<BudgetBug>) -> CheckResult {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut pair = Pair::new(limit, bug);
        for (call, step) in steps.iter().enumerate() {
            pair.step(call, step).await;
            if polls.get(call).copied().unwrap_or(true) {
                pair.assert_equal()?;
            }
        }
        pair.assert_equal()?;
        pair.drain()
    })
}

fn polls() -> impl Strategy<Value = Vec<bool>> {
    prop::collection::vec(prop::bool::weighted(0.6), 80)
}

/// Returns whether the check detects a seeded bug within the cases of the property.
fn is_detected(bug: BudgetBug) -> bool {
    let config = Config { cases: 1_000, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    runner
        .run(&(scenarios(), polls()), |((limit, steps), polls)| check_steps(limit, &steps, &polls, Some(bug)))
        .is_err()
}

#[test]
fn seeded_bugs_are_detected() {
    let bugs = [
        BudgetBug::SettledTwice,
        BudgetBug::DropGivesBack,
        BudgetBug::WakeLost,
        BudgetBug::GrantLost,
        BudgetBug::Overtaken,
        BudgetBug::OutstandingIgnored,
    ];
    assert_eq!(bugs.map(is_detected), [true; 6]);
}

proptest! {
    #![proptest_config(Config { cases: 1_000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn accounts_match_the_naive_model((limit, steps) in scenarios(), polls in polls()) {
        check_steps(limit, &steps, &polls, None)?;
    }
}
