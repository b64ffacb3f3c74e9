//! Power loss: redb on a medium that drops unsynced writes. Unlike a kill, a power loss also loses the page cache.

use std::collections::BTreeMap;

use crate::scene::*;
use fastrand::Rng;
use subtend_journal::redb::Redb;
use subtend_journal::stepper::{Stepped, Stepper};

use crate::engines::CACHE;
use crate::medium::{Medium, Survivors};

fn seed() -> u64 {
    std::env::var("SUBTEND_POWER_SEED").map_or(20_261_122, |seed| seed.parse().unwrap())
}

/// Last frame and records of an appended batch.
type Acked = (Lsn, Vec<(SessionId, Vec<Record>)>);

/// A process with a journal on a medium, which writes step by step.
struct WritingProcess {
    journal: Journal,
    stepper: Stepper,
    batches: Vec<Acked>,
    /// End of the log at its opening.
    found: Lsn,
    acknowledged: Lsn,
}

impl WritingProcess {
    fn on(medium: &Medium) -> Result<Self, String> {
        let engine = Redb::over(medium.clone(), CACHE).map_err(|error| error.to_string())?;
        let opened = Journal::open_stepped(Box::new(engine), Options::default());
        let (journal, stepper) = opened.map_err(|error| error.to_string())?;
        let found = journal.durable();
        Ok(Self { journal, stepper, batches: Vec::new(), found, acknowledged: found })
    }

    fn append(&mut self, frames: Vec<Frame>) -> Option<Lsn> {
        let expected = frames.iter().map(|frame| (frame.session, frame.records.clone())).collect();
        let appended = self.journal.append(Batch { frames }).ok()?;
        self.batches.push((appended.last, expected));
        Some(appended.first)
    }

    /// Writes the queue in groups of up to three batches. Returns false once the medium has lost power.
    fn write(&mut self, rng: &mut Rng) -> bool {
        loop {
            match self.stepper.step(rng.usize(1..=3)) {
                Stepped::Wrote(lsn) => self.acknowledged = lsn,
                Stepped::Nothing | Stepped::Closed => return true,
                Stepped::Failed => return false,
            }
        }
    }

    /// Appends trees from `from` on: new sessions, some two at a time, turns, and inputs of many sizes.
    fn work(&mut self, from: u128, rng: &mut Rng) {
        for n in 0..3 {
            let (mut a, mut b) = (SessionWriter::new(id(from + 2 * n)), SessionWriter::new(id(from + 2 * n + 1)));
            let creations = vec![created_session(&mut a, None, true), created_session(&mut b, None, true)];
            let Some(first) = self.append(creations) else { return };
            (a.opened_lsn, b.opened_lsn) = (first, first.next());
            for frames in [
                vec![a.frame_of(start(a.id)), b.frame_of(start(b.id))],
                vec![next_frame(&mut a, rng)],
                vec![next_frame(&mut b, rng)],
            ] {
                self.append(frames);
                if rng.bool() && !self.write(rng) {
                    return;
                }
            }
            if !self.write(rng) {
                return;
            }
        }
    }
}

fn next_frame(writer: &mut SessionWriter, rng: &mut Rng) -> Frame {
    // Sizes range from one page of redb to many, so that the medium is resized.
    let text = "x".repeat(*rng.choice(&[10, 900, 5_000, 60_000]).unwrap());
    let n = uuid::Uuid::from_u128(1_000 + writer.records.len() as u128);
    writer.frame_of(vec![record(serde_json::json!({"input_accepted": {
        "id": n, "from": "person", "lane": "send", "text": text, "as_owner": "person",
    }}))])
}

/// Creates a store without failures. A file gets its name when it is complete.
fn new_medium() -> Medium {
    let medium = Medium::default();
    drop(Redb::over(medium.clone(), CACHE).unwrap());
    assert!(!medium.has_unsynced_writes(), "a closed store has unsynced writes");
    medium
}

/// Returns the violation in the store on `medium` after these processes, or whether it contains unacknowledged frames.
fn check_store(medium: &Medium, processes: &[WritingProcess]) -> Result<bool, String> {
    let engine = Redb::over(medium.clone(), CACHE).map_err(|error| format!("it does not open: {error}"))?;
    let journal = Journal::open(Box::new(engine), Options::default()).map_err(|error| error.to_string())?;
    let (end, acknowledged) =
        (journal.durable(), processes.iter().map(|process| process.acknowledged).max().unwrap_or_default());
    if end < acknowledged {
        return Err(format!("{acknowledged} was acknowledged, but the log ends at {end}"));
    }
    let all = || processes.iter().flat_map(|process| &process.batches);
    if end != Lsn(0) && !all().any(|(last, _)| *last == end) {
        return Err(format!("the log ends at {end}, within a batch"));
    }
    let mut recorded: BTreeMap<SessionId, Vec<&Record>> = BTreeMap::new();
    for (session, records) in all().filter(|(last, _)| *last <= end).flat_map(|(_, frames)| frames) {
        recorded.entry(*session).or_default().extend(records);
    }
    for (session, _) in all().flat_map(|(_, frames)| frames) {
        let found = journal.records(*session).map(|records| records.into_iter().map(|stored| stored.record).collect());
        let found: Vec<Record> = match (found, recorded.contains_key(session)) {
            (Ok(found), true) => found,
            (Err(error), true) => return Err(error.to_string()),
            (found, false) => {
                found.map_or(Ok(()), |_: Vec<_>| Err(format!("session {session} exists without its batch")))?;
                continue;
            }
        };
        if !found.iter().eq(recorded.get(session).unwrap().iter().copied()) {
            return Err(format!("session {session} differs from what was written"));
        }
    }
    let problems = journal.verify(&mut |_| {}).map_err(|error| error.to_string())?.problems;
    problems.first().map_or(Ok(end > acknowledged), |problem| Err(problem.to_string()))
}

