//! A scene: a volume on simulated memory, and who uses it.

use crate::disk::StagedDisk;
use crate::fault::Fault;
use crate::marks::Marks;
use crate::mutant::{CodeSite, Mutant, SiteKind};
use crate::script::{ENDLESS, Failure, Script, Setting, Tally, Verdict, digest, text_of};
use crate::seen::{self, Seen};
use crate::stack_base::Base;
use crate::staged::{Stage, Staged};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_btt::Btt;
use tidegate_disk_cache::{Checksums, Contents, DiskCache, FormatSpec, format_ordered, format_with, lay_out_journal};
use tidegate_layout::disk_cache::{CacheEntry, CachePlan};
use tidegate_media::sync::set_thread_token;
use tidegate_media::{BlockDevice, InTurn, Region as Medium};
use tidegate_sim::{Disk, Image, Region, Rng, SharedMemory, mix};
use tidegate_virtual_cores::{Ended, How, Machine, Order, Plan, Trace};
use tidegate_write_cache::WriteCache;

/// Points of a life or a recovery after which it does not end. The longest that end pass a
/// hundredth of them.
const POINTS_MAX: u64 = 5_000_000;

/// The token of the thread that recovers: nobody else's.
pub(crate) const OPENER: u32 = 1000;
/// The identity of disk caches.
const UUID: [u8; 16] = [1; 16];

/// Whose blocks the slots hold.
pub(crate) const VOLUME: [u8; 16] = [9; 16];

/// A volume under its name in a scene.
pub(crate) type Table = Btt<Staged<dyn Medium>>;
/// A disk cache.
pub(crate) type Tier = DiskCache<Staged<Region>>;
/// A cache before either, or before a disk.
pub(crate) type Cache = WriteCache<Staged<SharedMemory>>;

/// A stack in use.
#[derive(Clone)]
pub(crate) struct Stack {
    /// What lies below the cache.
    pub(crate) below: Arc<dyn BlockDevice>,
    pub(crate) cache: Option<Arc<Cache>>,
    /// What lies below, if that is a disk cache.
    pub(crate) disk_cache: Option<Arc<Tier>>,
}

impl Stack {
    /// What clients use.
    pub(crate) fn device(&self) -> &dyn BlockDevice {
        match &self.cache {
            Some(cache) => &**cache,
            None => &*self.below,
        }
    }
}

/// What happens from life to life.
pub(crate) struct Scene {
    pub(crate) script: Arc<Script>,
    pub(crate) setting: Setting,
    /// Chooses ends and interleavings.
    pub(crate) rng: Rng,
    /// Chooses faults.
    pub(crate) fate: Rng,
    pub(crate) stage: Arc<Stage>,
    /// The volume's memory, if it has one.
    pub(crate) region: Arc<Region>,
    /// Its disk, if it has one, and its stalls.
    pub(crate) disk: Arc<StagedDisk>,
    /// The slots of the present life, or those that the last one left.
    pub(crate) slots: Option<Arc<SharedMemory>>,
    pub(crate) seen: Arc<Mutex<Seen>>,
    /// Whether the last life was ended by a power cut.
    pub(crate) was_cut: bool,
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    pub(crate) marks: Marks,
    /// What goes wrong in the present life or recovery.
    pub(crate) fault: Option<Fault>,
    pub(crate) last_fault: Option<Fault>,
    /// Whether the journal of an ordered disk has changed, so that it gives a group back no more.
    pub(crate) rotten: bool,
    /// What goes wrong in the present life, and at which access.
    pub(crate) planned: Option<(Fault, u64)>,
    /// The superblock that a disk cache had when the last recovery began to lay it out anew, if the
    /// recovery ended in that.
    pub(crate) laid_out_from: Option<u64>,
}

impl Scene {
    pub(crate) fn new(script: Script) -> Scene {
        let mut rng = Rng::new(mix(script.seed));
        let setting = Setting::any(&mut rng, script.base, script.bent(), VOLUME);
        let seen = Seen::new(&setting, script.clients);
        let stage = Arc::new(Stage::new(script.mutant));
        let block_size = u32::try_from(setting.block_bytes).expect("a small block");
        let (memory, sectors) = match setting.base {
            Base::Table => (setting.shape.formatted(), 0),
            Base::Disk | Base::Files => (Image::zeroed(0), setting.blocks),
            Base::DiskCache | Base::OrderedDisk => (formatted(&setting.plan), setting.disk_blocks()),
        };
        Scene {
            fate: Rng::new(mix(script.seed ^ 0xfa7e)),
            rng: Rng::new(mix(script.seed) ^ mix(script.schedule.wrapping_add(0x5c4e))),
            region: Arc::new(Region::with_line_order(memory, setting.order)),
            disk: Arc::new(StagedDisk::new(
                fresh_disk(sectors, block_size, &setting.plan),
                &stage,
                script.turns_to_fail(),
                setting.plan.journal(),
            )),
            stage,
            slots: None,
            seen: Arc::new(Mutex::new(seen)),
            was_cut: true,
            trace: Trace::default(),
            tally: Tally { scripts: 1, ..Tally::default() },
            marks: Marks::default(),
            fault: None,
            last_fault: None,
            rotten: false,
            planned: None,
            laid_out_from: None,
            setting,
            script: Arc::new(script),
        }
    }

    /// What has gone wrong last with the media, for whoever reads of a failure.
    pub(crate) fn after_what(&self) -> String {
        self.last_fault.as_ref().map_or(String::new(), |fault| format!(" (the last fault: {fault:x?})"))
    }

