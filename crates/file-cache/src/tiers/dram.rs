//! Unsynced writes: blocks in shared memory, which outlives the process, each with a header that
//! says whose it is.
//!
//! A block has bytes of one file that follow each other; no two blocks have the same byte. The
//! bytes here are always the newest. A header is stored after the bytes it speaks of, so after a
//! kill each block is free or as some write left it.
//!
//! A write that takes more than one header, or changes bytes that a header speaks of, is copied
//! apart first, and said to be under way. Whoever finds it there after a kill carries it out again,
//! so a kill leaves all of it or nothing, up to [`VOLATILE_WHOLE_BYTES`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tidegate_layout::file_cache::{
    VOLATILE_BLOCK_BYTES, VOLATILE_WHOLE_BYTES, VolatileFile, VolatileHead, VolatilePlan, VolatileSlot, VolatileWrite,
};
use tidegate_media::{Corrupt, Poison, Region, Result};
use tidegate_wal::corrupt;
use zerocopy::{FromZeros, IntoBytes};

/// The blocks of all files.
pub(crate) struct Unsynced {
    memory: Arc<dyn Region>,
    plan: VolatilePlan,
    free: Vec<u32>,
    /// Whether the memory says that a write is under way.
    under_way: bool,
}

/// A file's blocks, by the offset of their first byte.
pub(crate) type Written = BTreeMap<u64, Piece>;

/// Bytes of a file in a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    block: u32,
    length: u32,
    /// Whether a write may have bytes here and in the block before: no commit comes between them.
    joined: bool,
    /// Whether every write of these bytes was longer than [`VOLATILE_WHOLE_BYTES`]: a power cut may
    /// tear it until somebody syncs the file.
    long: bool,
}

/// What a killed process left: its files by number, each with its blocks.
pub(crate) type Left = BTreeMap<u32, (VolatileFile, Written)>;

/// No block is free.
#[derive(Debug)]
pub(crate) struct NoBlock;

impl Unsynced {
    /// Lays out zeroed memory, or takes over what a killed process left in it: each of its files,
    /// by number, with the blocks that it has.
    pub(crate) fn open(memory: Arc<dyn Region>, files: u32) -> Result<(Unsynced, Left)> {
        let mut head = VolatileHead::new_zeroed();
        memory.read(0, head.as_mut_bytes())?;
        // The first word is stored last.
        let plan = match head.magic[..8] == [0; 8] {
            true => None,
            false => head.check(memory.len()).map_err(|broken| corrupt(0, broken))?,
        };
        let Some(plan) = plan else { return Ok((Unsynced::lay_out(memory, files)?, Left::new())) };
        if plan.files != files {
            let found = plan.files.to_string();
            return Err(Corrupt { rule: "the memory has as many files as the lane", at: 16, found }.into());
        }
        let mut unsynced = Unsynced { memory, plan, free: Vec::new(), under_way: false };
        let mut left = unsynced.read_left()?;
        unsynced.carry_out_again(&mut left)?;
        Ok((unsynced, left))
    }

    fn lay_out(memory: Arc<dyn Region>, files: u32) -> Result<Unsynced> {
        let plan = VolatilePlan::fitting(memory.len(), files);
        let head = VolatileHead::new(&plan);
        let bytes = head.as_bytes();
        memory.write(16, &bytes[16..]);
        memory.write(8, &bytes[8..16]);
        let first = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        memory.fence()?;
        memory.store_u64(0, first);
        Ok(Unsynced { memory, plan, free: (0..plan.blocks).rev().collect(), under_way: false })
    }

