//! Background processes that try to evade limits, rules and the end of their run.

use super::scene::*;
use subtend_actors::BranchOptions;
use subtend_session::place::BranchKind;
use subtend_tools::guard::Guard;

pub(super) fn guard() -> Guard {
    Guard { program: PathBuf::from(env!("CARGO_BIN_EXE_subtend")), args: vec!["guard".into(), "--".into()] }
}

fn start(command: &str) -> Value {
    call("shell", json!({"command": command, "background": true}))
}

/// Returns the processes that have `mark` as an argument.
pub(super) fn marked(mark: &str) -> Vec<String> {
    let numbers = std::fs::read_dir("/proc").expect("processes").filter_map(Result::ok);
    let marked = numbers.filter(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
    });
    marked.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Returns whether one of these processes has left the group of its command and leads its own session.
fn has_left(mark: &str) -> bool {
    marked(mark).iter().any(|id| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.split_ascii_whitespace().nth(3) == Some(id))
    })
}

pub(super) async fn until(wanted: impl Fn() -> bool) -> bool {
    for _ in 0..600 {
        if wanted() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

/// Waits until the first call of the process's session has returned: the process runs.
async fn wait_until_running(host: &RunningHost, child: SessionId) {
    for _ in 0..600 {
        if host.records(child).await.iter().any(|record| matches!(record, Record::CallFinished(_))) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the process does not run");
}

/// Starts the process, cancels the run once the process runs, and returns the processes that remain.
async fn remaining_processes(host: &RunningHost, command: &str, mark: &str) -> Vec<String> {
    let session = host.runtime.open("worker").expect("a session");
    let receipt = session.send(script(&[start(command)])).await.expect("accepted");
    let has_started = || if command.contains("setsid") { has_left(mark) } else { !marked(mark).is_empty() };
    assert!(until(has_started).await, "{command}: it starts");
    session.cancel().await.expect("cancelled");
    session.run_ended(receipt.run).await.expect("the run ends");
    until(|| marked(mark).is_empty()).await;
    marked(mark)
}

/// With the guard every process ends with the run. The control: without, one that leaves its group keeps running.
#[tokio::test]
async fn process_ends_although_it_forks_and_ignores_signals() {
    const ATTACKS: [(&str, &str); 5] = [
        ("3031.5", "(setsid sleep 3031.5 &); sleep 3031.5"),
        ("3032.5", "trap '' TERM HUP INT QUIT; sleep 3032.5; sleep 3032.5"),
        ("3033.5", "(setsid sh -c 'trap \"\" TERM; (setsid sleep 3033.5 &) ; sleep 3033.5' &); yes flood"),
        ("3034.5", "exec 0<&- 1>&- 2>&-; sleep 3034.5"),
        ("3035.5", "for i in 1 2 3 4 5 6 7 8; do (setsid nohup sleep 3035.5 >/dev/null 2>&1 &); done; sleep 3035.5"),
    ];
    let mut scene = AttackScene::new().guard(guard());
    let host = scene.host().await;
    for (mark, command) in ATTACKS {
        assert_eq!(remaining_processes(&host, command, mark).await, Vec::<String>::new(), "{command}");
    }
    host.shut_down().await;
    let mut scene = AttackScene::new();
    let host = scene.host().await;
    let control = remaining_processes(&host, "(setsid sleep 3036.5 &); sleep 3036.5", "3036.5").await;
    assert_eq!(control.len(), 1, "without the guard the process must remain");
    std::process::Command::new("kill").args(&control).status().expect("kill runs");
    host.shut_down().await;
}

/// On a busy machine, a guard needs time to find all its processes. If it were killed earlier, a process that it has
/// not found would never end. The control: a command without a guard is killed at once.
#[tokio::test]
async fn slow_guard_is_not_killed_before_it_has_finished() {
    let mut scene = AttackScene::new();
    let ended = scene.at("ended");
    let slow = format!("cat > /dev/null; sleep 2.5; echo > {}", ended.display());
    let args = ["-c", &slow, "sh"].map(std::ffi::OsString::from).into();
    scene = scene.guard(Guard { program: "sh".into(), args });
    let host = scene.host().await;
    let stopped = async |host: &RunningHost| {
        let session = host.runtime.open("worker").expect("a session");
        let receipt = session.send(script(&[start("sleep 3041.5")])).await.expect("accepted");
        assert!(until(|| host.children(session.id()).len() == 1).await, "the process did not start");
        wait_until_running(host, host.descendant(session.id(), 1)).await;
        session.cancel().await.expect("cancelled");
        session.run_ended(receipt.run).await.expect("the run ends");
    };
    stopped(&host).await;
    assert!(until(|| ended.exists()).await, "the guard did not finish");
    host.shut_down().await;
    let mut scene = AttackScene::new();
    let host = scene.host().await;
    stopped(&host).await;
    assert!(until(|| marked("3041.5").is_empty()).await);
    host.shut_down().await;
}

/// Text typed into a running shell is limited like a command. The control has the permission.
#[tokio::test]
async fn typed_text_is_bound_by_the_rules_of_commands() {
    let typed = |id: &str| {
        call("process", json!({"action": "input", "session_id": id, "text": "echo spoiled > top.txt; echo done"}))
    };
    for (rule, content) in [(Verdict::Deny, "plain"), (Verdict::Ask, "plain"), (Verdict::Allow, "spoiled\n")] {
        let rules = [("shell.run", "*spoiled*", rule)];
        let mut scene = AttackScene::new().guard(guard()).policy(Verdict::Allow, &rules);
        let host = scene.host().await;
        let session = host.runtime.open("worker").expect("a session");
        let first = session.send(script(&[start("sh"), json!("started")])).await.expect("accepted");
        assert!(until(|| host.children(session.id()).len() == 1).await, "the process did not start");
        let child = host.descendant(session.id(), 1);
        wait_until_running(&host, child).await;
        let id = child.short().0.to_string();
        // The same run handles the input, because it waits for its process.
        let stop = call("process", json!({"action": "stop", "session_id": id}));
        let wait = call("process", json!({"action": "output", "session_id": id, "wait_ms": 3_000}));
        session.send(script(&[typed(&id), wait, stop, json!("done")])).await.expect("accepted");
        session.run_ended(first.run).await.expect("the run ends");
        assert_eq!(scene.content("top.txt"), content, "{rule:?}");
        host.shut_down().await;
    }
}

/// A process keeps the rules that it was started with. A stricter agent that answers later in the same session cannot
/// type into it. The control: the agent that started the process can.
#[tokio::test]
async fn stricter_agent_cannot_type_into_a_process_of_another() {
    for (agent, content) in [(Some("reader"), "plain"), (None, "spoiled\n")] {
        let mut scene =
            AttackScene::new().guard(guard()).agent("reader", Verdict::Allow, &[("fs.write", "*", Verdict::Deny)]);
        let host = scene.host().await;
        let session = host.runtime.open("worker").expect("a session");
        let first = session.send(script(&[start("sh"), json!("started")])).await.expect("accepted");
        assert!(until(|| host.children(session.id()).len() == 1).await, "the process did not start");
        let child = host.descendant(session.id(), 1);
        wait_until_running(&host, child).await;
        let id = child.short().0.to_string();
        let types = json!({"action": "input", "session_id": id, "text": "echo spoiled > top.txt; echo done"});
        let wait = call("process", json!({"action": "output", "session_id": id, "wait_ms": 3_000}));
        let stop = call("process", json!({"action": "stop", "session_id": id}));
        let input = session.input(script(&[call("process", types), wait, stop, json!("done")]));
        let input = if let Some(agent) = agent { input.agent(agent) } else { input };
        input.send().await.expect("accepted");
        session.run_ended(first.run).await.expect("the run ends");
        assert_eq!(&*host.request(session.id()).agent, agent.unwrap_or("worker"));
        assert_eq!(scene.content("top.txt"), content, "{agent:?}");
        let typed = &host.results(session.id())[0];
        assert_eq!(
            typed.0 && typed.1.contains("started with permissions that this session no longer has"),
            agent.is_some(),
            "{typed:?}"
        );
        host.shut_down().await;
    }
}

/// Neither a child nor a sibling reaches a process of another session. The control: its owner does.
#[tokio::test]
async fn process_of_a_relative_is_out_of_reach() {
    let mut scene = AttackScene::new().guard(guard());
    let host = scene.host().await;
    let session = host.runtime.open("worker").expect("a session");
    let first =
        session.send(script(&[start("read line; echo $line > top.txt"), json!("started")])).await.expect("accepted");
    assert!(until(|| host.children(session.id()).len() == 1).await, "the process did not start");
    let child = host.descendant(session.id(), 1);
    wait_until_running(&host, child).await;
    let (short, full) = (child.short().0.to_string(), child.to_string());
    let types = |id: &str| call("process", json!({"action": "input", "session_id": id, "text": "spoiled"}));
    let acts = |action: &str, id: &str| call("process", json!({"action": action, "session_id": id}));
    let attacks: [Value; 6] = [
        types(&short),
        types(&full),
        acts("output", &short),
        acts("status", &full),
        acts("stop", &short),
        call("process", json!({"action": "output"})),
    ];
    let relative = spawn("worker", &attacks);
    session.send(script(&[relative, types(&short), json!("done")])).await.expect("accepted");
    session.run_ended(first.run).await.expect("the run ends");
    let relative = *host.children(session.id()).last().expect("a child");
    host.refused(relative, attacks.len());
    assert_eq!(scene.content("top.txt"), "spoiled\n", "the owner cannot type into it");
    host.shut_down().await;
}

/// Each process counts as a run of its tree, and one slot is always left for agents.
#[tokio::test]
async fn processes_leave_the_last_slot_to_agents() {
    let mut scene = AttackScene::new().guard(guard());
    let host = scene.host().await;
    let many: Vec<Value> = (0..8).map(|_| start("sleep 3037.5")).collect();
    let session = host.runtime.open("worker").expect("a session");
    let steps = [super::scene::in_one_turn(&many), spawn("worker", &[json!("done")]), json!("done")];
    session.send(script(&steps)).await.expect("accepted");
    // The control: the child runs while the processes do.
    assert!(until(|| host.children(session.id()).len() == 3).await, "the child or a process is missing");
    session.cancel().await.expect("cancelled");
    session.run_ended(RunNo(1)).await.expect("the run ends");
    assert!(until(|| marked("3037.5").is_empty()).await);
    host.shut_down().await;
}

/// Processes of siblings count together and leave one slot of their tree, so that an agent can run and stop them.
#[tokio::test]
async fn processes_of_siblings_leave_a_slot_to_agents() {
    let mut scene = AttackScene::new().guard(guard());
    let host = scene.host().await;
    let starts = |end: &str| script(&[start("sleep 3038.5"), json!(end)]);
    let sibling = || call("task", json!({"subagent_type": "worker", "prompt": starts("done"), "background": true}));
    let many: Vec<Value> = (0..5).map(|_| sibling()).collect();
    let session = host.runtime.open("worker").expect("a session");
    session.send(script(&[super::scene::in_one_turn(&many), json!("done")])).await.expect("accepted");
    // Two children start a process each; the others are refused, and end.
    let all = |host: &RunningHost| {
        let siblings = host.children(session.id());
        siblings.into_iter().flat_map(|sibling| host.children(sibling)).collect::<Vec<_>>()
    };
    let over = |id: &SessionId| {
        let records = host.runtime.journal().records(*id).expect("records");
        records.iter().any(|stored| matches!(stored.record, Record::RunEnded(_)))
    };
    assert!(
        until(|| host.children(session.id()).iter().filter(|id| over(id)).count() == 3).await,
        "three agents did not end"
    );
    assert_eq!(all(&host).len(), 2);
    // The control: a process that ends frees its slot for another.
    host.handle(all(&host)[0]).cancel().await.expect("cancelled");
    assert!(
        until(|| host.children(session.id()).iter().filter(|id| over(id)).count() == 4).await,
        "its agent did not end"
    );
    session.send(script(&[sibling(), json!("done")])).await.expect("accepted");
    assert!(until(|| all(&host).len() == 3).await, "no other process started");
    session.cancel().await.expect("cancelled");
    session.run_ended(RunNo(1)).await.expect("the run ends");
    assert!(until(|| marked("3038.5").is_empty()).await);
    host.shut_down().await;
}

/// The session of a process runs the command of its owner's call once; messages to it, or to a branch, do not run.
#[tokio::test]
async fn session_of_a_process_runs_only_one_command() {
    let mut scene = AttackScene::new().guard(guard());
    let host = scene.host().await;
    let session = host.runtime.open("worker").expect("a session");
    let first = session.send(script(&[start("echo once >> top.txt; sleep 3039.5"), json!("started")]));
    let first = first.await.expect("accepted");
    assert!(until(|| host.children(session.id()).len() == 1).await, "the process did not start");
    let process = host.handle(host.descendant(session.id(), 1));
    wait_until_running(&host, process.id()).await;
    process.cancel().await.expect("cancelled");
    session.run_ended(first.run).await.expect("the run ends");
    let why = "the session of a background process runs one command";
    for kind in [BranchKind::Subagent, BranchKind::Human] {
        let branch = process.branch(BranchOptions { kind, ..BranchOptions::default() }).await;
        assert!(branch.is_err_and(|error| error.to_string().contains(why)), "{kind:?}");
    }
    assert!(process.regenerate(None).await.is_err_and(|error| error.to_string().contains(why)));
    assert!(process.roll_back(None).await.is_err_and(|error| error.to_string().contains(why)));
    let sent = process.send("echo twice >> top.txt").await.expect("accepted");
    process.run_ended(sent.run).await.expect("wait for the end");
    // The control: the command of the call has run.
    assert_eq!(scene.content("top.txt"), "plainonce\n");
    host.shut_down().await;
}
