//! A cache and its disk as C programs hold them, without a pointer in sight.

use crate::status::Failure;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tidegate_disk_cache::{Contents, DiskCache, FormatSpec, Options, check, format, identify};
use tidegate_media::{
    Access, Allocation, BlockDevice, DiskAccess, DiskIdentity, Domain, Durability, FileBacked, FileDisk, Geometry, Lba,
    MappedRegion,
};

/// A cache in persistent memory in front of a disk.
pub struct Cache {
    /// What reads, writes and flushes go through: on an ordinary file, flushes reach that file.
    device: Arc<dyn BlockDevice>,
    engine: Arc<DiskCache<Arc<MappedRegion>>>,
}

impl Cache {
    /// Makes a region of `bytes` bytes at `pmem`, where nothing may be, in front of `disk`.
    pub(crate) fn create(pmem: &Path, bytes: u64, disk: &Path, block_size: u32) -> Result<(), Failure> {
        if !block_size.is_power_of_two() || block_size < 512 {
            return Err(Failure::BlockSize(block_size));
        }
        let disk = FileDisk::open(disk, DiskAccess::ReadWrite, block_size)?;
        let region = MappedRegion::create(pmem, bytes, Allocation::Full)?;
        let spec = FormatSpec {
            block_size,
            disk_blocks: disk.geometry().blocks,
            ring_slots: FormatSpec::ring_slots_in(bytes),
            uuid: uuid::Uuid::new_v4().into_bytes(),
            disk: disk.identity().0,
        };
        format(&region, &spec, Contents::Zeroed)?;
        match region.file() {
            Some(file) if region.domain() == Domain::DiskFile => Ok(file.sync_all()?),
            _ => Ok(()),
        }
    }

    /// Opens the cache at `pmem` in front of `disk`; what was interrupted is finished.
    pub(crate) fn open(pmem: &Path, disk: &Path) -> Result<Cache, Failure> {
        let region = Arc::new(MappedRegion::open(pmem, Access::ReadWrite)?);
        let identity = identify(&*region).map_err(tidegate_media::Error::from)?.ok_or(Failure::NoCache)?;
        let on_disk_file = region.domain() == Domain::DiskFile;
        if on_disk_file && !check(&*region).is_ok_and(|report| report.findings.is_empty()) {
            return Err(Failure::Damaged);
        }
        let disk = FileDisk::open(disk, DiskAccess::ReadWrite, identity.block_size)?;
        if disk.identity() != DiskIdentity(identity.disk) {
            return Err(Failure::AnotherDisk);
        }
        let engine = Arc::new(DiskCache::open(Arc::clone(&region), Arc::new(disk), Options::default())?);
        let blocks = Arc::clone(&engine) as Arc<dyn BlockDevice>;
        let device = match region.file() {
            Some(file) if on_disk_file => Arc::new(FileBacked::new(blocks, file)?),
            _ => blocks,
        };
        Ok(Cache { device, engine })
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    pub(crate) fn transaction_blocks_max(&self) -> u32 {
        self.engine.transaction_blocks_max()
    }

    pub(crate) fn read(&self, block: u64, out: &mut [u8]) -> Result<(), Failure> {
        Ok(self.device.read(Lba(block), out)?)
    }

    pub(crate) fn write(&self, block: u64, data: &[u8]) -> Result<(), Failure> {
        Ok(self.device.write(Lba(block), data, Durability::Fua)?)
    }

    pub(crate) fn flush(&self) -> Result<(), Failure> {
        Ok(self.device.flush()?)
    }

    /// Moves at most `blocks_max` dirty blocks to the disk. How many are dirty then.
    pub(crate) fn destage(&self, blocks_max: u32) -> Result<u64, Failure> {
        let progress = self.engine.drain_step(blocks_max);
        let refused = progress.failed.into_iter().map(|(_, error)| error).next().or(progress.flush_failed);
        refused.map_or(Ok(self.engine.dirty_blocks()), |error| Err(error.into()))
    }
}

/// Writes that will be put in place together, or not at all.
pub struct Transaction {
    cache: Arc<Cache>,
    writes: BTreeMap<u64, Box<[u8]>>,
}

impl Transaction {
    pub(crate) fn begin(cache: &Arc<Cache>) -> Transaction {
        Transaction { cache: Arc::clone(cache), writes: BTreeMap::new() }
    }

    /// Adds whole blocks from `block` on.
    pub(crate) fn write(&mut self, block: u64, data: &[u8]) -> Result<(), Failure> {
        let geometry = self.cache.geometry();
        let range = geometry.range(Lba(block), data.len()).map_err(tidegate_media::Error::from)?;
        let pieces = data.chunks_exact(geometry.block_size as usize);
        self.writes.extend(range.iter().map(|lba| lba.0).zip(pieces.map(Box::from)));
        Ok(())
    }

    /// Reads blocks as the transaction sees them.
    pub(crate) fn read(&self, block: u64, out: &mut [u8]) -> Result<(), Failure> {
        self.cache.read(block, out)?;
        let size = self.cache.geometry().block_size as usize;
        for (lba, piece) in (block..).zip(out.chunks_exact_mut(size)) {
            self.writes.get(&lba).into_iter().for_each(|own| piece.copy_from_slice(own));
        }
        Ok(())
    }

    /// Puts all of it in place, durably as far as the memory allows.
    pub(crate) fn commit(self) -> Result<(), Failure> {
        let mut transaction = self.cache.engine.begin();
        self.writes.iter().try_for_each(|(lba, data)| transaction.write(Lba(*lba), data))?;
        transaction.commit()?;
        self.cache.flush()
    }
}
