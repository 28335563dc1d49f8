//! A disk that is served, with a cache in front of it or without: which of both changes while clients use it.
//!
//! Requests share a lock; a change takes it for itself, so it waits for the requests that are under way, and those that come meanwhile wait for
//! it. Before that the cache was emptied of what the disk lacks, beside the clients, so a change takes no longer than the last few blocks and an
//! opening. A change that is killed leaves a cache that is the old or the new one, and clean: see `relayout` of the cache.

use crate::cached_disk::{CachedDisk, DiskState};
use crate::compose;
use crate::disks::{DETACHED, Disk};
use crate::failure::{DiskFailure, Doing, Failure, VolumeFailure};
use crate::notes::Note;
use crate::plan::VolumePlan;
use crate::readings::{Reading, Watched};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tidegate_disk_cache::{Mode, Relayout, Scrubbed, relayout};
use tidegate_drain::{Left, Ticket};
use tidegate_media::{
    Access, BlockDevice, Durability, Extent, Geometry, Lba, LbaRange, MappedRegion, Region, Result as Answer,
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

/// A served disk.
pub(crate) struct LiveDisk {
    plan: VolumePlan,
    disk: Disk,
    /// Blocks of the volume.
    blocks: u64,
    /// None: the disk alone.
    front: RwLock<Option<Front>>,
    /// What the caches before this one counted.
    earlier: Mutex<Vec<Reading>>,
}

impl LiveDisk {
    /// `disk` behind `front`, as `plan` describes both.
    pub(crate) fn new(plan: VolumePlan, disk: Disk, front: Front) -> LiveDisk {
        let blocks = front.device.geometry().blocks;
        LiveDisk { plan, disk, blocks, front: RwLock::new(Some(front)), earlier: Mutex::default() }
    }

    fn shared(&self) -> RwLockReadGuard<'_, Option<Front>> {
        self.front.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, Option<Front>> {
        self.front.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn earlier(&self) -> MutexGuard<'_, Vec<Reading>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, act: impl FnOnce(&dyn BlockDevice) -> T) -> T {
        match &*self.shared() {
            Some(front) => act(&*front.device),
            None => act(&*self.disk.device),
        }
    }

    fn cached<T>(&self, act: impl FnOnce(&dyn CachedDisk) -> T) -> Option<T> {
        self.shared().as_ref().map(|front| act(&*front.cached))
    }

    /// How it is now.
    pub(crate) fn state(&self) -> DiskState {
        self.cached(|cached| cached.state()).unwrap_or_else(|| DiskState::without_cache(&self.disk))
    }

    /// Treats requests by `mode` from now on.
    ///
    /// # Errors
    /// No cache is there to do so.
    pub(crate) fn set_mode(&self, mode: Mode) -> Result<(), Failure> {
        self.cached(|cached| cached.set_mode(mode)).ok_or_else(|| self.has_no_cache())
    }

    /// Asks for everything that is dirty now to be written to the disk.
    pub(crate) fn flush(&self) -> Ticket {
        self.cached(|cached| cached.flush()).unwrap_or(Ticket(0))
    }

    /// What that flush left behind, and why; None: it is under way.
    pub(crate) fn flushed(&self, ticket: Ticket) -> Option<(Left, Option<String>)> {
        let look = |cached: &dyn CachedDisk| cached.flushed(ticket).map(|left| (left.clone(), cached.why(&left)));
        self.cached(look).unwrap_or_else(|| Some((Left::default(), None)))
    }

    /// Reads what some entries from number `from` on name.
    pub(crate) fn scrub(&self, from: u32) -> Scrubbed {
        self.cached(|cached| cached.scrub(from)).unwrap_or_default()
    }

    /// Brings the last blocks to the disk, sets both free from each other, and goes on with the disk alone.
    ///
    /// # Errors
    /// A block that the disk refuses is named. Everything stays as it was, unless the region itself fails: then the disk goes on alone.
    pub(crate) fn detach(&self) -> Result<(), Failure> {
        let mut front = self.alone();
        let region = self.take(&mut front)?;
        let emptied = self.lay_out(&region, DETACHED, region.len());
        if emptied.is_ok() {
            region.file().into_iter().for_each(|file| Note::Disk.remove(file));
        } else {
            *front = self.reopen(region).ok();
        }
        emptied
    }

    /// Puts the region in front of the disk again, which has to be the one at `path`.
    ///
    /// # Errors
    /// The disk goes on alone.
    pub(crate) fn attach(&self, path: &Path) -> Result<(), Failure> {
        let mut front = self.alone();
        let pmem = self.plan.pmem.clone();
        if front.is_some() {
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
        self.lay_out(&region, self.disk.device.identity().0, region.len())?;
        region.file().into_iter().for_each(|file| Note::Disk.write(file, &self.disk.path));
        *front = Some(self.reopen(region)?);
        Ok(())
    }

    /// Makes the region `bytes` long, and the cache as large as fits.
    ///
    /// # Errors
    /// A block that the disk refuses is named, and everything stays as it was. If the region cannot be opened again the disk goes on alone.
    pub(crate) fn resize(&self, bytes: u64) -> Result<(), Failure> {
        let mut front = self.alone();
        let region = self.take(&mut front)?;
        let resized = resized(&self.plan.pmem, region, bytes, |region, bytes| {
            self.lay_out(region, self.disk.device.identity().0, bytes)
        });
        let region = compose::map(&self.plan.pmem, Access::ReadWrite)?;
        *front = Some(self.reopen(Arc::new(region))?);
        resized
    }

    /// Takes the cache away, after its last dirty blocks went to the disk. Only the region is left of it.
    fn take(&self, front: &mut Option<Front>) -> Result<Arc<MappedRegion>, Failure> {
        let Some(taken) = front.as_ref() else { return Err(self.has_no_cache()) };
        if self.plan.access != Access::ReadWrite {
            return Err(DiskFailure::ReadOnly { pmem: self.plan.pmem.clone() }.into());
        }
        taken.cached.finish(&self.plan.pmem)?;
        *self.earlier() = self.readings_of(front.as_ref());
        let Front { region, device, cached } = front.take().expect("just seen");
        drop((device, cached));
        Ok(region)
    }

    fn lay_out(&self, region: &Arc<MappedRegion>, disk: [u8; 32], region_bytes: u64) -> Result<(), Failure> {
        let wish = Relayout { disk, disk_blocks: self.blocks, region_bytes };
        lay_out(&self.plan.pmem, region, &wish)
    }

    fn reopen(&self, region: Arc<MappedRegion>) -> Result<Front, Failure> {
        compose::front(&self.plan, region, self.disk.clone())
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
        Geometry { blocks: self.blocks, ..self.with(|device| device.geometry()) }
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Answer<()> {
        self.with(|device| device.read(at, out))
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Answer<()> {
        self.with(|device| device.write(at, data, durability))
    }

    fn flush(&self) -> Answer<()> {
        self.with(|device| device.flush())
    }

    fn discard(&self, range: LbaRange) -> Answer<()> {
        self.with(|device| device.discard(range))
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Answer<()> {
        self.with(|device| device.write_zeroes(range, durability))
    }

    fn extent(&self, range: LbaRange) -> Answer<Extent> {
        self.with(|device| device.extent(range))
    }
}

impl Watched for LiveDisk {
    fn readings(&self) -> Vec<Reading> {
        self.readings_of(self.shared().as_ref())
    }
}
