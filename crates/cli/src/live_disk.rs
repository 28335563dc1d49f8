//! A disk that is served, with a cache in front of it or without: which of both changes while clients use it.
//!
//! Requests share a lock; a change takes it for itself, so it waits for the requests that are under way, and those that come meanwhile wait for
//! it. Before that the cache was emptied of what the disk lacks, beside the clients, so a change takes no longer than the last few blocks and an
//! opening. A change that is killed leaves a cache that is the old or the new one, and clean: see `relayout` of the cache.

use crate::cached_disk::{CachedDisk, DiskState};
use crate::compose;
use crate::disk_left;
use crate::disks::{DETACHED, Disk};
use crate::failure::{DiskFailure, Doing, Failure, VolumeFailure};
use crate::notes::Note;
use crate::ordered::{erase_journal_of, put_journal_of};
use crate::plan::VolumePlan;
use crate::readings::{Reading, Watched};
use rustix::fs::{FallocateFlags, fallocate};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tidegate_disk_cache::{Mode, Relayout, Scrubbed, relayout};
use tidegate_drain::{Left, Ticket};
use tidegate_media::{
    Access, BlockDevice, Durability, Extent, Geometry, Lba, LbaRange, MappedRegion, Misuse, Region, Result as Answer,
    Sealed,
};

/// The cache of a served disk.
pub(crate) struct Front {
    /// Its region.
    pub(crate) region: Arc<MappedRegion>,
    /// What clients get.
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The cache itself.
    pub(crate) cached: Arc<dyn CachedDisk>,
}

impl Front {
    fn readings(&self) -> Vec<Reading> {
        let mut readings = self.region.readings();
        readings.extend(self.cached.readings());
        readings
    }
}

/// What clients get.
enum Served {
    /// The disk behind a cache, which is the one of this number.
    Cached(u64, Front),
    /// The disk alone. The region that was its cache knows nothing of it any more.
    Alone,
    /// The disk alone, which is not written to: the region that was its cache could not be opened again, and may still speak of its blocks.
    Cautious,
}

impl Served {
    fn front(&self) -> Option<&Front> {
        match self {
            Served::Cached(_, front) => Some(front),
            Served::Alone | Served::Cautious => None,
        }
    }
}

/// What a flush is asked after by.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct FlushTicket {
    /// Which cache was asked. One that is gone was emptied first.
    cache: u64,
    sweep: u64,
}

/// What the server says while a disk is not written to.
const CAUTIOUS: &str = "the region could not be opened again: nothing is dirty, reads go to the disk, and writes are refused until the server is started anew";

/// A served disk.
pub(crate) struct LiveDisk {
    plan: VolumePlan,
    disk: Disk,
    /// Blocks of the volume.
    blocks: u64,
    front: RwLock<Served>,
    /// Caches so far, which is the number of the next.
    caches: AtomicU64,
    /// What is done with reads and writes, until somebody changes it: by the caches to come too.
    mode: Mutex<Mode>,
    /// What the caches before this one counted.
    earlier: Mutex<Vec<Reading>>,
}

impl LiveDisk {
    /// `disk` behind `front`, as `plan` describes both.
    pub(crate) fn new(plan: VolumePlan, disk: Disk, front: Front) -> LiveDisk {
        let blocks = front.device.geometry().blocks;
        let mode = Mutex::new(plan.disk.mode);
        let (front, caches) = (RwLock::new(Served::Cached(0, front)), AtomicU64::new(1));
        LiveDisk { plan, disk, blocks, front, caches, mode, earlier: Mutex::default() }
    }

    fn shared(&self) -> RwLockReadGuard<'_, Served> {
        self.front.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, Served> {
        self.front.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn earlier(&self) -> MutexGuard<'_, Vec<Reading>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, act: impl FnOnce(&dyn BlockDevice) -> T) -> T {
        match self.shared().front() {
            Some(front) => act(&*front.device),
            None => act(&*self.disk.device),
        }
    }

