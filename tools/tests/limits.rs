//! Resource limits of commands, and denied system calls of sandboxed commands, for the superuser and an ordinary user.
//!
//! The tests start this test program again, as the runtime of a command and as its guard.

use super::scene::*;
use subtend_tools::commands::CommandLimits;
use subtend_tools::sandbox::{self, SandboxStrength};

use super::scene;

const MIB: u64 = 1 << 20;

/// Not a test: the entry point of this program when it is started again as a runtime.
#[test]
fn role() {
    scene::run_case(async |(script, held, limits): (String, bool, CommandLimits)| {
        let commands = Commands { limits, ..Commands::default() };
        scene::shell(&script, held, commands, Secrets::default()).await
    });
}

/// Returns the output of a script under a runtime of the superuser, or of an ordinary user with `ordinary`. With `held`, the
/// script is sandboxed.
fn output_of(script: &str, held: bool, limits: CommandLimits, ordinary: bool) -> String {
    scene::runtime("limits::role", &(script, held, limits), ordinary, &[])
}

/// Checks that a script fails under these limits and succeeds under the defaults.
fn check_limit(script: &str, limits: &CommandLimits) {
    // The shell computes the marker `the 2nd end`, so that an output that quotes the script does not contain it.
    let script = format!("{script}; echo come to the $((1 + 1))nd end");
    for ordinary in [false, true] {
        for held in [false, sandbox::probe() == Ok(SandboxStrength::FilesAndNetwork)] {
            let limited = output_of(&script, held, limits.clone(), ordinary);
            assert!(!limited.contains("the 2nd end"), "held {held}, ordinary {ordinary}: {limited}");
            let free = output_of(&script, held, CommandLimits::default(), ordinary);
            assert!(free.contains("the 2nd end"), "the control, held {held}, ordinary {ordinary}: {free}");
        }
    }
}

#[test]
fn processes_of_a_command_are_limited() {
    let groups = std::path::Path::new("/sys/fs/cgroup/pids").exists();
    if is_root() && !groups {
        println!("not tried: the superuser's processes are counted by control groups, and none is available");
        return;
    }
    let script = "n=0; while [ $n -lt 100 ]; do sleep 3 & n=$((n + 1)); done || exit 1";
    check_limit(script, &CommandLimits { processes: 40, ..CommandLimits::default() });
}

#[test]
fn memory_of_a_command_is_limited() {
    let script = "head -c 300000000 /dev/zero | tail -c 300000000 | wc -c | grep -q 300000000 || exit 1";
    check_limit(script, &CommandLimits { memory_bytes: 100 * MIB, ..CommandLimits::default() });
}

#[test]
fn file_size_of_a_command_is_limited() {
    let script = "f=${TMPDIR:-/tmp}/big-$$; head -c 3000000 /dev/zero > $f; made=$?; rm $f; test $made = 0 || exit 1";
    check_limit(script, &CommandLimits { file_bytes: MIB, ..CommandLimits::default() });
}

#[test]
fn open_files_of_a_command_are_limited() {
    let script = "exec 9< a.txt || exit 1; test $(ulimit -n) -gt 100 || exit 1";
    check_limit(script, &CommandLimits { open_files: 50, ..CommandLimits::default() });
}

#[test]
fn cpu_time_of_a_command_is_limited() {
    if Command::new("python3").arg("-V").output().is_err() {
        println!("not tried: there is no python3 to measure CPU time with");
        return;
    }
    let script = "python3 -c 'import time\nwhile time.process_time() < 2: pass' || exit 1";
    check_limit(script, &CommandLimits { cpu_seconds: 1, ..CommandLimits::default() });
}

/// Requests that the sandbox must deny, each printed if it is granted.
const ASKS: &str = "for ask in 'unshare -U true' 'unshare -r true' 'chown 65534 a.txt' 'python3 attribute'; do
    case $ask in python3*) python3 -c 'import os; os.setxattr(\"a.txt\", \"user.a\", b\"b\")';; *) $ask;; esac 2>/dev/null \
    && echo \"granted: $ask\"; done; true";

