//! The topic `disk-cache`: the cost of a commit to the transactional cache over the bare bytes, and
//! how soon a full one opens.

use crate::blocks::{compare, scaling, second_core_missing};
use crate::reproduction::{self, value};
use crate::target::{Method, Outcome, Row, Target, Topic};
use std::sync::Arc;
use std::time::Instant;
use tidegate_baselines::classic::{Reads, done_here, done_there};
use tidegate_disk_cache::{Contents, DiskCache, FormatSpec, NoDisk, Options, format};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_measure::Pairs;
use tidegate_measure::disk_caches::{opened, whole_disk_cached_here};
use tidegate_measure::medium::{self, ScratchPath, WALK_BYTES};
use tidegate_measure::subject::{BLOCK_BYTES, Bare, Block, BlockWrites, StreamedCopies, sweep};
use tidegate_measure::workload::Effort;
use tidegate_media::{Allocation, BlockDevice, Counters, InTurn, Lba, MappedRegion, Region};
use tidegate_nbd_client::ram::Ram;
use tidegate_reproduction::tinca::destage_latency::{BESIDE, DISK, IDLE, LONGEST, MEAN, SLOWEST};
use tidegate_reproduction::tinca::testbed::Kind;
use tidegate_sim::Rng;

/// The table.
pub const TOPIC: Topic = Topic {
    name: "disk-cache",
    about: "the transactional disk cache: 4 KiB blocks, random; counts are per committed block or per transaction",
    rows: &[
        Row {
            name: "write-hit",
            over: "durable write of a cached block, 1 thread, over 1 GiB",
            under: "streamed 4 KiB copy + fence",
            target: Target::AtMost(2.0),
            method: Method::Here(write_hit),
        },
        Row {
            name: "write-hit-scaling",
            over: "durable write of a cached block, 2 threads ÷ 1",
            under: "streamed 4 KiB copy + fence, 2 threads ÷ 1",
            target: Target::AtLeast(0.95),
            method: Method::Here(write_hit_scaling),
        },
        count_row("lines-hit-1", LINES, "block, 1 a transaction, all cached", 66.0, |_| lines(Found::Cached, 1)),
        count_row("lines-hit-8", LINES, "block, 8 a transaction, all cached", 66.0, |_| lines(Found::Cached, 8)),
        count_row("lines-hit-64", LINES, "block, 64 a transaction, all cached", 65.5, |_| lines(Found::Cached, 64)),
        count_row("lines-hit-1024", LINES, "block, 1024 a transaction, all cached", 65.5, |_| {
            lines(Found::Cached, 1024)
        }),
        count_row("lines-miss-64", LINES, "block, 64 a transaction, none cached", 65.5, |_| lines(Found::Absent, 64)),
        count_row("lines-evict-64", LINES, "block, 64 a transaction, each in another's place", 66.5, |_| {
            lines(Found::InAnothersPlace, 64)
        }),
        count_row("fences-hit-1", FENCES, "transaction of 1 block, cached", 2.0, |_| fences(Found::Cached, 1)),
        count_row("fences-hit-8", FENCES, "transaction of 8 blocks, cached", 2.0, |_| fences(Found::Cached, 8)),
        count_row("fences-hit-64", FENCES, "transaction of 64 blocks, cached", 2.0, |_| fences(Found::Cached, 64)),
        count_row("fences-hit-1024", FENCES, "transaction of 1024 blocks, cached", 2.0, |_| {
            fences(Found::Cached, 1024)
        }),
        count_row("fences-miss-64", FENCES, "transaction of 64 blocks, none cached", 2.0, |_| {
            fences(Found::Absent, 64)
        }),
        count_row("fences-evict-1", FENCES, "transaction of 1 block in another's place", 3.0, |_| {
            fences(Found::InAnothersPlace, 1)
        }),
        count_row("fences-evict-64", FENCES, "transaction of 64 blocks in others' places", 3.0, |_| {
            fences(Found::InAnothersPlace, 64)
        }),
        Row {
            name: "metadata-bytes",
            over: "bytes stored beside the data",
            under: "block that turns dirty",
            target: Target::AtMost(40.0),
            method: Method::Here(|_| metadata_bytes()),
        },
        throughput_row("fig-7a-3-7", "Classic's, 3 to 7, reads forgotten by a restart", 2.5, |_| {
            over_classic_in_time("3/7")
        }),
        throughput_row("fig-7a-5-5", "Classic's, 5 to 5, reads forgotten by a restart", 2.1, |_| {
            over_classic_in_time("5/5")
        }),
        throughput_row("fig-7a-7-3", "Classic's, 7 to 3, reads forgotten by a restart", 1.7, |_| {
            over_classic_in_time("7/3")
        }),
        count_row("fig-7b-3-7", LINES_OF_MIX, "of Classic's, 3 to 7, reads forgotten by a restart", 0.266, |_| {
            over_classic(Count::Lines, Reads::TakenInToBeForgotten, 7)
        }),
        count_row("fig-7b-5-5", LINES_OF_MIX, "of Classic's, 5 to 5, reads forgotten by a restart", 0.246, |_| {
            over_classic(Count::Lines, Reads::TakenInToBeForgotten, 5)
        }),
        count_row("fig-7b-7-3", LINES_OF_MIX, "of Classic's, 7 to 3, reads forgotten by a restart", 0.237, |_| {
            over_classic(Count::Lines, Reads::TakenInToBeForgotten, 3)
        }),
        count_row("fig-7b-5-5-wo", LINES_OF_MIX, "of Classic's, 5 to 5, reads not taken in", 0.246, |_| {
            over_classic(Count::Lines, Reads::LeftOut, 5)
        }),
        count_row("fig-7b-7-3-wo", LINES_OF_MIX, "of Classic's, 7 to 3, reads not taken in", 0.237, |_| {
            over_classic(Count::Lines, Reads::LeftOut, 3)
        }),
        count_row(
            "fig-7c-3-7",
            DISK_BLOCKS_OF_MIX,
            "of Classic's, 3 to 7, reads forgotten by a restart",
            0.394,
            |_| over_classic(Count::DiskBlocks, Reads::TakenInToBeForgotten, 7),
        ),
        count_row(
            "fig-7c-5-5",
            DISK_BLOCKS_OF_MIX,
            "of Classic's, 5 to 5, reads forgotten by a restart",
            0.374,
            |_| over_classic(Count::DiskBlocks, Reads::TakenInToBeForgotten, 5),
        ),
        count_row(
            "fig-7c-7-3",
            DISK_BLOCKS_OF_MIX,
            "of Classic's, 7 to 3, reads forgotten by a restart",
            0.354,
            |_| over_classic(Count::DiskBlocks, Reads::TakenInToBeForgotten, 3),
        ),
        Row {
            name: "foreground-p999",
            over: "99.9th percentile of a write, 80 % of the destage rate, 90 % of the dirty cap",
            under: "the same, nothing destaged",
            target: Target::AtMost(3.0),
            method: Method::Here(|_| pace("tinca-pace", "80", BESIDE, IDLE)),
        },
        Row {
            name: "foreground-longest",
            over: "longest of those writes, in writes of the disk",
            under: "write",
            target: Target::AtMost(1.0),
            method: Method::Here(|_| pace("tinca-pace", "80", LONGEST, DISK)),
        },
        Row {
            name: "foreground-above",
            over: "writes in the slowest twentieth of the time, 150 % of the destage rate",
            under: "in the mean",
            target: Target::AtLeast(0.8),
            method: Method::Here(|_| pace("tinca-pace-above", "150", SLOWEST, MEAN)),
        },
        Row {
            name: "recovery",
            over: "opening of a cache of 8 GiB, all of it dirty",
            under: "(no floor)",
            target: Target::AtMost(1.0),
            method: Method::Here(recovery),
        },
    ],
};

