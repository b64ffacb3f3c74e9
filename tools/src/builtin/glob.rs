//! Globs of bounded size, which are compiled and matched in bounded memory.
//!
//! Braces compile recursively, and alternates multiply memory. Without limits, a glob from a model or from a repository's ignore file
//! could abort the process. A matcher of `globset` keeps a search state of 10 MiB or more, which hostile names fill.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use globset::Glob;
use regex_automata::hybrid::BuildError;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{Config, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};

const MAX_BYTES: usize = 1024;
/// Maximum number of opening braces, including escaped ones.
const MAX_BRACES: usize = 32;
/// Maximum number of commas, each of which may start an alternate.
const MAX_COMMAS: usize = 256;

/// Maximum bytes of one search state.
const MAX_STATE: usize = 1 << 20;
/// Maximum bytes of the search states of ignore rules that a call holds at once.
const MAX_STATES: usize = 3 * MAX_STATE;
/// Maximum number of them.
const MAX_HELD: usize = 64;
/// Memory of all search states of a call, with that of its glob. Tables that grow take up to twice the size of their elements.
pub(super) const STATE_BYTES: usize = 2 * (MAX_STATES + MAX_STATE);

/// Checks that a glob is safe to compile.
///
/// # Errors
/// If the glob exceeds a limit, which the error names.
pub(super) fn check(glob: &str) -> Result<(), String> {
    let count = |sign: u8| glob.bytes().filter(|byte| *byte == sign).count();
    for (what, found, most) in
        [("bytes", glob.len(), MAX_BYTES), ("braces", count(b'{'), MAX_BRACES), ("alternates", count(b','), MAX_COMMAS)]
    {
        if found > most {
            return Err(format!("it has {found} {what}; the limit is {most}"));
        }
    }
    Ok(())
}

/// Globs that are matched together.
#[derive(Debug)]
pub(super) struct CompiledGlobs {
    id: u64,
    dfa: DFA,
}

impl CompiledGlobs {
    /// Compiles globs into at most `most` bytes.
    ///
    /// # Errors
    /// If their program takes more, or if [`MAX_STATE`] is too small to match it.
    pub(super) fn new(globs: &[Glob], most: usize) -> Result<Self, Box<BuildError>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let patterns: Vec<&str> = globs.iter().map(Glob::regex).collect();
        let dfa = DFA::builder()
            .configure(DFA::config().match_kind(MatchKind::All).cache_capacity(MAX_STATE))
            .syntax(syntax::Config::new().utf8(false).dot_matches_new_line(true))
            .thompson(Config::new().utf8(false).nfa_size_limit(Some(most)).which_captures(WhichCaptures::None))
            .build_many(&patterns)?;
        Ok(Self { id: NEXT.fetch_add(1, Ordering::Relaxed), dfa })
    }

    pub(super) fn memory_usage(&self) -> usize {
        size_of::<Self>().saturating_add(self.dfa.get_nfa().memory_usage())
    }

    /// Returns the number of the last glob that matches `text` and `applies`.
    fn last_match(&self, cache: &mut Cache, text: &[u8], applies: impl Fn(usize) -> bool) -> Option<usize> {
        // The steps cannot fail: globs have no word boundaries, and a full cache is cleared.
        let dfa = &self.dfa;
        let mut state = dfa.start_state_forward(cache, &Input::new(text).anchored(Anchored::Yes)).ok()?;
        for byte in text {
            state = dfa.next_state(cache, state, *byte).ok()?;
            if state.is_dead() {
                return None;
            }
        }
        let state = dfa.next_eoi_state(cache, state).ok().filter(|state| state.is_match())?;
        let matches = (0..dfa.match_len(cache, state)).map(|at| dfa.match_pattern(cache, state, at).as_usize());
        matches.filter(|glob| applies(*glob)).max()
    }
}

/// The search states of the globs that a call matched last.
#[derive(Debug, Default)]
pub(super) struct GlobStates {
    /// Each with the ID of its globs, in the order of their last use.
    held: RefCell<Vec<(u64, Box<Cache>)>>,
    bytes: Cell<usize>,
}

