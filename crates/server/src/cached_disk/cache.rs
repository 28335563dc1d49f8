//! A disk behind a cache in persistent memory, as the program serves it: the engine, the thread
//! that destages it, and what there is to say about both.

use crate::cached_disk::disk::{Disk, DiskPlan};
use crate::cached_disk::refused::{Kind, RefusedBlocks};
use crate::cached_disk::state::{DiskState, Hits, NotAdmitted};
use crate::failure::{AtFault, DiskFailure, Obstacle};
use crate::stats::registry::{Metric, MetricSource, Unit};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tidegate_background::{Destager, Dirty, FirstStep, Step, SweepFailures, Throttled, Ticket};
use tidegate_disk_cache::{
    Counters, DiskCache, Guard, Journaling, Mode, Occupancy, OpenError, Options, Reads, Scrubbed, SweepScope,
    find_journal,
};
use tidegate_host::progress::Drain;
use tidegate_media::{AlignedBytes, BlockDevice, Durability, Error, FileDisk, Lba, Refusal, Region, Result};
use uuid::Uuid;

/// Blocks of a step when nobody is to be left time.
const STEP: u32 = 1024;

/// Entries that are looked at in one step of a scrub.
pub(crate) const STEP_ENTRIES: u32 = 4096;

/// Blocks in a row that are written at once.
const RUN_BLOCKS: usize = 256;

/// The cache of a served volume.
pub trait CachedDisk: MetricSource {
    /// How it is now.
    fn state(&self) -> DiskState;

    /// Treats requests by `mode` from now on.
    fn set_mode(&self, mode: Mode);

    /// The thread that writes to the disk by itself, if there is one.
    fn destager(&self) -> Option<&Destager>;

    /// Asks for everything that is dirty now to be written to the disk.
    fn flush(&self) -> Ticket;

    /// What that flush left behind; None: it is under way.
    fn flushed(&self, ticket: Ticket) -> Option<SweepFailures>;

    /// Reads what some entries from number `from` on name.
    fn scrub(&self, from: u32) -> Scrubbed;

    /// Brings everything to the disk, from this thread. What the disk refuses stays dirty, and is
    /// named.
    fn finish(&self, pmem: &Path) -> Result<(), DiskFailure>;

    /// What obstacle `left` from the disk. None: nothing was left.
    fn obstacle(&self, left: &SweepFailures) -> Option<Obstacle>;
}

/// A cache over any region.
pub struct Cached<R: Region + 'static> {
    cache: Arc<DiskCache<R>>,
    destager: Option<Arc<Destager>>,
    disk: Arc<FileDisk>,
    path: PathBuf,
    plan: DiskPlan,
    /// What does not reach the disk, of a cache that is destaged.
    refused_blocks: Option<Arc<RefusedBlocks>>,
}

