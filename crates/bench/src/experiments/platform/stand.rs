//! The ways to write a block, on virtual cores: the engines and rivals as they are, over memories that take the platform's time.

use super::crew::{Bell, Crew, Work};
use crate::cow::CowFiles;
use crate::experiments::stacks::{DRAIN_WITHIN, Kind};
use crate::raw::RawPmem;
use crate::staging::{Coa, Lru, Pmbd, Pmbd70, Rule, Staging};
use anyhow::Context;
use std::sync::Arc;
use std::time::Duration;
use tidegate_btt::{Btt, Contents, FormatSpec, OpenOptions};
use tidegate_layout::btt::Version;
use tidegate_media::{BlockDevice, MappedRegion, Region};
use tidegate_policy::undrained::Undrained;
use tidegate_sim::cost::{Act, CoreCosts, Figure, Profile, TimedRegion, VirtualTime};
use tidegate_write_cache::{Fill, Options, WriteCache, bytes_for};

/// Bytes beside the blocks: an engine's own structures, or the log of a copy-on-write file.
const SPARE_PARTS: u64 = 8;

/// A machine that is not here.
#[derive(Clone, Debug)]
pub struct Platform {
    /// What the figures call it.
    pub name: &'static str,
    /// What its cores and memories cost.
    pub profile: Profile,
    /// What a core's acts on persistent memory cost.
    on_memory: CoreCosts,
    /// What the system call, the file system and the block layer take before a write reaches the device, in nanoseconds.
    pub path_ns: u64,
}

/// Caiti's time per request (Table 1, 512 MiB), and the part of a write's time that passes before it reaches Caiti (§ 5.2, Fig. 7).
const CAITI_NS: f64 = 4410.0;
const BEFORE_CAITI: f64 = 0.54;

/// The paper's raw PMem over Caiti at a depth of 128 (Fig. 5a).
const PMEM_OVER_CAITI: f64 = 2.202;

impl Platform {
    /// The paper's machine by what the literature says of its parts, fitted to nothing.
    pub fn told() -> anyhow::Result<Platform> {
        let profile = Profile::by_name("xeon-optane")?;
        let path_ns = whole(CAITI_NS * BEFORE_CAITI);
        Ok(Platform { name: "told", on_memory: profile.processor.clone(), profile, path_ns })
    }

    /// The same, but a core streams to its Optane no faster than the paper's own bar of raw PMem lets it: one number is fitted, to
    /// one bar, and every other bar follows.
    pub fn fitted() -> anyhow::Result<Platform> {
        let mut platform = Platform { name: "fitted", ..Platform::told()? };
        let block_ns = CAITI_NS * (PMEM_OVER_CAITI - BEFORE_CAITI);
        let arrival_ns = platform.profile.memory.arrival.ps as f64 / 1000.0;
        let ps = whole((block_ns - arrival_ns) / 64.0 * 1000.0);
        platform.on_memory.figures[Act::StreamLine as usize] =
            Figure { ps, source: "fitted: Caiti's Fig. 5a, raw PMem at a depth of 128".into() };
        Ok(platform)
    }

    /// The same with no time before a write reaches the device.
    #[must_use]
    pub fn without_path(self) -> Platform {
        Platform { path_ns: 0, ..self }
    }

    fn persistent(&self, bytes: u64) -> anyhow::Result<Arc<dyn Region>> {
        let region = MappedRegion::anonymous(bytes).context("memory for a virtual platform")?;
        Ok(Arc::new(TimedRegion::new(region, self.on_memory.clone(), self.profile.memory.clone(), VirtualTime)))
    }

    fn dram(&self, bytes: u64) -> anyhow::Result<Arc<dyn Region>> {
        let region = MappedRegion::anonymous(bytes).context("memory for a virtual platform")?;
        Ok(Arc::new(TimedRegion::dram(region, &self.profile)))
    }

