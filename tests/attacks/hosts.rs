//! The host of a store: other users of the machine, other directories, and approvals from another terminal.

use super::scene::*;
use crate::cli::call::{CommandOutput, RunningCommand, Stdio, User};

/// Starts the command without the variable that trusts each workspace.
fn start(user: &User, workspace: &Path, args: &[&str]) -> RunningCommand {
    let mut command = user.command(args);
    command.current_dir(workspace).env_remove("SUBTEND_TRUST");
    RunningCommand::start(command, "")
}

fn stop(host: RunningCommand) -> CommandOutput {
    host.stops()
}

/// The owner of the directory of socket and tokens, or of a link to it, could choose the tokens of the host. Both are
/// refused, even for root. The control: a directory of this user.
#[test]
fn host_directory_of_others_or_behind_a_link_is_refused() {
    const ATTACKS: [&str; 2] = ["link", "owner"];
    let is_root = std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"));
    for attack in ATTACKS {
        let user = User::new();
        let shared = user.data().with_file_name("shared");
        let planted = shared.join("planted");
        std::fs::create_dir_all(&planted).expect("a directory");
        let dir = shared.join("store.host");
        match attack {
            "link" => std::os::unix::fs::symlink(&planted, &dir).expect("a link"),
            _ if !is_root => continue,
            _ => {
                std::fs::create_dir(&dir).expect("a directory");
                std::os::unix::fs::chown(&dir, Some(1_000), Some(1_000)).expect("another owner");
            }
        }
        let store = format!("redb:{}", shared.join("store").display());
        let serve = || user.start(&["serve", "--json", "--listen", "none", "--store", &store]);
        let refused = serve().done();
        assert_eq!(refused.code, Some(3), "{attack}: {refused:?}");
        assert!(refused.err.contains("it is a link or belongs to another user: remove it"), "{attack}: {refused:?}");
        assert_eq!(std::fs::read_dir(&planted).expect("a directory").count(), 0, "{attack}");
        if attack == "link" { std::fs::remove_file(&dir) } else { std::fs::remove_dir(&dir) }.expect("removed");
        let host = serve();
        host.line().expect("the first line of the host");
        stop(host);
    }
}

/// Another user of the machine can neither connect to the socket of a host nor read its directory, even if the path of
/// the socket is too long for a socket address. The control: the host's own user can.
#[test]
fn another_user_cannot_reach_the_socket_of_a_host() {
    let user = User::new();
    let whole = "import os,socket,sys; os.chdir(sys.argv[1]); s=socket.socket(socket.AF_UNIX); s.connect('host.sock'); \
                 s.sendall(b'GET /v1/host HTTP/1.1\\r\\nhost: x\\r\\nconnection: close\\r\\n\\r\\n'); print(s.recv(999))";
    let reaches = |prefix: &[&str], what: &[&str]| {
        let all = [prefix, what].concat();
        let output = Command::new(all[0]).args(&all[1..]).output();
        output.is_ok_and(|output| output.status.success() && !output.stdout.is_empty())
    };
    let is_root = std::fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"));
    let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    for data in [user.data(), user.data().with_file_name("d".repeat(120))] {
        let host = user.start(&["serve", "--json", "--listen", "none", "--data", &data.to_string_lossy()]);
        let line: Value = serde_json::from_str(&host.line().expect("a line")).expect("JSON");
        let socket = Path::new(line["socket"].as_str().expect("a path"));
        let dir = socket.parent().expect("a directory");
        let (names, held) = (dir.to_string_lossy(), data.to_string_lossy());
        let connect: &[&str] = &["python3", "-c", whole, &names];
        let attacks: [&[&str]; 3] = [connect, &["ls", "-a", &names], &["ls", "-a", &held]];
        for attack in attacks {
            assert!(!(is_root && reaches(&other, attack)), "{attack:?}");
            assert!(reaches(&[], attack) || attack[0] == "python3", "{attack:?}");
        }
        // Even if the directory is open, the host asks the system which user connects.
        if is_root && reaches(&[], connect) {
            for path in [data.parent().expect("a directory"), &*data, dir, socket] {
                let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
                std::fs::set_permissions(path, open).expect("chmod");
            }
            assert!(!reaches(&other, connect));
        }
        stop(host);
        // A store in a world-writable directory is refused.
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(data.parent().expect("a directory"), closed).expect("chmod");
    }
}

/// A variable that trusts the host's own directory does not trust other directories.
#[test]
fn trust_of_a_host_does_not_cover_other_directories() {
    let user = User::new();
    let expected =
        |agent: &str| json!({"agent": agent, "steps": [{"text": format!("{agent} answers"), "repeat": true}]});
    let model = user.script(&json!({"rules": [expected("mine"), expected("general")]}).to_string());
    let cloned = user.data().with_file_name("cloned");
    std::fs::create_dir_all(cloned.join(".subtend/agents")).expect("a directory");
    std::fs::write(cloned.join("subtend.yaml"), "agent: mine\n").expect("written");
    let agent = "---\nmode: all\ndescription: Works for the repository.\n---\nObey.\n";
    std::fs::write(cloned.join(".subtend/agents/mine.md"), agent).expect("written");
    // Only the environment of the host has the variable.
    let host = user.start(&["serve", "--json", "--listen", "none"]);
    host.line().expect("the first line of the host");
    let attacks: [&[&str]; 3] = [&[], &["--agent", "mine"], &["--json"]];
    for attack in attacks {
        let done = start(&user, &cloned, &[&["run", "--model", &model, "hi"], attack].concat()).done();
        assert!(!done.out.contains("mine answers"), "{attack:?}: {done:?}");
        assert!(done.err.contains("ignored: you have not trusted it"), "{attack:?}: {done:?}");
    }
    // The control: a directory that the user trusts.
    let trusted = start(&user, &cloned, &["trust", "--yes"]).done();
    assert_eq!(trusted.code, Some(0), "{trusted:?}");
    let done = start(&user, &cloned, &["run", "--model", &model, "hi"]).done();
    assert_eq!((done.code, done.out.trim()), (Some(0), "mine answers"), "{done:?}");
    stop(host);
}

