//! Modes of files: code that copies the mode of another file must mask it, so that it copies no setuid bit.

use super::source;

/// Calls whose mode another line masks, each with its file.
const MASKED: [(&str, &str); 4] = [
    // The line before masks the mode.
    ("tools/src/workspace/state.rs", "file.set_permissions(permissions)"),
    // Compiled only on systems without modes.
    ("tools/src/workspace/mode.rs", "file.set_permissions(self.permissions.clone())"),
    ("journal/src/owner_only.rs", "fs::set_permissions(path, own)?;"),
    // Compiled only on systems without modes.
    ("src/cli/written_file.rs", "file.set_permissions(before.permissions())"),
];

/// Returns the lines of a file's product code that set a mode that may have more bits than 0777.
fn unmasked<'a>(path: &str, text: &'a str) -> Vec<&'a str> {
    let end = ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| text.find(mark)).min().unwrap_or(text.len());
    let product = text.get(..end).unwrap_or_default();
    let calls = product.lines().map(str::trim).filter(|line| line.contains("set_permissions("));
    calls.filter(|line| !is_masked(line) && !MASKED.contains(&(path, line))).collect()
}

fn is_masked(line: &str) -> bool {
    let given = line.split_once("from_mode(").and_then(|(_, given)| given.split_once(')'));
    let is_literal = |given: &str| given.len() == "0o777".len() && given.starts_with("0o");
    line.contains("& 0o777)") || given.is_some_and(|(given, _)| is_literal(given))
}

#[test]
fn mode_of_another_file_is_masked() {
    let is_product = |path: &str| path.contains("src/") && !path.contains("tests");
    let files = source::files();
    let found: Vec<(&str, &str)> = files
        .iter()
        .filter(|(path, _)| is_product(path))
        .flat_map(|(path, text)| unmasked(path, text).into_iter().map(move |line| (&**path, line)))
        .collect();
    assert_eq!(found, [], "mask the mode (`& 0o777`), or list the line with what masks it");
    for (path, line) in MASKED {
        let text = files.iter().find(|(file, _)| file == path).map(|(_, text)| text);
        assert!(text.is_some_and(|text| text.contains(line)), "{path} has no line {line}");
    }
}

#[test]
fn unmasked_mode_is_found() {
    let text = "file.set_permissions(found.permissions())\nset_permissions(path, Permissions::from_mode(found.mode()))\n\
        set_permissions(path, Permissions::from_mode(found.mode() & 0o777))\n#[cfg(test)]\nset_permissions(path, mode)";
    assert_eq!(unmasked("a.rs", text), text.lines().take(2).collect::<Vec<_>>());
}