    fn read_left(&mut self) -> Result<Left> {
        let mut left = Left::new();
        for number in 0..self.plan.files {
            let mut raw = VolatileFile::new_zeroed();
            self.memory.read(self.plan.file_at(number), raw.as_mut_bytes())?;
            if raw.state.get() != 0 {
                left.insert(number, (raw, Written::new()));
            }
        }
        for block in (0..self.plan.blocks).rev() {
            let at = self.plan.slot_at(block);
            let mut slot = VolatileSlot::new_zeroed();
            self.memory.read(at, slot.as_mut_bytes())?;
            let length = slot.length.get();
            if length == 0 {
                self.free.push(block);
                continue;
            }
            slot.check().map_err(|broken| corrupt(at, broken))?;
            let rule = "a block belongs to a file that is open";
            let wrong = || Corrupt { rule, at: at + 8, found: slot.file.to_string() };
            let (_, written) = left.get_mut(&slot.file.get()).ok_or_else(wrong)?;
            // No header tells of it.
            written.insert(slot.offset.get(), Piece { block, length, joined: true, long: false });
        }
        Ok(left)
    }

    /// Completes the write that a killed process had under way.
    fn carry_out_again(&mut self, left: &mut Left) -> Result<()> {
        let mut raw = VolatileWrite::new_zeroed();
        self.memory.read(VolatileWrite::AT, raw.as_mut_bytes())?;
        if raw.state.get() == 0 {
            return Ok(());
        }
        raw.check().map_err(|broken| corrupt(VolatileWrite::AT, broken))?;
        let mut data = vec![0; raw.length.get() as usize];
        self.memory.read(self.plan.write_bytes_at(), &mut data)?;
        let file = raw.file.get();
        let rule = "the write under way belongs to a file that is open";
        let wrong = || Corrupt { rule, at: VolatileWrite::AT + 16, found: file.to_string() };
        let (known, written) = left.get_mut(&file).ok_or_else(wrong)?;
        let end = raw.offset.get() + self.write(file, written, raw.offset.get(), &data) as u64;
        if end > known.size.get() {
            known.size.set(end);
            self.set_size(file, end);
        }
        self.memory.store_u64(VolatileWrite::AT, 0);
        Ok(())
    }

    /// Says that a write is under way, unless one header tells of all of it, or it is too long. The
    /// file has `size` bytes.
    pub(crate) fn begin_write(&mut self, file: u32, written: &Written, size: u64, (at, data): (u64, &[u8])) {
        let end = at + data.len() as u64;
        let straddles = at < size && size < end;
        if data.len() as u64 <= VOLATILE_WHOLE_BYTES && (straddles || !takes_one_header(written, at..end)) {
            self.put_under_way(file, at, data);
        }
    }

    /// Says so if the write changes bytes that are here, as [`Unsynced::overwrite`] does.
    pub(crate) fn begin_overwrite(&mut self, file: u32, written: &Written, at: u64, data: &[u8]) {
        let is_here = touching(written, at..at + data.len() as u64).next().is_some();
        if is_here && data.len() as u64 <= VOLATILE_WHOLE_BYTES {
            self.put_under_way(file, at, data);
        }
    }

    fn put_under_way(&mut self, file: u32, at: u64, data: &[u8]) {
        self.memory.write(self.plan.write_bytes_at(), data);
        let length = u32::try_from(data.len()).expect("a write is that short");
        self.memory.write(VolatileWrite::AT, VolatileWrite::new(file, at, length).as_bytes());
        self.memory.store_u64(VolatileWrite::AT, 1);
        self.under_way = true;
    }

    /// The write is where it belongs, and the file's length is.
    pub(crate) fn end_write(&mut self) {
        if std::mem::take(&mut self.under_way) {
            self.memory.store_u64(VolatileWrite::AT, 0);
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.plan.blocks) * VOLATILE_BLOCK_BYTES
    }

    /// Bytes of the blocks in use.
    pub(crate) fn bytes_used(&self) -> u64 {
        self.bytes() - self.free.len() as u64 * VOLATILE_BLOCK_BYTES
    }

    /// Says which file number `file` is.
    pub(crate) fn begin_file(&self, file: u32, raw: &VolatileFile) {
        self.memory.write(self.plan.file_at(file), raw.as_bytes());
        self.memory.store_u64(self.plan.file_at(file) + VolatileFile::STATE_AT, 1);
    }

