//! What Filebench's personalities dirty on a file system like Ext4, block by block, and what a
//! journal makes of it: how many blocks are written, and how many a transaction has.
//!
//! ```text
//! | group descriptors | block bitmaps | inode bitmaps | inodes | folders | files | program log |
//! ```
//!
//! A file's data, its inode, its folder, the bitmaps of its group and the group's descriptor are
//! dirtied where an operation changes them, and stay dirty in DRAM until they are written: with a
//! journal, all of them at each of its commits; without, at each writeback. A sync commits, or
//! writes the blocks that its file needs. A new file takes the place of the deleted one.

use super::super::Scale;
use super::super::caiti::load::whole;
use super::super::figure::{Chart, Figure};
use super::super::personalities::Personality;
use super::{frame, point, series};
use std::collections::BTreeSet;
use std::sync::Arc;
use tidegate_baselines::classic::{Ablations, FlashCache, Journal, Stack};
use tidegate_measure::medium;
use tidegate_measure::subject::{BLOCK_BYTES, Block};
use tidegate_media::{InTurn, MappedRegion};
use tidegate_nbd_client::ram::Ram;
use tidegate_sim::Rng;

/// Everything but the journal is so many times smaller than in the paper.
const SMALLER: u64 = 16;

/// The cache's blocks: 8 GiB.
const CACHE_BLOCKS: u32 = (2 << 20) / 16;

/// The journal's: 128 MiB, and those of them that a transaction takes at most, a quarter.
const JOURNAL_BLOCKS: u64 = 32 << 10;
const TRANSACTION_BLOCKS: usize = 8 << 10;

/// Rounds of a personality between two commits, every five seconds, where no speed is measured: the
/// paper does not tell its own.
const ROUNDS_A_COMMIT: u32 = 400;

/// Commits between two writebacks of the same block, every thirty seconds.
const COMMITS_A_WRITEBACK: u32 = 6;

/// Threads of varmail, whose syncs share a commit.
const SYNCED_TOGETHER: u32 = 16;

/// Blocks of a group of Ext4, inodes of 256 bytes in a block, descriptors of 64 bytes in one, files
/// in a folder of Filebench.
const GROUP_BLOCKS: u64 = 32 << 10;
const INODES_A_BLOCK: u64 = 16;
const DESCRIPTORS_A_BLOCK: u64 = 64;
const FILES_A_FOLDER: u64 = 20;

/// Blocks that an append adds: 16 KiB.
const APPENDED: u64 = 4;

/// Blocks of the program's log, written round and round.
const LOG_BLOCKS: u64 = 4096;

/// The files of a personality, and what is dirty.
pub(super) struct Files {
    personality: Personality,
    sizes: Vec<u64>,
    log_end: u64,
    dirty: BTreeSet<u64>,
    random: Rng,
}

impl Files {
    /// As many as the paper has, but for [`SMALLER`].
    fn new(personality: Personality) -> Files {
        Files::of(personality, SMALLER)
    }

    /// So many times fewer than the paper has.
    pub(super) fn of(personality: Personality, smaller: u64) -> Files {
        let bytes: u64 = if personality == Personality::FileServer { 51_200_000_000 } else { 32_000_000_000 };
        let file_blocks = personality.file_bytes() as u64 / BLOCK_BYTES as u64;
        let files = bytes / smaller / personality.file_bytes() as u64;
        let sizes = (0..files).map(|_| file_blocks).collect();
        Files { personality, sizes, log_end: 0, dirty: BTreeSet::new(), random: Rng::new(11) }
    }

    fn count(&self) -> u64 {
        self.sizes.len() as u64
    }

    /// Blocks that a file may grow to.
    fn room(&self) -> u64 {
        2 * self.file_blocks() + 2 * APPENDED
    }

    fn file_blocks(&self) -> u64 {
        self.personality.file_bytes() as u64 / BLOCK_BYTES as u64
    }

    fn groups(&self) -> u64 {
        (self.count() * self.room()).div_ceil(GROUP_BLOCKS)
    }

    fn inodes_at(&self) -> u64 {
        self.groups().div_ceil(DESCRIPTORS_A_BLOCK) + 2 * self.groups()
    }

