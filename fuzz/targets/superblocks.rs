//! The first bytes of regions: the first byte says of which format, the next eight how long the
//! region is. A check names the rule that is broken, or gives a plan; neither it nor their words
//! panic. Each record is also checked with the checksum that fits it, so that a change gets further.

#![forbid(unsafe_code)]
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_layout::append_log::LogSuperblock;
use tidegate_layout::btt::InfoBlock;
use tidegate_layout::disk_cache::{JournalHeader, Superblock};
use tidegate_layout::file_cache::{FileRecord, PoolSuperblock, VolatileHead};
use tidegate_layout::mirror::MirrorRecord;
use tidegate_layout::write_cache::CacheHead;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

fuzz_target!(|bytes: &[u8]| {
    let Some((format, rest)) = bytes.split_first() else { return };
    let Some((region_bytes, bytes)) = rest.split_first_chunk() else { return };
    let region_bytes = u64::from_le_bytes(*region_bytes);
    match format % 9 {
        0 => info_block(bytes, 0, region_bytes),
        1 => info_block(bytes, 1 << 30, region_bytes),
        2 => each::<Superblock, _, _>(bytes, |record| record.check(region_bytes)),
        3 => each::<PoolSuperblock, _, _>(bytes, |record| record.check(region_bytes)),
        4 => said(&record::<VolatileHead>(bytes).check(region_bytes)),
        5 => each::<LogSuperblock, _, _>(bytes, LogSuperblock::check),
        6 => each::<MirrorRecord, _, _>(bytes, MirrorRecord::check),
        7 => each::<CacheHead, _, _>(bytes, CacheHead::check),
        _ => {
            each::<JournalHeader, _, _>(bytes, JournalHeader::check);
            said(&record::<FileRecord>(bytes).check());
        }
    }
});

fn info_block(bytes: &[u8], start: u64, room: u64) {
    let block: InfoBlock = record(bytes);
    said(&block.check(start, room));
    said(&block.with_checksum().check(start, room));
}

/// Checks a record as it is, and with the CRC-32C that fits it in its last four bytes.
fn each<T, P, E>(bytes: &[u8], check: impl Fn(&T) -> Result<P, E>)
where
    T: FromBytes + FromZeros + IntoBytes + Immutable,
    P: std::fmt::Debug,
    E: std::fmt::Display,
{
    let mut record: T = record(bytes);
    said(&check(&record));
    if let Some((checked, sum)) = record.as_mut_bytes().split_last_chunk_mut() {
        *sum = crc32c::crc32c(checked).to_le_bytes();
    }
    said(&check(&record));
}

/// The record that `bytes` begin with; zeros where they end.
fn record<T: FromBytes + FromZeros + IntoBytes + Immutable>(bytes: &[u8]) -> T {
    let mut record = T::new_zeroed();
    let len = bytes.len().min(size_of::<T>());
    record.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
    record
}

/// Has the answer written out, as reports of damage do.
fn said<T: std::fmt::Debug, E: std::fmt::Display>(answer: &Result<T, E>) {
    let text = match answer {
        Ok(plan) => format!("{plan:?}"),
        Err(broken) => broken.to_string(),
    };
    assert!(!text.is_empty(), "an answer says something");
}
