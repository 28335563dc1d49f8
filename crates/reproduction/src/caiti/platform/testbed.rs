//! The ways to write a block, on virtual cores: the engines and rivals as they are, over memories
//! that take the platform's time.

use super::background::{BackgroundThreads, Bell, Work};
use super::watch::{BelowCache, OfSlots, Watch};
use crate::caiti::load::{CAITI_NS, whole};
use crate::caiti::stacks::{BehindAFlush, DRAIN_WITHIN, Kind};
use crate::kernel::path_ns;
use anyhow::Context;
use std::sync::Arc;
use std::time::Duration;
use tidegate_baselines::barrier::{FlushBarrier, FlushWaitListener};
use tidegate_baselines::cow::{CowFiles, Shape};
use tidegate_baselines::dax::DaxFile;
use tidegate_baselines::raw::RawPmem;
use tidegate_baselines::staging::{Buffers, Coa, Lru, Pmbd, Pmbd70, RoomListener, Rule};
use tidegate_btt::{Btt, Contents, FormatSpec, OpenOptions};
use tidegate_layout::btt::Version;
use tidegate_media::{BlockDevice, Durability, Lba, MappedRegion, Region, Result};
use tidegate_policy::writeback::backlog::BacklogLimit;
use tidegate_sim::cost::{Act, CoreCosts, Figure, Profile, TimedRegion, VirtualTime};
use tidegate_sim::{Intercept, Intercepted, InterceptedMemory};
use tidegate_virtual_cores::charge;
use tidegate_write_cache::{Fill, Options, WriteCache, bytes_for};

/// Bytes beside the blocks: an engine's own structures, or the log of a copy-on-write file.
pub(super) const SPARE_PARTS: u64 = 8;

/// A machine that is not here.
#[derive(Clone, Debug)]
pub struct Platform {
    /// What the figures call it.
    pub name: &'static str,
    /// What its cores and memories cost.
    pub profile: Profile,
    /// What a core's acts on persistent memory cost.
    on_memory: CoreCosts,
    /// What the system call, the file system and the block layer take before a write reaches the
    /// device, in nanoseconds.
    pub path_ns: u64,
    /// What the block translation table takes for a block beyond what its own code takes here, in
    /// nanoseconds.
    btt_extra_ns: u64,
    /// Subjects whose bars of Fig. 5a at a depth of 128 costs were fitted to.
    inputs: Vec<Kind>,
    /// Who watches what happens at the memories.
    pub(super) watch: Option<Arc<Watch>>,
}

/// The paper's raw PMem over Caiti at a depth of 128 (Fig. 5a).
const PMEM_OVER_CAITI: f64 = 2.202;

/// The paper's BTT over Caiti there.
const BTT_OVER_CAITI: f64 = 3.6;

/// What Caiti's own work, and BTT's beyond raw PMem's, take here, by the figures with one fitted
/// number.
const CAITI_HERE_NS: u64 = 88;
const BTT_OVER_PMEM_HERE_NS: u64 = 280;

impl Platform {
    /// The paper's machine by what the literature says of its parts, fitted to nothing.
    pub fn told() -> anyhow::Result<Platform> {
        let profile = Profile::by_name("xeon-optane")?;
        Ok(Platform {
            name: "told",
            on_memory: profile.processor.clone(),
            profile,
            path_ns: path_ns(),
            btt_extra_ns: 0,
            inputs: Vec::new(),
            watch: None,
        })
    }

    /// The paper's machine, whose cores stream to its Optane no faster than the paper's own bar of
    /// raw PMem lets them: one number is fitted, to one bar, and every other bar follows.
    pub fn fitted() -> anyhow::Result<Platform> {
        Ok(Platform { name: "fitted", ..Platform::told()? }.streaming())
    }

    /// The [fitted](Platform::fitted) machine, fitted to Caiti's own bar too: what is left of its
    /// 4.41 µs after its work is the software's, on the way in and out.
    pub fn fitted_to_caiti() -> anyhow::Result<Platform> {
        let told = Platform::told()?;
        let inputs = vec![Kind::Caiti];
        Ok(Platform { name: "fitted twice", path_ns: whole(CAITI_NS) - CAITI_HERE_NS, inputs, ..told }.streaming())
    }

