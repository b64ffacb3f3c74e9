//! Random numbers. Equal seeds give equal numbers.

#[derive(Clone, Debug)]
pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the generator that is seeded with `seed` and `text`.
    pub(crate) fn of(seed: u64, text: &str) -> Self {
        let mixed = text
            .bytes()
            .fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self(mixed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, or 0 if that is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.draw().checked_rem(bound).unwrap_or(0)
    }

    /// Returns true with a probability of 1 in `n`.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn shuffle<T>(&mut self, cards: &mut [T]) {
        for last in (1..cards.len()).rev() {
            let with = usize::try_from(self.below(last as u64 + 1)).unwrap_or(0);
            cards.swap(last, with);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_numbers() {
        let draw = |seed| {
            let mut rng = SeededRng::new(seed);
            [rng.draw(), rng.below(10), rng.below(0)]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(SeededRng::of(7, "a").draw(), SeededRng::of(7, "b").draw());
    }

    #[test]
    fn shuffle_keeps_every_element() {
        let mut cards: Vec<u32> = (0..20).collect();
        SeededRng::new(3).shuffle(&mut cards);
        assert_ne!(cards, (0..20).collect::<Vec<_>>());
        cards.sort_unstable();
        assert_eq!(cards, (0..20).collect::<Vec<_>>());
    }
}
