//! Normalizes workspace paths.

use subtend_session::authority::Authority;
use subtend_session::ids::Text;

use crate::result::ToolError;

const MAX_PATH: usize = 4096;

/// Returns the normal form of a workspace path: parts joined with `/`, `.` for the workspace itself.
///
/// # Errors
/// If the path is absolute, contains `..` or NUL, or is too long. Such paths are never opened.
pub fn resource(path: &str) -> Result<Text, ToolError> {
    if path.len() > MAX_PATH {
        let length = path.len();
        return Err(ToolError::bad_args(format!("the path has {length} bytes; the limit is {MAX_PATH}")));
    }
    if path.contains('\0') {
        return Err(ToolError::bad_args(format!("the path {path:?} contains NUL, which is invalid in file names")));
    }
    if path.starts_with('/') {
        return Err(ToolError::refused(format!(
            "`{path}` is absolute; paths are relative to the workspace: `.` is the workspace itself, `src/main.rs` a file in it"
        )));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(ToolError::refused(format!(
            "`{path}` contains `..`; paths are relative to the workspace and cannot leave it: write a path relative to the workspace"
        )));
    }
    let mut parts = path.split('/').filter(|part| !matches!(*part, "" | ".")).peekable();
    if parts.peek().is_none() {
        return Ok(".".into());
    }
    let parts: Vec<&str> = parts.collect();
    let (count, limit) = (parts.len(), Authority::MAX_PATH_PARTS);
    if count > limit {
        return Err(ToolError::bad_args(format!("the path has {count} parts between `/`; the limit is {limit}")));
    }
    Ok(parts.join("/").into())
}

pub(crate) fn join(dir: &str, name: &str) -> String {
    if dir == "." { name.into() } else { format!("{dir}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_paths_have_one_normal_form() {
        let normal = |path| resource(path).unwrap().to_string();
        assert_eq!(
            ["", ".", "./", "a", "./a//b/", "a/./b", "...", "a b", "ä/\u{1f980}", "~"].map(normal),
            [".", ".", ".", "a", "a/b", "a/b", "...", "a b", "ä/\u{1f980}", "~"]
        );
    }

    #[test]
    fn invalid_path_error_names_the_cause() {
        let refused = |path| resource(path).unwrap_err();
        for path in ["..", "../a", "a/..", "a/../b", "a/../../etc/passwd"] {
            assert!(refused(path).message.contains("contains `..`"), "{path}");
        }
        assert!(refused("/etc/passwd").message.contains("is absolute"));
        assert_eq!(refused("a\0b").message, "the path \"a\\0b\" contains NUL, which is invalid in file names");
        assert_eq!(
            resource(&"a/".repeat(257)).unwrap_err().message,
            "the path has 257 parts between `/`; the limit is 256"
        );
        assert_eq!(resource(&"a/".repeat(256)).unwrap().len(), 511);
        assert_eq!(refused(&"a/".repeat(3000)).message, "the path has 6000 bytes; the limit is 4096");
    }
}
