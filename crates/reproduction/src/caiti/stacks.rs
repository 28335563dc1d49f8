//! The ways to write a block that the experiments compare, each ready to be used: the device, and
//! the thread beside it.

use super::load::{self, Load, Times};
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tidegate_background::{DrainPool, Setup};
use tidegate_baselines::barrier::FlushBarrier;
use tidegate_baselines::cow::{CowFiles, Shape};
use tidegate_baselines::dax::DaxFile;
use tidegate_baselines::raw::RawPmem;
use tidegate_baselines::staging::{Buffers, Coa, Lru, Pmbd, Pmbd70, Rule};
use tidegate_measure::medium::{self, OVERHEAD_BYTES};
use tidegate_media::{BlockDevice, MappedRegion};
use tidegate_write_cache::{Options, WriteCache, bytes_for};

/// What the program allows for draining everything.
pub(super) const DRAIN_WITHIN: Duration = Duration::from_micros(700);

/// How long the thread beside a staging cache sleeps when it finds nothing to do.
const BESIDE_PAUSE: Duration = Duration::from_micros(100);

/// A way to write a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Kind {
    /// The memory itself behind a block driver: no atomic blocks.
    Pmem,
    /// A file of a file system that reaches the memory directly, as Ext4-DAX does: no atomic
    /// blocks.
    Dax,
    /// A copy-on-write file system.
    Nova,
    /// The block translation table alone.
    Btt,
    /// Staging, everything flushed when full.
    Pmbd,
    /// Staging, everything flushed at 70 % by a syncer.
    #[value(name = "pmbd-70")]
    Pmbd70,
    /// Staging, the block used longest ago evicted when full.
    Lru,
    /// Staging, cold blocks evicted when idle.
    Coa,
    /// Transit as published: eager eviction, bypass when full.
    Caiti,
    /// Transit without eager eviction.
    CaitiLazy,
    /// Transit without bypass.
    CaitiStrict,
    /// Transit as Tidegate does it: what waits is bounded by the time to drain it.
    Tidegate,
}

impl Kind {
    /// Every kind, uncached ones first.
    pub const ALL: [Kind; 12] = [
        Kind::Pmem,
        Kind::Dax,
        Kind::Nova,
        Kind::Btt,
        Kind::Pmbd,
        Kind::Pmbd70,
        Kind::Lru,
        Kind::Coa,
        Kind::Caiti,
        Kind::CaitiLazy,
        Kind::CaitiStrict,
        Kind::Tidegate,
    ];

    /// Those that a file system lies on. DAX and NOVA stand for file systems: programs reach them
    /// past the block layer and the page cache, which no export of blocks gives.
    pub fn block_devices() -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Dax | Kind::Nova))
    }

    /// Those that stage.
    pub const STAGING: [Kind; 4] = [Kind::Pmbd, Kind::Pmbd70, Kind::Lru, Kind::Coa];

    /// As the figures call it.
    pub fn label(self) -> &'static str {
        match self {
            Kind::Pmem => "PMem",
            Kind::Dax => "DAX",
            Kind::Nova => "NOVA",
            Kind::Btt => "BTT",
            Kind::Pmbd => "PMBD",
            Kind::Pmbd70 => "PMBD-70",
            Kind::Lru => "LRU",
            Kind::Coa => "COA",
            Kind::Caiti => "Caiti",
            Kind::CaitiLazy => "Caiti w/o EE",
            Kind::CaitiStrict => "Caiti w/o BP",
            Kind::Tidegate => "Tidegate",
        }
    }

    /// Sets it up over a fresh medium with room for `bytes`, slowed to `profile`, with a cache of
    /// `cache_bytes` if it has one.
    pub fn stack(self, profile: &str, bytes: u64, cache_bytes: u64) -> anyhow::Result<Stack> {
        let slots = u32::try_from(cache_bytes / 4096).context("a cache of less than 16 TiB")?;
        match self {
            Kind::Pmem => {
                let region = medium::slow_region(profile, bytes + OVERHEAD_BYTES)?;
                return Ok(Stack::uncached(Arc::new(RawPmem::new(region, 4096)?)));
            }
            Kind::Dax => {
                let region = medium::slow_region(profile, bytes + OVERHEAD_BYTES)?;
                let file = Arc::new(DaxFile::new(region, 4096)?);
                return Ok(Stack { is_dax: true, ..Stack::uncached(file) });
            }
            Kind::Nova => {
                let region = medium::slow_region(profile, bytes + bytes / 8 + OVERHEAD_BYTES)?;
                return Ok(Stack::uncached(Arc::new(CowFiles::new(region, bytes / 4096, Shape::NOVA)?)));
            }
            _ => {}
        }
        let btt: Arc<dyn BlockDevice> = Arc::new(medium::slow_btt_of(profile, bytes)?);
        match self {
            Kind::Pmem | Kind::Dax | Kind::Nova | Kind::Btt => Ok(Stack::uncached(btt)),
            Kind::Pmbd => staging::<Pmbd>(btt, slots),
            Kind::Pmbd70 => staging::<Pmbd70>(btt, slots),
            Kind::Lru => staging::<Lru>(btt, slots),
            Kind::Coa => staging::<Coa>(btt, slots),
            Kind::Caiti => published(btt, Options::new([1; 16], slots)),
            Kind::CaitiLazy => published(btt, Options { eager: false, ..Options::new([1; 16], slots) }),
            Kind::CaitiStrict => published(btt, Options { bypass: false, ..Options::new([1; 16], slots) }),
            Kind::Tidegate => transit(btt, Options::new([1; 16], slots), DRAIN_WITHIN, BehindAFlush::GoOn),
        }
    }
}

