//! Reads `.gitignore` and `.ignore` files through the workspace handle.

use std::cell::Cell;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use cap_std::fs::Dir;

use super::entry_memory::{EntryMemory, MAX_RULES, ReservedMemory};
use super::glob::{self, GlobStates};
use super::ignore_rules::IgnoreRules;
use crate::bounded::len;
use crate::workspace::beneath;

/// Maximum size of one ignore file.
const MAX_FILE: u64 = 32 << 10;
/// Bytes of memory that the compiled rules of a directory take, at least.
const COMPILED_BYTES: usize = 12 << 10;
/// Bytes of memory that a compiled byte of an ignore file takes.
const COMPILED_FACTOR: usize = 100;
/// Maximum bytes of all ignore files read by one call.
const MAX_CALL: u64 = 128 << 10;
pub(super) const SKIPPED: &str = "ignore files (or lines in them) skipped: too large";
/// The ignore files of a directory, in ascending priority.
const FILES: [&str; 2] = [".gitignore", ".ignore"];

#[derive(Debug)]
pub(super) struct IgnoreBudget {
    remaining: Cell<u64>,
    skipped: Cell<u64>,
    /// The memory of the rules that are held at once.
    memory: EntryMemory,
    states: GlobStates,
}

impl IgnoreBudget {
    pub(super) fn new() -> Self {
        let memory = EntryMemory::new(MAX_RULES);
        Self { remaining: Cell::new(MAX_CALL), skipped: Cell::new(0), memory, states: GlobStates::default() }
    }

    fn record_skipped(&self) {
        self.skipped.set(self.skipped.get().saturating_add(1));
    }

    /// Returns the number of skipped files and lines. Listings show the entries that only these would exclude.
    pub(super) fn skipped_count(&self) -> u64 {
        self.skipped.get()
    }
}

/// The ignore rules of a directory and its ancestors, up to the workspace.
#[derive(Debug, Default)]
pub(super) struct Ignores {
    own: Option<IgnoreRules>,
    parent: Option<Arc<Ignores>>,
    /// The memory reserved for these rules.
    _memory: Option<ReservedMemory>,
}

impl Ignores {
    pub(super) fn for_subdirectory(self: &Arc<Self>, dir: &Dir, path: &Path, budget: &IgnoreBudget) -> Arc<Self> {
        let texts: Vec<String> = FILES.iter().filter_map(|name| read(dir, name, budget)).collect();
        if texts.is_empty() {
            return Arc::clone(self);
        }
        let bytes = texts.iter().map(String::len).fold(0, usize::saturating_add);
        let compiled = bytes.saturating_mul(COMPILED_FACTOR).saturating_add(COMPILED_BYTES);
        let Some(memory) = budget.memory.reserve(compiled) else {
            budget.record_skipped();
            return Arc::clone(self);
        };
        let is_small = |line: &&str| {
            let checked = glob::check(line);
            checked.inspect_err(|_| budget.record_skipped()).is_ok()
        };
        let lines = texts.iter().flat_map(|text| text.lines()).filter(is_small);
        let own = IgnoreRules::new(path, lines, compiled);
        if own.is_none() {
            budget.record_skipped();
        }
        Arc::new(Self { own, parent: Some(Arc::clone(self)), _memory: Some(memory) })
    }

    /// Returns whether `path` is ignored. The nearest file with a matching line decides.
    pub(super) fn is_ignored(&self, path: &Path, is_dir: bool, budget: &IgnoreBudget) -> bool {
        let mut level = Some(self);
        while let Some(ignores) = level {
            if let Some(found) = ignores.own.as_ref().and_then(|own| own.decide(path, is_dir, &budget.states)) {
                return found;
            }
            level = ignores.parent.as_deref();
        }
        false
    }
}

/// Reads a regular file of `dir`. Skips pipes, which could block, and links, as git does.
fn read(dir: &Dir, name: &str, budget: &IgnoreBudget) -> Option<String> {
    let file = beneath::file(dir, Path::new(name)).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let most = MAX_FILE.min(budget.remaining.get());
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).ok()?;
    let Some(remaining) = budget.remaining.get().checked_sub(len(bytes.len())).filter(|_| len(bytes.len()) <= most)
    else {
        // Do not use a part of the file: a later line could reverse an earlier rule.
        budget.record_skipped();
        return None;
    };
    budget.remaining.set(remaining);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
