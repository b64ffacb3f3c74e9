//! Untrusted text in a question: each row of the terminal begins with a mark, so that no row can imitate the question.

use super::super::paint::exact;

/// Columns of a mark, and one that stays free.
const MARK: usize = 3;

/// Returns the columns of the terminal that asks; `None` without one.
pub(crate) fn columns() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stderr()).map(|(columns, _)| usize::from(columns.0))
}

/// Returns each line behind a mark, with every character in it visible. What a row does not hold is behind another mark: a terminal would begin
/// its next row with text of others.
pub(crate) fn framed(text: &str, columns: Option<usize>) -> String {
    exact(text).split('\n').flat_map(|line| rows(line, columns)).collect::<Vec<_>>().join("\n")
}

fn rows(line: &str, columns: Option<usize>) -> Vec<String> {
    let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(MARK).max(MARK));
    let (mut rows, mut row, mut used) = (Vec::new(), "| ".to_owned(), 0_usize);
    for c in line.chars() {
        let width = match c {
            '\t' => 8,
            c if c.is_ascii() => 1,
            // Terminals differ; none has more.
            _ => 2,
        };
        if used > 0 && used.saturating_add(width) > room {
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
    fn each_row_of_a_terminal_has_a_mark() {
        let fake = format!("rm x #{}general asks for shell.run on git status (shell)", " ".repeat(76));
        let wide = "\u{6f22}".repeat(100);
        let tabs = "a\tb".repeat(30);
        let attacks: [&str; 4] = [&fake, &wide, &tabs, &"\u{2460}".repeat(100)];
        for attack in attacks {
            let shown = framed(&format!("{attack}\n{attack}"), Some(80));
            for row in shown.split('\n') {
                let columns: usize =
                    row.chars().map(|c| if c == '\t' { 8 } else { 1 + usize::from(!c.is_ascii()) }).sum();
                assert!((row.starts_with("| ") || row.starts_with("+ ")) && columns < 80, "{row:?}");
            }
            let whole = shown.replace("\n+ ", "");
            assert_eq!(whole, format!("| {attack}\n| {attack}"));
        }
        // The control: without a terminal a line is a line.
        assert_eq!(framed(&fake, None), format!("| {fake}"));
        assert_eq!(framed("a\n\nb", Some(0)), "| a\n| \n| b");
    }
}
