//! FIFO order.

use super::Bug;
use super::callers::{Callers, LAB, MODEL, OTHER, at_once, quota, tokens};

fn order(bug: Option<Bug>) -> String {
    let mut callers = Callers::under(&[(LAB, at_once(1))]).with_bug(bug);
    callers.all_come("a b c d e", &[LAB]);
    callers.run_dry()
}

#[tokio::test(start_paused = true)]
async fn calls_start_in_the_order_of_arrival() {
    assert_eq!(order(None), "a b c d e");
    assert_eq!(order(Some(Bug::Unfair)), "a e d c b", "the control: the check would notice");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_comes_back_waits_behind_all() {
    let mut callers = Callers::under(&[(LAB, at_once(1))]);
    callers.all_come("a1 b1 c1", &[LAB]);
    callers.end("a1");
    callers.come("a2", &[LAB], 1);
    assert_eq!(callers.run_dry(), "a1 b1 c1 a2");
}

#[tokio::test(start_paused = true)]
async fn several_permits_are_given_in_order() {
    let mut callers = Callers::under(&[(LAB, at_once(3))]);
    callers.all_come("a b c d e f", &[LAB]);
    assert_eq!(callers.seen(), [quota(LAB, 3, 3)]);
    assert_eq!(callers.run_dry(), "a b c d e f");
    assert_eq!(callers.seen(), []);
}

#[tokio::test(start_paused = true)]
async fn a_provider_serves_its_models_in_order() {
    let mut callers = Callers::under(&[(LAB, at_once(1)), (MODEL, at_once(4)), (OTHER, at_once(4))]);
    callers.all_come("a b", &[MODEL, LAB]);
    callers.all_come("c", &[OTHER, LAB]);
    callers.all_come("d", &[MODEL, LAB]);
    callers.all_come("e f", &[OTHER, LAB]);
    assert_eq!(callers.run_dry(), "a b c d e f");
}

#[tokio::test(start_paused = true)]
async fn call_waiting_for_its_provider_holds_no_model_permit() {
    let mut callers = Callers::under(&[(LAB, at_once(1)), (MODEL, at_once(1))]);
    callers.all_come("a", &[OTHER, LAB]);
    callers.all_come("b", &[MODEL, LAB]);
    callers.all_come("c", &[MODEL]);
    assert_eq!(callers.started(), "a c");
    assert_eq!(callers.run_dry(), "a c b");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_model_delays_only_that_model() {
    let one = at_once(1);
    let mut callers = Callers::under(&[(LAB, at_once(2)), (MODEL, one), (OTHER, one)]);
    callers.all_come("a1 b1", &[MODEL, LAB]);
    callers.all_come("a2 b2", &[OTHER, LAB]);
    assert_eq!(callers.started(), "a1 a2", "the second permit of the provider is not kept for b1");
    callers.end("a1");
    assert_eq!(callers.run_dry(), "a1 a2 b1 b2");
}

#[tokio::test(start_paused = true)]
async fn a_large_call_is_not_overtaken_for_ever() {
    let mut callers = Callers::under(&[(LAB, tokens(600))]);
    callers.come("a", &[LAB], 600);
    callers.come("b", &[MODEL, LAB], 600);
    callers.come("c", &[LAB], 1);
    callers.come("d", &[OTHER, LAB], 1);
    callers.pass(120_000).await;
    assert_eq!(callers.started_at(), [("a", 0), ("b", 60_000), ("c", 60_100), ("d", 60_200)]);
}

#[tokio::test(start_paused = true)]
async fn calls_of_other_providers_do_not_wait() {
    let mut callers = Callers::under(&[(LAB, at_once(1)), ("shop", at_once(1))]);
    callers.all_come("a b", &["shop"]);
    callers.all_come("c", &[LAB]);
    assert_eq!(callers.started(), "a c");
}

#[tokio::test(start_paused = true)]
async fn a_permit_goes_to_another_model_while_the_first_call_cools() {
    let mut callers = Callers::under(&[(LAB, tokens(600))]);
    callers.come("a", &[LAB], 600);
    callers.come("b", &[MODEL, LAB], 600);
    callers.come("c", &[OTHER, LAB], 100);
    callers.pass(20_000).await;
    assert_eq!(callers.started(), "a", "b keeps the provider");
    callers.throttles.cool(&MODEL.into(), 300_000);
    callers.poll_woken();
    assert_eq!(callers.started_at(), [("a", 0), ("c", 20_000)]);
}
