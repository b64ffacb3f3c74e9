use std::fs;

use tempfile::TempDir;

use super::super::ProblemKind;
use super::*;

fn workspace(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        put(dir.path(), path, text);
    }
    dir
}

fn put(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn claude(name: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: d\n---\n{body}\n")
}

fn codex(name: &str, body: &str) -> String {
    format!("name = \"{name}\"\ndescription = \"d\"\ndeveloper_instructions = \"{body}\"\n")
}

fn body(catalog: &Catalog, name: &str) -> Option<String> {
    catalog.get(name).map(|agent| agent.body.trim().to_owned())
}

fn problems(catalog: &Catalog, dir: &Path) -> Vec<(String, ProblemKind, String)> {
    let below = |path: &Path| path.strip_prefix(dir).unwrap_or(path).display().to_string();
    let root = format!("{}/", dir.display());
    let relative = |message: &str| message.replace(&root, "");
    let describe =
        |problem: &super::super::AgentProblem| (below(&problem.path), problem.kind, relative(&problem.message));
    catalog.problems().iter().map(describe).collect()
}

#[test]
fn agents_of_all_products_are_loaded_with_their_source() {
    let dir = workspace(&[
        (".claude/agents/deep/er/a.md", &claude("a", "A.")),
        (".opencode/agent/b.md", "B.\n"),
        (".opencode/agents/team/c.md", "C.\n"),
        (".codex/agents/d.toml", &codex("d", "D.")),
        (".codex/agents/notes.md", "No agent.\n"),
        (".claude/agents/notes.txt", "No agent.\n"),
    ]);
    let catalog = Catalog::load(dir.path());
    let found = ["a", "b", "team-c", "d"].map(|name| catalog.get(name).map(|agent| agent.source.clone()));
    let at = |product, path: &str| Some(Source::Foreign(product, dir.path().join(path)));
    assert_eq!(
        found,
        [
            at(Product::Claude, ".claude/agents/deep/er/a.md"),
            at(Product::OpenCode, ".opencode/agent/b.md"),
            at(Product::OpenCode, ".opencode/agents/team/c.md"),
            at(Product::Codex, ".codex/agents/d.toml"),
        ]
    );
    let renamed = "`team/c` is called `team-c` here".to_owned();
    let expected = [(".opencode/agents/team/c.md".to_owned(), ProblemKind::Warning, renamed)];
    assert_eq!(problems(&catalog, dir.path()), expected);
}

#[test]
fn first_file_of_a_name_wins_in_the_order_of_products() {
    let files = [
        (".subtend/agents/x.md", "---\nmode: all\n---\nNative.\n".to_owned(), "Native."),
        (".claude/agents/x.md", claude("x", "Claude."), "Claude."),
        (".opencode/agent/x.md", "Open.\n".to_owned(), "Open."),
        (".codex/agents/x.toml", codex("x", "Codex."), "Codex."),
    ];
    let home = workspace(&[("agents/x.md", &claude("x", "Own."))]);
    for first in 0..=files.len() {
        let dir = workspace(&[]);
        files.iter().skip(first).for_each(|(path, text, _)| put(dir.path(), path, text));
        let mut catalog = Catalog::load(dir.path());
        catalog.add_own(Product::Claude, home.path(), dir.path());
        let expected = files.get(first).map_or("Own.", |(.., body)| body);
        assert_eq!(body(&catalog, "x").as_deref(), Some(expected));
        assert_eq!(catalog.problems().len(), files.len() - first, "the others are refused with their reason");
    }
}

#[test]
fn bad_file_blocks_its_name_but_no_other_agent() {
    let dir = workspace(&[
        (".claude/agents/bad.md", "---\nname: x\ndescription: d\ntools: 7\n---\nBad.\n"),
        (".claude/agents/README.md", "# Our agents\n"),
        (".claude/agents/good.md", &claude("good", "Good.")),
        (".claude/agents/twin.md", &claude("good", "Twin.")),
        (".opencode/agent/x.md", "Wider.\n"),
        (".opencode/agent/explore.md", "---\nmode: boss\n---\nExplore.\n"),
        (".opencode/agent/title.md", "Title.\n"),
        (".opencode/agent/plan.md", "Plan.\n"),
        (".codex/agents/broken.toml", "name = \n"),
        (".codex/agents/sound.toml", &codex("sound", "Sound.")),
    ]);
    let catalog = Catalog::load(dir.path());
    let bodies = ["good", "sound", "x", "explore"].map(|name| body(&catalog, name));
    assert_eq!(bodies, [Some("Good.".into()), Some("Sound.".into()), None, None]);
    assert_ne!(body(&catalog, "title"), Some("Title.".into()));
    assert_eq!(body(&catalog, "plan"), Some("Plan.".into()));
    let refused = |path: &str, message: &str| (path.to_owned(), ProblemKind::Refused, message.to_owned());
    assert_eq!(
        problems(&catalog, dir.path()),
        [
            refused(
                ".claude/agents/README.md",
                "`name` is missing: Claude Code treats such a file as documentation, not as an agent"
            ),
            refused(".claude/agents/bad.md", "`tools` must be a list of names, not 7"),
            refused(".claude/agents/twin.md", "not used: `good` is already defined in .claude/agents/good.md"),
            refused(
                ".codex/agents/broken.toml",
                "is not valid TOML: line 1: string values must be quoted, expected literal string"
            ),
            refused(
                ".opencode/agent/explore.md",
                "`mode` must be primary, subagent or all, not \"boss\" (and the built-in agent `explore`, which the file would replace, is not used)"
            ),
            (".opencode/agent/plan.md".into(), ProblemKind::Warning, "replaces the built-in agent `plan`".into()),
            refused(
                ".opencode/agent/title.md",
                "not used: `title` is an agent that the host itself starts: rename yours"
            ),
            refused(".opencode/agent/x.md", "not used: another file of the agent `x`, which comes first, is refused"),
        ]
    );
}

/// A later file might have more rights.
#[cfg(unix)]
#[test]
fn special_file_in_place_of_an_agent_is_refused() {
    let dir = workspace(&[(".claude/agents/good.md", &claude("good", "Good.")), (".opencode/agent/x.md", "Wider.\n")]);
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join(".claude/agents/x.md")).unwrap();
    let catalog = Catalog::load(dir.path());
    assert_eq!(["good", "x"].map(|name| body(&catalog, name)), [Some("Good.".into()), None]);
    let refused = |path: &str, message: &str| (path.to_owned(), ProblemKind::Refused, message.to_owned());
    assert_eq!(
        problems(&catalog, dir.path()),
        [
            refused(".claude/agents/x.md", "is not a regular file: replace it with one"),
            refused(".opencode/agent/x.md", "not used: another file of the agent `x`, which comes first, is refused"),
        ]
    );
}

