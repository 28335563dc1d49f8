//! A disk that is served, with a cache in front of it or without: which of both changes while
//! clients use it.
//!
//! Requests share a lock; a change takes it for itself, so it waits for the requests that are under
//! way, and those that come meanwhile wait for it. Before that, beside the clients, the cache was
//! emptied of what the disk lacks, and the file of a region that becomes larger got its room, so a
//! change takes no longer than the last few blocks, the new entries and an opening; a region that
//! becomes smaller gives its room back in that time too. A change that is killed leaves a cache
//! that is the old or the new one, and clean: see `lay_out_anew` of the cache. The file may then be
//! longer than the cache needs, which its format allows.

use crate::cached_disk::cache::CachedDisk;
use crate::cached_disk::contents;
use crate::cached_disk::disk::{Disk, is_same_place};
use crate::cached_disk::journal::{erase_journal_of, put_journal_of};
use crate::cached_disk::owner::{self, IfClaimed};
use crate::cached_disk::resize::{
    Resizing, lay_out, lengthened, map_again, resized, resized_file, resizing, shortened,
};
use crate::cached_disk::state::{DiskState, HitCounts};
use crate::cached_disk::volatile::{Stake, Volatile};
use crate::failure::{DiskFailure, Failure, MirrorFailure, Obstacle, Step};
use crate::options::VolumePlan;
use crate::stats::registry::{Metric, MetricSource, Unit};
use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tidegate_background::{Destager, SweepFailures, Ticket};
use tidegate_disk_cache::{Mode, NewLayout, Scrubbed};
use tidegate_layout::disk_cache::DETACHED;
use tidegate_media::{
    Access, BlockDevice, Durability, Extent, Geometry, Lba, LbaRange, Misuse, Refusals, Region, Result as Answer,
    Sealed,
};
use tidegate_volume_region::region::{self, cache_in};
use tidegate_volume_region::xattrs::Xattr;
use tidegate_volume_region::{VolumeRegion, mirror};

/// The cache of a served disk.
pub struct Front {
    /// Its region.
    pub region: Arc<VolumeRegion>,
    /// Whether the disk keeps the order of its commits.
    pub ordered: bool,
    /// What clients get.
    pub device: Arc<dyn BlockDevice>,
    /// The cache itself.
    pub cached: Arc<dyn CachedDisk>,
}

impl Front {
    fn metrics(&self) -> Vec<Metric> {
        let mut readings = self.region.metrics();
        readings.extend(self.cached.metrics());
        readings
    }
}

/// What clients get.
enum Served {
    /// The disk behind a cache, which is the one of this number.
    Cached(u64, Front),
    /// The disk alone. The region that was its cache knows nothing of it any more.
    Alone,
    /// The disk alone, which is not written to: the region that was its cache could not be opened
    /// again, and may still speak of its blocks.
    ReadOnlyAfterFailure,
}

impl Served {
    fn front(&self) -> Option<&Front> {
        match self {
            Served::Cached(_, front) => Some(front),
            Served::Alone | Served::ReadOnlyAfterFailure => None,
        }
    }
}

/// What a flush is asked after by.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct FlushTicket {
    /// Which cache was asked. One that is gone was emptied first.
    cache: u64,
    sweep: u64,
}

/// What the server says while a disk is not written to.
const READ_ONLY_AFTER_FAILURE: &str = "the region could not be opened again: nothing is dirty, reads go to the disk, and writes are refused until the server is started anew";

/// What is done with reads and writes.
struct Modes {
    /// Until the server ends, or somebody sets another.
    lasting: Mode,
    /// As long as a change is under way that empties the cache.
    during_change: Option<Mode>,
    /// Whether a change is under way.
    changing: bool,
}

impl Modes {
    /// Where nobody writes nothing turns dirty, and a change needs no more.
    fn now(&self) -> Mode {
        match self.lasting {
            Mode::ReadOnly => Mode::ReadOnly,
            lasting => self.during_change.unwrap_or(lasting),
        }
    }
}

/// What caches counted that are gone.
#[derive(Default)]
struct Earlier {
    readings: Vec<Metric>,
    hits: HitCounts,
}

/// What a disk lacks when its server ends.
#[derive(Debug, Serialize)]
pub struct DiskEnd {
    /// Where it is.
    #[serde(with = "tidegate_host::json_path")]
    pub disk: PathBuf,
    /// Bytes that only the region has.
    pub dirty_bytes: u64,
    /// Whether the disk alone is the volume.
    disk_current: bool,
}

