//! The kernel's own caches in front of a disk, and ours, given the same writes: the stores of each
//! to persistent memory, and the writes to its disk. Counts only; a guest under emulation tells no
//! times.
//!
//! QEMU counts each byte that the guest's kernel stores to its NVDIMMs; the kernel counts what its
//! disks get.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test stops at the first surprise")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_disk_cache::{Contents, DiskCache, FormatSpec, Options, TransactionError, format};
use tidegate_layout::disk_cache::CachePlan;
use tidegate_media::{BlockDevice, Durability, InTurn, Lba, MappedRegion};
use tidegate_sim::{Disk, DiskFault};
use tidegate_trials::artefacts::announce;
use tidegate_trials::guest::{Guest, Stores, Transcript};
use tidegate_trials::sectors::{self, Dice, Model};

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 4096;
/// Blocks that are written while all goes well, and behind them those that are written while the
/// disk fails.
const BLOCKS: u64 = 8192;
const TROUBLE: Range<u64> = BLOCKS..BLOCKS + 256;
/// Blocks that are written to a small cache until it takes no more.
const FILLING: Range<u64> = TROUBLE.end..TROUBLE.end + 2048;
/// Room for bcache's own superblock before the first block.
const DISK_BYTES: u64 = FILLING.end * BLOCK_BYTES + MIB;
/// Room for every block, dirty: no peer has to write to its disk before it is told to.
const DIMM_BYTES: u64 = 132 * MIB;
/// What a peer may store by itself in the moment between the two counts that have to agree.
const BETWEEN_COUNTS_BYTES_MAX: u64 = 4 * BLOCK_BYTES;
/// Commits of one block, and commits of several.
const SINGLES: usize = 1000;
const GROUPS: usize = 125;
const GROUP_BLOCKS: usize = 8;

/// Blocks and generations, written together and then made durable.
type Commit = Vec<(u64, u32)>;

/// What every system is given.
struct Work {
    singles: Vec<Commit>,
    groups: Vec<Commit>,
    /// Commits of one block while the disk fails.
    during_faults: Vec<Commit>,
    /// Commits of one block each to a cache for fewer, while the disk fails.
    filling: Vec<Commit>,
    /// What the disk holds after the first two.
    model: Model,
}

impl Work {
    fn from_seed(seed: u64) -> Work {
        let (mut dice, mut model) = (Dice::new(seed), Model::default());
        let singles = (0..SINGLES).map(|_| commit(&mut dice, &mut model, 1)).collect();
        let groups = (0..GROUPS).map(|_| commit(&mut dice, &mut model, GROUP_BLOCKS)).collect();
        let mut once = |blocks: Range<u64>| blocks.map(|block| vec![(block, model.next_generation())]).collect();
        let (during_faults, filling) = (once(TROUBLE), once(FILLING));
        Work { singles, groups, during_faults, filling, model }
    }

    /// Blocks that were written, each counted once.
    fn distinct(&self) -> u64 {
        self.model.touched().count() as u64
    }
}

/// A commit of different blocks, three of four from a few that are written again and again.
fn commit(dice: &mut Dice, model: &mut Model, blocks: usize) -> Commit {
    let mut chosen = BTreeSet::new();
    while chosen.len() < blocks {
        let often = dice.below(4) != 0;
        chosen.insert(if often { dice.below(256) * 31 } else { dice.below(BLOCKS) });
    }
    let generation = |block| {
        let generation = model.next_generation();
        model.set(block, generation);
        (block, generation)
    };
    chosen.into_iter().map(generation).collect()
}

/// The lines for the guest's `sectors commit`.
fn lines(commits: &[Commit]) -> String {
    let writes = commits.iter().flatten();
    writes.fold(String::new(), |lines, (block, generation)| lines + &format!("{block} {generation}\n"))
}