    /// The machine [fitted to Caiti](Platform::fitted_to_caiti), fitted to the bar of BTT too.
    /// Linux's driver has the memory flushed four times for a block, by system-wide flush hints
    /// (`nvdimm_flush` in `nsio_rw_bytes`: data, two halves of the log entry, map); ours fences
    /// twice.
    pub fn fitted_to_btt() -> anyhow::Result<Platform> {
        let btt_extra_ns = whole(CAITI_NS * (BTT_OVER_CAITI - PMEM_OVER_CAITI)) - BTT_OVER_PMEM_HERE_NS;
        let mut platform = Platform { name: "fitted three times", btt_extra_ns, ..Platform::fitted_to_caiti()? };
        platform.inputs.push(Kind::Btt);
        Ok(platform)
    }

    /// The machine [fitted to BTT](Platform::fitted_to_btt) with one core, which everybody shares.
    pub fn fitted_on_one_core() -> anyhow::Result<Platform> {
        Ok(Platform { name: "one core", inputs: Vec::new(), ..Platform::fitted_to_btt()? }.with_cores(1))
    }

    /// Whether the bar of `kind` in Fig. 5a at a depth of 128 is an input here, and shows nothing.
    pub(super) fn is_fitted_to(&self, kind: Kind) -> bool {
        self.inputs.contains(&kind)
    }

    /// This machine with so many cores.
    #[must_use]
    pub fn with_cores(&self, cores: u32) -> Platform {
        let mut platform = self.clone();
        platform.profile.cores = cores;
        platform
    }

    /// Lines reach the memory as slowly as the paper's bar of raw PMem tells, less the path: those
    /// that are streamed, and those that are written back.
    fn streaming(mut self) -> Platform {
        let block_ns = CAITI_NS * PMEM_OVER_CAITI - self.path_ns as f64;
        let arrival_ns = self.profile.memory.arrival.ps as f64 / 1000.0;
        let ps = whole((block_ns - arrival_ns) / 64.0 * 1000.0);
        for act in [Act::StreamLine, Act::FlushLine] {
            self.on_memory.figures[act as usize] =
                Figure { ps, source: "fitted: Caiti's Fig. 5a, raw PMem at a depth of 128".into() };
        }
        self.inputs.push(Kind::Pmem);
        self
    }

    /// This machine under the eyes of `watch`.
    #[must_use]
    pub fn watched(self, watch: Arc<Watch>) -> Platform {
        Platform { watch: Some(watch), ..self }
    }

    /// This machine with no time before a write reaches the device.
    #[must_use]
    pub fn without_path(self) -> Platform {
        Platform { path_ns: 0, ..self }
    }

    pub(super) fn persistent(&self, bytes: u64) -> anyhow::Result<Arc<dyn Region>> {
        let region = MappedRegion::anonymous(bytes).context("memory for a virtual platform")?;
        Ok(Arc::new(TimedRegion::new(region, self.on_memory.clone(), self.profile.memory.clone(), VirtualTime)))
    }

    fn dram(&self, bytes: u64) -> anyhow::Result<Arc<dyn Region>> {
        let region = MappedRegion::anonymous(bytes).context("memory for a virtual platform")?;
        let memory = Arc::new(TimedRegion::dram(region, &self.profile));
        Ok(match self.watch.clone() {
            Some(watch) => Arc::new(InterceptedMemory { memory, by: OfSlots(watch) }),
            None => memory,
        })
    }

    fn btt(&self, bytes: u64) -> anyhow::Result<Arc<dyn BlockDevice>> {
        let region = self.persistent(bytes + bytes / SPARE_PARTS)?;
        let spec = FormatSpec { version: Version::V2_0, sector_size: 4096, uuid: [7; 16], parent_uuid: [0; 16] };
        tidegate_btt::format(&region, &spec, Contents::Zeroed)?;
        let btt = Btt::open(region, &OpenOptions::default())?;
        let device: Arc<dyn BlockDevice> = match self.btt_extra_ns {
            0 => Arc::new(btt),
            ns => Arc::new(Intercepted { device: Arc::new(btt), by: Slower(ns) }),
        };
        Ok(match self.watch.clone() {
            Some(watch) => Arc::new(Intercepted { device, by: BelowCache(watch) }),
            None => device,
        })
    }

