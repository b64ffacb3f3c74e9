//! Background processes of the tools `shell` and `process`: real commands under a guard.

use super::scene::*;
use futures_util::future::join_all;
use subtend_session::ids::SessionId;
use subtend_tools::processes::Processes;
use subtend_tools::registry::RegistryBuilder;
use subtend_tools::tool::ToolKey;

use super::scene;

/// A runtime with one background process, in the session that [`child`] returns.
struct ProcessFixture {
    dir: tempfile::TempDir,
    registry: Registry,
    processes: Processes,
    cancel: CancellationToken,
    max_bytes: u64,
}

fn child() -> SessionId {
    "01890a5d-ac96-774b-bcce-b302099a8058".parse().unwrap()
}

impl ProcessFixture {
    fn new(with: impl FnOnce(RegistryBuilder) -> RegistryBuilder, guarded: bool) -> Self {
        let tools = Registry::workspace_tools(guarded.then(guard));
        Self {
            dir: tempfile::tempdir().unwrap(),
            registry: with(Registry::builder()).tools(tools).unwrap().build(),
            processes: Processes::default(),
            cancel: CancellationToken::new(),
            max_bytes: 10_000,
        }
    }

    fn call(&self, args: Value) -> ToolInvocation {
        let call = scene::call(self.dir.path(), Authority::allow_all(), args);
        let (cancel, max_bytes) = (self.cancel.clone(), self.max_bytes);
        ToolInvocation { cancel, max_bytes, processes: self.processes.clone(), ..call }
    }

    async fn run(&self, tool: &str, call: ToolInvocation) -> Result<String, ToolError> {
        let outcome = self.registry.get(tool).unwrap().run(call).await;
        outcome.map(|output| output.content.to_string())
    }

    /// Makes a call in the session of the process.
    async fn call_in_session(&self, tool: &str, args: Value) -> Result<String, ToolError> {
        let call = self.call(args);
        let key = ToolKey { session: child(), ..call.key };
        self.run(tool, ToolInvocation { key, ..call }).await
    }

    async fn start(&self, command: &str) -> Result<String, ToolError> {
        self.call_in_session("shell", json!({"command": command, "background": true})).await
    }

    async fn attend(&self) -> Result<String, ToolError> {
        self.call_in_session("process", json!({"action": "output", "wait_ms": 10_000})).await
    }

    /// Makes a call of `process` in the session that started the process.
    async fn call_as_owner(&self, mut args: Value) -> Result<String, ToolError> {
        args["session_id"] = "it".into();
        let call = self.call(args);
        let processes = call.processes.for_child(Some(child()));
        self.run("process", ToolInvocation { processes, ..call }).await
    }

    /// Reads output until it contains `wanted`.
    async fn until(&self, wanted: &str) -> String {
        let mut all = String::new();
        for _ in 0..100 {
            all.push_str(&self.call_as_owner(json!({"action": "output", "wait_ms": 1_000})).await.unwrap());
            if all.contains(wanted) {
                break;
            }
        }
        assert!(all.contains(wanted), "{all}");
        all
    }
}

fn plain(builder: RegistryBuilder) -> RegistryBuilder {
    builder
}

/// Returns whether a process with the argument `mark` is running.
fn alive(mark: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(mark) && !String::from_utf8_lossy(&line).contains("sh\0-c")
    })
}

