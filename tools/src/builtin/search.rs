//! `search`: finds matching lines in all files below a path.

use std::io::{self, Read};
use std::path::Path;

use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;
use subtend_session::call::ToolEffect;

use super::entry_memory::{MAX_RESERVED, TRUNCATED, TRUNCATED_ONE};
use super::file_tool::{Builtin, Job, MAX_WALKS};
use super::filter::GlobFilter;
use super::glob::STATE_BYTES;
use super::ignores::SKIPPED;
use super::level::{self, Level, LevelItem, LevelKind};
use super::line_matcher::{LineMatcher, Steps};
use super::open;
use crate::bounded::{self, BoundedLines, count};
use crate::tool::{ToolError, ToolOutput};
use crate::workspace::failure;
use crate::workspace::names::OpenNamedError;
use crate::workspace::names::READ;

/// Maximum bytes shown of one line.
const MAX_LINE: usize = 400;
/// Maximum bytes of a searchable line.
const MAX_HEAP: usize = 16 << 20;
const MAX_PATTERN: usize = 10_000;
/// Bytes that the buffer of a searched file takes while it grows.
const BUFFER_BYTES: usize = MAX_HEAP + MAX_HEAP / 2;
/// Maximum bytes of a compiled pattern.
const MAX_PROGRAM: usize = 2 << 20;
/// Maximum bytes of the search state of a pattern.
const MAX_CACHE: usize = 2 << 20;
/// Bytes of a pattern in all its compiled forms, with their search states.
const PATTERN_BYTES: usize = 27 << 20;
/// Maximum bytes of the paths that `files` keeps.
const MAX_PATHS: usize = 2 << 20;
/// Bytes of the lines or the files that a search keeps.
const RESULT_BYTES: usize = 5 << 20;
/// Maximum nesting of groups in a pattern.
const MAX_NESTING: u32 = 100;
/// Number of files between two progress lines.
const PROGRESS_INTERVAL: u64 = 1000;

pub(super) struct SearchTool;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchArgs {
    /// The text to find, within one line: literal text unless `regex` is true.
    #[schemars(length(min = 1))]
    pattern: String,
    /// The path of the file or directory to search, in the workspace.
    #[serde(default = "root")]
    path: String,
    /// Search only files that match: `*.rs` by name, `src/**/*.rs` by path.
    glob: Option<String>,
    /// Read the pattern as a regular expression, such as `fn \w+_test`; `(?i)` in front ignores case.
    #[serde(default)]
    regex: bool,
    /// List matching files instead of lines, each with its number of matching lines: first those whose path matches, then
    /// those with most matches. Good for finding the right files.
    #[serde(default)]
    files: bool,
    /// The maximum number of matching lines, or files, to show; all are counted.
    #[serde(default = "max_matches")]
    #[schemars(range(min = 1, max = 10_000))]
    max_matches: u64,
}

fn root() -> String {
    ".".into()
}

fn max_matches() -> u64 {
    100
}

impl Builtin for SearchTool {
    const NAME: &'static str = "search";
    const ABOUT: &'static str = "Search the text files of the workspace for a literal text, or for a regular expression with \
        regex=true. Each result is `path:line: text`; the last line counts all matching lines and files. Files that \
            .gitignore excludes, .git and binary files are not searched; links are not followed. Narrow with path and glob; with files=true \
        each result is a file with its number of matches.";
    const EFFECT: ToolEffect = ToolEffect::ReadOnly;
    const MAX_CONCURRENT: usize = MAX_WALKS;
    const WALK_BYTES: usize = MAX_RESERVED + STATE_BYTES + BUFFER_BYTES + PATTERN_BYTES + RESULT_BYTES;
    const ACTIONS: &'static [&'static str] = &[READ];
    type Args = SearchArgs;

    fn path(args: &SearchArgs) -> &str {
        &args.path
    }

    fn run(args: SearchArgs, path: &str, job: &mut Job) -> Result<ToolOutput, ToolError> {
        let matcher = LineMatcher::new(matcher(&args)?, steps(&args)?, || job.check_cancelled());
        let real = job.real(Self::ACTIONS, path)?;
        let filter = GlobFilter::new(args.glob.as_deref(), &real)?;
        let metadata = open::metadata(job, Path::new(&*real)).map_err(|error| failure("search", path, &error))?;
        let mut search = FileSearch {
            job,
            matcher,
            searcher: searcher(),
            filter,
            max: args.max_matches,
            files: args.files.then(Vec::new),
            path_bytes: 0,
            dropped: 0,
            out: BoundedLines::new(job.max_bytes),
            seen: SearchCounts::default(),
        };
        if metadata.is_dir() {
            search.walk(&real, path)?;
        } else {
            // The call names this file, so it is an error if the file cannot be searched.
            open::file(job, "search", path, &real)?;
            search.file(Path::new(&*real), &real)?;
        }
        Ok(search.finish())
    }
}

