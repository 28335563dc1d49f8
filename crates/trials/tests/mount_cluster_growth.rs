//! GlusterFS volumes whose bricks lie on mounts get more bricks while programs write, and limit
//! what a directory may have.
//!
//! While files move, programs make new files and write in place. GlusterFS itself (10.3, also on
//! ext4 and in memory) does not bear more: a rename over a file may fail with `EEXIST`
//! (gluster/glusterfs#1911), and a file to which a program appends may get other bytes.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use rustix::fs::{XattrFlags, getxattr, setxattr};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tidegate_measure::cluster::gluster::{Gluster, Replication};
use tidegate_measure::cluster::nodes::{NodeDisks, NodeParts, NodeStorage};
use tidegate_trials::acts::{filled, number_of};
use tidegate_trials::cluster_writers::{Digests, Writing, digests, go_on, written_amid};
use tidegate_trials::served::program;

const MOUNT: NodeStorage = NodeStorage::Mount;

/// Files of a folder that is made before the volume grows, and of others.
const FORMER_FILES: usize = 32;
const LATER_FILES: usize = 16;

/// The least part of a folder's files on each set of bricks: half of them belong there, by their
/// names.
const PART_MIN: usize = 4;

/// A file that nobody writes while it moves.
struct Still {
    path: PathBuf,
    number: u64,
    attributes: Attributes,
}

/// What a client sees of a file beside its contents.
#[derive(Debug, PartialEq, Eq)]
struct Attributes {
    mode: u32,
    bytes: u64,
    modified: (i64, i64),
    number: [u8; 8],
}

#[test]
fn a_volume_grows_while_programs_write() {
    let mut cluster = cluster(Replication::GROWING);
    let volume = cluster.add_volume(MOUNT).unwrap();
    let mut still = still_files(&volume.join("former"), FORMER_FILES);
    let mut moved = 0;
    let written = written_amid(&volume.join("written"), Writing::InPlace, |heard| {
        go_on(heard);
        cluster.grow(MOUNT).unwrap();
        still.extend(still_files(&volume.join("grown"), LATER_FILES));
        go_on(heard);
        cluster.start_rebalance(MOUNT).unwrap();
        still.extend(still_files(&volume.join("moving"), LATER_FILES));
        go_on(heard);
        moved = cluster.await_rebalance(MOUNT).unwrap().moved;
        still.extend(still_files(&volume.join("moved"), LATER_FILES));
        go_on(heard);
    });
    written.check();
    still.iter().for_each(Still::check);
    assert!(moved >= (FORMER_FILES / PART_MIN) as u64, "{moved} files were moved");
    is_spread(&cluster, &volume);
}

/// Fails unless each set of bricks has its part of the files.
fn is_spread(cluster: &Gluster, volume: &Path) {
    let sets = on_sets(cluster, volume);
    for (folder, count) in [("former", FORMER_FILES), ("moved", LATER_FILES)] {
        let parts = sets.each_ref().map(|set| set.keys().filter(|path| path.starts_with(folder)).count());
        assert!(
            parts.iter().all(|part| *part >= count / PART_MIN),
            "files of {folder} on each set of bricks: {parts:?}"
        );
    }
}

/// The files of each of two sets of bricks. Fails unless each file is on both bricks of one set as
/// the client sees it.
fn on_sets(cluster: &Gluster, volume: &Path) -> [Digests; 2] {
    // A brick may refuse what its twin does, while a folder's layout or its use changes.
    cluster.heal().unwrap();
    let [first, twin, second, second_twin] = [0, 1, 2, 3].map(|node| digests(&cluster.brick_from_here(node, MOUNT)));
    same_replicas(&first, &twin);
    same_replicas(&second, &second_twin);
    let all = digests(volume);
    let both: Digests = first.iter().chain(&second).map(|(path, digest)| (path.clone(), *digest)).collect();
    assert_eq!(first.len() + second.len(), all.len(), "files are on both sets, or on none");
    assert!(both == all, "bricks have other bytes than the client");
    [first, second]
}

fn same_replicas(one: &Digests, other: &Digests) {
    let differs = |path: &&PathBuf| one.get(*path) != other.get(*path);
    let differing: Vec<_> = one.keys().chain(other.keys()).filter(differs).collect();
    assert!(differing.is_empty(), "replicas differ in {differing:?}");
}

