//! A file system's copy-on-write path over persistent memory, as NOVA's: where it beats blocks, and what it pays.
//!
//! A write takes fresh pages for all its bytes, streams the data there, appends *one* entry to the file's log, moves the log's tail by one
//! 8-byte store, and only then changes the tree in DRAM and frees the old pages (Xu and Swanson, FAST 2016, § 3.2 and § 4.4: "NOVA
//! writes data to new pages, appends a log entry, and updates the tail"). So a write of many pages pays for one entry and three fences,
//! where a block device pays for each block; a write of one page pays for the same three.
//!
//! Left open and chosen: a file for each 32nd of the blocks, as fio gives each job a file of its own (NOVA keeps writers of one file apart
//! by its inode's lock, held over the whole write). The tree is an array, as its radix tree is dense here. Fast garbage collection frees a
//! log page none of whose entries count any more; thorough collection copies what counts once that is less than half of the log
//! (§ 4.5). Mounting after a crash is left out: nothing here asks for it.

use tidegate_media::sync::Mutex;
use tidegate_media::{
    BlockDevice, Durability, Extent, ExtentKind, Geometry, Lba, LbaRange, Misuse, Region, Result, Sealed,
};

/// Bytes of a page, of data or of a log.
const PAGE_BYTES: u64 = 4096;

/// Bytes of a log entry.
const ENTRY_BYTES: u64 = 64;

/// Entries of a log page; the last place links to the next page.
const ENTRIES: u32 = 63;

/// Files that the blocks are divided among.
const FILES: u64 = 32;

/// No page.
const NONE: u32 = u32::MAX;

/// Files written by copying, with their pages and logs in a region.
pub struct CowFiles<R> {
    region: R,
    blocks: u64,
    blocks_each: u64,
    files: Box<[Mutex<File>]>,
    /// Free pages, of each file its own: NOVA's free lists are of each core.
    free: Box<[Mutex<Vec<u32>>]>,
}

/// What DRAM knows of a file.
struct File {
    /// Where the log's tail lies.
    tail_at: u64,
    /// For each block, its page and the log page whose entry says so.
    tree: Box<[Place]>,
    log: Log,
}

#[derive(Clone, Copy)]
struct Place {
    page: u32,
    log: u32,
}

/// A file's log: a chain of pages.
struct Log {
    page: u32,
    used: u32,
    /// Of each log page, how many blocks its entries still count for.
    live: std::collections::HashMap<u32, u32>,
}

impl Log {
    fn starting_at(page: u32) -> Log {
        Log { page, used: 0, live: [(page, 0)].into() }
    }
}

impl<R: Region> CowFiles<R> {
    /// Files of `blocks` blocks together in `region`, which has room for them and for at least a tenth more.
    pub fn new(region: R, blocks: u64) -> Result<CowFiles<R>, Misuse> {
        let pages = region.len() / PAGE_BYTES;
        let blocks_each = blocks.div_ceil(FILES);
        if pages < blocks + blocks / 10 + 3 * FILES || pages > u64::from(NONE) {
            let len = usize::try_from(region.len()).unwrap_or(usize::MAX);
            return Err(Misuse::PartialBlock { len, block_size: 4096 });
        }
        // Page 0 has the tails of all logs. The others belong to the files by turns.
        let number = |page: u64| u32::try_from(page).expect("counted above");
        let mut free: Vec<Vec<u32>> = (0..FILES)
            .map(|file| (0..).map(|nth| 1 + file + nth * FILES).take_while(|page| *page < pages).map(number).collect())
            .collect();
        let file = |(at, free): (u64, &mut Vec<u32>)| {
            let log = Log::starting_at(free.pop().expect("there is room"));
            let tree =
                vec![Place { page: NONE, log: NONE }; usize::try_from(blocks_each).expect("counted above")].into();
            Mutex::new(File { tail_at: at * 64, tree, log })
        };
        let files = (0..).zip(&mut free).map(file).collect();
        Ok(CowFiles { region, blocks, blocks_each, files, free: free.into_iter().map(Mutex::new).collect() })
    }

    /// Does `act` with each piece of `range` that lies in one file: its number, its first block there, its blocks, and where it begins
    /// in the range.
    fn in_files(&self, range: LbaRange, mut act: impl FnMut(usize, usize, usize, usize) -> Result<()>) -> Result<()> {
        let mut at = range.first.0;
        while at < range.end() {
            let (file, first) = (at / self.blocks_each, at % self.blocks_each);
            let blocks = (range.end() - at).min(self.blocks_each - first);
            let number = |word: u64| usize::try_from(word).expect("a page's number fits");
            act(number(file), number(first), number(blocks), number(at - range.first.0))?;
            at += blocks;
        }
        Ok(())
    }

