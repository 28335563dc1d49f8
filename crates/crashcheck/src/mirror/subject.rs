//! The engines that a mirror is tried under.

use crate::btt::SmallVolume;
use crate::disk_cache::SmallCache;
use std::sync::Arc;
use tidegate_btt::Btt;
use tidegate_disk_cache::DiskCache;
use tidegate_media::{BlockDevice, Durability, InTurn, Lba, Region};
use tidegate_sim::{Disk, Image, Oracle, Promise, Reduction};

/// An engine on a small region.
pub trait Subject: Sync {
    /// The engine.
    type Device<R: Region + 'static>: BlockDevice;

    /// The region after a format that nothing interrupted.
    fn formatted(&self) -> Image;
    /// Opens the engine on `region`.
    fn open<R: Region + 'static>(&self, region: R) -> Result<Self::Device<R>, String>;
    /// Blocks that are read.
    fn blocks(&self) -> u64;
    /// Bytes in a block.
    fn block_bytes(&self) -> usize;
    /// What a fresh volume holds.
    fn oracle(&self) -> Oracle;
    /// Which words recovery never reads.
    fn reduction(&self) -> Reduction;
}

/// A block translation table.
pub struct MirroredVolume(pub SmallVolume);

impl Subject for MirroredVolume {
    type Device<R: Region + 'static> = Btt<R>;

    fn formatted(&self) -> Image {
        self.0.formatted()
    }
    fn open<R: Region + 'static>(&self, region: R) -> Result<Btt<R>, String> {
        Btt::open(region, &self.0.options()).map_err(|error| error.to_string())
    }
    fn blocks(&self) -> u64 {
        self.0.sectors()
    }
    fn block_bytes(&self) -> usize {
        self.0.block_bytes
    }
    fn oracle(&self) -> Oracle {
        Oracle::zeroed(self.blocks(), self.block_bytes(), Promise::OnCompletion)
    }
    fn reduction(&self) -> Reduction {
        self.0.reduction()
    }
}

/// A disk cache whose disk is not written meanwhile: what it lacks is dirty in the region.
pub struct MirroredCache(pub SmallCache);

impl Subject for MirroredCache {
    type Device<R: Region + 'static> = DiskCache<R>;

    fn formatted(&self) -> Image {
        self.0.formatted()
    }
    fn open<R: Region + 'static>(&self, region: R) -> Result<DiskCache<R>, String> {
        let disk = Arc::new(InTurn(Arc::new(Disk::from_image(self.0.disk(), 512))));
        DiskCache::open(region, disk, self.0.options()).map_err(|error| error.to_string())
    }
    fn blocks(&self) -> u64 {
        2
    }
    fn block_bytes(&self) -> usize {
        512
    }
    fn oracle(&self) -> Oracle {
        let mut oracle = Oracle::zeroed(self.blocks(), self.block_bytes(), Promise::OnCompletion);
        for (lba, content) in (0..self.blocks()).zip(self.0.contents()) {
            let pending = oracle.write_began(Lba(lba), content, Durability::Volatile);
            oracle.acknowledged(pending);
        }
        oracle
    }
    fn reduction(&self) -> Reduction {
        self.0.reduction()
    }
}
