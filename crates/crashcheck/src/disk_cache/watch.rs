//! Memory and disk cut at the same instant.
//!
//! Between two fences the images that the memory may be left with only grow, and between two
//! accesses the disk's state stays. So the instants before each fence and before each access of the
//! disk, and the one at the end, cover all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_layout::disk_cache::{JournalHeader, JournalPlan};
use tidegate_media::{Backing, BlockDevice, Durability, InTurn, Lba, LbaRange, Region as Medium, Result, Run, Sealed};
use tidegate_sim::{Cut, Disk, DiskCut, Image, InterceptMemory, InterceptedMemory, Recorded, Region, Rng, SectorTear};
use zerocopy::FromBytes;

/// Sectors of a disk's cut in more combinations than this are sampled.
const DISK_IMAGES_MAX: u64 = 64;

/// The power fails: the memory and the disk at that instant.
pub struct JointCut {
    /// The memory.
    pub region: Cut,
    /// The disk.
    pub disk: DiskCut,
}

impl JointCut {
    /// Returns every image that the disk may be left with, or some of them if those are many: first
    /// with nothing of its cache, then with all of it.
    pub(crate) fn disk_images(&self) -> Vec<Image> {
        self.disk.images(DISK_IMAGES_MAX).unwrap_or_else(|count| {
            let mut rng = Rng::new(count.to_bits());
            (0..DISK_IMAGES_MAX).map(|_| self.disk.sample(&mut rng, SectorTear::Possible)).collect()
        })
    }
}

/// Memory and disk of one machine, and the cuts recorded of them.
pub struct Watcher {
    /// The memory.
    pub region: Arc<Region>,
    /// The disk.
    pub disk: Arc<Disk>,
    cuts: Recorded<JointCut>,
    /// Whether the disk's flushes do nothing.
    lies: AtomicBool,
    /// The flush of a group that is left out, if one is.
    lost: Mutex<Option<LostFlush>>,
}

/// A flush that the disk never hears of.
pub struct LostFlush {
    journal: JournalPlan,
    after: GroupPart,
    /// What was written since the last flush.
    written: Vec<GroupPart>,
}

/// What is written to the disk to put a group in place, in this order; a flush follows each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPart {
    /// Its blocks and records, to the journal.
    Copy,
    /// The header that tells of it.
    Told,
    /// Its blocks, where they belong.
    Placed,
    /// The header that tells of none.
    Retired,
}

impl LostFlush {
    /// The flush that follows this part of a group, on a disk with this journal.
    pub fn new(journal: JournalPlan, after: GroupPart) -> LostFlush {
        LostFlush { journal, after, written: Vec::new() }
    }

    /// Something is written.
    pub fn note(&mut self, at: Lba, data: &[u8]) {
        let part = self.part(at, data);
        self.written.push(part);
    }

    /// A flush comes; whether it is the one.
    pub fn is_due(&mut self) -> bool {
        std::mem::take(&mut self.written).contains(&self.after)
    }

    fn part(&self, at: Lba, data: &[u8]) -> GroupPart {
        let (head, _) = JournalHeader::ref_from_prefix(data).expect("a block is larger than a header");
        match at.0 {
            at if at < self.journal.disk_blocks => GroupPart::Placed,
            at if at < self.journal.header_at(0) => GroupPart::Copy,
            _ if head.blocks.get() > 0 => GroupPart::Told,
            _ => GroupPart::Retired,
        }
    }
}

impl Watcher {
    /// A machine with this memory, and a disk that holds this image.
    pub fn new(region: Region, disk: &Image) -> Arc<Watcher> {
        let disk = Arc::new(Disk::from_image(disk.clone(), 512));
        let (cuts, lies, lost) = (Recorded::default(), AtomicBool::new(false), Mutex::default());
        Arc::new(Watcher { region: Arc::new(region), disk, cuts, lies, lost })
    }

    /// From now on, leaves out the flush that follows this part of a group, on a disk with this
    /// journal.
    pub fn lose_flush(&self, journal: JournalPlan, after: GroupPart) {
        *self.lost() = Some(LostFlush::new(journal, after));
    }

    fn lost(&self) -> MutexGuard<'_, Option<LostFlush>> {
        self.lost.lock().expect("nobody panics with it")
    }

    fn note(&self, at: Lba, data: &[u8]) {
        self.lost().iter_mut().for_each(|lost| lost.note(at, data));
    }

    /// Whether a flush is to be made.
    fn flushes(&self) -> bool {
        let lost = self.lost().as_mut().is_some_and(LostFlush::is_due);
        !lost && !self.lies.load(Ordering::Relaxed)
    }

    /// From now on, keeps a cut for each instant that matters.
    pub fn record(&self) {
        self.cuts.begin();
    }

    /// The cuts kept since, and one of now. No more are kept.
    pub fn take(&self) -> Vec<JointCut> {
        self.cuts.take(self.cut())
    }

    /// Whether the disk says that it has flushed when it has not.
    pub fn lie_about_flushes(&self, lies: bool) {
        self.lies.store(lies, Ordering::Relaxed);
    }

    /// The power fails now.
    pub(crate) fn cut(&self) -> JointCut {
        JointCut { region: self.region.cut(), disk: self.disk.cut() }
    }

    fn instant(&self) {
        self.cuts.instant(|| self.cut());
    }
}

/// The memory of a watched machine.
pub type Watched = InterceptedMemory<Region, InWatched>;

/// What happens at the memory of a watched machine: each fence is an instant.
pub struct InWatched(pub(crate) Arc<Watcher>);

impl Watcher {
    /// Its memory.
    pub fn memory(self: &Arc<Watcher>) -> Watched {
        Watched { memory: self.region.clone(), by: InWatched(self.clone()) }
    }
}

impl InterceptMemory for InWatched {
    fn fence<R: Medium + ?Sized>(&self, memory: &R) -> Result<(), Sealed> {
        self.0.instant();
        memory.fence()
    }
}

/// Its disk.
pub(crate) struct WatchedDisk(pub(crate) Arc<Watcher>);

impl BlockDevice for WatchedDisk {
    tidegate_media::forward!(self => self.0.disk; geometry, read, discard, extent);

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.0.instant();
        self.0.note(at, data);
        self.0.disk.write(at, data, durability)
    }

    fn flush(&self) -> Result<()> {
        self.0.instant();
        if self.0.flushes() { self.0.disk.flush() } else { Ok(()) }
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.0.instant();
        self.0.disk.write_zeroes(range, durability)
    }
}

impl Backing for WatchedDisk {
    fn write_runs(&self, runs: &[Run<'_>]) -> Vec<Result<()>> {
        self.0.instant();
        runs.iter().for_each(|run| self.0.note(run.at, run.data));
        InTurn(self.0.disk.clone()).write_runs(runs)
    }
}