    fn btt(&self, bytes: u64) -> anyhow::Result<Arc<dyn BlockDevice>> {
        let region = self.persistent(bytes + bytes / SPARE_PARTS)?;
        let spec = FormatSpec { version: Version::V2_0, sector_size: 4096, uuid: [7; 16], parent_uuid: [0; 16] };
        tidegate_btt::format(&region, &spec, Contents::Zeroed)?;
        Ok(Arc::new(Btt::open(region, &OpenOptions::default())?))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times of a few microseconds")]
fn whole(ns: f64) -> u64 {
    ns.round() as u64
}

/// What transit is made of: the published one, and what was tried to make it better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// Blocks leave as soon as they are there.
    pub eager: bool,
    /// Writes go past a full cache.
    pub bypass: bool,
    /// How slots are filled.
    pub fill: Fill,
    /// What waits is drained within this time: with less room, writes go past the cache earlier, and the slots in use stay warm.
    pub drain_within: Duration,
    /// Threads that drain look for work without a pause, instead of sleeping until a writer wakes them.
    pub watching: bool,
    /// Threads that drain.
    pub drainers: u32,
}

/// Threads that drain, unless a figure varies them: as many as keep up with a writer.
pub const DRAINERS: u32 = 8;

impl Transit {
    /// As published.
    pub const PUBLISHED: Transit = Transit {
        eager: true,
        bypass: true,
        fill: Fill::Copy,
        drain_within: Duration::MAX,
        watching: false,
        drainers: DRAINERS,
    };
    /// As Tidegate does it.
    pub const TIDEGATE: Transit = Transit { drain_within: DRAIN_WITHIN, ..Transit::PUBLISHED };
}

/// A device that is ready, with what is to run beside it.
pub struct Stand {
    /// What is written to.
    pub device: Arc<dyn BlockDevice>,
    /// Those beside it.
    pub(super) crew: Arc<Crew>,
    /// What they do.
    pub(super) beside: Vec<Work>,
}

impl Stand {
    /// `kind` with room for `bytes` and a cache of `cache_bytes` if it has one.
    pub fn of(kind: Kind, platform: &Platform, bytes: u64, cache_bytes: u64) -> anyhow::Result<Stand> {
        match kind {
            Kind::Pmem | Kind::Dax => Ok(Stand::uncached(Arc::new(RawPmem::new(platform.persistent(bytes)?, 4096)?))),
            Kind::Nova => {
                let region = platform.persistent(bytes + bytes / SPARE_PARTS)?;
                Ok(Stand::uncached(Arc::new(CowFiles::new(region, bytes / 4096)?)))
            }
            Kind::Btt => Ok(Stand::uncached(platform.btt(bytes)?)),
            Kind::Pmbd => staging::<Pmbd>(platform, bytes, cache_bytes),
            Kind::Pmbd70 => staging::<Pmbd70>(platform, bytes, cache_bytes),
            Kind::Lru => staging::<Lru>(platform, bytes, cache_bytes),
            Kind::Coa => staging::<Coa>(platform, bytes, cache_bytes),
            Kind::Caiti => Stand::transit(platform, bytes, cache_bytes, Transit::PUBLISHED),
            Kind::CaitiLazy => {
                Stand::transit(platform, bytes, cache_bytes, Transit { eager: false, ..Transit::PUBLISHED })
            }
            Kind::CaitiStrict => {
                Stand::transit(platform, bytes, cache_bytes, Transit { bypass: false, ..Transit::PUBLISHED })
            }
            Kind::Tidegate => Stand::transit(platform, bytes, cache_bytes, Transit::TIDEGATE),
        }
    }

    fn uncached(device: Arc<dyn BlockDevice>) -> Stand {
        Stand { device, crew: Arc::default(), beside: Vec::new() }
    }

    /// Transit of any make.
    pub fn transit(platform: &Platform, bytes: u64, cache_bytes: u64, transit: Transit) -> anyhow::Result<Stand> {
        let below = platform.btt(bytes)?;
        let slots = u32::try_from(cache_bytes / 4096).context("a cache of less than 16 TiB")?;
        let region = platform.dram(bytes_for(slots, 4096))?;
        let Transit { eager, bypass, fill, drain_within, watching, drainers } = transit;
        let options = Options { eager, bypass, fill, ..Options::new([1; 16], slots) };
        let cache = Arc::new(WriteCache::create(region, below, options)?);
        let crew = Arc::new(Crew::of(drainers, platform.profile.processor.ps(Act::SystemCall, 1) / 1000));
        cache.set_doorbell(Box::new(Bell(crew.clone())));
        let undrained = Arc::new(std::sync::Mutex::new(Undrained::new(drain_within, slots)));
        cache.limit_slots(Undrained::new(drain_within, slots).limit());
        let drainer = |index: u32| -> Work {
            let (cache, crew, undrained) = (cache.clone(), crew.clone(), undrained.clone());
            Box::new(move || crew.drain(index as usize, &cache, &undrained, watching))
        };
        let beside = (0..drainers).map(drainer).collect();
        Ok(Stand { device: cache, crew, beside })
    }
}

fn staging<P: Rule + 'static>(platform: &Platform, bytes: u64, cache_bytes: u64) -> anyhow::Result<Stand> {
    let slots = u32::try_from(cache_bytes / 4096).context("a cache of less than 16 TiB")?;
    let cache = Arc::new(Staging::<P>::over(platform.dram(cache_bytes)?, platform.btt(bytes)?, slots)?);
    let crew = Arc::new(Crew::default());
    let (of_thread, stepped) = (crew.clone(), cache.clone());
    let step = move || stepped.background_step().expect("the device writes");
    Ok(Stand { device: cache, crew, beside: vec![Box::new(move || of_thread.step_until_over(step))] })
}
