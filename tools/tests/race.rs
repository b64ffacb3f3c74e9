//! Two threads swap links, directories and hard links during calls of the file tools. Calls must not reach a denied file.
//!
//! `cargo test` makes a few thousand calls. All 100,000:
//!
//! ```sh
//! SUBTEND_RACE_CALLS=100000 cargo test -p subtend-tools --test tools race::
//! ```

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use super::scene::*;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::scene;

const SECRET: &str = "hidden-content";
/// The name of another denied file, which listings must not show.
const NAME: &str = "hidden-name";
const DEFAULT_CALLS: usize = 4_000;
/// Maximum number of attempts of the control.
const MOST_TRIES: usize = 2_000_000;

/// The pairs of paths that each thread swaps.
const SWAPS: [&[(&str, &str)]; 2] = [
    &[("pub/d", "pub/dir-link"), ("pub/in/d", "pub/in/dir-link")],
    &[("pub/f", "pub/file-link"), ("pub/h", "pub/alias")],
];

/// Creates a workspace in which `secret` is denied. `pub` has plain files, links into `secret` and a hard link to its file.
fn workspace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    for path in ["secret", "pub/d", "pub/in/d"] {
        std::fs::create_dir_all(at(path)).unwrap();
    }
    std::fs::write(at("secret/key"), SECRET).unwrap();
    std::fs::write(at("secret").join(NAME), SECRET).unwrap();
    for path in ["pub/d/key", "pub/in/d/key", "pub/f", "pub/h"] {
        std::fs::write(at(path), "plain").unwrap();
    }
    std::os::unix::fs::symlink("../secret", at("pub/dir-link")).unwrap();
    std::os::unix::fs::symlink("../../secret", at("pub/in/dir-link")).unwrap();
    std::os::unix::fs::symlink("../secret/key", at("pub/file-link")).unwrap();
    std::fs::hard_link(at("secret/key"), at("pub/alias")).unwrap();
    dir
}

fn while_swapping<T>(dir: &Path, work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for pairs in SWAPS {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for (one, other) in pairs {
                        renameat_with(CWD, dir.join(one), CWD, dir.join(other), RenameFlags::EXCHANGE).unwrap();
                    }
                }
            });
        }
        let done = work();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

fn no_secrets() -> Authority {
    let denied = Rule { action: "fs.*".into(), resource: "secret/**".into(), verdict: Verdict::Deny };
    Authority::of(RuleSet { default: Verdict::Allow, rules: vec![denied] })
}

async fn call(dir: &Path, registry: &Registry, tool: &str, args: Value) -> Result<String, ToolError> {
    let call = scene::call(dir, no_secrets(), args);
    registry.get(tool).unwrap().run(call).await.map(|output| output.content.to_string())
}

const FILES: [&str; 4] = ["pub/d/key", "pub/in/d/key", "pub/f", "pub/h"];

/// Returns calls that do not replace links.
fn reads() -> Vec<(&'static str, Value)> {
    let mut calls = Vec::new();
    for path in FILES {
        calls.push(("read", json!({"path": path})));
        calls.push(("search", json!({"path": path, "pattern": SECRET})));
        calls.push(("edit", json!({"path": path, "old": SECRET, "new": "spoiled"})));
    }
    for path in ["pub", "pub/d", "pub/in/d"] {
        calls.push(("list", json!({"path": path, "depth": 3})));
        calls.push(("search", json!({"path": path, "pattern": SECRET})));
        calls.push(("search", json!({"path": path, "pattern": NAME, "files": true})));
    }
    calls
}

/// Returns calls that replace files, or links if they lose the race.
fn writes() -> Vec<(&'static str, Value)> {
    let write = |path| ("write", json!({"path": path, "content": "plain"}));
    FILES.into_iter().chain(["pub/d/new/deep"]).map(write).collect()
}

