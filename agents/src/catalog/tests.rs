use subtend_session::authority::Access;
use subtend_session::authority::Verdict;
use tempfile::TempDir;

use super::*;
use crate::manifest::AgentMode;

/// A workspace with agent files, by path below the folder.
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

/// Problems as (path below the folder, kind, message).
fn problems(workspace: &TempDir, catalog: &Catalog) -> Vec<(String, ProblemKind, String)> {
    let folder = workspace.path().join(FOLDER);
    let path = |problem: &Problem| problem.path.strip_prefix(&folder).unwrap().display().to_string();
    catalog.problems().iter().map(|problem| (path(problem), problem.kind, problem.message.clone())).collect()
}

#[test]
fn general_and_explore_are_there_without_any_file() {
    let workspace = tempfile::tempdir().unwrap();
    let catalog = Catalog::load(workspace.path());
    assert_eq!(names(catalog.all()), ["explore", "general"]);
    assert_eq!(names(catalog.spawnable()), ["explore", "general"]);
    assert_eq!(names(catalog.pickable()), ["general"]);
    assert_eq!(catalog.problems(), []);
}

#[test]
fn explore_reads_and_nothing_else() {
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
fn one_bad_file_never_hides_the_rest() {
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
    assert_eq!(names(catalog.all()), ["a", "deep", "explore", "general", "secret"]);
    assert_eq!(names(catalog.spawnable()), ["a", "explore", "general"]);
    assert_eq!(names(catalog.pickable()), ["deep", "general"]);
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
fn a_file_replaces_a_builtin_of_its_name_and_that_is_said() {
    let workspace = workspace(&[("explore.md", b"---\nmode: subagent\nturns: 5\n---\nLook around.")]);
    let catalog = Catalog::load(workspace.path());
    assert_eq!(&*catalog.get("explore").unwrap().body, "Look around.");
    let said = ("explore.md".to_owned(), ProblemKind::Warning, "replaces the built-in agent `explore`".to_owned());
    assert_eq!(problems(&workspace, &catalog), [said]);
}

#[test]
fn of_two_files_with_one_name_the_first_counts_and_the_second_is_refused() {
    let workspace = workspace(&[
        ("one.md", b"---\nmode: all\nname: twin\n---\nFirst."),
        ("two.md", b"---\nmode: all\nname: twin\n---\nSecond."),
    ]);
    let catalog = Catalog::load(workspace.path());
    assert_eq!(&*catalog.get("twin").unwrap().body, "First.");
    let first = workspace.path().join(FOLDER).join("one.md");
    let message = format!("`twin` is already there, from {}: rename one", first.display());
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
    assert_eq!(names(catalog.all()), ["explore", "general", "real"]);
    let said = "is a symbolic link, which is not followed: copy the file".to_owned();
    assert_eq!(
        problems(&workspace, &catalog),
        [("linked.md".to_owned(), ProblemKind::Refused, said.clone()), ("loop".to_owned(), ProblemKind::Refused, said)]
    );
}

#[test]
fn spawning_an_unknown_hidden_or_primary_agent_lists_the_valid_names() {
    let workspace = workspace(&[
        ("front.md", b"---\nmode: primary\n---\nx"),
        ("quiet.md", b"---\nmode: all\nhidden: true\n---\nx"),
    ]);
    let catalog = Catalog::load(workspace.path());
    for name in ["front", "quiet", "nobody"] {
        let refused =
            catalog.spawn_target(name).map(|manifest| manifest.name.clone()).map_err(|error| error.to_string());
        let says = format!("there is no agent `{name}` that can be started here; use one of: explore, general");
        assert_eq!(refused, Err(says));
    }
    assert_eq!(catalog.spawn_target("explore").map(|manifest| &*manifest.name), Ok("explore"));
}