impl<R: Region + 'static> Cached<R> {
    /// Opens the cache in `region` in front of `disk`; what was interrupted is finished.
    pub fn open(region: R, disk: Disk, plan: &DiskPlan) -> Result<Cached<R>, OpenError> {
        let Disk { path, device: disk } = disk;
        let identity = tidegate_disk_cache::identify(&region).ok().flatten();
        let block_bytes = identity.map_or(1, |identity| u64::from(identity.block_size));
        let options = Options {
            mode: plan.mode,
            replacement: plan.replacement,
            admit: plan.admit,
            sequential_blocks: u32::try_from(plan.sequential_bytes.div_ceil(block_bytes)).unwrap_or(u32::MAX),
            reads: plan.reads,
            journaling: plan.journaling,
            guard: if plan.guard == Guard::AsLaidOut { Guard::Always } else { plan.guard },
            ..Options::default()
        };
        let cache = Arc::new(DiskCache::open(region, Arc::clone(&disk) as _, options)?);
        if let Some(lba) = cache.changed() {
            let disk = path.display();
            tracing::warn!(
                "{disk} was changed without its region ({lba} is another): what was clean in that is dropped"
            );
        }
        if !cache.lost().is_nothing() {
            tracing::warn!(
                "the cache of {}: {}; the volume shows them as the disk has them",
                path.display(),
                cache.lost()
            );
        }
        Ok(Cached { cache, destager: None, disk, path, plan: plan.clone(), refused_blocks: None })
    }

    /// The disk.
    pub fn disk(&self) -> Disk {
        Disk { path: self.path.clone(), device: Arc::clone(&self.disk) }
    }

    /// Starts to move dirty blocks from the region `pmem` to the disk, from `first` on.
    pub fn start(self, pmem: &Path, first: FirstStep) -> io::Result<Cached<R>> {
        let refused_blocks = RefusedBlocks::of(pmem, &self.path);
        let Cached { cache, disk, path, plan, .. } = &self;
        let (cache, disk, path, plan) = (Arc::clone(cache), Arc::clone(disk), path.clone(), plan.clone());
        let its = Cached { cache: Arc::clone(&cache), destager: None, disk, path, plan, refused_blocks: None };
        let heard = Arc::clone(&refused_blocks);
        let hear = move |step: &Step| heard.hear(step, |left| its.trouble(left), || its.dirty_bytes());
        let destager = Some(Arc::new(Destager::start_heard(cache, self.plan.caps, first, hear)?));
        Ok(Cached { destager, refused_blocks: Some(refused_blocks), ..self })
    }

    /// What kind of trouble left `left` behind, and why.
    fn trouble(&self, left: &SweepFailures) -> Option<(Kind, Obstacle)> {
        let obstacle = self.obstacle(left)?;
        let refusal =
            self.disk.last_refusal().filter(|refusal| obstacle.by == AtFault::Disk && refusal.is_of_a_change());
        Some((Kind { by: obstacle.by, refused: refusal.map(|refusal| (refusal.doing, refusal.errno)) }, obstacle))
    }

    /// The volume's blocks.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        match &self.destager {
            None => Arc::clone(&self.cache) as _,
            Some(destager) => {
                Arc::new(Throttled::new(Arc::clone(&self.cache), Arc::clone(destager), std::thread::sleep))
            }
        }
    }

    /// Bytes that only the cache has.
    pub fn dirty_bytes(&self) -> u64 {
        self.cache.dirty_blocks() * self.block_bytes()
    }

    /// The blocks that the disk has too, or had.
    pub fn clean_lbas(&self) -> Vec<Lba> {
        self.cache.clean_lbas()
    }

    /// Writes the cached blocks `lbas`, ascending, to the disk, whether it has them or not.
    ///
    /// # Errors
    /// What the disk refused. Blocks that the region cannot give back are left out.
    pub fn write_out(&self, pmem: &Path, lbas: &[Lba]) -> std::result::Result<UnreadableBlocks, DiskFailure> {
        let block = usize::try_from(self.block_bytes()).expect("a block fits into memory");
        let disk_blocks_each = self.block_bytes() / u64::from(self.disk.geometry().block_size);
        let mut bytes = AlignedBytes::zeroed(RUN_BLOCKS * block);
        let mut left_out = UnreadableBlocks::default();
        let refused = |lba: Lba, error: &Error| {
            let why = format!("{} refuses {}", self.path.display(), refused(lba, 1, self.disk.last_refusal(), error));
            let obstacle = Obstacle { by: AtFault::Disk, why };
            DiskFailure::Undestaged { pmem: pmem.to_owned(), dirty_bytes: self.dirty_bytes(), obstacle }
        };
        let mut rest = lbas;
        while let [first, ..] = rest {
            let in_a_row = rest.iter().zip(first.0..).take(RUN_BLOCKS).take_while(|(lba, next)| lba.0 == *next);
            let mut filled = 0;
            let mut taken = 0;
            for (lba, _) in in_a_row {
                taken += 1;
                match self.cache.read_held(*lba, &mut bytes[filled..filled + block]) {
                    Ok(true) => filled += block,
                    Ok(false) => break,
                    Err(error) => {
                        left_out.blocks += 1;
                        left_out.first.get_or_insert_with(|| format!("{lba}: {error}"));
                        break;
                    }
                }
            }
            if filled > 0 {
                let written = self.disk.write(Lba(first.0 * disk_blocks_each), &bytes[..filled], Durability::Volatile);
                written.map_err(|error| refused(*first, &error))?;
            }
            rest = &rest[taken..];
        }
        self.disk.flush().map_err(|error| refused(Lba(0), &error))?;
        Ok(left_out)
    }

    /// Whether nothing goes to the disk past what cannot.
    fn is_in_order(&self) -> bool {
        self.plan.journaling == Journaling::AsLaidOut && self.cache.identity().journal_blocks > 0
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.cache.geometry().block_size)
    }

    /// What the memory lost, in a sentence; None: nothing.
    pub fn lost(&self) -> Option<String> {
        let lost = self.cache.lost();
        (!lost.is_nothing()).then(|| lost.to_string())
    }

    /// The first block of `left`, and why it was left.
    fn first_of(&self, left: &SweepFailures) -> Option<String> {
        // A refused read tells nothing of a write.
        let refusal = self.disk.last_refusal().filter(Refusal::is_of_a_change);
        match (left.first.first(), &left.not_durable) {
            (Some((lba, error @ Error::Corrupt(_))), _) => Some(match self.what_became_of_the_journal() {
                Some(became) => format!("the journal at the end of the disk {} {became}", self.path.display()),
                None => format!("{lba} is kept from the disk {}: {error}", self.path.display()),
            }),
            (Some((lba, error)), _) => {
                let what = refused(*lba, left.refused, refusal, error);
                Some(format!("the disk {} refuses {what}", self.path.display()))
            }
            (None, Some(error)) => Some(format!("the disk {} made nothing durable: {error}", self.path.display())),
            (None, None) => None,
        }
    }

    /// What is at fault if something was left, as `left` says.
    fn at_fault(&self, left: &SweepFailures) -> AtFault {
        match left.first.first() {
            Some((_, Error::Corrupt(_))) if !self.is_in_order() => AtFault::Damage,
            Some((_, Error::Corrupt(_))) if self.what_became_of_the_journal().is_some() => AtFault::Journal,
            Some((_, Error::Corrupt(_))) => AtFault::Order,
            _ => AtFault::Disk,
        }
    }

    /// Whose the journal at the end of an ordered disk is, if it is not this cache's.
    fn what_became_of_the_journal(&self) -> Option<String> {
        if !self.is_in_order() {
            return None;
        }
        match find_journal(&*self.disk).ok()? {
            Some(found) if found.uuid == self.cache.identity().uuid => None,
            Some(found) => Some(format!("is that of another cache, uuid {}", Uuid::from_bytes(found.uuid))),
            None => Some("is gone".to_owned()),
        }
    }

    /// Moves everything to the disk, from this thread.
    ///
    /// # Errors
    /// What the disk refused, or does not fit its checksum, stays dirty.
    pub fn drain(&self, pmem: &Path, tell: impl FnMut(&str)) -> Result<(), DiskFailure> {
        let draining = Draining { cache: &*self.cache, pmem, left: Mutex::default() };
        let Err(error) = tidegate_host::progress::drain(&draining, tell) else { return Ok(()) };
        let left = draining.left.into_inner().unwrap_or_else(PoisonError::into_inner);
        let obstacle = self.obstacle(&left).unwrap_or_else(|| Obstacle { by: AtFault::Disk, why: error.to_string() });
        Err(DiskFailure::Undestaged { pmem: pmem.to_owned(), dirty_bytes: self.dirty_bytes(), obstacle })
    }
}