/// Makes a folder of so many files.
fn still_files(folder: &Path, count: usize) -> Vec<Still> {
    fs::create_dir(folder).unwrap();
    let make = |number: usize| {
        let path = folder.join(format!("file-{number}"));
        let number = number as u64;
        let mut file = File::create_new(&path).unwrap();
        file.write_all(&contents(number)).unwrap();
        file.set_permissions(Permissions::from_mode(0o600 | u32::try_from(number % 8).unwrap())).unwrap();
        setxattr(&path, "user.number", &number.to_le_bytes(), XattrFlags::CREATE).unwrap();
        drop(file);
        Still { attributes: attributes(&path), path, number }
    };
    (1..=count).map(make).collect()
}

/// Of several lengths, also none.
fn contents(number: u64) -> Vec<u8> {
    filled(number, usize::try_from(number % 16).unwrap() * 5000)
}

fn attributes(path: &Path) -> Attributes {
    let about = fs::metadata(path).unwrap();
    let mut number = [0; 8];
    getxattr(path, "user.number", &mut number).unwrap();
    Attributes { mode: about.mode(), bytes: about.len(), modified: (about.mtime(), about.mtime_nsec()), number }
}

impl Still {
    fn check(&self) {
        assert!(fs::read(&self.path).unwrap() == contents(self.number), "{} has other bytes", self.path.display());
        assert_eq!(attributes(&self.path), self.attributes, "{}", self.path.display());
    }
}

fn cluster(replication: Replication) -> Gluster {
    let disk = std::env::temp_dir();
    let parts = NodeParts { tidegate: program(), disk: &disk, pool_size: "64M", disks: NodeDisks::Shared };
    Gluster::start(parts, replication).unwrap()
}

/// Bytes that the limited directory may have, and those of each of its files.
const LIMIT: u64 = 1 << 20;
const FILE_BYTES: usize = 64 << 10;

/// Files that are there before anything is counted.
const UNCOUNTED: u64 = 4;

#[test]
fn a_limited_directory_refuses_what_is_beyond_its_limit() {
    let mut cluster = cluster(Replication::PAIRS);
    let volume = cluster.add_volume(MOUNT).unwrap();
    let (limited, other) = (volume.join("limited"), volume.join("other"));
    [&limited, &other].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let mut written = UNCOUNTED;
    (1..=UNCOUNTED).for_each(|number| write(&limited, number).unwrap());
    cluster.enable_quotas(MOUNT).unwrap();
    cluster.limit_usage(MOUNT, "/limited", LIMIT).unwrap();
    let uses = |files: u64| cluster.await_quota_use(MOUNT, "/limited", files * FILE_BYTES as u64).unwrap();
    uses(written);

    let refused = loop {
        match write(&limited, written + 1) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written * FILE_BYTES as u64 <= 2 * LIMIT, "{written} files and no refusal");
    };
    assert_eq!(refused.kind(), ErrorKind::QuotaExceeded, "{refused}");
    assert!(written * FILE_BYTES as u64 >= LIMIT, "refused after {written} files");
    write(&other, 1).unwrap();
    // It was made, or its creation was refused too.
    let _ = fs::remove_file(file(&limited, written + 1));
    uses(written);
    is_intact(&cluster, &volume, written);

    cluster.limit_usage(MOUNT, "/limited", 2 * LIMIT).unwrap();
    written += 1;
    write(&limited, written).unwrap();
    uses(written);
    is_intact(&cluster, &volume, written);
}

fn file(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("file-{number}"))
}

/// Writes a new file. What a client writes may be refused when it is synced.
fn write(folder: &Path, number: u64) -> io::Result<()> {
    let mut new = File::create_new(file(folder, number))?;
    new.write_all(&filled(number, FILE_BYTES))?;
    new.sync_all()
}

/// Fails unless all files have what was written, for the client and on one set of bricks.
fn is_intact(cluster: &Gluster, volume: &Path, written: u64) {
    for (folder, last) in [("limited", written), ("other", 1)] {
        for number in 1..=last {
            let found = fs::read(file(&volume.join(folder), number)).unwrap();
            assert_eq!((found.len(), number_of(&found)), (FILE_BYTES, Some(number)), "{folder}");
        }
    }
    let files = on_sets(cluster, volume).iter().map(BTreeMap::len).sum::<usize>() as u64;
    assert_eq!(files, written + 1);
}
