//! Long scripts: one machine lives through many power cuts, with a disk that tears sectors, refuses
//! writes and fails to flush, and a cache whose mode changes. Every choice comes from a seed.

use crate::checker::Failure;
use crate::disk_cache::plain::PlainCache;
use crate::disk_cache::watch::{JointCut, Watched, WatchedDisk, Watcher};
use crate::script::block_of;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use tidegate_disk_cache::{Contents, DiskCache, FormatSpec, Mode, Options, Reads, check, format};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_media::{BlockDevice, Durability, Lba};
use tidegate_sim::{Content, DiskFault, Image, Region, Rng, SectorTear, on_core};

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongCacheTally {
    /// Power cuts, each followed by a recovery.
    pub cuts: u64,
    /// Steps.
    pub steps: u64,
    /// Blocks committed, destaged and given up.
    pub committed: u64,
    /// Blocks written to the disk.
    pub destaged: u64,
    /// Clean blocks given up.
    pub evictions: u64,
    /// Operations that failed because the disk did.
    pub failed: u64,
}

impl fmt::Display for LongCacheTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LongCacheTally { cuts, steps, committed, destaged, evictions, failed } = self;
        write!(
            f,
            "{steps} steps, {cuts} cuts, {committed} blocks committed, {destaged} destaged, {evictions} given up, {failed} failures of the disk met"
        )
    }
}

const BLOCK: usize = 512;
const DISK_BLOCKS: u64 = 64;
const PLAN_BLOCKS: u32 = 24;
const RING_SLOTS: u32 = 16;
/// Blocks of the largest transaction, that the ring's half allows.
const TOGETHER: u64 = 8;
const STEPS_PER_LIFE: u64 = 60;

/// What a block may show: one content, or several if an operation failed or was cut.
type Allowed = Vec<Vec<Content>>;

/// A cache that is open, and the machine below it.
struct OpenCache {
    machine: Arc<Watcher>,
    cache: DiskCache<Watched>,
}

/// A machine, what its blocks may show, and the seed's choices.
struct Long {
    rng: Rng,
    plan: CachePlan,
    reads: Reads,
    allowed: Allowed,
    tag: u64,
    tally: LongCacheTally,
    /// Whether a write was refused in this life: some of it may have gone past the cache, and wait
    /// in the disk's own for a flush.
    refused: bool,
}

/// Lets a machine live `lives` times, each ended by a power cut. If the disk lies, its flushes do
/// nothing.
pub fn judge_long_script(seed: u64, lives: u32, reads: Reads, disk_lies: bool) -> Result<LongCacheTally, Failure> {
    let plan = CachePlan::cut(PLAN_BLOCKS, 512, DISK_BLOCKS, RING_SLOTS);
    let region = Region::new(plan.end().next_multiple_of(8));
    let spec =
        FormatSpec { block_size: 512, disk_blocks: DISK_BLOCKS, ring_slots: RING_SLOTS, uuid: [1; 16], disk: [2; 32] };
    format(&region, &spec, Contents::Zeroed).map_err(Failure::new)?;
    let (mut region, mut disk) = (region.cut().least().clone(), Image::zeroed(DISK_BLOCKS * BLOCK as u64));
    let zero = Content::of(&[0; BLOCK]);
    let allowed = vec![vec![zero]; usize::try_from(DISK_BLOCKS).expect("small")];
    let (rng, tally) = (Rng::new(seed), LongCacheTally::default());
    let mut long = Long { rng, plan, reads, allowed, tag: 0, tally, refused: false };
    for life in 0..lives {
        (region, disk) = long
            .live(&region, &disk, disk_lies)
            .map_err(|failure| failure.within(format_args!("life {life} of seed {seed}")))?;
    }
    Ok(long.tally)
}

impl Long {
    /// Recovers, looks at everything, works, and is cut. Returns what memory and disk hold then.
    fn live(&mut self, region: &Image, disk: &Image, disk_lies: bool) -> Result<(Image, Image), Failure> {
        let plain = PlainCache::recover(&self.plan, region, disk).map_err(Failure::new)?.contents();
        let machine = Watcher::new(Region::from_image(region.clone()), disk);
        machine.lie_about_flushes(disk_lies);
        let disk = Arc::new(WatchedDisk(machine.clone()));
        let options = Options { reads: self.reads, ..Options::default() };
        let cache = DiskCache::open(machine.memory(), disk, options).map_err(Failure::new)?;
        let opened = OpenCache { machine, cache };
        self.look_at_everything(&opened, &plain)?;
        self.refused = false;
        let last = self.rng.below(STEPS_PER_LIFE);
        for _ in 0..last {
            self.step(&opened)?;
        }
        opened.machine.record();
        let before = self.allowed.clone();
        self.step(&opened)?;
        let cuts = opened.machine.take();
        let which = self.rng.index(cuts.len());
        if which + 1 < cuts.len() {
            // The step had not ended: each of its blocks may show what it did before. That all or
            // none do is for short scripts to see.
            for (now, before) in self.allowed.iter_mut().zip(before) {
                now.extend(before);
            }
        }
        let counters = opened.cache.counters();
        self.tally.cuts += 1;
        self.tally.committed += counters.write_hits + counters.write_misses;
        self.tally.destaged += counters.destaged;
        self.tally.evictions += counters.evictions;
        Ok(self.images(&cuts[which], opened.cache.mode()))
    }

