use std::collections::BTreeMap;

use super::super::{Budgets, Currency, Spend, SpendLimit};
use super::callers::{Callers, tokens, up_to};

fn refused<const N: usize>(calls: [(usize, Currency); N]) -> BTreeMap<usize, Currency> {
    calls.into_iter().collect()
}

fn one_account() -> Callers {
    let callers = Callers::new(None);
    callers.budgets.open(1);
    callers
}

#[tokio::test(start_paused = true)]
async fn fitting_requests_are_granted_and_hopeless_ones_refused() {
    let mut callers = one_account();
    let limit = SpendLimit { tokens: Some(100), cost_micro: Some(50) };
    callers.request(1, 1, Spend { tokens: 60, cost_micro: 20 }, limit);
    callers.request(2, 1, Spend { tokens: 101, cost_micro: 0 }, limit);
    callers.request(3, 1, Spend { tokens: 0, cost_micro: 51 }, limit);
    callers.request(4, 1, Spend { tokens: 40, cost_micro: 30 }, limit);
    assert_eq!(callers.running_calls(), [1, 4]);
    assert_eq!(callers.refused, refused([(2, Currency::Tokens), (3, Currency::Money)]));
    assert_eq!(callers.budgets.outstanding(1), Spend { tokens: 100, cost_micro: 50 });
}

#[tokio::test(start_paused = true)]
async fn zero_limit_refuses_and_missing_limit_grants() {
    let mut callers = one_account();
    callers.request(1, 1, tokens(1), up_to(0));
    callers.request(2, 1, tokens(u64::MAX - 1), SpendLimit::default());
    assert_eq!((callers.running_calls(), callers.refused), (vec![2], refused([(1, Currency::Tokens)])));
}

#[tokio::test(start_paused = true)]
async fn waiting_claim_starts_when_another_settles_for_less() {
    let mut callers = one_account();
    callers.request(1, 1, tokens(80), up_to(100));
    callers.request(2, 1, tokens(50), up_to(100));
    assert_eq!((callers.running_calls(), callers.waiting_calls()), (vec![1], vec![2]));
    callers.take(1).settle(tokens(50));
    callers.poll_woken();
    assert_eq!((callers.running_calls(), callers.budgets.settled(1)), (vec![2], tokens(50)));
}

#[tokio::test(start_paused = true)]
async fn waiting_claim_is_refused_when_too_much_is_settled() {
    let mut callers = one_account();
    callers.request(1, 1, tokens(60), up_to(100));
    callers.request(2, 1, tokens(30), up_to(100));
    callers.request(3, 1, tokens(20), up_to(100));
    callers.request(4, 1, tokens(50), up_to(100));
    assert_eq!(callers.waiting_calls(), [3, 4]);
    callers.take(1).settle_unknown();
    callers.poll_woken();
    assert_eq!(callers.refused, refused([(4, Currency::Tokens)]));
    assert_eq!(callers.waiting_calls(), [3], "a refused request leaves the queue from any position");
    callers.take(2).settle(tokens(0));
    callers.poll_woken();
    assert_eq!((callers.running_calls(), callers.budgets.settled(1)), (vec![3], tokens(60)));
}

