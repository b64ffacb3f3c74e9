//! Patterns: matching and specificity. `authority` documents the rules.

use std::cmp::Reverse;

use super::Authority;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    /// `*` matches any number of characters.
    Plain,
    /// Parts between `/`: `*` stays within a part, a part `**` spans parts.
    Path,
}

impl Syntax {
    pub(super) fn of(action: &str) -> Self {
        if action.starts_with("fs.") { Self::Path } else { Self::Plain }
    }
}

/// Higher is more specific. A pattern that matches a subset of another pattern is never less specific: it has at least
/// as many literal characters, and with equally many no fewer parts and no more wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Weight {
    literals: usize,
    parts: usize,
    spans: Reverse<usize>,
    stars: Reverse<usize>,
}

impl Weight {
    const NONE: Self = Self { literals: 0, parts: 0, spans: Reverse(0), stars: Reverse(0) };

    pub(super) fn of(pattern: &str, syntax: Syntax) -> Self {
        let mut weight = Self::NONE;
        if is_any(pattern, syntax) {
            weight.spans.0 = 1;
            return weight;
        }
        match syntax {
            Syntax::Plain => weight.add(pattern),
            Syntax::Path => weight.add_parts(parts(pattern)),
        }
        weight
    }

    /// Returns the weight of `pattern/**`, by which a path pattern covers everything below a match.
    pub(super) fn of_cover(pattern: &str) -> Self {
        if is_any(pattern, Syntax::Path) {
            return Self::of(pattern, Syntax::Path);
        }
        let mut weight = Self::NONE;
        weight.add_parts(parts(pattern).chain(std::iter::once(SPAN)));
        weight
    }

    fn add_parts<'a>(&mut self, parts: impl Iterator<Item = &'a str>) {
        let mut after_span = false;
        for part in parts {
            let span = part == SPAN;
            if !span {
                self.parts = self.parts.saturating_add(1);
                self.add(part);
            } else if !after_span {
                self.spans.0 = self.spans.0.saturating_add(1);
            }
            after_span = span;
        }
    }

    fn add(&mut self, text: &str) {
        let mut after_star = false;
        for c in text.chars() {
            let star = c == '*';
            if !star {
                self.literals = self.literals.saturating_add(1);
            } else if !after_star {
                self.stars.0 = self.stars.0.saturating_add(1);
            }
            after_star = star;
        }
    }
}

const SPAN: &str = "**";

/// Returns whether `pattern` matches `text`; a [`Syntax::Path`] text must be normal.
pub(super) fn matches(pattern: &str, text: &str, syntax: Syntax) -> bool {
    match syntax {
        _ if is_any(pattern, syntax) => true,
        Syntax::Plain => plain(pattern, text),
        Syntax::Path => {
            let mut states = States::new(pattern);
            names(text).all(|name| states.step(name)) && states.is_match
        }
    }
}

/// Returns whether a path pattern matches the normal path `path`, or a directory above it.
pub(super) fn covers(pattern: &str, path: &str) -> bool {
    if is_any(pattern, Syntax::Path) {
        return true;
    }
    let mut states = States::new(pattern);
    for name in names(path) {
        if states.is_match || !states.step(name) {
            return states.is_match;
        }
    }
    states.is_match
}

pub(super) fn is_any(pattern: &str, syntax: Syntax) -> bool {
    let all_stars = !pattern.is_empty() && pattern.bytes().all(|b| b == b'*');
    match syntax {
        Syntax::Plain => all_stars,
        Syntax::Path => all_stars || (parts(pattern).next().is_some() && parts(pattern).all(|part| part == SPAN)),
    }
}

/// Returns whether a path pattern may match something at or below `dir`, a normal path.
pub(super) fn may_match_below(pattern: &str, dir: &str) -> bool {
    if is_any(pattern, Syntax::Path) {
        return true;
    }
    let mut states = States::new(pattern);
    names(dir).all(|name| states.step(name))
}

/// Returns whether a path pattern surely matches everything at and below `dir`.
pub(super) fn matches_all_below(pattern: &str, dir: &str) -> bool {
    if is_any(pattern, Syntax::Path) {
        return true;
    }
    // A trailing span that matches the directory matches everything below it.
    ends_with_span(pattern) && matches(pattern, dir, Syntax::Path)
}

pub(super) fn ends_with_span(pattern: &str) -> bool {
    is_any(pattern, Syntax::Path) || parts(pattern).last() == Some(SPAN)
}

/// Returns the pattern. All patterns that match everything give the same text.
pub(super) fn key(pattern: &str, syntax: Syntax) -> &str {
    if is_any(pattern, syntax) { "*" } else { pattern }
}

/// Returns whether `path` is `.` or a normal relative path, of at most [`Authority::MAX_PATH_PARTS`].
pub(super) fn is_normal(path: &str) -> bool {
    let normal_part = |part: &str| !matches!(part, "" | "." | "..");
    let is_short = || path.split('/').nth(Authority::MAX_PATH_PARTS).is_none();
    path == "." || (!path.contains(['\0', '\\']) && is_short() && path.split('/').all(normal_part))
}

/// Returns the number of parts of a path pattern.
pub(super) fn count_parts(pattern: &str) -> usize {
    parts(pattern).count()
}

#[cfg(test)]
thread_local! {
    /// Number of comparisons in this thread.
    pub(super) static COMPARISONS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn plain(pattern: &str, text: &str) -> bool {
    #[cfg(test)]
    COMPARISONS.set(COMPARISONS.get().saturating_add(1));
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The leftmost match of each piece leaves the most for the pieces after it.
    for piece in middle.split('*') {
        let Some((_, after)) = text.split_once(piece) else { return false };
        text = after;
    }
    text.ends_with(last)
}

/// Returns the parts of a path pattern: empty and `.` parts are skipped, a trailing `/` matches everything below.
fn parts(pattern: &str) -> impl Iterator<Item = &str> + Clone {
    let below = pattern.ends_with('/').then_some(SPAN);
    pattern.split('/').filter(|part| !matches!(*part, "" | ".")).chain(below)
}

/// Returns the names in a normal path; the workspace root has no names.
fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| *name != ".")
}

/// The states of a path pattern in one pass over the names of a path, which also serves all directories above it. A match of
/// each directory by itself would take time that grows with the cube of the depth.
struct States<'a> {
    /// The parts of the pattern, each with whether the parts before it match the names so far.
    parts: Vec<(&'a str, bool)>,
    /// Whether the whole pattern matches the names so far.
    is_match: bool,
}

impl<'a> States<'a> {
    fn new(pattern: &'a str) -> Self {
        let mut is_match = true;
        let parts = parts(pattern).map(|part| {
            let state = (part, is_match);
            is_match &= part == SPAN;
            state
        });
        Self { parts: parts.collect(), is_match }
    }

    /// Adds a name. Returns whether the pattern may match the names so far, or a path below them.
    fn step(&mut self, name: &str) -> bool {
        let (mut fits, mut any) = (false, false);
        for (part, state) in &mut self.parts {
            let before = *state;
            let is_span = *part == SPAN;
            *state = fits || (before && is_span);
            fits = if is_span { *state } else { before && plain(part, name) };
            any |= *state;
        }
        self.is_match = fits;
        any || fits
    }
}
