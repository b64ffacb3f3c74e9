use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::super::Class;
use super::super::tests::Naive;
use super::*;

type Grants = Arc<Mutex<Vec<(u32, Slot)>>>;

fn pools(global: usize) -> (SlotPools<u8, u32>, Grants) {
    let grants = Grants::default();
    let kept = Arc::clone(&grants);
    let pools = SlotPools::new(global, Arc::new(move |ticket, slot| kept.lock().unwrap().push((ticket, slot))));
    (pools, grants)
}

#[test]
fn interactive_run_never_waits_for_background_runs() {
    let (pools, _grants) = pools(2);
    let (owned, person) = (pools.of(PoolKind::Background), pools.of(PoolKind::Interactive));
    let held: Vec<_> = (0..2).filter_map(|ticket| owned.request(1, ticket, Class::Start, 9)).collect();
    for ticket in 2..50 {
        assert!(owned.request(u8::try_from(ticket % 3).unwrap(), ticket, Class::Resume, 9).is_none());
    }
    let persons: Vec<_> = (100..102).filter_map(|ticket| person.request(1, ticket, Class::Start, 1)).collect();
    assert_eq!((held.len(), persons.len(), pools.in_use(), pools.queued()), (2, 1, 3, 49));
    let other = person.request(2, 200, Class::Start, 1);
    assert!(other.is_some(), "a ticket of another root is granted at once");
}

#[test]
fn slot_returns_to_its_own_pool() {
    let (pools, grants) = pools(1);
    let held = pools.of(PoolKind::Background).request(1, 0, Class::Start, 1).unwrap();
    let person = pools.of(PoolKind::Interactive).request(1, 100, Class::Start, 1).unwrap();
    assert!(pools.of(PoolKind::Background).request(1, 1, Class::Start, 1).is_none());
    assert!(pools.of(PoolKind::Interactive).request(1, 101, Class::Start, 1).is_none());
    drop(person);
    let granted = |grants: &Grants| grants.lock().unwrap().iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>();
    assert_eq!((granted(&grants), pools.of(PoolKind::Background).in_use()), (vec![101], 1));
    drop(held);
    assert_eq!(granted(&grants), [101, 1]);
}

#[test]
fn ticket_is_withdrawn_from_its_pool() {
    let (pools, grants) = pools(1);
    let held = [PoolKind::Background, PoolKind::Interactive].map(|kind| pools.of(kind).request(1, 0, Class::Start, 1));
    assert!(pools.of(PoolKind::Background).request(1, 1, Class::Start, 1).is_none());
    assert!(pools.of(PoolKind::Interactive).request(1, 2, Class::Start, 1).is_none());
    assert_eq!([1, 1, 2, 2].map(|ticket| pools.withdraw(ticket)), [true, false, true, false]);
    drop(held);
    assert!(grants.lock().unwrap().is_empty());
    assert_eq!((pools.in_use(), pools.queued()), (0, 0));
}

