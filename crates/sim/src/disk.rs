//! A simulated disk: a volatile cache in front of sectors, and what a power cut leaves of it.
//!
//! The rules are D1 to D6 of `docs/media-model.md`. What is written is visible at once and durable
//! after a flush (or by FUA); until then each sector of it arrives or does not, in any order and
//! combination, and one that is under way may tear. After a failed flush nothing that it covered is
//! ever flushed again: whoever wrote it must write it anew.

use crate::image::{Image, in_memory};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use tidegate_media::sync::{AtomicU64, Ordering};
use tidegate_media::{
    BlockDevice, Durability, Error, Extent, ExtentKind, Geometry, Lba, LbaRange, Misuse, Poison, Result, Sealed,
};
use tidegate_virtual_cores::Rng;

/// Bytes that a disk puts in place together, unless they tear.
pub const SECTOR_BYTES: u64 = SECTOR as u64;

const SECTOR: usize = 512;

/// Bytes on a disk that lost power; the same sparse pages as a memory's.
pub type DiskImage = Image;

/// Whether a sector under way at a power cut may hold a part of each content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorTear {
    /// A sector is old or new.
    Never,
    /// A sector may also hold the first words of the new content and the last of the old.
    Possible,
}

/// What goes wrong with a disk, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// Reads of these blocks fail.
    ReadFails(Range<u64>),
    /// Writes of these blocks fail, and store nothing.
    WriteFails(Range<u64>),
    /// The next flush (or write with FUA) fails.
    NextFlushFails,
    /// Flushes (and writes with FUA) are answered well, and make nothing durable.
    FlushesLie,
}

/// A disk of blocks in memory. Its geometry says that it has a volatile cache and no atomic blocks.
pub struct Disk {
    geometry: Geometry,
    accesses: AtomicU64,
    state: Mutex<State>,
}

struct State {
    visible: Image,
    durable: Image,
    /// Sectors in the cache, in the order in which they came.
    cached: Vec<Sector>,
    faults: Vec<DiskFault>,
    /// Flushes that succeeded.
    flushes: u64,
}

#[derive(Clone)]
struct Sector {
    at: u64,
    bytes: [u8; SECTOR],
    /// Whether a failed flush covered it: no later flush makes it durable.
    abandoned: bool,
    /// Whether a flush that did nothing covered it.
    lied_about: bool,
}

impl Disk {
    /// A disk of `blocks` zeroed blocks. `block_size` is a multiple of 512.
    pub fn new(blocks: u64, block_size: u32) -> Disk {
        Disk::from_image(Image::zeroed(blocks * u64::from(block_size)), block_size)
    }

    /// A disk that holds `image`, all of it durable.
    pub fn from_image(image: DiskImage, block_size: u32) -> Disk {
        assert!(
            u64::from(block_size).is_multiple_of(SECTOR_BYTES),
            "a block of {block_size} bytes has no whole sectors"
        );
        let blocks = image.len() / u64::from(block_size);
        let geometry = Geometry {
            block_size,
            blocks,
            atomic_blocks: 0,
            volatile_cache: true,
            read_only: false,
            fast_zeroes: false,
        };
        let state =
            State { visible: image.clone(), durable: image, cached: Vec::new(), faults: Vec::new(), flushes: 0 };
        Disk { geometry, accesses: AtomicU64::new(0), state: Mutex::new(state) }
    }

    /// From now on `fault` holds.
    pub fn fail(&self, fault: DiskFault) {
        self.state().faults.push(fault);
    }

    /// Nothing fails any more.
    pub fn mend(&self) {
        self.state().faults.clear();
    }

    /// Flushes that succeeded so far.
    pub fn flushes(&self) -> u64 {
        self.state().flushes
    }

    /// What reads show: what a kill of every process leaves.
    pub fn visible(&self) -> DiskImage {
        self.state().visible.clone()
    }

    /// The power fails now.
    pub fn cut(&self) -> DiskCut {
        let state = self.state();
        DiskCut { durable: state.durable.clone(), cached: state.cached.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        self.state.lock().expect("no access panics with the lock held")
    }

    fn bytes(&self, range: LbaRange) -> Range<u64> {
        let size = u64::from(self.geometry.block_size);
        range.first.0 * size..range.end() * size
    }

    fn store(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        let range = self.geometry.range(at, data.len())?;
        let bytes = self.bytes(range);
        let mut state = self.state();
        state.writable(range, &bytes)?;
        state.visible.write(bytes.start, data);
        let (sectors, _) = data.as_chunks::<SECTOR>();
        for (index, sector) in sectors.iter().enumerate() {
            let at = bytes.start + index as u64 * SECTOR_BYTES;
            state.cached.push(Sector { at, bytes: *sector, abandoned: false, lied_about: false });
        }
        match durability {
            Durability::Volatile => Ok(()),
            Durability::Fua => state.settle(|sector| bytes.contains(&sector.at)),
        }
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        let range = self.geometry.range(at, out.len())?;
        let bytes = self.bytes(range);
        let state = self.state();
        if state.fails(|fault| matches!(fault, DiskFault::ReadFails(bad) if meets(bad, range))) {
            return Err(Error::Media(Poison { at: bytes.start, len: out.len() as u64 }));
        }
        state.visible.read(bytes.start, out);
        Ok(())
    }

    fn write(&self, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        self.store(at, data, durability)
    }

    fn flush(&self) -> Result<()> {
        self.state().settle(|_| true)
    }

    fn discard(&self, range: LbaRange) -> Result<(), Error> {
        self.geometry.within(range).map(drop).map_err(Misuse::into)
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        self.geometry.within(range)?;
        let zeroes = vec![0; self.geometry.block_size as usize];
        range.iter().try_for_each(|lba| self.store(lba, &zeroes, durability))
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        self.geometry.within(range)?;
        Ok(Extent { blocks: range.blocks, kind: ExtentKind::Data })
    }
}

impl State {
    fn fails(&self, is: impl Fn(&DiskFault) -> bool) -> bool {
        self.faults.iter().any(is)
    }

