use std::fs;

use subtend_session::authority::Access;
use subtend_session::authority::Verdict;
use subtend_session::settings::Settings;
use tempfile::TempDir;

use super::*;
use crate::instructions::Unread;
use crate::lint::{Checked, FileContent, lint};
use crate::manifest::AgentMode;

fn workspace(files: &[(&str, &[u8])]) -> TempDir {
    let workspace = tempfile::tempdir().unwrap();
    for (path, bytes) in files {
        let path = workspace.path().join(FOLDER).join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    workspace
}

fn names<'a>(agents: impl Iterator<Item = &'a Arc<Manifest>>) -> Vec<&'a str> {
    agents.map(|manifest| &*manifest.name).collect()
}

fn problems(workspace: &TempDir, catalog: &Catalog) -> Vec<(String, ProblemKind, String)> {
    let folder = workspace.path().join(FOLDER);
    let path = |problem: &AgentProblem| problem.path.strip_prefix(&folder).unwrap().display().to_string();
    catalog.problems().iter().map(|problem| (path(problem), problem.kind, problem.message.clone())).collect()
}

fn listed(catalog: &Catalog) -> Vec<&str> {
    names(catalog.all().filter(|manifest| !(manifest.hidden && manifest.source == Source::Builtin)))
}

#[test]
fn g1_built_in_agents_are_listed_by_who_may_start_them() {
    let workspace = tempfile::tempdir().unwrap();
    let catalog = Catalog::load(workspace.path());
    let all = ["build", "compaction", "explore", "general", "plan", "research", "summary", "title"];
    assert_eq!(names(catalog.all()), all);
    assert_eq!(names(catalog.spawnable()), ["explore", "general", "plan", "research"]);
    assert_eq!(names(catalog.pickable()), ["build", "general", "plan"]);
    assert_eq!(catalog.problems(), []);
}

fn allowed(agent: &str) -> Vec<&'static str> {
    const ACTIONS: [&str; 8] =
        ["fs.read", "fs.write", "shell.run", "net.fetch", "task:explore", "task:research", "task:general", "mcp:a:b"];
    let authority = Catalog::builtin().get(agent).unwrap().authority();
    let allows = |action: &&str| {
        authority.verdict(&Access { action: (*action).into(), resource: "src/lib.rs".into() }) == Verdict::Allow
    };
    ACTIONS.into_iter().filter(allows).collect()
}

#[test]
fn r7_explore_research_and_plan_have_only_read_rights() {
    let catalog = Catalog::builtin();
    let turns = |name| catalog.get(name).unwrap().turns;
    assert_eq!((turns("explore"), turns("research"), turns("plan")), (Some(30), Some(40), Some(50)));
    assert_eq!(allowed("explore"), ["fs.read"]);
    assert_eq!(allowed("research"), ["fs.read", "net.fetch"]);
    assert_eq!(allowed("plan"), ["fs.read", "net.fetch", "task:explore", "task:research"]);
    let prompts = ["explore", "research", "plan"].map(|name| Arc::clone(&catalog.get(name).unwrap().body));
    assert!(prompts[1].contains("`web_search`") && prompts[1].contains("`fetch`"));
    assert!(prompts[2].contains("full paths"));
    let distinct: std::collections::BTreeSet<_> = catalog.all().map(|manifest| &*manifest.body).collect();
    assert_eq!(distinct.len(), 8, "each has a prompt of its own");
}

#[test]
fn k14_plan_exit_is_offered_only_to_root_sessions_of_plan() {
    let catalog = Catalog::builtin();
    let offering: Vec<_> = catalog.all().filter(|manifest| manifest.offers_plan_exit(true)).collect();
    assert_eq!(names(offering.into_iter()), ["plan"]);
    assert!(!catalog.get("plan").unwrap().offers_plan_exit(false));
    assert_eq!(catalog.get("plan").unwrap().mode, AgentMode::All);
}

