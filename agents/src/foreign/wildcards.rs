//! Patterns of tools and keys in files of other products.

/// Returns whether `text` fits a pattern in which `*` is any run of characters and `?` is one.
///
/// The time is at most proportional to the product of both lengths, because a file may have thousands of patterns.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut wanted) = (0_usize, 0_usize);
    // The last `*`, and the end of the run that it covers.
    let mut star: Option<(usize, usize)> = None;
    while let Some(c) = text.get(at) {
        match (pattern.get(wanted), star) {
            (Some('*'), _) => {
                star = Some((wanted, at));
                wanted = wanted.saturating_add(1);
            }
            (Some(p), _) if *p == '?' || p == c => {
                at = at.saturating_add(1);
                wanted = wanted.saturating_add(1);
            }
            (_, Some((place, end))) => {
                let end = end.saturating_add(1);
                star = Some((place, end));
                (at, wanted) = (end, place.saturating_add(1));
            }
            (_, None) => return false,
        }
    }
    pattern.get(wanted..).unwrap_or_default().iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries each way to match, and counts the tries: exponential in the number of stars.
    fn slowly(pattern: &[char], text: &[char], tries: &mut u64) -> bool {
        *tries += 1;
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|at| slowly(rest, &text[at..], tries)),
            Some((c, rest)) => {
                text.first().is_some_and(|first| *c == '?' || c == first) && slowly(rest, &text[1..], tries)
            }
        }
    }

    fn words(letters: &[char], longest: usize) -> Vec<String> {
        let mut all = vec![String::new()];
        let mut last = all.clone();
        for _ in 0..longest {
            last = last.iter().flat_map(|word| letters.iter().map(move |c| format!("{word}{c}"))).collect();
            all.extend(last.iter().cloned());
        }
        all
    }

    #[test]
    fn wildcards_match_what_each_way_to_match_finds() {
        let texts = words(&['a', 'b'], 5);
        for pattern in words(&['a', 'b', '?', '*'], 5) {
            let chars: Vec<char> = pattern.chars().collect();
            for text in &texts {
                let expected = slowly(&chars, &text.chars().collect::<Vec<_>>(), &mut 0);
                assert_eq!(matches(&pattern, text), expected, "{pattern} {text}");
            }
        }
        assert!(matches("*größe?", "die größen") && !matches("gr?ße", "grüsse"));
    }

    /// The control: trying each way takes eight times as long if pattern and text grow by half.
    #[test]
    fn wildcards_of_a_hostile_pattern_take_bounded_time() {
        let (pattern, text) = (format!("{}x", "*?".repeat(2_000)), "a".repeat(4_000));
        assert!(!matches(&pattern, &text));
        assert!(matches(&pattern, &format!("{text}x")));
        let tries = |stars: usize| {
            let (pattern, text) = (format!("{}x", "*?".repeat(stars)), "a".repeat(2 * stars));
            let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            let mut tries = 0;
            assert!(!slowly(&pattern, &text, &mut tries));
            tries
        };
        assert!(tries(9) > 8 * tries(6), "{} and {}", tries(9), tries(6));
    }
}