impl DiskEnd {
    /// That of the disk at `disk`, which lacks so many bytes.
    pub fn new(disk: PathBuf, dirty_bytes: u64) -> DiskEnd {
        DiskEnd { disk, dirty_bytes, disk_current: dirty_bytes == 0 }
    }
}

/// Opens the cache in a region, in front of a disk and as a plan says.
pub type OpenFront = fn(&VolumePlan, Arc<VolumeRegion>, Disk) -> Result<Front, Failure>;

/// A served disk.
pub struct OnlineDisk {
    plan: VolumePlan,
    disk: Disk,
    open_front: OpenFront,
    /// Blocks of the volume.
    blocks: u64,
    front: RwLock<Served>,
    /// Caches so far, which is the number of the next.
    caches: AtomicU64,
    /// What is done with reads and writes: by the caches to come too. Taken behind `front`.
    modes: Mutex<Modes>,
    /// What the caches before this one counted. Taken behind `front`.
    earlier: Mutex<Earlier>,
}

impl OnlineDisk {
    /// `disk` behind `front`, as `plan` describes both; later ones are opened by `open_front`.
    pub fn new(plan: VolumePlan, disk: Disk, front: Front, open_front: OpenFront) -> OnlineDisk {
        let blocks = front.device.geometry().blocks;
        let modes = Mutex::new(Modes { lasting: plan.disk.mode, during_change: None, changing: false });
        let (front, caches) = (RwLock::new(Served::Cached(0, front)), AtomicU64::new(1));
        OnlineDisk { plan, disk, open_front, blocks, front, caches, modes, earlier: Mutex::default() }
    }

    fn shared(&self) -> RwLockReadGuard<'_, Served> {
        self.front.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, Served> {
        self.front.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn modes(&self) -> MutexGuard<'_, Modes> {
        self.modes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn earlier(&self) -> MutexGuard<'_, Earlier> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, act: impl FnOnce(&dyn BlockDevice) -> T) -> T {
        match self.shared().front() {
            Some(front) => act(&*front.device),
            None => act(&*self.disk.device),
        }
    }

    /// Lets `act` change the device that clients get.
    fn with_writable(&self, act: impl FnOnce(&dyn BlockDevice) -> Answer<()>) -> Answer<()> {
        match &*self.shared() {
            Served::Cached(_, front) => act(&*front.device),
            Served::Alone if self.modes().lasting == Mode::ReadOnly => Err(Misuse::ReadOnly.into()),
            Served::Alone => act(&*self.disk.device),
            Served::ReadOnlyAfterFailure => Err(Sealed::StoreLost { at: 0 }.into()),
        }
    }

    fn cached<T>(&self, act: impl FnOnce(&dyn CachedDisk) -> T) -> Option<T> {
        self.shared().front().map(|front| act(&*front.cached))
    }

    /// Whether the disk has everything.
    pub fn is_clean(&self) -> bool {
        self.cached(|cached| cached.state().dirty_bytes).unwrap_or(0) == 0
    }

    /// The disk alone, which may lack what the cache has. For reading.
    pub fn alone(&self) -> &dyn BlockDevice {
        &*self.disk.device
    }

    /// How it is now.
    pub fn state(&self) -> DiskState {
        self.state_of(&self.shared())
    }

    fn state_of(&self, served: &Served) -> DiskState {
        let trouble = matches!(served, Served::ReadOnlyAfterFailure).then(|| READ_ONLY_AFTER_FAILURE.to_owned());
        let alone = || DiskState::without_cache(&self.disk, trouble);
        let cached = |front: &Front| DiskState { risk: self.risk_of(front), ..front.cached.state() };
        served.front().map_or_else(alone, cached).after(&self.earlier().hits)
    }

