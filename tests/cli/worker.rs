//! `subtend worker`: processes that answer calls of remote tools.

use super::call::*;
use super::serve::{ServedHost, serve, serve_at};
use tokio::time::Instant;

/// Number of checks for an event that must happen soon; at least a minute in total.
const MAX_CHECKS: u32 = 3_000;
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A user who declares `pay`, which has effects, and `seek`, which is idempotent; leases last `lease` milliseconds.
pub(crate) fn user_with_tools(lease: u32) -> User {
    let user = User::new();
    let file = user.config().join("subtend/subtend.yaml");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    let text = format!(
        "remote_tools:\n  pay: {{description: Pays., lease_ms: {lease}}}\n  seek: {{description: Seeks., lease_ms: {lease}, idempotent: \
         true}}\n"
    );
    std::fs::write(file, text).expect("written");
    user
}

/// Returns a model that calls `tool` and answers with its result.
pub(crate) fn calling_model(user: &User, tool: &str) -> String {
    let call = json!({"tool": tool, "args": {"of": 7}});
    let steps = json!([{"calls": [call]}, {"text": "It said: {last}"}]);
    user.script(&json!({"rules": [{"agent": "*", "steps": steps}]}).to_string())
}

pub(crate) fn token(user: &User, scope: &str) -> String {
    let made = user.succeeds(&["token", "create", scope, "--scope", scope]);
    made.out.trim().to_owned()
}

fn worker(user: &User, address: &str, name: &str, tools: &[&str]) -> RunningCommand {
    let host = format!("http://{address}");
    let mut args = vec!["worker", "--host", &host, "--name", name];
    tools.iter().for_each(|tool| args.extend(["--tool", tool]));
    let mut command = user.command(&args);
    let secret = std::fs::read_to_string(user.data().with_file_name("secret")).unwrap_or_else(|_| {
        let secret = token(user, "work");
        std::fs::write(user.data().with_file_name("secret"), &secret).expect("written");
        secret
    });
    command.env("SUBTEND_WORKER_TOKEN", secret);
    RunningCommand::start(command, "")
}

/// Starts a run in the host that may use both tools.
fn run(user: &User) -> RunningCommand {
    user.start(&["run", "--quiet", "--allow", "tool:pay", "--allow", "tool:seek", "go"])
}

