//! `list`: lists the contents of a directory, level by level.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use subtend_session::call::ToolEffect;

use super::entry_memory::{MAX_RESERVED, TRUNCATED, TRUNCATED_ONE};
use super::file_tool::{Builtin, Job, MAX_WALKS};
use super::filter::GlobFilter;
use super::glob::STATE_BYTES;
use super::ignores::SKIPPED;
use super::level::{self, Level, LevelItem, LevelKind};
use super::open;
use crate::bounded::{BoundedLines, count, name};
use crate::tool::{ToolError, ToolOutput};
use crate::workspace::names::READ;
use crate::workspace::{beneath, failure};

/// Maximum size of a file whose lines are counted.
const MAX_COUNTED: u64 = 1 << 20;
/// Maximum bytes that one call reads to count lines.
const COUNT_BUDGET: u64 = 32 << 20;
/// Number of entries after which a listing stops.
const MAX_ENTRIES: u64 = 100_000;

pub(super) struct ListTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListArgs {
    /// The path of the directory in the workspace.
    #[serde(default = "root")]
    path: String,
    /// Levels to show: 1 is the directory's own entries.
    #[serde(default = "depth")]
    #[schemars(range(min = 1, max = 10))]
    depth: u32,
    /// Show only files that match: `*.rs` by name, `src/**/*.rs` by path.
    glob: Option<String>,
}

fn root() -> String {
    ".".into()
}

fn depth() -> u32 {
    2
}

impl Builtin for ListTool {
    const NAME: &'static str = "list";
    const ABOUT: &'static str = "List a directory of the workspace, level by level: directories (they end with /) first, with \
        their number of entries, then files with size and lines. Paths are relative to the workspace, as the other tools \
            take them. Files that .gitignore excludes and .git are not shown; links are not followed.";
    const EFFECT: ToolEffect = ToolEffect::ReadOnly;
    const MAX_CONCURRENT: usize = MAX_WALKS;
    const WALK_BYTES: usize = MAX_RESERVED + STATE_BYTES + (1 << 20);
    const ACTIONS: &'static [&'static str] = &[READ];
    type Args = ListArgs;

    fn path(args: &ListArgs) -> &str {
        &args.path
    }

    fn run(args: ListArgs, path: &str, job: &mut Job) -> Result<ToolOutput, ToolError> {
        let real = job.real(Self::ACTIONS, path)?;
        let filter = GlobFilter::new(args.glob.as_deref(), &real)?;
        let metadata = open::metadata(job, Path::new(&*real)).map_err(|error| failure("list", path, &error))?;
        let mut listing =
            DirListing { job, filter, out: BoundedLines::new(job.max_bytes), seen: ListCounts::default() };
        if metadata.is_dir() {
            listing.walk(&real, path, args.depth)?;
        } else {
            let kind = if metadata.is_file() { LevelKind::File } else { LevelKind::Other };
            let name = real.rsplit('/').next().unwrap_or(&real).to_owned();
            listing.entry(&LevelItem {
                kind,
                name,
                path: real.to_string(),
                os: Path::new(&*real).into(),
                _memory: None,
            });
        }
        Ok(listing.finish(args.depth))
    }
}

#[derive(Debug, Default)]
struct ListCounts {
    dirs: u64,
    files: u64,
    others: u64,
    ignored: u64,
    denied: u64,
    unreadable: u64,
    below_depth: u64,
    counted: u64,
    stopped: bool,
}

struct DirListing<'a> {
    job: &'a Job,
    filter: GlobFilter,
    out: BoundedLines,
    seen: ListCounts,
}