#[test]
fn g11_service_agents_are_cheap_capped_and_without_tools() {
    let pools = ["title", "compaction", "summary"].map(|name| Catalog::builtin().get(name).unwrap().pool.clone());
    assert_eq!(pools, [Some("cheap".into()), Some("cheap".into()), None]);
    let catalog = Catalog::builtin();
    for name in ["title", "summary", "compaction"] {
        let manifest = catalog.get(name).unwrap();
        assert_eq!(
            (manifest.mode, manifest.hidden, manifest.inspectable),
            (AgentMode::Subagent, true, false),
            "{name}"
        );
        assert_eq!(manifest.tools.as_deref(), Some(&[][..]), "{name}");
        assert!(manifest.settings.temperature.is_some_and(|temperature| temperature <= 0.3), "{name}");
        assert!(manifest.settings.output_tokens.is_some_and(|cap| cap <= 4_000), "{name}");
        assert_eq!(allowed(name), [""; 0], "{name}");
    }
}

#[test]
fn g11_explore_has_its_own_pool_temperature_and_cap() {
    let catalog = Catalog::builtin();
    let explore = catalog.get("explore").unwrap();
    let Settings { output_tokens, temperature, top_p, effort } = explore.settings;
    assert_eq!((explore.pool.as_deref(), output_tokens, temperature), (Some("cheap"), Some(8_000), Some(0.2)));
    assert_eq!((top_p, effort), (None, None));
}

#[test]
fn explore_may_only_read() {
    let catalog = Catalog::builtin();
    let explore = catalog.get("explore").unwrap();
    assert_eq!((explore.mode, explore.turns, &explore.source), (AgentMode::Subagent, Some(30), &Source::Builtin));
    let verdict = |action: &str, resource: &str| {
        explore.authority().verdict(&Access { action: action.into(), resource: resource.into() })
    };
    assert_eq!(verdict("fs.read", "src/lib.rs"), Verdict::Allow);
    assert_eq!(verdict("fs.read", "."), Verdict::Allow);
    for action in ["fs.write", "shell.run", "net.fetch", "task:explore", "mcp:any:thing"] {
        assert_eq!(verdict(action, "x"), Verdict::Deny, "{action}");
    }
    assert_eq!(catalog.get("general").unwrap().authority(), subtend_session::authority::Authority::allow_all());
}

#[test]
fn bad_agent_file_does_not_hide_the_others() {
    let workspace = workspace(&[
        ("a.md", b"---\nmode: subagent\n---\nFirst."),
        ("b.md", b"no front matter"),
        ("c/d/deep.md", b"---\nmode: primary\n---\nDeep."),
        ("bytes.md", b"---\nmode: all\n---\n\xff"),
        ("huge.md", &[b'x'; 300 << 10]),
        ("notes.txt", b"not an agent"),
        ("secret.md", b"---\nmode: all\nhidden: true\n---\nNot listed."),
        ("silent.md", b"---\ndescription: which mode?\n---\nx"),
    ]);
    let catalog = Catalog::load(workspace.path());
    assert_eq!(listed(&catalog), ["a", "build", "deep", "explore", "general", "plan", "research", "secret"]);
    assert_eq!(names(catalog.spawnable()), ["a", "explore", "general", "plan", "research"]);
    assert_eq!(names(catalog.pickable()), ["build", "deep", "general", "plan"]);
    assert_eq!(catalog.get("deep").unwrap().source, Source::File(workspace.path().join(FOLDER).join("c/d/deep.md")));
    let refused = |path: &str, message: &str| (path.to_owned(), ProblemKind::Refused, message.to_owned());
    assert_eq!(
        problems(&workspace, &catalog),
        [
            refused(
                "b.md",
                "has no front matter: begin the file with a line `---`, then YAML, then another line `---`"
            ),
            refused("bytes.md", "is not UTF-8 text, from byte 18"),
            refused("huge.md", "is larger than 262144 bytes, the most that an agent file may have"),
            refused("silent.md", "has no `mode`: add `mode: primary`, `mode: subagent` or `mode: all`"),
        ]
    );
}