    fn writable(&self, range: LbaRange, bytes: &Range<u64>) -> Result<()> {
        if self.fails(|fault| matches!(fault, DiskFault::WriteFails(bad) if meets(bad, range))) {
            return Err(Error::Media(Poison { at: bytes.start, len: bytes.end - bytes.start }));
        }
        Ok(())
    }

    /// Makes the cached sectors that `covers` durable, or fails and abandons them.
    fn settle(&mut self, covers: impl Fn(&Sector) -> bool) -> Result<()> {
        if let Some(fault) = self.faults.iter().position(|fault| *fault == DiskFault::NextFlushFails) {
            self.faults.remove(fault);
            self.cached.iter_mut().filter(|sector| covers(sector)).for_each(|sector| sector.abandoned = true);
            return Err(Error::Sealed(Sealed::SyncFailed { errno: 5 }));
        }
        self.flushes += 1;
        if self.faults.contains(&DiskFault::FlushesLie) {
            self.cached.iter_mut().filter(|sector| covers(sector)).for_each(|sector| sector.lied_about = true);
            return Ok(());
        }
        let mut kept: Vec<Sector> = Vec::new();
        for sector in std::mem::take(&mut self.cached) {
            if sector.abandoned || !covers(&sector) {
                kept.push(sector);
                continue;
            }
            // An older content of the same sector can no longer arrive.
            kept.retain(|older| older.at != sector.at);
            self.durable.write(sector.at, &sector.bytes);
        }
        self.cached = kept;
        Ok(())
    }
}

fn meets(bad: &Range<u64>, range: LbaRange) -> bool {
    bad.start < range.end() && range.first.0 < bad.end
}

/// The power fails under a disk: what is on the platter, and what was in the cache.
#[derive(Clone)]
pub struct DiskCut {
    durable: DiskImage,
    cached: Vec<Sector>,
}

impl DiskCut {
    /// The image that nothing of the cache has reached.
    pub fn least(&self) -> &DiskImage {
        &self.durable
    }

    /// Sectors in the cache; those written twice count twice.
    pub fn cached_sectors(&self) -> usize {
        self.cached.len()
    }

    /// Where sectors begin, in bytes, that a flush was said to have made durable and did not. May
    /// repeat.
    pub fn lied_about(&self) -> impl Iterator<Item = u64> + '_ {
        self.cached.iter().filter(|sector| sector.lied_about).map(|sector| sector.at)
    }

    /// One legal image at random: each cached sector arrived, was lost, or tore.
    pub fn sample(&self, rng: &mut Rng, tear: SectorTear) -> DiskImage {
        let mut image = self.durable.clone();
        let odds = [0, 1, 4, 7, 8][rng.index(5)];
        for sector in &self.cached {
            if rng.below(8) < odds {
                let torn = tear == SectorTear::Possible && rng.one_in(8);
                let words = if torn { rng.below(SECTOR_BYTES / 8) } else { SECTOR_BYTES / 8 };
                image.write(sector.at, &sector.bytes[..in_memory(words) * 8]);
            }
        }
        image
    }