    /// The same for what changes something.
    fn with_writable(&self, act: impl FnOnce(&dyn BlockDevice) -> Answer<()>) -> Answer<()> {
        match &*self.shared() {
            Served::Cached(_, front) => act(&*front.device),
            Served::Alone if *self.mode() == Mode::ReadOnly => Err(Misuse::ReadOnly.into()),
            Served::Alone => act(&*self.disk.device),
            Served::Cautious => Err(Sealed::StoreLost { at: 0 }.into()),
        }
    }

    fn cached<T>(&self, act: impl FnOnce(&dyn CachedDisk) -> T) -> Option<T> {
        self.shared().front().map(|front| act(&*front.cached))
    }

    /// How it is now.
    pub(crate) fn state(&self) -> DiskState {
        let shared = self.shared();
        let trouble = matches!(&*shared, Served::Cautious).then(|| CAUTIOUS.to_owned());
        shared.front().map_or_else(|| DiskState::without_cache(&self.disk, trouble), |front| front.cached.state())
    }

    /// Treats requests by `mode` from now on: until the server ends, or only this cache if that is not `lasting`.
    ///
    /// # Errors
    /// No cache is there to do so, or nothing may be changed.
    pub(crate) fn set_mode(&self, mode: Mode, lasting: bool) -> Result<(), Failure> {
        self.refuse_read_only()?;
        self.cached(|cached| cached.set_mode(mode)).ok_or_else(|| self.has_no_cache())?;
        if lasting {
            *self.mode() = mode;
        }
        Ok(())
    }

    /// Asks for everything that is dirty now to be written to the disk.
    ///
    /// # Errors
    /// Nothing may be changed.
    pub(crate) fn flush(&self) -> Result<FlushTicket, Failure> {
        self.refuse_read_only()?;
        Ok(match &*self.shared() {
            Served::Cached(cache, front) => FlushTicket { cache: *cache, sweep: front.cached.flush().0 },
            Served::Alone | Served::Cautious => FlushTicket { cache: u64::MAX, sweep: 0 },
        })
    }

    /// What that flush left behind, and why; None: it is under way.
    pub(crate) fn flushed(&self, ticket: FlushTicket) -> Option<(Left, Option<String>)> {
        match &*self.shared() {
            Served::Cached(cache, front) if *cache == ticket.cache => {
                let left = front.cached.flushed(Ticket(ticket.sweep))?;
                let why = front.cached.why(&left);
                Some((left, why))
            }
            // The cache that was asked was emptied when it went.
            _ => Some((Left::default(), None)),
        }
    }

    fn refuse_read_only(&self) -> Result<(), Failure> {
        match self.plan.access {
            Access::ReadWrite => Ok(()),
            _ => Err(DiskFailure::ReadOnly { pmem: self.plan.pmem.clone() }.into()),
        }
    }

    /// Reads what some entries from number `from` on name.
    pub(crate) fn scrub(&self, from: u32) -> Scrubbed {
        self.cached(|cached| cached.scrub(from)).unwrap_or_default()
    }

    /// Brings the last blocks to the disk, sets both free from each other, and goes on with the disk alone.
    ///
    /// # Errors
    /// A block that the disk refuses is named, or what is wrong with the region. Everything stays as it was; if the region cannot even be opened
    /// again, the disk is only read.
    pub(crate) fn detach(&self) -> Result<(), Failure> {
        let mut front = self.alone();
        let region = self.take(&mut front)?;
        let emptied = self.part(&region).or_else(|_| {
            // A region that has lost a store takes none until it is mapped anew.
            drop(region);
            self.part(&Arc::new(compose::map(&self.plan.pmem, Access::ReadWrite)?))
        });
        match emptied {
            Ok(()) => *front = Served::Alone,
            // What is told is why it did not succeed, first of all.
            Err(_) => drop(self.go_on(&mut front)),
        }
        emptied
    }

    /// Sets `region`, which is clean, free from the disk.
    fn part(&self, region: &Arc<MappedRegion>) -> Result<(), Failure> {
        self.lay_out(region, DETACHED, region.len())?;
        region.file().into_iter().for_each(|file| Note::Disk.remove(file));
        match compose::cache_in(&self.plan.pmem, region)? {
            Some(identity) => Ok(erase_journal_of(&identity, &self.disk)?),
            None => Ok(()),
        }
    }

