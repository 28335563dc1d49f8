//! A digest of everything that happened, in its order.

use crate::random::mix;

/// A running digest of words. Equal digests mean, as good as always, equal sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace(u64);

impl Default for Trace {
    fn default() -> Trace {
        Trace(0x6a09_e667_f3bc_c908)
    }
}

impl Trace {
    /// Adds `word`.
    pub fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
    }

    /// The digest of what was added so far.
    pub fn digest(self) -> u64 {
        mix(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[u64]) -> u64 {
        let mut trace = Trace::default();
        words.iter().for_each(|word| trace.add(*word));
        trace.digest()
    }

    #[test]
    fn order_and_number_of_words_count() {
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(of(&[0]), of(&[0, 0]));
        assert_eq!(of(&[1, 2]), of(&[1, 2]));
    }
}
