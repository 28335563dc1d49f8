//! Hashes long contents fast. Campaigns recognise by it the states that they judged before.

use std::hash::{Hash, Hasher};
use tidegate_virtual_cores::mix;

/// Returns a number that equal values share and others, as good as always, do not. It is no other
/// in another process.
pub fn hash_of(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = WordHasher(SEED);
    value.hash(&mut hasher);
    hasher.finish()
}

const SEED: u64 = 0x243f_6a88_85a3_08d3;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Takes a word with one multiplication, whose two halves it folds together.
struct WordHasher(u64);

impl WordHasher {
    fn take(&mut self, word: u64) {
        let wide = (u128::from(self.0 ^ word) * u128::from(FACTOR)).to_le_bytes();
        let (halves, _) = wide.as_chunks::<8>();
        self.0 = u64::from_le_bytes(halves[0]) ^ u64::from_le_bytes(halves[1]);
    }
}

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.take(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.take(u64::from_le_bytes(last) ^ (rest.len() as u64) << 56);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.take(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.take(word as u64);
    }

    fn finish(&self) -> u64 {
        mix(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn values_that_differ_in_a_bit_or_a_length_have_other_hashes() {
        let mut hashes = HashSet::new();
        for length in 0..200 {
            let mut bytes = vec![0u8; length];
            assert!(hashes.insert(hash_of(&bytes)), "{length} zeroes");
            for bit in 0..length * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(hashes.insert(hash_of(&bytes)), "bit {bit} of {length} bytes");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
        assert_eq!(hash_of(&vec![7u8; 20]), hash_of(&vec![7u8; 20]));
    }
}