#[tokio::test(start_paused = true)]
async fn waiting_claims_are_not_overtaken() {
    let mut callers = one_account();
    callers.request(1, 1, tokens(60), up_to(100));
    callers.request(2, 1, tokens(80), up_to(100));
    callers.request(3, 1, tokens(10), up_to(100));
    assert_eq!(callers.waiting_calls(), [2, 3]);
    callers.take(1).give_back();
    callers.poll_woken();
    assert_eq!(callers.started, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn reservation_times_out_after_a_minute_and_frees_the_queue() {
    let mut callers = one_account();
    callers.request(1, 1, tokens(60), up_to(100));
    callers.request(2, 1, tokens(80), up_to(100));
    callers.request(3, 1, tokens(40), up_to(100));
    callers.advance(59_999).await;
    assert_eq!(callers.waiting_calls(), [2, 3]);
    callers.advance(1).await;
    assert_eq!((callers.started, callers.refused), (vec![1, 3], refused([(2, Currency::Tokens)])));
}

#[tokio::test(start_paused = true)]
async fn cost_above_the_reservation_reduces_the_budget() {
    let mut callers = one_account();
    callers.request(1, 1, tokens(90), up_to(100));
    callers.take(1).settle(tokens(120));
    callers.request(2, 1, tokens(0), up_to(100));
    assert_eq!((callers.budgets.settled(1), callers.refused), (tokens(120), refused([(2, Currency::Tokens)])));
}

#[tokio::test(start_paused = true)]
async fn raised_limit_admits_older_requests_first() {
    let mut callers = one_account();
    callers.request(1, 1, tokens(60), up_to(100));
    callers.request(2, 1, tokens(50), up_to(100));
    callers.request(3, 1, tokens(10), up_to(200));
    callers.poll_woken();
    assert_eq!(callers.started, [1, 3, 2], "2 was granted before 3, but polled later");
    assert_eq!(callers.budgets.outstanding(1), tokens(120));
}

#[tokio::test(start_paused = true)]
async fn dropped_request_returns_its_grant_to_the_next() {
    let mut callers = one_account();
    callers.request(1, 1, tokens(60), up_to(100));
    callers.request(2, 1, tokens(80), up_to(100));
    callers.request(3, 1, tokens(10), up_to(100));
    callers.give_up(2);
    callers.poll_woken();
    assert_eq!(callers.started, [1, 3]);
    callers.request(4, 1, tokens(90), up_to(100));
    drop(callers.take(3));
    callers.take(1).give_back();
    // The drop grants request 4, which is never polled again.
    assert_eq!(callers.budgets.outstanding(1), tokens(90));
    callers.give_up(4);
    let budgets = &callers.budgets;
    assert_eq!((budgets.settled(1), budgets.outstanding(1), budgets.waiting(1)), (tokens(10), tokens(0), 0));
}

#[tokio::test(start_paused = true)]
async fn closed_account_refuses_waiting_requests_and_stays_closed() {
    let mut callers = one_account();
    callers.request(1, 1, tokens(60), up_to(100));
    callers.request(2, 1, tokens(80), up_to(100));
    callers.budgets.forget(1);
    callers.poll_woken();
    assert_eq!(callers.refused, refused([(2, Currency::Tokens)]));
    callers.take(1).settle(tokens(60));
    callers.request(3, 1, tokens(1), SpendLimit { tokens: None, cost_micro: Some(5) });
    assert_eq!(callers.refused[&3], Currency::Money);
    assert!(callers.budgets.is_empty());
}

#[tokio::test(start_paused = true)]
async fn recount_ignores_older_reservations() {
    let mut callers = one_account();
    callers.request(1, 1, tokens(60), up_to(100));
    callers.request(2, 1, tokens(80), up_to(100));
    callers.budgets.restore(1, tokens(70));
    callers.poll_woken();
    assert_eq!(callers.refused, refused([(2, Currency::Tokens)]));
    callers.request(3, 1, tokens(30), up_to(100));
    callers.take(1).settle_unknown();
    assert_eq!((callers.budgets.settled(1), callers.budgets.outstanding(1)), (tokens(70), tokens(30)));
}

#[tokio::test(start_paused = true)]
async fn reopening_an_open_account_changes_nothing() {
    let mut callers = one_account();
    callers.request(1, 1, tokens(60), up_to(100));
    callers.take(1).settle(tokens(40));
    callers.budgets.open(1);
    assert_eq!((callers.budgets.settled(1), callers.budgets.len()), (tokens(40), 1));
}

#[tokio::test(start_paused = true)]
async fn wait_beyond_the_clock_range_never_times_out() {
    let budgets = Budgets::new(std::time::Duration::MAX);
    budgets.open(1_u8);
    let first = budgets.reserve(1, tokens(60), up_to(100)).await.unwrap();
    let second = budgets.reserve(1, tokens(60), up_to(100));
    tokio::pin!(second);
    let day = std::time::Duration::from_secs(86_400);
    assert!(tokio::time::timeout(day, &mut second).await.is_err());
    first.give_back();
    assert_eq!(second.await.unwrap().reserved(), tokens(60));
}

#[test]
fn limit_of_one_currency_is_a_limit() {
    let limits = [
        (SpendLimit::default(), true),
        (SpendLimit { tokens: Some(1), cost_micro: None }, false),
        (SpendLimit { tokens: None, cost_micro: Some(1) }, false),
        (SpendLimit { tokens: Some(1), cost_micro: Some(1) }, false),
    ];
    assert_eq!(limits.map(|(limit, _)| limit.is_none()), limits.map(|(_, none)| none));
}

#[tokio::test(start_paused = true)]
async fn missing_account_refuses_by_the_limited_currency() {
    let none: Callers = Callers::new(None);
    assert_eq!((none.budgets.is_empty(), format!("{:?}", none.budgets)), (true, "Budgets { roots: 0 }".to_owned()));
    let mut callers = one_account();
    assert_eq!(
        (callers.budgets.is_empty(), format!("{:?}", callers.budgets)),
        (false, "Budgets { roots: 1 }".to_owned())
    );
    callers.request(1, 2, tokens(1), SpendLimit { tokens: None, cost_micro: Some(1) });
    callers.request(2, 2, tokens(1), SpendLimit { tokens: Some(1), cost_micro: Some(1) });
    callers.request(3, 2, tokens(1), up_to(1));
    assert_eq!(
        callers.refused,
        refused([(1, Currency::Money), (2, Currency::Tokens), (3, Currency::Tokens)]),
        "account 2 does not exist"
    );
}

#[tokio::test(start_paused = true)]
async fn debug_output_shows_the_requested_spending() {
    let mut callers = one_account();
    callers.request(1, 1, tokens(60), up_to(100));
    callers.request(2, 1, tokens(80), up_to(100));
    let (running, waiting) = (format!("{:?}", callers.take(1)), format!("{:?}", callers.waiting[&2]));
    assert_eq!(running, "Reservation { want: Spend { tokens: 60, cost_micro: 0 }, .. }");
    assert_eq!(waiting, "WaitingClaim { want: Spend { tokens: 80, cost_micro: 0 }, .. }");
}
