//! A cache and its disk as C programs hold them, without a pointer in sight.

use crate::options::{self, Making};
use crate::status::CallFailure;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tidegate_disk_cache::{
    Contents, DiskCache, FormatSpec, FoundJournal, Identity, NewLayout, blocks_in, check, find_journal, format_ordered,
    format_with, has_room_for, identify, journal_at_the_end, lay_out_anew, lay_out_journal,
};
use tidegate_media::{
    Access, Allocation, BlockDevice, DiskAccess, DiskIdentity, DiskMark, Domain, Durability, FileBacked, FileDisk,
    Geometry, LOCK_WAIT, Lba, MapError, MappedRegion, Process, Region, claim_of, when_unlocked,
};
use uuid::Uuid;

/// A cache in persistent memory in front of a disk.
pub struct Cache {
    /// What reads, writes and flushes go through: on an ordinary file, flushes reach that file.
    device: Arc<dyn BlockDevice>,
    engine: Arc<Engine>,
    region: Arc<MappedRegion>,
    disk: Arc<FileDisk>,
    /// Who opened it. A child of this process has a copy of what is known in memory, which nobody
    /// keeps true there.
    owner: Process,
}

type Engine = DiskCache<Arc<MappedRegion>>;

impl Cache {
    /// Makes a region of `bytes` bytes at `pmem`, where nothing may be, in front of `disk`. If the
    /// disk is to keep the order of commits, it gets its journal before the region is a cache:
    /// without one it does no harm.
    pub(crate) fn create(
        pmem: &Path,
        bytes: u64,
        disk: &Path,
        block_size: u32,
        words: &str,
    ) -> Result<(), CallFailure> {
        let Making { sums, ordered, force } = options::of_making(words)?;
        if !block_size.is_power_of_two() || block_size < 512 {
            return Err(CallFailure::BlockSize(block_size));
        }
        let disk = unlocked(|| FileDisk::open(disk, DiskAccess::ReadWrite, block_size))?;
        match find_journal(&disk)? {
            Some(FoundJournal { blocks: blocks @ 1.., .. }) => return Err(CallFailure::UnderWay(blocks)),
            Some(FoundJournal { uuid, .. }) if !force => return Err(CallFailure::OfAnother(Uuid::from_bytes(uuid))),
            _ => {}
        }
        let uuid = Uuid::new_v4().into_bytes();
        if !force {
            refuse_taken(&disk, uuid)?;
        }
        let ring_slots = FormatSpec::ring_slots_in(bytes);
        let journal = match ordered {
            true => {
                let blocks = blocks_in(bytes, block_size, ring_slots).unwrap_or(1);
                let journal = journal_at_the_end(&disk, block_size, blocks).ok_or(CallFailure::NoRoom(blocks))?;
                let at = journal.records_at() * u64::from(block_size);
                if let Some(by) = claim_of(&disk, at)?.filter(|_| !force) {
                    return Err(CallFailure::EndClaimed(at, by));
                }
                if !force && !has_room_for(&disk, &journal, uuid)? {
                    return Err(CallFailure::EndHolds(at));
                }
                Some(journal)
            }
            false => None,
        };
        let region = MappedRegion::create(pmem, bytes, Allocation::Full)?;
        let spec = FormatSpec {
            block_size,
            disk_blocks: journal.map_or(disk.geometry().blocks, |journal| journal.disk_blocks),
            ring_slots,
            uuid,
            disk: disk.identity().0,
        };
        match journal {
            None => format_with(sums, &region, &spec, Contents::Zeroed)?,
            Some(journal) => {
                lay_out_journal(&disk, journal, spec.uuid)?;
                format_ordered(journal.capacity, sums, &region, &spec, Contents::Zeroed)?;
            }
        }
        take(&disk, pmem, uuid)?;
        Ok(in_place(&region)?)
    }

