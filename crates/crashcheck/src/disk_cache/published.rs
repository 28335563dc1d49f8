//! The commit protocol as it was published: entries of 16 bytes that are taken to arrive together.
//!
//! For each block of a transaction: the data goes to a new block; the block's entry becomes {role
//! log, previous block, new block}; its number goes into the ring; the head moves. Then every
//! entry's role is switched to buffer, and the tail moves to the head, which ends the commit. Each
//! of these is flushed and fenced by itself. Recovery revokes what lies between tail and head, and
//! every entry in the log role: back to its previous block, or gone if it had none.
//!
//! Here it is a subject and nothing more, without a disk and without evictions. It has to be right
//! on a medium that grants it what it takes for granted, or it is the copy that is wrong.

use crate::checker::Failure;
use crate::disk_cache::script::Subset;
use crate::script::{block_of, scripts};
use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;
use tidegate_media::{Poison, Region as Medium};
use tidegate_sim::{Content, Image, Reduction, Region, power_cuts};

/// What a power cut keeps of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntriesArrive {
    /// All 16 bytes or none of them, as the paper has it.
    Whole,
    /// Either of the two words, as hardware promises.
    WordByWord,
}

const HEAD_AT: u64 = 0;
const TAIL_AT: u64 = 64;
const RING_AT: u64 = 128;
const RING_SLOTS: u64 = 8;
const ENTRIES_AT: u64 = 256;
const LBAS: u64 = 3;
const DATA_AT: u64 = 4096;
const BLOCKS: u64 = 7;
const BLOCK: usize = 512;
const LOG_ROLE: u64 = 1 << 63;
const NONE: u64 = 0xffff_ffff;

/// The cache: entry n is that of block n.
struct Published {
    region: Arc<Region>,
    head: u64,
    current: BTreeMap<u64, u64>,
    fences: usize,
    given: Vec<Given>,
}

/// A value that an entry was given, after so many fences.
struct Given {
    lba: u64,
    value: [u64; 2],
    fences: usize,
}

impl Published {
    fn recover(region: Arc<Region>) -> Result<Published, Poison> {
        let (head, tail) = (region.load_u64(HEAD_AT)?, region.load_u64(TAIL_AT)?);
        let mut cache = Published { region, head, current: BTreeMap::new(), fences: 0, given: Vec::new() };
        for number in tail..head {
            let lba = cache.region.load_u64(RING_AT + number % RING_SLOTS * 8)?;
            cache.revoke(lba)?;
        }
        for lba in 0..LBAS {
            if cache.entry(lba)?[0] & LOG_ROLE != 0 {
                cache.revoke(lba)?;
            }
            let [_, blocks] = cache.entry(lba)?;
            if let Some(block) = (blocks & NONE).checked_sub(1) {
                cache.current.insert(lba, block);
            }
        }
        cache.store(TAIL_AT, head);
        Ok(cache)
    }

    fn entry(&self, lba: u64) -> Result<[u64; 2], Poison> {
        let at = ENTRIES_AT + lba * 16;
        Ok([self.region.load_u64(at)?, self.region.load_u64(at + 8)?])
    }

    /// Back to the previous block.
    fn revoke(&mut self, lba: u64) -> Result<(), Poison> {
        let [_, blocks] = self.entry(lba)?;
        let previous = blocks >> 32;
        self.give(lba, [lba, previous << 32 | previous]);
        Ok(())
    }

    fn give(&mut self, lba: u64, value: [u64; 2]) {
        self.given.push(Given { lba, value, fences: self.fences });
        let bytes: Vec<u8> = value.iter().flat_map(|word| word.to_le_bytes()).collect();
        let at = ENTRIES_AT + lba * 16;
        self.region.write(at, &bytes);
        self.region.flush(at, 16);
        self.fence();
    }

    fn store(&mut self, at: u64, word: u64) {
        self.region.store_u64(at, word);
        self.region.flush(at, 8);
        self.fence();
    }

    fn fence(&mut self) {
        self.fences += 1;
        self.region.fence().expect("the region is sound");
    }

