use std::time::Duration;

use super::super::live::tests::{
    ask_opened, blocking_call_started, call_started, child_spawned, event, id, run_ended, run_opened, turn_answered,
    turn_started,
};
use super::*;
use subtend_session::outcome::{Initiator, Outcome};

const ROOT: &str = "0192f0c1-2d3e-7abc-8def-0123456789ab";

fn child(n: usize) -> String {
    format!("0192f0c2-0000-7abc-8def-0123450000{n:02}")
}

/// Returns a root with `children`. The first `done` of them have ended, one per second, and the last one searches.
fn family(children: usize, done: usize, now: Instant) -> LiveTree {
    let mut live = LiveTree::new(id(ROOT), "general".into(), now, Default::default());
    live.take(&event(ROOT, turn_started()), now);
    for n in 1..=children {
        live.take(&event(ROOT, child_spawned(&child(n), "explore")), now);
    }
    for n in 1..=done {
        let at = now + Duration::from_secs(n as u64);
        live.take(&event(&child(n), run_ended(Outcome::Completed)), at);
    }
    if children > done {
        let last = child(children);
        live.take(&event(&last, turn_answered(&[("search", r#"{"pattern":"error"}"#)])), now);
        live.take(&event(&last, call_started(0)), now);
    }
    live
}

fn draw(live: &LiveTree, now: Instant, size: (usize, usize)) -> Vec<String> {
    tree(live, now, size, 0).iter().map(|line| paint(line, false)).collect()
}

#[tokio::test(start_paused = true)]
async fn tree_shows_the_activity_of_each_session() {
    let now = Instant::now();
    let live = family(3, 1, now);
    let lines = draw(&live, now + Duration::from_secs(2), (24, 100));
    assert_eq!(
        lines,
        [
            "◐ general           thinking        turn 0 · 0 tokens · 2.0s · 1.2k tokens in all",
            "  ✓ explore 000001  completed       turn 0 · 0 tokens · 0.0s",
            "  ○ explore 000002  queued          turn 0 · 0 tokens · 0.0s",
            "  ◐ explore 000003  search \"error\"  turn 1 · 1.2k tokens · 2.0s",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn u3_waiting_parent_shows_its_working_time() {
    let now = Instant::now();
    let at = |seconds| now + Duration::from_secs(seconds);
    let mut live = LiveTree::new(id(ROOT), "general".into(), now, Default::default());
    assert_eq!(draw(&live, at(9), (24, 100)), ["○ general"]);
    live.take(&event(ROOT, turn_started()), at(10));
    live.take(&event(ROOT, turn_answered(&[("task", "{}")])), at(11));
    live.take(&event(ROOT, child_spawned(&child(1), "explore")), at(12));
    live.take(&event(ROOT, blocking_call_started(0)), at(12));
    live.take(&event(&child(1), turn_started()), at(12));
    live.take(&event(&child(1), turn_answered(&[])), at(13));
    let lines = [
        "◌ general           waiting for 1 subagent  turn 1 · 1.2k tokens · 2.0s · 2.4k tokens in all",
        "  ◐ explore 000001  thinking                turn 1 · 1.2k tokens · 3.0s",
    ];
    assert_eq!(draw(&live, at(15), (24, 100)), lines);
    // The numbers are those of the second run.
    live.take(&event(ROOT, run_ended(Outcome::Completed)), at(16));
    live.take(&event(ROOT, run_opened(2)), at(20));
    live.take(&event(ROOT, turn_started()), at(20));
    let lines = draw(&live, at(21), (24, 100));
    assert_eq!(lines[0], "◐ general           thinking  turn 0 · 0 tokens · 1.0s");
}

#[tokio::test(start_paused = true)]
async fn u2_session_that_waits_for_approval_has_its_own_mark() {
    let now = Instant::now();
    let mut live = LiveTree::new(id(ROOT), "general".into(), now, Default::default());
    live.take(&event(ROOT, turn_started()), now);
    live.take(&event(ROOT, turn_answered(&[("write", "{}")])), now);
    live.take(&event(ROOT, ask_opened()), now);
    let line = draw(&live, now, (24, 100)).remove(0);
    assert_eq!(line, "◆ general  waits for approval  turn 1 · 1.2k tokens · 0.0s");
    // Positive control: a cancelled run has another mark.
    live.take(&event(ROOT, run_ended(Outcome::Cancelled { by: Initiator::Person })), now);
    assert!(draw(&live, now, (24, 100))[0].starts_with('■'));
}

#[tokio::test(start_paused = true)]
async fn tree_fits_into_the_terminal() {
    let now = Instant::now();
    let live = family(40, 30, now);
    for size in [(2, 20), (5, 40), (10, 200), (41, 80), (3, 1)] {
        let lines = draw(&live, now, size);
        assert!(lines.len() <= size.0.max(2), "{size:?}: {} lines", lines.len());
        assert!(lines.iter().all(|line| line.width() <= size.1), "{size:?}: {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn parts_of_a_truncated_line_stay_separated() {
    let now = Instant::now();
    let live = family(1, 0, now);
    assert_eq!(draw(&live, now, (24, 40))[0], "◐ general           thinking       tur…");
}

#[tokio::test(start_paused = true)]
async fn active_sessions_come_first_and_the_rest_is_counted() {
    let now = Instant::now();
    let live = family(12, 8, now);
    let lines = draw(&live, now + Duration::from_secs(20), (5, 100));
    let starts: Vec<_> = lines.iter().map(|line| line.split("  turn").next().unwrap_or_default().trim_end()).collect();
    assert_eq!(
        starts,
        [
            "◐ general           thinking",
            "  ○ explore 000009  queued",
            "  ○ explore 000010  queued",
            "  ◐ explore 000012  search \"error\"",
            "… 9 more: 1 queued, 8 ended",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn updates_are_printed_as_plain_lines() {
    let now = Instant::now();
    let mut live = family(1, 0, now);
    let line = |live: &LiveTree, of: &str, what: &ActivityUpdate| {
        paint(&activity_line(live.node(id(of)).expect("a session"), what, now + Duration::from_secs(4)), false)
    };
    assert_eq!(line(&live, &child(1), &ActivityUpdate::Created), "  explore 000001  started");
    let tool = ActivityUpdate::Tool("search \"error\"".into());
    assert_eq!(line(&live, &child(1), &tool), "  explore 000001  search \"error\"  turn 1");
    let stopped = Outcome::Cancelled { by: Initiator::Person };
    live.take(&event(ROOT, run_ended(stopped.clone())), now);
    let end = line(&live, ROOT, &ActivityUpdate::Ended(stopped));
    assert_eq!(end, "general  ■ cancelled by a person  0 turns · 0 tokens · 0.0s");
}