fn matcher(args: &SearchArgs) -> Result<RegexMatcher, ToolError> {
    let length = args.pattern.len();
    if length == 0 || length > MAX_PATTERN {
        return Err(ToolError::bad_args(format!("the pattern has {length} bytes; it must have 1 to {MAX_PATTERN}")));
    }
    if !args.regex && args.pattern.contains('\n') {
        return Err(ToolError::bad_args(
            "the pattern contains a line break, but a match lies within one line: search for one line",
        ));
    }
    let mut builder = RegexMatcherBuilder::new();
    builder.size_limit(MAX_PROGRAM).dfa_size_limit(MAX_CACHE).nest_limit(MAX_NESTING);
    builder.fixed_strings(!args.regex).line_terminator(Some(b'\n'));
    builder.build(&args.pattern).map_err(|error| bad_pattern(&error))
}

/// Returns the pattern in a form that can be stopped within a line. Literal text needs none: the time for it does not depend on its length.
fn steps(args: &SearchArgs) -> Result<Option<Steps>, ToolError> {
    if !args.regex {
        return Ok(None);
    }
    Steps::new(&args.pattern, MAX_NESTING, (MAX_PROGRAM, MAX_CACHE)).map(Some).map_err(|error| bad_pattern(&error))
}

fn bad_pattern(error: &dyn std::fmt::Display) -> ToolError {
    ToolError::bad_args(format!("the regular expression cannot be used: {error}; for literal text leave out `regex`"))
}

fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_number(true)
        .heap_limit(Some(MAX_HEAP))
        .binary_detection(BinaryDetection::quit(0))
        .build()
}

#[derive(Debug, Default)]
struct SearchCounts {
    files: u64,
    matching_files: u64,
    matches: u64,
    shown: u64,
    paths: u64,
    binary: u64,
    unreadable: u64,
    unreadable_dirs: u64,
    denied: u64,
}

struct FileSearch<'a, C> {
    job: &'a Job,
    matcher: LineMatcher<C>,
    searcher: Searcher,
    filter: GlobFilter,
    max: u64,
    /// With `files: true`, the found files: whether the path matches, the number of matching lines, and the path.
    files: Option<Vec<(bool, u64, String)>>,
    /// Bytes of the paths in `files`.
    path_bytes: usize,
    /// Number of matching files that were dropped from `files`.
    dropped: u64,
    out: BoundedLines,
    seen: SearchCounts,
}

