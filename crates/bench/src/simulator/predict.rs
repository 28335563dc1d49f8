//! A workload in virtual time: the engines as they are, on virtual cores, over memory that costs
//! what a profile says.
//!
//! Meant for a build with `--cfg virtual_cores`: in any other the engines' locks are the system's,
//! which know no virtual time.

use super::writes::{SLOTS, Workload, drain};
use anyhow::{Context, bail};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidegate_btt::{Btt, OpenOptions};
use tidegate_disk_cache::DiskCache;
use tidegate_measure::disk_caches::whole_disk_cached;
use tidegate_measure::medium::{self, OVERHEAD_BYTES, WALK_BYTES};
use tidegate_measure::subject::Block;
use tidegate_measure::workload::Leg;
use tidegate_media::sync::{AtomicU64, Ordering};
use tidegate_media::{BlockDevice, Durability, Lba, MappedRegion};
use tidegate_sim::Rng;
use tidegate_sim::cost::{Profile, TimedRegion};
use tidegate_virtual_cores::{How, Machine, Order, Plan, now_ns, pass_time};
use tidegate_write_cache::{Options, WriteCache, bytes_for};

/// Linux lets a sleeper that is no real-time thread sleep so much longer, to wake several at once
/// (`PR_SET_TIMERSLACK`).
const TIMER_SLACK: Duration = Duration::from_micros(50);

type Memory = TimedRegion<MappedRegion>;

/// What the threads of a run share.
struct Run {
    device: Arc<dyn BlockDevice>,
    /// Blocks of each write.
    blocks: u32,
    walk: Vec<u64>,
    next_leg: AtomicU64,
    /// Writers that still write.
    writing: AtomicU64,
    /// Writes per nanosecond, of each writer that is done.
    rates: Mutex<Vec<f64>>,
}

/// So many writes, and by how many threads together.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Threads.
    pub writers: u32,
    /// Writes in all.
    pub writes: u32,
    /// Blocks of 4 KiB in each of them.
    pub blocks: u32,
}

/// Nanoseconds of virtual time for each of the writes that are `asked` for, on the platform of
/// `profile`.
pub fn predict(profile: &Profile, workload: Workload, asked: Asked) -> anyhow::Result<f64> {
    if !cfg!(virtual_cores) {
        bail!("this program was built without virtual cores");
    }
    let Asked { writers, writes, blocks } = asked;
    let (device, cache): (Arc<dyn BlockDevice>, _) = match workload {
        Workload::DiskCache => (Arc::new(disk_cache(profile)?), None),
        Workload::Btt => (table(profile)?, None),
        Workload::Cache => {
            let cache = cache_over(table(profile)?, profile)?;
            (cache.clone(), Some(cache))
        }
    };
    let places = device.geometry().blocks.checked_sub(u64::from(blocks) - 1).context("a write is that large")?;
    let mut rng = Rng::new(1);
    let run = Arc::new(Run {
        device,
        blocks,
        walk: (0..writes).map(|_| rng.below(places)).collect(),
        next_leg: AtomicU64::new(0),
        writing: AtomicU64::new(writers.into()),
        rates: Mutex::default(),
    });
    let costs = profile.processor.of_cores();
    let mut machine = Machine::new(Plan { costs, ..Plan::new(1, profile.cores, Order::Timed) });
    for writer in 0..writers {
        let run = run.clone();
        machine.spawn(writer % profile.cores, move || run.write());
    }
    if let Some(cache) = cache {
        let run = run.clone();
        let over = move || run.writing.load(Ordering::Acquire) == 0;
        machine.spawn(writers % profile.cores, move || drain(&*cache, over, rest));
    }
    match machine.run().how {
        How::Finished => {}
        How::Panicked(_, panic) => std::panic::resume_unwind(panic),
        other => bail!("the virtual cores ended otherwise than expected: {other:?}"),
    }
    let rates = run.rates.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(1.0 / rates.iter().sum::<f64>())
}

fn table(profile: &Profile) -> anyhow::Result<Arc<Btt<Memory>>> {
    let memory = TimedRegion::persistent(medium::btt()?.into_region(), profile);
    Ok(Arc::new(Btt::open(memory, &OpenOptions::default())?))
}

/// A cache of all blocks of a disk that is not there, each of them written before time is told.
fn disk_cache(profile: &Profile) -> anyhow::Result<DiskCache<Memory>> {
    let memory = TimedRegion::persistent(medium::region(WALK_BYTES + 2 * OVERHEAD_BYTES)?, profile);
    let (cache, _) = whole_disk_cached(memory)?;
    let block = Block::filled(0);
    (0..cache.geometry().blocks).try_for_each(|lba| cache.write(Lba(lba), block.bytes(), Durability::Fua))?;
    Ok(cache)
}

fn cache_over(btt: Arc<Btt<Memory>>, profile: &Profile) -> anyhow::Result<Arc<WriteCache<Memory>>> {
    let slots = MappedRegion::anonymous(bytes_for(SLOTS, btt.geometry().block_size)).context("slots")?;
    let slots = TimedRegion::dram(slots, profile);
    Ok(Arc::new(WriteCache::create(slots, btt, Options::new([1; 16], SLOTS))?))
}

fn rest(time: Duration) {
    let time = time + TIMER_SLACK;
    pass_time(u64::try_from(time.as_nanos()).expect("sleeps are short"));
}

impl Run {
    fn write(&self) {
        let data = Block::filled(1).bytes().repeat(self.blocks as usize);
        let (begin, mut writes) = (now_ns(), 0);
        while let Some(leg) = Leg::take(&self.next_leg, self.walk.len()) {
            for lba in &self.walk[leg.clone()] {
                self.device.write(Lba(*lba), &data, Durability::Volatile).expect("the device writes");
            }
            writes += leg.len();
        }
        let rate = writes as f64 / (now_ns() - begin) as f64;
        self.rates.lock().unwrap_or_else(PoisonError::into_inner).push(rate);
        self.writing.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, not(virtual_cores)))]
mod tests {
    use super::*;

    #[test]
    fn without_virtual_cores_nothing_is_predicted() {
        let profile = Profile::by_name(tidegate_sim::cost::REFERENCE).unwrap();
        assert!(
            predict(&profile, Workload::Btt, Asked { writers: 1, writes: 10, blocks: 1 })
                .unwrap_err()
                .to_string()
                .contains("without virtual cores")
        );
    }
}
