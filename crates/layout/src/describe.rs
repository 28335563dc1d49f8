//! The structs of this crate as Markdown: the whole of `docs/layout.md`.

use crate::Description;
use crate::append_log::{LOG_HEADS_AT, LOG_SUPERBLOCKS_AT, LogHead, LogSuperblock};
use crate::btt::{ARENA_BYTES_MAX, ARENA_BYTES_MIN, FlogGroup, FlogHalf, InfoBlock, MapState, SECTOR_SIZES, Version};
use crate::disk_cache::{
    BlockSum, CACHE_BLOCK_BYTES_MAX, CACHE_BLOCK_BYTES_MIN, CURSORS_AT, CacheEntry, JournalHeader, JournalRecord,
    RingElement, START_SUMS_AT, StartSum, Superblock,
};
use crate::file_cache::{
    FileElement, FileEntry, FileRecord, LeaseElement, LeaseHead, NameRecord, PoolSuperblock, StoreTimes,
    VOLATILE_BLOCK_BYTES, VolatileFile, VolatileHead, VolatileSlot, VolatileWrite,
};
use crate::mirror::{
    MIRROR_PAGE_BYTES, MIRROR_SLOTS_AT, MirrorRecord, REDO_HEAD_AT, REDO_LINES_AT, REDO_PLACES_AT, RedoHead,
};
use crate::ring::Cursors;
use crate::write_cache::{CACHE_HEAD_BYTES, CacheHead, SlotHead};
use std::fmt::Write;

/// `docs/layout.md`.
pub fn describe() -> String {
    let mut out = String::from(HEAD);
    out.push_str(&btt());
    for description in [InfoBlock::DESCRIPTION, FlogHalf::DESCRIPTION, FlogGroup::DESCRIPTION] {
        out.push_str(&table(&description));
    }
    out.push_str(&map_states());
    out.push_str(&disk_cache());
    for description in [
        Superblock::DESCRIPTION,
        Cursors::DESCRIPTION,
        RingElement::DESCRIPTION,
        CacheEntry::DESCRIPTION,
        BlockSum::DESCRIPTION,
        StartSum::DESCRIPTION,
        JournalHeader::DESCRIPTION,
        JournalRecord::DESCRIPTION,
    ] {
        out.push_str(&table(&description));
    }
    out.push_str(&file_cache());
    for description in [
        PoolSuperblock::DESCRIPTION,
        FileElement::DESCRIPTION,
        FileRecord::DESCRIPTION,
        FileEntry::DESCRIPTION,
        LeaseHead::DESCRIPTION,
        LeaseElement::DESCRIPTION,
        StoreTimes::DESCRIPTION,
        NameRecord::DESCRIPTION,
        VolatileHead::DESCRIPTION,
        VolatileWrite::DESCRIPTION,
        VolatileFile::DESCRIPTION,
        VolatileSlot::DESCRIPTION,
    ] {
        out.push_str(&table(&description));
    }
    out.push_str(&append_log());
    for description in [LogSuperblock::DESCRIPTION, LogHead::DESCRIPTION] {
        out.push_str(&table(&description));
    }
    out.push_str(&mirror());
    for description in [MirrorRecord::DESCRIPTION, RedoHead::DESCRIPTION] {
        out.push_str(&table(&description));
    }
    out.push_str(&write_cache());
    for description in [CacheHead::DESCRIPTION, SlotHead::DESCRIPTION] {
        out.push_str(&table(&description));
    }
    out
}

/// Most columns of a line of running text.
const COLUMNS_MAX: usize = 100;

const HEAD: &str = "# Bytes on the medium

Printed by `tidegate_layout::describe()`; `cargo xtask bless` writes it anew. All integers are
little-endian.

";

fn btt() -> String {
    let sectors = SECTOR_SIZES.map(|size| size.to_string()).join(", ");
    format!(
        "## Block translation table\n\n\
         The format of Linux's `nd_btt`, to the byte. A region is cut into arenas of {ARENA_BYTES_MIN} to\n\
         {ARENA_BYTES_MAX} bytes. Version {} starts at byte {} of the region, version {} at byte {}.\n\
         Sector sizes: {sectors}.\n\n\
         An arena holds, in this order: info block, data blocks, map, flog, and a copy of the info block.\n\
         Readers go by the offsets in the info block, not by the order. A map entry is one 4-byte integer for\n\
         each block that the user sees; the flog has one group of 64 bytes for each free block.\n\n",
        Version::V1_1,
        Version::V1_1.start(),
        Version::V2_0,
        Version::V2_0.start(),
    )
}