#[test]
fn both_bounds_hold_and_no_slot_is_lost_on_threads() {
    const THREADS: u32 = 4;
    const EACH: u32 = 3_000;
    let kind = |ticket: u32| if ticket.is_multiple_of(2) { PoolKind::Interactive } else { PoolKind::Background };
    let running: Arc<[AtomicUsize; 2]> = Arc::default();
    let (granted, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let run = {
        let (running, granted, over) = (Arc::clone(&running), Arc::clone(&granted), Arc::clone(&over));
        move |ticket: u32, slot: Slot| {
            let mine = &running[(ticket % 2) as usize];
            over.fetch_add(usize::from(mine.fetch_add(1, Ordering::SeqCst) >= 3), Ordering::SeqCst);
            granted.fetch_add(1, Ordering::SeqCst);
            if ticket.is_multiple_of(5) {
                std::thread::yield_now();
            }
            mine.fetch_sub(1, Ordering::SeqCst);
            drop(slot);
        }
    };
    let pools = SlotPools::new(3, Arc::new(run.clone()));
    let withdrawn: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|worker| {
                let (pools, run) = (pools.clone(), run.clone());
                scope.spawn(move || {
                    let mut withdrawn = 0;
                    for ticket in worker * EACH..(worker + 1) * EACH {
                        match pools.of(kind(ticket)).request(ticket % 3, ticket, Class::Start, 2) {
                            Some(slot) => run(ticket, slot),
                            None if ticket.is_multiple_of(3) => withdrawn += usize::from(pools.withdraw(ticket)),
                            None => {}
                        }
                    }
                    withdrawn
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!((pools.in_use(), pools.queued(), over.load(Ordering::SeqCst)), (0, 0, 0));
    assert_eq!(granted.load(Ordering::SeqCst) + withdrawn, (THREADS * EACH) as usize);
}

#[derive(Debug, Clone)]
enum PoolStep {
    Request { kind: PoolKind, root: u8, resumed: bool },
    Return(usize),
    Withdraw(usize),
}

fn steps() -> impl Strategy<Value = Vec<PoolStep>> {
    let kind = prop_oneof![Just(PoolKind::Background), Just(PoolKind::Interactive)];
    let request =
        (kind, 0_u8..3, any::<bool>()).prop_map(|(kind, root, resumed)| PoolStep::Request { kind, root, resumed });
    let step = prop_oneof![
        4 => request,
        3 => any::<usize>().prop_map(PoolStep::Return),
        1 => any::<usize>().prop_map(PoolStep::Withdraw)
    ];
    prop::collection::vec(step, 0..120)
}

const BOUNDS: [(PoolKind, u32); 2] = [(PoolKind::Background, 2), (PoolKind::Interactive, 3)];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_pool_matches_its_naive_model(global in 0_usize..5, steps in steps()) {
        let (pools, grants) = pools(global);
        let mut naive = BTreeMap::from(BOUNDS.map(|(kind, _)| (kind, Naive::new(global))));
        let (mut held, mut pool_of) = (BTreeMap::new(), BTreeMap::new());
        for (ticket, step) in (0_u32..).zip(&steps) {
            match step {
                PoolStep::Request { kind, root, resumed } => {
                    let class = if *resumed { Class::Resume } else { Class::Start };
                    let bound = BOUNDS[usize::from(*kind == PoolKind::Interactive)].1;
                    pool_of.insert(ticket, *kind);
                    naive.get_mut(kind).unwrap().request(*root, ticket, class, bound);
                    held.extend(pools.of(*kind).request(*root, ticket, class, bound).map(|slot| (ticket, slot)));
                }
                PoolStep::Return(nth) if !held.is_empty() => {
                    let ticket = *held.keys().nth(nth % held.len()).unwrap();
                    naive.get_mut(&pool_of[&ticket]).unwrap().give_back(ticket);
                    held.remove(&ticket);
                }
                PoolStep::Withdraw(nth) => {
                    let waiting: Vec<u32> = naive.values().flat_map(Naive::waiting).collect();
                    if let Some(ticket) = waiting.get(nth % waiting.len().max(1)) {
                        naive.get_mut(&pool_of[ticket]).unwrap().withdraw(*ticket);
                        prop_assert!(pools.withdraw(*ticket));
                    }
                }
                PoolStep::Return(_) => {}
            }
            for (ticket, slot) in grants.lock().unwrap().drain(..) {
                prop_assert!(held.insert(ticket, slot).is_none(), "ticket {} was granted twice", ticket);
            }
            let running: BTreeSet<u32> = naive.values().flat_map(Naive::running).collect();
            prop_assert_eq!(held.keys().copied().collect::<BTreeSet<_>>(), running);
            for (kind, naive) in &naive {
                let pool = pools.of(*kind);
                prop_assert_eq!((pool.in_use(), pool.queued()), (naive.running().count(), naive.waiting().count()));
            }
        }
    }
}
