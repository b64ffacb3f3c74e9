use super::Bug;
use super::callers::{Callers, LAB, MODEL, OTHER, concurrent_rate, quota, tokens};

fn order(bug: Option<Bug>) -> String {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(1))]).with_bug(bug);
    callers.all_enter("a b c d e", &[LAB]);
    callers.finish_all()
}

#[tokio::test(start_paused = true)]
async fn calls_start_in_order_of_arrival() {
    assert_eq!(order(None), "a b c d e");
    assert_eq!(order(Some(Bug::Unfair)), "a e d c b", "the control: the check must find the bug");
}

#[tokio::test(start_paused = true)]
async fn returning_session_waits_behind_all() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(1))]);
    callers.all_enter("a1 b1 c1", &[LAB]);
    callers.end("a1");
    callers.enter("a2", &[LAB], 1);
    assert_eq!(callers.finish_all(), "a1 b1 c1 a2");
}

#[tokio::test(start_paused = true)]
async fn several_permits_are_given_in_order() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(3))]);
    callers.all_enter("a b c d e f", &[LAB]);
    assert_eq!(callers.active_quotas(), [quota(LAB, 3, 3)]);
    assert_eq!(callers.finish_all(), "a b c d e f");
    assert_eq!(callers.active_quotas(), []);
}

#[tokio::test(start_paused = true)]
async fn provider_serves_its_models_in_order() {
    let mut callers =
        Callers::with_quotas(&[(LAB, concurrent_rate(1)), (MODEL, concurrent_rate(4)), (OTHER, concurrent_rate(4))]);
    callers.all_enter("a b", &[MODEL, LAB]);
    callers.all_enter("c", &[OTHER, LAB]);
    callers.all_enter("d", &[MODEL, LAB]);
    callers.all_enter("e f", &[OTHER, LAB]);
    assert_eq!(callers.finish_all(), "a b c d e f");
}

#[tokio::test(start_paused = true)]
async fn call_waiting_for_its_provider_holds_no_model_permit() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(1)), (MODEL, concurrent_rate(1))]);
    callers.all_enter("a", &[OTHER, LAB]);
    callers.all_enter("b", &[MODEL, LAB]);
    callers.all_enter("c", &[MODEL]);
    assert_eq!(callers.started(), "a c");
    assert_eq!(callers.finish_all(), "a c b");
}

#[tokio::test(start_paused = true)]
async fn call_that_waits_for_its_model_delays_only_that_model() {
    let one = concurrent_rate(1);
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(2)), (MODEL, one), (OTHER, one)]);
    callers.all_enter("a1 b1", &[MODEL, LAB]);
    callers.all_enter("a2 b2", &[OTHER, LAB]);
    assert_eq!(callers.started(), "a1 a2", "the second permit of the provider was kept for b1");
    callers.end("a1");
    assert_eq!(callers.finish_all(), "a1 a2 b1 b2");
}

#[tokio::test(start_paused = true)]
async fn large_call_is_not_starved() {
    let mut callers = Callers::with_quotas(&[(LAB, tokens(600))]);
    callers.enter("a", &[LAB], 600);
    callers.enter("b", &[MODEL, LAB], 600);
    callers.enter("c", &[LAB], 1);
    callers.enter("d", &[OTHER, LAB], 1);
    callers.advance(120_000).await;
    assert_eq!(callers.started_at(), [("a", 0), ("b", 60_000), ("c", 60_100), ("d", 60_200)]);
}

#[tokio::test(start_paused = true)]
async fn calls_of_other_providers_do_not_wait() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(1)), ("shop", concurrent_rate(1))]);
    callers.all_enter("a b", &["shop"]);
    callers.all_enter("c", &[LAB]);
    assert_eq!(callers.started(), "a c");
}

#[tokio::test(start_paused = true)]
async fn permit_goes_to_another_model_while_one_is_paused() {
    let mut callers = Callers::with_quotas(&[(LAB, tokens(600))]);
    callers.enter("a", &[LAB], 600);
    callers.enter("b", &[MODEL, LAB], 600);
    callers.enter("c", &[OTHER, LAB], 100);
    callers.advance(20_000).await;
    assert_eq!(callers.started(), "a", "b must keep the provider's permit");
    callers.throttles.pause(&MODEL.into(), 300_000);
    callers.poll_woken();
    assert_eq!(callers.started_at(), [("a", 0), ("c", 20_000)]);
}