fn disk_cache() -> String {
    format!(
        "\n## Disk cache\n\n\
         A region in front of a disk:\n\n\
         | at byte | lies |\n| ---: | --- |\n\
         | 0 and 4096 | the superblock, twice |\n\
         | {CURSORS_AT} | the cursors of the redo ring |\n\
         | {START_SUMS_AT} | if bit 2 of `ro_compat` is set: checksums of the disk's first blocks, one for each block of the first MiB, 256 at most |\n\
         | as the superblock says | the redo ring, the entries, and the blocks of {CACHE_BLOCK_BYTES_MIN} to {CACHE_BLOCK_BYTES_MAX} bytes |\n\n\
         There are as many entries as blocks, and any entry may name any block. An element between the\n\
         cursors supersedes its entry if its counter is ahead of the entry's.\n\n\
         A cache that keeps the order of commits on its disk has a journal at the disk's end: records, the\n\
         blocks of a group, and two blocks with a header each. If the committed header names a group,\n\
         recovery writes the group's blocks to their places.\n\n",
    )
}

fn file_cache() -> String {
    format!(
        "\n## File cache\n\n\
         A pool for files: the superblock at byte 0 and once more at byte 4096, the namespace log, and lanes.\n\
         The log consists of cursors as above, which count lines of 64 bytes, and of records in a ring 4096\n\
         bytes behind them; line n lies in line n modulo the ring's size.\n\n\
         A lane consists of cursors as above, a redo ring, records, entries and chunks of 1 MiB, each cut\n\
         into blocks of one class. Recovery carries out an element if its version is greater than its\n\
         entry's, or not less than its record's. Where entries of a file overlap, the greater version wins.\n\n\
         Unsynced writes lie in shared memory: a head, a file for each record, headers, and blocks of\n\
         {VOLATILE_BLOCK_BYTES} bytes.\n\n",
    )
}

fn append_log() -> String {
    let [first, second] = LOG_SUPERBLOCKS_AT;
    format!(
        "\n## Append-only log\n\n\
         The superblock lies at byte {first} and at byte {second}, the heads of the slots from byte {LOG_HEADS_AT} on, and\n\
         the chunks at the next multiple of 4096 bytes. Byte n of the log lies in chunk n / `chunk_bytes`.\n\
         Chunk c lies in slot c modulo `chunks`; below, at c modulo `below_chunks`, once it was written back.\n\
         The log ends in the first chunk that is not full; bytes of later chunks do not count.\n\n",
    )
}

fn mirror() -> String {
    let [first, second] = MIRROR_SLOTS_AT;
    format!(
        "\n## Mirror\n\n\
         The last {MIRROR_PAGE_BYTES} bytes of each side of a mirror are its page; all bytes before it are the volume's.\n\
         A record lies at byte {first} and at byte {second} of the page. The valid one with the greater generation\n\
         counts; the other one is written first, then this one. At byte {REDO_HEAD_AT} of the page lies the head\n\
         of the redo, at byte {REDO_PLACES_AT} the places of its lines, at byte {REDO_LINES_AT} their contents.\n\n",
    )
}

fn write_cache() -> String {
    format!(
        "\n## Write cache\n\n\
         Not on a medium: shared memory that outlives the process and not the machine. It holds the head, the\n\
         slots' headers from byte {CACHE_HEAD_BYTES} on, and the slots' blocks, each block at a multiple of its size.\n\n",
    )
}

fn table(description: &Description) -> String {
    let mut out = format!("### {}, {} bytes\n\n{}\n", description.name, description.size, wrapped(description.text));
    out.push_str("| offset | bytes | field | holds |\n| ---: | ---: | --- | --- |\n");
    for field in description.fields {
        writeln!(out, "| {} | {} | `{}` | {} |", field.offset, field.size, field.name, field.text.trim())
            .expect("writing to a string never fails");
    }
    out.push('\n');
    out
}

/// Breaks `text` into lines of at most [`COLUMNS_MAX`] columns, each ended.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |line| line.chars().count());
        if last > 0 && last + 1 + word.chars().count() > COLUMNS_MAX {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

fn map_states() -> String {
    let mut out = String::from(
        "### Map entry, 4 bytes\n\nBits 29..0 name a block of the arena; bits 31 and 30 are its state.\n\n\
         | bits 31, 30 | state | means |\n| --- | --- | --- |\n",
    );
    for (bits, state) in ["0 0", "0 1", "1 0", "1 1"].iter().zip(MapState::ALL) {
        writeln!(out, "| {bits} | {state:?} | {} |", state.meaning()).expect("writing to a string never fails");
    }
    out
}