impl GlobStates {
    /// Returns the number of the last of `globs` that matches `text` and `applies`.
    pub(super) fn last_match(
        &self,
        globs: &CompiledGlobs,
        text: &[u8],
        applies: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut held = self.held.borrow_mut();
        let used = held.iter().rposition(|(id, _)| *id == globs.id).map(|at| held.remove(at).1);
        let mut bytes = self.bytes.get().saturating_sub(used.as_ref().map_or(0, |cache| cache.memory_usage()));
        let mut cache = used.unwrap_or_else(|| Box::new(globs.dfa.create_cache()));
        let found = globs.last_match(&mut cache, text, applies);
        bytes = bytes.saturating_add(cache.memory_usage());
        held.push((globs.id, cache));
        // The next match may add as much as one search state takes.
        while (bytes > MAX_STATES - MAX_STATE || held.len() > MAX_HELD) && held.len() > 1 {
            bytes = bytes.saturating_sub(held.remove(0).1.memory_usage());
        }
        self.bytes.set(bytes);
        found
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.held.borrow().iter().map(|(_, cache)| cache.memory_usage()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_over_a_limit_is_refused() {
        assert_eq!(check("src/**/*.{rs,toml}"), Ok(()));
        assert_eq!(check(&"a".repeat(1024)), Ok(()));
        for (glob, found) in [
            ("a".repeat(1025), "1025 bytes"),
            (format!("{}a{}", "{".repeat(33), "}".repeat(33)), "33 braces"),
            ("\\{}".repeat(33), "33 braces"),
            (format!("{{{}}}", ",".repeat(257)), "257 alternates"),
        ] {
            let refused = check(&glob).unwrap_err();
            assert!(refused.starts_with(&format!("it has {found}; ")), "{refused}");
        }
    }

    fn compile(glob: &str) -> CompiledGlobs {
        CompiledGlobs::new(&[Glob::new(glob).unwrap()], 64 << 10).unwrap()
    }

    /// The control: the same search states, held each by itself.
    #[test]
    fn search_states_of_a_call_are_limited_in_total() {
        let mut random = 1_u32;
        let mut letter = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if random >> 31 == 0 { b'a' } else { b'b' }
        };
        let names: Vec<Vec<u8>> = (0..30).map(|_| (0..230).map(|_| letter()).collect()).collect();
        let globs: Vec<_> = (0..8).map(|_| compile(&format!("*a{}c", "?".repeat(17)))).collect();
        let (states, mut most, mut alone) = (GlobStates::default(), 0, 0);
        for globs in &globs {
            let mut cache = globs.dfa.create_cache();
            for name in &names {
                assert_eq!(globs.last_match(&mut cache, name, |_| true), None);
                assert_eq!(states.last_match(globs, name, |_| true), None);
                most = most.max(states.held_bytes());
            }
            assert!(cache.memory_usage() <= MAX_STATE);
            alone += cache.memory_usage();
        }
        assert!(most <= MAX_STATES && alone > MAX_STATES, "{most} {alone}");
        assert_eq!(states.bytes.get(), states.held_bytes());
        // Small states are limited in number.
        let small: Vec<_> = (0..2 * MAX_HELD).map(|n| compile(&format!("a{n}*"))).collect();
        small.iter().for_each(|globs| assert_eq!(states.last_match(globs, b"b", |_| true), None));
        assert_eq!((states.held.borrow().len(), states.bytes.get()), (MAX_HELD, states.held_bytes()));
    }

    #[test]
    fn last_glob_that_applies_is_found() {
        let globs = ["*", "a*", "*b", "c"].map(|glob| Glob::new(glob).unwrap());
        let (globs, states) = (CompiledGlobs::new(&globs, 64 << 10).unwrap(), GlobStates::default());
        let last = |text: &str, most: usize| states.last_match(&globs, text.as_bytes(), |at| at <= most);
        assert_eq!([last("ab", 9), last("ab", 1), last("ac", 9), last("c", 9)], [Some(2), Some(1), Some(1), Some(3)]);
        let none = compile("a");
        assert_eq!(states.last_match(&none, b"ab", |_| true), None);
        assert!(CompiledGlobs::new(&[Glob::new(&"?".repeat(1_000)).unwrap()], 1 << 10).is_err());
    }
}
