//! A scene: a volume on simulated memory, its lives one after another, and who uses it.

use crate::alone::Commits;
use crate::client::Client;
use crate::disk::StagedDisk;
use crate::drains::{Bell, Drain, destages, drains_cache};
use crate::footing::Base;
use crate::marks::{self, Mark, Marks};
use crate::recovery::OPENER;
use crate::sabotage::{Sabotage, Site, SiteKind};
use crate::script::{Failure, Script, Setting, Tally, Verdict, digest, text_of};
use crate::staged::{End, Stage, Staged};
use crate::transactions::{Modes, Written};
use crate::trouble::{self, Trouble};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use tidegate_btt::Btt;
use tidegate_crashcheck::script::block_of;
use tidegate_disk_cache::{Contents, DiskCache, FormatSpec, Sums, format_ordered, format_with, lay_out_journal};
use tidegate_layout::disk_cache::{CacheEntry, CachePlan};
use tidegate_media::sync::set_thread_token;
use tidegate_media::{BlockDevice, InTurn, Lba, Region as Medium};
use tidegate_sim::{Content, Disk, History, Image, Oracle, Promise, Region, Rng, SharedMemory, mix};
use tidegate_virtual_cores::{Ended, How, Machine, Order, Plan, Trace};
use tidegate_write_cache::WriteCache;

/// How the account of a run begins that does not end.
pub(crate) const ENDLESS: &str = "it did not end";
/// Points of a life or a recovery after which it does not end. The longest that end pass a
/// hundredth of them.
const POINTS_MAX: u64 = 5_000_000;

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
    /// Chooses troubles.
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
    pub(crate) trouble: Option<Trouble>,
    last_trouble: Option<Trouble>,
    /// Whether the journal of an ordered disk has changed, so that it gives a group back no more.
    pub(crate) rotten: bool,
    /// What goes wrong in the present life, and at which access.
    planned: Option<(Trouble, u64)>,
    /// The superblock that a disk cache had when the last recovery began to lay it out anew, if the
    /// recovery ended in that.
    pub(crate) laid_out_from: Option<u64>,
}

/// What clients do, and may see.
pub(crate) struct Seen {
    /// What may be there after a power cut.
    pub(crate) power: Oracle,
    /// What may be there after a kill, and what reads may show.
    pub(crate) kill: Oracle,
    /// What this life's operations saw.
    pub(crate) history: History,
    /// Operations each client has done, or left out.
    pub(crate) done: Vec<u32>,
    pub(crate) acts: u64,
    /// What was written, by its number.
    pub(crate) tags: BTreeMap<Content, u64>,
    /// Blocks that a cut has torn.
    pub(crate) torn: BTreeMap<Content, Vec<u8>>,
    /// Clients that are not through.
    pub(crate) busy: u32,
    /// Whether something has gone wrong with the media in this life.
    pub(crate) troubled: bool,
    /// Requests answered with an error in this life.
    pub(crate) refusals: u32,
    /// Whether a flush or an eviction was.
    pub(crate) refused: bool,
    /// Steps of destaging that failed in this life.
    pub(crate) destaging_failed: u64,
    /// Writes of several blocks that are put in place as one, and have not been acknowledged in
    /// this life.
    pub(crate) transactions: Vec<Vec<(Lba, Content)>>,
    /// For each of them, by its first content: what its blocks may have shown that had been
    /// acknowledged when it began.
    pub(crate) before_transactions: BTreeMap<Content, Vec<(Lba, Vec<Content>)>>,
    /// Requests that were refused since an earlier loss.
    pub(crate) losses_told: u64,
    /// Operations until the clients of this life rest, if they do.
    pub(crate) until_rest: Option<u64>,
    /// Clients in the middle of an operation, and operations begun.
    pub(crate) acting: (u32, u64),
    /// Each of those who drain.
    pub(crate) drains: Vec<Drain>,
    /// Instants so far, for what follows.
    pub(crate) clock: u64,
    /// Writes of this life.
    pub(crate) written: Vec<Written>,
    /// Of those that are put in place as one in every mode, the first content.
    pub(crate) whole: BTreeSet<Content>,
    pub(crate) modes: Modes,
    /// All that was ever written to each block.
    pub(crate) contents: Vec<Vec<Content>>,
    /// Blocks whose sectors may be torn by the next cut, or were.
    pub(crate) tearable: BTreeSet<Lba>,
    /// Blocks that the disk said it had flushed, and lost.
    pub(crate) lied_about: BTreeSet<Lba>,
    /// All that was ever committed, if the disk keeps the order of that.
    pub(crate) commits: Option<Box<Commits>>,
    /// Rare paths that clients saw taken.
    pub(crate) reached: BTreeMap<Mark, u64>,
}

