//! Workspace paths and their normal form.

use subtend_session::ids::Text;

use crate::result::ToolError;

const MAX_PATH: usize = 4096;

/// Returns the normal form of a workspace path: parts joined with `/`, `.` for the workspace itself.
///
/// # Errors
/// If the path is absolute, contains `..` or NUL, or is too long: no such path is ever opened.
pub fn resource(path: &str) -> Result<Text, ToolError> {
    if path.len() > MAX_PATH {
        let length = path.len();
        return Err(ToolError::bad_args(format!(
            "the path has {length} bytes; {MAX_PATH} is the most a path may have"
        )));
    }
    if path.contains('\0') {
        return Err(ToolError::bad_args(format!("the path {path:?} holds a NUL, which no file name can")));
    }
    if path.starts_with('/') {
        return Err(ToolError::refused(format!(
            "`{path}` is absolute; paths are relative to the workspace: `.` is the workspace itself, `src/main.rs` a file in it"
        )));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(ToolError::refused(format!(
            "`{path}` holds `..`; paths start at the workspace and cannot leave it: write the path from there"
        )));
    }
    let mut parts = path.split('/').filter(|part| !matches!(*part, "" | ".")).peekable();
    if parts.peek().is_none() {
        return Ok(".".into());
    }
    Ok(parts.collect::<Vec<_>>().join("/").into())
}

pub(crate) fn join(dir: &str, name: &str) -> String {
    if dir == "." { name.into() } else { format!("{dir}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_normal_form() {
        let normal = |path| resource(path).unwrap().to_string();
        assert_eq!(
            ["", ".", "./", "a", "./a//b/", "a/./b", "...", "a b", "ä/\u{1f980}", "~"].map(normal),
            [".", ".", ".", "a", "a/b", "a/b", "...", "a b", "ä/\u{1f980}", "~"]
        );
    }

    #[test]
    fn paths_that_lead_out_or_name_nothing_are_refused_in_words() {
        let refused = |path| resource(path).unwrap_err();
        for path in ["..", "../a", "a/..", "a/../b", "a/../../etc/passwd"] {
            assert!(refused(path).message.contains("holds `..`"), "{path}");
        }
        assert!(refused("/etc/passwd").message.contains("is absolute"));
        assert_eq!(refused("a\0b").message, "the path \"a\\0b\" holds a NUL, which no file name can");
        assert_eq!(refused(&"a/".repeat(3000)).message, "the path has 6000 bytes; 4096 is the most a path may have");
    }
}
