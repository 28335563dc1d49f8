//! Ends and what follows them: the power cut or the kill, the recovery, and the verdict on what it
//! found.

use crate::alone::{Left, rot};
use crate::disk::StagedDisk;
use crate::fault::Fault;
use crate::marks;
use crate::mutant::{Mislaid, Mutant};
use crate::scene::{Cache, OPENER, Scene, Stack, Table, Tier, VOLUME};
use crate::script::{Bent, digest};
use crate::seen::Seen;
use crate::stack_base::Base;
use crate::staged::{End, Stage, Staged};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tidegate_btt::{Btt, OpenOptions, Repair, check};
use tidegate_crashcheck::btt::{Faulty, LinuxArena, Order as LaneOrder};
use tidegate_disk_cache::{Conflicts, Mode, NewLayout, NewLayoutError, Reads, identify, lay_out_anew};
use tidegate_media::sync::set_thread_token;
use tidegate_media::{BlockDevice, Lba, LineOrder, Region as Medium};
use tidegate_sim::{Content, Cut, Disk, History, Image, Region, SectorTear, SharedMemory, mix};
use tidegate_virtual_cores::Ended;
use tidegate_write_cache::{Options, bytes_for, complete};

/// Recoveries in a row that may be cut short.
const DEPTH_MAX: usize = 3;
/// How the answer begins when an opening is refused because of its media.
const WELL_REFUSED: [&str; 3] = ["opening: ", "completing: ", "a new cache: "];
/// Accesses after which a recovery may be cut short.
const RECOVERY_ACCESSES: u64 = 60;
/// Fences after which a recovery may be cut short.
const RECOVERY_FENCES: u64 = 5;
/// Fences after which a recovery may be cut short that puts a group in place.
const RECOVERY_FENCES_IN_ORDER: u64 = 10;
/// Fences after which the resizing of a disk cache may be cut short.
const LAYING_FENCES: u64 = 8;

/// What the next process does before it takes requests.
struct Opening {
    base: Base,
    region: Arc<dyn Medium>,
    memory: Arc<Region>,
    mode: Mode,
    conflicts: Conflicts,
    reads: Reads,
    disk: Arc<StagedDisk>,
    stage: Arc<Stage>,
    cache: Option<Options>,
    /// The slots that a killed process left.
    left: Option<Arc<SharedMemory>>,
    /// Where its own slots lie.
    slots: Option<Arc<SharedMemory>>,
    completing: Arc<AtomicBool>,
    /// What the disk cache is to be before it is opened, if it is to be laid out anew, and how that
    /// ends.
    wish: Option<(NewLayout, End)>,
    laying: Arc<Laying>,
    /// Whether the new cache's memory is what a kill leaves.
    creating: Arc<AtomicBool>,
}

/// How far the laying out of a disk cache came.
#[derive(Default)]
pub(crate) struct Laying {
    under_way: AtomicBool,
    done: AtomicBool,
}

impl Opening {
    fn open(self) -> Result<Stack, String> {
        let mut disk_cache = None;
        let below: Arc<dyn BlockDevice> = match self.base {
            Base::Table => self.table()?,
            Base::Disk => self.disk.clone(),
            Base::DiskCache | Base::OrderedDisk => {
                disk_cache = Some(self.disk_cache()?);
                disk_cache.clone().expect("just opened")
            }
            Base::Files => return Err("files have a scene of their own".to_owned()),
        };
        if let Some(left) = self.left {
            self.completing.store(true, Ordering::Relaxed);
            let slots = Staged::new(left, &self.stage, 2);
            complete(&slots, VOLUME, &*below).map_err(|error| format!("completing: {error}"))?;
            self.completing.store(false, Ordering::Relaxed);
        }
        let cache = match (self.cache, self.slots) {
            (Some(options), Some(memory)) => {
                self.creating.store(true, Ordering::Relaxed);
                let slots = Staged::new(memory, &self.stage, 3);
                let cache: Cache = tidegate_write_cache::WriteCache::create(slots, below.clone(), options)
                    .map_err(|error| format!("a new cache: {error}"))?;
                Some(Arc::new(cache))
            }
            _ => None,
        };
        Ok(Stack { below, cache, disk_cache })
    }