impl Seen {
    fn new(setting: &Setting, clients: u32) -> Seen {
        let promise = if setting.cache.is_some() { Promise::OnFlush } else { Promise::OnCompletion };
        let oracle = |promise| Oracle::zeroed(setting.blocks, setting.block_bytes, promise);
        let zero = Content::of(&vec![0; setting.block_bytes]);
        Seen {
            power: oracle(promise),
            kill: oracle(Promise::OnCompletion).with_concurrent_reads(),
            history: History::new((0..setting.blocks).map(|_| None)),
            done: vec![0; clients as usize],
            acts: 0,
            tags: BTreeMap::new(),
            torn: BTreeMap::new(),
            busy: 0,
            troubled: false,
            refusals: 0,
            refused: false,
            destaging_failed: 0,
            transactions: Vec::new(),
            before_transactions: BTreeMap::new(),
            losses_told: 0,
            until_rest: None,
            acting: (0, 0),
            drains: Vec::new(),
            clock: 0,
            written: Vec::new(),
            whole: BTreeSet::new(),
            modes: Modes::default(),
            contents: (0..setting.blocks).map(|_| vec![zero]).collect(),
            tearable: BTreeSet::new(),
            lied_about: BTreeSet::new(),
            commits: setting.plan.journal().map(|_| Box::new(Commits::new(setting.blocks, zero))),
            reached: BTreeMap::new(),
        }
    }

    /// An operation of a client begins.
    pub(crate) fn begins(&mut self) {
        self.acting.0 += 1;
        self.acting.1 += 1;
    }

    /// All that was ever written to `lba`.
    pub(crate) fn contents_of(&mut self, lba: Lba) -> &mut Vec<Content> {
        &mut self.contents[usize::try_from(lba.0).expect("a small device")]
    }

    /// A block unlike every other.
    pub(crate) fn fresh_block(&mut self, bytes: usize) -> (Content, Vec<u8>) {
        let tag = self.tags.len() as u64 + 1;
        let block = block_of(tag, bytes);
        let content = Content::of(&block);
        self.tags.insert(content, tag);
        (content, block)
    }
}

impl Scene {
    pub(crate) fn new(script: Script) -> Scene {
        let mut rng = Rng::new(mix(script.seed));
        let setting = Setting::any(&mut rng, script.base, script.bent(), VOLUME);
        let seen = Seen::new(&setting, script.clients);
        let stage = Arc::new(Stage::new(script.sabotage));
        let block_size = u32::try_from(setting.block_bytes).expect("a small block");
        let (memory, sectors) = match setting.base {
            Base::Table => (setting.shape.formatted(), 0),
            Base::Disk => (Image::zeroed(0), setting.blocks),
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
            trouble: None,
            last_trouble: None,
            rotten: false,
            planned: None,
            laid_out_from: None,
            setting,
            script: Arc::new(script),
        }
    }

