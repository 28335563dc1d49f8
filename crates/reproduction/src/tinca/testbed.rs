//! The compared stacks: the transactional cache and its rivals, over memory and disks that take
//! virtual time, with the background threads beside the users.

use super::disks::{Make, SlowDisk};
use anyhow::{Context, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidegate_baselines::classic::{Ablations, FlashCache, Journal, RING, Stack, destage_above};
use tidegate_baselines::tinca::{self, Tinca};
use tidegate_baselines::ubj::{Replaced, Ubj};
use tidegate_disk_cache::{Contents, DiskCache, FormatSpec, Options, Reads, format};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_media::{MappedRegion, Region};
use tidegate_policy::writeback::destage::{Caps, Destage, Limits, Load, Turn};
use tidegate_sim::cost::{Profile, TimedRegion};
use tidegate_virtual_cores::{How, Machine, Order, Plan, now_ns, pass_time};

/// Between two looks of a thread that found nothing to do.
const LOOK_NS: u64 = 20_000;

/// Flashcache has four blocks on their way to the disk at most, two of a set.
const CLEANERS: usize = 2;

/// A stack in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A journal on a cache with metadata in blocks, both as they are or with something left out.
    Classic {
        /// Whether there is a journal.
        journal: bool,
        /// Whether metadata are written.
        metadata: bool,
        /// Whether blocks are flushed.
        flushes: bool,
    },
    /// The union of buffer cache and journal.
    Ubj,
    /// The transactional cache with the published protocol.
    Tinca,
    /// The transactional cache.
    Tidegate {
        /// What becomes of blocks that are read.
        reads: Reads,
    },
}

impl Kind {
    /// Whatever keeps transactions whole.
    pub const WHOLE: [Kind; 4] = [Kind::CLASSIC, Kind::Ubj, Kind::Tinca, Kind::TIDEGATE];

    /// The transactional cache as it usually is.
    pub const TIDEGATE: Kind = Kind::Tidegate { reads: Reads::Kept };

    /// The transactional cache with volatile reads.
    pub const FORGETTING: Kind = Kind::Tidegate { reads: Reads::Forgotten };

    /// As it was published.
    pub const CLASSIC: Kind = Kind::Classic { journal: true, metadata: true, flushes: true };

    /// What the paper says of it where the transactional cache has `ours` times Classic's value. It
    /// describes UBJ, and does not measure it.
    pub(super) fn published(self, ours: f64) -> Option<f64> {
        match self {
            Kind::Tidegate { .. } | Kind::Tinca => Some(ours),
            Kind::Classic { .. } => Some(1.0),
            Kind::Ubj => None,
        }
    }

    /// As the figures call it.
    pub fn label(self) -> &'static str {
        match self {
            Kind::Tidegate { reads: Reads::Kept } => "Tidegate",
            Kind::Tidegate { reads: Reads::Forgotten } => "Tidegate, reads forgotten",
            Kind::Tinca => "Tinca",
            Kind::Ubj => "UBJ",
            Kind::Classic { journal: true, metadata: true, flushes: true } => "Classic",
            Kind::Classic { journal: true, metadata: true, flushes: false } => "Classic, no flushes",
            Kind::Classic { journal: true, metadata: false, .. } => "Classic, no metadata",
            Kind::Classic { journal: false, metadata: true, flushes: true } => "no journal",
            Kind::Classic { journal: false, metadata: true, flushes: false } => "no journal, no flushes",
            Kind::Classic { journal: false, metadata: false, .. } => "no journal, no metadata",
        }
    }
}

/// A machine, its disk, and how much lies on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The processor and its persistent memory, by the name of their costs.
    pub platform: &'static str,
    /// The disk.
    pub disk: Make,
    /// How many times the cache, and the disk's own, are smaller than the paper's.
    pub smaller: u32,
    /// Blocks that users read and write.
    pub blocks: u64,
    /// Blocks of the journal, if there is one.
    pub journal_blocks: u64,
    /// What its writes leave of a block.
    pub(crate) replaced: Replaced,
}

impl Setup {
    /// Blocks of the cache.
    pub(super) fn cache_blocks(&self) -> u32 {
        /// 8 GiB of them.
        const PUBLISHED: u32 = 2 << 20;
        PUBLISHED / self.smaller
    }

    /// Blocks that may wait for the disk in the caches that have one number for it.
    pub(super) fn limits(&self) -> Limits {
        Caps::default().limits(self.cache_blocks(), 4096)
    }
}

/// What runs beside the users.
type BackgroundThread = Box<dyn FnOnce()>;

/// A little of what goes on beside users, outside of time. False if there is nothing to do.
type Step = Box<dyn Fn() -> anyhow::Result<bool>>;

