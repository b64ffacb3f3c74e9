//! Children in worktrees of their own, which the user merges, keeps or discards.

use super::call::*;
use super::terminal::TerminalSession;

/// Makes the workspace a repository with its files committed.
pub(crate) fn repository(user: &User) {
    user.file("a.txt", "one\ntwo\n");
    user.file("sub/b.txt", "b\n");
    user.file(".gitignore", ".subtend\n");
    git(&user.workspace(), &["init", "-q", "-b", "main"]);
    git(&user.workspace(), &["add", "-A"]);
    git(&user.workspace(), &["commit", "-q", "-m", "first"]);
}

pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(dir).args(["-c", "user.name=p", "-c", "user.email=p@localhost"]).args(args);
    let done = command.output().expect("git runs");
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

/// Returns a parent that starts `worker` with these additional arguments; the worker runs `steps`.
pub(crate) fn delegating_model(user: &User, more: &Value, steps: &[Value]) -> String {
    user.file(".subtend/agents/worker.md", "---\nmode: all\ndescription: Works.\non_restart: resume\n---\nWork.\n");
    let mut args = json!({"subagent_type": "worker", "prompt": "work"});
    args.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    let parent = [json!({"calls": [{"tool": "task", "args": args}]}), json!({"text": "done"})];
    let rules = json!([{"agent": "worker", "steps": steps}, {"agent": "*", "steps": parent}]);
    user.script(&json!({ "rules": rules }).to_string())
}

pub(crate) fn isolated() -> Value {
    json!({"isolation": "worktree"})
}

pub(crate) fn writes(path: &str, content: &str) -> Value {
    json!({"calls": [{"tool": "write", "args": {"path": path, "content": content}}]})
}

pub(crate) fn run(user: &User, model: &str) -> String {
    let done = user.succeeds(&["run", "--json", "--model", model, "go", "--allow", "fs.*", "--allow", "shell.run"]);
    done.out
}

/// Git runs in other directories, so a relative path of the store must be resolved in the caller's directory.
#[test]
fn worktrees_are_created_in_a_relative_data_directory() {
    let user = User::new();
    repository(&user);
    let model = delegating_model(&user, &isolated(), &[writes("a.txt", "child\n"), json!({"text": "done"})]);
    for store in [["--data", "../d"], ["--store", "redb:../e"]] {
        let run = ["run", "--quiet", "--model", &model, "go", "--allow", "fs.*"];
        let done = user.call(&[&run[..], &store[..]].concat());
        assert_eq!(done.code, Some(0), "{store:?}: {done:?}");
        let listed = user.json(&[&["worktree"][..], &store[..], &["list", "--json"]].concat());
        assert_eq!(listed.as_array().map(Vec::len), Some(1), "{store:?}: {listed}");
    }
}

/// The file of the workspace says nothing about the one in a worktree. The control: a child in the workspace itself.
#[test]
fn write_in_a_worktree_is_shown_with_all_its_lines() {
    let arguments = r#"| {"path":"a.txt","content":"one\ntwo\nchild\n"}"#;
    for (more, expected) in [(isolated(), arguments), (json!({}), "| a.txt\n| +child\n\n")] {
        let user = User::new();
        repository(&user);
        let steps = [writes("a.txt", "one\ntwo\nchild\n"), json!({"text": "done"})];
        let model = delegating_model(&user, &more, &steps);
        let mut run = TerminalSession::at_terminal(&user, &["run", "--model", &model, "--ask", "fs.write", "go"]);
        let question = run.until("allow?").replace('\r', "");
        assert!(question.contains(expected), "{question}");
        run.types("n\n");
        run.wait_for_exit();
    }
}

fn worktrees(user: &User) -> Vec<Value> {
    user.json(&["worktree", "list", "--json"]).as_array().expect("an array").clone()
}

fn content(user: &User, path: &str) -> Option<String> {
    std::fs::read_to_string(user.workspace().join(path)).ok()
}