/// Blocks that the region cannot give back.
#[derive(Debug, Default)]
pub struct UnreadableBlocks {
    /// How many.
    pub blocks: u64,
    /// The first of them, and why.
    pub first: Option<String>,
}

/// That the disk refused `in_all` blocks, of which `first` is the first, and why: what it said
/// last, if it is known of which of them.
fn refused(first: Lba, in_all: u64, last: Option<Refusal>, error: &Error) -> String {
    let others = if in_all > 1 { format!(" and {} others", in_all - 1) } else { String::new() };
    match last {
        Some(last) if last.errno == Errno::FBIG.raw_os_error() => {
            format!("{first}{others}: {last}; this process may not write so far: ulimit -f unlimited lifts its limit")
        }
        Some(last) if (last.range.first.0..last.range.end()).contains(&first.0) => format!("{first}{others}: {last}"),
        Some(last) => format!("{first}{others}: {error}; the last refusal: {last}"),
        None => format!("{first}{others}: {error}"),
    }
}

/// A cache that is moved to its disk as a whole.
struct Draining<'a, R: Region + 'static> {
    cache: &'a DiskCache<R>,
    pmem: &'a Path,
    /// What the sweep under way had to leave.
    left: Mutex<SweepFailures>,
}

impl<R: Region + 'static> Drain for Draining<'_, R> {
    fn bytes_left(&self) -> u64 {
        self.cache.dirty_blocks() * u64::from(self.cache.geometry().block_size)
    }