async fn gone(mark: &str) {
    for _ in 0..400 {
        if !alive(mark) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{mark} is alive");
}

#[tokio::test]
async fn r9_output_continues_and_ends_with_the_exit_code() {
    // The guard of these tests prints additional lines.
    let fixture = ProcessFixture::new(plain, false);
    let begun = fixture.start("echo one; read line; echo got $line; exit 3").await.unwrap();
    assert!(begun.starts_with("one\n[running for "), "{begun}");
    assert!(fixture.until("one\n").await.contains("[running for "));
    let silent = fixture.call_as_owner(json!({"action": "output"})).await.unwrap();
    assert!(silent.starts_with("[running for ") && silent.ends_with("output 4 to 4 of 4 bytes]"), "{silent}");
    let typed = fixture.call_as_owner(json!({"action": "input", "text": "two"})).await.unwrap();
    assert!(typed.starts_with("typed\n["), "{typed}");
    assert_eq!(fixture.attend().await.unwrap(), "one\ngot two\n[exit code 3; output 0 to 12 of 12 bytes]");
    assert_eq!(fixture.until("exit code 3").await, "got two\n[exit code 3; output 4 to 12 of 12 bytes]");
    let again = fixture.call_as_owner(json!({"action": "output", "from": 0})).await.unwrap();
    assert!(again.starts_with("one\ngot two\n"), "{again}");
    let late = fixture.call_as_owner(json!({"action": "input", "text": "three"})).await.unwrap_err();
    assert!(late.message.starts_with("nothing was typed: the process no longer reads its input"), "{late}");
}

/// The end of the input ends only the process that reads it. (The end of the guard's own input would end the whole command.)
#[tokio::test]
async fn r9_closed_input_ends_the_reader_only() {
    for guarded in [false, true] {
        let fixture = ProcessFixture::new(plain, guarded);
        fixture.start("cat; echo end of input; until [ -e go ]; do sleep 0.05; done; exit 4").await.unwrap();
        fixture.call_as_owner(json!({"action": "input", "text": "one"})).await.unwrap();
        // The control: a line without `close` leaves the input open.
        assert!(!fixture.until("one\n").await.contains("end of input"));
        let closed = fixture.call_as_owner(json!({"action": "input", "text": "two", "close": true})).await.unwrap();
        assert!(closed.starts_with("typed, and closed the input\n[running for "), "{closed}");
        let read = fixture.until("end of input").await;
        assert!(read.contains("two\n") && !read.contains('\0') && read.contains("[running for "), "{read}");
        for late in [json!({"action": "input", "close": true}), json!({"action": "input", "text": "three"})] {
            let refused = fixture.call_as_owner(late).await.unwrap_err().message;
            let start = "nothing was typed: an earlier call closed the input of the process [running for ";
            assert!(refused.starts_with(start), "{refused}");
        }
        std::fs::write(fixture.dir.path().join("go"), "").unwrap();
        assert!(fixture.attend().await.unwrap().contains("[exit code 4; "));
        let late = fixture.call_as_owner(json!({"action": "input", "close": true})).await.unwrap_err();
        assert!(late.message.starts_with("nothing was typed: the process no longer reads its input"), "{late}");
    }
}

#[tokio::test]
async fn r9_input_is_closed_once_by_concurrent_calls() {
    for guarded in [false, true] {
        let fixture = ProcessFixture::new(plain, guarded);
        fixture.start("cat; sleep 3008.5").await.unwrap();
        let ends = join_all((0..6).map(|_| fixture.call_as_owner(json!({"action": "input", "close": true})))).await;
        let closed: Vec<&String> = ends.iter().filter_map(|end| end.as_ref().ok()).collect();
        assert!(matches!(&*closed, [one] if one.starts_with("closed the input\n")), "{ends:?}");
        fixture.call_as_owner(json!({"action": "stop"})).await.unwrap();
    }
}

#[test]
fn r9_close_needs_no_permission_but_typed_text_does() {
    let fixture = ProcessFixture::new(plain, false);
    let resources = |args: Value| -> Vec<String> {
        let accesses = fixture.registry.get("process").unwrap().access(Some(&args));
        accesses.into_iter().map(|access| format!("{} {}", access.action, access.resource)).collect()
    };
    assert_eq!(resources(json!({"action": "input", "close": true})), Vec::<String>::new());
    assert_eq!(resources(json!({"action": "input", "text": null, "close": true})), Vec::<String>::new());
    assert_eq!(resources(json!({"action": "input", "text": "id", "close": true})), ["shell.run id"]);
    assert_eq!(resources(json!({"action": "input", "text": 1, "close": true})), ["shell.run *"]);
    assert_eq!(resources(json!({"action": "input", "close": 1})), ["shell.run *"]);
}

#[tokio::test]
async fn r9_unguarded_process_is_stopped_with_its_group() {
    let fixture = ProcessFixture::new(plain, false);
    fixture.start("sleep 3001.5 & sleep 3001.5").await.unwrap();
    assert!(alive("3001.5"));
    fixture.cancel.cancel();
    assert_eq!(fixture.attend().await, Err(ToolError::cancelled()));
    gone("3001.5").await;
}

#[tokio::test]
async fn r9_process_that_forks_away_and_ignores_signals_is_stopped() {
    let fixture = ProcessFixture::new(plain, true);
    let command = "trap '' TERM HUP INT; (setsid sh -c 'trap \"\" TERM; sleep 3002.5' &); sleep 3002.5";
    fixture.start(command).await.unwrap();
    assert!(alive("3002.5"));
    let stopped = fixture.call_as_owner(json!({"action": "stop"})).await.unwrap();
    assert!(stopped.starts_with("[stopped, with all that it started; "), "{stopped}");
    gone("3002.5").await;
}

#[tokio::test]
async fn r9_process_can_exit_cleanly_on_sigterm() {
    let fixture = ProcessFixture::new(plain, true);
    fixture.start("trap 'echo bye; exit 0' TERM; while :; do sleep 0.1; done").await.unwrap();
    fixture.call_as_owner(json!({"action": "stop"})).await.unwrap();
    fixture.until("bye").await;
}

#[tokio::test]
async fn r9_dropped_attendance_and_stopped_runtime_end_processes() {
    let fixture = Arc::new(ProcessFixture::new(plain, true));
    fixture.start("sleep 3003.5").await.unwrap();
    let attending = tokio::spawn({
        let fixture = Arc::clone(&fixture);
        async move { fixture.attend().await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(alive("3003.5"));
    attending.abort();
    gone("3003.5").await;
    while fixture.processes.running() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fixture.start("sleep 3004.5").await.unwrap();
    assert_eq!(fixture.processes.running(), 1);
    fixture.processes.stop();
    fixture.processes.wait_until_ended().await;
    assert_eq!(fixture.processes.running(), 0);
    gone("3004.5").await;
    let late = fixture.start("sleep 3004.5").await.unwrap();
    assert!(late.contains("[stopped"), "{late}");
}

/// Virtual time skips the limit of 30 seconds.
#[tokio::test(start_paused = true)]
async fn r9_unattended_process_is_stopped() {
    let fixture = ProcessFixture::new(plain, true);
    let begun = fixture.start("sleep 3005.5").await.unwrap();
    assert!(begun.contains("[running"), "{begun}");
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if fixture.processes.running() == 0 {
            break;
        }
    }
    assert_eq!(fixture.processes.running(), 0);
}

#[tokio::test]
async fn r9_flood_of_output_is_bounded_and_reported() {
    let fixture = ProcessFixture { max_bytes: 5_000, ..ProcessFixture::new(plain, true) };
    let begun = fixture.start("yes flood").await.unwrap();
    assert!(begun.len() <= 5_000 && begun.contains("[running for "), "{}", begun.len());
    for _ in 0..3 {
        let read = fixture.call_as_owner(json!({"action": "output", "wait_ms": 1_000})).await.unwrap();
        assert!(read.len() <= 5_000 && read.contains("flood"), "{}", read.len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let read = fixture.call_as_owner(json!({"action": "output"})).await.unwrap();
    assert!(read.starts_with("[... ") && read.contains(" bytes left out ...]\n"), "{}", read.len());
    fixture.call_as_owner(json!({"action": "stop"})).await.unwrap();
}

/// A process that never reads its input blocks one call only briefly, and does not block other calls.
#[tokio::test(start_paused = true)]
async fn r9_input_that_is_not_read_is_reported() {
    let fixture = ProcessFixture::new(plain, false);
    fixture.start("sleep 3006.5").await.unwrap();
    let text = "x".repeat(60_000);
    // The pipe is full, so the writer holds the rest of the text and waits.
    let typing = (0..16).map(|_| fixture.call_as_owner(json!({"action": "input", "text": text})));
    let errors: Vec<ToolError> = join_all(typing).await.into_iter().filter_map(Result::err).collect();
    let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    assert!(
        messages.iter().any(|message| message.starts_with("the process has not read the text yet")),
        "{messages:?}"
    );
    assert!(messages.iter().any(|message| message.contains("has not read earlier input")), "{messages:?}");
    fixture.call_as_owner(json!({"action": "stop"})).await.unwrap();
    let fixture = ProcessFixture::new(plain, false);
    fixture.start("sleep 3009.5").await.unwrap();
    drop(fixture.call_as_owner(json!({"action": "input", "text": text})).await);
    let slow = fixture.call_as_owner(json!({"action": "input", "text": text, "close": true})).await.unwrap_err();
    assert!(slow.message.starts_with("the process has not read its input yet"), "{slow}");
    fixture.call_as_owner(json!({"action": "stop"})).await.unwrap();
}

/// No read shows a part of a key, at any position: output is redacted when it arrives. The control has no secrets.
#[tokio::test]
async fn r9_read_positions_do_not_reveal_parts_of_a_key() {
    const KEY: &str = "sk-0123456789abcdef";
    let command = format!("printf 'key: {}'; sleep 0.2; printf '{} end\\n'", &KEY[..8], &KEY[8..]);
    for (secrets, leaks) in [(Secrets::of([("API_KEY", KEY)]), false), (Secrets::default(), true)] {
        let fixture = ProcessFixture::new(|builder| builder.secrets(secrets), true);
        fixture.start(&command).await.unwrap();
        fixture.attend().await.unwrap();
        let mut shown = Vec::new();
        for from in 0..50 {
            shown.push(fixture.call_as_owner(json!({"action": "output", "from": from})).await.unwrap());
        }
        assert_eq!(shown.iter().any(|text| text.contains("0123")), leaks, "{shown:#?}");
        assert_eq!(shown[0].contains("[API_KEY redacted] end"), !leaks, "{}", shown[0]);
    }
}

#[tokio::test]
async fn r9_arguments_without_effect_are_refused() {
    let fixture = ProcessFixture::new(plain, true);
    fixture.start("sleep 3007.5").await.unwrap();
    for (args, message) in [
        (json!({"action": "output", "text": "x"}), "text is for the action input"),
        (json!({"action": "input"}), "input needs a text"),
        (json!({"action": "input", "close": false}), "input needs a text"),
        // This byte would close the input.
        (json!({"action": "input", "text": "x\0y"}), "the text must have at most 65536 bytes and no NUL"),
        (json!({"action": "output", "close": true}), "close is for the action input"),
        (json!({"action": "input", "text": "x", "from": 1}), "from is for the action output"),
        (json!({"action": "stop", "wait_ms": 1}), "wait_ms is for the action output"),
    ] {
        let error = fixture.call_as_owner(args).await.unwrap_err();
        assert!(error.message.starts_with(message), "{error}");
    }
    let both = json!({"command": "true", "background": true, "timeout_ms": 5});
    assert!(
        fixture
            .call_in_session("shell", both)
            .await
            .unwrap_err()
            .message
            .starts_with("timeout_ms is for foreground commands")
    );
    let nameless = fixture.run("process", fixture.call(json!({"action": "output"}))).await.unwrap_err();
    assert!(nameless.message.starts_with("session_id is missing"), "{nameless}");
    let second = fixture.start("true").await.unwrap_err();
    assert!(second.message.starts_with("this session already runs a background process"), "{second}");
    fixture.call_as_owner(json!({"action": "stop"})).await.unwrap();
}

#[tokio::test]
async fn r9_process_in_a_sandbox_reads_input_and_keeps_to_the_rules() {
    use subtend_session::authority::{Rule, RuleSet, Verdict};
    use subtend_tools::sandbox::{SandboxStrength, probe};

    if probe() != Ok(SandboxStrength::FilesAndNetwork) {
        return;
    }
    let fixture = ProcessFixture::new(plain, true);
    std::fs::write(Path::new(fixture.dir.path()).join("secret"), "hidden").unwrap();
    let deny = Rule { action: "fs.*".into(), resource: "secret".into(), verdict: Verdict::Deny };
    let authority = Arc::new(Authority::of(RuleSet { default: Verdict::Allow, rules: vec![deny] }));
    let call = fixture.call(json!({"command": "read line; echo got $line; cat; cat secret", "background": true}));
    let key = ToolKey { session: child(), ..call.key };
    let begun = fixture.run("shell", ToolInvocation { key, authority, ..call }).await.unwrap();
    assert!(begun.contains("[running"), "{begun}");
    fixture.call_as_owner(json!({"action": "input", "text": "it", "close": true})).await.unwrap();
    let ended = fixture.attend().await.unwrap();
    assert!(ended.contains("got it\n") && !ended.contains("hidden") && ended.contains("exit code 1"), "{ended}");
}