    fn folders_at(&self) -> u64 {
        self.inodes_at() + self.count().div_ceil(INODES_A_BLOCK)
    }

    fn data_at(&self) -> u64 {
        self.folders_at() + self.count().div_ceil(FILES_A_FOLDER)
    }

    fn log_at(&self) -> u64 {
        self.data_at() + self.count() * self.room()
    }

    /// Blocks of all of it.
    pub(super) fn blocks(&self) -> u64 {
        self.log_at() + LOG_BLOCKS
    }

    fn any(&mut self) -> u64 {
        self.random.below(self.count())
    }

    fn inode(&self, file: u64) -> u64 {
        self.inodes_at() + file / INODES_A_BLOCK
    }

    fn folder(&self, file: u64) -> u64 {
        self.folders_at() + file / FILES_A_FOLDER
    }

    /// What the file system must know again when blocks of `file` are taken or given back: a
    /// bitmap, and its group's descriptor.
    fn dirty_space(&mut self, file: u64) {
        let group = file * self.room() / GROUP_BLOCKS;
        self.dirty.insert(group / DESCRIPTORS_A_BLOCK);
        self.dirty.insert(self.groups().div_ceil(DESCRIPTORS_A_BLOCK) + group);
    }

    /// Deletes `file` and makes it anew, which changes its name, its inode and who has which of
    /// them.
    fn replace(&mut self, file: u64) {
        let group = file * self.room() / GROUP_BLOCKS;
        let bitmap = self.groups().div_ceil(DESCRIPTORS_A_BLOCK) + self.groups() + group;
        self.dirty.extend([bitmap, self.inode(file), self.folder(file)]);
        self.dirty_space(file);
        let at = self.data_at() + file * self.room();
        self.dirty.extend(at..at + self.file_blocks());
        *self.size(file) = self.file_blocks();
    }

    /// Appends to `file`; returns the blocks.
    fn append(&mut self, file: u64) -> Vec<u64> {
        let (at, room) = (self.data_at() + file * self.room(), self.room());
        let size = *self.size(file);
        *self.size(file) = size + APPENDED;
        let added: Vec<u64> = (size..size + APPENDED).map(|block| at + block % room).collect();
        self.dirty.extend(&added);
        self.dirty.insert(self.inode(file));
        self.dirty_space(file);
        added
    }

    fn append_to_log(&mut self) {
        let (at, end) = (self.log_at(), self.log_end);
        self.dirty.extend((end..end + APPENDED).map(|block| at + block % LOG_BLOCKS));
        self.log_end += APPENDED;
        // The log's inode is the first, as good as any.
        self.dirty.insert(self.inodes_at());
    }

    fn size(&mut self, file: u64) -> &mut u64 {
        &mut self.sizes[usize::try_from(file).expect("a file of a set in memory")]
    }

    /// One round of the personality's mix; returns what must be durable before it goes on, if it
    /// syncs.
    pub(super) fn round(&mut self) -> Vec<u64> {
        let (one, other) = (self.any(), self.any());
        self.replace(one);
        match self.personality {
            Personality::FileServer => {
                self.append(other);
                Vec::new()
            }
            Personality::WebProxy | Personality::WebServer => {
                self.append_to_log();
                Vec::new()
            }
            Personality::VarMail => {
                let at = self.data_at() + one * self.room();
                let mut needed: Vec<u64> = (at..at + self.file_blocks()).collect();
                needed.extend(self.append(other));
                needed.extend([one, other].map(|file| self.inode(file)));
                needed.push(self.folder(one));
                needed
            }
        }
    }

    /// The blocks that a round reads: whole files.
    pub(super) fn read_in_a_round(&mut self) -> Vec<u64> {
        let files = match self.personality {
            Personality::FileServer => 1,
            Personality::VarMail => 2,
            Personality::WebProxy => 5,
            Personality::WebServer => 10,
        };
        let chosen: Vec<u64> = (0..files).map(|_| self.any()).collect();
        let blocks_of = |file: u64| {
            let at = self.data_at() + file * self.room();
            at..at + self.file_blocks()
        };
        chosen.into_iter().flat_map(blocks_of).collect()
    }

