//! The journal at the end of a disk, by which a group of blocks is put in place as one.
//!
//! 1. The group's blocks are written to the journal, and their records. **Flush.**
//! 2. A header that tells of the group is written over the older of the two. **Flush.** From now on
//!    the group counts: recovery puts it in place, even with the disk alone.
//! 3. The blocks are written where they belong. **Flush.**
//! 4. A header that tells of no group is written over the older of the two. **Flush.** Only then
//!    are blocks of the journal written anew.
//!
//! - *Cut in step 1*: no header tells of the group being written. Blocks are as the group before
//!   left them.
//! - *Cut in step 2*: the header is old, new, or torn, which its checksum tells; then the other one
//!   counts, which says that there is no group.
//! - *Cut in step 3*: any of the blocks are old, new or torn. The journal has all of them, and no
//!   other write reaches the disk: they are put in place anew.
//! - *Cut in step 4*: all blocks are in place. To put them there once more changes nothing.
//! - *A recovery is cut*: it does steps 2 to 4, and is done again. It flushes before it believes a
//!   header, which a killed process may have left in the disk's cache only; and it writes one of
//!   its own, whether there is a group or not, before other steps rest on it: one that a failed
//!   flush covered can be read and never becomes durable.
//!
//! - *A journal is erased*, which is the end of its cache's detaching: that has no dirty block and
//!   no disk any more, and the headers tell of no group. They are zeroed first. **Flush.** Then all
//!   else. A cut leaves two headers, one, or none: a header that is found tells of no group and
//!   names this cache, which may be laid out anew.
//!
//! The disk may come without its cache, so the headers lie at its very end and tell where
//! everything else lies.
//!
//! A header with a cache's identity is all that a disk says of that cache, which may have blocks
//! that the disk lacks, and needs its journal to bring them there. So the journal of another cache
//! does not count as room, though it tells of no group: a journal is laid out over it only on
//! demand.

use crate::destage::sweep::neighbours;
use tidegate_layout::disk_cache::{
    CACHE_BLOCK_BYTES_MAX, CACHE_BLOCK_BYTES_MIN, JOURNAL_HEADERS, JOURNAL_MAGIC, JournalHeader, JournalPlan,
    JournalRecord, TrustedJournal,
};
use tidegate_media::{AlignedBytes, Backing, Corrupt, Durability, Error, Geometry, Lba, LbaRange, Result, Run};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes read or written in one go.
const CHUNK_BYTES: usize = 1 << 20;

/// A journal, on the disk where it lies.
#[derive(Clone, Copy)]
pub(crate) struct Journal<'a> {
    pub(crate) disk: &'a dyn Backing,
    pub(crate) plan: JournalPlan,
}

/// The journal of a disk, looked at without its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundJournal {
    /// The number of its newest header, which grows with each group and each time that one is in
    /// place.
    pub sequence: u64,
    /// The identity of the cache that was in front of it.
    pub uuid: [u8; 16],
    /// Bytes in a block of that cache.
    pub block_size: u32,
    /// Blocks of the disk before the journal.
    pub disk_blocks: u64,
    /// Blocks of a group that had begun to be put in place.
    pub blocks: u32,
}

impl From<TrustedJournal> for FoundJournal {
    fn from(TrustedJournal { plan, uuid, blocks, sequence, .. }: TrustedJournal) -> FoundJournal {
        FoundJournal { sequence, uuid, block_size: plan.block_size, disk_blocks: plan.disk_blocks, blocks }
    }
}

/// What the journal at the end of `disk` says, if there is one.
pub fn find_journal(disk: &dyn Backing) -> Result<Option<FoundJournal>> {
    Ok(find(disk)?.map(FoundJournal::from))
}

/// The journal for `blocks` blocks of `block_size` bytes at the end of `disk`; `None` if nothing
/// would be left before it.
pub fn journal_at_the_end(disk: &dyn Backing, block_size: u32, blocks: u32) -> Option<JournalPlan> {
    JournalPlan::at_the_end(block_size, disk.geometry().bytes() / u64::from(block_size), blocks)
}