    fn disk_cache(&self) -> Result<Arc<Tier>, String> {
        self.wish.iter().try_for_each(|(wish, end)| self.lay_out(wish, *end))?;
        let cache = self.opened()?;
        if self.laying.done.load(Ordering::Relaxed) && cache.fill().free != cache.fill().blocks {
            return Err(format!("a cache that was laid out anew holds something: {:?}", cache.fill()));
        }
        Ok(cache)
    }

    fn opened(&self) -> Result<Arc<Tier>, String> {
        let region = Staged::new(self.memory.clone(), &self.stage, 1);
        let options = tidegate_disk_cache::Options {
            mode: self.mode,
            conflicts: self.conflicts,
            reads: self.reads,
            ..tidegate_disk_cache::Options::default()
        };
        Ok(Arc::new(Tier::open(region, self.disk.clone(), options).map_err(|error| format!("opening: {error}"))?))
    }

    /// Brings everything to the disk and lays the cache out anew, as if it were parted from its
    /// disk or got another size.
    fn lay_out(&self, wish: &NewLayout, end: End) -> Result<(), String> {
        let cache = self.opened()?;
        while cache.dirty_blocks() > 0 {
            let progress = cache.destage_step(8);
            if progress.flush_failed.is_some() || !progress.failed.is_empty() {
                return Err("opening: the disk refuses what it has to get".to_owned());
            }
        }
        drop(cache);
        if end != End::None {
            self.stage.end(end);
        }
        self.laying.under_way.store(true, Ordering::Relaxed);
        let laid = lay_out_anew(Staged::new(self.memory.clone(), &self.stage, 1), wish);
        self.laying.under_way.store(false, Ordering::Relaxed);
        match laid {
            Ok(identity) if identity.disk == wish.disk && identity.disk_blocks == wish.disk_blocks => {
                self.laying.done.store(true, Ordering::Relaxed);
                Ok(())
            }
            Ok(identity) => Err(format!("laid out as {identity:?} instead of {wish:?}")),
            Err(NewLayoutError::Open(error)) => Err(format!("opening: {error}")),
            Err(NewLayoutError::Format(_)) => Ok(()),
            Err(error) => Err(format!("laying out a clean cache: {error}")),
        }
    }

    fn table(&self) -> Result<Arc<Table>, String> {
        let region = Staged::new(self.region.clone(), &self.stage, 1);
        Ok(Arc::new(Btt::open(region, &OpenOptions::default()).map_err(|error| format!("opening: {error}"))?))
    }
}

impl Scene {
    /// The power fails: of what is pending some arrives, and slots are gone.
    pub(crate) fn power_fails(&mut self) -> Result<(), String> {
        if self.rng.one_in(2) {
            // The memory goes on in another machine.
            self.setting.order = if self.rng.one_in(2) { LineOrder::Prefix } else { LineOrder::Any };
        }
        let cut = self.region.cut();
        let mut image = cut.sample(&mut self.rng);
        self.mark_cut(&cut, &image);
        if self.setting.base == Base::Table && self.rng.one_in(16) {
            image.write(0, &[0; 4096]);
        }
        let (least, sectors) = (self.disk.disk().cut(), self.disk.disk().cut().cached_sectors());
        let mut kept = least.sample(&mut self.rng, SectorTear::Possible);
        if sectors > 0 && kept != self.disk.disk().visible() {
            self.marks.reach(marks::LOST_SECTOR);
        }
        self.take_lies(&least);
        digest(&mut self.trace, [1, image.hash(), kept.hash()]);
        let torn = kept.clone();
        self.judge_alone(&torn, Left::ForGood)?;
        if let Some(journal) = self.setting.plan.journal().filter(|_| self.fate.one_in(4)) {
            self.rotten |= rot(&mut kept, &journal, &mut self.fate);
        }
        self.region = Arc::new(Region::with_line_order(image, self.setting.order));
        let disk = Arc::new(Disk::from_image(kept, self.block_size()));
        let (turns, journal) = (self.script.turns_to_fail(), self.setting.plan.journal());
        self.disk = Arc::new(StagedDisk::new(disk, &self.stage, turns, journal));
        self.slots = None;
        self.was_cut = true;
        let mut seen = self.seen();
        let Seen { power, kill, .. } = &mut *seen;
        // What a kill would have left does not matter any more; but reads now see no more than a
        // cut leaves.
        *kill = power.after_cut().as_seen_by_reads();
        *power = power.after_cut();
        drop(seen);
        self.take_torn(&torn);
        Ok(())
    }