    /// Puts the region in front of the disk again, which has to be the one at `path`.
    ///
    /// # Errors
    /// The disk goes on alone.
    pub(crate) fn attach(&self, path: &Path) -> Result<(), Failure> {
        let mut front = self.alone();
        let pmem = self.plan.pmem.clone();
        if front.front().is_some() {
            return Err(DiskFailure::Attached { pmem }.into());
        }
        let same =
            |one: &Path, other: &Path| one.canonicalize().ok().is_some_and(|it| other.canonicalize().ok() == Some(it));
        if !same(path, &self.disk.path) {
            return Err(DiskFailure::Replaced { pmem, disk: path.to_owned() }.into());
        }
        let region = Arc::new(compose::map(&pmem, Access::ReadWrite)?);
        let identity =
            compose::cache_in(&pmem, &*region)?.ok_or_else(|| DiskFailure::NoCache { pmem: pmem.clone() })?;
        if identity.disk != DETACHED {
            return Err(DiskFailure::Attached { pmem }.into());
        }
        let has = self.disk.device.geometry().block_size;
        if identity.block_size != has {
            return Err(DiskFailure::BlockSize { pmem, has: identity.block_size, needs: has }.into());
        }
        let blocks = put_journal_of(&identity, &self.disk, false)?;
        if blocks != self.blocks {
            return Err(DiskFailure::Replaced { pmem, disk: path.to_owned() }.into());
        }
        self.lay_out(&region, self.disk.device.identity().0, region.len())?;
        region.file().into_iter().for_each(|file| Note::Disk.write(file, &self.disk.path));
        *front = Served::Cached(self.next_number(), self.reopen(region)?);
        Ok(())
    }

    /// Makes the region `bytes` long, and the cache as large as fits.
    ///
    /// # Errors
    /// A block that the disk refuses is named, and everything stays as it was. If the region cannot be opened again the disk is only read.
    pub(crate) fn resize(&self, bytes: u64) -> Result<(), Failure> {
        let mut front = self.alone();
        let region = self.take(&mut front)?;
        let resized = resized(&self.plan.pmem, region, bytes, |region, bytes| {
            self.lay_out(region, self.disk.device.identity().0, bytes)
        });
        self.go_on(&mut front)?;
        resized
    }

    /// The end, when no client is left: nobody writes to the disk any more, and how it is left is noted.
    pub(crate) fn rest(&self) {
        if self.plan.access != Access::ReadWrite {
            return;
        }
        let served = std::mem::replace(&mut *self.alone(), Served::Cautious);
        if let Served::Cached(_, Front { region, device, cached }) = served {
            // With them the thread that writes to the disk ends.
            drop((device, cached));
            disk_left::note(&region, &self.disk);
        }
    }

    /// Takes the cache away, after its last dirty blocks went to the disk. Only the region is left of it, and until it is known what becomes of that
    /// nobody writes to the disk.
    fn take(&self, served: &mut Served) -> Result<Arc<MappedRegion>, Failure> {
        let Some(taken) = served.front() else { return Err(self.has_no_cache()) };
        self.refuse_read_only()?;
        taken.cached.finish(&self.plan.pmem)?;
        *self.earlier() = self.readings_of(served.front());
        match std::mem::replace(served, Served::Cautious) {
            Served::Cached(_, Front { region, .. }) => Ok(region),
            Served::Alone | Served::Cautious => Err(self.has_no_cache()),
        }
    }

    /// Goes on with whatever cache the region holds now.
    fn go_on(&self, served: &mut Served) -> Result<(), Failure> {
        let region = compose::map(&self.plan.pmem, Access::ReadWrite)?;
        let identity = compose::cache_in(&self.plan.pmem, &region)?;
        if identity.is_none_or(|identity| identity.disk == DETACHED) {
            return Err(self.has_no_cache());
        }
        *served = Served::Cached(self.next_number(), self.reopen(Arc::new(region))?);
        Ok(())
    }

    /// A number for a cache, which no earlier one had.
    fn next_number(&self) -> u64 {
        self.caches.fetch_add(1, Ordering::Relaxed)
    }

    fn lay_out(&self, region: &Arc<MappedRegion>, disk: [u8; 32], region_bytes: u64) -> Result<(), Failure> {
        let wish = Relayout { disk, disk_blocks: self.blocks, region_bytes };
        lay_out(&self.plan.pmem, region, &wish)
    }