    fn write_file(&self, number: usize, first: usize, data: &[u8]) -> Result<()> {
        let mut file = self.files[number].lock();
        let count = data.len() / 4096;
        let pages = self.take(number, count)?;
        for (page, block) in pages.iter().zip(data.chunks_exact(4096)) {
            self.region.stream(offset(*page), block);
        }
        self.region.fence()?;
        let entry_page = self.append(number, &mut file, u32::try_from(first).expect("few blocks"), &pages)?;
        let old: Vec<Place> = pages
            .iter()
            .zip(&mut file.tree[first..first + count])
            .map(|(page, place)| std::mem::replace(place, Place { page: *page, log: entry_page }))
            .collect();
        self.give_up(number, &mut file, &old);
        self.collect_thoroughly(number, &mut file)
    }

    /// Appends one entry for `pages`, and makes it count. Returns the log page it lies in.
    fn append(&self, number: usize, file: &mut File, first: u32, pages: &[u32]) -> Result<u32> {
        let page = self.put_entry(number, &mut file.log, first, pages)?;
        self.region.fence()?;
        self.region.store_u64(file.tail_at, offset(page) + u64::from(file.log.used) * ENTRY_BYTES);
        self.region.flush(file.tail_at, 8);
        self.region.fence()?;
        Ok(page)
    }

    /// Puts an entry at the end of `log`, and begins its write-back.
    fn put_entry(&self, number: usize, log: &mut Log, first: u32, pages: &[u32]) -> Result<u32> {
        if log.used == ENTRIES {
            let next = self.take(number, 1)?[0];
            let link = offset(log.page) + u64::from(ENTRIES) * ENTRY_BYTES;
            self.region.store_u64(link, offset(next));
            self.region.flush(link, 8);
            if log.live[&log.page] == 0 {
                log.live.remove(&log.page);
                self.free[number].lock().push(log.page);
            }
            (log.page, log.used) = (next, 0);
            log.live.insert(next, 0);
        }
        let mut entry = [0; 64];
        entry[..4].copy_from_slice(&first.to_le_bytes());
        for (place, page) in entry[8..].chunks_exact_mut(4).zip([pages.len().try_into().unwrap_or(NONE), pages[0]]) {
            place.copy_from_slice(&u32::to_le_bytes(page));
        }
        let at = offset(log.page) + u64::from(log.used) * ENTRY_BYTES;
        self.region.write(at, &entry);
        self.region.flush(at, ENTRY_BYTES);
        log.used += 1;
        *log.live.get_mut(&log.page).expect("it was put there") += u32::try_from(pages.len()).unwrap_or(NONE);
        Ok(log.page)
    }

    /// Frees pages that no block is in any more, and log pages that count for none.
    fn give_up(&self, number: usize, file: &mut File, old: &[Place]) {
        let mut free = self.free[number].lock();
        for place in old.iter().filter(|place| place.page != NONE) {
            free.push(place.page);
            let live = file.log.live.get_mut(&place.log).expect("a log page that counts is known");
            *live -= 1;
            if *live == 0 && place.log != file.log.page {
                file.log.live.remove(&place.log);
                free.push(place.log);
            }
        }
    }

    /// Copies the log when less than half of it counts.
    fn collect_thoroughly(&self, number: usize, file: &mut File) -> Result<()> {
        let entries_max = file.log.live.len() * ENTRIES as usize;
        if entries_max <= 2 * file.tree.len() + 4 * ENTRIES as usize {
            return Ok(());
        }
        let fresh = Log::starting_at(self.take(number, 1)?[0]);
        let old = std::mem::replace(&mut file.log, fresh);
        for first in 0..file.tree.len() {
            if file.tree[first].page != NONE {
                let pages = [file.tree[first].page];
                let log = self.put_entry(number, &mut file.log, u32::try_from(first).expect("few blocks"), &pages)?;
                file.tree[first].log = log;
            }
        }
        self.region.fence()?;
        self.region.store_u64(file.tail_at, offset(file.log.page) + u64::from(file.log.used) * ENTRY_BYTES);
        self.region.flush(file.tail_at, 8);
        self.region.fence()?;
        self.free[number].lock().extend(old.live.keys());
        Ok(())
    }

