//! Recovery of names: repeats what SOURCE lost of the committed operations.
//!
//! 1. Head and tail are made durable. The head goes behind the record before the witness, if it
//!    lags: that record is whole.
//! 2. If there is anything to repeat, a record that recovery began is appended. **Fence**, head,
//!    **fence**.
//! 3. Each operation from the witness on is looked for in SOURCE, and repeated if it is not there.
//!    For a creation, a record of the new inode is appended, durably. Then the witness goes on.
//! 4. The recovery of contents asks where files are now, and writes them.
//! 5. [`NamesReplayed::finish`]: the witness goes to the head, SOURCE is synced, the tail goes to
//!    the head. **Fence.**

use crate::error::NamespaceError;
use crate::log::NamespaceLog;
use crate::source::{FoundNode, NamespaceSource, Witness};
use std::collections::BTreeMap;
use tidegate_file_cache::{FileIdentity, Refused, identify};
use tidegate_layout::file_cache::{LOG_LINE_BYTES, LogRecord, NameChange, NameMap, NodeAttributes, NodeIdentity};
use tidegate_media::{Error, Region};
use tidegate_wal::NameRing;

/// The type of a file in `st_mode`.
const TYPE_BITS: u32 = 0o170_000;

/// Errors of the file system as a whole rather than of one operation: EIO, ENOMEM, ENOSPC, EROFS,
/// EDQUOT. Recovery stops and may be tried again.
const OF_THE_FILE_SYSTEM: [i32; 5] = [5, 12, 28, 30, 122];

/// Why an operation was not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Another file has the name.
    #[error("another file has this name; it was left as it is")]
    Taken,
    /// The file is not there.
    #[error("the file is missing")]
    Missing,
    /// The file system refused.
    #[error(transparent)]
    Refused(Refused),
}

/// An operation that was committed and that SOURCE does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameConflict {
    /// The operation's first path.
    pub path: Vec<u8>,
    /// Why it was not repeated.
    pub why: Conflict,
}

/// Where a file is that the pool has contents of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts<'a> {
    /// Its last name was removed: its contents are not wanted any more.
    Removed,
    /// Recovery made it anew, and it is another inode now.
    MadeAnew {
        /// The inode that it is now.
        node: NodeIdentity,
        /// A name of it.
        path: &'a [u8],
    },
    /// It is the inode that it was, and the log has a name of it.
    Named(&'a [u8]),
    /// The log does not mention it.
    Unmentioned,
}

/// The names as they were committed, or later. The log is kept until [`NamesReplayed::finish`].
pub struct NamesReplayed<R> {
    ring: NameRing<R>,
    pool: [u8; 16],
    head: u64,
    tail: u64,
    names: NameMap,
    anew: BTreeMap<NodeIdentity, NodeIdentity>,
    /// Whether the next operation is the one at which an earlier recovery was cut.
    resumed: bool,
    /// Operations that were found or repeated, of those that SOURCE may have lacked.
    pub repeated: u64,
    /// Operations that could not be repeated.
    pub conflicts: Vec<NameConflict>,
}

/// Places and bytes of records.
type PlacedRecords = Vec<(u64, Vec<u8>)>;

/// What is to be done about an operation.
enum Standing {
    Done,
    /// This inode was made, and perhaps no more than that.
    LeftByACut(NodeIdentity),
    ToDo,
    Left(Conflict),
}

/// The place of SOURCE's witness, if SOURCE is what the log is about.
fn witnessed(source: &dyn NamespaceSource, pool: [u8; 16], head: u64, tail: u64) -> Result<u64, NamespaceError> {
    match source.witness()?.filter(|witness| witness.pool == pool) {
        Some(Witness { place, .. }) if place < tail => Err(NamespaceError::OlderSource { witness: place, tail }),
        Some(witness) => Ok(witness.place),
        None if head == tail => Ok(head),
        None => Err(NamespaceError::OtherSource),
    }
}