    fn reopen(&self, region: Arc<MappedRegion>) -> Result<Front, Failure> {
        let mut plan = self.plan.clone();
        plan.disk.mode = *self.mode();
        compose::front(&plan, region, self.disk.clone())
    }

    fn has_no_cache(&self) -> Failure {
        DiskFailure::Detached { pmem: self.plan.pmem.clone() }.into()
    }

    /// What all caches counted, this one last. Without one, what there is now is nothing.
    fn readings_of(&self, front: Option<&Front>) -> Vec<Reading> {
        let earlier = self.earlier().clone();
        let Some(front) = front else {
            let gone = |reading: Reading| Reading { value: reading.counted().unwrap_or(0), ..reading };
            return earlier.into_iter().map(gone).collect();
        };
        let counted = |name: &str| earlier.iter().find(|reading| reading.name == name).and_then(Reading::counted);
        let add = |reading: Reading| Reading {
            value: reading.value + reading.counted().and_then(|_| counted(&reading.name)).unwrap_or(0),
            ..reading
        };
        front.readings().into_iter().map(add).collect()
    }
}

/// Lays the cache in `region` out anew, and sees to it that the result outlives this process.
pub(crate) fn lay_out(pmem: &Path, region: &Arc<MappedRegion>, wish: &Relayout) -> Result<(), Failure> {
    relayout(Arc::clone(region), wish).map_err(|error| VolumeFailure::of_relayout(pmem, error))?;
    Ok(crate::create::sync(pmem, region)?)
}

/// Makes the file of `region`, which nobody else uses, `bytes` long, and by `lay_out` the cache in it as large as fits: a larger file first, a
/// smaller one last, so that the cache fits at all times.
pub(crate) fn resized(
    pmem: &Path,
    region: Arc<MappedRegion>,
    bytes: u64,
    lay_out: impl FnOnce(&Arc<MappedRegion>, u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let refused = |error| VolumeFailure::of_io(pmem, Doing::Write, error);
    let file = region.file().map(File::try_clone).transpose().map_err(refused)?;
    let file = file.ok_or_else(|| DiskFailure::NoFile { pmem: pmem.to_owned() })?;
    let has = region.len();
    if bytes <= has {
        lay_out(&region, bytes)?;
        drop(region);
        return Ok(file.set_len(bytes).and_then(|()| file.sync_all()).map_err(refused)?);
    }
    drop(region);
    if let Err(errno) = fallocate(&file, FallocateFlags::empty(), has, bytes - has) {
        // Some file systems keep what they found room for.
        file.set_len(has).map_err(refused)?;
        return Err(VolumeFailure::of_allocation(pmem, bytes, errno.into()).into());
    }
    file.sync_all().map_err(refused)?;
    drop(file);
    lay_out(&Arc::new(compose::map(pmem, Access::ReadWrite)?), bytes)
}

impl BlockDevice for LiveDisk {
    fn geometry(&self) -> Geometry {
        let (device, closed): (&dyn BlockDevice, bool) = match &*self.shared() {
            Served::Cached(_, front) => return Geometry { blocks: self.blocks, ..front.device.geometry() },
            Served::Alone => (&*self.disk.device, *self.mode() == Mode::ReadOnly),
            Served::Cautious => (&*self.disk.device, true),
        };
        let geometry = device.geometry();
        Geometry { blocks: self.blocks, read_only: geometry.read_only || closed, ..geometry }
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Answer<()> {
        self.with(|device| device.read(at, out))
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Answer<()> {
        self.with_writable(|device| device.write(at, data, durability))
    }

    fn flush(&self) -> Answer<()> {
        self.with(|device| device.flush())
    }

    fn discard(&self, range: LbaRange) -> Answer<()> {
        self.with_writable(|device| device.discard(range))
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Answer<()> {
        self.with_writable(|device| device.write_zeroes(range, durability))
    }

    fn extent(&self, range: LbaRange) -> Answer<Extent> {
        self.with(|device| device.extent(range))
    }
}

impl Watched for LiveDisk {
    fn readings(&self) -> Vec<Reading> {
        self.readings_of(self.shared().front())
    }
}
