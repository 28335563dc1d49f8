//! The judge of pairs of images: recovers, checks, reads, writes on, and cuts again.

use crate::checker::{Failure, Seen};
use crate::disk_cache::alone;
use crate::disk_cache::plain::{Contents, PlainCache};
use crate::disk_cache::script::{CacheStep, Subset};
use crate::disk_cache::small::{BLOCK, SmallCache};
use crate::disk_cache::watch::{JointCut, Watched, WatchedDisk, Watcher};
use crate::parallel::on_two_threads;
use crate::script::{block_of, scripts};
use std::fmt;
use std::sync::Arc;
use tidegate_disk_cache::{DiskCache, check};
use tidegate_media::{BlockDevice, Lba};
use tidegate_sim::{Content, Image, Reduction, Region, Rng, mix, on_core};

/// What a campaign has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheTally {
    /// Scripts whose last step was cut.
    pub scripts: u64,
    /// Cuts of those steps.
    pub cuts: u64,
    /// Images of the memory that those cuts may leave, before any reduction.
    pub images_all: f64,
    /// Images of the memory after the reduction.
    pub images: u64,
    /// Cuts of which only samples were taken.
    pub cuts_sampled: u64,
    /// Pairs of images that no earlier cut had left with the same contents allowed: each is
    /// recovered and judged.
    pub distinct: u64,
    /// Distinct pairs of cuts inside recoveries.
    pub recovery_pairs: u64,
    /// Distinct pairs of cuts inside what was written after a recovery.
    pub second_pairs: u64,
    /// Process deaths without a power cut, followed by power cuts in the next process.
    pub kills: u64,
    /// Distinct images of disks that were looked at without their cache.
    pub alone: u64,
}

impl CacheTally {
    /// Adds what another campaign has done.
    pub fn add(&mut self, other: &CacheTally) {
        self.scripts += other.scripts;
        self.cuts += other.cuts;
        self.images_all += other.images_all;
        self.images += other.images;
        self.cuts_sampled += other.cuts_sampled;
        self.distinct += other.distinct;
        self.recovery_pairs += other.recovery_pairs;
        self.second_pairs += other.second_pairs;
        self.kills += other.kills;
        self.alone += other.alone;
    }
}

impl fmt::Display for CacheTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} scripts, {} cuts, 2^{:.1} images of the memory before the reduction, {} after it ({} cuts sampled), \
             {} distinct pairs of memory and disk; in recoveries {}, in what was written after {}; {} kills; \
             {} disks without their cache",
            self.scripts,
            self.cuts,
            self.images_all.log2(),
            self.images,
            self.cuts_sampled,
            self.distinct,
            self.recovery_pairs,
            self.second_pairs,
            self.kills,
            self.alone
        )
    }
}

/// Where a pair of images came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A cut in a script.
    Script,
    /// A cut in the recovery after such a cut, or in the recovery after that.
    Recovery(u32),
    /// A cut in what was written after a recovery.
    Second,
}

/// How deep recoveries are cut in recoveries.
const RECOVERY_DEPTH_MAX: u32 = 2;
/// Tags of what is written after a recovery count from here.
const LATER: u64 = 100;

/// The cache under test: the engine on a watched machine, or on one with a planted mistake.
pub(crate) struct CacheCampaign<'a, W> {
    cache: &'a SmallCache,
    /// Puts the engine's region around a watched one.
    wrap: W,
    start: Image,
    disk: Image,
    seen: &'a Seen,
    reduction: Reduction,
    /// What the cache ever showed in the life of the machine that is judged.
    past: Vec<Contents>,
    tally: CacheTally,
}

