//! Calls that are polled by hand, only when woken and in the order of their wakes.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::super::{BudgetAnswer, Budgets, Currency, Reservation, Spend, SpendLimit, WaitingClaim};
use super::BudgetBug;

#[derive(Default)]
struct Woken {
    calls: Mutex<VecDeque<usize>>,
    notify: Notify,
}

struct CallWaker {
    call: usize,
    woken: Arc<Woken>,
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.woken.calls.lock().unwrap().push_back(self.call);
        self.woken.notify.notify_one();
    }
}

pub(super) fn tokens(tokens: u64) -> Spend {
    Spend { tokens, cost_micro: 0 }
}

pub(super) fn up_to(tokens: u64) -> SpendLimit {
    SpendLimit { tokens: Some(tokens), cost_micro: None }
}

pub(super) struct Callers {
    pub(super) budgets: Budgets<u8>,
    woken: Arc<Woken>,
    pub(super) waiting: BTreeMap<usize, Pin<Box<WaitingClaim<u8>>>>,
    pub(super) running: BTreeMap<usize, Reservation<u8>>,
    pub(super) refused: BTreeMap<usize, Currency>,
    pub(super) started: Vec<usize>,
}

impl Callers {
    pub(super) fn new(bug: Option<BudgetBug>) -> Self {
        let budgets = Budgets::default();
        budgets.shared.state.lock().bug = bug;
        Self {
            budgets,
            woken: Arc::default(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            refused: BTreeMap::new(),
            started: Vec::new(),
        }
    }

    pub(super) fn request(&mut self, call: usize, root: u8, want: Spend, limit: SpendLimit) {
        match self.budgets.ask(root, want, limit) {
            BudgetAnswer::Granted(reservation) => self.started(call, reservation),
            BudgetAnswer::Waits(waiting) => {
                self.waiting.insert(call, Box::pin(waiting));
                self.poll(call);
            }
            BudgetAnswer::Refused(which) => {
                self.refused.insert(call, which);
            }
        }
    }

    pub(super) fn poll(&mut self, call: usize) {
        let Some(waiting) = self.waiting.get_mut(&call) else { return };
        let waker = Waker::from(Arc::new(CallWaker { call, woken: Arc::clone(&self.woken) }));
        let Poll::Ready(ready) = waiting.as_mut().poll(&mut Context::from_waker(&waker)) else { return };
        self.waiting.remove(&call);
        match ready {
            Ok(reservation) => self.started(call, reservation),
            Err(which) => {
                self.refused.insert(call, which);
            }
        }
    }

    fn started(&mut self, call: usize, reservation: Reservation<u8>) {
        self.running.insert(call, reservation);
        self.started.push(call);
    }

    pub(super) fn poll_woken(&mut self) {
        while let Some(call) = { self.woken.calls.lock().unwrap().pop_front() } {
            self.poll(call);
        }
    }

    /// Advances time and polls woken calls at once.
    pub(super) async fn advance(&mut self, ms: u64) {
        let end = Instant::now() + Duration::from_millis(ms);
        let woken = Arc::clone(&self.woken);
        loop {
            self.poll_woken();
            tokio::select! {
                biased;
                () = woken.notify.notified() => {}
                () = sleep_until(end) => break,
            }
        }
        // A timeout may be due exactly at the end.
        for _ in 0..3 {
            tokio::task::yield_now().await;
            self.poll_woken();
        }
    }

    pub(super) fn take(&mut self, call: usize) -> Reservation<u8> {
        self.running.remove(&call).unwrap_or_else(|| panic!("call {call} is not running"))
    }

    pub(super) fn give_up(&mut self, call: usize) {
        drop(self.waiting.remove(&call).unwrap_or_else(|| panic!("call {call} is not waiting")));
    }

    pub(super) fn waiting_calls(&self) -> Vec<usize> {
        self.waiting.keys().copied().collect()
    }

    pub(super) fn running_calls(&self) -> Vec<usize> {
        self.running.keys().copied().collect()
    }
}