impl<C: Fn() -> Result<(), ToolError>> FileSearch<'_, C> {
    fn walk(&mut self, real: &str, requested: &str) -> Result<(), ToolError> {
        let ignores = level::ancestor_ignores(self.job, real);
        let first = Level::read(self.job, Path::new(real), real, &ignores)?
            .map_err(|error| failure("search", requested, &error))?;
        let mut stack = self.files(first)?;
        while let Some((item, ignores)) = stack.pop() {
            match Level::read(self.job, &item.os, &item.path, &ignores)? {
                Ok(level) => stack.extend(self.files(level)?),
                Err(_) => self.seen.unreadable_dirs = self.seen.unreadable_dirs.saturating_add(1),
            }
        }
        Ok(())
    }

    fn files(&mut self, level: Level) -> Result<Vec<(LevelItem, std::sync::Arc<super::ignores::Ignores>)>, ToolError> {
        self.seen.denied = self.seen.denied.saturating_add(level.denied);
        let mut dirs = Vec::new();
        for item in level.items {
            self.job.check_cancelled()?;
            match item.kind {
                LevelKind::Dir => dirs.push((item, level.ignores.clone())),
                LevelKind::File if self.filter.matches(&item.path, &item.name) => self.file(&item.os, &item.path)?,
                LevelKind::File | LevelKind::Link | LevelKind::Other => {}
            }
        }
        dirs.reverse();
        Ok(dirs)
    }

    fn file(&mut self, os: &Path, path: &str) -> Result<(), ToolError> {
        let file = match open::regular(self.job, os) {
            Ok(file) => file,
            Err(OpenNamedError::OtherName(_)) => {
                self.seen.denied = self.seen.denied.saturating_add(1);
                return Ok(());
            }
            Err(OpenNamedError::Io(_)) => {
                self.seen.unreadable = self.seen.unreadable.saturating_add(1);
                return Ok(());
            }
        };
        let budget = if self.files.is_some() { 0 } else { self.max.saturating_sub(self.seen.shown) };
        let mut found = FileMatches { lines: Vec::new(), budget, matches: 0, binary: false };
        let searched = self.searcher.search_reader(&self.matcher, CancellableFile { file, job: self.job }, &mut found);
        self.job.check_cancelled()?;
        self.seen.files = self.seen.files.saturating_add(1);
        if self.seen.files.is_multiple_of(PROGRESS_INTERVAL) {
            let (files, matches) = (self.seen.files, self.seen.matches);
            self.job.progress.send(format!("searched {files} files, {matches} matching lines"));
        }
        if searched.is_err() {
            self.seen.unreadable = self.seen.unreadable.saturating_add(1);
        }
        if found.binary {
            self.seen.binary = self.seen.binary.saturating_add(1);
            found.matches = 0;
            found.lines.clear();
        }
        if let Some(files) = &mut self.files {
            let by_path = self.matcher.is_match(path.as_bytes()).unwrap_or(false);
            self.seen.paths = self.seen.paths.saturating_add(u64::from(by_path));
            if by_path || found.matches > 0 {
                let path = bounded::name(path).into_owned();
                self.path_bytes = self.path_bytes.saturating_add(path.len());
                files.push((by_path, found.matches, path));
            }
            // Only the first `max` files are shown, so the others need not be kept.
            let most = usize::try_from(self.max).unwrap_or(usize::MAX);
            if files.len() >= most.saturating_mul(2).saturating_add(1_000) || self.path_bytes > MAX_PATHS {
                sort_files(files);
                let before = files.len();
                self.path_bytes = keep_first(files, most);
                self.dropped = self.dropped.saturating_add(bounded::len(before.saturating_sub(files.len())));
            }
        }
        self.seen.matches = self.seen.matches.saturating_add(found.matches);
        self.seen.matching_files = self.seen.matching_files.saturating_add(u64::from(found.matches > 0));
        let path = bounded::name(path);
        for (line, text) in found.lines {
            if self.out.push_line(&format!("{path}:{line}: {text}")) {
                self.seen.shown = self.seen.shown.saturating_add(1);
            }
        }
        Ok(())
    }

    fn list_files(&mut self, mut files: Vec<(bool, u64, String)>) -> u64 {
        sort_files(&mut files);
        for (_, matches, path) in files.iter().take(usize::try_from(self.max).unwrap_or(usize::MAX)) {
            if self.out.push_line(&format!("{path}  {}", count(*matches, "matching line", "matching lines"))) {
                self.seen.shown = self.seen.shown.saturating_add(1);
            }
        }
        bounded::len(files.len()).saturating_add(self.dropped)
    }

    fn finish(mut self) -> ToolOutput {
        let listed = self.files.take().map(|files| self.list_files(files));
        let SearchCounts { files, matching_files, matches, shown, paths, binary, unreadable, unreadable_dirs, denied } =
            self.seen;
        let searched = count(files, "file", "files");
        let mut footer = Vec::new();
        if matches == 0 && paths == 0 {
            footer.push(format!("no matches in {searched}"));
        } else {
            let matches = count(matches, "matching line", "matching lines");
            footer.push(format!("{matches} in {} of {searched}", count(matching_files, "file", "files")));
        }
        if paths > 0 {
            footer.push(count(paths, "path matches", "paths match"));
        }
        if shown < listed.unwrap_or(matches) {
            let why = if self.out.omitted() > 0 { ", truncated to fit the result" } else { "" };
            footer.push(format!("{shown} shown{why}: narrow the pattern, path or glob"));
        }
        let notes = [
            (binary, "binary file skipped", "binary files skipped"),
            (unreadable, "file unreadable", "files unreadable"),
            (unreadable_dirs, "directory unreadable", "directories unreadable"),
            (denied, "entry not permitted", "entries not permitted"),
            (self.matcher.skipped_count(), "line too long for the pattern", "lines too long for the pattern"),
            (self.job.ignores.skipped_count(), "ignore file (or line in one) skipped: too large", SKIPPED),
            (self.job.memory.truncated_count(), TRUNCATED_ONE, TRUNCATED),
        ];
        footer.extend(notes.iter().filter(|(n, _, _)| *n > 0).map(|(n, one, many)| count(*n, one, many)));
        self.out.finish(&format!("[{}]", footer.join("; ")))
    }
}

/// Sorts files with matching paths first, then by number of matches.
fn sort_files(files: &mut [(bool, u64, String)]) {
    files.sort_by(|one, other| (other.0, other.1, &one.2).cmp(&(one.0, one.1, &other.2)));
}

/// Keeps at most `most` files, and paths of half of [`MAX_PATHS`]. Returns the bytes of the paths.
fn keep_first(files: &mut Vec<(bool, u64, String)>, most: usize) -> usize {
    let (mut bytes, mut kept) = (0_usize, 0_usize);
    for (_, _, path) in files.iter().take(most) {
        if bytes.saturating_add(path.len()) > MAX_PATHS / 2 {
            break;
        }
        bytes = bytes.saturating_add(path.len());
        kept = kept.saturating_add(1);
    }
    files.truncate(kept);
    bytes
}

struct CancellableFile<'a> {
    file: cap_std::fs::File,
    job: &'a Job,
}

impl Read for CancellableFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.job.check_cancelled().map_err(|_| io::Error::other("cancelled"))?;
        self.file.read(buffer)
    }
}

struct FileMatches {
    lines: Vec<(u64, String)>,
    budget: u64,
    matches: u64,
    binary: bool,
}

impl Sink for FileMatches {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.matches = self.matches.saturating_add(1);
        if self.matches <= self.budget {
            let line = found.line_number().unwrap_or_default();
            self.lines.push((line, bounded::shorten_bytes(found.bytes(), MAX_LINE)));
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(false)
    }
}
