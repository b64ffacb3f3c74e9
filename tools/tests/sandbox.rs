//! The system enforces the session's limits on commands, or commands do not run.
//!
//! Each test prints `held` if this system has a sandbox, and otherwise `refused`. The guard is this test program, which the
//! tests start again in a role.

use super::scene::*;
use subtend_session::call::ToolErrorKind;
use subtend_tools::sandbox::{self, SandboxStrength};

use super::scene;

/// A workspace with secrets, and a session that may do everything except access them.
struct Bench {
    dir: tempfile::TempDir,
    authority: Authority,
}

fn rules(default: Verdict, rules: &[(&str, &str, Verdict)]) -> Authority {
    let rule = |(action, resource, verdict): &(&str, &str, Verdict)| Rule {
        action: (*action).into(),
        resource: (*resource).into(),
        verdict: *verdict,
    };
    Authority::of(RuleSet { default, rules: rules.iter().map(rule).collect() })
}

/// Returns an authority that allows everything except `secret`.
fn without_secrets() -> Authority {
    rules(Verdict::Allow, &[("fs.*", "secret/**", Verdict::Deny)])
}

impl Bench {
    fn new(authority: Authority) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in [("secret/key", "hidden"), ("open/a.txt", "plain"), ("top.txt", "top")] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        Self { dir, authority }
    }

    fn at(&self, path: &str) -> std::path::PathBuf {
        self.dir.path().join(path)
    }

    fn content(&self, path: &str) -> String {
        std::fs::read_to_string(self.at(path)).unwrap()
    }

    async fn shell(&self, command: &str) -> Result<String, ToolError> {
        shell(self.dir.path(), &self.authority, guard(), command).await
    }

    /// Returns the output of the command, or `None` if the call was refused because this system has no sandbox.
    async fn run_confined(&self, command: &str) -> Option<String> {
        let outcome = self.shell(command).await;
        match sandbox::probe() {
            Ok(SandboxStrength::FilesAndNetwork) => {
                println!("held: {command}: {outcome:?}");
                Some(outcome.unwrap())
            }
            Ok(SandboxStrength::Files) if self.authority.unrestricted(&["net.fetch"]) => {
                println!("held: {command}: {outcome:?}");
                Some(outcome.unwrap())
            }
            Ok(SandboxStrength::Files) | Err(_) => {
                let error = outcome.unwrap_err();
                println!("refused: {command}: {error}");
                assert!(error.denied && error.message.starts_with("shell is refused: "), "{error:?}");
                None
            }
        }
    }

    async fn check_confined(&self, command: &str) {
        if let Some(text) = self.run_confined(command).await {
            assert!(!text.contains("hidden"), "`{command}` read the secret: {text}");
        }
        assert_eq!(self.content("secret/key"), "hidden", "`{command}` changed the secret");
    }
}

async fn shell(dir: &Path, authority: &Authority, guard: Guard, command: &str) -> Result<String, ToolError> {
    let registry = Registry::builder().tools(Registry::workspace_tools(Some(guard))).unwrap().build();
    let call = scene::call(dir, authority.clone(), json!({"command": command}));
    let output = registry.get("shell").unwrap().run(call).await?;
    // Remove the output of the test harness.
    let text = output.content.replace("\nrunning 1 test\n", "");
    Ok(text.trim_start().to_owned())
}

#[tokio::test]
async fn allowed_access_works_in_the_sandbox() {
    let bench = Bench::new(without_secrets());
    let Some(text) =
        bench.run_confined("cat open/a.txt top.txt; echo x > open/new; mkdir open/d; mv open/new open/d/x").await
    else {
        return;
    };
    assert_eq!(text, "plaintop\n[exit code 0]");
    assert_eq!(bench.content("open/d/x"), "x\n");
    let text = bench.run_confined("echo more >> top.txt; cat top.txt; ls open; true > /dev/null").await.unwrap();
    assert_eq!(text, "topmore\na.txt\nd\n[exit code 0]");
    let text =
        bench.run_confined("f=$(mktemp) && echo y > $f && cat $f && cd && echo z > here && cat here").await.unwrap();
    assert_eq!(text, "y\nz\n[exit code 0]");
}