    fn finish(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        while self.cache.dirty_blocks() > 0 {
            let step = Dirty::step(self.cache, STEP, SweepScope::Everything);
            let more = step.more;
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            left.add(step);
            progress(self.bytes_left());
            if more {
                continue;
            }
            // Every dirty block was tried.
            let refused = left.first.first().map(|(_, error)| error.clone()).or_else(|| left.not_durable.clone());
            refused.map_or(Ok(()), Err)?;
            *left = SweepFailures::default();
        }
        Ok(())
    }

    fn kept_in(&self) -> &Path {
        self.pmem
    }

    fn close(&self) -> io::Result<()> {
        Ok(())
    }
}

impl<R: Region + 'static> CachedDisk for Cached<R> {
    fn state(&self) -> DiskState {
        let Occupancy { blocks, clean, dirty, .. } = self.cache.fill();
        let counters = self.cache.counters();
        let Counters { read_hits, read_misses, write_hits, write_misses, .. } = counters;
        let bytes = |blocks: u32| u64::from(blocks) * self.block_bytes();
        DiskState {
            disk: self.path.clone(),
            way: self.disk.way().to_string(),
            attached: true,
            mode: self.cache.mode().to_string(),
            replacement: self.plan.replacement.to_string(),
            admit: self.plan.admit.to_string(),
            sequential_bytes: self.plan.sequential_bytes,
            forgets_reads: self.cache.reads() == Reads::Forgotten,
            checksums: self.cache.keeps_sums(),
            past: NotAdmitted { in_runs: counters.past_in_runs, turned_away: counters.turned_away },
            dirty_bytes: bytes(dirty),
            clean_bytes: bytes(clean),
            cache_bytes: bytes(blocks),
            reads: Hits { hits: read_hits, misses: read_misses },
            writes: Hits { hits: write_hits, misses: write_misses },
            risk: None,
            trouble: self
                .destager
                .as_ref()
                .and_then(|destager| self.first_of(&destager.left()))
                .or_else(|| self.lost()),
        }
    }

    fn set_mode(&self, mode: Mode) {
        self.cache.set_mode(mode);
    }

    fn destager(&self) -> Option<&Destager> {
        self.destager.as_deref()
    }

    fn flush(&self) -> Ticket {
        self.destager.as_ref().map_or(Ticket(0), |destager| destager.flush())
    }

    fn flushed(&self, ticket: Ticket) -> Option<SweepFailures> {
        self.destager.as_ref().map_or(Some(SweepFailures::default()), |destager| destager.is_flushed(ticket))
    }

    fn scrub(&self, from: u32) -> Scrubbed {
        self.cache.scrub_step(from, STEP_ENTRIES)
    }

    fn finish(&self, pmem: &Path) -> Result<(), DiskFailure> {
        self.drain(pmem, |line| tracing::info!("{line}"))
    }

    fn obstacle(&self, left: &SweepFailures) -> Option<Obstacle> {
        let why = self.first_of(left)?;
        Some(Obstacle { by: self.at_fault(left), why })
    }
}

