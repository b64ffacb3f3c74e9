//! Files in such numbers, or with such names, that they must not be taken.

use std::collections::BTreeSet;

use super::*;
use crate::worktree::changes::MAX_FILES;
use crate::worktree::git::split_paths;

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

/// A path takes many times as much memory in a set as in the output of git. The control: a list of the maximum length.
#[test]
fn x14_list_of_git_is_counted_before_it_is_built() {
    let set = |paths: &[&[u8]]| paths.iter().map(|path| path.to_vec()).collect::<BTreeSet<_>>();
    let list = b"a\0b\0b\0c\0d\0";
    assert_eq!(split_paths(list, 2), (set(&[b"a", b"b"]), 4));
    assert_eq!(split_paths(list, 4), (set(&[b"a", b"b", b"c", b"d"]), 4));
    assert_eq!(split_paths(b"", 4), (set(&[]), 0));
}

/// A file system that ignores case or invisible characters opens such a file as one that configures agents. The control: other names.
#[test]
fn x14_spellings_of_agent_configuration_are_not_merged() {
    for path in [
        ".Subtend/agents/a.md",
        "SUBTEND.YAML",
        "\u{17f}ubtend.yaml",
        ".MCP.json",
        ".sub\u{ad}tend/agents/a.md",
        "subtend.yaml\u{200b}",
        ".claude./settings.json",
    ] {
        let scene = Repository::new();
        let at = scene.open();
        put(&at.join(path), "x\n");
        put(&at.join("sub/Subtend.yaml"), "x\n");
        let refused = scene.merge().unwrap_err().to_string();
        assert!(refused.contains(&format!("`{}` configures agents", on_one_line(path))), "{refused}");
        assert_eq!(scene.git(&["status", "--porcelain"]), "");
        fs::remove_file(at.join(path)).unwrap();
        assert_eq!(scene.merge().unwrap().files, ["sub/Subtend.yaml"]);
    }
}
