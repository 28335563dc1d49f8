//! Which blocks the clients in a guest write, in which order: known on both sides of the serial
//! line, so that a count says which writes were acknowledged.

/// Clients, each with the blocks that are its number modulo this.
pub const WRITERS: u64 = 2;

/// The blocks of one client's writes, for ever. The n-th write, from 1 on, is of generation `base`
/// + n.
#[derive(Clone, Debug)]
pub struct Writes {
    state: u64,
    writer: u64,
    blocks: u64,
    base: u32,
    done: u32,
}

impl Writes {
    /// What the client number `writer` writes to a volume of `blocks` blocks, above generation
    /// `base`.
    pub fn new(writer: u64, blocks: u64, base: u32) -> Writes {
        Writes::seeded(u64::from(base) * WRITERS + writer + 1, writer, blocks, base)
    }

    /// The writes of client number `writer` to a volume of `blocks` blocks above generation `base`,
    /// in the order of another `seed`, which is not 0.
    pub fn seeded(seed: u64, writer: u64, blocks: u64, base: u32) -> Writes {
        Writes { state: seed, writer, blocks, base, done: 0 }
    }

    /// The next write: its block and its generation.
    pub fn advance(&mut self) -> (u64, u32) {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.done += 1;
        (self.writer + self.state % (self.blocks / WRITERS) * WRITERS, self.base + self.done)
    }

    /// The generation above which it writes.
    pub fn base(&self) -> u32 {
        self.base
    }

    /// How many writes it gave.
    pub fn done(&self) -> u32 {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn writers_share_no_block_and_leave_none_out() {
        let blocks_of = |writer| -> BTreeSet<u64> {
            let mut writes = Writes::new(writer, 40, 0);
            (0..2000).map(|_| writes.advance().0).collect()
        };
        let (even, odd) = (blocks_of(0), blocks_of(1));
        assert_eq!((even.len(), odd.len()), (20, 20));
        assert!(even.is_disjoint(&odd));
        assert!(even.iter().chain(&odd).all(|block| *block < 40));
    }

    #[test]
    fn generations_count_up_from_the_base() {
        let mut writes = Writes::new(1, 40, 700);
        assert_eq!([writes.advance().1, writes.advance().1, writes.advance().1], [701, 702, 703]);
        assert_eq!(writes.done(), 3);
    }
}
