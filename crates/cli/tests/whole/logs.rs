//! Append-only logs, which programs make with the library: named, examined and never changed.

use crate::program::{Folder, json, run};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tidegate_append_log::{AppendLog, Making, OnDamage, create};
use tidegate_media::{Access, Allocation, BlockDevice, DiskAccess, FileDisk, MappedRegion};

const REFUSED: i32 = 3;
const BYTES: usize = 100_000;

/// A log of [`BYTES`] synced bytes in the file `log`. It stays open as long as the answer lives.
fn made(folder: &Folder) -> AppendLog<MappedRegion> {
    let below = folder.path("below");
    fs::File::create(&below).unwrap().set_len(8 << 20).unwrap();
    let disk = FileDisk::open(&below, DiskAccess::ReadWrite, 4096).unwrap();
    let making = Making { chunk_bytes: 1 << 16, uuid: [9; 16], below: disk.identity().0 };
    let region = MappedRegion::create(&folder.path("log"), 1 << 20, Allocation::Full).unwrap();
    create(&region, &disk, &making).unwrap();
    let disk: Arc<dyn BlockDevice> = Arc::new(disk);
    let log = AppendLog::open(region, disk, OnDamage::Refuse).unwrap();
    log.append(&vec![7; BYTES]).unwrap();
    log.sync().unwrap();
    log
}

#[test]
fn a_log_is_told_of_and_checked() {
    let folder = Folder::new();
    let (log, path) = (made(&folder), folder.text("log"));
    let used = json(&["info", "--pmem", &path]);
    assert_eq!((&used["format"], &used["in_use"]), (&"append-only-log".into(), &true.into()), "{used}");
    drop(log);

    let before = fs::read(&path).unwrap();
    let idle = json(&["info", "--pmem", &path]);
    assert_eq!(idle["contents"]["end"], BYTES, "{idle}");
    let sound = run(&["check", "--pmem", &path]);
    assert!(sound.code == 0 && sound.stdout.contains("from 0 to 100000, 97.6 KiB of them only"), "{}", sound.stdout);

    // Single bytes of the heads may be the same.
    let at = before.windows(64).position(|bytes| bytes == [7; 64]).unwrap() as u64;
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[8], at + 66_000).unwrap();
    let damaged = run(&["check", "--pmem", &path]);
    assert_eq!(damaged.code, REFUSED, "{}", damaged.stdout);
    assert!(damaged.stdout.contains("damage     bytes 65536..100000 of the log are damaged"), "{}", damaged.stdout);
    assert_eq!(json(&["info", "--pmem", &path])["contents"]["damage"].as_array().unwrap().len(), 1);
    let region = MappedRegion::open(&folder.path("log"), Access::Private).unwrap();
    assert!(tidegate_append_log::survey(&region).is_ok_and(|found| found.damage.len() == 1));
    let mut after = fs::read(&path).unwrap();
    after[usize::try_from(at).unwrap() + 66_000] = 7;
    assert!(after == before, "nothing was changed");
}

#[test]
fn other_commands_name_the_log_and_leave_it() {
    let folder = Folder::new();
    drop(made(&folder));
    let path = folder.text("log");
    let before = fs::read(&path).unwrap();
    for command in [&["create", "--size", "32M"][..], &["serve"], &["scrub"], &["check", "--repair"]] {
        let ended = run(&[command, &["--pmem", &path]].concat());
        let told = [ended.stdout, ended.stderr].concat();
        assert!(told.contains("append-only log") || told.contains("no cache"), "{command:?}: {told}");
        assert_eq!(fs::read(&path).unwrap(), before, "{command:?}");
    }
}
