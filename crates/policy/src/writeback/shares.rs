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

/// Fewest bytes to be written back at a time: each time waits for the disk.
const STEP_BYTES_MIN: u64 = 4 << 20;

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
    /// Written since it was asked to pay, while it had much.
    debt: u64,
}

impl Shares {
    /// Notes that a program writes so many bytes. Returns how many it owes, which it is asked for
    /// once; 0 if it need not pay.
    pub fn write(&mut self, program: u32, bytes: u64) -> u64 {
        self.bytes += bytes;
        // A newcomer is to find room beside a program that is alone.
        let programs = self.programs.len().max(2) as u64;
        let of_one = self.programs.entry(program).or_default();
        of_one.bytes += bytes;
        if of_one.bytes.saturating_mul(2 * programs) <= self.bytes {
            of_one.debt = 0;
            return 0;
        }
        of_one.debt += bytes;
        if of_one.debt < DEBT_MIN { 0 } else { std::mem::take(&mut of_one.debt) }
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

/// Takes steps that make room until they made as much as is owed, or make none. Returns how much
/// they made.
pub fn pay(debt: u64, mut step: impl FnMut(u64) -> u64) -> u64 {
    let mut paid = 0;
    while paid < debt {
        let by_step = step((debt - paid).max(STEP_BYTES_MIN));
        if by_step == 0 {
            break;
        }
        paid += by_step;
    }
    paid
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
            assert_eq!(shares.write(2, 4096), 0);
        }
    }

    #[test]
    fn programs_that_write_alike_owe_alike_and_a_lone_one_owes_too() {
        let mut shares = Shares::default();
        assert_eq!((0..16).map(|_| shares.write(7, 4096)).last(), Some(64 << 10), "alone");
        let mut shares = Shares::default();
        assert!((0..8).all(|program| shares.write(program, MIB) == MIB));
        assert!((0..8).all(|program| shares.write(program, MIB) == MIB));
        assert_eq!(shares.write(8, 128 << 10), 0, "a newcomer beside eight");
    }

    #[test]
    fn a_program_owes_nothing_of_what_it_wrote_while_that_was_little() {
        let mut shares = Shares::default();
        shares.write(1, 64 * MIB);
        assert!((0..16).all(|_| shares.write(2, MIB) == 0), "a quarter of 64 MiB");
        shares.settle(20 * MIB);
        shares.write(2, 2 * MIB);
        assert_eq!(shares.write(2, MIB), MIB);
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

    #[test]
    fn a_debt_is_paid_in_steps_that_are_worth_waiting_for_and_ends_where_nothing_is_left() {
        let paid = |debt, of_step: u64| {
            let mut asked = Vec::new();
            let paid = pay(debt, |bytes| {
                asked.push(bytes);
                of_step
            });
            (asked, paid)
        };
        assert_eq!(paid(64 << 10, 1 << 20), (vec![4 << 20], 1 << 20));
        assert_eq!(paid(5 << 20, 4 << 20), (vec![5 << 20, 4 << 20], 8 << 20));
        assert_eq!(paid(5 << 20, 0), (vec![5 << 20], 0));
    }
}