#[test]
fn x14_user_sees_and_merges_changes_of_a_child() {
    let user = User::new();
    repository(&user);
    let steps = [writes("a.txt", "one\nTWO\n"), writes("new.txt", "n\n"), json!({"text": "changed them"})];
    let out = run(&user, &delegating_model(&user, &isolated(), &steps));
    // The parent's model reads which files changed, where, and how to merge them.
    assert!(out.contains("changed them\\n\\n[worktree subtend/"), "{out}");
    assert!(out.contains("2 files changed, +2 -1 lines: a.txt +1 -1, new.txt +1 -0."), "{out}");
    assert_eq!((content(&user, "a.txt").as_deref(), content(&user, "new.txt")), (Some("one\ntwo\n"), None));
    let listed = worktrees(&user);
    let [row] = listed.as_slice() else { panic!("{listed:?}") };
    let id = row["session"].as_str().expect("an id");
    assert_eq!((&row["session_exists"], row["changes"]["files"].as_array().map(Vec::len)), (&json!(true), Some(2)));
    let diff = user.call(&["worktree", "diff", id]);
    assert!(diff.out.contains("-two\n+TWO\n") && diff.out.contains("+++ b/new.txt"), "{diff:?}");
    let output = user.call(&["worktree", "merge", id]);
    assert!(output.code == Some(2) && output.err.contains("Use --yes to do it without asking"), "{output:?}");
    assert_eq!(content(&user, "new.txt"), None);
    let merged = user.call(&["worktree", "merge", id, "--yes"]);
    assert_eq!((merged.code, &*merged.out), (Some(0), "merged 2 files\n"), "{merged:?}");
    assert_eq!(content(&user, "a.txt").as_deref(), Some("one\nTWO\n"));
    // Deleting the session also removes the worktree and the branch.
    let root = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(user.call(&["delete", &root, "--yes"]).code, Some(0));
    assert_eq!(worktrees(&user), Vec::<Value>::new());
    assert_eq!(git(&user.workspace(), &["for-each-ref", "--format=%(refname)"]), "refs/heads/main");
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

/// A deletion removes worktrees: question and result say that changes are lost. The control: after a merge, none is.
#[test]
fn x14_delete_names_changes_that_were_not_merged() {
    let user = User::new();
    repository(&user);
    let model = delegating_model(&user, &isolated(), &[writes("new.txt", "n\n"), json!({"text": "done"})]);
    for (is_merged, expected) in
        [(false, "deleted 2 sessions, and 1 worktree with unmerged changes; "), (true, "deleted 2 sessions; ")]
    {
        run(&user, &model);
        let worktree = worktrees(&user)[0]["session"].as_str().expect("an id").to_owned();
        let root = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
        if is_merged {
            assert_eq!(user.call(&["worktree", "merge", &worktree, "--yes"]).code, Some(0));
        }
        let mut typing = TerminalSession::at_terminal(&user, &["delete", &root]);
        let shown = typing.until("Delete? [y/N]");
        assert_eq!(shown.contains("It also removes 1 worktree with unmerged changes:"), !is_merged, "{shown}");
        assert_eq!(shown.contains("1 file changed, +1 -0 lines: new.txt +1 -0"), !is_merged, "{shown}");
        typing.types("n\n");
        typing.until("nothing is deleted");
        typing.wait_for_exit();
        let deleted = user.call(&["delete", &root, "--yes"]);
        assert!(deleted.code == Some(0) && deleted.out.starts_with(expected), "{deleted:?}");
    }
}

/// The worktrees cannot be listed. The control: an error names what was not removed.
#[test]
fn delete_with_yes_works_without_a_list_of_worktrees() {
    let user = User::new();
    run(&user, &delegating_model(&user, &json!({}), &[json!({"text": "done"})]));
    let root = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    std::fs::write(user.data().join("worktrees"), "not a directory").expect("written");
    let deleted = user.call(&["delete", &root, "--yes"]);
    assert!(deleted.code == Some(1) && deleted.out.starts_with("deleted 2 sessions; "), "{deleted:?}");
    assert!(deleted.err.contains("the worktree cannot be listed: Not a directory"), "{deleted:?}");
    assert_eq!(user.json(&["sessions", "--json"]), json!([]));
}

/// A discard also removes files that git ignores, so the question names them. The control: without any, and with all
/// changes merged, no question.
#[test]
fn discard_asks_before_it_removes_ignored_files() {
    let user = User::new();
    repository(&user);
    user.file(".gitignore", ".subtend\n*.log\n");
    git(&user.workspace(), &["commit", "-q", "-a", "-m", "second"]);
    run(&user, &delegating_model(&user, &isolated(), &[writes("kept.log", "n\n"), json!({"text": "done"})]));
    let id = worktrees(&user)[0]["session"].as_str().expect("an id").to_owned();
    let mut typing = TerminalSession::at_terminal(&user, &["worktree", "discard", &id]);
    let shown = typing.until("Discard? [y/N]");
    assert!(shown.contains("no changes; ignored by git and left out: kept.log"), "{shown}");
    typing.types("n\n");
    typing.until("nothing is discarded");
    typing.wait_for_exit();
    assert_eq!(user.call(&["worktree", "discard", &id, "--yes"]).code, Some(0));
    run(&user, &delegating_model(&user, &isolated(), &[writes("new.txt", "n\n"), json!({"text": "done"})]));
    let id = worktrees(&user)[0]["session"].as_str().expect("an id").to_owned();
    assert_eq!(user.call(&["worktree", "merge", &id, "--yes"]).code, Some(0));
    assert_eq!(user.call(&["worktree", "discard", &id]).code, Some(0));
    assert_eq!(worktrees(&user), Vec::<Value>::new());
}

/// A terminal that takes `\x1b]0;…\x07` as its title would hide the lines in between.
#[test]
fn x14_diff_in_a_pipe_shows_each_merged_line() {
    let user = User::new();
    repository(&user);
    let text = "echo fine # \u{1b}]0;\ntouch pwned\n# \u{7}\necho done\n";
    run(&user, &delegating_model(&user, &isolated(), &[writes("build.sh", text), json!({"text": "done"})]));
    let listed = worktrees(&user);
    let id = listed[0]["session"].as_str().expect("an id");
    let diff = user.call(&["worktree", "diff", id]);
    assert!(diff.out.contains("+echo fine # <U+001B>]0;\n+touch pwned\n+# <U+0007>\n+echo done\n"), "{diff:?}");
    let raw = user.call(&["worktree", "diff", id, "--raw"]);
    assert!(raw.out.contains("+echo fine # \u{1b}]0;\n+touch pwned\n+# \u{7}\n"), "the control: {raw:?}");
}

/// The patch of two large files is longer than one that is printed. The control: the patch of one.
#[test]
fn files_of_a_long_patch_are_listed_as_json() {
    let user = User::new();
    repository(&user);
    run(&user, &delegating_model(&user, &isolated(), &[writes("new.txt", "n\n"), json!({"text": "done"})]));
    let listed = worktrees(&user);
    let (id, tree) = (listed[0]["session"].as_str().expect("an id"), listed[0]["path"].as_str().expect("a path"));
    let (large, names) = (format!("{}\n", "x".repeat(1023)).repeat(33 << 10), ["a.bin", "b.bin", "new.txt"]);
    std::fs::write(std::path::Path::new(tree).join(names[0]), &large).expect("written");
    assert_eq!(user.call(&["worktree", "diff", id]).code, Some(0));
    std::fs::write(std::path::Path::new(tree).join(names[1]), &large).expect("written");
    let refused = user.call(&["worktree", "diff", id]);
    assert!(refused.code == Some(1) && refused.err.contains("its output is longer than 64 MiB"), "{}", refused.err);
    let changes = user.json(&["worktree", "diff", id, "--json"]);
    let files = changes["files"].as_array().expect("files");
    assert_eq!(files.iter().map(|file| file["path"].as_str().expect("a path")).collect::<Vec<_>>(), names);
}

#[test]
fn x14_worktrees_are_discarded_or_kept_as_a_branch() {
    let user = User::new();
    repository(&user);
    let model = delegating_model(&user, &isolated(), &[writes("new.txt", "n\n"), json!({"text": "done"})]);
    run(&user, &model);
    run(&user, &model);
    let listed = worktrees(&user);
    let id = |ix: usize| listed[ix]["session"].as_str().expect("an id").to_owned();
    let kept = user.call(&["worktree", "keep", &id(0)]);
    assert!(kept.code == Some(0) && kept.out.starts_with("kept branch subtend/"), "{kept:?}");
    user.succeeds(&["worktree", "discard", &id(1), "--yes"]);
    assert_eq!(worktrees(&user), Vec::<Value>::new());
    let branch = listed[0]["branch"].as_str().expect("a branch");
    let refs = git(&user.workspace(), &["for-each-ref", "--format=%(refname:short)"]);
    assert_eq!(refs.lines().collect::<Vec<_>>(), ["main", branch]);
    assert_eq!(git(&user.workspace(), &["show", &format!("{branch}:new.txt")]), "n");
    let none = user.call(&["worktree", "diff", &id(1)]);
    assert!(none.code == Some(1) && none.err.contains("has no worktree"), "{none:?}");
}

/// A merge was killed after its plan and before its files, and another program changed one of the files.
#[test]
fn x14_recover_completes_a_killed_merge_and_names_it() {
    let user = User::new();
    repository(&user);
    let steps = [writes("a.txt", "one\nTWO\n"), writes("new.txt", "n\n"), json!({"text": "done"})];
    run(&user, &delegating_model(&user, &isolated(), &steps));
    let listed = worktrees(&user);
    let id = listed[0]["session"].as_str().expect("an id");
    let plan = json!({"tip": listed[0]["changes"]["tip"], "temporary": ".subtend-0.tmp", "items": [
        {"path": "new.txt", "before": "absent", "after": {"link": {"to": "a.txt"}}, "content": 0},
        {"path": "d/b.txt", "before": "absent", "after": {"link": {"to": "new.txt"}}, "content": 1},
    ]});
    let dir = user.data().join("worktrees").join(format!("{id}.merge"));
    std::fs::create_dir(&dir).expect("created");
    std::fs::write(dir.join("plan.json"), plan.to_string()).expect("written");
    user.file("d/b.txt", "mine\n");
    user.file("d/.subtend-0.tmp", "of the killed merge");
    let recovered = user.call(&["recover"]);
    let left = "was completed: merged 1 file; not merged, since they were changed meanwhile: d/b.txt";
    assert!(recovered.code == Some(0) && recovered.out.contains(left), "{recovered:?}");
    assert_eq!((content(&user, "new.txt").as_deref(), content(&user, "d/.subtend-0.tmp")), (Some("one\ntwo\n"), None));
    assert_eq!(content(&user, "d/b.txt").as_deref(), Some("mine\n"));
    // The list, the diff and the next answer of the session name the file as long as the worktree exists.
    assert_eq!(worktrees(&user)[0]["changes"]["left"], json!(["d/b.txt"]));
    let summary = user.call(&["worktree", "list"]);
    let note = "no changes; on the branch only, since other programs changed them during a merge: d/b.txt";
    assert!(summary.out.contains(note), "{summary:?}");
    assert!(user.json(&["recover", "--json"])["merged"].is_null(), "a second start has nothing to complete");
}

/// The manifest requires a worktree, and the workspace is not a repository. The child works in a copy in the data
/// directory, where its changes wait for the user.
#[test]
fn x14_child_works_in_a_copy_without_a_repository() {
    let user = User::new();
    user.file("a.txt", "one\ntwo\n");
    let steps = [writes("a.txt", "one\nTWO\n"), writes("new.txt", "n\n"), json!({"text": "done"})];
    let model = delegating_model(&user, &json!({}), &steps);
    let text = "---\nmode: all\ndescription: Works.\nisolation: worktree\n---\nWork.\n";
    user.file(".subtend/agents/worker.md", text);
    let out = run(&user, &model);
    assert!(out.contains("2 files changed, +2 -1 lines: a.txt +1 -1, new.txt +1 -0."), "{out}");
    assert_eq!((content(&user, "a.txt").as_deref(), content(&user, "new.txt")), (Some("one\ntwo\n"), None));
    let listed = worktrees(&user);
    let id = listed[0]["session"].as_str().expect("an id");
    let diff = user.call(&["worktree", "diff", id]);
    assert!(diff.out.contains("-two\n+TWO\n"), "{diff:?}");
    assert_eq!(user.call(&["worktree", "merge", id, "--yes"]).out, "merged 2 files\n");
    assert_eq!(content(&user, "a.txt").as_deref(), Some("one\nTWO\n"));
    assert!(!user.workspace().join(".git").exists());
    let kept = user.call(&["worktree", "keep", id]);
    assert!(kept.out.starts_with("kept branch subtend/") && kept.out.contains("`git clone --branch"), "{kept:?}");
    assert_eq!(worktrees(&user), Vec::<Value>::new());
    // The control: without the key the child works in the workspace.
    user.file(".subtend/agents/worker.md", &text.replace("isolation: worktree", "isolation: none"));
    user.file("a.txt", "one\ntwo\n");
    run(&user, &model);
    assert_eq!(content(&user, "a.txt").as_deref(), Some("one\nTWO\n"));
}

/// A copy would expose the user's own files. So none is made, neither for a child nor for the agent of the run.
#[test]
fn x14_workspace_with_the_users_own_files_is_not_copied() {
    let user = User::new();
    let model = delegating_model(&user, &isolated(), &[writes("new.txt", "n\n"), json!({"text": "done"})]);
    let run = ["run", "--json", "--data", "data", "--model", &model, "--allow", "fs.*"];
    let out = user.call(&[&run[..], &["go"]].concat()).out;
    assert!(out.contains("cannot be copied, since it contains") && out.contains("or leave `isolation` out"), "{out}");
    assert_eq!(content(&user, "new.txt"), None);
    let text = "---\nmode: all\ndescription: Works.\nisolation: worktree\n---\nWork.\n";
    user.file(".subtend/agents/worker.md", text);
    let started = user.call(&[&run[..], &["--agent", "worker", "go"]].concat());
    let all = started.err + &started.out;
    assert!(started.code != Some(0) && all.contains("cannot be copied, since it contains"), "{all}");
}

/// The repository has no commit, which git detects when the run begins. The cause must not be a model's refusal.
#[test]
fn x14_run_without_its_worktree_fails_with_that_cause() {
    let user = User::new();
    git(&user.workspace(), &["init", "-q", "-b", "main"]);
    let out = run(&user, &delegating_model(&user, &isolated(), &[json!({"text": "done"})]));
    let events: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    let of = |kind: &str| {
        let found = events.iter().map(|event| &event["record"][kind]).find(|record| record.is_object());
        found.unwrap_or_else(|| panic!("no {kind}: {out}"))
    };
    let home = user.workspace().canonicalize().expect("a path");
    let why =
        format!("cannot create a worktree: the repository of {} has no commit. Commit its files first", home.display());
    let failed = json!({"failed": {"kind": {"workspace": {"message": why}}}});
    assert_eq!((&of("run_ended")["outcome"], &of("notice_taken")["items"][0]["outcome"]), (&failed, &failed));
    let discarded = of("attempt_discarded");
    assert_eq!((&discarded["error"], &discarded["message"]), (&json!("dropped"), &json!(format!("not called: {why}"))));
    let root = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    let tree = user.call(&["tree", &root]).out;
    let sentence = format!("failed: its working directory could not be prepared: {why}");
    assert!(tree.contains(&sentence), "{tree}");
    // The control: with a commit the same model works.
    repository(&user);
    let steps = [writes("new.txt", "n\n"), json!({"text": "done"})];
    let done = run(&user, &delegating_model(&user, &isolated(), &steps));
    assert!(!done.contains("attempt_discarded") && done.contains("[worktree subtend/"), "{done}");
}

#[test]
fn x14_isolation_accepts_only_worktree_and_none() {
    let user = User::new();
    user.file(".subtend/agents/worker.md", "---\nmode: all\ndescription: Works.\nisolation: container\n---\nWork.\n");
    user.file(".claude/agents/other.md", "---\nname: other\ndescription: Works.\nisolation: remote\n---\nWork.\n");
    let agents = user.call(&["agents", "check", ".subtend/agents/worker.md", ".claude/agents/other.md"]);
    let all = agents.out + &agents.err;
    assert!(
        all.contains("`isolation` must be") && all.contains("\"container\"") && all.contains("\"remote\""),
        "{all}"
    );
}

/// The store is restored from a copy without the sessions. `doctor` lists their worktrees, and they can be removed.
#[test]
fn x14_doctor_lists_worktrees_without_a_session() {
    let user = User::new();
    repository(&user);
    let doctor = |user: &User| {
        let findings = user.json(&["doctor", "--json"]);
        let mut findings = findings["findings"].as_array().expect("an array").clone();
        findings.retain(|finding| finding["check"] == json!("worktrees"));
        findings.iter().map(|finding| finding["found"].as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    run(&user, &delegating_model(&user, &isolated(), &[writes("new.txt", "n\n"), json!({"text": "done"})]));
    assert_eq!(doctor(&user), ["1 worktree"]);
    let id = worktrees(&user)[0]["session"].as_str().expect("an id").to_owned();
    std::fs::remove_dir_all(user.data().join("redb")).expect("a store");
    run(&user, &user.script(&json!({"rules": [{"agent": "*", "steps": [{"text": "hello"}]}]}).to_string()));
    assert_eq!(doctor(&user), [format!("1 worktree; without a session: {id}")]);
    assert_eq!(user.call(&["worktree", "discard", &id, "--yes"]).code, Some(0));
    assert_eq!(doctor(&user), Vec::<String>::new());
}

/// After a kill, the run of the child resumes in its worktree, with the files that it had written.
#[test]
fn x14_child_resumes_after_a_kill_in_its_worktree() {
    let user = User::new();
    repository(&user);
    let steps = [
        writes("first.txt", "1\n"),
        writes("second.txt", "2\n"),
        json!({"calls": [{"tool": "shell", "args": {"command": "sleep 600"}}]}),
        json!({"text": "done"}),
    ];
    user.resumable_agent("steady", "primary");
    let model = delegating_model(&user, &isolated(), &steps);
    let args =
        ["run", "--json", "--agent", "steady", "--model", &model, "go", "--allow", "fs.*", "--allow", "shell.run"];
    let killed = user.start(&args);
    let at = killed.until(|event| {
        event["record"]["call_started"].is_object()
            && event["record"]["call_started"]["access"]["action"] == json!("shell.run")
    });
    killed.signal("KILL");
    assert_eq!(killed.done().code, None);
    let child = at["session"].as_str().expect("an id").to_owned();
    let parent = user.json(&["sessions", "--json"])[0]["id"].as_str().expect("an id").to_owned();
    user.succeeds(&["continue", &parent, "--model", &model]);
    let listed = worktrees(&user);
    let files = listed[0]["changes"]["files"].as_array().map(Vec::len);
    assert_eq!((listed[0]["session"].as_str(), files), (Some(&*child), Some(2)), "{listed:?}");
    assert_eq!(content(&user, "first.txt"), None);
}

/// Killed runs leave their worktrees, which the next start examines. The control: one with a change, which is examined first, remains.
#[test]
fn x14_start_removes_worktrees_without_changes_of_lost_runs() {
    let user = User::new();
    repository(&user);
    let sleeps = || json!({"calls": [{"tool": "shell", "args": {"command": "sleep 600"}}]});
    let started = |steps: &[Value]| {
        let model = delegating_model(&user, &isolated(), steps);
        let run = user.start(&["run", "--json", "--model", &model, "go", "--allow", "fs.*", "--allow", "shell.run"]);
        let event = run.until(|event| event["record"]["call_started"]["access"]["action"] == json!("shell.run"));
        let child = event["session"].as_str().expect("an id").to_owned();
        (run, user.data().join("worktrees").join(child))
    };
    let killed = |(run, dir): (RunningCommand, PathBuf)| {
        run.signal("KILL");
        assert_eq!(run.done().code, None);
        assert!(dir.is_dir(), "the control: the killed run left no worktree");
        dir
    };
    let changed = killed(started(&[writes("a.txt", "child\n"), sleeps()]));
    let unchanged = killed(started(&[sleeps()]));
    // The last run stays until its own child waits, so that the start has its time.
    let (last, _) = started(&[sleeps()]);
    (0..600).take_while(|_| unchanged.exists()).for_each(|_| std::thread::sleep(Duration::from_millis(50)));
    assert_eq!((unchanged.exists(), changed.exists()), (false, true));
    last.signal("KILL");
    assert_eq!(last.done().code, None);
}

/// SIGKILL at any moment of a run that creates worktrees. After the next start, each worktree is complete or can be
/// discarded, and nothing else remains.
#[test]
fn x14_creation_killed_at_any_moment_can_be_cleaned_up() {
    let user = User::new();
    repository(&user);
    let model = delegating_model(&user, &isolated(), &[writes("new.txt", "n\n"), json!({"text": "done"})]);
    let args = ["run", "--json", "--model", &model, "go", "--allow", "fs.*"];
    let mut killed = 0;
    for wait_ms in [100, 200, 300, 400, 500, 600, 700, 800] {
        let run = user.start(&args);
        std::thread::sleep(Duration::from_millis(wait_ms));
        drop(Command::new("kill").args(["-KILL", &run.pid().to_string()]).status());
        killed += i32::from(run.done().code.is_none());
    }
    // Whether the run was lost or not, the next run can start.
    let out = run(&user, &model);
    assert!(out.contains("1 file changed, +1 -0 lines: new.txt +1 -0."), "{out}");
    let listed = worktrees(&user);
    println!("{killed} kills, {} worktrees", listed.len());
    assert!(killed > 0 && !listed.is_empty(), "the control: no run was killed");
    for row in &listed {
        let whole = row["stage"] == json!("ready") && row["changes"].is_object();
        assert!(whole || row["stage"] == json!("making"), "{row:#}");
        let id = row["session"].as_str().expect("an id");
        assert_eq!(user.call(&["worktree", "discard", id, "--yes"]).code, Some(0));
    }
    assert_eq!((worktrees(&user), content(&user, "new.txt")), (Vec::new(), None));
    assert_eq!(git(&user.workspace(), &["for-each-ref", "--format=%(refname)"]), "refs/heads/main");
    assert_eq!(git(&user.workspace(), &["worktree", "list"]).lines().count(), 1);
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

/// A worktree whose process ended while it was made. The control: before that, and after it is discarded.
#[test]
fn recover_names_a_worktree_that_is_incomplete() {
    let user = User::new();
    repository(&user);
    run(&user, &delegating_model(&user, &isolated(), &[writes("new.txt", "n\n"), json!({"text": "done"})]));
    let id = worktrees(&user)[0]["session"].as_str().expect("an id").to_owned();
    let incomplete = || user.json(&["recover", "--json"])["incomplete"].clone();
    assert_eq!(incomplete(), Value::Null);
    let entry = user.data().join(format!("worktrees/{id}.json"));
    let text = std::fs::read_to_string(&entry).expect("an entry").replace("\"ready\"", "\"making\"");
    std::fs::write(&entry, text).expect("written");
    assert_eq!(incomplete(), json!([id]));
    let shown = user.succeeds(&["recover"]).out;
    assert!(shown.contains(&format!("the worktree of session {} is incomplete", &id[id.len() - 6..])), "{shown}");
    assert_eq!(user.call(&["worktree", "discard", &id, "--yes"]).code, Some(0));
    assert_eq!(incomplete(), Value::Null);
}

/// SIGKILL at any moment of a merge. The next run or merge completes it, and no merge stays partial.
#[test]
fn x14_merge_killed_at_any_moment_loses_nothing() {
    const FILES: usize = 40;
    let user = User::new();
    repository(&user);
    let command = format!("for n in $(seq 0 {}); do mkdir d$n && echo x > d$n/f.txt || exit 1; done", FILES - 1);
    let many = json!({"calls": [{"tool": "shell", "args": {"command": command}}]});
    let model = delegating_model(&user, &isolated(), &[many, json!({"text": "done"})]);
    let present = || (0..FILES).filter(|n| content(&user, &format!("d{n}/f.txt")).is_some()).count();
    let (mut killed, mut partial) = (0, 0);
    for wait_ms in [Some(0), Some(60), Some(150), Some(300), None, None, None, None] {
        run(&user, &model);
        let id = worktrees(&user)[0]["session"].as_str().expect("an id").to_owned();
        let merge = user.start(&["worktree", "merge", &id, "--yes"]);
        match wait_ms {
            Some(wait_ms) => std::thread::sleep(Duration::from_millis(wait_ms)),
            // Until the first file exists.
            None => {
                (0..20_000).take_while(|_| present() == 0).for_each(|_| std::thread::sleep(Duration::from_millis(1)))
            }
        }
        drop(Command::new("kill").args(["-KILL", &merge.pid().to_string()]).status());
        killed += i32::from(merge.done().code.is_none());
        if (1..FILES).contains(&present()) {
            partial += 1;
            assert_eq!(user.call(&["run", "--model", "offline", "--agent", "plan", "go"]).code, Some(0));
            assert_eq!(present(), FILES, "{wait_ms:?} ms: a start leaves a partial merge");
        }
        let again = user.call(&["worktree", "merge", &id, "--yes"]);
        assert_eq!((again.code, present()), (Some(0), FILES), "{wait_ms:?} ms: {again:?}");
        assert_eq!(user.call(&["worktree", "discard", &id, "--yes"]).code, Some(0));
        assert_eq!(worktrees(&user), Vec::<Value>::new());
        git(&user.workspace(), &["clean", "-qfd", "-e", ".subtend"]);
    }
    println!("{killed} kills, {partial} of them between two files");
    assert!(killed > 0, "the control: no merge was killed");
}