/// What was done from one moment to another.
#[derive(Clone, Copy, Debug)]
struct Counts {
    /// Bytes stored to the memory, and fences.
    memory: Stores,
    /// Bytes stored to the memory as the kernel's block layer counts them, which does not see what
    /// a driver stores by itself.
    memory_by_blocks: u64,
    disk_writes: u64,
    disk_bytes: u64,
    disk_flushes: u64,
}

impl Counts {
    /// Bytes stored to the memory beside `blocks` blocks.
    fn beside_data(&self, blocks: usize) -> u64 {
        self.memory.bytes - blocks as u64 * BLOCK_BYTES
    }
}

/// A system, and what it did.
struct Subject {
    name: &'static str,
    singles: Counts,
    groups: Counts,
    drained: Counts,
    during_faults: DuringFaults,
}

/// What a system did while its disk failed.
struct DuringFaults {
    /// Commits that were answered well.
    committed: usize,
    /// Blocks with what was written then, once the disk was mended and the cache told to bring it
    /// up to date.
    arrived: usize,
}

/// What a small cache did whose disk failed from the beginning.
struct Filled {
    name: &'static str,
    /// Blocks that it has room for.
    blocks: usize,
    during_faults: DuringFaults,
}

/// The kernel's caches.
struct Peer {
    name: &'static str,
    key: &'static str,
    image: PathBuf,
    /// Where the first block lies on the disk.
    data_at: u64,
}

const PEERS: [(&str, &str, u64); 3] = [
    ("dm-writecache, memory mapped", "writecache-p", 0),
    ("dm-writecache, memory as a disk", "writecache-s", 0),
    ("bcache", "bcache", 2 * BLOCK_BYTES),
];

fn peers(folder: &Path) -> Vec<Peer> {
    let image = |key: &str| {
        let image = folder.join(format!("disk-{key}"));
        File::create_new(&image).unwrap().set_len(DISK_BYTES).unwrap();
        image
    };
    PEERS.map(|(name, key, data_at)| Peer { name, key, image: image(key), data_at }).into()
}

