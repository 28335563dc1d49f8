//! A file system's copy-on-write path over persistent memory, as NOVA's: where it beats blocks, and
//! what it pays.
//!
//! A write takes fresh pages for all its bytes, streams the data there, appends *one* entry to the
//! file's log, moves the log's tail by one 8-byte store, and only then changes the tree in DRAM and
//! frees the old pages (Xu and Swanson, FAST 2016, § 3.2 and § 4.4: "NOVA writes data to new pages,
//! appends a log entry, and updates the tail"). So a write of many pages pays for one entry and two
//! fences, where a block device pays for each block; a write of one page pays for the same two.
//!
//! What the papers leave out is as in its code for Linux 5.1, whose names are given here:
//!
//! 1. An entry's place is cleared and then streamed to, and its log page counts it
//!    (`nova_append_log_entry`, `nova_inc_page_num_entries`).
//! 2. The entry is read back for the tree (`nova_reassign_file_tree`). The entry that it replaces
//!    counts its blocks that are void, in persistent memory; when all are, its log page counts that
//!    entry as void (`nova_invalidate_write_entry`, `nova_inc_page_invalid_entries`). Each is a
//!    line that was written long ago, and is fetched from the medium.
//! 3. A log of 256 pages or more grows by 256 pages (`EXTEND_THRESHOLD`), and each time *all of it*
//!    is walked, page by page, for pages whose entries are all void (`nova_extend_inode_log`,
//!    `nova_inode_log_fast_gc`): in a file of 64 GB written at random a walk is hundreds of
//!    thousands of lines long. Where less than half of a log counts, what counts is copied to a new
//!    one (`nova_inode_log_thorough_gc`).
//!
//! Left open and chosen: how many files the blocks are divided among is the caller's (NOVA keeps
//! writers of one file apart by its inode's lock, held over the whole write). The tree is an array,
//! as its radix tree is dense here. Mounting after a crash is left out: nothing here asks for it.

use tidegate_media::sync::Mutex;
use tidegate_media::{
    BlockDevice, Durability, Extent, ExtentKind, Geometry, Lba, LbaRange, Misuse, Region, Result, Sealed,
};
use tidegate_sim::Rng;

/// Bytes of a page, of data or of a log.
const PAGE_BYTES: u64 = 4096;

/// Bytes of a log entry.
const ENTRY_BYTES: u64 = 64;

/// Where in an entry its blocks that are void are counted, and where the number of its blocks is.
const VOID_AT: u64 = 16;
const LEN_AT: u64 = 8;

/// Entries of a log page.
const ENTRIES: u32 = 63;

/// Where in a log page its entries are counted, those that are void in the upper half of the word,
/// and the next page is named.
const COUNTS_AT: u64 = 4064;
const NEXT_AT: u64 = 4072;

/// One entry more that is void, in the word at [`COUNTS_AT`].
const ONE_VOID: u64 = 1 << 32;

/// No page.
const NONE: u32 = u32::MAX;

/// How blocks are divided among files, and how their logs grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Files, each with as many of the blocks.
    pub files: u64,
    /// Pages that a log grows by; below as many it doubles. In NOVA 256, whatever the file's size.
    pub extend_pages: usize,
}

impl Shape {
    /// A file for each of up to 32 writers, as fio gives each job one, with logs that grow as
    /// NOVA's.
    pub const NOVA: Shape = Shape { files: 32, extend_pages: 256 };
}

/// Files written by copying, with their pages and logs in a region.
pub struct CowFiles<R> {
    region: R,
    blocks: u64,
    blocks_each: u64,
    extend_pages: usize,
    files: Box<[Mutex<File>]>,
    /// Free pages, of each file its own: NOVA's free lists are of each core.
    free: Box<[Mutex<Vec<u32>>]>,
}

/// What DRAM knows of a file.
struct File {
    /// Where the log's tail and, one word on, its head lie.
    tail_at: u64,
    /// For each block, its page and where the entry lies that says so.
    tree: Box<[Place]>,
    log: Log,
}

#[derive(Clone, Copy)]
struct Place {
    page: u32,
    entry: u64,
}

const NOWHERE: Place = Place { page: NONE, entry: 0 };

/// A file's log: a chain of pages, with entries in all but the last few.
struct Log {
    /// In the order of the chain.
    pages: Vec<u32>,
    /// Pages that the log has grown by and not reached yet.
    ahead: Vec<u32>,
    /// Entries in the last page.
    used: u32,
}