    pub(crate) fn verdict(mut self, failure: Option<Failure>) -> Verdict {
        let acts = self.seen().acts;
        self.tally.acts = acts;
        let reached = std::mem::take(&mut self.seen().reached);
        reached.into_iter().for_each(|(mark, times)| self.marks.add_to(mark, times));
        self.stage.visits().into_iter().for_each(|(site, times)| self.marks.visit(site, times));
        Verdict { hash: self.trace.digest(), tally: self.tally, marks: self.marks, failure }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        seen::seen(&self.seen)
    }

    /// A machine for the present life or recovery.
    pub(crate) fn machine(&mut self, threads: u32, points: u64) -> Machine {
        machine_of(&self.script, &mut self.rng, threads, points)
    }

    /// What `work` answers, done by a thread that is alone on a core: so it ends, even if something
    /// is broken. No part of the trace.
    pub(crate) fn alone<T: 'static>(&self, work: impl FnOnce() -> T + 'static) -> Result<T, String> {
        alone(self.script.seed, work)
    }

    /// Takes a machine's account over. Ok if nothing is wrong with how it ended: whether it was
    /// stopped.
    pub(crate) fn ran(&mut self, ended: Ended) -> Result<bool, String> {
        take_over(ended, &mut self.tally, &mut self.trace, &mut self.marks)
    }

    /// `fault` comes at the `access`-th access from now on.
    pub(crate) fn befalls(&mut self, fault: Fault, access: u64) {
        let (region, disk, seen) = (self.region.clone(), self.disk.disk().clone(), self.seen.clone());
        self.fault = Some(fault.clone());
        self.last_fault = self.fault.clone();
        let befall = move || {
            fault.befall(&region, &disk);
            seen::seen(&seen).faulted = true;
        };
        self.stage.fault(Some((access, Box::new(befall))));
    }
}

/// A machine for `threads` of a script, which pass about so many `points`.
pub(crate) fn machine_of(script: &Script, rng: &mut Rng, threads: u32, points: u64) -> Machine {
    let order = Order::any(rng, points);
    let flaw = match script.mutant {
        Mutant::Flawed(flaw) => Some(flaw),
        _ => None,
    };
    let survey = script.mutant == Mutant::Survey;
    Machine::new(Plan { points_max: POINTS_MAX, flaw, survey, ..Plan::new(rng.next_u64(), threads, order) })
}

/// What `work` answers, done by a thread that is alone on a core: see [`Scene::alone`].
pub(crate) fn alone<T: 'static>(seed: u64, work: impl FnOnce() -> T + 'static) -> Result<T, String> {
    let done = Arc::new(Mutex::new(None));
    let into = done.clone();
    let plan = Plan { points_max: POINTS_MAX, ..Plan::new(seed, 1, Order::Random { one_in: 1 }) };
    let mut machine = Machine::new(plan);
    machine.spawn(0, move || {
        // No client's fence is to stand in for one of this thread's.
        set_thread_token(OPENER);
        *into.lock().expect("nobody else has it") = Some(work());
    });
    how_it_ended(machine.run())?;
    let answer = done.lock().expect("nobody else has it").take();
    Ok(answer.expect("the thread returned"))
}

/// Takes over the account of a machine that `ended`. Ok if nothing is wrong with how it did:
/// whether it was stopped.
pub(crate) fn take_over(ended: Ended, tally: &mut Tally, trace: &mut Trace, marks: &mut Marks) -> Result<bool, String> {
    tally.points += ended.points;
    tally.switches += ended.switches;
    digest(trace, [ended.hash]);
    ended.waits.iter().for_each(|wait| marks.wait(wait));
    for used in &ended.uses {
        marks.visit(CodeSite::at(SiteKind::from(used.kind), used.place), used.times);
    }
    how_it_ended(ended)
}

/// Ok if nothing is wrong with how a machine `ended`: whether it was stopped.
fn how_it_ended(ended: Ended) -> Result<bool, String> {
    match ended.how {
        How::Finished => Ok(false),
        How::Stopped => Ok(true),
        How::Deadlock(threads) => Err(format!("threads {threads:?} wait for ever")),
        How::TooLong => {
            let busiest = ended.waits.iter().max_by_key(|wait| wait.times);
            Err(format!("{ENDLESS}; most often waited at {busiest:?}"))
        }
        How::Panicked(thread, panic) => Err(format!("thread {thread}: {}", text_of(&*panic))),
    }
}

/// A disk of zeroes, with the journal of this plan if it is an ordered one.
fn fresh_disk(sectors: u64, block_size: u32, plan: &CachePlan) -> Arc<Disk> {
    let disk = Arc::new(Disk::new(sectors, block_size));
    if let Some(journal) = plan.journal() {
        lay_out_journal(&InTurn(disk.clone()), journal, UUID).expect("the disk is sound");
    }
    disk
}

/// A disk cache that holds nothing.
fn formatted(plan: &CachePlan) -> Image {
    let region = Region::new(plan.end().next_multiple_of(8));
    let CachePlan { block_size, disk_blocks, ring_slots, .. } = *plan;
    let spec = FormatSpec { block_size, disk_blocks, ring_slots, uuid: UUID, disk: [2; 32] };
    let laid_out = match plan.journal() {
        None => format_with(Checksums::Absent, &region, &spec, Contents::Zeroed),
        Some(journal) => format_ordered(journal.capacity, Checksums::Absent, &region, &spec, Contents::Zeroed),
    };
    laid_out.expect("the region is sound");
    // Counters that soon come to where everything older has to be retired.
    for entry in 0..plan.blocks {
        let counter = u16::try_from(entry % 15 * 4096 + 4095 - entry % 7).expect("it is below 2^16");
        region.write(plan.entry_at(entry) + 8, &CacheEntry::free_word(counter).to_le_bytes());
        region.flush(plan.entry_at(entry), size_of::<CacheEntry>() as u64);
    }
    region.fence().expect("the region is sound");
    region.cut().least().clone()
}
