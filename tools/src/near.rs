//! Suggestions for misspelled tool names.

const MAX_SUGGESTED: usize = 3;
const MAX_LISTED: usize = 64;

/// Returns the error for a tool that the model cannot call.
pub(crate) fn message(requested: &str, known: bool, offered: &[&str]) -> String {
    let requested_shown = crate::bounded::shorten(requested, 100);
    let mut message = if known {
        format!("the tool `{requested_shown}` is not available in this session.")
    } else {
        format!("no tool is named `{requested_shown}`.")
    };
    let near = similar_names(requested, offered);
    if !near.is_empty() {
        message.push_str(&format!(" Did you mean {}?", quoted(&near, " or ")));
    }
    match offered.len() {
        0 => message.push_str(" No tools are available: answer in text."),
        _ => message.push_str(&format!(" Available: {}.", list_names(offered))),
    }
    message
}

pub(crate) fn similar_names<'a>(requested: &str, offered: &[&'a str]) -> Vec<&'a str> {
    let requested = fold_name(requested);
    if requested.is_empty() || requested.len() > 100 {
        return Vec::new();
    }
    let mut ranked: Vec<(usize, &str)> =
        offered.iter().filter_map(|name| Some((rank(&requested, name)?, *name))).collect();
    ranked.sort_unstable();
    ranked.into_iter().take(MAX_SUGGESTED).map(|(_, name)| name).collect()
}

pub(crate) fn list_names(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().take(MAX_LISTED).copied().collect();
    let more = names.len().saturating_sub(shown.len());
    let list = shown.join(", ");
    if more == 0 { list } else { format!("{list} and {more} more") }
}

fn quoted(names: &[&str], between: &str) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(between)
}

fn fold_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns the distance of a name, or `None` if it is unrelated.
fn rank(requested: &str, name: &str) -> Option<usize> {
    let name = fold_name(name);
    let difference = requested.len().abs_diff(name.len());
    // A name that contains the other, such as `read_file` for `read`, is a likely mistake at any distance.
    if name.len() >= 3 && requested.len() >= 3 && (requested.contains(&name) || name.contains(requested)) {
        return Some(difference.min(2));
    }
    let max_distance = requested.len().max(name.len()).div_ceil(3).min(3);
    // Compared only if near: the time grows with the product of both lengths.
    let distance = (difference <= max_distance).then(|| strsim::levenshtein(requested, &name))?;
    (distance <= max_distance).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOLS: [&str; 6] = ["list", "read", "search", "write", "edit", "shell"];

    #[test]
    fn misspelled_name_suggests_its_tool() {
        let first = |requested| similar_names(requested, &TOOLS).first().copied();
        assert_eq!(
            ["Read", "read_file", "serach", "ls", "writeFile", "weather_forecast", ""].map(first),
            [Some("read"), Some("read"), Some("search"), Some("list"), Some("write"), None, None]
        );
    }

    /// The control: names of nearly the same length are compared.
    #[test]
    fn names_of_very_different_lengths_are_not_compared() {
        assert_eq!(rank(&format!("a{}", "x".repeat(50)), &"x".repeat(48)), Some(2));
        assert_eq!(rank(&format!("a{}c", "x".repeat(50)), &format!("b{}d", "x".repeat(50))), Some(2));
        assert_eq!(rank(&"a".repeat(300_000), &"b".repeat(600_000)), None);
    }

    #[test]
    fn message_names_near_and_existing_names() {
        assert_eq!(
            message("red", false, &TOOLS),
            "no tool is named `red`. Did you mean `read`? Available: list, read, search, write, edit, shell."
        );
        assert_eq!(
            message("shell", true, &["read"]),
            "the tool `shell` is not available in this session. Available: read."
        );
        assert_eq!(message("x", false, &[]), "no tool is named `x`. No tools are available: answer in text.");
    }
}
