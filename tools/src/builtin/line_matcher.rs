//! Matches lines with a pattern, and stops within a line once the call is cancelled.
//!
//! The time of a search grows with the pattern and the line: 15 MiB in one line can take many minutes. The usual matcher cannot be stopped, so
//! it gets only what it finishes soon. The rest is matched byte by byte, with a check for a cancel between.

use std::cell::{Cell, RefCell};

use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoCaptures};
use grep_regex::RegexMatcher;
use regex_automata::Input;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;

use crate::tool::ToolError;

/// Maximum work of one search that cannot be stopped, in bytes of the pattern's program times bytes of text: below a second.
const MAX_WORK: usize = 1 << 32;
/// The same for a line that cannot be matched byte by byte. Longer lines are skipped.
const MAX_LINE_WORK: usize = 1 << 34;
/// Number of bytes between two checks for a cancel. Each may take a millisecond.
const STEP: usize = 256;

/// A pattern that matches byte by byte.
pub(super) struct Steps {
    dfa: DFA,
    cache: RefCell<Cache>,
}

impl Steps {
    /// Compiles `pattern` like the usual matcher, with limits in bytes of its program and of its search state.
    pub(super) fn new(
        pattern: &str,
        nesting: u32,
        (program, state): (usize, usize),
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let nfa = thompson::Config::new()
            .utf8(false)
            .nfa_size_limit(Some(program))
            .which_captures(thompson::WhichCaptures::None);
        let dfa = DFA::config().cache_capacity(state).skip_cache_capacity_check(true).unicode_word_boundary(true);
        let dfa = DFA::builder()
            .configure(dfa)
            .syntax(syntax::Config::new().utf8(false).nest_limit(nesting))
            .thompson(nfa)
            .build(pattern)?;
        let cache = RefCell::new(dfa.create_cache());
        Ok(Self { dfa, cache })
    }