    /// Whether the number is a file's.
    pub(crate) fn has_file(&self, file: u32) -> Result<bool> {
        Ok(self.memory.load_u64(self.plan.file_at(file) + VolatileFile::STATE_AT)? != 0)
    }

    /// The number is no file's any more.
    pub(crate) fn end_file(&self, file: u32) {
        self.memory.store_u64(self.plan.file_at(file) + VolatileFile::STATE_AT, 0);
    }

    /// The file has this length, for whoever completes it after a kill.
    pub(crate) fn set_size(&self, file: u32, size: u64) {
        self.memory.store_u64(self.plan.file_at(file) + VolatileFile::SIZE_AT, size);
    }

    /// A program changed the file's contents at this time; 0: the file below says.
    pub(crate) fn set_modified(&self, file: u32, modified: u64) {
        self.memory.store_u64(self.plan.file_at(file) + VolatileFile::MODIFIED_AT, modified);
    }

    /// The file below has this mark, as long as the power stays on; 0: the record says.
    pub(crate) fn set_room_stamp(&self, file: u32, stamp: u64) {
        self.memory.store_u64(self.plan.file_at(file) + VolatileFile::ROOM_STAMP_AT, stamp);
    }

    /// A synchronous write is about to give the file this length, or the file is about to be cut
    /// (0).
    pub(crate) fn grows_to(&self, file: u32, size: u64) {
        self.memory.store_u64(self.plan.file_at(file) + VolatileFile::GROWS_TO_AT, size);
    }

    /// Whether a write surely finds enough blocks.
    pub(crate) fn has_room_for(&self, written: &Written, at: u64, len: u64) -> bool {
        // A gap lies behind each block that is here, at most.
        let gaps = written.range(at..at + len).count() + 1;
        self.free.len() as u64 >= len / VOLATILE_BLOCK_BYTES + gaps as u64
    }

    /// Writes as much of `data` as there is room for, and says how much that was.
    pub(crate) fn write(&mut self, file: u32, written: &mut Written, at: u64, data: &[u8]) -> usize {
        let mut done = 0;
        while done < data.len() {
            let from = at + done as u64;
            match self.write_piece(file, written, from, &data[done..]) {
                Ok(bytes) => {
                    if let Some((start, piece)) = written.range_mut(..=from).next_back() {
                        piece.joined |= done > 0 && *start == from;
                        piece.long &= data.len() as u64 > VOLATILE_WHOLE_BYTES;
                    }
                    done += bytes;
                }
                Err(NoBlock) => break,
            }
        }
        done
    }

    /// Writes the bytes of `data` that fall into one block: over bytes that are here, behind them,
    /// or into a free block.
    fn write_piece(
        &mut self,
        file: u32,
        written: &mut Written,
        at: u64,
        data: &[u8],
    ) -> std::result::Result<usize, NoBlock> {
        let next = written.range(at + 1..).next().map_or(u64::MAX, |(start, _)| *start);
        let until_next = usize::try_from(next - at).unwrap_or(usize::MAX);
        if let Some((start, piece)) = written.range_mut(..=at).next_back()
            && at <= start + u64::from(piece.length)
            && at < start + VOLATILE_BLOCK_BYTES
        {
            let within = at - start;
            let room = usize::try_from(VOLATILE_BLOCK_BYTES - within).expect("a block is small");
            let bytes = data.len().min(room).min(until_next);
            self.memory.write(self.plan.block_at(piece.block) + within, &data[..bytes]);
            let end = u32::try_from(within + bytes as u64).expect("a block is small");
            if end > piece.length {
                piece.length = end;
                self.store_length(file, *piece);
            }
            return Ok(bytes);
        }
        let block = self.free.pop().ok_or(NoBlock)?;
        let bytes = data.len().min(until_next).min(usize::try_from(VOLATILE_BLOCK_BYTES).expect("a block is small"));
        self.memory.write(self.plan.block_at(block), &data[..bytes]);
        let length = u32::try_from(bytes).expect("a block is small");
        let piece = Piece { block, length, joined: false, long: true };
        self.memory.store_u64(self.plan.slot_at(block), at);
        self.store_length(file, piece);
        written.insert(at, piece);
        Ok(bytes)
    }

