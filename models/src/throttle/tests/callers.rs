//! Calls that tests poll by hand, only after a wake-up and in the order of wake-ups.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use subtend_session::ids::Text;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::{Permit, QuotaUsage, Rates, Throttles};
use super::Bug;

pub(super) const MODEL: &str = "lab/model";
pub(super) const OTHER: &str = "lab/other";
pub(super) const LAB: &str = "lab";

#[derive(Default)]
struct Woken {
    names: Mutex<VecDeque<String>>,
    bell: Notify,
}

struct Bell {
    name: String,
    woken: Arc<Woken>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.woken.names.lock().unwrap().push_back(self.name.clone());
        self.woken.bell.notify_one();
    }
}

pub(super) struct Callers {
    pub(super) throttles: Throttles,
    started_clock: Instant,
    woken: Arc<Woken>,
    waiting: BTreeMap<String, Pin<Box<dyn Future<Output = Permit> + Send>>>,
    running: BTreeMap<String, Permit>,
    started: Vec<(String, u64)>,
}

pub(super) fn texts(names: &[&str]) -> Vec<Text> {
    names.iter().map(|name| Text::from(*name)).collect()
}

pub(super) fn concurrent_rate(concurrent: u32) -> Rates {
    Rates { concurrent: Some(concurrent), ..Rates::unbounded() }
}

pub(super) fn requests(per_minute: u32) -> Rates {
    Rates { requests_per_minute: Some(per_minute), ..Rates::unbounded() }
}

pub(super) fn tokens(per_minute: u64) -> Rates {
    Rates { tokens_per_minute: Some(per_minute), ..Rates::unbounded() }
}

/// Returns a quota without a pause.
pub(super) fn quota(name: &str, running: u32, waiting: usize) -> QuotaUsage {
    QuotaUsage { name: name.into(), running, waiting, paused_ms: None }
}

impl Callers {
    pub(super) fn of(throttles: Throttles) -> Self {
        Self {
            throttles,
            started_clock: Instant::now(),
            woken: Arc::default(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            started: Vec::new(),
        }
    }

    pub(super) fn with_quotas(named: &[(&str, Rates)]) -> Self {
        let named = named.iter().map(|(name, rates)| (Text::from(*name), *rates));
        Self::of(Throttles::new(Rates::unbounded(), named))
    }

    pub(super) fn with_bug(self, bug: Option<Bug>) -> Self {
        self.throttles.shared.with_limiter(|limiter, _| limiter.bug = bug);
        self
    }

    pub(super) fn prepare(&mut self, name: &str, quotas: &[&str], tokens: u64) {
        let (throttles, quotas) = (self.throttles.clone(), texts(quotas));
        let future = Box::pin(async move { throttles.enter(&quotas, tokens).await });
        assert!(self.waiting.insert(name.to_owned(), future).is_none(), "{name} waits already");
    }

    pub(super) fn enter(&mut self, name: &str, quotas: &[&str], tokens: u64) {
        self.prepare(name, quotas, tokens);
        self.poll(name);
    }

    pub(super) fn all_enter(&mut self, names: &str, quotas: &[&str]) {
        for name in names.split_whitespace() {
            self.enter(name, quotas, 1);
        }
    }

    pub(super) fn poll(&mut self, name: &str) {
        let Some(future) = self.waiting.get_mut(name) else { return };
        let waker = Waker::from(Arc::new(Bell { name: name.to_owned(), woken: Arc::clone(&self.woken) }));
        if let Poll::Ready(pass) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.waiting.remove(name);
            self.running.insert(name.to_owned(), pass);
            self.started.push((name.to_owned(), self.now_ms()));
        }
    }

    pub(super) fn poll_woken(&mut self) {
        while let Some(name) = { self.woken.names.lock().unwrap().pop_front() } {
            self.poll(&name);
        }
    }

    /// Advances time, and polls woken calls immediately.
    pub(super) async fn advance(&mut self, ms: u64) {
        let end = Instant::now() + Duration::from_millis(ms);
        let woken = Arc::clone(&self.woken);
        loop {
            self.poll_woken();
            tokio::select! {
                biased;
                () = woken.bell.notified() => {}
                () = sleep_until(end) => break,
            }
        }
        // The timer may expire exactly at the end.
        for _ in 0..3 {
            tokio::task::yield_now().await;
            self.poll_woken();
        }
    }

    pub(super) async fn advance_unpolled(&self, ms: u64) {
        sleep(Duration::from_millis(ms)).await;
    }

    pub(super) fn end(&mut self, name: &str) {
        self.end_unpolled(name);
        self.poll_woken();
    }

    pub(super) fn end_unpolled(&mut self, name: &str) {
        drop(self.running.remove(name).unwrap_or_else(|| panic!("{name} does not run")));
    }

    pub(super) fn settle(&mut self, name: &str, tokens: u64) {
        self.running.remove(name).unwrap_or_else(|| panic!("{name} does not run")).settle(tokens);
        self.poll_woken();
    }

    pub(super) fn drop_waiting(&mut self, name: &str) {
        drop(self.waiting.remove(name).unwrap_or_else(|| panic!("{name} does not wait")));
    }

    /// Ends calls in the order of their starts until none waits, and returns the started ones.
    pub(super) fn finish_all(&mut self) -> String {
        self.poll_woken();
        while let Some(name) = self.started.iter().map(|(name, _)| name).find(|name| self.running.contains_key(*name)) {
            let name = name.clone();
            self.end(&name);
        }
        self.started()
    }

    pub(super) fn started(&self) -> String {
        self.started.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn started_at(&self) -> Vec<(&str, u64)> {
        self.started.iter().map(|(name, ms)| (name.as_str(), *ms)).collect()
    }

    pub(super) fn waiting(&self) -> Vec<String> {
        self.waiting.keys().cloned().collect()
    }

    pub(super) fn running(&self) -> Vec<String> {
        self.running.keys().cloned().collect()
    }

    pub(super) fn active_quotas(&self) -> Vec<QuotaUsage> {
        self.throttles.active_quotas()
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.started_clock.elapsed().as_millis()).unwrap()
    }
}
