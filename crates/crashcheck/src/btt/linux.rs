//! The recovery of Linux's driver, written anew and plainly, over the bytes of an image.
//!
//! One pass over the lanes. The newest of a lane's two slots says `lba`, `old`, `new`: if they
//! differ and the map entry of `lba`, flags stripped, is `old`, it becomes `new` with both flags
//! set; otherwise the lane is left. A map entry without flags is the sector's own number. Nothing
//! of the engine is used here, so that the two must agree without having agreed.

use std::collections::BTreeMap;
use tidegate_layout::btt::ArenaGeometry;
use tidegate_sim::{Content, Image, Rng};

const BOTH_FLAGS: u32 = 0xc000_0000;
const ZERO: u32 = 0x8000_0000;
const ERROR: u32 = 0x4000_0000;

/// In which order the lanes are recovered. Linux goes up; no order may matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From lane 0.
    Ascending,
    /// From the last lane.
    Descending,
    /// As the seed says.
    Shuffled(u64),
}

/// What Linux's driver makes of an arena when it attaches the volume.
#[derive(Debug)]
pub struct LinuxArena<'a> {
    image: &'a Image,
    /// Where the arena starts in the image.
    start: u64,
    geometry: ArenaGeometry,
    /// Each lane's free block.
    free: Vec<u32>,
    /// Map entries that the recovery stored.
    recovered: BTreeMap<u32, u32>,
}

impl<'a> LinuxArena<'a> {
    /// Recovers the arena at `start` in `image`, or says why the driver would refuse it.
    pub fn attach(
        image: &'a Image,
        start: u64,
        geometry: &ArenaGeometry,
        order: Order,
    ) -> Result<LinuxArena<'a>, String> {
        let free = vec![0; geometry.nfree as usize];
        let mut arena = LinuxArena { image, start, geometry: *geometry, free, recovered: BTreeMap::new() };
        for lane in order.lanes(geometry.nfree) {
            arena.recover(lane)?;
        }
        Ok(arena)
    }

    fn recover(&mut self, lane: u32) -> Result<(), String> {
        let mut group = [0; 64];
        self.image.read(self.start + self.geometry.logoff + u64::from(lane) * 64, &mut group);
        let slot = |slot: usize| [0, 4, 8, 12].map(|field| u32_of(&group[slot * 16 + field..]));
        let [first, second] = [slot(0), slot(1)];
        let second_wins = second_is_newest(first[3], second[3]).map_err(|why| format!("lane {lane}: {why}"))?;
        let [lba, old, new, _] = if second_wins { second } else { first };
        let (old, new) = (old & !BOTH_FLAGS, new & !BOTH_FLAGS);
        self.free[lane as usize] = old;
        if lba >= self.geometry.external_nlba {
            return Err(format!("lane {lane} names sector {lba}"));
        }
        if old != new && self.block(lba) == old {
            self.recovered.insert(lba, BOTH_FLAGS | new);
        }
        Ok(())
    }

    /// Whether each block is owned by one sector or one lane, and by no other.
    pub fn owners(&self) -> Result<(), String> {
        let mut owned = vec![0u32; self.geometry.internal_nlba as usize];
        let sectors = (0..self.geometry.external_nlba).map(|lba| self.block(lba));
        for block in sectors.chain(self.free.iter().copied()) {
            *owned.get_mut(block as usize).ok_or_else(|| format!("block {block} is none of the arena's"))? += 1;
        }
        match owned.iter().position(|owners| *owners != 1) {
            None => Ok(()),
            Some(block) => Err(format!("block {block} has {} owners", owned[block])),
        }
    }

    /// What the sector `lba` of the arena shows.
    pub fn content(&self, lba: u32, block_bytes: usize) -> Result<Content, String> {
        let mut bytes = vec![0; block_bytes];
        match self.entry(lba) & BOTH_FLAGS {
            ZERO => {}
            ERROR => return Err(format!("sector {lba} is in the error state")),
            _ => {
                let within = u64::from(self.block(lba)) * u64::from(self.geometry.internal_lbasize);
                self.image.read(self.start + self.geometry.dataoff + within, &mut bytes);
            }
        }
        Ok(Content::of(&bytes))
    }

    fn entry(&self, lba: u32) -> u32 {
        let mut bytes = [0; 4];
        self.image.read(self.start + self.geometry.mapoff + u64::from(lba) * 4, &mut bytes);
        self.recovered.get(&lba).copied().unwrap_or(u32::from_le_bytes(bytes))
    }

    fn block(&self, lba: u32) -> u32 {
        let entry = self.entry(lba);
        if entry & BOTH_FLAGS == 0 { lba } else { entry & !BOTH_FLAGS }
    }
}

/// Linux's own comparison of two sequence numbers, with its answer for pairs it never expects.
fn second_is_newest(first: u32, second: u32) -> Result<bool, String> {
    if first == second || first + second > 5 {
        return Err(format!("sequence numbers {first} and {second}"));
    }
    Ok(if first < second { second - first == 1 } else { first - second != 1 })
}

impl Order {
    fn lanes(self, nfree: u32) -> Vec<u32> {
        let mut lanes: Vec<u32> = (0..nfree).collect();
        match self {
            Order::Ascending => {}
            Order::Descending => lanes.reverse(),
            Order::Shuffled(seed) => {
                let mut rng = Rng::new(seed);
                (1..lanes.len()).rev().for_each(|last| lanes.swap(last, rng.index(last + 1)));
            }
        }
        lanes
    }
}

fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
