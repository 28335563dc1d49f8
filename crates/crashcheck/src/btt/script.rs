//! Scripts: short rows of operations, each on a core of its choice, and what each tells the oracle.

use crate::script::block_of;
use std::fmt;
use tidegate_media::{BlockDevice, Durability, Lba, LbaRange, Result};
use tidegate_sim::{Content, Oracle, Pending, on_core};

/// One operation of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The core that does it.
    pub core: u32,
    /// What it does.
    pub act: Act,
}

/// What a step does; the number is the sector's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Writes one block.
    Write(u64),
    /// Writes zeroes to one block.
    Zeroes(u64),
    /// Discards one block.
    Discard(u64),
    /// Flushes the device.
    Flush,
    /// Closes the volume and opens it again: the process ended, the power did not.
    Reopen,
}

/// What a write puts into its block: contents are told apart by tags, and digested once.
pub struct Written {
    /// The block.
    pub bytes: Vec<u8>,
    /// Its digest.
    pub content: Content,
}

impl Written {
    /// The block of `bytes` bytes that `tag` names.
    pub fn new(tag: u64, bytes: usize) -> Written {
        let bytes = block_of(tag, bytes);
        let content = Content::of(&bytes);
        Written { bytes, content }
    }
}

impl Step {
    /// Every step there is on `sectors` sectors: writes on each of the cores, the rest on the first
    /// two.
    pub fn alphabet(cores: &[u32], sectors: u64, discards: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        for &core in cores {
            steps.extend((0..sectors).map(|lba| Step { core, act: Act::Write(lba) }));
        }
        for &core in &cores[..2] {
            steps.extend((0..sectors).map(|lba| Step { core, act: Act::Zeroes(lba) }));
            steps.extend([Act::Flush, Act::Reopen].map(|act| Step { core, act }));
        }
        let discarded = if discards { sectors } else { 1 };
        steps.extend((0..discarded).map(|lba| Step { core: cores[0], act: Act::Discard(lba) }));
        steps
    }

    /// Tells the oracle that the step begins.
    pub fn began(self, oracle: &mut Oracle, written: &Written) -> Option<Pending> {
        match self.act {
            Act::Write(lba) => Some(oracle.write_began(Lba(lba), written.content, Durability::Volatile)),
            Act::Zeroes(lba) => Some(oracle.write_zeroes_began(one(lba), Durability::Volatile)),
            Act::Discard(lba) => Some(oracle.discard_began(one(lba))),
            Act::Flush | Act::Reopen => None,
        }
    }

    /// Runs the step on its core. A reopening is the caller's.
    pub fn run<D: BlockDevice>(self, device: &D, written: &Written) -> Result<()> {
        on_core(self.core, || match self.act {
            Act::Write(lba) => device.write(Lba(lba), &written.bytes, Durability::Volatile),
            Act::Zeroes(lba) => device.write_zeroes(one(lba), Durability::Volatile),
            Act::Discard(lba) => device.discard(one(lba)),
            Act::Flush => device.flush(),
            Act::Reopen => Ok(()),
        })
    }
}

fn one(lba: u64) -> LbaRange {
    LbaRange { first: Lba(lba), blocks: 1 }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on core {}", self.act, self.core)
    }
}
