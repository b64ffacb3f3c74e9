use super::super::{Rates, Throttles};
use super::callers::{Callers, LAB, MODEL, OTHER, concurrent_rate, quota, requests, texts, tokens};

#[tokio::test(start_paused = true)]
async fn requests_start_in_a_burst_of_a_tenth_and_then_one_by_one() {
    let mut callers = Callers::with_quotas(&[(LAB, requests(30))]);
    callers.all_enter("a1 a2 a3 a4 a5 b1", &[LAB]);
    callers.advance(60_000).await;
    assert_eq!(callers.started_at(), [("a1", 0), ("a2", 0), ("a3", 0), ("a4", 2_000), ("a5", 4_000), ("b1", 6_000)]);
    callers.finish_all();
    // A pause restores the burst, and not more.
    callers.all_enter("c1 c2 c3 c4", &[LAB]);
    callers.advance(60_000).await;
    assert_eq!(callers.started_at()[6..], [("c1", 60_000), ("c2", 60_000), ("c3", 60_000), ("c4", 62_000)]);
}

#[tokio::test(start_paused = true)]
async fn slow_rate_starts_one_call_at_a_time() {
    let mut callers = Callers::with_quotas(&[(LAB, requests(7))]);
    callers.all_enter("a1 a2 a3", &[LAB]);
    callers.advance(60_000).await;
    // A seventh of a minute is 8,571.4 ms. The call starts in the next millisecond, and the next interval begins there.
    assert_eq!(callers.started_at(), [("a1", 0), ("a2", 8_572), ("a3", 17_144)]);
}

#[tokio::test(start_paused = true)]
async fn every_minute_has_at_most_the_rate_and_a_burst() {
    let mut callers = Callers::with_quotas(&[(LAB, requests(60))]);
    for n in 0..300 {
        callers.enter(&format!("a{n:03}"), &[LAB], 1);
    }
    callers.advance(400_000).await;
    let starts: Vec<u64> = callers.started_at().into_iter().map(|(_, ms)| ms).collect();
    assert_eq!(starts.len(), 300);
    let most = starts.iter().map(|from| starts.iter().filter(|at| (*from..from + 60_000).contains(at)).count()).max();
    assert_eq!(most, Some(65), "expected 6 at once and one per second, so the 66th starts after the minute");
}

