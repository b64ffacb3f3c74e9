use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

type Grants = Arc<Mutex<Vec<(u32, Slot)>>>;

fn pool(global: usize) -> (Slots<u8, u32>, Grants) {
    let grants = Grants::default();
    let pending = Arc::clone(&grants);
    let slots = Slots::new(global, Arc::new(move |ticket, slot| pending.lock().unwrap().push((ticket, slot))));
    (slots, grants)
}

/// Removes one slot and drops it outside the list's lock.
fn release(grants: &Grants, ticket: u32) {
    let mut pending = grants.lock().unwrap();
    let at = pending.iter().position(|(other, _)| *other == ticket).unwrap();
    let slot = pending.swap_remove(at);
    drop(pending);
    drop(slot);
}

fn serve_all(grants: &Grants) -> Vec<u32> {
    let mut served = Vec::new();
    loop {
        let mut pending = grants.lock().unwrap();
        if pending.is_empty() {
            return served;
        }
        let (ticket, slot) = pending.remove(0);
        drop(pending);
        served.push(ticket);
        drop(slot);
    }
}

#[test]
fn resized_pool_grants_queued_tickets_and_revokes_nothing() {
    let (slots, grants) = pool(1);
    let first = slots.request(1, 10, Class::Start, 9).unwrap();
    (11..15).for_each(|ticket| assert!(slots.request(1, ticket, Class::Start, 9).is_none()));
    slots.resize(3);
    let granted = |grants: &Grants| grants.lock().unwrap().iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>();
    assert_eq!((granted(&grants), slots.in_use()), (vec![11, 12], 3));
    slots.resize(2);
    drop(first);
    assert_eq!((granted(&grants), slots.in_use()), (vec![11, 12], 2), "a pool above its size grants nothing");
    release(&grants, 11);
    assert_eq!((granted(&grants), slots.in_use()), (vec![12, 13], 2));
}

#[test]
fn free_slot_is_granted_at_once_and_a_used_one_on_return() {
    let (slots, grants) = pool(1);
    let first = slots.request(1, 10, Class::Start, 3).unwrap();
    assert!(slots.request(1, 11, Class::Start, 3).is_none());
    assert_eq!((slots.in_use(), slots.in_use_by(1), slots.queued()), (1, 1, 1));
    drop(first);
    assert_eq!((serve_all(&grants), slots.in_use(), slots.queued()), (vec![11], 0, 0));
}

#[test]
fn root_at_its_bound_does_not_block_others() {
    let (slots, grants) = pool(2);
    let held = slots.request(1, 10, Class::Start, 1).unwrap();
    assert!(slots.request(1, 11, Class::Start, 1).is_none());
    let other = slots.request(2, 20, Class::Start, 1).unwrap();
    assert!(slots.request(1, 12, Class::Start, 1).is_none());
    drop(other);
    assert!(grants.lock().unwrap().is_empty(), "root 1 is at its bound");
    drop(held);
    assert_eq!(serve_all(&grants), [11, 12]);
}

#[test]
fn roots_take_turns_under_a_burst() {
    let (slots, grants) = pool(1);
    let held = slots.request(9, 0, Class::Start, 1).unwrap();
    for ticket in 10..15 {
        assert!(slots.request(1, ticket, Class::Start, 9).is_none());
    }
    for (root, ticket) in [(2, 20), (3, 30), (2, 21), (3, 31)] {
        assert!(slots.request(root, ticket, Class::Start, 9).is_none());
    }
    drop(held);
    assert_eq!(serve_all(&grants), [10, 20, 30, 11, 21, 31, 12, 13, 14]);
}

#[test]
fn resumed_runs_precede_new_ones() {
    let (slots, grants) = pool(1);
    let held = slots.request(9, 0, Class::Start, 1).unwrap();
    for (root, ticket, class) in [(1, 10, Class::Start), (2, 20, Class::Resume), (1, 11, Class::Resume)] {
        assert!(slots.request(root, ticket, class, 9).is_none());
    }
    drop(held);
    assert_eq!(serve_all(&grants), [20, 11, 10]);
}

#[test]
fn withdrawn_ticket_is_never_granted() {
    let (slots, grants) = pool(1);
    let held = slots.request(1, 10, Class::Start, 9);
    assert!(slots.request(1, 11, Class::Start, 9).is_none());
    assert!(slots.request(1, 12, Class::Start, 9).is_none());
    assert_eq!([11, 11, 10, 99].map(|ticket| slots.withdraw(ticket)), [true, false, false, false]);
    drop(held);
    assert_eq!(serve_all(&grants), [12]);
}