impl Log {
    fn starting_at(page: u32) -> Log {
        Log { pages: vec![page], ahead: Vec::new(), used: 0 }
    }

    fn last(&self) -> u32 {
        *self.pages.last().expect("a log has a page from the beginning")
    }

    /// Where the next entry goes.
    fn end(&self) -> u64 {
        offset(self.last()) + u64::from(self.used) * ENTRY_BYTES
    }

    fn len(&self) -> usize {
        self.pages.len() + self.ahead.len()
    }
}

impl<R: Region> CowFiles<R> {
    /// Files of `blocks` blocks together in `region`, which has room for them and for at least a
    /// tenth more.
    pub fn new(region: R, blocks: u64, shape: Shape) -> Result<CowFiles<R>, Misuse> {
        let pages = region.len() / PAGE_BYTES;
        let Shape { files, extend_pages } = shape;
        let blocks_each = blocks.div_ceil(files);
        if pages < blocks + blocks / 10 + 3 * files || pages > u64::from(NONE) {
            let len = usize::try_from(region.len()).unwrap_or(usize::MAX);
            return Err(Misuse::PartialBlock { len, block_size: 4096 });
        }
        // Page 0 has the tails of all logs. The others belong to the files by turns.
        let number = |page: u64| u32::try_from(page).expect("counted above");
        let mut free: Vec<Vec<u32>> = (0..files)
            .map(|file| (0..).map(|nth| 1 + file + nth * files).take_while(|page| *page < pages).map(number).collect())
            .collect();
        let file = |(at, free): (u64, &mut Vec<u32>)| {
            let log = Log::starting_at(free.pop().expect("there is room"));
            clear_log_page(&region, log.last());
            let tree = vec![NOWHERE; usize::try_from(blocks_each).expect("counted above")].into();
            Mutex::new(File { tail_at: at * 64, tree, log })
        };
        let files = (0..).zip(&mut free).map(file).collect();
        let free = free.into_iter().map(Mutex::new).collect();
        Ok(CowFiles { region, blocks, blocks_each, extend_pages, files, free })
    }

    /// Makes the files old: every block has an entry, and every second one another that is void, so
    /// that the logs are halfway from one thorough collection to the next. Data stays as it is.
    pub fn age(&self) -> Result<()> {
        let mut random = Rng::new(11);
        let all = 0..self.blocks;
        let again = (0..self.blocks / 2).map(|_| random.below(self.blocks));
        all.chain(again).try_for_each(|block| {
            let (number, first) = (index(block / self.blocks_each), index(block % self.blocks_each));
            let mut file = self.files[number].lock();
            let pages = self.take(number, 1)?;
            self.put(number, &mut file, first, &pages)
        })
    }

    /// Does `act` with each piece of `range` that lies in one file: its number, its first block
    /// there, its blocks, and where it begins in the range.
    fn in_files(&self, range: LbaRange, mut act: impl FnMut(usize, usize, usize, usize) -> Result<()>) -> Result<()> {
        let mut at = range.first.0;
        while at < range.end() {
            let (file, first) = (at / self.blocks_each, at % self.blocks_each);
            let blocks = (range.end() - at).min(self.blocks_each - first);
            act(index(file), index(first), index(blocks), index(at - range.first.0))?;
            at += blocks;
        }
        Ok(())
    }

    fn write_file(&self, number: usize, first: usize, data: &[u8]) -> Result<()> {
        let mut file = self.files[number].lock();
        let pages = self.take(number, data.len() / 4096)?;
        for (page, block) in pages.iter().zip(data.chunks_exact(4096)) {
            self.region.stream(offset(*page), block);
        }
        self.put(number, &mut file, first, &pages)
    }

    /// Makes `pages` the file's blocks from `first` on, and gives up those that were.
    fn put(&self, number: usize, file: &mut File, first: usize, pages: &[u32]) -> Result<()> {
        let entry = self.append(number, file, number_of(first), pages)?;
        self.region.fence()?;
        self.move_tail(file)?;
        self.region.read(entry, &mut [0; 64])?;
        let old: Vec<Place> = pages
            .iter()
            .zip(&mut file.tree[first..first + pages.len()])
            .map(|(page, place)| std::mem::replace(place, Place { page: *page, entry }))
            .collect();
        self.give_up(number, &old)
    }

    fn move_tail(&self, file: &File) -> Result<()> {
        self.region.store_u64(file.tail_at, file.log.end());
        self.region.flush(file.tail_at, 8);
        Ok(self.region.fence()?)
    }