    fn stake<'a>(&'a self, front: &Front) -> Stake<'a> {
        Stake { pmem: &self.plan.pmem, domain: front.region.reader().domain(), ordered: front.ordered }
    }

    /// What a power loss takes of completed writes, if it takes flushed ones.
    fn risk_of(&self, front: &Front) -> Option<String> {
        let mode = self.modes().now();
        let is_written = self.plan.access == Access::ReadWrite;
        is_written.then(|| self.stake(front).risk_by(mode)).flatten().map(str::to_owned)
    }

    /// What somebody who asks with `volatile` accepts beside what the server was started with.
    fn volatile_or(&self, volatile: Volatile) -> Volatile {
        if self.plan.disk.volatile == Volatile::Accepted { Volatile::Accepted } else { volatile }
    }

    /// What is done with reads and writes once no change is under way.
    pub fn lasting_mode(&self) -> Mode {
        self.modes().lasting
    }

    /// Treats requests by `mode` from now on, until the server ends: while a change is under way,
    /// once that is over.
    ///
    /// # Errors
    /// No cache is there to do so, nothing may be changed, or completed writes would be at stake
    /// that `volatile` does not accept.
    pub fn set_mode(&self, mode: Mode, volatile: Volatile) -> Result<(), Failure> {
        self.refuse_read_only()?;
        let volatile = self.volatile_or(volatile);
        self.change_modes(|front, modes| {
            self.stake(front).admit(Step::GoOn(mode), volatile)?;
            modes.lasting = mode;
            Ok(())
        })
    }

    /// A change begins, and no other before that has ended.
    ///
    /// # Errors
    /// Another change is under way, no cache is there, or nothing may be changed.
    pub fn begin_change(&self) -> Result<(), Failure> {
        self.refuse_read_only()?;
        self.change_modes(|_, modes| match std::mem::replace(&mut modes.changing, true) {
            false => Ok(()),
            true => Err(DiskFailure::Changing { pmem: self.plan.pmem.clone() }.into()),
        })
    }

    /// Treats requests by `mode` from now on, until the change that has begun has ended.
    ///
    /// # Errors
    /// No cache is there.
    pub fn set_mode_during_change(&self, mode: Mode) -> Result<(), Failure> {
        self.change_modes(|_, modes| {
            modes.during_change = Some(mode);
            Ok(())
        })
    }

    /// The change that has begun has ended, and requests are treated by the lasting mode again.
    pub fn end_change(&self) {
        let shared = self.shared();
        let mut modes = self.modes();
        (modes.during_change, modes.changing) = (None, false);
        shared.front().iter().for_each(|front| front.cached.set_mode(modes.now()));
    }

    /// Lets `change` change the modes, for the cache there is.
    fn change_modes(&self, change: impl FnOnce(&Front, &mut Modes) -> Result<(), Failure>) -> Result<(), Failure> {
        let shared = self.shared();
        let front = shared.front().ok_or_else(|| self.has_no_cache())?;
        let mut modes = self.modes();
        change(front, &mut modes)?;
        front.cached.set_mode(modes.now());
        Ok(())
    }

    /// Asks for everything that is dirty now to be written to the disk.
    ///
    /// # Errors
    /// Nothing may be changed.
    pub fn flush(&self) -> Result<FlushTicket, Failure> {
        self.refuse_read_only()?;
        Ok(match &*self.shared() {
            Served::Cached(cache, front) => FlushTicket { cache: *cache, sweep: front.cached.flush().0 },
            Served::Alone | Served::ReadOnlyAfterFailure => FlushTicket { cache: u64::MAX, sweep: 0 },
        })
    }

    /// What that flush left behind, and why; None: it is under way.
    pub fn flushed(&self, ticket: FlushTicket) -> Option<(SweepFailures, Option<Obstacle>)> {
        match &*self.shared() {
            Served::Cached(cache, front) if *cache == ticket.cache => {
                let left = front.cached.flushed(Ticket(ticket.sweep))?;
                let obstacle = front.cached.obstacle(&left);
                Some((left, obstacle))
            }
            // The cache that was asked was emptied when it went.
            _ => Some((SweepFailures::default(), None)),
        }
    }

    fn refuse_read_only(&self) -> Result<(), Failure> {
        match self.plan.access {
            Access::ReadWrite => Ok(()),
            _ => Err(DiskFailure::ReadOnly { pmem: self.plan.pmem.clone() }.into()),
        }
    }

    /// Reads what some entries from number `from` on name.
    pub fn scrub(&self, from: u32) -> Scrubbed {
        self.cached(|cached| cached.scrub(from)).unwrap_or_default()
    }

    /// Brings the last blocks to the disk, sets both free from each other, and goes on with the
    /// disk alone.
    ///
    /// # Errors
    /// A block that the disk refuses is named, or what is wrong with the region. Everything stays
    /// as it was; if the region cannot even be opened again, the disk is only read.
    pub fn detach(&self) -> Result<(), Failure> {
        let mut front = self.exclusive();
        let region = self.take(&mut front)?;
        let emptied = self.part(&region).or_else(|_| {
            // A region that has lost a store takes none until it is mapped anew.
            drop(region);
            self.part(&Arc::new(map_again(&self.plan.pmem, &self.plan.mirror)?))
        });
        match emptied {
            Ok(()) => *front = Served::Alone,
            // What is told is why it did not succeed, first of all.
            Err(_) => drop(self.go_on(&mut front)),
        }
        emptied
    }

    /// Sets `region`, which is clean, free from the disk.
    fn part(&self, region: &Arc<VolumeRegion>) -> Result<(), Failure> {
        // The file may be shorter by now than it was when the region was mapped.
        let now = region::only_file(region).and_then(|file| file.metadata().ok()).filter(Metadata::is_file);
        let bytes = now.map_or(region.len(), |now| now.len().min(region.len()));
        self.lay_out(region, DETACHED, bytes)?;
        region::files(region).for_each(|file| Xattr::Disk.remove(file));
        match cache_in(&self.plan.pmem, region)? {
            Some(identity) => {
                erase_journal_of(&identity, &self.disk)?;
                owner::set_free(&self.disk, identity.uuid)
            }
            None => Ok(()),
        }
    }

    /// Puts the region in front of the disk again, which has to be the one at `path`. With
    /// [`IfClaimed::Override`] a journal goes over what lies at its end.
    ///
    /// # Errors
    /// The disk goes on alone. So it does if completed writes would be at stake that `volatile`
    /// does not accept.
    pub fn attach(&self, path: &Path, volatile: Volatile, if_claimed: IfClaimed) -> Result<(), Failure> {
        let mut front = self.exclusive();
        let pmem = self.plan.pmem.clone();
        if front.front().is_some() {
            return Err(DiskFailure::Attached { pmem }.into());
        }
        if !is_same_place(path, &self.disk.path) {
            return Err(DiskFailure::Replaced { pmem, disk: path.to_owned() }.into());
        }
        // Clients wait meanwhile.
        let region = Arc::new(mirror::open_at_once(&pmem, &self.plan.mirror)?);
        let identity = cache_in(&pmem, &*region)?.ok_or_else(|| contents::no_cache(&pmem, &region))?;
        if identity.disk != DETACHED {
            return Err(DiskFailure::Attached { pmem }.into());
        }
        let mode = Step::GoOn(self.modes().lasting);
        Stake::of(&self.plan.pmem, &region, &identity).admit(mode, self.volatile_or(volatile))?;
        let has = self.disk.device.geometry().block_size;
        if identity.block_size != has {
            return Err(DiskFailure::BlockSize { pmem, has: identity.block_size, needs: has }.into());
        }
        if if_claimed == IfClaimed::Refuse {
            owner::refuse_unfit(&self.disk, Some(identity.uuid))?;
        }
        let blocks = put_journal_of(&identity, &self.disk, if_claimed)?;
        if blocks != self.blocks {
            return Err(DiskFailure::Replaced { pmem, disk: path.to_owned() }.into());
        }
        owner::take(&self.disk, &pmem, identity.uuid)?;
        self.lay_out(&region, self.disk.device.identity().0, region.len())?;
        region::files(&region).for_each(|file| Xattr::Disk.write(file, &self.disk.path));
        *front = Served::Cached(self.next_number(), self.reopen(region)?);
        Ok(())
    }

    /// What becomes of the region and its cache if it is to be `bytes` long. Changes nothing.
    ///
    /// # Errors
    /// The region cannot have that size.
    pub fn foresee_resize(&self, bytes: u64) -> Result<Resizing, Failure> {
        let (disk, disk_blocks) = (self.disk.device.identity().0, self.blocks);
        let layout = NewLayout { disk, disk_blocks, region_bytes: bytes };
        self.with_region(|region| resizing(&self.plan.pmem, region, &layout))
    }

    /// Makes the file of the region `bytes` long, in which its cache has room for as many blocks as
    /// before.
    ///
    /// # Errors
    /// Its file cannot have that length, and stays as it was.
    pub fn resize_file(&self, bytes: u64) -> Result<(), Failure> {
        self.with_region(|region| resized_file(&self.plan.pmem, region, bytes))
    }

    /// Makes the region `bytes` long, and the cache as large as fits.
    ///
    /// # Errors
    /// A block that the disk refuses is named, and everything stays as it was. If the region cannot
    /// be opened again the disk is only read.
    pub fn resize(&self, bytes: u64) -> Result<(), Failure> {
        let pmem = &self.plan.pmem;
        let was = self.with_region(|region| lengthened(pmem, region, bytes))?;
        let mut front = self.exclusive();
        let region = self.take(&mut front).inspect_err(|_| {
            // Why it is not resized is told; a file that stays longer than it was is no less a
            // region.
            front.front().iter().for_each(|front| drop(shortened(pmem, &front.region, was)));
        })?;
        let resized =
            resized(pmem, region, bytes, |region, bytes| self.lay_out(region, self.disk.device.identity().0, bytes));
        self.go_on(&mut front)?;
        resized
    }

    /// Clients may come from now on: see [`Volume::begin`].
    ///
    /// # Errors
    /// The side of a mirror that is served alone cannot say so.
    ///
    /// [`Volume::begin`]: crate::volume::compose::Volume::begin
    pub(crate) fn begin(&self) -> Result<(), MirrorFailure> {
        let served = self.shared();
        let Some(front) = served.front() else { return Ok(()) };
        mirror::go_alone(&self.plan.pmem, &front.region)?;
        front.cached.destager().into_iter().for_each(Destager::release);
        Ok(())
    }

    /// The end, when no client is left: nobody writes to the disk any more, and how it is left is
    /// noted.
    pub fn rest(&self) -> DiskEnd {
        if self.plan.access != Access::ReadWrite {
            return self.end();
        }
        self.cached(|cached| cached.destager().into_iter().for_each(Destager::stop));
        let end = self.end();
        let served = std::mem::replace(&mut *self.exclusive(), Served::ReadOnlyAfterFailure);
        if let Served::Cached(_, Front { region, device, cached, .. }) = served {
            drop((device, cached));
            region::note_as_left(&region, &self.disk.device);
        }
        end
    }

    /// How the disk is left by an end that does not wait; None while a change has it for itself.
    pub fn end_at_once(&self) -> Option<DiskEnd> {
        let served = self.front.try_read().ok()?;
        let dirty_bytes = served.front().map_or(0, |front| front.cached.state().dirty_bytes);
        Some(DiskEnd::new(self.disk.path.clone(), dirty_bytes))
    }

    /// How the disk is left while clients may still write, or if nothing may be changed: everything
    /// goes on.
    pub fn end(&self) -> DiskEnd {
        DiskEnd::new(self.disk.path.clone(), self.state().dirty_bytes)
    }

    /// Lets `act` have the region of the cache, beside the clients.
    fn with_region<T>(&self, act: impl FnOnce(&Arc<VolumeRegion>) -> Result<T, Failure>) -> Result<T, Failure> {
        let region = self.shared().front().map(|front| Arc::clone(&front.region));
        act(&region.ok_or_else(|| self.has_no_cache())?)
    }

    /// Takes the cache away, after its last dirty blocks went to the disk. Only the region is left
    /// of it, and until it is known what becomes of that nobody writes to the disk.
    fn take(&self, served: &mut Served) -> Result<Arc<VolumeRegion>, Failure> {
        let Some(taken) = served.front() else { return Err(self.has_no_cache()) };
        self.refuse_read_only()?;
        taken.cached.finish(&self.plan.pmem)?;
        let earlier = Earlier { readings: self.readings_of(served.front()), hits: self.state_of(served).hit_counts() };
        *self.earlier() = earlier;
        match std::mem::replace(served, Served::ReadOnlyAfterFailure) {
            Served::Cached(_, Front { region, .. }) => Ok(region),
            Served::Alone | Served::ReadOnlyAfterFailure => Err(self.has_no_cache()),
        }
    }

    /// Goes on with whatever cache the region holds now.
    fn go_on(&self, served: &mut Served) -> Result<(), Failure> {
        let region = map_again(&self.plan.pmem, &self.plan.mirror)?;
        let identity = cache_in(&self.plan.pmem, &region)?;
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

    fn lay_out(&self, region: &Arc<VolumeRegion>, disk: [u8; 32], region_bytes: u64) -> Result<(), Failure> {
        let layout = NewLayout { disk, disk_blocks: self.blocks, region_bytes };
        lay_out(&self.plan.pmem, region, &layout)
    }

    fn reopen(&self, region: Arc<VolumeRegion>) -> Result<Front, Failure> {
        let mut plan = self.plan.clone();
        plan.disk.mode = self.modes().now();
        (self.open_front)(&plan, region, self.disk.clone())
    }

    fn has_no_cache(&self) -> Failure {
        DiskFailure::Detached { pmem: self.plan.pmem.clone() }.into()
    }

    /// What all caches counted, this one last. Without one, what there is now is nothing.
    fn readings_of(&self, front: Option<&Front>) -> Vec<Metric> {
        let earlier = self.earlier().readings.clone();
        let Some(front) = front else {
            let gone = |reading: Metric| Metric { value: reading.counted().unwrap_or(0), ..reading };
            return earlier.into_iter().map(gone).collect();
        };
        let counted = |name: &str| earlier.iter().find(|reading| reading.name == name).and_then(Metric::counted);
        let add = |reading: Metric| Metric {
            value: reading.value + reading.counted().and_then(|_| counted(&reading.name)).unwrap_or(0),
            ..reading
        };
        front.metrics().into_iter().map(add).collect()
    }
}