#[tokio::test(start_paused = true)]
async fn calls_waiting_for_the_provider_gain_no_burst() {
    let mut callers = Callers::with_quotas(&[(MODEL, requests(20)), (LAB, Rates::unbounded())]);
    callers.throttles.pause(&LAB.into(), 300_000);
    for session in 'a'..='h' {
        callers.enter(&format!("{session}1"), &[MODEL, LAB], 1);
    }
    callers.advance(320_000).await;
    // If the bucket of the model were charged before the provider's permit, all eight calls could start at once.
    assert_eq!(
        callers.started_at(),
        [
            ("a1", 300_000),
            ("b1", 300_000),
            ("c1", 303_000),
            ("d1", 306_000),
            ("e1", 309_000),
            ("f1", 312_000),
            ("g1", 315_000),
            ("h1", 318_000),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn unpolled_calls_gain_no_burst() {
    let mut callers = Callers::with_quotas(&[(LAB, requests(20))]);
    callers.all_enter("a1 a2 a3 a4 a5 a6", &[LAB]);
    callers.advance_unpolled(600_000).await;
    assert_eq!(callers.active_quotas(), [quota(LAB, 2, 4)], "no waiting call may start before it is polled");
    callers.advance(12_000).await;
    assert_eq!(
        callers.started_at(),
        [("a1", 0), ("a2", 0), ("a3", 600_000), ("a4", 600_000), ("a5", 603_000), ("a6", 606_000)]
    );
}

#[tokio::test(start_paused = true)]
async fn tokens_are_charged_by_estimate_and_then_corrected() {
    let mut callers = Callers::with_quotas(&[(LAB, tokens(6_000))]);
    callers.enter("a1", &[LAB], 5_000);
    callers.enter("a2", &[LAB], 2_000);
    assert_eq!(callers.started(), "a1", "1,000 must remain");
    callers.settle("a1", 3_000);
    assert_eq!(callers.started(), "a1 a2", "2,000 must be returned");
    // 1,000 tokens remain, but the call cost 4,000 more than estimated, so the debt is 3,000. The next call requests 1.
    callers.settle("a2", 6_000);
    callers.enter("b1", &[LAB], 1);
    callers.advance(60_000).await;
    assert_eq!(callers.started_at(), [("a1", 0), ("a2", 0), ("b1", 30_010)]);
}

#[tokio::test(start_paused = true)]
async fn dropped_permit_counts_its_estimate() {
    let mut callers = Callers::with_quotas(&[(LAB, tokens(6_000))]);
    callers.enter("a1", &[LAB], 6_000);
    callers.end("a1");
    callers.enter("a2", &[LAB], 600);
    callers.advance(60_000).await;
    assert_eq!(callers.started_at(), [("a1", 0), ("a2", 6_000)]);
}

#[tokio::test(start_paused = true)]
async fn call_above_a_minute_starts_when_the_bucket_is_full() {
    let mut callers = Callers::with_quotas(&[(LAB, tokens(600))]);
    callers.enter("a1", &[LAB], 60);
    callers.enter("a2", &[LAB], 1_200);
    callers.enter("b1", &[LAB], 0);
    callers.advance(120_000).await;
    assert_eq!(callers.started_at(), [("a1", 0), ("a2", 6_000), ("b1", 66_000)]);
}

#[tokio::test(start_paused = true)]
async fn debt_during_a_wait_for_the_provider_delays_calls() {
    let mut callers = Callers::with_quotas(&[(MODEL, tokens(600)), (LAB, concurrent_rate(1))]);
    callers.enter("a1", &[MODEL, LAB], 300);
    // The model has 300 tokens left, and b1 gets the next permit of the provider.
    callers.enter("b1", &[MODEL, LAB], 300);
    callers.enter("c1", &[OTHER, LAB], 300);
    callers.settle("a1", 601);
    assert_eq!(callers.started(), "a1 c1", "the provider must continue with another model");
    callers.end("c1");
    callers.advance(60_000).await;
    assert_eq!(callers.started_at(), [("a1", 0), ("c1", 0), ("b1", 30_100)]);
}

#[tokio::test(start_paused = true)]
async fn limits_of_all_quotas_hold_together() {
    let model = Rates { concurrent: Some(2), requests_per_minute: Some(20), ..Rates::unbounded() };
    let mut callers = Callers::with_quotas(&[(MODEL, model), (LAB, tokens(600))]);
    for name in ["a1", "a2", "a3", "a4"] {
        callers.enter(name, &[MODEL, LAB], 300);
    }
    callers.advance(10_000).await;
    assert_eq!(callers.started(), "a1 a2", "there must be no free permit");
    callers.end("a1");
    callers.end("a2");
    callers.advance(60_000).await;
    assert_eq!(callers.started_at(), [("a1", 0), ("a2", 0), ("a3", 30_000), ("a4", 60_000)]);
}

#[tokio::test(start_paused = true)]
async fn unnamed_quota_has_the_default_unless_provider_is_named() {
    let named = [(LAB.into(), concurrent_rate(3)), ("shop/small".into(), concurrent_rate(1))];
    let mut callers = Callers::of(Throttles::new(concurrent_rate(2), named));
    callers.all_enter("a1 a2 a3 a4", &[MODEL, LAB]);
    callers.all_enter("b1 b2", &["shop/small", "shop"]);
    callers.all_enter("c1 c2", &["shop/large", "shop"]);
    assert_eq!(callers.started(), "a1 a2 a3 b1 c1");
    assert_eq!(
        callers.active_quotas(),
        [
            quota(LAB, 3, 1),
            quota(MODEL, 3, 1),
            quota("shop", 2, 2),
            quota("shop/large", 1, 1),
            quota("shop/small", 1, 1)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn zero_rate_counts_as_one() {
    let none = Rates { concurrent: Some(0), requests_per_minute: Some(0), tokens_per_minute: Some(0) };
    let throttles = Throttles::new(none, []);
    let permit = throttles.enter(&texts(&[LAB]), 9).await;
    assert_eq!(throttles.active_quotas(), [quota(LAB, 1, 0)]);
    drop(permit);
    assert_eq!(
        throttles.active_quotas(),
        [quota(LAB, 0, 0)],
        "an idle quota must stay listed while its bucket is not full"
    );
}