/// Counted things.
const LINES: &str = "lines flushed";
const FENCES: &str = "fences";

/// Counted of a journal on a cache with metadata in blocks, and of transactions here that do the
/// same.
const LINES_OF_MIX: &str = "lines flushed, random reads and writes of a file 2.5 times the cache";
const DISK_BLOCKS_OF_MIX: &str = "blocks written to the disk, the same";

/// A count that may be no more than `limit`.
const fn count_row(
    name: &'static str,
    over: &'static str,
    under: &'static str,
    limit: f64,
    count: fn(Effort) -> anyhow::Result<Outcome>,
) -> Row {
    Row::here(name, over, under, Target::AtMost(limit), count)
}

/// A throughput on the paper's platform, in virtual time, that is at least `limit` times the
/// rival's.
const fn throughput_row(
    name: &'static str,
    under: &'static str,
    limit: f64,
    measure: fn(Effort) -> anyhow::Result<Outcome>,
) -> Row {
    let over = "writes per second, random reads and writes, six virtual cores over PCM and an SSD";
    Row::here(name, over, under, Target::AtLeast(limit), measure)
}

fn over_classic_in_time(place: &str) -> anyhow::Result<Outcome> {
    let figure = reproduction::figure("cache-mix", "tinca-fig-7a")?;
    Ok(Outcome::figure(&[value(&figure, Kind::FORGETTING.label(), place)? / value(&figure, "Classic", place)?], "×"))
}

