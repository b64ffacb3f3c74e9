//! Globs, ignore files and regular expressions that try to crash the process or exhaust its memory.
//!
//! Each case runs in this test program, which is started again with a memory limit. The controls run the libraries without limits.

use std::process::Output;

use super::scene::*;

use super::scene;

const DIR: &str = "SUBTEND_TEST_DIR";
/// Address space in KiB that a role may use in addition to that of an idle test program: 512 MiB, including thread stacks.
const ROOM: u64 = 512 << 10;
/// Concurrent searches of the attack.
const AT_ONCE: usize = 64;
/// Number of concurrent calls. It exceeds the limit. In an optimized build, it equals the number in the attack.
const CALLS: usize = if cfg!(debug_assertions) { 8 } else { AT_ONCE };

fn nested(levels: usize) -> String {
    format!("{}a{}", "{".repeat(levels), "}".repeat(levels))
}

fn alternates(count: usize) -> String {
    format!("{{{}}}", (0..count).map(|n| format!("a{n}")).collect::<Vec<_>>().join(","))
}

/// Globs that crash a process which compiles them.
fn globs() -> [String; 5] {
    [nested(300), nested(20_000), alternates(5_000), "?".repeat(1 << 20), "{a,".repeat(20_000)]
}

/// Returns `bytes` of lines that take much memory for their size.
fn ignore_file(bytes: usize) -> String {
    let line = |n: usize| format!("*[a-z]?{n}*b/**/x[!0-9]*\n");
    let mut text = String::new();
    for n in 0.. {
        text.push_str(&line(n));
        if text.len() >= bytes {
            break;
        }
    }
    text
}

/// A regular expression that needs about 100 MB without a limit.
const GREEDY: &str = r"(\w{200}\s){20}(\w{50}|\d{90}){15}";

/// Number of files in one directory. One call may not keep so many in memory.
const NAMES: usize = 40_000;

fn name(n: usize) -> String {
    format!("{n:0>250}")
}

/// Number of directories whose rules a walk holds at once.
const RULES: usize = 70;

/// Rules for which each name of random letters leads to new states, each with a transition for most bytes.
fn state_rules() -> String {
    let letters: String = ('0'..='9').chain('A'..='Z').chain('a'..='z').chain('\u{c0}'..='\u{ff}').collect();
    format!("*a{}\n?{letters}\n", "?".repeat(17))
}

/// Returns a name of `a` and `b` that is not ignored.
fn random_name(n: usize) -> String {
    let mut state = u32::try_from(n).unwrap();
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { 'a' } else { 'b' }
    };
    let letters: String = (0..230).map(|_| letter()).collect();
    format!("{}b{}", &letters[..212], &letters[213..])
}

async fn call(dir: &Path, registry: &Registry, tool: &str, args: Value) -> Result<String, ToolError> {
    let call = scene::call(dir, Authority::allow_all(), args);
    registry.get(tool).unwrap().run(call).await.map(|output| output.content.to_string())
}

/// Not a test: the entry point of this program in a role.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let dir = std::env::var(DIR).unwrap();
    let dir = Path::new(&dir);
    let registry = Registry::builder().tools(Registry::workspace_tools(None)).unwrap().build();
    let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(AT_ONCE).build().unwrap();
    match &*role {
        "idle" => {}
        "globs" => {
            for (glob, tool) in globs().into_iter().zip(["list", "search"].into_iter().cycle()) {
                let args = if tool == "list" { json!({"glob": glob}) } else { json!({"glob": glob, "pattern": "a"}) };
                println!("{}", runtime.block_on(call(dir, &registry, tool, args)).unwrap_err());
            }
        }
        "ignores" => {
            let calls = (0..CALLS).map(|_| call(dir, &registry, "list", json!({"depth": 3})));
            let listed = runtime.block_on(futures_util::future::join_all(calls));
            println!("{}", listed[0].as_ref().unwrap());
        }
        "states" => {
            let calls = [
                ("list", json!({"path": "wide", "glob": "*a?????????????????"})),
                ("search", json!({"path": "deep", "pattern": "none"})),
            ];
            for (tool, args) in calls {
                let done = runtime.block_on(call(dir, &registry, tool, args)).unwrap();
                println!("{}", done.lines().last().unwrap());
            }
        }
        "regexes" => {
            let search = |n: usize| json!({"pattern": format!("{GREEDY}{n}"), "regex": true});
            let calls = (0..CALLS).map(|n| call(dir, &registry, "search", search(n)));
            let found = runtime.block_on(futures_util::future::join_all(calls));
            println!("{:?}", found[0]);
        }
        "edits" => {
            let args = json!({"path": "a", "old": "a", "new": "b".repeat(1 << 20), "replace_all": true});
            println!("{:?}", runtime.block_on(call(dir, &registry, "edit", args)));
        }
        "names" => {
            let args =
                |tool: &str| if tool == "list" { json!({"glob": "no"}) } else { json!({"glob": "no", "pattern": "n"}) };
            let calls = ["list", "search"].into_iter().map(|tool| call(dir, &registry, tool, args(tool)));
            println!("{:?}", runtime.block_on(futures_util::future::join_all(calls)));
        }
        "unbounded edits" => drop("a".repeat(1 << 20).replace('a', &"b".repeat(1 << 20))),
        "unbounded names" => {
            let entry = [name(0), name(0), name(0)];
            drop(vec![entry; 16 * NAMES]);
        }
        "unbounded nesting" => drop(globset::Glob::new(&nested(20_000)).unwrap().compile_matcher()),
        "unbounded alternates" => drop(globset::Glob::new(&"?".repeat(1 << 20)).unwrap().compile_matcher()),
        "unbounded ignores" => {
            let mut builder = ignore::gitignore::GitignoreBuilder::new("");
            for line in ignore_file(1 << 20).lines() {
                builder.add_line(None, line).unwrap();
            }
            drop(builder.build().unwrap());
        }
        "unbounded regexes" => {
            let build = |n| grep_regex::RegexMatcherBuilder::new().build(&format!("{GREEDY}{n}")).unwrap();
            drop((0..AT_ONCE).map(build).collect::<Vec<_>>());
        }
        other => panic!("no role {other}"),
    }
    println!("peak {} KiB", peak());
}