    /// Opens the cache at `pmem` in front of `disk`; what was interrupted is finished.
    pub(crate) fn open(pmem: &Path, disk: &Path, words: &str) -> Result<Cache, CallFailure> {
        let region = Arc::new(unlocked(|| MappedRegion::open(pmem, Access::ReadWrite))?);
        let identity = identify(&*region).map_err(tidegate_media::Error::from)?.ok_or(CallFailure::NoCache)?;
        let on_disk_file = region.domain() == Domain::DiskFile;
        if on_disk_file && !check(&*region).is_ok_and(|report| report.findings.is_empty()) {
            return Err(CallFailure::Damaged);
        }
        let disk = unlocked(|| FileDisk::open(disk, DiskAccess::ReadWrite, identity.block_size))?;
        if disk.identity() != DiskIdentity(identity.disk) {
            return Err(CallFailure::AnotherDisk);
        }
        refuse_taken(&disk, identity.uuid)?;
        let options = options::of_opening(words, identity.block_size)?;
        distrust(&region, &identity, &disk)?;
        take(&disk, pmem, identity.uuid)?;
        region.forget_disk()?;
        let disk = Arc::new(disk);
        let engine = Arc::new(DiskCache::open(Arc::clone(&region), Arc::clone(&disk) as _, options)?);
        let blocks = Arc::clone(&engine) as Arc<dyn BlockDevice>;
        let device = match region.file() {
            Some(file) if on_disk_file => Arc::new(FileBacked::new(blocks, file)?),
            _ => blocks,
        };
        Ok(Cache { device, engine, region, disk, owner: Process::current() })
    }

    /// This cache, if the process that asks has opened it.
    pub(crate) fn own(&self) -> Result<&Cache, CallFailure> {
        if self.owner.is_current() { Ok(self) } else { Err(CallFailure::Forked) }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    pub(crate) fn transaction_blocks_max(&self) -> u32 {
        self.engine.transaction_blocks_max()
    }

    pub(crate) fn read(&self, block: u64, out: &mut [u8]) -> Result<(), CallFailure> {
        Ok(self.device.read(Lba(block), out)?)
    }

    pub(crate) fn write(&self, block: u64, data: &[u8]) -> Result<(), CallFailure> {
        Ok(self.device.write(Lba(block), data, Durability::Fua)?)
    }

    pub(crate) fn flush(&self) -> Result<(), CallFailure> {
        Ok(self.device.flush()?)
    }

    /// Moves at most `blocks_max` dirty blocks to the disk. How many are dirty then.
    pub(crate) fn destage(&self, blocks_max: u32) -> Result<u64, CallFailure> {
        let progress = self.engine.destage_step(blocks_max);
        let refused = progress.failed.into_iter().map(|(_, error)| error).next().or(progress.flush_failed);
        refused.map_or(Ok(self.engine.dirty_blocks()), |error| Err(error.into()))
    }
}

/// Refuses a disk that is marked for another region than `own`.
fn refuse_taken(disk: &FileDisk, own: [u8; 16]) -> Result<(), CallFailure> {
    match other_mark(disk, own) {
        Some(mark) => Err(CallFailure::Taken { region: Uuid::from_bytes(mark.region), place: mark.place }),
        None => Ok(()),
    }
}

/// The mark of `disk`, if it is for another region than `own`.
pub(crate) fn other_mark(disk: &FileDisk, own: [u8; 16]) -> Option<DiskMark> {
    disk.mark().filter(|mark| mark.region != own)
}

/// Marks `disk` for the region `own` at `pmem`, before anything is written to that.
pub(crate) fn take(disk: &FileDisk, pmem: &Path, own: [u8; 16]) -> Result<(), CallFailure> {
    let mark = DiskMark { region: own, place: std::path::absolute(pmem)? };
    if disk.mark().as_ref() != Some(&mark) {
        disk.set_mark(&mark)?;
    }
    Ok(())
}

impl Drop for Cache {
    /// Nobody writes to the disk through the region any more, and how it is left is noted. In a
    /// forked child the parent goes on.
    fn drop(&mut self) {
        if self.owner.is_current() {
            self.disk.note_as_left(&self.region);
        }
    }
}

/// What `open` opens; a lock that may be given up at any moment is waited for, as that of a process
/// that was killed.
pub(crate) fn unlocked<T>(open: impl FnMut() -> Result<T, MapError>) -> Result<T, MapError> {
    when_unlocked(LOCK_WAIT, |_, _| {}, open)
}

/// Lets no block be read that is older than `disk`, as the cache `identity` in `region` may have
/// them if somebody wrote to the disk without it. What the disk has too is dropped; what it lacks
/// may not go there.
fn distrust(region: &Arc<MappedRegion>, identity: &Identity, disk: &FileDisk) -> Result<(), CallFailure> {
    if !disk.was_changed_without(region) {
        return Ok(());
    }
    let wish = NewLayout { disk: identity.disk, disk_blocks: identity.disk_blocks, region_bytes: region.len() };
    lay_out_anew(Arc::clone(region), &wish)?;
    Ok(in_place(region)?)
}

/// Makes durable what was laid out in `region`.
fn in_place(region: &MappedRegion) -> io::Result<()> {
    match region.file() {
        Some(file) if region.domain() == Domain::DiskFile => file.sync_all(),
        _ => Ok(()),
    }
}

/// Writes that will be put in place together, or not at all.
pub struct Transaction {
    cache: Arc<Cache>,
    writes: tidegate_disk_cache::Transaction<'static, Arc<MappedRegion>>,
}

impl Transaction {
    pub(crate) fn begin(cache: &Arc<Cache>) -> Transaction {
        Transaction { cache: Arc::clone(cache), writes: cache.engine.begin_shared() }
    }

