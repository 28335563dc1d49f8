//! The disk cache on virtual cores: clients and a thread that destages, every interleaving from a
//! seed, the power cut at a random access.
//!
//! Blocks are written in groups, always as a whole. After a cut each group shows one write: one
//! that was under way, or one that no later acknowledged write has replaced. Reads show the same
//! while they run. Where the disk keeps the order of commits, it shows after a cut, without the
//! memory, what all groups were at one instant. It needs `--cfg virtual_cores`.

use crate::checker::Failure;
use crate::disk_cache::plain::PlainCache;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tidegate_disk_cache::{
    Checksums, Contents, DiskCache, FormatSpec, Options, Reads, check, format, format_ordered, lay_out_journal,
    recover_disk,
};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_media::sync::yield_now;
use tidegate_media::{BlockDevice, Durability, InTurn, Lba, LineOrder, Poison, Region as Medium, Sealed};
use tidegate_sim::{Disk, Image, Region, Rng, SectorTear};
use tidegate_virtual_cores::{How, Machine, Order as Interleaving, Plan, stop};

const BLOCK: usize = 512;
const GROUP: u64 = 3;
const GROUPS: u64 = 10;
const BLOCKS: u64 = GROUP * GROUPS;
const CLIENTS: u32 = 3;
const ACTS: u32 = 40;

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct CoresTally {
    /// Lives ended by a power cut or a kill while something was going on.
    pub cut_short: u64,
    /// Operations.
    pub acts: u64,
    /// Blocks given up in lives that nothing cut short.
    pub evictions: u64,
    /// Blocks destaged in them.
    pub destaged: u64,
}

impl fmt::Display for CoresTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CoresTally { cut_short, acts, evictions, destaged } = self;
        write!(f, "{acts} operations, {cut_short} lives cut short, {evictions} blocks given up, {destaged} destaged")
    }
}

/// One write of a group, in the order of everything that happened.
#[derive(Clone, Copy, Debug)]
struct Written {
    tag: u64,
    began: u64,
    ended: Option<u64>,
}

/// All writes of this life, and the one that each group began it with.
struct Log {
    now: u64,
    groups: Vec<Vec<Written>>,
    busy: u32,
    acts: u64,
}

impl Log {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// Whether something that looks between `from` and `until` may find `tag` in `group`.
    fn allows(&self, group: u64, tag: u64, from: u64, until: u64) -> bool {
        let writes = &self.groups[usize::try_from(group).expect("few")];
        let Some(shown) = writes.iter().find(|write| write.tag == tag) else { return false };
        let replaced = |by: &Written| {
            shown.ended.is_some_and(|ended| ended < by.began) && by.ended.is_some_and(|ended| ended < from)
        };
        shown.began <= until && !writes.iter().any(replaced)
    }
}

/// What the memory does when it is asked for a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fences {
    /// It makes it.
    Made,
    /// Every second one is answered and not made: a mistake that has to be noticed.
    HalfOfThem,
}

/// A memory at one access of which the machine stops.
struct Ending {
    region: Arc<Region>,
    left: Arc<AtomicU64>,
    fences: Fences,
    asked: AtomicU64,
}

impl Ending {
    fn pass(&self) {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            stop();
        }
    }
}

impl Medium for Ending {
    fn len(&self) -> u64 {
        self.region.len()
    }
    fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Poison> {
        self.pass();
        self.region.read(at, out)
    }
    fn load_u64(&self, at: u64) -> Result<u64, Poison> {
        self.pass();
        self.region.load_u64(at)
    }
    fn write(&self, at: u64, bytes: &[u8]) {
        self.pass();
        self.region.write(at, bytes);
    }
    fn stream(&self, at: u64, bytes: &[u8]) {
        self.pass();
        self.region.stream(at, bytes);
    }
    fn store_u64(&self, at: u64, word: u64) {
        self.pass();
        self.region.store_u64(at, word);
    }
    fn flush(&self, at: u64, len: u64) {
        self.pass();
        self.region.flush(at, len);
    }
    fn fence(&self) -> Result<(), Sealed> {
        self.pass();
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if self.fences == Fences::HalfOfThem && asked % 2 == 1 { Ok(()) } else { self.region.fence() }
    }
    fn line_order(&self) -> LineOrder {
        self.region.line_order()
    }
}

type Cache = DiskCache<Ending>;

