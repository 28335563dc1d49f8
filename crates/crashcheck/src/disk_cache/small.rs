//! Caches of a few blocks, whose cuts can be enumerated.

use crate::disk_cache::script::{CacheStep, Subset};
use crate::script::block_of;
use std::iter;
use std::sync::Arc;
use tidegate_disk_cache::{
    Checksums, Contents, FormatSpec, Guard, Options, Reads, format_ordered, format_with, lay_out_journal,
};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_media::{InTurn, LineOrder};
use tidegate_sim::{Content, Disk, Image, Reduction, Region};

/// A cache of a few blocks in front of a few more.
#[derive(Clone, Debug)]
pub struct SmallCache {
    /// Where everything lies.
    pub plan: CachePlan,
    /// What is done before a script: the cache as it is then, pending stores included.
    pub before: Vec<CacheStep>,
    /// The blocks of the disk that scripts are about.
    pub lbas: Vec<u64>,
    /// In which order the words of a line reach the medium.
    pub order: LineOrder,
    /// What becomes of blocks that are read.
    pub reads: Reads,
    /// Whether the disk is compared at each opening: no cut may leave one that looks as if somebody
    /// else had written to it.
    pub guard: Guard,
}

/// The identity of every cache.
const UUID: [u8; 16] = [1; 16];

/// Bytes in a block.
pub(crate) const BLOCK: usize = 512;

impl SmallCache {
    /// Six blocks before a disk of eight, a ring of eight elements: a transaction has at most three
    /// blocks.
    fn six_blocks(before: Vec<CacheStep>, lbas: &[u64]) -> SmallCache {
        let (plan, lbas) = (CachePlan::cut(6, 512, 8, 8), lbas.to_vec());
        SmallCache { plan, before, lbas, order: LineOrder::Prefix, reads: Reads::Kept, guard: Guard::Off }
    }

    /// Nothing is cached.
    pub fn fresh() -> SmallCache {
        SmallCache::six_blocks(Vec::new(), &[0, 1, 2])
    }

    /// Every block is taken, and clean: whatever is written needs room. Of the scripts' blocks two
    /// are cached.
    pub fn full_of_clean_blocks() -> SmallCache {
        let reads = (0..6).map(|lba| CacheStep::Read { core: 0, lba });
        SmallCache::six_blocks(reads.collect(), &[0, 1, 6])
    }

    /// Dirty, clean and free blocks, and elements in the ring that nobody has retired.
    pub fn mixed() -> SmallCache {
        let before = vec![
            CacheStep::Commit { core: 0, lbas: Subset::of(&[0, 3]) },
            CacheStep::Drain { core: 1 },
            CacheStep::Commit { core: 0, lbas: Subset::of(&[1, 2]) },
            CacheStep::Read { core: 0, lba: 4 },
            CacheStep::Commit { core: 0, lbas: Subset::of(&[1]) },
        ];
        SmallCache::six_blocks(before, &[1, 3, 6])
    }

    /// Five of six blocks dirty: most commits have to destage first.
    pub fn full_of_dirty_blocks() -> SmallCache {
        let before = vec![
            CacheStep::Commit { core: 0, lbas: Subset::of(&[0, 1, 2]) },
            CacheStep::Commit { core: 1, lbas: Subset::of(&[3, 4]) },
        ];
        SmallCache::six_blocks(before, &[0, 4, 7])
    }

    /// The disk keeps the order of commits, and a group is half on its way: its blocks are in the
    /// journal, and one of them was written since.
    pub fn amid_a_group() -> SmallCache {
        let before = vec![
            CacheStep::Commit { core: 0, lbas: Subset::of(&[0, 1]) },
            CacheStep::Commit { core: 1, lbas: Subset::of(&[3]) },
            CacheStep::Drain { core: 1 },
            CacheStep::Commit { core: 0, lbas: Subset::of(&[1, 2]) },
        ];
        SmallCache::six_blocks(before, &[0, 1, 4]).in_order()
    }

    /// This cache with a checksum of each block, which every read of a checker verifies.
    pub fn with_sums(self) -> SmallCache {
        let CachePlan { blocks, block_size, disk_blocks, ring_slots, .. } = self.plan;
        let plan = CachePlan::cut_with(Checksums::Kept, blocks, block_size, disk_blocks, ring_slots);
        SmallCache { plan: plan.ordered(self.plan.journal_blocks), ..self }
    }

    /// This cache over a disk that keeps the order of commits.
    pub fn in_order(self) -> SmallCache {
        SmallCache { plan: self.plan.ordered(self.plan.blocks), ..self }
    }

    /// This cache on a processor whose words to one line arrive in any order.
    pub fn in_any_order(self) -> SmallCache {
        SmallCache { order: LineOrder::Any, ..self }
    }

    /// This cache, whose read blocks are volatile.
    pub fn that_forgets_reads(self) -> SmallCache {
        SmallCache { reads: Reads::Forgotten, ..self }
    }

    /// This cache, of which each opening compares the disk with the guard.
    pub fn guarded(self) -> SmallCache {
        SmallCache { guard: Guard::Always, ..self }
    }

    /// How it is opened.
    pub(crate) fn options(&self) -> Options {
        Options { reads: self.reads, guard: self.guard, ..Options::default() }
    }

    /// The memory of the machine after power came back.
    pub(crate) fn region(&self, image: &Image) -> Region {
        Region::with_line_order(image.clone(), self.order)
    }

    /// The medium after a format that nothing interrupted.
    pub fn formatted(&self) -> Image {
        let region = Region::new(self.plan.end().next_multiple_of(8));
        let CachePlan { block_size, disk_blocks, ring_slots, .. } = self.plan;
        let spec = FormatSpec { block_size, disk_blocks, ring_slots, uuid: UUID, disk: [2; 32] };
        let (sums, journal_blocks) = (self.plan.sums(), self.plan.journal_blocks);
        match journal_blocks {
            0 => format_with(sums, &region, &spec, Contents::Zeroed),
            _ => format_ordered(journal_blocks, sums, &region, &spec, Contents::Zeroed),
        }
        .expect("the region is sound");
        region.cut().least().clone()
    }

    /// The disk before anything is written through the cache: each block another content, and a
    /// journal that holds nothing.
    pub fn disk(&self) -> Image {
        let blocks: Vec<u8> = (0..self.plan.disk_blocks).flat_map(|lba| block_of(1000 + lba, BLOCK)).collect();
        let Some(journal) = self.plan.journal() else { return Image::from_bytes(&blocks) };
        let mut bytes = blocks;
        bytes.resize(usize::try_from(journal.end()).expect("a small disk") * BLOCK, 0);
        let disk = Arc::new(Disk::from_image(Image::from_bytes(&bytes), 512));
        lay_out_journal(&InTurn(disk.clone()), journal, UUID).expect("the disk is sound");
        disk.visible()
    }

    /// What each block of the disk holds then.
    pub fn contents(&self) -> Vec<Content> {
        (0..self.plan.disk_blocks).map(|lba| Content::of(&block_of(1000 + lba, BLOCK))).collect()
    }

    /// Everything in full but the words of blocks, which recovery never reads.
    pub fn reduction(&self) -> Reduction {
        Reduction::of(iter::once(self.plan.data_at..self.plan.end()))
    }
}
