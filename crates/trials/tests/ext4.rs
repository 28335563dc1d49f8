//! ext4 on a served volume: nbdfuse, a loop device, a mount; and the server killed under it.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, mpsc};
use tidegate_trials::artefacts::{announce, run};
use tidegate_trials::sectors::{self, Dice};
use tidegate_trials::served::{Attached, Server, Volume};

const KILLS: u64 = 20;
const FILES: u64 = 40;
const FILE_BLOCKS: u64 = 4;
const BLOCK_BYTES: usize = 4096;
/// Files written and synced before a kill: at most so many.
const SYNCED_MAX: u64 = 60;

/// Loop devices and mounts are the whole machine's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A volume with an empty ext4, served and attached.
fn ext4_volume(folder: &Path) -> (Volume, Server, Attached) {
    let volume = Volume::create(folder, "volume", "160M");
    let server = volume.serve();
    let attached = Attached::attach(server.socket(), &folder.join("fuse"));
    attached.make_ext4();
    (volume, server, attached)
}

fn fio(point: &Path, more: &[&str]) {
    let mut fio = Command::new("fio");
    fio.args(["--name=verify", "--rw=randwrite", "--bs=4k", "--size=24m", "--numjobs=2", "--ioengine=psync"]);
    fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", "--fsync=64", "--end_fsync=1"]);
    fio.arg(format!("--directory={}", point.display())).args(more);
    run(&mut fio, "fio").unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn fio_verifies_what_it_wrote_also_after_a_remount() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (volume, server, attached) = ext4_volume(folder.path());
    let point = folder.path().join("mnt");
    let mounted = attached.mount(&point);
    fio(&point, &[]);
    let mounted = mounted.unmount().mount(&point);
    fio(&point, &["--verify_only"]);
    let attached = mounted.unmount();
    attached.assert_ext4_clean();
    drop(attached);
    server.stop();
    volume.assert_clean();
}

#[test]
fn random_writes_to_a_file_agree_with_a_model() {
    const FILE_BYTES: usize = 8 << 20;
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (volume, server, attached) = ext4_volume(folder.path());
    let (point, mut dice) = (folder.path().join("mnt"), Dice::new(11));
    let (mut model, mut attached) = (vec![0_u8; FILE_BYTES], attached);
    for _ in 0..3 {
        let mounted = attached.mount(&point);
        let path = point.join("random");
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
        file.set_len(FILE_BYTES as u64).unwrap();
        for _ in 0..400 {
            write_somewhere(&file, &mut model, &mut dice);
        }
        drop(file);
        attached = mounted.unmount();
        let mounted = attached.mount(&point);
        assert!(fs::read(&path).unwrap() == model, "the file differs from its model after a remount");
        attached = mounted.unmount();
        attached.assert_ext4_clean();
    }
    drop(attached);
    server.stop();
    volume.assert_clean();
}

/// Writes up to 64 KiB of one byte at any offset, to the file and its model; sometimes syncs.
fn write_somewhere(file: &File, model: &mut [u8], dice: &mut Dice) {
    let at = usize::try_from(dice.below(model.len() as u64 - 1)).unwrap();
    let len = usize::try_from(1 + dice.below(65_536)).unwrap().min(model.len() - at);
    let bytes = &mut model[at..at + len];
    bytes.fill(u8::try_from(1 + dice.below(255)).unwrap());
    file.write_all_at(bytes, at as u64).unwrap();
    if dice.below(16) == 0 {
        file.sync_data().unwrap();
    }
}