#[tokio::test]
async fn denied_file_cannot_be_read_or_written() {
    let bench = Bench::new(without_secrets());
    std::os::unix::fs::symlink("secret/key", bench.at("link")).unwrap();
    std::os::unix::fs::symlink("../secret", bench.at("open/dir")).unwrap();
    let whole = bench.at("secret/key").display().to_string();
    let attacks: [&str; 23] = [
        "cat secret/key",
        "sh -c 'cat secret/key'",
        "cat ./open/../secret/key",
        "cat link",
        "cat open/dir/key",
        &format!("cat {whole}"),
        &format!("cat /proc/self/root{whole}"),
        "cat /proc/self/cwd/secret/key",
        "cd secret && cat key",
        "mv secret/key open/key; cat open/key",
        "mv secret open/secret; cat open/secret/key",
        "ln secret/key open/key; cat open/key",
        "cp -r secret open/copy; cat open/copy/key",
        "tar cf - secret | cat",
        "exec 3< secret/key; cat <&3",
        "echo spoiled > secret/key",
        "echo spoiled >> link",
        "truncate -s 0 secret/key; : > secret/key",
        "dd if=/dev/zero of=open/dir/key bs=1 count=3",
        "rm -rf secret",
        "mv top.txt secret/key",
        "ln -sf ../top.txt secret/key",
        "sh -c 'exec cat secret/key' & wait",
    ];
    for command in attacks {
        bench.check_confined(command).await;
    }
}

#[tokio::test]
async fn existing_hard_link_does_not_reach_a_denied_file() {
    let bench = Bench::new(without_secrets());
    std::fs::hard_link(bench.at("secret/key"), bench.at("open/alias")).unwrap();
    std::fs::hard_link(bench.at("open/a.txt"), bench.at("open/b.txt")).unwrap();
    const ATTACKS: [&str; 3] = ["cat open/alias", "echo spoiled > open/alias", "mv open/alias open/x; cat open/x"];
    for command in ATTACKS {
        bench.check_confined(command).await;
    }
    // An allowed file can be used under all its names.
    if let Some(text) = bench.run_confined("cat open/b.txt").await {
        assert_eq!(text, "plain\n[exit code 0]");
    }
}

#[tokio::test]
async fn background_processes_of_a_command_stay_sandboxed() {
    let bench = Bench::new(without_secrets());
    bench.check_confined("(setsid sh -c 'cat secret/key > open/found; echo done > open/done' &); while [ ! -e open/done ]; do :; done").await;
    if bench.at("open/found").exists() {
        assert_eq!(bench.content("open/found"), "");
    }
}

#[tokio::test]
async fn file_with_a_denied_name_cannot_be_created() {
    let bench = Bench::new(rules(
        Verdict::Allow,
        &[("fs.write", "open/key", Verdict::Deny), ("fs.read", "**/.env", Verdict::Deny)],
    ));
    std::fs::write(bench.at("open/.env"), "hidden").unwrap();
    let Some(text) =
        bench.run_confined("echo x > open/key; echo x > open/other; ls -A open; cat open/a.txt open/.env").await
    else {
        return;
    };
    // A partly allowed directory is not granted as a whole: it can be listed, but files cannot be created in it.
    assert!(text.contains("open/key: Permission denied") && text.contains("open/other: Permission denied"), "{text}");
    assert!(text.contains(".env\na.txt\n") && text.contains("plain") && !text.contains("hidden"), "{text}");
    assert!(!bench.at("open/key").exists());
}

#[tokio::test]
async fn read_only_session_cannot_write() {
    let bench =
        Bench::new(rules(Verdict::Ask, &[("fs.read", "*", Verdict::Allow), ("shell.run", "*", Verdict::Allow)]));
    let Some(text) = bench.run_confined("cat top.txt secret/key; ls; echo x > top.txt || echo x > new").await else {
        return;
    };
    assert!(text.starts_with("tophiddenopen\nsecret\ntop.txt\n"), "{text}");
    assert!(text.contains("it ran in a sandbox"), "{text}");
    assert_eq!((bench.content("top.txt"), bench.at("new").exists()), ("top".into(), false));
}

#[tokio::test]
async fn paths_outside_the_workspace_are_denied() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("a"), "hidden").unwrap();
    let bench = Bench::new(without_secrets());
    let path = outside.path().display();
    let attacks: [String; 3] =
        [format!("cat {path}/a"), format!("echo spoiled > {path}/a"), format!("ls {path} ; touch {path}/b")];
    for command in attacks {
        bench.check_confined(&command).await;
        assert_eq!(std::fs::read_to_string(outside.path().join("a")).unwrap(), "hidden", "{command}");
        if sandbox::probe().is_ok() {
            assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1, "{command}");
        }
    }
}