/// What becomes of writes that come while the device is flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BehindAFlush {
    /// They wait until it ends.
    Wait,
    /// They are served beside it.
    GoOn,
}

/// A device that is ready, with all that runs beside it.
pub struct Stack {
    /// What is written to.
    pub device: Arc<dyn BlockDevice>,
    /// Whether its writers pass no block layer.
    is_dax: bool,
    _steps: Option<Steps>,
    _pool: Option<DrainPool>,
}

impl Stack {
    fn uncached(device: Arc<dyn BlockDevice>) -> Stack {
        Stack { device, is_dax: false, _steps: None, _pool: None }
    }

    /// Puts `load` on it.
    pub fn run(&self, load: &Load) -> tidegate_media::Result<Times> {
        let load = if self.is_dax { load.past_the_block_layer() } else { *load };
        load::run(&*self.device, &load)
    }
}

fn staging<P: Rule + 'static>(below: Arc<dyn BlockDevice>, slots: u32) -> anyhow::Result<Stack> {
    let memory = Arc::new(MappedRegion::anonymous(u64::from(slots) * 4096)?);
    let cache = Arc::new(Buffers::<P>::over(memory, below, slots)?);
    let steps = Steps::start(cache.clone())?;
    Ok(Stack { _steps: Some(steps), ..Stack::uncached(FlushBarrier::before(cache, None)) })
}

/// Transit with the published rules.
fn published(below: Arc<dyn BlockDevice>, options: Options) -> anyhow::Result<Stack> {
    transit(below, options, Duration::MAX, BehindAFlush::Wait)
}

fn transit(
    below: Arc<dyn BlockDevice>,
    options: Options,
    drain_within: Duration,
    behind_a_flush: BehindAFlush,
) -> anyhow::Result<Stack> {
    let region: MappedRegion = medium::region(bytes_for(options.slots, 4096))?;
    let cache = Arc::new(WriteCache::create(region, below, options)?);
    let pool = DrainPool::start(&cache, Setup { threads: 1, drain_within }).context("draining threads")?;
    let device: Arc<dyn BlockDevice> = match behind_a_flush {
        BehindAFlush::Wait => FlushBarrier::before(cache, None),
        BehindAFlush::GoOn => cache,
    };
    Ok(Stack { _pool: Some(pool), ..Stack::uncached(device) })
}

/// The thread beside a staging cache.
struct Steps {
    ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Steps {
    fn start<P: Rule + 'static>(cache: Arc<Buffers<P>>) -> anyhow::Result<Steps> {
        let ending = Arc::new(AtomicBool::new(false));
        let of_thread = ending.clone();
        let run = move || {
            while !of_thread.load(Ordering::Acquire) {
                match cache.background_step() {
                    Ok(true) => std::hint::spin_loop(),
                    Ok(false) => thread::park_timeout(BESIDE_PAUSE),
                    // The writers meet the same device and report it.
                    Err(_) => break,
                }
            }
        };
        let thread = thread::Builder::new().name("beside-staging".to_owned()).spawn(run)?;
        Ok(Steps { ending, thread: Some(thread) })
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A thread that panicked said so.
            let _ = thread.join();
        }
    }
}
