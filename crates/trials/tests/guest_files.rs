//! A guest whose disk is a volume over NBD: Filebench's personalities on its Ext4, and what of that
//! comes to the disk and to the memory. The volume is the block translation table, or that behind
//! the transit cache or one of its rivals.
//!
//! Counts only; a guest under emulation tells no times.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use tidegate_block_export::{Export, ExportCounters, RequestCounters, RequestKind};
use tidegate_btt::{Btt, Contents, FormatSpec, OpenOptions, Repair};
use tidegate_layout::btt::Version;
use tidegate_media::{BlockDevice, Counters, MappedRegion};
use tidegate_nbd::{Exports, Service, serve};
use tidegate_reproduction::caiti::stacks::Kind;
use tidegate_trials::artefacts::announce;
use tidegate_trials::guest::{Guest, Transcript};

const REGION_BYTES: u64 = 192 << 20;
const BLOCK_BYTES: u64 = 4096;
/// Bytes of map and log for each block written, at most.
const BESIDE_A_BLOCK_BYTES_MAX: u64 = 64;
const THREADS: u64 = 2;
const ROUNDS: u64 = 20;

/// A personality, the operations of one of its rounds, and how often each round waits until
/// something is durable.
const PERSONALITIES: [(&str, u64, u64); 4] =
    [("webserver", 11, 0), ("webproxy", 8, 0), ("varmail", 5, 2), ("fileserver", 5, 0)];

/// Words of the script. After each personality everything is brought to the disk, so that its
/// counts are its own.
const WORDS: &str = r#"
disks
load crc16 crc32c_generic mbcache jbd2 ext4
mkfs.ext4 -q -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/vda
mkdir /mnt
mount -t ext4 /dev/vda /mnt
files() { find /mnt -type f | sort | xargs sha256sum | sha256sum; }
personality() {
    sync
    tally $1 vda
    echo "done $(/personality $1 /mnt $2 $3)"
    sync
    tally $1 vda
}
"#;

/// The end of the script: the files are read from the disk anew.
const JUDGED: &str = r#"
echo "before $(files)"
umount /mnt
e2fsck -fn /dev/vda
mount -t ext4 -o ro /dev/vda /mnt
echo "after $(files)"
umount /mnt
tally all vda
"#;

fn run_guest(socket: &Path) -> Transcript {
    let mut guest = Guest::new();
    guest.served_disk(socket, "volume");
    guest.program("tidegate-bench/personality").unwrap_or_else(|error| panic!("{error}"));
    for tool in ["mkfs.ext4", "e2fsck"] {
        guest.tool(tool, "e2fsprogs").unwrap_or_else(|error| panic!("{error}"));
    }
    guest.file("etc/mke2fs.conf", std::fs::read("/etc/mke2fs.conf").expect("apt-get install e2fsprogs"));
    guest.script(WORDS);
    for (label, _, _) in PERSONALITIES {
        guest.script(&format!("personality {label} {THREADS} {ROUNDS}"));
    }
    guest.script(JUDGED);
    guest.run().unwrap_or_else(|error| panic!("{error}"))
}

/// What a guest did to a volume.
struct Served {
    said: Transcript,
    /// What came to the server.
    requests: ExportCounters,
}

impl Served {
    fn of(&self, kind: RequestKind) -> (u64, u64) {
        let RequestCounters { requests, bytes, errors, .. } = *self.requests.of(kind);
        assert_eq!(errors, 0, "{kind:?}");
        (requests, bytes)
    }

    /// Every personality did its work, and its files are on the volume as they were in the guest's
    /// memory.
    fn judge(&self) {
        announce(
            "| personality | operations | disk writes an operation | KiB to the disk an operation | disk flushes |",
        );
        announce("| --- | --- | --- | --- | --- |");
        PERSONALITIES.iter().for_each(|personality| judge(personality, &self.said));
        assert_eq!(self.said.value("before"), self.said.value("after"), "the files as they are on the volume");
        let ((writes, bytes), (flushes, _)) = (self.of(RequestKind::Write), self.of(RequestKind::Flush));
        announce(&format!("server: {writes} writes of {bytes} bytes, {flushes} flushes"));
        let flushed = tallies(&self.said, "all")[0][2];
        assert!(flushes >= flushed, "the guest's disk was flushed {flushed} times");
    }
}