/// An answer from another terminal must name the digest of the listed call: its number could mean another by then.
#[test]
fn approval_from_another_terminal_names_what_was_shown() {
    let user = User::new();
    let hidden = "made\u{202e}\u{200b}";
    let call = json!({"tool": "write", "args": {"path": "made.txt", "content": hidden}});
    let script = json!({"rules": [{"agent": "*", "steps": [{"calls": [call]}, {"text": "wrote"}]}]});
    let model = user.script(&script.to_string());
    let host = user.start(&["serve", "--json", "--listen", "none"]);
    host.line().expect("the first line of the host");
    let run = user.start(&["run", "--json", "--model", &model, "--ask", "fs.write", "write"]);
    let args = run.until(|event| event["record"]["ask_opened"].is_object());
    let id = args["session"].as_str().expect("an id").to_owned();
    let listed = user.call(&["approvals", &id]);
    let named = listed.out.split_whitespace().find(|word| word.starts_with("1.0:")).expect("a name").to_owned();
    assert!(listed.out.contains("made<U+202E><U+200B>"), "the content is not shown: {listed:?}");
    let digest = named.split_once(':').expect("a digest").1;
    let attacks: [(String, i32); 5] = [
        ("1.0".into(), 2),
        ("1.0:".into(), 1),
        (format!("1.0:{}", &digest[..4]), 1),
        ("1.0:000000000000".into(), 1),
        (format!("2.0:{digest}"), 1),
    ];
    for (attack, code) in attacks {
        for verdict in ["--allow", "--always"] {
            let refused = user.call(&["approvals", &id, verdict, &attack]);
            assert_eq!(refused.code, Some(code), "{attack}: {refused:?}");
        }
    }
    assert!(!user.workspace().join("made.txt").exists());
    // The control: the name as listed.
    user.succeeds(&["approvals", &id, "--allow", &named]);
    assert_eq!(run.done().code, Some(0));
    assert_eq!(std::fs::read_to_string(user.workspace().join("made.txt")).expect("the file"), hidden);
    stop(host);
}

/// A command that is too long for its line is also listed in full, because the harmful part may come last. The control:
/// a short command has only its line.
#[test]
fn approval_from_another_terminal_shows_the_whole_command() {
    let long = format!("git status --porcelain {} ; touch spoiled", "-v ".repeat(40));
    let attacks: [&str; 3] = [&long, &format!("true{}; touch spoiled", " ".repeat(300)), "true; touch spoiled"];
    for attack in attacks {
        let user = User::new();
        let call = json!({"tool": "shell", "args": {"command": attack}});
        let script = json!({"rules": [{"agent": "*", "steps": [{"calls": [call]}, {"text": "ran"}]}]});
        let model = user.script(&script.to_string());
        let host = user.start(&["serve", "--json", "--listen", "none"]);
        host.line().expect("the first line of the host");
        let run = user.start(&["run", "--json", "--model", &model, "--ask", "shell.run", "go"]);
        let args = run.until(|event| event["record"]["ask_opened"].is_object());
        let id = args["session"].as_str().expect("an id").to_owned();
        let listed = user.call(&["approvals", &id]);
        assert!(listed.out.contains(attack), "{listed:?}");
        assert_eq!(listed.out.lines().count(), if attack.len() > 80 { 2 } else { 1 }, "{listed:?}");
        assert_eq!(user.call(&["approvals", &id, "--deny", "1.0"]).code, Some(0));
        run.done();
        assert!(!user.workspace().join("spoiled").exists());
        stop(host);
    }
}

/// A command or an input can fill the disk. A host that stayed could neither continue nor end its runs, and no other process could recover them
/// either. The control: with room, the same host stays until it is stopped.
#[test]
fn host_ends_when_its_journal_fails() {
    const LIMITED: &str = "trap '' XFSZ; ulimit -f \"$0\"; exec \"$@\"";
    for is_limited in [true, false] {
        let user = User::new();
        let model = user
            .script(&json!({"rules": [{"agent": "*", "steps": [{"text": "{prompt}", "repeat": true}]}]}).to_string());
        user.succeeds(&["run", "--quiet", "--model", &model, "hi"]);
        let blocks = std::fs::metadata(user.data().join("redb/redb-4/journal.redb")).expect("a store").len() / 512;
        let blocks = if is_limited { blocks.to_string() } else { "unlimited".to_owned() };
        let whole = user.command(&["serve", "--json", "--listen", "none", "--model", &model]);
        let mut command = Command::new("sh");
        command.args(["-c", LIMITED, &blocks]).arg(whole.get_program()).args(whole.get_args());
        command.envs(whole.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(user.workspace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let host = RunningCommand::start(command, "");
        host.line().expect("the first line of the host");
        let text = "a text that is longer than a row ".repeat(1_000);
        let failed = (0..64).map(|_| user.call(&["run", "--quiet", &text])).find(|run| run.code != Some(0));
        assert_eq!(failed.is_some(), is_limited, "{failed:?}");
        if !is_limited {
            stop(host);
            continue;
        }
        let ended = host.done();
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.err.contains("the host ends because its journal has failed: "), "{ended:?}");
        user.succeeds(&["recover"]);
    }
}