    /// Takes `count` free pages, of another file if this one's are used up.
    fn take(&self, number: usize, count: usize) -> Result<Vec<u32>, Sealed> {
        let mut taken = Vec::with_capacity(count);
        for nth in 0..self.free.len() {
            let mut free = self.free[(number + nth) % self.free.len()].lock();
            let from = free.len() - (count - taken.len()).min(free.len());
            taken.extend(free.drain(from..));
            if taken.len() == count {
                return Ok(taken);
            }
        }
        Err(Sealed::StoreLost { at: self.region.len() })
    }
}

fn offset(page: u32) -> u64 {
    u64::from(page) * PAGE_BYTES
}

impl<R: Region> BlockDevice for CowFiles<R> {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: 4096,
            blocks: self.blocks,
            atomic_blocks: 1,
            volatile_cache: false,
            read_only: false,
            fast_zeroes: false,
        }
    }

    fn read(&self, at: Lba, out: &mut [u8]) -> Result<()> {
        let range = self.geometry().range(at, out.len())?;
        self.in_files(range, |number, first, count, from| {
            let file = self.files[number].lock();
            for (place, block) in file.tree[first..first + count].iter().zip(out[from * 4096..].chunks_exact_mut(4096))
            {
                match place.page {
                    NONE => block.fill(0),
                    page => self.region.read(offset(page), block)?,
                }
            }
            Ok(())
        })
    }

    fn write(&self, at: Lba, data: &[u8], _durable_either_way: Durability) -> Result<()> {
        let range = self.geometry().range(at, data.len())?;
        self.in_files(range, |number, first, count, from| {
            self.write_file(number, first, &data[from * 4096..(from + count) * 4096])
        })
    }

    fn flush(&self) -> Result<()> {
        Ok(self.region.fence()?)
    }

    fn discard(&self, range: LbaRange) -> Result<()> {
        self.geometry().within(range)?;
        Ok(())
    }

    fn write_zeroes(&self, range: LbaRange, durability: Durability) -> Result<()> {
        let zeroes = [0; 4096];
        self.geometry().within(range)?.iter().try_for_each(|lba| self.write(lba, &zeroes, durability))
    }

    fn extent(&self, range: LbaRange) -> Result<Extent> {
        Ok(Extent { blocks: self.geometry().within(range)?.blocks, kind: ExtentKind::Data })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;
    use tidegate_media::MappedRegion;
    use tidegate_sim::Rng;

    /// Small files, many writes: every page and every log page is freed and used again many times.
    #[test]
    fn files_read_as_a_plain_array_does() {
        const BLOCKS: u64 = 2048;
        let region = MappedRegion::anonymous((BLOCKS + BLOCKS / 8) * 4096 + (1 << 20)).unwrap();
        let files = CowFiles::new(region, BLOCKS).unwrap();
        let mut model = vec![0_u8; usize::try_from(BLOCKS).unwrap()];
        let mut random = Rng::new(3);
        for nth in 0..40_000_u64 {
            let blocks = 1 + random.below(20);
            let lba = random.below(BLOCKS - blocks + 1);
            let fill = u8::try_from(1 + nth % 250).unwrap();
            files.write(Lba(lba), &vec![fill; usize::try_from(blocks).unwrap() * 4096], Durability::Fua).unwrap();
            model[usize::try_from(lba).unwrap()..usize::try_from(lba + blocks).unwrap()].fill(fill);
        }
        let mut read = [0; 4096];
        for (lba, fill) in (0..).zip(&model) {
            files.read(Lba(lba), &mut read).unwrap();
            assert!(read == [*fill; 4096], "block {lba}");
        }
        let free: usize = files.free.iter().map(|free| free.lock().len()).sum();
        let logs: usize = files.files.iter().map(|file| file.lock().log.live.len()).sum();
        let mapped = model.iter().filter(|fill| **fill != 0).count();
        let pages = usize::try_from(files.region.len() / PAGE_BYTES).unwrap();
        assert_eq!(free + logs + mapped + 1, pages, "every page is free, a log's, or a block's");
    }

    #[test]
    fn a_region_without_room_for_logs_is_refused() {
        assert!(CowFiles::new(MappedRegion::anonymous(1024 * 4096).unwrap(), 1024).is_err());
    }
}
