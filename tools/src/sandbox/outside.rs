//! Resolves paths outside of the workspace. Links in the workspace are not followed, because sessions can create them.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links followed for one path.
const MAX_LINKS: u32 = 40;

/// Returns the target of `path`. Returns `None` if the target is missing, or if the path leads through `workspace`. The path
/// `workspace` must not contain links.
pub(super) fn resolve(path: &Path, workspace: &Path) -> Option<PathBuf> {
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
        if real.starts_with(workspace) {
            return None;
        }
        if real.symlink_metadata().ok()?.is_symlink() {
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
        let found = |path: &str| resolve(&at.join(path), &workspace);
        for path in ["w/bin/x", "w/bin", "through", "up", "circle", "gone"] {
            assert_eq!(found(path), None, "{path}");
        }
        for path in ["private", "sibling", "./sibling"] {
            assert_eq!(found(path), Some(at.join("private")), "{path}");
        }
    }
}
