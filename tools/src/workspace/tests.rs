use super::*;

#[test]
fn workspace_must_be_an_existing_directory() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let refused = |name: &str| Workspace::open(dir.path().join(name)).unwrap_err();
    assert!(matches!(refused("none"), WorkspaceError::Missing { .. }));
    assert!(matches!(refused("file"), WorkspaceError::NotADirectory { .. }));
    assert_eq!(
        refused("none").to_string(),
        format!(
            "the workspace `{}` does not exist: create it, or name another directory",
            dir.path().join("none").display()
        )
    );
}

#[cfg(unix)]
#[test]
fn workspace_without_list_permission_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    // Permissions do not restrict the superuser.
    if rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o300)).unwrap();
    let opened = Workspace::open(dir.path());
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(matches!(opened.unwrap_err(), WorkspaceError::Unreadable { .. }));
}

#[test]
fn path_replaced_while_it_is_resolved_is_resolved_again() {
    let answers = ["sub/c (deleted)", "sub/c (deleted)", "sub/c"];
    let mut next = answers.iter();
    let found = resolve_path(|| Ok(PathBuf::from(next.next().unwrap())), |path| path != Path::new("sub/c"));
    assert_eq!(found.unwrap(), PathBuf::from("sub/c"));
    // A file whose real name has this ending, and a file that is removed at each attempt.
    assert_eq!(resolve_path(|| Ok("b (deleted)".into()), |_| false).unwrap(), PathBuf::from("b (deleted)"));
    let gone = resolve_path(|| Ok("b (deleted)".into()), |_| true);
    assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::NotFound);
}