/// Loses power at `step` and checks the store.
fn lose_power_once(store: &Medium, step: u64, kept: Survivors) -> Result<(bool, Medium, Vec<WritingProcess>), String> {
    let mut rng = Rng::with_seed(seed());
    let medium = store.clone().with_power_loss_at(step);
    let processes: Vec<WritingProcess> = run_process(&medium, 1, &mut rng).into_iter().collect();
    let left = medium.after_power_cut(kept, &mut rng);
    let describe = |why: String| format!("power lost at step {step}, {kept:?} kept: {why}");
    Ok((check_store(&left.copy(), &processes).map_err(describe)?, left, processes))
}

/// Runs a second process on the store of the first, soon loses power again, and checks the store.
fn lose_power_again(
    left: &Medium,
    mut processes: Vec<WritingProcess>,
    kept: Survivors,
    rng: &mut Rng,
) -> Result<bool, String> {
    let step = rng.u64(1..40);
    let medium = left.copy().with_power_loss_at(step);
    if let Some(second) = run_process(&medium, 100, rng) {
        // The second process reuses the positions of lost frames.
        processes.iter_mut().for_each(|first| first.batches.retain(|(last, _)| *last <= second.found));
        processes.push(second);
    }
    let describe = |why: String| format!("and again at step {step}, {kept:?} kept: {why}");
    check_store(&medium.after_power_cut(kept, rng), &processes).map_err(describe)
}

fn run_process(medium: &Medium, from: u128, rng: &mut Rng) -> Option<WritingProcess> {
    let mut process = WritingProcess::on(medium).ok()?;
    process.work(from, rng);
    Some(process)
}

fn steps(store: &Medium) -> u64 {
    let medium = store.copy();
    let process = run_process(&medium, 1, &mut Rng::with_seed(seed())).unwrap();
    assert_eq!(process.acknowledged, process.journal.last_appended());
    medium.steps()
}

fn power_may_be_lost_at_any_write(kept: Survivors) {
    let store = new_medium();
    let mut beyond = Vec::new();
    for step in 1..=steps(&store) {
        let (more, left, processes) = lose_power_once(&store.copy(), step, kept).unwrap();
        beyond.push(more);
        // A second power loss is tested at every third step only, to keep the test short.
        if step % 3 != 0 {
            continue;
        }
        let mut rng = Rng::with_seed(seed() ^ step);
        let again = *rng.choice(&Survivors::ALL).unwrap();
        let describe = |why: String| format!("power lost at step {step}, {kept:?} kept, {why}");
        lose_power_again(&left, processes, again, &mut rng).map_err(describe).unwrap();
    }
    // Unsynced writes may be complete nevertheless, unless none are kept.
    match kept {
        Survivors::Nothing => assert!(!beyond.contains(&true)),
        Survivors::All => assert!(beyond.contains(&true)),
        Survivors::First | Survivors::Some | Survivors::Torn => assert!(beyond.contains(&false)),
    }
}

#[test]
fn power_loss_at_any_write_keeps_synced_frames() {
    power_may_be_lost_at_any_write(Survivors::Nothing);
}

#[test]
fn power_loss_at_any_write_may_keep_unsynced_writes() {
    power_may_be_lost_at_any_write(Survivors::All);
}

#[test]
fn power_loss_keeps_a_prefix_of_unsynced_writes() {
    power_may_be_lost_at_any_write(Survivors::First);
}

#[test]
fn power_loss_keeps_some_unsynced_writes() {
    power_may_be_lost_at_any_write(Survivors::Some);
}

#[test]
fn power_loss_at_any_write_may_tear_the_last_write() {
    power_may_be_lost_at_any_write(Survivors::Torn);
}

/// Negative control: with syncs that do nothing, acknowledged frames are lost.
#[test]
fn medium_whose_syncs_do_nothing_is_noticed() {
    let store = new_medium();
    let noticed = |kept| {
        let processes = (1..=steps(&store)).map(|step| lose_power_once(&store.copy().with_ignored_syncs(), step, kept));
        processes.filter_map(Result::err).collect::<Vec<_>>()
    };
    let gone = noticed(Survivors::Nothing);
    assert!(gone.len() > 25 && gone.iter().all(|text| text.contains("was acknowledged, but the log ends at 0")));
    let torn = noticed(Survivors::Some);
    assert!(torn.len() > 25, "{torn:#?}");
}