/// Whether `disk` holds nothing where the journal of this plan would lie, for the cache `uuid`:
/// zeroes, or that cache's own of the same block size before the same number of blocks.
pub fn has_room_for(disk: &dyn Backing, plan: &JournalPlan, uuid: [u8; 16]) -> Result<bool> {
    let wanted = (uuid, plan.block_size, plan.disk_blocks);
    if find_journal(disk)?.is_some_and(|found| (found.uuid, found.block_size, found.disk_blocks) == wanted) {
        return Ok(true);
    }
    let (journal, size) = (Journal { disk, plan: *plan }, u64::from(plan.block_size));
    let at_once = (CHUNK_BYTES as u64 / size).max(1);
    let mut bytes = AlignedBytes::zeroed(usize::try_from(at_once * size).expect("a piece"));
    for at in (plan.records_at()..plan.end()).step_by(usize::try_from(at_once).expect("a piece")) {
        let blocks = at_once.min(plan.end() - at);
        let piece = &mut bytes[..usize::try_from(blocks * size).expect("a piece")];
        disk.read(journal.on_disk(at), piece)?;
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes `disk` what some commits of its cache left, if it has a journal: all up to a moment, and
/// none after it. For a disk without its cache; one that has its cache needs nothing of this, and
/// must not be written otherwise.
///
/// Fails if the disk does, or if a group is damaged that was being put in place: nothing is written
/// then.
///
/// [`FoundJournal::blocks`] are in place then.
pub fn recover_disk(disk: &dyn Backing) -> Result<Option<FoundJournal>> {
    disk.flush()?;
    let Some(newest) = find(disk)? else { return Ok(None) };
    let journal = Journal { disk, plan: newest.plan };
    let counts = match newest.blocks {
        0 => newest,
        _ => journal.put_in_place(&newest, &journal.whole_group(&newest)?, || disk.flush())?,
    };
    journal.write_header(&counts.retired())?;
    disk.flush()?;
    Ok(Some(newest.into()))
}

/// Says in the journal of the cache `uuid`, if `disk` has it, that there is no group: everything
/// newer is in place.
pub fn retire_journal(disk: &dyn Backing, uuid: [u8; 16]) -> Result<()> {
    match find(disk)?.filter(|found| found.uuid == uuid) {
        Some(found) => lay_out_journal(disk, found.plan, uuid),
        None => Ok(()),
    }
}

/// Zeroes the journal of this plan: its blocks are anybody's. If they are another cache's than
/// `uuid` already, they stay.
pub fn erase_journal(disk: &dyn Backing, plan: JournalPlan, uuid: [u8; 16]) -> Result<()> {
    // What cannot be read tells of nobody.
    if matches!(find(disk), Ok(Some(found)) if found.uuid != uuid) {
        return Ok(());
    }
    let journal = Journal { disk, plan };
    let (first, end) = (journal.on_disk(plan.records_at()), journal.on_disk(plan.end()));
    // The headers first: without them there is no journal.
    let headers = journal.on_disk(plan.header_at(0));
    disk.write_zeroes(LbaRange { first: headers, blocks: end.0 - headers.0 }, Durability::Volatile)?;
    disk.flush()?;
    disk.write_zeroes(LbaRange { first, blocks: headers.0 - first.0 }, Durability::Volatile)?;
    disk.flush()
}

/// Lays out a journal that holds no group, for the cache `uuid`. What lay there on `disk` is gone.
pub fn lay_out_journal(disk: &dyn Backing, plan: JournalPlan, uuid: [u8; 16]) -> Result<()> {
    let journal = Journal { disk, plan };
    // Older ones may lie elsewhere at the disk's end, by another block size.
    let after = find(disk)?.map_or(0, |found| found.sequence + 1).next_multiple_of(JOURNAL_HEADERS);
    for sequence in after..after + JOURNAL_HEADERS {
        journal.write_header(&TrustedJournal { plan, uuid, sequence, blocks: 0, records_sum: 0 })?;
    }
    disk.flush()
}

/// The newest header at the end of `disk`, whatever its block size.
///
/// A place that cannot be read may hold a newer one, which would count. It cannot if the one that
/// is found tells of a group: what comes after that either tells that all of it is in place, or is
/// laid out by somebody who was refused such a disk. Nor with larger blocks than those of the one
/// that is found: being laid out, it would have wiped that out. Nor if the other place of its size
/// holds something else: a journal has both.
fn find(disk: &dyn Backing) -> Result<Option<TrustedJournal>> {
    let sizes = (0..).map(|doubled| CACHE_BLOCK_BYTES_MIN << doubled).take_while(|size| *size <= CACHE_BLOCK_BYTES_MAX);
    let mut newest: Option<TrustedJournal> = None;
    let mut hidden: Option<(u32, Error)> = None;
    for block_size in sizes {
        let places = places_of(disk, block_size);
        let unreadable = places.iter().find_map(|place| match place {
            HeaderSlot::Unreadable(error) => Some(error.clone()),
            _ => None,
        });
        if let Some(error) = unreadable.filter(|_| !places.iter().any(|place| matches!(place, HeaderSlot::NoHeader))) {
            hidden = hidden.or(Some((block_size, error)));
        }
        for place in places {
            newest = match place {
                HeaderSlot::Header(header) => newest.max_by_sequence(Some(header)),
                _ => newest,
            };
        }
    }
    let counts = newest.map_or(CACHE_BLOCK_BYTES_MAX, |found| if found.blocks > 0 { 0 } else { found.plan.block_size });
    match hidden {
        Some((block_size, error)) if block_size <= counts => Err(error),
        _ => Ok(newest),
    }
}

/// A place of a journal header, as it was read.
enum HeaderSlot {
    Header(TrustedJournal),
    /// A header that was torn, perhaps.
    Torn,
    NoHeader,
    Unreadable(Error),
}

/// The places of headers of this block size at the end of `disk`.
fn places_of(disk: &dyn Backing, block_size: u32) -> Vec<HeaderSlot> {
    let Geometry { block_size: own, .. } = disk.geometry();
    let (each, end) = (u64::from(block_size), disk.geometry().bytes() / u64::from(block_size));
    let mut block = AlignedBytes::zeroed(own as usize);
    let mut place = |at: u64| {
        if let Err(error) = disk.read(Lba(at / u64::from(own)), &mut block) {
            let rule = "every place can be read where the header may lie that counts";
            return HeaderSlot::Unreadable(Corrupt { rule, at, found: error.to_string() }.into());
        }
        let within = usize::try_from(at % u64::from(own)).expect("a place in a block");
        let header = JournalHeader::read_from_prefix(&block[within..]).expect("a block is larger than a header").0;
        match header.check() {
            Ok(found) if found.plan.block_size == block_size && found.plan.end() == end => HeaderSlot::Header(found),
            Err(_) if header.magic == JOURNAL_MAGIC => HeaderSlot::Torn,
            _ => HeaderSlot::NoHeader,
        }
    };
    (end.saturating_sub(JOURNAL_HEADERS)..end).map(|number| place(number * each)).collect()
}

/// Of two headers the one that counts.
trait Newest {
    fn max_by_sequence(self, other: Self) -> Self;
}

impl Newest for Option<TrustedJournal> {
    fn max_by_sequence(self, other: Self) -> Self {
        self.into_iter().chain(other).max_by_key(|header| header.sequence)
    }
}

impl Journal<'_> {
    /// The header that counts, of the cache `uuid`.
    pub(crate) fn newest(&self, uuid: [u8; 16]) -> Result<TrustedJournal> {
        let mut newest: Option<TrustedJournal> = None;
        let mut unreadable = None;
        for sequence in 0..JOURNAL_HEADERS {
            match self.header_in(self.plan.header_at(sequence)) {
                Ok(header) => {
                    let header = header.check().ok().filter(|found| found.plan == self.plan && found.uuid == uuid);
                    newest = newest.max_by_sequence(header);
                }
                Err(error) => unreadable = Some(error),
            }
        }
        match (newest, unreadable) {
            // As in `find`.
            (Some(header), unreadable) if header.blocks > 0 || unreadable.is_none() => Ok(header),
            (_, Some(error)) => Err(error),
            _ => Err(self.corrupt("the disk has the header of its cache's journal", self.plan.header_at(0), "none")),
        }
    }

    /// Writes blocks of a group, from its block `first` on.
    pub(crate) fn write_blocks(&self, first: usize, bytes: &[u8]) -> Result<()> {
        self.write(self.plan.data_at() + first as u64, bytes)
    }

    /// Writes the records of a group.
    pub(crate) fn write_records(&self, records: &[JournalRecord]) -> Result<()> {
        let size = self.plan.block_size as usize;
        let mut bytes = AlignedBytes::zeroed(size_of_val(records).next_multiple_of(size));
        bytes[..size_of_val(records)].copy_from_slice(records.as_bytes());
        self.write(self.plan.records_at(), &bytes)
    }

    /// Writes a header in its place.
    pub(crate) fn write_header(&self, header: &TrustedJournal) -> Result<()> {
        let mut bytes = AlignedBytes::zeroed(self.plan.block_size as usize);
        bytes[..size_of::<JournalHeader>()].copy_from_slice(header.header().as_bytes());
        self.write(self.plan.header_at(header.sequence), &bytes)
    }

    /// The records of `group`, if every block of it can be read and fits its own.
    pub(crate) fn whole_group(&self, group: &TrustedJournal) -> Result<Vec<JournalRecord>> {
        let records = self.records_of(group)?;
        let size = self.plan.block_size as usize;
        let at_once = (CHUNK_BYTES / size).max(1);
        let mut bytes = AlignedBytes::zeroed(at_once.min(records.len()) * size);
        for (number, chunk) in records.chunks(at_once).enumerate() {
            self.read_blocks(number * at_once, chunk, &mut bytes[..chunk.len() * size])?;
        }
        Ok(records)
    }

    /// Writes every block of `group`, whose `records` these are, where it belongs, durably by
    /// `flush`. Returns the header that counts then.
    pub(crate) fn put_in_place(
        &self,
        group: &TrustedJournal,
        records: &[JournalRecord],
        flush: impl Fn() -> Result<()>,
    ) -> Result<TrustedJournal> {
        let size = self.plan.block_size as usize;
        let at_once = (CHUNK_BYTES / size).max(1);
        let mut bytes = AlignedBytes::zeroed(at_once.min(records.len()) * size);
        let again = group.again();
        self.write_header(&again)?;
        flush()?;
        for (number, chunk) in records.chunks(at_once).enumerate() {
            let bytes = &mut bytes[..chunk.len() * size];
            self.read_blocks(number * at_once, chunk, bytes)?;
            let lbas: Vec<u64> = chunk.iter().map(|record| record.lba.get()).collect();
            let spans = neighbours(&lbas, self.plan.block_size);
            let runs = spans
                .iter()
                .map(|(from, until)| Run { at: self.on_disk(lbas[*from]), data: &bytes[from * size..until * size] });
            self.disk.write_runs(&runs.collect::<Vec<_>>()).into_iter().collect::<Result<()>>()?;
        }
        flush()?;
        Ok(again)
    }

    /// Reads block number `number` of `group`, which belongs to block `lba` of the disk.
    pub(crate) fn read_one(&self, group: &TrustedJournal, number: usize, lba: u64, out: &mut [u8]) -> Result<()> {
        let records = self.records_of(group)?;
        match records.get(number) {
            Some(record) if record.lba.get() == lba => self.read_blocks(number, &[*record], out),
            _ => Err(self.corrupt("the blocks of the group ascend, and lie before the journal", lba, "others")),
        }
    }

    /// The records of `group`, which ascend.
    pub(crate) fn records_of(&self, group: &TrustedJournal) -> Result<Vec<JournalRecord>> {
        let size = self.plan.block_size as usize;
        let len = group.blocks as usize * size_of::<JournalRecord>();
        let mut bytes = AlignedBytes::zeroed(len.next_multiple_of(size));
        let at = self.plan.records_at();
        self.disk.read(self.on_disk(at), &mut bytes)?;
        let records = <[JournalRecord]>::ref_from_bytes(&bytes[..len]).expect("records fill the bytes");
        if JournalRecord::sum_of_all(records) != group.records_sum {
            return Err(self.corrupt("the records of the group fit their checksum", at, "another"));
        }
        let ascend = records.windows(2).all(|two| two[0].lba < two[1].lba);
        match records.last() {
            Some(last) if ascend && last.lba.get() < self.plan.disk_blocks => Ok(records.to_vec()),
            _ => Err(self.corrupt("the blocks of the group ascend, and lie before the journal", at, "others")),
        }
    }

    /// Reads the group's blocks of `records`, the first of which is its block `first`.
    fn read_blocks(&self, first: usize, records: &[JournalRecord], bytes: &mut [u8]) -> Result<()> {
        let at = self.plan.data_at() + first as u64;
        self.disk.read(self.on_disk(at), bytes)?;
        let blocks = bytes.chunks_exact(self.plan.block_size as usize);
        match records.iter().zip(blocks).position(|(record, block)| !record.fits(block)) {
            None => Ok(()),
            Some(wrong) => {
                let found = format!("another, of block {}", records[wrong].lba);
                Err(self.corrupt("a block of the group fits its checksum", at + wrong as u64, &found))
            }
        }
    }

    fn header_in(&self, block: u64) -> Result<JournalHeader> {
        let mut bytes = AlignedBytes::zeroed(self.plan.block_size as usize);
        self.disk.read(self.on_disk(block), &mut bytes)?;
        Ok(JournalHeader::read_from_prefix(&bytes).expect("a block is larger than a header").0)
    }

    /// Writes blocks one behind the other.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let blocks_each = (CHUNK_BYTES / self.plan.block_size as usize).max(1);
        let pieces = bytes.chunks(blocks_each * self.plan.block_size as usize);
        let starts = (at..).step_by(blocks_each);
        let runs: Vec<Run<'_>> = starts.zip(pieces).map(|(at, data)| Run { at: self.on_disk(at), data }).collect();
        self.disk.write_runs(&runs).into_iter().collect()
    }

    /// Where a block of the cache's size lies, in the disk's own blocks.
    fn on_disk(&self, block: u64) -> Lba {
        Lba(block * u64::from(self.plan.block_size / self.disk.geometry().block_size))
    }

    pub(crate) fn corrupt(&self, rule: &'static str, block: u64, found: &str) -> Error {
        Corrupt { rule, at: block * u64::from(self.plan.block_size), found: found.to_owned() }.into()
    }
}