/// Which cache the machine has, and what is wrong with it.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// What becomes of blocks that are read.
    pub reads: Reads,
    /// What the memory does when it is asked for a fence.
    pub fences: Fences,
    /// Whether the disk keeps the order of commits.
    pub in_order: bool,
}

impl Way {
    /// Nothing is wrong.
    pub const SOUND: Way = Way { reads: Reads::Kept, fences: Fences::Made, in_order: false };
}

/// What was ever written, for the disk without its memory: that is behind.
struct AllWrites {
    groups: Vec<Vec<Shown>>,
}

/// A write, and when the group was seen to be without it for good.
struct Shown {
    written: Written,
    gone: Option<u64>,
}

impl AllWrites {
    fn new(log: &Log) -> AllWrites {
        let mut past = AllWrites { groups: Vec::new() };
        past.groups.resize_with(log.groups.len(), Vec::new);
        past.add(log);
        past
    }

    /// What was written in a life that has ended.
    fn add(&mut self, log: &Log) {
        for (group, writes) in self.groups.iter_mut().zip(&log.groups) {
            for written in writes {
                if group.iter().all(|known| known.written.tag != written.tag) {
                    group.push(Shown { written: *written, gone: None });
                }
            }
        }
    }

    /// A recovery has found what `log` begins with.
    fn found(&mut self, log: &Log) {
        for (group, writes) in self.groups.iter_mut().zip(&log.groups) {
            for known in group.iter_mut().filter(|known| known.written.ended.is_none()) {
                match known.written.tag == writes[0].tag {
                    true => known.written.ended = Some(log.now),
                    false => known.gone = known.gone.or(Some(log.now)),
                }
            }
        }
    }

    /// Whether there was an instant at which the groups showed these.
    fn allows(&self, tags: &[u64]) -> bool {
        let shown = |group: usize| self.groups[group].iter().find(|known| known.written.tag == tags[group]);
        let Some(all) = (0..tags.len()).map(shown).collect::<Option<Vec<_>>>() else { return false };
        let instant = all.iter().map(|known| known.written.began).max().expect("there are groups");
        let replaced = |known: &Shown, by: &Shown| {
            known.written.ended.is_some_and(|ended| ended < by.written.began)
                && by.written.ended.is_some_and(|ended| ended < instant)
        };
        all.iter().zip(&self.groups).all(|(known, group)| {
            known.gone.is_none_or(|gone| instant < gone) && !group.iter().any(|by| replaced(known, by))
        })
    }

    /// What the disk shows without its memory.
    fn judge(&self, platter: &Image) -> Result<(), Failure> {
        let disk = Arc::new(Disk::from_image(platter.clone(), 512));
        recover_disk(&InTurn(disk.clone())).map_err(Failure::new)?;
        let mut tags = Vec::new();
        for group in 0..GROUPS {
            let of_blocks = (0..GROUP).map(|block| tag_of(&*disk, group * GROUP + block));
            let of_blocks = of_blocks.collect::<Result<Vec<_>, _>>()?;
            if of_blocks.iter().any(|tag| *tag != of_blocks[0]) {
                return Err(Failure::new(format_args!("the disk alone has group {group} torn: {of_blocks:?}")));
            }
            tags.push(of_blocks[0]);
        }
        match self.allows(&tags) {
            true => Ok(()),
            false => Err(Failure::new(format_args!("the disk alone shows {tags:?}, which never was"))),
        }
    }
}

