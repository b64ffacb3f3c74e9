//! Metrics for operators, in the text format of Prometheus.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use subtend_actors::Counters;
use subtend_session::ids::Lsn;

use crate::host::Host;
use crate::problem::Problem;

/// Upper bounds of request times, in seconds.
const TIME_BUCKETS: [f64; 10] = [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    /// The route and not the path, because paths contain session ids.
    resource: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RunLabels {
    outcome: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuotaLabels {
    /// A provider or a model.
    quota: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AttemptLabels {
    reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    kind: &'static str,
}

pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    seconds: Histogram,
    streams: Gauge<i64, AtomicI64>,
    sessions: Gauge,
    slots: Gauge,
    slots_awaited: Gauge,
    queued_inputs: Gauge,
    runs: Family<Phase, Gauge>,
    ended: Family<RunLabels, Counter>,
    turns: Counter<u64, AtomicU64>,
    tokens: Family<TokenLabels, Counter>,
    model_calls: Family<QuotaLabels, Gauge>,
    failed_attempts: Family<AttemptLabels, Counter>,
    recovered: Family<Phase, Gauge>,
    recovery_seconds: Gauge<f64, AtomicU64>,
    appended: Gauge,
    durable: Gauge,
    syncs: Gauge,
    commit_seconds: Gauge<f64, AtomicU64>,
    remote_calls: Family<Phase, Gauge>,
    leases_lost: Gauge,
}

/// Counts an event stream while it exists.
pub(crate) struct Streaming(Gauge<i64, AtomicI64>);

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("subtend");
        let new = Self {
            registry: Mutex::default(),
            requests: Family::default(),
            seconds: Histogram::new(TIME_BUCKETS),
            streams: Gauge::default(),
            sessions: Gauge::default(),
            slots: Gauge::default(),
            slots_awaited: Gauge::default(),
            queued_inputs: Gauge::default(),
            runs: Family::default(),
            ended: Family::default(),
            turns: Counter::default(),
            tokens: Family::default(),
            model_calls: Family::default(),
            failed_attempts: Family::default(),
            recovered: Family::default(),
            recovery_seconds: Gauge::default(),
            appended: Gauge::default(),
            durable: Gauge::default(),
            syncs: Gauge::default(),
            commit_seconds: Gauge::default(),
            remote_calls: Family::default(),
            leases_lost: Gauge::default(),
        };
        registry.register("http_requests", "Requests, by resource and status", new.requests.clone());
        registry.register("http_request_seconds", "Time to the head of a response", new.seconds.clone());
        registry.register("event_streams", "Event streams that are open", new.streams.clone());
        registry.register("sessions_in_memory", "Sessions with state in memory", new.sessions.clone());
        registry.register("slots_in_use", "Runs that hold a slot", new.slots.clone());
        registry.register("slots_awaited", "Requests that wait for a slot", new.slots_awaited.clone());
        let queued = "Queued inputs of sessions that were in memory since the start";
        registry.register("queued_inputs", queued, new.queued_inputs.clone());
        registry.register("runs", "Runs in flight, by state", new.runs.clone());
        registry.register("runs_ended", "Runs that ended since the start, by outcome", new.ended.clone());
        registry.register("turns", "Model calls that were answered since the start", new.turns.clone());
        registry.register("tokens", "Tokens of answered model calls since the start, by kind", new.tokens.clone());
        let calls = "Model calls that run or wait for a permit or a rate limit, by quota";
        registry.register("model_calls", calls, new.model_calls.clone());
        let failed = "Attempts of model calls that failed since the start, by reason";
        registry.register("model_attempts_failed", failed, new.failed_attempts.clone());
        let recovered = "Runs of an earlier process that this start ended as lost or resumed";
        registry.register("recovered_runs", recovered, new.recovered.clone());
        registry.register("recovery_seconds", "Time that the recovery at the start took", new.recovery_seconds.clone());
        registry.register("journal_appended_lsn", "The last frame that was appended", new.appended.clone());
        registry.register("journal_durable_lsn", "The last frame that is durable", new.durable.clone());
        registry.register("journal_syncs", "Syncs of the store since it was opened", new.syncs.clone());
        registry.register("remote_calls", "Calls of remote tools that wait or run, by state", new.remote_calls.clone());
        registry.register("leases_lost", "Leases of workers that ran out since the start", new.leases_lost.clone());
        let seconds =
            "Total seconds of syncs of the store: divided by journal_syncs, the mean time from append to durable";
        registry.register("journal_sync_seconds", seconds, new.commit_seconds.clone());
        Self { registry: Mutex::new(registry), ..new }
    }

    /// Counts an event stream until the value is dropped.
    pub(crate) fn count_stream(&self) -> Streaming {
        self.streams.inc();
        Streaming(self.streams.clone())
    }

    /// Returns whether an event stream is open.
    pub(crate) fn is_streaming(&self) -> bool {
        self.streams.get() > 0
    }

    /// Returns all metrics, with current values of gauges.
    ///
    /// # Errors
    /// [`Problem`] if the journal cannot be read.
    pub(crate) fn render(&self, host: &Host) -> Result<String, Problem> {
        let (runtime, gauge) = (host.runtime(), |n: usize| i64::try_from(n).unwrap_or(i64::MAX));
        let lsn = |at: Lsn| i64::try_from(at.0).unwrap_or(i64::MAX);
        self.sessions.set(gauge(runtime.loaded_sessions()));
        self.slots.set(gauge(runtime.slots_in_use()));
        self.slots_awaited.set(gauge(runtime.slot_demand().iter().map(|(_, awaited)| *awaited).sum()));
        self.queued_inputs.set(gauge(runtime.queued_inputs()));
        self.appended.set(lsn(runtime.journal().last_appended()));
        self.durable.set(lsn(runtime.journal().durable()));
        self.syncs.set(i64::try_from(runtime.journal().info().syncs).unwrap_or(i64::MAX));
        let commits = Duration::from_micros(runtime.journal().info().commit_us);
        self.commit_seconds.set(commits.as_secs_f64());
        let workers = host.workers().metrics();
        for (state, calls) in workers.calls {
            self.remote_calls.get_or_create(&Phase { state: state.to_owned() }).set(gauge(calls));
        }
        let boot = runtime.boot();
        for (state, runs) in [("lost", boot.swept), ("resumed", boot.resumed)] {
            self.recovered.get_or_create(&Phase { state: state.to_owned() }).set(gauge(runs));
        }
        self.recovery_seconds.set(Duration::from_millis(boot.took_ms).as_secs_f64());
        self.leases_lost.set(i64::try_from(workers.lost).unwrap_or(i64::MAX));
        let inflight = runtime.journal().inflight()?;
        let mut text = String::new();
        // Hold the lock, so that concurrent requests neither count a run twice nor set a counter back.
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        self.set_counters(&runtime.counters());
        self.runs.clear();
        self.model_calls.clear();
        for quota in runtime.quotas() {
            let running = usize::try_from(quota.running).unwrap_or(usize::MAX);
            for (state, calls) in [("running", running), ("waiting", quota.waiting)] {
                self.model_calls.get_or_create(&QuotaLabels { quota: quota.name.to_string(), state }).set(gauge(calls));
            }
        }
        for (_, row) in inflight {
            let state = json_name(&row.state);
            self.runs.get_or_create(&Phase { state }).inc();
        }
        encode(&mut text, &registry).map_err(|error| {
            Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "internal",
                format!("the metrics cannot be written: {error}"),
            )
        })?;
        Ok(text)
    }

    fn set_counters(&self, counters: &Counters) {
        // The library's counters can only be incremented, but the runtime returns totals.
        let set = |counter: &Counter, count| counter.inner().store(count, Ordering::Relaxed);
        set(&self.turns, counters.turns());
        let of = counters.usage();
        let kinds = [
            ("input", of.input),
            ("output", of.output),
            ("reasoning", of.reasoning),
            ("cache_new", of.cache_new),
            ("cache_read", of.cache_read),
        ];
        for (kind, tokens) in kinds.into_iter().filter(|(_, tokens)| *tokens > 0) {
            set(&self.tokens.get_or_create(&TokenLabels { kind }), tokens);
        }
        for (error, attempts) in counters.failed_attempts().filter(|(_, attempts)| *attempts > 0) {
            set(&self.failed_attempts.get_or_create(&AttemptLabels { reason: json_name(&error) }), attempts);
        }
        for (outcome, runs) in counters.ended_runs().filter(|(_, runs)| *runs > 0) {
            set(&self.ended.get_or_create(&RunLabels { outcome: outcome.as_str().to_owned() }), runs);
        }
    }
}

fn json_name(of: &impl serde::Serialize) -> String {
    match serde_json::to_value(of) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(_) | Err(_) => "unknown".to_owned(),
    }
}

/// Counts a request and measures the time until the head of its response.
pub(crate) async fn measure(State(host): State<Host>, request: Request, next: Next) -> Response {
    let from = tokio::time::Instant::now();
    // Unknown methods share one series, so that clients cannot create any number of series.
    let method = match request.method().as_str() {
        method @ ("GET" | "HEAD" | "POST" | "PATCH" | "DELETE") => method.to_owned(),
        _ => "other".to_owned(),
    };
    let resource = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    let metrics = host.metrics();
    metrics.seconds.observe(from.elapsed().as_secs_f64());
    metrics.requests.get_or_create(&RequestLabels { method, resource, status: response.status().as_u16() }).inc();
    response
}

/// The registry does not implement `Debug`.
impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