    /// Overwrites what is here of `data`'s range, and nothing else.
    pub(crate) fn overwrite(&self, written: &Written, at: u64, data: &[u8]) {
        for (range, start, piece) in touching(written, at..at + data.len() as u64) {
            let from = usize::try_from(range.start - at).expect("inside the data");
            let until = usize::try_from(range.end - at).expect("inside the data");
            self.memory.write(self.plan.block_at(piece.block) + (range.start - start), &data[from..until]);
        }
    }

    /// Copies what is here over `out`, which has the file's bytes from `at` on.
    pub(crate) fn overlay(&self, written: &Written, at: u64, out: &mut [u8]) -> std::result::Result<(), Poison> {
        for (range, start, piece) in touching(written, at..at + out.len() as u64) {
            let from = usize::try_from(range.start - at).expect("inside the buffer");
            let until = usize::try_from(range.end - at).expect("inside the buffer");
            self.memory.read(self.plan.block_at(piece.block) + (range.start - start), &mut out[from..until])?;
        }
        Ok(())
    }

    /// Frees the blocks of a file that begin in these ranges.
    pub(crate) fn clear_ranges(&mut self, written: &mut Written, ranges: &[Range<u64>]) {
        for range in ranges {
            let starts: Vec<u64> = written.range(range.clone()).map(|(start, _)| *start).collect();
            starts.iter().filter_map(|start| written.remove(start)).for_each(|piece| self.free_block(piece.block));
        }
    }

    /// Frees every block of a file.
    pub(crate) fn clear(&mut self, written: &mut Written) {
        for piece in std::mem::take(written).into_values() {
            self.free_block(piece.block);
        }
    }

    /// Frees what lies from `size` on.
    pub(crate) fn cut(&mut self, file: u32, written: &mut Written, size: u64) {
        for piece in written.split_off(&size).into_values() {
            self.free_block(piece.block);
        }
        if let Some((start, piece)) = written.iter_mut().next_back()
            && start + u64::from(piece.length) > size
        {
            piece.length = u32::try_from(size - start).expect("shorter than it was");
            self.store_length(file, *piece);
        }
    }

    fn free_block(&mut self, block: u32) {
        self.memory.store_u64(self.plan.slot_at(block) + VolatileSlot::SECOND_WORD_AT, 0);
        self.free.push(block);
    }

    fn store_length(&self, file: u32, piece: Piece) {
        self.memory.store_u64(
            self.plan.slot_at(piece.block) + VolatileSlot::SECOND_WORD_AT,
            VolatileSlot::word(file, piece.length),
        );
    }
}

/// Whether a write of a range stores one header, behind all of its bytes, and changes no byte that
/// a header speaks of.
fn takes_one_header(written: &Written, range: Range<u64>) -> bool {
    if touching(written, range.clone()).next().is_some() {
        return false;
    }
    // It goes on in the block before it, or begins one of its own.
    let before = written.range(..range.start).next_back();
    let goes_on = before.filter(|(start, piece)| **start + u64::from(piece.length) == range.start);
    let block = goes_on.map(|(start, _)| *start).filter(|start| range.start < start + VOLATILE_BLOCK_BYTES);
    range.end <= block.unwrap_or(range.start) + VOLATILE_BLOCK_BYTES
}

/// The ranges of a file that lie in blocks, neighbours as one.
pub(crate) fn runs(written: &Written) -> Vec<Range<u64>> {
    first_runs(written, u64::MAX)
}

/// As many of these ranges as have about `bytes` bytes, ending where no write goes on.
pub(crate) fn first_runs(written: &Written, bytes: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut taken = 0;
    for (start, piece) in written {
        let end = start + u64::from(piece.length);
        let before = runs.last_mut().filter(|last| last.end == *start);
        if taken >= bytes && !(piece.joined && before.is_some()) {
            break;
        }
        taken += u64::from(piece.length);
        match before {
            Some(last) => last.end = end,
            None => runs.push(*start..end),
        }
    }
    runs
}

