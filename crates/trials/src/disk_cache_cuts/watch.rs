//! Memory and disk cut at the same instant.
//!
//! Between two fences the images that the memory may be left with only grow, and between two accesses the disk's state stays. So the
//! instants before each fence and before each access of the disk, and the one at the end, cover all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tidegate_media::{
    Backing, BlockDevice, Durability, Extent, Geometry, InTurn, Lba, LbaRange, LineOrder, Poison, Region as Medium,
    Result, Run, Sealed,
};
use tidegate_sim::{Cut, Disk, DiskCut, Image, Region};

/// The power fails: the memory and the disk at that instant.
pub struct JointCut {
    /// The memory.
    pub region: Cut,
    /// The disk.
    pub disk: DiskCut,
}

/// Memory and disk of one machine, and the cuts recorded of them.
pub struct Watcher {
    /// The memory.
    pub region: Arc<Region>,
    /// The disk.
    pub disk: Arc<Disk>,
    cuts: Mutex<Option<Vec<JointCut>>>,
    /// Whether the disk's flushes do nothing.
    lies: AtomicBool,
}

impl Watcher {
    /// A machine with this memory, and a disk that holds this image.
    pub fn new(region: Region, disk: &Image) -> Arc<Watcher> {
        let disk = Arc::new(Disk::from_image(disk.clone(), 512));
        Arc::new(Watcher { region: Arc::new(region), disk, cuts: Mutex::new(None), lies: AtomicBool::new(false) })
    }

    /// From now on, keeps a cut for each instant that matters.
    pub fn record(&self) {
        self.cuts.lock().expect("no holder panics").get_or_insert_default();
    }

    /// The cuts kept since, and one of now. No more are kept.
    pub fn take(&self) -> Vec<JointCut> {
        let mut cuts = self.cuts.lock().expect("no holder panics").take().unwrap_or_default();
        cuts.push(self.cut());
        cuts
    }

    /// Whether the disk says that it has flushed when it has not.
    pub fn lie_about_flushes(&self, lies: bool) {
        self.lies.store(lies, Ordering::Relaxed);
    }

    fn cut(&self) -> JointCut {
        JointCut { region: self.region.cut(), disk: self.disk.cut() }
    }

    fn instant(&self) {
        if let Some(cuts) = &mut *self.cuts.lock().expect("no holder panics") {
            cuts.push(self.cut());
        }
    }
}

/// The memory of a watched machine.
pub struct Watched(pub Arc<Watcher>);

impl Medium for Watched {
    fn len(&self) -> u64 {
        self.0.region.len()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.0.region.read(at, out)
    }

    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.0.region.load_u64(at)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.0.region.write(at, bytes);
    }

    fn stream(&self, at: u64, bytes: &[u8]) {
        self.0.region.stream(at, bytes);
    }

    fn store_u64(&self, at: u64, word: u64) {
        self.0.region.store_u64(at, word);
    }

    fn flush(&self, at: u64, len: u64) {
        self.0.region.flush(at, len);
    }

    fn fence(&self) -> Result<(), Sealed> {
        self.0.instant();
        self.0.region.fence()
    }

    fn line_order(&self) -> LineOrder {
        self.0.region.line_order()
    }
}

/// Its disk.
pub(crate) struct WatchedDisk(pub(crate) Arc<Watcher>);

impl BlockDevice for WatchedDisk {
    fn geometry(&self) -> Geometry {
        self.0.disk.geometry()
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        self.0.disk.read(at, out)
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.0.instant();
        self.0.disk.write(at, data, durability)
    }

    fn flush(&self) -> Result<()> {
        self.0.instant();
        if self.0.lies.load(Ordering::Relaxed) { Ok(()) } else { self.0.disk.flush() }
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.0.disk.discard(range)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.0.instant();
        self.0.disk.write_zeroes(range, durability)
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.0.disk.extent(range)
    }
}

impl Backing for WatchedDisk {
    fn write_runs(&self, runs: &[Run<'_>]) -> Vec<Result<()>> {
        self.0.instant();
        InTurn(self.0.disk.clone()).write_runs(runs)
    }
}
