//! A command changes modes: of files that it may not use so, and of directories so that the host cannot search them.
//!
//! The tests start this test program again, as the runtime of a session and as its guard.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use super::scene::*;
use subtend_tools::policy::HostPolicy;
use subtend_tools::sandbox;
use subtend_tools::workspace::Workspace;

use super::scene;

/// A tool and its argument: the command of `shell`, or the path of `read`. `chmod` is a program outside of the session.
type ModeStep = (&'static str, &'static str);

const FILES: [(&str, &str); 6] = [
    ("subtend.yaml", "mine"),
    ("open/a", "plain"),
    ("secret/key", "hidden"),
    ("fixed/key", "kept\n"),
    ("src/y", ""),
    ("own/x", ""),
];
/// Second names of the files.
const LINKS: [(&str, &str); 4] =
    [("open/a", "open/b"), ("secret/key", "open/copy"), ("secret/key", "more/deep/copy"), ("fixed/key", "src/x")];

/// Not a test: the entry point of this program when it is started again as a runtime.
#[test]
fn role() {
    scene::run_case(async |(rules, steps): (RuleSet, Vec<(String, String)>)| {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("above/root");
        for (path, text) in FILES {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        for (of, name) in LINKS {
            std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            std::fs::hard_link(root.join(of), root.join(name)).unwrap();
        }
        let private = dir.path().join("above/private");
        std::fs::write(&private, "hidden").unwrap();
        std::fs::set_permissions(private, Permissions::from_mode(0o600)).unwrap();
        let workspace = Arc::new(Workspace::open(&root).unwrap());
        let registry = Registry::builder().tools(Registry::workspace_tools(Some(guard()))).unwrap().build();
        let mut outcomes = String::new();
        for (tool, arg) in steps {
            if tool == "chmod" {
                let modes = arg.split(' ');
                assert!(std::process::Command::new("chmod").args(modes).current_dir(&root).status().unwrap().success());
                continue;
            }
            let arg = if tool == "read" { json!({"path": arg}) } else { json!({"command": arg}) };
            let call = call_in(Arc::clone(&workspace), Authority::of(rules.clone()), arg);
            match registry.get(&tool).unwrap().run(call).await {
                Ok(output) => outcomes.push_str(&format!("{tool}: {}\n", output.content)),
                Err(error) => outcomes.push_str(&format!("{tool}: {error}\n")),
            }
        }
        outcomes
    });
}

/// Returns the outcomes of `steps` under `rules`, and without rules as a control. With `ordinary`, an ordinary user runs the session.
fn outcomes(rules: RuleSet, steps: &[ModeStep], ordinary: bool) -> [String; 2] {
    let all = RuleSet { default: Verdict::Allow, rules: Vec::new() };
    [rules, all].map(|rules| scene::runtime("modes::role", &(rules, steps), ordinary, &[]))
}

/// Rules that deny reads of `secret` and writes of `fixed`.
fn partly_denied() -> RuleSet {
    let rule = |action: &str, resource: &str| Rule {
        action: action.into(),
        resource: resource.into(),
        verdict: Verdict::Deny,
    };
    RuleSet { default: Verdict::Allow, rules: vec![rule("fs.read", "secret/**"), rule("fs.write", "fixed/**")] }
}

/// Opens files outside of the workspace and denied files to all users, by each call and kind of path that names them.
const OPENED: &str = "python3 -c '
import ctypes, os
def attempt(name, ask):
    try: ask()
    except OSError: return
    print(\"changed:\", name)
fchmodat2 = lambda *all: ctypes.CDLL(None).syscall(452, *all)
def at(*all):
    if fchmodat2(*all): raise OSError
handle = os.open(\"../private\", os.O_PATH)
above = os.open(\"..\", os.O_PATH)
os.symlink(\"../../private\", \"own/link\")
attempt(\"path\", lambda: os.chmod(\"../private\", 0o666))
attempt(\"whole path\", lambda: os.chmod(os.path.realpath(\"../private\"), 0o666))
attempt(\"link\", lambda: os.chmod(\"own/link\", 0o666))
attempt(\"directory\", lambda: os.chmod(\"private\", 0o666, dir_fd=above))
attempt(\"handle\", lambda: os.chmod(\"/proc/self/fd/%d\" % handle, 0o666))
attempt(\"empty path\", lambda: at(handle, b\"\", 0o666, 0x1000))
attempt(\"directory itself\", lambda: os.fchmod(above, 0o777))
attempt(\"above\", lambda: os.chmod(\"..\", 0o777))
attempt(\"denied\", lambda: os.chmod(\"secret/key\", 0o666))
attempt(\"read-only\", lambda: os.fchmod(os.open(\"fixed/key\", os.O_RDONLY), 0o666))
os.chdir(\"..\")
attempt(\"working directory\", lambda: os.chmod(\"private\", 0o666))
'; stat -c '%n %a' ../private secret/key fixed/key";

/// As root and as an ordinary user. The control is the same session without rules, which needs no sandbox.
#[test]
fn command_changes_modes_only_of_what_it_may_write() {
    if sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox");
        return;
    }
    for ordinary in [false, true] {
        let [held, free] = outcomes(partly_denied(), &[("shell", OPENED)], ordinary);
        assert!(!held.contains("changed:"), "ordinary {ordinary}: {held}");
        assert!(held.contains("../private 600\nsecret/key 644\nfixed/key 644\n"), "ordinary {ordinary}: {held}");
        // The handle of a directory is open for paths only, so `fchmod` rejects it.
        assert_eq!(free.matches("changed:").count(), 10, "the control, ordinary {ordinary}: {free}");
    }
}

/// A thread exchanges its own file for a link to another one while the command changes the mode of what the name leads to.
const EXCHANGED: &str = "cd own; python3 -c '
import os, sys, threading
sys.setswitchinterval(1e-5)
open(\"mine\", \"w\").close()
os.symlink(\"mine\", \"name\")
def exchange():
    for _ in range(3000):
        for target in (\"../../private\", \"mine\"):
            os.symlink(target, \"next\")
            os.rename(\"next\", \"name\")
exchanger = threading.Thread(target=exchange)
exchanger.start()
results = set()
while exchanger.is_alive():
    try: os.chmod(\"name\", 0o666)
    except OSError as error: results.add(error.errno)
    else: results.add(0)
print(sorted(results))
'; stat -c '%n %a' ../../private";

#[test]
fn exchanged_link_opens_no_file_outside() {
    if sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox");
        return;
    }
    let [held, free] = outcomes(partly_denied(), &[("shell", EXCHANGED)], true);
    assert!(held.contains("[0, 13]\n../../private 600\n"), "{held}");
    assert!(free.contains("[0]\n../../private 666\n"), "the control: {free}");
}

/// What linkers, archives, installers and libraries for temporary files do with modes.
const OF_PROGRAMS: &str = "set -e; cd own; mkdir d; touch d/f; chmod 000 d/f; chmod 644 d/f; chmod 000 d; chmod u+rwx d
cd d; chmod a+x f; cp -p f g; tar cf a.tar f g; rm f g; tar xpf a.tar --no-same-owner; ln -s g l; chmod 640 l; stat -c '%n %a' f g; cd ..
umask 077; t=$(mktemp); chmod 751 $t; stat -c %a $t
python3 -c '
import os, tempfile, threading
def mode(of): return oct(os.stat(of).st_mode & 0o7777)
def change(of, to): os.chmod(of, to); print(mode(of))
removed = os.open(\"removed\", os.O_CREAT | os.O_RDWR)
os.remove(\"removed\")
for handle in (removed, os.memfd_create(\"m\"), tempfile.TemporaryFile().fileno(), os.open(\"d/g\", os.O_RDONLY)):
    change(handle, 0o604)
    change(\"/proc/self/fd/%d\" % handle, 0o2714)
thread = threading.Thread(target=lambda: change(\"d/f\", 0o611))
thread.start(); thread.join()
for name, flags in ((\"d/l\", dict(follow_symlinks=False)), (\"no\", {}), (\"d/f/x\", {})):
    try: os.chmod(name, 0o600, **flags)
    except (OSError, NotImplementedError) as error: print(getattr(error, \"errno\", None) in (95, 2, 20, None))
long = \"d/\" + \"./\" * 2000 + \"f\"
change(long, 0o644)
try: change(long + \"/\" * 100, 0o600)
except OSError as error: print(error.errno)
'";

#[test]
fn sandboxed_programs_change_modes_of_their_files() {
    if sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox");
        return;
    }
    for ordinary in [false, true] {
        let [held, free] = outcomes(partly_denied(), &[("shell", OF_PROGRAMS)], ordinary);
        let expected = ["f 755", "g 640", "751"].into_iter().chain([["0o604", "0o2714"]; 4].concat()).chain(["0o611"]);
        let expected: Vec<&str> = expected.chain(["True", "True", "True", "0o644", "36", "[exit code 0]"]).collect();
        let expected = format!("\n{}\n", expected.join("\n"));
        assert!(held.contains(&expected), "ordinary {ordinary}: {held}");
        assert!(free.contains(&expected), "the same without a sandbox, ordinary {ordinary}: {free}");
    }
}

/// The control is the same session without protected files.
#[test]
fn configuration_stays_protected_after_chmod_above_it() {
    const STEPS: [ModeStep; 2] = [
        ("shell", "chmod 000 .."),
        ("shell", "echo spoiled > subtend.yaml; echo made > open/new; chmod 755 ..; cat subtend.yaml open/new"),
    ];
    if sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox");
        return;
    }
    let rules = HostPolicy::protected_files(&RuleSet { default: Verdict::Allow, rules: Vec::new() });
    let [held, free] = outcomes(rules, &STEPS, true);
    assert!(held.contains("minemade\n") && !held.contains("spoiled\n"), "{held}");
    assert!(free.contains("spoiled\nmade\n"), "the control: {free}");
}

/// Second names of denied files in a directory that cannot be listed are not known. The control is the same session without rules.
#[test]
fn unlisted_directory_reveals_no_second_names() {
    const STEPS: [ModeStep; 12] = [
        ("chmod", "000 secret fixed"),
        ("shell", "chmod 755 secret fixed; echo step 1"),
        ("read", "open/copy"),
        ("read", "open/b"),
        ("shell", "cat open/copy; echo spoiled > src/x; echo works > src/y; cat src/y"),
        ("chmod", "444 secret"),
        ("chmod", "755 fixed"),
        ("shell", "cat open/copy open/b"),
        ("chmod", "755 secret"),
        ("chmod", "000 more/deep"),
        ("shell", "chmod 755 more/deep; cat more/deep/copy open/b fixed/key"),
        ("read", "open/b"),
    ];
    if sandbox::probe().is_err() {
        println!("not tried: this system has no sandbox");
        return;
    }
    let [held, free] = outcomes(partly_denied(), &STEPS, true);
    assert!(!held.contains("hidden") && held.contains("kept\n") && !held.contains("spoiled\n"), "{held}");
    assert!(held.contains("`secret` cannot be listed and may hold one of them."), "{held}");
    // Files with one name can be used, and with several where each directory can be listed.
    assert!(["step 1", "works"].iter().all(|text| held.contains(text)), "{held}");
    assert_eq!(held.matches("plain").count(), 2, "{held}");
    assert_eq!(["hidden", "spoiled\n"].map(|text| free.matches(text).count()), [4, 1], "the control: {free}");
}
