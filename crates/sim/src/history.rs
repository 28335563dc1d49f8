//! Histories: when each operation on a block began and ended, and whether one order of all of them
//! explains what reads saw.
//!
//! Contents are unique, so each one and the reads that saw it form a *cluster*, which every order
//! keeps together. A cluster whose first end comes before its last begin must be in force all the
//! time between them: such times must not overlap. Any other cluster has to be in force at some
//! time between its last begin and its first end: that must not lie within one of those. Nothing
//! else can go wrong (Gibbons and Korach, "Testing shared memories", 1997). What is left out, as
//! contents that are not unique, only makes the verdict milder.

use crate::oracle::Content;
use std::collections::BTreeMap;
use tidegate_media::Lba;

/// Operations on a device by the instants at which they began and ended.
#[derive(Clone, Debug)]
pub struct History {
    now: u64,
    blocks: Vec<BTreeMap<Content, Cluster>>,
}

/// An operation that began then.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Began(u64);

/// A write and the reads that saw it.
#[derive(Clone, Copy, Debug)]
struct Cluster {
    began: u64,
    first_end: u64,
    last_begin: u64,
    first_read: u64,
}

/// Operations that no order explains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inexplicable {
    /// The block.
    pub lba: Lba,
    /// What is wrong.
    pub why: String,
}

impl std::fmt::Display for Inexplicable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no order of the operations on {} explains what its reads saw: {}", self.lba, self.why)
    }
}

impl History {
    /// A device whose blocks hold `contents`. Give only unique ones: [`History::read`] overlooks
    /// those it does not know.
    pub fn new(contents: impl IntoIterator<Item = Option<Content>>) -> History {
        let at_rest = Cluster { began: 0, first_end: 0, last_begin: 0, first_read: u64::MAX };
        let block = |content: Option<Content>| content.into_iter().map(|content| (content, at_rest)).collect();
        History { now: 1, blocks: contents.into_iter().map(block).collect() }
    }

    /// An operation begins.
    pub fn begin(&mut self) -> Began {
        self.now += 1;
        Began(self.now)
    }

    /// The write that began then puts `content` into `lba`.
    pub fn writes(&mut self, began: &Began, lba: Lba, content: Content) {
        let cluster = Cluster { began: began.0, first_end: u64::MAX, last_begin: began.0, first_read: u64::MAX };
        self.block(lba).insert(content, cluster);
    }

    /// The write of `content` to `lba` is over.
    pub fn wrote(&mut self, lba: Lba, content: Content) {
        self.now += 1;
        let now = self.now;
        let cluster = self.block(lba).get_mut(&content).expect("the write began");
        cluster.first_end = cluster.first_end.min(now);
    }

    /// The read that began then is over and saw `content` in `lba`.
    pub fn read(&mut self, began: Began, lba: Lba, content: Content) {
        self.now += 1;
        let now = self.now;
        if let Some(cluster) = self.block(lba).get_mut(&content) {
            cluster.first_end = cluster.first_end.min(now);
            cluster.last_begin = cluster.last_begin.max(began.0);
            cluster.first_read = cluster.first_read.min(now);
        }
    }

    /// Whether some order explains everything, for each block.
    pub fn judge(&self) -> Result<(), Inexplicable> {
        (0..)
            .map(Lba)
            .zip(&self.blocks)
            .try_for_each(|(lba, block)| judge(block).map_err(|why| Inexplicable { lba, why }))
    }

    fn block(&mut self, lba: Lba) -> &mut BTreeMap<Content, Cluster> {
        &mut self.blocks[usize::try_from(lba.0).expect("a block of the device")]
    }
}

fn judge(block: &BTreeMap<Content, Cluster>) -> Result<(), String> {
    let mut in_force: Vec<(u64, u64, Content)> = Vec::new();
    let mut at_some_time: Vec<(u64, u64, Content)> = Vec::new();
    for (content, cluster) in block {
        if cluster.first_read < cluster.began {
            return Err(format!("{content:x?} was read before its write began"));
        }
        if cluster.first_end < cluster.last_begin {
            in_force.push((cluster.first_end, cluster.last_begin, *content));
        } else {
            at_some_time.push((cluster.last_begin, cluster.first_end, *content));
        }
    }
    in_force.sort_unstable();
    for pair in in_force.windows(2) {
        if pair[0].1 > pair[1].0 {
            return Err(format!("{:x?} and {:x?} were both in force at {}", pair[0].2, pair[1].2, pair[1].0));
        }
    }
    for (from, until, content) in at_some_time {
        let before = in_force.partition_point(|zone| zone.0 < from);
        if before > 0 && until < in_force[before - 1].1 {
            return Err(format!("{content:x?} came and went while {:x?} was in force", in_force[before - 1].2));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Content = Content(1);
    const A: Content = Content(2);
    const B: Content = Content(3);
    const LBA: Lba = Lba(0);

    fn history() -> History {
        History::new([Some(OLD)])
    }

    fn read(history: &mut History, content: Content) {
        let began = history.begin();
        history.read(began, LBA, content);
    }

    fn begin_write(history: &mut History, content: Content) {
        let began = history.begin();
        history.writes(&began, LBA, content);
    }

    #[test]
    fn reads_beside_a_write_may_see_either_in_one_order() {
        let mut history = history();
        begin_write(&mut history, A);
        read(&mut history, OLD);
        read(&mut history, A);
        history.wrote(LBA, A);
        assert_eq!(history.judge(), Ok(()));
        read(&mut history, OLD);
        assert!(history.judge().is_err(), "it was replaced");
    }

    #[test]
    fn two_writes_at_once_settle_once() {
        let mut history = history();
        begin_write(&mut history, A);
        begin_write(&mut history, B);
        read(&mut history, A);
        read(&mut history, B);
        assert_eq!(history.judge(), Ok(()));
        read(&mut history, A);
        assert!(history.judge().is_err(), "A, B, and A again");
    }

    #[test]
    fn a_write_between_two_reads_of_another_content_is_seen() {
        let mut history = history();
        read(&mut history, OLD);
        begin_write(&mut history, A);
        history.wrote(LBA, A);
        let late = history.begin();
        assert_eq!(history.judge(), Ok(()));
        history.read(late, LBA, OLD);
        assert!(history.judge().unwrap_err().why.contains("came and went"));
    }

    #[test]
    fn a_write_that_never_ended_may_have_happened_or_not() {
        let mut history = history();
        begin_write(&mut history, A);
        read(&mut history, OLD);
        assert_eq!(history.judge(), Ok(()));
        read(&mut history, A);
        assert_eq!(history.judge(), Ok(()));
    }
}
