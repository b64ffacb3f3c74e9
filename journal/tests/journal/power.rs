//! Loss of power: the real redb over a medium that drops what no sync has reached. A kill leaves the page cache; this does not.

use std::collections::BTreeMap;

use fastrand::Rng;
use subtend_journal::redb::Redb;
use subtend_journal::stepped::{Stepped, Stepper};
use subtend_journal::{Batch, Frame, Journal, Options};
use subtend_session::ids::{Lsn, SessionId};
use subtend_session::record::Record;

use crate::engines::CACHE;
use crate::medium::{Kept, Medium};
use crate::scene::{Teller, born, id, record, start};

/// What the work, the groups and the losses are drawn from.
fn seed() -> u64 {
    std::env::var("SUBTEND_POWER_SEED").map_or(20_261_122, |seed| seed.parse().unwrap())
}

/// A batch that was appended: its last frame, and the records in it.
type Told = (Lsn, Vec<(SessionId, Vec<Record>)>);

/// A journal on a medium, written step by step, and what was told of it.
struct Life {
    journal: Journal,
    stepper: Stepper,
    batches: Vec<Told>,
    /// Where the log ended when it was opened.
    found: Lsn,
    acknowledged: Lsn,
}

impl Life {
    fn on(medium: &Medium) -> Result<Self, String> {
        let engine = Redb::over(medium.clone(), CACHE).map_err(|error| error.to_string())?;
        let opened = Journal::open_stepped(Box::new(engine), Options::default());
        let (journal, stepper) = opened.map_err(|error| error.to_string())?;
        let found = journal.durable();
        Ok(Self { journal, stepper, batches: Vec::new(), found, acknowledged: found })
    }

    fn append(&mut self, frames: Vec<Frame>) -> Option<Lsn> {
        let said = frames.iter().map(|frame| (frame.session, frame.records.clone())).collect();
        let appended = self.journal.append(Batch { frames }).ok()?;
        self.batches.push((appended.last, said));
        Some(appended.first)
    }

    /// Writes all that waits, in groups of at most three batches; false once the medium is dead.
    fn write(&mut self, rng: &mut Rng) -> bool {
        loop {
            match self.stepper.step(rng.usize(1..=3)) {
                Stepped::Wrote(lsn) => self.acknowledged = lsn,
                Stepped::Nothing | Stepped::Closed => return true,
                Stepped::Failed => return false,
            }
        }
    }