/// Tries to connect to a listener of this process.
const REACH: &str = "import socket, sys\n\
    def reach(family, kind, to):\n\
    \x20   try:\n\
    \x20       s = socket.socket(family, kind); s.connect(to); s.send(b'x'); return 'reached'\n\
    \x20   except OSError as error: return 'kept'\n\
    print(reach(socket.AF_INET, socket.SOCK_STREAM, ('127.0.0.1', int(sys.argv[1]))),\n\
    \x20     reach(socket.AF_INET, socket.SOCK_DGRAM, ('127.0.0.1', int(sys.argv[1]))),\n\
    \x20     reach(socket.AF_UNIX, socket.SOCK_STREAM, sys.argv[2]))\n";

#[tokio::test]
async fn sockets_are_denied_without_network_permission() {
    if std::process::Command::new("python3").arg("-V").output().is_err() {
        println!("not tried: there is no python3 to open sockets with");
        return;
    }
    // The second case is the control: with network permission, the same sockets connect.
    for (network, expected) in [(Verdict::Deny, "kept kept kept"), (Verdict::Allow, "reached reached kept")] {
        let bench =
            Bench::new(rules(Verdict::Allow, &[("net.fetch", "*", network), ("fs.*", "secret/**", Verdict::Deny)]));
        std::fs::write(bench.at("open/reach.py"), REACH).unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let _udp = std::net::UdpSocket::bind(("127.0.0.1", port)).unwrap();
        let _unix = std::os::unix::net::UnixListener::bind(bench.at("open/socket")).unwrap();
        let Some(text) = bench.run_confined(&format!("python3 open/reach.py {port} open/socket")).await else {
            continue;
        };
        assert_eq!(text, format!("{expected}\n[exit code 0]"), "{network:?}");
    }
}

/// Each end could be reconnected, for example to a service manager. The control: outside of the sandbox.
#[tokio::test]
async fn paired_sockets_cannot_be_reconnected() {
    const PAIRED: &str = "import socket, sys\n\
        for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):\n\
        \x20   try:\n\
        \x20       s = socket.socketpair(socket.AF_UNIX, kind)[0]; s.connect(sys.argv[1]); s.send(b'x'); print('reached')\n\
        \x20   except OSError: print('kept')\n\
        a, b = socket.socketpair(); a.send(b'x'); print('paired', b.recv(1) == b'x')\n";
    if std::process::Command::new("python3").arg("-V").output().is_err() {
        println!("not tried: there is no python3 to open sockets with");
        return;
    }
    for network in [Verdict::Deny, Verdict::Allow] {
        let bench =
            Bench::new(rules(Verdict::Allow, &[("net.fetch", "*", network), ("fs.*", "secret/**", Verdict::Deny)]));
        std::fs::write(bench.at("open/paired.py"), PAIRED).unwrap();
        let _service = std::os::unix::net::UnixDatagram::bind(bench.at("open/socket")).unwrap();
        let mut free = std::process::Command::new("python3");
        let free = free.current_dir(bench.dir.path()).args(["open/paired.py", "open/socket"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&free.stdout), "reached\nreached\npaired True\n", "the control");
        let Some(said) = bench.run_confined("python3 open/paired.py open/socket").await else { continue };
        assert_eq!(said, "kept\nkept\npaired True\n[exit code 0]", "{network:?}");
    }
}

/// Removes the variables that `cargo test` and rustup add to this process.
const OWN_SHELL: &str = "unset CARGO CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN LD_LIBRARY_PATH;";

/// Allows commands and all access to the workspace, but not the network.
fn shell_and_files() -> Authority {
    let allow = |action| (action, "*", Verdict::Allow);
    rules(Verdict::Ask, &[allow("fs.read"), allow("fs.write"), allow("shell.run")])
}

#[tokio::test]
async fn sandbox_runs_cargo_build_in_the_workspace() {
    let bench = Bench::new(shell_and_files());
    if bench.run_confined("true").await.is_none() {
        return;
    }
    std::fs::create_dir(bench.at("src")).unwrap();
    let manifest =
        "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\ncfg-if = \"1\"\n";
    std::fs::write(bench.at("Cargo.toml"), manifest).unwrap();
    // A build script runs from `target`, and the dependency comes from the user's registry.
    std::fs::write(bench.at("build.rs"), "fn main() {}\n").unwrap();
    std::fs::write(
        bench.at("src/main.rs"),
        "fn main() { cfg_if::cfg_if! { if #[cfg(unix)] { println!(\"built\") } } }\n",
    )
    .unwrap();
    for _again in 0..2 {
        let command = "cargo build --offline --quiet && target/debug/hello";
        let text = shell(bench.dir.path(), &bench.authority, guard_with(OWN_SHELL), command).await.unwrap();
        assert_eq!(text, "built\n[exit code 0]");
    }
}

