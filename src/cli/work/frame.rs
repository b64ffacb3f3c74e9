//! Frames untrusted text in a question: each row begins with a mark, so that the text cannot imitate the question.

use std::fmt::{self, Write as _};

use subtend_session::ids::Hash;

use super::super::paint::exact_pieces;

/// Width of a mark, plus one free column.
const MARK_WIDTH: usize = 3;

/// Maximum size in bytes of a shown text, after its characters are made visible.
pub(crate) const MAX_SHOWN: usize = 4 << 20;

/// Numbers of rows and bytes after which the first line of a question may have left the terminal. The last lines then
/// repeat it.
const LONG_ROWS: usize = 20;
const LONG_BYTES: usize = 2 << 10;

pub(crate) fn is_long(shown: &str) -> bool {
    shown.len() > LONG_BYTES || shown.split('\n').nth(LONG_ROWS).is_some()
}

/// Returns the width of the terminal on stderr; `None` without a terminal.
pub(crate) fn columns() -> Option<usize> {
    terminal_size::terminal_size_of(std::io::stderr()).map(|(columns, _)| usize::from(columns.0))
}

/// Puts a mark before each line, and makes every character visible. Splits a long line into several marked rows,
/// because the terminal would wrap it into a row that begins with untrusted text. The line that names the size and hash of a text
/// that is too long to show has no mark, so that no text can imitate it.
pub(crate) fn frame_text(text: &str, columns: Option<usize>) -> String {
    let width_left = columns.map_or(usize::MAX, |columns| columns.saturating_sub(MARK_WIDTH).max(MARK_WIDTH));
    bounded(text, FramedRows { out: "| ".to_owned(), used: 0, mark: "| ", width_left })
}

/// Returns the text with every character visible, and without marks.
pub(crate) fn shown_text(text: &str) -> String {
    bounded(text, FramedRows { out: String::new(), used: 0, mark: "", width_left: usize::MAX })
}

fn bounded(text: &str, mut rows: FramedRows) -> String {
    if write!(rows, "{}", exact_pieces(text)).is_err() {
        let (bytes, hash) = (text.len(), Hash::of(text.as_bytes()));
        rows.out.push_str(&format!(
            "\n[the rest is too long to show: the text has {bytes} bytes, hash {hash}. `subtend show --full` prints all of it]"
        ));
    }
    rows.out
}

/// Marked rows of at most [`MAX_SHOWN`] bytes: writing more fails, so that the rest is not built.
struct FramedRows {
    out: String,
    /// Used columns of the last row.
    used: usize,
    mark: &'static str,
    width_left: usize,
}

impl fmt::Write for FramedRows {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        for c in piece.chars() {
            if self.out.len() >= MAX_SHOWN {
                return Err(fmt::Error);
            }
            let width = match c {
                '\n' => {
                    self.out.push('\n');
                    self.out.push_str(self.mark);
                    self.used = 0;
                    continue;
                }
                '\t' => 8,
                c if c.is_ascii() => 1,
                // Terminals differ, but use at most two columns for a character.
                _ => 2,
            };
            if self.used > 0 && self.used.saturating_add(width) > self.width_left {
                self.out.push_str("\n+ ");
                self.used = 0;
            }
            self.out.push(c);
            self.used = self.used.saturating_add(width);
        }
        Ok(())
    }
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
