use std::collections::HashSet;
use std::hash::BuildHasher as _;
use std::sync::Mutex;

use foldhash::fast::FixedState;
use proptest::prelude::*;

use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

type Fired = Arc<Mutex<Vec<(u32, u64)>>>;

fn timers() -> (Timers<u32>, Fired) {
    let fired = Fired::default();
    let (kept, start) = (Arc::clone(&fired), Instant::now());
    let note = move |key| kept.lock().unwrap().push((key, u64::try_from(start.elapsed().as_millis()).unwrap()));
    (Timers::start(Arc::new(note)), fired)
}

/// Advances the clock while the timer task runs.
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

fn keys(fired: &Fired) -> Vec<u32> {
    fired.lock().unwrap().iter().map(|(key, _)| *key).collect()
}

#[tokio::test(start_paused = true)]
async fn deadlines_fire_in_order_of_time() {
    let (timers, fired) = timers();
    for (key, after) in [(1, 300), (2, 100), (3, 200), (5, 100), (4, 100)] {
        timers.arm(key, ms(after));
    }
    assert_eq!(timers.armed(), 5);
    pass(ms(1_000)).await;
    assert_eq!((keys(&fired), timers.armed()), (vec![2, 4, 5, 3, 1], 0));
}

#[tokio::test(start_paused = true)]
async fn earlier_deadline_wakes_the_sleeping_task() {
    let (timers, fired) = timers();
    timers.arm(1, ms(10_000));
    pass(ms(1_000)).await;
    timers.arm(2, ms(50));
    pass(ms(100)).await;
    assert_eq!(keys(&fired), [2]);
}

#[tokio::test(start_paused = true)]
async fn rearming_replaces_and_disarming_prevents() {
    let (timers, fired) = timers();
    timers.arm(1, ms(50));
    timers.arm(1, ms(500));
    timers.arm(2, ms(500));
    timers.arm(2, ms(50));
    timers.arm(3, ms(50));
    assert_eq!((timers.disarm(&3), timers.disarm(&3), timers.armed()), (true, false, 2));
    pass(ms(100)).await;
    assert_eq!(keys(&fired), [2]);
    pass(ms(900)).await;
    assert_eq!((keys(&fired), timers.disarm(&1)), (vec![2, 1], false));
}

#[tokio::test(start_paused = true)]
async fn callback_may_rearm_itself_and_disarm_others() {
    let cell = Arc::new(Mutex::new(None::<Timers<u32>>));
    let (fired, inner) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&cell));
    let kept = Arc::clone(&fired);
    let timers = Timers::start(Arc::new(move |key| {
        let timers = inner.lock().unwrap().clone().unwrap();
        kept.lock().unwrap().push(key);
        if kept.lock().unwrap().len() < 3 {
            timers.arm(1, ms(10));
        }
        timers.disarm(&2);
    }));
    *cell.lock().unwrap() = Some(timers.clone());
    timers.arm(1, ms(10));
    timers.arm(2, ms(10));
    pass(ms(200)).await;
    assert_eq!((fired.lock().unwrap().clone(), timers.armed()), (vec![1, 1, 1], 0));
    cell.lock().unwrap().take();
}

#[tokio::test(start_paused = true)]
async fn key_moved_by_a_callback_does_not_fire_with_its_tick() {
    let cell = Arc::new(Mutex::new(None::<Timers<u32>>));
    let (fired, inner) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&cell));
    let kept = Arc::clone(&fired);
    let timers = Timers::start(Arc::new(move |key| {
        kept.lock().unwrap().push(key);
        if key == 1 {
            inner.lock().unwrap().clone().unwrap().arm(2, ms(500));
        }
    }));
    *cell.lock().unwrap() = Some(timers.clone());
    for key in [1, 2, 3] {
        timers.arm(key, ms(10));
    }
    pass(ms(100)).await;
    assert_eq!((fired.lock().unwrap().clone(), timers.armed()), (vec![1, 3], 1));
    pass(ms(500)).await;
    assert_eq!(*fired.lock().unwrap(), [1, 3, 2]);
    cell.lock().unwrap().take();
}

#[tokio::test(start_paused = true)]
async fn callback_panic_does_not_affect_other_keys() {
    let (fired, seen) = (Arc::new(Mutex::new(Vec::new())), tokio::sync::Notify::new());
    let (kept, seen) = (Arc::clone(&fired), Arc::new(seen));
    let last = Arc::clone(&seen);
    let timers = Timers::start(Arc::new(move |key: u32| {
        assert!(key != 1, "key 1 panics");
        kept.lock().unwrap().push(key);
        last.notify_one();
    }));
    timers.arm(1, ms(10));
    timers.arm(2, ms(10));
    seen.notified().await;
    assert_eq!(*fired.lock().unwrap(), [2]);
}