    /// Trees from `from` on, one after another: births, some of two sessions at once, turns, and inputs of many sizes.
    fn work(&mut self, from: u128, rng: &mut Rng) {
        for n in 0..3 {
            let (mut a, mut b) = (Teller::new(id(from + 2 * n)), Teller::new(id(from + 2 * n + 1)));
            let births = vec![born(&mut a, None, true), born(&mut b, None, true)];
            let Some(first) = self.append(births) else { return };
            (a.opened_lsn, b.opened_lsn) = (first, first.next());
            for frames in
                [vec![a.tell(start(a.id)), b.tell(start(b.id))], vec![said(&mut a, rng)], vec![said(&mut b, rng)]]
            {
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

fn said(teller: &mut Teller, rng: &mut Rng) -> Frame {
    // From one page of redb to many: a medium that grows is resized.
    let text = "x".repeat(*rng.choice(&[10, 900, 5_000, 60_000]).unwrap());
    let n = uuid::Uuid::from_u128(1_000 + teller.records.len() as u128);
    teller.tell(vec![record(serde_json::json!({"input_accepted": {
        "id": n, "from": "person", "lane": "send", "text": text, "as_owner": "person",
    }}))])
}

/// A store that was made while nothing failed, as a file gets its name only when it is whole.
fn made() -> Medium {
    let medium = Medium::default();
    drop(Redb::over(medium.clone(), CACHE).unwrap());
    assert!(!medium.owes(), "a store that was made and closed is on the medium");
    medium
}

/// What does not hold of the store on `medium` after the lives told; else whether it holds more than was acknowledged.
fn judge(medium: &Medium, lives: &[Life]) -> Result<bool, String> {
    let engine = Redb::over(medium.clone(), CACHE).map_err(|error| format!("it does not open: {error}"))?;
    let journal = Journal::open(Box::new(engine), Options::default()).map_err(|error| error.to_string())?;
    let (end, acknowledged) = (journal.durable(), lives.iter().map(|life| life.acknowledged).max().unwrap_or_default());
    if end < acknowledged {
        return Err(format!("{acknowledged} was acknowledged, and the log ends at {end}"));
    }
    let all = || lives.iter().flat_map(|life| &life.batches);
    if end != Lsn(0) && !all().any(|(last, _)| *last == end) {
        return Err(format!("the log ends at {end}, within a batch"));
    }
    let mut told: BTreeMap<SessionId, Vec<&Record>> = BTreeMap::new();
    for (session, records) in all().filter(|(last, _)| *last <= end).flat_map(|(_, frames)| frames) {
        told.entry(*session).or_default().extend(records);
    }
    for (session, _) in all().flat_map(|(_, frames)| frames) {
        let found = journal.records(*session).map(|records| records.into_iter().map(|stored| stored.record).collect());
        let found: Vec<Record> = match (found, told.contains_key(session)) {
            (Ok(found), true) => found,
            (Err(error), true) => return Err(error.to_string()),
            (found, false) => {
                found.map_or(Ok(()), |_: Vec<_>| Err(format!("session {session} is there without its batch")))?;
                continue;
            }
        };
        if !found.iter().eq(told.get(session).unwrap().iter().copied()) {
            return Err(format!("session {session} is not what was written"));
        }
    }
    let problems = journal.verify(&mut |_| {}).map_err(|error| error.to_string())?.problems;
    problems.first().map_or(Ok(end > acknowledged), |problem| Err(problem.to_string()))
}

/// A life with power lost at `step`, and what does not hold after it.
fn one_life(store: &Medium, step: u64, kept: Kept) -> Result<(bool, Medium, Vec<Life>), String> {
    let mut rng = Rng::with_seed(seed());
    let medium = store.clone().dies_at(step);
    let lives: Vec<Life> = lived(&medium, 1, &mut rng).into_iter().collect();
    let left = medium.after_power_cut(kept, &mut rng);
    let told = |why: String| format!("power lost at step {step}, {kept:?} kept: {why}");
    Ok((judge(&left.copy(), &lives).map_err(told)?, left, lives))
}

/// Another life on what the first one left, with power lost while the store opens or soon after, and what does not hold then.
fn another_life(left: &Medium, mut lives: Vec<Life>, kept: Kept, rng: &mut Rng) -> Result<bool, String> {
    let step = rng.u64(1..40);
    let medium = left.copy().dies_at(step);
    if let Some(second) = lived(&medium, 100, rng) {
        // What the first appended beyond the end is no more; its places are the second's.
        lives.iter_mut().for_each(|first| first.batches.retain(|(last, _)| *last <= second.found));
        lives.push(second);
    }
    let told = |why: String| format!("and again at step {step}, {kept:?} kept: {why}");
    judge(&medium.after_power_cut(kept, rng), &lives).map_err(told)
}

fn lived(medium: &Medium, from: u128, rng: &mut Rng) -> Option<Life> {
    let mut life = Life::on(medium).ok()?;
    life.work(from, rng);
    Some(life)
}

/// How many steps the whole work takes.
fn steps(store: &Medium) -> u64 {
    let medium = store.copy();
    let life = lived(&medium, 1, &mut Rng::with_seed(seed())).unwrap();
    assert_eq!(life.acknowledged, life.journal.appended());
    medium.steps()
}

fn power_may_be_lost_at_any_write(kept: Kept) {
    let store = made();
    let mut beyond = Vec::new();
    for step in 1..=steps(&store) {
        let (more, left, lives) = one_life(&store.copy(), step, kept).unwrap();
        beyond.push(more);
        // Every third of them, lest the test take minutes.
        if step % 3 != 0 {
            continue;
        }
        let mut rng = Rng::with_seed(seed() ^ step);
        let again = *rng.choice(&Kept::ALL).unwrap();
        let told = |why: String| format!("power lost at step {step}, {kept:?} kept, {why}");
        another_life(&left, lives, again, &mut rng).map_err(told).unwrap();
    }
    // What no sync has reached may be there whole all the same; where nothing of it is kept, none of it is.
    match kept {
        Kept::Nothing => assert!(!beyond.contains(&true)),
        Kept::All => assert!(beyond.contains(&true)),
        Kept::First | Kept::Some | Kept::Torn => assert!(beyond.contains(&false)),
    }
}

#[test]
fn power_may_be_lost_at_any_write_and_what_was_not_synced_goes_with_it() {
    power_may_be_lost_at_any_write(Kept::Nothing);
}

#[test]
fn power_may_be_lost_at_any_write_and_what_was_not_synced_stays() {
    power_may_be_lost_at_any_write(Kept::All);
}

#[test]
fn power_may_be_lost_at_any_write_and_the_first_of_what_was_not_synced_stay() {
    power_may_be_lost_at_any_write(Kept::First);
}

#[test]
fn power_may_be_lost_at_any_write_and_some_of_what_was_not_synced_stay() {
    power_may_be_lost_at_any_write(Kept::Some);
}

#[test]
fn power_may_be_lost_at_any_write_and_the_last_is_torn() {
    power_may_be_lost_at_any_write(Kept::Torn);
}

/// The control: over a medium whose syncs do nothing, whatever was acknowledged is found to be gone.
#[test]
fn a_medium_whose_syncs_do_nothing_is_noticed() {
    let store = made();
    let noticed = |kept| {
        let lives = (1..=steps(&store)).step_by(4).map(|step| one_life(&store.copy().lying(), step, kept));
        lives.filter_map(Result::err).collect::<Vec<_>>()
    };
    let gone = noticed(Kept::Nothing);
    assert!(gone.len() > 25 && gone.iter().all(|told| told.contains("was acknowledged, and the log ends at 0")));
    let torn = noticed(Kept::Some);
    assert!(torn.len() > 25, "{torn:#?}");
}