    fn commit(&mut self, lbas: Subset, number: u64) {
        let mut moved = Vec::new();
        for lba in lbas.iter() {
            let taken =
                |block: &u64| self.current.values().chain(moved.iter().map(|(_, new)| new)).any(|is| is == block);
            let block = (0..BLOCKS).find(|block| !taken(block)).expect("a block for each version of each");
            self.region.stream(DATA_AT + block * BLOCK as u64, &content_of(number, lba));
            self.fence();
            let previous = self.current.get(&lba).map_or(0, |block| block + 1);
            self.give(lba, [LOG_ROLE | lba, previous << 32 | (block + 1)]);
            self.store(RING_AT + self.head % RING_SLOTS * 8, lba);
            self.head += 1;
            self.store(HEAD_AT, self.head);
            moved.push((lba, block));
        }
        for (lba, block) in &moved {
            let previous = self.current.get(lba).map_or(0, |block| block + 1);
            self.give(*lba, [*lba, previous << 32 | (block + 1)]);
        }
        self.store(TAIL_AT, self.head);
        self.current.extend(moved);
    }

    fn contents(&self) -> Result<Vec<Content>, Poison> {
        let mut bytes = [0; BLOCK];
        let mut contents = Vec::new();
        for lba in 0..LBAS {
            bytes.fill(0);
            if let Some(block) = self.current.get(&lba) {
                self.region.read(DATA_AT + block * BLOCK as u64, &mut bytes)?;
            }
            contents.push(Content::of(&bytes));
        }
        Ok(contents)
    }
}

fn content_of(number: u64, lba: u64) -> Vec<u8> {
    block_of(100 * (number + 1) + lba, BLOCK)
}

/// Cuts the power in the last of every row of `commits` transactions, and says how many images were
/// judged.
pub fn judge_published(arrive: EntriesArrive, commits: u32) -> Result<u64, Failure> {
    let alphabet: Vec<Subset> = Subset::all(&[0, 1, 2]).collect();
    let start = Image::zeroed(DATA_AT + BLOCKS * BLOCK as u64);
    let reduction = Reduction::of(iter::once(DATA_AT..start.len()));
    let mut judged = 0;
    for script in scripts(&alphabet, commits) {
        let (last, earlier) = script.split_last().expect("a script has transactions");
        let (mut before, mut given) = (Vec::new(), Vec::new());
        let (mut after, mut fences) = (Vec::new(), 0);
        let cuts = power_cuts(&start, |region| {
            let mut cache = Published::recover(region.clone()).expect("the region is sound");
            (0..).zip(earlier).for_each(|(number, lbas)| cache.commit(*lbas, number));
            before = cache.contents().expect("the region is sound");
            region.take_cuts();
            region.record_cuts();
            fences = cache.fences;
            cache.commit(*last, u64::from(commits));
            after = cache.contents().expect("the region is sound");
            given = cache.given;
        });
        for (number, cut) in cuts.iter().enumerate() {
            let allowed = if number + 1 == cuts.len() { [&after, &after] } else { [&before, &after] };
            for image in cut.images(&reduction) {
                if arrive == EntriesArrive::Whole && !entries_are_whole(&image, &given, fences + number) {
                    continue;
                }
                judged += 1;
                let recovered = Published::recover(Arc::new(Region::from_image(image))).map_err(Failure::new)?;
                let shown = recovered.contents().map_err(Failure::new)?;
                if !allowed.contains(&&shown) {
                    let what = format_args!("{cut}, in {script:?}: neither the old contents nor the new ones");
                    return Err(Failure::new(what));
                }
            }
        }
    }
    Ok(judged)
}

/// Whether each entry has the last value that was durable after `fences` fences, or one that was
/// pending.
fn entries_are_whole(image: &Image, given: &[Given], fences: usize) -> bool {
    (0..LBAS).all(|lba| {
        let at = ENTRIES_AT + lba * 16;
        let value = [image.load_u64(at), image.load_u64(at + 8)];
        let mine = given.iter().filter(|given| given.lba == lba);
        let durable = mine.clone().rfind(|given| given.fences < fences);
        let pending = mine.filter(|given| given.fences == fences).any(|given| given.value == value);
        pending || value == durable.map_or([0, 0], |durable| durable.value)
    })
}