impl DirListing<'_> {
    /// Walks breadth-first, so that truncation drops the deepest levels.
    fn walk(&mut self, real: &str, requested: &str, depth: u32) -> Result<(), ToolError> {
        let ignores = level::ancestor_ignores(self.job, real);
        let first = Level::read(self.job, Path::new(real), real, &ignores)?
            .map_err(|error| failure("list", requested, &error))?;
        let mut levels = VecDeque::from([(1, first)]);
        while let Some((at, level)) = levels.pop_front() {
            self.seen.ignored = self.seen.ignored.saturating_add(level.ignored);
            self.seen.denied = self.seen.denied.saturating_add(level.denied);
            for item in &level.items {
                self.job.check_cancelled()?;
                if self.seen.dirs.saturating_add(self.seen.files) >= MAX_ENTRIES {
                    self.seen.stopped = true;
                    return Ok(());
                }
                if item.kind != LevelKind::Dir {
                    self.entry(item);
                    continue;
                }
                let entries = Level::read(self.job, &item.os, &item.path, &level.ignores)?;
                self.directory(item, entries.as_ref().ok());
                match entries {
                    Ok(entries) if at < depth => levels.push_back((at.saturating_add(1), entries)),
                    Ok(entries) => {
                        self.seen.below_depth =
                            self.seen.below_depth.saturating_add(u64::from(!entries.items.is_empty()));
                    }
                    Err(_) => self.seen.unreadable = self.seen.unreadable.saturating_add(1),
                }
            }
        }
        Ok(())
    }

    fn directory(&mut self, item: &LevelItem, entries: Option<&Level>) {
        if self.filter.is_some() {
            return;
        }
        self.seen.dirs = self.seen.dirs.saturating_add(1);
        let entries = match entries {
            Some(level) => count(crate::bounded::len(level.items.len()), "entry", "entries"),
            None => "unreadable".into(),
        };
        self.out.push_line(&format!("{}/  {entries}", name(&item.path)));
    }

    fn entry(&mut self, item: &LevelItem) {
        if !self.filter.matches(&item.path, &item.name) {
            return;
        }
        let about = match item.kind {
            LevelKind::Link => match self.target(&item.os) {
                Ok(target) => format!("link to {}", name(&target.to_string_lossy())),
                Err(_) => "link".into(),
            },
            LevelKind::File => self.file(item),
            LevelKind::Other | LevelKind::Dir => "special file".into(),
        };
        let seen = if item.kind == LevelKind::File { &mut self.seen.files } else { &mut self.seen.others };
        *seen = seen.saturating_add(1);
        let shown = name(&item.path);
        let odd = match (item.os.to_str().is_some(), *shown == item.path) {
            (true, true) => "",
            (true, false) => ", the name has control characters",
            (false, _) => ", the name is not UTF-8",
        };
        self.out.push_line(&format!("{shown}  {about}{odd}"));
    }

    fn target(&self, link: &Path) -> std::io::Result<std::path::PathBuf> {
        let (dir, name) = beneath::parent(self.job.workspace.dir(), link)?;
        dir.read_link_contents(name)
    }

    fn file(&mut self, item: &LevelItem) -> String {
        let Ok(metadata) = open::metadata(self.job, &item.os) else { return "unreadable".into() };
        let size = metadata.len();
        let counted = self.seen.counted.saturating_add(size);
        let bytes = count(size, "byte", "bytes");
        if size > MAX_COUNTED || counted > COUNT_BUDGET || self.out.omitted() > 0 {
            return bytes;
        }
        self.seen.counted = counted;
        match self.lines(&item.os) {
            Some(lines) => format!("{bytes}, {}", count(lines, "line", "lines")),
            None => bytes,
        }
    }

    /// Counts the lines of a text file. Returns `None` for a binary or unreadable file.
    fn lines(&self, os: &Path) -> Option<u64> {
        let mut reader = BufReader::new(open::regular(self.job, os).ok()?.take(MAX_COUNTED));
        let (mut ends, mut probed, mut last) = (0, false, b'\n');
        loop {
            let chunk = reader.fill_buf().ok()?;
            let Some(end) = chunk.last() else { break };
            if !std::mem::replace(&mut probed, true) && open::is_binary(chunk) {
                return None;
            }
            last = *end;
            ends = chunk.iter().filter(|byte| **byte == b'\n').count().saturating_add(ends);
            let length = chunk.len();
            reader.consume(length);
        }
        Some(crate::bounded::len(ends.saturating_add(usize::from(last != b'\n'))))
    }

    fn finish(self, depth: u32) -> ToolOutput {
        let ListCounts { dirs, files, others, ignored, denied, unreadable, below_depth, counted: _, stopped } =
            self.seen;
        let mut footer = Vec::new();
        if self.out.omitted() > 0 {
            footer.push(format!("{} more not shown: list a part, or fewer levels", self.out.omitted()));
        }
        if stopped {
            footer.push(format!("stopped after {MAX_ENTRIES} entries"));
        }
        if !self.filter.is_some() {
            footer.push(count(dirs, "directory", "directories"));
        }
        footer.push(count(files, "file", "files"));
        let notes = [
            (others, "other", "others"),
            (ignored, "ignored entry left out", "ignored entries left out"),
            (denied, "entry not permitted", "entries not permitted"),
            (unreadable, "directory unreadable", "directories unreadable"),
            (self.job.ignores.skipped_count(), "ignore file (or line in one) skipped: too large", SKIPPED),
            (self.job.memory.truncated_count(), TRUNCATED_ONE, TRUNCATED),
        ];
        footer.extend(notes.iter().filter(|(n, _, _)| *n > 0).map(|(n, one, many)| count(*n, one, many)));
        if below_depth > 0 {
            let dirs = count(below_depth, "directory has", "directories have");
            footer.push(format!("{dirs} more below depth {depth}"));
        }
        self.out.finish(&format!("[{}]", footer.join("; ")))
    }
}