    /// Returns whether `line` contains a match; `None` if the pattern must be matched in another way.
    fn is_match(&self, line: &[u8], check: &impl Fn() -> Result<(), ToolError>) -> Result<Option<bool>, ToolError> {
        let mut cache = self.cache.borrow_mut();
        let (dfa, cache) = (&self.dfa, &mut *cache);
        let Ok(mut state) = dfa.start_state_forward(cache, &Input::new(line)) else { return Ok(None) };
        for part in line.chunks(STEP) {
            check()?;
            for byte in part {
                match dfa.next_state(cache, state, *byte) {
                    Ok(next) => state = next,
                    Err(_) => return Ok(None),
                }
                if state.is_tagged() {
                    if state.is_match() || state.is_dead() {
                        return Ok(Some(state.is_match()));
                    }
                    if state.is_quit() {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(dfa.next_eoi_state(cache, state).ok().map(|state| state.is_match()))
    }

    /// Returns the work of a search in `bytes` of text.
    fn work(&self, bytes: usize) -> usize {
        self.dfa.get_nfa().memory_usage().saturating_mul(bytes)
    }
}

pub(super) struct LineMatcher<C> {
    usual: RegexMatcher,
    /// `None` for literal text.
    steps: Option<Steps>,
    /// Fails once the call is cancelled.
    check: C,
    skipped: Cell<u64>,
}

impl<C: Fn() -> Result<(), ToolError>> LineMatcher<C> {
    pub(super) fn new(usual: RegexMatcher, steps: Option<Steps>, check: C) -> Self {
        Self { usual, steps, check, skipped: Cell::new(0) }
    }

    /// Returns the number of lines that were not searched.
    pub(super) fn skipped_count(&self) -> u64 {
        self.skipped.get()
    }

    /// Returns the pattern in steps if the usual matcher could take long for `text`.
    fn steps_for(&self, text: &[u8]) -> Option<&Steps> {
        self.steps.as_ref().filter(|steps| steps.work(text.len()) > MAX_WORK)
    }

    /// Returns whether `line`, without its end, contains a match.
    fn line_matches(&self, steps: &Steps, line: &[u8]) -> Result<bool, ToolError> {
        if let Some(found) = steps.is_match(line, &self.check)? {
            return Ok(found);
        }
        if steps.work(line.len()) > MAX_LINE_WORK {
            self.skipped.set(self.skipped.get().saturating_add(1));
            return Ok(false);
        }
        Ok(self.usual.is_match(line).unwrap_or(false))
    }
}

impl<C: Fn() -> Result<(), ToolError>> Matcher for LineMatcher<C> {
    type Captures = NoCaptures;
    type Error = String;

    fn find_at(&self, haystack: &[u8], at: usize) -> Result<Option<Match>, String> {
        self.usual.find_at(haystack, at).map_err(|error| error.to_string())
    }

    fn new_captures(&self) -> Result<NoCaptures, String> {
        Ok(NoCaptures::new())
    }

    fn shortest_match_at(&self, haystack: &[u8], at: usize) -> Result<Option<usize>, String> {
        match self.steps_for(haystack).filter(|_| at == 0) {
            // A search in lines needs no position within the line.
            Some(steps) => {
                let line = haystack.strip_suffix(b"\n").unwrap_or(haystack);
                Ok(self.line_matches(steps, line).map_err(|error| error.message)?.then_some(0))
            }
            None => self.usual.shortest_match_at(haystack, at).map_err(|error| error.to_string()),
        }
    }

    fn non_matching_bytes(&self) -> Option<&ByteSet> {
        self.usual.non_matching_bytes()
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.usual.line_terminator()
    }

    fn find_candidate_line(&self, haystack: &[u8]) -> Result<Option<LineMatchKind>, String> {
        let Some(steps) = self.steps_for(haystack) else {
            return self.usual.find_candidate_line(haystack).map_err(|error| error.to_string());
        };
        let mut start = 0_usize;
        for whole in haystack.split_inclusive(|byte| *byte == b'\n') {
            let line = whole.strip_suffix(b"\n").unwrap_or(whole);
            if self.line_matches(steps, line).map_err(|error| error.message)? {
                return Ok(Some(LineMatchKind::Confirmed(start)));
            }
            start = start.saturating_add(whole.len());
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use grep_regex::RegexMatcherBuilder;

    use super::*;

    fn matcher<C: Fn() -> Result<(), ToolError>>(pattern: &str, check: C) -> LineMatcher<C> {
        let usual = RegexMatcherBuilder::new().line_terminator(Some(b'\n')).build(pattern).unwrap();
        LineMatcher::new(usual, Some(Steps::new(pattern, 100, (2 << 20, 2 << 20)).unwrap()), check)
    }

    /// Text without line breaks in which a search for `[ab]*a[ab]{N}` meets new states all the time.
    fn random_letters(bytes: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state >> 31 == 0 { b'a' } else { b'b' }
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn search_stops_within_a_line_once_it_is_cancelled() {
        let text = random_letters(1 << 20);
        for pattern in ["[ab]*a[ab]{20000}[^ab]", "^[ab]*a[ab]{20000}[^ab]"] {
            let checks = Cell::new(0);
            let check = || {
                checks.set(checks.get() + 1);
                if checks.get() < 4 { Ok(()) } else { Err(ToolError::cancelled()) }
            };
            let matcher = matcher(pattern, check);
            let cancelled = Err(ToolError::cancelled().message);
            assert_eq!((matcher.find_candidate_line(&text).map(drop), checks.get()), (cancelled.clone(), 4));
            checks.set(0);
            assert_eq!((matcher.shortest_match(&text).map(drop), checks.get()), (cancelled, 4));
        }
        // The control: a pattern that finishes soon is not matched in steps.
        let light = matcher("[ab]c", || Err(ToolError::cancelled()));
        assert_eq!(light.find_candidate_line(&text).map(|found| found.is_some()), Ok(false));
    }

    #[test]
    fn steps_match_the_same_lines_as_the_usual_matcher() {
        let patterns = [
            "foo",
            "^foo",
            "foo$",
            "^$",
            "x*",
            r"\bfoo\b",
            r"\bé",
            "(?i)STRASSE|straße",
            r"(?-u:\xff)",
            "a.*b",
            "[^a]",
            r"\s$",
            r"\w+\s\d",
            "(?m)^foo$",
            r"^\S+$",
        ];
        let lines: [&[u8]; 14] = [
            b"",
            b"foo",
            b"a foo",
            b"foobar",
            b"foo bar\r",
            b"xfoo",
            b"a\xffb",
            b"a--b",
            b"b--a",
            b"aaa",
            b"word 7",
            "é".as_bytes(),
            "Straße".as_bytes(),
            b"\xff\xfe",
        ];
        for pattern in patterns {
            let matcher = matcher(pattern, || Ok(()));
            let steps = matcher.steps.as_ref().unwrap();
            for line in lines {
                let expected = matcher.usual.is_match(line).unwrap();
                assert_eq!(matcher.line_matches(steps, line), Ok(expected), "{pattern} {line:?}");
            }
        }
    }

    /// Word boundaries of Unicode cannot be matched in steps, if the text is not ASCII.
    #[test]
    fn line_that_would_take_long_and_cannot_stop_is_skipped() {
        let matcher = matcher(r"\bé[ab]{20000}[^ab]", || Ok(()));
        let line = |bytes| [b"\xc3\xa9".to_vec(), random_letters(bytes), b"-\n".to_vec()].concat();
        let text = [line(1 << 16), line(20_000), line(10)].concat();
        let found = match matcher.find_candidate_line(&text) {
            Ok(Some(LineMatchKind::Confirmed(at))) => Some(at),
            _ => None,
        };
        assert_eq!((found, matcher.skipped_count()), (Some((1 << 16) + 4), 1));
    }
}
