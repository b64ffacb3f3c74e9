//! Fast hash for locally minted keys: timers are looked up several times per run, and ids are not chosen to collide.

use std::hash::{BuildHasherDefault, Hasher};

/// 2^64 divided by the golden ratio: spreads neighbouring ids over all bits.
const SPREAD: u128 = 0x9E37_79B9_7F4A_7C15;

/// Multiplies to twice the width and folds the halves together, word by word.
#[derive(Debug, Default)]
pub(super) struct KeyHasher(u64);

pub(super) type KeyHasherBuilder = BuildHasherDefault<KeyHasher>;

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.write_u64(chunk.try_into().map_or(0, u64::from_le_bytes));
        }
        let rest = chunks.remainder().iter().rev();
        self.write_u64(rest.fold(0, |word, byte| (word << 8) | u64::from(*byte)));
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        let wide = u128::from(self.0 ^ n) * SPREAD;
        let (low, high) = (wide as u64, (wide >> 64) as u64);
        self.0 = low ^ high;
    }

    fn write_u128(&mut self, n: u128) {
        self.write_u64(n as u64);
        self.write_u64((n >> 64) as u64);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, Hash};

    use super::*;

    fn hashes<K: Hash>(keys: impl Iterator<Item = K>) -> HashSet<u64> {
        keys.map(|key| KeyHasherBuilder::default().hash_one(key)).collect()
    }

    #[test]
    fn neighbouring_ids_do_not_collide_and_spread_over_both_ends() {
        let id = |n: u32| (u128::from(n) << 64 | 7, n % 4);
        let seen = hashes((0..10_000).map(id));
        assert_eq!(seen.len(), 10_000);
        let (low, high): (HashSet<_>, HashSet<_>) = seen.iter().map(|hash| (hash & 0xFF, hash >> 57)).unzip();
        assert_eq!((low.len(), high.len()), (256, 128));
        assert_eq!(hashes((0..10_000_u32).map(|n| n.to_le_bytes())).len(), 10_000);
    }
}
