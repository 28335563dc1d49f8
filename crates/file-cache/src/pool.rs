//! A pool as its owner has it: all of its lanes, each with a lock and files of its own.
//!
//! A file belongs to one lane for as long as the pool has it, so lanes need no order among each
//! other, and threads that work on files of different lanes do not meet. The identity of the file
//! chooses the lane; if that lane has no free record, the next lane takes the file.

use crate::below::{BackingFile, Below, Fallocate, FileIdentity, Refused, Sought};
use crate::cache::{FileCache, Occupancy, Persistence, Synced};
use crate::counters::Counters;
use crate::error::FileError;
use crate::io::holes::FileLength;
use crate::lanes::file::FileId;
use crate::lanes::lane::Renewal;
use crate::lanes::lease::LeaseId;
use crate::lanes::leases::lend::{LeaseStock, Sharer};
use crate::open::attach::Detached;
use crate::open::format::{PoolOpenError, allow, identify};
use crate::open::recover::Recovered;
use crate::sync::group::GroupWrite;
use crate::tiers::placement::{PlacementStep, ProgramAccess};
use crate::tiers::tier_map::TierMap;
use crate::tiers::write_back::WriteBackStep;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use tidegate_layout::file_cache::{Class, LeaseGrant, MappedRun, PoolContents};
use tidegate_media::Region;
use tidegate_media::sync::Mutex;
use tidegate_policy::placement::{LearntPattern, NamedPlacement};

/// A file of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolFile {
    lane: usize,
    file: FileId,
}

/// A lease of a file of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolLease {
    lane: usize,
    lease: LeaseId,
}

/// Every lane of a pool, for one process.
pub struct FilePool<R> {
    region: Arc<R>,
    lanes: Vec<FileCache<Arc<R>>>,
    /// Taken by whoever looks for a file in every lane, so that no file gets into two of them.
    opening: Mutex<()>,
    /// What the pool is known to say that it may hold.
    holds: Mutex<PoolContents>,
}

impl<R: Region> FilePool<R> {
    /// Opens every lane of the pool on `region`, for this process alone. `dram` gives each lane its
    /// memory, by the lane's number: see [`FileCache::open`].
    pub fn open(
        region: &Arc<R>,
        mut dram: impl FnMut(u32) -> Result<Arc<dyn Region>, PoolOpenError>,
    ) -> Result<FilePool<R>, PoolOpenError> {
        let lanes = 0..identify(region)?.plan.lanes;
        let open = |lane| FileCache::open(region.clone(), lane, dram(lane)?);
        FilePool::of_lanes(region, lanes.map(open).collect::<Result<_, _>>()?)
    }

    /// The pool on `region` with all of its lanes, each [opened](FileCache::open) by the caller, in
    /// the order of their numbers. Lanes can be opened by a thread each.
    pub fn of_lanes(region: &Arc<R>, lanes: Vec<FileCache<Arc<R>>>) -> Result<FilePool<R>, PoolOpenError> {
        let wanted = identify(region)?.plan.lanes;
        match u32::try_from(lanes.len()) {
            Ok(count) if count == wanted => Ok(FilePool {
                region: region.clone(),
                lanes,
                opening: Mutex::new(()),
                holds: Mutex::new(PoolContents::Files),
            }),
            count => Err(PoolOpenError::NoLane { lane: count.unwrap_or(u32::MAX), lanes: wanted }),
        }
    }

    /// The memory that the pool lies in.
    pub fn region(&self) -> &R {
        &self.region
    }

    /// How many lanes there are. Each wants somebody who calls [`FilePool::write_back_step`].
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Caches a file: see [`FileCache::open_file`].
    pub fn open_file(&self, backing: &Arc<dyn BackingFile>, path_hint: &[u8]) -> Result<PoolFile, FileError> {
        let _opening = self.opening.lock();
        let identity = backing.identity();
        let first = home(identity, self.lanes.len());
        let order = || (first..self.lanes.len()).chain(0..first);
        if let Some(lane) = order().find(|lane| self.lanes[*lane].has(identity)) {
            return self.open_in(lane, backing, path_hint);
        }
        for lane in order() {
            match self.open_in(lane, backing, path_hint) {
                Err(FileError::TooManyFiles) => {}
                opened => return opened,
            }
        }
        Err(FileError::TooManyFiles)
    }