#[test]
fn a1_refused_file_also_removes_the_built_in_agent() {
    let workspace = workspace(&[
        ("explore.md", b"---\nmode: subagent\npermissions: {\"fs.read=secret/**\": deny}\n---\nLook."),
        ("mine.md", b"---\nmode: all\nname: general\npermission: {bash: deny}\n---\nWork."),
    ]);
    let catalog = Catalog::load(workspace.path());
    assert_eq!(listed(&catalog), ["build", "plan", "research"]);
    let refused = |path: &str, message: &str| (path.to_owned(), ProblemKind::Refused, message.to_owned());
    let expected = [
        refused(
            "explore.md",
            "`permissions` `fs.read=secret/**`: a key names an action only; nest the pattern below it: `fs.read: {\"secret/**\": \
             deny}` (and the built-in agent `explore`, which the file would replace, is not used)",
        ),
        refused(
            "mine.md",
            "`permission` is an unknown key, and a restriction is never ignored: write `permissions: {ACTION: deny}` (or `ask`), \
             such as `permissions: {fs.write: deny, shell.run: ask}` (and the built-in agent `general`, which the file would replace, is \
             not used)",
        ),
    ];
    assert_eq!(problems(&workspace, &catalog), expected);
}

#[test]
fn a1_file_with_a_rule_for_an_unknown_agent_is_refused() {
    let workspace = workspace(&[
        ("critic.md", b"---\nmode: all\npermissions: {task: {exlpore: deny}}\n---\nJudge."),
        ("general.md", b"---\nmode: all\npermissions: {\"task:critc\": deny}\n---\nWork."),
        ("lead.md", b"---\nmode: all\npermissions: {task: {critic: deny, bad: ask, \"r*\": deny}}\n---\nLead."),
        ("sub/bad.md", b"---\nmode: never\n---\nBad."),
    ]);
    let catalog = Catalog::load_checked(workspace.path());
    assert_eq!(listed(&catalog), ["build", "explore", "lead", "plan", "research"]);
    let refused = |path: &str, message: &str| (path.to_owned(), ProblemKind::Refused, message.to_owned());
    let warned = |path: &str, message: &str| (path.to_owned(), ProblemKind::Warning, message.to_owned());
    let expected = [
        refused("critic.md", "`permissions` `task:exlpore`: unknown agent `exlpore`; did you mean `explore`?"),
        warned("general.md", "replaces the built-in agent `general`"),
        refused("general.md", "`permissions` `task:critc`: unknown agent `critc`; did you mean `critic`?"),
        refused("sub/bad.md", "`mode` must be primary, subagent or all, not \"never\""),
    ];
    assert_eq!(problems(&workspace, &catalog), expected);
    assert!(Catalog::load(workspace.path()).get("critic").is_some());
    let checked = lint(&[workspace.path().join(FOLDER)], None, &Catalog::builtin(), &|_, _| Err(Unread::Missing));
    let names: Vec<_> = checked.iter().map(|file| file.agent().map(|agent| agent.name.to_string())).collect();
    assert_eq!(names, [None, None, Some("lead".to_owned()), None]);
}

#[test]
fn a1_deny_of_tools_that_only_hosts_add_is_refused() {
    let files = ["tool:*", "tool:reed"].map(|action| {
        let name = format!("{}.md", action.replace([':', '*'], "x"));
        (action, name, format!("---\nmode: all\npermissions: {{\"{action}\": deny}}\n---\nJudge."))
    });
    let allowed = (
        "zed.md",
        &b"---\nmode: all\npermissions: {\"*\": deny, \"tool:weather\": allow, \"tool:message\": {\"*\": deny, parent: allow}, \"mcp:files:*\": ask}\n---\nJudge."[..],
    );
    let denied = files.iter().map(|(_, name, text)| (name.as_str(), text.as_bytes()));
    let workspace = workspace(&denied.chain([allowed]).collect::<Vec<_>>());
    let catalog = Catalog::load_checked(workspace.path());
    let mut expected: Vec<_> = files
        .iter()
        .map(|(action, name, _)| {
            let why = "no tool needs this action: restrict what tools do, such as `fs.write: deny`, or list the tools of the \
            agent in `tools`";
            (name.clone(), ProblemKind::Refused, format!("`permissions` `{action}`: {why}"))
        })
        .collect();
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(problems(&workspace, &catalog), expected);
    assert!(catalog.get("zed").is_some());
    assert_eq!(Catalog::load(workspace.path()).problems(), []);
}

