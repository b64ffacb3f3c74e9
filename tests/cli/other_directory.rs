//! Sessions that are continued from outside their workspace.

use super::call::*;

const DONE: &str = r#"{ "rules": [ { "agent": "*", "steps": [ { "text": "done", "repeat": true } ] } ] }"#;

const WRITES: &str = r#"{ "rules": [ { "agent": "*", "steps": [
    { "text": "done" },
    { "calls": [ { "tool": "write", "args": { "path": "made.txt", "content": "made" } } ] },
    { "text": "wrote" } ] } ] }"#;

/// A session of the user's workspace, and another directory.
struct ElsewhereScene {
    user: User,
    model: String,
    id: String,
    short: String,
    other: PathBuf,
}

impl ElsewhereScene {
    fn new() -> Self {
        let user = User::new();
        let model = user.script(DONE);
        let done = user.succeeds(&["run", "--json", "--model", &model, "--allow", "fs.write", "first"]);
        let end = last_event(&done.out);
        let id = end["session"].as_str().expect("an id").to_owned();
        let short = user.json(&["show", "--json", &id])["short"].as_str().expect("a name").to_owned();
        let other = user.data().with_file_name("other");
        std::fs::create_dir(&other).expect("a directory");
        Self { user, model, id, short, other: other.canonicalize().expect("its name") }
    }

    fn home(&self) -> PathBuf {
        self.user.workspace().canonicalize().expect("its name")
    }

    fn call_in(&self, folder: &Path, args: &[&str], stdin: &str) -> CommandOutput {
        let mut command = self.user.command(args);
        command.current_dir(folder);
        RunningCommand::start(command, stdin).done()
    }

    /// Calls a verb that runs agents in the other directory; `more` are the lines of a chat.
    fn call_elsewhere(&self, verb: &[&str], more: &[&str]) -> CommandOutput {
        self.call_in(&self.other, &[verb, &["--quiet", "--model", &self.model], more].concat(), "hello\n")
    }

    fn verbs(&self) -> [Vec<&str>; 4] {
        [vec!["send", &self.id, "hi"], vec!["continue", &self.id], vec!["regenerate", &self.id], vec!["chat", &self.id]]
    }

    fn shown(&self) -> Value {
        self.user.json(&["show", "--json", &self.id])
    }
}

/// A host also runs a session in its own directory. The control is the test of `--here`.
#[test]
fn session_works_in_its_own_directory_from_another() {
    let scene = ElsewhereScene::new();
    scene.user.script(WRITES);
    let done = scene.call_elsewhere(&["send", &scene.id, "write"], &[]);
    assert_eq!((done.code, &*done.out), (Some(0), "wrote\n"), "{done:?}");
    assert_eq!((scene.other.join("made.txt").exists(), scene.home().join("made.txt").exists()), (false, true));
    scene.user.script(DONE);
    for verb in scene.verbs() {
        let done = scene.call_elsewhere(&verb, &[]);
        assert_eq!((done.code, &*done.out), (Some(0), "done\n"), "{verb:?}: {done:?}");
    }
}

/// An option or a variable trusts only the directory of the command, not that of the session. The control: called in
/// the session's directory, the command reads its configuration.
#[test]
fn trust_of_this_directory_does_not_cover_the_session() {
    let scene = ElsewhereScene::new();
    scene.user.file("subtend.yaml", "limits: 5\n");
    let send = ["send", &*scene.id, "hi", "--quiet", "--model", &*scene.model];
    let there = scene.call_in(&scene.home(), &send, "");
    assert!(there.code == Some(2) && there.err.contains("`limits` is 5"), "{there:?}");
    let done = scene.call_in(&scene.other, &send, "");
    assert_eq!((done.code, &*done.out), (Some(0), "done\n"), "{done:?}");
    let refused = scene.call_in(&scene.other, &[&send[..], &["--trust"]].concat(), "");
    let home = scene.home();
    let why = format!(
        "error: `--trust` means this directory, and the session works in {}: name that one with `--workspace`, or trust it with \
         `subtend trust`\n",
        home.display()
    );
    assert_eq!((refused.code, &*refused.out, &*refused.err), (Some(2), "", &*why));
}