    fn block_size(&self) -> u32 {
        u32::try_from(self.setting.block_bytes).expect("a small block")
    }

    /// The process ends: everything visible stays.
    pub(crate) fn is_killed(&mut self) -> Result<(), String> {
        self.disk.disk().mend();
        self.judge_alone(&self.disk.disk().visible(), Left::Perhaps)?;
        if self.setting.base == Base::OrderedDisk {
            let cut = self.disk.disk().cut().sample(&mut self.fate, SectorTear::Possible);
            self.judge_alone(&cut, Left::Perhaps)?;
        }
        let cut = self.region.cut();
        digest(&mut self.trace, [2, cut.most().hash()]);
        self.region = Arc::new(Region::after_kill(&cut));
        self.slots = self.slots.take().map(|slots| Arc::new(SharedMemory::of(slots.left())));
        self.was_cut = false;
        let mut seen = self.seen();
        let Seen { power, kill, .. } = &mut *seen;
        *kill = kill.after_cut();
        *power = power.after_cut();
        Ok(())
    }

    /// Recovers, with ends in the recovery as they come, and judges what is there.
    pub(crate) fn recover(&mut self) -> Result<Stack, String> {
        let mut depth = 0;
        let stack = loop {
            if self.setting.base == Base::Table {
                self.judge_by_linux()?;
            }
            if depth < DEPTH_MAX && self.fate.one_in(8) {
                self.recover_with_fault()?;
            }
            let laying = self.any_laying(depth);
            let end = match self.rng.below(4) {
                0 if depth < DEPTH_MAX => End::BeforeAccess(1 + self.rng.below(RECOVERY_ACCESSES)),
                1 if depth < DEPTH_MAX => End::BeforeFence(1 + self.rng.below(self.recovery_fences())),
                _ => End::None,
            };
            match self.attempt(end, laying)? {
                Ok(stack) => break stack,
                Err(completing) => self.ends_in_recovery(depth, completing)?,
            }
            depth += 1;
        };
        self.judge(&stack)?;
        Ok(stack)
    }

    /// Recovers while something is wrong with the media, which must be noticed if it matters, and
    /// the process ends.
    fn recover_with_fault(&mut self) -> Result<(), String> {
        let fault = Fault::any(&mut self.fate, &self.setting);
        let cut = matches!(fault, Fault::Flush) || self.fate.one_in(2);
        let access = 1 + self.fate.below(RECOVERY_ACCESSES / 2);
        let before = self.region.cut();
        self.befalls(fault.clone(), access);
        let opened = self.attempt(End::None, None);
        self.stage.fault(None);
        self.fault = None;
        let faulted = std::mem::take(&mut self.seen().faulted);
        match opened {
            Ok(_) if self.region.has_lost() => return Err("opened, although the memory had lost a store".to_owned()),
            Ok(opened) => {
                let tier = opened.ok().and_then(|stack| stack.disk_cache);
                if tier.is_some_and(|cache| !cache.lost().is_nothing()) {
                    // It went on without entries that cannot be read, for good. Here they come
                    // back, as they were.
                    self.marks.reach(marks::OPENED_WITHOUT);
                    self.region = Arc::new(Region::after_kill(&before));
                }
            }
            Err(why) if faulted && WELL_REFUSED.iter().any(|kind| why.starts_with(kind)) => {
                self.marks.reach(marks::RECOVERY_REFUSED);
            }
            Err(why) => return Err(why),
        }
        self.end_recovery(cut)
    }

