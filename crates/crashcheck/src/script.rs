//! Every script of a length, and the blocks that scripts write.

use tidegate_sim::mix;

/// Every script of `steps` operations.
pub fn scripts<S: Copy>(alphabet: &[S], steps: u32) -> impl Iterator<Item = Vec<S>> + '_ {
    let count = alphabet.len().pow(steps);
    (0..count).map(move |mut number| {
        let mut script = Vec::new();
        for _ in 0..steps {
            script.push(alphabet[number % alphabet.len()]);
            number /= alphabet.len();
        }
        script
    })
}

/// A block of `bytes` bytes no two words of which are equal, nor equal to those of another `tag`.
pub fn block_of(tag: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|word| mix((tag << 16) | word | 1 << 63).to_le_bytes()).collect()
}