    fn open_in(&self, lane: usize, backing: &Arc<dyn BackingFile>, hint: &[u8]) -> Result<PoolFile, FileError> {
        Ok(PoolFile { lane, file: self.lanes[lane].open_file(backing.clone(), hint)? })
    }

    /// The opposite of [`FilePool::open_file`]: see [`FileCache::close`].
    pub fn close(&self, file: PoolFile) -> Result<(), FileError> {
        self.lane(file)?.close(file.file)
    }

    /// Closes a file if everything of it is below: see [`FileCache::close_if_done`].
    pub fn close_if_done(
        &self,
        file: PoolFile,
        settle: impl FnOnce() -> Result<(), Refused>,
    ) -> Result<bool, FileError> {
        self.lane(file)?.close_if_done(file.file, settle)
    }

    /// The file's length in bytes, as programs see it.
    pub fn size(&self, file: PoolFile) -> Result<u64, FileError> {
        self.lane(file)?.size(file.file)
    }

    /// Lends a file: whoever has the lease may write within `room`, where the file below reserves
    /// room, without asking. The log has blocks of class `log`, which says how many writes fit
    /// between two [extensions](FilePool::extend); only one of at least 4096 bytes lies on pages of
    /// its own. The file's unsynced writes are synced first. As before a write, the caller has
    /// [noted](FilePool::note_modified) when the file is changed. `None`: the pool has no room for
    /// that. A pool that lent a file once is refused by programs that know no leases.
    pub fn lend(
        &self,
        file: PoolFile,
        room: Range<u64>,
        log: Class,
    ) -> Result<Option<(PoolLease, LeaseGrant)>, FileError> {
        self.allow(PoolContents::Leases)?;
        let granted = self.lane(file)?.lend(file.file, room, log)?;
        Ok(granted.map(|(lease, grant)| (PoolLease { lane: file.lane, lease }, grant)))
    }

    /// Has another process share the lease of a file that goes on: see [`FileCache::join`].
    pub fn join(&self, file: PoolFile, asked: &Range<u64>, by: Sharer) -> Result<Option<LeaseGrant>, FileError> {
        self.lane(file)?.join(file.file, asked, by)
    }

    /// Reserves room for a lease that goes on: see [`FileCache::widen`].
    pub fn widen(&self, file: PoolFile, room: Range<u64>) -> Result<(), FileError> {
        self.lane(file)?.widen(file.file, room)
    }

    /// Has the superblocks say so before the first lease or mapping, as one change for all lanes.
    fn allow(&self, contents: PoolContents) -> Result<(), FileError> {
        let mut holds = self.holds.lock();
        if *holds < contents {
            allow(&*self.region, contents)?;
            *holds = contents;
        }
        Ok(())
    }

    /// Takes over what was written by a lease, and lends new blocks: see [`FileCache::extend`].
    pub fn extend(&self, lease: PoolLease) -> Result<bool, FileError> {
        self.lanes.get(lease.lane).map_or(Ok(false), |lane| lane.extend(lease.lease))
    }

    /// Extends a lease before its process asks: see [`FileCache::refill`].
    pub fn refill(&self, lease: PoolLease) -> Result<Option<LeaseStock>, FileError> {
        self.lanes.get(lease.lane).map_or(Ok(None), |lane| lane.refill(lease.lease))
    }

    /// The lease of a file that goes on: see [`FileCache::lease_of`].
    pub fn lease_of(&self, file: PoolFile) -> Option<PoolLease> {
        let lease = self.lane(file).ok()?.lease_of(file.file)?;
        Some(PoolLease { lane: file.lane, lease })
    }

    /// The lease of a file that its process calls so: see [`FileCache::lease_numbered`].
    pub fn lease_numbered(&self, file: PoolFile, number: u64) -> Option<PoolLease> {
        let lease = self.lane(file).ok()?.lease_numbered(file.file, number)?;
        Some(PoolLease { lane: file.lane, lease })
    }

    /// Whether a lease was revoked, or is released.
    pub fn is_revoked(&self, lease: PoolLease) -> bool {
        self.lanes.get(lease.lane).is_none_or(|lane| lane.is_revoked(lease.lease))
    }

    /// Where in the pool a lease's log lies: see [`FileCache::log_of`].
    pub fn log_of(&self, lease: PoolLease) -> Option<Range<u64>> {
        self.lanes.get(lease.lane)?.log_of(lease.lease)
    }

    /// Takes over what was written by a file's lease, which goes on: see [`FileCache::adopt`].
    pub fn adopt(&self, file: PoolFile) -> Result<(), FileError> {
        self.lane(file)?.adopt(file.file)
    }