fn until<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    for _ in 0..MAX_CHECKS {
        if let Some(seen) = seen() {
            return seen;
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
    panic!("timeout: {what}");
}

fn begun_call(host: &ServedHost, worker: &str) -> Option<Value> {
    let view = host.unix("GET /v1/workers", "").json();
    let calls = view["calls"].as_array().expect("calls").clone();
    calls.into_iter().find(|call| call["state"] == "running" && call["worker"] == worker)
}

fn wait_for_begun_call(host: &ServedHost, worker: &str) -> Value {
    until("a running call", || begun_call(host, worker))
}

fn text(path: &Path) -> String {
    until("a file", || std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'))).trim().to_owned()
}

fn file(user: &User, name: &str) -> PathBuf {
    user.workspace().join(name)
}

fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn d6_worker_answers_calls_by_programs_and_shuts_down() {
    let user = user_with_tools(30_000);
    let host = serve(&user, &calling_model(&user, "pay"));
    // The program gets its arguments and the call, but not the token.
    let pay = "pay=echo begun > begun; cat; echo \"$SUBTEND_WORKER_TOOL $SUBTEND_WORKER_ATTEMPT ${SUBTEND_WORKER_TOKEN-unset}\"; echo on it >&2; sleep 1";
    let one = worker(&user, &host.address, "one", &[pay]);
    let paid = run(&user);
    let call = wait_for_begun_call(&host, "one");
    assert_eq!(call["tool"], "pay");
    // The host gives the call before the worker has it.
    assert_eq!(text(&file(&user, "begun")), "begun");
    let ended = one.stops();
    assert!(ended.err.contains("done after") && ended.err.contains("the worker has ended"), "{ended:?}");
    let paid = paid.done();
    assert_eq!((paid.code, &*paid.out), (Some(0), "It said: {\"of\":7}\npay 1 unset\n"), "{paid:?}");
    // A failure is reported to the model.
    let two = worker(&user, &host.address, "two", &["pay=echo no money >&2; exit 3", "seek=true"]);
    let failed = run(&user).done();
    assert_eq!((failed.code, &*failed.out), (Some(0), "It said: exit code 3: no money\n"), "{failed:?}");
    two.signal("INT");
    assert_eq!(two.done().code, Some(0));
    host.host.stops();
}

/// The program ends after its host, so its result can be sent to no host while the lease is valid.
#[test]
fn worker_ends_before_its_lease_when_its_host_is_gone() {
    let user = user_with_tools(300_000);
    let host = serve(&user, &calling_model(&user, "pay"));
    let pay = format!("pay=echo $$ > pid; while kill -0 {}; do sleep 0.1; done", host.host.pid());
    let one = worker(&user, &host.address, "one", &[&pay]);
    let lost = run(&user);
    wait_for_begun_call(&host, "one");
    let pid = text(&file(&user, "pid"));
    host.host.signal("KILL");
    host.host.done();
    lost.done();
    until("the end of the program", || (!is_alive(&pid)).then_some(()));
    let begun = Instant::now();
    let ended = one.stops();
    assert!(ended.err.contains("the worker has ended"), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}: {ended:?}", begun.elapsed());
}

#[test]
fn d6_program_of_a_killed_worker_is_killed() {
    let user = user_with_tools(2_000);
    let host = serve(&user, &calling_model(&user, "pay"));
    let one = worker(&user, &host.address, "one", &["pay=echo $$ > pid; sleep 300"]);
    let lost = run(&user);
    wait_for_begun_call(&host, "one");
    let pid = text(&file(&user, "pid"));
    assert!(is_alive(&pid));
    one.signal("KILL");
    until("the end of the program", || (!is_alive(&pid)).then_some(()));
    let lost = lost.done();
    assert_eq!(lost.code, Some(0), "{lost:?}");
    let message = "It said: the worker `one` was lost during this call of `pay`: it may have had all, some or none of its effects.";
    assert!(lost.out.starts_with(message), "{lost:?}");
    drop(one.done());
    host.host.stops();
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

#[test]
fn d6_worker_resuming_after_its_lease_is_refused() {
    let user = user_with_tools(3_000);
    let host = serve(&user, &calling_model(&user, "seek"));
    let one = worker(&user, &host.address, "one", &["seek=echo on > begun; sleep 1; echo first; echo $$ > first"]);
    let found = run(&user);
    let call = wait_for_begun_call(&host, "one");
    // Wait for the program: a worker that is paused before it starts the program would not start it.
    text(&file(&user, "begun"));
    one.signal("STOP");
    // The call is idempotent, so another worker answers it.
    let two = worker(&user, &host.address, "two", &["seek=echo \"$SUBTEND_WORKER_CALL\" > second; echo second"]);
    let found = found.done();
    assert_eq!((found.code, &*found.out), (Some(0), "It said: second\n"), "{found:?}");
    assert_eq!(text(&file(&user, "second")), call["call"].as_str().expect("an identity"), "the same call");
    let first = text(&file(&user, "first"));
    until("the end of a paused worker's program", || (!is_alive(&first)).then_some(()));
    let session = call["session"].as_str().expect("an id");
    let records = || host.unix(&format!("GET /v1/sessions/{session}/records"), "").json();
    let before = records();
    two.stops();
    one.signal("CONT");
    let ended = one.stops();
    assert!(ended.err.contains("the result was refused: the lease has ended"), "{ended:?}");
    assert_eq!(records(), before);
    host.host.stops();
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

/// A worker takes a call and is paused before it renews the lease. The call has not begun, so another worker may answer
/// it although it is not idempotent.
#[test]
fn d6_unstarted_call_of_a_paused_worker_is_reassigned() {
    let user = user_with_tools(1_000);
    let host = serve(&user, &calling_model(&user, "pay"));
    let pay = "pay=echo $SUBTEND_WORKER_ATTEMPT >> paid; echo paid";
    let one = worker(&user, &host.address, "one", &[pay]);
    until("a worker", || (host.unix("GET /v1/workers", "").json()["workers"] != json!([])).then_some(()));
    one.signal("STOP");
    let paid = run(&user);
    until("a lease", || (host.unix("GET /v1/workers", "").json()["calls"][0]["state"] == "leased").then_some(()));
    let two = worker(&user, &host.address, "two", &[pay]);
    let paid = paid.done();
    assert_eq!((paid.code, &*paid.out), (Some(0), "It said: paid\n"), "{paid:?}");
    one.signal("CONT");
    for worker in [one, two] {
        worker.stops();
    }
    assert_eq!(text(&file(&user, "paid")), "2", "the call had its effect twice");
    host.host.stops();
}

/// A worker without an address serves each process that hosts the store on this machine, one after the other.
#[test]
fn d6_local_worker_needs_no_address_or_token() {
    let user = user_with_tools(30_000);
    let model = calling_model(&user, "pay");
    let one = user.start(&["worker", "--tool", "pay=echo paid"]);
    for _ in 0..2 {
        let paid = user.call(&["run", "--quiet", "--model", &model, "--allow", "tool:pay", "go"]);
        assert_eq!((paid.code, &*paid.out), (Some(0), "It said: paid\n"), "{paid:?}");
    }
    one.stops();
}

#[test]
fn d6_cancelled_call_kills_its_program_at_once() {
    let user = user_with_tools(600_000);
    let host = serve(&user, &calling_model(&user, "pay"));
    let one = worker(&user, &host.address, "one", &["pay=echo $$ > pid; sleep 300"]);
    let cancelled = run(&user);
    let call = wait_for_begun_call(&host, "one");
    let pid = text(&file(&user, "pid"));
    let session = call["session"].as_str().expect("an id");
    assert_eq!(user.call(&["cancel", session]).code, Some(0));
    until("the end of the program", || (!is_alive(&pid)).then_some(()));
    assert_eq!(cancelled.done().code, Some(130));
    one.signal("TERM");
    let ended = one.done();
    assert!(ended.err.contains("stopped after"), "{ended:?}");
    host.host.stops();
}

/// A worker outlives its host: it kills the program whose lease the next host does not know, and takes its calls.
#[test]
fn d6_worker_returns_to_a_killed_host() {
    let user = user_with_tools(2_000);
    let model = calling_model(&user, "pay");
    let host = serve(&user, &model);
    let address = host.address.clone();
    let one = worker(&user, &address, "one", &["pay=echo $$ >> pids; test -e quick || sleep 300; echo paid"]);
    let lost = run(&user);
    wait_for_begun_call(&host, "one");
    let pid = text(&file(&user, "pids"));
    host.host.signal("KILL");
    drop((host.host.done(), lost.done()));
    let host = serve_at(&user, &model, &address);
    until("the end of the program", || (!is_alive(&pid)).then_some(()));
    user.file("quick", "");
    let paid = run(&user).done();
    assert_eq!((paid.code, &*paid.out), (Some(0), "It said: paid\n"), "{paid:?}");
    one.stops();
    host.host.stops();
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

/// Workers are killed and paused meanwhile. No effect happens twice, and each result belongs to an effect.
#[test]
fn d6_effects_happen_once_under_killed_and_paused_workers() {
    const CALLS: usize = 12;
    let user = user_with_tools(1_000);
    let host = serve(&user, &calling_model(&user, "pay"));
    let pay = "pay=sleep 0.2; echo \"$SUBTEND_WORKER_CALL\" >> effects; sleep 0.3; echo paid";
    let open = json!({"allow": ["tool:pay"], "input": {"text": "go"}}).to_string();
    let opened = || host.unix("POST /v1/sessions", &open).json()["session"]["id"].as_str().expect("an id").to_owned();
    let sessions: Vec<String> = (0..CALLS).map(|_| opened()).collect();
    let mut workers = Vec::new();
    let waits = || host.unix("GET /v1/workers", "").json()["calls"] != json!([]);
    for round in 0.. {
        if !waits() {
            break;
        }
        assert!(round < MAX_CHECKS, "calls do not end");
        let name = format!("worker {round}");
        let one = worker(&user, &host.address, &name, &[pay]);
        until("a call of the worker, or the last end", || {
            (!waits() || begun_call(&host, &name).is_some()).then_some(())
        });
        // The kill hits any moment of the first call or of a later one.
        std::thread::sleep(Duration::from_millis(100 + 300 * (u64::from(round) % 5)));
        one.signal(if round % 3 == 0 { "STOP" } else { "KILL" });
        workers.push(one);
    }
    for worker in workers {
        let is_paused =
            std::fs::read_to_string(format!("/proc/{}/stat", worker.pid())).is_ok_and(|stat| stat.contains(") T "));
        if is_paused {
            worker.signal("TERM");
            worker.signal("CONT");
        }
        drop(worker.done());
    }
    let effects = std::fs::read_to_string(file(&user, "effects")).unwrap_or_default();
    let mut ends = std::collections::BTreeMap::<String, usize>::new();
    for session in sessions {
        let run = host.unix(&format!("GET /v1/sessions/{session}/runs/1?wait=true&timeout=60000"), "").json();
        assert_eq!(run["outcome"], "completed", "{run}");
        let records = host.unix(&format!("GET /v1/sessions/{session}/records"), "").json();
        let records = records.as_array().expect("records").clone();
        let end = records
            .iter()
            .find_map(|of| of["record"]["call_finished"]["end"].as_str())
            .unwrap_or("not begun")
            .to_owned();
        let count = effects.lines().filter(|line| line.starts_with(&session)).count();
        let (least, most) = match &*end {
            "ok" => (1, 1),
            "unknown_effects" => (0, 1),
            _ => (0, 0),
        };
        assert!((least..=most).contains(&count), "{session}: {end}, {count} effects");
        *ends.entry(end).or_default() += 1;
    }
    assert!(ends.contains_key("ok") && ends.contains_key("unknown_effects"), "{ends:?}");
    host.host.stops();
    assert_eq!(user.call(&["verify"]).code, Some(0));
}

#[test]
fn d6_worker_without_usable_tools_is_refused() {
    let user = user_with_tools(30_000);
    let host = serve(&user, &calling_model(&user, "pay"));
    let (url, file) = (format!("http://{}", host.address), user.data().with_file_name("token"));
    std::fs::write(&file, token(&user, "work")).expect("written");
    let file = file.to_string_lossy().into_owned();
    let read = user.data().with_file_name("read");
    std::fs::write(&read, token(&user, "read")).expect("written");
    let read = read.to_string_lossy().into_owned();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--host", &url, "--tool", "pay=true"], 2, "a token is missing"),
        (&["--host", "ftp://a", "--token-file", &file, "--tool", "pay=true"], 2, "`--host ftp://a`"),
        (&["--host", &url, "--token-file", &file, "--tool", "pay"], 2, "write NAME=COMMAND"),
        (&["--host", &url, "--token-file", &file, "--tool", "pya=true"], 1, "did you mean `pay`?"),
        (&["--host", &url, "--token-file", &read, "--tool", "pay=true"], 1, "the token may read, and this needs work"),
        (
            &["--host", &format!("{url}/elsewhere"), "--token-file", &file, "--tool", "pay=true"],
            1,
            "refuses this worker",
        ),
    ];
    for (args, code, expected) in cases {
        let refused = user.call(&[&["worker"], args].concat());
        assert_eq!(refused.code, Some(code), "{args:?}: {refused:?}");
        assert!(refused.err.contains(expected), "{args:?}: {refused:?}");
    }
    // A rule for an undeclared tool has no effect, and is refused.
    let unknown = user.call(&["run", "--allow", "tool:other", "go"]);
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    host.host.stops();
}
