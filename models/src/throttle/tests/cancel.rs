use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::super::{Permit, Rates, Throttles};
use super::Bug;
use super::callers::{Callers, LAB, MODEL, concurrent_rate, quota, requests, texts, tokens};

#[tokio::test(start_paused = true)]
async fn call_dropped_before_its_first_poll_is_not_counted() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(1))]);
    callers.prepare("a1", &[LAB], 1);
    callers.enter("b1", &[LAB], 1);
    callers.drop_waiting("a1");
    assert_eq!(callers.active_quotas(), [quota(LAB, 1, 0)], "a call that was never polled is counted");
}

#[tokio::test(start_paused = true)]
async fn call_dropped_in_the_queue_frees_its_position() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(1))]);
    callers.all_enter("a1 a2 a3 b1 b2", &[LAB]);
    callers.drop_waiting("a2");
    callers.drop_waiting("b2");
    assert_eq!(callers.active_quotas(), [quota(LAB, 1, 2)]);
    assert_eq!(callers.finish_all(), "a1 a3 b1");
    assert_eq!(callers.active_quotas(), []);
}

#[tokio::test(start_paused = true)]
async fn call_dropped_in_the_queue_of_its_model_leaves_no_trace() {
    let mut callers = Callers::with_quotas(&[(MODEL, requests(60))]);
    callers.throttles.pause(&MODEL.into(), 1_000);
    callers.all_enter("a1", &[MODEL, LAB]);
    callers.drop_waiting("a1");
    callers.advance(1_000).await;
    assert_eq!(callers.active_quotas(), []);
}

#[tokio::test(start_paused = true)]
async fn call_dropped_at_the_head_of_the_queue_lets_others_start() {
    let mut callers = Callers::with_quotas(&[(LAB, tokens(600))]);
    callers.enter("a1", &[LAB], 500);
    callers.enter("b1", &[LAB], 600);
    callers.enter("c1", &[LAB], 100);
    assert_eq!(callers.started(), "a1");
    callers.drop_waiting("b1");
    callers.poll_woken();
    assert_eq!(callers.started(), "a1 c1");
}

/// Drops a call after it was granted and before it is polled. Returns the started calls.
fn drop_granted_call(bug: Option<Bug>) -> String {
    let mut callers = Callers::with_quotas(&[(MODEL, concurrent_rate(1)), (LAB, concurrent_rate(1))]).with_bug(bug);
    callers.all_enter("a1 b1 c1", &[MODEL, LAB]);
    callers.end_unpolled("a1");
    callers.drop_waiting("b1");
    callers.finish_all()
}

#[tokio::test(start_paused = true)]
async fn drop_of_a_granted_call_grants_the_next_one() {
    assert_eq!(drop_granted_call(None), "a1 c1");
    assert_eq!(drop_granted_call(Some(Bug::TicketLost)), "a1", "the control: the check must find the bug");
}

#[tokio::test(start_paused = true)]
async fn granted_call_dropped_before_its_poll_costs_nothing() {
    let rates = Rates { concurrent: Some(1), tokens_per_minute: Some(60), ..requests(10) };
    let mut callers = Callers::with_quotas(&[(LAB, rates)]);
    callers.enter("a1", &[LAB], 60);
    callers.settle("a1", 0);
    callers.enter("b1", &[LAB], 60);
    callers.enter("c1", &[LAB], 60);
    callers.advance_unpolled(6_000).await;
    callers.drop_waiting("b1");
    callers.poll_woken();
    assert_eq!(callers.started_at(), [("a1", 0), ("c1", 6_000)]);
}

#[tokio::test(start_paused = true)]
async fn drop_of_a_started_call_returns_its_permits() {
    let throttles = Throttles::new(concurrent_rate(1), []);
    let quotas = texts(&[MODEL, LAB]);
    let call = async {
        let _pass = throttles.enter(&quotas, 1).await;
        std::future::pending::<()>().await;
    };
    let mut call = Box::pin(call);
    assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(throttles.active_quotas(), [quota(LAB, 1, 0), quota(MODEL, 1, 0)]);
    drop(call);
    assert_eq!(throttles.active_quotas(), []);
}

#[tokio::test(start_paused = true)]
async fn granted_call_stopped_by_a_pause_can_be_dropped() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(1))]);
    callers.all_enter("a1 b1 c1", &[LAB]);
    callers.end_unpolled("a1");
    callers.throttles.pause(&LAB.into(), 1_000);
    callers.poll_woken();
    callers.drop_waiting("b1");
    callers.advance(1_000).await;
    assert_eq!(callers.started_at(), [("a1", 0), ("c1", 1_000)]);
    assert_eq!(callers.finish_all(), "a1 c1");
    assert_eq!(callers.active_quotas(), []);
}

#[tokio::test(start_paused = true)]
async fn call_can_be_dropped_after_the_close() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(1))]);
    callers.all_enter("a1 b1", &[LAB]);
    callers.throttles.close();
    callers.drop_waiting("b1");
    callers.end("a1");
    assert_eq!(callers.active_quotas(), []);
}

/// Holds a permit, like the waker of a task whose future holds one.
struct Holder(#[expect(dead_code, reason = "the holder drops it")] Permit);

impl Wake for Holder {
    fn wake(self: Arc<Self>) {}
}

#[tokio::test(start_paused = true)]
async fn dropped_waker_may_call_the_rate_limiter() {
    let throttles = Throttles::new(concurrent_rate(1), []);
    let (shop, lab) = (texts(&["shop"]), texts(&[LAB]));
    let first = throttles.enter(&lab, 1).await;
    let mut call = Box::pin(throttles.enter(&lab, 1));
    for polls in 1..=2 {
        let waker = Waker::from(Arc::new(Holder(throttles.enter(&shop, 1).await)));
        // From the second poll on, this replaces the previous waker, and the drop of that waker returns its permit.
        assert!(matches!(call.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending), "poll {polls}");
        drop(waker);
        if polls == 1 {
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
    }
    drop(call);
    drop(first);
    assert_eq!(throttles.active_quotas(), []);
}
