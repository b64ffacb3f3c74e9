//! Warnings of commands: on stderr, or with `serve --log` as entries of the log.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::adapter::strip_str;

static HAS_LOG: AtomicBool = AtomicBool::new(false);

/// Returns whether stderr carries a log.
pub(crate) fn has_log() -> bool {
    HAS_LOG.load(Ordering::Relaxed)
}

/// Makes warnings entries of the log from now on.
pub(crate) fn use_log() {
    HAS_LOG.store(true, Ordering::Relaxed);
}

/// Returns the output for warnings, which writes whole lines.
pub(crate) fn notices() -> Box<dyn Write + Send> {
    if has_log() { Box::new(LogLines::default()) } else { Box::new(anstream::stderr()) }
}

/// Writes each line of text as a warning of the log, without colours.
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
