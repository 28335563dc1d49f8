//! Ordered disks without their memory: after any end the disk alone is put in order by its journal,
//! and shows what all blocks were at one instant.
//!
//! The instant is that of a cut in the order of commits. What is asked of it: what a block shows
//! had begun by then, and nothing that replaces it had ended; transactions are on one side; what
//! went well in a mode that brings writes to the disk at once had been committed; and no instant
//! comes before an earlier one, as far as a power cut has left both. That is judged for every cut
//! and kill, also with the power failing while the disk is put in order.

use crate::life::{Scene, Seen};
use crate::marks;
use std::sync::Arc;
use tidegate_disk_cache::{FoundJournal, find_journal, recover_disk};
use tidegate_layout::disk_cache::JournalPlan;
use tidegate_media::{BlockDevice, InTurn, Lba, Result};
use tidegate_sim::{Content, Disk, DiskImage, Ending, Intercepted, Rng, SectorTear};

/// All that was ever committed, and how far the disk alone has come.
pub(crate) struct Commits {
    zero: Content,
    commits: Vec<Commit>,
    reached: Reached,
}

/// Blocks that were put in place together.
struct Commit {
    began: u64,
    ended: Option<u64>,
    blocks: Vec<Block>,
    together: bool,
}

struct Block {
    lba: Lba,
    content: Content,
    /// When the block was seen without it for good.
    gone: Option<u64>,
}

/// What an image of the disk has at least.
#[derive(Clone)]
struct Reached {
    /// The instant of its cut is this one, or comes later.
    instant: u64,
    /// For each block: it shows nothing that had ended by then.
    after: Vec<u64>,
}

/// Whether what an image has reached is there for good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// By a power cut: the next life begins with it.
    ForGood,
    /// A power cut may still take some of it, or there was none.
    Perhaps,
}

impl Commits {
    /// `blocks` blocks of `zero`.
    pub(crate) fn new(blocks: u64, zero: Content) -> Commits {
        let after = vec![0; usize::try_from(blocks).expect("a small device")];
        let mut commits = Commits { zero, commits: Vec::new(), reached: Reached { instant: 0, after } };
        for lba in (0..blocks).map(Lba) {
            commits.push(0, Some(0), vec![(lba, zero)], false);
        }
        commits
    }

    fn push(&mut self, began: u64, ended: Option<u64>, blocks: Vec<(Lba, Content)>, together: bool) {
        let blocks = blocks.into_iter().map(|(lba, content)| Block { lba, content, gone: None }).collect();
        self.commits.push(Commit { began, ended, blocks, together });
    }

    /// Takes over what was written in a life that has ended.
    fn add(&mut self, seen: &mut Seen) {
        for written in std::mem::take(&mut seen.written) {
            let contents = written.contents.iter().copied().chain(std::iter::repeat(self.zero));
            let blocks: Vec<(Lba, Content)> = written.lbas.iter().copied().zip(contents).collect();
            let ended = (written.ended < u64::MAX).then_some(written.ended);
            if written.through && !blocks.is_empty() {
                self.reached.instant = self.reached.instant.max(written.began);
                blocks.iter().for_each(|(lba, _)| self.reached.follows(*lba, written.began));
            }
            match written.together {
                true => self.push(written.began, ended, blocks, true),
                false => blocks.into_iter().for_each(|block| self.push(written.began, ended, vec![block], false)),
            }
        }
    }

    /// A recovery with the memory has found `contents` at the instant `now`.
    pub(crate) fn found(&mut self, contents: &[Content], now: u64) {
        for commit in &mut self.commits {
            for block in &mut commit.blocks {
                if contents[index(block.lba)] == block.content {
                    commit.ended.get_or_insert(now);
                } else {
                    block.gone.get_or_insert(now);
                }
            }
        }
    }

    /// Whether `shown` is what all blocks were at one instant, and what an image that shows it has
    /// at least.
    fn judge(&self, shown: &[Content]) -> Result<Reached, String> {
        let mut reached = self.reached.clone();
        loop {
            let before = (reached.instant, reached.after.clone());
            for (lba, content) in (0..).map(Lba).zip(shown) {
                let may_be = |commit: &&Commit| self.shows(commit, lba, *content, &reached);
                let all: Vec<&Commit> = self.commits.iter().filter(may_be).collect();
                let Some(first) = all.iter().map(|commit| commit.began).min() else {
                    return Err(format!(
                        "the disk alone shows in {lba} what was not there with the rest: {content:x?}"
                    ));
                };
                reached.instant = reached.instant.max(first);
                if let [commit] = all[..]
                    && commit.together
                {
                    commit.blocks.iter().for_each(|block| reached.follows(block.lba, commit.began));
                }
            }
            if before == (reached.instant, reached.after.clone()) {
                return Ok(reached);
            }
        }
    }

    /// Whether `commit` may be what `lba` shows `content` of, in an image that has reached this.
    fn shows(&self, commit: &Commit, lba: Lba, content: Content, reached: &Reached) -> bool {
        let Some(block) = commit.blocks.iter().find(|block| block.lba == lba && block.content == content) else {
            return false;
        };
        let there = block.gone.is_none_or(|gone| reached.instant < gone);
        let (instant, after) = (reached.instant, reached.after[index(lba)]);
        there && commit.ended.is_none_or(|ended| ended >= after && !self.is_replaced(lba, ended, instant))
    }