/// The author of the export chose the directory. The control: the same session with `--here`.
#[test]
fn imported_session_of_another_directory_is_refused() {
    let scene = ElsewhereScene::new();
    let (file, data) = (scene.other.join("tree.jsonl"), scene.other.join("data"));
    let (file, data) = (file.to_str().expect("text"), data.to_str().expect("text"));
    assert_eq!(scene.user.call(&["export", "--out", file]).code, Some(0));
    let imported = scene.user.call(&["import", "--data", data, file]);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let send = ["send", &*scene.id, "hi", "--quiet", "--model", &*scene.model, "--data", data];
    let refused = scene.call_in(&scene.other, &send, "");
    let is_refused = refused.code == Some(2) && refused.err.contains("its agent would read and write the files here");
    assert!(is_refused, "{refused:?}");
    let done = scene.call_in(&scene.other, &[&send[..], &["--here"]].concat(), "");
    assert_eq!((done.code, &*done.out), (Some(0), "done\n"), "{done:?}");
}

/// The controls: the session's own directory, and no directory.
#[test]
fn host_refuses_another_directory_of_a_session() {
    let scene = ElsewhereScene::new();
    let host = scene.user.start(&["serve", "--json", "--listen", "none", "--model", &scene.model]);
    host.line().expect("it serves");
    let home = scene.home();
    let send = |more: &[&str]| {
        let args = [&["send", &*scene.id, "hi", "--quiet"], more].concat();
        scene.call_in(&scene.other, &args, "")
    };
    let refused = send(&["--workspace", "."]);
    let why = format!(
        "error: `--workspace .`: the store is hosted by process {}, which runs session {} in {}; omit this option\n",
        host.pid(),
        scene.short,
        home.display()
    );
    assert_eq!((refused.code, &*refused.out, &*refused.err), (Some(2), "", &*why));
    for more in [vec!["--workspace", home.to_str().expect("text")], Vec::new()] {
        let done = send(&more);
        assert_eq!((done.code, &*done.out), (Some(0), "done\n"), "{more:?}: {done:?}");
    }
    host.signal("TERM");
    assert_eq!(host.done().code, Some(0));
}

#[test]
fn session_is_refused_in_another_directory_that_is_named() {
    let scene = ElsewhereScene::new();
    let (before, home, here) = (scene.shown(), scene.home(), scene.other.clone());
    let (home, here) = (home.display(), here.display());
    let expected = format!(
        "error: session {} belongs to {home}, and this is {here}: its agent would read and write the files here. Run the \
         command there (`cd {home}`, or `--workspace {home}`), or use `--here` to run it in {here} this time\n",
        scene.short,
    );
    for verb in scene.verbs() {
        let done = scene.call_elsewhere(&verb, &["--workspace", "."]);
        assert_eq!((done.code, &*done.out, &*done.err), (Some(2), "", &*expected), "{verb:?}");
    }
    assert_eq!(scene.shown(), before, "the refused call left records");
}

#[test]
fn session_continues_elsewhere_when_its_workspace_is_named() {
    let scene = ElsewhereScene::new();
    let named = scene.user.workspace();
    let by_the_way = scene.other.join("../workspace");
    for (folder, verb) in [&named, &by_the_way].into_iter().cycle().zip(scene.verbs()) {
        let done = scene.call_elsewhere(&verb, &["--workspace", &folder.to_string_lossy()]);
        assert_eq!((done.code, &*done.out), (Some(0), "done\n"), "{verb:?}: {done:?}");
    }
}

#[test]
fn session_works_in_another_directory_when_the_flag_is_set() {
    let scene = ElsewhereScene::new();
    for verb in scene.verbs() {
        let done = scene.call_elsewhere(&verb, &["--here"]);
        assert_eq!((done.code, &*done.out), (Some(0), "done\n"), "{verb:?}: {done:?}");
        let again = scene.call_elsewhere(&verb, &["--workspace", "."]);
        assert_eq!((again.code, &*again.out), (Some(2), ""), "{verb:?}: {again:?}");
    }
    let new = scene.call_elsewhere(&["chat"], &["--here"]);
    assert_eq!((new.code, &*new.out), (Some(2), ""), "{new:?}");
    assert!(new.err.contains("`--here` needs an existing session"), "{new:?}");
    assert_eq!(scene.user.call(&["verify"]).code, Some(0));
}

