//! All commits to an ordered disk, and the rules for an image of the disk alone.
//!
//! An image stands for one instant: that of a cut in the order of commits. It keeps these rules:
//!
//! - The content of a block began by then, and no replacement of it had ended.
//! - A transaction is wholly before the instant or wholly after it.
//! - A write that went well in a mode that writes to the disk at once was committed by then.
//! - No instant comes before an earlier one, as far as a power cut has left both.

use crate::writes::Written;
use tidegate_media::{Lba, Result};
use tidegate_sim::Content;

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
pub(crate) struct Reached {
    /// The instant of its cut is this one, or comes later.
    instant: u64,
    /// For each block: it shows nothing that had ended by then.
    after: Vec<u64>,
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
    pub(crate) fn add(&mut self, ended: Vec<Written>) {
        for written in ended {
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
    pub(crate) fn judge(&self, shown: &[Content]) -> Result<Reached, String> {
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
    pub(crate) fn has_reached(&mut self, reached: Reached) {
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
