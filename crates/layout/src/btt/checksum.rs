//! Fletcher-64 over little-endian 32-bit words.

/// A running Fletcher-64 sum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fletcher64 {
    low: u32,
    high: u32,
}

impl Fletcher64 {
    /// Adds `bytes`, a whole number of 32-bit words.
    pub(super) fn over(mut self, bytes: &[u8]) -> Fletcher64 {
        let (words, rest) = bytes.as_chunks::<4>();
        debug_assert!(rest.is_empty(), "the sum is over whole words");
        for word in words {
            self.low = self.low.wrapping_add(u32::from_le_bytes(*word));
            self.high = self.high.wrapping_add(self.low);
        }
        self
    }

    /// The sum so far.
    pub(super) fn sum(self) -> u64 {
        u64::from(self.high) << 32 | u64::from(self.low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Fletcher-64 sum of `bytes`, a whole number of 32-bit words.
    fn fletcher64(bytes: &[u8]) -> u64 {
        Fletcher64::default().over(bytes).sum()
    }

    #[test]
    fn sums_as_every_other_implementation() {
        let words = [1u32, 2, 3].map(u32::to_le_bytes).concat();
        assert_eq!(fletcher64(&words), 0x0000_000a_0000_0006);
        assert_eq!(fletcher64(&[]), 0);
        assert_eq!(fletcher64(&[0xff; 8]), 0xffff_fffd_ffff_fffe);
    }
}