    /// Every image without torn sectors, each once. Fails with the number of combinations if there
    /// are more than `images_max`.
    pub fn images(&self, images_max: u64) -> Result<Vec<DiskImage>, f64> {
        let mut sectors = self.cached.clone();
        sectors.sort_by_key(|sector| sector.at);
        let places: Vec<&[Sector]> = sectors.chunk_by(|one, next| one.at == next.at).collect();
        let count: f64 = places.iter().map(|place| place.len() as f64 + 1.0).product();
        if count > images_max as f64 {
            return Err(count);
        }
        let mut images = vec![self.durable.clone()];
        for place in places {
            let with = |sector: &Sector, image: &DiskImage| {
                let mut image = image.clone();
                image.write(sector.at, &sector.bytes);
                image
            };
            let arrived: Vec<DiskImage> =
                images.iter().flat_map(|image| place.iter().map(move |sector| with(sector, image))).collect();
            images.extend(arrived);
        }
        images.sort_by_key(Image::hash);
        images.dedup_by_key(|image| image.hash());
        Ok(images)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> [u8; 1024] {
        [byte; 1024]
    }

    fn bytes_of(image: &DiskImage, sector: u64) -> u8 {
        let mut out = [0; 1];
        image.read(sector * SECTOR_BYTES, &mut out);
        out[0]
    }

    #[test]
    fn unflushed_sectors_arrive_in_any_combination() {
        let disk = Disk::new(2, 1024);
        disk.write(Lba(0), &block(1), Durability::Volatile).expect("written");
        let seen: Vec<(u8, u8)> = images(&disk).iter().map(|image| (bytes_of(image, 0), bytes_of(image, 1))).collect();
        for pair in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            assert!(seen.contains(&pair), "{pair:?} is missing");
        }
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn a_flush_makes_durable_what_came_before_it() {
        let disk = Disk::new(2, 1024);
        disk.write(Lba(0), &block(1), Durability::Volatile).expect("written");
        disk.flush().expect("flushed");
        disk.write(Lba(1), &block(2), Durability::Volatile).expect("written");
        assert!(images(&disk).iter().all(|image| bytes_of(image, 0) == 1 && bytes_of(image, 1) == 1));
        assert_eq!(images(&disk).len(), 4);
    }

    #[test]
    fn fua_makes_its_own_blocks_durable_and_no_others() {
        let disk = Disk::new(2, 1024);
        disk.write(Lba(0), &block(1), Durability::Volatile).expect("written");
        disk.write(Lba(1), &block(2), Durability::Fua).expect("written");
        let images = images(&disk);
        assert!(images.iter().all(|image| bytes_of(image, 2) == 2 && bytes_of(image, 3) == 2));
        assert_eq!(images.len(), 4);
    }

    #[test]
    fn of_two_contents_either_may_arrive() {
        let disk = Disk::new(1, 512);
        disk.write(Lba(0), &[1; 512], Durability::Volatile).expect("written");
        disk.write(Lba(0), &[2; 512], Durability::Volatile).expect("written");
        let mut seen: Vec<u8> = images(&disk).iter().map(|image| bytes_of(image, 0)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2]);
    }

    #[test]
    fn after_a_failed_flush_only_a_new_write_is_ever_durable() {
        let disk = Disk::new(1, 512);
        disk.write(Lba(0), &[1; 512], Durability::Volatile).expect("written");
        disk.fail(DiskFault::NextFlushFails);
        disk.flush().expect_err("the planned failure");
        disk.flush().expect("the next flush says that all is well");
        assert_eq!(images(&disk).len(), 2, "the failed flush lost the sector, and repeating it does not help");
        disk.write(Lba(0), &[1; 512], Durability::Volatile).expect("written");
        disk.flush().expect("flushed");
        assert_eq!(images(&disk).len(), 1);
    }

    #[test]
    fn a_disk_that_lies_keeps_nothing_until_it_is_honest() {
        let disk = Disk::new(1, 512);
        disk.fail(DiskFault::FlushesLie);
        disk.write(Lba(0), &[1; 512], Durability::Volatile).expect("written");
        disk.flush().expect("so it says");
        assert_eq!((images(&disk).len(), disk.cut().lied_about().collect::<Vec<_>>()), (2, vec![0]));
        disk.mend();
        disk.flush().expect("flushed");
        assert_eq!((images(&disk).len(), disk.cut().lied_about().count()), (1, 0));
    }

    #[test]
    fn a_torn_sector_has_the_head_of_the_new_and_the_tail_of_the_old() {
        let disk = Disk::new(1, 512);
        disk.write(Lba(0), &[1; 512], Durability::Volatile).expect("written");
        let cut = disk.cut();
        let mut rng = Rng::new(5);
        let torn = (0..200)
            .map(|_| cut.sample(&mut rng, SectorTear::Possible).to_vec())
            .filter(|bytes| bytes[0] == 1 && bytes[511] == 0);
        let mut count = 0;
        for bytes in torn {
            let head = bytes.iter().take_while(|byte| **byte == 1).count();
            assert!(head % 8 == 0 && bytes[head..].iter().all(|byte| *byte == 0));
            count += 1;
        }
        assert!(count > 0);
        assert!((0..200).all(|_| {
            let bytes = cut.sample(&mut rng, SectorTear::Never).to_vec();
            bytes[0] == bytes[511]
        }));
    }

    #[test]
    fn bad_blocks_fail_and_their_neighbours_do_not() {
        let disk = Disk::new(4, 512);
        disk.fail(DiskFault::ReadFails(1..2));
        disk.fail(DiskFault::WriteFails(2..3));
        let mut out = [0; 512];
        assert!(matches!(disk.read(Lba(1), &mut out), Err(Error::Media(Poison { at: 512, len: 512 }))));
        disk.read(Lba(0), &mut out).expect("good");
        disk.write(Lba(2), &out, Durability::Volatile).expect_err("bad");
        disk.mend();
        disk.write(Lba(2), &out, Durability::Volatile).expect("mended");
    }

    fn images(disk: &Disk) -> Vec<DiskImage> {
        disk.cut().images(1 << 16).expect("few combinations")
    }
}