    /// Reads for the process that has the file's lease: see [`FileCache::read_leased`].
    pub fn read_leased(&self, file: PoolFile, at: u64, out: &mut [u8]) -> Result<(usize, u64), FileError> {
        self.lane(file)?.read_leased(file.file, at, out)
    }

    /// Where blocks of a leased file lie in the pool: see [`FileCache::locate`].
    pub fn locate(&self, file: PoolFile, range: &Range<u64>) -> Result<Vec<MappedRun>, FileError> {
        self.lane(file)?.locate(file.file, range)
    }

    /// Ends the lease of a file: see [`FileCache::revoke`].
    pub fn revoke(&self, file: PoolFile) -> Result<(), FileError> {
        self.lane(file)?.revoke(file.file)
    }

    /// Ends a lease that its process has left: see [`FileCache::release`].
    pub fn release(&self, lease: PoolLease) -> Result<(), FileError> {
        self.lanes.get(lease.lane).map_or(Ok(()), |lane| lane.release(lease.lease))
    }

    /// Has pages of a file mapped: see [`FileCache::map`]. A pool that did so once is refused by
    /// programs that know no time pages.
    pub fn map(&self, file: PoolFile, range: Range<u64>, page: Class) -> Result<Vec<MappedRun>, FileError> {
        self.allow(PoolContents::TimePages)?;
        self.lane(file)?.map(file.file, range, page)
    }

    /// Where the mapped entries of a file lie.
    pub fn mapped(&self, file: PoolFile) -> Vec<MappedRun> {
        self.lane(file).map_or_else(|_| Vec::new(), |lane| lane.mapped(file.file))
    }

    /// Bytes of all mapped entries.
    pub fn mapped_bytes(&self) -> u64 {
        self.lanes.iter().map(FileCache::mapped_bytes).sum()
    }

    /// Ends mappings: see [`FileCache::unmap`].
    pub fn unmap(&self, file: PoolFile, now: u64, stays: impl FnMut(&MappedRun) -> bool) -> Result<usize, FileError> {
        self.lane(file)?.unmap(file.file, now, stays)
    }

    /// Where the page lies in which programs say when they stored to mapped pages of a file.
    pub fn time_page(&self, file: PoolFile) -> Option<MappedRun> {
        self.lane(file).ok()?.time_page(file.file)
    }

    /// Renews blocks that were mapped: see [`FileCache::renew_by`].
    pub fn renew_by(&self, page: Class, renew: &Option<Renewal>) {
        let had_mappings = identify(&*self.region).is_ok_and(|pool| pool.contents == PoolContents::TimePages);
        self.lanes.iter().for_each(|lane| lane.renew_by(had_mappings.then_some(page), renew));
    }

    /// Finds mappings again: see [`FileCache::map_again`].
    pub fn map_again(&self, page: Class, now: u64, has: &mut dyn FnMut(Range<u64>) -> bool) -> Result<(), FileError> {
        self.lanes.iter().try_for_each(|lane| lane.map_again(page, now, has))
    }

    /// Every lease that was not released yet.
    pub fn leases(&self) -> Vec<PoolLease> {
        let of_lane = |(lane, cache): (usize, &FileCache<Arc<R>>)| {
            cache.leases().into_iter().map(move |lease| PoolLease { lane, lease })
        };
        self.lanes.iter().enumerate().flat_map(of_lane).collect()
    }

    /// Where bytes of a file lie: see [`FileCache::tier_map`].
    pub fn tier_map(&self, identity: FileIdentity, range: Range<u64>) -> Result<Option<TierMap>, FileError> {
        for lane in &self.lanes {
            if let Some(map) = lane.tier_map(identity, range.clone())? {
                return Ok(Some(map));
            }
        }
        Ok(None)
    }

    /// Notes when a program changed the file's contents: see [`FileCache::note_modified`].
    pub fn note_modified(&self, file: PoolFile, modified: u64) -> Result<(), FileError> {
        self.lane(file)?.note_modified(file.file, modified)
    }

    /// When a program changed the file's contents: see [`FileCache::modified`].
    pub fn modified(&self, file: PoolFile) -> Result<u64, FileError> {
        self.lane(file)?.modified(file.file)
    }

    /// Whether the file below lacks, or may lose, what the pool has of an open file.
    pub fn lacks(&self, file: PoolFile) -> bool {
        self.lane(file).is_ok_and(|lane| lane.lacks(file.file))
    }