/// Whether a power cut may tear what is written before `end`, unless somebody syncs it.
pub(crate) fn may_tear_before(written: &Written, end: u64) -> bool {
    written.range(..end).all(|(_, piece)| piece.long)
}

/// One past the last byte in the blocks.
pub(crate) fn end_of(written: &Written) -> u64 {
    written.last_key_value().map_or(0, |(start, piece)| start + u64::from(piece.length))
}

/// Bytes in the blocks.
pub(crate) fn bytes_in(written: &Written) -> u64 {
    written.values().map(|piece| u64::from(piece.length)).sum()
}

/// The parts of `range` that lie in blocks, ascending, with the start of each block's bytes.
pub(crate) fn touching(written: &Written, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, u64, Piece)> + '_ {
    let first = written.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
    written.range(first..range.end.max(first)).filter_map(move |(start, piece)| {
        let part = range.start.max(*start)..range.end.min(start + u64::from(piece.length));
        (!part.is_empty()).then_some((part, *start, *piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_sim::{Rng, SharedMemory};

    /// Bytes of a file in a dull model; `None` where nothing was written.
    type Dull = Vec<Option<u8>>;

    fn bytes_of(unsynced: &Unsynced, written: &Written, len: usize) -> Dull {
        let mut bytes = vec![0; len];
        unsynced.overlay(written, 0, &mut bytes).unwrap();
        let here = |at| touching(written, at..at + 1).next().is_some();
        (0..).zip(bytes).map(|(at, byte)| here(at).then_some(byte)).collect()
    }

    /// Writes and cuts agree with one byte for each byte; a write that was told to find room finds
    /// it; and the next process finds all of it in the memory.
    #[test]
    fn blocks_agree_with_a_byte_for_each_byte_and_outlive_the_process() {
        const LEN: usize = 20_000;
        let plan = VolatilePlan { files: 2, blocks: 12 };
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let memory: Arc<dyn Region> = Arc::new(SharedMemory::new(plan.bytes()));
            let (mut unsynced, left) = Unsynced::open(memory.clone(), 2).unwrap();
            assert!(left.is_empty());
            unsynced.begin_file(1, &VolatileFile::new([1, 2, 3], b"a path", 0));
            let (mut written, mut dull): (Written, Dull) = (Written::new(), vec![None; LEN]);
            for byte in 1..30 {
                let (at, len) = (rng.index(LEN), 1 + rng.index(6_000));
                let len = len.min(LEN - at);
                if rng.one_in(6) {
                    unsynced.cut(1, &mut written, at as u64);
                    dull[at..].fill(None);
                    continue;
                }
                let has_room = unsynced.has_room_for(&written, at as u64, len as u64);
                let bytes = unsynced.write(1, &mut written, at as u64, &vec![byte; len]);
                assert!(bytes == len || !has_room, "{bytes} of {len}");
                dull[at..at + bytes].fill(Some(byte));
                assert!(bytes_of(&unsynced, &written, LEN) == dull, "seed {seed}");
            }
            let (next, left) = Unsynced::open(memory, 2).unwrap();
            let (file, blocks) = &left[&1];
            assert_eq!((file.identity(), file.path_hint(), left.len()), ([1, 2, 3], &b"a path"[..], 1));
            assert!(bytes_of(&next, blocks, LEN) == dull, "seed {seed}");
            assert_eq!(next.free.len() + blocks.len(), next.plan.blocks as usize);
        }
    }

    #[test]
    fn memory_of_another_lane_is_refused() {
        let memory: Arc<dyn Region> = Arc::new(SharedMemory::new(VolatilePlan { files: 2, blocks: 1 }.bytes()));
        Unsynced::open(memory.clone(), 2).unwrap();
        assert!(Unsynced::open(memory, 3).is_err());
    }
}