    /// Appends one entry for `pages` to the log, which grows if it has to. Returns where the entry
    /// lies.
    fn append(&self, number: usize, file: &mut File, first: u32, pages: &[u32]) -> Result<u64> {
        if file.log.used == ENTRIES {
            if file.log.ahead.is_empty() {
                self.extend(number, file)?;
            }
            let next = file.log.ahead.pop().expect("it has just grown");
            self.go_on_at(&mut file.log, next);
        }
        self.put_entry(&mut file.log, first, pages)
    }

    /// Lets the log go on at page `next`.
    fn go_on_at(&self, log: &mut Log, next: u32) {
        clear_log_page(&self.region, next);
        self.link(log.last(), next);
        log.pages.push(next);
        log.used = 0;
    }

    fn link(&self, page: u32, next: u32) {
        self.region.store_u64(offset(page) + NEXT_AT, offset(next));
        self.region.flush(offset(page) + NEXT_AT, 8);
    }

    /// Puts an entry at the end of `log`, and begins its write-back.
    fn put_entry(&self, log: &mut Log, first: u32, pages: &[u32]) -> Result<u64> {
        let at = log.end();
        let mut entry = [0; 64];
        self.region.write(at, &entry);
        entry[..4].copy_from_slice(&first.to_le_bytes());
        entry[8..12].copy_from_slice(&number_of(pages.len()).to_le_bytes());
        entry[12..16].copy_from_slice(&pages[0].to_le_bytes());
        self.region.stream(at, &entry);
        log.used += 1;
        self.count(log.last(), 1)?;
        Ok(at)
    }

    /// Adds to what a log page counts.
    fn count(&self, page: u32, more: u64) -> Result<()> {
        let at = offset(page) + COUNTS_AT;
        let counts = self.region.load_u64(at)?;
        self.region.store_u64(at, counts + more);
        self.region.flush(at, 8);
        Ok(())
    }

    /// Frees pages that no block is in any more, and has their entries count that.
    fn give_up(&self, number: usize, old: &[Place]) -> Result<()> {
        for of_entry in old.chunk_by(|one, other| one.entry == other.entry) {
            let entry = of_entry[0].entry;
            if of_entry[0].page == NONE {
                continue;
            }
            let blocks = self.region.load_u64(entry + LEN_AT)? & u64::from(NONE);
            let void = self.region.load_u64(entry + VOID_AT)? + of_entry.len() as u64;
            self.region.store_u64(entry + VOID_AT, void);
            self.region.flush(entry, ENTRY_BYTES);
            if void == blocks {
                self.count(page_of(entry), ONE_VOID)?;
            }
            self.free[number].lock().extend(of_entry.iter().map(|place| place.page));
        }
        Ok(())
    }

    /// Lets the log grow, and collects what of it is void.
    fn extend(&self, number: usize, file: &mut File) -> Result<()> {
        let more = file.log.len().min(self.extend_pages);
        file.log.ahead = self.take(number, more)?;
        let counted = self.collect_fast(number, file)?;
        if 2 * counted.div_ceil(u64::from(ENTRIES)) < file.log.pages.len() as u64 {
            self.collect_thoroughly(number, file)?;
        }
        Ok(())
    }

    /// Walks the whole log and frees the pages whose entries are all void; how many entries are
    /// not.
    fn collect_fast(&self, number: usize, file: &mut File) -> Result<u64> {
        let (mut kept, mut counted, mut ablations) = (Vec::with_capacity(file.log.pages.len()), 0, false);
        let last = file.log.last();
        for page in std::mem::take(&mut file.log.pages) {
            let counts = self.region.load_u64(offset(page) + COUNTS_AT)?;
            let (entries, void) = (counts % ONE_VOID, counts / ONE_VOID);
            counted += entries - void;
            if entries == void && page != last {
                self.free[number].lock().push(page);
                ablations = true;
                continue;
            }
            // The line that counts also names the next page.
            if ablations && let Some(before) = kept.last() {
                self.link(*before, page);
            }
            ablations = false;
            kept.push(page);
        }
        file.log.pages = kept;
        self.region.store_u64(file.tail_at + 8, offset(file.log.pages[0]));
        self.region.flush(file.tail_at + 8, 8);
        self.region.fence()?;
        Ok(counted)
    }

