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

    /// Tries each way to match, and counts the attempts, which grow exponentially with the number of stars.
    fn exhaustive(pattern: &[char], text: &[char], attempts: &mut u64) -> bool {
        *attempts += 1;
        match pattern.split_first() {
            None => text.is_empty(),
            Some(('*', rest)) => (0..=text.len()).any(|at| exhaustive(rest, &text[at..], attempts)),
            Some((c, rest)) => {
                text.first().is_some_and(|first| *c == '?' || c == first) && exhaustive(rest, &text[1..], attempts)
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
    fn wildcards_match_like_an_exhaustive_search() {
        let texts = words(&['a', 'b'], 5);
        for pattern in words(&['a', 'b', '?', '*'], 5) {
            let chars: Vec<char> = pattern.chars().collect();
            for text in &texts {
                let expected = exhaustive(&chars, &text.chars().collect::<Vec<_>>(), &mut 0);
                assert_eq!(matches(&pattern, text), expected, "{pattern} {text}");
            }
        }
        assert!(matches("*größe?", "die größen") && !matches("gr?ße", "grüsse"));
    }

    /// The control: an exhaustive search takes eight times as long if pattern and text grow by half.
    #[test]
    fn wildcards_of_a_hostile_pattern_take_bounded_time() {
        let (pattern, text) = (format!("{}x", "*?".repeat(2_000)), "a".repeat(4_000));
        assert!(!matches(&pattern, &text));
        assert!(matches(&pattern, &format!("{text}x")));
        let attempts = |stars: usize| {
            let (pattern, text) = (format!("{}x", "*?".repeat(stars)), "a".repeat(2 * stars));
            let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            let mut attempts = 0;
            assert!(!exhaustive(&pattern, &text, &mut attempts));
            attempts
        };
        assert!(attempts(9) > 8 * attempts(6), "{} and {}", attempts(9), attempts(6));
    }
}
