//! Files in such numbers, or with such names, that they must not be taken.

use super::*;
use crate::worktree::changes::MAX_FILES;

/// Git adds the files after each run, and its work grows with their number. The control: as many ignored files.
#[test]
fn x14_too_many_changed_files_are_refused() {
    let scene = Repository::new();
    let at = scene.open();
    fs::create_dir(at.join("d")).unwrap();
    (0..=MAX_FILES).for_each(|n| drop(fs::File::create(at.join(format!("d/{n}"))).unwrap()));
    let refused = scene.worktrees.changes(id(SESSION)).unwrap_err().to_string();
    let expected = format!("the changes are incomplete: {} files were changed in ", MAX_FILES + 1);
    assert!(refused.starts_with(&expected) && refused.ends_with("name them in a `.gitignore`"), "{refused}");
    put(&at.join(".gitignore"), "d\n");
    let changes = scene.worktrees.changes(id(SESSION)).unwrap();
    let files: Vec<&str> = changes.files.iter().map(|file| &*file.path).collect();
    assert_eq!((files, changes.ignored), (vec![".gitignore"], vec!["d/".to_owned()]));
}

/// A file system that ignores case opens such a file as one that configures agents. The control: other names.
#[test]
fn x14_spellings_of_agent_configuration_are_not_merged() {
    for path in [".Subtend/agents/a.md", "SUBTEND.YAML", "\u{17f}ubtend.yaml", ".MCP.json"] {
        let scene = Repository::new();
        let at = scene.open();
        put(&at.join(path), "x\n");
        put(&at.join("sub/Subtend.yaml"), "x\n");
        let refused = scene.merge().unwrap_err().to_string();
        assert!(refused.contains(&format!("`{path}` configures agents")), "{refused}");
        assert_eq!(scene.git(&["status", "--porcelain"]), "");
        fs::remove_file(at.join(path)).unwrap();
        assert_eq!(scene.merge().unwrap().files, ["sub/Subtend.yaml"]);
    }
}
