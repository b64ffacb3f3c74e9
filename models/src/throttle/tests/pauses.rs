use super::super::QuotaUsage;
use super::callers::{Callers, LAB, MODEL, OTHER, concurrent_rate, quota};

fn paused(name: &str, running: u32, waiting: usize, ms: u64) -> QuotaUsage {
    QuotaUsage { paused_ms: Some(ms), ..quota(name, running, waiting) }
}

#[tokio::test(start_paused = true)]
async fn calls_start_only_after_the_pause() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(2))]);
    callers.all_enter("a1", &[LAB]);
    callers.throttles.pause(&LAB.into(), 1_500);
    callers.all_enter("a2 b1", &[LAB]);
    assert_eq!(callers.active_quotas(), [paused(LAB, 1, 2, 1_500)], "the pause affected a running call");
    callers.end("a1");
    callers.advance(1_499).await;
    assert_eq!(callers.throttles.paused_ms(&LAB.into()), Some(1));
    assert_eq!(callers.started(), "a1");
    callers.advance(1).await;
    assert_eq!(callers.started_at(), [("a1", 0), ("a2", 1_500), ("b1", 1_500)]);
    assert_eq!(callers.throttles.paused_ms(&LAB.into()), None);
}

#[tokio::test(start_paused = true)]
async fn longer_of_two_pauses_counts() {
    let mut callers = Callers::with_quotas(&[]);
    callers.throttles.pause(&LAB.into(), 2_000);
    callers.throttles.pause(&LAB.into(), 1_000);
    callers.all_enter("a1", &[LAB]);
    callers.advance(500).await;
    callers.throttles.pause(&LAB.into(), 3_000);
    callers.throttles.pause(&LAB.into(), 0);
    assert_eq!(callers.active_quotas(), [paused(LAB, 0, 1, 3_000)]);
    callers.advance(10_000).await;
    assert_eq!(callers.started_at(), [("a1", 3_500)]);
}

#[tokio::test(start_paused = true)]
async fn granted_call_does_not_start_during_a_pause() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(1))]);
    callers.all_enter("a1 a2 b1", &[LAB]);
    callers.end_unpolled("a1");
    callers.throttles.pause(&LAB.into(), 1_000);
    callers.poll_woken();
    assert_eq!(callers.started(), "a1");
    assert_eq!(callers.active_quotas(), [paused(LAB, 0, 2, 1_000)]);
    callers.advance(1_000).await;
    assert_eq!(callers.finish_all(), "a1 a2 b1", "the call lost its turn");
}

#[tokio::test(start_paused = true)]
async fn paused_model_does_not_delay_its_provider() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(1)), (MODEL, concurrent_rate(1))]);
    callers.all_enter("a1", &[OTHER, LAB]);
    callers.all_enter("b1", &[MODEL, LAB]);
    callers.all_enter("c1 c2", &[OTHER, LAB]);
    callers.throttles.pause(&MODEL.into(), 5_000);
    callers.end("a1");
    assert_eq!(callers.started(), "a1 c1");
    assert_eq!(callers.active_quotas(), [quota(LAB, 1, 2), paused(MODEL, 0, 1, 5_000), quota(OTHER, 1, 1)]);
    callers.advance(5_000).await;
    callers.end("c1");
    assert_eq!(callers.finish_all(), "a1 c1 b1 c2", "the call lost its position");
}

#[tokio::test(start_paused = true)]
async fn paused_provider_delays_only_its_models() {
    let mut callers = Callers::with_quotas(&[]);
    callers.throttles.pause(&LAB.into(), 1_000);
    callers.all_enter("a1", &[MODEL, LAB]);
    callers.all_enter("b1", &[OTHER, LAB]);
    callers.all_enter("c1", &["shop/small", "shop"]);
    callers.advance(2_000).await;
    assert_eq!(callers.started_at(), [("c1", 0), ("a1", 1_000), ("b1", 1_000)]);
}

#[tokio::test(start_paused = true)]
async fn absurd_pause_does_not_overflow_the_clock() {
    let mut callers = Callers::with_quotas(&[]);
    callers.throttles.pause(&LAB.into(), u64::MAX);
    let year = 365 * 24 * 60 * 60 * 1_000;
    assert_eq!(callers.throttles.paused_ms(&LAB.into()), Some(year));
    callers.all_enter("a1", &[LAB]);
    callers.advance(year).await;
    assert_eq!(callers.started_at(), [("a1", year)]);
}