#[test]
fn repeated_request_keeps_its_position() {
    let (slots, grants) = pool(1);
    let held = slots.request(1, 10, Class::Start, 9);
    for ticket in [11, 12, 11] {
        assert!(slots.request(1, ticket, Class::Start, 9).is_none());
    }
    drop(held);
    assert_eq!(serve_all(&grants), [11, 12]);
}

#[test]
fn raised_bound_admits_older_tickets_first() {
    let (slots, grants) = pool(5);
    let _held = slots.request(1, 10, Class::Start, 1).unwrap();
    assert!(slots.request(1, 11, Class::Start, 1).is_none());
    assert!(slots.request(1, 12, Class::Start, 2).is_none(), "ticket 11 was queued first");
    let slot = slots.request(1, 13, Class::Start, 4);
    assert!(slot.is_some());
    let granted: Vec<u32> = grants.lock().unwrap().iter().map(|(ticket, _)| *ticket).collect();
    assert_eq!((granted, slots.in_use_by(1)), (vec![11, 12], 4));
    assert!(slots.request(1, 14, Class::Start, 2).is_none(), "a lower bound does not revoke slots");
    release(&grants, 11);
    release(&grants, 12);
    assert_eq!((slots.in_use_by(1), slots.queued()), (2, 1));
}

#[test]
fn hundred_thousand_dropped_grants_do_not_recurse() {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&seen);
    let slots = Slots::<u32, u32>::new(
        1,
        Arc::new(move |_, slot| {
            counted.fetch_add(1, Ordering::Relaxed);
            drop(slot);
        }),
    );
    let held = slots.request(0, 0, Class::Start, 1);
    for ticket in 1..=100_000 {
        assert!(slots.request(ticket % 7, ticket, Class::Start, 1).is_none());
    }
    assert_eq!(slots.queued(), 100_000);
    drop(held);
    assert_eq!((seen.load(Ordering::Relaxed), slots.in_use(), slots.queued()), (100_000, 0, 0));
}

#[test]
fn callback_may_request_again_and_its_panic_returns_the_slot() {
    let later = Arc::new(Mutex::new(None::<Slots<u8, u32>>));
    let (seen, kept) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&later));
    let seen_too = Arc::clone(&seen);
    let slots = Slots::new(
        1,
        Arc::new(move |ticket, slot| {
            seen_too.lock().unwrap().push(ticket);
            let slots = kept.lock().unwrap().clone().unwrap();
            assert!(ticket != 1, "ticket 1 panics while it owns the slot");
            if ticket == 2 {
                assert!(slots.request(1, 4, Class::Resume, 9).is_none());
            }
            drop(slot);
        }),
    );
    *later.lock().unwrap() = Some(slots.clone());
    let held = slots.request(1, 0, Class::Start, 9);
    for ticket in 1..=3 {
        assert!(slots.request(1, ticket, Class::Start, 9).is_none());
    }
    drop(held);
    assert_eq!((seen.lock().unwrap().clone(), slots.in_use(), slots.queued()), (vec![1, 2, 4, 3], 0, 0));
    later.lock().unwrap().take();
}

#[test]
fn granted_and_withdrawn_tickets_leave_the_queue() {
    let (slots, grants) = pool(1);
    let held = slots.request(1, 0, Class::Start, 1);
    for ticket in 1..=2_000 {
        assert!(slots.request(1, ticket, Class::Start, 1).is_none());
    }
    drop(held);
    for ticket in 1..=700 {
        release(&grants, ticket);
    }
    assert!((1_000..1_600).all(|ticket| slots.withdraw(ticket)));
    let waits = [701, 702, 999, 1_000, 1_599, 1_600, 2_000].map(|ticket| slots.waiting_since(ticket).is_some());
    assert_eq!((waits, slots.queued()), ([false, true, true, false, false, true, true], 699));
    drop(slots);
    assert!(serve_all(&grants).into_iter().eq((701..1_000).chain(1_600..=2_000)));
}

#[tokio::test(start_paused = true)]
async fn last_grant_is_known_while_the_root_is_active() {
    let (slots, grants) = pool(1);
    let held = slots.request(1, 10, Class::Start, 9);
    let asked_at = Instant::now();
    assert!(slots.request(1, 11, Class::Start, 9).is_none());
    tokio::time::advance(std::time::Duration::from_secs(7)).await;
    assert_eq!((slots.last_grant(1), slots.last_grant(2)), (Some(asked_at), None));
    drop(held);
    assert_eq!(slots.last_grant(1), Some(Instant::now()));
    serve_all(&grants);
    assert_eq!(slots.last_grant(1), None);
}