/// The words of the script that are the same for each peer. A disk stands behind a table that can
/// be changed to one that fails.
const WORDS: &str = r#"
export DM_DISABLE_UDEV=1
table() {
    dmsetup suspend --nolockfs $1
    dmsetup load $1 --table "$2"
    dmsetup resume $1
}
sound() { echo "0 $(cat /sys/block/$1/size) linear /dev/$1 0"; }
# Reads go well; each write and each flush fails.
broken() { echo "0 $(cat /sys/block/$1/size) flakey /dev/$1 0 0 3600 1 error_writes"; }
work() {
    tally $1 $3 $4
    sectors commit $2 4096 1 </singles
    tally $1 $3 $4
    sectors commit $2 4096 8 </groups
    tally $1 $3 $4
}
writecache() {
    echo "0 $(cat /sys/block/$1/size) writecache $2 /dev/mapper/disk-$1 $3 4096 0"
}
# Key, kind, DIMM, disk.
try_writecache() {
    memory=$(counted_dimm $3)
    dmsetup create disk-$4 --table "$(sound $4)"
    dmsetup create $1 --table "$(writecache $4 $2 $memory)"
    work $1 /dev/mapper/$1 $4 $memory
    dmsetup message $1 0 flush
    tally $1 $4 $memory
    echo "status $1 $(dmsetup status $1)"
    table disk-$4 "$(broken $4)"
    echo "trouble $1 $(sectors commit /dev/mapper/$1 4096 1 </during_faults | tail -n 1)"
    dmsetup message $1 0 flush || echo "$1 does not flush"
    echo "status $1 $(dmsetup status $1)"
    table disk-$4 "$(sound $4)"
    dmsetup remove $1
    dmsetup create $1 --table "$(writecache $4 $2 $memory)"
    dmsetup message $1 0 flush
    echo "status $1 $(dmsetup status $1)"
    dmsetup remove $1
}
# Key, DIMM, disk.
fill_writecache() {
    few=/dev/mapper/few
    dmsetup create few --table "0 8704 linear /dev/pmem$(region $2) 0"
    dd if=/dev/zero of=$few bs=64k count=1 conv=fsync 2>/dev/null
    table disk-$3 "$(broken $3)"
    dmsetup create $1 --table "$(writecache $3 p $few)"
    echo "room $(dmsetup status $1 | cut -d' ' -f5)"
    echo "filling $(sectors commit /dev/mapper/$1 4096 1 </filling | tail -n 1)"
    echo "status $1 $(dmsetup status $1)"
    table disk-$3 "$(sound $3)"
    dmsetup remove $1
    dmsetup create $1 --table "$(writecache $3 p $few)"
    dmsetup message $1 0 flush
    echo "status $1 $(dmsetup status $1)"
    dmsetup remove $1
}
bring_up_to_date() {
    echo 0 >$b/writeback_percent
    echo 0 >$b/writeback_delay
    echo 1 >$b/writeback_running
    until [ "$(cat $b/state)" = clean ]; do usleep 50000; done
}
# DIMM, disk.
try_bcache() {
    memory=$(counted_dimm $1)
    dmsetup create disk-$2 --table "$(sound $2)"
    make-bcache --writeback --bucket 64k --cache $memory --bdev /dev/mapper/disk-$2
    echo $memory >/sys/fs/bcache/register
    echo /dev/mapper/disk-$2 >/sys/fs/bcache/register
    b=/sys/block/bcache0/bcache
    until [ -e $b/cache ]; do usleep 50000; done
    echo 0 >$b/writeback_running
    echo 0 >$b/sequential_cutoff
    echo 0 >$b/cache/congested_read_threshold_us
    echo 0 >$b/cache/congested_write_threshold_us
    echo "bcache $(cat $b/cache_mode), blocks of $(cat $b/cache/block_size), buckets of $(cat $b/cache/bucket_size)"
    work bcache /dev/bcache0 $2 $memory
    bring_up_to_date
    tally bcache $2 $memory
    c=$b/cache/cache0
    echo "bcache wrote $(cat $c/written), of that tree $(cat $c/btree_written), metadata $(cat $c/metadata_written)"
    echo 0 >$b/writeback_running
    table disk-$2 "$(broken $2)"
    echo "trouble bcache $(sectors commit /dev/bcache0 4096 1 </during_faults | tail -n 1)"
    table disk-$2 "$(sound $2)"
    # It gives a disk up that fails often, and keeps what is dirty until the disk comes back.
    [ ! -e $b/state ] || echo 1 >$b/stop
    while [ -e /sys/block/bcache0 ]; do usleep 50000; done
    echo /dev/mapper/disk-$2 >/sys/fs/bcache/register
    until [ -e $b/cache ]; do usleep 50000; done
    echo "status bcache $(cat $b/state), dirty $(cat $b/dirty_data)"
    bring_up_to_date
    echo "status bcache $(cat $b/state), dirty $(cat $b/dirty_data)"
}
"#;

fn run_guest(work: &Work, peers: &[Peer], folder: &Path) -> Transcript {
    let mut guest = Guest::new();
    guest.count_stores();
    guest.tool("dmsetup", "dmsetup").unwrap_or_else(|error| panic!("{error}"));
    guest.tool("make-bcache", "bcache-tools").unwrap_or_else(|error| panic!("{error}"));
    for peer in peers {
        let dimm = folder.join(format!("dimm-{}", peer.key));
        File::create_new(&dimm).unwrap().set_len(DIMM_BYTES).unwrap();
        guest.dimm(&dimm, 0);
        guest.disk(&peer.image);
    }
    let commits = [&work.singles, &work.groups, &work.during_faults, &work.filling];
    for (name, commits) in ["singles", "groups", "during_faults", "filling"].into_iter().zip(commits) {
        guest.file(name, lines(commits));
    }
    guest.script("load dm-mod dm-writecache dm-flakey crc64 bcache; disks");
    guest.script(WORDS);
    guest.script("try_writecache writecache-p p 0 vda; fill_writecache writecache-p 0 vda");
    guest.script("try_writecache writecache-s s 1 vdb; try_bcache 2 vdc");
    let said = guest.run().unwrap_or_else(|error| panic!("{error}"));
    said.lines.iter().for_each(|line| announce(&format!("guest: {line}")));
    said
}