/// One of the figures of pace at a load, over another at the same.
fn pace(id: &str, load: &str, over: &str, under: &str) -> anyhow::Result<Outcome> {
    let figure = reproduction::figure("cache-pace", id)?;
    Ok(Outcome::figure(&[value(&figure, over, load)? / value(&figure, under, load)?], "×"))
}

type Cache = DiskCache<MappedRegion>;

/// What is counted about writes.
#[derive(Clone, Copy, Debug)]
enum Count {
    /// Lines flushed or streamed to persistent memory.
    Lines,
    /// Blocks written to the disk.
    DiskBlocks,
}

/// What `writes` writes among ten requests cost here, as a part of what they cost there.
fn over_classic(count: Count, reads: Reads, writes: u64) -> anyhow::Result<Outcome> {
    let (here, there) = (done_here(reads, writes)?, done_there(writes)?);
    Ok(match count {
        Count::Lines => Outcome::count(here.lines, there.lines),
        Count::DiskBlocks => Outcome::count(here.disk_blocks, there.disk_blocks),
    })
}

fn write_hit(effort: Effort) -> anyhow::Result<Outcome> {
    let (cache, plan) = whole_disk_cached_here()?;
    let floor = StreamedCopies(Bare::part(cache.region(), plan.data_at, WALK_BYTES));
    Ok(compare(effort, &BlockWrites(&cache), &floor))
}

fn write_hit_scaling(effort: Effort) -> anyhow::Result<Outcome> {
    if let Some(missing) = second_core_missing() {
        return Ok(missing);
    }
    let (cache, plan) = whole_disk_cached_here()?;
    let floor = StreamedCopies(Bare::part(cache.region(), plan.data_at, WALK_BYTES));
    let writes = BlockWrites(&cache);
    sweep(&writes);
    sweep(&floor);
    let pairs = Pairs::alternate(effort.pairs, || scaling(effort, &writes), || scaling(effort, &floor));
    Ok(Outcome::ratio(&pairs, "×"))
}

/// How a transaction finds its blocks.
#[derive(Clone, Copy)]
enum Found {
    /// All of them cached, and dirty.
    Cached,
    /// None of them cached, and blocks free.
    Absent,
    /// None of them cached, and every block of the cache taken by a clean one.
    InAnothersPlace,
}

/// Blocks of the cache whose transactions are counted; its disk has twice as many.
const COUNTED_BLOCKS: u64 = 16384;
/// Its ring, small enough that elements are retired all the time.
const COUNTED_RING: u32 = 4096;

