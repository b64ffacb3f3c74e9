//! Attacks on the machine's resources: endless trees, and files of a repository that never end.

use super::scene::*;
use crate::cli::call::User;

/// A child that starts a child, `levels` deep.
fn nested(levels: usize) -> Vec<Value> {
    (0..levels).fold(vec![say("deep")], |steps, _| vec![spawn("worker", &steps)])
}

#[tokio::test(start_paused = true)]
async fn nested_children_stop_at_the_depth_limit() {
    // The second is the control: with a higher limit, all children start.
    for (max_depth, reached) in [(3, 3), (8, 8)] {
        let mut scene = AttackScene::new().limits(Limits { max_depth, ..Limits::default() });
        let host = scene.host().await;
        let root = host.run_steps("worker", &nested(8)).await;
        let deepest =
            (1..9).take_while(|depth| depth <= &1 || !host.children(host.descendant(root.id(), depth - 1)).is_empty());
        assert_eq!(deepest.count(), reached, "max_depth {max_depth}");
        host.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn children_of_a_run_stop_at_the_spawn_limit() {
    const ATTACKS: [(&str, bool); 2] = [("one after another", false), ("at the same time", true)];
    for (how, at_once) in ATTACKS {
        // The second is the control.
        for (spawns, expected) in [(4, 4), (100, 12)] {
            let mut scene = AttackScene::new().limits(Limits { spawns, ..Limits::default() });
            let host = scene.host().await;
            let task = |n: usize| {
                let prompt = script(&[say(&format!("{n}"))]);
                call("task", json!({"subagent_type": "worker", "prompt": prompt, "background": at_once}))
            };
            let turns: Vec<Value> = (0..12).map(task).collect();
            let steps = if at_once { vec![in_one_turn(&turns)] } else { turns };
            let root = host.run_steps("worker", &steps).await;
            assert_eq!(host.children(root.id()).len(), expected, "{how}, spawns {spawns}");
            host.shut_down().await;
        }
    }
}

/// A spawn of a descendant counts for the tree, so children cannot evade the limit.
#[tokio::test(start_paused = true)]
async fn descendants_share_the_spawn_limit_of_their_root() {
    for (spawns, expected) in [(4, 4), (100, 12)] {
        let mut scene = AttackScene::new().limits(Limits { spawns, ..Limits::default() });
        let host = scene.host().await;
        let busy = spawn("worker", &[spawn("worker", &[say("a")]), spawn("worker", &[say("b")])]);
        let root = host.run_steps("worker", &[busy.clone(), busy.clone(), busy.clone(), busy]).await;
        let children = host.children(root.id());
        let all = children.len() + children.iter().map(|child| host.children(*child).len()).sum::<usize>();
        assert_eq!(all, expected, "spawns {spawns}");
        host.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn endless_turns_stop_at_the_turn_limit() {
    // The second is the control.
    for (turns, ends) in [(5, false), (100, true)] {
        let mut scene = AttackScene::new().limits(Limits { turns, ..Limits::default() });
        let host = scene.host().await;
        let (_, outcome) = host.try_steps("worker", &vec![read("top.txt"); 30]).await;
        assert_eq!(outcome == Outcome::Completed, ends, "{outcome:?}");
        host.shut_down().await;
    }
}

/// Makes a pipe without a writer: opening it would block forever.
fn pipe(user: &User, path: &str) {
    let path = user.workspace().join(path);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

#[test]
fn pipes_and_devices_of_a_repository_do_not_block() {
    const PIPES: [&str; 4] = ["subtend.yaml", ".subtend/agents/mine.md", ".gitignore", "notes.txt"];
    const LINKS: [&str; 4] = [".subtend/agents/zero.md", ".ignore", "src/zero.txt", "AGENTS.md"];
    let calls = json!([
        {"tool": "list", "args": {"depth": 5}},
        {"tool": "search", "args": {"pattern": "x"}},
        {"tool": "read", "args": {"path": "notes.txt"}},
        {"tool": "read", "args": {"path": "src/zero.txt"}},
        {"tool": "edit", "args": {"path": "notes.txt", "old": "a", "new": "b"}},
    ]);
    let rules = json!({"rules": [{"agent": "*", "steps": [{"calls": calls}, {"text": "the end"}]}]});
    for path in PIPES.iter().chain(&LINKS) {
        let user = User::new();
        match PIPES.contains(path) {
            true => pipe(&user, path),
            false => {
                user.file(path, "");
                std::fs::remove_file(user.workspace().join(path)).expect("a file");
                std::os::unix::fs::symlink("/dev/zero", user.workspace().join(path)).expect("a link");
            }
        }
        // The control: reading the file directly never ends.
        let reads = format!("timeout 1 cat '{path}' > /dev/null");
        let mut control = Command::new("sh");
        let status = control.args(["-c", &reads]).current_dir(user.workspace()).status().expect("run the command");
        assert_eq!(status.code(), Some(124), "{path}");
        let model = user.script(&rules.to_string());
        let args = ["run", "--store", "memory", "--model", &model, "--allow", "fs.*", "--limit", "wall_ms=60000", "hi"];
        let done = user.call(&args);
        let refused = done.code == Some(2) && done.err.contains(path.rsplit('/').next().expect("a name"));
        assert!(refused || (done.code == Some(0) && done.out == "the end\n"), "{path}: {done:?}");
    }
}

/// An import reads its file more than once, so it takes neither a pipe nor a device. The control: reading one never ends.
#[cfg(unix)]
#[test]
fn import_of_a_pipe_or_a_device_does_not_block() {
    let user = User::new();
    pipe(&user, "pipe");
    for path in ["pipe", "/dev/zero"] {
        let mut control = Command::new("timeout");
        control.args(["1", "cat", path]).current_dir(user.workspace()).stdout(std::process::Stdio::null());
        assert_eq!(control.status().expect("run the command").code(), Some(124), "{path}");
        let done = user.call(&["import", path]);
        assert!(done.code == Some(2) && done.err.contains("is not a regular file"), "{done:?}");
    }
}

/// A call that requests too many turns gets what file and limit allow. The control: it may request fewer turns.
#[tokio::test(start_paused = true)]
async fn call_cannot_raise_the_turns_of_an_agent() {
    let attacks: [(&str, u32, u32); 5] =
        [("short", 400, 2), ("worker", 400, 5), ("long", 400, 5), ("short", 1, 1), ("worker", 3, 3)];
    for (agent, asked, allowed) in attacks {
        let short = Manifest { turns: Some(2), ..Manifest::new("short", AgentMode::All, "You are an agent.") };
        let long = Manifest { turns: Some(40), ..Manifest::new("long", AgentMode::All, "You are an agent.") };
        let scene = AttackScene::new().dialect(Dialect::Subagent).manifest(short).manifest(long);
        let mut scene = scene.limits(Limits { turns: 5, ..Limits::default() });
        let host = scene.host().await;
        let tries = |more: Value| {
            let mut args = json!({"task": script(&vec![read("top.txt"); 9]), "maxIterations": asked});
            args.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            call("subagent", args)
        };
        let root = host.run_steps("worker", &[tries(json!({"agent": agent}))]).await;
        let child = host.descendant(root.id(), 1);
        host.continue_with(&root, &[tries(json!({"continueBranchId": child.to_string()}))]).await;
        let records = host.records(child).await;
        let opened = records.iter().filter_map(|record| match record {
            Record::RunOpened(opened) => Some(opened.max_turns),
            _ => None,
        });
        assert_eq!(opened.collect::<Vec<_>>(), [allowed, allowed], "{agent} {asked}");
        let answered = records.iter().filter(|record| matches!(record, Record::TurnAnswered(_))).count();
        assert_eq!(answered, 2 * allowed as usize, "{agent} {asked}");
        let reported = host.request(root.id()).messages.iter().any(|message| {
            matches!(message, Message::Result { content, .. } if content.contains(&format!("at most {allowed} iterations")))
        });
        assert!(reported, "{agent} {asked}");
        host.shut_down().await;
    }
}