    /// Copies what counts of the log to a new one.
    fn collect_thoroughly(&self, number: usize, file: &mut File) -> Result<()> {
        let first = self.take(number, 1)?[0];
        clear_log_page(&self.region, first);
        let ahead = std::mem::take(&mut file.log.ahead);
        let old = std::mem::replace(&mut file.log, Log::starting_at(first));
        for first in 0..file.tree.len() {
            let Place { page, entry } = file.tree[first];
            if page == NONE {
                continue;
            }
            self.region.read(entry, &mut [0; 64])?;
            if file.log.used == ENTRIES {
                let next = self.take(number, 1)?[0];
                self.go_on_at(&mut file.log, next);
            }
            file.tree[first].entry = self.put_entry(&mut file.log, number_of(first), &[page])?;
        }
        file.log.ahead = ahead;
        self.region.store_u64(file.tail_at + 8, offset(file.log.pages[0]));
        self.region.flush(file.tail_at + 8, 8);
        self.region.fence()?;
        self.move_tail(file)?;
        self.free[number].lock().extend(old.pages);
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

fn page_of(entry: u64) -> u32 {
    number_of(index(entry / PAGE_BYTES))
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a page's number fits")
}

fn number_of(index: usize) -> u32 {
    u32::try_from(index).expect("pages are counted in 32 bits")
}

/// An empty log page that nothing follows.
fn clear_log_page<R: Region>(region: &R, page: u32) {
    region.store_u64(offset(page) + COUNTS_AT, 0);
    region.store_u64(offset(page) + NEXT_AT, 0);
    region.flush(offset(page) + COUNTS_AT, 16);
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

    const SHAPE: Shape = Shape { files: 8, extend_pages: 2 };

    /// Every page is free, a log's, or a block's; and what persistent memory says of the logs is
    /// what DRAM does.
    fn check<R: Region>(files: &CowFiles<R>, mapped: usize) {
        let free: usize = files.free.iter().map(|free| free.lock().len()).sum();
        let logs: usize = files.files.iter().map(|file| file.lock().log.len()).sum();
        assert_eq!(free + logs + mapped + 1, index(files.region.len() / PAGE_BYTES));
        for file in &files.files {
            let file = file.lock();
            let mut chain = vec![file.log.pages[0]];
            let mut counted = 0;
            loop {
                let page = *chain.last().unwrap();
                let counts = files.region.load_u64(offset(page) + COUNTS_AT).unwrap();
                counted += counts % ONE_VOID - counts / ONE_VOID;
                match files.region.load_u64(offset(page) + NEXT_AT).unwrap() {
                    0 => break,
                    next => chain.push(page_of(next)),
                }
            }
            assert_eq!(chain, file.log.pages);
            let mut entries: Vec<u64> =
                file.tree.iter().filter(|place| place.page != NONE).map(|place| place.entry).collect();
            entries.sort_unstable();
            entries.dedup();
            assert_eq!(counted, entries.len() as u64, "entries that blocks are in");
        }
    }

    #[test]
    fn old_files_have_long_logs_and_go_on() {
        const BLOCKS: u64 = 4096;
        let region = MappedRegion::anonymous((BLOCKS + BLOCKS / 8) * 4096 + (1 << 20)).unwrap();
        let files = CowFiles::new(region, BLOCKS, Shape { files: 1, extend_pages: 2 }).unwrap();
        files.age().unwrap();
        check(&files, index(BLOCKS));
        let (pages, least) = (files.files[0].lock().log.len() as u64, BLOCKS.div_ceil(u64::from(ENTRIES)));
        assert!(pages > least * 5 / 4 && pages <= 2 * least, "{pages} pages for {least}");
        let mut random = Rng::new(4);
        for _ in 0..3 * BLOCKS {
            files.write(Lba(random.below(BLOCKS)), &[9; 4096], Durability::Fua).unwrap();
            assert!(files.files[0].lock().log.pages.len() as u64 <= 2 * least + 4, "collected in time");
        }
        check(&files, index(BLOCKS));
    }

    /// Small files, many writes: every page and every log page is freed and used again many times.
    #[test]
    fn files_read_as_a_plain_array_does() {
        const BLOCKS: u64 = 2048;
        let region = MappedRegion::anonymous((BLOCKS + BLOCKS / 8) * 4096 + (1 << 20)).unwrap();
        let files = CowFiles::new(region, BLOCKS, SHAPE).unwrap();
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
        check(&files, model.iter().filter(|fill| **fill != 0).count());
    }

    #[test]
    fn a_region_without_room_for_logs_is_refused() {
        assert!(CowFiles::new(MappedRegion::anonymous(1024 * 4096).unwrap(), 1024, Shape::NOVA).is_err());
    }
}
