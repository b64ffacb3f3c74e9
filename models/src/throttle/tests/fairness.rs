//! Sessions take turns; calls of one session keep their order.

use super::super::Rates;
use super::Bug;
use super::callers::{Callers, LAB, MODEL, OTHER, at_once, quota, tokens};

/// Five calls of one session before two of another and one of a third, one at a time.
fn turns(bug: Option<Bug>) -> String {
    let mut callers = Callers::under(&[(LAB, at_once(1))]).with_bug(bug);
    callers.all_come("a1 a2 a3 a4 a5 b1 b2 c1", &[LAB]);
    callers.run_dry()
}

#[tokio::test(start_paused = true)]
async fn sessions_take_turns() {
    assert_eq!(turns(None), "a1 a2 b1 c1 a3 b2 a4 a5");
    assert_eq!(turns(Some(Bug::Unfair)), "a1 a2 a3 a4 a5 b1 b2 c1", "the control: the check would notice");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_calls_delay_another_session_by_one() {
    let mut callers = Callers::under(&[(LAB, at_once(1))]);
    for n in 0..1_000 {
        callers.come(&format!("a{n:04}"), &[LAB], 1);
    }
    callers.all_come("b1 b2 b3", &[LAB]);
    let started = callers.run_dry();
    assert!(started.starts_with("a0000 a0001 b1 a0002 b2 a0003 b3 a0004 a0005"), "{started}");
    let of_a: Vec<&str> = started.split(' ').filter(|name| name.starts_with('a')).collect();
    assert_eq!(of_a.len(), 1_000);
    assert!(of_a.is_sorted(), "calls of one session keep their order");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_comes_back_gets_every_other_turn() {
    let mut callers = Callers::under(&[(LAB, at_once(1))]);
    callers.all_come("a1 a2 a3 a4 b1", &[LAB]);
    callers.end("a1");
    callers.end("a2");
    callers.come("b2", &[LAB], 1);
    callers.end("b1");
    callers.end("a3");
    assert_eq!(callers.run_dry(), "a1 a2 b1 a3 b2 a4");
}

#[tokio::test(start_paused = true)]
async fn several_places_are_shared_too() {
    let mut callers = Callers::under(&[(LAB, at_once(3))]);
    callers.all_come("a1 a2 a3 a4 a5 a6 b1 b2 b3 c1", &[LAB]);
    assert_eq!(callers.seen(), [quota(LAB, 3, 7)]);
    assert_eq!(callers.run_dry(), "a1 a2 a3 a4 b1 c1 a5 b2 a6 b3");
    assert_eq!(callers.seen(), []);
}

#[tokio::test(start_paused = true)]
async fn a_provider_is_shared_between_sessions_whatever_models_they_call() {
    let mut callers = Callers::under(&[(LAB, at_once(1)), (MODEL, at_once(4)), (OTHER, at_once(4))]);
    callers.all_come("a1 a2 a3 a4 a5", &[MODEL, LAB]);
    callers.all_come("a6", &[OTHER, LAB]);
    callers.all_come("b1 b2", &[MODEL, LAB]);
    callers.all_come("c1 c2", &[OTHER, LAB]);
    assert_eq!(callers.run_dry(), "a1 a2 b1 c1 a3 b2 c2 a4 a5 a6");
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_calls_wait_for_the_provider_leaves_places_of_the_model_to_others() {
    let mut callers = Callers::under(&[(LAB, at_once(1)), (MODEL, at_once(2))]);
    callers.all_come("c1", &[OTHER, LAB]);
    // Of `a` only one is let in by the model, though there is place for two: `b` gets the other one.
    callers.all_come("a1 a2 a3 b1", &[MODEL, LAB]);
    assert_eq!(callers.seen(), [quota(LAB, 1, 2), quota(MODEL, 0, 4), quota(OTHER, 1, 0)]);
    assert_eq!(callers.run_dry(), "c1 a1 b1 a2 a3");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_the_provider_delays_only_calls_of_its_model() {
    let one = at_once(1);
    let mut callers = Callers::under(&[(LAB, at_once(2)), (MODEL, one), (OTHER, one)]);
    callers.all_come("a1 b1", &[MODEL, LAB]);
    callers.all_come("a2 b2", &[OTHER, LAB]);
    assert_eq!(
        callers.started(),
        "a1 a2",
        "the second place of the provider is not kept for b1, which waits for its model"
    );
    callers.end("a1");
    assert_eq!(callers.run_dry(), "a1 a2 b1 b2");
}

#[tokio::test(start_paused = true)]
async fn a_large_call_is_not_overtaken_for_ever() {
    let mut callers = Callers::under(&[(LAB, tokens(600))]);
    callers.come("a1", &[LAB], 600);
    callers.come("b1", &[LAB], 600);
    callers.come("c1", &[LAB], 1);
    callers.come("c2", &[LAB], 1);
    callers.pass(120_000).await;
    assert_eq!(callers.started_at(), [("a1", 0), ("b1", 60_000), ("c1", 60_100), ("c2", 60_200)]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_waits_elsewhere_does_not_hold_a_turn() {
    let rates = Rates { concurrent: Some(1), ..Rates::unbounded() };
    let mut callers = Callers::under(&[(LAB, rates), ("shop", rates)]);
    callers.all_come("a1 b1", &["shop"]);
    callers.all_come("c1 b2 c2", &[LAB]);
    callers.end("c1");
    assert_eq!(callers.started(), "a1 c1 b2", "b1 waits for the shop, b2 does not wait for b1");
    assert_eq!(callers.run_dry(), "a1 c1 b2 b1 c2");
}