#[test]
fn file_replaces_the_builtin_of_its_name_with_a_warning() {
    let workspace = workspace(&[("explore.md", b"---\nmode: subagent\nturns: 5\n---\nLook around.")]);
    let catalog = Catalog::load(workspace.path());
    assert_eq!(&*catalog.get("explore").unwrap().body, "Look around.");
    let warning = ("explore.md".to_owned(), ProblemKind::Warning, "replaces the built-in agent `explore`".to_owned());
    assert_eq!(problems(&workspace, &catalog), [warning]);
}

#[test]
fn r12_replacement_of_a_built_in_agent_is_detected() {
    let workspace = workspace(&[
        ("explore.md", b"---\nmode: subagent\n---\nLook around."),
        ("mine.md", b"---\nmode: all\n---\nMine."),
    ]);
    let catalog = Catalog::load(workspace.path());
    let replacing = catalog.all().filter(|manifest| Catalog::replaces_builtin(manifest));
    assert_eq!(names(replacing), ["explore"]);
}

#[test]
fn files_and_folders_are_linted_without_a_workspace() {
    let workspace = workspace(&[
        ("good.md", b"---\nmode: all\ncolour: blue\n---\nGood."),
        ("sub/bad.md", b"---\nmode: never\n---\nBad."),
        ("sub/good.md", b"---\nmode: all\n---\nAnother."),
    ]);
    let folder = workspace.path().join(FOLDER);
    let describe_path = |path: &Path| {
        let describe = |checked: Checked| {
            let name = checked.path.strip_prefix(&folder).unwrap().display().to_string();
            let problems = checked.problems.into_iter().map(|problem| (problem.kind, problem.message));
            let agent = match checked.content {
                Some(FileContent::Agent(manifest)) => Some(manifest.name.to_string()),
                Some(FileContent::Skill(_) | FileContent::Command(_) | FileContent::Instructions(_)) => {
                    panic!("no agent")
                }
                None => None,
            };
            (name, agent, problems.collect::<Vec<_>>())
        };
        lint(&[path.to_owned()], None, &Catalog::builtin(), &|_, _| Err(Unread::Missing))
            .into_iter()
            .map(describe)
            .collect::<Vec<_>>()
    };
    let unknown = describe_path(&folder.join("good.md"));
    assert_eq!((unknown.len(), unknown[0].1.as_deref(), unknown[0].2[0].0), (1, Some("good"), ProblemKind::Warning));
    assert!(unknown[0].2[0].1.starts_with("unknown key `colour` is kept without effect"));
    let all = describe_path(&folder);
    let mode = "`mode` must be primary, subagent or all, not \"never\"".to_owned();
    assert_eq!(all[1], ("sub/bad.md".to_owned(), None, vec![(ProblemKind::Refused, mode)]));
    let first = format!("`good` is already defined in {}: rename one", folder.join("good.md").display());
    assert_eq!(all[2], ("sub/good.md".to_owned(), None, vec![(ProblemKind::Refused, first)]));
    assert_eq!(all.len(), 3);
    let gone = describe_path(&folder.join("gone"));
    assert_eq!((&*gone[0].0, gone[0].1.as_ref(), gone[0].2[0].0), ("gone", None, ProblemKind::Refused));
}

