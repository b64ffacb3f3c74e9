use std::sync::Mutex;

use ractor::{ActorProcessingErr, ActorStatus};
use tokio::sync::mpsc;

use super::*;

const GRACE: Duration = Duration::from_secs(5);
const SLOW: Duration = Duration::from_secs(1);

struct Toy;

enum TestOrder {
    Note(u32),
    Panic,
    Fail,
    Hang,
}

struct Script {
    start: Start,
    panic_on_drop: bool,
    notes: Arc<Mutex<Vec<u32>>>,
}

#[derive(Clone, Copy)]
enum Start {
    Fine,
    Panic,
    Fail,
    Hang,
    Slow,
    PanicAfter,
}

const STOPPED_IN_ORDER: u32 = 1_000;

impl Drop for Script {
    fn drop(&mut self) {
        assert!(!self.panic_on_drop, "the state panics when it is dropped");
    }
}

impl Actor for Toy {
    type Msg = TestOrder;
    type State = Script;
    type Arguments = Script;

    async fn pre_start(&self, _: ActorRef<TestOrder>, script: Script) -> Result<Script, ActorProcessingErr> {
        match script.start {
            Start::Fine | Start::PanicAfter => Ok(script),
            Start::Panic => panic!("no start"),
            Start::Fail => Err("cannot start".into()),
            Start::Hang => std::future::pending().await,
            Start::Slow => {
                tokio::time::sleep(SLOW).await;
                Ok(script)
            }
        }
    }

    async fn post_start(&self, _: ActorRef<TestOrder>, script: &mut Script) -> Result<(), ActorProcessingErr> {
        assert!(!matches!(script.start, Start::PanicAfter), "just started");
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<TestOrder>,
        order: TestOrder,
        script: &mut Script,
    ) -> Result<(), ActorProcessingErr> {
        match order {
            TestOrder::Note(note) => script.notes.lock().unwrap().push(note),
            TestOrder::Panic => panic!("on request"),
            TestOrder::Fail => return Err("on request: fail".into()),
            TestOrder::Hang => std::future::pending().await,
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<TestOrder>, script: &mut Script) -> Result<(), ActorProcessingErr> {
        script.notes.lock().unwrap().push(STOPPED_IN_ORDER);
        Ok(())
    }
}

fn script(start: Start) -> Script {
    Script { start, panic_on_drop: false, notes: Arc::default() }
}

fn fine() -> Script {
    script(Start::Fine)
}

fn supervisors(shard: usize) -> (Supervisors, mpsc::UnboundedReceiver<Exit>) {
    let (exits, seen) = mpsc::unbounded_channel();
    let sink = move |exit| drop(exits.send(exit));
    (Supervisors::start(shard, Arc::new(sink)).unwrap(), seen)
}

fn failed(why: &str) -> ExitReason {
    ExitReason::Failed(why.to_owned())
}

#[tokio::test]
async fn every_kind_of_end_is_reported_once_without_siblings() {
    let (supervisors, mut exits) = supervisors(10);
    let sibling = supervisors.spawn(Toy, fine()).await.unwrap();
    type End = fn(&ActorRef<TestOrder>);
    let endings: [(End, ExitReason); 6] = [
        (|toy| toy.stop(None), ExitReason::Stopped),
        (|toy| toy.drain().unwrap(), ExitReason::Stopped),
        (|toy| toy.kill(), ExitReason::Killed),
        (|toy| toy.cast(TestOrder::Panic).unwrap(), failed("on request")),
        (|toy| toy.cast(TestOrder::Fail).unwrap(), failed("on request: fail")),
        (
            |toy| {
                toy.cast(TestOrder::Hang).unwrap();
                toy.kill();
            },
            ExitReason::Killed,
        ),
    ];
    for (end, how) in endings {
        let toy = supervisors.spawn(Toy, fine()).await.unwrap();
        end(&toy);
        assert_eq!(exits.recv().await, Some(Exit { actor: toy.get_id(), how }));
    }
    assert!(exits.try_recv().is_err());
    assert_eq!(sibling.get_status(), ActorStatus::Running);
    supervisors.shutdown(GRACE).await;
    assert_eq!(exits.recv().await, Some(Exit { actor: sibling.get_id(), how: ExitReason::Stopped }));
    assert_eq!((supervisors.live(), sibling.get_status()), (0, ActorStatus::Stopped));
}

#[tokio::test]
async fn failed_start_returns_an_error() {
    let (supervisors, mut exits) = supervisors(10);
    let why = |error| SpawnError::Start(String::from(error));
    assert_eq!(supervisors.spawn(Toy, script(Start::Panic)).await.unwrap_err(), why("no start"));
    assert_eq!(supervisors.spawn(Toy, script(Start::Fail)).await.unwrap_err(), why("cannot start"));
    assert_eq!(supervisors.live(), 0);
    supervisors.shutdown(GRACE).await;
    assert!(exits.try_recv().is_err());
}

#[tokio::test]
async fn panic_after_the_start_is_reported() {
    let (supervisors, mut exits) = supervisors(10);
    let toy = supervisors.spawn(Toy, script(Start::PanicAfter)).await.unwrap();
    assert_eq!(exits.recv().await, Some(Exit { actor: toy.get_id(), how: failed("just started") }));
}

#[tokio::test(start_paused = true)]
async fn abandoned_start_frees_its_capacity() {
    let (supervisors, mut exits) = supervisors(1);
    let given_up = tokio::time::timeout(GRACE, supervisors.spawn(Toy, script(Start::Hang))).await;
    assert!(given_up.is_err());
    assert_eq!((supervisors.live(), supervisors.shards()), (0, 1));
    supervisors.spawn(Toy, fine()).await.unwrap();
    assert_eq!((supervisors.live(), supervisors.shards()), (1, 1));
    assert!(exits.try_recv().is_err());
}

#[tokio::test]
async fn supervisor_survives_panics_of_state_and_sink() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let sink = move |exit: Exit| {
        kept.lock().unwrap().push(exit.how);
        panic!("a sink that panics");
    };
    let supervisors = Supervisors::start(10, Arc::new(sink)).unwrap();
    let sibling = supervisors.spawn(Toy, fine()).await.unwrap();
    let nasty = Script { start: Start::Fine, panic_on_drop: true, notes: Arc::default() };
    let toy = supervisors.spawn(Toy, nasty).await.unwrap();
    toy.stop_and_wait(None, None).await.unwrap();
    while supervisors.live() > 1 {
        tokio::task::yield_now().await;
    }
    assert_eq!((sibling.get_status(), seen.lock().unwrap().clone()), (ActorStatus::Running, vec![ExitReason::Stopped]));
}