/// What the region counted while half of the cache's blocks were committed once, in transactions of
/// `blocks`, in random order.
fn counted(found: Found, blocks: usize) -> anyhow::Result<Counters> {
    let disk = InTurn(Ram::new(4096, 2 * COUNTED_BLOCKS));
    let bytes = CachePlan::cut(u32::try_from(COUNTED_BLOCKS)?, 4096, 2 * COUNTED_BLOCKS, COUNTED_RING).end();
    let (cache, _) = opened(medium::region(bytes)?, 2 * COUNTED_BLOCKS, COUNTED_RING, disk)?;
    let mut block = Block::filled(1);
    let half = 0..COUNTED_BLOCKS / 2;
    match found {
        Found::Cached => commit_all(&cache, half.clone(), blocks, &block)?,
        Found::Absent => {}
        Found::InAnothersPlace => {
            for lba in COUNTED_BLOCKS..2 * COUNTED_BLOCKS {
                cache.read(Lba(lba), block.bytes_mut())?;
            }
        }
    }
    let before = cache.region().counters();
    commit_all(&cache, half, blocks, &block)?;
    Ok(cache.region().counters() - before)
}

fn commit_all(cache: &Cache, lbas: std::ops::Range<u64>, blocks: usize, block: &Block) -> anyhow::Result<()> {
    let mut random = Rng::new(blocks as u64);
    let mut lbas: Vec<u64> = lbas.collect();
    for place in (1..lbas.len()).rev() {
        lbas.swap(place, random.index(place + 1));
    }
    for together in lbas.chunks(blocks) {
        let mut transaction = cache.begin();
        for lba in together {
            transaction.write(Lba(*lba), block.bytes())?;
        }
        transaction.commit()?;
    }
    Ok(())
}

fn lines(found: Found, blocks: usize) -> anyhow::Result<Outcome> {
    Ok(Outcome::count(counted(found, blocks)?.lines_flushed, COUNTED_BLOCKS / 2))
}

fn fences(found: Found, blocks: usize) -> anyhow::Result<Outcome> {
    Ok(Outcome::count(counted(found, blocks)?.fences, COUNTED_BLOCKS / 2 / blocks as u64))
}

fn metadata_bytes() -> anyhow::Result<Outcome> {
    let stored = counted(Found::Absent, 1)?.bytes_stored;
    Ok(Outcome::count(stored - COUNTED_BLOCKS / 2 * BLOCK_BYTES as u64, COUNTED_BLOCKS / 2))
}

/// Opens a cache of 2,097,152 blocks whose entries all say dirty. Its blocks' bytes do not matter,
/// and are not there.
fn recovery(effort: Effort) -> anyhow::Result<Outcome> {
    const BLOCKS: u32 = 2 << 20;
    let plan = CachePlan::cut(BLOCKS, 4096, 2 * u64::from(BLOCKS), FormatSpec::RING_SLOTS);
    let path = ScratchPath::new();
    let mut region = MappedRegion::create(path.as_path(), plan.end().next_multiple_of(2 << 20), Allocation::Sparse)?;
    let spec = FormatSpec {
        block_size: 4096,
        disk_blocks: plan.disk_blocks,
        ring_slots: plan.ring_slots,
        uuid: [7; 16],
        disk: [7; 32],
    };
    format(&region, &spec, Contents::Zeroed)?;
    for entry in 0..BLOCKS {
        let lba = u64::from(entry.wrapping_mul(0x9e37_79b1) % BLOCKS);
        region.store_u64(plan.entry_at(entry), lba);
        region.store_u64(plan.entry_at(entry) + 8, plan.holding_word(lba, entry, 1, false));
    }
    let mut samples = Vec::new();
    for _ in 0..effort.pairs {
        let disk = Arc::new(NoDisk::new(plan.disk_blocks, 4096));
        let clock = Instant::now();
        let cache = DiskCache::open(region, disk, Options::default())?;
        samples.push(clock.elapsed().as_secs_f64());
        anyhow::ensure!(cache.fill().dirty == BLOCKS, "{:?}", cache.fill());
        region = cache.into_parts().0;
    }
    Ok(Outcome::figure(&samples, "s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts are exact, so a commit that costs a line or a fence more is noticed here.
    #[test]
    fn a_transaction_of_64_cached_blocks_takes_two_fences_and_little_more_than_its_data() {
        let counters = counted(Found::Cached, 64).unwrap();
        let transactions = COUNTED_BLOCKS / 2 / 64;
        assert_eq!(counters.fences, 2 * transactions);
        assert!(counters.lines_flushed <= 64 * 64 * transactions + 82 * transactions, "{counters:?}");
    }
}
