//! Random numbers from a printed seed (splitmix64), the same on every machine.

/// A generator whose whole state is one word: the same seed gives the same numbers for ever.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator that `seed` names.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..bound`; `bound` is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index into a list of `len` things; `len` is at least 1.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("below a usize")
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Scatters a word over all 64 bits: a one-to-one mapping.
#[inline]
pub fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_one_sequence() {
        let mut rng = Rng::new(0);
        assert_eq!(rng.next_u64(), 0xe220_a839_7b1d_cdaf, "splitmix64's published first number for seed 0");
        assert_eq!(Rng::new(7).next_u64(), Rng::new(7).next_u64());
    }

    #[test]
    fn below_reaches_every_number_and_no_other() {
        let mut rng = Rng::new(3);
        let mut seen = [0u32; 5];
        for _ in 0..1000 {
            seen[rng.index(5)] += 1;
        }
        assert!(seen.iter().all(|&times| times > 100), "{seen:?}");
    }
}