impl<'a, R: tidegate_media::Region, W: Fn(Watched) -> R> CacheCampaign<'a, W> {
    pub(crate) fn new(cache: &'a SmallCache, wrap: W, seen: &'a Seen) -> CacheCampaign<'a, W> {
        let (start, disk, reduction) = (cache.formatted(), cache.disk(), cache.reduction());
        CacheCampaign { cache, wrap, start, disk, seen, reduction, past: Vec::new(), tally: CacheTally::default() }
    }

    pub(crate) fn tally(&self) -> CacheTally {
        self.tally
    }

    /// Runs `script` with cuts in its last step, and judges every pair of images.
    pub(crate) fn run(&mut self, script: &[CacheStep]) -> Result<(), Failure> {
        self.tally.scripts += 1;
        self.run_script(script).map_err(|failure| failure.within(format_args!("the script: {script:?}")))
    }

    fn run_script(&mut self, script: &[CacheStep]) -> Result<(), Failure> {
        let machine = Watcher::new(self.cache.region(&self.start), &self.disk);
        let mut device = self.open(&machine, 0)?;
        let mut contents = self.cache.contents();
        self.past = vec![contents.clone()];
        let before = self.cache.before.clone();
        let (last, earlier) = script.split_last().expect("a script has steps");
        for (number, step) in before.iter().chain(earlier).enumerate() {
            device = self.step(&machine, device, *step, number as u64, &mut contents)?;
            self.past.push(contents.clone());
        }
        machine.record();
        let former = contents.clone();
        let number = (before.len() + earlier.len()) as u64;
        let device = self.step(&machine, device, *last, number, &mut contents)?;
        self.past.push(contents.clone());
        let mut cuts = machine.take();
        let end = cuts.pop().expect("a cut of now");
        for cut in cuts {
            self.judge_script_cut(&cut, &[former.clone(), contents.clone()])?;
        }
        self.judge_script_cut(&end, std::slice::from_ref(&contents))?;
        self.read_all(&device, &[contents], None).map(drop)
    }

    fn open(&self, machine: &Arc<Watcher>, core: u32) -> Result<DiskCache<R>, Failure> {
        let region = (self.wrap)(machine.memory());
        let disk = Arc::new(WatchedDisk(machine.clone()));
        let device = on_core(core, || DiskCache::open(region, disk, self.cache.options())).map_err(Failure::new)?;
        match device.changed() {
            None => Ok(device),
            Some(lba) => Err(Failure::new(format_args!("block {lba} looks as if somebody else had written it"))),
        }
    }

    /// Does one step. `contents` becomes what the cache shows then.
    fn step(
        &self,
        machine: &Arc<Watcher>,
        device: DiskCache<R>,
        step: CacheStep,
        number: u64,
        contents: &mut Contents,
    ) -> Result<DiskCache<R>, Failure> {
        match step {
            CacheStep::Commit { core, lbas } => on_core(core, || commit(&device, lbas, number, contents))?,
            CacheStep::Read { core, lba } => {
                let mut out = [0; BLOCK];
                on_core(core, || device.read(Lba(lba), &mut out)).map_err(Failure::new)?;
                if Content::of(&out) != contents[usize::try_from(lba).expect("small")] {
                    return Err(Failure::new(format_args!("a read of block {lba} shows something else")));
                }
            }
            CacheStep::Drain { core } => {
                let progress = on_core(core, || device.destage_step(64));
                if let Some(error) = progress.flush_failed {
                    return Err(Failure::new(error));
                }
            }
            CacheStep::Reopen { core } => {
                drop(device);
                return self.open(machine, core);
            }
        }
        Ok(device)
    }

    fn judge_script_cut(&mut self, cut: &JointCut, allowed: &[Contents]) -> Result<(), Failure> {
        let counts = cut.region.images(&self.reduction).counts();
        self.tally.cuts += 1;
        self.tally.images_all += counts.all_log2.exp2();
        self.tally.images += counts.given;
        self.tally.cuts_sampled += u64::from(counts.sampled);
        self.judge_cut(cut, allowed, Origin::Script)?;
        self.judge_kill(cut, allowed)
    }

    fn judge_cut(&mut self, cut: &JointCut, allowed: &[Contents], origin: Origin) -> Result<(), Failure> {
        let disks = cut.disk_images();
        for disk in &disks {
            self.judge_alone(disk)?;
        }
        let reduction = self.reduction.clone();
        let mut images = cut.region.images(&reduction);
        while let Some(region) = images.advance() {
            for disk in &disks {
                self.judge_if_new(cut, region, disk, allowed, origin)?;
            }
        }
        Ok(())
    }

    /// What a disk shows without its cache: where it keeps the order of commits, all of them up to
    /// a moment.
    fn judge_alone(&mut self, disk: &Image) -> Result<(), Failure> {
        if self.cache.plan.journal().is_none() || !self.seen.insert(mix(disk.hash() ^ 2) ^ digest(&self.past)) {
            return Ok(());
        }
        self.tally.alone += 1;
        alone::judge(disk, self.cache.plan.disk_blocks, &self.past)
    }

    fn judge_if_new(
        &mut self,
        cut: &JointCut,
        region: &Image,
        disk: &Image,
        allowed: &[Contents],
        origin: Origin,
    ) -> Result<(), Failure> {
        if !self.seen.insert(mix(region.hash()) ^ mix(disk.hash() ^ 1) ^ digest(allowed)) {
            return Ok(());
        }
        match origin {
            Origin::Script => self.tally.distinct += 1,
            Origin::Recovery(_) => self.tally.recovery_pairs += 1,
            Origin::Second => self.tally.second_pairs += 1,
        }
        self.judge_pair(region, disk, allowed, origin).map_err(|failure| {
            let arrived = cut.region.difference(region);
            let few: Vec<String> = arrived.iter().take(8).map(|(at, _, word)| format!("{at:#x}: {word:#x}")).collect();
            let what =
                format_args!("{origin:?}, {}, of which {} arrived ({})", cut.region, arrived.len(), few.join(", "));
            failure.within(what)
        })
    }

    fn judge_pair(
        &mut self,
        region: &Image,
        disk: &Image,
        allowed: &[Contents],
        origin: Origin,
    ) -> Result<(), Failure> {
        let plain = PlainCache::recover(&self.cache.plan, region, disk).map_err(Failure::new)?.contents();
        let machine = Watcher::new(self.cache.region(region), disk);
        machine.record();
        let device = self.open(&machine, 0)?;
        self.judge_recovery(&machine, allowed, origin)?;
        let shown = self.read_all(&device, allowed, Some(&plain))?;
        if matches!(origin, Origin::Script | Origin::Recovery(1)) {
            self.write_on(&machine, &device, shown)?;
        }
        Ok(())
    }

    /// The recovery that just ended, cut before each of its fences.
    fn judge_recovery(&mut self, machine: &Watcher, allowed: &[Contents], origin: Origin) -> Result<(), Failure> {
        let depth = match origin {
            Origin::Script => 1,
            Origin::Recovery(depth) => depth + 1,
            // Nothing is written after this one, or the chain would never end: head and counters
            // grow for ever.
            Origin::Second => RECOVERY_DEPTH_MAX,
        };
        for cut in machine.take() {
            if !cut.region.is_settled() && depth <= RECOVERY_DEPTH_MAX {
                self.judge_cut(&cut, allowed, Origin::Recovery(depth))?;
            }
        }
        Ok(())
    }

    /// Checks the structures and reads every block twice: what is shown is one of the contents
    /// allowed, as a whole, and stays.
    fn read_all(
        &self,
        device: &DiskCache<R>,
        allowed: &[Contents],
        plain: Option<&Contents>,
    ) -> Result<Contents, Failure> {
        let shown = read_blocks(device, self.cache.plan.disk_blocks)?;
        if !allowed.contains(&shown) {
            let wrong: Vec<_> = allowed
                .iter()
                .map(|one| one.iter().zip(&shown).enumerate().filter(|(_, (a, b))| a != b).map(|(lba, _)| lba))
                .map(Iterator::collect::<Vec<_>>)
                .collect();
            return Err(Failure::new(format_args!(
                "what is shown differs from each state allowed in blocks {wrong:?}"
            )));
        }
        if plain.is_some_and(|plain| *plain != shown) {
            return Err(Failure::new("the plain recovery shows something else"));
        }
        if read_blocks(device, self.cache.plan.disk_blocks)? != shown {
            return Err(Failure::new("a second reading shows something else"));
        }
        if device.counters().damaged > 0 || !device.scrub_step(0, u32::MAX).damaged.is_empty() {
            return Err(Failure::new("a block does not fit its checksum"));
        }
        Ok(shown)
    }

    /// Transactions on two cores, more than there are free blocks, with destaging between them; cut
    /// in one of them.
    fn write_on(&mut self, machine: &Arc<Watcher>, device: &DiskCache<R>, shown: Contents) -> Result<(), Failure> {
        let mut contents = shown;
        let mut rng = Rng::new(machine.region.visible().hash());
        let steps = u64::from(self.cache.plan.blocks) + 2;
        let past = self.past.len();
        let (cut_at, first) = (rng.below(steps), rng.next_u64() % self.cache.plan.disk_blocks);
        for number in 0..steps {
            let lba = (first + number / 2) % self.cache.plan.disk_blocks;
            let other = (lba + 1 + number % 3) % self.cache.plan.disk_blocks;
            let lbas = if number.is_multiple_of(3) { Subset::of(&[lba]) } else { Subset::of(&[lba, other]) };
            let core = u32::from(!number.is_multiple_of(2));
            if number == cut_at {
                machine.record();
            }
            let former = contents.clone();
            on_core(core, || commit(device, lbas, LATER + number, &mut contents))?;
            self.past.push(contents.clone());
            if number % 4 == 2 {
                on_core(1 - core, || device.destage_step(2));
            }
            if number == cut_at {
                let cuts = machine.take();
                let cut = &cuts[rng.index(cuts.len() - 1)];
                let region = cut.region.sample(&mut rng);
                let disks = cut.disk_images();
                let disk = &disks[rng.index(disks.len())];
                self.judge_alone(disk)?;
                self.judge_if_new(cut, &region, disk, &[former, contents.clone()], Origin::Second)?;
            }
        }
        self.past.truncate(past);
        let report = check(&*machine.region).map_err(Failure::new)?;
        if let Some(finding) = report.findings.first() {
            return Err(Failure::new(format_args!("check, after more was written: {finding}")));
        }
        self.read_all(device, &[contents], None).map(drop)
    }

    /// The process dies at the instant of `cut` and the power does not; the next one opens the
    /// cache, is cut, and writes on.
    fn judge_kill(&mut self, cut: &JointCut, allowed: &[Contents]) -> Result<(), Failure> {
        let key = mix(cut.region.most().hash()) ^ cut.region.least().hash() ^ digest(allowed);
        if !self.seen.insert(mix(key ^ 0x6b69_6c6c)) {
            return Ok(());
        }
        self.tally.kills += 1;
        let killed = |failure: Failure| failure.within(format_args!("the process killed, then {}", cut.region));
        let disks = cut.disk_images();
        let machine = Watcher::new(Region::after_kill(&cut.region), disks.last().expect("at least one"));
        machine.record();
        let device = self.open(&machine, 2)?;
        self.judge_recovery(&machine, allowed, Origin::Script).map_err(killed)?;
        let shown = self.read_all(&device, allowed, None).map_err(killed)?;
        // What has been seen is durable: the power may fail now.
        let now = machine.take().pop().expect("a cut of now");
        self.judge_cut(&now, std::slice::from_ref(&shown), Origin::Second).map_err(killed)?;
        self.write_on(&machine, &device, shown).map_err(killed)
    }
}

