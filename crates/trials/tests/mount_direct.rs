//! Files of a mount written and read with `O_DIRECT`, without it, and through mappings, in any
//! order: every way sees what the others wrote.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use tidegate_media::{Access, MappedRegion, Region};
use tidegate_sim::Rng;
use tidegate_trials::mounted::MountTestbed;

const PAGE: usize = 4096;
const FILE_BYTES: usize = 64 * PAGE;
const ACTS: usize = 400;

/// `O_DIRECT` of this machine.
const DIRECT: i32 = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).unwrap()
}

/// Calls `act` with so many bytes of memory that direct I/O takes.
fn aligned<T>(bytes: usize, act: impl FnOnce(&mut [u8]) -> T) -> T {
    let mut memory = vec![0; bytes + PAGE];
    let from = memory.as_ptr().align_offset(PAGE);
    act(&mut memory[from..from + bytes])
}

/// `direct_bytes` of the service.
fn direct_bytes(testbed: &MountTestbed) -> u64 {
    testbed.status_count("direct_bytes")
}

fn mapped(path: &Path) -> Vec<u8> {
    let mapped = MappedRegion::open(path, Access::PrivateUnlocked).unwrap();
    let mut bytes = vec![0; FILE_BYTES];
    mapped.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn direct_and_buffered_writes_and_mappings_see_each_other() {
    for seed in 0..3 {
        let mut testbed = MountTestbed::new();
        fs::write(testbed.source().join("file"), vec![1; FILE_BYTES]).unwrap();
        let path = testbed.mountpoint().join("file");
        let (buffered, direct) = (open(&path, 0), open(&path, DIRECT));
        let (mut model, mut rng) = (vec![1; FILE_BYTES], Rng::new(seed));
        for act in 0..ACTS {
            let (at, pages) = (rng.index(60) * PAGE, 1 + rng.index(4));
            let range = at..at + pages * PAGE;
            let byte = u8::try_from(act % 251).unwrap();
            match rng.below(12) {
                0..=2 => {
                    let part = range.start + rng.index(PAGE)..range.end - rng.index(PAGE);
                    let part = part.start..part.end.max(part.start);
                    model[part.clone()].fill(byte);
                    buffered.write_all_at(&model[part.clone()], part.start as u64).unwrap();
                }
                3..=5 => {
                    model[range.clone()].fill(byte);
                    aligned(range.len(), |bytes| {
                        bytes.fill(byte);
                        direct.write_all_at(bytes, at as u64).unwrap();
                    });
                }
                6 | 7 => aligned(range.len(), |bytes| {
                    direct.read_exact_at(bytes, at as u64).unwrap();
                    assert!(bytes == &model[range.clone()], "seed {seed}, act {act}: a direct read of {range:?}");
                }),
                8 => assert!(mapped(&path) == model, "seed {seed}, act {act}: a mapping"),
                9 => assert!(fs::read(&path).unwrap() == model, "seed {seed}, act {act}: a read"),
                10 if rng.one_in(4) => buffered.sync_data().unwrap(),
                10 => assert!(testbed.on_pool("flush").status.success()),
                _ if rng.one_in(8) => testbed.kill_server(),
                _ => {}
            }
        }
        drop((buffered, direct));
        assert!(fs::read(&path).unwrap() == model, "seed {seed}");
        let ended = testbed.end();
        assert!(ended.is_written_back() && ended.read("file") == model, "seed {seed}: in SOURCE");
    }
}

#[test]
fn what_the_pool_has_not_is_written_below_until_a_program_syncs_it() {
    let testbed = MountTestbed::new();
    fs::write(testbed.source().join("file"), vec![1; FILE_BYTES]).unwrap();
    let path = testbed.mountpoint().join("file");
    let (buffered, direct) = (open(&path, 0), open(&path, DIRECT));
    buffered.write_all_at(&[2; PAGE], PAGE as u64).unwrap();
    let write = |at: usize, pages: usize| {
        aligned(pages * PAGE, |bytes| {
            bytes.fill(3);
            direct.write_all_at(bytes, at as u64).unwrap();
        });
    };
    write(0, 3);
    assert_eq!(direct_bytes(&testbed), 2 * PAGE as u64, "the page between them is in DRAM");
    let mut below = vec![0; 3 * PAGE];
    File::open(testbed.source().join("file")).unwrap().read_exact(&mut below).unwrap();
    assert_eq!((below[0], below[2 * PAGE]), (3, 3));
    direct.sync_data().unwrap();
    write(8 * PAGE, 1);
    assert_eq!(direct_bytes(&testbed), 2 * PAGE as u64, "from the sync on, the pool has them");
    drop((buffered, direct));
    assert!(testbed.end().is_written_back());
}
