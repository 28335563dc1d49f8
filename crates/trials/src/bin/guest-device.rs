//! Programs inside a guest that write to a block device, each to blocks of its own, and read them
//! back.
//!
//! `guest-device DEVICE WRITERS WRITES [UNTIL]` has each writer write so often, and go on until the
//! file UNTIL is there. Every write is one request to the device; a writer waits for each, and
//! flushes now and then. Each request has to succeed, and each block has to hold what was answered
//! last.

#![forbid(unsafe_code)]

use rustix::fs::OFlags;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tidegate_media::AlignedBytes;
use tidegate_trials::sectors;

const BLOCK_BYTES: usize = 4096;
/// Blocks of each writer.
const BLOCKS: u64 = 16;
/// Writes between two flushes.
const WRITES_A_FLUSH: u64 = 50;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut argument = || arguments.next().expect("guest-device DEVICE WRITERS WRITES [UNTIL]");
    let device = argument();
    let [writers, writes] = [(); 2].map(|()| argument().parse::<u64>().expect("a number"));
    let until = arguments.next().map(PathBuf::from);
    let direct = i32::try_from(OFlags::DIRECT.bits()).expect("a flag");
    let device = File::options().read(true).write(true).custom_flags(direct).open(device).expect("a device");
    let written: u64 = std::thread::scope(|scope| {
        let write = |writer| {
            let (device, until) = (&device, until.as_deref());
            scope.spawn(move || write(device, writer * BLOCKS, writes, until))
        };
        let threads: Vec<_> = (0..writers).map(write).collect();
        threads.into_iter().map(|thread| thread.join().expect("every request succeeds")).sum()
    });
    println!("written {written}");
}

/// Writes to the blocks from `first` on, and compares them; how often it wrote.
fn write(device: &File, first: u64, writes: u64, until: Option<&Path>) -> u64 {
    let mut block_bytes = AlignedBytes::zeroed(BLOCK_BYTES);
    let mut done = 0;
    while done < writes || until.is_some_and(|file| !file.exists()) {
        let block = first + done % BLOCKS;
        let generation = u32::try_from(done / BLOCKS + 1).expect("few writes");
        if generation > 1 {
            device.read_exact_at(&mut block_bytes, block * BLOCK_BYTES as u64).expect("the device reads");
            assert_eq!(sectors::generation(&block_bytes, block), Ok(generation - 1), "block {block}");
        }
        sectors::fill(&mut block_bytes, block, generation);
        device.write_all_at(&block_bytes, block * BLOCK_BYTES as u64).expect("the device writes");
        done += 1;
        if done.is_multiple_of(WRITES_A_FLUSH) {
            device.sync_data().expect("the device flushes");
        }
    }
    done
}