/// Lets a machine live `lives` times under interleavings that `seed` chooses.
pub fn judge_on_cores(seed: u64, lives: u32, way: Way) -> Result<CoresTally, Failure> {
    const UUID: [u8; 16] = [1; 16];
    let plan = CachePlan::cut(14, 512, BLOCKS, 16).ordered(if way.in_order { 14 } else { 0 });
    let region = Region::new(plan.end().next_multiple_of(8));
    let spec = FormatSpec { block_size: 512, disk_blocks: BLOCKS, ring_slots: 16, uuid: UUID, disk: [2; 32] };
    let mut disk = Image::zeroed(plan.journal().map_or(BLOCKS, |journal| journal.end()) * BLOCK as u64);
    match plan.journal() {
        None => format(&region, &spec, Contents::Zeroed).map_err(Failure::new)?,
        Some(journal) => {
            let fresh = Arc::new(Disk::from_image(disk, 512));
            lay_out_journal(&InTurn(fresh.clone()), journal, UUID).map_err(Failure::new)?;
            disk = fresh.visible();
            let laid_out = format_ordered(journal.capacity, Checksums::Absent, &region, &spec, Contents::Zeroed);
            laid_out.map_err(Failure::new)?;
        }
    }
    let mut rng = Rng::new(seed);
    let mut tally = CoresTally::default();
    let mut region = Arc::new(region);
    let mut log = Log { now: 0, groups: Vec::new(), busy: 0, acts: 0 };
    (0..GROUPS).for_each(|_| log.groups.push(vec![Written { tag: 0, began: 0, ended: Some(0) }]));
    let mut past = way.in_order.then(|| AllWrites::new(&log));
    for life in 0..lives {
        let within = |failure: Failure| failure.within(format_args!("life {life} of seed {seed}"));
        log = recovered(&plan, &region, &disk, &log).map_err(within)?;
        past.iter_mut().for_each(|past| past.found(&log));
        (region, disk, log) = live(region, &disk, log, way, &mut rng, &mut tally).map_err(within)?;
        if let Some(past) = &mut past {
            past.add(&log);
            past.judge(&disk).map_err(within)?;
        }
    }
    recovered(&plan, &region, &disk, &log)?;
    Ok(tally)
}

/// What a recovery finds: every group whole, and a write that may be there. That one the next life
/// begins with.
fn recovered(plan: &CachePlan, region: &Arc<Region>, disk: &Image, log: &Log) -> Result<Log, Failure> {
    PlainCache::recover(plan, &region.visible(), disk).map_err(Failure::new)?;
    let report = check(&**region).map_err(Failure::new)?;
    if let Some(finding) = report.findings.first() {
        return Err(Failure::new(finding));
    }
    let endless = Arc::new(AtomicU64::new(u64::MAX));
    let disk = Arc::new(Disk::from_image(disk.clone(), 512));
    let cache = opened(region, &disk, &endless, Way::SOUND)?;
    let mut next = Log { now: log.now, groups: Vec::new(), busy: 0, acts: log.acts };
    for group in 0..GROUPS {
        let tags = (0..GROUP).map(|block| tag_of(&cache, group * GROUP + block)).collect::<Result<Vec<_>, _>>()?;
        if tags.iter().any(|tag| *tag != tags[0]) || !log.allows(group, tags[0], u64::MAX, u64::MAX) {
            let writes = &log.groups[usize::try_from(group).expect("few")];
            return Err(Failure::new(format_args!("group {group} shows {tags:?} of {writes:?}")));
        }
        next.groups.push(vec![Written { tag: tags[0], began: 0, ended: Some(0) }]);
    }
    Ok(next)
}

fn opened(region: &Arc<Region>, disk: &Arc<Disk>, left: &Arc<AtomicU64>, way: Way) -> Result<Cache, Failure> {
    let options = Options { reads: way.reads, ..Options::default() };
    let (region, left, fences) = (region.clone(), left.clone(), way.fences);
    let ending = Ending { region, left, fences, asked: AtomicU64::new(0) };
    DiskCache::open(ending, Arc::new(InTurn(disk.clone())), options).map_err(Failure::new)
}