#[test]
fn second_file_of_one_name_is_refused() {
    let workspace = workspace(&[
        ("one.md", b"---\nmode: all\nname: twin\n---\nFirst."),
        ("two.md", b"---\nmode: all\nname: twin\n---\nSecond."),
    ]);
    let catalog = Catalog::load(workspace.path());
    assert_eq!(&*catalog.get("twin").unwrap().body, "First.");
    let first = workspace.path().join(FOLDER).join("one.md");
    let message = format!("`twin` is already defined in {}: rename one", first.display());
    assert_eq!(problems(&workspace, &catalog), [("two.md".to_owned(), ProblemKind::Refused, message)]);
}

#[cfg(unix)]
#[test]
fn symbolic_links_are_not_followed() {
    let workspace = workspace(&[("real.md", b"---\nmode: all\n---\nReal.")]);
    let folder = workspace.path().join(FOLDER);
    std::os::unix::fs::symlink(folder.join("real.md"), folder.join("linked.md")).unwrap();
    std::os::unix::fs::symlink(&folder, folder.join("loop")).unwrap();
    let catalog = Catalog::load(workspace.path());
    assert_eq!(listed(&catalog), ["build", "explore", "general", "plan", "real", "research"]);
    let warning = "is a symbolic link, which is not followed: copy the file".to_owned();
    assert_eq!(
        problems(&workspace, &catalog),
        [
            ("linked.md".to_owned(), ProblemKind::Refused, warning.clone()),
            ("loop".to_owned(), ProblemKind::Refused, warning)
        ]
    );
}

#[test]
fn primary_and_hidden_agents_are_not_spawnable() {
    let workspace = workspace(&[
        ("front.md", b"---\nmode: primary\n---\nx"),
        ("quiet.md", b"---\nmode: all\nhidden: true\n---\nx"),
    ]);
    let catalog = Catalog::load(workspace.path());
    let names: Vec<_> = catalog.spawnable().map(|manifest| &*manifest.name).collect();
    assert_eq!(names, ["explore", "general", "plan", "research"]);
}

/// Another process holds a lease on the file. As a control, the file is read when the lease is gone.
#[cfg(target_os = "linux")]
#[test]
fn leased_file_is_refused_at_once() {
    use std::io::BufRead as _;
    use std::process::{Command, Stdio};

    let workspace = workspace(&[("a.md", b"text")]);
    let path = workspace.path().join(FOLDER).join("a.md");
    let script = "import fcntl, os, signal, sys; signal.signal(signal.SIGIO, signal.SIG_IGN); \
                  fcntl.fcntl(os.open(sys.argv[1], os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK); \
                  print('leased', flush=True); sys.stdin.read()";
    let mut holder = Command::new("python3");
    let holder = holder.args(["-c", script]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut holder) = holder else { return println!("not tried: there is no python3 to take a lease") };
    let mut line = String::new();
    std::io::BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let read = files::read(workspace.path(), &path, HardLinks::Read);
    drop(holder.stdin.take());
    holder.wait().unwrap();
    match line.is_empty() {
        true => println!("not tried: the file system has no leases"),
        false => assert!(read.unwrap_err().contains("another process holds a lease on it"), "{line}"),
    }
    assert_eq!(files::read(workspace.path(), &path, HardLinks::Read), Ok("text".to_owned()));
}

/// A client registers agents without end. The control: fewer of them, and a new text of one.
#[test]
fn registered_agents_take_bounded_memory() {
    let text = format!("---\nmode: all\ndescription: d\n---\n{}\n", "x".repeat(200_000));
    let mut catalog = Catalog::builtin();
    let refused: Vec<String> = (0..22)
        .filter_map(|n| match catalog.read_text(&text, &format!("a{n}")) {
            Ok((agent, _)) => catalog.insert(Manifest { source: Source::Host, ..agent }).map(|_| "replaced".to_owned()),
            Err(error) => Some(error.to_string()),
        })
        .collect();
    let why =
        "the agent cannot be used: all agents that a host registers may take at most 4194304 bytes: remove others";
    assert_eq!(refused, [why, why]);
    assert!(catalog.read_text(&text, "a0").is_ok());
}