impl<R: Region> NamespaceLog<R> {
    /// Repeats the operations of the log of the pool on `region` that SOURCE lost. Nobody uses the
    /// pool or SOURCE meanwhile. May be done again after any interruption.
    pub fn replay(region: R, source: &dyn NamespaceSource) -> Result<NamesReplayed<R>, NamespaceError> {
        let (mut replay, records, witness) = NamespaceLog::found(region, source)?;
        replay.run(source, &records, witness)?;
        Ok(replay)
    }

    /// Follows the operations of the log of the pool on `region`, where SOURCE has each of them, if
    /// not durably: its file system was mounted ever since. Changes nothing in SOURCE.
    /// [`NamespaceLog::resume`] goes on with the log.
    pub fn follow(region: R, source: &dyn NamespaceSource) -> Result<NamesReplayed<R>, NamespaceError> {
        let (mut replay, records, _) = NamespaceLog::found(region, source)?;
        for (_, record, _) in replay.parsed(&records)? {
            match record {
                LogRecord::Change(change) => replay.names.follow(&change),
                LogRecord::MadeAnew { node, anew } => _ = replay.anew.insert(node, anew),
                LogRecord::ReplayBegun => {}
            }
        }
        Ok(replay)
    }

    /// What the log has, with places and bytes of its records, and the place of SOURCE's witness.
    fn found(
        region: R,
        source: &dyn NamespaceSource,
    ) -> Result<(NamesReplayed<R>, PlacedRecords, u64), NamespaceError> {
        let pool = identify(&region)?;
        let ring = NameRing::new(region, pool.plan.namespace().ok_or(NamespaceError::NoLog)?);
        let (head, tail) = ring.settled_cursors()?;
        let witness = witnessed(source, pool.uuid, head, tail)?;
        let mut replay = NamesReplayed {
            ring,
            pool: pool.uuid,
            head,
            tail,
            names: NameMap::default(),
            anew: BTreeMap::new(),
            resumed: false,
            repeated: 0,
            conflicts: Vec::new(),
        };
        let records = replay.records(witness)?;
        if witness > head {
            replay.head = witness;
            replay.settle_head()?;
        }
        Ok((replay, records, witness))
    }

    /// Gives up the operations of the log of the pool on `region`: for a SOURCE, or a pool, that is
    /// not as it was when they were recorded.
    pub fn give_up(region: R, source: &dyn NamespaceSource) -> Result<(), NamespaceError> {
        let pool = identify(&region)?;
        let ring = NameRing::new(region, pool.plan.namespace().ok_or(NamespaceError::NoLog)?);
        let (head, _) = ring.settled_cursors()?;
        source.set_witness(&Witness { pool: pool.uuid, place: head })?;
        source.sync()?;
        ring.store_tail(head);
        Ok(ring.fence()?)
    }
}

