//! Frames untrusted text in a question: each row begins with a mark, so that the text cannot imitate the question.

use super::super::paint::exact;

/// Width of a mark, plus one free column.
const MARK_WIDTH: usize = 3;

/// Returns the width of the terminal on stderr; `None` without a terminal.
pub(crate) fn columns() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stderr()).map(|(columns, _)| usize::from(columns.0))
}

/// Puts a mark before each line, and makes every character visible. Splits a long line into several marked rows,
/// because the terminal would wrap it into a row that begins with untrusted text.
pub(crate) fn frame_text(text: &str, columns: Option<usize>) -> String {
    exact(text).split('\n').flat_map(|line| rows(line, columns)).collect::<Vec<_>>().join("\n")
}

fn rows(line: &str, columns: Option<usize>) -> Vec<String> {
    let width_left = columns.map_or(usize::MAX, |columns| columns.saturating_sub(MARK_WIDTH).max(MARK_WIDTH));
    let (mut rows, mut row, mut used) = (Vec::new(), "| ".to_owned(), 0_usize);
    for c in line.chars() {
        let width = match c {
            '\t' => 8,
            c if c.is_ascii() => 1,
            // Terminals differ, but use at most two columns for a character.
            _ => 2,
        };
        if used > 0 && used.saturating_add(width) > width_left {
            rows.push(std::mem::replace(&mut row, "+ ".to_owned()));
            used = 0;
        }
        row.push(c);
        used = used.saturating_add(width);
    }
    rows.push(row);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_terminal_row_begins_with_a_mark() {
        let fake = format!("rm x #{}general asks for shell.run on git status (shell)", " ".repeat(76));
        let wide = "\u{6f22}".repeat(100);
        let tabs = "a\tb".repeat(30);
        let attacks: [&str; 4] = [&fake, &wide, &tabs, &"\u{2460}".repeat(100)];
        for attack in attacks {
            let shown = frame_text(&format!("{attack}\n{attack}"), Some(80));
            for row in shown.split('\n') {
                let columns: usize =
                    row.chars().map(|c| if c == '\t' { 8 } else { 1 + usize::from(!c.is_ascii()) }).sum();
                assert!((row.starts_with("| ") || row.starts_with("+ ")) && columns < 80, "{row:?}");
            }
            let whole = shown.replace("\n+ ", "");
            assert_eq!(whole, format!("| {attack}\n| {attack}"));
        }
        // Positive control: without a terminal, lines are not split.
        assert_eq!(frame_text(&fake, None), format!("| {fake}"));
        assert_eq!(frame_text("a\n\nb", Some(0)), "| a\n| \n| b");
    }
}
