//! A GlusterFS volume of three replicas whose bricks lie on mounts. Services are killed under load:
//! clients see no error, replicas heal, and no synced byte is lost.
//!
//! | killed | afterwards |
//! | --- | --- |
//! | server and supervisor of a node's mount | the next mount has all, and the brick heals |
//! | every process of a node, and its pool is lost | an empty brick takes its place, and heals |
//! | every process of a node, with `TIDEGATE_KILLS` only | as after the first |
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use tidegate_measure::cluster::gluster::{Gluster, Replication};
use tidegate_measure::cluster::nodes::{NodeDisks, NodeParts, NodeStorage};
use tidegate_trials::acts::{Done, filled, number_of};
use tidegate_trials::served::program;

const PAGE_BYTES: usize = 4096;
const PAGES: u64 = 16;
const FILES: u64 = 32;

/// Acts of all writers before and after each event.
const ACTS: usize = 40;

/// What is killed, and what is started again.
struct Event {
    name: &'static str,
    kill: fn(&Gluster, usize),
    restart: fn(&Gluster, usize),
}

const EVENTS: [Event; 3] = [
    Event {
        name: "mount",
        kill: |cluster, node| cluster.nodes().kill_mount(node).unwrap(),
        restart: |cluster, node| cluster.restart_mount(node).unwrap(),
    },
    Event {
        name: "memory",
        kill: |cluster, node| cluster.nodes().kill_node(node).unwrap(),
        restart: |cluster, node| cluster.replace_memory(node).unwrap(),
    },
    Event {
        name: "node",
        kill: |cluster, node| cluster.nodes().kill_node(node).unwrap(),
        restart: |cluster, node| cluster.restart_node(node).unwrap(),
    },
];

/// Events of a run that is told no number of kills.
const EVENTS_SHORT: usize = 2;

#[test]
fn a_cluster_heals_what_a_killed_node_missed() {
    let disk = std::env::temp_dir();
    let (replication, disks) = (Replication::THREE, NodeDisks::Shared);
    let parts = NodeParts { tidegate: program(), disk: &disk, pool_size: "64M", disks };
    let mut cluster = Gluster::start(parts, replication).unwrap();
    let volume = cluster.add_volume(NodeStorage::Mount).unwrap();
    let (rounds, events) = campaign();
    for round in 0..rounds {
        // The first node answers the commands of the trial.
        let node = 1 + round % (Replication::THREE.nodes - 1);
        for event in events {
            survives((&cluster, &volume), node, event, &format!("{}-{round}", event.name));
        }
    }
}

/// Writes in a folder of this name while the event happens. Afterwards every replica has what was
/// acknowledged, also in former folders.
fn survives((cluster, volume): (&Gluster, &Path), node: usize, event: &Event, name: &str) {
    let folder = volume.join(name);
    fs::create_dir(&folder).unwrap();
    for name in ["log", "pages"] {
        fs::write(folder.join(name), []).unwrap();
    }
    let [appended, overwritten, replaced] = written_amid(&folder, |heard| {
        go_on(heard);
        (event.kill)(cluster, node);
        go_on(heard);
        (event.restart)(cluster, node);
        go_on(heard);
    });
    cluster.heal().unwrap();
    check_log(&folder, appended);
    check_pages(&folder, overwritten);
    check_replaced(&folder, replaced);
    let expected = digests(volume);
    assert!(expected.len() as u64 >= 2 + replaced.min(FILES));
    for node in 0..cluster.nodes().count() {
        assert_eq!(digests(&cluster.brick_from_here(node, NodeStorage::Mount)), expected, "node {node} after {name}");
    }
}

/// How many rounds there are, and the events of each: one with the first events, or as many as kill
/// as often as a long campaign is told.
fn campaign() -> (usize, &'static [Event]) {
    const KILLS_OF_A_ROUND: usize = 3 * 8;
    match std::env::var("TIDEGATE_KILLS") {
        Ok(kills) => ((kills.parse::<usize>().unwrap() / KILLS_OF_A_ROUND).max(1), &EVENTS),
        Err(_) => (1, &EVENTS[..EVENTS_SHORT]),
    }
}

/// Waits until the writers have done more.
fn go_on(heard: &Receiver<()>) {
    while heard.try_recv().is_ok() {}
    for _ in 0..ACTS {
        heard.recv().expect("writers go on whatever happens to one node");
    }
}