    /// `cache`, whose writers wait for its flushes.
    fn behind_flushes(&self, cache: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        let told = self.watch.clone().map(|watch| -> FlushWaitListener { Arc::new(move |held| watch.held(held)) });
        FlushBarrier::before(cache, told)
    }

    /// Cores on which nobody writes while `jobs` jobs do, and the journal has one.
    fn idle_cores(&self, jobs: u32) -> u32 {
        self.profile.cores.saturating_sub(jobs + 1)
    }
}

/// What transit is made of: the published one, and what was tried to make it better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransitCache {
    /// Blocks leave as soon as they are there.
    pub eager: bool,
    /// Writes go past a full cache.
    pub bypass: bool,
    /// How slots are filled.
    pub fill: Fill,
    /// What waits is drained within this time: with less room, writes go past the cache earlier,
    /// and the slots in use stay warm.
    pub drain_within: Duration,
    /// Threads that drain look for work without a pause, instead of sleeping until a writer wakes
    /// them.
    pub watching: bool,
    /// Threads that drain.
    pub drainers: Drainers,
    /// What a flush does to the writes that come behind it.
    pub behind_a_flush: BehindAFlush,
}

/// How many threads drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drainers {
    /// So many, whatever else runs. The paper does not say how many its pool has; with 8 one writer
    /// never waits.
    Fixed(u32),
    /// One for each core that nobody else uses, up to [`DRAINERS_MAX`]: one that shares a core may
    /// be off it while it holds a set.
    OnIdleCores,
}

/// Threads that drain, at most.
pub const DRAINERS_MAX: u32 = 16;

impl TransitCache {
    /// As published.
    pub const PUBLISHED: TransitCache = TransitCache {
        eager: true,
        bypass: true,
        fill: Fill::Copy,
        drain_within: Duration::MAX,
        watching: false,
        drainers: Drainers::Fixed(8),
        behind_a_flush: BehindAFlush::Wait,
    };
    /// As Tidegate does it.
    pub const TIDEGATE: TransitCache = TransitCache {
        drain_within: DRAIN_WITHIN,
        drainers: Drainers::OnIdleCores,
        behind_a_flush: BehindAFlush::GoOn,
        ..TransitCache::PUBLISHED
    };
}

/// How much room a testbed has, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Bytes of the cache, if there is one.
    pub cache_bytes: u64,
    /// Writers at once.
    pub jobs: u32,
}

impl Room {
    /// A file for each job, as fio makes them, and logs that grow in steps as much smaller than
    /// NOVA's as the blocks are than the paper's.
    pub(super) fn shape(&self) -> Shape {
        const PAPER_BYTES: u64 = 64 << 30;
        let extend_pages = (Shape::NOVA.extend_pages as u64 * self.bytes / PAPER_BYTES).max(1);
        Shape { files: self.jobs.into(), extend_pages: usize::try_from(extend_pages).expect("256 at most") }
    }

    fn slots(&self) -> anyhow::Result<u32> {
        u32::try_from(self.cache_bytes / 4096).context("a cache of less than 16 TiB")
    }
}

/// A device that is ready, with what is to run beside it.
pub struct Testbed {
    /// What is written to.
    pub device: Arc<dyn BlockDevice>,
    /// Whether its writers pass no block layer.
    pub(super) is_dax: bool,
    /// Those beside it.
    pub(super) threads: Arc<BackgroundThreads>,
    /// What they do.
    pub(super) beside: Vec<Work>,
}

impl Testbed {
    /// `kind` with so much room.
    pub fn of(kind: Kind, platform: &Platform, room: Room) -> anyhow::Result<Testbed> {
        let bytes = room.bytes;
        match kind {
            Kind::Pmem => Ok(Testbed::uncached(Arc::new(RawPmem::new(platform.persistent(bytes)?, 4096)?))),
            Kind::Dax => {
                let file = Arc::new(DaxFile::new(platform.persistent(bytes)?, 4096)?);
                Ok(Testbed { is_dax: true, ..Testbed::uncached(file) })
            }
            Kind::Nova => Testbed::copy_on_write(platform, room, room.shape()),
            Kind::Btt => Ok(Testbed::uncached(platform.btt(bytes)?)),
            Kind::Pmbd => staging::<Pmbd>(platform, room),
            Kind::Pmbd70 => staging::<Pmbd70>(platform, room),
            Kind::Lru => staging::<Lru>(platform, room),
            Kind::Coa => staging::<Coa>(platform, room),
            Kind::Caiti => Testbed::transit(platform, room, TransitCache::PUBLISHED),
            Kind::CaitiLazy => {
                Testbed::transit(platform, room, TransitCache { eager: false, ..TransitCache::PUBLISHED })
            }
            Kind::CaitiStrict => {
                Testbed::transit(platform, room, TransitCache { bypass: false, ..TransitCache::PUBLISHED })
            }
            Kind::Tidegate => Testbed::transit(platform, room, TransitCache::TIDEGATE),
        }
    }

