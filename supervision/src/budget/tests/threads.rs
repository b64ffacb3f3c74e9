use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::{BudgetAnswer, Budgets, Reservation, Spend};
use super::callers::{tokens, up_to};

const LIMIT: u64 = 100;

async fn granted(budgets: &Budgets<u8>, n: u64, want: Spend) -> Option<Reservation<u8>> {
    match budgets.ask(1, want, up_to(LIMIT)) {
        BudgetAnswer::Granted(reservation) => Some(reservation),
        BudgetAnswer::Waits(waiting) if n.is_multiple_of(7) => tokio::select! {
            biased;
            () = tokio::task::yield_now() => None,
            reservation = waiting => Some(reservation.unwrap()),
        },
        BudgetAnswer::Waits(waiting) => Some(waiting.await.unwrap()),
        BudgetAnswer::Refused(which) => panic!("refused by the limit of {which:?}"),
    }
}

async fn call(budgets: Budgets<u8>, n: u64, out: Arc<AtomicU64>) -> u64 {
    let want = tokens(1 + n % 40);
    let Some(reservation) = granted(&budgets, n, want).await else { return 0 };
    let all = out.fetch_add(want.tokens, Ordering::SeqCst) + want.tokens;
    assert!(all <= LIMIT, "{all} tokens are reserved");
    if n.is_multiple_of(3) {
        tokio::task::yield_now().await;
    }
    out.fetch_sub(want.tokens, Ordering::SeqCst);
    if n.is_multiple_of(5) {
        reservation.settle(Spend { tokens: 0, cost_micro: n });
        return n;
    }
    reservation.give_back();
    0
}

#[test]
fn limit_holds_and_no_reservation_is_lost_on_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    runtime.block_on(async {
        let budgets = Budgets::default();
        budgets.open(1_u8);
        let out = Arc::new(AtomicU64::new(0));
        let calls: Vec<_> = (0..20_000).map(|n| tokio::spawn(call(budgets.clone(), n, Arc::clone(&out)))).collect();
        let mut cost_micro = 0;
        for call in calls {
            cost_micro += call.await.unwrap();
        }
        let remaining = (budgets.settled(1), budgets.outstanding(1), budgets.waiting(1));
        assert_eq!(remaining, (Spend { tokens: 0, cost_micro }, Spend::NOTHING, 0));
    });
}