/// What the guest said of one peer, beside what QEMU counted at the same moments.
fn subject(peer: &Peer, work: &Work, said: &Transcript) -> Subject {
    let tallies = said.lines.iter().filter_map(|line| line.strip_prefix("tally "));
    let own = tallies.zip(&said.stores).filter_map(|(tally, stores)| {
        let (key, counts) = tally.split_once(' ')?;
        (key == peer.key).then(|| (*stores, counts.split(' ').map(|count| count.parse().unwrap()).collect()))
    });
    let moments: Vec<(Stores, Vec<u64>)> = own.collect();
    let between = |from: usize| {
        let ((stores, before), (stores_then, then)) = (&moments[from], &moments[from + 1]);
        let grown = |place: usize| then[place] - before[place];
        Counts {
            memory: *stores_then - *stores,
            memory_by_blocks: grown(4) * 512,
            disk_writes: grown(0),
            disk_bytes: grown(1) * 512,
            disk_flushes: grown(2),
        }
    };
    let committed = first_number(said, &format!("trouble {} committed", peer.key));
    assert_up_to_date(peer.name, work, |block| peer.on_disk(block));
    let arrived = arrived(&work.during_faults, |block| peer.on_disk(block));
    let [singles, groups, drained] = [0, 1, 2].map(between);
    Subject { name: peer.name, singles, groups, drained, during_faults: DuringFaults { committed, arrived } }
}

/// What the guest said of the small cache of the first peer.
fn filled(peer: &Peer, work: &Work, said: &Transcript) -> Filled {
    let committed = first_number(said, "filling committed");
    let arrived = arrived(&work.filling, |block| peer.on_disk(block));
    Filled { name: peer.name, blocks: first_number(said, "room"), during_faults: DuringFaults { committed, arrived } }
}

fn first_number(said: &Transcript, key: &str) -> usize {
    let value = said.value(key).unwrap_or_else(|| panic!("the guest said no {key:?}"));
    value.split(' ').next().unwrap().parse().unwrap()
}

impl Peer {
    /// The generation of a block on its disk.
    fn on_disk(&self, block: u64) -> u32 {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        let disk = File::open(&self.image).unwrap();
        disk.read_exact_at(&mut bytes, self.data_at + block * BLOCK_BYTES).unwrap();
        sectors::generation(&bytes, block).unwrap_or_else(|wrong| panic!("{}: {wrong}", self.name))
    }
}

/// Compares each block of a disk with what it has to hold.
fn assert_up_to_date(name: &str, work: &Work, on_disk: impl Fn(u64) -> u32) {
    for block in 0..BLOCKS {
        assert_eq!(on_disk(block), work.model.generation(block), "{name}: block {block} of the disk");
    }
}

/// How many of the blocks that were written while the disk failed are on it.
fn arrived(commits: &[Commit], on_disk: impl Fn(u64) -> u32) -> usize {
    commits.iter().flatten().filter(|(block, generation)| on_disk(*block) == *generation).count()
}

/// How commits of several blocks are made.
#[derive(Clone, Copy)]
enum Together {
    /// As the peers get them: block by block, then a flush.
    Flushed,
    /// As one transaction.
    Atomic,
}

/// Ours, in memory of the same size, over a disk that counts.
struct Ours {
    name: &'static str,
    cache: DiskCache<MappedRegion>,
    disk: Arc<Disk>,
    together: Together,
}

impl Ours {
    fn new(name: &'static str, together: Together) -> Ours {
        Ours::over(name, together, DIMM_BYTES, FormatSpec::ring_slots_in(DIMM_BYTES))
    }

