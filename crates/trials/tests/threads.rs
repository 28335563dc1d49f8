//! Many threads on one volume in real memory: no read is torn, none goes back in time, and the
//! volume is sound afterwards.
//!
//! Every block written carries its number, its writer and a version in each 16 bytes, so that a
//! mixture of two writes shows. Few blocks and many threads make lanes, stripes of the map and
//! looking back meet.

#![allow(clippy::cast_possible_truncation, reason = "a handful of blocks")]
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_btt::{Btt, Contents, FormatSpec, OpenOptions, Repair, check, format};
use tidegate_layout::btt::Version;
use tidegate_media::{BlockDevice, Durability, Lba, LbaRange, MappedRegion};

const WRITERS: u64 = 4;
const READERS: u64 = 2;
const BLOCKS: u64 = 24;
const WRITES: u64 = 40_000;

fn volume(sector_size: u32) -> Btt<MappedRegion> {
    let region = MappedRegion::anonymous((16 << 20) + 4096).unwrap();
    let spec = FormatSpec { version: Version::V1_1, sector_size, uuid: [1; 16], parent_uuid: [0; 16] };
    format(&region, &spec, Contents::Zeroed).unwrap();
    Btt::open(region, &OpenOptions::default()).unwrap()
}

/// What a block holds: its stamp, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    lba: u64,
    version: u64,
}

impl Stamp {
    fn fill(self, block: &mut [u8]) {
        let stamp = [self.lba.to_le_bytes(), self.version.to_le_bytes()].concat();
        block.chunks_exact_mut(16).for_each(|chunk| chunk.copy_from_slice(&stamp));
    }

    /// The stamp of a whole block, or None for zeroes.
    fn of(block: &[u8]) -> Option<Stamp> {
        let (words, _) = block.as_chunks::<16>();
        assert!(words.iter().all(|word| word == &words[0]), "torn block: {:x?}", &words);
        let [lba, version] = [&words[0][..8], &words[0][8..]].map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        lba.checked_sub(1).map(|lba| Stamp { lba, version })
    }
}

#[test]
fn readers_see_whole_blocks_that_only_move_forward() {
    for sector_size in [512, 4096] {
        let volume = volume(sector_size);
        let size = volume.geometry().block_size as usize;
        let completed: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
        let stop = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (volume, completed, stop) = (&volume, &completed, &stop);
                scope.spawn(move || {
                    write_own_blocks(volume, completed, writer, size);
                    stop.fetch_add(1, Ordering::Release);
                });
            }
            for reader in 0..READERS {
                let (volume, completed, stop) = (&volume, &completed, &stop);
                scope.spawn(move || read_until_stopped(volume, completed, stop, reader, size));
            }
        });
        for lba in 0..BLOCKS {
            let mut block = vec![0; size];
            volume.read(Lba(lba), &mut block).unwrap();
            let version = completed[lba as usize].load(Ordering::Acquire);
            assert_eq!(Stamp::of(&block).map_or(0, |stamp| stamp.version), version, "block {lba}");
        }
        let report = check(volume.region(), Repair::No).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// Writes ever newer versions of the blocks whose number is `writer` modulo [`WRITERS`].
fn write_own_blocks(volume: &impl BlockDevice, completed: &[AtomicU64], writer: u64, size: usize) {
    let mut block = vec![0; size];
    for version in 1..=WRITES {
        let lba = writer + WRITERS * (version * 7 % (BLOCKS / WRITERS));
        Stamp { lba: lba + 1, version }.fill(&mut block);
        volume.write(Lba(lba), &block, Durability::Volatile).unwrap();
        completed[lba as usize].store(version, Ordering::Release);
    }
}

fn read_until_stopped(volume: &impl BlockDevice, completed: &[AtomicU64], stop: &AtomicU64, reader: u64, size: usize) {
    let mut block = vec![0; size];
    let mut lba = reader;
    while stop.load(Ordering::Acquire) < WRITERS {
        lba = (lba * 5 + 3) % BLOCKS;
        let before = completed[lba as usize].load(Ordering::Acquire);
        volume.read(Lba(lba), &mut block).unwrap();
        match Stamp::of(&block) {
            Some(stamp) => {
                assert_eq!(stamp.lba, lba);
                assert!(stamp.version >= before, "block {lba} went back from {before} to {}", stamp.version);
            }
            None => assert_eq!(before, 0, "block {lba} lost version {before}"),
        }
    }
}

#[test]
fn writers_zeroers_and_readers_share_every_block() {
    let volume = volume(4096);
    std::thread::scope(|scope| {
        for thread in 0..WRITERS {
            let volume = &volume;
            scope.spawn(move || {
                let mut block = vec![0; 4096];
                for round in 0..WRITES {
                    let lba = (round * 13 + thread) % BLOCKS;
                    match (round + thread) % 5 {
                        0 => volume.discard(LbaRange { first: Lba(lba), blocks: 1 }).unwrap(),
                        1 | 2 => {
                            Stamp { lba: lba + 1, version: round }.fill(&mut block);
                            volume.write(Lba(lba), &block, Durability::Fua).unwrap();
                        }
                        _ => {
                            volume.read(Lba(lba), &mut block).unwrap();
                            assert!(Stamp::of(&block).is_none_or(|stamp| stamp.lba == lba));
                        }
                    }
                }
            });
        }
    });
    let report = check(volume.region(), Repair::No).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(report.counts.free, 256);
}
