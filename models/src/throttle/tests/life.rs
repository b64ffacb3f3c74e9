use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Builder;

use super::super::{QuotaUsage, Rates, Throttles};
use super::callers::{Callers, LAB, MODEL, concurrent_rate, quota, requests, texts, tokens};

#[tokio::test(start_paused = true)]
async fn call_without_quotas_never_waits() {
    let throttles = Throttles::new(concurrent_rate(1), []);
    let passes = [throttles.enter(&[], 9).await, throttles.enter(&[], 9).await];
    assert_eq!(throttles.active_quotas(), []);
    passes.into_iter().for_each(|pass| pass.settle(7));
}

#[tokio::test(start_paused = true)]
async fn unused_quotas_are_removed() {
    let mut callers = Callers::with_quotas(&[("paced", requests(60)), ("dear", tokens(60))]);
    for n in 0..1_000 {
        let name = format!("lab/model-{n}");
        callers.enter("a1", &[&name, LAB], 1);
        callers.end("a1");
    }
    assert_eq!(callers.active_quotas(), []);
    callers.enter("a1", &["paced", "dear"], 30);
    callers.throttles.pause(&"resting".into(), 40_000);
    callers.end("a1");
    let resting = QuotaUsage { paused_ms: Some(40_000), ..quota("resting", 0, 0) };
    assert_eq!(callers.active_quotas(), [quota("dear", 0, 0), quota("paced", 0, 0), resting]);
    callers.advance(1_000).await;
    callers.advance(29_000).await;
    assert_eq!(callers.active_quotas().len(), 1, "both buckets must be full again");
    callers.advance(10_000).await;
    assert_eq!(callers.active_quotas(), []);
}

#[tokio::test(start_paused = true)]
async fn quotas_are_taken_once_and_in_a_fixed_order() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(1)), ("shop", concurrent_rate(1))]);
    callers.enter("a1", &[LAB, MODEL, LAB], 1);
    assert_eq!(callers.active_quotas(), [quota(LAB, 1, 0), quota(MODEL, 1, 0)]);
    callers.end("a1");
    // If quotas were taken in the order of the arguments, each call would hold the quota that the other call needs.
    callers.enter("a2", &[LAB], 1);
    callers.enter("b1", &["shop"], 1);
    callers.enter("c1", &[LAB, "shop"], 1);
    callers.enter("d1", &["shop", LAB], 1);
    assert_eq!(callers.finish_all(), "a1 a2 b1 c1 d1");
}

#[tokio::test(start_paused = true)]
async fn close_ends_all_waits() {
    let mut callers = Callers::with_quotas(&[(MODEL, requests(1)), (LAB, concurrent_rate(1))]);
    callers.all_enter("a1 a2 b1", &[MODEL, LAB]);
    callers.enter("c1", &[LAB], 1);
    callers.prepare("d1", &[LAB], 1);
    // From now on every call continues at once, with a permit that holds nothing.
    callers.throttles.close();
    callers.poll_woken();
    callers.poll("d1");
    assert_eq!((callers.waiting(), callers.running().len()), (vec![], 5));
    assert_eq!(callers.active_quotas(), [quota(LAB, 1, 0), quota(MODEL, 1, 0)], "a running call must still count");
    callers.throttles.close();
    callers.throttles.pause(&LAB.into(), 1_000);
    callers.enter("e1", &[LAB], 1);
    assert_eq!(callers.now_ms(), 0);
    callers.finish_all();
    assert_eq!(callers.active_quotas(), [quota(MODEL, 0, 0)], "its bucket must still be refilling");
}

