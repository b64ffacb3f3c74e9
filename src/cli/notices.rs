//! Warnings of commands on stderr, or in the log of `serve --log` if stderr has one: each of its lines is JSON.

use std::io::Write;

use anstream::adapter::strip_str;

/// Returns whether stderr is a log.
pub(crate) fn has_log() -> bool {
    tracing::dispatcher::has_been_set()
}

/// Returns the output for warnings. Each line is written as a whole.
pub(crate) fn notices() -> Box<dyn Write + Send> {
    if has_log() { Box::new(LogLines::default()) } else { Box::new(anstream::stderr()) }
}

/// Writes lines of text as warnings of the log, without colours.
#[derive(Default)]
struct LogLines {
    line: Vec<u8>,
}

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let text = String::from_utf8_lossy(&line);
                tracing::warn!("{}", strip_str(text.trim_end()));
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
