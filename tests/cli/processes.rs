//! Background processes of a killed host.

use super::call::*;

fn alive(mark: &str) -> bool {
    std::fs::read_dir("/proc").expect("processes").filter_map(Result::ok).any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == mark.as_bytes())
    })
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("timeout: {what}");
}

/// The process of a killed host ends with it and is listed as ended; the owner's model gets one notice with the output.
#[test]
fn r9_killed_host_leaves_no_process_and_its_end_is_noticed() {
    let user = User::new();
    process_of_a_killed_host(&user, "3040", &["serve"], &["and now?"]);
}

/// A session that resumes does not restart a command that was killed: the command ends as lost, as in other sessions.
#[test]
fn r9_process_of_a_resumed_session_is_lost_with_its_host() {
    let user = User::new();
    user.resumable_agent("keeper", "all");
    process_of_a_killed_host(&user, "3041", &["--agent", "keeper", "serve"], &[]);
}

fn process_of_a_killed_host(user: &User, mark: &str, prompt: &[&str], more: &[&str]) {
    let mark = format!("{mark}.{}", std::process::id());
    let model = user.script(
        &json!({ "rules": [ { "agent": "*", "steps": [
            { "calls": [ { "tool": "shell", "args": { "command": format!("echo served; exec sleep {mark}"), "background": true } } ] },
            { "text": "I wait." },
            { "text": "Told: {last}", "repeat": true }
        ] } ] })
        .to_string(),
    );
    let run = [&["run", "--quiet", "--allow", "shell.run", "--model", &model][..], prompt].concat();
    let run = user.start(&run);
    until("the process starts", || alive(&mark));
    let newest = || user.json(&["sessions", "--json"])[0]["id"].as_str().map(str::to_owned);
    until("the session is listed", || newest().is_some());
    let id = newest().expect("a session");
    let tree = || user.json(&["tree", "--json", &id]);
    until("the run waits for the process", || tree()["children"][0]["branch"]["iterations"].as_u64() > Some(1));
    let listed: Value = tree()["children"][0].clone();
    assert_eq!((&listed["agent"], &listed["state"]), (&json!("shell.background"), &json!("working")), "{listed:#}");
    run.signal("KILL");
    run.done();
    until("the process ends", || !alive(&mark));
    assert_eq!(user.call(&[&["continue", &id, "--model", &model][..], more].concat()).code, Some(0));
    let shown = user.call(&["show", &id]).out;
    let (before, notice) = shown.split_once("\nnotice\n").expect("a notice of the end");
    assert!(before.contains("\"status\":\"started\"") && !notice.contains("\nnotice\n"), "once: {shown}");
    assert!(notice.contains("lost: the process ended while the run was in flight\n    served\n"), "{shown}");
    let ended = tree();
    assert_eq!(ended["children"][0]["outcome"], json!("lost"), "{ended:#}");
}