#[tokio::test(start_paused = true)]
async fn no_key_fires_after_a_shutdown() {
    let (timers, fired) = timers();
    timers.arm(1, ms(10));
    timers.shutdown();
    timers.arm(2, ms(10));
    pass(ms(100)).await;
    assert_eq!((keys(&fired), timers.armed()), (vec![], 0));
    timers.shutdown();
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_clone_ends_the_task() {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let timers = Timers::start(Arc::new(move |_: u32| drop(Arc::clone(&held))));
    timers.arm(1, ms(1_000_000));
    tokio::task::yield_now().await;
    drop(timers.clone());
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(timers);
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[tokio::test(start_paused = true)]
async fn deadline_beyond_the_clock_range_does_not_fire() {
    let (timers, fired) = timers();
    timers.arm(1, Duration::MAX);
    timers.arm(2, ms(3 * 24 * 60 * 60 * 1_000));
    pass(ms(4 * 24 * 60 * 60 * 1_000)).await;
    assert_eq!((keys(&fired), timers.armed()), (vec![2], 1));
}

/// Arms, moves and disarms keys on a paused clock. Returns the actual and expected firings.
async fn run_steps(steps: Vec<(u32, u64, u64, bool)>) -> (Vec<(u32, u64)>, Vec<(u32, u64)>) {
    let (timers, fired) = timers();
    let start = Instant::now();
    let mut armed = std::collections::BTreeMap::new();
    let mut expected = Vec::new();
    for (key, after, pause, disarm) in steps {
        let now = u64::try_from(start.elapsed().as_millis()).unwrap();
        if disarm {
            if timers.disarm(&key) {
                armed.remove(&key);
            }
        } else {
            timers.arm(key, ms(after));
            armed.insert(key, now + after);
        }
        pass(ms(pause)).await;
        let armed_keys: std::collections::BTreeSet<u32> = armed.keys().copied().collect();
        let seen = fired.lock().unwrap().len();
        for key in armed_keys {
            // A fired key is counted once, with its last deadline.
            let times = fired.lock().unwrap().iter().filter(|(other, _)| *other == key).count();
            let counted = expected.iter().filter(|(other, _)| *other == key).count();
            if times > counted {
                expected.push((key, armed.remove(&key).unwrap()));
            }
        }
        assert_eq!((seen, timers.armed()), (expected.len(), armed.len()));
    }
    pass(ms(2_000)).await;
    expected.extend(armed);
    let fired = fired.lock().unwrap().clone();
    (fired, expected)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn keys_fire_once_on_time_and_in_order(
        steps in prop::collection::vec((0_u32..8, 0_u64..200, 0_u64..60, prop::bool::weighted(0.3)), 1..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (mut fired, mut expected) = runtime.block_on(run_steps(steps));
        prop_assert!(fired.is_sorted_by_key(|(_, at)| *at));
        fired.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(fired.len(), expected.len());
        for ((key, at), (wanted, due)) in fired.into_iter().zip(expected) {
            prop_assert_eq!(key, wanted);
            prop_assert!(at >= due && at <= due + 10, "key {} was due at {} ms and fired at {} ms", key, due, at);
        }
    }
}

/// Prints the cost of arming and disarming among many keys. Fails only if a count is wrong.
#[tokio::test]
async fn cost_of_arming_and_disarming() {
    const ARMED: u32 = 100_000;
    let timers = Timers::start(Arc::new(|_: (u64, u32)| {}));
    let key = |n: u32| (u64::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15), n);
    let begun = Instant::now();
    (0..ARMED).for_each(|n| timers.arm(key(n), ms(480_000)));
    let filled = begun.elapsed();
    let begun = Instant::now();
    for n in 0..ARMED {
        timers.arm(key(ARMED + n), ms(480_000 + u64::from(n % 64) * 1_000));
        timers.disarm(&key(ARMED + n));
    }
    let pairs = begun.elapsed();
    println!(
        "arm, growing to {ARMED}: {:?} each; arm and disarm among them: {:?} a pair",
        filled / ARMED,
        pairs / ARMED
    );
    assert_eq!(timers.armed(), ARMED as usize);
}

#[test]
fn neighbouring_ids_do_not_collide_and_spread_over_both_ends() {
    let hashes = |keys: &mut dyn Iterator<Item = u64>| keys.collect::<HashSet<u64>>();
    let id = |n: u32| FixedState::default().hash_one((u128::from(n) << 64 | 7, n % 4));
    let seen = hashes(&mut (0..10_000).map(id));
    assert_eq!(seen.len(), 10_000);
    let (low, high): (HashSet<_>, HashSet<_>) = seen.iter().map(|hash| (hash & 0xFF, hash >> 57)).unzip();
    assert_eq!((low.len(), high.len()), (256, 128));
    let words = &mut (0..10_000_u32).map(|n| FixedState::default().hash_one(n.to_le_bytes()));
    assert_eq!(hashes(words).len(), 10_000);
}