impl BlockDevice for OnlineDisk {
    fn geometry(&self) -> Geometry {
        let (device, closed): (&dyn BlockDevice, bool) = match &*self.shared() {
            Served::Cached(_, front) => return Geometry { blocks: self.blocks, ..front.device.geometry() },
            Served::Alone => (&*self.disk.device, self.modes().lasting == Mode::ReadOnly),
            Served::ReadOnlyAfterFailure => (&*self.disk.device, true),
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

impl MetricSource for OnlineDisk {
    fn metrics(&self) -> Vec<Metric> {
        let mut readings = self.readings_of(self.shared().front());
        let Refusals { reads, writes, flushes } = self.disk.device.refusals();
        let errors = |of, value| {
            let help = "Times that the disk refused something, tried again or not";
            Metric::counter("disk_errors", help, Unit::Count, value).labelled("kind", of)
        };
        readings.extend([errors("read", reads), errors("write", writes), errors("flush", flushes)]);
        readings
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cached_disk::disk::{self, DiskPlan};
    use crate::failure::AtFault;
    use crate::volume::compose;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::thread;
    use std::time::{Duration, Instant};
    use tidegate_disk_cache::{Checksums, Contents, DiskCache, FormatSpec, Options, format_with};
    use tidegate_media::{Allocation, DiskAccess, LockedFile};

    pub(crate) const MIB: u64 = 1 << 20;

    /// How long a test waits for another thread.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A disk of 8 MiB, and a region of 4 in front of it, in which block 7 is dirty.
    fn made_in(folder: &Path) -> VolumePlan {
        let (pmem, path) = (folder.join("v"), folder.join("disk"));
        File::create(&path).and_then(|file| file.set_len(8 * MIB)).expect("a disk");
        let device = disk::open(&path, DiskAccess::ReadWrite, 4096).expect("the disk").device;
        let region = Arc::new(VolumeRegion::Plain(
            tidegate_media::MappedRegion::create(&pmem, 4 * MIB, Allocation::Full).expect("a region"),
        ));
        let (ring_slots, disk) = (FormatSpec::ring_slots_in(4 * MIB), device.identity().0);
        let spec = FormatSpec { block_size: 4096, disk_blocks: 2048, ring_slots, uuid: [7; 16], disk };
        format_with(Checksums::Kept, &*region, &spec, Contents::Zeroed).expect("a cache");
        let cache = DiskCache::open(region, device as _, Options::default()).expect("a cache");
        cache.write(Lba(7), &[7; 4096], Durability::Volatile).expect("it is taken");
        let disk = DiskPlan { path: Some(path), ..DiskPlan::default() };
        VolumePlan { disk, ..VolumePlan::of(pmem, Access::ReadWrite) }
    }

    fn live(plan: &VolumePlan) -> Arc<OnlineDisk> {
        compose::open(plan).expect("a volume").disk.expect("it has a disk")
    }

    /// That disk and region, served.
    pub(crate) fn live_in(folder: &Path) -> Arc<OnlineDisk> {
        live(&made_in(folder))
    }

    fn bytes_of(pmem: &Path) -> u64 {
        pmem.metadata().expect("a region").len()
    }

    #[test]
    fn a_region_gets_its_room_while_requests_are_under_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = made_in(folder.path());
        let disk = live(&plan);
        let request = disk.shared();
        thread::scope(|scope| {
            let resize = scope.spawn(|| disk.resize(16 * MIB));
            let deadline = Instant::now() + PATIENCE;
            while bytes_of(&plan.pmem) < 16 * MIB {
                assert!(Instant::now() < deadline, "it waits for the request");
                thread::yield_now();
            }
            assert!(!resize.is_finished(), "the cache changes only when no request is under way");
            drop(request);
            resize.join().expect("no panic").expect("it is resized");
        });
        let mut block = [0; 4096];
        disk.read(Lba(7), &mut block).expect("it is there");
        assert_eq!((block[0], disk.state().attached, disk.state().cache_bytes > 8 * MIB), (7, true, true));
    }

    #[test]
    fn a_region_that_is_not_resized_is_as_long_as_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = made_in(folder.path());
        // A block that does not fit its checksum is kept from the disk.
        let bytes = std::fs::read(&plan.pmem).expect("a region");
        let at = bytes.chunks(4096).position(|chunk| chunk == [7; 4096]).expect("the block") * 4096;
        let file = File::options().write(true).open(&plan.pmem).expect("a region");
        file.write_all_at(&[8], at as u64).expect("it is spoiled");
        let disk = live(&plan);
        let refused = disk.resize(16 * MIB);
        assert!(matches!(
            refused,
            Err(Failure::Disk(DiskFailure::Undestaged { obstacle: Obstacle { by: AtFault::Damage, .. }, .. }))
        ));
        assert_eq!((bytes_of(&plan.pmem), disk.state().attached), (4 * MIB, true));
        disk.write(Lba(7), &[9; 4096], Durability::Volatile).expect("it is written anew");
        disk.resize(16 * MIB).expect("nothing keeps it");
        assert_eq!((bytes_of(&plan.pmem), disk.state().attached), (16 * MIB, true));
    }

    #[test]
    fn whoever_has_a_look_at_the_region_does_not_keep_it_from_its_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let plan = made_in(folder.path());
        let disk = live(&plan);
        let looking = std::sync::atomic::AtomicBool::new(true);
        thread::scope(|scope| {
            scope.spawn(|| {
                while looking.load(Ordering::Relaxed) {
                    let file = File::open(&plan.pmem).expect("a region");
                    drop(LockedFile::shared(&plan.pmem, file));
                }
            });
            let resized: Vec<_> = (0..50).map(|nth| disk.resize((5 + nth % 5) * MIB)).collect();
            looking.store(false, Ordering::Relaxed);
            assert!(resized.into_iter().all(|end| end.is_ok()) && disk.state().attached);
        });
    }

    #[test]
    fn what_was_asked_for_is_counted_since_the_volume_was_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = live_in(folder.path());
        let mut block = [0; 4096];
        let mut read = |lba: u64| disk.read(Lba(lba), &mut block).expect("it can be read");
        let counted = || {
            let DiskState { reads, writes, .. } = disk.state();
            [reads.hits, reads.misses, writes.hits + writes.misses]
        };
        [7, 7, 9].into_iter().for_each(&mut read);
        disk.write(Lba(3), &[3; 4096], Durability::Volatile).expect("it is taken");
        assert_eq!(counted(), [2, 1, 1]);
        disk.resize(5 * MIB).expect("it is resized");
        assert_eq!(counted(), [2, 1, 1]);
        [7, 7].into_iter().for_each(&mut read);
        assert_eq!(counted(), [3, 2, 1]);
        disk.detach().expect("it is detached");
        assert_eq!(counted(), [3, 2, 1]);
        disk.attach(&folder.path().join("disk"), Volatile::Refused, IfClaimed::Refuse).expect("its own disk");
        [7, 7].into_iter().for_each(&mut read);
        assert_eq!(counted(), [4, 3, 1]);
        let hits = disk.metrics().into_iter().find(|reading| reading.name == "disk_cache_read_hits");
        assert_eq!(hits.map(|reading| reading.value), Some(4), "`stat` counts the same");
    }
}