#[tokio::test(start_paused = true)]
async fn waiting_since_counts_from_last_grant_or_request() {
    let second = std::time::Duration::from_secs(1);
    let (slots, grants) = pool(1);
    let held = slots.request(1, 10, Class::Start, 9);
    let asked_at = Instant::now();
    for (root, ticket) in [(1, 11), (1, 12), (2, 20)] {
        assert!(slots.request(root, ticket, Class::Start, 9).is_none());
    }
    tokio::time::advance(second).await;
    assert_eq!(
        [10, 11, 12, 20].map(|ticket| slots.waiting_since(ticket)),
        [None, Some(asked_at), Some(asked_at), Some(asked_at)]
    );
    drop(held);
    let served = [11, 12, 20].map(|ticket| slots.waiting_since(ticket));
    assert_eq!(served, [None, Some(asked_at + second), Some(asked_at)], "root 1 was served by 11");
    tokio::time::advance(second).await;
    assert!(slots.request(1, 13, Class::Start, 9).is_none());
    assert_eq!(slots.waiting_since(13), Some(asked_at + second * 2));
    serve_all(&grants);
}

#[test]
fn bounds_hold_and_no_slot_is_lost_on_threads() {
    const THREADS: u32 = 4;
    const EACH: u32 = 3_000;
    let running: Arc<[AtomicUsize; 3]> = Arc::default();
    let (granted, violations) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let run = {
        let (running, granted, violations) = (Arc::clone(&running), Arc::clone(&granted), Arc::clone(&violations));
        move |ticket: u32, slot: Slot| {
            let mine = &running[(ticket % 3) as usize];
            if mine.fetch_add(1, Ordering::SeqCst) >= 2 {
                violations.fetch_add(1, Ordering::SeqCst);
            }
            granted.fetch_add(1, Ordering::SeqCst);
            if ticket.is_multiple_of(5) {
                std::thread::yield_now();
            }
            mine.fetch_sub(1, Ordering::SeqCst);
            drop(slot);
        }
    };
    let slots = Slots::new(4, Arc::new(run.clone()));
    let withdrawn: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|worker| {
                let (slots, run) = (slots.clone(), run.clone());
                scope.spawn(move || {
                    let mut withdrawn = 0;
                    for ticket in worker * EACH..(worker + 1) * EACH {
                        let class = if ticket.is_multiple_of(2) { Class::Resume } else { Class::Start };
                        match slots.request(ticket % 3, ticket, class, 2) {
                            Some(slot) => run(ticket, slot),
                            None if ticket.is_multiple_of(4) => withdrawn += usize::from(slots.withdraw(ticket)),
                            None => {}
                        }
                    }
                    withdrawn
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!((slots.in_use(), slots.queued(), violations.load(Ordering::SeqCst)), (0, 0, 0));
    assert_eq!(granted.load(Ordering::SeqCst) + withdrawn, (THREADS * EACH) as usize);
}

#[derive(Default)]
pub(super) struct Naive {
    global: usize,
    clock: u32,
    bounds: BTreeMap<u8, usize>,
    running: BTreeMap<u32, u8>,
    waiting: Vec<(Class, u8, u32, u32)>,
    turns: BTreeMap<(Class, u8), u32>,
}

impl Naive {
    pub(super) fn new(global: usize) -> Self {
        Self { global, ..Self::default() }
    }

    pub(super) fn running(&self) -> impl Iterator<Item = u32> {
        self.running.keys().copied()
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = u32> {
        self.waiting.iter().map(|(.., ticket)| *ticket)
    }

    pub(super) fn give_back(&mut self, ticket: u32) {
        self.running.remove(&ticket);
        self.serve();
    }

    pub(super) fn withdraw(&mut self, ticket: u32) {
        self.waiting.retain(|(.., other)| *other != ticket);
    }

    pub(super) fn request(&mut self, root: u8, ticket: u32, class: Class, bound: u32) {
        self.clock += 1;
        self.bounds.insert(root, bound as usize);
        if !self.waiting.iter().any(|(other, at, ..)| (*other, *at) == (class, root)) {
            self.turns.insert((class, root), self.clock);
        }
        self.waiting.push((class, root, self.clock, ticket));
        self.serve();
    }

    fn serve(&mut self) {
        while self.running.len() < self.global {
            let below = |root: &u8| self.running.values().filter(|other| *other == root).count() < self.bounds[root];
            let free = self.waiting.iter().filter(|(_, root, ..)| below(root));
            let next = free.min_by_key(|(class, root, arrival, _)| (*class, self.turns[&(*class, *root)], *arrival));
            let Some(next) = next.copied() else { return };
            self.clock += 1;
            self.waiting.retain(|waiting| *waiting != next);
            let (class, root, _, ticket) = next;
            self.turns.insert((class, root), self.clock);
            self.running.insert(ticket, root);
        }
    }
}

#[derive(Debug, Clone)]
enum SlotStep {
    Request { root: u8, class: Class, bound: u32 },
    Return(usize),
    Withdraw(usize),
}

fn steps() -> impl Strategy<Value = Vec<SlotStep>> {
    let class = prop_oneof![Just(Class::Resume), Just(Class::Start)];
    let request = (0_u8..4, class, 0_u32..4).prop_map(|(root, class, bound)| SlotStep::Request { root, class, bound });
    let step = prop_oneof![
        4 => request,
        3 => any::<usize>().prop_map(SlotStep::Return),
        1 => any::<usize>().prop_map(SlotStep::Withdraw)
    ];
    prop::collection::vec(step, 0..120)
}

struct Pair {
    slots: Slots<u8, u32>,
    grants: Grants,
    held: BTreeMap<u32, Slot>,
    naive: Naive,
}

impl Pair {
    fn new(global: usize) -> Self {
        let (slots, grants) = pool(global);
        let naive = Naive::new(global);
        Self { slots, grants, held: BTreeMap::new(), naive }
    }

    fn step(&mut self, ticket: u32, step: &SlotStep) {
        match step {
            SlotStep::Request { root, class, bound } => {
                self.naive.request(*root, ticket, *class, *bound);
                let given = self.slots.request(*root, ticket, *class, *bound);
                self.collect();
                if let Some(slot) = given {
                    self.held.insert(ticket, slot);
                }
            }
            SlotStep::Return(nth) if !self.held.is_empty() => {
                let ticket = *self.held.keys().nth(nth % self.held.len()).unwrap();
                self.naive.give_back(ticket);
                self.held.remove(&ticket);
                self.collect();
            }
            SlotStep::Withdraw(nth) if !self.naive.waiting.is_empty() => {
                let (.., ticket) = self.naive.waiting.remove(nth % self.naive.waiting.len());
                assert!(self.slots.withdraw(ticket));
            }
            SlotStep::Return(_) | SlotStep::Withdraw(_) => {}
        }
    }

    fn collect(&mut self) {
        for (ticket, slot) in self.grants.lock().unwrap().drain(..) {
            assert!(self.held.insert(ticket, slot).is_none(), "ticket {ticket} was granted twice");
        }
    }

    fn assert_equal(&self) {
        let held: BTreeSet<u32> = self.held.keys().copied().collect();
        assert_eq!(held, self.naive.running.keys().copied().collect());
        assert_eq!((self.slots.in_use(), self.slots.queued()), (held.len(), self.naive.waiting.len()));
        for root in 0..4 {
            let running = self.naive.running.values().filter(|other| **other == root).count();
            assert_eq!(self.slots.in_use_by(root), running);
        }
        for (.., ticket) in &self.naive.waiting {
            assert!(self.slots.waiting_since(*ticket).is_some(), "{ticket} is not queued");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn pool_matches_its_naive_model(global in 0_usize..5, steps in steps()) {
        let mut pair = Pair::new(global);
        for (ticket, step) in (0..).zip(&steps) {
            let before = pair.held.len();
            pair.step(ticket, step);
            pair.assert_equal();
            prop_assert!(pair.held.len() <= global.max(before));
        }
        while let Some((ticket, slot)) = pair.held.pop_first() {
            prop_assert!(ticket < steps.len() as u32);
            drop(slot);
            pair.collect();
        }
        let stuck = |(_, root, ..): &(Class, u8, u32, u32)| pair.naive.bounds[root] == 0 || global == 0;
        let left: Vec<_> = pair.naive.waiting.iter().filter(|waiting| stuck(waiting)).collect();
        prop_assert_eq!((pair.slots.in_use(), pair.slots.queued()), (0, left.len()), "every ticket that can run has run");
    }

    #[test]
    fn every_round_serves_every_waiting_root(per_root in prop::collection::vec(1_usize..12, 1..6)) {
        let (slots, grants) = pool(1);
        let held = slots.request(99, 9_999, Class::Start, 1);
        for (root, tickets) in (0_u8..).zip(&per_root) {
            for ticket in 0..*tickets as u32 {
                prop_assert!(slots.request(root, u32::from(root) * 100 + ticket, Class::Start, 9).is_none());
            }
        }
        drop(held);
        let rounds = *per_root.iter().max().unwrap() as u32;
        let waits = |root: usize, round: u32| (round as usize) < per_root[root];
        let expected: Vec<u32> = (0..rounds)
            .flat_map(|round| (0..per_root.len()).filter(move |root| waits(*root, round)).map(move |root| (root, round)))
            .map(|(root, round)| root as u32 * 100 + round)
            .collect();
        prop_assert_eq!(serve_all(&grants), expected);
    }
}
