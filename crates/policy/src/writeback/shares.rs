//! Who makes room in a cache that is nearly full: programs that wrote much, before they write more.
//!
//! A cache whose disk cannot keep up fills, and then a write waits for as long as it takes to bring
//! older ones to the disk. It does not matter to the cache who waits. It does to the programs: one
//! that writes much fills the room again at once, so one that syncs a few bytes now and then would
//! wait each time. So each program's bytes are counted until they are on the disk. One that has at
//! least half of an equal share of them owes what it writes: while the cache is nearly full, it
//! brings as much to the disk before it goes on. The last of the room is for the others.

use std::collections::HashMap;

/// From how many bytes on a debt is asked for: it is looked at with every write.
const DEBT_MIN: u64 = 64 << 10;

/// What programs wrote that is not on the disk yet, and what they owe.
#[derive(Debug, Default)]
pub struct Shares {
    programs: HashMap<u32, Written>,
    /// Bytes of all of them.
    bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Written {
    /// Written, and not on the disk yet, about.
    bytes: u64,
    /// Written, and neither paid nor remitted since.
    debt: u64,
}

impl Shares {
    /// Notes that a program writes so many bytes. Returns how many it owes, 0 if it need not pay.
    pub fn write(&mut self, program: u32, bytes: u64) -> u64 {
        let of_one = self.programs.entry(program).or_default();
        of_one.bytes += bytes;
        of_one.debt += bytes;
        self.bytes += bytes;
        let Written { bytes, debt } = *of_one;
        // A newcomer is to find room beside a program that is alone.
        let programs = self.programs.len().max(2) as u64;
        let is_much = bytes.saturating_mul(2 * programs) > self.bytes;
        if is_much && debt >= DEBT_MIN { debt } else { 0 }
    }

    /// A program owes nothing now: it paid, or there is room.
    pub fn clear(&mut self, program: u32) {
        if let Some(of_one) = self.programs.get_mut(&program) {
            of_one.debt = 0;
        }
    }

    /// The cache has so many bytes that are not on the disk. If programs wrote more, the rest is
    /// there or was overwritten, of each program the same part. One of which nothing is left is
    /// forgotten.
    pub fn settle(&mut self, bytes: u64) {
        let (of, left) = (u128::from(self.bytes), u128::from(bytes));
        if left >= of {
            return;
        }
        self.programs.retain(|_, program| {
            program.bytes = u64::try_from(u128::from(program.bytes) * left / of).expect("a part");
            program.bytes > 0
        });
        self.bytes = self.programs.values().map(|program| program.bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_program_that_writes_much_owes_it_and_one_beside_it_owes_nothing() {
        let mut shares = Shares::default();
        for _ in 0..1000 {
            assert_eq!(shares.write(1, MIB), MIB);
            shares.clear(1);
            assert_eq!(shares.write(2, 4096), 0, "until it owes 64 KiB, and then it is still modest");
        }
    }

    #[test]
    fn programs_that_write_alike_owe_alike_and_a_lone_one_owes_too() {
        let mut shares = Shares::default();
        assert_eq!((0..16).map(|_| shares.write(7, 4096)).last(), Some(64 << 10), "alone");
        let mut shares = Shares::default();
        assert!((0..8).all(|program| shares.write(program, MIB) == MIB));
        assert!((0..8).all(|program| shares.write(program, MIB) == 2 * MIB));
        assert_eq!(shares.write(8, 128 << 10), 0, "a newcomer beside eight");
    }

    #[test]
    fn what_is_on_the_disk_does_not_count_and_what_waits_for_it_does() {
        let mut shares = Shares::default();
        shares.write(1, 64 * MIB);
        for _ in 0..10 {
            assert_eq!(shares.write(2, MIB), 0);
            shares.settle(80 * MIB);
        }
        shares.settle(37 * MIB);
        assert_eq!(shares.bytes, 37 * MIB);
        assert_eq!(shares.programs[&2].bytes, 5 * MIB);
        shares.settle(0);
        assert!(shares.programs.is_empty() && shares.bytes == 0);
        assert_eq!(shares.write(2, MIB), MIB);
    }
}