/// Returns the peak address space of this process, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Runs a role in `dir` with at most `limit` KiB of address space.
fn run_role(role: &str, dir: &Path, limit: u64) -> Output {
    let script = format!("ulimit -c 0; ulimit -v {limit}; exec \"$0\" --exact hostile::role --nocapture");
    let mut command = Command::new("sh");
    command.args(["-c".as_ref(), script.as_ref(), std::env::current_exe().unwrap().as_os_str()]);
    // Use one arena and small stacks, because each of them reserves address space.
    command.env(ROLE, role).env(DIR, dir).env("MALLOC_ARENA_MAX", "1").env("RUST_MIN_STACK", "1048576");
    command.output().unwrap()
}

fn idle() -> u64 {
    let output = run_role("idle", Path::new("."), 8 << 20);
    let text = String::from_utf8(output.stdout).unwrap();
    let peak = text.lines().find_map(|line| line.strip_prefix("peak ")?.strip_suffix(" KiB")).expect("its peak");
    peak.parse().unwrap()
}

/// Runs a role within the memory limit, and returns its output.
fn bounded(role: &str, dir: &Path) -> String {
    let output = run_role(role, dir, idle() + ROOM);
    assert!(output.status.success(), "{role}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    println!("{role}: {}", text.lines().find(|line| line.starts_with("peak ")).unwrap());
    text
}

#[test]
fn hostile_globs_do_not_end_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let text = bounded("globs", dir.path());
    for found in ["300 braces", "40001 bytes", "28891 bytes", "1048576 bytes", "60000 bytes"] {
        assert!(text.contains(&format!("the glob cannot be used: it has {found}; ")), "{found}: {text}");
    }
}

#[test]
fn hostile_ignore_files_are_bounded_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(".gitignore"), ignore_file(1 << 20)).unwrap();
    for n in 0..40 {
        let below = dir.path().join(format!("d{n}"));
        std::fs::create_dir(&below).unwrap();
        let odd = format!("{}\n{}\n", nested(20_000), alternates(5_000));
        std::fs::write(below.join(".gitignore"), ignore_file(30 << 10)).unwrap();
        std::fs::write(below.join(".ignore"), if n == 0 { odd } else { String::new() }).unwrap();
    }
    let text = bounded("ignores", dir.path());
    assert!(text.contains("skipped: too large"), "{text}");
}

/// Names fill the search state of rules while they are matched. A listing holds the rules of the directories that it has
/// yet to list, and a search those of all directories above.
#[test]
fn hostile_names_do_not_grow_ignore_rules() {
    let dir = tempfile::tempdir().unwrap();
    let mut deep = dir.path().join("deep");
    let names = |below: &Path| (0..45).for_each(|n| std::fs::write(below.join(random_name(n)), "x\n").unwrap());
    for n in 0..RULES {
        let wide = dir.path().join(format!("wide/d{n}"));
        for below in [&wide, &deep] {
            std::fs::create_dir_all(below).unwrap();
            std::fs::write(below.join(".gitignore"), state_rules()).unwrap();
        }
        names(&wide);
        deep.push("d");
    }
    std::fs::create_dir(&deep).unwrap();
    names(&deep);
    let text = bounded("states", dir.path());
    let ends = [format!("[{} files", 0), format!("[no matches in {} files]", RULES + 45)];
    assert!(ends.iter().all(|end| text.contains(end)), "{text}");
}

#[test]
fn hostile_regexes_are_bounded_together() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.txt"), "word ".repeat(1000)).unwrap();
    bounded("regexes", dir.path());
}

#[test]
fn edit_with_an_oversized_result_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a"), "a".repeat(1 << 20)).unwrap();
    let text = bounded("edits", dir.path());
    assert!(text.contains("`a` would have 1099511627776 bytes; the limit of edit is 16777216"), "{text}");
    assert_eq!(std::fs::metadata(dir.path().join("a")).unwrap().len(), 1 << 20);
}

#[test]
fn directory_with_many_long_names_is_truncated() {
    let dir = tempfile::tempdir().unwrap();
    (0..NAMES).for_each(|n| drop(std::fs::File::create(dir.path().join(name(n))).unwrap()));
    let text = bounded("names", dir.path());
    assert_eq!(text.matches("1 directory read in part, too many entries").count(), 2, "{text}");
}

/// The controls: without limits, the libraries crash the process or exhaust the memory.
#[test]
fn control_without_bounds_ends_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let unbounded =
        ["nesting", "alternates", "ignores", "regexes", "edits", "names"].map(|of| format!("unbounded {of}"));
    for role in &unbounded {
        let output = run_role(role, dir.path(), idle() + ROOM);
        assert!(!output.status.success(), "{role}: {}", String::from_utf8_lossy(&output.stdout));
    }
}