    /// All lives, and a recovery after the last.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        loop {
            let stack = self.recover()?;
            if self.seen().done.iter().all(|done| *done == self.script.acts) {
                return Ok(());
            }
            self.live(stack)?;
        }
    }

    /// What has gone wrong last with the media, for whoever reads of a failure.
    pub(crate) fn after_what(&self) -> String {
        self.last_trouble.as_ref().map_or(String::new(), |trouble| format!(" (the last trouble: {trouble:x?})"))
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
        seen(&self.seen)
    }

    /// A machine for the present life or recovery.
    pub(crate) fn machine(&mut self, threads: u32, points: u64) -> Machine {
        let order = Order::any(&mut self.rng, points);
        let flaw = match self.script.sabotage {
            Sabotage::Flawed(flaw) => Some(flaw),
            _ => None,
        };
        let survey = self.script.sabotage == Sabotage::Survey;
        Machine::new(Plan { points_max: POINTS_MAX, flaw, survey, ..Plan::new(self.rng.next_u64(), threads, order) })
    }

    /// What `work` answers, done by a thread that is alone on a core: so it ends, even if something
    /// is broken. No part of the trace.
    pub(crate) fn alone<T: 'static>(&self, work: impl FnOnce() -> T + 'static) -> Result<T, String> {
        let done = Arc::new(Mutex::new(None));
        let into = done.clone();
        let plan = Plan { points_max: POINTS_MAX, ..Plan::new(self.script.seed, 1, Order::Random { one_in: 1 }) };
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

    /// Takes a machine's account over. Ok if nothing is wrong with how it ended: whether it was
    /// stopped.
    pub(crate) fn ran(&mut self, ended: Ended) -> Result<bool, String> {
        self.tally.points += ended.points;
        self.tally.switches += ended.switches;
        digest(&mut self.trace, [ended.hash]);
        ended.waits.iter().for_each(|wait| self.marks.wait(wait));
        for used in &ended.uses {
            self.marks.visit(Site::at(SiteKind::from(used.kind), used.place), used.times);
        }
        how_it_ended(ended)
    }

    /// Clients and drains use the stack until a random access, or until the clients are through;
    /// then power or process end.
    fn live(&mut self, stack: Stack) -> Result<(), String> {
        let machine = self.crew(&stack);
        // With few operations left out, ends come as early as without them.
        let all = self.script.only.as_ref().map_or(0, |only| only.0.len() as u64);
        let all = if all == 0 { u64::from(self.script.acts) * u64::from(self.script.clients) } else { all };
        self.plan_troubles(all);
        // A life takes some ten accesses for each operation, a fourth of them fences.
        let end = match self.rng.below(6) {
            0 => End::BeforeAccess(1 + self.rng.below(4 * all)),
            1..4 => End::BeforeFence(1 + self.rng.below(all)),
            // In the first few operations, when much of what recovery did is still all there is.
            4 => End::BeforeAccess(1 + self.rng.below(60)),
            _ => End::BeforeFence(1 + self.rng.below(12)),
        };
        let end = self.end_after_trouble().unwrap_or(end);
        self.stage.end(end);
        let rests = self.rng.one_in(3).then(|| 1 + self.rng.below(all / 2 + 1));
        self.seen().until_rest = rests;
        let ran = self.ran_in(machine);
        self.stage.end(End::None);
        self.stage.trouble(None);
        if let (Some(cache), Ok(_)) = (&stack.cache, &ran) {
            let cache = cache.clone();
            let counters = self.alone(move || cache.counters())?;
            if counters.stalled_ns > 1 << 60 {
                return Err(format!("stalls of {} ns by a clock that was set back", counters.stalled_ns));
            }
            self.marks.count(&counters);
        }
        if let (Some(cache), Ok(_)) = (&stack.disk_cache, &ran) {
            let cache = cache.clone();
            let counters = self.alone(move || cache.counters())?;
            self.marks.count_tier(&counters);
        }
        if let (Some(cache), Ok(false)) = (&stack.disk_cache, &ran) {
            self.audit(cache)?;
        }
        drop(stack);
        ran?;
        self.seen().history.judge().map_err(|wrong| wrong.to_string())?;
        self.end()
    }

    /// Of an ordered disk, some lives end soon after a flush that fails: nobody repeats then what
    /// it covered.
    fn end_after_trouble(&mut self) -> Option<End> {
        let (Some((Trouble::Flush, access)), Base::OrderedDisk) = (&self.planned, self.setting.base) else {
            return None;
        };
        let access = *access;
        self.fate.one_in(2).then(|| End::BeforeAccess(access + 1 + self.fate.below(40)))
    }

    /// A machine with every client and drain on it.
    fn crew(&mut self, stack: &Stack) -> Machine {
        let Script { clients, drains, acts, .. } = *self.script;
        let drains = if stack.cache.is_some() || stack.disk_cache.is_some() { drains } else { 0 };
        let mut machine = self.machine(clients + drains, 20 * u64::from(acts) * u64::from(clients) / 4);
        let (blocks, block_bytes, mode) = (self.setting.blocks, self.setting.block_bytes, self.setting.mode);
        let in_order = self.setting.base == Base::OrderedDisk;
        {
            let mut seen = self.seen();
            (seen.busy, seen.acting.0) = (clients, 0);
            seen.begins_in(mode, in_order);
            seen.drains = vec![Drain::Awake; drains as usize];
        }
        for number in 0..clients {
            let (stack, seen) = (stack.clone(), self.seen.clone());
            let (script, region) = (self.script.clone(), self.region.clone());
            let conflicts = self.setting.conflicts;
            let client = Client { stack, seen, script, number, blocks, block_bytes, drains, region, conflicts };
            machine.spawn(number, move || client.work());
        }
        for drain in 0..drains {
            let (stack, seen) = (stack.clone(), self.seen.clone());
            machine.spawn(clients + drain, move || match &stack.disk_cache {
                Some(cache) => destages(cache, &seen, drain as usize),
                None => drains_cache(&stack, &seen, block_bytes),
            });
        }
        if let Some(cache) = &stack.disk_cache {
            cache.set_doorbell(Arc::new(Bell { first: clients, drains, seen: self.seen.clone() }));
        }
        if let Some(cache) = &stack.cache {
            cache.set_doorbell(Box::new(Bell { first: clients, drains, seen: self.seen.clone() }));
            trouble::set_clock(self.fate.next_u64());
            cache.set_clock(trouble::jumping_ns);
        }
        machine
    }

    /// Nobody is at work: what a disk cache says of itself adds up.
    fn audit(&mut self, cache: &Arc<Tier>) -> Result<(), String> {
        let asked = cache.clone();
        let (fill, counted, lbas) = self.alone(move || (asked.fill(), asked.dirty_blocks(), asked.dirty_lbas()))?;
        let dirty = lbas.len() as u64;
        if counted != dirty || u64::from(fill.dirty) != dirty {
            return Err(format!("{dirty} blocks are dirty, and {counted} are counted: {fill:?}"));
        }
        // Blocks that were to be free after a fence that failed are nobody's.
        if fill.clean + fill.dirty + fill.free + fill.kept != fill.blocks && !self.region.has_lost() {
            return Err(format!("blocks are neither free nor cached: {fill:?}"));
        }
        self.assert_clean_is_durable(lbas)?;
        self.marks.reach(marks::RESTED);
        Ok(())
    }

    /// Whatever is not `dirty` in the cache, the disk holds for good; unless it lied, or what went
    /// past the cache was refused.
    fn assert_clean_is_durable(&self, dirty: Vec<Lba>) -> Result<(), String> {
        let cut = self.disk.disk().cut();
        let (visible, size) = (self.disk.disk().visible(), self.setting.block_bytes);
        let mut doubtful: BTreeSet<Lba> = dirty.into_iter().collect();
        doubtful.extend(cut.lied_about().map(|at| Lba(at / size as u64)));
        doubtful.extend(self.seen().under_way_past());
        let (mut shown, mut kept) = (vec![0; size], vec![0; size]);
        for lba in (0..self.setting.blocks).map(Lba).filter(|lba| !doubtful.contains(lba)) {
            visible.read(lba.0 * size as u64, &mut shown);
            cut.least().read(lba.0 * size as u64, &mut kept);
            if shown != kept {
                return Err(format!("{lba} is not dirty, and a cut would lose it"));
            }
        }
        Ok(())
    }

    /// What goes wrong in a life of about `all` operations.
    fn plan_troubles(&mut self, all: u64) {
        let lost_slots = self.slots.as_ref().filter(|_| self.rng.one_in(16));
        if let Some(slots) = lost_slots {
            slots.lose_stores_from(self.rng.below(4 * all + 1));
        }
        {
            let mut seen = self.seen();
            (seen.refusals, seen.refused, seen.losses_told, seen.destaging_failed) = (0, false, 0, 0);
            seen.troubled = fault_planned(&self.slots);
        }
        (self.trouble, self.planned) = (None, None);
        if self.setting.base != Base::Table && self.fate.one_in(2) {
            self.disk.stall().at(1 + self.fate.below(all), 1 + self.fate.below(400));
        }
        let certain = Trouble::of_bent(self.script.bent(), &mut self.fate, &self.setting);
        if certain.is_some() || self.fate.one_in(5) {
            let trouble = certain.unwrap_or_else(|| Trouble::any(&mut self.fate, &self.setting));
            let within = if self.fate.one_in(2) { 2 * all } else { 60 };
            let access = 1 + self.fate.below(within);
            self.planned = Some((trouble.clone(), access));
            self.befalls(trouble, access);
        }
    }

    /// `trouble` comes at the `access`-th access from now on.
    pub(crate) fn befalls(&mut self, trouble: Trouble, access: u64) {
        let (region, disk, seen) = (self.region.clone(), self.disk.disk().clone(), self.seen.clone());
        self.trouble = Some(trouble.clone());
        self.last_trouble = self.trouble.clone();
        let befall = move || {
            trouble.befall(&region, &disk);
            self::seen(&seen).troubled = true;
        };
        self.stage.trouble(Some((access, Box::new(befall))));
    }

    /// A life is over: counts what it met, and ends it by a cut or a kill.
    fn end(&mut self) -> Result<(), String> {
        let (refusals, losses_told, destaging_failed) = {
            let seen = self.seen();
            (seen.refusals, seen.losses_told, seen.destaging_failed)
        };
        let past = self.seen().under_way_past();
        let writes_past = !past.is_empty();
        self.seen().tearable.extend(past);
        self.marks.add_to(marks::DESTAGING_FAILED, destaging_failed);
        if self.slots.as_ref().is_some_and(|slots| slots.has_lost()) && refusals > 0 {
            self.marks.reach(marks::SLOTS_SEALED);
        } else if let Some(trouble) = self.trouble.as_ref().filter(|_| refusals > 0) {
            self.marks.reach(trouble.mark());
        }
        self.marks.add_to(marks::LOSS_TOLD, losses_told);
        self.marks.add_to(marks::STALLED, self.disk.stall().take_overtaken());
        self.marks.add_to(marks::CLOCK_WENT_BACK, trouble::clock_went_back());
        // Slots that lost a store are worth nothing to another process. What a failed flush of a
        // disk covered is written anew by nobody after a kill: whoever asked for the flush was
        // told.
        let nobody_repeats = match self.setting.base {
            Base::Table => false,
            Base::Disk => true,
            // A disk cache keeps what the disk may have lost, but for writes past it that its
            // process did not live to end.
            Base::DiskCache | Base::OrderedDisk => writes_past,
        };
        let flush_failed = nobody_repeats && matches!(self.trouble, Some(Trouble::Flush));
        let doubtful = fault_planned(&self.slots) || flush_failed;
        if doubtful || self.rng.below(5) < 3 {
            self.tally.cuts += 1;
            self.power_fails()?;
        } else {
            self.tally.kills += 1;
            self.is_killed()?;
        }
        self.trouble = None;
        Ok(())
    }

    fn ran_in(&mut self, machine: Machine) -> Result<bool, String> {
        let ended = machine.run();
        self.ran(ended)
    }
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

fn fault_planned(slots: &Option<Arc<SharedMemory>>) -> bool {
    slots.as_ref().is_some_and(|slots| slots.may_lose_stores())
}

pub(crate) fn seen(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // A client that found something wrong has panicked; what was seen until then still counts.
    seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
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
        None => format_with(Sums::Absent, &region, &spec, Contents::Zeroed),
        Some(journal) => format_ordered(journal.capacity, Sums::Absent, &region, &spec, Contents::Zeroed),
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