#[tokio::test]
async fn sandbox_runs_programs_on_path_and_hides_secrets() {
    let bench = Bench::new(shell_and_files());
    if bench.run_confined("true").await.is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().canonicalize().unwrap();
    for path in [".ssh/id", ".cargo/credentials.toml", ".cargo/config.toml", ".cargo/registry/x", "bin/tool", ".env"] {
        let path = home.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "#!/bin/sh\necho said by the tool, cargo in $CARGO_HOME\n# hidden\n").unwrap();
    }
    std::process::Command::new("chmod").args(["+x"]).arg(home.join("bin/tool")).status().unwrap();
    let at = home.display();
    let setup = format!("{OWN_SHELL} export HOME={at} PATH=\"{at}/bin:{at}:$PATH\";");
    let run = async |command: &str| {
        let ran = shell(bench.dir.path(), &bench.authority, guard_with(&setup), command).await;
        ran.unwrap()
    };
    assert_eq!(run("tool").await, format!("said by the tool, cargo in {at}/.cargo\n[exit code 0]"));
    for readable in [".cargo/config.toml", ".cargo/registry/x"] {
        assert!(run(&format!("cat {at}/{readable}")).await.contains("hidden"), "{readable}");
    }
    for secret in [".ssh/id", ".cargo/credentials.toml", ".env"] {
        let text = run(&format!("cat {at}/{secret}")).await;
        assert!(text.contains("Permission denied") && !text.contains("hidden"), "{secret}: {text}");
    }
    let text = run(&format!("echo spoiled > {at}/bin/tool; echo new > {at}/.cargo/registry/y")).await;
    assert!(text.contains("exit code 2") || text.contains("exit code 1"), "{text}");
    assert!(std::fs::read_to_string(home.join("bin/tool")).unwrap().contains("hidden"));
    assert!(!home.join(".cargo/registry/y").exists());
}

#[tokio::test]
async fn command_without_a_complete_sandbox_is_not_run() {
    // The workspace needs more rules than a sandbox may have. The command must not run with only a part of them.
    let bench =
        Bench::new(rules(Verdict::Allow, &[("fs.read", "**/.env", Verdict::Deny), ("fs.write", "*", Verdict::Deny)]));
    for n in 0..20_001 {
        std::fs::write(bench.at(&format!("open/{n}")), "").unwrap();
    }
    let error = bench.shell("touch run; cat top.txt").await.unwrap_err();
    println!("refused: {error}");
    assert!(error.message.starts_with("shell is refused: ") && !error.message.contains("top"), "{error:?}");
    assert!(!bench.at("run").exists());
    if sandbox::probe() == Ok(SandboxStrength::FilesAndNetwork) {
        assert_eq!(error.kind, ToolErrorKind::Refused);
        assert!(error.message.contains("need more than 20000 sandbox rules"), "{error:?}");
    }
}

#[tokio::test]
async fn guard_without_sandbox_support_does_not_run_commands() {
    if sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox");
        return;
    }
    // An older guard treats the unknown argument as the command.
    let old = Guard { program: "sh".into(), args: vec!["-c".into(), "exec \"$@\"".into(), "old".into()] };
    let bench = Bench::new(without_secrets());
    let result = shell(bench.dir.path(), &bench.authority, old, "touch run; cat secret/key").await;
    assert!(!bench.at("run").exists() && !format!("{result:?}").contains("hidden"), "{result:?}");
    // Without a guard, such a session has no shell.
    let registry = Registry::builder().tools(Registry::workspace_tools(None)).unwrap().build();
    let shell = registry.get("shell").unwrap();
    assert!(shell.exclusion_error(&bench.authority).is_some_and(|error| error.denied));
    assert_eq!(shell.exclusion_error(&rules(Verdict::Allow, &[("task:*", "*", Verdict::Deny)])), None);
}

#[tokio::test]
async fn temporary_files_of_a_sandbox_are_removed() {
    let bench = Bench::new(without_secrets());
    // The directory has more levels than the guard has handles, and one level has no permissions.
    let deep =
        "import os\nos.mkdir('d')\nfor n in range(5000): os.mkdir('e'); os.rename('d', 'e/d'); os.rename('e', 'd')";
    let script = format!("mkdir -p $TMPDIR/a/b; chmod 0 $TMPDIR/a; cd $TMPDIR && python3 -c \"{deep}\"; echo $TMPDIR");
    let Some(text) = bench.run_confined(&script).await else { return };
    let path = text.lines().next().unwrap();
    assert!(path.contains("subtend-") && !Path::new(path).exists(), "{text}");
}