/// A stack that is ready.
pub struct Testbed {
    pub(super) stack: Arc<dyn Stack>,
    pub(super) disk: Arc<SlowDisk>,
    beside: Vec<BackgroundThread>,
    step: Step,
    over: Arc<AtomicBool>,
    profile: Profile,
}

/// A stack, what runs beside it, and a step of that.
type StackAndThreads = (Arc<dyn Stack>, Vec<BackgroundThread>, Step);

/// A stack whose threads do its own steps.
fn in_steps(stack: Arc<dyn Stack>, beside: Vec<BackgroundThread>) -> StackAndThreads {
    let of_step = stack.clone();
    (stack, beside, Box::new(move || of_step.step()))
}

/// The blocks of the disk below `kind`.
fn disk_blocks(kind: Kind, setup: &Setup) -> u64 {
    match kind {
        Kind::Classic { .. } => setup.blocks + setup.journal_blocks,
        Kind::Ubj | Kind::Tinca | Kind::Tidegate { .. } => setup.blocks,
    }
}

type Memory = TimedRegion<MappedRegion>;

impl Testbed {
    /// Builds `kind` on `setup`.
    pub fn of(kind: Kind, setup: &Setup) -> anyhow::Result<Testbed> {
        let profile = Profile::by_name(setup.platform)?;
        let over = Arc::<AtomicBool>::default();
        let memory = |bytes: u64| -> anyhow::Result<Memory> {
            let region = MappedRegion::anonymous(bytes).context("memory for a virtual platform")?;
            Ok(TimedRegion::persistent(region, &profile))
        };
        let disk = Arc::new(SlowDisk::new(setup.disk, disk_blocks(kind, setup), setup.smaller)?);
        let blocks = setup.cache_blocks();
        let (stack, beside, step) = match kind {
            Kind::Classic { journal, metadata, flushes } => {
                let region = memory(FlashCache::<Memory>::bytes_for(blocks))?;
                let ablations = Ablations { metadata: !metadata, flushes: !flushes };
                let cache = FlashCache::new(region, disk.clone(), blocks, ablations);
                if journal { with_journal(cache, setup, &over) } else { without_journal(cache, &over) }
            }
            Kind::Ubj => ubj(memory(Ubj::<Memory>::bytes_for(blocks))?, disk.clone(), setup, &over),
            Kind::Tinca => tinca(memory(Tinca::<Memory>::bytes_for(blocks))?, disk.clone(), setup, &over)?,
            Kind::Tidegate { reads } => {
                let plan = CachePlan::cut(blocks, 4096, setup.blocks, RING);
                tidegate(memory(plan.end())?, disk.clone(), reads, setup, &over)?
            }
        };
        Ok(Testbed { stack, disk, beside, step, over, profile })
    }

    /// Has `act` fill the stack before time is told. Nothing goes on beside it, so the stack ends
    /// as one whose disk does not keep up: all dirty. One whose disk does keep up cleans what is
    /// too much while the users warm it up.
    pub(super) fn warm(
        &self,
        rounds: u32,
        mut act: impl FnMut(&dyn Stack) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        (0..rounds).try_for_each(|_| act(&*self.stack))
    }

    /// Has the disk take, outside of time, what is more dirty than the stack lets be.
    pub(super) fn settle(&self) -> anyhow::Result<()> {
        while (self.step)()? {}
        Ok(())
    }

    /// This stack without its background threads.
    pub(super) fn alone(self) -> Testbed {
        Testbed { beside: Vec::new(), ..self }
    }

    /// Lets `users` work on the cores of the platform, beside what the stack does by itself. `work`
    /// is called once by each, with its number.
    pub(super) fn run(self, users: u32, work: impl Fn(u32, &dyn Stack) + Clone + 'static) -> anyhow::Result<()> {
        if !cfg!(virtual_cores) {
            bail!("this program was built without virtual cores");
        }
        let (cores, costs) = (self.profile.cores, self.profile.processor.of_cores());
        let mut machine = Machine::new(Plan { costs, ..Plan::new(1, cores, Order::Timed) });
        let working = Arc::new(std::sync::atomic::AtomicU32::new(users));
        for user in 0..users {
            let (work, stack, working, over) = (work.clone(), self.stack.clone(), working.clone(), self.over.clone());
            machine.spawn(user % cores, move || {
                work(user, &*stack);
                if working.fetch_sub(1, Ordering::Relaxed) == 1 {
                    over.store(true, Ordering::Relaxed);
                }
            });
        }
        for (nth, beside) in (0..).zip(self.beside) {
            machine.spawn((users + nth) % cores, beside);
        }
        match machine.run().how {
            How::Finished => Ok(()),
            How::Panicked(_, panic) => std::panic::resume_unwind(panic),
            other => bail!("the virtual cores ended otherwise than expected: {other:?}"),
        }
    }
}

