//! The structs of this crate as Markdown: the whole of `docs/layout.md`.

use crate::Description;
use crate::btt::{ARENA_BYTES_MAX, ARENA_BYTES_MIN, FlogGroup, FlogHalf, InfoBlock, MapState, SECTOR_SIZES, Version};
use crate::disk_cache::{
    BlockSum, CACHE_BLOCK_BYTES_MAX, CACHE_BLOCK_BYTES_MIN, CURSORS_AT, CacheEntry, JournalHeader, JournalRecord,
    RingElement, START_SUMS_AT, StartSum, Superblock,
};
use crate::file_cache::{
    FileElement, FileEntry, FileRecord, PoolSuperblock, VOLATILE_BLOCK_BYTES, VolatileFile, VolatileHead, VolatileSlot,
};
use crate::kept::{
    KeptSize, STRIP_BYTES, STRIP_COUNTS_AT, STRIP_RECORDS_AT, StripAttributes, StripCounts, StripHead, StripRecord,
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
        VolatileHead::DESCRIPTION,
        VolatileFile::DESCRIPTION,
        VolatileSlot::DESCRIPTION,
    ] {
        out.push_str(&table(&description));
    }
    out.push_str(&kept());
    for description in [
        StripHead::DESCRIPTION,
        StripCounts::DESCRIPTION,
        StripRecord::DESCRIPTION,
        StripAttributes::DESCRIPTION,
        KeptSize::DESCRIPTION,
    ] {
        out.push_str(&table(&description));
    }
    out.push_str(&write_cache());
    for description in [CacheHead::DESCRIPTION, SlotHead::DESCRIPTION] {
        out.push_str(&table(&description));
    }
    out
}

const HEAD: &str = "# Bytes on the medium

Printed by `tidegate_layout::describe()`; `cargo xtask bless` writes it anew. All integers are little-endian.

";

fn btt() -> String {
    let sectors = SECTOR_SIZES.map(|size| size.to_string()).join(", ");
    format!(
        "## Block translation table\n\n\
         The format of Linux's `nd_btt`, to the byte. A region is cut into arenas of at most {ARENA_BYTES_MAX} bytes and at least\n\
         {ARENA_BYTES_MIN}. Version {} starts at byte {} of the region, version {} at byte {}. Sector sizes: {sectors}.\n\n\
         An arena holds, in this order: info block, data blocks, map, flog, and a copy of the info block. Readers go by\n\
         the offsets in the info block, not by the order. A map entry is one 4-byte integer for each block the user\n\
         sees; the flog has one group of 64 bytes for each free block.\n\n",
        Version::V1_1,
        Version::V1_1.start(),
        Version::V2_0,
        Version::V2_0.start(),
    )
}

fn disk_cache() -> String {
    format!(
        "\n## Disk cache\n\n\
         A region in front of a disk: the superblock at byte 0 and once more at byte 4096, the cursors at byte {CURSORS_AT}, and where the\n\
         superblock says the ring of elements, the entries, and the blocks of {CACHE_BLOCK_BYTES_MIN} to {CACHE_BLOCK_BYTES_MAX} bytes. As many entries as blocks; any entry may\n\
         name any block. What an entry says is superseded by elements between the cursors whose counter is ahead of the entry's.\n\
         Bit 2 of `ro_compat` says that there are checksums of the disk's first blocks from byte {START_SUMS_AT} on, one for each block of the first MiB, 256 at most.\n\n\
         A cache that keeps the order of commits on its disk has a journal at the disk's end: records, the blocks of a group, and two blocks\n\
         with a header each. If the header that counts says so, the group's blocks are to be put in place.\n\n",
    )
}

fn file_cache() -> String {
    format!(
        "\n## File cache\n\n\
         A pool for files: the superblock at byte 0 and once more at byte 4096, and lanes. A lane is cursors as above, a ring of elements, records, entries and\n\
         chunks of 1 MiB, each cut into blocks of one class. An element is carried out if its version is greater than its entry's, or not less than\n\
         its record's. Where entries of a file overlap, the greater version counts. Unsynced writes lie in shared memory: a head, a file for\n\
         each record, headers, and blocks of {VOLATILE_BLOCK_BYTES} bytes.\n\n",
    )
}

fn kept() -> String {
    format!(
        "\n## Pool of a run\n\n\
         A disk cache as above, strips of {STRIP_BYTES} bytes behind it (half as many before version 5), and a map of void slots at the end, one bit for each slot, the lowest first. Block b of slot s of\n\
         the cache's disk is block b of a file; block s of slot 0 tells of that file. The records of a strip begin at its byte {STRIP_RECORDS_AT}, the counts at\n\
         byte {STRIP_COUNTS_AT}. A file has a pair of strips, an even one and the next: odd fillings lie on the first, even ones on the second. Records count if their\n\
         filling is greater than the one that the file's block says is absorbed; they go over all blocks then, the lesser filling first.\n\n",
    )
}

fn write_cache() -> String {
    format!(
        "\n## Transit cache\n\n\
         Not on a medium: shared memory that outlives the process and not the machine. The head, the slots' headers from byte\n\
         {CACHE_HEAD_BYTES} on, and the slots' blocks, each block at a multiple of its size.\n\n",
    )
}

fn table(description: &Description) -> String {
    let mut out = format!("### {}, {} bytes\n\n{}\n\n", description.name, description.size, description.text.trim());
    out.push_str("| offset | bytes | field | holds |\n| ---: | ---: | --- | --- |\n");
    for field in description.fields {
        writeln!(out, "| {} | {} | `{}` | {} |", field.offset, field.size, field.name, field.text.trim())
            .expect("writing to a string never fails");
    }
    out.push('\n');
    out
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