/// Returns whether the answer shows that the call reached a denied file.
fn leaks(tool: &str, text: &str) -> bool {
    // An edit has read the content if it replaced it or detected a change.
    let edited = tool == "edit" && (text.starts_with("replaced") || text.contains("was changed by"));
    edited || text.contains(SECRET) || text.contains(NAME)
}

/// Returns the modes of the temporary files seen in `dir` during `work`.
fn temporary_modes(dir: &Path, work: impl FnOnce()) -> BTreeSet<u32> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let spy = scope.spawn(|| {
            let mut modes = BTreeSet::new();
            while !stop.load(Ordering::Relaxed) {
                let temporary = std::fs::read_dir(dir).unwrap().flatten();
                let temporary = temporary.filter(|entry| entry.file_name().to_string_lossy().ends_with(".tmp"));
                modes.extend(temporary.filter_map(|entry| Some(entry.metadata().ok()?.permissions().mode() & 0o777)));
            }
            modes
        });
        work();
        stop.store(true, Ordering::Relaxed);
        spy.join().unwrap()
    })
}

/// The control: the temporary file of a public file has a public mode.
#[test]
fn replacement_of_a_private_file_is_private_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret.env");
    std::fs::write(&path, "KEY=old").unwrap();
    let registry = Registry::builder().tools(Registry::workspace_tools(None)).unwrap().build();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let modes_with = |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let modes = temporary_modes(dir.path(), || {
            for round in 0..100 {
                let args = json!({"path": "secret.env", "content": format!("KEY={round}\n").repeat(1 << 16)});
                runtime.block_on(call(dir.path(), &registry, "write", args)).unwrap();
            }
        });
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        modes
    };
    assert_eq!(modes_with(0o600), [0o600].into());
    assert!(modes_with(0o644).contains(&0o644));
}

#[test]
fn file_tools_do_not_reach_denied_files_by_swapped_links() {
    let most = std::env::var("SUBTEND_RACE_CALLS").map_or(DEFAULT_CALLS, |count| count.parse().unwrap());
    let registry = Registry::builder().tools(Registry::workspace_tools(None)).unwrap().build();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let round: Vec<_> = reads().into_iter().cycle().take(400).chain(writes()).collect();
    let (mut made, mut served, mut leaked) = (0, 0, Vec::new());
    while made < most {
        let dir = workspace();
        while_swapping(dir.path(), || {
            for (tool, args) in &round {
                let outcome = runtime.block_on(call(dir.path(), &registry, tool, args.clone()));
                served += usize::from(outcome.is_ok());
                let text = outcome.unwrap_or_else(|error| error.message);
                if leaks(tool, &text) {
                    leaked.push(format!("{tool} {args}: {text}"));
                }
            }
        });
        made += round.len();
        let secret = dir.path().join("secret");
        assert_eq!(std::fs::read_dir(&secret).unwrap().count(), 2);
        for name in ["key", NAME] {
            assert_eq!(std::fs::read_to_string(secret.join(name)).unwrap(), SECRET, "{name}");
        }
    }
    println!("{made} calls, {served} served, {} leaks", leaked.len());
    assert_eq!(leaked, Vec::<String>::new());
    // The test is only meaningful if some calls succeed.
    assert!(served > made / 4, "{served} of {made} calls were served");
}

/// The control: a check by name followed by an open by name reads the denied file.
#[test]
fn control_check_before_open_leaks_under_the_same_swaps() {
    let dir = workspace();
    let root = dir.path().canonicalize().unwrap();
    let leaked = while_swapping(dir.path(), || {
        (0..MOST_TRIES).any(|_| {
            let path = root.join("pub/d/key");
            let permitted = path.canonicalize().is_ok_and(|real| !real.starts_with(root.join("secret")));
            permitted && std::fs::read_to_string(path).is_ok_and(|text| text == SECRET)
        })
    });
    assert!(leaked, "the control did not leak in {MOST_TRIES} tries, so the swaps prove nothing");
}