    /// Opens in a machine of its own. Otherwise it was ended: whether while completing slots.
    fn attempt(&mut self, end: End, wish: Option<(NewLayout, End)>) -> Result<Result<Stack, bool>, String> {
        let [completing, creating] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let memory = self.setting.cache.map(|options| self.memory_for(&options));
        let (laying, before_laying) = (Arc::<Laying>::default(), self.layout());
        let opening = Opening {
            base: self.setting.base,
            region: self.medium(),
            memory: self.region.clone(),
            mode: self.setting.mode,
            conflicts: self.setting.conflicts,
            reads: self.script.reads(),
            disk: self.disk.clone(),
            stage: self.stage.clone(),
            cache: self.setting.cache,
            left: self.slots.clone().filter(|_| self.script.mutant != Mutant::Mislaid(Mislaid::Slots)),
            slots: memory.clone(),
            completing: completing.clone(),
            wish,
            laying: laying.clone(),
            creating: creating.clone(),
        };
        if self.slots.is_some() {
            self.marks.reach(marks::COMPLETED);
        }
        let before = self.region.visible();
        let (ended, opened) = self.open_until(opening, end);
        if laying.done.load(Ordering::Relaxed) {
            self.marks.reach(marks::LAID_OUT);
        }
        if self.ran(ended)? {
            self.laid_out_from = before_laying.filter(|_| laying.under_way.load(Ordering::Relaxed));
            if creating.load(Ordering::Relaxed) && memory.as_ref().is_some_and(|memory| !memory.may_lose_stores()) {
                self.slots = memory;
            }
            return Ok(Err(completing.load(Ordering::Relaxed)));
        }
        let opened = opened.expect("the thread returned");
        let stack = match (opened, memory.as_ref().is_some_and(|memory| memory.has_lost())) {
            (Ok(_), true) => return Err("a cache was made in memory that lost a store".to_owned()),
            (Err(_), true) => {
                self.marks.reach(marks::CACHE_REFUSED);
                self.slots = self.slots.take().filter(|slots| !slots.has_lost());
                return self.attempt(End::None, None);
            }
            (opened, false) => opened?,
        };
        let map = self.setting.shape.geometry.mapoff..self.setting.shape.geometry.logoff;
        let after = self.region.visible();
        if self.setting.base == Base::Table
            && self.slots.is_none()
            && map.step_by(8).any(|at| before.load_u64(at) != after.load_u64(at))
        {
            self.marks.reach(marks::FINISHED_WRITE);
        }
        self.slots = memory;
        Ok(Ok(stack))
    }

    /// Opens in a machine of its own until `end`: how that ended, and what came of it if it was not
    /// stopped.
    fn open_until(&mut self, opening: Opening, end: End) -> (Ended, Option<Result<Stack, String>>) {
        let done = Arc::new(Mutex::new(None));
        let into = done.clone();
        let mut machine = self.machine(1, 100);
        machine.spawn(0, move || {
            // No client's fence is to stand in for one of the recovery.
            set_thread_token(OPENER);
            let opened = opening.open();
            *into.lock().expect("nobody else has it") = Some(opened);
        });
        self.stage.end(end);
        let ended = machine.run();
        self.stage.end(End::None);
        let opened = done.lock().expect("nobody else has it").take();
        (ended, opened)
    }

    /// The number of the disk cache's superblock, if there is one: each time that it is laid out
    /// anew has the next.
    fn layout(&self) -> Option<u64> {
        let identity = if self.setting.base.has_disk_cache() { identify(&*self.region).ok()? } else { None };
        identity.map(|identity| identity.sequence)
    }

    /// What the disk cache is to be laid out as, in some scripts now and then, and whether a
    /// recovery `depth` deep ends in that.
    fn any_laying(&mut self, depth: usize) -> Option<(NewLayout, End)> {
        let always = self.script.bent() == Bent::LaidOutAnew;
        let some = always || mix(self.script.seed ^ 0x1a1d).is_multiple_of(4);
        if !self.setting.base.has_disk_cache() || !some || (!always && self.rng.one_in(2)) {
            return None;
        }
        let (disk, bytes) = ([if self.rng.one_in(2) { 2 } else { 0xff }; 32], self.region.len());
        let wish =
            NewLayout { disk, disk_blocks: self.setting.blocks, region_bytes: bytes - self.rng.below(bytes / 2) };
        let ends = depth < DEPTH_MAX && (always || self.rng.one_in(2));
        Some((wish, if ends { End::BeforeFence(1 + self.rng.below(LAYING_FENCES)) } else { End::None }))
    }