    /// Whether something in `lba` that had `ended` was replaced by what had ended before `instant`.
    fn is_replaced(&self, lba: Lba, ended: u64, instant: u64) -> bool {
        let replaces = |by: &&Commit| by.began > ended && by.ended.is_some_and(|by| by < instant);
        self.commits.iter().filter(replaces).any(|by| by.blocks.iter().any(|block| block.lba == lba))
    }

    /// From now on every image has reached this. What none can show any more is forgotten.
    fn has_reached(&mut self, reached: Reached) {
        self.reached = reached;
        let instant = self.reached.instant;
        let old = |commit: &Commit| {
            let replaced =
                |block: &Block| commit.ended.is_some_and(|ended| self.is_replaced(block.lba, ended, instant));
            commit.blocks.iter().all(replaced)
        };
        let old: Vec<bool> = self.commits.iter().map(old).collect();
        let mut old = old.into_iter();
        self.commits.retain(|_| !old.next().expect("as many"));
    }
}

impl Reached {
    /// `lba` shows nothing that had ended when something else in it `began`.
    fn follows(&mut self, lba: Lba, began: u64) {
        let after = &mut self.after[index(lba)];
        *after = began.max(*after);
    }
}

fn index(lba: Lba) -> usize {
    usize::try_from(lba.0).expect("a small device")
}

impl Scene {
    /// Judges `disk` without its memory, if it is an ordered one.
    pub(crate) fn judge_alone(&mut self, disk: &DiskImage, left: Left) -> Result<(), String> {
        let Some(journal) = self.setting.plan.journal() else { return Ok(()) };
        {
            let mut seen = self.seen();
            let mut commits = std::mem::take(&mut seen.commits).expect("there is an account of an ordered disk");
            commits.add(&mut seen);
            seen.commits = Some(commits);
        }
        let (blocks, shown) = match put_in_order(disk, &journal) {
            Ok(shown) => shown,
            // Its memory makes a group anew of all that it has.
            Err(_) if self.rotten => return Ok(()),
            Err(why) => return Err(format!("the disk alone: {why}")),
        };
        if blocks > 0 {
            self.marks.reach(marks::ALONE_AMID);
        }
        let reached = {
            let seen = self.seen();
            seen.commits.as_ref().expect("just put back").judge(&shown)?
        };
        if left == Left::ForGood {
            if std::mem::take(&mut self.rotten) {
                self.marks.reach(marks::MADE_ANEW);
            }
            self.seen().commits.iter_mut().for_each(|commits| commits.has_reached(reached.clone()));
        }
        let cut = cut_in_order(disk, &mut self.fate);
        let (_, again) = put_in_order(&cut, &journal).map_err(|why| format!("the disk alone, cut again: {why}"))?;
        match again == shown {
            true => Ok(()),
            false => Err("the disk alone shows something else after a cut while it was put in order".to_owned()),
        }
    }
}

/// Changes a word of the group that counts in the `journal` of `disk`, if one does.
pub(crate) fn rot(disk: &mut DiskImage, journal: &JournalPlan, rng: &mut Rng) -> bool {
    let there = Arc::new(Disk::from_image(disk.clone(), journal.block_size));
    let Ok(Some(FoundJournal { blocks: blocks @ 1.., .. })) = find_journal(&InTurn(there)) else { return false };
    let (size, words) = (u64::from(journal.block_size), u64::from(journal.block_size / 8));
    let at = match rng.one_in(2) {
        true => journal.records_at() * size + 8 * rng.below(2 * u64::from(blocks)),
        false => journal.data_at() * size + 8 * rng.below(words * u64::from(blocks)),
    };
    disk.write(at, &rng.next_u64().to_le_bytes());
    true
}

/// Blocks that the journal of `disk` put in place, and what all before it show then.
fn put_in_order(disk: &DiskImage, journal: &JournalPlan) -> Result<(u32, Vec<Content>), String> {
    let disk = Arc::new(Disk::from_image(disk.clone(), journal.block_size));
    let found = recover_disk(&InTurn(disk.clone())).map_err(|error| error.to_string())?;
    let found = found.filter(|found| found.disk_blocks == journal.disk_blocks).ok_or("there is no journal")?;
    let mut block = vec![0; journal.block_size as usize];
    let mut read = |lba| disk.read(Lba(lba), &mut block).map(|()| Content::of(&block));
    let shown = (0..journal.disk_blocks).map(&mut read).collect::<Result<_>>();
    Ok((found.blocks, shown.map_err(|error| error.to_string())?))
}

/// What a power cut leaves of `disk` while it is put in order.
fn cut_in_order(disk: &DiskImage, rng: &mut Rng) -> DiskImage {
    const ACCESSES: u64 = 24;
    let disk = Arc::new(Disk::from_image(disk.clone(), 512));
    let ending = InTurn(Intercepted { device: disk.clone(), by: Ending::after(1 + rng.below(ACCESSES)) });
    // It fails as a rule.
    let _ = recover_disk(&ending);
    disk.cut().sample(rng, SectorTear::Possible)
}
