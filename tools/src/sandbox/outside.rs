//! Resolves paths outside of the workspace. Links that sessions can create are not followed.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links followed for one path.
const MAX_LINKS: u32 = 40;

/// Directories to which sessions can write, as paths without links.
#[derive(Clone, Debug, Default)]
pub(super) struct Writable {
    /// The workspace of the session. Paths that lead through it are refused.
    pub(super) workspace: PathBuf,
    /// Workspaces of other sessions, in which no link is followed.
    pub(super) others: Vec<PathBuf>,
}

/// Returns the target of `path`. Returns `None` if the target is missing, or if the path leads through the workspace or through a link
/// in another one.
pub(super) fn resolve(path: &Path, writable: &Writable) -> Option<PathBuf> {
    if !cfg!(unix) {
        return path.canonicalize().ok();
    }
    let parts = |path: &Path| -> VecDeque<OsString> {
        let normal = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
        normal.map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut real, mut rest, mut links) = (PathBuf::from("/"), parts(path), 0);
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            real.pop();
            continue;
        }
        real.push(part);
        if real.starts_with(&writable.workspace) {
            return None;
        }
        if real.symlink_metadata().ok()?.is_symlink() {
            if writable.others.iter().any(|other| real.starts_with(other)) {
                return None;
            }
            links += 1;
            let target = real.read_link().ok().filter(|_| links <= MAX_LINKS)?;
            if target.is_absolute() {
                real = PathBuf::from("/");
            } else {
                real.pop();
            }
            let mut all = parts(&target);
            all.append(&mut rest);
            rest = all;
        }
    }
    Some(real)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn resolve_ignores_links_in_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        let workspace = at.join("w");
        create_dir_all(workspace.join("bin")).unwrap();
        write(at.join("private"), "").unwrap();
        symlink(at.join("private"), workspace.join("bin/x")).unwrap();
        symlink("w/bin/x", at.join("through")).unwrap();
        symlink("w/../private", at.join("up")).unwrap();
        symlink("private", at.join("sibling")).unwrap();
        symlink("circle", at.join("circle")).unwrap();
        let writable = Writable { workspace: workspace.clone(), others: Vec::new() };
        let found = |path: &str| resolve(&at.join(path), &writable);
        for path in ["w/bin/x", "w/bin", "through", "up", "circle", "gone"] {
            assert_eq!(found(path), None, "{path}");
        }
        for path in ["private", "sibling", "./sibling"] {
            assert_eq!(found(path), Some(at.join("private")), "{path}");
        }
        let writable = Writable { workspace: at.join("other"), others: vec![workspace] };
        let found = |path: &str| resolve(&at.join(path), &writable);
        assert_eq!(["w/bin/x", "through"].map(found), [None, None]);
        assert_eq!(["w/bin", "sibling"].map(found), ["w/bin", "private"].map(|path| Some(at.join(path))));
    }
}