    /// The volume's memory, as the engine gets it.
    fn medium(&self) -> Arc<dyn Medium> {
        match self.script.mutant {
            Mutant::Planted(bug) => Arc::new(Faulty::new(self.region.clone(), self.setting.shape.geometry, bug)),
            _ => self.region.clone(),
        }
    }

    /// Memory for the slots of a new cache: the same again, or other.
    fn memory_for(&mut self, options: &Options) -> Arc<SharedMemory> {
        let block_size = self.block_size();
        match &self.slots {
            Some(slots) if self.rng.one_in(2) => slots.clone(),
            _ => {
                let memory = SharedMemory::new(bytes_for(options.slots, block_size));
                if self.rng.one_in(64) {
                    memory.lose_stores_from(1 + self.rng.below(u64::from(options.slots)));
                }
                Arc::new(memory)
            }
        }
    }

    /// A power cut in a recovery, or a kill.
    fn end_recovery(&mut self, cut: bool) -> Result<(), String> {
        if cut {
            self.tally.cuts_in_recovery += 1;
            self.power_fails()?;
        } else {
            self.tally.kills_in_recovery += 1;
            self.is_killed()?;
        }
        if let Some(old) = self.laid_out_from.take() {
            let is_old = self.layout() == Some(old);
            self.marks.reach(if is_old { marks::LAYING_LEFT_OLD } else { marks::LAYING_LEFT_NEW });
        }
        Ok(())
    }

    fn ends_in_recovery(&mut self, depth: usize, completing: bool) -> Result<(), String> {
        self.marks.reach(marks::CUT_IN_RECOVERY[depth]);
        let cut = self.rng.below(4) < if self.laid_out_from.is_some() { 2 } else { 3 };
        if completing {
            self.marks.reach(if cut { marks::CUT_COMPLETING } else { marks::KILLED_COMPLETING });
        }
        self.end_recovery(cut)
    }

    /// Linux would find every block owned once, and nothing in a sector that may not be there.
    fn judge_by_linux(&mut self) -> Result<(), String> {
        let image = self.region.visible();
        let (geometry, bytes) = (&self.setting.shape.geometry, self.setting.shape.block_bytes);
        let wrong = |why: String| format!("recovered like Linux: {why}");
        let linux = LinuxArena::attach(&image, 0, geometry, LaneOrder::Shuffled(image.hash())).map_err(wrong)?;
        linux.owners().map_err(wrong)?;
        let seen = self.seen();
        for lba in 0..geometry.external_nlba {
            let content = linux.content(lba, bytes).map_err(wrong)?;
            let lba = Lba(u64::from(lba));
            if !seen.power.allows(lba, content) {
                return Err(wrong(format!("{lba} shows {content:x?}, allowed {:x?}", seen.power.allowed(lba))));
            }
        }
        Ok(())
    }

    /// No rule of the format is broken, and every block shows what it may.
    fn judge(&mut self, stack: &Stack) -> Result<(), String> {
        if self.setting.base == Base::Table {
            let report = check(&*self.region, Repair::No).map_err(|error| format!("checking: {error}"))?;
            if !report.findings.is_empty() {
                return Err(format!("after recovery: {:?}", report.findings));
            }
        }
        if self.setting.base.has_disk_cache() {
            let report = tidegate_disk_cache::check(&*self.region).map_err(|error| format!("checking: {error}"))?;
            if let Some(finding) = report.findings.first() {
                return Err(format!("after recovery: {finding}"));
            }
        }
        let zero = Content::of(&vec![0; self.setting.block_bytes]);
        let mut contents = Vec::new();
        for lba in (0..self.setting.blocks).map(Lba) {
            let block = self.shown(stack, lba)?;
            let content = Content::of(&block);
            contents.push((content != zero).then_some(content));
            digest(&mut self.trace, [content.0]);
            self.takes_over(stack, lba, &block)?;
            let after = if self.was_cut { "a power cut" } else { "a kill" };
            let was_cut = self.was_cut;
            let mut seen = self.seen();
            seen.kill.observe(lba, content).map_err(|wrong| format!("after {after}: {wrong}"))?;
            if was_cut {
                seen.power.observe(lba, content).map_err(|wrong| format!("after {after}: {wrong}"))?;
            }
        }
        self.judge_transactions(&contents)?;
        self.settle_doubt();
        let all: Vec<Content> = contents.iter().map(|content| content.unwrap_or(zero)).collect();
        let mut seen = self.seen();
        let now = seen.tick();
        seen.commits.iter_mut().for_each(|commits| commits.found(&all, now));
        seen.history = History::new(contents);
        Ok(())
    }