#[tokio::test(start_paused = true)]
async fn d2_runtimes_share_quotas_and_close_separately() {
    let first = Throttles::new(concurrent_rate(1), []);
    let second = first.for_runtime();
    let quotas = texts(&[LAB]);
    let held = first.enter(&quotas, 1).await;
    let waiting = tokio::spawn({
        let (second, quotas) = (second.clone(), quotas.clone());
        async move { second.enter(&quotas, 1).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(second.active_quotas(), [quota(LAB, 1, 1)], "expected one quota for both");
    first.close();
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished(), "a close ended the wait of the other runtime");
    drop(held);
    drop(waiting.await.unwrap());
    second.close();
    drop(first.enter(&quotas, 1).await);
}

#[tokio::test(start_paused = true)]
async fn d2_rates_are_divided_among_processes() {
    let mut callers = Callers::with_quotas(&[(LAB, concurrent_rate(4))]);
    callers.throttles.divide(2);
    callers.all_enter("a1 a2 a3 a4", &[LAB]);
    assert_eq!(callers.running().len(), 2);
    callers.throttles.divide(1);
    callers.poll_woken();
    callers.poll_woken();
    assert_eq!(callers.running().len(), 4, "the rates were not restored after the other process left");
    callers.throttles.divide(100);
    callers.enter("a5", &[LAB], 1);
    assert_eq!(callers.active_quotas(), [quota(LAB, 4, 1)], "expected running calls to continue and no other to start");
    callers.finish_all();
    let rates = Rates { requests_per_minute: Some(60), tokens_per_minute: Some(100), ..Rates::unbounded() };
    let part = Rates { requests_per_minute: Some(20), tokens_per_minute: Some(33), ..Rates::unbounded() };
    assert_eq!((rates.divide(3), rates.divide(1)), (part, rates));
    assert_eq!(concurrent_rate(2).divide(3), concurrent_rate(1), "a process must always have one permit");
}

#[test]
fn permit_returned_outside_of_tokio_wakes_the_next_call() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let rates = Rates { concurrent: Some(1), ..tokens(600) };
    let throttles = Throttles::new(rates, []);
    let quotas = texts(&[LAB]);
    let first = runtime.block_on(throttles.enter(&quotas, 600));
    let clone = throttles.clone();
    let second = runtime.spawn(async move { clone.enter(&quotas, 600).await });
    runtime.block_on(tokio::task::yield_now());
    assert_eq!(throttles.active_quotas(), [quota(LAB, 1, 1)]);
    first.settle(900);
    drop(runtime.block_on(second).unwrap());
}

#[tokio::test(start_paused = true)]
async fn hundred_thousand_calls_wait_in_one_queue() {
    const CALLS: u64 = 100_000;
    let throttles =
        Throttles::new(Rates::unbounded(), [(MODEL.into(), concurrent_rate(64)), (LAB.into(), concurrent_rate(32))]);
    let mut callers = Callers::of(throttles);
    for n in 0..CALLS {
        callers.enter(&format!("a{n:06}"), &[MODEL, LAB], 1);
    }
    assert_eq!(callers.active_quotas(), [quota(LAB, 32, 99_968), quota(MODEL, 32, 99_968)]);
    for n in (100..CALLS).filter(|n| n % 10 == 9) {
        callers.drop_waiting(&format!("a{n:06}"));
    }
    while let Some(name) = callers.running().into_iter().next() {
        callers.end(&name);
    }
    assert_eq!((callers.active_quotas(), callers.waiting()), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_waits_and_drops_lose_no_wakeup() {
    let throttles =
        Throttles::new(Rates::unbounded(), [(MODEL.into(), concurrent_rate(3)), (LAB.into(), concurrent_rate(2))]);
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..400_u32 {
        let (throttles, now, most) = (throttles.clone(), Arc::clone(&now), Arc::clone(&most));
        tasks.spawn(async move {
            let quotas = texts(&[MODEL, LAB]);
            for round in 0..20_u32 {
                let enter = throttles.enter(&quotas, 1);
                let pass = if (n + round).is_multiple_of(3) {
                    // This caller drops its call after a few polls.
                    tokio::select! {
                        pass = enter => pass,
                        () = async { for _ in 0..(n % 7) { tokio::task::yield_now().await } } => continue,
                    }
                } else {
                    enter.await
                };
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                drop(pass);
            }
        });
    }
    tokio::time::timeout(Duration::from_secs(60), tasks.join_all()).await.expect("a wake-up was lost");
    assert_eq!(throttles.active_quotas(), []);
    assert_eq!(most.load(Ordering::SeqCst), 2);
}