#[tokio::test(start_paused = true)]
async fn shutdown_finishes_queued_work_and_kills_hanging_actors() {
    let (supervisors, mut exits) = supervisors(2);
    let notes: Arc<Mutex<Vec<u32>>> = Arc::default();
    let orderly = Script { start: Start::Fine, panic_on_drop: false, notes: Arc::clone(&notes) };
    let orderly = supervisors.spawn(Toy, orderly).await.unwrap();
    let hanging = supervisors.spawn(Toy, fine()).await.unwrap();
    hanging.cast(TestOrder::Hang).unwrap();
    (1..=3).for_each(|note| orderly.cast(TestOrder::Note(note)).unwrap());
    let started_at = tokio::time::Instant::now();
    supervisors.shutdown(GRACE).await;
    assert_eq!((*notes.lock().unwrap()).as_slice(), [1, 2, 3, STOPPED_IN_ORDER]);
    assert_eq!((started_at.elapsed(), supervisors.live()), (GRACE, 0));
    let ends = [exits.recv().await.unwrap(), exits.recv().await.unwrap()];
    let expected = [(orderly.get_id(), ExitReason::Stopped), (hanging.get_id(), ExitReason::Killed)];
    assert_eq!(ends, expected.map(|(actor, how)| Exit { actor, how }));
    assert_eq!([orderly.get_status(), hanging.get_status()], [ActorStatus::Stopped; 2]);
    assert_eq!(supervisors.spawn(Toy, fine()).await.unwrap_err(), SpawnError::Closing);
    supervisors.shutdown(GRACE).await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_forever_for_a_start() {
    let (supervisors, mut exits) = supervisors(2);
    let starting = tokio::spawn({
        let supervisors = supervisors.clone();
        async move { supervisors.spawn(Toy, script(Start::Hang)).await.map(|_| ()) }
    });
    tokio::task::yield_now().await;
    assert_eq!(supervisors.live(), 1);
    supervisors.shutdown(GRACE).await;
    assert_eq!((starting.await.unwrap(), supervisors.live()), (Err(SpawnError::Closing), 0));
    assert!(exits.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn actor_started_during_shutdown_is_drained_not_killed() {
    let (supervisors, mut exits) = supervisors(2);
    let starting = tokio::spawn({
        let supervisors = supervisors.clone();
        async move { supervisors.spawn(Toy, script(Start::Slow)).await.map(|toy| toy.get_id()) }
    });
    tokio::task::yield_now().await;
    let started_at = tokio::time::Instant::now();
    supervisors.shutdown(GRACE).await;
    let actor = starting.await.unwrap().unwrap();
    assert!((SLOW..GRACE).contains(&started_at.elapsed()));
    assert_eq!(exits.recv().await, Some(Exit { actor, how: ExitReason::Stopped }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_children_end_with_their_shards() {
    let (supervisors, mut exits) = supervisors(2_000);
    let mut toys = Vec::new();
    for _ in 0..5_000 {
        toys.push(supervisors.spawn(Toy, fine()).await.unwrap());
    }
    assert_eq!((supervisors.live(), supervisors.shards()), (5_000, 3));
    for toy in toys.iter().step_by(2) {
        toy.cast(TestOrder::Panic).unwrap();
    }
    for _ in 0..2_500 {
        assert_eq!(exits.recv().await.unwrap().how, failed("on request"));
    }
    let survivors: Vec<_> = toys.iter().skip(1).step_by(2).collect();
    assert!(survivors.iter().all(|toy| toy.get_status() == ActorStatus::Running));
    for _ in 0..500 {
        supervisors.spawn(Toy, fine()).await.unwrap();
    }
    assert_eq!(supervisors.shards(), 3, "freed capacity is reused");
    supervisors.shutdown(GRACE).await;
    assert!(toys.iter().all(|toy| toy.get_status() == ActorStatus::Stopped));
    let rest = std::iter::from_fn(|| exits.try_recv().ok()).filter(|exit| exit.how == ExitReason::Stopped).count();
    assert_eq!((rest, supervisors.live()), (3_000, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spawns_racing_a_shutdown_end_with_it() {
    for _ in 0..20 {
        let (supervisors, mut exits) = supervisors(7);
        let spawning: Vec<_> = (0..4)
            .map(|_| {
                let supervisors = supervisors.clone();
                tokio::spawn(async move {
                    let mut toys = Vec::new();
                    while let Ok(toy) = supervisors.spawn(Toy, fine()).await {
                        toys.push(toy);
                        tokio::task::yield_now().await;
                    }
                    toys
                })
            })
            .collect();
        while supervisors.live() < 50 {
            tokio::task::yield_now().await;
        }
        supervisors.shutdown(GRACE).await;
        assert_eq!(supervisors.live(), 0);
        let mut started = 0;
        for spawner in spawning {
            for toy in spawner.await.unwrap() {
                toy.wait(None).await.unwrap();
                started += 1;
            }
        }
        assert_eq!(std::iter::from_fn(|| exits.try_recv().ok()).count(), started);
    }
}

#[tokio::test]
async fn storm_is_reported_once_and_a_kill_is_not_a_failure() {
    let storms = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&storms);
    let (exits, mut seen) = mpsc::unbounded_channel();
    let limit = StormLimit { max: 3, within: Duration::from_secs(10) };
    let supervisors = Supervisors::start_with(
        10,
        Arc::new(move |exit| drop(exits.send(exit))),
        limit,
        Arc::new(move |storm| kept.lock().unwrap().push(storm)),
    )
    .unwrap();
    let mut reported = Vec::new();
    for how in [TestOrder::Hang, TestOrder::Fail, TestOrder::Fail, TestOrder::Fail, TestOrder::Fail, TestOrder::Panic] {
        let toy = supervisors.spawn(Toy, fine()).await.unwrap();
        let killed = matches!(how, TestOrder::Hang);
        toy.cast(how).unwrap();
        if killed {
            toy.kill();
        }
        seen.recv().await.unwrap();
        reported.push(storms.lock().unwrap().len());
    }
    assert_eq!(reported, [0, 0, 0, 0, 1, 1], "three failures are within the limit, and a kill does not count");
    assert_eq!(*storms.lock().unwrap(), [StormDetected { shard: 0, limit }]);
}

#[tokio::test]
async fn killed_supervisor_removes_its_children_from_the_count() {
    let (supervisors, _exits) = supervisors(2);
    let toy = supervisors.spawn(Toy, fine()).await.unwrap();
    toy.try_get_supervisor().unwrap().kill();
    toy.wait(None).await.unwrap();
    supervisors.shutdown(GRACE).await;
    assert_eq!(supervisors.live(), 0);
}

#[tokio::test]
async fn dropping_the_last_clone_kills_all_actors() {
    let (supervisors, mut exits) = supervisors(2);
    let toy = supervisors.spawn(Toy, fine()).await.unwrap();
    drop(supervisors);
    toy.wait(None).await.unwrap();
    assert_eq!(exits.recv().await, None);
}

#[test]
fn shard_size_is_one_to_two_thousand() {
    let start = |shard| Supervisors::start(shard, Arc::new(|_| {})).map(|_| ());
    let expected = [Err(StartError::Shard(0)), Ok(()), Ok(()), Err(StartError::Shard(2_001))];
    assert_eq!([0, 1, 2_000, 2_001].map(start), expected);
}