    fn over(name: &'static str, together: Together, bytes: u64, ring_slots: u32) -> Ours {
        let region = MappedRegion::anonymous(bytes).unwrap();
        let disk_blocks = FILLING.end;
        let spec = FormatSpec { block_size: BLOCK_BYTES as u32, disk_blocks, ring_slots, uuid: [7; 16], disk: [7; 32] };
        format(&region, &spec, Contents::Zeroed).unwrap();
        let disk = Arc::new(Disk::new(disk_blocks, BLOCK_BYTES as u32));
        let cache = DiskCache::open(region, Arc::new(InTurn(Arc::clone(&disk))), Options::default()).unwrap();
        Ours { name, cache, disk, together }
    }

    fn commit(&self, commit: &Commit) -> tidegate_media::Result<()> {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        let mut transaction = self.cache.begin();
        for (block, generation) in commit {
            sectors::fill(&mut bytes, *block, *generation);
            match self.together {
                Together::Flushed => self.cache.write(Lba(*block), &bytes, Durability::Volatile)?,
                Together::Atomic => transaction.write(Lba(*block), &bytes).unwrap(),
            }
        }
        match self.together {
            Together::Flushed => self.cache.flush(),
            Together::Atomic => transaction.commit().map_err(|error| match error {
                TransactionError::Device(error) => error,
                error => panic!("{error}"),
            }),
        }
    }

    /// Writes everything to the disk; returns whether the disk took it.
    fn drain(&self) -> bool {
        while self.cache.dirty_blocks() > 0 {
            let progress = self.cache.destage_step(u32::MAX);
            if !progress.failed.is_empty() || progress.flush_failed.is_some() {
                return false;
            }
        }
        true
    }

    fn counted(&self, act: impl FnOnce()) -> Counts {
        let moment = || (self.cache.region().counters(), self.cache.counters(), self.disk.flushes());
        let (memory, cache, flushes) = moment();
        act();
        let (memory_then, cache_then, flushes_then) = moment();
        let grown = memory_then - memory;
        Counts {
            memory: Stores { bytes: grown.bytes_stored, fences: grown.fences },
            memory_by_blocks: 0,
            disk_writes: cache_then.destage_writes - cache.destage_writes,
            disk_bytes: (cache_then.destaged - cache.destaged) * BLOCK_BYTES,
            disk_flushes: flushes_then - flushes,
        }
    }

    fn subject(self, work: &Work) -> Subject {
        let all = |commits: &[Commit]| commits.iter().for_each(|commit| self.commit(commit).unwrap());
        let singles = self.counted(|| all(&work.singles));
        let groups = self.counted(|| all(&work.groups));
        let drained = self.counted(|| assert!(self.drain()));
        self.disk.fail(DiskFault::WriteFails(0..FILLING.end));
        let committed = work.during_faults.iter().filter(|commit| self.commit(commit).is_ok()).count();
        assert!(!self.drain(), "a disk that refuses writes does not get them");
        assert_eq!(self.cache.dirty_blocks(), committed as u64, "what the disk refused stays");
        self.disk.mend();
        assert!(self.drain());
        let on_disk = |block| sectors::read_generation(&*self.disk, block);
        assert_up_to_date(self.name, work, on_disk);
        let arrived = arrived(&work.during_faults, on_disk);
        Subject { name: self.name, singles, groups, drained, during_faults: DuringFaults { committed, arrived } }
    }
}