    /// Files written by copying, as old as they are in the middle of a long run.
    pub(super) fn copy_on_write(platform: &Platform, room: Room, shape: Shape) -> anyhow::Result<Testbed> {
        let region = platform.persistent(room.bytes + room.bytes / SPARE_PARTS)?;
        let files = CowFiles::new(region, room.bytes / 4096, shape)?;
        files.age()?;
        Ok(Testbed::uncached(Arc::new(files)))
    }

    /// Only `device`, with nobody beside it.
    pub(super) fn uncached(device: Arc<dyn BlockDevice>) -> Testbed {
        Testbed { device, is_dax: false, threads: Arc::default(), beside: Vec::new() }
    }

    /// Transit of any make.
    pub fn transit(platform: &Platform, room: Room, transit: TransitCache) -> anyhow::Result<Testbed> {
        let (below, slots) = (platform.btt(room.bytes)?, room.slots()?);
        let region = platform.dram(bytes_for(slots, 4096))?;
        let TransitCache { eager, bypass, fill, drain_within, watching, drainers, behind_a_flush } = transit;
        let drainers = match drainers {
            Drainers::Fixed(count) => count,
            Drainers::OnIdleCores => platform.idle_cores(room.jobs).clamp(1, DRAINERS_MAX),
        };
        let options = Options { eager, bypass, fill, ..Options::new([1; 16], slots) };
        let cache = Arc::new(WriteCache::create(region, below, options)?);
        let threads =
            Arc::new(BackgroundThreads::of(drainers, platform.profile.processor.ps(Act::SystemCall, 1) / 1000));
        cache.set_doorbell(Box::new(Bell(threads.clone())));
        // All of them drain at once, and each measures its own time.
        let drain_within = drain_within.saturating_mul(drainers);
        let backlog = Arc::new(std::sync::Mutex::new(BacklogLimit::new(drain_within, slots)));
        cache.limit_slots(BacklogLimit::new(drain_within, slots).limit());
        let drainer = |index: u32| -> Work {
            let (cache, threads, backlog) = (cache.clone(), threads.clone(), backlog.clone());
            Box::new(move || threads.drain(index as usize, &cache, &backlog, watching))
        };
        let beside = (0..drainers).map(drainer).collect();
        let device: Arc<dyn BlockDevice> = match behind_a_flush {
            BehindAFlush::Wait => platform.behind_flushes(cache),
            BehindAFlush::GoOn => cache,
        };
        Ok(Testbed { device, is_dax: false, threads, beside })
    }
}

fn staging<P: Rule + 'static>(platform: &Platform, room: Room) -> anyhow::Result<Testbed> {
    let memory = platform.dram(room.cache_bytes)?;
    let mut cache = Buffers::<P>::over(memory, platform.btt(room.bytes)?, room.slots()?)?;
    if let Some(watch) = platform.watch.clone() {
        cache.tell(&(Arc::new(move |room| watch.in_want(room)) as RoomListener));
    }
    let cache = Arc::new(cache);
    let threads = Arc::new(BackgroundThreads::default());
    let (of_thread, stepped) = (threads.clone(), cache.clone());
    let step = move || stepped.background_step().expect("the device writes");
    let beside: Vec<Work> = vec![Box::new(move || of_thread.step_until_over(step))];
    Ok(Testbed { threads, beside, ..Testbed::uncached(platform.behind_flushes(cache)) })
}

/// Every write takes longer by so many nanoseconds a block.
struct Slower(u64);

impl Intercept for Slower {
    fn write<D: BlockDevice + ?Sized>(&self, device: &D, at: Lba, data: &[u8], durability: Durability) -> Result<()> {
        charge(self.0 * (data.len() as u64 / 4096));
        device.write(at, data, durability)
    }
}