    /// Whether a file rests: nobody has it open, all of it is below, and the pool has clean entries
    /// of it, which count if nobody changed it when it is opened.
    pub fn rests(&self, identity: FileIdentity) -> bool {
        self.lanes.iter().any(|lane| lane.rests(identity))
    }

    /// How many more files may be opened, in whichever lane, until more than half of its records
    /// are those of open files. It looks at every record.
    pub fn spare_records(&self) -> usize {
        self.lanes.iter().map(FileCache::spare_records).min().unwrap_or(0)
    }

    /// Bytes in clean entries.
    pub fn clean_bytes(&self) -> u64 {
        self.lanes.iter().map(FileCache::clean_bytes).sum()
    }

    /// Forgets a file that rests, before somebody changes it past the pool.
    pub fn forget_resting(&self, identity: FileIdentity) -> Result<(), FileError> {
        self.lanes.iter().try_for_each(|lane| lane.forget_resting(identity))
    }

    /// Gives up the clean entries of a file that somebody else changed: see
    /// [`FileCache::revalidate`].
    pub fn revalidate(&self, file: PoolFile) -> Result<(), FileError> {
        self.lane(file)?.revalidate(file.file)
    }

    /// Makes clean entries of what only the file below has of a range: see [`FileCache::admit`].
    pub fn admit(&self, file: PoolFile, range: Range<u64>) -> Result<u64, FileError> {
        self.lane(file)?.admit(file.file, range)
    }

    /// Has this placement decide in lanes that were just opened, which have the default one.
    pub fn begin_by(&self, name: NamedPlacement) {
        if name != NamedPlacement::default() {
            self.place_by(name);
        }
    }

    /// Has another placement decide, in every lane: see [`FileCache::place_by`].
    pub fn place_by(&self, name: NamedPlacement) {
        self.lanes.iter().for_each(|lane| lane.place_by(name));
    }

    /// What the placements know of program contexts; of one that several know, what the first does.
    pub fn known_contexts(&self) -> Vec<LearntPattern> {
        let mut seen = HashSet::new();
        let all = self.lanes.iter().flat_map(FileCache::known_contexts);
        all.filter(|known| seen.insert(known.context)).collect()
    }

    /// Has every lane take over what was known of contexts: see [`FileCache::take_over_contexts`].
    pub fn take_over_contexts(&self, known: &[LearntPattern]) {
        self.lanes.iter().for_each(|lane| lane.take_over_contexts(known));
    }

    /// Tells of a program's read or write: see [`FileCache::accessed`].
    pub fn accessed(&self, file: PoolFile, access: &ProgramAccess) -> Result<Option<Vec<Range<u64>>>, FileError> {
        self.lane(file)?.accessed(file.file, access)
    }

    /// Makes room in every lane as its placement wants it: see [`FileCache::placement_step`].
    pub fn placement_step(&self) -> Result<PlacementStep, FileError> {
        let mut done = PlacementStep::Idle;
        for lane in &self.lanes {
            if lane.placement_step()? == PlacementStep::Worked {
                done = PlacementStep::Worked;
            }
        }
        Ok(done)
    }

    /// Copies bytes from offset `at`: see [`FileCache::read`].
    pub fn read(&self, file: PoolFile, at: u64, out: &mut [u8]) -> Result<usize, FileError> {
        self.lane(file)?.read(file.file, at, out)
    }

    /// Reads, and says how many of the bytes came from below: see [`FilePool::read`].
    pub fn read_and_tell(&self, file: PoolFile, at: u64, out: &mut [u8]) -> Result<(usize, u64), FileError> {
        self.lane(file)?.read_and_tell(file.file, at, out)
    }

    /// Writes bytes at offset `at`: see [`FileCache::write`].
    pub fn write(&self, file: PoolFile, at: u64, data: &[u8], persistence: Persistence) -> Result<(), FileError> {
        self.lane(file)?.write(file.file, at, data, persistence)
    }

    /// Writes bytes at offset `at`, past the pool where that has none of them: see
    /// [`FileCache::write_direct`].
    pub fn write_direct(&self, file: PoolFile, at: u64, data: &[u8]) -> Result<u64, FileError> {
        self.lane(file)?.write_direct(file.file, at, data)
    }

    /// Writes bytes at the end of the file, and says where that was.
    pub fn append(&self, file: PoolFile, data: &[u8], persistence: Persistence) -> Result<u64, FileError> {
        self.lane(file)?.append(file.file, data, persistence)
    }