#[test]
fn synced_files_outlive_every_kill_of_the_server() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (volume, server, attached) = ext4_volume(folder.path());
    drop(attached);
    server.stop();
    let (mut files, mut dice, mut synced) = (Files::default(), Dice::new(3), 0);
    let point = folder.path().join("mnt");
    for round in 0..KILLS {
        let mut server = volume.serve();
        // A fresh folder: the last one may have been unmounted lazily.
        let attached = Attached::attach(server.socket(), &folder.path().join(format!("fuse-{round}")));
        let mounted = attached.mount(&point);
        files.assert_synced(&point);
        let (sender, receiver) = mpsc::channel();
        let target = 1 + dice.below(SYNCED_MAX);
        std::thread::scope(|scope| {
            let (files, point) = (&mut files, &point);
            scope.spawn(move || while files.write_one(point).is_ok() && sender.send(()).is_ok() {});
            (0..target).for_each(|_| receiver.recv().expect("files are written until the kill"));
            server.kill();
        });
        synced += target;
        drop(mounted);
        volume.assert_clean();
    }
    let server = volume.serve();
    let mounted = Attached::attach(server.socket(), &folder.path().join("fuse")).mount(&point);
    files.assert_synced(&point);
    let attached = mounted.unmount();
    attached.assert_ext4_clean();
    drop(attached);
    server.stop();
    announce(&format!("killed the server under ext4 {KILLS} times, after {synced} synced files; none lost, none torn"));
}

/// What the files hold: the generation that was synced, and a later one that was on its way.
#[derive(Default)]
struct Files {
    generation: u32,
    synced: BTreeMap<u64, u32>,
    under_way: Option<(u64, u32)>,
}

/// The records in a block, and how many of each follow each other.
fn records(bytes: &[u8]) -> Vec<(String, usize)> {
    let mut found: Vec<(String, usize)> = Vec::new();
    for record in bytes.chunks(sectors::RECORD_BYTES) {
        let record = String::from_utf8_lossy(record).into_owned();
        match found.last_mut() {
            Some((same, count)) if *same == record => *count += 1,
            _ => found.push((record, 1)),
        }
    }
    found
}

/// What a file holds when it is read from the volume once more: it tells a wrong write from a wrong
/// read.
fn read_again(point: &Path, number: u64) -> String {
    let _forgotten = fs::write("/proc/sys/vm/drop_caches", "3");
    let bytes = fs::read(point.join(number.to_string())).unwrap();
    bytes.chunks(BLOCK_BYTES).map(|block| format!("{:?}", records(block))).collect()
}

impl Files {
    /// Writes the next file in place and syncs it: an error when the server is gone.
    fn write_one(&mut self, point: &Path) -> io::Result<()> {
        self.generation += 1;
        let number = u64::from(self.generation) * 7 % FILES;
        self.under_way = Some((number, self.generation));
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(point.join(number.to_string()))?;
        let mut bytes = vec![0; BLOCK_BYTES];
        for block in 0..FILE_BLOCKS {
            sectors::fill(&mut bytes, number * FILE_BLOCKS + block, self.generation);
            file.write_all_at(&bytes, block * BLOCK_BYTES as u64)?;
        }
        file.sync_all()?;
        File::open(point)?.sync_all()?;
        self.synced.insert(number, self.generation);
        self.under_way = None;
        Ok(())
    }

    /// Reads every file that was ever synced, block by block.
    fn assert_synced(&mut self, point: &Path) {
        for (number, synced) in &self.synced {
            let bytes = fs::read(point.join(number.to_string())).unwrap();
            assert_eq!(bytes.len(), BLOCK_BYTES * FILE_BLOCKS as usize, "file {number}");
            for (block, bytes) in (number * FILE_BLOCKS..).zip(bytes.chunks(BLOCK_BYTES)) {
                let found = sectors::generation(bytes, block).unwrap_or_else(|wrong| {
                    panic!(
                        "file {number}: {wrong}; it is {:?}; read again {}",
                        records(bytes),
                        read_again(point, *number)
                    )
                });
                let newer = self.under_way == Some((*number, found));
                assert!(found == *synced || newer, "file {number} is {found}, {synced} was synced");
            }
        }
        // A file that was under way is written again before it is judged by its blocks.
        if let Some((number, _)) = self.under_way.take() {
            self.synced.remove(&number);
        }
    }
}
