//! Calls of each dialect: results, errors and notices.

use serde_json::{Value, json};
use subtend::agents::{Dialect, Dialects, MinionOptions, MinionTemplate};
use subtend::session::Limits;

use super::super::page::check;
use super::conversation::{Calls, Conversation, limits};

/// The ways in which a child can end, by its prompt.
const ENDS: [&str; 6] = ["find", "long", "fail", "empty", "loop", "hang"];

fn one(tool: &'static str, args: Value) -> Vec<Calls> {
    vec![vec![(tool, args)]]
}

fn converse(dialect: Dialect, scenes: impl IntoIterator<Item = (&'static str, Vec<Calls>)>, out: &mut String) {
    for (what, turns) in scenes {
        Conversation::new(Some(dialect)).write(what, turns, out);
    }
}

/// Writes scenes of limits that do not allow a child.
fn limited(dialect: Dialect, tool: &'static str, args: &Value, out: &mut String) {
    for (what, limits) in [
        ("the depth is used up", Limits { max_depth: 0, ..limits() }),
        ("the spawns are used up", Limits { spawns: 0, ..limits() }),
    ] {
        let calls = one(tool, args.clone());
        Conversation::new(Some(dialect)).with(|builder| builder.limits(limits)).write(what, calls, out);
    }
}

/// Writes a scene of a child that waits until another ends.
fn queued(dialect: Dialect, tool: &'static str, args: &Value, out: &mut String) {
    let turns = vec![vec![(tool, args.clone()); 2], vec![("check_task", json!({"taskId": "{2}", "wait": false}))]];
    let limits = Limits { live_runs: 1, ..limits() };
    Conversation::new(Some(dialect)).with(|builder| builder.limits(limits)).write("a queued task", turns, out);
}

fn task(prompt: &str) -> Value {
    json!({"subagent_type": "worker", "prompt": prompt})
}

fn background(prompt: &str) -> Value {
    json!({"subagent_type": "worker", "prompt": prompt, "background": true})
}

/// Returns every call of a dialect that has its own text, by title.
pub(super) fn scenes(dialect: Dialect) -> Vec<(&'static str, Vec<Calls>)> {
    match dialect {
        Dialect::Task => scenes_of_task(),
        Dialect::Spawn => scenes_of_spawn(),
        Dialect::SpawnTask => scenes_of_spawn_task(),
        Dialect::Minion => scenes_of_minion(),
        Dialect::Subagent => scenes_of_subagent(),
    }
}

fn scenes_of_task() -> Vec<(&'static str, Vec<Calls>)> {
    let mut scenes: Vec<(&str, Vec<Calls>)> = ENDS.map(|end| (end, one("task", task(end)))).into();
    scenes.extend(ENDS.map(|end| (end, one("task", background(end)))));
    scenes.extend([
        ("several ends in one notice", vec![vec![("task", background("find")), ("task", background("fail"))]]),
        (
            "a task is continued",
            vec![
                vec![("task", background("find"))],
                vec![("check_task", json!({"taskId": "{1}"}))],
                vec![("task", json!({"prompt": "find", "session_id": "{1}"}))],
            ],
        ),
        (
            "a task is checked while it runs, and cancelled",
            vec![
                vec![("task", background("slow"))],
                vec![("check_task", json!({"taskId": "{1}", "wait": false}))],
                vec![("check_task", json!({"taskId": "{1}", "timeoutMs": 5}))],
                vec![("cancel_task", json!({"taskId": "{1}"}))],
                vec![("cancel_task", json!({"taskId": "{1}"}))],
                vec![("check_task", json!({"taskId": "{1}"}))],
            ],
        ),
        (
            "arguments of task",
            vec![vec![
                ("task", json!({})),
                ("task", json!({"subagent_type": "worker"})),
                ("task", task("")),
                ("task", task(&"a".repeat((1 << 20) + 1))),
                ("task", json!({"subagent_type": "wroker", "prompt": "find"})),
                ("task", json!({"subagent_type": "nosuch", "prompt": "find"})),
                ("task", json!({"subagent_type": "worker", "prompt": "find", "colour": "red"})),
                ("task", json!({"prompt": "find", "session_id": "abc"})),
                ("task", json!({"subagent_type": 7, "prompt": "find"})),
                ("task", json!({"prompt": "find"})),
                ("task", json!({"prompt": "find", "session_id": "abc", "metadata": {"a": 1}})),
                ("task", json!({"prompt": "find", "session_id": "abc", "isolation": "worktree"})),
                ("task", json!({"subagent_type": "worker", "prompt": "find", "metadata": {"a": "b".repeat(70_000)}})),
            ]],
        ),
        (
            "arguments of check_task and cancel_task",
            vec![vec![
                ("check_task", json!({})),
                ("check_task", json!({"taskId": " "})),
                ("check_task", json!({"taskId": "abc"})),
                ("check_task", json!({"taskId": "abc", "timeoutMs": 0})),
                ("cancel_task", json!({})),
                ("cancel_task", json!({"taskId": "abc"})),
            ]],
        ),
        (
            "an unknown id, though tasks exist",
            vec![vec![("task", background("find"))], vec![("check_task", json!({"taskId": "abc"}))]],
        ),
        (
            "a running task is continued",
            vec![vec![("task", background("slow"))], vec![("task", json!({"prompt": "find", "session_id": "{1}"}))]],
        ),
    ]);
    scenes
}

#[test]
fn texts_of_task_match_their_snapshot() {
    let mut out = String::new();
    converse(Dialect::Task, scenes_of_task(), &mut out);
    limited(Dialect::Task, "task", &background("find"), &mut out);
    queued(Dialect::Task, "task", &background("slow"), &mut out);
    check("models_task", &out);
}

fn scenes_of_spawn() -> Vec<(&'static str, Vec<Calls>)> {
    let spawned =
        |prompt: &str| vec![vec![("spawn", json!({"task": prompt}))], vec![("spawn_await", json!({"job_ids": "*"}))]];
    let mut scenes: Vec<(&str, Vec<Calls>)> = ENDS.map(|end| (end, spawned(end))).into();
    scenes.extend([
        ("an end that is not awaited", one("spawn", json!({"task": "find"}))),
        ("no jobs", one("spawn_await", json!({"job_ids": "*"}))),
        (
            "jobs by their ids, again and unknown",
            vec![
                vec![("spawn", json!({"task": "find"})), ("spawn", json!({"task": "fail"}))],
                vec![("spawn_await", json!({"job_ids": "{2}, {1}, abc"}))],
                vec![("spawn_await", json!({"job_ids": "{1}"}))],
            ],
        ),
        (
            "a job that still runs",
            vec![
                vec![("spawn", json!({"task": "slow"}))],
                vec![("spawn_await", json!({"job_ids": "{1}", "timeout_ms": 5}))],
            ],
        ),
        (
            "arguments",
            vec![vec![
                ("spawn", json!({})),
                ("spawn", json!({"task": ""})),
                ("spawn", json!({"task": "find", "colour": "red"})),
                ("spawn", json!({"task": "find", "profile": "scuot"})),
                ("spawn", json!({"task": "find", "tools": "raed"})),
                ("spawn", json!({"task": "find", "model": "gpt"})),
                ("spawn_await", json!({})),
                ("spawn_await", json!({"job_ids": ""})),
                ("spawn_await", json!({"job_ids": 7})),
                ("spawn", json!({"task": "find", "tools": vec!["a"; 1_000].join(",")})),
            ]],
        ),
    ]);
    scenes
}

#[test]
fn texts_of_spawn_match_their_snapshot() {
    let mut out = String::new();
    converse(Dialect::Spawn, scenes_of_spawn(), &mut out);
    limited(Dialect::Spawn, "spawn", &json!({"task": "find"}), &mut out);
    check("models_spawn", &out);
}

fn part(prompt: &str) -> (&'static str, Value) {
    ("spawn_task", json!({"type": "worker", "prompt": prompt, "description": "A part"}))
}

fn scenes_of_spawn_task() -> Vec<(&'static str, Vec<Calls>)> {
    let start = part;
    let checked = |prompt: &str| vec![vec![start(prompt)], vec![("check_task", json!({"taskId": "{1}"}))]];
    let mut scenes: Vec<(&str, Vec<Calls>)> = ENDS.map(|end| (end, checked(end))).into();
    scenes.extend([
        ("ends that are not checked", vec![vec![start("find"), start("fail")]]),
        (
            "a task is checked while it runs, and cancelled",
            vec![
                vec![start("slow")],
                vec![("check_task", json!({"taskId": "{1}", "wait": false}))],
                vec![("cancel_task", json!({"taskId": "{1}"}))],
                vec![("cancel_task", json!({"taskId": "{1}"}))],
                vec![("check_task", json!({"taskId": "{1}"}))],
                vec![("check_task", json!({"taskId": "{1}"}))],
            ],
        ),
        (
            "arguments of spawn_task",
            vec![vec![
                ("spawn_task", json!({})),
                ("spawn_task", json!({"type": "worker", "prompt": "", "description": "A part"})),
                ("spawn_task", json!({"type": "wroker", "prompt": "find", "description": "A part"})),
                ("spawn_task", json!({"type": "worker", "prompt": "find", "description": ""})),
                ("spawn_task", json!({"type": "worker", "prompt": "find", "description": "A part", "metadata": 7})),
            ]],
        ),
        ("an unknown id", vec![vec![start("find")], vec![("check_task", json!({"taskId": "task_abc"}))]]),
    ]);
    scenes
}

#[test]
fn texts_of_spawn_task_match_their_snapshot() {
    let mut out = String::new();
    converse(Dialect::SpawnTask, scenes_of_spawn_task(), &mut out);
    limited(Dialect::SpawnTask, "spawn_task", &part("find").1, &mut out);
    queued(Dialect::SpawnTask, "spawn_task", &part("slow").1, &mut out);
    check("models_spawn_task", &out);
}

/// The dialects of a host that offers `minion` with a template.
pub(super) fn minions() -> Dialects {
    let template = MinionTemplate {
        description: "Reviews one file.".into(),
        message: Some("Review {path}.".into()),
        ..MinionTemplate::default()
    };
    Dialects {
        offered: vec![Dialect::Minion],
        minion: MinionOptions { model: Some("test".into()), ..MinionOptions::default() },
        templates: [("review".into(), template)].into(),
        ..Dialects::default()
    }
}

fn scenes_of_minion() -> Vec<(&'static str, Vec<Calls>)> {
    let minion = |message: &str| json!({"message": message, "enableWeb": false, "enabledTools": ["lookup"]});
    let mut scenes: Vec<(&str, Vec<Calls>)> = ENDS.map(|end| (end, one("minion", minion(end)))).into();
    scenes.extend([
        ("it returns a result", one("minion", minion("return"))),
        (
            "a chat is continued",
            vec![
                vec![("minion", minion("find"))],
                vec![(
                    "minion",
                    json!({
                        "message": "find", "minionChatId": "{1}", "enableWeb": false, "enabledTools": []
                    }),
                )],
            ],
        ),
        (
            "a template",
            one(
                "minion",
                json!({
                    "message": "find", "template": "review", "values": {"path": "a.rs"},
                    "enableWeb": false, "enabledTools": [],
                }),
            ),
        ),
        (
            "arguments",
            vec![vec![
                ("minion", json!({})),
                ("minion", json!({"message": ""})),
                ("minion", json!({"message": "find", "enableWeb": false})),
                ("minion", json!({"message": "find", "enableWeb": false, "enabledTools": ["lokup"]})),
                ("minion", json!({"message": "find", "enableWeb": true, "enabledTools": []})),
                ("minion", json!({"message": "a", "enableWeb": false, "enabledTools": [], "minionChatId": "abc"})),
                ("minion", json!({"message": "a", "enableWeb": false, "enabledTools": [], "template": "reveiw"})),
                ("minion", json!({"message": "a", "enableWeb": false, "enabledTools": [], "template": "review"})),
                ("minion", json!({"message": "a", "enableWeb": false, "enabledTools": [], "values": {"path": "a"}})),
                ("minion", json!({"message": "find", "colour": "red"})),
            ]],
        ),
    ]);
    scenes
}

#[test]
fn texts_of_minion_match_their_snapshot() {
    let mut out = String::new();
    for (what, turns) in scenes_of_minion() {
        Conversation::new(None).with(|builder| builder.dialects(minions())).write(what, turns, &mut out);
    }
    check("models_minion", &out);
}

fn scenes_of_subagent() -> Vec<(&'static str, Vec<Calls>)> {
    let start = |task: &str| json!({"task": task});
    let mut scenes: Vec<(&str, Vec<Calls>)> = ENDS.map(|end| (end, one("subagent", start(end)))).into();
    scenes.extend([
        ("several ends", vec![vec![("subagent", start("find")), ("subagent", start("fail"))]]),
        (
            "a running branch is continued",
            vec![
                vec![("subagent", start("slow"))],
                vec![("subagent", json!({"task": "find", "continueBranchId": "{1}"}))],
            ],
        ),
        (
            "arguments",
            vec![vec![
                ("subagent", json!({})),
                ("subagent", json!({"task": ""})),
                ("subagent", json!({"task": "find", "continueBranchId": "abc"})),
                ("subagent", json!({"task": "find", "maxIterations": 0})),
                ("subagent", json!({"task": "find", "maxTokens": 0})),
                ("subagent", json!({"task": "find", "tools": {"files": ["lokup"]}})),
                ("subagent", json!({"task": "find", "agent": "exlpore"})),
                ("subagent", json!({"task": "find", "colour": "red"})),
            ]],
        ),
    ]);
    scenes
}

#[test]
fn texts_of_subagent_match_their_snapshot() {
    let mut out = String::new();
    converse(Dialect::Subagent, scenes_of_subagent(), &mut out);
    limited(Dialect::Subagent, "subagent", &json!({"task": "find"}), &mut out);
    check("models_subagent", &out);
}
