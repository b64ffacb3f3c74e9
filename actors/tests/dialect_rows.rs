//! Feature rows of the dialects that `dialects.rs` does not cover.

use crate::support::talk::{SLOW, converse, converse_in, found, notices, offering, parsed};
use crate::support::*;

type RequestTimes = Arc<Mutex<Vec<Duration>>>;

fn noting(times: &RequestTimes) -> impl Fn() + Send + Sync + 'static {
    let (times, begun) = (Arc::clone(times), tokio::time::Instant::now());
    move || times.lock().unwrap().push(begun.elapsed())
}

#[tokio::test(start_paused = true)]
async fn s2_star_awaits_only_own_jobs_including_ended_ones() {
    let times = RequestTimes::default();
    let note = noting(&times);
    let root = move |_: &Request, at: usize| {
        note();
        match at {
            0 => calls([("spawn", json!({"task": "a"})), ("spawn", json!({"task": "b"})), task("slow", true)]),
            1 => calls([("spawn_await", json!({"job_ids": "*"}))]),
            2 => calls([("spawn", json!({"task": "c"})), ("spawn_await", json!({"job_ids": "*"}))]),
            _ => text("done"),
        }
    };
    let (_, runtime, _, last) = converse(&[Dialect::Spawn, Dialect::Task], root, found).await;
    let results = results(&last);
    let block = |at: usize, name: &str| format!("[{}: OK]\n{name} found", results[at]);
    assert_eq!(results[3], format!("{}\n\n{}", block(0, "a"), block(1, "b")));
    assert_eq!(results[5], format!("{}\n\n{}\n\n{}", block(0, "a"), block(1, "b"), block(4, "c")));
    assert_eq!(notices(&last).len(), 1, "the task did not report its own end: {:?}", notices(&last));
    assert!(notices(&last)[0].contains("slow found"));
    let times = times.lock().unwrap().clone();
    assert!(times[3] < SLOW && times[4] >= SLOW, "a wait included the task: {times:?}");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn r3_queued_task_is_pending_and_a_started_one_running() {
    let root = |request: &Request, at: usize| {
        let start = |prompt: &str| ("spawn_task", json!({"type": "worker", "prompt": prompt, "description": prompt}));
        let id = |at: usize| parsed(&results(request)[at])["taskId"].clone();
        let check = |at: usize, args: Value| {
            let mut arguments = json!({"taskId": id(at)});
            arguments.as_object_mut().expect("an object").extend(args.as_object().expect("an object").clone());
            ("check_task", arguments)
        };
        match at {
            0 => calls([start("slow one"), start("slow two")]),
            1 => calls([check(0, json!({"wait": false})), check(1, json!({"wait": false}))]),
            2 => calls([check(1, json!({"timeoutMs": 1000}))]),
            3 => calls([check(0, json!({}))]),
            4 => calls([check(1, json!({"wait": false})), check(1, json!({}))]),
            _ => text("done"),
        }
    };
    let one = offering(&journal(), &[Dialect::SpawnTask]).limits(Limits { live_runs: 1, ..Limits::default() });
    let (runtime, _, last) = converse_in(one, root, found).await;
    let results = results(&last);
    let id = |at: usize| parsed(&results[at])["taskId"].as_str().expect("an id").to_owned();
    assert_eq!(results[2], format!("Task {} is still running (0 s elapsed).", id(0)));
    let pending = |elapsed: u32| {
        format!("Task {} is still pending: it is queued and has not started ({elapsed} s elapsed).", id(1))
    };
    assert_eq!(results[3], pending(0));
    assert_eq!(results[4], format!("The wait timed out; no task was cancelled.\n{}", pending(1)));
    assert_eq!(results[5], "slow one found");
    assert_eq!(results[6], format!("Task {} is still running (45 s elapsed).", id(1)));
    assert_eq!(results[7], "slow two found");
    shut(runtime).await;
}

#[tokio::test(start_paused = true)]
async fn b6_iterations_continue_from_earlier_runs() {
    let root = |request: &Request, at: usize| match at {
        0 => calls([("subagent", json!({"task": "a", "maxIterations": 2}))]),
        2 | 4 => {
            let branch = parsed(&results(request)[0])["branchId"].clone();
            calls([("subagent", json!({"continueBranchId": branch, "maxIterations": 1}))])
        }
        1 | 3 | 5 => text("waiting"),
        _ => text("done"),
    };
    let child = |_: &Request, at: usize| Ok(if at < 3 { calls([("lookup", json!({}))]) } else { text("found") });
    let (_, runtime, _, last) = converse(&[Dialect::Subagent], root, child).await;
    let ends: Vec<_> = notices(&last)
        .iter()
        .map(|notice| parsed(notice.lines().find(|line| line.starts_with('{')).expect("an object")))
        .map(|end| (end["status"].clone(), end["iterations"].clone()))
        .collect();
    let end = |status: &str, iterations: u32| (json!(status), json!(iterations));
    assert_eq!(ends, [end("max_iterations", 2), end("max_iterations", 3), end("complete", 4)]);
    shut(runtime).await;
}
