//! Calls that are polled by hand: only when they were woken, and in that order.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use subtend_session::ids::Text;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::{Pass, QuotaSeen, Rates, Throttles};
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

/// Calls by name.
pub(super) struct Callers {
    pub(super) throttles: Throttles,
    born: Instant,
    woken: Arc<Woken>,
    waiting: BTreeMap<String, Pin<Box<dyn Future<Output = Pass> + Send>>>,
    running: BTreeMap<String, Pass>,
    started: Vec<(String, u64)>,
}

pub(super) fn texts(names: &[&str]) -> Vec<Text> {
    names.iter().map(|name| Text::from(*name)).collect()
}

/// So many at a time, and no other bound.
pub(super) fn at_once(concurrent: u32) -> Rates {
    Rates { concurrent: Some(concurrent), ..Rates::unbounded() }
}

/// So many requests a minute, and no other bound.
pub(super) fn requests(per_minute: u32) -> Rates {
    Rates { requests_per_minute: Some(per_minute), ..Rates::unbounded() }
}

/// So many tokens a minute, and no other bound.
pub(super) fn tokens(per_minute: u64) -> Rates {
    Rates { tokens_per_minute: Some(per_minute), ..Rates::unbounded() }
}

/// A quota that nothing rests in.
pub(super) fn quota(name: &str, running: u32, waiting: usize) -> QuotaSeen {
    QuotaSeen { name: name.into(), running, waiting, cooling_ms: None }
}

impl Callers {
    pub(super) fn of(throttles: Throttles) -> Self {
        Self {
            throttles,
            born: Instant::now(),
            woken: Arc::default(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            started: Vec::new(),
        }
    }

    /// With these quotas, and no bounds on others.
    pub(super) fn under(named: &[(&str, Rates)]) -> Self {
        let named = named.iter().map(|(name, rates)| (Text::from(*name), *rates));
        Self::of(Throttles::new(Rates::unbounded(), named))
    }

    pub(super) fn with_bug(self, bug: Option<Bug>) -> Self {
        self.throttles.0.at_desk(|desk, _| desk.bug = bug);
        self
    }

    /// A call that is not polled yet.
    pub(super) fn prepare(&mut self, name: &str, quotas: &[&str], tokens: u64) {
        let (throttles, quotas) = (self.throttles.clone(), texts(quotas));
        let future = Box::pin(async move { throttles.enter(&quotas, tokens).await });
        assert!(self.waiting.insert(name.to_owned(), future).is_none(), "{name} waits already");
    }

    /// A call comes.
    pub(super) fn come(&mut self, name: &str, quotas: &[&str], tokens: u64) {
        self.prepare(name, quotas, tokens);
        self.poll(name);
    }

    /// Calls come, that cost a token each.
    pub(super) fn all_come(&mut self, names: &str, quotas: &[&str]) {
        for name in names.split_whitespace() {
            self.come(name, quotas, 1);
        }
    }

    /// Polls one call, whether it was woken or not.
    pub(super) fn poll(&mut self, name: &str) {
        let Some(future) = self.waiting.get_mut(name) else { return };
        let waker = Waker::from(Arc::new(Bell { name: name.to_owned(), woken: Arc::clone(&self.woken) }));
        if let Poll::Ready(pass) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.waiting.remove(name);
            self.running.insert(name.to_owned(), pass);
            self.started.push((name.to_owned(), self.now_ms()));
        }
    }

    /// Polls whoever was woken.
    pub(super) fn poll_woken(&mut self) {
        while let Some(name) = { self.woken.names.lock().unwrap().pop_front() } {
            self.poll(&name);
        }
    }

    /// Lets time pass; whoever is woken is polled at once.
    pub(super) async fn pass(&mut self, ms: u64) {
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
        // The timer may be due at the very end, after the one who waits here.
        for _ in 0..3 {
            tokio::task::yield_now().await;
            self.poll_woken();
        }
    }

    /// Lets time pass; nobody is polled.
    pub(super) async fn pass_unpolled(&self, ms: u64) {
        sleep(Duration::from_millis(ms)).await;
    }

    /// A call that runs ends.
    pub(super) fn end(&mut self, name: &str) {
        self.end_unpolled(name);
        self.poll_woken();
    }

    pub(super) fn end_unpolled(&mut self, name: &str) {
        drop(self.running.remove(name).unwrap_or_else(|| panic!("{name} does not run")));
    }

    /// A call that runs ends and tells what it cost.
    pub(super) fn settle(&mut self, name: &str, tokens: u64) {
        self.running.remove(name).unwrap_or_else(|| panic!("{name} does not run")).settle(tokens);
        self.poll_woken();
    }

    /// The future of a call that waits is dropped.
    pub(super) fn give_up(&mut self, name: &str) {
        drop(self.waiting.remove(name).unwrap_or_else(|| panic!("{name} does not wait")));
    }

    /// Ends calls in the order of their starts until nobody waits, and says who started.
    pub(super) fn run_dry(&mut self) -> String {
        self.poll_woken();
        while let Some(name) = self.started.iter().map(|(name, _)| name).find(|name| self.running.contains_key(*name)) {
            let name = name.clone();
            self.end(&name);
        }
        self.started()
    }

    /// Who started, in that order.
    pub(super) fn started(&self) -> String {
        self.started.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// Who started when, in milliseconds.
    pub(super) fn started_at(&self) -> Vec<(&str, u64)> {
        self.started.iter().map(|(name, ms)| (name.as_str(), *ms)).collect()
    }

    pub(super) fn waiting(&self) -> Vec<String> {
        self.waiting.keys().cloned().collect()
    }

    pub(super) fn running(&self) -> Vec<String> {
        self.running.keys().cloned().collect()
    }

    pub(super) fn seen(&self) -> Vec<QuotaSeen> {
        self.throttles.seen()
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap()
    }
}