/// Ours with room for `blocks` blocks. The disk is tried now and then, as whoever destages would.
fn fill_ours(blocks: usize, work: &Work) -> Filled {
    const RING: u32 = 1024;
    let plan = CachePlan::cut(blocks as u32, BLOCK_BYTES as u32, FILLING.end, RING);
    let ours = Ours::over("Tidegate", Together::Atomic, plan.end(), RING);
    assert_eq!(ours.cache.fill().blocks as usize, blocks);
    ours.disk.fail(DiskFault::WriteFails(0..FILLING.end));
    let committed = |(number, commit): &(usize, &Commit)| {
        if number % 64 == 63 {
            assert_eq!(ours.cache.destage_step(64).cleaned, 0);
        }
        ours.commit(commit).is_ok()
    };
    let committed = work.filling.iter().enumerate().filter(committed).count();
    ours.disk.mend();
    assert!(ours.drain());
    let arrived = arrived(&work.filling, |block| sectors::read_generation(&*ours.disk, block));
    Filled { name: ours.name, blocks, during_faults: DuringFaults { committed, arrived } }
}

/// A count over another, to two places.
fn each(count: u64, of: usize) -> String {
    format!("{:.2}", count as f64 / of as f64)
}

/// The columns that tell of commits.
const COMMITS: &str =
    "bytes to memory a block | beside the data | fences a commit | disk flushes a commit | disk bytes a block";
/// The columns that tell what came then.
const AFTERWARDS: &str = "disk bytes a block | disk writes | disk flushes | bytes to memory a block | commits while the disk fails | found on the mended disk";

fn heading(text: &mut String, title: &str, columns: &str) {
    let rule = " --- |".repeat(columns.split('|').count());
    writeln!(text, "\n| {title} | {columns} |\n| --- |{rule}").unwrap();
}

fn table(work: &Work, subjects: &[Subject]) -> String {
    let mut text = String::new();
    commits(&mut text, "commits of 1 block", &work.singles, subjects, |subject| subject.singles);
    commits(&mut text, "commits of 8 blocks", &work.groups, subjects, |subject| subject.groups);
    let distinct = work.distinct() as usize;
    heading(&mut text, &format!("{distinct} dirty blocks brought to the disk"), AFTERWARDS);
    for Subject { name, drained, during_faults, .. } in subjects {
        let (bytes, memory) = (each(drained.disk_bytes, distinct), each(drained.memory.bytes, distinct));
        let (writes, flushes) = (drained.disk_writes, drained.disk_flushes);
        let committed = format!("{} of {}", during_faults.committed, work.during_faults.len());
        writeln!(
            text,
            "| {name} | {bytes} | {writes} | {flushes} | {memory} | {committed} | {} |",
            during_faults.arrived
        )
        .unwrap();
    }
    text
}

fn commits(text: &mut String, title: &str, commits: &[Commit], subjects: &[Subject], of: fn(&Subject) -> Counts) {
    let blocks = blocks_of(commits);
    heading(text, title, COMMITS);
    for subject in subjects {
        let counts = of(subject);
        let cells = [
            each(counts.memory.bytes, blocks),
            each(counts.beside_data(blocks), blocks),
            each(counts.memory.fences, commits.len()),
            each(counts.disk_flushes, commits.len()),
            each(counts.disk_bytes, blocks),
        ];
        writeln!(text, "| {} | {} |", subject.name, cells.join(" | ")).unwrap();
    }
}

/// What small caches did.
fn filled_table(work: &Work, filled: &[Filled]) -> String {
    let mut text = String::new();
    let title = format!("{} blocks, a disk that fails", work.filling.len());
    heading(&mut text, &title, "room for | commits taken | found on the mended disk");
    for Filled { name, blocks, during_faults: DuringFaults { committed, arrived } } in filled {
        writeln!(text, "| {name} | {blocks} | {committed} | {arrived} |").unwrap();
    }
    text
}

fn blocks_of(commits: &[Commit]) -> usize {
    commits.iter().map(Vec::len).sum()
}