    /// Cuts the file at `size` bytes, or extends it by zeroes: see [`FileCache::truncate`].
    pub fn truncate(&self, file: PoolFile, size: u64) -> Result<(), FileError> {
        self.lane(file)?.truncate(file.file, size)
    }

    /// Changes the room of a range: see [`FileCache::fallocate`].
    pub fn fallocate(
        &self,
        file: PoolFile,
        at: u64,
        len: u64,
        how: Fallocate,
        length: FileLength,
    ) -> Result<(), FileError> {
        self.lane(file)?.fallocate(file.file, at, len, how, length)
    }

    /// Where data or a hole begins: see [`FileCache::seek`].
    pub fn seek(&self, file: PoolFile, at: u64, sought: Sought) -> Result<Option<u64>, FileError> {
        self.lane(file)?.seek(file.file, at, sought)
    }

    /// Makes everything durable that was written to the file before, in one atomic commit.
    pub fn sync(&self, file: PoolFile) -> Result<Synced, FileError> {
        self.lane(file)?.sync(file.file)
    }

    /// Makes a group of writes durable, all of them or none: see [`FileCache::write_group`].
    pub fn write_group(&self, file: PoolFile, writes: &[GroupWrite<'_>]) -> Result<(), FileError> {
        self.lane(file)?.write_group(file.file, writes)
    }

    /// Brings everything that was written to the file below: see [`FileCache::drain`].
    pub fn drain(&self, file: PoolFile) -> Result<(), FileError> {
        self.lane(file)?.drain(file.file)
    }

    /// Writes back about `budget_bytes` of one file of a lane: see [`FileCache::write_back_step`].
    /// A lane that does not exist has nothing to write back.
    pub fn write_back_step(&self, lane: usize, budget_bytes: u64) -> Result<WriteBackStep, FileError> {
        self.lanes.get(lane).map_or(Ok(WriteBackStep::default()), |lane| lane.write_back_step(budget_bytes))
    }

    /// Writes back what is older than a commit: see [`FileCache::write_back_step_until`].
    pub fn write_back_step_until(
        &self,
        lane: usize,
        budget_bytes: u64,
        version: u64,
    ) -> Result<WriteBackStep, FileError> {
        let lane = self.lanes.get(lane);
        lane.map_or(Ok(WriteBackStep::default()), |lane| lane.write_back_step_until(budget_bytes, version))
    }

    /// Bytes that only the pool has durably, in a lane.
    pub fn out_of_sync(&self, lane: usize) -> u64 {
        self.lanes.get(lane).map_or(0, |lane| lane.lane().bytes_to_write_back())
    }

    /// The number of a file's lane.
    pub fn lane_of(&self, file: PoolFile) -> usize {
        file.lane
    }

    /// The number of the lane that a file gets which the pool does not have, if there is room.
    pub fn home_of(&self, identity: FileIdentity) -> usize {
        home(identity, self.lanes.len())
    }

    /// Whether an eighth of a lane's memory is left, or less, for what the files below lack, and
    /// [`write_back_step`](FilePool::write_back_step) makes room.
    pub fn is_nearly_full(&self, lane: usize) -> bool {
        self.lanes.get(lane).is_some_and(|lane| lane.lane().is_nearly_full())
    }

    /// The newest commit's number, of each lane: see [`FileCache::version`].
    pub fn versions(&self) -> Vec<u64> {
        self.lanes.iter().map(FileCache::version).collect()
    }

    /// Tells every lane the time: see [`FileCache::tick`].
    pub fn tick(&self, now: u64) {
        self.lanes.iter().for_each(|lane| lane.tick(now));
    }

    /// Has about `budget_bytes` of one file of a lane leave DRAM: see
    /// [`FileCache::write_dirty_step`]. A lane that does not exist has nothing in DRAM.
    pub fn write_dirty_step(
        &self,
        lane: usize,
        budget_bytes: u64,
        older_than: u64,
    ) -> Result<WriteBackStep, FileError> {
        let lane = self.lanes.get(lane);
        lane.map_or(Ok(WriteBackStep::default()), |lane| lane.write_dirty_step(budget_bytes, older_than))
    }

    /// Bytes of a lane's blocks in DRAM that are in use. A lane that does not exist has none.
    pub fn dram_used(&self, lane: usize) -> u64 {
        self.lanes.get(lane).map_or(0, |lane| lane.lane().unsynced.bytes_used())
    }

    /// Every file that an earlier process left, and for which no file below was found yet.
    pub fn detached(&self) -> Vec<(PoolFile, Detached)> {
        let of_lane = |(lane, cache): (usize, &FileCache<_>)| {
            cache.detached().into_iter().map(move |detached| (PoolFile { lane, file: detached.file }, detached))
        };
        self.lanes.iter().enumerate().flat_map(of_lane).collect()
    }

    /// Finds the files below for every detached file: see [`FileCache::recover`].
    pub fn recover(&self, below: &dyn Below) -> Result<Vec<Recovered>, FileError> {
        let lanes = self.lanes.iter().map(|lane| lane.recover(below));
        Ok(lanes.collect::<Result<Vec<_>, _>>()?.concat())
    }

    /// Gives a detached file its file below: see [`FileCache::attach`].
    pub fn attach(&self, file: PoolFile, backing: Arc<dyn BackingFile>) -> Result<(), FileError> {
        self.lane(file)?.attach(file.file, backing)
    }

    /// Writes what the pool has of a detached file elsewhere: see [`FileCache::salvage`].
    pub fn salvage(&self, file: PoolFile, into: Arc<dyn BackingFile>) -> Result<(), FileError> {
        self.lane(file)?.salvage(file.file, into)
    }

    /// Forgets what the file below has not, as of a file that was removed: see
    /// [`FileCache::discard`].
    pub fn discard(&self, file: PoolFile) -> Result<(), FileError> {
        self.lane(file)?.discard(file.file)
    }

    /// Every file that is open, or not all below yet.
    pub fn files(&self) -> Vec<(PoolFile, FileIdentity)> {
        let of_lane = |(lane, cache): (usize, &FileCache<_>)| {
            cache.files().into_iter().map(move |(file, identity)| (PoolFile { lane, file }, identity))
        };
        self.lanes.iter().enumerate().flat_map(of_lane).collect()
    }

    /// How full the pool is.
    pub fn fill(&self) -> Occupancy {
        self.lanes.iter().map(FileCache::fill).fold(Occupancy::default(), Occupancy::plus)
    }

    /// What was done since the pool was opened.
    pub fn counters(&self) -> Counters {
        self.lanes.iter().map(FileCache::counters).fold(Counters::default(), Counters::plus)
    }

    fn lane(&self, file: PoolFile) -> Result<&FileCache<Arc<R>>, FileError> {
        self.lanes.get(file.lane).ok_or(FileError::NotOpen(file.file.0))
    }
}

/// The lane that an identity points at. Neighbouring inodes point at different lanes.
fn home(identity: FileIdentity, lanes: usize) -> usize {
    let FileIdentity { device, inode, generation } = identity;
    let mixed = [device, generation].into_iter().fold(inode, |mixed, word| {
        // 2^64 divided by the golden ratio.
        mixed ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    usize::try_from(mixed % lanes.max(1) as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::format::{PoolSpec, dram_bytes, format};
    use std::collections::BTreeSet;
    use tidegate_media::MappedRegion;

    #[test]
    fn files_made_one_after_the_other_point_at_different_lanes() {
        for lanes in 1..9 {
            let of = |inode: u64| home(FileIdentity { device: 66_306, inode, generation: 12_345 }, lanes);
            let used: BTreeSet<usize> = (1000..1000 + lanes as u64).map(of).collect();
            assert!(used.len() * 2 > lanes && used.iter().all(|lane| *lane < lanes), "{lanes}: {used:?}");
        }
    }

    #[test]
    fn a_pool_is_made_of_all_of_its_lanes_only() {
        let region = Arc::new(MappedRegion::anonymous(64 << 20).unwrap());
        format(&*region, &PoolSpec { lanes: 2, ..PoolSpec::usual([1; 16]) }).unwrap();
        let dram = dram_bytes(&*region, 1 << 20).unwrap();
        let open = |lane| {
            let memory = Arc::new(MappedRegion::anonymous(dram).unwrap());
            FileCache::open(region.clone(), lane, memory).unwrap()
        };
        assert_eq!(FilePool::of_lanes(&region, vec![open(0), open(1)]).unwrap().lanes(), 2);
        let refused = FilePool::of_lanes(&region, vec![open(0)]).err().unwrap();
        assert!(matches!(refused, PoolOpenError::NoLane { lane: 1, lanes: 2 }));
    }
}