    fn images(&mut self, cut: &JointCut, mode: Mode) -> (Image, Image) {
        // What goes past the cache is as whole as the disk's sectors are.
        let past = self.refused || matches!(mode, Mode::WriteAround | Mode::PassThrough);
        let tear = if past { SectorTear::Never } else { SectorTear::Possible };
        (cut.region.sample(&mut self.rng), cut.disk.sample(&mut self.rng, tear))
    }

    /// Every block shows something allowed, the same as the plain recovery, and that alone is
    /// allowed from now on.
    fn look_at_everything(&mut self, opened: &OpenCache, plain: &[Content]) -> Result<(), Failure> {
        let report = check(&*opened.machine.region).map_err(Failure::new)?;
        if let Some(finding) = report.findings.first() {
            return Err(Failure::new(format_args!("check: {finding}")));
        }
        let mut out = [0; BLOCK];
        for (lba, plain) in (0..DISK_BLOCKS).zip(plain) {
            opened.cache.read(Lba(lba), &mut out).map_err(Failure::new)?;
            let shown = Content::of(&out);
            let allowed = &mut self.allowed[usize::try_from(lba).expect("small")];
            if !allowed.contains(&shown) || shown != *plain {
                return Err(Failure::new(format_args!("block {lba} shows what was never there, or no longer")));
            }
            *allowed = vec![shown];
        }
        Ok(())
    }

    fn step(&mut self, opened: &OpenCache) -> Result<(), Failure> {
        self.tally.steps += 1;
        let core = u32::from(self.rng.one_in(2));
        on_core(core, || match self.rng.below(16) {
            0..=5 => self.commit(opened),
            6..=8 => self.write(opened),
            9..=11 => self.read(opened),
            12 | 13 => self.drain(opened),
            14 => self.change_mode(opened),
            _ => self.change_disk(opened),
        })
    }

    /// A transaction of blocks anywhere, the first ones more often.
    fn commit(&mut self, opened: &OpenCache) -> Result<(), Failure> {
        let mut transaction = opened.cache.begin();
        let mut written = Vec::new();
        for _ in 0..=self.rng.below(TOGETHER) {
            let span = [8, 24, DISK_BLOCKS][self.rng.index(3)];
            let lba = self.rng.below(span);
            let bytes = self.fresh();
            transaction.write(Lba(lba), &bytes).map_err(Failure::new)?;
            written.retain(|(known, _)| *known != lba);
            written.push((lba, Content::of(&bytes)));
        }
        let ended = transaction.commit();
        self.wrote(&written, ended.is_ok());
        Ok(())
    }

    /// A write of neighbours.
    fn write(&mut self, opened: &OpenCache) -> Result<(), Failure> {
        let range = self.neighbours();
        let blocks: Vec<Vec<u8>> = range.clone().map(|_| self.fresh()).collect();
        let ended = opened.cache.write(Lba(range.start), &blocks.concat(), Durability::Volatile);
        let written: Vec<(u64, Content)> = range.zip(blocks.iter().map(|block| Content::of(block))).collect();
        self.wrote(&written, ended.is_ok());
        Ok(())
    }

    fn wrote(&mut self, written: &[(u64, Content)], ended_well: bool) {
        self.tally.failed += u64::from(!ended_well);
        self.refused |= !ended_well;
        for (lba, content) in written {
            let allowed = &mut self.allowed[usize::try_from(*lba).expect("small")];
            if ended_well {
                allowed.clear();
            }
            allowed.push(*content);
        }
    }

    fn read(&mut self, opened: &OpenCache) -> Result<(), Failure> {
        let range = self.neighbours();
        let mut out = vec![0; usize::try_from(range.end - range.start).expect("small") * BLOCK];
        opened.cache.read(Lba(range.start), &mut out).map_err(Failure::new)?;
        for (lba, block) in range.zip(out.chunks_exact(BLOCK)) {
            if !self.allowed[usize::try_from(lba).expect("small")].contains(&Content::of(block)) {
                return Err(Failure::new(format_args!("a read of block {lba} shows something else")));
            }
        }
        Ok(())
    }

    fn drain(&mut self, opened: &OpenCache) -> Result<(), Failure> {
        let budget = u32::try_from(1 + self.rng.below(12)).expect("small");
        let progress = opened.cache.destage_step(budget);
        self.tally.failed += progress.failed.len() as u64 + u64::from(progress.flush_failed.is_some());
        Ok(())
    }

    fn change_mode(&mut self, opened: &OpenCache) -> Result<(), Failure> {
        let modes = [
            Mode::WriteBack,
            Mode::WriteBack,
            Mode::WriteThrough,
            Mode::WriteAround,
            Mode::WriteOnly,
            Mode::PassThrough,
        ];
        opened.cache.set_mode(modes[self.rng.index(modes.len())]);
        Ok(())
    }

    fn change_disk(&mut self, opened: &OpenCache) -> Result<(), Failure> {
        let disk = &opened.machine.disk;
        match self.rng.below(4) {
            0 => disk.fail(DiskFault::NextFlushFails),
            1 => {
                let first = self.rng.below(DISK_BLOCKS);
                disk.fail(DiskFault::WriteFails(first..first + 1 + self.rng.below(4)));
            }
            _ => disk.mend(),
        }
        Ok(())
    }

    fn neighbours(&mut self) -> Range<u64> {
        let blocks = 1 + self.rng.below(TOGETHER);
        let first = self.rng.below(DISK_BLOCKS - blocks + 1);
        first..first + blocks
    }

    fn fresh(&mut self) -> Vec<u8> {
        self.tag += 1;
        block_of(self.tag, BLOCK)
    }
}