/// Runs the protocols in `folder` while something happens. Returns how many acts of each were
/// acknowledged.
fn written_amid(folder: &Path, events: impl FnOnce(&Receiver<()>)) -> [Done; 3] {
    let (tell, heard) = channel();
    let ending = Ending(AtomicBool::new(false));
    let ending = &ending;
    std::thread::scope(|scope| {
        let protocols = [append, overwrite, replace].map(|protocol| {
            let tell = tell.clone();
            scope.spawn(move || protocol(folder, &Writer { tell, ending }).unwrap())
        });
        drop(tell);
        let ends = EndsWriters(ending);
        events(&heard);
        drop(ends);
        protocols.map(|protocol| protocol.join().unwrap())
    })
}

/// Whether writers end after the act under way.
struct Ending(AtomicBool);

/// Ends them, also if the test failed meanwhile.
struct EndsWriters<'a>(&'a Ending);

impl Drop for EndsWriters<'_> {
    fn drop(&mut self) {
        // With each writer's load.
        self.0.0.store(true, Ordering::Relaxed);
    }
}

struct Writer<'a> {
    tell: Sender<()>,
    ending: &'a Ending,
}

impl Writer<'_> {
    /// Does act after act until the end. No act may fail.
    fn acts(&self, mut act: impl FnMut(u64) -> io::Result<()>) -> io::Result<Done> {
        let mut done = 0;
        // The end brings nothing else with it.
        while !self.ending.0.load(Ordering::Relaxed) {
            act(done + 1)?;
            done += 1;
            // Nobody listens any more after the end.
            let _ = self.tell.send(());
        }
        Ok(done)
    }
}

fn line(number: u64) -> String {
    format!("{number:08}\n")
}

fn append(folder: &Path, writer: &Writer<'_>) -> io::Result<Done> {
    let mut log = OpenOptions::new().append(true).open(folder.join("log"))?;
    writer.acts(|act| {
        log.write_all(line(act).as_bytes())?;
        log.sync_data()
    })
}

fn check_log(folder: &Path, done: Done) {
    let expected: String = (1..=done).map(line).collect();
    assert_eq!(fs::read_to_string(folder.join("log")).unwrap(), expected);
}

fn overwrite(folder: &Path, writer: &Writer<'_>) -> io::Result<Done> {
    let pages = OpenOptions::new().write(true).open(folder.join("pages"))?;
    writer.acts(|act| {
        pages.write_all_at(&filled(act, PAGE_BYTES), act % PAGES * PAGE_BYTES as u64)?;
        pages.sync_data()
    })
}

fn check_pages(folder: &Path, done: Done) {
    let pages = fs::read(folder.join("pages")).unwrap();
    for act in done.saturating_sub(PAGES - 1).max(1)..=done {
        let at = usize::try_from(act % PAGES).unwrap() * PAGE_BYTES;
        assert_eq!(number_of(&pages[at..at + PAGE_BYTES]), Some(act), "of {done}");
    }
}

fn replace(folder: &Path, writer: &Writer<'_>) -> io::Result<Done> {
    writer.acts(|act| {
        // A name that no file had before. A brick that comes back may still have an earlier file by
        // the name; GlusterFS renames that one, or answers with its state, until it has healed.
        let fresh = folder.join(format!("fresh-{act}"));
        let mut file = File::create(&fresh)?;
        file.write_all(&filled(act, PAGE_BYTES * 3))?;
        file.sync_all()?;
        fs::rename(&fresh, folder.join(replaced_name(act)))
    })
}

fn replaced_name(act: u64) -> String {
    format!("replaced-{}", act % FILES)
}

fn check_replaced(folder: &Path, done: Done) {
    for act in done.saturating_sub(FILES - 1).max(1)..=done {
        let found = fs::read(folder.join(replaced_name(act))).unwrap();
        assert_eq!((found.len(), number_of(&found)), (PAGE_BYTES * 3, Some(act)), "of {done}");
    }
}

/// The digest of each file of each folder, but of the cluster's own one.
fn digests(root: &Path) -> BTreeMap<PathBuf, [u8; 32]> {
    let entries = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    // GlusterFS's own: .glusterfs, and .glusterfs-anonymous-inode-* for files that it is to delete.
    let is_own =
        |folder: &Path| folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".glusterfs"));
    let folders = entries(root.to_owned()).filter(|folder| !is_own(folder) && folder.is_dir());
    let digest = |path: PathBuf| {
        let found = Sha256::digest(fs::read(&path).unwrap());
        (path.strip_prefix(root).unwrap().to_owned(), found.into())
    };
    folders.flat_map(entries).map(digest).collect()
}