fn with_journal(cache: FlashCache<Memory>, setup: &Setup, over: &Arc<AtomicBool>) -> StackAndThreads {
    let journal = Arc::new(Journal::new(cache, setup.blocks, setup.journal_blocks));
    let cleaner = |_| {
        let journal = journal.clone();
        over_and_over(over, move || journal.cache().clean_step())
    };
    let of_thread = journal.clone();
    let checkpoints = over_and_over(over, move || of_thread.checkpoint_step());
    let beside = (0..CLEANERS).map(cleaner).chain([checkpoints]).collect();
    in_steps(journal, beside)
}

fn without_journal(cache: FlashCache<Memory>, over: &Arc<AtomicBool>) -> StackAndThreads {
    let cache = Arc::new(cache);
    let cleaner = |_| {
        let cache = cache.clone();
        over_and_over(over, move || cache.clean_step())
    };
    let beside = (0..CLEANERS).map(cleaner).collect();
    in_steps(cache, beside)
}

fn ubj(region: Memory, disk: Arc<SlowDisk>, setup: &Setup, over: &Arc<AtomicBool>) -> StackAndThreads {
    let (blocks, dirty_max) = (setup.cache_blocks(), setup.limits().dirty_blocks);
    let ubj = Arc::new(Ubj::new(region, disk, blocks, dirty_max, setup.replaced));
    let of_thread = ubj.clone();
    let beside = over_and_over(over, move || of_thread.checkpoint_step());
    in_steps(ubj, vec![beside])
}

fn tinca(
    region: Memory,
    disk: Arc<SlowDisk>,
    setup: &Setup,
    over: &Arc<AtomicBool>,
) -> anyhow::Result<StackAndThreads> {
    let limits = tinca::Limits { dirty: setup.limits().dirty_blocks, together: setup.journal_blocks / 4 };
    let tinca = Arc::new(Tinca::open(region, disk, setup.cache_blocks(), limits, Reads::Forgotten)?);
    let of_thread = tinca.clone();
    let beside = over_and_over(over, move || of_thread.clean_step());
    Ok(in_steps(tinca, vec![beside]))
}

fn tidegate(
    region: Memory,
    disk: Arc<SlowDisk>,
    reads: Reads,
    setup: &Setup,
    over: &Arc<AtomicBool>,
) -> anyhow::Result<StackAndThreads> {
    let spec =
        FormatSpec { block_size: 4096, disk_blocks: setup.blocks, ring_slots: RING, uuid: [7; 16], disk: [7; 32] };
    format(&region, &spec, Contents::Zeroed)?;
    let cache = Arc::new(DiskCache::open(region, disk, Options { reads, ..Options::default() })?);
    let (of_thread, ending, limits) = (cache.clone(), over.clone(), setup.limits());
    let beside: BackgroundThread = Box::new(move || destage(&of_thread, limits, &ending));
    let of_step = cache.clone();
    let step: Step = Box::new(move || Ok(destage_above(&of_step, limits.dirty_blocks)));
    Ok((cache, vec![beside], step))
}

/// Steps until the users are done, with a pause when there is nothing to do.
fn over_and_over(
    over: &Arc<AtomicBool>,
    step: impl Fn() -> tidegate_media::Result<bool> + 'static,
) -> BackgroundThread {
    let over = over.clone();
    Box::new(move || {
        while !over.load(Ordering::Relaxed) {
            if !step().expect("the disk works") {
                pass_time(LOOK_NS);
            }
        }
    })
}

/// Destages at the pace of the program's own thread.
fn destage<R: Region>(cache: &DiskCache<R>, limits: Limits, over: &AtomicBool) {
    let mut destage = Destage::new(limits);
    while !over.load(Ordering::Relaxed) {
        let dirty = u32::try_from(cache.dirty_blocks()).expect("blocks of a small cache");
        let load = Load { dirty, writes: cache.counters().commits };
        let begin = now_ns();
        match destage.next(Duration::from_nanos(begin), load) {
            Turn::Destage(blocks, along) => {
                let cleaned = cache.destage_step_in(blocks, along).cleaned;
                destage.measured(cleaned, Duration::from_nanos(now_ns() - begin));
            }
            Turn::Wait(time) => pass_time(u64::try_from(time.as_nanos()).expect("a short wait")),
            Turn::Park => pass_time(LOOK_NS),
        }
    }
}