/// Runs the guest on `device`.
fn served(device: Arc<dyn BlockDevice>) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let export = Export::new("volume", "the guest's disk", device);
    let exports = Exports::new(vec![export]).unwrap();
    let service = Service::plain(exports);
    let said = std::thread::scope(|scope| {
        let serving = scope.spawn(|| serve(&service, &listener.accept().unwrap().0));
        let said = std::panic::catch_unwind(|| run_guest(&socket));
        // Ends the wait for a guest that never came.
        drop(UnixStream::connect(&socket));
        let ended = serving.join().unwrap();
        let said = said.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        ended.unwrap();
        said
    });
    let requests = service.exports.iter().next().unwrap().counters();
    Served { said, requests }
}

/// Requests, sectors of 512 bytes and flushes at each tally of `label`.
fn tallies(said: &Transcript, label: &str) -> Vec<[u64; 3]> {
    let own = said.lines.iter().filter_map(|line| line.strip_prefix("tally ")?.strip_prefix(label)?.strip_prefix(' '));
    own.map(|counts| {
        let counts: Vec<u64> = counts.split(' ').map(|count| count.parse().unwrap()).collect();
        counts.try_into().unwrap()
    })
    .collect()
}

#[test]
fn filebenchs_personalities_in_a_guest_on_a_volume() {
    let region = MappedRegion::anonymous(REGION_BYTES).unwrap();
    let spec = FormatSpec { version: Version::V1_1, sector_size: 4096, uuid: [9; 16], parent_uuid: [0; 16] };
    tidegate_btt::format(&region, &spec, Contents::Zeroed).unwrap();
    let btt = Arc::new(Btt::open(region, &OpenOptions::default()).unwrap());
    let before = btt.region().counters();
    let served = served(btt.clone());
    let memory: Counters = btt.region().counters() - before;
    served.judge();
    let ((_, bytes), zeroed) = (served.of(RequestKind::Write), served.of(RequestKind::WriteZeroes));
    announce(&format!("{zeroed:?} of zeroes; memory: {memory:?}"));
    // Zeroes are stored, or noted in the map.
    let (least, most) = (bytes, bytes + zeroed.1);
    let beside_max = most / BLOCK_BYTES * BESIDE_A_BLOCK_BYTES_MAX;
    assert!((least..=most + beside_max).contains(&memory.bytes_stored));
    let findings = tidegate_btt::check(btt.region(), Repair::No).unwrap().findings;
    assert!(findings.is_empty(), "{findings:?}");
}

/// Caches of 4 MiB, a tenth of what the guest writes.
#[test]
fn the_same_behind_transit_and_behind_caches_that_stage() {
    for kind in [Kind::Tidegate, Kind::Pmbd70] {
        announce(kind.label());
        let stack = kind.stack("nvdimm", REGION_BYTES, 4 << 20).unwrap();
        served(stack.device.clone()).judge();
    }
}

/// A personality did all its operations, and waited for the disk as often as it had to.
fn judge((label, operations, durable): &(&str, u64, u64), said: &Transcript) {
    let done = said.value(&format!("done {label}")).unwrap_or_else(|| panic!("no {label}"));
    let expected = THREADS * ROUNDS * operations;
    assert_eq!(done.split(' ').next(), Some(&*expected.to_string()), "{label}");
    let [before, after] = tallies(said, label)[..] else { panic!("two tallies of {label}") };
    let [writes, sectors, flushes] = [0, 1, 2].map(|place| after[place] - before[place]);
    let each = |count: u64| count as f64 / expected as f64;
    announce(&format!("| {label} | {expected} | {:.2} | {:.2} | {flushes} |", each(writes), each(sectors) / 2.0));
    // Threads that wait at the same time may share a flush.
    assert!(flushes >= durable * ROUNDS, "{label}: {flushes} flushes");
    assert!(sectors > 0, "{label}");
}