impl<R: Region> NamesReplayed<R> {
    /// Whether the log has no operation, so that there is nothing to finish.
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Where the file of this identity is, the device apart.
    pub fn whereabouts(&self, file: FileIdentity) -> Whereabouts<'_> {
        let node = NodeIdentity { inode: file.inode, generation: file.generation };
        if self.names.is_removed(node) {
            return Whereabouts::Removed;
        }
        match (self.names.path_of(node), self.anew.get(&node)) {
            (Some(path), Some(anew)) => Whereabouts::MadeAnew { node: *anew, path },
            (Some(path), None) => Whereabouts::Named(path),
            (None, _) => Whereabouts::Unmentioned,
        }
    }

    /// Contents are recovered: makes all of it durable in SOURCE, and empties the log.
    pub fn finish(self, source: &dyn NamespaceSource) -> Result<(), NamespaceError> {
        source.set_witness(&Witness { pool: self.pool, place: self.head })?;
        source.sync()?;
        self.ring.store_tail(self.head);
        Ok(self.ring.fence()?)
    }

    /// Repeats those of the records that begin at `witness` or later.
    fn run(
        &mut self,
        source: &dyn NamespaceSource,
        records: &[(u64, Vec<u8>)],
        witness: u64,
    ) -> Result<(), NamespaceError> {
        let parsed = self.parsed(records)?;
        self.resumed = parsed.iter().any(|(_, record, _)| *record == LogRecord::ReplayBegun);
        self.anew.extend(parsed.iter().filter_map(|(_, record, _)| match record {
            LogRecord::MadeAnew { node, anew } => Some((*node, *anew)),
            _ => None,
        }));
        let mut begun = self.resumed;
        for (place, record, end) in &parsed {
            let LogRecord::Change(change) = record else { continue };
            self.names.follow(change);
            if *place < witness {
                continue;
            }
            if !begun {
                self.append(&LogRecord::ReplayBegun)?;
                begun = true;
            }
            self.repeat(source, change)?;
            self.resumed = false;
            source.set_witness(&Witness { pool: self.pool, place: *end })?;
        }
        Ok(())
    }

    /// The records with their places and ends.
    fn parsed<'a>(&self, records: &'a [(u64, Vec<u8>)]) -> Result<Vec<(u64, LogRecord<'a>, u64)>, NamespaceError> {
        let parsed = records.iter().map(|(place, bytes)| {
            let (record, lines) = self.ring.parse(*place, bytes)?;
            Ok((*place, record, place + lines))
        });
        parsed.collect()
    }

    /// Places and bytes of all records up to the head, or up to the witness if the head lags.
    fn records(&self, witness: u64) -> Result<PlacedRecords, NamespaceError> {
        let (mut records, mut place) = (Vec::new(), self.tail);
        while place < self.head.max(witness) {
            let bytes = match self.ring.record(place) {
                Err(Error::Corrupt(_)) if place >= self.head => {
                    return Err(NamespaceError::OlderPool { witness, head: self.head });
                }
                bytes => bytes?,
            };
            let lines = (bytes.len() as u64).div_ceil(LOG_LINE_BYTES);
            records.push((place, bytes));
            place += lines;
        }
        Ok(records)
    }

    /// Step 3 for one operation, but for the witness.
    fn repeat(&mut self, source: &dyn NamespaceSource, change: &NameChange<'_>) -> Result<(), NamespaceError> {
        self.repeated += 1;
        let standing = match self.find(source, change)? {
            Standing::ToDo => self.carry_out(source, change)?,
            Standing::LeftByACut(node) => self.take_over(source, change, node)?,
            standing => standing,
        };
        if let Standing::Left(why) = standing {
            self.conflicts.push(NameConflict { path: change.path().to_vec(), why });
        }
        Ok(())
    }

    fn carry_out(&mut self, source: &dyn NamespaceSource, change: &NameChange<'_>) -> Result<Standing, NamespaceError> {
        match source.carry_out(change) {
            Ok(()) => {}
            Err(refused) if OF_THE_FILE_SYSTEM.contains(&refused.errno) => return Err(refused.into()),
            Err(refused) => return Ok(Standing::Left(Conflict::Refused(refused))),
        }
        if let NameChange::Made { path, node, .. } = *change {
            match source.look_up(path)? {
                Some(found) => self.note_anew(node, found.node)?,
                None => return Ok(Standing::Left(Conflict::Missing)),
            }
        }
        Ok(Standing::Done)
    }

    /// A cut may have come between the creation of the inode and its owner.
    fn take_over(
        &mut self,
        source: &dyn NamespaceSource,
        change: &NameChange<'_>,
        left: NodeIdentity,
    ) -> Result<Standing, NamespaceError> {
        let NameChange::Made { path, node, mode, owner, group, .. } = *change else { return Ok(Standing::Done) };
        let attributes =
            NodeAttributes { mode: Some(mode), owner: Some(owner), group: Some(group), ..NodeAttributes::default() };
        let done = self.carry_out(source, &NameChange::AttributesSet { path, node: left, attributes })?;
        if left != node {
            self.note_anew(node, left)?;
        }
        Ok(done)
    }

    fn note_anew(&mut self, node: NodeIdentity, anew: NodeIdentity) -> Result<(), NamespaceError> {
        if self.anew.insert(node, anew) == Some(anew) {
            return Ok(());
        }
        self.append(&LogRecord::MadeAnew { node, anew })
    }

    /// Whether SOURCE has the operation, or can have it.
    fn find(&self, source: &dyn NamespaceSource, change: &NameChange<'_>) -> Result<Standing, Refused> {
        let at = |path| source.look_up(path);
        let is = |found: &Option<FoundNode>, node| found.is_some_and(|found| found.node == self.current(node));
        let lacks = |found: Option<FoundNode>| Standing::Left(found.map_or(Conflict::Missing, |_| Conflict::Taken));
        Ok(match *change {
            NameChange::Made { path, node, mode, .. } => match at(path)? {
                None => Standing::ToDo,
                // Its owner and mode may be another operation of the file system, and lost.
                Some(found) if found.node == node => Standing::LeftByACut(node),
                Some(found) if self.is_left_by_a_cut(node, found, mode) => Standing::LeftByACut(found.node),
                found if is(&found, node) => Standing::Done,
                Some(_) => Standing::Left(Conflict::Taken),
            },
            NameChange::Linked { path, to, node } => match (at(path)?, at(to)?) {
                (_, to) if is(&to, node) => Standing::Done,
                (from, None) if is(&from, node) => Standing::ToDo,
                (from, None) => lacks(from),
                (_, Some(_)) => Standing::Left(Conflict::Taken),
            },
            NameChange::Removed { path, lost } => match at(path)? {
                None => Standing::Done,
                found if is(&found, lost.node) => Standing::ToDo,
                Some(_) => Standing::Left(Conflict::Taken),
            },
            NameChange::Renamed { path, to, node, replaced } => match (at(path)?, at(to)?) {
                (from, to) if is(&to, node) && !is(&from, node) => Standing::Done,
                (from, _) if !is(&from, node) => lacks(from),
                (_, to) if to.is_none() || replaced.is_some_and(|lost| is(&to, lost.node)) => Standing::ToDo,
                _ => Standing::Left(Conflict::Taken),
            },
            NameChange::Exchanged { path, to, node, other } => match (at(path)?, at(to)?) {
                (from, to) if is(&from, other) && is(&to, node) => Standing::Done,
                (from, to) if is(&from, node) && is(&to, other) => Standing::ToDo,
                (from, to) => lacks(from.and(to)),
            },
            NameChange::AttributesSet { path, node, .. }
            | NameChange::XattrSet { path, node, .. }
            | NameChange::XattrRemoved { path, node, .. } => match at(path)? {
                found if is(&found, node) => Standing::ToDo,
                found => lacks(found),
            },
        })
    }

    /// Whether a recovery that was cut has made `found`, whose record or owner may be missing.
    /// Before the record is durable, nobody writes to the file.
    fn is_left_by_a_cut(&self, node: NodeIdentity, found: FoundNode, mode: u32) -> bool {
        let unrecorded = found.empty && (found.mode ^ mode) & TYPE_BITS == 0;
        self.resumed && (unrecorded || found.node == self.current(node))
    }

    /// The inode that an inode of a record is now.
    fn current(&self, node: NodeIdentity) -> NodeIdentity {
        self.anew.get(&node).copied().unwrap_or(node)
    }

    /// Appends a record of recovery's own, durably.
    fn append(&mut self, record: &LogRecord<'_>) -> Result<(), NamespaceError> {
        let bytes = record.bytes(self.head).expect("it has no path");
        let lines = bytes.len() as u64 / LOG_LINE_BYTES;
        if self.head + lines - self.tail > self.ring.lines() {
            return Err(NamespaceError::Full);
        }
        self.ring.stream(self.head, &bytes);
        self.ring.fence()?;
        self.head += lines;
        self.settle_head()
    }

    fn settle_head(&self) -> Result<(), NamespaceError> {
        self.ring.store_head(self.head);
        Ok(self.ring.fence()?)
    }
}
