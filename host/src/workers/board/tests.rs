//! Checks the rules of leases under random orders of requests, cancels and time steps.

use std::collections::BTreeMap;

use serde_json::json;
use subtend_session::message::ToolSpec;
use uuid::Uuid;

use super::*;

const LEASE: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_secs(60);
const STEPS: u32 = 80;

/// Random numbers from a seed.
struct LeaseDice(u64);

impl LeaseDice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// What the worker of a lease knows about it.
struct KnownLease {
    no: u64,
    until: Instant,
    begun: bool,
    /// The accepted result, if any.
    completed: Option<WorkerResult>,
}

/// The expected state of a call.
#[derive(Default)]
struct KnownCall {
    idempotent: bool,
    leases: u32,
    begun: u32,
    /// Number of leases completed with "not started".
    given_back: u32,
    /// Number of leases in which a worker began the call.
    withdrawn: u32,
    newest: String,
    /// The text of the accepted completion.
    result: Option<String>,
    end: Option<RemoteEnd>,
}

fn tool(idempotent: bool) -> Arc<RemoteTool> {
    let spec = ToolSpec { name: "pay".into(), description: "Pays.".into(), schema: Arc::new(json!({})) };
    Arc::new(RemoteTool { spec, action: "tool:pay".into(), idempotent, lease: LEASE, deadline: Some(DEADLINE) })
}

fn call(idempotent: bool, now: Instant) -> RemoteCall {
    RemoteCall {
        tool: tool(idempotent),
        session: SessionId(Uuid::nil()),
        id: "call".to_owned(),
        args: JsonText("{}".into()),
        max_bytes: 1_000,
        progress: Progress::none(),
        state: RemoteState::Queued,
        attempt: 0,
        begun_before: false,
        cancelled: false,
        since: now,
        changed: Arc::default(),
    }
}

/// Runs random steps from a seed. Returns the first violated rule as an error.
fn run_seed(seed: u64, any_lease: bool) -> Result<(), String> {
    let (mut dice, mut board, mut now) = (LeaseDice(seed), CallBoard::default(), Instant::now());
    let mut calls: BTreeMap<u64, KnownCall> = BTreeMap::new();
    let mut leases: BTreeMap<String, KnownLease> = BTreeMap::new();
    for _ in 0..STEPS {
        let known: Vec<String> = leases.keys().cloned().collect();
        let token = known.get(dice.below(known.len().max(1) as u64) as usize).cloned().unwrap_or_default();
        match dice.below(10) {
            0 if calls.len() < 4 => {
                let idempotent = dice.below(2) == 0;
                let (no, _) = board.add(call(idempotent, now)).map_err(|error| error.message)?;
                calls.insert(no, KnownCall { idempotent, ..KnownCall::default() });
            }
            0..=2 => {
                let Ok(Some(taken)) = board.take("one", &["pay".into()], now) else { continue };
                let no = board.leases[&taken.token];
                let call = calls.get_mut(&no).ok_or("a call that was not added is leased")?;
                (call.leases, call.newest) = (call.leases + 1, taken.token.clone());
                leases.insert(taken.token, KnownLease { no, until: now + LEASE, begun: false, completed: None });
            }
            3 | 4 => {
                let Some(lease) = leases.get_mut(&token) else { continue };
                let begins = board.calls.get(&lease.no).is_some_and(|call| !call.cancelled && call.has_lease(&token));
                let begun = |board: &CallBoard| {
                    board
                        .calls
                        .get(&lease.no)
                        .is_some_and(|call| matches!(&call.state, RemoteState::Leased(lease) if lease.begun))
                };
                let before = begun(&board);
                if board.renew(&token, now).is_ok() {
                    if lease.until <= now {
                        return Err("a lease that had run out was renewed".to_owned());
                    }
                    lease.until = now + LEASE;
                    lease.begun |= begins;
                    let call = calls.get_mut(&lease.no).ok_or("a call that is over is renewed")?;
                    call.begun += u32::from(begins && !before);
                }
            }
            5 | 6 => complete(&mut dice, &mut board, (&mut calls, &mut leases), &token, any_lease, now)?,
            7 => now += LEASE.mul_f64(dice.below(120) as f64 / 100.0),
            _ => {
                let numbers: Vec<u64> = calls.keys().copied().collect();
                let Some(no) = numbers.get(dice.below(numbers.len().max(1) as u64) as usize) else { continue };
                let call = calls.get_mut(no).ok_or("a call is missing")?;
                if let RemoteStep::Ended(end) = board.step(*no, dice.below(8) == 0, now) {
                    if call.end.as_ref().is_some_and(|before| *before != *end) {
                        return Err(format!("a call ended twice: {:?} and {end:?}", call.end));
                    }
                    call.end = Some(*end);
                }
            }
        }
        calls.values().try_for_each(check_call)?;
    }
    Ok(())
}