    /// Takes what is dirty, in the order of the disk, once it is so many blocks.
    pub(super) fn take_dirty(&mut self, blocks: usize) -> Vec<u64> {
        if self.dirty.len() < blocks {
            return Vec::new();
        }
        std::mem::take(&mut self.dirty).into_iter().collect()
    }

    /// Whether what is dirty is all that a transaction takes.
    fn is_full(&self) -> bool {
        self.dirty.len() >= TRANSACTION_BLOCKS
    }
}

/// A file system on a cache.
struct Mounted {
    files: Files,
    journal: bool,
    stack: Box<dyn Stack>,
    block: Block,
    rounds: u32,
    /// What varmail's threads wait for.
    synced: BTreeSet<u64>,
}

impl Mounted {
    fn new(personality: Personality, journal: bool) -> anyhow::Result<Mounted> {
        let files = Files::new(personality);
        let disk = Arc::new(InTurn(Ram::new(4096, files.blocks() + JOURNAL_BLOCKS)));
        let region = medium::region(FlashCache::<MappedRegion>::bytes_for(CACHE_BLOCKS))?;
        let cache = FlashCache::new(region, disk, CACHE_BLOCKS, Ablations::default());
        let stack: Box<dyn Stack> =
            if journal { Box::new(Journal::new(cache, files.blocks(), JOURNAL_BLOCKS)) } else { Box::new(cache) };
        Ok(Mounted { files, journal, stack, block: Block::filled(5), rounds: 0, synced: BTreeSet::new() })
    }

    fn round(&mut self) -> anyhow::Result<()> {
        self.synced.extend(self.files.round());
        self.rounds += 1;
        let sync = !self.synced.is_empty() && self.rounds.is_multiple_of(SYNCED_TOGETHER);
        let synced = if sync { std::mem::take(&mut self.synced) } else { BTreeSet::new() };
        let commits = self.rounds.is_multiple_of(ROUNDS_A_COMMIT);
        match self.journal {
            true if sync || commits || self.files.is_full() => self.write_all(),
            true => Ok(()),
            false if self.rounds.is_multiple_of(COMMITS_A_WRITEBACK * ROUNDS_A_COMMIT) => self.write_all(),
            false => self.write_now(&synced),
        }
    }

    fn write_all(&mut self) -> anyhow::Result<()> {
        let all: Vec<u64> = std::mem::take(&mut self.files.dirty).into_iter().collect();
        self.stack.commit(&all, &self.block)?;
        while self.stack.step()? {}
        Ok(())
    }

    fn write_now(&mut self, lbas: &BTreeSet<u64>) -> anyhow::Result<()> {
        let dirty: Vec<u64> = lbas.iter().copied().filter(|lba| self.files.dirty.remove(lba)).collect();
        self.stack.commit(&dirty, &self.block)?;
        while self.stack.step()? {}
        Ok(())
    }
}

/// Blocks written to the cache for a round, after a writeback and up to another.
fn written(personality: Personality, journal: bool, writebacks: u32) -> anyhow::Result<f64> {
    let rounds = COMMITS_A_WRITEBACK * ROUNDS_A_COMMIT;
    let mut mounted = Mounted::new(personality, journal)?;
    (0..rounds).try_for_each(|_| mounted.round())?;
    let before = mounted.stack.done().writes;
    (0..writebacks * rounds).try_for_each(|_| mounted.round())?;
    Ok((mounted.stack.done().writes - before) as f64 / f64::from(writebacks * rounds))
}

/// Fig. 3a.
pub fn files(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    Ok(vec![traffic(scale)?])
}

const NOTE: &str = "Exact counts of a model of Ext4's blocks under Filebench's mixes; the files and the cache are a 16th of the paper's, the journal \
                    is as large as there: 128 MiB.";

pub(super) fn figure(id: &str, paper: &str, title: &str, chart: Chart, unit: &str, baseline: &str) -> Figure {
    let (baseline, notes) = (Some(baseline.to_owned()), vec![NOTE.to_owned()]);
    Figure { baseline, notes, ..frame(id, paper, title, chart, unit) }
}