/// Clients and a thread that destages use the cache, until a random access or until they are
/// through; then the power fails, or the process is killed.
fn live(
    region: Arc<Region>,
    disk: &Image,
    log: Log,
    way: Way,
    rng: &mut Rng,
    tally: &mut CoresTally,
) -> Result<(Arc<Region>, Image, Log), Failure> {
    let disk = Arc::new(Disk::from_image(disk.clone(), 512));
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let cache = Arc::new(opened(&region, &disk, &left, way)?);
    let log = Arc::new(Mutex::new(Log { busy: CLIENTS, ..log }));
    let order = Interleaving::any(rng, 4000);
    let mut machine = Machine::new(Plan { points_max: 5_000_000, ..Plan::new(rng.next_u64(), CLIENTS + 1, order) });
    for client in 0..CLIENTS {
        let (cache, log, rng) = (cache.clone(), log.clone(), Rng::new(rng.next_u64()));
        machine.spawn(client, move || work(&cache, &log, rng, client));
    }
    {
        let (cache, log) = (cache.clone(), log.clone());
        machine.spawn(CLIENTS, move || {
            while log.lock().expect("nobody panics with it").busy > 0 {
                cache.destage_step(4);
                yield_now();
            }
        });
    }
    let endless = rng.one_in(4);
    left.store(if endless { u64::MAX } else { 1 + rng.below(1500) }, Ordering::Relaxed);
    let ended = machine.run();
    left.store(u64::MAX, Ordering::Relaxed);
    match ended.how {
        How::Finished => {}
        How::Stopped => tally.cut_short += 1,
        How::Panicked(thread, panic) => {
            let text = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".to_owned());
            return Err(Failure::new(format_args!("thread {thread}: {text}")));
        }
        how => return Err(Failure::new(format_args!("{how:?}, waiting at {:?}", ended.waits))),
    }
    let cut = region.cut();
    let next = match rng.one_in(4) {
        true => Region::after_kill(&cut),
        false => Region::from_image(cut.sample(rng)),
    };
    let platter = disk.cut().sample(rng, SectorTear::Possible);
    if matches!(ended.how, How::Finished) {
        let counters = cache.counters();
        tally.evictions += counters.evictions;
        tally.destaged += counters.destaged;
    }
    drop(cache);
    let log = Arc::try_unwrap(log).map_err(|_| Failure::new("a thread is left"))?;
    let log = log.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    tally.acts = log.acts;
    Ok((Arc::new(next), platter, log))
}

fn work(cache: &Cache, log: &Mutex<Log>, mut rng: Rng, client: u32) {
    for act in 0..ACTS {
        let group = rng.below(GROUPS);
        if rng.one_in(3) {
            let from = log.lock().expect("nobody panics with it").tick();
            let tag = tag_of(cache, group * GROUP + rng.below(GROUP)).unwrap_or_else(|failure| panic!("{failure}"));
            let mut log = log.lock().expect("nobody panics with it");
            let until = log.tick();
            assert!(log.allows(group, tag, from, until), "a read of group {group} shows {tag}");
            log.acts += 1;
            continue;
        }
        let (place, tag) = {
            let mut log = log.lock().expect("nobody panics with it");
            let began = log.tick();
            let tag = (began << 16) | u64::from(client * ACTS + act);
            let writes = &mut log.groups[usize::try_from(group).expect("few")];
            writes.push(Written { tag, began, ended: None });
            (writes.len() - 1, tag)
        };
        let written = write_group(cache, group, tag, rng.one_in(2));
        written.unwrap_or_else(|failure| panic!("{failure}"));
        let mut log = log.lock().expect("nobody panics with it");
        let ended = log.tick();
        log.groups[usize::try_from(group).expect("few")][place].ended = Some(ended);
        log.acts += 1;
    }
    log.lock().expect("nobody panics with it").busy -= 1;
}

fn write_group(cache: &Cache, group: u64, tag: u64, by_transaction: bool) -> Result<(), Failure> {
    let block =
        |lba: u64| -> Vec<u8> { [lba, tag].iter().flat_map(|word| word.to_le_bytes()).cycle().take(BLOCK).collect() };
    let lbas = group * GROUP..(group + 1) * GROUP;
    if !by_transaction {
        let bytes: Vec<u8> = lbas.flat_map(block).collect();
        return cache.write(Lba(group * GROUP), &bytes, Durability::Volatile).map_err(Failure::new);
    }
    let mut transaction = cache.begin();
    for lba in lbas.rev() {
        transaction.write(Lba(lba), &block(lba)).map_err(Failure::new)?;
    }
    transaction.commit().map_err(Failure::new)
}

/// The tag of the block at `lba`, which is whole and where it belongs.
fn tag_of<D: BlockDevice>(cache: &D, lba: u64) -> Result<u64, Failure> {
    let mut out = vec![0; BLOCK];
    cache.read(Lba(lba), &mut out).map_err(Failure::new)?;
    let (words, _) = out.as_chunks::<16>();
    let [number, tag] = [0, 8].map(|at| u64::from_le_bytes(words[0][at..at + 8].try_into().expect("eight bytes")));
    let belongs = number == if tag == 0 { 0 } else { lba };
    match belongs && words.iter().all(|word| *word == words[0]) {
        true => Ok(tag),
        false => Err(Failure::new(format_args!("block {lba} is torn, or another's: {:x?}", &out[..64]))),
    }
}