    fn recovery_fences(&self) -> u64 {
        if self.setting.base == Base::OrderedDisk { RECOVERY_FENCES_IN_ORDER } else { RECOVERY_FENCES }
    }

    /// What `lba` shows.
    fn shown(&self, stack: &Stack, lba: Lba) -> Result<Vec<u8>, String> {
        let (below, mut block) = (stack.below.clone(), vec![0; self.setting.block_bytes]);
        let read = self.alone(move || below.read(lba, &mut block).map(|()| block))?;
        read.map_err(|error| format!("reading {lba} after recovery: {error}"))
    }

    /// What was under way as one is in place as one, as far as nothing came after it.
    fn judge_transactions(&mut self, contents: &[Option<Content>]) -> Result<(), String> {
        let (under_way, before, doubted) = {
            let mut seen = self.seen();
            let before = std::mem::take(&mut seen.before_transactions);
            (std::mem::take(&mut seen.transactions), before, seen.lied_about.clone())
        };
        for blocks in under_way {
            let shows = |(lba, _): &(Lba, Content)| contents[usize::try_from(lba.0).expect("a small device")];
            let here = blocks.iter().filter(|block| shows(block) == Some(block.1)).count();
            let known = before.get(&blocks[0].1).map_or(&[][..], |known| known);
            let old = |(lba, content): &&(Lba, Content)| {
                let shown = shows(&(*lba, *content)).filter(|shown| shown != content && !doubted.contains(lba));
                shown.is_some_and(|shown| known.iter().any(|(of, before)| of == lba && before.contains(&shown)))
            };
            match (here, blocks.iter().find(old)) {
                (0, _) => self.marks.reach(marks::TOGETHER),
                (_, None) => self.marks.reach(marks::TOGETHER_ALL),
                (_, Some((lba, _))) => {
                    return Err(format!(
                        "{here} of {} blocks of one write are in place, and {lba} is older",
                        blocks.len()
                    ));
                }
            }
        }
        Ok(())
    }

    fn mark_cut(&mut self, cut: &Cut, image: &Image) {
        if self.setting.base != Base::Table {
            return;
        }
        let geometry = self.setting.shape.geometry;
        let (flog, data) = (geometry.logoff..geometry.info2off, geometry.dataoff..geometry.mapoff);
        let (least, most) = (cut.least(), cut.most());
        let arrived = |at: u64| least.load_u64(at) != image.load_u64(at);
        let pending = |at: u64| least.load_u64(at) != most.load_u64(at);
        for at in flog.step_by(16) {
            match (arrived(at), pending(at + 8), arrived(at + 8)) {
                (true, _, false) => self.marks.reach(marks::HALF_FLOG),
                (_, true, true) => self.marks.reach(marks::WHOLE_FLOG),
                _ => {}
            }
            if pending(at + 8) && !arrived(at + 8) {
                self.marks.reach(marks::LOST_FLOG);
            }
        }
        let words = data.step_by(8).filter(|at| pending(*at));
        let (here, gone) = words.fold((0, 0), |(here, gone), at| match arrived(at) {
            true => (here + 1, gone),
            false => (here, gone + 1),
        });
        if here > 0 && gone > 0 {
            self.marks.reach(marks::TORN_DATA);
        }
    }
}