fn traffic(scale: Scale) -> anyhow::Result<Figure> {
    const LABELS: [(&str, bool); 2] = [("no journal", false), ("Classic", true)];
    let title = "What a journal adds to the blocks written to the cache";
    let mut figure = figure("fig-3a", "Fig. 3a", title, Chart::Bars, "blocks per round", LABELS[0].0);
    let writebacks = if scale == Scale::FULL { 4 } else { 1 };
    // Of the three, varmail writes least.
    let all = [Personality::FileServer, Personality::WebProxy, Personality::VarMail];
    let personalities = if scale == Scale::SMOKE { &all[2..] } else { &all[..] };
    for (label, journal) in LABELS {
        let mut points = Vec::new();
        for &personality in personalities {
            points.push(point(personality.label(), written(personality, journal, writebacks)?, None));
        }
        figure.series.push(series(label, points));
    }
    figure.notes.push(format!(
        "The paper has 1.95 to 2.90 times as many, and does not tell of which workload. A commit comes every {ROUNDS_A_COMMIT} rounds, and sooner where \
         a quarter of the journal is dirty; a writeback every {COMMITS_A_WRITEBACK} commits (5 and 30 seconds). Varmail's syncs share a commit, \
         {SYNCED_TOGETHER} rounds of them."
    ));
    Ok(figure)
}

/// Blocks of a transaction that the journal commits after five seconds of so many rounds a second.
pub(crate) fn blocks_at_speed(personality: Personality, rounds_per_second: f64) -> f64 {
    /// Seconds between two commits of the journal.
    const COMMIT_SECONDS: f64 = 5.0;
    let rounds = u32::try_from(whole(rounds_per_second * COMMIT_SECONDS)).unwrap_or(u32::MAX);
    transaction_blocks(personality, rounds.max(1))
}

/// Blocks of a transaction, on the mean of ten.
pub(super) fn transaction_blocks(personality: Personality, rounds: u32) -> f64 {
    let (mut files, mut blocks) = (Files::new(personality), 0);
    for _ in 0..10 {
        for _ in 0..rounds {
            files.round();
            if files.is_full() {
                break;
            }
        }
        blocks += std::mem::take(&mut files.dirty).len();
    }
    blocks as f64 / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_dirties_its_data_and_little_else() {
        let dirtied = |personality| {
            let mut files = Files::new(personality);
            let needed = files.round();
            assert!(files.dirty.iter().all(|block| *block < files.blocks()));
            assert!(needed.iter().all(|block| files.dirty.contains(block)), "only what is dirty can be synced");
            (files.dirty.len(), needed.len())
        };
        let (blocks, needed) = dirtied(Personality::FileServer);
        // Two inodes and a folder, two bitmaps of blocks and one of inodes, one block of
        // descriptors; less where the files are neighbours.
        assert!((32 + 4 + 5..=32 + 4 + 7).contains(&blocks), "{blocks}");
        assert_eq!(needed, 0, "nothing is synced");
        assert_eq!(dirtied(Personality::WebProxy), (4 + 4 + 6, 0));
        assert_eq!(dirtied(Personality::VarMail).1, 4 + 4 + 3);
    }

    #[test]
    fn a_transaction_is_never_greater_than_a_quarter_of_the_journal_and_a_round() {
        let most = transaction_blocks(Personality::FileServer, 1600);
        assert!((8192.0..8192.0 + 44.0).contains(&most), "{most}");
        assert!(transaction_blocks(Personality::WebProxy, 100) < 100.0 * 14.0);
    }

    #[test]
    fn without_a_journal_each_dirty_block_is_written_once() {
        let mut mounted = Mounted::new(Personality::WebProxy, false).unwrap();
        (0..COMMITS_A_WRITEBACK * ROUNDS_A_COMMIT - 1).for_each(|_| mounted.round().unwrap());
        assert_eq!(mounted.stack.done().writes, 0);
        let dirty = mounted.files.dirty.len() as u64;
        mounted.round().unwrap();
        assert!((dirty..dirty + 14).contains(&mounted.stack.done().writes));
    }
}
