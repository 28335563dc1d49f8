//! Recoverability (§ 5.1): the power is cut, or the process killed, at every instant of a
//! transaction, and the cache is opened on every image that the cut may leave.
//!
//! The paper pulls the plug of one machine a number of times. Here the memory is simulated: before
//! each fence, every subset of the stores that are not durable is tried, but for the words of
//! blocks, of which recovery reads none. After each image all blocks of the transaction are as
//! before it, or all are as after it.

use super::super::Scale;
use super::super::figure::{Chart, Figure};
use super::testbed::Kind;
use super::{frame, point, series};
use std::sync::Arc;
use tidegate_disk_cache::{Contents, DiskCache, FormatSpec, Options, format};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_media::{BlockDevice, InTurn, Lba};
use tidegate_nbd_client::ram::Ram;
use tidegate_sim::{Cut, Image, Reduction, Region, power_cuts};

/// Bytes of a block, and blocks that transactions write.
const BLOCK: usize = 512;
const LBAS: usize = 3;

/// Blocks of the cache and of the disk, and elements of the ring.
const CACHE_BLOCKS: u32 = 8;
const DISK_BLOCKS: u64 = 8;
const RING: u32 = 8;

/// What no write writes: a block with bytes of two of them.
const MIXED: u8 = u8::MAX;

/// What each block holds, by one byte.
type Seen = [u8; LBAS];

/// A set of blocks, a bit each.
type Subset = u64;

/// Images that were judged, and those with neither the old data nor the new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Judged {
    images: u64,
    torn: u64,
}

impl Judged {
    fn judge(&mut self, region: Region, allowed: &[Seen]) -> anyhow::Result<()> {
        self.images += 1;
        let seen = seen(&open(Arc::new(region))?)?;
        self.torn += u64::from(!allowed.contains(&seen));
        Ok(())
    }
}

/// § 5.1.
pub fn recovery(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let subsets = 1..1 << LBAS;
    // Each pair of transactions, the second one cut; in the smallest form one pair.
    let firsts: Vec<Subset> = if scale == Scale::SMOKE { vec![5] } else { subsets.clone().collect() };
    let seconds: Vec<Subset> = if scale == Scale::SMOKE { vec![3] } else { subsets.collect() };
    let (mut cut, mut killed) = (Judged::default(), Judged::default());
    for first in &firsts {
        for second in &seconds {
            judge_pair(*first, *second, &mut cut, &mut killed)?;
        }
    }
    let title = "Power cuts and kills at every instant of a transaction: torn images";
    let mut figure = frame("recovery", "§ 5.1", title, Chart::Bars, "images");
    let bars = |label: &str, of: fn(Judged) -> u64| {
        let bar = |place: &str, judged: Judged| point(place, of(judged) as f64, None);
        series(label, vec![bar("power cuts", cut), bar("kills", killed)])
    };
    figure.baseline = None;
    figure.series =
        vec![bars(Kind::TIDEGATE.label(), |judged| judged.torn), bars("images judged", |judged| judged.images)];
    figure.notes = vec![format!(
        "Transactions of one to {LBAS} blocks after another one, in all combinations, on a cache of {CACHE_BLOCKS} blocks in simulated memory. An image is one \
         subset of the stores that no fence made durable. It is torn if its transaction is there in part. The paper cuts the power of a machine, and \
         kills its processes, and finds everything consistent each time."
    )];
    Ok(vec![figure])
}

fn judge_pair(first: Subset, second: Subset, cut: &mut Judged, killed: &mut Judged) -> anyhow::Result<()> {
    let plan = CachePlan::cut(CACHE_BLOCKS, 512, DISK_BLOCKS, RING);
    let (start, mut states) = (formatted(&plan)?, Ok([[0; LBAS]; 2]));
    let cuts = power_cuts(&start, |region| states = two_transactions(region, first, second));
    let [before, after] = states?;
    let reduction = Reduction::of(std::iter::once(plan.data_at..plan.end()));
    for (nth, one) in cuts.iter().enumerate() {
        let allowed: &[Seen] = if nth + 1 == cuts.len() { &[after] } else { &[before, after] };
        let mut images = one.images(&reduction);
        while let Some(image) = images.advance() {
            cut.judge(Region::from_image(image.clone()), allowed)?;
        }
        killed.judge(Region::after_kill(one), allowed)?;
    }
    Ok(())
}

/// The contents before and after the second of two transactions, in which cuts are recorded.
fn two_transactions(region: &Arc<Region>, first: Subset, second: Subset) -> anyhow::Result<[Seen; 2]> {
    let cache = open(region.clone())?;
    commit(&cache, first, 1)?;
    let before = seen(&cache)?;
    let _not_of_the_second: Vec<Cut> = region.take_cuts();
    region.record_cuts();
    commit(&cache, second, 2)?;
    Ok([before, seen(&cache)?])
}

fn formatted(plan: &CachePlan) -> anyhow::Result<Image> {
    let region = Region::new(plan.end().next_multiple_of(8));
    let spec = FormatSpec { block_size: 512, disk_blocks: DISK_BLOCKS, ring_slots: RING, uuid: [7; 16], disk: [7; 32] };
    format(&region, &spec, Contents::Zeroed)?;
    Ok(region.cut().least().clone())
}

/// The cache after a start, before a disk of zeroes: so few blocks are dirty that none is written
/// to it.
fn open(region: Arc<Region>) -> anyhow::Result<DiskCache<Arc<Region>>> {
    let disk = Arc::new(InTurn(Ram::new(512, DISK_BLOCKS)));
    Ok(DiskCache::open(region, disk, Options::default())?)
}

fn commit(cache: &DiskCache<Arc<Region>>, lbas: Subset, byte: u8) -> anyhow::Result<()> {
    let mut transaction = cache.begin();
    let chosen = (0..).take(LBAS).filter(|lba| lbas & 1 << lba != 0);
    chosen.into_iter().try_for_each(|lba| transaction.write(Lba(lba), &[byte; BLOCK]))?;
    Ok(transaction.commit()?)
}

fn seen(cache: &DiskCache<Arc<Region>>) -> anyhow::Result<Seen> {
    let mut seen = Seen::default();
    for (lba, byte) in (0..).zip(&mut seen) {
        let mut block = [0; BLOCK];
        BlockDevice::read(cache, Lba(lba), &mut block)?;
        *byte = if block == [block[0]; BLOCK] { block[0] } else { MIXED };
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instant_of_a_transaction_leaves_all_of_it_or_nothing() -> anyhow::Result<()> {
        let (mut cut, mut killed) = (Judged::default(), Judged::default());
        judge_pair(0b101, 0b011, &mut cut, &mut killed)?;
        assert_eq!((cut.torn, killed.torn), (0, 0));
        assert!(cut.images > 20 && killed.images >= 3, "{cut:?} {killed:?}");
        Ok(())
    }

    #[test]
    fn a_transaction_that_is_there_in_part_is_counted() -> anyhow::Result<()> {
        let plan = CachePlan::cut(CACHE_BLOCKS, 512, DISK_BLOCKS, RING);
        let region = Arc::new(Region::from_image(formatted(&plan)?));
        // Two transactions where one was asked for: the first alone is neither state.
        let cache = open(region.clone())?;
        commit(&cache, 0b001, 2)?;
        let mut judged = Judged::default();
        judged.judge(Region::from_image(region.cut().least().clone()), &[[0, 0, 0], [2, 2, 0]])?;
        assert_eq!(judged, Judged { images: 1, torn: 1 });
        Ok(())
    }
}