/// Completes a lease, and checks that an accepted completion has the current lease.
fn complete(
    dice: &mut LeaseDice,
    board: &mut CallBoard,
    (calls, leases): (&mut BTreeMap<u64, KnownCall>, &mut BTreeMap<String, KnownLease>),
    token: &str,
    any_lease: bool,
    now: Instant,
) -> Result<(), String> {
    let Some(lease) = leases.get_mut(token) else { return Ok(()) };
    let result = match dice.below(5) {
        0 => WorkerResult::NotStarted,
        1 => WorkerResult::Stopped,
        2 => WorkerResult::Error { message: format!("error {token}"), retryable: false },
        _ => WorkerResult::Ok { content: format!("result {token}"), truncated_from: None },
    };
    let accepted = board.complete(token, result.clone(), any_lease, now);
    if let Some(before) = &lease.completed {
        let is_same = *before == result;
        return if accepted.is_ok() == is_same {
            Ok(())
        } else {
            Err("a repeated completion got another reply".to_owned())
        };
    }
    if accepted.is_err() {
        return Ok(());
    }
    let call = calls.get_mut(&lease.no).ok_or("a call that is over is completed")?;
    if call.newest != token || lease.until <= now || call.end.is_some() {
        return Err("a completion of an old lease counts".to_owned());
    }
    call.given_back += u32::from(result == WorkerResult::NotStarted);
    call.withdrawn += u32::from(result == WorkerResult::NotStarted && lease.begun);
    if let WorkerResult::Ok { content, .. } = &result {
        call.result = Some(content.clone());
    }
    lease.completed = Some(result);
    Ok(())
}

/// Checks what must hold for each call at any time.
fn check_call(call: &KnownCall) -> Result<(), String> {
    if call.leases > ATTEMPTS {
        return Err(format!("a call was leased {} times", call.leases));
    }
    if !call.idempotent && call.begun > 1 + call.given_back {
        return Err("a call with effects was begun twice".to_owned());
    }
    match &call.end {
        Some(Ok(output)) if call.result.as_deref() != Some(&*output.content) => {
            Err(format!("a call ended with {:?}, and {:?} was accepted", output.content, call.result))
        }
        Some(Err(error)) if error.unknown_effects && (call.idempotent || call.begun == 0) => {
            Err("effects are unknown of a call that was not begun, or may be repeated".to_owned())
        }
        Some(Err(error)) if has_no_effects(error) && call.begun > call.withdrawn => {
            Err("a call that a worker had begun ended as one without effects".to_owned())
        }
        Some(_) | None => Ok(()),
    }
}

fn has_no_effects(error: &ToolError) -> bool {
    error.message.contains("had no effects") || error.message.starts_with("no worker began")
}

/// A worker begins an idempotent call and is lost. The call is queued again until its deadline, or until other workers
/// have left it unstarted too often. The control is a call that no worker has begun.
#[tokio::test(start_paused = true)]
async fn d6_call_that_was_begun_before_may_have_had_effects() {
    let ended = |begins: bool, takes: u32| {
        let (mut board, mut now) = (CallBoard::default(), Instant::now());
        let (no, _) = board.add(call(true, now)).expect("room");
        for attempt in 0..takes {
            let taken = board.take("one", &["pay".into()], now).expect("a lease").expect("a call");
            if begins && attempt == 0 {
                board.renew(&taken.token, now).expect("renewed");
            }
            now += LEASE;
            let _: RemoteStep = board.step(no, false, now);
        }
        match board.step(no, false, now + DEADLINE) {
            RemoteStep::Ended(end) => end.expect_err("an error"),
            RemoteStep::Wait(_) => panic!("the call did not end"),
        }
    };
    for takes in [1, ATTEMPTS] {
        let (begun, not) = (ended(true, takes), ended(false, takes));
        assert!(begun.message.contains("it may have had all, some or none of its effects"), "{begun:?}");
        assert_eq!((has_no_effects(&begun), has_no_effects(&not)), (false, true), "{begun:?} {not:?}");
        assert!(begun.retryable && !begun.unknown_effects, "not repeatable: {begun:?}");
    }
}

/// The control is a board that accepts completions of any lease.
#[tokio::test(start_paused = true)]
async fn d6_lease_rules_hold_under_random_orders() {
    for seed in 0..4_000 {
        assert_eq!(run_seed(seed, false), Ok(()), "seed {seed}");
    }
    let broken = (0..4_000).filter_map(|seed| run_seed(seed, true).err()).next();
    assert_eq!(broken.as_deref(), Some("a completion of an old lease counts"));
}

/// A token for one tool takes calls under ever new worker names. Another tool's worker is neither refused nor removed.
#[test]
fn endless_names_displace_no_worker_of_others() {
    let (mut board, now) = (CallBoard::default(), Instant::now());
    let (one, other): ([Text; 1], [Text; 1]) = (["pay".into()], ["ship".into()]);
    board.take("before", &other, now).unwrap();
    for n in 0..2 * MAX_WORKERS {
        board.take(&format!("worker-{n}"), &one, now + Duration::from_millis(n as u64)).unwrap();
    }
    board.take("after", &other, now + Duration::from_secs(3)).unwrap();
    let listed = ["before", "after", "worker-1999"].map(|name| board.workers.contains_key(name));
    // The control: of the names for one tool, the newest are listed.
    assert_eq!((listed, board.workers.len()), ([true, true, true], MAX_WORKERS));
    assert!(!board.workers.contains_key("worker-0"));
}
