//! Creates directories and files of the host that other users cannot enter or read.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Creates a directory with its missing parents, if it is missing.
///
/// # Errors
/// If `dir` is a link or a file. Links in the path to `dir` are followed, because a user may keep the parent directory elsewhere.
pub(crate) fn create_dir(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let created = builder.create(dir);
    // `create_dir` also succeeds here for a link to a directory, so the type is checked.
    match dir.symlink_metadata() {
        Ok(found) if !found.is_dir() => {
            Err(io::Error::other(format!("{} is a link or a file, not a directory: remove it", dir.display())))
        }
        Ok(_) | Err(_) => created,
    }
}

/// Creates an empty file at `path` and replaces an existing entry. A link is replaced, not followed.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn link_in_place_of_a_private_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (outside, link) = (dir.path().join("outside"), dir.path().join("link"));
        for target in [&outside, &dir.path().join("missing")] {
            fs::create_dir_all(&outside).unwrap();
            symlink(target, &link).unwrap();
            let error = create_dir(&link).unwrap_err().to_string();
            assert_eq!(error, format!("{} is a link or a file, not a directory: remove it", link.display()));
            fs::remove_file(&link).unwrap();
        }
        // The control: a link in the path to the directory is followed, and the new directory is private.
        symlink(&outside, &link).unwrap();
        create_dir(&link.join("a/b")).unwrap();
        let modes = ["a", "a/b"].map(|path| fs::metadata(outside.join(path)).unwrap().permissions().mode() & 0o777);
        assert_eq!(modes, [0o700; 2]);
        create_dir(&link.join("a/b")).unwrap();
    }

    #[test]
    fn link_in_place_of_a_private_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, file) = (dir.path().join("victim"), dir.path().join("file"));
        fs::write(&victim, "kept").unwrap();
        symlink(&victim, &file).unwrap();
        io::Write::write_all(&mut create_file(&file).unwrap(), b"new").unwrap();
        assert_eq!(["victim", "file"].map(|name| fs::read_to_string(dir.path().join(name)).unwrap()), ["kept", "new"]);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
