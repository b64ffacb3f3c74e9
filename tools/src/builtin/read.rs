//! `read`: returns lines of one file.

use std::io::{BufRead, BufReader};
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use subtend_session::call::ToolEffect;

use super::file_tool::{Builtin, Job};
use super::open;
use crate::bounded::{self, BoundedLines, count};
use crate::tool::{ToolError, ToolOutput};
use crate::workspace::failure;
use crate::workspace::names::READ;

/// Maximum bytes shown of one line.
const MAX_LINE: usize = 2000;
/// Maximum bytes read at a time. A cancel takes effect between reads.
const CHUNK_BYTES: u64 = 64 << 10;

pub(super) struct ReadTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadArgs {
    /// The path of the file in the workspace.
    path: String,
    /// The first line to show, from 1.
    #[serde(default = "first")]
    #[schemars(range(min = 1))]
    from_line: u64,
    /// The maximum number of lines to show.
    #[serde(default = "lines")]
    #[schemars(range(min = 1, max = 100_000))]
    lines: u64,
}

fn first() -> u64 {
    1
}

fn lines() -> u64 {
    400
}

impl Builtin for ReadTool {
    const NAME: &'static str = "read";
    const ABOUT: &'static str = "Read a text file of the workspace: its lines with their numbers, 400 at a time by \
        default, and their total number. The number and the tab before each line are not part of the file. Read a part \
        with from_line and lines; in a long file, find the place with search first.";
    const EFFECT: ToolEffect = ToolEffect::ReadOnly;
    const ACTIONS: &'static [&'static str] = &[READ];
    type Args = ReadArgs;

    fn path(args: &ReadArgs) -> &str {
        &args.path
    }

    /// A small file in memory is read in less time than a thread needs to wake up. Nothing is opened again: another file may be there now.
    fn run_at_once(args: &ReadArgs, path: &str, job: &Job) -> Option<Result<ToolOutput, ToolError>> {
        let bytes = job.may_read_all().then(|| job.workspace.read_cached(Path::new(path)))??;
        Some(show(args, (path, bounded::len(bytes.len())), job, &*bytes))
    }

    fn run(args: ReadArgs, path: &str, job: &mut Job) -> Result<ToolOutput, ToolError> {
        let real = job.real(Self::ACTIONS, path)?;
        let (file, size) = open::file(job, "read", path, &real)?;
        // A small buffer for small files, because many children may read at the same time.
        let chunk = usize::try_from(size.clamp(8 << 10, CHUNK_BYTES)).unwrap_or_default();
        show(&args, (path, size), job, BufReader::with_capacity(chunk, file))
    }
}

fn show(
    args: &ReadArgs,
    (path, size): (&str, u64),
    job: &Job,
    mut reader: impl BufRead,
) -> Result<ToolOutput, ToolError> {
    let mut page = LinePage::new(args, job.max_bytes);
    let mut start = true;
    loop {
        job.check_cancelled()?;
        let chunk = reader.fill_buf().map_err(|error| failure("read", path, &error))?;
        if std::mem::take(&mut start) && open::is_binary(chunk) {
            let size = count(size, "byte", "bytes");
            return Err(ToolError::refused(format!("`{path}` is binary ({size}), not text: it cannot be shown")));
        }
        if chunk.is_empty() {
            break;
        }
        page.chunk(chunk);
        let length = chunk.len();
        reader.consume(length);
    }
    page.finish(path, size)
}

struct LinePage {
    from: u64,
    to: u64,
    line: u64,
    kept: Vec<u8>,
    length: u64,
    out: BoundedLines,
    shown: u64,
    lossy: bool,
}

impl LinePage {
    fn new(args: &ReadArgs, max_bytes: u64) -> Self {
        let to = args.from_line.saturating_add(args.lines).saturating_sub(1);
        let out = BoundedLines::new(max_bytes);
        Self { from: args.from_line, to, line: 1, kept: Vec::new(), length: 0, out, shown: 0, lossy: false }
    }

    fn chunk(&mut self, chunk: &[u8]) {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                Some(_) | None => (piece, false),
            };
            if (self.from..=self.to).contains(&self.line) {
                let budget = MAX_LINE.saturating_add(4).saturating_sub(self.kept.len());
                self.kept.extend(text.iter().take(budget));
            }
            self.length = self.length.saturating_add(bounded::len(text.len()));
            if ended {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        if (self.from..=self.to).contains(&self.line) {
            let kept = String::from_utf8_lossy(&self.kept);
            self.lossy |= matches!(&kept, std::borrow::Cow::Owned(_)) && self.kept.len() <= MAX_LINE;
            let text = bounded::head(kept.trim_end_matches('\r'), MAX_LINE);
            let more = self.length.saturating_sub(bounded::len(text.len()));
            let cut = if more > 1 { format!("… ({more} more bytes)") } else { String::new() };
            if self.out.push_line(&format!("{:>6}\t{text}{cut}", self.line)) {
                self.shown = self.line;
            }
        }
        self.kept.clear();
        self.length = 0;
        self.line = self.line.saturating_add(1);
    }

    fn finish(mut self, path: &str, size: u64) -> Result<ToolOutput, ToolError> {
        if self.length > 0 {
            self.end_line();
        }
        let total = self.line.saturating_sub(1);
        if total == 0 && self.from == 1 {
            return Ok(ToolOutput::text(format!("[`{path}` is empty]")));
        }
        if self.from > total {
            let lines = count(total, "line", "lines");
            return Err(ToolError::bad_args(format!("`{path}` has {lines}: from_line {} is past its end", self.from)));
        }
        let mut note = if self.shown == 0 {
            format!("the first line does not fit into the result; {total} lines, {size} bytes")
        } else {
            format!("lines {}-{} of {total}, {size} bytes", self.from, self.shown)
        };
        if self.shown > 0 && self.shown < total {
            let why = if self.out.omitted() > 0 { "truncated to fit the result; " } else { "" };
            note.push_str(&format!("; {why}continue with from_line={}", self.shown.saturating_add(1)));
        }
        if self.lossy {
            note.push_str("; invalid UTF-8 is shown as \u{fffd}");
        }
        Ok(self.out.finish(&format!("[{note}]")))
    }
}