#[cfg(unix)]
#[test]
fn symbolic_links_in_a_workspace_load_no_agent() {
    use std::os::unix::fs::symlink;
    let outside = workspace(&[("agents/x.md", &claude("x", "X.")), ("y.md", &claude("y", "Y."))]);
    let dir = workspace(&[(".opencode/agent/z.md", "Z.\n")]);
    symlink(outside.path(), dir.path().join(".claude")).unwrap();
    symlink(outside.path().join("y.md"), dir.path().join(".opencode/agent/y.md")).unwrap();
    symlink(outside.path().join("agents"), dir.path().join(".opencode/agents")).unwrap();
    let catalog = Catalog::load(dir.path());
    assert_eq!(["x", "y", "z"].map(|name| body(&catalog, name)), [None, None, Some("Z.".into())]);
    let paths: Vec<_> = problems(&catalog, dir.path()).into_iter().map(|(path, kind, _)| (path, kind)).collect();
    let refused = |path: &str| (path.to_owned(), ProblemKind::Refused);
    assert_eq!(paths, [refused(".claude"), refused(".opencode/agent/y.md"), refused(".opencode/agents")]);
}

#[test]
fn own_agents_are_not_loaded_from_the_workspace() {
    let dir = workspace(&[("home/agents/x.md", &claude("x", "X."))]);
    let mut catalog = Catalog::builtin();
    catalog.add_own(Product::Claude, &dir.path().join("home"), dir.path());
    assert_eq!(body(&catalog, "x"), None);
    assert_eq!(catalog.problems().len(), 1);
    // The control: for another workspace, the folder holds the user's own agents.
    let other = workspace(&[]);
    let mut catalog = Catalog::builtin();
    catalog.add_own(Product::Claude, &dir.path().join("home"), other.path());
    assert_eq!((body(&catalog, "x"), catalog.problems().len()), (Some("X.".into()), 0));
}