/// A guard that is killed, for example because it takes too long to remove many files, removes nothing. The control is a directory that
/// is locked as by a guard: it remains, and the result names it.
#[tokio::test]
async fn files_of_a_killed_guard_are_removed_by_the_host() {
    if sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox");
        return;
    }
    let bench = Bench::new(without_secrets());
    assert!(Command::new("mkfifo").arg(bench.at("open/pipe")).status().unwrap().success());
    let pipe = bench.at("open/pipe");
    let watch = tokio::task::spawn_blocking(move || {
        let scratch = std::path::PathBuf::from(std::fs::read_to_string(pipe).unwrap().trim());
        assert!(scratch.join("a/file").exists());
        let (start, _) = scratch.file_name().unwrap().to_str().unwrap().rsplit_once('-').unwrap();
        let guard = start.rsplit_once('-').unwrap().1.to_owned();
        let locked = scratch.with_file_name(format!("{start}-locked"));
        std::fs::create_dir(&locked).unwrap();
        let lock = std::fs::File::open(&locked).unwrap();
        lock.try_lock().unwrap();
        let kill = "kill -STOP $0; pkill -KILL -P $0; kill -KILL $0";
        assert!(Command::new("sh").args(["-c", kill, &guard]).status().unwrap().success());
        (scratch, locked, lock)
    });
    let script = "mkdir $TMPDIR/a; touch $TMPDIR/a/file; echo $TMPDIR > open/pipe; exec sleep 300";
    let error = bench.shell(script).await.unwrap_err().message;
    let (scratch, locked, _lock) = watch.await.unwrap();
    let expected = format!(
        "the guard of the command was killed (signal: 9 (SIGKILL)): processes that it started may still run; its temporary files in {} \
         are not removed yet: this continues now, or when the next host starts; ",
        locked.display()
    );
    assert!(error.starts_with(&expected), "{error}");
    assert_eq!((scratch.exists(), locked.exists()), (false, true));
    std::fs::remove_dir(locked).unwrap();
}

/// After a rename, the next command could read the file under its new name. The control is a shell without a sandbox.
#[tokio::test]
async fn unreadable_file_cannot_be_renamed() {
    const ATTACKS: [&str; 9] = [
        "mv secret pub",
        "mv open/.env open/env",
        "mv secret/key open/env",
        "mkdir open/d && mv secret open/d",
        "ln open/.env open/env",
        "ln secret/key open/env",
        "cp -al secret pub",
        "mv open pub && mv pub/.env pub/env",
        "rm -f open/.env; ln secret/key top.txt; mv -f secret/key top.txt",
    ];
    const READS: &str = "cat pub/* open/env open/d/secret/key top.txt pub/.env";
    let denied =
        |verdict| rules(Verdict::Allow, &[("fs.read", "secret/**", verdict), ("fs.read", "open/.env", verdict)]);
    let file = |bench: &Bench| std::fs::write(bench.at("open/.env"), "hidden").unwrap();
    for authority in [denied(Verdict::Deny), denied(Verdict::Ask)] {
        for command in ATTACKS {
            let bench = Bench::new(authority.clone());
            file(&bench);
            bench.check_confined(command).await;
            bench.check_confined(READS).await;
            assert_eq!(bench.content("open/.env"), "hidden", "{command}");
        }
        // In fully readable directories, files can be created, moved and removed.
        let bench = Bench::new(authority);
        for path in ["free/a", "free/deep/b", "more/c"] {
            std::fs::create_dir_all(bench.at(path).parent().unwrap()).unwrap();
            std::fs::write(bench.at(path), "plain").unwrap();
        }
        let works =
            "mv free/a more/a && mv free/deep more && ln more/c free/c && rm more/c && cat more/a more/deep/b free/c";
        if let Some(text) = bench.run_confined(works).await {
            assert_eq!(text, "plainplainplain\n[exit code 0]");
        }
    }
    for command in &ATTACKS[..2] {
        let bench = Bench::new(Authority::allow_all());
        file(&bench);
        bench.shell(command).await.unwrap();
        assert!(bench.shell(READS).await.unwrap().contains("hidden"), "{command}");
    }
}

/// The control: without the sandbox, the same commands reach everything.
#[tokio::test]
async fn control_without_a_sandbox_reaches_everything() {
    let bench = Bench::new(Authority::allow_all());
    assert_eq!(bench.shell("cat secret/key").await.unwrap(), "hidden\n[exit code 0]");
    bench.shell("echo spoiled > secret/key").await.unwrap();
    assert_eq!(bench.content("secret/key"), "spoiled\n");
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("a").display().to_string();
    std::fs::write(&path, "hidden").unwrap();
    assert_eq!(bench.shell(&format!("cat {path}; echo spoiled > {path}")).await.unwrap(), "hidden\n[exit code 0]");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "spoiled\n");
}