    /// This transaction, if the process that asks has begun it.
    pub(crate) fn own(&mut self) -> Result<&mut Transaction, CallFailure> {
        self.cache.own()?;
        Ok(self)
    }

    /// Adds whole blocks from `block` on.
    pub(crate) fn write(&mut self, block: u64, data: &[u8]) -> Result<(), CallFailure> {
        Ok(self.writes.write(Lba(block), data)?)
    }

    /// Reads blocks as the transaction sees them.
    pub(crate) fn read(&mut self, block: u64, out: &mut [u8]) -> Result<(), CallFailure> {
        Ok(self.writes.read(Lba(block), out)?)
    }

    /// Puts all of it in place, durably as far as the memory allows.
    pub(crate) fn commit(self) -> Result<(), CallFailure> {
        self.writes.commit()?;
        self.cache.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{Status, ended};
    use std::fs::File;
    use std::io::Write;
    use std::path::PathBuf;
    use tempfile::TempDir;

    fn opened(folder: &Path, options: &str) -> Arc<Cache> {
        Arc::new(Cache::open(&folder.join("pmem"), &folder.join("disk"), options).unwrap())
    }

    /// A folder with an empty disk of so many bytes; where the region's file may be, and where the
    /// disk is.
    fn beside_a_disk(bytes: u64) -> (TempDir, PathBuf, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (pmem, disk) = (folder.path().join("pmem"), folder.path().join("disk"));
        File::create(&disk).unwrap().set_len(bytes).unwrap();
        (folder, pmem, disk)
    }

    #[test]
    fn options_are_those_that_were_named() {
        let (folder, pmem, disk) = beside_a_disk(1 << 20);
        assert_eq!(ended(|| Cache::create(&pmem, 1 << 20, &disk, 4096, "checksum=on")), Status::TidegateMisuse);
        assert!(!pmem.exists(), "nothing is made by a word that is none");
        Cache::create(&pmem, 1 << 20, &disk, 4096, "checksums=on").unwrap();
        let identity = identify(&MappedRegion::open(&pmem, Access::PrivateUnlocked).unwrap()).unwrap().unwrap();
        assert_eq!(identity.sums, tidegate_disk_cache::Checksums::Kept);
        let cache = opened(folder.path(), "disk-mode=read-only");
        assert!(cache.write(0, &[1; 4096]).is_err());
    }

    #[test]
    fn an_ordered_disk_is_what_was_committed_without_its_region() {
        let (folder, pmem, disk) = beside_a_disk(1 << 20);
        let create = |bytes, options| ended(|| Cache::create(&pmem, bytes, &disk, 4096, options));
        assert_eq!(create(2 << 20, "ordered=on"), Status::TidegateMisuse, "the journal is larger than the disk");
        std::os::unix::fs::FileExt::write_all_at(
            &File::options().write(true).open(&disk).unwrap(),
            b"data",
            (1 << 20) - 4,
        )
        .unwrap();
        assert_eq!(create(256 << 10, "ordered=on"), Status::TidegateRefused, "its end holds something");
        File::create(&disk).unwrap().set_len(1 << 20).unwrap();
        File::options().write(true).open(&disk).unwrap().write_all(b"LUKS\xba\xbe").unwrap();
        assert_eq!(create(256 << 10, "ordered=on"), Status::TidegateRefused, "an encrypted volume takes all of it");
        assert!(!pmem.exists());
        File::create(&disk).unwrap().set_len(1 << 20).unwrap();
        Cache::create(&pmem, 256 << 10, &disk, 4096, "ordered=on,checksums=on").unwrap();
        let cache = opened(folder.path(), "");
        assert!(cache.geometry().blocks < 256 && cache.engine.identity().journal_blocks > 0);
        let mut transaction = Transaction::begin(&cache);
        [3, 100].into_iter().for_each(|block| transaction.write(block, &[1; 4096]).unwrap());
        transaction.commit().unwrap();
        cache.destage(1).unwrap();
        cache.destage(1).unwrap();
        std::fs::copy(&disk, folder.path().join("alone")).unwrap();
        let alone = FileDisk::open(&folder.path().join("alone"), DiskAccess::ReadWrite, 4096).unwrap();
        let found = tidegate_disk_cache::recover_disk(&alone).unwrap().unwrap();
        assert_eq!((found.disk_blocks, found.blocks), (cache.geometry().blocks, 2));
        for block in [3, 100] {
            let mut shown = [0; 4096];
            alone.read(Lba(block), &mut shown).unwrap();
            assert_eq!(shown, [1; 4096]);
        }
        drop(cache);
        std::fs::remove_file(&pmem).unwrap();
        assert_eq!(create(256 << 10, ""), Status::TidegateRefused, "it is amid a group");
    }

    #[test]
    fn the_disk_of_another_cache_is_refused_unless_it_is_forced() {
        let (folder, pmem, disk) = beside_a_disk(1 << 20);
        Cache::create(&pmem, 256 << 10, &disk, 4096, "ordered=on").unwrap();
        let uuid = find_journal(&FileDisk::open(&disk, DiskAccess::ReadWrite, 4096).unwrap()).unwrap().unwrap().uuid;
        let other = folder.path().join("other");
        let create = |options| Cache::create(&other, 256 << 10, &disk, 4096, options);
        for options in ["", "ordered=on", "ordered=on,force=off"] {
            assert_eq!(ended(|| create(options)), Status::TidegateRefused);
            let told = create(options).unwrap_err().to_string();
            for phrase in [&Uuid::from_bytes(uuid).to_string(), "tidegate detach", "tidegate replay", "force=on"] {
                assert!(told.contains(phrase), "{told}");
            }
            assert!(!other.exists());
        }
        let cache = opened(folder.path(), "");
        cache.write(3, &[1; 4096]).unwrap();
        assert_eq!(cache.destage(1).and_then(|_| cache.destage(100)).unwrap(), 0, "its journal is as it was");
        drop(cache);
        create("ordered=on,force=on").unwrap();
        let found = find_journal(&FileDisk::open(&disk, DiskAccess::ReadWrite, 4096).unwrap()).unwrap().unwrap();
        assert_ne!(found.uuid, uuid);
    }

    #[test]
    fn a_disk_gets_one_region_until_it_is_forced() {
        let (folder, pmem, disk) = beside_a_disk(1 << 20);
        Cache::create(&pmem, 256 << 10, &disk, 4096, "").unwrap();
        let other = folder.path().join("other");
        let refused = Cache::create(&other, 256 << 10, &disk, 4096, "").unwrap_err().to_string();
        for phrase in [pmem.to_str().unwrap(), "tidegate detach", "force=on"] {
            assert!(refused.contains(phrase), "{refused}");
        }
        assert!(!other.exists());
        opened(folder.path(), "");
        Cache::create(&other, 256 << 10, &disk, 4096, "force=on").unwrap();
        assert_eq!(ended(|| Cache::open(&pmem, &disk, "").map(drop)), Status::TidegateRefused, "it is the other's now");
        Cache::open(&other, &disk, "").unwrap();
    }

    #[test]
    fn a_disk_that_somebody_wrote_to_is_refused_while_blocks_are_dirty() {
        let (folder, pmem, disk) = beside_a_disk(1 << 20);
        Cache::create(&pmem, 256 << 10, &disk, 4096, "").unwrap();
        let cache = opened(folder.path(), "");
        cache.write(0, &[1; 4096]).unwrap();
        assert_eq!(cache.destage(100).unwrap(), 0);
        cache.write(9, &[1; 4096]).unwrap();
        drop(cache);
        drop(opened(folder.path(), ""));
        std::os::unix::fs::FileExt::write_all_at(&File::options().write(true).open(&disk).unwrap(), &[7; 9], 0)
            .unwrap();
        let refused = Cache::open(&pmem, &disk, "").err().unwrap();
        assert!(refused.to_string().contains("tidegate salvage"), "{refused}");
        assert_eq!(ended(|| Err(refused)), Status::TidegateRefused);
    }

    #[test]
    fn conflicts_are_refused_to_whoever_asks_for_it() {
        let (folder, pmem, disk) = beside_a_disk(1 << 20);
        Cache::create(&pmem, 1 << 20, &disk, 4096, "").unwrap();
        for (options, last) in [("", Status::TidegateOk), ("conflicts=refuse", Status::TidegateConflict)] {
            let cache = opened(folder.path(), options);
            let mut block = [0; 4096];
            let [mut first, mut second] = [(); 2].map(|()| Transaction::begin(&cache));
            for transaction in [&mut first, &mut second] {
                transaction.read(7, &mut block).unwrap();
                transaction.write(7, &[block[0] + 1; 4096]).unwrap();
            }
            assert_eq!(
                [ended(|| first.commit()), ended(|| second.commit())],
                [Status::TidegateOk, last],
                "{options:?}"
            );
        }
    }

    #[test]
    fn a_transaction_that_is_too_large_is_refused_as_it_grows() {
        let (folder, pmem, disk) = beside_a_disk(64 << 20);
        Cache::create(&pmem, 1 << 20, &disk, 4096, "").unwrap();
        let cache = opened(folder.path(), "");
        let mut transaction = Transaction::begin(&cache);
        let most = u64::from(cache.transaction_blocks_max());
        (0..most).for_each(|block| transaction.write(block, &[1; 4096]).unwrap());
        assert_eq!(ended(|| transaction.write(most, &[2; 4096])), Status::TidegateTooLarge);
        transaction.commit().unwrap();
        let mut block = [0; 4096];
        cache.read(most - 1, &mut block).unwrap();
        assert_eq!(block, [1; 4096]);
    }
}
