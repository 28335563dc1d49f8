//! Images changed by hand, past every engine: writes left half done, and damage.
//!
//! What lies where is read from the image's own first info block, so an image of any writer will
//! do.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use tidegate_layout::btt::{Arena, FlogGroup, FlogHalf, InfoBlock, MapEntry, SlotPair, Version, newest_slot, next_seq};
use zerocopy::{FromBytes, IntoBytes};

const INFO_BYTES: usize = size_of::<InfoBlock>();

/// An image laid open: one of its arenas, to be changed byte by byte.
#[derive(Debug)]
pub struct Opened {
    file: File,
    arena: Arena,
}

/// A write as far as it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// The lane it was on.
    pub lane: u32,
    /// The sector it writes.
    pub lba: u32,
    /// The internal block its data is in.
    pub new: u32,
    /// The internal block the map still names.
    pub old: u32,
}

impl Opened {
    /// The first arena of the image at `path`, which has to have a good info block.
    pub fn first_arena(path: &Path, version: Version) -> Opened {
        let file = OpenOptions::new().read(true).write(true).open(path).expect("the image opens");
        let arena = arena_at(&file, version.start());
        Opened { file, arena }
    }

    /// How the arena is cut, and where its parts lie.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The bytes at an offset of the image.
    pub fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, at).expect("the image has these bytes");
        bytes
    }

    /// Replaces bytes at an offset of the image.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).expect("the image takes bytes");
    }

    /// The map entry of a sector.
    pub fn map(&self, lba: u32) -> MapEntry {
        MapEntry::from_raw(u32::from_le_bytes(self.read(self.arena.map_at(lba))))
    }

    /// Replaces the map entry of a sector.
    pub fn set_map(&self, lba: u32, entry: MapEntry) {
        self.write(self.arena.map_at(lba), &entry.raw().to_le_bytes());
    }

    /// The flog group of a lane.
    pub fn flog(&self, lane: u32) -> FlogGroup {
        FlogGroup::read_from_bytes(&self.read::<64>(self.arena.flog_at(lane))).expect("a group is 64 bytes")
    }

    /// Replaces one slot of a lane's flog group.
    pub fn set_slot(&self, lane: u32, slot: usize, half: FlogHalf) {
        self.write(self.arena.flog_at(lane) + 16 * slot as u64, half.as_bytes());
    }

    /// Replaces an info block of the arena, the first copy or the second.
    pub fn set_info(&self, at: u64, change: impl FnOnce(InfoBlock) -> InfoBlock) {
        let info = InfoBlock::read_from_bytes(&self.read::<INFO_BYTES>(at)).expect("a block is a page");
        self.write(at, change(info).as_bytes());
    }

    /// Carries a write of `data` to sector `lba` on `lane` up to its commit in the flog, as Linux
    /// does it, and leaves the map as it was. Slots 0 and 1 are in use.
    pub fn interrupt_write(&self, lane: u32, lba: u32, data: &[u8]) -> Interrupted {
        let pair = SlotPair::Adjacent.of(&self.flog(lane));
        let live = newest_slot(&pair).expect("the lane is in order");
        let new = MapEntry::strip(pair[live].old.get());
        let replaced = self.map(lba);
        self.write(self.arena.data_at(new), data);
        let half = FlogHalf::new(lba, replaced.as_replaced(lba), new, next_seq(pair[live].seq.get()));
        self.set_slot(lane, 1 - live, half);
        Interrupted { lane, lba, new, old: replaced.block(lba) }
    }
}

/// Gives all info blocks of the image at `path` another parent uuid, with the checksums that fit.
pub fn set_parent_uuid(path: &Path, version: Version, parent: [u8; 16]) {
    let opened = Opened::first_arena(path, version);
    for at in [opened.arena.start(), opened.arena.info2_at()] {
        opened.set_info(at, |mut info| {
            info.parent_uuid = parent;
            info.with_checksum()
        });
    }
}

fn arena_at(file: &File, start: u64) -> Arena {
    let mut bytes = [0; INFO_BYTES];
    file.read_exact_at(&mut bytes, start).expect("the image has an info block");
    let room = file.metadata().expect("the image has a size").len() - start;
    let info = InfoBlock::read_from_bytes(&bytes).expect("a block is a page");
    info.check(start, room).expect("the first info block is good")
}
