//! Commands that attack their guard so that a process outlives the call.

use super::scene::*;
use subtend_tools::sandbox;

use super::processes::{guard, marked, until};

/// Starts a process and sends a signal to each thread of the guard; prints how many signals were delivered.
const ATTACK: &str = "import ctypes, os, sys, time
guard, signal, mark = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
left = os.fork()
if left == 0:
    os.setsid()
    null = os.open('/dev/null', os.O_RDWR)
    for to in (0, 1, 2): os.dup2(null, to)
    os.execvp('sleep', ['sleep', mark])
while 'sleep' not in open('/proc/%d/cmdline' % left).read(): time.sleep(0.01)
threads = [int(thread) for thread in os.listdir('/proc/%d/task' % guard)]
tgkill = ctypes.CDLL(None).tgkill
print('took', sum(tgkill(guard, thread, signal) == 0 for thread in threads), 'of', len(threads), flush=True)
if signal == 19: time.sleep(600)
";

const LIMITED: &[(&str, &str, Verdict)] = &[("fs.*", "secret/**", Verdict::Deny)];

/// Returns whether the system confines signals to a sandbox: Linux 6.12 and later.
fn confines_signals() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    sandbox::probe().is_ok() && (numbers.next(), numbers.next()) >= (Some(6), Some(12))
}

fn has_python() -> bool {
    std::process::Command::new("python3").arg("-V").output().is_ok()
}

/// Runs the attack in a shell of `agent`; returns its result and the remaining processes.
async fn run_attack(host: &RunningHost, agent: &str, signal: u8, mark: &str, more: Value) -> (String, Vec<String>) {
    let mut args = json!({"command": format!("python3 attack.py $PPID {signal} {mark}")});
    args.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let session = host.run_steps(agent, &[call("shell", args)]).await;
    until(|| marked(mark).is_empty()).await;
    (host.results(session.id()).pop().expect("a result").1, marked(mark))
}

/// A signal to one thread of a process ends or stops all of it. The control: an unconfined shell ends its guard.
#[tokio::test]
async fn confined_command_cannot_kill_or_stop_its_guard() {
    if !confines_signals() || !has_python() {
        println!("skipped: this system does not confine signals to a sandbox, or python3 is missing");
        return;
    }
    const ATTACKS: [(u8, &str, bool); 4] =
        [(9, "3051.5", false), (19, "3052.5", false), (9, "3053.5", true), (19, "3054.5", true)];
    let mut scene = AttackScene::new().guard(guard()).agent("limited", Verdict::Allow, LIMITED);
    std::fs::write(scene.at("attack.py"), ATTACK).expect("a file");
    let host = scene.host().await;
    for (signal, mark, background) in ATTACKS {
        if background {
            let args = json!({"command": format!("python3 attack.py $PPID {signal} {mark}"), "background": true});
            let session = host.runtime.open("limited").expect("a session");
            let steps = super::scene::script(&[call("shell", args)]);
            let receipt = session.send(steps).await.expect("accepted");
            if signal == 19 {
                assert!(until(|| !marked(mark).is_empty()).await, "it starts");
                session.cancel().await.expect("cancelled");
            }
            session.run_ended(receipt.run).await.expect("the run ends");
            until(|| marked(mark).is_empty()).await;
            assert_eq!(marked(mark), Vec::<String>::new(), "signal {signal}");
            continue;
        }
        let more = if signal == 19 { json!({"timeout_ms": 4_000}) } else { json!({}) };
        let (text, rest) = run_attack(&host, "limited", signal, mark, more).await;
        assert!(text.contains("took 0 of ") && rest.is_empty(), "signal {signal}: {text} {rest:?}");
    }
    let (text, rest) = run_attack(&host, "worker", 9, "3055.5", json!({})).await;
    assert_eq!(rest.len(), 1, "without limits the process must remain: {text}");
    std::process::Command::new("kill").args(&rest).status().expect("kill runs");
    host.shut_down().await;
}