#[test]
fn the_same_writes_through_linuxs_caches_and_ours() {
    let folder = tempfile::tempdir().unwrap();
    let work = Work::from_seed(1);
    let peers = peers(folder.path());
    let said = run_guest(&work, &peers, folder.path());
    let mut subjects: Vec<Subject> = peers.iter().map(|peer| subject(peer, &work, &said)).collect();
    subjects.iter().for_each(|peer| assert_counted(peer, &work));
    subjects.push(Ours::new("Tidegate, block by block", Together::Flushed).subject(&work));
    subjects.push(Ours::new("Tidegate, transactions", Together::Atomic).subject(&work));
    announce(&table(&work, &subjects));
    let theirs = filled(&peers[0], &work, &said);
    let ours = fill_ours(theirs.blocks, &work);
    assert!(theirs.during_faults.arrived >= theirs.during_faults.committed);
    assert_eq!(
        (ours.during_faults.committed, ours.during_faults.arrived),
        (ours.blocks, ours.blocks),
        "all the room there is"
    );
    announce(&filled_table(&work, &[theirs, ours]));
    subjects.iter().for_each(|subject| assert_kept(subject, &work));
    let [mapped, as_disk, bcache, by_block, transactions] = &subjects[..] else { panic!("five systems") };
    for peer in [mapped, as_disk, bcache] {
        assert_less(peer, by_block, transactions, &work);
    }
    for ours in [by_block, transactions] {
        assert_apart_from_the_disk(ours, &work);
    }
    assert!(as_disk.singles.disk_flushes >= SINGLES as u64 && bcache.singles.disk_flushes >= SINGLES as u64);
}

/// QEMU and the kernel count alike, wherever the kernel counts: reads are not mistaken for stores,
/// and no store is missed.
fn assert_counted(peer: &Subject, work: &Work) {
    for (counts, commits) in [(peer.singles, &work.singles), (peer.groups, &work.groups)] {
        assert!(counts.memory.bytes >= blocks_of(commits) as u64 * BLOCK_BYTES, "{}: {counts:?}", peer.name);
    }
    let mapped = peer.name == PEERS[0].0;
    for counts in [peer.singles, peer.groups, peer.drained] {
        let expected = if mapped { 0 } else { counts.memory.bytes };
        let apart = counts.memory_by_blocks.abs_diff(expected);
        assert!(apart <= BETWEEN_COUNTS_BYTES_MAX, "{}: {counts:?}", peer.name);
    }
}

/// What was acknowledged came to the disk, and all of it had to be written there.
fn assert_kept(subject: &Subject, work: &Work) {
    let disk_bytes: u64 =
        [subject.singles, subject.groups, subject.drained].iter().map(|counts| counts.disk_bytes).sum();
    assert!(disk_bytes >= work.distinct() * BLOCK_BYTES, "{}: {disk_bytes} bytes", subject.name);
    let DuringFaults { committed, arrived } = subject.during_faults;
    assert!(arrived >= committed, "{}: {committed} acknowledged while the disk failed, {arrived} kept", subject.name);
}

/// A block that is committed alone costs us the fewest bytes, a transaction the fewest fences.
fn assert_less(peer: &Subject, by_block: &Subject, transactions: &Subject, work: &Work) {
    let beside = |subject: &Subject| subject.singles.beside_data(blocks_of(&work.singles));
    assert!(beside(transactions) < beside(peer), "{}", peer.name);
    assert!(transactions.singles.memory.fences <= peer.singles.memory.fences, "{}", peer.name);
    assert!(transactions.groups.memory.fences < peer.groups.memory.fences, "{}", peer.name);
    assert!(by_block.groups.memory.bytes < peer.groups.memory.bytes, "{}", peer.name);
}

/// Commits never wait for our disk, and each block comes to it once.
fn assert_apart_from_the_disk(ours: &Subject, work: &Work) {
    for counts in [ours.singles, ours.groups] {
        assert_eq!((counts.disk_writes, counts.disk_flushes), (0, 0), "{}", ours.name);
    }
    assert_eq!(ours.drained.disk_bytes, work.distinct() * BLOCK_BYTES, "{}", ours.name);
    assert_eq!(ours.during_faults.committed, work.during_faults.len(), "{}", ours.name);
}