impl<R: Region + 'static> MetricSource for Cached<R> {
    fn metrics(&self) -> Vec<Metric> {
        let Occupancy { blocks, clean, dirty, .. } = self.cache.fill();
        let Counters {
            read_hits,
            read_misses,
            write_hits,
            write_misses,
            commits,
            joined,
            fills,
            evictions,
            destaged,
            destage_writes,
            disk_flushes,
            helps,
            past_in_runs,
            turned_away,
            damaged,
            ..
        } = self.cache.counters();
        let counter = |name, help, value| Metric::counter(name, help, Unit::Count, value);
        let gauge =
            |name, help, blocks: u32| Metric::gauge(name, help, Unit::Bytes, u64::from(blocks) * self.block_bytes());
        vec![
            counter("disk_cache_read_hits", "Blocks read that were cached", read_hits),
            counter("disk_cache_read_misses", "Blocks read from the disk", read_misses),
            counter("disk_cache_write_hits", "Blocks written that were cached before", write_hits),
            counter("disk_cache_write_misses", "Blocks written that were not", write_misses),
            counter("disk_cache_commits", "Writes put in place as a whole", commits),
            counter("disk_cache_joined", "Of those, put in place by another thread beside its own", joined),
            counter("disk_cache_fills", "Blocks taken in because they were read", fills),
            counter("disk_cache_evictions", "Clean blocks given up for others", evictions),
            counter("disk_cache_destaged_blocks", "Blocks written to the disk", destaged),
            counter("disk_cache_destage_writes", "Writes to the disk that this took", destage_writes),
            counter("disk_cache_disk_flushes", "Flushes of the disk", disk_flushes),
            counter("disk_cache_helps", "Times a writer had to wait for the disk", helps),
            counter("disk_cache_past_in_runs", "Blocks read in long runs, not taken in", past_in_runs),
            counter("disk_cache_turned_away", "Blocks read that the admission policy turned away", turned_away),
            counter("disk_cache_damaged", "Times that a block did not fit its checksum", damaged),
            gauge("disk_cache_dirty", "Bytes that only the cache has", dirty),
            gauge("disk_cache_clean", "Bytes that the disk has too", clean),
            gauge("disk_cache_size", "Bytes that the cache can hold", blocks),
            gauge("disk_cache_block", "Bytes of a cached block", 1),
            Metric::gauge(
                "disk_cache_refused_blocks",
                "Blocks that do not reach the disk, which refuses them or which they would damage",
                Unit::Count,
                self.refused_blocks.as_ref().map_or(0, |refused_blocks| refused_blocks.blocks()),
            ),
            Metric::gauge(
                "disk_cache_dirty_age",
                "For how long the oldest dirty block has been dirty at most, as far as this server knows",
                Unit::Nanoseconds,
                self.destager.as_ref().map_or(0, |destager| nanoseconds(destager.dirty_for())),
            ),
        ]
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_media::{LbaRange, Poison};

    #[test]
    fn a_refusal_is_told_of_the_blocks_that_it_is_about() {
        let error = Error::from(Poison { at: 1024 * 4096, len: 4096 });
        let told = |first, in_all, refusal| refused(Lba(first), in_all, refusal, &error);
        let range = LbaRange { first: Lba(1612), blocks: 1 };
        let last = Some(Refusal { range, errno: 28, doing: "write" });
        assert!(told(1612, 1, last).starts_with("block 1612: cannot write blocks 1612..1613: No space left"));
        let both = told(1024, 1536, last);
        assert!(both.starts_with("block 1024 and 1535 others: "), "{both}");
        assert!(!both.contains("others: cannot write"), "{both}");
        assert!(both.contains("; the last refusal: cannot write blocks 1612..1613: No space left"), "{both}");
        assert_eq!(told(1024, 1, None), format!("block 1024: {error}"));
    }
}