#[test]
fn sandbox_denies_namespaces_and_changes_of_owner() {
    if sandbox::probe() != Ok(SandboxStrength::FilesAndNetwork) {
        println!("not tried: this system has no sandbox");
        return;
    }
    for ordinary in [false, true] {
        let held = output_of(ASKS, true, CommandLimits::default(), ordinary);
        assert!(!held.contains("granted"), "ordinary {ordinary}: {held}");
    }
    // Threads and processes work as usual.
    let script =
        "python3 -c 'import threading; t = threading.Thread(target=print, args=(1 + 1,)); t.start(); t.join()'";
    assert!(output_of(script, true, CommandLimits::default(), false).contains("2\n[exit code 0]"));
    let free = output_of(ASKS, false, CommandLimits::default(), false);
    println!("the control: {free}");
    assert!(!is_root() || free.contains("granted: chown 65534 a.txt"), "{free}");
    assert!(free.contains("granted: unshare") || free.contains("granted: python3"), "{free}");
}

/// Attempts to change flags, project and version of a file through a read-only descriptor and through its path. The sandbox reports
/// system call 100000, which does not exist, as missing. The last request reads the flags, which is permitted.
const FLAGS: &str = "python3 -c 'import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
fd, room = os.open(\"a.txt\", os.O_RDONLY), ctypes.create_string_buffer(64)
def said(name, result):
    missing = result < 0 and ctypes.get_errno() in (25, 38, 95)
    print(\"missing:\" if missing else \"granted:\" if result >= 0 else \"denied:\", name)
def ioctl(request): return c.ioctl(fd, ctypes.c_ulong(request), room)
said(\"flags\", ioctl(0x40086602))
said(\"flags of 32 bits\", ioctl(0x40046602))
said(\"attributes\", ioctl(0x401c5820))
said(\"version\", ioctl(0x40087602))
said(\"path\", c.syscall(469, -100, b\"a.txt\", room, 24, 0))
said(\"newer\", c.syscall(100000))
print(\"read\" if ioctl(0x80086601) == 0 else \"unread\")'";

#[test]
fn sandbox_denies_flag_changes_of_readable_files() {
    if sandbox::probe() != Ok(SandboxStrength::FilesAndNetwork) || Command::new("python3").arg("-V").output().is_err() {
        println!("not tried: this system has no sandbox, or no python3");
        return;
    }
    for ordinary in [false, true] {
        let held = output_of(FLAGS, true, CommandLimits::default(), ordinary);
        let free = output_of(FLAGS, false, CommandLimits::default(), ordinary);
        assert!(held.contains("[exit code 0]") && !held.contains("granted"), "ordinary {ordinary}: {held}");
        assert_eq!(held.matches("denied").count(), 5, "ordinary {ordinary}: {held}");
        assert!(held.contains("missing: newer"), "ordinary {ordinary}: {held}");
        assert_eq!(held.contains("\nread"), free.contains("\nread"), "ordinary {ordinary}: {held} {free}");
        // The control, if the file system supports flags.
        let has_flags = !free.contains("missing: flags\n");
        assert_eq!(free.contains("granted: flags\n"), has_flags, "the control, ordinary {ordinary}: {free}");
        println!("{free}");
    }
}

/// Attempts to create a setuid program. The last request is the control: a mode without setuid.
const MODES: &str = "d=$(mktemp -d); cd $d; echo > b.txt; for ask in 'chmod u+s b.txt' 'chmod 4711 b.txt' 'python3 open' 'python3 openat2' 'chmod 755 b.txt'; do
    case $ask in
    *open) python3 -c 'import os; os.open(\"c.txt\", os.O_CREAT | os.O_WRONLY, 0o4755)';;
    *openat2) python3 -c 'import ctypes, struct
how = ctypes.create_string_buffer(struct.pack(\"QQQ\", 0o101, 0o4755, 0))
exit(ctypes.CDLL(None).syscall(437, -100, b\"d.txt\", how, 24) < 0)';;
    *) $ask;; esac 2>/dev/null && echo \"granted: $ask\"; done; find . -perm -4000 | wc -l; rm -r $d";

#[test]
fn sandbox_denies_setuid_programs() {
    if sandbox::probe() != Ok(SandboxStrength::FilesAndNetwork) {
        println!("not tried: this system has no sandbox");
        return;
    }
    for ordinary in [false, true] {
        let held = output_of(MODES, true, CommandLimits::default(), ordinary);
        assert!(held.contains("granted: chmod 755 b.txt\n0\n"), "ordinary {ordinary}: {held}");
        assert_eq!(held.matches("granted").count(), 1, "ordinary {ordinary}: {held}");
        let free = output_of(MODES, false, CommandLimits::default(), ordinary);
        assert_eq!(free.matches("granted").count(), 5, "the control, ordinary {ordinary}: {free}");
    }
}

/// Requests for shared memory, queues and semaphores, and for the shared memory SEGMENT of another process.
const SHARED: &str = "python3 -c 'import ctypes
c = ctypes.CDLL(None)
c.shmat.restype = ctypes.c_long
asks = dict(memory=lambda: c.shmat(SEGMENT, None, 0o10000), segment=lambda: c.shmget(0, 64, 0o1600),
    semaphore=lambda: c.semget(0, 1, 0o1600), queue=lambda: c.msgget(0, 0o1600), named=lambda: c.mq_open(b\"/SEGMENT\", 0o102, 0o600, None))
gone = dict(segment=lambda id: c.shmctl(id, 0, None), semaphore=lambda id: c.semctl(id, 0, 0), queue=lambda id: c.msgctl(id, 0, None),
    named=lambda id: c.mq_unlink(b\"/SEGMENT\"))
for name, ask in asks.items():
    id = ask()
    if id >= 0:
        print(\"granted:\", name)
        gone.get(name, bool)(id)'";

#[test]
fn sandbox_denies_shared_memory_and_queues() {
    let made = Command::new("ipcmk").args(["--shmem", "64", "--mode", "0666"]).output();
    let id =
        made.ok().and_then(|made| Some(String::from_utf8(made.stdout).ok()?.rsplit(' ').next()?.trim().to_owned()));
    let (Some(id), Ok(SandboxStrength::FilesAndNetwork)) =
        (id.filter(|id| id.parse::<u32>().is_ok()), sandbox::probe())
    else {
        println!("not tried: this system has no sandbox, or no shared memory");
        return;
    };
    let script = SHARED.replace("SEGMENT", &id);
    let all = [(true, false), (true, true), (false, false)];
    let all = all.map(|(held, ordinary)| output_of(&script, held, CommandLimits::default(), ordinary));
    let removed = Command::new("ipcrm").args(["--shmem-id", &id]).status().expect("ipcrm of util-linux runs");
    let [held, ordinary, free] = all;
    assert!(removed.success() && !held.contains("granted") && !ordinary.contains("granted"), "{held} {ordinary}");
    assert!(held.contains("[exit code 0]"), "{held}");
    // The control: without a sandbox, all requests are granted.
    assert!(free.contains("granted: memory\ngranted: segment\ngranted: semaphore\ngranted: queue"), "{free}");
}

/// Attempts to change the guard, which is outside the sandbox, and the key ring of the user.
const OTHERS: &str = "for ask in 'prlimit --pid $PPID --core=0' 'renice -n 19 -p $PPID' 'ionice -c 3 -p $PPID' \
    'renice -n 0 -g 0' 'taskset -p -c 0 $PPID' 'chrt -o -p 0 $PPID' 'chrt -b -p 0 $PPID' 'python3 ring'; do
    case $ask in python3*) python3 -c 'import ctypes, platform
number = 250 if platform.machine() == \"x86_64\" else 219
exit(ctypes.CDLL(None).syscall(number, 0, -3, 0) < 0)';; *) eval $ask;; esac > /dev/null 2>&1 && echo \"granted: $ask\"; done; true";

#[test]
fn sandbox_denies_changes_of_other_processes_and_keys() {
    if sandbox::probe() != Ok(SandboxStrength::FilesAndNetwork) {
        println!("not tried: this system has no sandbox");
        return;
    }
    for ordinary in [false, true] {
        let held = output_of(OTHERS, true, CommandLimits::default(), ordinary);
        assert!(!held.contains("granted"), "ordinary {ordinary}: {held}");
        // There is no control, because it would affect all processes of this user.
        let all = output_of(
            "renice -n 19 -u $(id -u) > /dev/null && echo granted; true",
            true,
            CommandLimits::default(),
            ordinary,
        );
        assert!(!all.contains("granted"), "ordinary {ordinary}: {all}");
    }
    // A command may lower its own priority.
    let own =
        output_of("ulimit -n 50 && nice -n 5 taskset -c 0 true && echo lowered", true, CommandLimits::default(), false);
    assert!(own.contains("lowered"), "{own}");
    // The control: without a sandbox, the requests are granted.
    let free = output_of(OTHERS, false, CommandLimits::default(), false);
    for ask in ["prlimit", "renice -n 19 -p", "renice -n 0 -g", "taskset", "chrt"] {
        assert!(free.contains(&format!("granted: {ask}")), "{ask}: {free}");
    }
}

/// Commands of `fcntl` with which a process blocks or observes the opens of other processes. The third command needs a newer system, and
/// the last one is the control.
const LEASES: &str = "python3 -c '
import fcntl, os, signal
signal.signal(signal.SIGIO, signal.SIG_IGN)
for path, command, argument in [(\"a.txt\", 1024, 0), (\".\", 1026, 1), (\"a.txt\", 1040, bytes(8)), (\"a.txt\", 1030, 9)]:
    try: print(command, fcntl.fcntl(os.open(path, os.O_RDONLY), command, argument) is not None and \"granted\")
    except OSError as error: print(command, error.errno)
'";

/// The control: the last command, `F_DUPFD_CLOEXEC`, is allowed.
#[test]
fn sandbox_denies_leases_and_notifications() {
    if sandbox::probe() != Ok(SandboxStrength::FilesAndNetwork) {
        println!("not tried: this system has no sandbox");
        return;
    }
    for ordinary in [false, true] {
        let held = output_of(LEASES, true, CommandLimits::default(), ordinary);
        assert!(held.contains("1024 13\n1026 13\n1040 13\n1030 granted\n"), "ordinary {ordinary}: {held}");
        let free = output_of(LEASES, false, CommandLimits::default(), ordinary);
        assert!(free.contains("1024 granted\n"), "the control, ordinary {ordinary}: {free}");
    }
}

/// Joins the process group of the guard, which is outside of the sandbox, and a group of its own, which is the control.
const JOINS: &str = "python3 -c '
import os, sys
for name, group in (\"guard\", os.getpgid(int(sys.argv[1]))), (\"own\", 0):
    try: print(name, os.setpgid(0, group) is None and \"joined\")
    except OSError as error: print(name, error.errno)
' $PPID";

/// From within a group that has lost its session, a command could have the kernel send SIGHUP to all of it: a host in the background, or
/// the shell of a terminal.
#[test]
fn sandbox_joins_no_group_of_other_processes() {
    if sandbox::probe() != Ok(SandboxStrength::FilesAndNetwork) {
        println!("not tried: this system has no sandbox");
        return;
    }
    for ordinary in [false, true] {
        let held = output_of(JOINS, true, CommandLimits::default(), ordinary);
        assert!(held.contains("guard 13\nown joined\n"), "ordinary {ordinary}: {held}");
        let free = output_of(JOINS, false, CommandLimits::default(), ordinary);
        assert!(free.contains("guard joined\nown joined\n"), "the control, ordinary {ordinary}: {free}");
    }
}

/// A command whose orphans the guard reaps without end could use up the CPU time of the guard, and outlive it. The control: without a
/// sandbox the guard has the limit of its command, which can kill it in any case.
#[test]
fn sandbox_leaves_the_guard_its_cpu_time() {
    if sandbox::probe() != Ok(SandboxStrength::FilesAndNetwork) {
        println!("not tried: this system has no sandbox");
        return;
    }
    let script =
        "for id in $PPID self; do echo $id: $(grep 'Max cpu' /proc/$id/limits); done | sed 's/^[0-9][0-9]*/guard/'";
    let limits = CommandLimits { cpu_seconds: 31, ..CommandLimits::default() };
    let [guard, own] = ["guard: Max cpu time 31 36 seconds", "self: Max cpu time 31 36 seconds"];
    for ordinary in [false, true] {
        let held = output_of(script, true, limits.clone(), ordinary);
        assert!(held.contains("guard: Max cpu time") && !held.contains(guard), "ordinary {ordinary}: {held}");
        assert!(held.contains(own), "ordinary {ordinary}: {held}");
        let free = output_of(script, false, limits.clone(), ordinary);
        assert!(free.contains(guard) && free.contains(own), "the control, ordinary {ordinary}: {free}");
    }
}