/// Commits a transaction of `lbas`, whose contents `number` tells from others.
fn commit<R: tidegate_media::Region>(
    device: &DiskCache<R>,
    lbas: Subset,
    number: u64,
    contents: &mut Contents,
) -> Result<(), Failure> {
    let mut transaction = device.begin();
    for lba in lbas.iter() {
        let bytes = block_of(2000 + number * 64 + lba, BLOCK);
        transaction.write(Lba(lba), &bytes).map_err(Failure::new)?;
        contents[usize::try_from(lba).expect("small")] = Content::of(&bytes);
    }
    transaction.commit().map_err(Failure::new)
}

fn read_blocks<R: tidegate_media::Region>(device: &DiskCache<R>, blocks: u64) -> Result<Contents, Failure> {
    let mut out = [0; BLOCK];
    let mut read = |lba| device.read(Lba(lba), &mut out).map(|()| Content::of(&out));
    (0..blocks).map(&mut read).collect::<Result<_, _>>().map_err(Failure::new)
}

fn digest(allowed: &[Contents]) -> u64 {
    let all = allowed.iter().flatten();
    all.fold(allowed.len() as u64, |digest, content| mix(digest.rotate_left(7) ^ content.0))
}

/// Judges every script of `steps` operations on `cache`, on two threads. Stops at the first
/// failure.
pub fn judge_cache_scripts<R, W>(cache: &SmallCache, wrap: W, steps: u32, seen: &Seen) -> Result<CacheTally, Failure>
where
    R: tidegate_media::Region,
    W: Fn(Watched) -> R + Sync,
{
    judge_some_cache_scripts(cache, wrap, steps, 1, seen)
}

/// Judges one script in `one_in` of `steps` operations on `cache`, as [`judge_cache_scripts`] does.
/// If `one_in` shares no factor with the number of operations there are, each of them comes at each
/// place.
pub fn judge_some_cache_scripts<R, W>(
    cache: &SmallCache,
    wrap: W,
    steps: u32,
    one_in: usize,
    seen: &Seen,
) -> Result<CacheTally, Failure>
where
    R: tidegate_media::Region,
    W: Fn(Watched) -> R + Sync,
{
    let alphabet = CacheStep::alphabet(&cache.lbas);
    let tallies = on_two_threads(scripts(&alphabet, steps).step_by(one_in), |dealt| {
        let mut campaign = CacheCampaign::new(cache, &wrap, seen);
        for script in dealt {
            campaign.run(&script)?;
        }
        Ok(campaign.tally())
    })?;
    let mut total = CacheTally::default();
    tallies.iter().for_each(|tally| total.add(tally));
    Ok(total)
}