#[test]
fn here_option_lets_a_session_write_in_this_directory() {
    let scene = ElsewhereScene::new();
    scene.user.script(WRITES);
    let done = scene.call_elsewhere(&["send", &scene.id, "write"], &["--here"]);
    assert_eq!((done.code, &*done.out), (Some(0), "wrote\n"), "{done:?}");
    assert_eq!((scene.other.join("made.txt").exists(), scene.home().join("made.txt").exists()), (true, false));
}

#[test]
fn missing_workspace_error_names_a_remedy() {
    let scene = ElsewhereScene::new();
    let (home, here) = (scene.home(), scene.other.display().to_string());
    std::fs::remove_dir_all(&home).expect("remove the directory");
    let expected = format!(
        "error: session {} belongs to {}, which no longer exists, and this is {here}: its agent would read and write the \
         files here. If you want that, use `--here` to run it in {here} this time\n",
        scene.short,
        home.display(),
    );
    let done = scene.call_elsewhere(&["send", &scene.id, "hi"], &[]);
    assert_eq!((done.code, &*done.out, &*done.err), (Some(2), "", &*expected));
    let done = scene.call_elsewhere(&["send", &scene.id, "hi"], &["--here"]);
    assert_eq!((done.code, &*done.out), (Some(0), "done\n"), "{done:?}");
}

#[test]
fn reading_and_ending_a_session_work_from_any_directory() {
    let scene = ElsewhereScene::new();
    assert_eq!(scene.call_elsewhere(&["regenerate", &scene.id], &["--here"]).code, Some(0));
    let id = &*scene.id;
    let verbs: [&[&str]; 14] = [
        &["show", id],
        &["tree", id],
        &["sessions"],
        &["tasks"],
        &["usage", id],
        &["approvals"],
        &["queue", id],
        &["queue", id, "clear"],
        &["branch", id],
        &["switch", id, "previous"],
        &["interrupt", id],
        &["cancel", id],
        &["close", id],
        &["delete", id, "--yes"],
    ];
    for verb in verbs {
        let done = scene.call_in(&scene.other, verb, "");
        assert_eq!(done.code, Some(0), "{verb:?}: {done:?}");
    }
    assert_eq!(scene.user.json(&["sessions", "--all", "--json"]), json!([]));
}

/// A host of another directory cannot open the script of a session. The control: both remedies of the refusal work.
#[test]
fn remedies_for_a_refused_script_work() {
    let scene = ElsewhereScene::new();
    let serve = |folder: &Path, more: &[&str]| {
        let mut command = scene.user.command(&[&["serve", "--json", "--listen", "127.0.0.1:0"], more].concat());
        command.current_dir(folder);
        let host = RunningCommand::start(command, "");
        host.line().expect("it serves");
        host
    };
    let (id, model, home) = (&*scene.id, &*scene.model, scene.home());
    let host = serve(&scene.other, &[]);
    for args in [["send", id, "hi"], ["continue", id, "--json"]] {
        let refused = scene.call_in(&home, &args, "");
        let why = format!(
            "error: the session's own model cannot answer: the process that hosts the store was not started with the script `{model}`. End that \
             process, then send with `--model {model}` in {}, or start `subtend serve --model {model}` there\n",
            home.display()
        );
        assert!(refused.code == Some(2) && refused.err.ends_with(&why), "{args:?}: {refused:?}");
    }
    host.stops();
    let sent = scene.call_in(&home, &["send", id, "hi", "--quiet", "--model", model], "");
    assert_eq!((sent.code, &*sent.out), (Some(0), "done\n"), "{sent:?}");
    let host = serve(&home, &["--model", model]);
    let sent = scene.call_in(&home, &["send", id, "hi", "--quiet"], "");
    assert_eq!((sent.code, &*sent.out), (Some(0), "done\n"), "{sent:?}");
    host.stops();
}
